"""From the access log to usage.sqlite: folding, windows, LTP scores, retention."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from noctuary.core.errors import StoreError
from noctuary.core.files import replace_with, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.sqlite import connect_immutable, delete_rows, filling, open_log
from noctuary.core.types import fire
from noctuary.sources.corpus import MemoryPage
from noctuary.usage.access_log import ACCESS_LOG
from noctuary.usage.reader import (
    AS_OF_US,
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

# Folding the access log from where the last night stopped. Build side.
#
# The sums outlive the rows they were made of.


_FORMAT = 2
_FORMAT_WITHOUT_DAYS = 1

_DAY_US = 86_400_000_000

_SUMS = (
    f"SELECT memory_id, retrieved_at_us / {_DAY_US}, COUNT(*), MAX(retrieved_at_us) "
    "FROM retrievals WHERE {which} GROUP BY 1, 2 ORDER BY 1, 2"
)


@dataclass(frozen=True, slots=True)
class Mark:
    """Up to where a log was folded.

    Attributes:
        log_id: The log's application_id: one that is made after a deletion has another.
        position: The last row that was folded; 0 before the first.
        at_us: The latest retrieval that was folded, microseconds since the epoch.
    """

    log_id: int = 0
    position: int = 0
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class Folded:
    """Every retrieval that was ever folded, as sums.

    Attributes:
        by_memory: memory_id -> (retrievals, last retrieval in microseconds), of all memories that
            the log ever named.
        mark: Up to where the log is in them.
        days: memory_id -> (distinct days of retrieval, the last of them as days since the epoch).
            Days are counted forward: a row that arrives after a later day was counted adds none.
    """

    by_memory: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    mark: Mark = Mark()
    days: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])

    def to_json(self) -> str:
        """Return the text that `parse` reads."""
        mark = [self.mark.log_id, self.mark.position, self.mark.at_us]
        content = {
            "format": _FORMAT,
            "mark": mark,
            "by_memory": self.by_memory,
            "days": self.days,
        }
        return json.dumps(content, sort_keys=True) + "\n"


def parse_folded(text: str) -> Folded | None:
    """Return what `Folded.to_json` wrote, in this version or the one before; else None.

    Format 1 did not count days: a memory has at least the one of its last retrieval.
    """
    try:
        content: dict[str, Any] = parse_json(text)
        if content["format"] not in (_FORMAT, _FORMAT_WITHOUT_DAYS):
            return None
        log_id, position, at_us = map(int, content["mark"])
        sums = {m: (int(n), int(last)) for m, (n, last) in content["by_memory"].items()}
        if content["format"] == _FORMAT_WITHOUT_DAYS:
            days = {m: (1, last // _DAY_US) for m, (_, last) in sums.items()}
        else:
            days = {m: (int(n), int(last)) for m, (n, last) in content["days"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if days.keys() != sums.keys():
        return None
    return Folded(sums, Mark(log_id, position, at_us), days)


def read_folded(path: Path) -> Folded:
    """Return what the nights before have folded.

    Nothing, if the file is missing or damaged: the whole log that is left is folded then.
    """
    try:
        return parse_folded(path.read_text(encoding="utf-8")) or Folded()
    except (OSError, ValueError):
        return Folded()


def fold_on(before: Folded, log_path: Path) -> tuple[Folded, int]:
    """Add the rows of the log that are not in the sums yet.

    A log that took the place of the one folded before is added as a whole; one that was put back
    from a backup from the latest moment on that was folded.

    Returns:
        The new sums and how many rows were added. A missing log adds nothing.

    Raises:
        sqlite3.Error: If the log cannot be read.
    """
    if not log_path.exists():
        return before, 0
    with closing(open_log(log_path, ACCESS_LOG)) as log:
        # One transaction: the mark and the sums are of the same moment, whoever appends meanwhile.
        log.execute("BEGIN")
        log_id: int = log.execute("PRAGMA application_id").fetchone()[0]
        position = _last_position(log)
        known = before.mark.log_id == log_id
        which, start = "position > ?", before.mark.position if known else 0
        if known and _was_put_back(log, before.mark, position):
            which, start = "retrieved_at_us > ?", before.mark.at_us
        rows = log.execute(_SUMS.format(which=which), [start])
        return _add(before, rows, Mark(log_id, position, before.mark.at_us))


def _last_position(log: sqlite3.Connection) -> int:
    """Return the highest position that was ever given: the last row may have been deleted."""
    last = log.execute("SELECT COALESCE(MAX(position), 0) FROM retrievals").fetchone()[0]
    given = log.execute("SELECT seq FROM sqlite_sequence WHERE name = 'retrievals'").fetchone()
    return max(last, given[0] if given else 0)


def _was_put_back(log: sqlite3.Connection, mark: Mark, position: int) -> bool:
    """Tell whether positions that were folded are gone or were given again.

    A row at the mark that is later than everything folded cannot have been folded.
    """
    at = log.execute("SELECT retrieved_at_us FROM retrievals WHERE position = ?", [mark.position])
    row = at.fetchone()
    return position < mark.position or (row is not None and row[0] > mark.at_us)


def _add(
    before: Folded, rows: Iterable[tuple[str, int, int, int]], mark: Mark
) -> tuple[Folded, int]:
    """Add rows of (memory, day, retrievals, last), ordered by memory and day; count them too."""
    sums, days, added, latest_us = dict(before.by_memory), dict(before.days), 0, mark.at_us
    for memory_id, day, count, last_us in rows:
        seen, before_us = sums.get(memory_id, (0, last_us))
        sums[memory_id] = (seen + count, max(before_us, last_us))
        counted, last_day = days.get(memory_id, (0, day - 1))
        if day > last_day:
            days[memory_id] = (counted + 1, day)
        added += count
        latest_us = max(latest_us, last_us)
    return Folded(sums, Mark(mark.log_id, mark.position, latest_us), days), added


# What the log still holds of the last weeks: recent retrievals, and what was recalled together.
#
# Build side.
#
# Memory stays bounded whatever the log holds: SQLite counts in temporary tables, which spill.


CO_RETRIEVAL_RANKS = 10
"""Only the best so many answers of a recall count as recalled together: 45 pairs at most. More
links what merely filled a long list, fewer misses the tail of an ordinary one."""

CO_RETRIEVAL_PAIRS = 200_000
"""Pairs kept, the most frequent and among those the newest (about 10 MB); more remembers looser
ties, fewer makes the file that recall reads smaller."""

_RECENT = (
    "SELECT memory_id, COUNT(*) FROM retrievals "
    "WHERE position <= ? AND retrieved_at_us >= ? AND known(memory_id) GROUP BY memory_id"
)
# The rows of one recall were appended in one go, of one snapshot and time, ranks rising.
_MEMBERS = f"""
    CREATE TEMP TABLE members AS
    WITH best AS (
        SELECT *, rank <= lag(rank) OVER log OR (snapshot_id, retrieved_at_us)
            IS NOT (lag(snapshot_id) OVER log, lag(retrieved_at_us) OVER log) AS begins
        FROM retrievals
        WHERE position <= ? AND retrieved_at_us >= ? AND rank <= {CO_RETRIEVAL_RANKS}
        WINDOW log AS (ORDER BY position)
    ),
    numbered AS (SELECT *, sum(begins) OVER (ORDER BY position) AS recall FROM best)
    SELECT DISTINCT recall, memory_id, retrieved_at_us FROM numbered WHERE known(memory_id)
    ORDER BY recall
