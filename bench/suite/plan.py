"""What the suite measures and where its files lie. No work of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.datasets import CHECKOUT
from bench.results import RESULTS_DIR
from noctuary.evaluate.run import RunPlan

DEPTH = 10
"""Ids kept per ranking. Every metric is cut here, so that every number of a result file can be
computed again from the committed rankings; deeper lists would multiply their size."""

METRICS = (
    "recall@5",
    "recall@10",
    "all_relevant@10",
    "precision@5",
    "ndcg@10",
    "mrr@10",
    "map@10",
)
STRATUM_METRICS = ("recall@10", "ndcg@10")
"""Metrics whose differences are also taken per stratum: all of them would triple the files."""

PLAN = RunPlan(k=DEPTH, depth=DEPTH)

HEADLINE = ("fts_seed", "hybrid_seed", "noctuary")
"""Arms that are also asked within the query's wing, and on what the corpus does not answer."""

ABSTAINING = ("fts_seed", "lexical_only", "dense", "hybrid_seed", "noctuary")
"""Arms whose top score is judged as a sign that there is an answer."""

JOBS = 2
"""A night and an evaluation at a time: more would share two cores, and times would mean less."""

DEFAULT_STORES = CHECKOUT / "artifacts" / "bench"
"""Ignored by git; `make clean` removes it."""

DOCS = CHECKOUT / "docs" / "benchmarks"


@dataclass(frozen=True, slots=True)
class SuitePaths:
    """Where a suite reads and writes.

    Attributes:
        stores: One store per set below it, and the unfinished work.
        results: JSON files, committed.
        rankings: Kept rankings, committed.
        plots: One SVG per set, committed.
    """

    stores: Path
    results: Path
    rankings: Path
    plots: Path

    @staticmethod
    def below(stores: Path | None, out: Path | None) -> SuitePaths:
        """Return the paths for a store directory and a directory in place of docs/benchmarks."""
        docs = out.absolute() if out else DOCS
        results = docs / "json" if out else RESULTS_DIR
        root = (stores or DEFAULT_STORES).absolute()
        return SuitePaths(root, results, docs / "runs", docs / "plots")

    def store(self, name: str) -> Path:
        """The store of a set."""
        return self.stores / name

    def runs(self, name: str) -> Path:
        """Finished runs of a set, one file per scope and arm."""
        return self.stores / "_runs" / name

    def seconds(self) -> Path:
        """What each step took, kept between invocations."""
        return self.stores / "_runs" / "seconds.json"

    def log(self, name: str) -> Path:
        """What the night of a set said."""
        return self.stores / "_runs" / f"{name}.night.log"

    def result(self, name: str) -> Path:
        """The result file of a set."""
        return self.results / f"quality-{name}.json"

    def kept(self, name: str) -> Path:
        """The kept rankings of a set."""
        return self.rankings / f"{name}.json.gz"

    def plot(self, name: str) -> Path:
        """The plot of a set."""
        return self.plots / f"{name}.svg"
