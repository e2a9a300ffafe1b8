"""A quality-*.json file as the pages read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.results import read_results
from noctuary.evaluate.metrics import Comparison, Difference, Report

WHOLE = "all"
"""The scope that every set has: search over the whole corpus."""

GROUP_OF_DERIVED = "noctuary"
DECIDED = "noctuary_decided"
DECIDED_DESCRIPTION = (
    "fusion and graph weight decided on one half of the queries, scored on the other, and vice "
    "versa: computed from the kept rankings"
)


@dataclass(frozen=True)
class QualityDocument:
    """One set's results.

    Attributes:
        raw: The file's content.
    """

    raw: Mapping[str, Any]

    @property
    def dataset(self) -> str:
        """The set's name."""
        return str(self.raw["dataset"])

    @property
    def manifest(self) -> Mapping[str, Any]:
        """On what it was measured."""
        return self.raw["manifest"]

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""
        return list(self.raw["metrics"])

    @property
    def scopes(self) -> list[str]:
        """The scopes that were searched, the whole corpus first."""
        return list(self.raw["scopes"])

    @cached_property
    def _reports(self) -> dict[str, dict[str, Report]]:
        return {
            scope: {name: Report.from_json(raw) for name, raw in found["reports"].items()}
            for scope, found in self.raw["scopes"].items()
        }

    @cached_property
    def _comparisons(self) -> dict[tuple[str, str, str], Comparison]:
        return {
            (scope, ours, baseline): Comparison.from_json(raw)
            for scope, found in self.raw["scopes"].items()
            for ours, baselines in found["comparisons"].items()
            for baseline, raw in baselines.items()
        }

    def reports(self, scope: str = WHOLE) -> Mapping[str, Report]:
        """Return the arms' means by name."""
        return self._reports[scope]

    def difference(
        self, ours: str, baseline: str, metric: str, scope: str = WHOLE
    ) -> Difference | None:
        """Return a difference over all queries, None where the two were not compared."""
        found = self._comparisons.get((scope, ours, baseline))
        return None if found is None else found.overall.get(metric)

    def stratum_difference(
        self, ours: str, baseline: str, metric: str, stratum: str
    ) -> Difference | None:
        """Return a difference over one stratum, None where the two were not compared."""
        found = self._comparisons.get((WHOLE, ours, baseline))
        return None if found is None else found.strata.get(stratum, {}).get(metric)

    def compared(self, baseline: str) -> list[str]:
        """Return the arms that were compared with a baseline, in the order of the file."""
        return [
            ours for scope, ours, other in self._comparisons if scope == WHOLE and other == baseline
        ]

    def group(self, arm: str) -> str:
        """Return which table an arm belongs to."""
        described = self.raw["arms"].get(arm)
        return GROUP_OF_DERIVED if described is None else str(described["group"])

    def description(self, arm: str) -> str:
        """Return what an arm is."""
        described = self.raw["arms"].get(arm)
        return DECIDED_DESCRIPTION if described is None else str(described["description"])

    def settings(self, arm: str) -> Mapping[str, Any]:
        """Return the plain values that define an arm."""
        described = self.raw["arms"].get(arm)
        return {} if described is None else described["settings"]

    def measured(self, arm: str, scope: str = WHOLE) -> Mapping[str, Any]:
        """Return how the arm's run went: seconds, latency, warnings; empty for a derived arm."""
        return self.raw["measured"]["arms"].get(scope, {}).get(arm, {})


def read_quality(directory: Path) -> list[QualityDocument]:
    """Return every set's results, by name."""
    return [QualityDocument(raw) for raw in read_results(directory, "quality")]
