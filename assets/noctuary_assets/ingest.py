"""Group ingest: what was exported, which of it are turns, what was set aside.

Nothing sensitive gets past here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import dagster as dg

from noctuary.agents.hooks import capture_journalled
from noctuary.core.errors import StoreError
from noctuary.core.files import hash_json, write_text
from noctuary.core.store import ROWS_FILE, find_home
from noctuary.core.tombstones import read_tombstones
from noctuary.graph.extract import Extraction
from noctuary.graph.llm import TOLD_VERSION, findings_told
from noctuary.snapshot.publish import serving_id
from noctuary.sources.conversations import find_unread
from noctuary.sources.echo import (
    EchoGuard,
    ExportedContents,
    KnownInjections,
    prune_injections,
    read_injections,
)
from noctuary.sources.evidence import (
    EVIDENCE_FILES,
    SHARES_FILE,
    EvidenceCounts,
    read_evidence,
    write_evidence,
)
from noctuary.sources.export import (
    TASK,
    ExportReport,
    clean_kind,
    diff_corpora,
    export_corpus,
    previous_export,
    read_report,
    refuse_emptied,
    rules_digest,
    scan_tables,
    skip_clean,
)
from noctuary.sources.ingest import find_unread_sessions, forget_sensitive, ingest_transcripts
from noctuary.sources.source import KnownConcept, KnownEdge, KnownMention, MemoryLink
from noctuary.sources.turns import find_roots, hash_bytes, open_with_turns
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

# What a store says about its memories is part of it: a share that is revoked, with nothing else
# changed, must reach the snapshot.
CORPUS = Stage(
    "corpus_export",
    "3",
    (MEMORIES, TURNS, QUARANTINE, *(f"corpus/{name}" for name in EVIDENCE_FILES)),
)

READ_AT_FILE = "read_at"  # when the source was opened (microseconds), in which state: in no digest


def export_memories(night: Night) -> StageResult:
    """Export the source."""
    # New transcripts are kept first. Of a database only reading tells whether it changed.
    directory = night.work(MEMORIES).parent
    progress = TimedProgress(TASK, night.progress)
    ingested = _ingest_new_turns(night)
    state = _source_state(night)

    def body() -> StageOutput:
        known = read_injections(night.paths.injections)
        forgotten = read_tombstones(night.paths.root)
        serving = serving_id(night.paths)
        rows = night.paths.snapshots / serving / ROWS_FILE if serving else None
        with previous_export(night.work(MEMORIES)) as previous:
            exported = ExportedContents.read(previous, rows)
            guard = EchoGuard(known, exported)
            # Before the source is pinned: what is written from now on came later (sources.live).
            read_us = time.time_ns() // 1000
            opened = open_with_turns(night.source, night.paths.turns, night.settings, directory)
            with opened as source, skip_clean(night.content(clean_kind("rows"))) as scan:
                refuse_emptied(source, directory, night.paths, forgotten)
                report = export_corpus(
                    source,
                    directory,
                    night.settings.corpus,
                    progress=progress,
                    previous_ids=exported,
                    guard=guard,
                    forgotten=forgotten,
                    scan=scan,
                )
                said = write_evidence(source, directory)
            # A writer or a checkpoint may have come in between: then the next night reads again.
            kept = state if _source_state(night) == state else None
            write_text(directory / READ_AT_FILE, f"{read_us} {kept}\n")
            if report.retracted or any(one in exported for one in forgotten.ids):
                write_text(night.paths.purge_pending, f"{report.retracted}\n")
            changes = diff_corpora(previous, night.work(MEMORIES))._asdict()
        notes = {
            "turned_sensitive": report.retracted,
            **changes,
            **_prune(night, known, guard),
            "source_batches": progress.timings.summary(),
        }
        told = {"evidence": said._asdict()} if said != EvidenceCounts() else {}
        return StageOutput(report.exported, {**report.to_facts(), **told}, notes)

    is_new = state is None or _read_before(night)[1:] != [state] or not _has_report(night)
    result = night.run(CORPUS, {}, body, always=is_new)
    return night.finish(replace(result, notes={**ingested, **result.notes}))


_NAMED_FAULTS = 3  # of transcripts that cannot be read; one broken disk has thousands


def _ingest_new_turns(night: Night) -> dict[str, Any]:
    """Keep what is new in transcripts; a path that cannot be read is no reason to stop a night."""
    notes: dict[str, Any] = {}
    settings, turns = night.settings.transcripts, night.paths.turns
    if roots := find_roots(night.source, settings):
        reports = [ingest_transcripts(root, turns, settings, night.progress) for root in roots]
        notes["transcripts"] = [report.to_json() for report in reports]
        faults = [fault for report in reports for fault in report.faults]
        more = f"; and {len(faults) - _NAMED_FAULTS} more" if len(faults) > _NAMED_FAULTS else ""
        notes["transcript_faults"] = "; ".join(faults[:_NAMED_FAULTS]) + more
        if unread := [name for root in roots for name in find_unread(root)]:
            notes["warning"] = (
                f"not read, because no conversation is in it: {', '.join(unread)} of a Claude "
                f"export; save the texts that matter as Markdown"
            )
    if night.settings.hook.capture:
        journalled = capture_journalled(find_home(), night.paths.root, settings)
        if journalled["transcripts"]:
            notes["journalled"] = journalled
    notes["unread_sessions"] = ". ".join(find_unread_sessions(turns))
    if forgotten := forget_sensitive(turns):
        notes["turns_forgotten"] = forgotten
    return notes


def _prune(night: Night, known: KnownInjections, guard: EchoGuard) -> dict[str, Any]:
    """Forget old injections; of a record that could not be read nothing is known to be unused."""
    path, fault, pruned = night.paths.injections, known.fault, 0
    if fault is None:
        now_us = time.time_ns() // 1000
        pruned, fault = prune_injections(path, used=guard.used, now_us=now_us)
    return {"injections_pruned": pruned, **({} if fault is None else {"injections_fault": fault})}


def _source_state(night: Night) -> str | None:
    """Return a digest of all that an export depends on; None where only reading tells."""
    directory, settings = night.work(MEMORIES).parent, night.settings
    read = hash_bytes(night.source, directory, night.paths.turns, night.paths.injections)
    forgotten = read_tombstones(night.paths.root).digests
    chosen = [settings.corpus._asdict(), settings.transcripts.include_sidechains, *forgotten]
    return None if read is None else hash_json([read, chosen, rules_digest()])


def _read_before(night: Night) -> list[str]:
    """Return when the source of the last export was opened, and in which state it was."""
    try:
        return (night.work(MEMORIES).parent / READ_AT_FILE).read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return []


def read_at_us(night: Night) -> int | None:
    """Return when the source of the last export was opened; None if nothing says so."""
    moment = _read_before(night)[:1]
    return int(moment[0]) if moment and moment[0].isdecimal() else None


def load_report(night: Night) -> ExportReport:
    """Return the account of the last export."""
    return read_report(night.work(MEMORIES).parent)


def _has_report(night: Night) -> bool:
    """Say whether there is an account that this version reads, with its tables."""
    with suppress(StoreError):
        return bool(load_report(night))
    return False


# What the source told of its memories beside their rows, as the graph's stage uses it.


def read_told(night: Night) -> dict[str, Extraction]:
    """Return what the source tells, by memory id; empty where it says nothing."""
    corpus = night.work(MEMORIES).parent
    return findings_told(
        read_evidence(corpus, MemoryLink),
        read_evidence(corpus, KnownConcept),
        read_evidence(corpus, KnownMention),
        read_evidence(corpus, KnownEdge),
    )


def told_inputs(night: Night) -> dict[str, str]:
    """Return what the graph's stage depends on besides the corpus; empty where nothing is told."""
    corpus = night.work(MEMORIES).parent
    is_told = any((corpus / n).is_file() for n in EVIDENCE_FILES if n != SHARES_FILE)
    return {"told": TOLD_VERSION} if is_told else {}


