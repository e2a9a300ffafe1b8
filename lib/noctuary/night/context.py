"""What a night knows: where to read, where to write, with which settings, and how to report."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.errors import StoreError
from noctuary.files import tree_bytes, write_text
from noctuary.progress import SILENT, Progress
from noctuary.settings import Settings
from noctuary.settings.sections import PROVIDERS
from noctuary.shards.fragment_store import FragmentStore
from noctuary.shards.opening import open_runner
from noctuary.shards.task import Runner
from noctuary.snapshot.layout import StorePaths
from noctuary.source_name import SourceName
from noctuary.work.memory import give_back
from noctuary.work.stage import Body, Stage, StageResult, load_result, run_stage

if TYPE_CHECKING:
    from noctuary.encode.hosted.documents import HostedEncoder
    from noctuary.encode.sentence import SentenceEncoder

MEMORIES = "corpus/memories.parquet"
TURNS = "corpus/turns.parquet"
QUARANTINE = "corpus/quarantine.parquet"
VECTORS = "vectors/memories.npy"
POSTING_TERMS = "lexical/terms.json"
POSTING_ARRAYS = ("lexical/starts.npy", "lexical/positions.npy", "lexical/scores.npy")
GRAPH = "graph"
GRAPH_STATE = "graph.duckdb"
NEAR_MEMO = "graph_near.json"
CLUSTERS = "compaction/clusters.parquet"
SUMMARIES = "compaction/summaries.parquet"
ATTEMPTS = "compaction/attempts.parquet"
ACCESS = "usage/access.json"
EVALUATION = "evaluation/report.json"
EVALUATION_PLOTS = "evaluation/plots"
EVALUATION_QUERIES = "evaluation/queries.json"
EVALUATION_RUNS = "evaluation/runs.json"
GENERATED = "evaluation/generated.json"
DECISION = "evaluation/decision.json"
ABSTENTION = "evaluation/abstention.json"
COMPARISON = "evaluation/comparison.json"
FRAGMENTS = "fragments"
SHARDS = "shards"


def _ignore(_: StageResult) -> None:
    """Report nothing."""


def _say_nothing(_: str) -> None:
    """Show no line."""


@dataclass
class Night:
    """One run of the pipeline, or of a part of it, on one store.

    Attributes:
        paths: The store that is written.
        source: The memory store that is read.
        settings: The settings in force.
        progress: Told about long work.
        report: Told of every finished stage.
        say: Shown a line for a person while a stage works, before money is spent for example.
    """

    paths: StorePaths
    source: SourceName
    settings: Settings = field(default_factory=Settings)
    progress: Progress = SILENT
    report: Callable[[StageResult], None] = _ignore
    say: Callable[[str], None] = _say_nothing
    _runner: Runner | None = None
    _hosted: HostedEncoder | None = None
    _encoder: SentenceEncoder | None = None
    _fingerprint: EncoderFingerprint | None = None

    def run(
        self,
        stage: Stage,
        inputs: Mapping[str, Any],
        body: Body,
        *,
        always: bool = False,
        places: Sequence[Path] = (),
    ) -> StageResult:
        """Run a stage unless it is up to date (see `run_stage`), and record what it cost.

        Args:
            stage: The stage.
            inputs: What its outputs depend on.
            body: Its work.
            always: Run even if the stamp holds.
            places: Where it writes outside the work directory, for its size on disk.
        """
        result = run_stage(self.paths.work, stage, inputs, body, always=always)
        outside = sum(tree_bytes(place) for place in places if place.exists())
        size = result.cost["bytes_on_disk"] + outside
        result = replace(result, cost={**result.cost, "bytes_on_disk": size})
        if not result.reused:
            give_back()
            self._record_cost(result)
        return result

    def finish(self, result: StageResult) -> StageResult:
        """Tell whoever listens that a stage is done, and return its result."""
        self.report(result)
        return result

    def result_of(self, stage: Stage) -> StageResult:
        """Return what an earlier stage left on disk.

        Raises:
            StoreError: If it has not run, or its files were changed since.
        """
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

    def fragments(self, kind: str) -> FragmentStore:
        """Open what earlier nights computed of a kind, found by content key."""
        return FragmentStore(self.work(FRAGMENTS), kind)

    def shards(self, task: str) -> Path:
        """Return where the shards of a task lie while it runs."""
        return self.work(SHARDS) / task

    def runner(self) -> Runner:
        """Return who runs the heavy steps; opened on first use.

        Raises:
            ConfigError: Ray is asked for and not installed.
        """
        if self._runner is None:
            self._runner = open_runner(self.settings.runner)
        return self._runner

    def encoder(self) -> SentenceEncoder:
        """Return the configured encoder; opened on first use, because that takes seconds."""
        if self._encoder is None:
            from noctuary.encode.sentence import open_sentence_encoder

            self._encoder = open_sentence_encoder(self.settings.encoder.model)
        return self._encoder

    def hosted_encoder(self) -> HostedEncoder:
        """Return the hosted encoder; one for the whole night, because it counts what it spends.

        Raises:
            ConfigError: If its address, dimension or price is missing.
        """
        if self._hosted is None:
            from noctuary.encode.hosted.documents import open_hosted_encoder

            self._hosted = open_hosted_encoder(self.settings.encoder, self.say)
        return self._hosted

    def close(self) -> None:
        """Close what the night opened: connections to a provider, the runner."""
        if self._hosted is not None:
            self._hosted.close()
        if self._runner is not None:
            self._runner.close()

    def fingerprint(self) -> EncoderFingerprint:
        """Return the configured encoder's fingerprint.

        The model is only loaded when its files are new; a hosted one is never asked.
        """
        if self._fingerprint is None and self.settings.encoder.provider != PROVIDERS[0]:
            from noctuary.encode.hosted.model import hosted_model

            self._fingerprint = hosted_model(self.settings.encoder).fingerprint()
        if self._fingerprint is None:
            from noctuary.encode.known import find_fingerprint

            self._fingerprint = find_fingerprint(
                self.settings.encoder.model,
                self.paths.encoders / "known.json",
                lambda: self.encoder().fingerprint,
            )
        return self._fingerprint

    def _record_cost(self, result: StageResult) -> None:
        try:
            costs: dict[str, Any] = json.loads(self.paths.costs.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            costs = {}
        costs[result.name] = {"asset": result.name, "rows": result.rows, **result.cost}
        write_text(self.paths.costs, json.dumps(costs, indent=1, sort_keys=True) + "\n")
