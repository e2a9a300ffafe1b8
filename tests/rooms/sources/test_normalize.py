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
CLAMPED = ("importance_clamped",)


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


def test_a_bare_row_gets_the_defaults() -> None:
    record = accept()
    assert record._asdict() == {
        "position": 3,
        "memory_id": "7",
        "content": "text",
        "is_turn": False,
        "importance": 0.5,
        "content_hash": content_hash(record),
        "origin": "import",
        "valid_until_us": None,
        **dict.fromkeys(("category", "tags", "expanded_keywords"), ""),
        **dict.fromkeys(("session_id", "wing", "room", "user"), None),
        **dict.fromkeys(("created_at_us", "updated_at_us"), UNDATED_US),
    }
    assert warnings_of() == ()
    assert accept(content="  two\r\nlines \t").content == "  two\r\nlines \t", "verbatim"
    lists = accept(tags=["a", "b"], expanded_keywords=["c", "d"])
    assert (lists.tags, lists.expanded_keywords) == ("a,b", "c d")
    assert accept(importance=-0.0).content_hash == accept(importance=0).content_hash


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        *[({"content": value}, reason) for value, reason in (
            (None, Reason.MISSING_CONTENT),
            (b"blob", Reason.CONTENT_NOT_TEXT),
            (17, Reason.CONTENT_NOT_TEXT),
            (["a"], Reason.CONTENT_NOT_TEXT),
            ("", Reason.EMPTY_CONTENT),
            (" \n\t\u3000", Reason.EMPTY_CONTENT),
            ("\u200b\ufeff", Reason.EMPTY_CONTENT),
            ("\0", Reason.EMPTY_CONTENT),
            ("canary\0b", Reason.NUL_BYTES),
            ("canary\ud800b", Reason.BAD_UNICODE),
            ("canary" * 200_000, Reason.CONTENT_TOO_LARGE),
        )],
        *[({name: value}, reason)
          for name in ("category", "tags", "expanded_keywords", "wing", "user_id")
          for value, reason in (
            ("canary\0", Reason.NUL_BYTES),
            ("canary\udfff", Reason.BAD_UNICODE),
            ({"canary": 1}, Reason.BAD_FIELD),
            (1.5, Reason.BAD_FIELD),
            ([1], Reason.BAD_FIELD),
            ("x" * (MAX_FIELD_BYTES + 1), Reason.FIELD_TOO_LARGE),
        )],
        *[({"importance": value}, Reason.BAD_IMPORTANCE) for value in (
            float("nan"), float("inf"), float("-inf"), "canary", "0.5", "", True, b"1", [0.5],
        )],
        *[({"created_at": value}, Reason.BAD_DATE) for value in (
            "canary", "2024-13-01", "2024-02-30", "01/02/2024", 1_700_000_000, 1.5, b"2024",
        )],
        *[({"created_at": value}, Reason.DATE_OUT_OF_RANGE) for value in (
            "1969-12-31T23:59:59.999999Z", "2201-01-01", "0001-01-01T00:00:00+23:59", "9999-12-31",
        )],
        ({"deleted_at": "2024-01-01"}, Reason.DELETED),
    ],
    ids=lambda value: "-".join(str(value)[:40].split()),
)  # fmt: skip
def test_what_is_no_memory_is_rejected_in_words_that_hold_none_of_its_own(
    row: dict[str, object], reason: Reason
) -> None:
    verdict = judge(**row)
    assert isinstance(verdict, Rejected)
    assert verdict.reason is reason
    assert "canary" not in verdict.detail


def test_the_content_limit_counts_bytes_and_includes_itself() -> None:
    settings = CorpusSettings(max_content_bytes=6)
    assert isinstance(judge(settings, content="日本"), Accepted)
    verdict = judge(settings, content="日本a")
    assert isinstance(verdict, Rejected)
    assert verdict.args == (Reason.CONTENT_TOO_LARGE, "content: 7 bytes, at most 6")
    assert isinstance(judge(settings, content="日本", deleted_at=None), Accepted)


