"""Export a source to the corpus on disk, counting every row exactly once."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import lru_cache
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
    sha256,
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
from noctuary.text.secrets import Scan, find_text_sensitivity, read_rules
from noctuary.work.content import ContentStore

if TYPE_CHECKING:
    import polars as pl

    from noctuary.sources.echo import EchoGuard

# The report of an export: counts and reasons, never the text of a row.

REPORT_FILE = "report.json"
REPORT_FORMAT = formats.EXPORT_REPORT.version


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The counts and digests of one export."""

    identity: SourceIdentity  # The source
    source_rows: int  # Rows that the source counts; exported + quarantined + sensitive
    exported: int  # Rows of memories.parquet
    quarantined: Mapping[str, int]  # Reason to rows
    sensitive: Mapping[str, int]  # Reason to rows; nothing else is kept of them
    warnings: Mapping[str, int]  # Name to occurrences: adjusted values, oddities of the source
    turns: int  # Rows of turns.parquet
    retracted: int  # Rows sensitive now that the previous export still held
    corpus_digest: str  # SHA-256 over the content hashes in position order; equal for equal corpora
    files: Mapping[str, str]  # Name of each table to its SHA-256

    @property
    def quarantined_rows(self) -> int:
        """Return the number of rows that were quarantined."""
        return sum(self.quarantined.values())

    @property
    def sensitive_rows(self) -> int:
        """Return the number of rows left in the store because they are sensitive."""
        return sum(self.sensitive.values())

    def to_facts(self) -> dict[str, Any]:
        """Return the counts that the export stage reports."""
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
    """Read the report of an export and verify the digests of its tables; StoreError if not."""
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
            f"{path} is not an export report of format {REPORT_FORMAT}: run the night, which "
            "exports again"
        )
    identity = cast("dict[str, Any]", value.pop("identity"))
    identity["notes"] = tuple(identity["notes"])
    report = ExportReport(identity=SourceIdentity(**identity), **value)
    for name, digest in report.files.items():
        path = out_dir / name
        if not path.is_file() or hash_file(path) != digest:
            raise StoreError(
                f"{path} is missing or does not match {REPORT_FILE} in its folder: an "
                f"export was interrupted or a file was changed: run the night"
            )
    return report


# Compare two exports by id and content hash, for the counts of the nightly message.

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
    """Counts of added, edited, deleted and unchanged memories between two exports."""

    added: int  # In the new export only
    edited: int  # In both, with different fields
    deleted: int  # In the old export only (deleted, quarantined or sensitive now)
    unchanged: int  # In both, with equal fields


def diff_corpora(previous: Path | None, current: Path) -> CorpusDiff:
    """Count memories added, edited, deleted and unchanged since `previous` (None: all added)."""
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
    """Keep last night's table as a hard link while a new export replaces it; yield its path."""
    kept = memories.with_name(".previous.parquet")
    # One left by a failed night still counts: rows that turned sensitive in it are noticed.
    if not kept.is_file():
        if not memories.is_file():
            yield None
            return
        os.link(memories, kept)
        fsync_dir(memories.parent)  # before the table is replaced
    yield kept
    kept.unlink()
    fsync_dir(memories.parent)  # it holds texts that the source has deleted since


# One pass in which every row is counted exactly once: memory, quarantined or sensitive.
#
# Sensitivity is checked first. Of rows with one id the first is the memory and the others are
# duplicates; if any is sensitive, none is exported, as the others may be older texts of it. The
# echo guard runs last.


