"""The embedding tiers as LanceDB tables: 64, 256 and full dimensions of the rotated vectors.

A projection: LanceDB does not fsync, so a table that cannot be read is rebuilt, and reported.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import fsync_dir, hash_text, remove_tree, write_text
from noctuary.core.types import SILENT, Progress
from noctuary.embed.funnel import release_pages
from noctuary.embed.rotation import Matrix, Rotation, rotated_prefix
from noctuary.work.runner import LocalRunner
from noctuary.work.shards import IndexKind, IndexSpec, Runner

Column = Sequence[str] | Any  # texts by position; of an Arrow column no text becomes an object
Database = LanceTable = ArrowTable = ArrowSchema = Frame = Any  # they ship no usable types

# The directory of the LanceDB tables.


@dataclass(frozen=True, slots=True)
class TableHome:
    """A directory of LanceDB tables; a mark next to a table says that it cannot be trusted."""

    directory: Path  # made by the first table

    def list_tables(self, prefix: str) -> list[str]:
        """Return the names of the tables that start with a prefix, sorted."""
        return sorted(path.stem for path in self.directory.glob(f"{prefix}*.lance"))

    def remove_table(self, name: str, *, mark: bool = True) -> None:
        """Remove a table and, unless told not to, its mark."""
        remove_tree(self.directory / f"{name}.lance")
        if mark:
            remove_tree(self.mark_path(name))

    def mark_path(self, name: str) -> Path:
        """Return the path of a table's mark."""
        return self.directory / f"{name}.dirty"

    def is_dirty(self, name: str) -> bool:
        """Tell whether a write of the table was begun and not finished."""
        return self.mark_path(name).exists()

    @contextmanager
    def marked(self, name: str) -> Generator[None]:
        """Mark a table while it is written; the mark stays if that fails or is killed."""
        text = "being written; whoever finds this later writes the table again\n"
        write_text(self.mark_path(name), text)
        yield
        self.mark_path(name).unlink()
        fsync_dir(self.directory)


def connect(place: Path) -> Any:
    """Return the LanceDB connection of a directory; lancedb is imported here."""
    # LanceDB reads its log level once, when imported; its Rust warnings do not belong on stderr.
    unset = "LANCEDB_LOG" not in os.environ
    os.environ.setdefault("LANCEDB_LOG", "error")
    try:
        import lancedb
    finally:
        if unset:
            del os.environ["LANCEDB_LOG"]
    return lancedb.connect(str(place))


# The approximate index of a tier: which kind, how it is kept up to date, what it covers.

ROWS_PER_PARTITION = 65_536
"""Rows of a cell. A search looks into 20 cells by default, so that up to 1.3 million rows every
code is looked at and only the codes' rounding costs recall. Smaller cells make larger stores faster
and miss neighbours in the next cell."""

CODES_FROM_DIMS = 256
"""Dimensions from which RaBitQ codes are used. Measured at 100,000 rows, recall@10 with refining:
at 384 and 256 dimensions 1.00 with 2 bits in a sixteenth of the bytes; at 64 dimensions .85 with 1
bit, so that shorter tiers keep a byte a dimension (IVF_SQ, 1.00)."""

UNINDEXED_SHARE = 0.01
"""Most rows of a tier that its index may miss: a search scans them beside it. Adding one row to an
index writes the whole index again, so that a night with few new rows leaves them out."""

CODE_BITS = 2  # of a dimension's code: 1 finds .95 of the true ten at 384 dimensions, 2 all
EXACT = "exact"
_MULTIPLE = 8  # dimensions that RaBitQ codes fill whole bytes with
_KINDS: dict[str, IndexKind] = {"IvfRq": "IVF_RQ", "IvfSq": "IVF_SQ"}  # by what LanceDB calls them


