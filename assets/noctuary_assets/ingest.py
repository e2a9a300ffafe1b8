"""Group ingest: what was exported, which of it are turns, what was set aside.

Nothing sensitive gets past here.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import dagster as dg

from noctuary.agents.hooks import capture_journalled
from noctuary.core.errors import SourceEmptyError, StoreError
from noctuary.core.files import hash_text, write_text
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.sqlite import connect_immutable
from noctuary.core.store import ROWS_FILE, DatabaseName, SourceName, expand_user, find_home
from noctuary.graph.extract import Extraction
from noctuary.graph.llm import TOLD_VERSION, findings_told
from noctuary.sources import export as table_scan
from noctuary.sources.echo import (
    EchoGuard,
    ExportedContents,
    KnownInjections,
    prune_injections,
    read_injections,
)
from noctuary.sources.evidence import (
    CONCEPTS_FILE,
    EDGES_FILE,
    EVIDENCE_FILES,
    LINKS_FILE,
    MENTIONS_FILE,
    EvidenceCounts,
    read_known,
    read_links,
    write_evidence,
)
from noctuary.sources.export import (
    TASK,
    CombinedSource,
    ExportReport,
    diff_corpora,
    export_corpus,
    negative_ids,
    read_report,
    scan_tables,
)
from noctuary.sources.ingest import (
    KIND,
    WAIT_S,
    TranscriptSource,
    forget_sensitive,
    holds_turns,
    ingest_transcripts,
    is_transcripts,
)
from noctuary.sources.source import Source, holds_store, open_source
from noctuary.sources.turns import TurnsFile
from noctuary.text.secrets import read_rules
from noctuary.work.stage import (
    Stage,
    StageOutput,
    StageResult,
    TimedProgress,
    hash_settled,
    run_stage,
)
from noctuary_assets.night import MEMORIES, QUARANTINE, TURNS, Night
from noctuary_assets.reporting import judge, report_stage

# What agents' transcripts add to a night: ingested first, then joined to the source.


def ingest_new_turns(night: Night) -> dict[str, Any]:
    """Keep what is new in the configured transcripts and in a source that is made of them.

    A path that cannot be read is no reason to stop a night: what was kept before is exported.

    Returns:
        Notes about tonight: the account of the ingest under "transcripts", of what hooks named
        under "journalled" (`noctuary.agents.hooks.capture_journalled`), how many turns the
        rules of this version took the text of under "turns_forgotten"; empty where there is none.

    Raises:
        StoreError: turns.sqlite cannot be used.
    """
    notes: dict[str, Any] = {}
    settings = night.settings.transcripts
    roots = [expand_user(settings.path)] if settings.path else []
    folder = _transcripts_of(night.source)
    if folder is not None and folder.resolve() not in map(Path.resolve, roots):
        roots.insert(0, folder)
    if roots:
        reports = [
            ingest_transcripts(root, night.paths.turns, settings, night.progress).to_json()
            for root in roots
        ]
        notes["transcripts"] = reports
    if night.settings.hook.capture:
        journalled = capture_journalled(find_home(), night.paths.root, settings)
        if journalled["transcripts"]:
            notes["journalled"] = journalled
    if forgotten := forget_sensitive(night.paths.turns):
        notes["turns_forgotten"] = forgotten
    return notes


def open_night_source(night: Night) -> Source:
    """Open what a night exports: its source, with the kept turns joined where there are any.

    Raises:
        SourceError: The source is missing or cannot be read.
        StoreError: turns.sqlite cannot be read.
    """
    sidechains, turns = night.settings.transcripts.include_sidechains, night.paths.turns
    if (folder := _read_transcripts(night)) is not None:
        if not turns.is_file():
            TurnsFile(turns, wait_s=WAIT_S).close()
        return TranscriptSource(turns, include_sidechains=sidechains, location=folder)
    source = open_source(night.source, night.settings.source)
    try:
        if not holds_turns(turns):
            return source
        id_kind = source.identity().id_kind
        joined = TranscriptSource(
            turns,
            id_kind=id_kind,
            include_sidechains=sidechains,
            taken=negative_ids(source) if id_kind == "int" else frozenset(),
        )
        return CombinedSource(source, joined)
    except BaseException:
        source.close()
        raise


def last_source_rows(night: Night) -> int | None:
    """Return how many rows of its own the source had at the last export; None if unknown."""
    try:
        rows = read_report(night.work(MEMORIES).parent).identity.marker.get("rows")
    except StoreError:
        return None
    return rows if isinstance(rows, int) else None


def _transcripts_of(source: SourceName) -> Path | None:
    """Return the path of a source that is transcripts of an agent and no memory store."""
    if isinstance(source, DatabaseName) or holds_store(source) or not is_transcripts(source):
        return None
    return source


def _read_transcripts(night: Night) -> Path | None:
    """Return the path of a source that is transcripts, or a folder whose are all deleted."""
    if (folder := _transcripts_of(night.source)) is not None:
        return folder
    source = night.source
    if isinstance(source, DatabaseName) or not source.is_dir() or holds_store(source):
        return None
    try:
        return source if read_report(night.work(MEMORIES).parent).identity.kind == KIND else None
    except StoreError:
        return None


# The last look at an export, remembered for as long as nothing of it or of the rules changes.


EXPORT_SCAN = Stage("export_scan", "1")


def scan_export(night: Night) -> dict[str, Any]:
    """Return what `scan_tables` says of tonight's export, see `TableScan.to_json`.

    Raises:
        OSError: A table cannot be read.
    """
    directory = night.work(MEMORIES).parent
    tables = {path.name: hash_settled(path) for path in sorted(directory.glob("*.parquet"))}

    def body() -> StageOutput:
        scan = scan_tables(directory)
        return StageOutput(scan.texts, scan.to_json())

    inputs = {"tables": tables, "rules": rules_digest()}
    return run_stage(night.paths.work, EXPORT_SCAN, inputs, body).facts


def rules_digest() -> str:
    """Return the digest of the modules that choose texts and judge them.

    Of their very lines: a version that somebody has to raise would let a new rule wait until the
    export changes.
    """
    return hash_text(Path(table_scan.__file__).read_text("utf-8"), *read_rules())


# What the source told of its memories beside their rows, as the graph's stage uses it.


_FILES = (LINKS_FILE, CONCEPTS_FILE, MENTIONS_FILE, EDGES_FILE)


def read_told(night: Night) -> dict[str, Extraction]:
    """Return what the source tells, by memory id; empty where it says nothing."""
    corpus = night.work(MEMORIES).parent
    known = read_known(corpus)
    return findings_told(read_links(corpus), known.concepts, known.mentions, known.edges)


def told_inputs(night: Night) -> dict[str, str]:
    """Return what the graph's stage depends on besides the corpus; empty where nothing is told.

    The tables themselves are part of the corpus and of its digest.
    """
    corpus = night.work(MEMORIES).parent
    is_told = any((corpus / name).is_file() for name in _FILES)
    return {"told": TOLD_VERSION} if is_told else {}


# Stage corpus_export: memories, turns and quarantine.


# What a store says about its memories is part of it: a share that is revoked, with nothing else
# changed, must reach the snapshot.
CORPUS = Stage(
    "corpus_export",
    "2",
    (MEMORIES, TURNS, QUARANTINE, *(f"corpus/{name}" for name in EVIDENCE_FILES)),
)


READ_AT_FILE = "read_at"
"""When the source was opened, microseconds since the epoch: of tonight alone, so in no digest."""


def export_memories(night: Night) -> StageResult:
    """Export the source.

    It is read on every night, because only reading it tells whether it changed. What is new in
    agents' transcripts is kept first and joined to it.
    """
    directory = night.work(MEMORIES).parent
    progress = TimedProgress(TASK, night.progress)

    def body() -> StageOutput:
        ingested = ingest_new_turns(night)
        known = read_injections(night.paths.injections)
        with _previous_export(night.work(MEMORIES)) as previous:
            exported = _exported_before(night, previous)
            guard = EchoGuard(known, exported)
            # Before the source is pinned: what is written from now on came later (sources.live).
            read_us = time.time_ns() // 1000
            with open_night_source(night) as source:
                _refuse_emptied(night, source)
                report = export_corpus(
                    source,
                    directory,
                    night.settings.corpus,
                    progress=progress,
                    previous_ids=exported,
                    guard=guard,
                )
                said = write_evidence(source, directory)
            write_text(directory / READ_AT_FILE, f"{read_us}\n")
            if report.retracted:
                write_text(night.paths.purge_pending, f"{report.retracted}\n")
            changes = asdict(diff_corpora(previous, night.work(MEMORIES)))
        notes = {
            "turned_sensitive": report.retracted,
            **ingested,
            **changes,
            **_prune(night, known, guard),
            "source_batches": progress.timings.summary(),
        }
        return StageOutput(report.exported, {**_facts(report), **_said(said)}, notes)

    return night.finish(night.run(CORPUS, {}, body, always=True))


def _exported_before(night: Night, previous: Path | None) -> ExportedContents:
    """Return what the last export held; where it is lost, what serves knows of it.

    Else a row that has turned sensitive since would stay in older snapshots.
    """
    if previous is not None:
        return ExportedContents.read(previous)
    try:
        path = night.paths.snapshots / read_pointer(night.paths).snapshot_id / ROWS_FILE
        with closing(connect_immutable(path)) as rows:
            return ExportedContents(rows.execute("SELECT memory_id, content FROM memories"))
    except (StoreError, sqlite3.Error):
        return ExportedContents()


def _said(counts: EvidenceCounts) -> dict[str, Any]:
    """Return what the store says about its memories, if it says anything."""
    return {"evidence": asdict(counts)} if counts != EvidenceCounts() else {}


def read_at_us(night: Night) -> int | None:
    """Return when the source of the last export was opened; None if nothing says so."""
    try:
        return int((night.work(MEMORIES).parent / READ_AT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def load_report(night: Night) -> ExportReport:
    """Return the account of the last export."""
    return read_report(night.work(MEMORIES).parent)


def _facts(report: ExportReport) -> dict[str, Any]:
    return {
        "source_rows": report.source_rows,
        "exported": report.exported,
        "quarantined": report.quarantined_rows,
        "sensitive": report.sensitive_rows,
        "turns": report.turns,
        "quarantined_by_reason": dict(report.quarantined),
        "sensitive_by_reason": dict(report.sensitive),
        "warnings": dict(report.warnings),
        "corpus_digest": report.corpus_digest,
    }


def _refuse_emptied(night: Night, source: Source) -> None:
    """Refuse a source without a row where a snapshot with rows serves.

    That is an accident far more often than a wish.

    Raises:
        SourceEmptyError: Naming both.
    """
    own = source.primary if isinstance(source, CombinedSource) else source
    if own.count() or (own is not source and last_source_rows(night) == 0):
        return
    try:
        serving = read_pointer(night.paths).snapshot_id
        held = read_manifest(night.paths.snapshots / serving).counts["memories"]
    except StoreError:
        return
    if held:
        raise SourceEmptyError(
            f"{own.identity().location} holds no row any more, but snapshot {serving} holds "
            f"{held:,} memories: it keeps serving and nothing was published. If the store was "
            f"emptied on purpose, remove {night.paths.root}"
        )


def _prune(night: Night, known: KnownInjections, guard: EchoGuard) -> dict[str, Any]:
    """Forget old injections; of a record that could not be read nothing is known to be unused."""
    path, fault, pruned = night.paths.injections, known.fault, 0
    if fault is None:
        now_us = time.time_ns() // 1000
        pruned, fault = prune_injections(path, used=guard.used, now_us=now_us)
    return {"injections_pruned": pruned, **({} if fault is None else {"injections_fault": fault})}


@contextmanager
def _previous_export(memories: Path) -> Generator[Path | None]:
    """Keep last night's table under another name for the comparison; nothing is copied."""
    kept = memories.with_name(".previous.parquet")
    # One that is still there was left by a night that died or failed: what it was compared with
    # still counts, or a row that turned sensitive in that night would never be noticed.
    if not kept.is_file():
        if not memories.is_file():
            yield None
            return
        os.link(memories, kept)
    yield kept
    kept.unlink()


