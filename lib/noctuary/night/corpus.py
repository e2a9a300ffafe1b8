"""Stage corpus_export: memories, turns and quarantine."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noctuary.corpus.combined_source import CombinedSource
from noctuary.corpus.diff import diff_corpora
from noctuary.corpus.evidence_tables import EVIDENCE_FILES, EvidenceCounts, write_evidence
from noctuary.corpus.export import TASK, export_corpus
from noctuary.corpus.report import ExportReport, read_report
from noctuary.corpus.source import Source
from noctuary.errors import SourceEmptyError, StoreError
from noctuary.files import write_text
from noctuary.immutable import connect_immutable
from noctuary.injection.exported import ExportedContents
from noctuary.injection.known import KnownInjections, read_injections
from noctuary.injection.recogniser import EchoGuard
from noctuary.injection.retention import prune_injections
from noctuary.night.context import MEMORIES, QUARANTINE, TURNS, Night
from noctuary.night.transcripts import ingest_new_turns, last_source_rows, open_night_source
from noctuary.snapshot.layout import ROWS_FILE
from noctuary.snapshot.manifest import read_manifest, read_pointer
from noctuary.work.batches import TimedProgress
from noctuary.work.stage import Stage, StageResult

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
    changes: dict[str, Any] = {"turned_sensitive": 0}
    progress = TimedProgress(TASK, night.progress)

    def body() -> tuple[int, dict[str, Any]]:
        changes.update(ingest_new_turns(night))
        known = read_injections(night.paths.injections)
        with _previous_export(night.work(MEMORIES)) as previous:
            exported = _exported_before(night, previous)
            guard = EchoGuard(known, exported)
            # Before the source is pinned: what is written from now on came later (noctuary.live).
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
            changes["turned_sensitive"] = report.retracted
            changes.update(asdict(diff_corpora(previous, night.work(MEMORIES))))
        changes.update(_prune(night, known, guard))
        return report.exported, {**_facts(report), **_said(said)}

    result = night.run(CORPUS, {}, body, always=True)
    batches = progress.timings.summary()
    return night.finish(result.with_notes(**changes, source_batches=batches))


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
