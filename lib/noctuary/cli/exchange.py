"""A snapshot as files that other programs read, and a new store made of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from noctuary.cli import sql as snapshot_rows
from noctuary.cli.sql import Rows, SnapshotView, find_table
from noctuary.core.errors import (
    EncoderError,
    NoctuaryError,
    SnapshotCorruptError,
    SourceFormatError,
    SourceMissingError,
    StoreError,
)
from noctuary.core.files import (
    fsync_dir,
    fsync_file,
    hash_file,
    hash_json,
    make_directory,
    make_private,
    read_array,
    remove_tree,
    replacement,
    write_text,
)
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import (
    Manifest,
    compute_digest,
    describe_files,
    full_check,
    write_manifest,
)
from noctuary.core.settings import Settings
from noctuary.core.sqlite import connect_immutable
from noctuary.core.store import (
    ABSTENTION_FILE,
    DIGEST_NAME_CHARS,
    PACK_FORMAT_VERSION,
    RANKING_FILE,
    ROWS_FILE,
    TIER_EXITS_FILE,
    StorePaths,
)
from noctuary.core.types import (
    DAMAGED_TEXT,
    SILENT,
    MemoryRecord,
    Progress,
    corpus_digest,
    published_text,
)
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.lean import (
    HEADER_FILE,
    VOCAB_FILE,
    WEIGHTS_FILE,
    LeanEncoder,
    header_text,
    read_header,
)
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import SIGNALS
from noctuary.snapshot.checks import (
    DROP_CHECK,
    GATE_CHECKS,
    Candidate,
    DropReport,
    GateContext,
    no_sensitive_row_is_anywhere,
    run_check,
)
from noctuary.snapshot.content_checks import every_summary_preserves_its_sources
from noctuary.snapshot.pack import ROWS_SCHEMA
from noctuary.snapshot.publish import publish_candidate
from noctuary.snapshot.verdict import PASS, CheckResult, store_verdict

# Arrays and SQLite tables as Parquet files and back, bit for bit, in bounded memory.


VALUE = "value"
"""The only column of an array's file."""

_BATCH_BYTES = 16 * 2**20
"""Of an array in memory at once."""

_BATCH_ROWS = 10_000
_ENDINGS = {"<f4": "float32", "<f8": "float64", "<i8": "int64", "<i4": "int32", "|i1": "int8",
            "|b1": "bool"}  # fmt: skip


def array_to_parquet(source: Path, target: Path) -> None:
    """Write a .npy file of one or two dimensions as Parquet, row by row."""
    import pyarrow as pa

    array = read_array(source)
    if array.ndim not in (1, 2) or array.dtype.str not in _ENDINGS:
        raise TypeError(f"{source.name} is {array.dtype.str} of {array.ndim} dimensions")
    kind = pa.from_numpy_dtype(array.dtype)
    if array.ndim == 2:
        kind = pa.list_(kind, array.shape[1])
    schema = pa.schema([pa.field(VALUE, kind, nullable=False)])
    rows = _rows_of(array.dtype, array.shape)
    with _writer(target, schema) as writer:
        for first in range(0, len(array), rows):
            part = np.ascontiguousarray(array[first : first + rows])
            values: Any = pa.array(part.reshape(-1))
            if array.ndim == 2:
                values = pa.FixedSizeListArray.from_arrays(values, array.shape[1])
            writer.write_table(pa.Table.from_arrays([values], schema=schema))


