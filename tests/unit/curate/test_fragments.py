"""Which "part N of M" memories are joined, and what they say then."""

from __future__ import annotations

from itertools import count

import pytest

from noctuary.core.types import MemoryRecord
from noctuary.curate.finders import read_mark
from noctuary.curate.proposals import joined_text
from tests.support.proposals import ask, numbered, text_of
from tests.support.store import day_us, memory


@pytest.mark.parametrize(
    ("content", "number", "of", "title", "body"),
    [
        ("Part 2 of 3: the rest", 2, 3, "", "the rest"),
        ("Homelab setup (part 1 of 4): the rack", 1, 4, "Homelab setup", "the rack"),
        ("Homelab setup - part 1/4\nthe rack", 1, 4, "Homelab setup", "the rack"),
        ("[3/12] the rest", 3, 12, "", "the rest"),
        ("the rest (2/3)", 2, 3, "", "the rest"),
        ("the rest [Part 2 of 3]", 2, 3, "", "the rest"),
        ("CHUNK 1 of 2 the rest", 1, 2, "", "the rest"),
    ],
)
def test_marks_that_are_read(content: str, number: int, of: int, title: str, body: str) -> None:
    found = read_mark(content)
    assert found is not None
    assert (found.number, found.of, found.title) == (number, of, title)
    assert content[found.start : found.end] == body


@pytest.mark.parametrize(
    "content",
    [
        "We watched part 2 of 3 of the series.",
        "Part 4 of 3: too far",
        "Part 0 of 3: none",
        "Part 1 of 1: whole",
        "Part 1 of 100: a book",
        "The rest of it (24/7) is open.",
        f"{'A long sentence. ' * 9}(part 1 of 2): x",
        "A line.\nAnother.\nPart 1 of 2: below them",
        "Ratio 1/2",
        "",
    ],
)
def test_marks_that_are_none(content: str) -> None:
    assert read_mark(content) is None


def fragments(*texts: str, **fields: object) -> list[MemoryRecord]:
    days = count(1)
    return numbered(
        *(memory(t, **{"created_at_us": day_us(1) + next(days), **fields}) for t in texts)
    )


def test_a_whole_set_is_joined_in_order_word_for_word() -> None:
    records = fragments(
        "Rack (part 2 of 3): two", "Rack (Part 1 of 3): one", "rack (part 3 of 3) 3"
    )
    (found,) = ask(records)
    assert (found.action, found.kind) == ("ADD", "fragments")
    assert {t.role for t in found.targets} == {"superseded"}
    assert joined_text(found.pieces, text_of(records)) == "Rack: one\ntwo\n3"
    assert [s.memory_id for s in found.evidence.spans] == ["2", "1", "3"]


def test_an_incomplete_set_says_what_is_missing() -> None:
    (found,) = ask(fragments("Rack (part 1 of 4): one", "Rack (part 3 of 4): three"))
    assert (found.action, found.kind, found.pieces) == ("NOOP", "fragments", ())
    assert "2, 4 cannot be found" in found.evidence.reason


def test_a_number_that_comes_again_begins_another_text() -> None:
    texts = [f"Part {n} of 2: {word}" for word in ("old", "new") for n in (1, 2)]
    records = fragments(*texts)
    found = [joined_text(p.pieces, text_of(records)) for p in ask(records)]
    assert found == ["old\nold", "new\nnew"]


def test_untitled_parts_must_be_neighbours() -> None:
    found = ask(fragments("Part 1 of 2: one", "Something between.", "Part 2 of 2: two"))
    assert [p.action for p in found] == ["NOOP", "NOOP"]


def test_titled_parts_a_week_apart_are_of_two_texts() -> None:
    records = numbered(
        memory("Rack (part 1 of 2): one", created_at_us=day_us(1)),
        memory("Rack (part 2 of 2): two", created_at_us=day_us(9)),
    )
    assert [p.action for p in ask(records)] == ["NOOP", "NOOP"]


@pytest.mark.parametrize("field", ["user", "wing", "room", "category"])
def test_parts_of_two_scopes_are_not_joined(field: str) -> None:
    one, two = fragments("Rack (part 1 of 2): one", "Rack (part 2 of 2): two")
    found = ask([one, two._replace(**{field: "other"})])
    assert [p.action for p in found] == ["NOOP", "NOOP"]


def test_a_lone_bare_fraction_is_no_fragment() -> None:
    assert ask(fragments("[1/2] cup of flour")) == []
    assert [p.action for p in ask(fragments("[1/2] cup", "[2/2] spoon"))] == ["ADD"]


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        ("x" * 900, "y" * 900, "the store takes 1400"),
        # Like a secret across the seam only: neither part alone.
        ("password:", "hunter2-Zx9!qQ", "read like"),
    ],
)
def test_what_may_not_be_one_row_is_not_joined(one: str, two: str, reason: str) -> None:
    (found,) = ask(fragments(f"Part 1 of 2: {one}", f"Part 2 of 2: {two}"))
    assert (found.action, found.pieces) == ("NOOP", ())
    assert reason in found.evidence.reason
    assert two not in str(found.to_json())
