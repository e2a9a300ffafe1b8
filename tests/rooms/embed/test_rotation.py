from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import FingerprintMismatchError, StoreError
from noctuary.embed import rotation as norms
from noctuary.embed import rotation as rotation_module
from noctuary.embed import rotation as thresholds
from noctuary.embed.rotation import (
    DERIVED,
    FIT_ROWS_PER_DIMENSION,
    MATRIX_FILE,
    MIN_EXITS,
    REFERENCE,
    STAMP_FILE,
    TARGET_PRECISION,
    UNREACHED,
    Rotation,
    assign,
    build_prefix_tier,
    choose_threshold,
    count_bad_rows,
    derive_thresholds,
    fit,
    fit_centroids,
    fit_or_load,
    identity,
    load,
    prefix,
    rotate,
    rotated_prefix,
    save,
)
from tests.support.vectors import topical_vectors

DIM = 8


def corpus(rows: int, seed: int = 0, dim: int = DIM) -> np.ndarray:
    """Unit vectors whose variance lies along random directions, as a model's does."""
    rng = np.random.default_rng(seed)
    scales = 0.6 ** np.arange(dim)
    basis, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    vectors = (rng.normal(size=(rows, dim)) * scales) @ basis.T + 0.3 * basis[:, 0]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_the_fit_is_the_uncentred_pca_of_a_known_matrix() -> None:
    # X'X = diag(1, 9, 4): the axes in the order 1, 2, 0. Centring would change the order.
    vectors = np.array([[1.0, 0, 0], [0, 3.0, 0], [0, 0, 2.0]])
    rotation = fit(vectors, "e")
    np.testing.assert_allclose(rotation.matrix, [[0, 0, 1], [1, 0, 0], [0, 1, 0]], atol=1e-7)
    assert rotation.fitted_on == 3


def test_the_matrix_is_orthogonal_float32_with_positive_peaks() -> None:
    matrix = fit(corpus(200), "e").matrix
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(DIM), atol=1e-6)
    peaks = np.abs(matrix).argmax(axis=0)
    assert (matrix[peaks, np.arange(DIM)] > 0).all()
    vectors = corpus(300)
    energy = (rotate(vectors, fit(vectors, "e")).astype(np.float64) ** 2).sum(axis=0)
    assert (np.diff(energy) <= 1e-6).all(), "components come by descending energy"


def test_a_rotation_is_lossless_and_its_prefix_beats_the_raw_one() -> None:
    vectors = corpus(300)
    rotation = fit(vectors, "e")
    rotated = rotate(vectors, rotation)
    np.testing.assert_allclose(rotated @ rotated.T, vectors @ vectors.T, atol=2e-6)

    truth = vectors @ vectors.T

    def error(short: np.ndarray) -> float:
        return float(((short @ short.T - truth) ** 2).mean())

    assert error(rotated_prefix(vectors, rotation, 2)) < 0.5 * error(prefix(vectors, 2))


def test_a_rank_deficient_or_zero_corpus_still_gives_an_orthogonal_matrix() -> None:
    for vectors in (np.zeros((5, 4)), np.ones((5, 4)), np.eye(4)[:1]):
        matrix = fit(vectors, "e").matrix
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(4), atol=1e-6)


def test_fitting_twice_gives_the_same_digest_and_any_difference_another() -> None:
    vectors = corpus(100)
    first = fit(vectors, "e")
    assert fit(vectors.copy(), "e").digest == first.digest
    others = [fit(vectors, "f"), fit(corpus(100, seed=1), "e"), identity(DIM, "e", "why")]
    assert len({first.digest, *(other.digest for other in others)}) == 4


def test_a_stored_rotation_comes_back(tmp_path: Path) -> None:
    rotation = fit(corpus(100), "e")
    assert load(tmp_path) is None
    save(tmp_path, rotation)
    again = load(tmp_path)
    assert again is not None
    assert again.digest == rotation.digest
    assert (again.fitted_on, again.fingerprint_digest) == (100, "e")
    np.testing.assert_array_equal(again.matrix, rotation.matrix)
    assert sorted(p.name for p in tmp_path.iterdir()) == [STAMP_FILE, MATRIX_FILE]