def parquet_to_array(source: Path, target: Path) -> None:
    """Write what `array_to_parquet` wrote as the .npy file that it was.

    Raises:
        TypeError: It holds something else.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as parquet, replacement(target) as tmp, tmp.open("wb") as handle:
        kind = parquet.schema_arrow.field(VALUE).type
        is_table = pa.types.is_fixed_size_list(kind)
        dtype = np.dtype((kind.value_type if is_table else kind).to_pandas_dtype())
        if parquet.schema_arrow.names != [VALUE] or dtype.str not in _ENDINGS:
            raise TypeError(f"{dtype.str} in the columns {parquet.schema_arrow.names}")
        rows = parquet.metadata.num_rows
        shape = (rows, kind.list_size) if is_table else (rows,)
        npy.write_array_header_1_0(
            handle, {"descr": dtype.str, "fortran_order": False, "shape": shape}
        )
        for batch in parquet.iter_batches(batch_size=_rows_of(dtype, shape)):
            column = batch.column(0)
            values = column.flatten() if is_table else column
            if column.null_count or values.null_count:
                raise TypeError("no value")
            handle.write(values.to_numpy(zero_copy_only=False).astype(dtype).tobytes())


def table_to_parquet(db: sqlite3.Connection, table: str, target: Path) -> None:
    """Write a table of rows.sqlite as Parquet, in the order of its key."""
    import pyarrow as pa

    schema = _schema_of(db, table)
    with (
        _writer(target, schema) as writer,
        closing(db.execute(f'SELECT * FROM "{table}"')) as cursor,
    ):
        while batch := cursor.fetchmany(_BATCH_ROWS):
            values = [
                pa.array(list(column), field.type)
                for column, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(values, schema=schema))


def parquet_rows(
    db: sqlite3.Connection, table: str, source: Path
) -> Iterator[Sequence[tuple[Any, ...]]]:
    """Yield the rows of a table's file in batches.

    Raises:
        TypeError: It has other columns than the table.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as parquet:
        if not parquet.schema_arrow.equals(_schema_of(db, table)):
            raise TypeError(f"columns of {table}")
        for batch in parquet.iter_batches(batch_size=_BATCH_ROWS):
            yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _schema_of(db: sqlite3.Connection, table: str) -> Any:
    import pyarrow as pa

    kinds = {"TEXT": pa.string(), "INTEGER": pa.int64(), "REAL": pa.float64()}
    columns = [(str(r[1]), str(r[2])) for r in db.execute(f'PRAGMA table_info("{table}")')]
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns])


def _rows_of(dtype: np.dtype[Any], shape: Sequence[int]) -> int:
    width = shape[1] if len(shape) > 1 else 1
    return max(_BATCH_BYTES // max(dtype.itemsize * width, 1), 1)


def _writer(target: Path, schema: Any) -> Any:
    import pyarrow.parquet as pq

    target.parent.mkdir(parents=True, exist_ok=True)
    # No dictionary: it would take -0.0 for 0.0. No statistics: they say what a text begins with.
    return pq.ParquetWriter(
        target, schema, compression="zstd", use_dictionary=False, write_statistics=False
    )


# What an export is: its files, its manifest and its version; documented in docs/exchange.md.


FORMAT = "noctuary-export"
FORMAT_VERSION = 1
"""Bumped when a reader of the previous version could not read the new one."""

MANIFEST = "manifest.json"
MEMORIES = "memories.jsonl"
NODES = "graph/nodes.jsonl"
EDGES = "graph/edges.jsonl"
SUMMARIES = "summaries.jsonl"
LINES = (MEMORIES, NODES, EDGES, SUMMARIES)
"""For people and other programs; an import compares them with what it built."""

TABLES = "tables"
ARRAYS = "arrays"
ENCODER = "encoder"
OTHER = "files"

ENCODER_FILES = (HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE)
OTHER_FILES = (RANKING_FILE, ABSTENTION_FILE, TIER_EXITS_FILE)
"""Of a snapshot: all but its rows and its arrays."""

_FOREIGN = "encoder/hosted.json"
"""In exports of before: it names an address and a variable of the exporter, and is left alone."""

_NAME = re.compile(
    "|".join(
        [*map(re.escape, (*LINES, _FOREIGN)), rf"({TABLES}|{ARRAYS})/[a-z0-9_]+\.parquet"]
        + [re.escape(f"{ENCODER}/{name}") for name in ENCODER_FILES]
        + [re.escape(f"{OTHER}/{name}") for name in OTHER_FILES]
    )
)
"""Of every file that may be in an export: none leads out of the directory that it is put into."""

SNAPSHOT_KEYS = (
    "format_version", "counts", "id_kind", "encoder", "encoder_digest", "corpus_digest",
    "warnings", "built_at", "settings",
)  # fmt: skip
"""Of a snapshot's manifest, what travels: not its digest and its files' checksums, which change
with the version of SQLite, and no place on this machine."""

_BODY = {"format", "format_version", "digest", "files", "snapshot"}
_MOST_MANIFEST_BYTES = 16 * 2**20  # a real one has some 30,000
_OF_ONE_MACHINE = re.compile(
    r"evaluation\.queries|.*\.(path|user|address)|.*[._]ur[il]|.*_variable"
)
"""Settings that name a place, an address, a user or a variable: an import's owner has their own."""
_PLACES = ("/", "~", ".")
"""What a model begins with that is named by its directory."""


class ExportFormatError(SourceFormatError):
    """A directory is no export, a damaged one, or one of another version."""


@dataclass(frozen=True, slots=True)
class ExportManifest:
    """What an export holds.

    Attributes:
        digest: SHA-256 over everything below: equal exports have equal ones.
        files: By path, bytes and SHA-256.
        snapshot: The snapshot's own manifest, without where it came from and how it is stored.
    """

    digest: str
    files: Mapping[str, Mapping[str, Any]]
    snapshot: Mapping[str, Any]


def without_places(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return a snapshot's settings with nothing in them that is of one machine only."""
    return {
        section: {
            key: "" if _is_of_one_machine(f"{section}.{key}", value) else value
            for key, value in values.items()
        }
        for section, values in settings.items()
    }


def _is_of_one_machine(name: str, value: Any) -> bool:
    is_place = isinstance(value, str) and value.startswith(_PLACES)
    return is_place or _OF_ONE_MACHINE.fullmatch(name) is not None


def write_export_manifest(directory: Path, snapshot: Mapping[str, Any]) -> ExportManifest:
    """Describe every file of a directory and write the manifest beside them."""
    paths = sorted(p for p in directory.rglob("*") if p.is_file())
    files = {
        p.relative_to(directory).as_posix(): {"bytes": p.stat().st_size, "sha256": hash_file(p)}
        for p in paths
    }
    manifest = ExportManifest(_digest(files, snapshot), files, snapshot)
    body = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "digest": manifest.digest,
        "files": files,
        "snapshot": snapshot,
    }
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False)
    write_text(directory / MANIFEST, text + "\n")
    return manifest


