"""What an earlier export held, against a plain dictionary."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.sources import echo as exported
from noctuary.sources.echo import (
    CLOCK_OFFSET_US,
    MOSTLY,
    RETENTION_DAYS,
    ExportedContents,
    KnownInjections,
    prune_injections,
    read_injections,
)
from noctuary.sources.injected import NOTE, hash_exact
from tests.support.injections import DAY_US, INJECTED_US, guard_of, memory, put_in_prompt, row

KEY = "The spare key hangs in the pantry, left of the door."
TRAM = "Line 4 leaves Harbour Square every 12 minutes until midnight."
LIST = "Shopping for Sunday:\n- two litres of milk\n- eggs from the market\n- salt"
SHORT = "Ana likes tea."
TURN = "Mira: The boiler shows error F22 again, the pressure is low."


@pytest.fixture
def store(tmp_path: Path) -> Path:
    known = [memory(n, text) for n, text in enumerate((KEY, TRAM, LIST, SHORT), 17)]
    put_in_prompt(tmp_path, *known, memory(21, TURN, session_id="s"))
    return tmp_path


def is_echo(store: Path, record: MemoryRecord) -> bool:
    found = guard_of(store).judge(record)
    assert found.text in (None, record.content)
    return found.text is None


WHOLE = "\n".join([KEY, TRAM, LIST, SHORT, TURN])
CUT = f"- {KEY}\n- {TRAM}\nAna has it."


@pytest.mark.parametrize(
    "content",
    [
        KEY,
        f"- {KEY}",
        f"1. {KEY}\n2. {TRAM}",
        f"> \u201c{KEY}\u201d",
        f"**{KEY}**",
        f"- [17] 2026-03-01: {KEY}",
        f"[17] {KEY}",
        f"2026-03-01: {KEY}",
        "The spare key hangs\nin the pantry,\nleft of the door.",
        f"{KEY} {TRAM}",
        f"{TRAM}\n\n---\n{KEY}",
        f"Recalled memories:\n- {KEY}\n- {TRAM}",
        f"Remember: {KEY}",
        f"{NOTE}\n- [17] 2026-03-01: {KEY}",
        LIST,
        " ".join(LIST.split()),
        LIST.replace("- ", "* "),
        LIST.replace("- ", ""),
        TURN,
        TURN.removeprefix("Mira: "),
        KEY.upper(),
        # A short memory is known inside of its block, with its id and day, beside a longer one.
        WHOLE,
        " ".join(WHOLE.split()),
        f"- [17] 2026-03-01: {KEY}\n- [20] 2026-03-01: {SHORT}",
        f"[20] 2026-03-01: {SHORT}",
        f"* {SHORT}\n* {KEY}",
        f"{KEY} {SHORT}",
    ],
)
def test_a_row_of_injected_lines_alone_is_an_echo(store: Path, content: str) -> None:
    assert is_echo(store, row(content))


@pytest.mark.parametrize(
    "content",
    [
        "The spare key hangs in the garage, left of the door.",
        KEY.replace("door.", "door?"),
        f"Outdated: {KEY}",
        f"{KEY} Not any more: Ana has it.",
        f"{KEY}\nIs that still so? I think that Ana moved it to the car.",
        "The spare key hangs in the pantry",
        SHORT,
        f"[21] 2026-03-01: {SHORT}",
        f"{SHORT}\n{SHORT}",
        f"Ana likes coffee.\n{SHORT}",
        "no word of it",
        f"Claude: {KEY}",  # a label that is no speaker's may be news
    ],
)
def test_what_says_anything_else_stays_as_it_is(store: Path, content: str) -> None:
    assert not is_echo(store, row(content))


def test_a_turn_that_answers_with_a_memory_alone_is_an_echo(store: Path) -> None:
    quoted = f"assistant: You told me this in March:\n- {KEY}\nShall I change it to the garage?"
    turns = {f"assistant: {KEY}": True, f"Claude:\n- {KEY}": True, quoted: False}
    for content, echo in turns.items():
        assert is_echo(store, row(content, is_turn=True, session_id="s")) is echo


def test_of_a_row_that_is_mostly_injected_the_rest_stays(store: Path) -> None:
    rest = "Ana has it."
    own, injected = 3, 11 + 10
    assert injected / (own + injected) >= MOSTLY
    # Also where it was exported cut before.
    for held in (None, {"900": hash_exact(rest)}):
        assert guard_of(store, held).judge(row(CUT)) == (rest, 0, 2)
    assert guard_of(store).judge(row(rest)) == (rest, 0, 0)
    longer = CUT + " She took it on Monday morning."
    assert guard_of(store).judge(row(longer)).text == longer


def test_blocks_go_and_the_prompt_stays_also_without_a_record(tmp_path: Path) -> None:
    assert not is_echo(tmp_path, row(KEY)), "without a record only blocks are known"
    block = put_in_prompt(tmp_path, memory(17, KEY), memory(20, SHORT)).text
    for record in (tmp_path, tmp_path / "without-a-record"):
        guard = guard_of(record)
        assert guard.judge(row(block)) == (None, 1, 0)
        assert guard.judge(row(f"Mira: {block}", is_turn=True)) == (None, 1, 0)
        asked = guard.judge(row(f"{block}\nWhere is the key?"))
        assert asked == ("Where is the key?", 1, 0)
    assert guard_of(tmp_path).judge(row(f"{block}\n{KEY}")) == (None, 1, 1)


# The original of an injected line, by any clock.


@pytest.mark.parametrize("made_us", [UNDATED_US, 0, INJECTED_US, INJECTED_US * 2])
def test_the_original_stays_whatever_its_date(store: Path, made_us: int) -> None:
    assert not is_echo(store, row(KEY, "17", created_at_us=made_us))
    assert is_echo(store, row(KEY, "170", created_at_us=INJECTED_US * 2))


def test_an_original_that_was_edited_stays_and_may_be_edited_back(store: Path) -> None:
    edited = KEY.replace("pantry", "garage")
    assert not is_echo(store, row(edited, "17"))
    put_in_prompt(store, memory(17, edited))
    for content in (KEY, edited, f"{KEY}\nAsk Ana."):
        assert not is_echo(store, row(content, "17"))


@pytest.mark.parametrize(
    ("made_us", "echo"),
    [
        (INJECTED_US - CLOCK_OFFSET_US - 1, False),
        (INJECTED_US - CLOCK_OFFSET_US, True),  # its clock may be a time zone behind
        (INJECTED_US * 2, True),
    ],
)
def test_only_an_older_row_with_the_same_words_stays(store: Path, made_us: int, echo: bool) -> None:
    assert is_echo(store, row(KEY, created_at_us=made_us)) is echo


def test_an_undated_row_stays_if_the_export_before_held_it(store: Path) -> None:
    twin = row(KEY, "55", created_at_us=UNDATED_US)
    assert is_echo(store, twin)
    assert guard_of(store, {"55": hash_exact(KEY)}).judge(twin).text == KEY
    assert guard_of(store, {"55": hash_exact("other words")}).judge(twin).text is None


# Users.


@pytest.mark.parametrize(
    ("owner", "writer", "echo"),
    [
        (None, None, True),
        (None, "ana", True),
        ("ana", "ana", True),
        ("ana", None, True),
        ("ana", "bob", False),
    ],
)
def test_nobody_loses_a_row_to_another_users_injection(
    tmp_path: Path, owner: str | None, writer: str | None, echo: bool
) -> None:
    put_in_prompt(tmp_path, memory(17, KEY, user=owner))
    assert is_echo(tmp_path, row(KEY, user=writer)) is echo


# What people type.


def test_a_question_that_is_asked_again_stays_a_turn(tmp_path: Path) -> None:
    asked = "Run the nightly job and mail me everything that failed, please."
    old = memory(5, f"Mira: {asked}", session_id="s")
    put_in_prompt(tmp_path, old, query=asked)
    again = row(f"Mira: {asked}", is_turn=True, session_id="s2")
    assert not is_echo(tmp_path, again)
    assert is_echo(tmp_path, row(asked)), "as a memory it is one more copy"


def test_the_guard_tells_which_wordings_it_needed(store: Path) -> None:
    guard = guard_of(store)
    guard.judge(row(f"{KEY} And so much more is said here that this stays a quotation."))
    assert guard.used == set()
    guard.judge(row(KEY))
    assert len(guard.used) == 1


EXPIRES_US = INJECTED_US + RETENTION_DAYS * DAY_US
NEWER = "format 9, expected 1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    put_in_prompt(tmp_path, memory(17, KEY))
    put_in_prompt(tmp_path, memory(18, TRAM))
    return tmp_path / "injected.sqlite"


def test_what_is_old_and_unused_is_forgotten(path: Path) -> None:
    guard = guard_of(path.parent)
    assert guard.judge(row(KEY)).text is None
    assert prune_injections(path, used=guard.used, now_us=EXPIRES_US) == (0, None)
    assert prune_injections(path, used=guard.used, now_us=EXPIRES_US + 1) == (1, None)
    later = guard_of(path.parent)
    assert later.judge(row(KEY)).text is None
    assert later.judge(row(TRAM)).text == TRAM


def test_no_record_is_an_empty_one(tmp_path: Path) -> None:
    gone = tmp_path / "injected.sqlite"
    assert read_injections(gone) == KnownInjections()
    assert prune_injections(gone, used=(), now_us=EXPIRES_US) == (0, None)
    assert not gone.exists()


@pytest.mark.parametrize(
    ("damage", "said"), [("damaged", "injected.sqlite cannot be read"), ("newer", NEWER)]
)
def test_a_record_that_cannot_be_read_is_an_empty_one_with_a_fault_and_left_alone(
    path: Path, damage: str, said: str
) -> None:
    if damage == "damaged":
        path = path.parent / "another" / path.name
        path.parent.mkdir()
        path.write_bytes(b"x" * 5000)
    else:
        with closing(sqlite3.connect(path)) as record:
            record.execute("PRAGMA user_version=9")
    known = read_injections(path)
    assert not known.occurrences
    assert said in str(known.fault)
    deleted, fault = prune_injections(path, used=(), now_us=EXPIRES_US * 2)
    assert (deleted, fault is None) == (0, False)
    assert damage == "damaged" or said in str(fault)


def test_a_locked_record_is_pruned_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noctuary.core.sqlite.WAIT_S", 0.01)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        deleted, fault = prune_injections(path, used=(), now_us=EXPIRES_US * 2)
        assert (deleted, "locked" in str(fault)) == (0, True)
    assert prune_injections(path, used=(), now_us=EXPIRES_US * 2) == (2, None)


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=8)), st.lists(st.text(max_size=4)))
def test_it_answers_as_a_dictionary_of_hashes(rows: dict[str, str], others: list[str]) -> None:
    held = ExportedContents(rows.items())
    assert len(held) == len(rows)
    for memory_id in (*rows, *others):
        known = rows.get(memory_id)
        assert held.get(memory_id) == (None if known is None else hash_exact(known))
        assert (memory_id in held) == (memory_id in rows)


def test_ids_with_half_a_hash_in_common_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def same_half(text: str) -> bytes:
        return b"8 bytes." + hash_exact(text)[:8]

    monkeypatch.setattr(exported, "hash_exact", same_half)
    rows = {str(n): f"content {n}" for n in range(20)}
    held = ExportedContents(rows.items())
    assert [held.get(n) for n in rows] == [same_half(text) for text in rows.values()]
    assert "21" not in held
    assert 3 not in held


def test_an_export_that_is_not_there_or_damaged_held_nothing(tmp_path: Path) -> None:
    damaged = tmp_path / "memories.parquet"
    damaged.write_bytes(b"no parquet")
    for path in (None, tmp_path / "gone.parquet", damaged):
        assert len(ExportedContents.read(path)) == 0
