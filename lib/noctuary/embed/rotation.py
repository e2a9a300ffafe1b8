"""The rotation after which a prefix of a vector is its best short form, and what is cut behind it.

The uncentred PCA of the corpus: orthogonal, so cosines stay. Fitted once per encoder and kept,
because another rotation rewrites every tier.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import FingerprintMismatchError, StoreError
from noctuary.core.files import canonical_json, read_array, write_array, write_text
from noctuary.embed.funnel import PREFIX_EPSILON, SERVING_DIM, PrefixTier, release_pages

Floats = NDArray[np.float32]
Matrix = NDArray[np.floating[Any]]

# The rotation: fitted, frozen, applied.

BLOCK_ROWS = 16_384  # looked at or assigned at once: 64 MB by 1,024 cells
# Rows needed per dimension before a rotation is frozen, for good: fewer leave directions without
# data; 500 rows are nearly enough for 384 dimensions (research/limits.md section 4).
FIT_ROWS_PER_DIMENSION = 1
FIT_ROWS_MAX = 131_072  # most rows, evenly spread; a million take 20 s longer for the same
GRAM_ROWS = 8_192  # read at once while fitting: bounds memory for a memory-mapped matrix
PREFIX_ROWS = 8_192  # normalised at once in float64: three arrays of 256 dimensions are 50 MB

MATRIX_FILE, STAMP_FILE = "rotation.npy", "rotation.json"


def count_bad_rows(vectors: Matrix, tolerance: float) -> int:
    """Return how many rows are not finite or have a length other than 1, within a tolerance."""
    bad = 0
    for start in range(0, len(vectors), BLOCK_ROWS):
        norms = np.linalg.norm(vectors[start : start + BLOCK_ROWS].astype(np.float64), axis=1)
        # Not "above": NaN must not pass.
        bad += int((~(np.abs(norms - 1.0) <= tolerance)).sum())
        release_pages(vectors)
    return bad


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """An orthogonal matrix and what it was fitted on; compare two by their digests."""

    matrix: Floats  # shape (d, d); a vector is rotated by `v @ matrix`
    fitted_on: int  # rows; 0 for the identity
    fingerprint_digest: str  # of the encoder whose vectors it fits
    digest: str  # SHA-256 of all of the above; what a derived tier is stamped with
    reason: str = ""  # why it is the identity; "" for a fitted rotation

    @property
    def dim(self) -> int:
        """Dimensions of the vectors it applies to."""
        return int(self.matrix.shape[0])

    @property
    def is_identity(self) -> bool:
        """True where nothing was fitted yet."""
        return self.fitted_on == 0


def fit(vectors: Matrix, fingerprint_digest: str) -> Rotation:
    """Fit the uncentred PCA rotation of a corpus, shape (n >= 1, d); may be memory-mapped.

    Deterministic: each eigenvector's largest component, the first of equal ones, is positive.
    ValueError for another shape, no row, or a value that is not finite.
    """
    if vectors.ndim != 2 or not len(vectors):
        raise ValueError(f"a rotation needs vectors of shape (n >= 1, d), not {vectors.shape}")
    gram = np.zeros((vectors.shape[1], vectors.shape[1]), dtype=np.float64)
    sample = vectors[:: -(-len(vectors) // FIT_ROWS_MAX)]
    for start in range(0, len(sample), GRAM_ROWS):
        rows = np.asarray(sample[start : start + GRAM_ROWS], dtype=np.float64)
        release_pages(vectors)
        if not np.isfinite(rows).all():
            raise ValueError(f"rows {start}..{start + len(rows)} hold a value that is not finite")
        gram += rows.T @ rows
    _, columns = np.linalg.eigh(gram)
    basis = columns[:, ::-1]
    peaks = np.abs(basis).argmax(axis=0)
    signs = np.where(basis[peaks, np.arange(basis.shape[1])] < 0.0, -1.0, 1.0)
    matrix = np.ascontiguousarray((basis * signs).astype(np.float32))
    return _stamped(matrix, len(sample), fingerprint_digest)


def identity(dim: int, fingerprint_digest: str, reason: str) -> Rotation:
    """Return the rotation that changes nothing, with the reason why none was fitted."""
    return _stamped(np.eye(dim, dtype=np.float32), 0, fingerprint_digest, reason)


def _stamped(matrix: NDArray[Any], fitted_on: int, model: str, reason: str = "") -> Rotation:
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a rotation is square, not {matrix.shape}")
    frozen = np.array(matrix, dtype=np.float32)
    frozen.flags.writeable = False
    digest = hashlib.sha256(f"{frozen.shape} {fitted_on} {model}\n".encode())
    digest.update(frozen.astype("<f4", copy=False).tobytes())
    return Rotation(frozen, fitted_on, model, digest.hexdigest(), reason)


def save(directory: Path, rotation: Rotation) -> None:
    """Store a rotation atomically: the matrix first, then the stamp that makes it count."""
    write_array(directory / MATRIX_FILE, rotation.matrix)
    names = ("dim", "digest", "fingerprint_digest", "fitted_on")
    stamp = {name: getattr(rotation, name) for name in names}
    write_text(directory / STAMP_FILE, canonical_json(stamp) + "\n")


def load(directory: Path) -> Rotation | None:
    """Return the stored rotation, or None where none was completed; StoreError if it is damaged."""
    path = directory / STAMP_FILE
    if not path.exists():
        return None
    try:
        stamp = json.loads(path.read_text(encoding="utf-8"))
        matrix = read_array(directory / MATRIX_FILE, mmap=False)
        rotation = _stamped(matrix, int(stamp["fitted_on"]), str(stamp["fingerprint_digest"]))
        if rotation.digest != stamp["digest"]:
            raise ValueError(f"digest {rotation.digest}, expected {stamp['digest']}")  # noqa: TRY301
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise StoreError(
            f"the rotation in {directory} is damaged ({error}); remove the directory and run the "
            "night again: a new rotation is fitted and every tier is rewritten"
        ) from error
    return rotation


def fit_or_load(directory: Path, vectors: Matrix, fingerprint_digest: str) -> Rotation:
    """Return the frozen rotation, fitted on the first corpus large enough; before, the identity.

    FingerprintMismatchError if it belongs to another encoder or dimension, StoreError if damaged.
    """
    dim, frozen = int(vectors.shape[1]), load(directory)
    if frozen is None:
        needed = dim * FIT_ROWS_PER_DIMENSION
        if len(vectors) < needed:
            reason = f"{len(vectors)} rows; a rotation of {dim} dimensions needs {needed}"
            return identity(dim, fingerprint_digest, reason)
        frozen = fit(vectors, fingerprint_digest)
        save(directory, frozen)
    elif (frozen.fingerprint_digest, frozen.dim) != (fingerprint_digest, dim):
        raise FingerprintMismatchError(
            f"the rotation in {directory} was fitted for encoder {frozen.fingerprint_digest} "
            f"({frozen.dim} dimensions), not for {fingerprint_digest} ({dim}); "
            f"keep one directory per encoder, or remove {directory} to fit a new one"
        )
    return frozen


def rotate(vectors: Matrix, rotation: Rotation, dim: int | None = None) -> Floats:
    """Return the first `dim` (by default all) rotated components of vectors (n, d) or (d,)."""
    if vectors.shape[-1] != rotation.dim:
        raise ValueError(
            f"vectors of {vectors.shape[-1]} dimensions cannot be rotated by a matrix of "
            f"{rotation.dim}; use the rotation of the encoder that made them"
        )
    rows = np.asarray(vectors, dtype=np.float32)
    return rows[..., :dim] if rotation.is_identity else rows @ rotation.matrix[:, :dim]


def prefix(rotated: Matrix, dim: int) -> Floats:
    """Return u = v[:k] / sqrt(|v[:k]|^2 + eps^2) per row: norm in [0, 1], zero stays zero.

    (n, d) or (d,), finite; ValueError unless k is in 1..d. Source: libravdb mathematics section 4.
    """
    if not 1 <= dim <= rotated.shape[-1]:
        raise ValueError(f"a prefix of {dim} cannot be cut from {rotated.shape[-1]} dimensions")
    head = np.atleast_2d(rotated[..., :dim])
    cut = np.empty(head.shape, dtype=np.float32)
    for start in range(0, len(head), PREFIX_ROWS):
        rows = np.asarray(head[start : start + PREFIX_ROWS], dtype=np.float64)
        squares = (rows * rows).sum(axis=-1, keepdims=True)
        cut[start : start + len(rows)] = rows / np.sqrt(squares + PREFIX_EPSILON**2)
    return cut.reshape((*rotated.shape[:-1], dim))


def rotated_prefix(vectors: Matrix, rotation: Rotation, dim: int) -> Floats:
    """Return what a tier stores: the normalised prefix of the rotated vectors, shape (n, dim)."""
    return prefix(rotate(vectors, rotation, dim), dim)


# The short tier that a serving pack carries: prefixes, sorted by the cells of a k-means.

ROWS_PER_CELL = 1_024  # smaller fit a neighbourhood better, and each probed cell costs a call
FIT_ROWS_PER_CELL = 48  # that k-means sees: enough for a stable mean; more lengthen the night
FIT_ROUNDS = 8  # cells barely move after these, and an unfinished fit only costs speed


def build_prefix_tier(
    vectors: Any, rotation: Rotation, dim: int = SERVING_DIM, *, rows_per_cell: int = ROWS_PER_CELL
) -> PrefixTier:
    """Return the short tier of unit rows, a matrix or `VectorRows`, (n >= 1, d), by cell."""
    count = len(vectors)
    prefixes = np.empty((count, dim), dtype=np.float32)
    for start in range(0, count, BLOCK_ROWS):
        chunk = vectors[start : start + BLOCK_ROWS]
        prefixes[start : start + len(chunk)] = rotated_prefix(chunk, rotation, dim)
    centroids = fit_centroids(prefixes, max(count // rows_per_cell, 1))
    cells = assign(prefixes, centroids)
    order = np.argsort(cells, kind="stable")
    sizes = np.bincount(cells, minlength=len(centroids))
    return PrefixTier(
        vectors=prefixes[order],
        positions=order.astype(np.int32),
        starts=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        centroids=centroids,
        rotation=np.ascontiguousarray(rotation.matrix[:, :dim]),
    )


def fit_centroids(prefixes: Floats, cells: int) -> Floats:
    """Return unit directions around which the prefixes, shape (n, k), lie; shape (cells, k)."""
    step = max(len(prefixes) // (cells * FIT_ROWS_PER_CELL), 1)
    sample = prefixes[::step]
    centroids = sample[np.linspace(0, len(sample) - 1, cells).astype(np.int64)].copy()
    for _ in range(FIT_ROUNDS):
        nearest = assign(sample, centroids)
        order = np.argsort(nearest, kind="stable")
        held, first = np.unique(nearest[order], return_index=True)
        sums = np.add.reduceat(sample[order].astype(np.float64), first, axis=0)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        moved = norms[:, 0] > 0
        centroids[held[moved]] = (sums[moved] / norms[moved]).astype(np.float32)
    return centroids


def assign(prefixes: Floats, centroids: Floats) -> NDArray[np.int64]:
    """Return the cell whose direction is nearest to each row, the first of equal ones, (n,)."""
    cells = np.empty(len(prefixes), dtype=np.int64)
    for start in range(0, len(prefixes), BLOCK_ROWS):
        chunk = prefixes[start : start + BLOCK_ROWS]
        cells[start : start + len(chunk)] = (chunk @ centroids.T).argmax(axis=1)
    return cells


# Early-exit thresholds of the short tiers: the best cosine from which a tier's first ten are likely
# those of all dimensions (libravdb mathematics section 4).
# Memories serve as queries, held out from their own results; equal inputs give equal thresholds.

TARGET_RECALL = 0.9  # of the true first ten, what a tier's first ten must hold to count as right
TARGET_PRECISION = 0.95  # least share of right answers among early exits; higher trades exits away
TOP = 10  # results that a tier's answer is judged by
MIN_EXITS = 30  # fewest queries at or above a threshold: the precision of fewer says too little
SAMPLE_QUERIES = 400  # evenly spread (400 of 100,000 rows: a second per tier)
CORPUS_ROWS = 100_000  # most memories searched, evenly spread; bounds time on large stores
MIN_CORPUS_ROWS = 100  # among fewer, a tenth are neighbours and any tier looks good
# The reference's, by dimensions, where nothing can be derived; too early for the default model.
REFERENCE_EXITS: Mapping[int, float] = {64: 0.65, 256: 0.75}

RULES: Mapping[str, Any] = {
    "target_recall": TARGET_RECALL, "target_precision": TARGET_PRECISION, "top": TOP,
    "min_exits": MIN_EXITS, "sample_queries": SAMPLE_QUERIES, "corpus_rows": CORPUS_ROWS,
    "min_corpus_rows": MIN_CORPUS_ROWS,
    "reference_exits": {str(dim): at for dim, at in REFERENCE_EXITS.items()},
}  # fmt: skip
"""Everything above: kept thresholds hold for the same vectors under the same rules."""

_QUERY_CHUNK = 50  # 20 MB of scores at 100,000 rows
_DIGITS = 4

DERIVED, UNREACHED, REFERENCE = "derived", "unreached", "reference"


@dataclass(frozen=True, slots=True)
class ExitThreshold:
    """The cosine from which a tier answers alone; shares are of the sampled queries."""

    dim: int
    exit_at: float | None  # least best cosine, in [-1, 1]; None never exits
    origin: str  # DERIVED, UNREACHED (nothing reaches the target precision) or REFERENCE
    precision: float | None = None  # share of right answers among those that exit
    exits: float = 0.0
    queries: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values for an asset's metadata."""
        return {name: value for name, value in asdict(self).items() if name != "dim"}