@dataclass(slots=True)
class Tally:
    """Running counts of one pass; `retracted`: exported earlier and sensitive now."""

    quarantine: Callable[[QuarantineRow], object] | None = None  # Called with quarantined rows
    exported: int = 0
    quarantined: Counter[str] = field(default_factory=Counter[str])
    sensitive: Counter[str] = field(default_factory=Counter[str])
    warnings: Counter[str] = field(default_factory=Counter[str])
    retracted: int = 0

    @property
    def total(self) -> int:
        """Return the number of rows counted so far, in any category."""
        return self.exported + self.quarantined.total() + self.sensitive.total()

    def set_aside(self, locator: str, reason: QuarantineReason, detail: str) -> None:
        """Count a row that is not a memory, and pass it to `quarantine`."""
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
    scan: Scan = find_text_sensitivity,
) -> Iterator[MemoryRecord]:
    """Yield the memories among the rows, with positions 0, 1, 2, ... in row order.

    Rows of one id must be adjacent; a forgotten memory counts as sensitive. The tally is complete
    once the iterator is exhausted. `previous_ids` are the ids of the previous export, used to count
    rows that have turned sensitive.
    """
    for key, found in groupby(
        _find_sensitive(rows, tally, settings.max_content_bytes, scan),
        key=lambda judged: judged[0].key,
    ):
        first, duplicates, is_sensitive = _first_clean(found, settings.max_content_bytes)
        if is_sensitive or first is None:
            tally.retracted += str(key) in previous_ids
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
                record = _strip_injected(record, guard, tally)
        except Rejected as rejected:
            tally.set_aside(first.locator, rejected.reason, rejected.detail)
            continue
        reason = FORGOTTEN if is_forgotten else _find_made_sensitivity(first, record)
        if reason is not None:
            tally.sensitive[reason] += 1
            # The id of a forgotten memory may have been reused; its snapshots are gone already.
            tally.retracted += not is_forgotten and str(key) in previous_ids
            continue
        tally.exported += 1
        tally.warnings.update(made.warnings)
        yield record


Judged = tuple[RawRow, str | None]
"""A row, and why it is sensitive (or None)."""


def _find_sensitive(
    rows: Iterable[RawRow], tally: Tally, max_bytes: int, scan: Scan
) -> Iterator[Judged]:
    """Yield each row that has an id with its reason if sensitive; count rows without an id."""
    # Rows of one id may have rows without an id between them.
    for row in rows:
        reason = find_sensitivity(row, max_bytes, scan)
        if reason is not None:
            tally.sensitive[reason] += 1
        if row.key is not None:
            yield row, reason
        elif reason is None:
            why = row.problem or QuarantineReason.BAD_ID
            tally.set_aside(row.locator, why, row.problem_detail)


def _first_clean(found: Iterable[Judged], max_bytes: int) -> tuple[RawRow | None, list[str], bool]:
    """Return the first clean row of an id, the locators of others, and whether any is sensitive."""
    first, duplicates, is_sensitive, is_unscanned = None, list[str](), False, False
    for row, reason in found:
        is_unscanned |= is_too_long(row, max_bytes)
        if reason is not None:
            is_sensitive = True
        elif first is None:
            first = row
        else:
            duplicates.append(row.locator)
    # When in doubt, sensitive: one of several rows was too long to be scanned.
    return first, duplicates, is_sensitive or (is_unscanned and bool(duplicates))


def _strip_injected(record: MemoryRecord, guard: EchoGuard, tally: Tally) -> MemoryRecord:
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
    """Return why a joined or cut text reads like a secret, or None; unchanged texts passed."""
    names = ("content", "category", "tags", "expanded_keywords")
    texts = {name: getattr(record, name) for name in names}
    made = [text for name, text in texts.items() if text and row.fields.get(name) != text]
    return next(filter(None, map(find_text_sensitivity, made)), None)


# The check of an export: the secret scan again, over every text of every table.

# Columns that noctuary computes: hexadecimal, and a third of the scanning time.
_DIGESTS = frozenset({"content_hash"})
PLACES_SHOWN = 10  # places listed in the report; the counts are complete


