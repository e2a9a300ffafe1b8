"""The embedding tiers as LanceDB tables: 64, 256 and full dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_text
from noctuary.core.types import SILENT, Progress
from noctuary.embed.funnel import release_pages
from noctuary.embed.rotation import Rotation, rotated_prefix
from noctuary.embed.tables import TableHome, as_home
from noctuary.work.runner import LocalRunner
from noctuary.work.shards import IndexKind, IndexSpec, Runner

# What the tiers are found to be: states after a sync, matches with the memories.


Action = Literal["created", "rebuilt", "synced", "unchanged"]


@dataclass(frozen=True, slots=True)
class TierState:
    """What a sync did to one tier, and its state after it.

    Attributes:
        name: Table name.
        dim: Dimensions of its vectors.
        rows: Rows after the sync.
        action: "created", "rebuilt" (dropped and written again), "synced" or "unchanged".
        inserted: Rows added; all of them where it was created or rebuilt.
        updated: Rows rewritten because their content changed.
        deleted: Rows removed because their memory is gone.
        version: LanceDB version after the sync; an unchanged tier keeps its own.
        index: "exact" (no index: every row is scanned), "IVF_SQ" or "IVF_RQ".
        unindexed_rows: Rows that an existing index does not cover; 0 where the scan is exact.
        reason: Why it was created or rebuilt, and why it has no index.
    """

    name: str
    dim: int
    rows: int
    action: Action
    inserted: int
    updated: int
    deleted: int
    version: int
    index: str
    unindexed_rows: int
    reason: str


@dataclass(frozen=True, slots=True)
class TierReport:
    """What a sync did: one state per tier, shortest first, and the stale tables it removed."""

    tiers: tuple[TierState, ...]
    dropped: tuple[str, ...]

    def to_facts(self) -> dict[str, Any]:
        """Return what the gate and the pack ask of the tables, by table."""
        return {
            "rows": {t.name: t.rows for t in self.tiers},
            "dims": {t.name: t.dim for t in self.tiers},
            "index": {t.name: t.index for t in self.tiers},
            "unindexed_rows": {t.name: t.unindexed_rows for t in self.tiers},
        }

    def to_notes(self) -> dict[str, Any]:
        """Return what was done to the tables."""
        return {
            "rows_written": sum(t.inserted + t.updated + t.deleted for t in self.tiers),
            "rebuilt": {t.name: t.reason for t in self.tiers if t.action == "rebuilt"},
            # A table that was lost is written anew like one of a first night.
            "created": {t.name: t.reason for t in self.tiers if t.action == "created"},
            "dropped_tables": ", ".join(self.dropped),
        }


@dataclass(frozen=True, slots=True)
class TierMatch:
    """Whether a tier holds each memory exactly once; a table that cannot be read has 0 rows.

    `orphans`: rows without a memory; `missing`: memories without a row; `duplicates`: further rows.
    """

    name: str
    rows: int
    orphans: int
    missing: int
    duplicates: int

    @property
    def ok(self) -> bool:
        """True where rows and memories are the same set."""
        return not (self.orphans or self.missing or self.duplicates)


# Early-exit thresholds of the short tiers, derived from a corpus against full-dimension truth.
#
# A tier may answer alone where its best cosine tells that its first ten are the true first ten.
# The reference's thresholds were calibrated for another model, and it asks to derive them anew
# when the model changes (libravdb mathematics section 4). Memories of the corpus serve as queries,
# each held out from its own results; nothing is random, so equal inputs give equal thresholds.


TARGET_RECALL = 0.9
"""Of the true first ten that a tier's first ten must hold, for its answer to count as right. Lower
lets more queries leave early with more of their results replaced."""

TARGET_PRECISION = 0.95
"""Least share of right answers among the queries that leave early. Higher trades exits away."""

TOP = 10
"""Results that a tier's answer is judged by."""

MIN_EXITS = 30
"""Fewest sampled queries at or above a threshold: the precision of fewer says too little."""

