from __future__ import annotations

import pytest

from noctuary.core.settings import CorpusSettings
from noctuary.core.types import UNDATED_US, MemoryRecord, content_hash
from noctuary.sources.normalize import MAX_FIELD_BYTES, Accepted, Rejected, normalize
from noctuary.sources.source import QuarantineReason as Reason
from noctuary.sources.source import RawRow
from noctuary.text.marks import MAX_SPEAKER_CHARS, find_speaker

DAY_US = 86_400_000_000
NOW_US = 20_000 * DAY_US  # 2024-10-04
SETTINGS = CorpusSettings()


def judge(
    settings: CorpusSettings = SETTINGS, key: int | str | None = 7, /, **row: object
) -> Accepted | Rejected:
    raw = RawRow("line 1", key, {"content": "text", **row})
    return normalize(raw, position=3, now_us=NOW_US, settings=settings)


def accept(**row: object) -> MemoryRecord:
    verdict = judge(SETTINGS, **row)
    assert isinstance(verdict, Accepted)
    return verdict.record


def warnings_of(**row: object) -> tuple[str, ...]:
    verdict = judge(**row)
    assert isinstance(verdict, Accepted)
    return verdict.warnings


def reason_of(**row: object) -> Reason:
    verdict = judge(**row)
    assert isinstance(verdict, Rejected)
    return verdict.reason


def test_a_bare_row_gets_the_defaults() -> None:
    record = accept()
    assert record == MemoryRecord(
        position=3,
        memory_id="7",
        content="text",
        category="",
        tags="",
        expanded_keywords="",
        importance=0.5,
        created_at_us=UNDATED_US,
        updated_at_us=UNDATED_US,
        session_id=None,
        wing=None,
        room=None,
        user=None,
        is_turn=False,
        content_hash=content_hash(record),
    )
    assert warnings_of() == ()


def test_content_is_kept_verbatim() -> None:
    assert accept(content="  two\r\nlines \t").content == "  two\r\nlines \t"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, Reason.MISSING_CONTENT),
        (b"blob", Reason.CONTENT_NOT_TEXT),
        (17, Reason.CONTENT_NOT_TEXT),
        (["a"], Reason.CONTENT_NOT_TEXT),
        ("", Reason.EMPTY_CONTENT),
        (" \n\t\u3000", Reason.EMPTY_CONTENT),
        ("\u200b\ufeff", Reason.EMPTY_CONTENT),
        ("\0", Reason.EMPTY_CONTENT),
        ("a\0b", Reason.NUL_BYTES),
        ("a\ud800b", Reason.BAD_UNICODE),
        ("x" * 10_000_000, Reason.CONTENT_TOO_LARGE),
    ],
)
def test_content_that_is_no_memory(content: object, reason: Reason) -> None:
    assert reason_of(content=content) is reason


def test_the_content_limit_counts_bytes_and_includes_itself() -> None:
    settings = CorpusSettings(max_content_bytes=6)
    assert isinstance(judge(settings, content="日本"), Accepted)
    verdict = judge(settings, content="日本a")
    assert isinstance(verdict, Rejected)
    assert verdict.args == (Reason.CONTENT_TOO_LARGE, "content: 7 bytes, at most 6")


@pytest.mark.parametrize("name", ["category", "tags", "expanded_keywords", "wing", "user_id"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("a\0", Reason.NUL_BYTES),
        ("\udfff", Reason.BAD_UNICODE),
        ({"a": 1}, Reason.BAD_FIELD),
        (1.5, Reason.BAD_FIELD),
        ([1], Reason.BAD_FIELD),
        ("x" * (MAX_FIELD_BYTES + 1), Reason.FIELD_TOO_LARGE),
    ],
)
def test_other_texts_have_to_be_text(name: str, value: object, reason: Reason) -> None:
    assert reason_of(**{name: value}) is reason


def test_lists_of_texts_are_joined() -> None:
    record = accept(tags=["a", "b"], expanded_keywords=["c", "d"])
    assert (record.tags, record.expanded_keywords) == ("a,b", "c d")


@pytest.mark.parametrize(
    ("value", "importance", "warned"),
    [
        (None, 0.5, False),
        (0, 0.0, False),
        (1, 1.0, False),
        (0.25, 0.25, False),
        (1.5, 1.0, True),
        (-3, 0.0, True),
        (10**400, 1.0, True),
    ],
)
def test_importance(value: object, importance: float, warned: bool) -> None:
    assert accept(importance=value).importance == importance
    assert warnings_of(importance=value) == (("importance_clamped",) if warned else ())


def test_negative_zero_has_the_hash_of_zero() -> None:
    assert accept(importance=-0.0).content_hash == accept(importance=0).content_hash


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), float("-inf"), "0.5", "", True, b"1", [0.5]]
)
def test_importance_that_is_no_number(value: object) -> None:
    assert reason_of(importance=value) is Reason.BAD_IMPORTANCE


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        (None, UNDATED_US),
        ("", UNDATED_US),
        ("1970-01-01", 0),
        ("1970-01-02T00:00:00Z", DAY_US),
        ("1970-01-02T00:00:00", DAY_US),  # naive means UTC
        (" 1970-01-02 00:00:00.000001 ", DAY_US + 1),
        ("1970-01-02T02:00:00+02:00", DAY_US),
        ("1969-12-31T23:00:00-01:00", 0),
    ],
)
def test_dates(value: object, micros: int) -> None:
    assert accept(created_at=value).created_at_us == micros


