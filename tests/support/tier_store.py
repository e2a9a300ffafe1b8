"""A small corpus with its tiers on disk, for tests that edit and damage them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.embed.rotation import fit, prefix, rotated_prefix
from noctuary.embed.tiers import (
    FULL_TIER,
    TABLE_PREFIX,
    TableHome,
    TierReport,
    TierState,
    connect,
    sync_tiers,
    tier_tables,
)

DIM = 96
ROWS = 300
Floats = NDArray[np.float32]


def clustered(rows: int, dim: int = DIM, seed: int = 0) -> Floats:
    """Unit vectors around topics, with the decaying spectrum of a sentence encoder."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    scales = np.arange(1, dim + 1) ** -0.6
    topics = rng.normal(size=(12, dim))[rng.integers(0, 12, rows)]
    vectors = ((topics + rng.normal(size=(rows, dim))) * scales) @ basis.T
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class TierHit:
    """One memory found in a tier; `cosine` is in [-1, 1] up to float32 rounding."""

    memory_id: str
    cosine: float


def search_tier(
    home: TableHome, dim: int, query: NDArray[np.floating[Any]], k: int
) -> list[TierHit]:
    """Return the k nearest rows of one tier by cosine, best first, ties by id.

    A zero vector has no cosine: it finds nothing and is never found.

    Args:
        home: Of the tables.
        dim: Dimensions of the tier; the query's length or more means the full tier.
        query: Rotated query of full length, shape (d,); it is cut to the tier here.
        k: How many, at least 1.
    """
    name = FULL_TIER if dim >= len(query) else f"{TABLE_PREFIX}{dim}"
    vector = prefix(query, min(dim, len(query)))
    search = connect(home.directory).open_table(name).search(vector, vector_column_name="vector")
    # Indexed distances are on another scale: ten times as many are scored again.
    search = search.distance_type("cosine").refine_factor(10).limit(k)
    found = search.select(["memory_id", "_distance"]).to_arrow().to_pylist()
    hits = [TierHit(row["memory_id"], 1.0 - row["_distance"]) for row in found]
    return sorted(hits, key=lambda hit: (-hit.cosine, hit.memory_id))


class TierStore:
    """A corpus that a test edits, and its tiers."""

    def __init__(self, directory: Path, vectors: Floats, fingerprint: str = "e") -> None:
        self.lance = directory
        self.home = TableHome(directory)
        self.ids = [f"m{i}" for i in range(len(vectors))]
        self.hashes = [f"h{i}" for i in range(len(vectors))]
        self.vectors = vectors
        self.rotation = fit(vectors, fingerprint)

    def sync(self, **options: Any) -> TierReport:
        options = {"dims": (32, 64), **options}
        return sync_tiers(self.home, self.ids, self.hashes, self.vectors, self.rotation, **options)

    def drop(self, position: int) -> None:
        del self.ids[position], self.hashes[position]
        self.vectors = np.delete(self.vectors, position, axis=0)

    def stored(self, name: str = FULL_TIER) -> dict[str, dict[str, Any]]:
        import lancedb

        rows = lancedb.connect(str(self.lance)).open_table(name).to_arrow().to_pylist()
        assert len({row["memory_id"] for row in rows}) == len(rows)
        return {row["memory_id"]: row for row in rows}

    def assert_equal_to_corpus(self) -> None:
        """Every tier, row by row, equals what the corpus implies now."""
        for name, dim in tier_tables(self.rotation.dim, (32, 64)).items():
            rows = self.stored(name)
            assert set(rows) == set(self.ids)
            expected = rotated_prefix(self.vectors, self.rotation, dim)
            for position, memory_id in enumerate(self.ids):
                row = rows[memory_id]
                assert row["content_hash"] == self.hashes[position]
                assert row["fingerprint"] == self.rotation.fingerprint_digest
                np.testing.assert_allclose(row["vector"], expected[position], atol=1e-6)


def counts(state: TierState) -> tuple[int, int, int]:
    return state.inserted, state.updated, state.deleted