SAMPLE_QUERIES = 400
"""Memories that serve as queries, evenly spread; more narrow the precision and lengthen the night
(400 against 100,000 rows take about a second per tier)."""

CORPUS_ROWS = 100_000
"""Most memories that are searched, evenly spread; bounds the night's time on large stores."""

MIN_CORPUS_ROWS = 100
"""Fewest memories to derive from: among fewer, a tenth are neighbours and any tier looks good."""

REFERENCE_EXITS: Mapping[int, float] = {64: 0.65, 256: 0.75}
"""The reference's thresholds by dimensions: the fallback where nothing can be derived. Measured on
this project's default model they leave too early."""

ROC_POINTS = 12
"""Points kept of each curve, for the asset's metadata."""

RULES: Mapping[str, Any] = {
    "target_recall": TARGET_RECALL,
    "target_precision": TARGET_PRECISION,
    "top": TOP,
    "min_exits": MIN_EXITS,
    "sample_queries": SAMPLE_QUERIES,
    "corpus_rows": CORPUS_ROWS,
    "min_corpus_rows": MIN_CORPUS_ROWS,
    "reference_exits": {str(dim): at for dim, at in REFERENCE_EXITS.items()},
    "roc_points": ROC_POINTS,
}
"""Everything above: kept thresholds hold for the same vectors under the same rules."""

_QUERY_CHUNK = 50  # 20 MB of scores at 100,000 rows
_DIGITS = 4

DERIVED, UNREACHED, REFERENCE = "derived", "unreached", "reference"

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ExitThreshold:
    """How sure a tier must be to answer alone.

    Attributes:
        dim: Dimensions of the tier.
        exit_at: Least best cosine, in [-1, 1]; None never exits.
        origin: "derived", "unreached" (no threshold reaches the target precision) or "reference".
        precision: Share of right answers among the sampled queries that exit; None if none does.
        exits: Share of the sampled queries that exit.
        auroc: Chance that a query answered rightly has the higher best cosine, in [0, 1]; None
            where all answers were right, or none.
        roc: (threshold, false positive rate, true positive rate), thresholds descending.
        reference_precision: Precision at the reference's threshold; None where nothing exits there
            or the reference has none for these dimensions.
        queries: Sampled queries.
    """

    dim: int
    exit_at: float | None
    origin: str
    precision: float | None = None
    exits: float = 0.0
    auroc: float | None = None
    roc: tuple[tuple[float, float, float], ...] = ()
    reference_precision: float | None = None
    queries: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain values for an asset's metadata."""
        return {
            "exit_at": self.exit_at,
            "origin": self.origin,
            "precision": self.precision,
            "exits": self.exits,
            "auroc": self.auroc,
            "roc": [list(point) for point in self.roc],
            "reference_precision": self.reference_precision,
            "queries": self.queries,
        }