"""
_PAIRS = """
    CREATE TEMP TABLE pairs AS
    SELECT a.memory_id AS a, b.memory_id AS b, COUNT(*) AS count, MAX(a.retrieved_at_us) AS newest
    FROM members a JOIN members b ON a.recall = b.recall AND a.memory_id < b.memory_id
    GROUP BY 1, 2
"""
_KEPT_PAIRS = """
    SELECT a, b, count FROM (SELECT * FROM pairs ORDER BY count DESC, newest DESC, a, b LIMIT ?)
    ORDER BY a, b
"""

Pair = tuple[str, str, int]
"""Two memories, a < b, and how many recalls returned both."""


@dataclass(frozen=True, slots=True)
class Window:
    """What was counted in the log's rows.

    Attributes:
        recent: memory_id -> retrievals inside the LTP window.
        pairs: What was recalled together while the log remembers, ordered by both ids.
        pairs_left_out: Pairs beyond `CO_RETRIEVAL_PAIRS`.
    """

    recent: dict[str, int] = field(default_factory=dict[str, int])
    pairs: list[Pair] = field(default_factory=list[Pair])
    pairs_left_out: int = 0


def count_window(
    log_path: Path,
    folded: Mark,
    known: Collection[str],
    *,
    recent_since_us: int,
    pairs_since_us: int,
) -> Window:
    """Count what the log holds of the memories that exist.

    Args:
        log_path: The log; a missing one, or another than was folded, counts nothing.
        folded: Up to where rows count, so that sums and window are of one moment.
        known: The memories that exist now; fast to look into.
        recent_since_us: Where the LTP window begins, inclusive.
        pairs_since_us: From when on co-retrievals count, inclusive.

    Raises:
        sqlite3.Error: If the log cannot be read.
    """
    with closing(open_log(log_path, ACCESS_LOG, or_empty=True)) as log:
        log.execute("BEGIN")
        if log.execute("PRAGMA application_id").fetchone()[0] != folded.log_id:
            return Window()
        log.create_function("known", 1, known.__contains__, deterministic=True)
        recent = dict(log.execute(_RECENT, [folded.position, recent_since_us]))
        log.execute(_MEMBERS, [folded.position, pairs_since_us])
        log.execute(_PAIRS)
        (total,) = log.execute("SELECT COUNT(*) FROM pairs").fetchone()
        pairs = log.execute(_KEPT_PAIRS, [CO_RETRIEVAL_PAIRS]).fetchall()
    return Window(recent, pairs, total - len(pairs))


# Access statistics: what was folded from the access log, for the memories that exist. Build side.


@dataclass(frozen=True, slots=True)
class AccessStatistics:
    """How often and when memories were returned.

    Attributes:
        by_memory: memory_id -> (retrievals, last retrieval in microseconds), existing memories
            only, in order of their ids.
        orphaned: Retrievals of memories that the store no longer has.
        log_position: The last row folded.
        fault: Why the log could not be read, or None.
    """

    by_memory: dict[str, tuple[int, int]]
    orphaned: int
    log_position: int
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """What one night made of the log.

    Attributes:
        folded: The sums for the next night to go on from.
        statistics: The numbers for the memories that exist now.
        rows: How many rows were read.
    """

    folded: Folded
    statistics: AccessStatistics
    rows: int


def fold_access_log(path: Path, known_ids: Collection[str]) -> AccessStatistics:
    """Fold the whole log.

    A missing log is an empty one, a damaged log is reported and counts nothing.
    """
    return fold_access_log_on(Folded(), path, known_ids).statistics


def fold_access_log_on(before: Folded, path: Path, known_ids: Collection[str]) -> Fold:
    """Fold what was appended since `before`.

    A missing log adds nothing, a damaged log is reported and adds nothing.

    Args:
        before: What the nights before have folded.
        path: The log.
        known_ids: The memories that exist now.
    """
    fault = None
    try:
        after, rows = fold_on(before, path)
    except sqlite3.Error as error:
        after, rows = before, 0
        fault = f"the access log at {path.name} cannot be read: {error}"
    known = set(known_ids)
    sums = sorted(after.by_memory.items())
    by_memory = {m: counted for m, counted in sums if m in known}
    orphaned = sum(count for m, (count, _) in sums if m not in known)
    statistics = AccessStatistics(by_memory, orphaned, after.mark.position, fault)
    return Fold(after, statistics, rows)


# Writing usage.sqlite: the counts that recall may read. Build side.
#
# Only memories that exist are written: one that was deleted, or turned sensitive, is gone from the
# file with the next night.


_CARRIED_AT_ONCE = 20_000
"""Scores of the file before held at once, some 5 MB."""


def write_usage(
    path: Path,
    folded: Folded,
    window: Window,
    known: Collection[str],
    *,
    window_days: int,
    as_of_us: int,
) -> str:
    """Replace usage.sqlite; LTP scores of the file before stay where their memory does.

    Args:
        path: The file.
        folded: The sums over all time.
        window: The counts of the last weeks.
        known: The memories that exist now; fast to look into.
        window_days: What `window.recent` covers.
        as_of_us: The moment of counting.

    Returns:
        The digest of what recall can learn from it.
    """
    access = [
        (m, folded.by_memory[m][0], window.recent.get(m, 0), folded.days[m][0], last_us)
        for m, (_, last_us) in sorted(folded.by_memory.items())
        if m in known
    ]
    pairs = [pair for pair in window.pairs if pair[0] in known and pair[1] in known]
    hashed = hashlib.sha256(repr((FORMAT, window_days)).encode())
    for row in (*access, *pairs):
        hashed.update(repr(row).encode())
    meta = {WINDOW_DAYS: window_days, AS_OF_US: as_of_us, DIGEST: hashed.hexdigest()}

    def write(tmp: Path) -> None:
        with filling(tmp, SCHEMA) as db:
            db.executemany("INSERT INTO access VALUES (?, ?, ?, ?, ?)", access)
            db.executemany("INSERT INTO co_retrieval VALUES (?, ?, ?)", pairs)
            db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            _carry_scores(path, db, known)

    replace_with(path, write)
    return str(meta[DIGEST])


def _carry_scores(before: Path, db: sqlite3.Connection, known: Collection[str]) -> None:
    """Take over the scores, and how far the last scan got; of a damaged file what can be read."""
    if not before.exists():
        return
    with closing(connect_immutable(before)) as old:
        if [(FORMAT,)] not in _read(old, "PRAGMA user_version"):
            return
        for rows in _read(old, "SELECT * FROM ltp ORDER BY memory_id"):
            kept = [row for row in rows if row[0] in known]
            db.executemany("INSERT OR IGNORE INTO ltp VALUES (?, ?, ?, ?, ?)", kept)
        for rows in _read(old, "SELECT * FROM meta"):
            db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", rows)


def _read(db: sqlite3.Connection, sql: str) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows until there are no more, or none that can be read."""
    with suppress(sqlite3.Error):
        cursor = db.execute(sql)
        while rows := cursor.fetchmany(_CARRIED_AT_ONCE):
            yield rows


