"""The embedding tiers as arms: each alone, unrotated, and cascaded. Dense only, nothing fused.

The rotation and the prefix are `noctuary.embed.rotation`; the arms take the store's frozen
rotation.

Source: libravdb mathematics section 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.arms.base import ArmRetriever, Hits
from bench.arms.corpus_views import CorpusViews
from bench.arms.exact_cosine import best_positions
from noctuary.embed.rotation import Rotation, identity, rotated_prefix
from noctuary.evaluate.labels import Query

SMALL_DIMS, MEDIUM_DIMS = 64, 256

EXIT_SMALL, EXIT_MEDIUM = 0.65, 0.75
"""Best cosine above which the 64 and the 256-d tier answer alone. The reference calibrated them for
another model and asks to derive them anew when the model changes; they are its fallback values."""

EARLY_EXITS = ((SMALL_DIMS, EXIT_SMALL), (MEDIUM_DIMS, EXIT_MEDIUM))
"""Dimensions and threshold of every tier before the full one."""

SHORTLIST = 100
"""Memories that the 64-d tier hands to full dimensions: a rotated 64-d prefix keeps 97.6 % of the
true top 10 in its top 100 (research/limits.md section 4)."""


@dataclass(frozen=True, slots=True)
class Tier:
    """The corpus in one tier.

    Attributes:
        vectors: Normalised prefixes, shape (n, dim).
        rotation: What turned the vectors before they were cut.
    """

    vectors: NDArray[np.float32]
    rotation: Rotation

    def score(self, query_vector: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the cosine of every memory to a query vector of full length, shape (n,)."""
        cut = rotated_prefix(query_vector, self.rotation, self.vectors.shape[1])
        return self.vectors @ cut


class TierViews:
    """The tiers of one set's snapshot, each made on first use."""

    def __init__(self, views: CorpusViews) -> None:
        self.views = views
        self._made: dict[tuple[int, bool], Tier] = {}

    def tier(self, dim: int | None, *, rotated: bool = True) -> Tier:
        """Return the tier of `dim` dimensions, all of them for None or a dim beyond the model's."""
        vectors = self.views.vectors
        full = int(vectors.shape[1])
        key = (min(dim or full, full), rotated)
        if key not in self._made:
            turned = self.views.rotation if rotated else identity(full, "", "rotation ablated")
            self._made[key] = Tier(rotated_prefix(vectors, turned, key[0]), turned)
        return self._made[key]


class TierRetriever(ArmRetriever):
    """Ranks by the cosine of one tier."""

    def __init__(
        self, name: str, tiers: TierViews, dim: int | None, *, rotated: bool = True
    ) -> None:
        super().__init__(name)
        self._views = tiers.views
        self._tier = tiers.tier(dim, rotated=rotated)

    @property
    def index_size_bytes(self) -> int:
        """Bytes of the tier's vectors."""
        return int(self._tier.vectors.nbytes)

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return the k memories nearest in this tier."""
        scores = self._tier.score(self._views.encode(query))
        return _name_positions(self._views, scores, k, query)


class CascadeRetriever(ArmRetriever):
    """Asks 64, then 256, then all dimensions, and stops at the first tier that is sure enough.

    Attributes:
        exits: How many queries each tier answered, by dimensions.
    """

    def __init__(
        self,
        name: str,
        tiers: TierViews,
        early_exits: Sequence[tuple[int, float]] = EARLY_EXITS,
    ) -> None:
        super().__init__(name)
        self._views = tiers.views
        self._tiers = [(tiers.tier(dim), threshold) for dim, threshold in early_exits]
        self._tiers.append((tiers.tier(None), -np.inf))
        self.exits: Counter[int] = Counter()

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return the k nearest of the first tier whose best score exceeds its threshold."""
        vector, mask = self._views.encode(query), self._views.recall_mask(query)
        scores = np.empty(0, dtype=np.float32)
        for tier, threshold in self._tiers:
            scores = tier.score(vector)
            seen = scores if mask is None else scores[mask]
            # Nothing to see counts as 0, which is below both thresholds.
            best = float(seen.max()) if seen.size else 0.0
            if best > threshold:
                self.exits[tier.vectors.shape[1]] += 1
                break
        return _name_positions(self._views, scores, k, query)


class RescoredCascadeRetriever(ArmRetriever):
    """Takes a shortlist by a small tier and orders it by all dimensions."""

    def __init__(
        self, name: str, tiers: TierViews, dim: int = SMALL_DIMS, shortlist: int = SHORTLIST
    ) -> None:
        super().__init__(name)
        self._views = tiers.views
        self._small, self._full = tiers.tier(dim), tiers.tier(None)
        self._shortlist = shortlist

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return the k best of the shortlist, which grows with k."""
        vector = self._views.encode(query)
        mask = self._views.recall_mask(query)
        coarse = self._small.score(vector)
        shortlist = np.sort(best_positions(coarse, max(self._shortlist, k), mask))
        cut = rotated_prefix(vector, self._full.rotation, self._full.vectors.shape[1])
        scores = self._full.vectors[shortlist] @ cut
        ids = self._views.snapshot_ids
        return [(ids[shortlist[i]], float(scores[i])) for i in best_positions(scores, k)]


def _name_positions(views: CorpusViews, scores: NDArray[np.float32], k: int, query: Query) -> Hits:
    best = best_positions(scores, k, views.recall_mask(query))
    return [(views.snapshot_ids[p], float(scores[p])) for p in best]