@pytest.mark.parametrize(
    "value", ["yesterday", "2024-13-01", "2024-02-30", "01/02/2024", 1_700_000_000, 1.5, b"2024"]
)
def test_unparsable_dates(value: object) -> None:
    assert reason_of(created_at=value) is Reason.BAD_DATE


@pytest.mark.parametrize(
    "value",
    ["1969-12-31T23:59:59.999999Z", "2201-01-01", "0001-01-01T00:00:00+23:59", "9999-12-31"],
)
def test_dates_out_of_range(value: str) -> None:
    assert reason_of(created_at=value) is Reason.DATE_OUT_OF_RANGE


def test_clock_skew_is_warned_of_and_kept() -> None:
    assert warnings_of(created_at="2024-10-04T00:00:00Z") == ()  # now itself
    assert warnings_of(created_at="2024-10-04T00:00:00.000001Z") == ("created_in_future",)
    assert warnings_of(created_at="2024-02-01", updated_at="2024-01-01") == (
        "updated_before_created",
    )
    assert warnings_of(created_at="2024-02-01", updated_at=None) == ()


@pytest.mark.parametrize("value", ["soon", 5, "1900-01-01"])
def test_an_unusable_update_date_is_warned_of(value: object) -> None:
    assert accept(updated_at=value).updated_at_us == UNDATED_US
    assert warnings_of(updated_at=value) == ("updated_at_unusable",)


def test_scope_from_fields() -> None:
    record = accept(wing=" w ", room="r", user_id="u", session_id=12)
    scope = (record.wing, record.room, record.user, record.session_id)
    assert scope == ("w", "r", "u", "12")


def test_scope_from_tags() -> None:
    tags = "plain, Wing: Garden ,room:,room:shed,user:ann,session:s-1,wing:second"
    record = accept(tags=tags)
    scope = (record.wing, record.room, record.user, record.session_id)
    assert scope == ("Garden", "shed", "ann", "s-1")
    assert record.tags == tags


def test_fields_win_over_tags_and_wing_over_project() -> None:
    assert accept(wing="field", tags="wing:tag").wing == "field"
    assert accept(wing="", tags="wing:tag").wing == "tag"
    assert accept(tags="project:p,wing:w").wing == "w"
    assert accept(tags="project:p").wing == "p"
    assert accept(tags="topic:p,walls").wing is None


def test_a_turn_needs_its_category_and_a_session() -> None:
    assert accept(category="turn", session_id="s").is_turn
    assert accept(category="dialog_turn", tags="session:s").is_turn
    assert not accept(category="turn").is_turn
    assert not accept(category="facts", session_id="s").is_turn
    settings = CorpusSettings(turn_categories=("chat",))
    verdict = judge(settings, category="chat", session_id="s")
    assert isinstance(verdict, Accepted)
    assert verdict.record.is_turn


def test_a_deleted_row_is_no_memory() -> None:
    assert reason_of(deleted_at="2024-01-01") is Reason.DELETED
    assert accept(deleted_at=None).content == "text"


def test_a_row_that_could_not_be_read_keeps_its_problem() -> None:
    row = RawRow("line 9", None, {}, Reason.NOT_UTF8, "12 bytes")
    verdict = normalize(row, position=0, now_us=NOW_US, settings=SETTINGS)
    assert isinstance(verdict, Rejected)
    assert verdict.args == (Reason.NOT_UTF8, "12 bytes")
    verdict = judge(SETTINGS, None)
    assert isinstance(verdict, Rejected)
    assert verdict.args == (Reason.BAD_ID, "")


def test_details_hold_no_text_of_the_row() -> None:
    bad = [
        judge(content="canary\0"),
        judge(created_at="canary"),
        judge(importance="canary"),
        judge(tags={"canary": 1}),
        judge(content="canary" * 200_000),
    ]
    assert all(isinstance(v, Rejected) and "canary" not in v.detail for v in bad)


def test_every_field_but_the_position_changes_the_hash() -> None:
    base = accept(wing="w", room="r", user_id="u", session_id="s")
    other = {str: "other", float: 0.75, int: 42, bool: True}
    for name, value in base._asdict().items():
        if name == "content_hash":
            continue
        changed = base._replace(**{name: other[type(value)]})
        assert (content_hash(changed) == base.content_hash) is (name == "position")
    assert content_hash(base._replace(wing=None)) != content_hash(base._replace(wing=""))


@pytest.mark.parametrize(
    ("content", "speaker"),
    [
        ("Caroline: Hey Mel!", "Caroline"),
        ("  Dr. Ana María : hola", "Dr. Ana María"),
        ("小明：你好", "小明"),
        ("user:\nlong text", "user"),
        ("no speaker here", None),
        ("https://example.org is: fine", None),
        ("12:30 we met", None),
        (": nobody", None),
        ("--: dashes", None),
        ("a line\nBob: text", None),
        ("x" * MAX_SPEAKER_CHARS + ": ok", "x" * MAX_SPEAKER_CHARS),
        ("x" * (MAX_SPEAKER_CHARS + 1) + ": too long", None),
        ("", None),
    ],
)
def test_speaker(content: str, speaker: str | None) -> None:
    assert find_speaker(content) == speaker