# LTP scores of every memory, page by page, into usage.sqlite (RFC 914, phase 14). Build side.
#
# The RFC updates what was filed since the last scan; that misses an old memory whose use changed,
# or whose retrievals have left the window. Here each row's values are compared with what stands in
# the file: what differs is written, the rest is counted as unchanged, and no scan can leave a
# stale row.
#
# A bounded scan goes on at the next night where it stopped, so that every memory has its turn.


ReadPages = Callable[[int, int], Iterable[MemoryPage]]
"""(first, stop) -> the memories with first <= position < stop, a batch at a time."""

_Row = tuple[str, float, float, float, int]

# A row that says the same already is not counted as written.
_UPSERT = """
    INSERT INTO ltp VALUES (?, ?, ?, ?, ?) ON CONFLICT (memory_id) DO UPDATE SET
        (ltp_multiplier, ltp_score, decayed_score, last_accessed_us) = (excluded.ltp_multiplier,
        excluded.ltp_score, excluded.decayed_score, excluded.last_accessed_us)
    WHERE (ltp_multiplier, ltp_score, decayed_score, ltp.last_accessed_us) IS NOT
        (excluded.ltp_multiplier, excluded.ltp_score, excluded.decayed_score,
        excluded.last_accessed_us)
"""


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

    def to_notes(self) -> dict[str, Any]:
        """Return what the stage says of tonight's scan."""
        updated = sum(self.updated)
        return {
            "ltp_updated": updated,
            "ltp_skipped_unchanged": self.scanned - updated,
            "warning": self.warning,
            "hook_faults": "; ".join(self.hook_faults) or None,
            "paginated_scoring": self.timings.report(),
            "pagination_state": self.pagination_state(),
            "batches": {"batches": self.batches()},
        }

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
        with filling(tmp) as db:
            for first, stop in _ranges(db, total, rules.max_scan_depth):
                for page in read_pages(first, stop):
                    _scan_page(db, page, rules, as_of_us, report)
            _finish(db, report)

    _require_readable(path)
    replace_with(path, write)
    return report