def read_export_manifest(directory: Path) -> ExportManifest:
    """Read the manifest and check every byte of the export.

    Raises:
        SourceMissingError: There is no such directory.
        ExportFormatError: It is no export, of another version, or not as it was written.
    """
    if not directory.is_dir():
        raise SourceMissingError(f"there is no export at {directory}: expected a directory")
    try:
        found = (directory / MANIFEST).lstat()
        if not S_ISREG(found.st_mode) or found.st_size > _MOST_MANIFEST_BYTES:
            raise ValueError(MANIFEST)  # noqa: TRY301
        raw: Any = parse_json((directory / MANIFEST).read_text(encoding="utf-8"))
        found, version = raw["format"], raw["format_version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ExportFormatError(
            f"{directory} is no export of noctuary: it has no readable {MANIFEST}"
        ) from None
    if found != FORMAT:
        raise ExportFormatError(f"{directory} is no export of noctuary: its format is {found!r}")
    if version != FORMAT_VERSION:
        raise ExportFormatError(
            f"{directory} is an export of version {version!r}; this noctuary reads version "
            f"{FORMAT_VERSION}: use the noctuary that made it, or export anew"
        )
    try:
        manifest = ExportManifest(str(raw["digest"]), dict(raw["files"]), dict(raw["snapshot"]))
        is_same = manifest.digest == _digest(manifest.files, manifest.snapshot)
        unknown = sorted({*raw} - _BODY | {*manifest.snapshot} - {*SNAPSHOT_KEYS})
        faults = _faults(directory, manifest.files)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ExportFormatError(f"the {MANIFEST} of {directory} is damaged") from None
    if faults or not is_same:
        said = "; ".join(faults[:3]) or f"its {MANIFEST} was changed"
        raise ExportFormatError(f"the export in {directory} is damaged: {said}")
    if unknown:
        raise ExportFormatError(
            f"the {MANIFEST} of {directory} says {', '.join(unknown)}, which this noctuary does "
            "not know: use the noctuary that made it, or export anew"
        )
    return manifest