def index_spec(dim: int, rows: int) -> IndexSpec:
    """Return the index of a tier of at least one row."""
    partitions = max(1, rows // ROWS_PER_PARTITION)
    if dim >= CODES_FROM_DIMS and dim % _MULTIPLE == 0:
        return IndexSpec("IVF_RQ", partitions, bits=CODE_BITS)
    return IndexSpec("IVF_SQ", partitions)


def settle_index(
    table: LanceTable, dim: int, runner: Runner, *, stale: bool, least: int, keep: timedelta
) -> tuple[str, int]:
    """Bring a tier's index, used from `least` rows on, up to date; return it and rows it misses.

    `stale`: rows were replaced or removed, whose bytes lie there until the table is compacted.
    """
    rows = table.count_rows()
    spec = index_spec(dim, max(rows, 1))
    held = table.list_indices()
    wanted = [] if rows < least else [spec.kind]
    if [_kind(index) for index in held] != wanted:
        for index in held:
            table.drop_index(index.name)
        if wanted:
            runner.build_index(table, spec)
    if stale or _unindexed(table) > rows * UNINDEXED_SHARE:
        runner.compact(table, keep)
    return (wanted or [EXACT])[0], _unindexed(table)


def _unindexed(table: LanceTable) -> int:
    return sum(int(index.num_unindexed_rows) for index in table.list_indices())


def _kind(index: Any) -> str:
    return _KINDS.get(str(index.index_type), str(index.index_type))


# The tables themselves.

TIER_DIMS = (64, 256)  # the top 100 of 64-d keep 97.6 % of the true 10, those of 256-d all
INDEX_MIN_ROWS = 50_000  # below, an exact scan takes milliseconds; an index would cost recall
WRITE_ROWS = 50_000  # at once: bounds memory (80 MB at 384 dimensions), at the price of commits
MAX_DELETE_IDS = 10_000  # in one delete filter; 20,000 take 0.8 s to plan, so more are cut up
KEEP_VERSIONS = timedelta(hours=1)  # longer protects open readers, shorter frees disk sooner

TABLE_PREFIX, FULL_TIER = "memory_vectors_", "memory_vectors_full"
_KEYS = ["memory_id", "content_hash"]  # no position: one deletion would rewrite every later row
_STAMP = b"noctuary.stamp"

Action = Literal["created", "rebuilt", "synced", "unchanged"]


@dataclass(frozen=True, slots=True)
class TierState:
    """What a sync did to one tier, and its state after it."""

    name: str  # of the table
    dim: int
    rows: int
    action: Action  # "rebuilt" was dropped and written again
    inserted: int  # all rows where it was created or rebuilt
    updated: int
    deleted: int
    version: int  # LanceDB's; an unchanged tier keeps its own
    index: str  # EXACT (every row is scanned), "IVF_SQ" or "IVF_RQ"
    unindexed_rows: int
    reason: str  # why it was created or rebuilt, and why it has no index

    @property
    def index_gap(self) -> int:
        """Rows that the index misses where they are too many, else 0."""
        return self.unindexed_rows if self.unindexed_rows > self.rows * UNINDEXED_SHARE else 0


@dataclass(frozen=True, slots=True)
class TierReport:
    """What a sync did: one state per tier, shortest first, and the stale tables it removed."""

    tiers: tuple[TierState, ...]
    dropped: tuple[str, ...]

    def to_facts(self) -> dict[str, Any]:
        """Return what the gate and the pack ask of the tables, by table."""
        asked = {
            "rows": "rows",
            "dims": "dim",
            "index": "index",
            "index_gaps": "index_gap",
        }
        return {
            name: {t.name: getattr(t, field) for t in self.tiers} for name, field in asked.items()
        }

    def to_notes(self) -> dict[str, Any]:
        """Return what was done to the tables."""
        # A table that was lost is created like one of a first night.
        why = {
            action: {t.name: t.reason for t in self.tiers if t.action == action}
            for action in ("rebuilt", "created")
        }
        written = sum(t.inserted + t.updated + t.deleted for t in self.tiers)
        return {"rows_written": written, **why, "dropped_tables": ", ".join(self.dropped)}


@dataclass(frozen=True, slots=True)
class TierMatch:
    """Whether a tier holds each memory exactly once; a table that cannot be read has 0 rows."""

    name: str
    rows: int
    orphans: int  # rows without a memory
    missing: int  # memories without a row
    duplicates: int  # further rows

    @property
    def ok(self) -> bool:
        """True where rows and memories are the same set."""
        return not (self.orphans or self.missing or self.duplicates)


class _Tier(NamedTuple):
    """What one table should hold, and where: `keys` has one row per position of `vectors`."""

    home: TableHome
    database: Database
    name: str
    dim: int
    keys: Frame
    vectors: Matrix
    rotation: Rotation

    @property
    def stamp(self) -> str:
        """Digest of everything that all rows depend on."""
        return hash_text("tier-1", self.rotation.digest, str(self.dim))


class _Changes(NamedTuple):
    inserted: int
    updated: int
    deleted_ids: Sequence[str]
    positions: NDArray[np.int64]


def tier_tables(full_dim: int, dims: Sequence[int] = TIER_DIMS) -> dict[str, int]:
    """Return the dimensions of a model's tiers by table name, shortest first, the full one last."""
    short = sorted({dim for dim in dims if 0 < dim < full_dim})
    return {**{f"{TABLE_PREFIX}{dim}": dim for dim in short}, FULL_TIER: full_dim}


def sync_tiers(
    home: TableHome,
    memory_ids: Column,
    content_hashes: Column,
    vectors: Matrix,
    rotation: Rotation,
    dims: Sequence[int] = TIER_DIMS,
    *,
    index_min_rows: int = INDEX_MIN_ROWS,
    keep_versions: timedelta = KEEP_VERSIONS,
    runner: Runner | None = None,
    progress: Progress = SILENT,
) -> TierReport:
    """Make every tier hold exactly the given memories; only rows with a new hash are written.

    A tier is written from scratch where it is absent, unreadable, repeats an id, is half-written,
    or of another schema, encoder or rotation. Ids, hashes and unit vectors, shape (n, d), are by
    position; ValueError if they do not fit each other or an id repeats.
    """
    expected = (len(memory_ids), rotation.dim)
    if vectors.shape != expected or len(content_hashes) != len(memory_ids):
        found = f"{vectors.shape} and {len(content_hashes)} hashes"
        raise ValueError(f"vectors {found} do not fit the ids and the rotation: {expected}")
    keys = _frame({"memory_id": memory_ids, "content_hash": content_hashes})
    if repeated := keys.height - keys["memory_id"].n_unique():
        raise ValueError(f"{repeated} memory ids repeat; a tier is keyed by unique ids")
    keys, tables = keys.with_row_index("position"), tier_tables(rotation.dim, dims)
    states: list[TierState] = []
    database = connect(home.directory)
    dropped = tuple(name for name in home.list_tables(TABLE_PREFIX) if name not in tables)
    for name in dropped:
        home.remove_table(name)
    for name, dim in tables.items():
        tier = _Tier(home, database, name, dim, keys, vectors, rotation)
        states.append(_sync_tier(tier, runner or LocalRunner(), index_min_rows, keep_versions))
        progress.update("vector_tiers", len(states), len(tables))
    return TierReport(tiers=tuple(states), dropped=dropped)


def tiers_match(
    home: TableHome, memory_ids: Column, expected: Sequence[str] = (FULL_TIER,)
) -> list[TierMatch]:
    """Compare every tier on disk, and every expected one, with the memories, by id."""
    wanted = _frame({"memory_id": memory_ids}).unique()
    matches: list[TierMatch] = []
    database = connect(home.directory)
    for name in sorted({*home.list_tables(TABLE_PREFIX), *expected}):
        _, rows, fault = _read_keys(database, name, ["memory_id"])
        ids = wanted.clear() if fault else _frame({"memory_id": rows["memory_id"]})
        held = ids.unique()
        orphans = held.join(wanted, on="memory_id", how="anti").height
        missing = wanted.join(held, on="memory_id", how="anti").height
        repeated = ids.height - held.height
        matches.append(TierMatch(name, ids.height, orphans, missing, repeated))
    return matches


def _frame(columns: Mapping[str, Column]) -> Frame:
    import polars as pl

    return pl.DataFrame([pl.Series(n, values).cast(pl.String) for n, values in columns.items()])


def _sync_tier(tier: _Tier, runner: Runner, index_min_rows: int, keep: timedelta) -> TierState:
    home, name = tier.home, tier.name
    table, rows, fault = _open(tier)
    changes = _changes(tier.keys, tier.keys.select(_KEYS).clear() if fault else rows)
    action: Action = "unchanged"
    if fault:
        action = "rebuilt" if name in home.list_tables(name) else "created"
    elif len(changes.positions) or changes.deleted_ids:
        action = "synced"
    with nullcontext() if action == "unchanged" else home.marked(name):
        if fault:
            # The mark stays: what follows is not whole yet.
            home.remove_table(name, mark=False)
            table = _create(tier)
        elif action == "synced":
            _apply(table, tier, changes)
        # Without an index, which bounds how many come, added rows are merged on every night.
        stale = action == "synced" and (
            bool(changes.updated or changes.deleted_ids) or tier.keys.height < index_min_rows
        )
        index, unindexed = settle_index(
            table, tier.dim, runner, stale=stale, least=index_min_rows, keep=keep
        )
    exact = f"{tier.keys.height} rows are scanned exactly, an index starts at {index_min_rows}"
    return TierState(
        name=name,
        dim=tier.dim,
        rows=table.count_rows(),
        action=action,
        inserted=changes.inserted,
        updated=changes.updated,
        deleted=len(changes.deleted_ids),
        version=table.version,
        index=index,
        unindexed_rows=unindexed,
        reason="; ".join(filter(None, (fault, exact if index == EXACT else ""))),
    )


def _read_keys(
    database: Database, name: str, columns: Sequence[str]
) -> tuple[LanceTable, ArrowTable, str]:
    """Return the table and its keys, or two Nones and why they cannot be had."""
    try:
        table = database.open_table(name)
        return table, table.search().select(list(columns)).to_arrow(), ""
    except (ValueError, RuntimeError, OSError, KeyError) as error:
        # LanceDB raises ValueError for "not found" and for a foreign schema, RuntimeError for
        # damage; either way the remedy is to write the table again.
        return None, None, f"cannot be read: {str(error).partition(', /')[0]}"


def _open(tier: _Tier) -> tuple[LanceTable, ArrowTable, str]:
    """Return the table, its keys and "", or why it has to be written again."""
    table, rows, fault = _read_keys(tier.database, tier.name, _KEYS)
    if fault:
        return None, None, fault
    found = (rows.schema.metadata or {}).get(_STAMP, b"").decode()
    if found != tier.stamp:
        fault = f"stamp {found[:12]!r} is not {tier.stamp[:12]!r}: other encoder or rotation"
    elif repeated := rows.num_rows - len(rows["memory_id"].unique()):
        fault = f"{repeated} rows repeat an id"
    elif tier.home.is_dirty(tier.name):
        fault = "was being written when an earlier night stopped"
    return table, rows, fault


def _schema(tier: _Tier) -> ArrowSchema:
    import pyarrow as pa

    types = [pa.string(), pa.string(), pa.list_(pa.float32(), tier.dim), pa.string()]
    fields = zip([*_KEYS, "vector", "fingerprint"], types, strict=True)
    return pa.schema(list(fields), metadata={_STAMP: tier.stamp.encode()})


def _batches(tier: _Tier, positions: NDArray[np.int64]) -> Iterator[ArrowTable]:
    import pyarrow as pa

    schema = _schema(tier)
    for start in range(0, len(positions), WRITE_ROWS):
        chosen = positions[start : start + WRITE_ROWS]
        vectors = rotated_prefix(tier.vectors[chosen], tier.rotation, tier.dim)
        release_pages(tier.vectors)
        columns = [tier.keys[n][chosen].to_arrow().cast(schema.field(n).type) for n in _KEYS]
        columns.append(pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), tier.dim))
        columns.append(pa.array([tier.rotation.fingerprint_digest] * len(chosen), pa.string()))
        yield pa.record_batch(columns, schema=schema)