def _require_readable(path: Path) -> None:
    usage = UsageReader(path)
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
    updated = db.executemany(_UPSERT, _scores(db, page, rules, as_of_us)).rowcount
    elapsed_ms = (time.perf_counter() - started) * 1000
    size = len(page.memory_ids)
    context = {
        "batch_index": len(report.updated),
        "offset": page.first,
        "batch_size": size,
        "ltp_updates": updated,
    }
    report.updated.append(updated)
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


def _finish(db: sqlite3.Connection, report: ScanReport) -> None:
    meta = {
        NOT_SCANNED: report.not_scanned,
        RESUME_AT: report.last_offset if report.not_scanned else 0,
    }
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", meta.items())
    report.in_use = db.execute("SELECT COUNT(*) FROM ltp WHERE ltp_score > 0").fetchone()[0]


# How long the access log keeps single retrievals. Build side.


RETENTION_DAYS = 90
"""How long a single retrieval can be looked up; longer keeps a finer history, shorter keeps less
about a person and a smaller file (about 100 bytes per row)."""


def prune_access_log(path: Path, *, folded: Mark, now_us: int) -> tuple[int, str | None]:
    """Delete the rows that are older than the retention and in the sums already.

    Args:
        path: The log.
        folded: Up to where the log is in the sums that are safely on disk. Another log than that
            one keeps every row.
        now_us: The present, microseconds since the epoch.

    Returns:
        How many rows were deleted, and what went wrong or None: the next night goes on.
    """
    where = (
        "position <= ? AND retrieved_at_us < ? "
        "AND (SELECT application_id FROM pragma_application_id) = ?"
    )
    values = (folded.position, now_us - RETENTION_DAYS * _DAY_US, folded.log_id)
    return delete_rows(path, ACCESS_LOG, "retrievals", "position", where, values)


