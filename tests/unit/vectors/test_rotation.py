from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import FingerprintMismatchError, StoreError
from noctuary.embed import rotation as rotation_module
from noctuary.embed.rotation import (
    FIT_ROWS_PER_DIMENSION,
    MATRIX_FILE,
    STAMP_FILE,
    Rotation,
    fit,
    fit_or_load,
    identity,
    load,
    prefix,
    rotate,
    rotated_prefix,
    save,
)

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


def test_the_mean_is_not_removed() -> None:
    # All rows share one direction: uncentred, that is the first component.
    vectors = np.tile([0.0, 1.0], (10, 1)) + np.array([[0.1 * (-1) ** i, 0.0] for i in range(10)])
    np.testing.assert_allclose(fit(vectors, "e").matrix[:, 0], [0.0, 1.0], atol=1e-7)


def test_the_matrix_is_orthogonal_float32_with_positive_peaks() -> None:
    matrix = fit(corpus(200), "e").matrix
    assert matrix.dtype == np.float32
    np.testing.assert_allclose(matrix.T @ matrix, np.eye(DIM), atol=1e-6)
    peaks = np.abs(matrix).argmax(axis=0)
    assert (matrix[peaks, np.arange(DIM)] > 0).all()


def test_components_come_by_descending_energy() -> None:
    vectors = corpus(300)
    energy = (rotate(vectors, fit(vectors, "e")).astype(np.float64) ** 2).sum(axis=0)
    assert (np.diff(energy) <= 1e-6).all()


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


def test_a_frozen_rotation_is_kept_when_the_corpus_changes(tmp_path: Path) -> None:
    first = fit_or_load(tmp_path, corpus(100), "e")
    again = fit_or_load(tmp_path, corpus(400, seed=3), "e")
    assert not first.is_identity
    assert again.digest == first.digest
    assert again.fitted_on == 100


def test_another_encoder_or_dimension_is_refused(tmp_path: Path) -> None:
    fit_or_load(tmp_path, corpus(100), "e")
    with pytest.raises(FingerprintMismatchError, match="fitted for encoder e"):
        fit_or_load(tmp_path, corpus(100), "f")
    with pytest.raises(FingerprintMismatchError, match="8 dimensions"):
        fit_or_load(tmp_path, corpus(100, dim=4), "e")


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


def test_a_kill_before_the_stamp_leaves_nothing_frozen(tmp_path: Path) -> None:
    save(tmp_path, fit(corpus(100), "e"))
    (tmp_path / STAMP_FILE).unlink()
    assert load(tmp_path) is None
    assert fit_or_load(tmp_path, corpus(200), "e").fitted_on == 200


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


@pytest.mark.parametrize("dim", [0, -1, 4])
def test_a_prefix_longer_than_the_vector_is_refused(dim: int) -> None:
    with pytest.raises(ValueError, match="prefix"):
        prefix(np.ones(3), dim)


def test_bad_input_is_refused() -> None:
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
