"""The embedding tiers as LanceDB tables: 64, 256 and full dimensions of the rotated vectors.

What belongs here: keeping the tables equal to the corpus, their index, and the checks that prove
it. What does not: deciding which tier answers a query, or the vectors themselves.

The tables are a projection: LanceDB does not fsync, so a table that cannot be read is rebuilt and
the report says so. lancedb, pyarrow and polars are imported when a function is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.hashing import hash_text
from noctuary.progress import SILENT, Progress
from noctuary.shards.local_runner import LocalRunner
from noctuary.shards.task import Runner
from noctuary.vectors.cascade import release_pages
from noctuary.vectors.lance import TableHome, as_home
from noctuary.vectors.rotation import Rotation, prefix, rotated_prefix
from noctuary.vectors.tier_index import EXACT, settle_index
from noctuary.vectors.tier_states import Action, TierHit, TierMatch, TierReport, TierState

TIER_DIMS = (64, 256)
# Short tiers beside the full one. Smaller scans faster and ranks worse: a rotated 64-d prefix keeps
# 97.6 % of the true top 10 in its top 100, 256-d keeps all of it (research/limits.md section 4).

INDEX_MIN_ROWS = 50_000
# Below this an exact scan takes milliseconds and misses nothing; an index would only cost recall.

WRITE_ROWS = 50_000
# Rows written at once: bounds memory (80 MB at 384 dimensions) at the price of more commits.

MAX_DELETE_IDS = 10_000
# Ids in one delete filter; 20,000 take 0.8 s to plan. More are deleted in several commits.

KEEP_VERSIONS = timedelta(hours=1)
# Longer protects a reader that still has a replaced version open; shorter frees its disk sooner.

REFINE_FACTOR = 10
# An indexed search re-scores this many times k exactly; unrefined distances are on another scale.

TABLE_PREFIX = "memory_vectors_"
FULL_TIER = "memory_vectors_full"
_KEYS = ["memory_id", "content_hash"]
# No position: a deleted memory moves every later one, and each move would rewrite a row.
_STAMP = b"noctuary.stamp"

Floats = NDArray[np.floating[Any]]
Column = Sequence[str] | Any
"""Texts by position: a sequence, or an Arrow column, of which no text becomes an object."""
Database = LanceTable = ArrowTable = ArrowSchema = Frame = Any  # they ship no usable types


@dataclass(frozen=True, slots=True)
class _Tier:
    """What one table should hold, and where: `keys` has one row per position of `vectors`."""

    home: TableHome

    name: str
    dim: int
    keys: Frame
    vectors: Floats
    rotation: Rotation

    @property
    def stamp(self) -> str:
        """Digest of everything that all rows depend on."""
        return hash_text("tier-1", self.rotation.digest, str(self.dim))


@dataclass(frozen=True, slots=True)
class _Changes:
    inserted: int
    updated: int
    deleted_ids: Sequence[str]
    positions: NDArray[np.int64]


def tier_tables(full_dim: int, dims: Sequence[int] = TIER_DIMS) -> dict[str, int]:
    """Return the dimensions of a model's tiers by table name, shortest first.

    Dimensions at or above the model's own, and repeated ones, collapse into the full tier.
    """
    short = sorted({dim for dim in dims if 0 < dim < full_dim})
    return {**{f"{TABLE_PREFIX}{dim}": dim for dim in short}, FULL_TIER: full_dim}


def sync_tiers(
    where: Path | TableHome,
    memory_ids: Column,
    content_hashes: Column,
    vectors: Floats,
    rotation: Rotation,
    dims: Sequence[int] = TIER_DIMS,
    *,
    index_min_rows: int = INDEX_MIN_ROWS,
    keep_versions: timedelta = KEEP_VERSIONS,
    runner: Runner | None = None,
    progress: Progress = SILENT,
) -> TierReport:
    """Make every tier hold exactly the given memories; only changed rows are written.

    A row changes with its content hash. A tier is written from scratch where it is absent, cannot
    be read, holds an id twice, was made with another schema, encoder or rotation, or is marked as
    half-written (noctuary.vectors.dirty). It carries that mark while it is written.

    Args:
        where: The home of the tables, or its directory, made where absent. One writer at a time.
        memory_ids: Unique ids, by position.
        content_hashes: Parallel to memory_ids.
        vectors: Unit vectors, shape (n, d), by position; may be memory-mapped.
        rotation: Of the same encoder and d.
        dims: Wanted short tiers, see `tier_tables`.
        index_min_rows: Rows from which a tier gets an approximate index.
        keep_versions: How long replaced versions stay on disk; above 0.
        runner: Who builds indexes and compacts; None: this process.
        progress: Told after each tier.

    Raises:
        ValueError: The inputs are not parallel, an id repeats, or the dimensions do not match.
        ShardError: An index could not be built.
        TablesUnreachableError: The home was lost.
    """
    home = as_home(where)
    keys = _wanted(memory_ids, content_hashes, vectors, rotation)
    tables = tier_tables(rotation.dim, dims)
    states: list[TierState] = []
    with home.guarded():
        database = home.connect()
        dropped = tuple(name for name in home.list_tables(TABLE_PREFIX) if name not in tables)
        for name in dropped:
            home.remove_table(name)
        for name, dim in tables.items():
            tier = _Tier(home, name, dim, keys, vectors, rotation)
            limits = index_min_rows, keep_versions
            states.append(_sync_tier(database, tier, runner or LocalRunner(), limits))
            progress.update("vector_tiers", len(states), len(tables))
    return TierReport(tiers=tuple(states), dropped=dropped)


def search_tier(where: Path | TableHome, dim: int, query: Floats, k: int) -> list[TierHit]:
    """Return the k nearest rows of one tier by cosine, best first, ties by id.

    For verification. A zero vector has no cosine: it finds nothing and is never found.

    Args:
        where: The home of the tables, or its directory.
        dim: Dimensions of the tier; the query's length or more means the full tier.
        query: Rotated query of full length, shape (d,); it is cut to the tier here.
        k: How many, at least 1.
    """
    name = FULL_TIER if dim >= len(query) else f"{TABLE_PREFIX}{dim}"
    vector = prefix(query, min(dim, len(query)))
    search = as_home(where).connect().open_table(name).search(vector, vector_column_name="vector")
    search = search.distance_type("cosine").refine_factor(REFINE_FACTOR).limit(k)
    found = search.select(["memory_id", "_distance"]).to_arrow().to_pylist()
    hits = [TierHit(row["memory_id"], 1.0 - row["_distance"]) for row in found]
    return sorted(hits, key=lambda hit: (-hit.cosine, hit.memory_id))


def tiers_match(
    where: Path | TableHome, memory_ids: Column, expected: Sequence[str] = (FULL_TIER,)
) -> list[TierMatch]:
    """Compare every tier on disk, and every expected one, with the memories, by id.

    Raises:
        TablesUnreachableError: The home was lost.
    """
    home = as_home(where)
    wanted = _frame({"memory_id": memory_ids}).unique()
    with home.guarded():
        database = home.connect()
        names = sorted({*home.list_tables(TABLE_PREFIX), *expected})
        return [_match(home, database, name, wanted) for name in names]


def _match(home: TableHome, database: Database, name: str, wanted: Frame) -> TierMatch:
    _, rows, fault = _read_keys(home, database, name, ["memory_id"])
    ids = wanted.clear() if fault else _frame({"memory_id": rows["memory_id"]})
    held = ids.unique()
    orphans = held.join(wanted, on="memory_id", how="anti").height
    missing = wanted.join(held, on="memory_id", how="anti").height
    return TierMatch(name, ids.height, orphans, missing, ids.height - held.height)


def _frame(columns: Mapping[str, Column]) -> Frame:
    import polars as pl

    series = [pl.Series(name, values).cast(pl.String) for name, values in columns.items()]
    return pl.DataFrame(series)


def _wanted(
    memory_ids: Column, content_hashes: Column, vectors: Floats, rotation: Rotation
) -> Frame:
    import polars as pl

    expected = (len(memory_ids), rotation.dim)
    if vectors.shape != expected or len(content_hashes) != len(memory_ids):
        found = f"{vectors.shape} and {len(content_hashes)} hashes"
        raise ValueError(f"vectors {found} do not fit the ids and the rotation: {expected}")
    keys = _frame({"memory_id": memory_ids, "content_hash": content_hashes})
    keys = keys.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias("position"))
    if repeated := keys.height - keys["memory_id"].n_unique():
        raise ValueError(f"{repeated} memory ids repeat; a tier is keyed by unique ids")
    return keys


def _sync_tier(
    database: Database, tier: _Tier, runner: Runner, limits: tuple[int, timedelta]
) -> TierState:
    table, rows, fault = _open(database, tier)
    if not fault and tier.home.is_dirty(tier.name):
        fault = "was being written when an earlier night stopped"
    changes = _changes(tier.keys, tier.keys.select(_KEYS).clear() if fault else rows)
    action: Action = "unchanged"
    if fault:
        action = "rebuilt" if tier.home.has_table(tier.name) else "created"
    elif len(changes.positions) or changes.deleted_ids:
        action = "synced"
    with nullcontext() if action == "unchanged" else tier.home.marked(tier.name):
        if fault:
            # The mark stays: what follows is not whole yet.
            tier.home.remove_table(tier.name, mark=False)
            table = _create(database, tier)
        elif action == "synced":
            _apply(table, tier, changes)
        index, unindexed = _settle(table, tier, runner, action == "synced", limits)
    index_min_rows, _ = limits
    exact = f"{tier.keys.height} rows are scanned exactly, an index starts at {index_min_rows}"
    return TierState(
        name=tier.name,
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
    home: TableHome, database: Database, name: str, columns: Sequence[str]
) -> tuple[LanceTable, ArrowTable, str]:
    """Return the table and its keys, or two Nones and why they cannot be had."""
    try:
        table = database.open_table(name)
        return table, table.search().select(list(columns)).to_arrow(), ""
    except (ValueError, RuntimeError, OSError, KeyError) as error:
        # A lost connection is no damage: it must not have the table written again.
        home.require_reachable()
        # LanceDB raises ValueError for "not found" and for a foreign schema, RuntimeError for
        # damage; either way the remedy is to write the table again.
        return None, None, f"cannot be read: {str(error).partition(', /')[0]}"


def _open(database: Database, tier: _Tier) -> tuple[LanceTable, ArrowTable, str]:
    """Return the table, its keys and "", or why it has to be written again."""
    table, rows, fault = _read_keys(tier.home, database, tier.name, _KEYS)
    if fault:
        return None, None, fault
    found = (rows.schema.metadata or {}).get(_STAMP, b"").decode()
    if found != tier.stamp:
        fault = f"stamp {found[:12]!r} is not {tier.stamp[:12]!r}: other encoder or rotation"
    elif repeated := rows.num_rows - len(rows["memory_id"].unique()):
        fault = f"{repeated} rows repeat an id"
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


def _create(database: Database, tier: _Tier) -> LanceTable:
    import pyarrow as pa

    schema = _schema(tier)
    batches = _batches(tier, np.arange(tier.keys.height))
    rows = pa.RecordBatchReader.from_batches(schema, batches) if tier.keys.height else None
    return database.create_table(tier.name, data=rows, schema=schema)


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


def _settle(
    table: LanceTable, tier: _Tier, runner: Runner, changed: bool, limits: tuple[int, timedelta]
) -> tuple[str, int]:
    """Bring the index up to date and compact; see `settle_index`."""
    least, keep = limits
    return settle_index(
        tier.home, table, tier.name, tier.dim, runner, changed=changed, least=least, keep=keep
    )
