"""From the access log to usage.sqlite: folding, windows, LTP scores, retention. Build side."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import time
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core import formats
from noctuary.core.errors import StoreError
from noctuary.core.files import replacement, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.sqlite import connect_immutable, delete_rows, filling, open_log
from noctuary.core.types import DAY_US, fire
from noctuary.usage.access_log import ACCESS_LOG
from noctuary.usage.reader import (
    AS_OF_US,
    BATCH_ROWS,
    DIGEST,
    FORMAT,
    NOT_SCANNED,
    RESUME_AT,
    SCHEMA,
    WINDOW_DAYS,
    UsageReader,
    decayed,
    idle_days,
    last_accessed,
    ltp_multiplier,
    ltp_score,
    read_counts,
)
from noctuary.work.stage import BatchTimings, StageOutput

# Folding the access log from where the last night stopped: the sums outlive the rows.

_FORMAT = formats.RECALL_SUMS.version
_SUMS = (
    f"SELECT memory_id, retrieved_at_us / {DAY_US}, COUNT(*), MAX(retrieved_at_us) "
    "FROM retrievals WHERE {which} GROUP BY 1, 2 ORDER BY 1, 2"
)
# The highest that was ever given: the last row may have been deleted.
_LAST_POSITION = """
    SELECT max(ifnull((SELECT max(position) FROM retrievals), 0),
               ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'retrievals'), 0))
"""


class Mark(NamedTuple):
    """Up to where a log was folded."""

    log_id: int = 0  # Its application_id: one that is made after a deletion has another
    position: int = 0  # The last row that was folded; 0 before the first
    at_us: int = 0  # The latest retrieval that was folded, microseconds since the epoch


@dataclass(frozen=True, slots=True)
class Folded:
    """Every retrieval that was ever folded, as sums."""

    # Memory -> (retrievals, last one in microseconds), of all that the log ever named
    by_memory: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    mark: Mark = field(default_factory=Mark)
    # Memory -> (distinct days of retrieval, the last of them as days since the epoch). Days are
    # counted forward: a row that arrives after a later day was counted adds none.
    days: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def to_json(self) -> str:
        """Return the text that `read_folded` reads."""
        content = {"by_memory": self.by_memory, "mark": self.mark, "days": self.days}
        return json.dumps({"format": _FORMAT, **content}, sort_keys=True) + "\n"


def read_folded(path: Path) -> Folded:
    """Return the sums of earlier nights; empty if the file is missing or damaged.

    Raises StoreError for a file of a newer noctuary: its counts exist nowhere else.
    """
    try:
        content: dict[str, Any] = parse_json(path.read_text(encoding="utf-8"))
        if content["format"] > _FORMAT:
            raise StoreError(
                f"{path} has format {content['format']}, expected {_FORMAT}, and counts recalls "
                f"that no log holds any more: {formats.UPDATE}, or move it away to count anew"
            )
        mark = Mark(*map(int, content["mark"]))
        by_memory, days = (
            {m: (int(n), int(last)) for m, (n, last) in content[name].items()}
            for name in ("by_memory", "days")
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Folded()
    is_whole = content.get("format") == _FORMAT and days.keys() == by_memory.keys()
    return Folded(by_memory, mark, days) if is_whole else Folded()


def fold_on(before: Folded, log_path: Path) -> tuple[Folded, int]:
    """Add the rows of the log that are not in the sums yet, and count them.

    Another log than the one folded before is added as a whole, one put back from a backup from the
    latest moment on that was folded. A missing log adds nothing.
    """
    if not log_path.exists():
        return before, 0
    with closing(open_log(log_path, ACCESS_LOG)) as log:
        # One transaction: the mark and the sums are of the same moment, whoever appends meanwhile.
        log.execute("BEGIN")
        log_id: int = log.execute("PRAGMA application_id").fetchone()[0]
        (position,) = log.execute(_LAST_POSITION).fetchone()
        mark, known = before.mark, before.mark.log_id == log_id
        which, start = "position > ?", mark.position if known else 0
        # Put back: positions that were folded are gone or were given again. A row at the mark that
        # is later than everything folded cannot have been folded.
        sql = "SELECT 1 FROM retrievals WHERE position = ? AND retrieved_at_us > ?"
        again = log.execute(sql, [mark.position, mark.at_us]).fetchone()
        if known and (position < mark.position or again):
            which, start = "retrieved_at_us > ?", mark.at_us
        sums, days, added, latest_us = dict(before.by_memory), dict(before.days), 0, mark.at_us
        rows = log.execute(_SUMS.format(which=which), [start])
        for memory_id, day, count, last_us in rows:
            seen, before_us = sums.get(memory_id, (0, last_us))
            sums[memory_id] = (seen + count, max(before_us, last_us))
            counted, last_day = days.get(memory_id, (0, day - 1))
            if day > last_day:
                days[memory_id] = (counted + 1, day)
            added += count
            latest_us = max(latest_us, last_us)
        return Folded(sums, Mark(log_id, position, latest_us), days), added


# Only the best so many answers of a recall count as recalled together: more links what merely
# filled a long list, fewer misses the tail of an ordinary one.
CO_RETRIEVAL_RANKS = 10
CO_RETRIEVAL_PAIRS = 200_000  # kept, the most frequent and of those the newest: about 10 MB

_RECENT = (
    "SELECT memory_id, COUNT(*) FROM retrievals "
    "WHERE position <= ? AND retrieved_at_us >= ? AND known(memory_id) GROUP BY memory_id"
)
# The rows of one recall were appended in one go, of one snapshot and time, ranks rising.
_PAIRS = f"""
    WITH best AS (
        SELECT *, rank <= lag(rank) OVER log OR (snapshot_id, retrieved_at_us)
            IS NOT (lag(snapshot_id) OVER log, lag(retrieved_at_us) OVER log) AS begins
        FROM retrievals
        WHERE position <= ? AND retrieved_at_us >= ? AND rank <= {CO_RETRIEVAL_RANKS}
        WINDOW log AS (ORDER BY position)
    ),
    numbered AS (SELECT *, sum(begins) OVER (ORDER BY position) AS recall FROM best),
    members AS MATERIALIZED (
        SELECT DISTINCT recall, memory_id, retrieved_at_us FROM numbered WHERE known(memory_id)
    )
    SELECT a.memory_id, b.memory_id, COUNT(*), COUNT(*) OVER ()
    FROM members a JOIN members b ON a.recall = b.recall AND a.memory_id < b.memory_id
    GROUP BY 1, 2 ORDER BY 3 DESC, MAX(a.retrieved_at_us) DESC, 1, 2 LIMIT ?
