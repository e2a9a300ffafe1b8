from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US
from noctuary.graph.successors import confidence_of
from noctuary.recall.phases import EXPANSION_BOOST, query_expansion
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.search import Candidates, PastQuery, PhaseOutcome, Search
from noctuary.recall.selection import (
    LEAST_SOURCES,
    MOST_STALE,
    consolidation,
    cross_wing_balancing,
    mmr,
    select,
    supersede,
    wing_codes,
)
from tests.support.lookups import (
    DAY_US,
    NOW_US,
    MemoryLookups,
    Stored,
    StoredSummary,
    candidates_of,
    context_of,
    scores_of,
)

SIZE = 9
WORDS = ("visa", "boat", "release", "door", "schema", "invoice")

shares = st.floats(0.0, 1.0, allow_nan=False)
weights = st.floats(0.0, 5.0, allow_nan=False)
wings = st.sampled_from(["work", "flights", "home", None])
angles = st.floats(0.0, 6.3, allow_nan=False)


@st.composite
def stores(draw: st.DrawFn) -> MemoryLookups:
    """A few memories on the unit circle, of several wings, dates and users."""
    dates = st.sampled_from([UNDATED_US, *(NOW_US - d * DAY_US for d in (0, 3, 8, 20, 40, 90))])
    memories: list[Stored] = []
    for _ in range(SIZE):
        angle = draw(angles)
        memories.append(
            Stored(
                content=" ".join(draw(st.lists(st.sampled_from(WORDS), max_size=4))),
                created_at_us=draw(dates),
                wing=draw(wings),
                user=draw(st.sampled_from(["ana", None])),
                vector=(float(np.cos(angle)), float(np.sin(angle))),
            )
        )
    groups = draw(st.lists(st.integers(0, 3), min_size=SIZE, max_size=SIZE))
    summaries = [
        StoredSummary("together", sources, draw(shares))
        for group in (1, 2, 3)
        if (sources := tuple(p for p in range(SIZE) if groups[p] == group))
    ]
    answers = draw(
        st.dictionaries(
            st.sampled_from([f"question {w}" for w in WORDS]),
            st.lists(st.tuples(st.integers(0, SIZE - 1), shares), unique_by=lambda hit: hit[0]),
        )
    )
    queries = draw(
        st.lists(
            st.builds(
                PastQuery,
                text=st.sampled_from(["other", "question"]),
                asked_us=st.sampled_from([NOW_US, NOW_US - 90 * DAY_US]),
                similarity=shares,
                positions=st.lists(st.integers(0, SIZE - 1), max_size=6).map(tuple),
            ),
            max_size=3,
        )
    )
    return MemoryLookups(memories, summaries=summaries, queries=queries, answers=answers)


pools = st.dictionaries(st.integers(0, SIZE - 1), shares, max_size=SIZE).map(
    lambda scored: candidates_of(*scored.items())
)
profiles = st.builds(
    RetrievalProfile,
    mmr_enabled=st.just(True),
    mmr_lambda=shares,
    wing_diversity_weight=st.one_of(st.just(0.0), weights),
    supersede_filter_enabled=st.just(True),
    supersede_action=st.sampled_from(["filter", "annotate"]),
    query_expansion_enabled=st.just(True),
    consolidation_enabled=st.just(True),
    quality_penalty=shares,
)
sizes = st.integers(0, SIZE + 2)


def is_ranked(candidates: Candidates) -> bool:
    scores = candidates.scores
    return bool(
        (np.diff(scores) <= 0).all()
        and ((scores >= 0) & (scores <= 1)).all()
        and len(set(candidates.positions.tolist())) == candidates.size
    )


def accounts_for(outcome: PhaseOutcome, before: Candidates) -> bool:
    """Every memory that went in came out or was dropped, exactly once."""
    left = [*outcome.candidates.positions.tolist(), *(d.position for d in outcome.dropped)]
    return sorted(left) == sorted(before.positions.tolist())


def asked(store: MemoryLookups, profile: RetrievalProfile, k: int = 3) -> Search:
    return context_of(store, profile, query="question", k=k)


@given(stores(), pools, profiles, sizes)
def test_diversity_accounts_for_everybody_and_stays_ranked(
    store: MemoryLookups, pool: Candidates, profile: RetrievalProfile, k: int
) -> None:
    context = asked(store, profile, k)
    plain = mmr(pool, context)
    outcome = cross_wing_balancing(plain.candidates, context)
    everybody = outcome._replace(dropped=(*plain.dropped, *outcome.dropped))
    assert is_ranked(plain.candidates)
    assert is_ranked(outcome.candidates)
    assert accounts_for(everybody, pool)
    assert outcome.candidates.size == min(k, pool.size)
    before = scores_of(pool)
    for position, score in scores_of(outcome.candidates).items():
        assert score <= before[position] + 1e-12
        for told in (plain.reason_of, outcome.reason_of):
            assert told is None or told(position)