def _create(tier: _Tier) -> LanceTable:
    import pyarrow as pa

    schema = _schema(tier)
    batches = _batches(tier, np.arange(tier.keys.height))
    rows = pa.RecordBatchReader.from_batches(schema, batches) if tier.keys.height else None
    return tier.database.create_table(tier.name, data=rows, schema=schema)


def _changes(wanted: Frame, rows: ArrowTable) -> _Changes:
    import polars as pl

    held = rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows)
    joined = wanted.join(held, on="memory_id", how="left", suffix="_held", maintain_order="left")
    is_new = pl.col("content_hash_held").is_null()
    changed = joined.filter(is_new | (pl.col("content_hash") != pl.col("content_hash_held")))
    inserted = changed.filter(is_new).height
    gone = held.join(wanted, on="memory_id", how="anti").sort("memory_id")
    positions = changed["position"].to_numpy()
    return _Changes(inserted, changed.height - inserted, gone["memory_id"].to_list(), positions)


def _apply(table: LanceTable, tier: _Tier, changes: _Changes) -> None:
    """Write the changed rows; deletions ride in the same commits as far as these go."""
    ids = ["'" + memory_id.replace("'", "''") + "'" for memory_id in changes.deleted_ids]
    parts = [ids[i : i + MAX_DELETE_IDS] for i in range(0, len(ids), MAX_DELETE_IDS)]
    filters = [f"memory_id IN ({','.join(part)})" for part in parts]
    for batch in _batches(tier, changes.positions):
        merge = table.merge_insert("memory_id")
        merge = merge.when_matched_update_all().when_not_matched_insert_all()
        if filters:
            merge = merge.when_not_matched_by_source_delete(filters.pop(0))
        merge.execute(batch)
    for remaining in filters:
        table.delete(remaining)