def test_a_frozen_rotation_is_kept_for_its_encoder_alone(tmp_path: Path) -> None:
    first = fit_or_load(tmp_path, corpus(100), "e")
    assert not first.is_identity
    again = fit_or_load(tmp_path, corpus(400, seed=3), "e")
    assert (again.digest, again.fitted_on) == (first.digest, 100)
    with pytest.raises(FingerprintMismatchError, match="fitted for encoder e"):
        fit_or_load(tmp_path, corpus(100), "f")
    with pytest.raises(FingerprintMismatchError, match="8 dimensions"):
        fit_or_load(tmp_path, corpus(100, dim=4), "e")
    (tmp_path / STAMP_FILE).unlink()  # a kill before the stamp leaves nothing frozen
    assert load(tmp_path) is None
    assert fit_or_load(tmp_path, corpus(200), "e").fitted_on == 200


def test_a_small_corpus_uses_the_identity_and_freezes_nothing(tmp_path: Path) -> None:
    few = corpus(DIM * FIT_ROWS_PER_DIMENSION - 1)
    rotation = fit_or_load(tmp_path, few, "e")
    assert rotation.is_identity
    assert "7 rows" in rotation.reason
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(rotate(few, rotation), few)
    assert fit_or_load(tmp_path, corpus(DIM * FIT_ROWS_PER_DIMENSION), "e").fitted_on == DIM
    empty = np.zeros((0, DIM), dtype=np.float32)
    assert fit_or_load(tmp_path / "other", empty, "e").is_identity


@pytest.mark.parametrize("damage", ["truncate", "swap", "remove", "stamp"])
def test_damage_is_found_and_says_what_to_do(tmp_path: Path, damage: str) -> None:
    save(tmp_path, fit(corpus(100), "e"))
    matrix = tmp_path / MATRIX_FILE
    if damage == "truncate":
        matrix.write_bytes(matrix.read_bytes()[:-4])
    elif damage == "swap":
        np.save(matrix, np.eye(DIM, dtype=np.float32))
    elif damage == "remove":
        matrix.unlink()
    else:
        (tmp_path / STAMP_FILE).write_text("{}", encoding="utf-8")
    with pytest.raises(StoreError, match="remove the directory"):
        load(tmp_path)


def test_a_prefix_in_closed_form() -> None:
    np.testing.assert_allclose(prefix(np.array([3.0, 4.0, 12.0]), 2), [0.6, 0.8], atol=1e-7)
    np.testing.assert_array_equal(prefix(np.array([0.0, 0.0, 1.0]), 2), [0.0, 0.0])
    # At the norm of epsilon itself the result is 1 / sqrt(2): noise fades out smoothly.
    np.testing.assert_allclose(prefix(np.array([1e-8, 0.0]), 1), [np.sqrt(0.5)], atol=1e-6)
    assert prefix(np.ones((4, 3)), 2).shape == (4, 2)
    assert prefix(np.ones((0, 3)), 2).shape == (0, 2)


def test_bad_input_is_refused() -> None:
    for dim in (0, -1, 4):
        with pytest.raises(ValueError, match="prefix"):
            prefix(np.ones(3), dim)
    with pytest.raises(ValueError, match="n >= 1"):
        fit(np.zeros((0, 3)), "e")
    with pytest.raises(ValueError, match="not finite"):
        fit(np.array([[np.nan, 1.0]]), "e")
    with pytest.raises(ValueError, match="3 dimensions"):
        rotate(np.ones((2, 3)), identity(4, "e", "why"))


def test_partial_rotation_equals_the_head_of_the_full_one() -> None:
    vectors = corpus(50)
    rotation: Rotation = fit(vectors, "e")
    np.testing.assert_allclose(
        rotate(vectors, rotation, 3), rotate(vectors, rotation)[:, :3], atol=1e-6
    )
    one = rotated_prefix(vectors[0], rotation, 3)
    np.testing.assert_allclose(one, rotated_prefix(vectors, rotation, 3)[0], atol=1e-6)


def test_of_many_rows_an_even_sample_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = corpus(250)
    whole = fit(rows, "e")
    assert whole.fitted_on == 250
    monkeypatch.setattr(rotation_module, "FIT_ROWS_MAX", 100)
    sampled = fit(rows, "e")
    assert sampled.fitted_on == 84
    monkeypatch.undo()
    assert sampled.digest == fit(rows[::3], "e").digest != whole.digest