def _faults(directory: Path, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    # Neither links to files nor links to folders are followed: what they lead to is no part of it.
    found = {p.relative_to(directory).as_posix(): p.lstat() for p in directory.rglob("*")}
    faults: list[str] = []
    for name, entry in files.items():
        if not _NAME.fullmatch(name):
            faults.append(f"{name!r} is no name of a file in an export")
        elif name not in found or not S_ISREG(found[name].st_mode):
            faults.append(f"{name} is missing")
        elif (
            found[name].st_size != entry["bytes"] or hash_file(directory / name) != entry["sha256"]
        ):
            faults.append(f"{name} was changed")
    known = {*files, MANIFEST}
    return faults + [
        f"{name} does not belong to it"
        for name, stat in sorted(found.items())
        if name not in known and not S_ISDIR(stat.st_mode)
    ]


def _digest(files: Mapping[str, Mapping[str, Any]], snapshot: Mapping[str, Any]) -> str:
    return hash_json({"version": FORMAT_VERSION, "files": files, "snapshot": snapshot})


# A snapshot as JSON lines: memories as a source reads them, the graph as nodes and edges.


_IN_EDGES: Mapping[str, Callable[[SnapshotView], Rows]] = {
    "mentions": snapshot_rows.mentions,
    "edges": snapshot_rows.edges,
    "concept_edges": snapshot_rows.concept_edges,
    "supersessions": snapshot_rows.supersessions,
    "summary_sources": snapshot_rows.summary_sources,
}
KINDS = ("mention", "edge", "concept_edge", "supersession", "summary_source")
"""In edges.jsonl, by table."""

Line = Mapping[str, Any]


def write_lines(view: SnapshotView, directory: Path) -> None:
    """Write the four files of JSON lines below a directory."""
    _write(directory / MEMORIES, memory_lines(view))
    _write(directory / NODES, _objects("concepts", snapshot_rows.concepts(view)))
    _write(directory / EDGES, _edge_lines(view))
    _write(directory / SUMMARIES, _objects("summaries", snapshot_rows.summaries(view)))


def memory_lines(view: SnapshotView) -> Iterator[Line]:
    """Yield the memories as a JSON lines source has them (docs/formats.md); null is left out."""
    is_number = view.manifest.id_kind == "int"
    for memory in _objects("memories", snapshot_rows.memories(view)):
        values = {k: v for k, v in memory.items() if v is not None and k != "position"}
        memory_id = values.pop("memory_id")
        yield {"id": int(memory_id) if is_number else memory_id, **values}


def _edge_lines(view: SnapshotView) -> Iterator[Line]:
    for kind, (table, rows) in zip(KINDS, _IN_EDGES.items(), strict=True):
        for values in _objects(table, rows(view)):
            yield {"kind": kind, **values}


def _objects(table: str, rows: Rows) -> Iterator[dict[str, Any]]:
    names = [column.name for column in find_table(table).columns]
    for batch in rows:
        for row in batch:
            yield dict(zip(names, row, strict=True))


def _write(path: Path, lines: Iterable[Line]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as handle:
        for line in lines:
            handle.write(json.dumps(line, ensure_ascii=False, default=_moment) + "\n")


def _moment(value: object) -> str:
    assert isinstance(value, datetime)
    return value.replace(tzinfo=UTC).isoformat()


# What must hold before an imported snapshot serves: the gate's sentences, as far as they apply.


_NOT_AGAIN = frozenset({DROP_CHECK, every_summary_preserves_its_sources.__name__})
"""They compare with another snapshot, or ask the model: the night that made it did both."""


_RANKING = frozenset({"adopted", "challenger", "reason", "evidence"})
_ABSTENTION = frozenset({"rule", "signals"})
_NONE = type(None)
_ADOPTED = frozenset({"fusion", "lexical_weight", "dense_weight", "graph_weight", "session_weight"})
"""What an evaluation may choose of a ranking: no other flag comes with a snapshot."""

_COUNTED = ("memories", "terms", "concepts", "concept_edges", "supersessions", "clusters",
            "summaries")  # fmt: skip
_ANEW = "somebody changed it, so export anew"


def require_sound_snapshot(export: Path, said: Mapping[str, Any]) -> None:
    """Refuse what a manifest says of its snapshot where no night says such a thing.

    Raises:
        ExportFormatError: Naming what is wrong.
    """
    if said.get("format_version") != PACK_FORMAT_VERSION:
        raise ExportFormatError(
            f"the snapshot in {export} has format {said.get('format_version')!r}, this noctuary "
            f"reads {PACK_FORMAT_VERSION}: use the noctuary that made it"
        )
    rules: Mapping[str, Callable[[Any], bool]] = {
        "id_kind": lambda v: v in ("int", "str"),
        "encoder_digest": lambda v: v == _digest_of(said["encoder"]),
        "counts": lambda v: all(type(n) is int and n >= 0 for n in (v["memories"], *v.values())),
        "corpus_digest": lambda v: isinstance(v, str),
        "built_at": lambda v: bool(datetime.fromisoformat(v)),
        "warnings": lambda v: all(
            isinstance(code, str) and isinstance(message, str) for code, message in v
        ),
        "settings": _are_settings,
    }
    for name, holds in rules.items():
        try:
            is_sound = holds(said[name])
        except (KeyError, TypeError, ValueError, AttributeError, EncoderError):
            is_sound = False
        if not is_sound:
            raise ExportFormatError(
                f"the manifest of {export} has a value under {name} that no snapshot has: {_ANEW}"
            )


def require_sound_files(directory: Path, manifest: Manifest) -> None:
    """Refuse a built snapshot that does not open, or whose files say what no night writes.

    Raises:
        ExportFormatError: Naming what is wrong.
        SnapshotCorruptError: It does not open.
    """
    for name in OTHER_FILES:
        if name in manifest.files:
            _require_known_flags(directory / name)
    SnapshotReader.open(directory).close()
    with closing(connect_immutable(directory / ROWS_FILE)) as rows:
        _require_published_rows(rows, manifest)
        for table in _COUNTED:
            (held,) = rows.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
            if held != manifest.counts[table]:
                raise ExportFormatError(
                    f"the export holds {held} {table} and its manifest says "
                    f"{manifest.counts[table]}: {_ANEW}"
                )


def _require_known_flags(path: Path) -> None:
    found = parse_json(path.read_text(encoding="utf-8"))
    if path.name == TIER_EXITS_FILE:
        odd = {d for d, at in found.items() if not d.isdecimal() or type(at) not in (float, _NONE)}
    elif path.name == RANKING_FILE:
        odd = {*found} - _RANKING | {*found["adopted"]} - _ADOPTED
    else:
        odd = {*found} - _ABSTENTION | {*found["signals"]} - {*SIGNALS}
    if odd:
        raise ExportFormatError(
            f"{path.name} of the export sets {', '.join(sorted(odd))}, which no night does"
        )


def _require_published_rows(rows: sqlite3.Connection, manifest: Manifest) -> None:
    names, hashes = MemoryRecord.__slots__, list[str]()
    for row in rows.execute(f"SELECT {', '.join(names)} FROM memories ORDER BY position"):
        memory = dict(zip(names, row, strict=True))
        hashes.append(memory["content_hash"])
        if published_text(memory) is DAMAGED_TEXT:
            raise ExportFormatError(
                f"a text in the export does not match its content hash: {_ANEW}"
            )
        if manifest.id_kind == "int" and str(int(memory["memory_id"])) != memory["memory_id"]:
            raise ExportFormatError(
                f"the manifest says that ids are numbers, and one is none: {_ANEW}"
            )
    if corpus_digest(hashes) != manifest.corpus_digest:
        raise ExportFormatError(f"the memories do not match the manifest's corpus_digest: {_ANEW}")


def judge_import(directory: Path, manifest: Manifest) -> list[CheckResult]:
    """Return what the gate says of a snapshot that was made from an export."""
    context = _context(manifest)
    with closing(connect_immutable(directory / ROWS_FILE)) as rows:
        candidate = Candidate(directory, manifest, rows)
        checks = [check for check in GATE_CHECKS if check.__name__ not in _NOT_AGAIN]
        return [run_check(check, candidate, context) for check in checks]


def find_sensitive(directory: Path, manifest: Manifest) -> str:
    """Return which rows of a snapshot look sensitive, by table and id; empty if none does."""
    with closing(connect_immutable(directory / ROWS_FILE)) as rows:
        candidate = Candidate(directory, manifest, rows)
        passed, found = no_sensitive_row_is_anywhere(candidate, _context(manifest))
    return "" if passed else str(found.get("ids", found))


def _digest_of(encoder: Mapping[str, Any] | None) -> str | None:
    return None if encoder is None else EncoderFingerprint.from_json(encoder).digest


def _are_settings(said: Mapping[str, Mapping[str, Any]]) -> bool:
    """Say whether these are settings of this version, each of its type."""
    known = Settings().to_json()
    return all(
        isinstance(value, int | float)
        if type(default := known[section][key]) is float
        else type(value) is type(default)
        for section, values in said.items()
        for key, value in values.items()
    )


def _context(manifest: Manifest) -> GateContext:
    held = manifest.counts["memories"]
    return GateContext(
        source_counts={"source_rows": held, "exported": held, "quarantined": 0, "sensitive": 0},
        tier_rows={},
        tier_faults={},
        unindexed_rows={},
        encoder_digest=manifest.encoder_digest,
        preserve_threshold=0.0,
        encode=_refuse_to_encode,
        drops=DropReport(),
    )


def _refuse_to_encode(texts: Sequence[str]) -> NDArray[np.float32]:
    raise NotImplementedError(f"no model is asked during an import ({len(texts)} texts)")


# Writing an export: what serves, as files that other programs read; equal ones, equal bytes.


_TASK = "export"
_PRIVATE_DIRECTORY = 0o700
_ARRAY = ".npy"


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        directory: Where.
        digest: Of the export: equal ones hold the same.
        memories: How many.
        files: How many, manifest included.
        bytes: Of all of them.
        has_encoder: False: recalls after an import go by words until a night has run.
    """

    directory: Path
    digest: str
    memories: int
    files: int
    bytes: int
    has_encoder: bool


def export_snapshot(
    paths: StorePaths, target: Path, *, with_encoder: bool = True, progress: Progress = SILENT
) -> Exported:
    """Write what serves into a new directory, readable by its owner only.

    It appears there when it is complete.

    Args:
        paths: The store.
        target: A directory that does not exist, or is empty.
        with_encoder: Also what an import needs to answer by meaning.
        progress: Told of every file.

    Raises:
        StoreError: Nothing serves, it is damaged, something is at the target, or a text looks
            sensitive by the rules of today.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StoreError(f"{target} exists and is not an empty directory: name another place")
    view = SnapshotView(paths)
    building = target.absolute().with_name(f".{target.absolute().name}.exporting")
    try:
        snapshot = paths.snapshots / view.snapshot_id
        full_check(snapshot, view.manifest)
        _refuse_sensitive(snapshot, view.manifest)
        remove_tree(building)
        building.mkdir(parents=True, mode=_PRIVATE_DIRECTORY)
        _write_exact(snapshot, view.manifest, building, progress)
        write_lines(view, building)
        has_encoder = with_encoder and _copy_encoder(paths, view.manifest, building)
        written = write_export_manifest(building, _described(view.manifest))
        make_private(building)
        if target.exists():
            target.rmdir()
        building.rename(target)
        fsync_dir(target.absolute().parent)
    finally:
        view.close()
        remove_tree(building)
    sizes = [path.stat().st_size for path in target.rglob("*") if path.is_file()]
    memories = view.manifest.counts["memories"]
    return Exported(target, written.digest, memories, len(sizes), sum(sizes), has_encoder)


def table_names(db: sqlite3.Connection) -> list[str]:
    """Return the tables of rows.sqlite in the order in which they were made."""
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid"
    return [str(row[0]) for row in db.execute(sql)]


def _refuse_sensitive(snapshot: Path, manifest: Manifest) -> None:
    found = find_sensitive(snapshot, manifest)
    if found:
        raise StoreError(
            f"{found} look sensitive by the rules of today: run a night, which takes them out, "
            "then export"
        )


def _write_exact(snapshot: Path, manifest: Manifest, target: Path, progress: Progress) -> None:
    """Write what an import makes the snapshot's own files of."""
    for done, name in enumerate(sorted(manifest.files)):
        progress.update(_TASK, done, len(manifest.files))
        path = snapshot / name
        if name == ROWS_FILE:
            with closing(connect_immutable(path)) as db:
                for table in table_names(db):
                    place = target / TABLES / f"{table}.parquet"
                    table_to_parquet(db, table, place)
        elif path.suffix == _ARRAY:
            array_to_parquet(path, target / ARRAYS / f"{path.stem}.parquet")
        else:
            _copy(path, target / OTHER / name)
    progress.update(_TASK, len(manifest.files), len(manifest.files))


def _copy_encoder(paths: StorePaths, manifest: Manifest, target: Path) -> bool:
    if manifest.encoder_digest is None:
        return False
    directory = paths.encoders / manifest.encoder_digest
    # Where a provider made the vectors there is no such file: its address is its owner's.
    if not all((directory / name).is_file() for name in ENCODER_FILES):
        return False
    for name in ENCODER_FILES:
        _copy(directory / name, target / ENCODER / name)
    return True


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _described(manifest: Manifest) -> Mapping[str, Any]:
    """Return the part of a manifest that travels."""
    raw = {**manifest.to_json(), "settings": without_places(manifest.settings)}
    return {name: raw[name] for name in SNAPSHOT_KEYS}


# A new store from an export: the snapshot is built again, judged, compared, and serves.


KIND = "noctuary-export"
"""The kind of source of an imported snapshot: there is no store behind it that could be looked
into."""

_IMPORTING_TASK = "import"
_CLUSTERS = "clusters"
_LAST = "meta"  # of the tables: a build writes it last, and the order decides the file's pages


ImportedRows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import made.

    Attributes:
        store: The new store.
        snapshot_id: What serves in it.
        memories: How many.
        has_encoder: False: recalls go by words until a night has run.
    """

    store: Path
    snapshot_id: str
    memories: int
    has_encoder: bool


def import_snapshot(export: Path, paths: StorePaths, progress: Progress = SILENT) -> Imported:
    """Make a new store that serves what an export holds; nothing is left behind if it fails.

    Args:
        export: The directory.
        paths: Of the new store: a directory that does not exist, or is empty.
        progress: Told of every file.

    Raises:
        ExportFormatError: The export is damaged, foreign, or of another version.
        StoreError: Something is where the store would be, or what was built may not serve.
    """
    root = paths.root.absolute()
    if root.exists() and not (root.is_dir() and not any(root.iterdir())):
        raise StoreError(
            f"{root} exists and is not an empty directory: import makes a new store, name another"
        )
    manifest = read_export_manifest(export)
    require_sound_snapshot(export, manifest.snapshot)
    building = StorePaths(root.with_name(f".{root.name}.importing-{os.getpid()}"))
    missing = [parent for parent in root.parents if not parent.exists()]
    try:
        snapshot_id = _build_store(export, manifest, building, progress)
        make_private(building.root)
        for path in (building.root, *building.root.rglob("*")):
            fsync_file(path)
        if root.exists():
            root.rmdir()
        building.root.rename(root)
        fsync_dir(root.parent)
    except BaseException:
        remove_tree(building.root)
        for parent in missing:
            with suppress(OSError):  # somebody else has put something there
                parent.rmdir()
        raise
    has_encoder = (root / "encoders").is_dir()
    memories = manifest.snapshot["counts"]["memories"]
    return Imported(root, snapshot_id, memories, has_encoder)


def _build_store(
    export: Path, manifest: ExportManifest, paths: StorePaths, progress: Progress
) -> str:
    remove_tree(paths.root)
    candidate = paths.candidates / ".building-import"
    make_directory(candidate)
    try:
        _write_files(export, manifest, candidate, progress)
        made = _make_manifest(export, manifest.snapshot, candidate)
        write_manifest(candidate, made)
        require_sound_files(candidate, made)
        _judge(paths, candidate, made)
        candidate.rename(paths.candidates / made.digest[:DIGEST_NAME_CHARS])
        _copy_encoder_importing(export, manifest, paths)
        published = publish_candidate(paths, made.digest, keep=1)
        _compare_lines(manifest, paths)
    except Exception as error:
        if isinstance(error, NoctuaryError) and not isinstance(error, SnapshotCorruptError):
            raise
        # Texts of the libraries may quote the rows they fail on.
        found = type(error.__cause__ or error).__name__
        raise ExportFormatError(
            f"the export in {export} cannot be made a snapshot of ({found}): it was not written by "
            "noctuary, or by another version"
        ) from None
    return published.snapshot_id


def _write_files(export: Path, manifest: ExportManifest, target: Path, progress: Progress) -> None:
    names = sorted(name for name in manifest.files if "/" in name)
    tables: dict[str, Path] = {}
    for done, name in enumerate(names):
        progress.update(_IMPORTING_TASK, done, len(names))
        folder, _, file = name.partition("/")
        if folder == TABLES:
            tables[Path(file).stem] = export / name
        elif folder == ARRAYS:
            parquet_to_array(export / name, target / f"{Path(file).stem}.npy")
        elif folder == OTHER:
            shutil.copyfile(export / name, target / file)
    _write_rows(target / ROWS_FILE, tables)
    progress.update(_IMPORTING_TASK, len(names), len(names))


def _write_rows(path: Path, tables: Mapping[str, Path]) -> None:
    """Write rows.sqlite as a build does: the same statements in the same order."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=FULL")
        with db:
            db.executescript(ROWS_SCHEMA)
            known = table_names(db)
            if set(known) != set(tables):
                odd = ", ".join(sorted(set(known) ^ set(tables)))
                raise ExportFormatError(f"the tables of the export are not this version's: {odd}")
            for table in sorted(known, key=lambda name: name == _LAST):
                for rows in _in_order(table, parquet_rows(db, table, tables[table])):
                    if not rows:
                        continue
                    marks = ",".join("?" * len(rows[0]))
                    db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)


