"""From a source to the corpus on disk: every row counted exactly once."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from noctuary.core import formats
from noctuary.core.errors import SourceEmptyError, SourceError, StoreError
from noctuary.core.files import (
    fsync_dir,
    hash_file,
    hash_text,
    remove_tree,
    replacement,
    write_text,
)
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import CorpusSettings
from noctuary.core.store import StorePaths
from noctuary.core.tombstones import NOTHING_FORGOTTEN, Tombstones
from noctuary.core.types import SILENT, MemoryRecord, Progress, content_hash, corpus_digest
from noctuary.sources.corpus import (
    MEMORIES_FILE,
    QUARANTINE_FILE,
    TURNS_FILE,
    count_rows,
    open_duckdb,
    open_table,
    order_turns,
    record_row,
    turn_row,
)
from noctuary.sources.normalize import (
    FORGOTTEN,
    SHARES_ID,
    Rejected,
    accept,
    find_sensitivity,
    is_too_long,
)
from noctuary.sources.several import OWN
from noctuary.sources.source import QuarantineReason, QuarantineRow, RawRow, Source, SourceIdentity
from noctuary.text.secrets import find_text_sensitivity, read_rules

if TYPE_CHECKING:
    import polars as pl

    from noctuary.sources.echo import EchoGuard

# The report of an export: counts and reasons, never text of a row.

REPORT_FILE = "report.json"
REPORT_FORMAT = formats.EXPORT_REPORT.version


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The exact account of one export."""

    identity: SourceIdentity  # What was read
    source_rows: int  # Rows that the source counts; exported + quarantined + sensitive
    exported: int  # Rows of memories.parquet
    quarantined: Mapping[str, int]  # Reason to rows
    sensitive: Mapping[str, int]  # Reason to rows; nothing else is known of them
    warnings: Mapping[str, int]  # Name to occurrences: what was bent, oddities of the source
    turns: int  # Rows of turns.parquet
    retracted: int  # Sensitive rows that the export before still held
    corpus_digest: str  # SHA-256 over the content hashes in position order; equal for equal corpora
    files: Mapping[str, str]  # Name of each table to its SHA-256

    @property
    def quarantined_rows(self) -> int:
        """How many rows were set aside."""
        return sum(self.quarantined.values())

    @property
    def sensitive_rows(self) -> int:
        """How many rows stayed in the store because they are sensitive."""
        return sum(self.sensitive.values())

    def to_facts(self) -> dict[str, Any]:
        """Return the facts that the export stage shows."""
        names = ("source_rows", "exported", "turns", "corpus_digest")
        return {
            **{name: getattr(self, name) for name in names},
            "quarantined": self.quarantined_rows,
            "sensitive": self.sensitive_rows,
            "quarantined_by_reason": dict(self.quarantined),
            "sensitive_by_reason": dict(self.sensitive),
            "warnings": dict(self.warnings),
        }


def read_report(out_dir: Path) -> ExportReport:
    """Read the report of an export and check the digests of its tables."""
    path, found = out_dir / REPORT_FILE, None
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"There is no export at {out_dir}: run the night first.") from None
    except ValueError:
        pass
    value = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    if value.pop("format", None) != REPORT_FORMAT:
        raise StoreError(
            f"{path} is not an export report of format {REPORT_FORMAT}: run the night, which makes "
            "the export anew"
        )
    identity = cast("dict[str, Any]", value.pop("identity"))
    identity["notes"] = tuple(identity["notes"])
    report = ExportReport(identity=SourceIdentity(**identity), **value)
    for name, digest in report.files.items():
        path = out_dir / name
        if not path.is_file() or hash_file(path) != digest:
            raise StoreError(
                f"{path} is missing or does not match {REPORT_FILE} beside it: an "
                f"export was interrupted or a file was changed: run the night"
            )
    return report


# What changed between two exports, by id and content hash: the numbers of the nightly message.

_COMPARE = """
    SELECT count(*) FILTER (WHERE old.memory_id IS NULL),
           count(*) FILTER (WHERE old.content_hash <> new.content_hash),
           count(*) FILTER (WHERE new.memory_id IS NULL),
           count(*) FILTER (WHERE old.content_hash = new.content_hash)
    FROM (SELECT memory_id, content_hash FROM read_parquet(?)) AS old
    FULL OUTER JOIN (SELECT memory_id, content_hash FROM read_parquet(?)) AS new
      ON old.memory_id = new.memory_id
"""


class CorpusDiff(NamedTuple):
    """Counts of memories by what became of them."""

    added: int  # In the new export only
    edited: int  # In both, with different fields
    deleted: int  # In the old export only (deleted, quarantined or sensitive by now)
    unchanged: int  # In both, with equal fields


