"""What sessions lend equals plain loops over dicts, and hidden memories are as good as absent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.graph import sessions as c
from noctuary.graph.sessions import (
    MIN_MEMBERS,
    Posting,
    SessionArrays,
    Talk,
    calibrate,
    lent_scores,
    listen,
)

NOBODY = -1


class World(NamedTuple):
    """A corpus and a query as plain values.

    Attributes:
        sessions: Members of every session, in order.
        turns: By position, 0 or 1 + the percentage of a turn that asks.
        speakers, wings, shown, base, like: By position.
        terms: By term, the score of every position that holds it.
        near: Words near to a term, given by its index, as `terms` has them.
        pool: Candidates, all shown.
        named: Who the query names.
    """

    sessions: list[list[int]]
    turns: list[int]
    speakers: list[int]
    wings: list[int]
    shown: list[bool]
    base: list[float]
    like: list[float]
    terms: list[dict[int, float]]
    near: list[tuple[int, dict[int, float]]]
    pool: list[int]
    named: list[int]


unit = st.integers(0, 64).map(lambda n: n / 64)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Up to 24 memories, of which any may be hidden: whole sessions, or all but one member."""
    n = draw(st.integers(2, 24))
    codes = draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    order = draw(st.permutations(range(n)))
    grouped = [[p for p in order if codes[p] == code] for code in range(4)]
    sessions = [members for members in grouped if len(members) >= 2]
    flags = st.lists(st.booleans(), min_size=n, max_size=n)
    shown = draw(flags) if draw(st.booleans()) else [True] * n
    few = st.lists(st.integers(NOBODY, 2), min_size=n, max_size=n)
    scores = st.dictionaries(st.integers(0, n - 1), st.integers(1, 80).map(lambda s: s / 8))
    seen = [p for p in range(n) if shown[p]]
    terms = draw(st.lists(scores, max_size=4))
    near = st.lists(st.tuples(st.integers(0, len(terms) - 1), scores), max_size=3)
    return World(
        sessions=sessions,
        turns=draw(st.lists(st.sampled_from([0, 1, 34, 101]), min_size=n, max_size=n)),
        speakers=draw(few),
        wings=draw(few),
        shown=shown,
        base=draw(st.lists(unit, min_size=n, max_size=n)),
        like=draw(st.lists(unit, min_size=n, max_size=n)),
        terms=terms,
        near=draw(near) if terms else [],
        pool=sorted(draw(st.sets(st.sampled_from(seen)))) if seen else [],
        named=sorted(draw(st.sets(st.integers(0, 3)))),
    )


def arrays_of(world: World) -> SessionArrays:
    n = len(world.turns)
    codes = np.full(n, -1, dtype=np.int32)
    places = np.full(n, -1, dtype=np.int32)
    order = [p for members in world.sessions for p in members]
    for code, members in enumerate(world.sessions):
        codes[members] = code
    places[order] = np.arange(len(order))
    return SessionArrays(
        codes=codes,
        places=places,
        order=np.array(order, dtype=np.int32),
        indptr=np.cumsum([0, *map(len, world.sessions)], dtype=np.int64),
        turns=np.array(world.turns, dtype=np.int8),
        speakers=np.array(world.speakers, dtype=np.int32),
    )


def heard(world: World, pool: Sequence[int] | None = None) -> Talk | None:
    positions = np.array(world.pool if pool is None else pool, dtype=np.int64)
    return listen(
        positions,
        np.array(world.base)[positions],
        arrays_of(world),
        list(map(posting, world.terms)),
        near=[(row, posting(word)) for row, word in world.near],
        likeness_at=lambda positions: np.array(world.like)[positions],
        mask=None if all(world.shown) else np.array(world.shown),
        speakers=world.named,
        wings=np.array(world.wings, dtype=np.int32),
    )


def posting(held: dict[int, float]) -> Posting:
    positions = sorted(held)
    scores = [held[p] for p in positions]
    return np.array(positions, dtype=np.int32), np.array(scores, dtype=np.float32)


