"""Which memories the models are asked about: nobody's own, by hash, links once."""

from __future__ import annotations

from noctuary.evaluate.generated import choose_memories, choose_pairs
from tests.support.store import memory, renumber

RECORDS = renumber(
    [memory(f"memory number {n}", user="ana" if n % 5 == 0 else None) for n in range(40)]
)


def test_memories_of_named_users_are_never_chosen() -> None:
    chosen = choose_memories(RECORDS, 100)
    assert len(chosen) == 32
    assert all(record.user is None for record in chosen)


def test_a_new_memory_changes_at_most_one_choice() -> None:
    before = {record.content for record in choose_memories(RECORDS, 10)}
    more = renumber([*RECORDS, memory("something new")])
    after = {record.content for record in choose_memories(more, 10)}
    assert len(before) == 10
    assert len(before & after) >= 9


def test_pairs_are_linked_distinct_and_of_nobody() -> None:
    links = [(1, 2), (2, 1), (3, 3), (5, 6), (7, 8), (1, 3)]
    pairs = choose_pairs(RECORDS, links, 10)
    found = {tuple(int(r.memory_id) - 101 for r in pair) for pair in pairs}
    assert found == {(1, 2), (7, 8), (1, 3)}
    assert choose_pairs(RECORDS, links, 1) == pairs[:1]
    assert choose_pairs(RECORDS, links, 0) == []