# The last look at an export, remembered for as long as nothing of it or of the rules changes.

EXPORT_SCAN = Stage("export_scan", "1")


def scan_export(night: Night) -> dict[str, Any]:
    """Return what `scan_tables` says of tonight's export."""
    directory = night.work(MEMORIES).parent
    tables = {path.name: hash_settled(path) for path in sorted(directory.glob("*.parquet"))}

    def body() -> StageOutput:
        with skip_clean(night.content(clean_kind("tables"))) as scan:
            found = scan_tables(directory, scan)
        return StageOutput(found["texts"], found)

    inputs = {"tables": tables, "rules": rules_digest()}
    return run_stage(night.paths.work, EXPORT_SCAN, inputs, body).facts


memory_store = dg.AssetSpec(
    "memory_store",
    kinds={"sqlite"},
    description="The memory store that a night reads, and never writes. Each event is a state in "
    "which it was seen.",
)


def _spec(key: str, kinds: set[str], description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key, deps=[memory_store], kinds=kinds, description=description, code_version=CORPUS.version
    )


memories = _spec(
    "memories", {"sqlite", "parquet"}, "Every exportable row of the source, in key order."
)
turns = _spec("turns", {"parquet"}, "The memories that are turns of a conversation, by session.")
quarantine = _spec(
    "quarantine",
    {"parquet"},
    "Rows that could not be exported, with the reason but without content.",
)

# The fact that counts the rows of each asset, its file, and the columns that the UI shows.
_TABLES = {
    "memories": ("exported", MEMORIES, ("position", "memory_id", "category", "wing", "importance")),
    "turns": ("turns", TURNS, ("position", "session_id", "ordinal")),
    "quarantine": ("quarantined", QUARANTINE, ("locator", "reason")),
}

_CHECKS = {
    "exported_quarantined_and_sensitive_add_up_to_source": (
        "Every row of the source was exported, quarantined or left out as sensitive."
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
    for key, (counted, table, columns) in _TABLES.items():
        rows = facts[counted]
        yield report_stage(night, result, asset_key=key, rows=rows, table=table, columns=columns)
    total = facts["exported"] + facts["quarantined"] + facts["sensitive"]
    counts = {k: facts[k] for k in ("source_rows", "exported", "quarantined", "sensitive")}
    scan = scan_export(night)
    passed = (total == facts["source_rows"], not scan["found"])
    for name, holds, found in zip(_CHECKS, passed, (counts, scan), strict=True):
        yield judge(night, CORPUS, holds, found, asset_key="memories", check_name=name)