def lent_by(world: World, talk: Talk | None) -> dict[int, float]:
    if talk is None:
        return {}
    lent = lent_scores(talk, np.array(world.base)[talk.members])
    return dict(zip(talk.members.tolist(), lent.tolist(), strict=True))


class Twin:
    """The same by the book: one memory, one term, one neighbour at a time."""

    def __init__(self, world: World) -> None:
        self.world = world
        shown = [[p for p in s if world.shown[p]] for s in world.sessions]
        self.visible = [s for s in shown if len(s) >= MIN_MEMBERS]
        self.active = [s for s in self.visible if any(p in world.pool for p in s)]

    def coverage(self, session: list[int]) -> float:
        total = 0.0
        for term in self.world.terms:
            df = sum(1 for other in self.visible if any(p in term for p in other))
            idf = math.log(1 + (len(self.visible) - df + 0.5) / (df + 0.5))
            tf = sum(1 for p in session if p in term)
            total += idf * tf / (tf + c.TF_SATURATION)
        return total

    def context(self, session: list[int], place: int) -> float:
        total = 0.0
        for row, term in enumerate(self.world.terms):
            near = [word for other, word in self.world.near if other == row]
            best = 0.0
            for other, position in enumerate(session):
                distance = abs(other - place)
                if distance <= len(c.NEARBY):
                    share = 1.0 if distance == 0 else c.NEARBY[distance - 1]
                    said = max(word.get(position, 0.0) for word in (term, *near))
                    best = max(best, share * said)
            total += best
        return total

    def lent(self) -> dict[int, float]:
        world, active = self.world, self.active
        contexts = {p: self.context(s, i) for s in active for i, p in enumerate(s)}
        loudest = max(contexts.values(), default=0.0)
        fullest = max((self.coverage(s) for s in active), default=0.0)
        said = {p for p in contexts if world.speakers[p] in world.named}
        rooms = {world.wings[p] for p in said} - {NOBODY}
        more = {p: 0.0 for session in active for p in session}
        for session in active:
            for before, p in pairwise(session):
                if world.turns[before] and world.turns[p]:
                    more[p] = world.like[before] - world.like[p]
        least = min(more.values(), default=0.0)
        result: dict[int, float] = {}
        for session in active:
            coverage = self.coverage(session) / fullest if fullest > 0 else 0.0
            best = max(world.base[p] for p in session)
            for p in session:
                if not world.turns[p]:
                    result[p] = c.FACT_COVERAGE_WEIGHT * coverage
                    continue
                result[p] = c.SESSION_WEIGHT * best
                result[p] += c.CONTEXT_WEIGHT * contexts[p] / loudest if loudest > 0 else 0.0
                result[p] += c.BEFORE_WEIGHT * (more[p] - least)
                result[p] += c.SPEAKER_WEIGHT if p in said else 0.0
                result[p] += c.COMPANY_WEIGHT if world.wings[p] in rooms else 0.0
                result[p] -= c.ASKING_WEIGHT * (world.turns[p] - 1) / 100
        return result


def without_hidden(world: World) -> tuple[World, list[int]]:
    """Return the corpus of what is shown alone, and the old position of each of its memories."""
    kept = [p for p, shown in enumerate(world.shown) if shown]
    place = {p: i for i, p in enumerate(kept)}
    left = [[place[p] for p in s if p in place] for s in world.sessions]
    absent = World(
        sessions=[s for s in left if len(s) >= MIN_MEMBERS],  # as a night keeps them
        turns=[world.turns[p] for p in kept],
        speakers=[world.speakers[p] for p in kept],
        like=[world.like[p] for p in kept],
        wings=[world.wings[p] for p in kept],
        shown=[True] * len(kept),
        base=[world.base[p] for p in kept],
        terms=[{place[p]: s for p, s in term.items() if p in place} for term in world.terms],
        near=[
            (row, {place[p]: s for p, s in word.items() if p in place}) for row, word in world.near
        ],
        pool=[place[p] for p in world.pool],
        named=world.named,
    )
    return absent, kept


