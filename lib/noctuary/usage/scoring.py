"""LTP scores of every memory, page by page, into usage.sqlite (RFC 914, phase 14). Build side.

What belongs here: the scan. What does not: the formulas (`ltp`), how pages are read
(`corpus.pages`) and how batches are described (`work.batches`).

The RFC updates what was filed since the last scan; that misses an old memory whose use changed, or
whose retrievals have left the window. Here each row's values are compared with what stands in the
file: what differs is written, the rest is counted as unchanged, and no scan can leave a stale row.

A bounded scan goes on at the next night where it stopped, so that every memory has its turn.
"""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from noctuary.corpus.pages import MemoryPage
from noctuary.errors import StoreError
from noctuary.files import replace_with
from noctuary.hooks import fire
from noctuary.usage.ltp import decayed, idle_days, last_accessed, ltp_multiplier, ltp_score
from noctuary.usage.reading import UsageReader, read_counts
from noctuary.usage.usage_file import MAX_VARIABLES, NOT_SCANNED, RESUME_AT
from noctuary.usage.writing import open_aside
from noctuary.work.batches import BatchTimings

ReadPages = Callable[[int, int], Iterable[MemoryPage]]
"""(first, stop) -> the memories with first <= position < stop, a batch at a time."""

_Row = tuple[str, float, float, float, int]


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """What a profile says about scoring.

    Attributes:
        batch_size: Memories per batch, >= 1.
        max_scan_depth: Memories scanned at most, 0 for all.
        max_boost: Upper bound of the multiplier, >= 1.
        decay_lambda: Decay per day, >= 0; 0 where decay is off.
    """

    batch_size: int
    max_scan_depth: int
    max_boost: float
    decay_lambda: float

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


@dataclass(slots=True)
class ScanReport:
    """What one scan did.

    Attributes:
        total: Memories in the corpus, exactly.
        scanned: Of them, how many were looked at.
        last_offset: Position after the last one; `total` after a complete scan.
        in_use: Memories with a score above 0, of the whole file.
        updated: Rows written, per batch.
        timings: The batches.
        hook_faults: What hooks raised.
    """

    total: int
    scanned: int = 0
    last_offset: int = 0
    in_use: int = 0
    updated: list[int] = field(default_factory=list[int])
    timings: BatchTimings = field(default_factory=BatchTimings)
    hook_faults: list[str] = field(default_factory=list[str])

    @property
    def not_scanned(self) -> int:
        """Memories that max_scan_depth left out."""
        return self.total - self.scanned

    @property
    def warning(self) -> str | None:
        """What to tell whoever runs it, or None after a complete scan."""
        if not self.not_scanned:
            return None
        return (
            f"max_scan_depth ended the scan after {self.scanned:,} of {self.total:,} memories: "
            f"{self.not_scanned:,} were not scanned; the next night goes on at "
            f"{self.last_offset % self.total:,}"
        )

    def pagination_state(self) -> dict[str, Any]:
        """Return the RFC's object for a replay packet."""
        return {
            "total": self.total,
            "batches_processed": len(self.updated),
            "last_offset": self.last_offset,
            "scan_depth_reached": self.not_scanned > 0,
        }

    def batches(self) -> list[dict[str, int]]:
        """Return the RFC's candidate trace: what each batch contributed."""
        return [
            {
                "batch_index": index,
                "offset": offset,
                "memories_in_batch": rows,
                "ltp_updated": updated,
                "ltp_skipped_unchanged": rows - updated,
            }
            for index, (offset, rows, updated) in enumerate(
                zip(self.timings.offsets, self.timings.rows, self.updated, strict=True)
            )
        ]


