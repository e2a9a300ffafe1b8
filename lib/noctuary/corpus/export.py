"""From a source to the corpus on disk: tables and their account, whole or not at all.

What belongs here: streaming, staging and the account. Rows are judged in `noctuary.corpus.sift`;
nothing of a sensitive row reaches this module. The tables are staged beside their place and moved
when all of them are complete; report.json goes last and carries their digests, so that a crash
between two moves is seen by `noctuary.corpus.report.read_report`.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from noctuary.corpus.guard import Guard
from noctuary.corpus.quarantine import QuarantineRow
from noctuary.corpus.records import iter_records, read_records, record_row
from noctuary.corpus.report import (
    WARN_NOTHING_EXPORTED,
    WARN_SOURCE_EMPTY,
    ExportReport,
    write_report,
)
from noctuary.corpus.sift import Tally, sift
from noctuary.corpus.source import DEFAULT_BATCH_ROWS, RawRow, Source
from noctuary.corpus.tables import MEMORIES_FILE, QUARANTINE_FILE, TURNS_FILE, TableWriter
from noctuary.corpus.turns import order_turns, turn_row
from noctuary.errors import SourceError
from noctuary.files import remove_tree, replace_with
from noctuary.hashing import hash_file
from noctuary.progress import SILENT, Progress
from noctuary.settings import CorpusSettings
from noctuary.types import corpus_digest

__all__ = ["ExportReport", "export_corpus", "iter_records", "read_records"]

TASK = "export"

_STAGING = ".export.tmp"
_UNORDERED_TURNS = "turns-unordered.parquet"
_FILES = (MEMORIES_FILE, TURNS_FILE, QUARANTINE_FILE)


@dataclass(frozen=True, slots=True)
class _Run:
    source: Source
    settings: CorpusSettings
    now_us: int
    batch_rows: int
    progress: Progress
    previous_ids: Container[str]
    guard: Guard | None


def export_corpus(
    source: Source,
    out_dir: Path,
    settings: CorpusSettings | None = None,
    *,
    now_us: int | None = None,
    batch_rows: int = DEFAULT_BATCH_ROWS,
    progress: Progress = SILENT,
    previous_ids: Container[str] = frozenset(),
    guard: Guard | None = None,
) -> ExportReport:
    """Export every memory that may leave its store and account for every row that did not.

    An empty store gives an empty corpus and a warning. Only one export may write into a directory
    at a time; the caller holds the store's lock.

    Args:
        source: An open source; not closed here.
        out_dir: Created if needed; its four files are replaced, others are left alone.
        settings: Content limit and turn categories; None means the defaults.
        now_us: The moment after which a date is in the future; None means now.
        batch_rows: Rows read at once.
        progress: Told after each batch.
        previous_ids: Ids of the export before; those that are sensitive now are counted.
        guard: Recognises what recall injected; None lets everything pass.

    Raises:
        SourceError: The source cannot be read to its end, or gave another number of rows than it
            counted. The previous export stays in place.
    """
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    settings = settings or CorpusSettings()
    run = _Run(source, settings, now_us, batch_rows, progress, previous_ids, guard)
    staging = out_dir / _STAGING
    # What a killed export left behind.
    remove_tree(staging)
    staging.mkdir(parents=True)
    try:
        tally, digest = _write_tables(run, staging)
        turns = order_turns(staging / _UNORDERED_TURNS, staging / TURNS_FILE)
        report = _account(run, tally, digest, turns, staging)
        for name in _FILES:
            _promote(staging / name, out_dir / name)
        write_report(report, out_dir)
    finally:
        remove_tree(staging)
    return report


def _write_tables(run: _Run, staging: Path) -> tuple[Tally, str]:
    tally = Tally()
    with (
        TableWriter(staging / MEMORIES_FILE, MEMORIES_FILE) as memories,
        TableWriter(staging / _UNORDERED_TURNS, TURNS_FILE) as turns,
        TableWriter(staging / QUARANTINE_FILE, QUARANTINE_FILE) as quarantine,
    ):

        def set_aside(row: QuarantineRow) -> None:
            quarantine.add((row.locator, str(row.reason), row.detail))

        rows = sift(
            _rows(run),
            now_us=run.now_us,
            settings=run.settings,
            tally=tally,
            quarantine=set_aside,
            previous_ids=run.previous_ids,
            guard=run.guard,
        )

        def write() -> Iterator[str]:
            for record in rows:
                memories.add(record_row(record))
                if record.is_turn:
                    turns.add(turn_row(record))
                yield record.content_hash

        return tally, corpus_digest(write())


def _rows(run: _Run) -> Iterator[RawRow]:
    total, done = run.source.count(), 0
    for batch in run.source.batches(run.batch_rows):
        yield from batch
        done += len(batch)
        run.progress.update(TASK, done, total)


def _account(run: _Run, tally: Tally, digest: str, turns: int, staging: Path) -> ExportReport:
    source_rows, identity = run.source.count(), run.source.identity()
    if tally.total != source_rows:
        raise SourceError(
            f"{identity.location} counts {source_rows} rows but gave {tally.total} "
            f"({tally.exported} exported, {tally.quarantined.total()} quarantined, "
            f"{tally.sensitive.total()} sensitive). Nothing was written; run again, and report "
            f"this if it stays."
        )
    warnings = tally.warnings.copy()
    warnings.update(identity.notes)
    if source_rows == 0:
        warnings[WARN_SOURCE_EMPTY] = 1
    elif tally.exported == 0:
        warnings[WARN_NOTHING_EXPORTED] = 1
    return ExportReport(
        identity=identity,
        source_rows=source_rows,
        exported=tally.exported,
        quarantined=dict(sorted(tally.quarantined.items())),
        sensitive=dict(sorted(tally.sensitive.items())),
        warnings=dict(sorted(warnings.items())),
        turns=turns,
        retracted=tally.retracted,
        corpus_digest=digest,
        files={name: hash_file(staging / name) for name in _FILES},
    )


def _promote(staged: Path, target: Path) -> None:
    replace_with(target, lambda tmp: _move(staged, tmp))


def _move(staged: Path, tmp: Path) -> None:
    staged.replace(tmp)