"""

Pair = tuple[str, str, int]
"""Two memories, a < b, and how many recalls returned both."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was counted in the log's rows."""

    recent: dict[str, int] = field(default_factory=dict[str, int])  # Retrievals inside it, by id
    pairs: list[Pair] = field(default_factory=list[Pair])  # Ordered by both ids
    pairs_left_out: int = 0  # Beyond `CO_RETRIEVAL_PAIRS`


def count_window(
    log: Path, folded: Mark, known: Collection[str], *, recent_since_us: int, pairs_since_us: int
) -> Window:
    """Count what the folded log holds of existing memories, up to the mark and from both bounds."""
    with closing(open_log(log, ACCESS_LOG, or_empty=True)) as db:
        db.execute("BEGIN")
        if db.execute("PRAGMA application_id").fetchone()[0] != folded.log_id:
            return Window()
        db.create_function("known", 1, known.__contains__, deterministic=True)
        recent = dict(db.execute(_RECENT, [folded.position, recent_since_us]))
        values = [folded.position, pairs_since_us, CO_RETRIEVAL_PAIRS]
        found = db.execute(_PAIRS, values).fetchall()
    total = found[0][3] if found else 0
    return Window(recent, sorted(pair[:3] for pair in found), total - len(found))


class Fold(NamedTuple):
    """What one night made of the log."""

    folded: Folded  # The sums for the next night to go on from
    rows: int  # How many rows were read
    # Memory -> (retrievals, last one in microseconds), existing ones only, in order of their ids
    by_memory: dict[str, tuple[int, int]]
    orphaned: int  # Retrievals of memories that the store no longer has
    fault: str | None  # Why the log could not be read, or None