@given(rows=st.integers(1, 40), block=st.integers(1, 9), dim=st.integers(1, DIM))
def test_prefixes_of_many_rows_are_those_of_each(rows: int, block: int, dim: int) -> None:
    vectors = corpus(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rotation_module, "PREFIX_ROWS", block)
        found = prefix(vectors, dim)
    assert np.array_equal(found, np.stack([prefix(row, dim) for row in vectors]))


LENGTHS = st.sampled_from([1.0, 0.9995, 1.0005, 0.99, 1.02, 0.0, np.nan, np.inf])


@given(lengths=st.lists(LENGTHS, max_size=20), block=st.integers(1, 8))
def test_rows_are_counted_as_one_look_at_all_of_them_would(
    lengths: list[float], block: int
) -> None:
    rows = np.zeros((len(lengths), 4), dtype=np.float32)
    rows[:, 2] = lengths
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(norms, "BLOCK_ROWS", block)
        assert count_bad_rows(rows, 1e-3) == sum(not abs(n - 1.0) <= 1e-3 for n in lengths)


FULL = topical_vectors(1_500, 96)
ROTATION = fit(FULL, "e")


FALLING = np.linspace(1.0, 0.0, 200, dtype=np.float32)


@pytest.mark.parametrize(
    ("best", "right", "origin", "exit_at"),
    [
        (np.linspace(0.9, 0.3, 100), np.full(100, True), DERIVED, 0.3),
        (np.linspace(0.3, 0.9, 100), np.arange(100) % 2 == 0, UNREACHED, None),
        # Few exits say nothing.
        (FALLING, np.arange(200) < MIN_EXITS - 5, UNREACHED, None),
        (FALLING, np.arange(200) < MIN_EXITS, DERIVED, None),
        # Equal cosines leave together.
        (np.full(100, 0.8), np.arange(100) < 50, UNREACHED, None),
    ],
    ids=["always-right", "seldom-right", "too-few", "enough", "equal"],
)
def test_a_tier_may_leave_where_it_is_nearly_always_right(
    best: Any, right: Any, origin: str, exit_at: float | None
) -> None:
    found = choose_threshold(64, best.astype(np.float32), right)
    assert found.origin == origin
    if origin == UNREACHED:
        assert (found.exit_at, found.precision, found.exits) == (None, None, 0.0)
    if exit_at is not None:
        assert (found.exit_at, found.precision, found.exits) == (pytest.approx(exit_at), 1.0, 1.0)


def test_the_threshold_is_where_enough_answers_are_still_right() -> None:
    """200 queries by falling cosine; the first 100 right, then every second one."""
    best = np.linspace(1.0, 0.0, 200, dtype=np.float32)
    right = np.array([i < 100 or i % 2 == 0 for i in range(200)])
    found = choose_threshold(64, best, right)
    leaving = best >= (found.exit_at or 0.0)
    # 106 right of 111 is .955; one more to leave, right or not, is below .95 for good.
    assert int(leaving.sum()) == 111
    assert found.precision == pytest.approx(106 / 111, abs=1e-4)
    assert found.exits == pytest.approx(leaving.mean())


def test_a_long_prefix_is_right_more_often_than_a_short_one() -> None:
    found = derive_thresholds(FULL, ROTATION, (8, 92, 96, 200))
    assert list(found) == [8, 92]
    assert found[8].origin == UNREACHED
    assert found[92].origin == DERIVED
    assert (found[92].precision or 0.0) >= TARGET_PRECISION
    assert found[92].queries == 375
    assert (found[92].exit_at or 1.0) < 0.95, "the query itself is held out"


def test_what_is_right_follows_a_naive_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SAMPLE_QUERIES", 40)
    monkeypatch.setattr(thresholds, "MIN_EXITS", 1)
    monkeypatch.setattr(thresholds, "TARGET_PRECISION", 0.0)
    found = derive_thresholds(FULL, ROTATION, (32,))[32]
    right: list[bool] = []
    for place in range(0, 1_500, 38):
        cosines = FULL @ FULL[place]
        rotated = FULL @ ROTATION.matrix[:, :32]
        short = rotated / np.linalg.norm(rotated, axis=1, keepdims=True)
        prefixes = short @ short[place]
        cosines[place] = prefixes[place] = -2
        true, ours = (set(np.argsort(-values)[:10].tolist()) for values in (cosines, prefixes))
        right.append(len(true & ours) >= 9)
    assert found.queries == len(right) == 40
    assert found.precision == pytest.approx(np.mean(right), abs=1e-4)


