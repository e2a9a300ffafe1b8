from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from noctuary.compact.clusters import TARGET_CLUSTER_TURNS, cluster_count, partition_sizes
from noctuary.compact.gate import (
    alignment,
    coverage,
    decay_rate,
    final_confidence,
    judge,
    preservation,
)
from noctuary.compact.summaries import SummarySettings, escalate, source_tokens
from noctuary.compact.summarizers import EXTRACTIVE, Refusal, Request, central_turns
from noctuary.text.marks import estimate_tokens
from tests.support.turns import cluster_index

UNIT = st.floats(0.0, 1.0)
ANY = st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.floats(-1e300, 1e300)
COARSE = st.integers(-1000, 1000).map(lambda n: n / 100)
# Far from underflow, where the naive cosine would be the wrong one.
DIM = 5


def matrices(elements: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    shapes = st.tuples(st.integers(0, 8), st.just(DIM))
    return arrays(np.float64, shapes, elements=elements)


@given(st.integers(0, 500), st.integers(-3, 60))
def test_partition_equals_the_formula_turn_by_turn(turns: int, target: int) -> None:
    count = cluster_count(turns, target)
    naive = [cluster_index(i, turns, count) for i in range(turns)]
    sizes = partition_sizes(turns, target)
    assert [j for j, size in enumerate(sizes) for _ in range(size)] == naive
    assert sum(sizes) == turns
    assert all(1 <= size <= (target if target > 0 else TARGET_CLUSTER_TURNS) for size in sizes)
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(arrays(np.float64, DIM, elements=ANY), matrices(ANY), st.none() | ANY)
def test_every_number_of_a_report_stays_in_range(
    summary: np.ndarray, sources: np.ndarray, raw: float | None
) -> None:
    report = judge(summary, sources, raw=raw)
    assert -1.0 <= report.align <= 1.0
    assert 0.0 <= report.cover <= 1.0
    assert 0.0 <= report.confidence <= 1.0
    assert report.decay_rate == 1.0 - report.confidence
    assert report.passed == (not report.reasons)
    assert not report.passed or report.align >= report.threshold


@given(
    arrays(np.float64, DIM, elements=FINITE),
    matrices(FINITE).filter(len),
    st.floats(1e-3, 1e3),
)
def test_scores_do_not_depend_on_the_scale(
    summary: np.ndarray, sources: np.ndarray, scale: float
) -> None:
    summary, sources = summary / 1e300, sources / 1e300
    if np.abs(summary).max() < 1e-200 or np.abs(sources.mean(axis=0)).max() < 1e-9:
        return
    plain = alignment(summary, sources)
    assert math.isclose(plain, alignment(scale * summary, sources), abs_tol=1e-9)
    assert math.isclose(plain, alignment(summary, scale * sources), abs_tol=1e-6)


@given(arrays(np.float64, DIM, elements=COARSE), matrices(COARSE))
def test_cover_equals_the_naive_mean_of_positive_cosines(
    summary: np.ndarray, sources: np.ndarray
) -> None:
    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        norms = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
        return float(a @ b) / norms if norms else 0.0

    naive = [max(0.0, cosine(summary, v)) for v in sources]
    expected = sum(naive) / len(naive) if naive else 0.0
    assert math.isclose(coverage(summary, sources), expected, abs_tol=1e-9)


@given(UNIT, UNIT)
def test_decay_falls_as_confidence_rises(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert decay_rate(high) <= decay_rate(low)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_final_confidence_lies_between_its_parts(
    align: float, cover: float, more: float, raw: float
) -> None:
    preserved = preservation(align, cover)
    final = final_confidence(preserved, raw)
    assert min(preserved, raw) - 1e-12 <= final <= max(preserved, raw) + 1e-12
    assert final_confidence(preserved) == preserved
    assert preservation(align, cover) <= preservation(align, max(cover, more))


@given(st.lists(st.text(max_size=40), min_size=1, max_size=12), st.data())
def test_an_extract_is_ordered_and_made_of_its_sources(
    contents: list[str], data: st.DataObject
) -> None:
    shape = (len(contents), 3)
    vectors = data.draw(arrays(np.float64, shape, elements=st.floats(-1, 1)))
    cut = EXTRACTIVE.write(Request("c", contents, vectors), 0.4)
    if isinstance(cut, Refusal):
        return
    kept = central_turns(vectors, 0.4)
    assert kept == sorted(set(kept))
    assert cut.text == " ".join(contents[i] for i in kept)


@given(st.lists(st.text(max_size=40), min_size=2, max_size=12), st.data(), st.floats(-1, 1))
def test_what_is_taken_is_strictly_smaller_by_one_estimate(
    contents: list[str], data: st.DataObject, threshold: float
) -> None:
    vectors = data.draw(arrays(np.float64, (len(contents), 3), elements=st.floats(-1, 1)))
    ((verdict,),) = escalate(
        [Request("c", contents, vectors)],
        lambda texts: np.ones((len(texts), 3)),
        settings=SummarySettings(threshold=threshold),
    )
    if verdict.outcome is None and verdict.report is not None:
        assert estimate_tokens(verdict.text) < source_tokens(contents)
        assert verdict.report.align >= threshold


@given(st.integers(1, 60), st.floats(0.01, 1.0))
def test_the_kept_share_never_falls_below_the_density(turns: int, density: float) -> None:
    vectors = np.random.default_rng(turns).normal(size=(turns, 4))
    kept = len(central_turns(vectors, density))
    assert density * turns - 1e-6 <= kept <= density * turns + 1