def fold_access_log(before: Folded, path: Path, known_ids: Collection[str]) -> Fold:
    """Fold what was appended since `before`; a damaged log is reported and adds nothing."""
    after, rows, fault = before, 0, None
    try:
        after, rows = fold_on(before, path)
    except sqlite3.Error as error:
        fault = f"the access log at {path.name} cannot be read: {error}"
    known = set(known_ids)
    sums = sorted(after.by_memory.items())
    by_memory = {m: counted for m, counted in sums if m in known}
    orphaned = sum(count for m, (count, _) in sums if m not in known)
    return Fold(after, rows, by_memory, orphaned, fault)


# Writing usage.sqlite. Only memories that exist are written: one that was deleted, or turned
# sensitive, is gone from the file with the next night.


def write_usage(
    path: Path,
    folded: Folded,
    window: Window,
    known: Collection[str],
    *,
    window_days: int,
    as_of_us: int,
) -> str:
    """Replace usage.sqlite, LTP scores that stay carried over; return the digest of its answers."""
    access = [
        (m, folded.by_memory[m][0], window.recent.get(m, 0), folded.days[m][0], last_us)
        for m, (_, last_us) in sorted(folded.by_memory.items())
        if m in known
    ]
    pairs = [pair for pair in window.pairs if pair[0] in known and pair[1] in known]
    hashed = hashlib.sha256()
    for row in ((FORMAT, window_days), *access, *pairs):
        hashed.update(repr(row).encode())
    digest = hashed.hexdigest()
    meta = {WINDOW_DAYS: window_days, AS_OF_US: as_of_us, DIGEST: digest}

    with replacement(path) as tmp, filling(tmp, SCHEMA) as db:
        db.executemany("INSERT INTO access VALUES (?, ?, ?, ?, ?)", access)
        db.executemany("INSERT INTO co_retrieval VALUES (?, ?, ?)", pairs)
        db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
        _carry_scores(path, db, known)
    return digest


def _carry_scores(before: Path, db: sqlite3.Connection, known: Collection[str]) -> None:
    """Take over the scores, and how far the last scan got; of a damaged file what can be read."""
    if not before.exists():
        return
    with closing(connect_immutable(before)) as old:

        def readable(sql: str) -> Iterator[tuple[Any, ...]]:
            with suppress(sqlite3.Error):
                yield from old.execute(sql)

        if (FORMAT,) in readable("PRAGMA user_version"):
            scores = readable("SELECT * FROM ltp ORDER BY memory_id")
            kept = (row for row in scores if row[0] in known)
            db.executemany("INSERT OR IGNORE INTO ltp VALUES (?, ?, ?, ?, ?)", kept)
            meta = readable("SELECT * FROM meta")
            db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", meta)


# LTP scores of every memory, page by page, into usage.sqlite (RFC 914, phase 14). The RFC updates
# memories filed since the last scan; that misses an old memory whose use changed. Here each row is
# compared with the file, and an unchanged one is not counted as written.

_UPSERT = """
    INSERT INTO ltp VALUES (?, ?, ?, ?, ?) ON CONFLICT (memory_id) DO UPDATE SET
        (ltp_multiplier, ltp_score, decayed_score, last_accessed_us) = (excluded.ltp_multiplier,
        excluded.ltp_score, excluded.decayed_score, excluded.last_accessed_us)
    WHERE (ltp_multiplier, ltp_score, decayed_score, ltp.last_accessed_us) IS NOT
        (excluded.ltp_multiplier, excluded.ltp_score, excluded.decayed_score,
        excluded.last_accessed_us)
"""


class ScoringRules(NamedTuple):
    """The scoring rules of a profile."""

    max_scan_depth: int  # Memories scanned at most, 0 for all
    decay_lambda: float  # Decay per day, >= 0; 0 where decay is off


