"""What only asks memory is no memory: the rule, and what the night does with such a turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noctuary.context.inject import inject
from noctuary.core.types import UNDATED_US
from noctuary.sources.echo import CLOCK_OFFSET_US
from noctuary.sources.injected import hash_exact, hash_words, is_lookup, words_of
from tests.support.injections import INJECTED_US, answer, guard_of, memory, put_in_prompt, row

KEY = "The spare key hangs in the pantry, left of the door."
SECRET = "AKIA" + "Q7ZV3M5RT2XW9KDB"
ASKED = "Where does the spare key hang?"


@pytest.mark.parametrize(
    ("prompt", "is_one"),
    [
        (ASKED, True),
        ("Where is the key? And where is the *ladder*?", True),
        ("钥匙在哪里？", True),
        ("spare key pantry", True),
        ("spare key cellar", False),
        ("We moved. Where is the spare key?", False),
        ("Where is the spare key? It is not in the pantry.", False),
        ("The spare key. Where is it?", True),
        ("Ana has the spare key now.", False),
        ("", False),
        ("...", False),
        ("?", True),
    ],
)
def test_a_prompt_that_tells_nothing_is_a_lookup(prompt: str, is_one: bool) -> None:
    assert is_lookup(prompt, [KEY]) is is_one


def is_set_aside(store: Path, text: str, exported: bool = False, **fields: Any) -> bool:
    record = row(f"User: {text}", is_turn=True, session_id="s", **fields)
    before = {record.memory_id: hash_exact(record.content)} if exported else {}
    found = guard_of(store, before).judge(record)
    assert found.text in (None, record.content)
    return found.text is None


def test_the_turn_of_a_lookup_is_set_aside(tmp_path: Path) -> None:
    put_in_prompt(tmp_path, memory(17, KEY), query=ASKED)
    assert is_set_aside(tmp_path, ASKED)
    assert is_set_aside(tmp_path, f"> {ASKED.upper()}")
    assert is_set_aside(tmp_path, ASKED, created_at_us=UNDATED_US)
    assert not is_set_aside(tmp_path, f"{ASKED} Ana has it.")
    assert not is_set_aside(tmp_path, "Where does the other key hang?")


def test_it_stays_where_it_was_before(tmp_path: Path) -> None:
    put_in_prompt(tmp_path, memory(17, KEY), query=ASKED)
    assert not is_set_aside(tmp_path, ASKED, exported=True)
    long_ago = INJECTED_US - CLOCK_OFFSET_US - 1
    assert not is_set_aside(tmp_path, ASKED, created_at_us=long_ago)
    assert is_set_aside(tmp_path, ASKED, created_at_us=long_ago + 1)


def test_a_stored_question_that_is_no_turn_stays(tmp_path: Path) -> None:
    put_in_prompt(tmp_path, memory(17, KEY), query=ASKED)
    assert guard_of(tmp_path).judge(row(ASKED)).text == ASKED


def test_what_found_nothing_is_a_lookup_too(tmp_path: Path) -> None:
    done = inject(answer(tmp_path, query=ASKED))
    assert done == ("", 0, 0, None)
    assert is_set_aside(tmp_path, ASKED, created_at_us=UNDATED_US)
    inject(answer(tmp_path, query="boiler pressure"))
    assert not is_set_aside(tmp_path, "boiler pressure", created_at_us=UNDATED_US)


def test_nothing_of_it_is_on_record_where_nothing_is_to_be(tmp_path: Path) -> None:
    inject(answer(tmp_path, query=ASKED), on_record=False)
    inject(answer(tmp_path, query=f"Is {SECRET} still valid?"))
    assert not (tmp_path / "injected.sqlite").exists()


def test_the_record_keeps_what_still_sets_a_turn_aside(tmp_path: Path) -> None:
    put_in_prompt(tmp_path, memory(17, KEY), query=ASKED)
    guard = guard_of(tmp_path)
    guard.judge(row(f"User: {ASKED}", is_turn=True, session_id="s"))
    assert guard.used == {hash_words(words_of(ASKED))}