def scan_tables(directory: Path, scan: Scan = find_text_sensitivity) -> dict[str, Any]:
    """Run the secret scan over every text column of every Parquet file in a directory.

    Returns the number of `tables` and `texts`, the hits as `found` and by `reasons`, and the first
    `places`; no text.
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
                    held, found = _scan_column(column, scan)
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


# Scans that remember, each with the texts of its own place; see `skip_clean`.
SCANNED = ("rows", "tables", "snapshot")
_REMEMBERED_CHARS = 40  # of the shortest text: a scan of a shorter one takes as long as its hash
_SHORT_KEPT = 1 << 12  # short texts repeat: tags, sessions


def clean_kind(place: str) -> str:
    """Return the kind of what is known of the texts of a place; other rules make another one."""
    return f"clean_{place}:{rules_digest()}"


@contextmanager
def skip_clean(kept: ContentStore) -> Generator[Scan]:
    """Give a scan that passes over texts in which its last use found nothing, of a `clean_kind`.

    Only hashes are kept, and only those of the texts of this use.
    """
    known, clean = set(map(bytes, kept.keys())), set[bytes]()
    scan_short = lru_cache(_SHORT_KEPT)(find_text_sensitivity)

    def scan(text: str) -> str | None:
        if len(text) < _REMEMBERED_CHARS:
            return scan_short(text)
        key = sha256(text.encode("utf-8", "surrogatepass")).digest()
        reason = None if key in known else find_text_sensitivity(text)
        if reason is None:
            clean.add(key)
        return reason

    yield scan
    kept.replace(sorted(clean), [b""] * len(clean))


def rules_digest() -> str:
    """Return a digest of the scan's code and rules, so that a change reruns it."""
    return hash_text(Path(__file__).read_text("utf-8"), *read_rules())


def _scan_column(column: pl.Series, scan: Scan) -> tuple[int, list[tuple[int, str]]]:
    """Return the number of texts in a column, and (row, reason) of those that look like secrets."""
    import polars as pl

    rows = column.alias("text").to_frame().with_row_index("row")
    if column.dtype == pl.List:
        rows = rows.explode("text")
    if not isinstance(rows.schema["text"], pl.String | pl.Categorical):
        return 0, []
    texts = rows.cast({"text": pl.String}).drop_nulls()
    # Categories, users and sessions repeat; contents are held by the column anyway.
    reasons = {text: scan(text) for text in texts["text"].unique()}
    found = {text: reason for text, reason in reasons.items() if reason is not None}
    hits = texts.filter(pl.col("text").is_in(list(found)))
    return texts.height, [(row, found[text]) for row, text in hits.iter_rows()]


def refuse_emptied(
    source: Source, last: Path, paths: StorePaths, forgotten: Tombstones = NOTHING_FORGOTTEN
) -> None:
    """Raise SourceEmptyError if a source has no rows but the serving snapshot has memories.

    A source emptied by forgetting is accepted.
    """
    own = source.own
    identity = own.identity()
    if identity.members:
        _refuse_emptied_member(identity, last, forgotten.ids)
    if identity.members or own.count():
        return
    with suppress(StoreError):
        # The store itself was empty at the last export too; only transcript turns were exported.
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
    """Raise SourceEmptyError if one of several stores had rows in the last export and has none."""
    known: Mapping[str, Mapping[str, int | str]] = {}
    with suppress(StoreError):
        known = read_report(last).identity.members
    for name, held in known.items():
        now = identity.members.get(name)
        # Every remembered memory may have been forgotten, as long as the file exists.
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


# Export a source to the corpus on disk, all or nothing: tables are staged in the same folder, and
# report.json is written last with their digests, so that `read_report` detects a crash between two
# moves.

TASK = "export"
REPORTED_ROWS = 1_000  # rows between two progress reports
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
    scan: Scan = find_text_sensitivity,
) -> ExportReport:
    """Export every memory that may leave its store, and count every row that was left out.

    The caller holds the store's lock. SourceError if the source cannot be read to its end or
    yields another number of rows than it counted; the previous export then stays.
    """
    staging = out_dir / _STAGING
    remove_tree(staging)  # left behind by a killed export
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
                scan=scan,
            )
            digest = corpus_digest(write(found))
        n_turns = order_turns(staging / _UNORDERED_TURNS, staging / TURNS_FILE)
        report = _report(source, tally, digest, n_turns, staging)
        for name in _FILES:
            with replacement(out_dir / name) as tmp:
                (staging / name).replace(tmp)
        # Written last. ASCII, because a path may hold bytes that are not text.
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


def _report(source: Source, tally: Tally, digest: str, turns: int, staging: Path) -> ExportReport:
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