@dataclass(slots=True)
class ScanReport:
    """What one scan did."""

    total: int  # Memories in the corpus, exactly
    scanned: int = 0  # Of them, how many were looked at
    last_offset: int = 0  # Position after the last one; `total` after a complete scan
    in_use: int = 0  # Memories with a score above 0, of the whole file
    batches: list[dict[str, int]] = field(default_factory=list[dict[str, int]])  # What each did
    timings: BatchTimings = field(default_factory=BatchTimings)
    hook_faults: list[str] = field(default_factory=list[str])

    def add(self, first: int, size: int, updated: int, elapsed_ms: float) -> None:
        """Take in a batch, and tell hooks of it."""
        place = {"batch_index": len(self.batches), "offset": first}
        counts = {"memories_in_batch": size, "ltp_updated": updated}
        self.batches.append({**place, **counts, "ltp_skipped_unchanged": size - updated})
        self.timings.add(first, size, elapsed_ms)
        self.scanned += size
        self.last_offset = first + size
        context = {**place, "batch_size": size, "ltp_updates": updated}
        self.hook_faults += fire("post_batch", context)

    @property
    def not_scanned(self) -> int:
        """Memories that max_scan_depth left out."""
        return self.total - self.scanned

    @property
    def warning(self) -> str | None:
        """A warning about an incomplete scan, or None."""
        if not self.not_scanned:
            return None
        return (
            f"max_scan_depth ended the scan after {self.scanned:,} of {self.total:,} memories: "
            f"{self.not_scanned:,} were not scanned; the next night goes on at "
            f"{self.last_offset % self.total:,}"
        )

    def to_notes(self) -> dict[str, Any]:
        """Return the stage's facts about tonight's scan."""
        updated = sum(batch["ltp_updated"] for batch in self.batches)
        return {
            "ltp_updated": updated,
            "ltp_skipped_unchanged": self.scanned - updated,
            "warning": self.warning,
            "hook_faults": "; ".join(self.hook_faults) or None,
            "paginated_scoring": self.timings.report(),
            "pagination_state": self.pagination_state(),
            "batches": {"batches": self.batches},
        }

    def pagination_state(self) -> dict[str, Any]:
        """Return the RFC's object for a replay packet."""
        return {
            "total": self.total,
            "batches_processed": len(self.batches),
            "last_offset": self.last_offset,
            "scan_depth_reached": self.not_scanned > 0,
        }


def refresh_scores(
    path: Path,
    memory_ids: Any,
    created_at_us: NDArray[np.int64],
    rules: ScoringRules,
    *,
    as_of_us: int,
) -> ScanReport:
    """Bring the table `ltp` of usage.sqlite up to date, in a copy that then takes its place.

    Calls the hook `post_batch` after each batch. `memory_ids` is a pyarrow.Array of all by
    position. StoreError where there is no usage.sqlite of this version.
    """
    total = len(memory_ids)
    report = ScanReport(total)

    usage = UsageReader(path)
    usage.close()
    if usage.warning is not None:
        raise StoreError(f"{usage.warning}. Materialize access_statistics first")
    with replacement(path) as tmp:
        shutil.copyfile(path, tmp)
        with filling(tmp) as db:
            for page in _pages(db, total, rules):
                started = time.perf_counter()
                ids = memory_ids[page].to_pylist()
                scores = _score(db, ids, created_at_us[page], rules, as_of_us)
                updated = db.executemany(_UPSERT, scores).rowcount
                report.add(page.start, len(ids), updated, (time.perf_counter() - started) * 1000)
            resume_at = report.last_offset if report.not_scanned else 0
            meta = [(NOT_SCANNED, report.not_scanned), (RESUME_AT, resume_at)]
            db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta)
            sql = "SELECT COUNT(*) FROM ltp WHERE ltp_score > 0"
            report.in_use = db.execute(sql).fetchone()[0]
    return report