# Saturation falls when the small wing is selected: the third value is above the second.
@example([(0.9, "work", 0.0), (0.9, "work", 1.0), (0.7, "flights", 2.0)], 3, 1.0, 0.3)
@given(st.lists(st.tuples(shares, wings, angles), max_size=12), st.integers(0, 14), shares, weights)
def test_selection_is_a_permutation_with_saturation_in_range(
    rows: Sequence[tuple[float, str | None, float]], k: int, share: float, gamma: float
) -> None:
    relevance = np.array(sorted((r for r, _, _ in rows), reverse=True), dtype=np.float64)
    turned = [a for _, _, a in rows]
    vectors = np.column_stack([np.cos(turned), np.sin(turned)]).astype(np.float32)
    codes = wing_codes([w for _, w, _ in rows])
    found = select(relevance, k, share, vectors=vectors, codes=codes, gamma=gamma)
    assert sorted(found.order.tolist()) == list(range(len(rows)))
    assert ((found.scores >= 0) & (found.scores <= 1)).all()
    assert (np.diff(found.scores) <= 0).all()
    assert ((found.saturation >= 0) & (found.saturation <= 1)).all()
    assert ((found.similarity >= 0) & (found.similarity <= 1)).all()
    if rows:
        assert found.saturation[0] == 0.0
        assert found.similarity[0] == 0.0


@given(stores(), pools, sizes)
def test_all_relevance_and_no_wing_weight_is_identity(
    store: MemoryLookups, pool: Candidates, k: int
) -> None:
    profile = RetrievalProfile(mmr_enabled=True, mmr_lambda=1.0, wing_diversity_weight=0.0)
    after = mmr(pool, asked(store, profile, k)).candidates
    assert after.positions.tolist() == pool.positions.tolist()[:k]
    assert after.scores.tolist() == pool.scores.tolist()[:k]


@given(stores(), pools, profiles)
def test_the_newest_is_never_superseded_and_no_score_is_lost(
    store: MemoryLookups, pool: Candidates, profile: RetrievalProfile
) -> None:
    outcome = supersede(pool, asked(store, profile))
    assert is_ranked(outcome.candidates)
    assert accounts_for(outcome, pool)
    assert len(outcome.dropped) <= MOST_STALE
    date = {p: store.memories[p].created_at_us for p in pool.positions.tolist()}
    for gone in outcome.dropped:
        newer = gone.facts["superseded_by"].position
        assert date[newer] > date[gone.position]
        assert store.memories[newer].user == store.memories[gone.position].user
    left = scores_of(outcome.candidates)
    if pool.size:
        newest = max(date.values())
        assert newest in {date[p] for p in left}
        assert max(left.values()) == pool.scores[0]
    for position, score in left.items():
        assert score >= scores_of(pool)[position]


@given(shares, shares, st.integers(0, 100), st.integers(0, 100))
def test_confidence_never_falls(one: float, other: float, days: int, more: int) -> None:
    low, high = sorted((one, other))
    assert confidence_of(low, days) <= confidence_of(high, days + more) <= 2


@given(stores(), pools, profiles)
def test_every_turn_that_goes_is_behind_a_summary_that_is_there(
    store: MemoryLookups, pool: Candidates, profile: RetrievalProfile
) -> None:
    outcome = consolidation(pool, asked(store, profile))
    after = scores_of(outcome.candidates)
    assert is_ranked(outcome.candidates)
    behind: dict[int, list[int]] = {}
    for gone in outcome.dropped:
        summary = gone.facts["consolidated_into"].position
        assert gone.position in store.summaries[summary - store.count].sources
        assert after[summary] <= max(scores_of(pool).values())
        behind.setdefault(summary, []).append(gone.position)
    assert all(len(turns) >= LEAST_SOURCES for turns in behind.values())
    stayed = {p for p in after if p < store.count}
    assert stayed | {p for turns in behind.values() for p in turns} == set(scores_of(pool))
    assert {p for p in after if p >= store.count} == set(behind)


@given(stores(), pools, profiles)
def test_expansion_changes_no_original_hit(
    store: MemoryLookups, pool: Candidates, profile: RetrievalProfile
) -> None:
    outcome = query_expansion(pool, asked(store, profile))
    after = outcome.candidates
    assert is_ranked(after)
    before = scores_of(pool)
    originals = after.keep(~after.expanded)
    assert originals.positions.tolist() == pool.positions.tolist()
    assert originals.scores.tolist() == pool.scores.tolist()
    for position, score in scores_of(after.keep(after.expanded)).items():
        assert position not in before
        assert score <= EXPANSION_BOOST
    assert outcome.notes["results_from_expansion"] == after.size - pool.size
