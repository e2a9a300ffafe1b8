from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US
from noctuary.recall import selection
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.rows import Successor
from noctuary.recall.search import Candidates
from noctuary.recall.selection import LEAST_CONFIDENCE, supersede
from tests.support.lookups import (
    DAY_US,
    NOW_US,
    MemoryLookups,
    Stored,
    candidates_of,
    context_of,
    scores_of,
)

SIZE = 9
FILTER = RetrievalProfile(supersede_filter_enabled=True)

shares = st.floats(0.0, 1.0, allow_nan=False)


@st.composite
def links(draw: st.DrawFn) -> Mapping[int, Successor]:
    """Chains without cycles, in an order that has nothing to do with dates."""
    order = draw(st.permutations(range(SIZE)))
    found: dict[int, Successor] = {}
    for place, older in enumerate(order[:-1]):
        if draw(st.booleans()):
            newer = draw(st.sampled_from(order[place + 1 :]))
            reason = draw(st.sampled_from(["explicit", "newer_value", "near_duplicate"]))
            similarity = draw(shares) if reason == "near_duplicate" else None
            grade, days = draw(st.integers(0, 2)), draw(st.integers(0, 60))
            found[older] = Successor(newer, reason, grade, similarity, days, newer)
    return found


@st.composite
def stores(draw: st.DrawFn) -> MemoryLookups:
    dates = st.sampled_from([UNDATED_US, *(NOW_US - d * DAY_US for d in (0, 8, 20, 40))])
    memories = [
        Stored(
            created_at_us=draw(dates),
            vector=draw(st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.96, 0.28)])),
        )
        for _ in range(SIZE)
    ]
    return MemoryLookups(memories, successors=draw(links()))


pools = st.dictionaries(st.integers(0, SIZE - 1), shares, min_size=1, max_size=SIZE).map(
    lambda scored: candidates_of(*scored.items())
)


@given(stores(), pools)
def test_filter_accounts_for_everybody_and_loses_no_score(
    store: MemoryLookups, pool: Candidates
) -> None:
    outcome = supersede(pool, context_of(store, FILTER))
    after, before = scores_of(outcome.candidates), scores_of(pool)
    gone = {d.position: d for d in outcome.dropped}
    heirs = {p: d.facts["superseded_by"].position for p, d in gone.items()}
    assert len(after) == outcome.candidates.size
    assert (np.diff(outcome.candidates.scores) <= 0).all()
    assert len(gone) == len(outcome.dropped)
    assert gone.keys() <= before.keys()
    assert before.keys() - gone.keys() <= after.keys()
    assert after.keys() - before.keys() <= set(heirs.values())
    best = {p: score for p, score in before.items() if p in after}
    for older in gone:
        heir = heirs[older]
        while heir in heirs:
            heir = heirs[heir]
        assert heir in after
        best[heir] = max(best.get(heir, 0.0), before[older])
        assert outcome.reason_of is not None
        assert outcome.reason_of(heir)
    assert after == best


@given(stores(), pools)
def test_what_is_unsure_hides_nobody(store: MemoryLookups, pool: Candidates) -> None:
    outcome = supersede(pool, context_of(store, FILTER))
    for gone in outcome.dropped:
        stored = store.successors.get(gone.position)
        if stored is not None and "supersede_reason" in gone.facts:
            assert stored.confidence >= LEAST_CONFIDENCE


@given(stores(), pools, st.integers(1, SIZE))
def test_annotate_marks_what_filter_hides_and_marks(
    store: MemoryLookups, pool: Candidates, at_most: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "MOST_STALE", at_most)
        hidden = supersede(pool, context_of(store, FILTER))
        told = supersede(pool, context_of(store, FILTER.replaced(supersede_action="annotate")))
    assert scores_of(told.candidates) == scores_of(pool)
    marked = {p: f for p, f in told.annotations.items() if "superseded_by" in f}
    stayed = {p: f for p, f in hidden.annotations.items() if "superseded_by" in f}
    dropped = {d.position: d.facts["superseded_by"] for d in hidden.dropped}
    assert not dropped.keys() & stayed.keys()
    assert {p: f["superseded_by"] for p, f in marked.items()} == {
        **dropped,
        **{p: f["superseded_by"] for p, f in stayed.items()},
    }
    assert len(marked) <= at_most
    for older, fields in marked.items():
        if fields["superseded_by"].position in scores_of(pool):
            heir = told.annotations[fields["superseded_by"].position]
            assert older in {ref.position for ref in heir["supersedes"]}


@given(stores(), pools)
def test_without_a_table_nothing_is_stored(store: MemoryLookups, pool: Candidates) -> None:
    bare = replace(store, successors={})
    for gone in supersede(pool, context_of(bare, FILTER)).dropped:
        newer = gone.facts["superseded_by"].position
        assert bare.memories[newer].created_at_us > bare.memories[gone.position].created_at_us
        assert newer in scores_of(pool)
