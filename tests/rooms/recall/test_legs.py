"""The lexical and dense legs, their fusion, and what joins the pool."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.errors import SnapshotCorruptError
from noctuary.core.manifest import describe_files, read_manifest, write_manifest
from noctuary.core.store import StorePaths
from noctuary.embed import funnel as cascade
from noctuary.embed.lean import LeanEncoder
from noctuary.embed.rotation import build_prefix_tier, fit
from noctuary.lexical.build import build_postings, build_postings_beside
from noctuary.lexical.search import K1, B, add_scores
from noctuary.recall.engine import Recaller
from noctuary.recall.legs import (
    Leg,
    add_exact_match,
    add_graph,
    apply_importance,
    fuse_convex,
    fuse_rrf,
    pool_candidates,
    quota_positions,
    rank_dense,
    rank_lexical,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.arrays import SummaryArrays
from noctuary.snapshot.pack import PackInputs, build_candidate
from noctuary.text.tokens import encode_tokens
from tests.support.damage import change_array
from tests.support.lean import DIMENSION, write_encoder
from tests.support.store import Store, household, memory, pack_inputs, provenance, renumber
from tests.support.vectors import exact_positions, topical_vectors

VECTORS = np.array([[1, 0, 0], [0.6, 0.8, 0], [0, 1, 0], [-1, 0, 0]], dtype=np.float32)
FINGERPRINT = {"model": "by hand", "dimension": 3}


@pytest.fixture
def reader(empty_store: Store) -> SnapshotReader:
    """Four memories whose vectors were written by hand; no encoder is needed to rank them."""
    records = renumber([memory(t) for t in ("boat", "boat boat house", "house", "tree")])
    inputs = replace(pack_inputs(records), vectors=VECTORS)
    known = replace(provenance(), encoder=FINGERPRINT, encoder_digest="by-hand")
    return SnapshotReader.open(build_candidate(empty_store.paths, inputs, known))


def scores_of(leg: Leg, count: int) -> list[float]:
    return leg.scores_at(np.arange(count, dtype=np.int64)).tolist()


def query(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def test_dense_scores_are_cosines_and_ranks_come_after_the_mask(reader: SnapshotReader) -> None:
    leg = rank_dense(reader, query(1, 0, 0), None, 10)
    assert scores_of(leg, 4) == pytest.approx([1.0, 0.6, 0.0, -1.0])
    assert leg.ranking.tolist() == [0, 1], "only positive ones rank"
    assert leg.rank_of() == {0: 1, 1: 2}
    assert rank_dense(reader, query(0, 1, 0), None, 1).ranking.tolist() == [2]
    mask = np.array([True, True, False, True])
    assert rank_dense(reader, query(0, 1, 0), mask, 1).ranking.tolist() == [1]


def test_lexical_ranks_by_bm25_after_depth_and_mask(reader: SnapshotReader) -> None:
    leg = rank_lexical(reader, "boat house", None, 10)
    assert leg.ranking.tolist()[0] == 1
    assert scores_of(leg, 4)[3] == 0.0
    assert sorted(leg.ranking.tolist()) == [0, 1, 2]
    assert rank_lexical(reader, "boat house", None, 1).ranking.tolist() == [1]
    mask = np.array([True, False, True, True])
    assert rank_lexical(reader, "house", mask, 1).ranking.tolist() == [2]


def test_a_leg_that_finds_nothing_scores_zero(reader: SnapshotReader, empty_store: Store) -> None:
    bare = SnapshotReader.open(empty_store.candidate(household()))
    for leg in (
        Leg.empty(),
        rank_dense(bare, query(1, 0, 0), None, 10),
        rank_lexical(reader, "unheard of", None, 10),
    ):
        assert (leg.ranking.tolist(), leg.rank_of()) == ([], {})
        assert scores_of(leg, 4) == [0.0] * 4


def test_words_that_hold_little_of_a_question_count_less(
    reader: SnapshotReader, empty_store: Store
) -> None:
    def trust(query: str, coverage: float = 0.9) -> float:
        return rank_lexical(reader, query, None, 10, coverage=coverage).trust

    leg = rank_lexical(reader, "house tree", None, 10, coverage=0.9)
    best = float(leg.scores_at(leg.ranking[:1])[0])
    share = best / sum(math.log(1 + (4 - df + 0.5) / (df + 0.5)) for df in (2, 1))
    assert share < 0.9
    assert leg.trust == pytest.approx((share / 0.9) ** 8)
    assert trust("house tree cedar birch") == leg.trust, "nothing holds them: they say nothing"
    assert trust("boat house", 0.25) == 1.0
    assert rank_lexical(reader, "house tree", None, 10).trust == 1.0, "off"
    assert trust("house tree 家") == 1.0, "n-grams"
    assert trust("cedar") == 1.0, "nothing found"
    # Only the rarest words of a long question are asked for.
    words = ["alder", "aspen", "hazel", "linden", "larch", "maple", "willow", "elm"]
    inputs = pack_inputs(renumber([memory(word) for word in words]))
    woods = SnapshotReader.open(build_candidate(empty_store.paths, inputs, provenance()))
    leg = rank_lexical(woods, " ".join(words), None, 10, coverage=0.9)
    share = float(leg.scores_at(leg.ranking[:1])[0]) / (6 * math.log(1 + 7.5 / 1.5))
    assert leg.trust == pytest.approx((share / 0.9) ** 8)


ROWS, SHORT = 3_000, 4
QUERY = topical_vectors(1, DIMENSION, seed=3)[0]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> LeanEncoder:
    return write_encoder(tmp_path_factory.mktemp("dense") / "encoders")


@pytest.fixture(scope="module")
def inputs(encoder: LeanEncoder) -> PackInputs:
    """A store of more memories than are ever scored exactly, with vectors of their own."""
    records = renumber([memory(f"note {i}", wing="ab"[i % 2]) for i in range(ROWS)])
    small = pack_inputs(records[:3], encoder)
    full = topical_vectors(ROWS, DIMENSION)
    arrays = pack_inputs(records).graph_arrays
    return replace(small, records=records, vectors=full, graph_arrays=arrays)


@pytest.fixture(scope="module")
def exact(
    inputs: PackInputs, encoder: LeanEncoder, tmp_path_factory: pytest.TempPathFactory
) -> SnapshotReader:
    root = tmp_path_factory.mktemp("exact")
    return SnapshotReader.open(build_candidate(StorePaths(root), inputs, provenance(encoder)))


@pytest.fixture(scope="module")
def directory(
    inputs: PackInputs, encoder: LeanEncoder, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    assert inputs.vectors is not None
    tier = build_prefix_tier(inputs.vectors, fit(inputs.vectors, "e"), SHORT, rows_per_cell=200)
    inputs = replace(inputs, tier=tier, exits={64: None, SHORT: 0.2})
    root = tmp_path_factory.mktemp("tiered")
    return build_candidate(StorePaths(root), inputs, provenance(encoder))


@pytest.fixture(scope="module")
def tiered(directory: Path) -> SnapshotReader:
    return SnapshotReader.open(directory)


def test_a_pack_with_a_tier_has_it_with_its_exits_and_one_without_is_scanned(
    exact: SnapshotReader, tiered: SnapshotReader
) -> None:
    assert (exact.tier, exact.tier_exits) == (None, {})
    leg = rank_dense(exact, QUERY, None, 10)
    assert leg.all_scores is not None
    assert exact.vectors is not None
    assert leg.ranking.tolist() == exact_positions(exact.vectors, QUERY, 10)
    assert tiered.tier is not None
    assert not tiered.tier.vectors.flags.writeable
    assert tiered.tier.vectors.shape == (ROWS, SHORT)
    assert tiered.tier_exits == {SHORT: 0.2, 64: None}


@pytest.mark.parametrize("wing", [None, "b"])
def test_both_engines_agree_where_the_shortlist_holds_everything(
    exact: SnapshotReader, tiered: SnapshotReader, monkeypatch: pytest.MonkeyPatch, wing: str | None
) -> None:
    monkeypatch.setattr(cascade, "SHORTLIST_SHARE", 1.0)
    monkeypatch.setattr(cascade, "EXACT_SCOPE_ROWS", 0)
    mask = None if wing is None else np.arange(ROWS) % 2 == 1
    for seed in range(5):
        query = topical_vectors(1, DIMENSION, seed)[0]
        legs = [rank_dense(reader, query, mask, 10) for reader in (exact, tiered)]
        assert legs[0].ranking.tolist() == legs[1].ranking.tolist()
        positions = np.array([5, 2_999, *legs[0].ranking.tolist()])
        scores = [leg.scores_at(positions) for leg in legs]
        np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)
        assert scores[1].dtype == np.float64


def test_the_funnel_scores_only_what_it_is_asked_for(tiered: SnapshotReader) -> None:
    leg = rank_dense(tiered, QUERY, None, 10)
    assert leg.all_scores is None
    assert leg.scores_at(np.empty(0, dtype=np.int64)).shape == (0,)
    assert tiered.vectors is not None
    unranked = np.setdiff1d(np.arange(ROWS), leg.ranking)[:50]
    expected = tiered.vectors[unranked].astype(np.float64) @ QUERY.astype(np.float64)
    np.testing.assert_allclose(leg.scores_at(unranked), expected, atol=1e-6)


def test_an_early_exit_is_asked_for_and_keeps_exact_scores(tiered: SnapshotReader) -> None:
    assert tiered.tier is not None
    assert tiered.vectors is not None
    exact, left = (rank_dense(tiered, QUERY, None, 10, early_exit=asked) for asked in (False, True))
    assert exact.ranking.tolist() == exact_positions(tiered.vectors, QUERY, 10)
    prefixes = np.empty(ROWS, dtype=np.float32)
    prefixes[tiered.tier.positions] = tiered.tier.vectors @ tiered.tier.shorten(QUERY)
    assert left.ranking.tolist() != exact.ranking.tolist()
    assert set(left.ranking.tolist()) == set(np.argsort(-prefixes)[:10].tolist())
    everything = np.arange(ROWS)
    assert np.array_equal(left.scores_at(everything), exact.scores_at(everything))


def test_another_dimension_is_refused(exact: SnapshotReader, tiered: SnapshotReader) -> None:
    for reader in (exact, tiered):
        with pytest.raises(ValueError, match="mismatch"):
            rank_dense(reader, np.ones(DIMENSION + 1, dtype=np.float32), None, 10)


@pytest.mark.parametrize("name", ["vectors", "positions", "starts", "centroids", "rotation"])
def test_a_tier_that_does_not_fit_is_refused(directory: Path, tmp_path: Path, name: str) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in directory.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    change_array(copy, f"tier.{name}", lambda array: array[:-1])
    write_manifest(copy, read_manifest(copy)._replace(files=describe_files(copy)))
    with pytest.raises(SnapshotCorruptError, match="cannot be opened"):
        SnapshotReader.open(copy)


RRF = RetrievalProfile(fusion="rrf", graph_weight=0.0, importance_prior=0.0)
unit = st.floats(0, 1)
rows = st.lists(st.tuples(unit, st.booleans()), min_size=1, max_size=20)


@given(rows, st.floats(0, 100))
def test_the_bonus_stays_in_range_and_never_lowers_an_exact_match_below_its_peers(
    table: list[tuple[float, bool]], bonus: float
) -> None:
    base = np.array([score for score, _ in table])
    exact = np.array([held for _, held in table])
    lifted = add_exact_match(base, exact, bonus)
    assert ((lifted >= 0) & (lifted <= 1 + 1e-12)).all()
    for i, j in ((i, j) for i in range(len(table)) for j in range(len(table))):
        if exact[i] and not exact[j] and base[i] >= base[j]:
            assert lifted[i] >= lifted[j]


def test_the_bonus_repairs_the_dip_of_rank_fusion(dense_store: Store) -> None:
    """The literal hit is first in one leg only; rank fusion puts what both legs half-like first."""
    texts = (
        "The boiler valve code is 4417 in the winter cupboard of the doctor.",
        "The boiler and the valve need winter care.", "The boiler is loud.",
        "A valve for the boiler, before winter.",
    )  # fmt: skip
    dense_store.publish(renumber([memory(text) for text in texts]))
    recaller = Recaller.open(dense_store.root)
    plain, lifted = (
        recaller.recall("boiler valve code 4417", 4, profile=RRF.replaced(exact_match_bonus=bonus))
        for bonus in (0.0, 1.0)
    )
    assert lifted.memories[0].id == 101
    gains = {m.id: m.relevance for m in lifted.memories}
    before = {m.id: m.relevance for m in plain.memories}
    assert gains == pytest.approx({i: (before[i] + (i == 101)) / 2.0 for i in gains})
    assert "exact" in lifted.phase_timing_ms
    assert "exact" not in plain.phase_timing_ms


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def floats(*values: float) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def test_the_pool_is_the_sorted_union() -> None:
    assert pool_candidates([ints(5, 1), ints(), ints(1, 3)]).tolist() == [1, 3, 5]
    assert pool_candidates([]).tolist() == []
    assert pool_candidates([ints()]).dtype == np.int64


def test_rrf_closed_form() -> None:
    # Position 4 is first in both legs, 7 second in one, 9 second in the other.
    scores = fuse_rrf(ints(4, 7, 9), (ints(4, 7), ints(4, 9)), (1.0, 3.0), 60)
    best = 4 / 61
    assert scores.tolist() == pytest.approx([1.0, (1 / 62) / best, (3 / 62) / best])


@pytest.mark.parametrize(
    ("legs", "weights", "expected"),
    [
        # (1 * s/10 + 3 * t/0.8) / 4
        ([[10.0, 5.0, 0.0], [0.2, 0.8, 0.4]], (1.0, 3.0), [1.75 / 4, 3.5 / 4, 1.5 / 4]),
        ([[4.0, 2.0], [0.0, 0.0]], (0.5, 1.0), [1.0, 0.5]),
        ([[4.0, 2.0], [-1.0, -0.5]], (0.5, 1.0), [1.0, 0.5]),
        ([[4.0, 2.0], [1.0, 2.0]], (0.5, 0.0), [1.0, 0.5]),
        ([[0.0, 0.0], [-1.0, 0.0]], (1.0, 1.0), [0.0, 0.0]),
        ([[]], (1.0,), []),
        ([], (), []),
    ],
)
def test_convex_closed_form(
    legs: list[list[float]], weights: tuple[float, ...], expected: list[float]
) -> None:
    found = fuse_convex([np.array(leg, dtype=np.float64) for leg in legs], weights)
    assert found.tolist() == pytest.approx(expected)


def test_what_is_added_to_fused_scores_in_closed_form() -> None:
    base = floats(1.0, 0.5, 0.0)
    assert add_graph(base, floats(0.0, 0.5, 1.0), 1.0).tolist() == [0.5, 0.5, 0.5]
    assert add_graph(floats(0.2), floats(0.4), 0.5).tolist() == pytest.approx([0.4 / 1.5])
    assert add_graph(base, floats(0.5, 0.5, 0.5), 0.0) is base
    assert add_graph(base, floats(0.0, 0.0, 0.0), 1.0) is base
    assert add_exact_match(base, np.array([True, False, False]), 0.0) is base
    assert add_exact_match(base, np.array([False] * 3), 0.5) is base
    scores, importance = floats(1.0, 1.0, 0.5), np.array([1.0, 0.0, 0.5], dtype=np.float32)
    assert apply_importance(scores, importance, 0.3).tolist() == pytest.approx([1.0, 0.7, 0.425])
    assert apply_importance(scores, importance, 1.0).tolist() == [1.0, 0.0, 0.25]


@given(
    st.lists(st.sampled_from([-0.5, 0.0, 0.25, 0.5, 1.0]), min_size=8, max_size=8),
    st.sets(st.integers(0, 7)),
    st.integers(0, 9),
)
def test_a_leg_among_some_positions_ranks_these_and_scores_as_before(
    values: list[float], positions: set[int], depth: int
) -> None:
    scores = np.array(values, dtype=np.float32)
    leg = Leg.of_scores(scores, np.array([3, 1], dtype=np.int64))
    among = leg.among(np.array(sorted(positions), dtype=np.int64), depth)
    expected = sorted((-values[p], p) for p in positions if values[p] > 0)[:depth]
    assert among.ranking.tolist() == [p for _, p in expected]
    assert scores_of(among, 8) == values


words = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=6)


@given(st.lists(words, min_size=1, max_size=8), st.lists(words, min_size=1, max_size=4), words)
def test_a_summarys_words_weigh_what_they_weigh_in_the_corpus(
    corpus: list[list[str]], texts: list[list[str]], query: list[str]
) -> None:
    """Against the formula in plain loops."""
    beside = build_postings_beside(
        map(encode_tokens, texts), build_postings(map(encode_tokens, corpus))
    )
    found = np.zeros(len(texts), dtype=np.float32)
    ranges = beside.ranges(sorted(set(query)))
    add_scores(found, ranges, beside.positions, beside.scores)
    mean = sum(map(len, texts)) / len(texts)
    for i, text in enumerate(texts):
        counts, expected = Counter(text), 0.0
        for term in set(query) & set(text):
            df = sum(term in memory for memory in corpus)
            idf = math.log1p((len(corpus) - df + 0.5) / (df + 0.5))
            tf = counts[term]
            expected += idf * tf / (tf + K1 * (1 - B + B * len(text) / mean))
        assert math.isclose(found[i], expected, rel_tol=1e-5, abs_tol=1e-6)


def summaries(sources: list[list[int]]) -> SummaryArrays:
    sizes = [len(s) for s in sources]
    return SummaryArrays(
        indptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        sources=np.array([p for s in sources for p in s], dtype=np.int32),
        confidences=np.ones(len(sources), dtype=np.float64),
        plans=np.full(len(sources), -1, dtype=np.int32),
    )


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=5),
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_masks_over_summaries_say_what_plain_loops_say(
    sources: list[list[int]], seen: list[bool], shown: list[bool]
) -> None:
    arrays, mask = summaries(sources), np.array(seen)
    assert arrays.is_aligned(10)
    assert arrays.where_all(mask).tolist() == [all(seen[p] for p in s) for s in sources]
    chosen = np.array(shown[: len(sources)], dtype=np.bool_)
    covered = {p for s, b in zip(sources, chosen, strict=True) if b for p in s}
    assert np.flatnonzero(arrays.covered(chosen, 10)).tolist() == sorted(covered)
    assert arrays.first_sources().tolist() == [s[0] for s in sources]


def test_arrays_that_do_not_fit_are_not_aligned() -> None:
    good = summaries([[0, 1], [2]])
    assert good.is_aligned(3)
    assert not good.is_aligned(2), "a source beyond the memories"
    assert not summaries([[0, 1], []]).is_aligned(3), "a summary of nothing"


def naive(codes: list[int], scores: list[float], quota: int, mask: list[bool]) -> list[int]:
    kept: list[int] = []
    for wing in set(codes):
        rows = [i for i, c in enumerate(codes) if c == wing and mask[i] and scores[i] > 0]
        kept += sorted(rows, key=lambda i: (-scores[i], i))[:quota]
    return sorted(kept)


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 4),
            st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.5, 1.0, float("nan"), float("inf")]),
            st.booleans(),
        ),
        max_size=40,
    ),
    st.sampled_from([-1, 0, 1, 2, 3, 16, 17, 40]),
)
def test_equals_sorting_every_wing(rows: list[tuple[int, float, bool]], quota: int) -> None:
    codes, scores, mask = [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]
    given_scores = np.array(scores, dtype=np.float32)
    given_scores.flags.writeable = False
    wings, shown = np.array(codes, dtype=np.int32), np.array(mask, dtype=np.bool_)
    found = quota_positions(wings, given_scores, quota, shown)
    assert found.tolist() == naive(codes, scores, max(quota, 0), mask)


@pytest.mark.parametrize("quota", [1, 20])
def test_a_small_wing_is_never_forgotten(quota: int) -> None:
    codes = np.zeros(5_000, dtype=np.int32)
    codes[[17, 4_711]] = 1
    scores = np.linspace(1.0, 0.5, 5_000).astype(np.float32)
    found = quota_positions(codes, scores, quota)
    assert 17 in found
    assert (codes[found] == 0).sum() == quota
