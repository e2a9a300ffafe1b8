"""Who is heard, and whose memories a turn is compared with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.curate.promotions import find_candidates, judge_turns, read_statement
from tests.support.promotions import unit_rows
from tests.support.store import memory, renumber

USERS = (None, "ana", "ben")


def said(text: str, minute: int = 0, **fields: object) -> MemoryRecord:
    return memory(text, is_turn=True, session_id="s", created_at_us=minute * 60_000_000, **fields)


@pytest.mark.parametrize(
    ("content", "statement"),
    [
        ("User: I work at Acme", "I work at Acme"),
        ("Caroline: hi", "hi"),
        ("Human: x", "x"),
        ("Mira (support): x", "x"),
        ("用户：我住在里昂", "我住在里昂"),
        ("Assistant: I work at Acme", None),
        ("assistant (planner): x", None),
        ("AI: x", None),
        ("Claude: x", None),
        ("Tool result: x", None),
        ("tool_result: x", None),
        ("System: x", None),
        ("I work at Acme", None),
        ("at 12:30 we go", None),
        ("", None),
    ],
)
def test_a_named_person_is_heard_and_nothing_else(content: str, statement: str | None) -> None:
    assert read_statement(content) == statement


def test_both_of_two_people_are_heard() -> None:
    found = find_candidates(renumber([said("Ana: hi"), said("Ben: hi", 1)]))
    assert [turn.turn_id for turn in found.heard[None]] == ["101", "102"]


def test_turns_are_in_order_of_time_undated_ones_first() -> None:
    records = renumber(
        [said("A: x", 5), said("A: y", 3), memory("A: z", is_turn=True, created_at_us=UNDATED_US)]
    )
    assert [t.position for t in find_candidates(records).heard[None]] == [2, 1, 0]
    assert find_candidates(records[::-1]) == find_candidates(records)


def test_memories_are_those_of_the_user_and_of_nobody() -> None:
    records = renumber([memory("x", user=user) for user in (None, "ana", "ben", None)])
    found = find_candidates(records)
    assert found.seen_by(None).tolist() == [0, 3]
    assert found.seen_by("ana").tolist() == [0, 1, 3]
    assert found.seen_by("zoe").tolist() == [0, 3]


def test_a_tombstone_is_durable_too() -> None:
    """What was known and replaced is no news when an old turn says it."""
    records = renumber([memory("[SUPERSEDED] Ana works at Acme."), said("Ana: I work at Acme")])
    vectors = np.ones((2, 1), dtype=np.float32)
    ((_, judged),) = judge_turns(find_candidates(records), vectors, 0.35)
    assert judged.h == 0.0


def judged_ids(records: Sequence[MemoryRecord], seed: int) -> dict[str, tuple[object, ...]]:
    vectors = unit_rows(len(records), 6, seed, 0.4)
    rows = {r.memory_id: vectors[int(r.memory_id)] for r in records}
    by_position = np.stack([rows[r.memory_id] for r in records])
    names = {r.position: r.memory_id for r in records}
    return {
        heard.turn_id: (
            *judged[1:5],
            *([(n.cosine, names[n.position]) for n in found] for found in judged[5:]),
        )
        for heard, judged in judge_turns(find_candidates(records), by_position, 0.35)
    }


@given(
    rows=st.lists(st.tuples(st.booleans(), st.sampled_from(USERS)), min_size=1, max_size=30),
    seed=st.integers(0, 99),
)
def test_what_another_user_says_or_keeps_changes_nothing(
    rows: list[tuple[bool, str | None]], seed: int
) -> None:
    """Ben's rows may come, go and say what they like: what is Ana's or nobody's stays the same."""
    everything = [
        said("User: I work at Acme", n, user=user, memory_id=str(n))
        if is_turn
        else memory("x", user=user, memory_id=str(n))
        for n, (is_turn, user) in enumerate(rows)
    ]
    vectors_of_all = renumber(everything)
    whole = judged_ids(vectors_of_all, seed)
    neighbours = {r.memory_id: r.user for r in vectors_of_all}
    for memory_id, values in whole.items():
        allowed = {neighbours[memory_id], None}
        for found in values[-2:]:
            assert isinstance(found, list)
            assert {neighbours[other] for _, other in found} <= allowed


def test_removing_another_user_leaves_the_numbers() -> None:
    rows = [
        said("User: I work at Acme", n, user=USERS[n % 3], memory_id=str(n))
        if n % 2
        else memory("x", user=USERS[n % 3], memory_id=str(n))
        for n in range(24)
    ]
    vectors = unit_rows(24, 6, 5, 0.4)
    whole, without = renumber(rows), renumber([r for r in rows if r.user != "ben"])

    def numbers(records: Sequence[MemoryRecord]) -> dict[str, tuple[float, ...]]:
        own = np.stack([vectors[int(r.memory_id)] for r in records])
        return {
            heard.turn_id: (judged.h, judged.r, judged.gate.g)
            for heard, judged in judge_turns(find_candidates(records), own, 0.35)
        }

    kept = {k: v for k, v in numbers(whole).items() if USERS[int(k) % 3] != "ben"}
    assert kept == numbers(without)
    assert len(kept) == 8


def test_a_wing_is_no_wall() -> None:
    records = renumber([said("A: I live in Lyon", n, wing=w) for n, w in enumerate(("a", "b"))])
    judged = [j for _, j in judge_turns(find_candidates(records), np.ones((2, 1), "f4"), 1.0)]
    assert [n.position for n in judged[1].repeated] == [0]
