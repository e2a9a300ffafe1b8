"""What its owner has marked as superseded may be replaced, and replaces nothing."""

from __future__ import annotations

from noctuary.text.marks import MARK
from tests.unit.graph.supersession.conftest import Find, Note, at_angles, pairs


def works(place: str, day: int, mark: str = "") -> Note:
    return Note(f"{mark}Nina works at {place}.", day, says=[("Nina", "works_at", place)])


def test_a_marked_value_ends_nothing_and_the_next_one_does(find: Find) -> None:
    notes = (works("Initech", 0), works("Hooli", 10, f"{MARK} "), works("Globex", 20))
    assert pairs(find(*notes)) == [(0, 2), (1, 2)]
    assert pairs(find(works("Initech", 0), works("Hooli", 10), works("Globex", 20))) == [
        (0, 1), (1, 2),
    ]  # fmt: skip


def test_a_marked_near_duplicate_is_no_successor_of_an_older_one(find: Find) -> None:
    notes = [Note("Deploys run at nine", day) for day in (0, 30, 60)]
    notes[2].content = f"{MARK} {notes[2].content}"
    assert pairs(find(*notes, vectors=at_angles(0.95, 0.95))) == [(0, 1)]


def test_what_a_marked_memory_says_of_another_counts_no_more(find: Find) -> None:
    older = Note("Jest runs the tests.", 0, memory_id="a")
    newer = Note("Vitest runs them.", 9, says=[("", "supersedes", "#a")])
    assert pairs(find(older, newer)) == [(0, 1)]
    newer.content = f"{MARK} {newer.content}"
    assert pairs(find(older, newer)) == []