@pytest.mark.parametrize(
    ("row", "field", "value", "warnings"),
    [
        *[({"importance": given}, "importance", value, bent) for given, value, bent in (
            (None, 0.5, ()),
            (0, 0.0, ()),
            (1, 1.0, ()),
            (0.25, 0.25, ()),
            (1.5, 1.0, CLAMPED),
            (-3, 0.0, CLAMPED),
            (10**400, 1.0, CLAMPED),
        )],
        *[({"created_at": given}, "created_at_us", value, ()) for given, value in (
            (None, UNDATED_US),
            ("", UNDATED_US),
            ("1970-01-01", 0),
            ("1970-01-02T00:00:00Z", DAY_US),
            ("1970-01-02T00:00:00", DAY_US),  # naive means UTC
            (" 1970-01-02 00:00:00.000001 ", DAY_US + 1),
            ("1970-01-02T02:00:00+02:00", DAY_US),
            ("1969-12-31T23:00:00-01:00", 0),
            ("2024-10-04T00:00:00Z", NOW_US),
        )],
        ({"created_at": "2024-10-04T00:00:00.000001Z"}, "created_at_us", NOW_US + 1,
         ("created_in_future",)),
        ({"created_at": "1970-01-02", "updated_at": "1970-01-01"}, "updated_at_us", 0,
         ("updated_before_created",)),
        ({"created_at": "1970-01-02", "updated_at": None}, "updated_at_us", UNDATED_US, ()),
        *[({"updated_at": given}, "updated_at_us", UNDATED_US, ("updated_at_unusable",))
          for given in ("soon", 5, "1900-01-01")],
    ],
)  # fmt: skip
def test_numbers_and_dates_are_read_and_what_is_bent_is_warned_of(
    row: dict[str, object], field: str, value: object, warnings: tuple[str, ...]
) -> None:
    assert getattr(accept(**row), field) == value
    assert warnings_of(**row) == warnings


@pytest.mark.parametrize(
    ("row", "scope"),
    [
        ({"wing": " w ", "room": "r", "user_id": "u", "session_id": 12}, ("w", "r", "u", "12")),
        (
            {"tags": "plain, Wing: Garden ,room:,room:shed,user:ann,session:s-1,wing:second"},
            ("Garden", "shed", "ann", "s-1"),
        ),
        ({"wing": "field", "tags": "wing:tag"}, ("field", None, None, None)),
        ({"wing": "", "tags": "wing:tag"}, ("tag", None, None, None)),
        ({"tags": "project:p,wing:w"}, ("w", None, None, None)),
        ({"tags": "project:p"}, ("p", None, None, None)),
        ({"tags": "topic:p,walls"}, (None, None, None, None)),
    ],
)
def test_scope_is_of_fields_then_of_tags_and_wing_before_project(
    row: dict[str, object], scope: tuple[str | None, ...]
) -> None:
    record = accept(**row)
    assert (record.wing, record.room, record.user, record.session_id) == scope
    assert record.tags == row.get("tags", "")


def test_a_turn_needs_its_category_and_a_session() -> None:
    assert accept(category="turn", session_id="s").is_turn
    assert accept(category="dialog_turn", tags="session:s").is_turn
    assert not accept(category="turn").is_turn
    assert not accept(category="facts", session_id="s").is_turn
    settings = CorpusSettings(turn_categories=("chat",))
    verdict = judge(settings, category="chat", session_id="s")
    assert isinstance(verdict, Accepted)
    assert verdict.record.is_turn


def test_a_row_that_could_not_be_read_keeps_its_problem() -> None:
    row = RawRow("line 9", None, {}, Reason.NOT_UTF8, "12 bytes")
    verdict = normalize(row, position=0, now_us=NOW_US, settings=SETTINGS)
    assert isinstance(verdict, Rejected)
    assert verdict.args == (Reason.NOT_UTF8, "12 bytes")
    verdict = judge(SETTINGS, None)
    assert isinstance(verdict, Rejected)
    assert verdict.args == (Reason.BAD_ID, "")


def test_every_field_but_the_position_changes_the_hash() -> None:
    base = accept(wing="w", room="r", user_id="u", session_id="s", valid_until="2026-12-04")
    other = {str: "other", float: 0.75, int: 42, bool: True}
    for name, value in base._asdict().items():
        if name in ("content_hash", "origin"):
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


DAY_UNTIL_US = 1_796_342_400_000_000  # 2026-12-04


@pytest.mark.parametrize(
    ("value", "until_us", "warnings"),
    [
        (None, None, ()),
        ("", None, ()),
        ("2026-12-04", DAY_UNTIL_US + DAY_US, ()),
        (" 2026-12-04 ", DAY_UNTIL_US + DAY_US, ()),
        ("2026-12-04T00:00:00+00:00", DAY_UNTIL_US, ()),
        ("2026-12-04T01:00:00+01:00", DAY_UNTIL_US, ()),
        ("soon", None, ("valid_until_unusable",)),
        (7, None, ("valid_until_unusable",)),
        ("9999-01-01", None, ("valid_until_unusable",)),
    ],
)
def test_a_memory_ends_after_its_last_day_or_at_its_moment(
    value: object, until_us: int | None, warnings: tuple[str, ...]
) -> None:
    assert accept(valid_until=value).valid_until_us == until_us
    assert warnings_of(valid_until=value) == warnings