def diff_corpora(previous: Path | None, current: Path) -> CorpusDiff:
    """Compare two exports."""
    files = [p / MEMORIES_FILE if p.is_dir() else p for p in (previous, current) if p is not None]
    for file in files:
        if not file.is_file():
            raise StoreError(f"There is no corpus at {file}: run the export first.")
    if previous is None:
        return CorpusDiff(count_rows(files[0]), 0, 0, 0)
    with tempfile.TemporaryDirectory() as spill, open_duckdb(Path(spill)) as db:
        row = db.execute(_COMPARE, [str(file) for file in files]).fetchone()
    assert row is not None  # an aggregate always gives one row
    return CorpusDiff(*(int(value) for value in row))


@contextmanager
def previous_export(memories: Path) -> Generator[Path | None]:
    """Keep last night's table under another name for the comparison; nothing is copied."""
    kept = memories.with_name(".previous.parquet")
    # One that a failed night left still counts: what turned sensitive in that night is noticed.
    if not kept.is_file():
        if not memories.is_file():
            yield None
            return
        os.link(memories, kept)
        fsync_dir(memories.parent)  # before the table is replaced
    yield kept
    kept.unlink()
    fsync_dir(memories.parent)  # it holds texts that the source has lost since


# One pass in which every row is counted exactly once: memory, quarantined or sensitive.
#
# Sensitivity comes first. Of rows with one id the first is the memory and the others duplicates; if
# any is sensitive none leaves the store, as the others may be older texts of it. The guard is last.


@dataclass(slots=True)
class Tally:
    """The running counts of one pass; `retracted` rows were exported before they were sensitive."""

    quarantine: Callable[[QuarantineRow], object] | None = None  # Receives quarantined rows
    exported: int = 0
    quarantined: Counter[str] = field(default_factory=Counter[str])
    sensitive: Counter[str] = field(default_factory=Counter[str])
    warnings: Counter[str] = field(default_factory=Counter[str])
    retracted: int = 0

    @property
    def total(self) -> int:
        """Return how many rows have been judged."""
        return self.exported + self.quarantined.total() + self.sensitive.total()

    def set_aside(self, locator: str, reason: QuarantineReason, detail: str) -> None:
        """Count a row that is not a memory, and quarantine it."""
        self.quarantined[reason] += 1
        if self.quarantine is not None:
            self.quarantine(QuarantineRow(locator, reason, detail))


def sift(
    rows: Iterable[RawRow],
    tally: Tally,
    *,
    now_us: int,
    settings: CorpusSettings,
    previous_ids: Container[str] = frozenset(),
    guard: EchoGuard | None = None,
    forgotten: Tombstones = NOTHING_FORGOTTEN,
) -> Iterator[MemoryRecord]:
    """Yield the memories among the rows, positions 0, 1, 2, ... in the order of the rows.

    Rows of one id are adjacent; a forgotten one counts as sensitive. The tally is complete once the
    iterator is exhausted; `previous_ids` are those of an earlier export, so that rows which turned
    sensitive are noticed.
    """
    for key, found in groupby(rows, key=lambda row: row.key):
        first, duplicates, is_sensitive = _judge_rows(found, tally, settings.max_content_bytes)
        was_exported = key is not None and str(key) in previous_ids
        if is_sensitive or first is None:
            tally.retracted += was_exported
            if first is not None:
                tally.sensitive[SHARES_ID] += 1 + len(duplicates)
            continue
        for locator in duplicates:
            tally.set_aside(locator, QuarantineReason.DUPLICATE_ID, f"first at {first.locator}")
        try:
            made = accept(first, position=tally.exported, now_us=now_us, settings=settings)
            is_forgotten = forgotten.holds(made.record)
            record = made.record
            if guard is not None and not is_forgotten:
                record = _guarded(record, guard, tally)
        except Rejected as rejected:
            tally.set_aside(first.locator, rejected.reason, rejected.detail)
            continue
        reason = FORGOTTEN if is_forgotten else _find_made_sensitivity(first, record)
        if reason is not None:
            tally.sensitive[reason] += 1
            # Another text may have had the id of a forgotten one, which went with its snapshots.
            tally.retracted += was_exported and not is_forgotten
            continue
        tally.exported += 1
        tally.warnings.update(made.warnings)
        yield record


def _judge_rows(
    rows: Iterable[RawRow], tally: Tally, max_bytes: int
) -> tuple[RawRow | None, list[str], bool]:
    """Count the rows of one id, or without one, that are sensitive or unreadable.

    Returns the first clean row, the locators of its duplicates, and whether any is sensitive.
    """
    first, duplicates, is_sensitive, is_unscanned = None, list[str](), False, False
    for row in rows:
        reason = find_sensitivity(row, max_bytes)
        is_unscanned |= is_too_long(row, max_bytes)
        if reason is not None:
            tally.sensitive[reason] += 1
            is_sensitive = True
        elif row.key is None:
            why = row.problem or QuarantineReason.BAD_ID
            tally.set_aside(row.locator, why, row.problem_detail)
        elif first is None:
            first = row
        else:
            duplicates.append(row.locator)
    # In doubt it is sensitive: a duplicate that was too long to be scanned may be.
    return first, duplicates, is_sensitive or (is_unscanned and bool(duplicates))