def fold_usage(
    folded: Path,
    log: Path,
    usage: Path,
    known: Collection[str],
    window_days: int,
    as_of_us: int,
) -> StageOutput:
    """Fold what recall appended to the log, write usage.sqlite, and delete what is old and folded.

    Args:
        folded: The sums of the nights before; those with tonight's replace them.
        log: The access log.
        usage: usage.sqlite; without a readable log it holds the sums alone.
        known: The memories that exist now; fast to look into.
        window_days: Of the LTP window; beyond the retention there are no single rows to count.
        as_of_us: The moment of counting.
    """
    fold = fold_access_log_on(read_folded(folded), log, known)
    # The sums with their mark first, in one file: killed anywhere, no row counts twice, and none
    # is deleted that is not counted.
    write_text(folded, fold.folded.to_json())
    mark, fault, pruned = fold.folded.mark, fold.statistics.fault, 0
    window_days, window = min(window_days, RETENTION_DAYS), Window()
    if fault is None:
        # Removed or replaced since it was folded: the next night counts the new one.
        with suppress(sqlite3.Error):
            window = count_window(
                log,
                mark,
                known,
                recent_since_us=as_of_us - window_days * _DAY_US,
                pairs_since_us=as_of_us - RETENTION_DAYS * _DAY_US,
            )
    digest = write_usage(
        usage, fold.folded, window, known, window_days=window_days, as_of_us=as_of_us
    )
    if fault is None:
        pruned, fault = prune_access_log(log, folded=mark, now_us=as_of_us)
    facts = {
        "retrievals": sum(n for n, _ in fold.statistics.by_memory.values()),
        "orphaned_retrievals": fold.statistics.orphaned,
        "fault": fault,
        "usage_digest": digest,
        "window_days": window_days,
        "recalled_in_window": len(window.recent),
        "co_retrieved_pairs": len(window.pairs),
        "co_retrieved_pairs_left_out": window.pairs_left_out,
    }
    notes = {"rows_folded": fold.rows, "rows_pruned": pruned}
    return StageOutput(len(fold.statistics.by_memory), facts, notes)