def refresh_scores(
    path: Path, total: int, read_pages: ReadPages, rules: ScoringRules, *, as_of_us: int
) -> ScanReport:
    """Bring the table `ltp` of usage.sqlite up to date, in a copy that then takes its place.

    Calls the hook `post_batch` after each batch.

    Args:
        path: usage.sqlite, as tonight's `write_usage` left it.
        total: Memories in the corpus.
        read_pages: Reads them.
        rules: How.
        as_of_us: The moment that idle days are counted to.

    Raises:
        StoreError: If there is no usage.sqlite of this version.
    """
    report = ScanReport(total)

    def write(tmp: Path) -> None:
        shutil.copyfile(path, tmp)
        with closing(open_aside(tmp)) as db:
            db.execute("BEGIN")
            for first, stop in _ranges(db, total, rules.max_scan_depth):
                for page in read_pages(first, stop):
                    _scan_page(db, page, rules, as_of_us, report)
            _finish(db, report)
            db.execute("COMMIT")

    _require_readable(path)
    replace_with(path, write)
    return report


def _require_readable(path: Path) -> None:
    usage = UsageReader.open(path)
    usage.close()
    if usage.warning is not None:
        raise StoreError(f"{usage.warning}. Materialize access_statistics first")


def _ranges(db: sqlite3.Connection, total: int, max_scan_depth: int) -> Iterator[tuple[int, int]]:
    """Yield what to scan: all, or so many from where the last scan stopped, around the end."""
    if not max_scan_depth or max_scan_depth >= total:
        yield 0, total
        return
    found = db.execute("SELECT value FROM meta WHERE key = ?", [RESUME_AT]).fetchone()
    start = int(found[0]) if found and int(found[0]) < total else 0
    stop = min(start + max_scan_depth, total)
    yield start, stop
    left = max_scan_depth - (stop - start)
    if left:
        yield 0, left


def _scan_page(
    db: sqlite3.Connection, page: MemoryPage, rules: ScoringRules, as_of_us: int, report: ScanReport
) -> None:
    started = time.perf_counter()
    stored = _stored(db, page.memory_ids)
    rows = [row for row in _scores(db, page, rules, as_of_us) if stored.get(row[0]) != row]
    db.executemany("INSERT OR REPLACE INTO ltp VALUES (?, ?, ?, ?, ?)", rows)
    elapsed_ms = (time.perf_counter() - started) * 1000
    size = len(page.memory_ids)
    context = {
        "batch_index": len(report.updated),
        "offset": page.first,
        "batch_size": size,
        "ltp_updates": len(rows),
    }
    report.updated.append(len(rows))
    report.timings.add(page.first, size, elapsed_ms)
    report.scanned += size
    report.last_offset = page.first + size
    report.hook_faults += fire("post_batch", context)


def _scores(
    db: sqlite3.Connection, page: MemoryPage, rules: ScoringRules, as_of_us: int
) -> Iterator[_Row]:
    recent, _, last_us = read_counts(db, page.memory_ids)
    multiplier = ltp_multiplier(recent, rules.max_boost)
    score = ltp_score(multiplier, rules.max_boost)
    accessed_us = last_accessed(last_us, page.created_at_us)
    faded = decayed(score, idle_days(accessed_us, as_of_us), rules.decay_lambda)
    return zip(
        page.memory_ids,
        multiplier.tolist(),
        score.tolist(),
        faded.tolist(),
        accessed_us.tolist(),
        strict=True,
    )


def _stored(db: sqlite3.Connection, memory_ids: list[str]) -> dict[str, _Row]:
    found: dict[str, _Row] = {}
    for start in range(0, len(memory_ids), MAX_VARIABLES):
        some = memory_ids[start : start + MAX_VARIABLES]
        sql = f"SELECT * FROM ltp WHERE memory_id IN ({','.join('?' * len(some))})"
        found.update((row[0], row) for row in db.execute(sql, some))
    return found


def _finish(db: sqlite3.Connection, report: ScanReport) -> None:
    meta = {
        NOT_SCANNED: report.not_scanned,
        RESUME_AT: report.last_offset if report.not_scanned else 0,
    }
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
    report.in_use = db.execute("SELECT COUNT(*) FROM ltp WHERE ltp_score > 0").fetchone()[0]