def _in_order(table: str, batches: Iterator[ImportedRows]) -> Iterator[ImportedRows]:
    """Yield rows as a build inserts them: all by their key, but clusters by session and place."""
    if table != _CLUSTERS:
        yield from batches
        return
    rows = [row for batch in batches for row in batch]
    yield sorted(rows, key=lambda row: (row[1], row[2], row[0]))


def _make_manifest(export: Path, said: Mapping[str, Any], directory: Path) -> Manifest:
    files = describe_files(directory)
    counts, id_kind, encoder_digest = said["counts"], said["id_kind"], said["encoder_digest"]
    return Manifest(
        format_version=PACK_FORMAT_VERSION,
        digest=compute_digest(files, counts, id_kind, encoder_digest),
        files=files,
        counts=counts,
        id_kind=id_kind,
        encoder=said["encoder"],
        encoder_digest=encoder_digest,
        source={
            "kind": KIND,
            "schema_version": str(FORMAT_VERSION),
            "location": str(export.absolute()),
        },
        corpus_digest=said["corpus_digest"],
        settings=without_places(said["settings"]),
        warnings=[(str(code), str(message)) for code, message in said["warnings"]],
        built_at=said["built_at"],
    )


def _judge(paths: StorePaths, directory: Path, manifest: Manifest) -> None:
    results = judge_import(directory, manifest)
    verdict = store_verdict(paths, manifest.digest, results)
    if verdict.outcome != PASS:
        failed = ", ".join(result.name for result in results if not result.passed)
        raise StoreError(f"what the export holds may not serve: {failed} failed")