memory_store = dg.AssetSpec(
    "memory_store",
    kinds={"sqlite"},
    description="The memory store that a night reads, and never writes. Each event is a state in "
    "which it was seen.",
)


def _spec(key: str, kinds: set[str], description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        deps=[memory_store],
        kinds=kinds,
        description=description,
        code_version=CORPUS.version,
    )


memories = _spec(
    "memories", {"sqlite", "parquet"}, "Every exportable row of the source, in key order."
)
turns = _spec("turns", {"parquet"}, "The memories that are turns of a conversation, by session.")
quarantine = _spec(
    "quarantine", {"parquet"}, "Rows that could not be exported, with the reason; no content."
)


_CHECKS = {
    "exported_quarantined_and_sensitive_add_up_to_source": (
        "Every row of the source was exported, put into quarantine or left out as sensitive."
    ),
    "no_exported_memory_is_sensitive": (
        "No text of the exported tables looks redacted or like a secret."
    ),
}


@dg.multi_asset(
    name="corpus_export",
    specs=[memories, turns, quarantine],
    check_specs=[
        dg.AssetCheckSpec(name, asset="memories", description=said, blocking=True)
        for name, said in _CHECKS.items()
    ],
)
def corpus_export(night: dg.ResourceParam[Night]) -> Iterator[Any]:
    """Read the source and write the corpus."""
    result = export_memories(night)
    facts = result.facts
    yield report_stage(
        night,
        result,
        asset_key="memories",
        table=MEMORIES,
        columns=("position", "memory_id", "category", "wing", "importance"),
    )
    yield report_stage(
        night,
        result,
        asset_key="turns",
        rows=facts["turns"],
        table=TURNS,
        columns=("position", "session_id", "ordinal"),
    )
    yield report_stage(
        night,
        result,
        asset_key="quarantine",
        rows=facts["quarantined"],
        table=QUARANTINE,
        columns=("locator", "reason"),
    )
    total = facts["exported"] + facts["quarantined"] + facts["sensitive"]
    counts = {k: facts[k] for k in ("source_rows", "exported", "quarantined", "sensitive")}
    scan = scan_export(night)
    passed = (total == facts["source_rows"], not scan["found"])
    for name, holds, found in zip(_CHECKS, passed, (counts, scan), strict=True):
        yield judge(night, CORPUS, holds, found, asset_key="memories", check_name=name)
