"""Turn after turn: what came before counts, and against a double loop nothing differs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.curate import promotions as walk
from noctuary.curate.promotions import (
    BELOW_THRESHOLD,
    NOTHING_SAID,
    PROPOSED,
    Judged,
    Nearest,
)
from noctuary.curate.signals import BLANK, Signals
from tests.support.promotions import Vectors, naive_walk, unit_rows

FACT = Signals(0.0, 0.3, 0.0, 0.0, 0.0, ("fact",))


def judge(
    vectors: Vectors,
    turns: Sequence[int],
    memories: Sequence[int] = (),
    signals: Sequence[Signals] | Signals = FACT,
    threshold: float = 0.35,
) -> list[Judged]:
    said = [signals] * len(turns) if isinstance(signals, Signals) else signals
    rows, durable = (np.asarray(p, dtype=np.int64) for p in (turns, memories))
    return list(walk.walk(rows, said, durable, vectors, threshold))


def same(rows: int, dim: int = 4) -> Vectors:
    """Rows that are all one vector."""
    return np.tile(np.eye(1, dim, dtype=np.float32), (rows, 1))


def test_a_turn_is_not_its_own_neighbour() -> None:
    """The peer indexes a turn before it looks for neighbours: F is .2 at least, always."""
    for judged in judge(np.eye(5, dtype=np.float32), range(5)):
        assert judged.position not in {n.position for n in (*judged.durable, *judged.repeated)}
        assert judged.r == 0.0
        assert judged.repeated == ()


def test_what_comes_later_is_no_neighbour() -> None:
    first, second = judge(same(2), [0, 1], signals=BLANK)
    assert first.repeated == ()
    assert [n.position for n in second.repeated] == [0]
    later_first = judge(same(2), [1, 0], signals=BLANK)
    assert [n.position for n in later_first[1].repeated] == [1]


def test_an_empty_store_does_not_admit_everything() -> None:
    """Without durable memories H is 1 and G .35: at the peer every conversational turn passes."""
    judged = judge(np.eye(6, dtype=np.float32), range(6), signals=BLANK)
    assert [j.gate.g for j in judged] == [0.35] * 6
    assert [j.reason for j in judged] == [NOTHING_SAID] * 6


def test_in_an_empty_store_what_says_something_is_let_in_and_durable_from_then_on() -> None:
    first, second, other = judge(np.eye(3, dtype=np.float32)[[0, 0, 1]], range(3))
    assert (first.h, first.reason, first.durable) == (1.0, PROPOSED, ())
    assert [(n.position, n.cosine) for n in second.durable] == [(0, 1.0)]
    assert (second.h, second.reason) == (0.0, BELOW_THRESHOLD)
    assert (other.h, other.reason) == (1.0, PROPOSED)
    assert [n.position for n in other.durable] == [0]


def test_thanks_said_often_is_not_let_in() -> None:
    judged = judge(same(12), range(12), signals=BLANK)
    assert judged[-1].r == 1.0
    assert judged[-1].gate.g >= 0.35
    assert {j.reason for j in judged} == {NOTHING_SAID}


def test_what_is_said_often_is_let_in_until_it_is_kept() -> None:
    quiet = Signals(0.0, 0.2, 0.0, 0.0, 0.0)
    judged = judge(same(30), range(1, 30), [0], quiet)
    let_in = [i for i, j in enumerate(judged) if j.reason == PROPOSED]
    # One memory of three: R = F (1 - 1/3); .40 R + .05 reaches .35 at no F.
    assert judged[-1].r == pytest.approx(2 / 3)
    assert let_in == []
    free = judge(same(30), range(30), (), quiet)
    assert [i for i, j in enumerate(free) if j.reason == PROPOSED] == [0]
    lower = judge(same(30), range(1, 30), [0], quiet, threshold=0.3)
    assert [i for i, j in enumerate(lower) if j.reason == PROPOSED] == [5]


def test_three_memories_alike_veto_repetition() -> None:
    judged = judge(same(20), range(5, 20), range(3))
    assert judged[-1].r == 0.0
    assert judged[-1].h == 0.0
    two = judge(same(20), range(5, 20), range(2), threshold=1.0)
    assert two[-1].r == pytest.approx(1 / 3)


def test_at_most_five_durable_and_ten_repeated_neighbours() -> None:
    judged = judge(same(60), range(20, 60), range(20), threshold=1.0)
    assert len(judged[-1].durable) == 5
    assert len(judged[-1].repeated) == 10
    assert len(judged[3].repeated) == 3


def test_a_row_of_zeros_is_like_nothing() -> None:
    vectors = np.zeros((4, 3), dtype=np.float32)
    for judged in judge(vectors, [1, 2, 3], [0]):
        assert (judged.h, judged.r) == (1.0, 0.0)


def test_nothing_to_judge() -> None:
    assert judge(np.eye(3, dtype=np.float32), []) == []
    assert [j.h for j in judge(np.eye(1, dtype=np.float32), [0])] == [1.0]


@settings(max_examples=80)
@given(
    turns=st.integers(0, 24),
    memories=st.integers(0, 12),
    seed=st.integers(0, 999),
    spread=st.sampled_from([0.05, 0.15, 0.4, 2.0]),
    threshold=st.sampled_from([0.0, 0.2, 0.35, 0.5]),
    block=st.sampled_from([1, 3, 8, 64]),
    chunk=st.sampled_from([1, 5, 64]),
)
def test_blocks_and_chunks_give_what_a_double_loop_gives(
    turns: int,
    memories: int,
    seed: int,
    spread: float,
    threshold: float,
    block: int,
    chunk: int,
) -> None:
    vectors = unit_rows(turns + memories, 6, seed, spread)
    # A third of the numbers are 0: texts without a date, without code.
    drawn = np.random.default_rng(seed).uniform(-0.5, 1, size=(turns, 5)).clip(0).round(3)
    signals = [Signals(*row) for row in drawn.tolist()]
    order = np.random.default_rng(seed).permutation(turns + memories).tolist()
    own, durable = order[:turns], sorted(order[turns:])
    expected = naive_walk(own, signals, durable, vectors, threshold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "BLOCK_ROWS", block)
        patch.setattr(walk, "CANDIDATE_ROWS", chunk)
        found = judge(vectors, own, durable, signals, threshold)
    assert [j.position for j in found] == own
    for judged, wanted in zip(found, expected, strict=True):
        # A cosine within its sixth digit of a threshold may fall on either side of it.
        if abs(wanted.g - threshold) < 2e-5:
            return
        assert judged.h == pytest.approx(wanted.h, abs=2e-6)
        assert judged.r == pytest.approx(wanted.r, abs=2e-6)
        assert judged.gate.g == pytest.approx(wanted.g, abs=4e-6)
        assert (judged.reason == PROPOSED) is wanted.is_proposed


@given(
    rows=st.integers(1, 30),
    candidates=st.integers(0, 40),
    k=st.integers(1, 12),
    least=st.sampled_from([-1.0, 0.0, 0.8]),
    seed=st.integers(0, 99),
    chunk=st.sampled_from([1, 7, 64]),
)
def test_the_nearest_rows_are_the_nearest(
    rows: int, candidates: int, k: int, least: float, seed: int, chunk: int
) -> None:
    vectors = unit_rows(rows + candidates, 5, seed, 0.6)
    nearest = Nearest(np.arange(rows), vectors, k, least)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "CANDIDATE_ROWS", chunk)
        nearest.offer(np.arange(rows, rows + candidates))
    exact = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    for row in range(rows):
        found = nearest.of(row)
        wanted = np.sort(np.round(exact[row, rows:], 6))[::-1][:k]
        wanted = wanted[wanted >= least]
        assert [n.cosine for n in found] == pytest.approx(wanted.tolist(), abs=2e-6)
        assert [n.cosine for n in found] == sorted((n.cosine for n in found), reverse=True)
        for n in found:
            assert n.cosine == pytest.approx(float(exact[row, n.position]), abs=2e-6)
            assert n.position >= rows
        assert len({n.position for n in found}) == len(found)