def _guarded(record: MemoryRecord, guard: EchoGuard, tally: Tally) -> MemoryRecord:
    """Strip injected blocks; reject the memory if nothing else remains."""
    found = guard.judge(record)
    if found.text is None:
        is_echo = found.lines > 0
        why = QuarantineReason.INJECTED_LINES if is_echo else QuarantineReason.INJECTED_BLOCK
        raise Rejected(why, f"content: {found.blocks} blocks, {found.lines} lines")
    tally.warnings["injected_block_cut"] += found.blocks > 0
    tally.warnings["injected_lines_cut"] += found.lines > 0
    if found.text == record.content:
        return record
    own = record._replace(content=found.text)
    return own._replace(content_hash=content_hash(own))


def _find_made_sensitivity(row: RawRow, record: MemoryRecord) -> str | None:
    """Scan texts that were joined or cut, which can make a secret."""
    names = ("content", "category", "tags", "expanded_keywords")
    texts = {name: getattr(record, name) for name in names}
    made = [text for name, text in texts.items() if text and row.fields.get(name) != text]
    return next(filter(None, map(find_text_sensitivity, made)), None)


# The check of an export: the secret scan again, on every text of every table.

# Columns that noctuary computed of the others: hexadecimal, and a third of the time to scan.
_DIGESTS = frozenset({"content_hash"})
PLACES_SHOWN = 10  # places that a report names; the count is always whole


def scan_tables(directory: Path) -> dict[str, Any]:
    """Scan every text column of every Parquet file of a directory.

    Returns how many `tables` and `texts` there are, how many were `found` to be sensitive, by
    `reasons`, and the first `places`; no text.
    """
    import polars as pl
    import pyarrow.parquet as pq

    files = sorted(path for path in directory.glob("*.parquet") if not path.name.startswith("."))
    texts, reasons, places = 0, Counter[str](), list[str]()
    for path in files:
        with pq.ParquetFile(path) as opened:
            first = 0
            for group in range(opened.num_row_groups):
                rows = pl.DataFrame(opened.read_row_group(group))
                for column in rows.drop(_DIGESTS, strict=False):
                    held, found = _scan_column(column)
                    texts += held
                    reasons.update(reason for _, reason in found)
                    places += [f"{path.stem}.{column.name} row {first + at}" for at, _ in found]
                first += rows.height
    return {
        "tables": len(files),
        "texts": texts,
        "found": reasons.total(),
        "reasons": dict(sorted(reasons.items())),
        "places": ", ".join(places[:PLACES_SHOWN]),
    }


def rules_digest() -> str:
    """Return the digest of the code and rules of the scan."""
    return hash_text(Path(__file__).read_text("utf-8"), *read_rules())


def _scan_column(column: pl.Series) -> tuple[int, list[tuple[int, str]]]:
    """Return how many texts a column holds, and (row, reason) of those that read like secrets."""
    import polars as pl

    rows = column.alias("text").to_frame().with_row_index("row")
    if column.dtype == pl.List:
        rows = rows.explode("text")
    if not isinstance(rows.schema["text"], pl.String | pl.Categorical):
        return 0, []
    texts = rows.cast({"text": pl.String}).drop_nulls()
    # Categories, users and sessions repeat; contents are held by the column anyway.
    reasons = {text: find_text_sensitivity(text) for text in texts["text"].unique()}
    found = {text: reason for text, reason in reasons.items() if reason is not None}
    hits = texts.filter(pl.col("text").is_in(list(found)))
    return texts.height, [(row, found[text]) for row, text in hits.iter_rows()]


def refuse_emptied(
    source: Source, last: Path, paths: StorePaths, forgotten: Tombstones = NOTHING_FORGOTTEN
) -> None:
    """Raise SourceEmptyError for a source without a row where a snapshot with rows serves.

    Its rows may all be forgotten, as far as that is not finished.
    """
    own = source.own
    identity = own.identity()
    if identity.members:
        _refuse_emptied_member(identity, last, forgotten.ids)
    if identity.members or own.count():
        return
    with suppress(StoreError):
        # The store itself was empty at the last export too, and only turns were kept.
        rows = read_report(last).identity.marker.get("rows")
        if isinstance(rows, int) and rows <= len(forgotten.ids) and (rows or own is not source):
            return
    with suppress(StoreError):
        serving = read_pointer(paths).snapshot_id
        held = read_manifest(paths.snapshots / serving).counts["memories"]
        if held > len(forgotten.ids):
            raise SourceEmptyError(
                f"{identity.location} holds no row any more, but snapshot {serving} holds "
                f"{held:,} memories: it keeps serving and nothing was published. If the store was "
                f"emptied on purpose, remove {paths.root}"
            )