def _copy_encoder_importing(export: Path, manifest: ExportManifest, paths: StorePaths) -> None:
    """Copy the encoder that the snapshot names, checked as a recall would open it.

    Raises:
        ExportFormatError: It is damaged, or another one.
    """
    names = [f"{ENCODER}/{name}" for name in ENCODER_FILES]
    if not any(name in manifest.files for name in names):
        return
    digest = str(manifest.snapshot["encoder_digest"])
    directory = paths.encoders / digest
    directory.mkdir(parents=True)
    try:
        for name in names:
            shutil.copyfile(export / name, directory / Path(name).name)
        encoder = LeanEncoder.open(directory, verify=True)
        header = read_header(directory)
    except (EncoderError, OSError):
        raise ExportFormatError(f"the encoder in {export} is damaged") from None
    told = (directory / HEADER_FILE).read_text(encoding="utf-8")
    if encoder.fingerprint.digest != digest or told != header_text(header):
        raise ExportFormatError(f"the encoder in {export} is not the one that its manifest names")


def _compare_lines(manifest: ExportManifest, paths: StorePaths) -> None:
    """Compare what was built with the export's JSON lines: people read those, they must agree.

    Raises:
        ExportFormatError: They say something else.
    """
    directory = paths.root / ".lines"
    view = SnapshotView(paths)
    try:
        write_lines(view, directory)
        for name in LINES:
            if hash_file(directory / name) != manifest.files.get(name, {}).get("sha256"):
                raise ExportFormatError(
                    f"{name} and the Parquet files of the export say different things: it was "
                    "changed after it was written"
                )
    finally:
        view.close()
        remove_tree(directory)