def derive_thresholds(
    vectors: Matrix, rotation: Rotation, dims: Sequence[int]
) -> dict[int, ExitThreshold]:
    """Return the exit threshold of each short tier of unit rows, (n, d), by its dimensions."""
    short = sorted({dim for dim in dims if 0 < dim < vectors.shape[1]})
    if len(vectors) < MIN_CORPUS_ROWS or rotation.is_identity:
        return {dim: ExitThreshold(dim, REFERENCE_EXITS.get(dim), REFERENCE) for dim in short}
    corpus = np.asarray(vectors[:: -(-len(vectors) // CORPUS_ROWS)], dtype=np.float32)
    release_pages(vectors)
    # Rows of the corpus itself, so that each can be held out by its place.
    places = np.arange(0, len(corpus), -(-len(corpus) // SAMPLE_QUERIES))
    truth, _ = _nearest(corpus, places)
    thresholds: dict[int, ExitThreshold] = {}
    for dim in short:
        found, best = _nearest(rotated_prefix(corpus, rotation, dim), places)
        shared = [len(np.intersect1d(a, b)) for a, b in zip(truth, found, strict=True)]
        right = np.asarray(shared) >= TARGET_RECALL * TOP - 1e-9
        thresholds[dim] = choose_threshold(dim, best, right)
    return thresholds


def _nearest(rows: Floats, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """Return the first TOP rows of each query row, itself left out, and its best cosine."""
    found: list[NDArray[np.int64]] = []
    best: list[Floats] = []
    for start in range(0, len(places), _QUERY_CHUNK):
        asked = places[start : start + _QUERY_CHUNK]
        scores = rows[asked] @ rows.T
        scores[np.arange(len(asked)), asked] = -np.inf
        found.append(np.argpartition(-scores, TOP - 1, axis=1)[:, :TOP])
        best.append(scores.max(axis=1))
    return np.concatenate(found), np.concatenate(best)


def choose_threshold(dim: int, best: Floats, right: NDArray[np.bool_]) -> ExitThreshold:
    """Return the least threshold at and above which enough answers, (q,), are right."""
    order = np.argsort(-best, kind="stable")
    scores, hits = best[order].astype(np.float64), np.cumsum(right[order], dtype=np.int64)
    counts = np.arange(1, len(scores) + 1)
    # Equal scores leave together: only the last of them can be a threshold.
    last = np.append(scores[1:] < scores[:-1], True)
    reaches = last & (counts >= MIN_EXITS) & (hits >= TARGET_PRECISION * counts)
    found = ExitThreshold(dim, None, UNREACHED, queries=len(best))
    if not reaches.any():
        return found
    chosen = int(np.flatnonzero(reaches)[-1])
    precision, exits = hits[chosen] / counts[chosen], counts[chosen] / len(scores)
    proven = {"precision": _rounded(precision), "exits": _rounded(exits)}
    return replace(found, exit_at=float(scores[chosen]), origin=DERIVED, **proven)


def _rounded(value: Any) -> float:
    return round(float(value), _DIGITS)
