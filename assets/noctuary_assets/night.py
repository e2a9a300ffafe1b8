"""What a night knows: where to read, where to write, with which settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError, StoreError
from noctuary.core.files import tree_bytes, write_text
from noctuary.core.manifest import Manifest
from noctuary.core.settings import PROVIDERS, RunnerSettings, Settings
from noctuary.core.store import SourceName, StorePaths
from noctuary.core.types import SILENT, Progress
from noctuary.embed.documents import (
    BATCHES_PER_WRITE,
    DocumentEncoder,
    Embedded,
    embed_texts,
    vector_kind,
)
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.onnx import (
    OnnxEncoder,
    OnnxHeader,
    export_onnx,
    hash_files,
    known_header,
    onnx_directory,
    toolchain,
)
from noctuary.recall.profile import RetrievalProfile, configured_profile, read_store_profiles
from noctuary.recall.query_encoder import remember_query
from noctuary.work.content import ContentStore
from noctuary.work.runner import LocalRunner
from noctuary.work.shards import Runner
from noctuary.work.stage import Body, Stage, StageResult, give_back, load_result, run_stage

if TYPE_CHECKING:
    from noctuary.embed.hosted import HostedEncoder
    from noctuary.embed.sentence import SentenceEncoder


# Which runner the settings ask for.


def open_runner(settings: RunnerSettings) -> Runner:
    """Return the runner that is configured; Ray is imported only where it is asked for.

    Raises:
        ConfigError: `runner.kind` is "ray" and the extra is not installed.
    """
    if settings.kind == "ray":
        from noctuary.work.ray import open_ray_runner

        return open_ray_runner(settings)
    return LocalRunner(settings.workers)


# What a night knows: where to read, where to write, with which settings, and how to report.


MEMORIES = "corpus/memories.parquet"
TURNS = "corpus/turns.parquet"
QUARANTINE = "corpus/quarantine.parquet"
VECTORS = "vectors/memories.npy"
POSTING_TERMS = "lexical/terms.json"
POSTING_ARRAYS = ("lexical/starts.npy", "lexical/positions.npy", "lexical/scores.npy")
GRAPH = "graph"
GRAPH_STATE = "graph.duckdb"
CLUSTERS = "compaction/clusters.parquet"
SUMMARIES = "compaction/summaries.parquet"
ATTEMPTS = "compaction/attempts.parquet"
ACCESS = "usage/access.json"
EVALUATION = "evaluation/report.json"
EVALUATION_QUERIES = "evaluation/queries.json"
EVALUATION_RUNS = "evaluation/runs.json"
GENERATED = "evaluation/generated.json"
DECISION = "evaluation/decision.json"
ABSTENTION = "evaluation/abstention.json"
COMPARISON = "evaluation/comparison.json"
CONTENT = "content"
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
        results: What the stages that are done came to, in order.
        tables_hold: Whether the tables of vectors are certainly as the last night left them.
    """

    paths: StorePaths
    source: SourceName
    settings: Settings = field(default_factory=Settings)
    progress: Progress = SILENT
    report: Callable[[StageResult], None] = _ignore
    say: Callable[[str], None] = _say_nothing
    results: list[StageResult] = field(default_factory=list[StageResult])
    tables_hold: bool = False
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

    def content(self, kind: str) -> ContentStore:
        """Open what earlier nights computed of a kind, found by content key."""
        return ContentStore(self.work(CONTENT), kind)

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
            from noctuary.embed.sentence import open_sentence_encoder

            self._encoder = open_sentence_encoder(self.settings.encoder.model)
        return self._encoder

    def hosted_encoder(self) -> HostedEncoder:
        """Return the hosted encoder; one for the whole night, because it counts what it spends.

        Raises:
            ConfigError: If its address, dimension or price is missing.
        """
        if self._hosted is None:
            from noctuary.embed.hosted import open_hosted_encoder

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
            from noctuary.embed.hosted import hosted_model

            self._fingerprint = hosted_model(self.settings.encoder).fingerprint()
        if self._fingerprint is None:
            from noctuary.embed.sentence import FINGERPRINT_KIND, find_fingerprint

            self._fingerprint = find_fingerprint(
                self.settings.encoder.model,
                self.content(FINGERPRINT_KIND),
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


# How a night's store is configured to rank.


def store_profile(night: Night, adopted: Mapping[str, Any] | None = None) -> RetrievalProfile:
    """Return what the settings and the store's own profiles say.

    Args:
        night: Whose settings and store.
        adopted: What a snapshot's evaluation adopted; None for nothing.
    """
    stored = read_store_profiles(night.paths.profiles).tables
    return configured_profile(night.settings, adopted, stored)


# Which implementation of the encoder embeds tonight, for every stage that embeds.
#
# A hosted model leaves no choice.


LIBRARY = "sentence-transformers"

HOSTED = frozenset(PROVIDERS[1:])

NOT_INSTALLED = "onnx or onnxruntime is not installed"

AGREEMENT_SAMPLE = 16
"""Texts of the corpus on which the two must agree, spread over it; each costs both some 20 ms."""


@dataclass
class Face:
    """The implementation that embeds.

    Attributes:
        tag: Of its vectors' kind; empty for sentence-transformers, of a hosted model its
            provider.
        min_cosine: Worst agreement with sentence-transformers; 0 where there was nothing to
            compare.
        declined: Why it is not ONNX Runtime; empty if it is.
    """

    tag: str
    min_cosine: float = 0.0
    declined: str = ""
    _encoder: DocumentEncoder | None = None

    def opened(self, night: Night, texts: Sequence[str]) -> DocumentEncoder:
        """Return the encoder; opened once, because a stage may embed in many small batches."""
        if self._encoder is None:
            self._encoder = _open(night, self, texts)
        return self._encoder

    @property
    def batches_per_write(self) -> int:
        """How many batches a kill may lose: none that was paid for."""
        return 1 if self.tag in HOSTED else BATCHES_PER_WRITE

    @property
    def is_onnx(self) -> bool:
        """Whether ONNX Runtime embeds, which works through shards."""
        return bool(self.tag) and self.tag not in HOSTED

    def to_facts(self) -> dict[str, str]:
        """Return what the stage's facts say; `face_of` reads it back."""
        named = {"face": self.tag or LIBRARY}
        return {**named, "onnx_declined": self.declined} if self.declined else named


def face_of(facts: Mapping[str, Any]) -> Face:
    """Return the choice that the facts of memory_vectors tell."""
    return Face("" if facts["face"] == LIBRARY else str(facts["face"]))


def choose_face(night: Night, texts: Sequence[str]) -> Face:
    """Return what embeds tonight; exports and checks a model that is new or was lost.

    Args:
        night: The night.
        texts: The corpus or a sample of it; AGREEMENT_SAMPLE of them are compared, evenly spread.
    """
    if night.settings.encoder.provider in HOSTED:
        return Face(night.settings.encoder.provider)
    if toolchain() is None:
        return Face("", declined=NOT_INSTALLED)
    header = _whole_export(night)
    if header is None:
        directory = onnx_directory(night.paths.encoders, night.fingerprint())
        step = max(len(texts) // AGREEMENT_SAMPLE, 1)
        header = export_onnx(night.encoder(), directory, texts[::step][:AGREEMENT_SAMPLE])
    return Face(header.tag, header.min_cosine, header.declined)


def face_store(night: Night, face: Face) -> ContentStore:
    """Open the document vectors that an implementation made."""
    return night.content(vector_kind(night.fingerprint(), face.tag))


def embed(
    night: Night, face: Face, texts: Sequence[str], progress: Progress | None = None
) -> Embedded:
    """Embed texts with the night's choice; see `embed_texts`."""
    return embed_texts(
        texts,
        face_store(night, face),
        night.fingerprint(),
        lambda: face.opened(night, texts),
        progress or night.progress,
        batches_per_write=face.batches_per_write,
    )


def _open(night: Night, face: Face, texts: Sequence[str]) -> DocumentEncoder:
    if not face.tag:
        return night.encoder()
    # Again, because a later stage may find the export gone that an earlier night's vectors are of.
    found = choose_face(night, texts)
    if found.tag != face.tag:
        raise EncoderError(
            f"the memory vectors were made by {face.tag}, but this machine now has "
            f"{found.tag or LIBRARY} {found.declined}. Delete {night.paths.work / 'stamps'} and "
            "run the whole nightly job: it embeds again."
        )
    if face.tag in HOSTED:
        return night.hosted_encoder()
    return OnnxEncoder.open(onnx_directory(night.paths.encoders, night.fingerprint()))


def _whole_export(night: Night) -> OnnxHeader | None:
    """Return what is known of the model's ONNX export; None if it is new, lost or damaged."""
    directory = onnx_directory(night.paths.encoders, night.fingerprint())
    header = known_header(directory, night.fingerprint())
    try:
        is_whole = header and (header.declined or hash_files(directory) == header.files)
    except EncoderError:
        return None
    return header if is_whole else None


# Vectors of queries before recall asks for them.
#
# Recall asks a provider for one query at a time, once, and answers without a vector where that
# fails. In an evaluation this would be a drop that is none, so there it is asked patiently, and a
# night whose provider is down fails with a sentence.


def fetch_query_vectors(night: Night, manifest: Manifest, texts: Sequence[str]) -> int:
    """Ask for the vectors of queries that are not known, and let this process's recalls find them.

    Nothing is done for a snapshot whose vectors were made here, or by another model than tonight's.

    Args:
        night: The night.
        manifest: Of the snapshot that will be asked.
        texts: The queries.

    Returns:
        How many the provider was asked for.

    Raises:
        EncoderError: The provider gives none, or the budget does not cover them.
    """
    provider = night.settings.encoder.provider
    if provider not in HOSTED or manifest.encoder is None:
        return 0
    fingerprint = night.fingerprint()
    if EncoderFingerprint.from_json(manifest.encoder) != fingerprint:
        return 0
    found = embed_texts(
        texts,
        night.content(vector_kind(fingerprint, f"{provider}:query")),
        fingerprint,
        lambda: _Queries(night.hosted_encoder()),
        night.progress,
        batches_per_write=1,
    )
    for text, vector in zip(texts, found.vectors, strict=True):
        remember_query(night.paths, manifest, text, vector.copy())
    return found.computed


@dataclass(frozen=True, slots=True)
class _Queries:
    """A hosted encoder whose texts are queries."""

    encoder: HostedEncoder

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield places and vectors; see `DocumentEncoder`."""
        return self.encoder.iter_batches(texts, "query")