@pytest.mark.parametrize("case", ["few-rows", "no-rotation"])
def test_where_nothing_can_be_derived_the_references_values_stand(case: str) -> None:
    rows = topical_vectors(99 if case == "few-rows" else 500, 384)
    rotation = fit(rows, "e") if case == "few-rows" else identity(384, "e", "too few")
    found = derive_thresholds(rows, rotation, (64, 128, 256))
    assert {dim: t.exit_at for dim, t in found.items()} == {64: 0.65, 128: None, 256: 0.75}
    assert {t.origin for t in found.values()} == {REFERENCE}


def test_a_large_corpus_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "CORPUS_ROWS", 300)
    found = derive_thresholds(FULL, ROTATION, (92,))[92]
    assert found.queries == 300


def test_facts_are_plain_and_the_same_every_time() -> None:
    first, second = (derive_thresholds(FULL, ROTATION, (8, 64))[64].to_json() for _ in range(2))
    assert first == second
    assert set(first) == {"exit_at", "origin", "precision", "exits", "queries"}


WHOLE = topical_vectors(1_000, 48)
SMALL_ROTATION = fit(WHOLE, "e")


def test_every_memory_is_in_the_tier_once_as_its_own_prefix() -> None:
    tier = build_prefix_tier(WHOLE, SMALL_ROTATION, 16, rows_per_cell=50)
    assert sorted(tier.positions.tolist()) == list(range(1_000))
    expected = rotated_prefix(WHOLE, SMALL_ROTATION, 16)
    np.testing.assert_allclose(tier.vectors, expected[tier.positions], atol=1e-6)
    query = topical_vectors(1, 48, seed=5)[0]
    np.testing.assert_allclose(
        tier.shorten(query), rotated_prefix(query, SMALL_ROTATION, 16), atol=1e-6
    )


def test_every_row_lies_in_the_cell_of_the_nearest_direction() -> None:
    tier = build_prefix_tier(WHOLE, SMALL_ROTATION, 16, rows_per_cell=50)
    assert tier.centroids.shape == (20, 16)
    np.testing.assert_allclose(np.linalg.norm(tier.centroids, axis=1), 1.0, atol=1e-5)
    nearest = (tier.vectors @ tier.centroids.T).argmax(axis=1)
    for cell in range(20):
        part = slice(int(tier.starts[cell]), int(tier.starts[cell + 1]))
        assert (nearest[part] == cell).all()
        assert (np.diff(tier.positions[part]) > 0).all()
    assert int(tier.starts[-1]) == 1_000


def test_cells_gather_what_is_alike() -> None:
    """Rows are nearer to their own direction than to where k-means started from."""
    prefixes = rotated_prefix(WHOLE, SMALL_ROTATION, 16)
    centroids = fit_centroids(prefixes, 20)
    start = prefixes[np.linspace(0, 999, 20).astype(np.int64)]
    fitted = float((prefixes * centroids[assign(prefixes, centroids)]).sum(axis=1).mean())
    unfitted = float((prefixes * start[assign(prefixes, start)]).sum(axis=1).mean())
    assert fitted > unfitted + 0.02


def test_one_row_and_equal_rows_make_a_tier() -> None:
    one = build_prefix_tier(WHOLE[:1], identity(48, "e", "small"), 16)
    assert one.is_aligned(1, 48)
    same = build_prefix_tier(np.tile(WHOLE[:1], (200, 1)), SMALL_ROTATION, 16, rows_per_cell=10)
    assert same.is_aligned(200, 48)
    assert np.isfinite(same.centroids).all()
    zeros = build_prefix_tier(
        np.zeros((60, 48), dtype=np.float32), SMALL_ROTATION, 16, rows_per_cell=10
    )
    assert np.isfinite(zeros.centroids).all()
