"""What an arm is: a named system under comparison, and how it is asked.

No ranking, no metric, no file.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from bench.datasets import Dataset
from noctuary.evaluate.labels import Query
from noctuary.recall.engine import Recaller

SearchScope = Literal["all", "wing"]
"""Whether a query searches the whole corpus or the wing that it names."""

Group = Literal["baseline", "noctuary", "ablation", "graph_seed"]

Hits = list[tuple[str, float]]
"""Ids as text with their scores, best first. Scores are only comparable within an arm."""


@dataclass
class SetContext:
    """What the arms of a set are made from.

    Attributes:
        dataset: The set.
        rows: Its corpus, in file order: what the FTS5 baselines and the seed's graph index.
        recaller: A pinned snapshot built from this corpus.
        scope: Whole corpus, or the wing that each query names.
        reranker: Directory of a cross-encoder, or None.
    """

    dataset: Dataset
    rows: list[dict[str, Any]]
    recaller: Recaller
    scope: SearchScope = "all"
    reranker: str | None = None


class ArmRetriever(ABC):
    """A system that can be asked, as `noctuary.evaluate.run.run_retriever` wants it.

    Attributes:
        name: The arm's name.
        warnings: Degradations met so far, by code. An arm with a missing leg is not the arm that it
            is called, so these are reported beside its scores.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.warnings: Counter[str] = Counter()

    @abstractmethod
    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return up to k ids with scores, best first, within the query's wing if so scoped."""

    def retrieve(self, query: str, k: int) -> list[str]:
        """Return up to k ids for a plain text, which names no wing."""
        if not query.strip():
            return []
        return [found for found, _ in self.retrieve_hits(Query("", query, "all", ()), k)]


@dataclass(frozen=True, slots=True)
class Arm:
    """One system under comparison.

    Attributes:
        name: Its key in results and tables.
        group: Which table it belongs to.
        description: What it is, in one line.
        against: Names of the arms that it is compared with.
        settings: Plain values that define it; two arms of a set never share them.
        make: Builds what answers; costly parts are shared between the arms of one `list_arms`.
        timed: Whether its latency means anything: a timed arm encodes every query anew, the others
            take vectors and legs that an earlier arm left.
    """

    name: str
    group: Group
    description: str
    against: tuple[str, ...]
    settings: dict[str, Any]
    make: Callable[[], ArmRetriever]
    timed: bool = False
