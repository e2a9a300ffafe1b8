from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from noctuary.core.errors import SnapshotCorruptError
from noctuary.core.manifest import describe_files, read_manifest, write_manifest
from noctuary.core.store import StorePaths
from noctuary.embed import funnel as cascade
from noctuary.embed.lean import LeanEncoder
from noctuary.embed.rotation import build_prefix_tier, fit
from noctuary.recall.legs import rank_dense
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.pack import PackInputs, build_candidate
from tests.support.damage import change_array
from tests.support.lean import DIMENSION, write_encoder
from tests.support.store import household, memory, pack_inputs, provenance, renumber
from tests.support.vectors import exact_positions, topical_vectors

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


def test_a_pack_without_a_tier_opens_and_is_scanned(exact: SnapshotReader) -> None:
    assert (exact.tier, exact.tier_exits) == (None, {})
    leg = rank_dense(exact, QUERY, None, 10)
    assert leg.all_scores is not None
    assert exact.vectors is not None
    assert leg.ranking.tolist() == exact_positions(exact.vectors, QUERY, 10)


def test_the_tier_comes_back_read_only_with_its_exits(tiered: SnapshotReader) -> None:
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


def test_an_early_exit_happens_only_when_asked_for_and_keeps_exact_scores(
    tiered: SnapshotReader,
) -> None:
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


def test_a_query_of_another_dimension_is_refused(
    exact: SnapshotReader, tiered: SnapshotReader
) -> None:
    for reader in (exact, tiered):
        with pytest.raises(ValueError, match="mismatch"):
            rank_dense(reader, np.ones(DIMENSION + 1, dtype=np.float32), None, 10)


def test_without_vectors_the_leg_is_empty(tmp_path: Path) -> None:
    candidate = build_candidate(StorePaths(tmp_path), pack_inputs(household()), provenance())
    leg = rank_dense(SnapshotReader.open(candidate), QUERY, None, 10)
    assert leg.ranking.size == 0


@pytest.mark.parametrize("name", ["vectors", "positions", "starts", "centroids", "rotation"])
def test_a_tier_that_does_not_fit_its_vectors_is_refused(
    directory: Path, tmp_path: Path, name: str
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in directory.iterdir():
        (copy / path.name).write_bytes(path.read_bytes())
    change_array(copy, f"tier.{name}", lambda array: array[:-1])
    write_manifest(copy, read_manifest(copy)._replace(files=describe_files(copy)))
    with pytest.raises(SnapshotCorruptError, match="cannot be opened"):
        SnapshotReader.open(copy)