def _pages(db: sqlite3.Connection, total: int, rules: ScoringRules) -> Iterator[slice]:
    """Yield what to scan: all, or so many from where the last scan stopped, around the end."""
    start, left = 0, total
    if 0 < rules.max_scan_depth < total:
        left = rules.max_scan_depth
        found = db.execute("SELECT value FROM meta WHERE key = ?", [RESUME_AT]).fetchone()
        start = int(found[0]) if found and int(found[0]) < total else 0
    while left:
        stop = min(start + BATCH_ROWS, start + left, total)
        yield slice(start, stop)
        left -= stop - start
        start = stop % total


def _score(
    db: sqlite3.Connection,
    memory_ids: list[str],
    created_at_us: NDArray[np.int64],
    rules: ScoringRules,
    as_of_us: int,
) -> Iterator[tuple[Any, ...]]:
    """Return the rows of the table `ltp` of some memories."""
    recent, _, last_us = read_counts(db, memory_ids)
    multiplier = ltp_multiplier(recent)
    score = ltp_score(multiplier)
    accessed_us = last_accessed(last_us, created_at_us)
    faded = decayed(score, idle_days(accessed_us, as_of_us), rules.decay_lambda)
    columns = (column.tolist() for column in (multiplier, score, faded, accessed_us))
    return zip(memory_ids, *columns, strict=True)


RETENTION_DAYS = 90  # of a single retrieval: about 100 bytes


def prune_access_log(path: Path, *, folded: Mark, now_us: int) -> tuple[int, str | None]:
    """Delete rows older than the retention that are in the sums of this log; how many, a fault."""
    where = (
        "position <= ? AND retrieved_at_us < ? "
        "AND (SELECT application_id FROM pragma_application_id) = ?"
    )
    values = (folded.position, now_us - RETENTION_DAYS * DAY_US, folded.log_id)
    return delete_rows(path, ACCESS_LOG, "retrievals", "position", where, values)


def _drop_long_gone(folded: Folded, known: Collection[str], now_us: int) -> Folded:
    """Drop the sums of memories that are gone, when no row of theirs is in the log any more."""
    # Otherwise they stay for good, of every memory that was ever recalled.
    oldest_us = now_us - RETENTION_DAYS * DAY_US
    existing, sums = set(known), folded.by_memory
    kept = {m: told for m, told in sums.items() if m in existing or told[1] >= oldest_us}
    return replace(folded, by_memory=kept, days={m: folded.days[m] for m in kept})


def fold_usage(
    folded: Path, log: Path, usage: Path, known: Collection[str], window_days: int, as_of_us: int
) -> StageOutput:
    """Fold new rows of the access log into usage.sqlite, and delete old, folded rows.

    Without a readable log usage.sqlite holds the sums alone. `known` are the existing memories.
    """
    fold = fold_access_log(read_folded(folded), log, known)
    # The sums with their mark first, in one file: killed anywhere, no row counts twice, and none
    # is deleted that is not counted.
    sums = _drop_long_gone(fold.folded, known, as_of_us)
    write_text(folded, sums.to_json())
    mark, fault, pruned = fold.folded.mark, fold.fault, 0
    # Beyond the retention there are no single rows to count.
    window_days, window = min(window_days, RETENTION_DAYS), Window()
    if fault is None:
        # Removed or replaced since it was folded: the next night counts the new one.
        with suppress(sqlite3.Error):
            window = count_window(
                log,
                mark,
                known,
                recent_since_us=as_of_us - window_days * DAY_US,
                pairs_since_us=as_of_us - RETENTION_DAYS * DAY_US,
            )
    digest = write_usage(usage, sums, window, known, window_days=window_days, as_of_us=as_of_us)
    if fault is None:
        pruned, fault = prune_access_log(log, folded=mark, now_us=as_of_us)
    facts = {
        "retrievals": sum(n for n, _ in fold.by_memory.values()),
        "orphaned_retrievals": fold.orphaned,
        "fault": fault,
        "usage_digest": digest,
        "window_days": window_days,
        "recalled_in_window": len(window.recent),
        "co_retrieved_pairs": len(window.pairs),
        "co_retrieved_pairs_left_out": window.pairs_left_out,
    }
    notes = {"rows_folded": fold.rows, "rows_pruned": pruned}
    return StageOutput(len(fold.by_memory), facts, notes)
