from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.assemble import Candidate, hops, rank, two_passes
from noctuary.context.prompt import PROFILES, ContextProfile
from noctuary.core.types import UNDATED_US
from noctuary.sources.injected import Line
from tests.support.contexts import DAY_S, NOW_US, s_final

REFERENCE = PROFILES["reference"]
share = st.floats(0, 1)
anything = st.floats(allow_nan=True, allow_infinity=True)


def candidate(name: str, similarity: float = 0.5, **fields: object) -> Candidate:
    line = Line(name, "undated", name)
    made = Candidate(name, "authored", name, line, similarity=similarity)
    return made._replace(**fields)  # pyright: ignore[reportArgumentType]


def test_what_is_far_or_too_deep_is_left_out() -> None:
    near = [candidate(f"n{place:02d}", 0.9 - place / 100) for place in range(20)]
    found = two_passes([*near, candidate("far", 0.19), candidate("edge", 0.2)], NOW_US, REFERENCE)
    assert [f.id for f in found] == [f"n{place:02d}" for place in range(8)]
    edge = two_passes([candidate("far", 0.19), candidate("edge", 0.2)], NOW_US, REFERENCE)
    assert [f.id for f in edge] == ["edge"], "theta1 itself passes"


@given(
    st.floats(0.2, 1), share, share, st.floats(0, 400) | st.just(-3.0),
    st.sampled_from([*PROFILES.values(), ContextProfile(authority_floor=0.1)]),
)  # fmt: skip
def test_the_score_is_the_formula(
    similarity: float, covered: float, authored: float, age_days: float, profile: ContextProfile
) -> None:
    made = int(NOW_US - age_days * DAY_S * 1e6)
    text = candidate("x", similarity, coverage=covered, authored=authored, created_at_us=made)
    (found,) = two_passes([text], NOW_US, profile)
    expected = s_final(similarity, covered, age_days * DAY_S, authored, profile)
    assert found.score == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_an_undated_text_is_of_now() -> None:
    (undated,) = two_passes([candidate("x", created_at_us=UNDATED_US)], NOW_US, REFERENCE)
    (fresh,) = two_passes([candidate("x", created_at_us=NOW_US)], NOW_US, REFERENCE)
    assert undated.score == fresh.score


def test_the_floor_keeps_what_is_old() -> None:
    old = candidate("x", 0.8, created_at_us=NOW_US - int(7 * DAY_S * 1e6))
    (erased,) = two_passes([old], NOW_US, REFERENCE)
    (kept,) = two_passes([old], NOW_US, PROFILES["default"])
    assert erased.score < 0.001
    assert kept.score > 0.3


def test_the_stores_own_score_counts_where_there_is_one() -> None:
    found = two_passes([candidate("x", 0.9, store_score=0.25)], NOW_US, REFERENCE)
    assert found[0].score == 0.25


@given(st.lists(st.tuples(anything, anything, st.none() | anything, anything), max_size=30))
def test_no_number_breaks_a_score(rows: list[tuple[float, float, float | None, float]]) -> None:
    """Invariants 5 and 9: in [0, 1] and finite, also where a model or a file is damaged."""
    profile = ContextProfile(coarse_threshold=-1.0)
    found = two_passes(
        [
            candidate(
                str(place), similarity, coverage=covered, store_score=score, authored=authored
            )
            for place, (similarity, covered, score, authored) in enumerate(rows)
        ],
        NOW_US,
        profile,
    )
    assert len(found) == min(len(rows), 8)
    assert all(0.0 <= f.score <= 1.0 for f in found)
    assert all(math.isfinite(f.why["similarity"]) for f in found)
    assert [f.score for f in found] == sorted((f.score for f in found), reverse=True)


def test_a_hop_has_its_best_parents_score_decayed() -> None:
    ranked = two_passes(
        [
            candidate("good", 0.9, authored=1.0, hop_targets=("t", "nowhere", "good")),
            candidate("better", 1.0, authored=1.0, hop_targets=("t",)),
        ],
        NOW_US,
        REFERENCE,
    )
    nodes = {name: candidate(name) for name in ("good", "better", "t")}
    (hop,) = hops(ranked, nodes, REFERENCE)
    assert hop.id == "t"
    assert hop.score == 0.5 * ranked[0].score
    assert hop.why == {"rule": "hop", "parent": "better", "decay": 0.5}


def test_a_hop_below_the_threshold_does_not_come() -> None:
    parent = candidate("p", 1.0, hop_targets=("t",), store_score=0.30)
    nodes = {"t": candidate("t")}
    assert len(hops(two_passes([parent], NOW_US, REFERENCE), nodes, REFERENCE)) == 1
    weak = parent._replace(store_score=0.29)
    assert hops(two_passes([weak], NOW_US, REFERENCE), nodes, REFERENCE) == []


def test_a_circle_of_hops_ends_after_one_step() -> None:
    ring = [candidate(str(n), hop_targets=(str((n + 1) % 6),)) for n in range(6)]
    found = rank(
        [ring[0]._replace(similarity=1.0, authored=1.0)],
        {node.id: node for node in ring},
        NOW_US,
        REFERENCE,
    )
    assert [f.id for f in found] == ["0", "1"]


def test_a_memory_with_the_id_of_a_node_is_another_thing() -> None:
    parent = candidate("a", 1.0, authored=1.0, hop_targets=("m",))
    twin = candidate("m", 0.9, source="memory", store_score=0.4)
    found = rank([parent, twin], {"m": candidate("m")}, NOW_US, REFERENCE)
    assert [(f.source, f.id) for f in found] == [
        ("authored", "a"),
        ("memory", "m"),
        ("authored", "m"),
    ]


@given(st.lists(st.tuples(st.floats(0.2, 1), st.integers(0, 9)), max_size=10), st.floats(0, 1))
def test_hops_are_distinct_decayed_and_no_one_twice(
    rows: list[tuple[float, int]], threshold: float
) -> None:
    profile = ContextProfile(hop_threshold=threshold, final_depth=4)
    listed = [
        candidate(str(place), similarity, hop_targets=(str(target),))
        for place, (similarity, target) in enumerate(rows)
    ]
    nodes = {c.id: c for c in listed}
    found = rank(listed, nodes, NOW_US, profile)
    ids = [f.id for f in found]
    assert len(ids) == len(set(ids))
    scores = {f.id: f.score for f in found if f.why["rule"] == "two_pass"}
    for hop in (f for f in found if f.why["rule"] == "hop"):
        parents = [scores[p] for p in scores if hop.id in nodes[p].hop_targets]
        assert hop.score == profile.hop_decay * max(parents)
        assert hop.score >= threshold
        assert hop.why["parent"] in scores, "one step only"
