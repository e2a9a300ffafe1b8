"""How one recall ranks: fusion, weights and priors. Immutable and validated, nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from mnemon.settings import FUSIONS, RecallSettings


@dataclass(frozen=True, slots=True)
class Profile:
    """The knobs of one recall.

    Attributes:
        fusion: "cc" keeps how much better a hit is; "rrf" is indifferent to score scales
            (docs/decisions/0008 has the measured difference).
        lexical_weight: Weight of the lexical leg; 0 switches it off.
        dense_weight: Weight of the dense leg; 0 switches it off.
        graph_weight: Factor on the score that arrives over the concept graph; 0 switches it off.
        importance_prior: p in score * ((1 - p) + p * importance); 0 ignores importance.
        exact_match_bonus: Added to the score of a memory that holds every word of the query; it
            lifts literal hits that rank fusion mixes with near-ties, and 0 switches it off.
        rrf_k: Rank offset of RRF in ranks; larger flattens the head (Cormack 2009 uses 60).
        depth: Candidates taken from each leg before fusion; more costs time, less loses fused hits.
    """

    fusion: str = "cc"
    lexical_weight: float = 0.5
    dense_weight: float = 0.5
    graph_weight: float = 1.0
    importance_prior: float = 0.3
    exact_match_bonus: float = 0.0
    rrf_k: int = 60
    depth: int = 50

    def __post_init__(self) -> None:
        faults = [
            f"{name} must be finite and >= 0, found {value!r}"
            for name, value in (
                ("lexical_weight", self.lexical_weight),
                ("dense_weight", self.dense_weight),
                ("graph_weight", self.graph_weight),
                ("exact_match_bonus", self.exact_match_bonus),
            )
            if not math.isfinite(value) or value < 0
        ]
        if self.fusion not in FUSIONS:
            faults.append(f"fusion must be one of {FUSIONS}, found {self.fusion!r}")
        if not 0.0 <= self.importance_prior <= 1.0:
            faults.append(f"importance_prior must lie in [0, 1], found {self.importance_prior!r}")
        if self.rrf_k < 1 or self.depth < 1:
            faults.append(f"rrf_k and depth must be >= 1, found {self.rrf_k} and {self.depth}")
        if faults:
            raise ValueError("; ".join(faults))

    @staticmethod
    def from_settings(
        settings: RecallSettings, adopted: Mapping[str, Any] | None = None
    ) -> Profile:
        """Return the profile of the settings, changed by what a snapshot's evaluation adopted.

        Args:
            settings: The settings in force.
            adopted: Fields that replace theirs (`SnapshotReader.adopted`).
        """
        configured = Profile(
            fusion=settings.fusion,
            lexical_weight=settings.lexical_weight,
            dense_weight=settings.dense_weight,
            graph_weight=settings.graph_weight,
            importance_prior=settings.importance_prior,
            exact_match_bonus=settings.exact_match_bonus,
        )
        return replace(configured, **adopted) if adopted else configured

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)
