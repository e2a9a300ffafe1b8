"""What a night knows: where to read, where to write, with which settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from noctuary.core.errors import StoreError
from noctuary.core.files import tree_bytes, write_text
from noctuary.core.settings import Settings
from noctuary.core.store import SourceName, StorePaths
from noctuary.core.types import SILENT, Progress
from noctuary.embed.documents import NightEncoder
from noctuary.recall.profile import RetrievalProfile, configured_profile
from noctuary.work.content import ContentStore
from noctuary.work.ray import open_ray_runner
from noctuary.work.runner import LocalRunner
from noctuary.work.shards import Runner
from noctuary.work.stage import Body, Stage, StageResult, give_back, load_result, run_stage

MEMORIES = "corpus/memories.parquet"
TURNS = "corpus/turns.parquet"
QUARANTINE = "corpus/quarantine.parquet"
VECTORS = "vectors/memories.npy"
POSTINGS = "lexical"
GRAPH = "graph"
GRAPH_STATE = "graph.duckdb"
CLUSTERS = "compaction/clusters.parquet"
SUMMARIES = "compaction/summaries.parquet"
EVALUATION = "evaluation/report.json"
EVALUATION_QUERIES = "evaluation/queries.json"
EVALUATION_RUNS = "evaluation/runs.json"
DECISION = "evaluation/decision.json"
ABSTENTION = "evaluation/abstention.json"
COMPARISON = "evaluation/comparison.json"
CONTENT = "content"
SHARDS = "shards"


@dataclass
class Night:
    """One run of the pipeline, or of a part of it, on one store."""

    paths: StorePaths
    source: SourceName
    settings: Settings = field(default_factory=Settings)
    progress: Progress = SILENT
    report: Callable[[StageResult], None] = lambda _: None  # told of every finished stage
    say: Callable[[str], None] = lambda _: None  # lines for a person, for example of costs
    results: list[StageResult] = field(default_factory=list[StageResult])  # in order
    tables_hold: bool = False  # the tables of vectors are certainly as the last night left them

    def run(
        self,
        stage: Stage,
        inputs: Mapping[str, Any],
        body: Body,
        *,
        always: bool = False,
        places: Sequence[Path] = (),
    ) -> StageResult:
        """Run a stage unless it is up to date (see `run_stage`), and record what it cost."""
        self.progress.update(stage.name, 0, 1)
        try:
            result = run_stage(self.paths.work, stage, inputs, body, always=always)
        finally:
            self.progress.update(stage.name, 1, 1)
        outside = sum(tree_bytes(place) for place in places if place.exists())
        size = result.cost["bytes_on_disk"] + outside
        result = replace(result, cost={**result.cost, "bytes_on_disk": size})
        if not result.reused:
            give_back()
            self._record_cost(result)
        return result

    def finish(self, result: StageResult) -> StageResult:
        """Tell whoever listens that a stage is done, and return its result."""
        self.results.append(result)
        self.report(result)
        return result

    def result_of(self, stage: Stage) -> StageResult:
        """Return what an earlier stage left on disk."""
        result = load_result(self.paths.work, stage)
        if result is None:
            raise StoreError(
                f"{stage.name} is missing or damaged in {self.paths.work}: run it first, or the "
                "whole nightly job"
            )
        return result

    def work(self, name: str) -> Path:
        """Return the path of an artifact."""
        return self.paths.work / name

    def content(self, kind: str) -> ContentStore:
        """Open what earlier nights computed of a kind, found by content key."""
        return ContentStore(self.work(CONTENT), kind)

    def shards(self, task: str) -> Path:
        """Return where the shards of a task lie while it runs."""
        return self.work(SHARDS) / task

    @cached_property
    def runner(self) -> Runner:
        """Who runs the heavy steps; opened on first use."""
        wanted = self.settings.runner
        return open_ray_runner(wanted) if wanted.kind == "ray" else LocalRunner(wanted.workers)

    @cached_property
    def encoder(self) -> NightEncoder:
        """The configured encoder; nothing is loaded until it is asked."""
        settings, encoders = self.settings.encoder, self.paths.encoders
        return NightEncoder(settings, encoders, self.content, self.progress, self.say)

    def close(self) -> None:
        """Close what the night opened: connections to a provider, the runner."""
        for opened in vars(self).keys() & {"runner", "encoder"}:
            getattr(self, opened).close()

    def _record_cost(self, result: StageResult) -> None:
        try:
            costs: dict[str, Any] = json.loads(self.paths.costs.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            costs = {}
        costs[result.name] = {"asset": result.name, "rows": result.rows, **result.cost}
        write_text(self.paths.costs, json.dumps(costs, indent=1, sort_keys=True) + "\n")


def store_profile(night: Night, adopted: Mapping[str, Any] | None = None) -> RetrievalProfile:
    """Return what the settings say, above what a snapshot adopted."""
    return configured_profile(night.settings, adopted or {})