@given(worlds())
@settings(max_examples=300)
def test_sessions_lend_what_plain_loops_say(world: World) -> None:
    expected = Twin(world).lent()
    found = lent_by(world, heard(world))
    assert set(found) == set(expected)
    for position, value in expected.items():
        assert found[position] == pytest.approx(value, abs=1e-9, rel=1e-9)


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_pool_does_not_matter(world: World, random: object) -> None:
    assert hasattr(random, "shuffle")
    pool = list(world.pool)
    random.shuffle(pool)  # pyright: ignore[reportAttributeAccessIssue]
    first, second = heard(world), heard(world, pool)
    assert (first is None) == (second is None)
    for one, other in zip(first or (), second or (), strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))


def raised(world: World, weight: float) -> tuple[Talk, NDArray[np.float64]] | None:
    """Return base scores with what was lent, turns and facts each calibrated among themselves."""
    talk = heard(world)
    if talk is None:
        return None
    base = np.array(world.base)[talk.members]
    more = base + weight * lent_scores(talk, base)
    scores = base.copy()
    for group in (talk.is_turn, ~talk.is_turn):
        scores[group] = calibrate(base[group], more[group])
    return talk, scores


@given(worlds(), st.sampled_from([0.01, 0.5, 1.0, 4.0]))
def test_scores_are_finite_in_the_unit_interval_and_keep_their_peaks(
    world: World, weight: float
) -> None:
    result = raised(world, weight)
    if result is None:
        return
    talk, scores = result
    assert np.isfinite(scores).all()
    assert ((scores >= 0.0) & (scores <= 1.0 + 1e-12)).all()
    for group in (talk.is_turn, ~talk.is_turn):
        if group.any():
            base = np.array(world.base)[talk.members[group]]
            assert sorted(scores[group].tolist()) == sorted(base.tolist())
    for part in (talk.context, talk.own, talk.coverage):
        assert np.isfinite(part).all()
        assert ((part >= 0.0) & (part <= 1.0)).all()
    assert (talk.own <= talk.context).all()


@given(worlds())
def test_members_are_distinct_visible_and_aligned_with_their_sessions(world: World) -> None:
    talk = heard(world)
    active = Twin(world).active
    assert (talk is None) == (not active)
    if talk is None:
        return
    assert talk.members.tolist() == [p for session in active for p in session]
    assert talk.owners.tolist() == [i for i, session in enumerate(active) for _ in session]
    assert talk.is_turn.tolist() == [world.turns[p] > 0 for p in talk.members.tolist()]
    assert talk.left_out == 0


@given(worlds())
@settings(max_examples=200)
def test_a_hidden_memory_is_as_good_as_absent(world: World) -> None:
    absent, kept = without_hidden(world)
    expected = {kept[p]: value for p, value in lent_by(absent, heard(absent)).items()}
    assert lent_by(world, heard(world)) == expected  # to the bit


def _two_sessions_and_a_third(third: Sequence[int]) -> World:
    """Two terms of one session each, so that how rare they are decides between the two."""
    return World(
        sessions=[[0, 1], [2, 3], [4, 5]],
        turns=[False] * 6,
        speakers=[NOBODY] * 6,
        wings=[NOBODY] * 6,
        shown=[p in third or p < 4 for p in range(6)],
        base=[0.5] * 6,
        like=[0.5] * 6,
        terms=[{0: 1.0, 2: 1.0}, {2: 1.0}],
        near=[],
        pool=[0, 2],
        named=[],
    )


def test_a_session_that_is_hidden_whole_is_as_good_as_absent() -> None:
    world = _two_sessions_and_a_third([])
    absent, _ = without_hidden(world)
    assert len(absent.sessions) == 2
    assert lent_by(world, heard(world)) == pytest.approx(lent_by(absent, heard(absent)))


def test_a_session_hidden_but_for_one_member_is_as_good_as_absent() -> None:
    world = _two_sessions_and_a_third([4])._replace(pool=[0, 2, 4])
    absent, _ = without_hidden(world)
    assert len(absent.sessions) == 2
    found = lent_by(world, heard(world))
    assert set(found) == {0, 1, 2, 3}
    assert found == pytest.approx(lent_by(absent, heard(absent)))
