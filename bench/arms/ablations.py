"""The profiles of the ablation grid: each is the shipped one with one knob turned.

No retrieval.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from noctuary.core.settings import FUSIONS
from noctuary.recall.profile import RetrievalProfile

DENSE_SHARES = (0.3, 0.7)
"""Shares of the dense leg, the lexical leg having the rest."""

GRAPH_WEIGHTS = (0.5, 2.0)
EXACT_BONUS = 0.1


@dataclass(frozen=True, slots=True)
class Ablation:
    """A profile of the grid.

    Attributes:
        name: Of the arm.
        description: What differs from the shipped profile.
        profile: The knobs.
    """

    name: str
    description: str
    profile: RetrievalProfile


def list_ablations(shipped: RetrievalProfile | None = None) -> list[Ablation]:
    """Return the grid around a profile; what equals it or an earlier entry is left out.

    With the shipped fusion, for example, the entry that only names that fusion would be the shipped
    profile under another name.
    """
    centre = shipped or RetrievalProfile()
    seen = [centre]
    kept: list[Ablation] = []
    for name, description, changes in _grid():
        profile = centre.replaced(**changes)
        if profile not in seen:
            seen.append(profile)
            kept.append(Ablation(name, description, profile))
    return kept


def _grid() -> Iterator[tuple[str, str, dict[str, Any]]]:
    alone = {"graph_weight": 0.0, "importance_prior": 0.0, "exact_match_bonus": 0.0}
    yield "lexical_only", "lexical leg alone, no prior", {"dense_weight": 0.0, **alone}
    yield "dense_only", "dense leg alone through recall, no prior", {"lexical_weight": 0.0, **alone}
    yield "no_lexical", "lexical leg removed", {"lexical_weight": 0.0}
    yield "no_dense", "dense leg removed", {"dense_weight": 0.0}
    yield "no_graph", "concept graph removed", {"graph_weight": 0.0}
    yield "no_sessions", "sessions removed from the graph", {"session_weight": 0.0}
    yield "no_importance", "importance prior removed", {"importance_prior": 0.0}
    for fusion in FUSIONS:
        yield fusion, f"fused by {fusion}, same weights", {"fusion": fusion}
        bare = {"fusion": fusion, "graph_weight": 0.0}
        yield f"{fusion}_no_graph", f"fused by {fusion}, no graph", bare
    for fusion in ("rrf", "cc"):
        for share in DENSE_SHARES:
            weights = {"lexical_weight": round(1.0 - share, 3), "dense_weight": share}
            said = f"fused by {fusion}, dense share {share:g}"
            yield f"{fusion}_dense_{share:g}", said, {"fusion": fusion, **weights}
    for weight in GRAPH_WEIGHTS:
        yield f"graph_weight_{weight:g}", f"graph weight {weight:g}", {"graph_weight": weight}
    said = f"bonus {EXACT_BONUS:g} for memories that hold every word of the query"
    yield f"exact_bonus_{EXACT_BONUS:g}", said, {"exact_match_bonus": EXACT_BONUS}