def _refuse_emptied_member(
    identity: SourceIdentity, last: Path, forgotten: Collection[str]
) -> None:
    """Raise SourceEmptyError for one of several stores that has no row any more."""
    known: Mapping[str, Mapping[str, int | str]] = {}
    with suppress(StoreError):
        known = read_report(last).identity.members
    for name, held in known.items():
        now = identity.members.get(name)
        # All that was remembered may have been forgotten, as long as the file exists.
        if now is None or now["rows"] or not held["rows"] or (name == OWN and "last_id" in now):
            continue
        if int(held["rows"]) <= sum(one.startswith(f"{name}:") for one in forgotten):
            continue
        raise SourceEmptyError(
            f"the source {name!r} ({now['location']}) holds no row any more, but held "
            f"{held['rows']:,} when it was read last: the last snapshot keeps serving and nothing "
            f"was published. If it was emptied on purpose, take its line out of "
            f"{identity.location}"
        )


# From a source to the corpus on disk, whole or not at all: tables are staged in the same folder,
# and report.json goes last with their digests, so that `read_report` sees a crash between two
# moves.

TASK = "export"
REPORTED_ROWS = 1_000  # rows between two reports of progress
_STAGING = ".export.tmp"
_UNORDERED_TURNS = "turns-unordered.parquet"
_FILES = (MEMORIES_FILE, TURNS_FILE, QUARANTINE_FILE)


def export_corpus(
    source: Source,
    out_dir: Path,
    settings: CorpusSettings | None = None,
    *,
    now_us: int | None = None,
    progress: Progress = SILENT,
    previous_ids: Container[str] = frozenset(),
    guard: EchoGuard | None = None,
    forgotten: Tombstones = NOTHING_FORGOTTEN,
) -> ExportReport:
    """Export every memory that may leave its store and account for every row that did not.

    The caller holds the store's lock. SourceError where the source cannot be read to its end or
    gave another number of rows than it counted; the previous export then stays.
    """
    staging = out_dir / _STAGING
    remove_tree(staging)  # what a killed export left behind
    staging.mkdir(parents=True)
    try:
        with (
            open_table(staging / MEMORIES_FILE, MEMORIES_FILE) as memories,
            open_table(staging / _UNORDERED_TURNS, TURNS_FILE) as turns,
            open_table(staging / QUARANTINE_FILE, QUARANTINE_FILE) as quarantine,
        ):

            def write(records: Iterable[MemoryRecord]) -> Iterator[str]:
                for record in records:
                    memories(record_row(record))
                    if record.is_turn:
                        turns(turn_row(record))
                    yield record.content_hash

            tally = Tally(quarantine)
            found = sift(
                _rows(source, progress),
                tally,
                now_us=time.time_ns() // 1000 if now_us is None else now_us,
                settings=settings or CorpusSettings(),
                previous_ids=previous_ids,
                guard=guard,
                forgotten=forgotten,
            )
            digest = corpus_digest(write(found))
        n_turns = order_turns(staging / _UNORDERED_TURNS, staging / TURNS_FILE)
        report = _account(source, tally, digest, n_turns, staging)
        for name in _FILES:
            with replacement(out_dir / name) as tmp:
                (staging / name).replace(tmp)
        # As the last file of an export. ASCII: a path may hold bytes that are no text.
        value = {"format": REPORT_FORMAT, **asdict(report)}
        write_text(out_dir / REPORT_FILE, json.dumps(value, indent=2, sort_keys=True) + "\n")
    finally:
        remove_tree(staging)
    return report


def _rows(source: Source, progress: Progress) -> Iterator[RawRow]:
    total, done = source.count(), 0
    for done, row in enumerate(source.rows(), start=1):
        yield row
        if done % REPORTED_ROWS == 0:
            progress.update(TASK, done, total)
    if done % REPORTED_ROWS:
        progress.update(TASK, done, total)


def _account(source: Source, tally: Tally, digest: str, turns: int, staging: Path) -> ExportReport:
    source_rows, identity = source.count(), source.identity()
    if tally.total != source_rows:
        raise SourceError(
            f"{identity.location} counts {source_rows} rows but gave {tally.total} "
            f"({tally.exported} exported, {tally.quarantined.total()} quarantined, "
            f"{tally.sensitive.total()} sensitive). Nothing was written; run again, and report "
            f"this if it stays."
        )
    warnings = tally.warnings.copy()
    warnings.update(identity.notes)
    if tally.exported == 0:
        warnings["nothing_exported" if source_rows else "source_empty"] = 1
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