def derive_thresholds(
    vectors: NDArray[np.floating[Any]], rotation: Rotation, dims: Sequence[int]
) -> dict[int, ExitThreshold]:
    """Return the exit threshold of each short tier, by dimensions, ascending.

    Args:
        vectors: Unit rows, shape (n, d); may be memory-mapped.
        rotation: Of the same d.
        dims: Of the short tiers; those not below d are left out.
    """
    short = sorted({dim for dim in dims if 0 < dim < vectors.shape[1]})
    if len(vectors) < MIN_CORPUS_ROWS or rotation.is_identity:
        return {dim: ExitThreshold(dim, REFERENCE_EXITS.get(dim), REFERENCE) for dim in short}
    corpus = np.asarray(vectors[:: -(-len(vectors) // CORPUS_ROWS)], dtype=np.float32)
    release_pages(vectors)
    # Rows of the corpus itself, so that each can be held out by its place.
    places = np.arange(0, len(corpus), -(-len(corpus) // SAMPLE_QUERIES))
    truth, _ = _nearest(corpus, places)
    thresholds: dict[int, ExitThreshold] = {}
    for dim in short:
        found, best = _nearest(rotated_prefix(corpus, rotation, dim), places)
        shared = [len(np.intersect1d(a, b)) for a, b in zip(truth, found, strict=True)]
        right = np.asarray(shared) >= TARGET_RECALL * TOP - 1e-9
        thresholds[dim] = choose_threshold(dim, best, right)
    return thresholds


def choose_threshold(dim: int, best: Floats, right: NDArray[np.bool_]) -> ExitThreshold:
    """Return the least threshold at and above which enough answers are right.

    Args:
        dim: Dimensions of the tier.
        best: Its best cosine per query, shape (q,), q >= 1.
        right: Whether its answer was right, shape (q,).
    """
    order = np.argsort(-best, kind="stable")
    scores, hits = best[order].astype(np.float64), np.cumsum(right[order], dtype=np.int64)
    counts = np.arange(1, len(scores) + 1)
    # Equal scores leave together: only the last of them can be a threshold.
    last = np.append(scores[1:] < scores[:-1], True)
    reaches = last & (counts >= MIN_EXITS) & (hits >= TARGET_PRECISION * counts)
    reference = REFERENCE_EXITS.get(dim)
    common: dict[str, Any] = {
        "auroc": _auroc(best, right),
        "roc": _roc(scores, counts, hits, last),
        "reference_precision": _precision_at(reference, best, right),
        "queries": len(best),
    }
    if not reaches.any():
        return ExitThreshold(dim, None, UNREACHED, **common)
    chosen = int(np.flatnonzero(reaches)[-1])
    return ExitThreshold(
        dim,
        float(scores[chosen]),
        DERIVED,
        precision=round(float(hits[chosen] / counts[chosen]), _DIGITS),
        exits=round(float(counts[chosen] / len(scores)), _DIGITS),
        **common,
    )


def _nearest(rows: Floats, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
    """Return the first TOP rows of each query row, itself left out, and its best cosine."""
    found: list[NDArray[np.int64]] = []
    best: list[Floats] = []
    for start in range(0, len(places), _QUERY_CHUNK):
        asked = places[start : start + _QUERY_CHUNK]
        scores = rows[asked] @ rows.T
        scores[np.arange(len(asked)), asked] = -np.inf
        found.append(np.argpartition(-scores, TOP - 1, axis=1)[:, :TOP])
        best.append(scores.max(axis=1))
    return np.concatenate(found), np.concatenate(best)


def _auroc(best: Floats, right: NDArray[np.bool_]) -> float | None:
    """Return the area under the ROC curve by mid-ranks (Mann-Whitney)."""
    positives = int(right.sum())
    negatives = len(right) - positives
    if not positives or not negatives:
        return None
    _, inverse, counts = np.unique(best, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse.reshape(best.shape)]
    area = (ranks[right].sum() - positives * (positives + 1) / 2) / (positives * negatives)
    return round(float(area), _DIGITS)


def _roc(
    scores: NDArray[np.float64],
    counts: NDArray[np.int64],
    hits: NDArray[np.int64],
    last: NDArray[np.bool_],
) -> tuple[tuple[float, float, float], ...]:
    places = np.flatnonzero(last)
    kept = np.unique(np.linspace(0, len(places) - 1, min(ROC_POINTS, len(places))).round())
    positives = max(int(hits[-1]), 1)
    negatives = max(int(counts[-1] - hits[-1]), 1)
    return tuple(
        (
            round(float(scores[place]), _DIGITS),
            round(float((counts[place] - hits[place]) / negatives), _DIGITS),
            round(float(hits[place] / positives), _DIGITS),
        )
        for place in places[kept.astype(np.int64)]
    )


def _precision_at(threshold: float | None, best: Floats, right: NDArray[np.bool_]) -> float | None:
    if threshold is None or not (leaving := best >= threshold).any():
        return None
    return round(float(right[leaving].mean()), _DIGITS)


# The approximate index of a tier: which kind, how it is kept up to date, what it covers.


ROWS_PER_PARTITION = 65_536
"""Rows of a cell. A search looks into 20 cells by default, so that up to 1.3 million rows every
code is looked at and only the codes' rounding costs recall. Smaller cells make larger stores faster
and miss neighbours in the next cell."""

CODES_FROM_DIMS = 256
"""Dimensions from which RaBitQ codes are used. Measured at 100,000 rows, recall@10 with refining:
at 384 and 256 dimensions 1.00 with 2 bits in a sixteenth of the bytes; at 64 dimensions .85 with 1
bit, so that shorter tiers keep a byte a dimension (IVF_SQ, 1.00)."""

CODE_BITS = 2
"""Bits of a dimension's code: 1 finds .95 of the true ten at 384 dimensions and .92 at 256, 2 finds
all of them for 50 MB more a million rows of 384 dimensions."""

EXACT = "exact"

_MULTIPLE = 8
"""Dimensions that RaBitQ codes fill whole bytes with."""

_KINDS: dict[str, IndexKind] = {"IvfRq": "IVF_RQ", "IvfSq": "IVF_SQ"}
"""What LanceDB calls an index that is there, and what it is called here."""


def index_spec(dim: int, rows: int) -> IndexSpec:
    """Return the index of a tier.

    Args:
        dim: Its dimensions.
        rows: Its rows, at least 1.
    """
    partitions = max(1, rows // ROWS_PER_PARTITION)
    if dim >= CODES_FROM_DIMS and dim % _MULTIPLE == 0:
        return IndexSpec("IVF_RQ", partitions, bits=CODE_BITS)
    return IndexSpec("IVF_SQ", partitions)


def settle_index(
    table: Any,
    dim: int,
    runner: Runner,
    *,
    changed: bool,
    least: int,
    keep: timedelta,
) -> tuple[str, int]:
    """Bring a tier's index up to date and compact; return the index in use and the rows it misses.

    An index of another kind, left by an earlier version, is replaced.

    Args:
        table: The LanceDB handle of the tier; at the latest version afterwards.
        dim: Dimensions of its vectors.
        runner: Builds and compacts.
        changed: Whether rows were written tonight.
        least: Rows from which there is an index.
        keep: How long replaced versions stay.

    Raises:
        OSError, RuntimeError, ValueError: As LanceDB says it.
    """
    rows = table.count_rows()
    spec = index_spec(dim, max(rows, 1))
    held = table.list_indices()
    if rows < least:
        for index in held:
            table.drop_index(index.name)
    elif [_kind(index) for index in held] != [spec.kind]:
        for index in held:
            table.drop_index(index.name)
        runner.build_index(table, spec)
    if changed or any(index.num_unindexed_rows for index in table.list_indices()):
        runner.compact(table, keep)
    held = table.list_indices()
    return (_kind(held[0]) if held else EXACT), sum(int(i.num_unindexed_rows) for i in held)


def _kind(index: Any) -> str:
    return _KINDS.get(str(index.index_type), str(index.index_type))


# The embedding tiers as LanceDB tables: 64, 256 and full dimensions of the rotated vectors.
#
# The tables are a projection: LanceDB does not fsync, so a table that cannot be read is rebuilt
# and the report says so. lancedb, pyarrow and polars are imported when a function is called.


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

TABLE_PREFIX = "memory_vectors_"
FULL_TIER = "memory_vectors_full"
_KEYS = ["memory_id", "content_hash"]
# No position: a deleted memory moves every later one, and each move would rewrite a row.
_STAMP = b"noctuary.stamp"

AnyFloats = NDArray[np.floating[Any]]
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
    vectors: AnyFloats
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
    vectors: AnyFloats,
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
    half-written (noctuary.embed.tables). It carries that mark while it is written.

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
        OSError, RuntimeError, ValueError: As LanceDB says it, where it builds no index.
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
    memory_ids: Column, content_hashes: Column, vectors: AnyFloats, rotation: Rotation
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
    index_min_rows, keep = limits
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
        index, unindexed = settle_index(
            table, tier.dim, runner, changed=action == "synced", least=index_min_rows, keep=keep
        )
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
