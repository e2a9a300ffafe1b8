from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.sources.echo import CLOCK_OFFSET_US, MOSTLY
from noctuary.sources.injected import NOTE, hash_exact
from tests.support.injections import INJECTED_US, guard_of, memory, put_in_prompt, row

KEY = "The spare key hangs in the pantry, left of the door."
TRAM = "Line 4 leaves Harbour Square every 12 minutes until midnight."
LIST = "Shopping for Sunday:\n- two litres of milk\n- eggs from the market\n- salt"
SHORT = "Ana likes tea."
TURN = "Mira: The boiler shows error F22 again, the pressure is low."


@pytest.fixture
def store(tmp_path: Path) -> Path:
    put_in_prompt(
        tmp_path,
        memory(17, KEY),
        memory(18, TRAM),
        memory(19, LIST),
        memory(20, SHORT),
        memory(21, TURN, session_id="s"),
    )
    return tmp_path


def is_echo(store: Path, record: MemoryRecord) -> bool:
    found = guard_of(store).judge(record)
    assert found.text in (None, record.content)
    return found.text is None


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
        "no word of it",
    ],
)
def test_what_says_anything_else_stays_as_it_is(store: Path, content: str) -> None:
    assert not is_echo(store, row(content))


def test_a_short_memory_is_known_inside_of_its_block(store: Path) -> None:
    whole = "\n".join([KEY, TRAM, LIST, SHORT, TURN])
    assert is_echo(store, row(whole))
    assert is_echo(store, row(" ".join(whole.split())))
    assert not is_echo(store, row(SHORT))


def test_a_short_memory_is_known_with_its_id_and_day(store: Path) -> None:
    assert is_echo(store, row(f"- [17] 2026-03-01: {KEY}\n- [20] 2026-03-01: {SHORT}"))
    assert is_echo(store, row(f"[20] 2026-03-01: {SHORT}"))
    assert not is_echo(store, row(f"[21] 2026-03-01: {SHORT}"))
    assert not is_echo(store, row(SHORT, "20"))


def test_a_short_memory_is_known_beside_a_longer_one(store: Path) -> None:
    assert is_echo(store, row(f"* {SHORT}\n* {KEY}"))
    assert is_echo(store, row(f"{KEY} {SHORT}"))
    assert not is_echo(store, row(f"{SHORT}\n{SHORT}"))
    assert not is_echo(store, row(f"Ana likes coffee.\n{SHORT}"))


def test_a_turn_that_answers_with_a_memory_alone_is_an_echo(store: Path) -> None:
    assert is_echo(store, row(f"assistant: {KEY}", is_turn=True, session_id="s"))
    assert is_echo(store, row(f"Claude:\n- {KEY}", is_turn=True, session_id="s"))
    assert not is_echo(store, row(f"Claude: {KEY}")), "a label that is no speaker's may be news"


def test_a_quotation_in_a_turn_of_its_own_stays(store: Path) -> None:
    content = f"assistant: You told me this in March:\n- {KEY}\nShall I change it to the garage?"
    assert not is_echo(store, row(content, is_turn=True))


def test_of_a_row_that_is_mostly_injected_the_rest_stays(store: Path) -> None:
    rest = "Ana has it."
    content = f"- {KEY}\n- {TRAM}\n{rest}"
    own, injected = 3, 11 + 10
    assert injected / (own + injected) >= MOSTLY
    found = guard_of(store).judge(row(content))
    assert found == (rest, 0, 2)
    assert guard_of(store).judge(row(rest)) == (rest, 0, 0)
    longer = content + " She took it on Monday morning."
    assert guard_of(store).judge(row(longer)).text == longer


def test_blocks_go_and_the_prompt_stays(tmp_path: Path) -> None:
    block = put_in_prompt(tmp_path, memory(17, KEY), memory(20, SHORT)).text
    for record in (tmp_path, tmp_path / "without-a-record"):
        guard = guard_of(record)
        assert guard.judge(row(block)) == (None, 1, 0)
        assert guard.judge(row(f"Mira: {block}", is_turn=True)) == (None, 1, 0)
        asked = guard.judge(row(f"{block}\nWhere is the key?"))
        assert asked == ("Where is the key?", 1, 0)
    assert guard_of(tmp_path).judge(row(f"{block}\n{KEY}")) == (None, 1, 1)


def test_without_a_record_only_blocks_are_known(tmp_path: Path) -> None:
    assert not is_echo(tmp_path, row(KEY))


def test_a_new_memory_that_repeats_what_was_never_injected_stays(store: Path) -> None:
    assert not is_echo(store, row("The tram pass is renewed on the first of every month."))


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


def test_an_older_row_with_the_same_words_stays(store: Path) -> None:
    older = INJECTED_US - CLOCK_OFFSET_US - 1
    assert not is_echo(store, row(KEY, created_at_us=older))


def test_an_echo_whose_clock_is_a_time_zone_behind_is_known(store: Path) -> None:
    assert is_echo(store, row(KEY, created_at_us=INJECTED_US - CLOCK_OFFSET_US))
    assert is_echo(store, row(KEY, created_at_us=INJECTED_US * 2))


def test_an_undated_row_stays_if_the_export_before_held_it(store: Path) -> None:
    twin = row(KEY, "55", created_at_us=UNDATED_US)
    assert is_echo(store, twin)
    assert guard_of(store, {"55": hash_exact(KEY)}).judge(twin).text == KEY
    assert guard_of(store, {"55": hash_exact("other words")}).judge(twin).text is None


def test_a_row_that_was_exported_cut_is_cut_again(store: Path) -> None:
    content = f"- {KEY}\n- {TRAM}\nAna has it."
    guard = guard_of(store, {"900": hash_exact("Ana has it.")})
    assert guard.judge(row(content)).text == "Ana has it."


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
