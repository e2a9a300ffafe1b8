"""`noctuary export` and `import`: a snapshot as files, and a new store made of such files."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, NamedTuple

import click
from numpy.lib import format as npy

from noctuary.cli import main as cli
from noctuary.cli.sql import SnapshotView, read_rows
from noctuary.cli.vault import Vault, write_vault
from noctuary.core import errors, files, formats, manifest, types
from noctuary.core import store as layout
from noctuary.core.foreign_json import parse_json
from noctuary.core.settings import Settings
from noctuary.core.sqlite import connect_immutable
from noctuary.core.store import StorePaths
from noctuary.core.tombstones import read_tombstones
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.embed import lean
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import SIGNALS
from noctuary.snapshot import checks
from noctuary.snapshot.content_checks import every_summary_preserves_its_sources
from noctuary.snapshot.pack import ROWS_SCHEMA
from noctuary.snapshot.publish import PASS, publish_candidate, store_verdict

# The two commands.


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@cli.option(
    "--encoder/--no-encoder",
    "with_encoder",
    "Include the encoder, so that the imported store can answer by meaning (90 MB).",
    default=True,
)
@cli.flag("--markdown", "Write notes that Obsidian opens, for reading and editing.")
@cli.store_options
def export(directory: Path, with_encoder: bool, markdown: bool, store: str | None) -> None:
    """Write the current snapshot to DIRECTORY, which must not exist or be empty.

    The formats are readable by other programs: memories.jsonl (also a source for `noctuary
    nightly`), graph/nodes.jsonl and graph/edges.jsonl, summaries.jsonl, and the snapshot's own
    SQLite file and arrays. `noctuary import` turns them into a store that gives the same answers.
    Equal snapshots give equal bytes. Snapshots hold no sensitive memories. If a text looks
    sensitive by today's rules, nothing is exported.

    \b
    noctuary export ~/memories-2026-03
    noctuary import ~/memories-2026-03 --store copy
    noctuary export --markdown ~/vault       again to update it; keeps what you edited

    Exit code 1 if nothing was written.
    """  # noqa: D301 (click wants the control character)
    target = directory.absolute()
    if markdown:
        vault = export_vault(cli.open_paths(store), target)
        told = (
            f"{vault.written:,} written, {vault.removed:,} removed, {vault.kept:,} kept as edited"
        )
        lines = [f"{vault.notes:,} notes in {directory} ({told})"]
        cli.tell({**vault._asdict(), "directory": str(target)}, lines)
        return
    found = export_snapshot(
        cli.open_paths(store), directory, with_encoder=with_encoder, progress=cli.ScanProgress()
    )
    size = f"{found.files} files, {found.bytes / 2**20:.1f} MiB"
    lines = [f"exported {found.memories:,} memories to {directory} ({size})"]
    cli.tell({**found._asdict(), "directory": str(target)}, [*lines, f"digest {found.digest}"])


@click.command("import")
@click.argument("export", type=click.Path(path_type=Path))
@cli.option(
    "--store STORE",
    "The new store: a directory, or a name below noctuary's home. It must not exist yet.",
    required=True,
)
@cli.json_option
def import_store(export: Path, store: str) -> None:
    """Make a new store from the export in the directory EXPORT.

    noctuary checks every byte first. It refuses a damaged or foreign export and other versions, and
    then leaves nothing behind. The new snapshot passes the night's checks and gives the same
    answers as the exported store.

    \b
    noctuary import ~/memories-2026-03 --store copy
    noctuary recall "spare key" --store copy

    Exit code 1 if no store was made.
    """  # noqa: D301 (click wants the control character)
    named = layout.expand_user(store)
    root = layout.find_home() / named if len(named.parts) == 1 else named.absolute()
    found = import_snapshot(export, StorePaths(root), cli.ScanProgress())
    lines = [f"store {found.store} serves {found.memories:,} memories ({found.snapshot_id})"]
    if not found.has_encoder:
        lines.append("! no encoder came with the export: recalls go by words until a night runs")
    lines.append(f'\nask it:  noctuary recall "..." --store {store}')
    cli.tell({**found._asdict(), "store": str(found.store)}, lines)


# What an export is: its files, its manifest and its version; documented in docs/exchange.md.

FORMAT = "noctuary-export"
FORMAT_VERSION = formats.EXPORT.version

MANIFEST = "manifest.json"
MEMORIES, NODES, EDGES = "memories.jsonl", "graph/nodes.jsonl", "graph/edges.jsonl"
LINES = (MEMORIES, NODES, EDGES, "summaries.jsonl")
"""For people and other programs; an import compares them with what it built."""

SNAPSHOT, ENCODER = "snapshot", "encoder"  # folders: its own files, and what embeds queries
ENCODER_FILES = (lean.HEADER_FILE, lean.VOCAB_FILE, lean.WEIGHTS_FILE)
OTHER_FILES = (layout.RANKING_FILE, layout.ABSTENTION_FILE, layout.TIER_EXITS_FILE)
"""Of a snapshot: all but its rows and its arrays."""

# Every file that may be in an export: none leads out of the directory that it is put into.
_NAMES = frozenset(
    [*LINES, *(f"{ENCODER}/{name}" for name in ENCODER_FILES)]
    + [f"{SNAPSHOT}/{name}" for name in (layout.ROWS_FILE, layout.ARRAYS_FILE)]
    + [f"{SNAPSHOT}/{name}" for name in (layout.VECTORS_FILE, *OTHER_FILES)]
)

SNAPSHOT_KEYS = (
    "format_version", "counts", "id_kind", "encoder", "encoder_digest", "corpus_digest",
    "warnings", "built_at", "settings",
)  # fmt: skip
"""Of a snapshot's manifest, what travels: not its digest and its files' checksums, which change
with the version of SQLite, and no place on this machine."""

_BODY = {"format", "format_version", "digest", "files", "snapshot"}
_MOST_MANIFEST_BYTES = 16 * 2**20  # a real one has some 30,000
# Settings that name a place, an address, a user or a variable: an import's owner has their own.
_OF_ONE_MACHINE = re.compile(
    r"evaluation\.queries|.*\.(path|user|address|wings)|.*[._]ur[il]|.*_variable"
)
_PLACES = ("/", "~", ".")  # what a model begins with that is named by its directory
_OTHERWISE = "use the noctuary that made it, or export anew"
_ANEW = "somebody changed it, so export anew"

Entries = Mapping[str, Mapping[str, Any]]
"""Size ("bytes") and checksum ("sha256") of every file, by its path in the export."""


class ExportFormatError(errors.SourceFormatError):
    """A directory is no export, a damaged one, or one of another version."""


def _require(holds: object, message: str) -> None:
    if not holds:
        raise ExportFormatError(message)


class ExportManifest(NamedTuple):
    """What an export holds: files by path, and the snapshot's manifest; the digest is over both."""

    digest: str
    files: Entries
    snapshot: Mapping[str, Any]


def without_places(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return a snapshot's settings with nothing in them that is of one machine only."""

    def is_ours(name: str, value: Any) -> bool:
        is_place = isinstance(value, str) and value.startswith(_PLACES)
        return is_place or _OF_ONE_MACHINE.fullmatch(name) is not None

    return {
        section: {k: type(v)() if is_ours(f"{section}.{k}", v) else v for k, v in values.items()}
        for section, values in settings.items()
    }


def write_export_manifest(directory: Path, snapshot: Mapping[str, Any]) -> ExportManifest:
    """Describe every file of a directory and write the manifest beside them."""
    entries = {
        path.relative_to(directory).as_posix(): {
            "bytes": path.stat().st_size, "sha256": files.hash_file(path),
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }  # fmt: skip
    made = ExportManifest(_digest(entries, snapshot), entries, snapshot)
    body = {"format": FORMAT, "format_version": FORMAT_VERSION, **made._asdict()}
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False)
    files.write_text(directory / MANIFEST, text + "\n")
    return made


def read_export_manifest(directory: Path) -> ExportManifest:
    """Read the manifest and check every byte of the export."""
    if not directory.is_dir():
        raise errors.SourceMissingError(f"there is no export at {directory}: expected a directory")
    path, not_ours = directory / MANIFEST, f"{directory} is not a noctuary export"
    try:
        stat = path.lstat()
        is_read = S_ISREG(stat.st_mode) and stat.st_size <= _MOST_MANIFEST_BYTES
        raw: Any = parse_json(path.read_text(encoding="utf-8")) if is_read else None
        kind, version = raw["format"], raw["format_version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ExportFormatError(f"{not_ours}: it has no readable {MANIFEST}") from None
    _require(kind == FORMAT, f"{not_ours}: its format is {kind!r}")
    _require(
        version == FORMAT_VERSION,
        f"{directory} is an export of version {version!r}; this noctuary reads version "
        f"{FORMAT_VERSION}: {_OTHERWISE}",
    )
    try:
        made = ExportManifest(str(raw["digest"]), dict(raw["files"]), dict(raw["snapshot"]))
        is_same = made.digest == _digest(made.files, made.snapshot)
        unknown = sorted({*raw} - _BODY | {*made.snapshot} - {*SNAPSHOT_KEYS})
        faults = _faults(directory, made.files)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ExportFormatError(f"the {MANIFEST} of {directory} is damaged") from None
    said = "; ".join(faults[:3]) or f"its {MANIFEST} was changed"
    _require(is_same and not faults, f"the export in {directory} is damaged: {said}")
    told = f"the {MANIFEST} of {directory} says {', '.join(unknown)}, which this noctuary does not"
    _require(not unknown, f"{told} know: {_OTHERWISE}")
    return made


def _faults(directory: Path, entries: Entries) -> list[str]:
    # Neither links to files nor links to folders are followed: what they lead to is no part of it.
    found = {p.relative_to(directory).as_posix(): p.lstat() for p in directory.rglob("*")}
    faults: list[str] = []
    for name, entry in entries.items():
        if name not in _NAMES:
            faults.append(f"{name!r} is not the name of a file in an export")
        elif name not in found or not S_ISREG(found[name].st_mode):
            faults.append(f"{name} is missing")
        elif not _is_as_described(directory / name, entry):
            faults.append(f"{name} was changed")
    strange = found.keys() - entries.keys() - {MANIFEST}
    strange = sorted(name for name in strange if not S_ISDIR(found[name].st_mode))
    return faults + [f"{name} does not belong to it" for name in strange]


def _is_as_described(path: Path, entry: Mapping[str, Any]) -> bool:
    return path.lstat().st_size == entry["bytes"] and files.hash_file(path) == entry["sha256"]


def _digest(entries: Entries, snapshot: Mapping[str, Any]) -> str:
    return files.hash_json({"version": FORMAT_VERSION, "files": entries, "snapshot": snapshot})


# A snapshot as JSON lines: memories as a source reads them, the graph as nodes and edges.

_KINDS = ("mention", "edge", "concept_edge", "supersession", "summary_source")  # tables


def write_lines(view: SnapshotView, directory: Path) -> None:
    """Write the four files of JSON lines below a directory."""

    def moment(value: datetime) -> str:
        return value.replace(tzinfo=UTC).isoformat()

    edges = ({"kind": kind, **row} for kind in _KINDS for row in read_rows(view, f"{kind}s"))
    lines = (_memories(view), read_rows(view, "concepts"), edges, read_rows(view, "summaries"))
    for name, rows in zip(LINES, lines, strict=True):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="\n") as handle:
            for row in rows:
                handle.write(json.dumps(row, ensure_ascii=False, default=moment) + "\n")


def _memories(view: SnapshotView) -> Iterator[dict[str, Any]]:
    """Yield the memories as a JSON lines source has them (docs/formats.md); null is left out."""
    to_id = int if view.manifest.id_kind == "int" else str
    for row in read_rows(view, "memories"):
        memory_id, _ = row.pop("memory_id"), row.pop("position")
        yield {"id": to_id(memory_id), **{k: v for k, v in row.items() if v is not None}}


# What must hold before an imported snapshot serves: the gate's sentences, as far as they apply.

_NOT_AGAIN = frozenset({checks.DROP_CHECK, every_summary_preserves_its_sources.__name__})
"""They compare with another snapshot, or ask the model: the night that made it did both."""

_NONE = type(None)
_TYPES = {"TEXT": str, "INTEGER": int, "REAL": float}
_ADOPTED = frozenset({"fusion", "lexical_weight", "dense_weight", "graph_weight", "session_weight"})
"""What an evaluation may choose of a ranking: no other flag comes with a snapshot."""
# By file, its keys, and the one of them that holds flags, with the flags that it may hold.
_FLAGS = {
    layout.RANKING_FILE: ({"adopted", "challenger", "reason", "evidence"}, "adopted", _ADOPTED),
    layout.ABSTENTION_FILE: ({"rule", "signals"}, "signals", frozenset(SIGNALS)),
}

_COUNTED = ("memories", "terms", "concepts", "concept_edges", "supersessions", "clusters",
            "summaries")  # fmt: skip


def require_sound_snapshot(export: Path, said: Mapping[str, Any]) -> None:
    """Refuse what a manifest says of its snapshot where no night says such a thing."""
    found = said.get("format_version")
    _require(
        found == formats.SNAPSHOT.version,
        f"the snapshot in {export} has format {found!r}, this noctuary reads "
        f"{formats.SNAPSHOT.version}: use the noctuary that made it",
    )
    rules: Mapping[str, Callable[[Any], bool]] = {
        "id_kind": lambda v: v in ("int", "str"),
        "encoder_digest": lambda v: v == _digest_of_encoder(said["encoder"]),
        "counts": lambda v: all(type(n) is int and n >= 0 for n in (v["memories"], *v.values())),
        "corpus_digest": lambda v: isinstance(v, str),
        "built_at": lambda v: bool(datetime.fromisoformat(v)),
        "warnings": lambda v: all(isinstance(c, str) and isinstance(m, str) for c, m in v),
        "settings": _are_settings,
    }
    for name, holds in rules.items():
        try:
            is_sound = holds(said[name])
        except (KeyError, TypeError, ValueError, AttributeError, errors.EncoderError):
            is_sound = False
        told = f"the manifest of {export} has a value under {name} that no snapshot has"
        _require(is_sound, f"{told}: {_ANEW}")


def _digest_of_encoder(encoder: Mapping[str, Any] | None) -> str | None:
    return None if encoder is None else EncoderFingerprint.from_json(encoder).digest


def _are_settings(said: Mapping[str, Mapping[str, Any]]) -> bool:
    """Say whether these are settings of this version, each of its type."""
    known = Settings().to_json()
    return all(
        isinstance(value, int | float) if kind is float else type(value) is kind
        for section, values in said.items()
        for kind, value in ((type(known[section][key]), value) for key, value in values.items())
    )


def require_sound_files(directory: Path, made: manifest.Manifest) -> None:
    """Refuse a built snapshot that does not open, or whose files say what no night writes."""
    for name in made.files:
        if name == layout.ROWS_FILE:
            _require_known_rows(directory / name)
        elif name in OTHER_FILES:
            _require_known_flags(directory / name)
        elif name == layout.VECTORS_FILE:
            _require_plain_vectors(directory / name)
    SnapshotReader.open(directory).close()
    with closing(connect_immutable(directory / layout.ROWS_FILE)) as rows:
        _require_published_rows(rows, made)
        for table in _COUNTED:
            (held,) = rows.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
            told = f"the export holds {held} {table} and its manifest says {made.counts[table]}"
            _require(held == made.counts[table], f"{told}: {_ANEW}")


def _require_known_rows(path: Path) -> None:
    """Refuse tables, indexes or triggers that no build makes, and values of another type."""
    schema = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
    with closing(connect_immutable(path)) as db, closing(sqlite3.connect(":memory:")) as ours:
        ours.executescript(ROWS_SCHEMA)
        # What SQLite advises for files of strangers.
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("PRAGMA cell_size_check = ON")
        known = ours.execute(schema).fetchall()
        is_known = db.execute(schema).fetchall() == known
        _require(is_known, "the tables of the export are not this version's")
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise TypeError(path.name)
        for table in [name for kind, name, *_ in known if kind == "table"]:
            kinds = [_TYPES[row[2]] for row in ours.execute(f"PRAGMA table_info({table})")]
            for row in db.execute(f"SELECT * FROM {table}"):
                if any(type(v) not in (k, _NONE) for v, k in zip(row, kinds, strict=True)):
                    raise TypeError(table)


def _require_plain_vectors(path: Path) -> None:
    """Raise TypeError for another array than a night writes, or a longer or shorter one."""
    with path.open("rb") as handle:
        is_known = npy.read_magic(handle) == (1, 0)
        shape, is_fortran, dtype = npy.read_array_header_1_0(handle)
        size = handle.tell() + dtype.itemsize * math.prod(shape)
    is_known &= dtype.str == "<f4" and len(shape) == 2 and min(shape) >= 0
    if not is_known or is_fortran or path.stat().st_size != size:
        raise TypeError(f"{path.name} is {dtype.str} of {shape}")


def _require_known_flags(path: Path) -> None:
    found = parse_json(path.read_text(encoding="utf-8"))
    if path.name == layout.TIER_EXITS_FILE:
        odd = {d for d, at in found.items() if not d.isdecimal() or type(at) not in (float, _NONE)}
    else:
        keys, key, flags = _FLAGS[path.name]
        odd = {*found} - keys | {*found[key]} - flags
    sets = ", ".join(sorted(odd))
    _require(not odd, f"{path.name} of the export sets {sets}, which no night does")


def _require_published_rows(rows: sqlite3.Connection, made: manifest.Manifest) -> None:
    names, hashes = MemoryRecord._fields, list[str]()
    for row in rows.execute(f"SELECT {', '.join(names)} FROM memories ORDER BY position"):
        memory = dict(zip(names, row, strict=True))
        hashes.append(memory["content_hash"])
        is_published = types.published_text(memory) is not types.DAMAGED_TEXT
        _require(is_published, f"a text in the export does not match its content hash: {_ANEW}")
        is_known = made.id_kind == "str" or str(int(memory["memory_id"])) == memory["memory_id"]
        _require(is_known, f"the manifest says that ids are numbers, and one is none: {_ANEW}")
    is_same = types.corpus_digest(hashes) == made.corpus_digest
    _require(is_same, f"the memories do not match the manifest's corpus_digest: {_ANEW}")


@contextmanager
def _opened(
    directory: Path, made: manifest.Manifest
) -> Generator[tuple[checks.Candidate, checks.GateContext]]:
    """Yield a snapshot as the gate sees one, and what the gate is told where no night ran."""

    def refuse_to_encode(texts: Sequence[str]) -> Any:
        raise NotImplementedError(f"no model is asked during an import ({len(texts)} texts)")

    held, digest = made.counts["memories"], made.encoder_digest
    counts = {"source_rows": held, "exported": held, "quarantined": 0, "sensitive": 0}
    drops = checks.DropReport()
    context = checks.GateContext(counts, {}, {}, {}, digest, 0.0, refuse_to_encode, drops)
    with closing(connect_immutable(directory / layout.ROWS_FILE)) as rows:
        yield checks.Candidate(directory, made, rows), context


# A directory that appears under its name once it is complete.


@contextmanager
def _appearing(target: Path, advice: str) -> Generator[Path]:
    """Yield where to build; nothing is left behind if that fails."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise errors.StoreError(f"{target} exists and is not an empty directory: {advice}")
    building = target.with_name(f".{target.name}.building-{os.getpid()}")
    missing = [parent for parent in target.parents if not parent.exists()]
    try:
        files.remove_tree(building)
        files.make_directory(building)
        yield building
        files.make_private(building)
        for path in (building, *building.rglob("*")):
            files.fsync_file(path)
        if target.exists():
            target.rmdir()
        building.rename(target)
        files.fsync_dir(target.parent)
    except BaseException:
        files.remove_tree(building)
        for parent in missing:
            with suppress(OSError):  # somebody else has put something there
                parent.rmdir()
        raise


# Writing an export: what serves, as files that other programs read; equal ones, equal bytes.


class Exported(NamedTuple):
    """What was written; equal digests hold the same, and files and bytes count the manifest."""

    directory: Path
    digest: str
    memories: int
    files: int
    bytes: int
    has_encoder: bool


def export_snapshot(
    paths: StorePaths, target: Path, *, with_encoder: bool = True, progress: Progress = SILENT
) -> Exported:
    """Write what serves into a new directory, readable by its owner only."""
    if read_tombstones(paths.root).is_pending:
        raise errors.StoreError(
            "the snapshot still holds memories that are being forgotten: complete that with "
            "`noctuary forget --apply`, then export"
        )
    with (
        closing(SnapshotView(paths)) as view,
        _appearing(target.absolute(), "name another place") as building,
    ):
        snapshot, made = paths.snapshots / view.snapshot_id, view.manifest
        manifest.full_check(snapshot, made)
        _refuse_sensitive(snapshot, made)
        for done, name in enumerate(sorted(made.files), start=1):
            _copy(snapshot / name, building / SNAPSHOT / name)
            progress.update("export", done, len(made.files))
        write_lines(view, building)
        has_encoder = with_encoder and _copy_encoder(paths, made, building)
        raw = {**made.to_json(), "settings": without_places(made.settings)}
        written = write_export_manifest(building, {name: raw[name] for name in SNAPSHOT_KEYS})
    sizes = [path.stat().st_size for path in target.rglob("*") if path.is_file()]
    held = made.counts["memories"]
    return Exported(target, written.digest, held, len(sizes), sum(sizes), has_encoder)


def export_vault(paths: StorePaths, target: Path) -> Vault:
    """Write what serves as Markdown notes, or bring an earlier vault up to date."""
    with closing(SnapshotView(paths)) as view:
        snapshot = paths.snapshots / view.snapshot_id
        manifest.full_check(snapshot, view.manifest)
        _refuse_sensitive(snapshot, view.manifest)
        return write_vault(view, target)


def _refuse_sensitive(snapshot: Path, made: manifest.Manifest) -> None:
    with _opened(snapshot, made) as opened:
        passed, found = checks.no_sensitive_row_is_anywhere(*opened)
    if not passed:
        raise errors.StoreError(
            f"{found.get('ids', found)} look sensitive by the rules of today: run a night, which "
            "takes them out, then export"
        )


def _copy_encoder(paths: StorePaths, made: manifest.Manifest, target: Path) -> bool:
    directory = paths.encoders / (made.encoder_digest or "")
    # Where a provider made the vectors there is no such file: its address is its owner's.
    if made.encoder_digest is None or not all((directory / n).is_file() for n in ENCODER_FILES):
        return False
    for name in ENCODER_FILES:
        _copy(directory / name, target / ENCODER / name)
    return True


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


# A new store from an export: the snapshot is built again, judged, compared, and serves.

KIND = "noctuary-export"  # the kind of source of an imported snapshot: there is no store behind it


class Imported(NamedTuple):
    """What an import made; without an encoder recalls go by words until a night has run."""

    store: Path
    snapshot_id: str
    memories: int
    has_encoder: bool


def import_snapshot(export: Path, paths: StorePaths, progress: Progress = SILENT) -> Imported:
    """Make a new store that serves what an export holds; nothing is left behind if it fails."""
    root = paths.root.absolute()
    with _appearing(root, "import makes a new store, name another") as building:
        told = read_export_manifest(export)
        require_sound_snapshot(export, told.snapshot)
        snapshot_id = _build_store(export, told, StorePaths(building), progress)
    held = told.snapshot["counts"]["memories"]
    return Imported(root, snapshot_id, held, (root / "encoders").is_dir())


def _build_store(export: Path, told: ExportManifest, paths: StorePaths, progress: Progress) -> str:
    candidate = paths.candidates / ".building-import"
    files.make_directory(candidate)
    try:
        names = [name for name in told.files if name.startswith(f"{SNAPSHOT}/")]
        for done, name in enumerate(names, start=1):
            _copy(export / name, candidate / Path(name).name)
            progress.update("import", done, len(names))
        made = _make_manifest(export, told.snapshot, candidate)
        manifest.write_manifest(candidate, made)
        require_sound_files(candidate, made)
        _judge(paths, candidate, made)
        candidate.rename(paths.candidates / made.digest[: layout.DIGEST_NAME_CHARS])
        _import_encoder(export, told, paths)
        published = publish_candidate(paths, made.digest, keep=1)
        _compare_lines(told, paths)
    except Exception as error:
        damage = errors.SnapshotCorruptError
        if isinstance(error, errors.NoctuaryError) and not isinstance(error, damage):
            raise
        # Texts of the libraries may quote the rows they fail on.
        found = type(error.__cause__ or error).__name__
        raise ExportFormatError(
            f"the export in {export} cannot be made a snapshot of ({found}): it was not written by "
            "noctuary, or by another version"
        ) from None
    return published.snapshot_id


def _make_manifest(export: Path, said: Mapping[str, Any], directory: Path) -> manifest.Manifest:
    entries = manifest.describe_files(directory)
    parts = (said["counts"], said["id_kind"], said["encoder_digest"])
    location = str(export.absolute())
    told: dict[str, Any] = {name: said[name] for name in SNAPSHOT_KEYS}
    told |= {
        "digest": manifest.compute_digest(entries, *parts),
        "files": entries,
        "source": {"kind": KIND, "schema_version": str(FORMAT_VERSION), "location": location},
        "settings": without_places(said["settings"]),
        "warnings": [(str(code), str(message)) for code, message in said["warnings"]],
    }
    return manifest.Manifest(**told)


def _judge(paths: StorePaths, directory: Path, made: manifest.Manifest) -> None:
    wanted = [check for check in checks.GATE_CHECKS if check.__name__ not in _NOT_AGAIN]
    with _opened(directory, made) as opened:
        results = [checks.run_check(check, *opened) for check in wanted]
    if store_verdict(paths, made.digest, results).outcome != PASS:
        failed = ", ".join(result.name for result in results if not result.passed)
        raise errors.StoreError(f"the export's snapshot is not fit to serve: {failed} failed")


def _import_encoder(export: Path, told: ExportManifest, paths: StorePaths) -> None:
    """Copy the encoder that the snapshot names, checked as a recall would open it."""
    names = [f"{ENCODER}/{name}" for name in ENCODER_FILES]
    if not any(name in told.files for name in names):
        return
    digest = str(told.snapshot["encoder_digest"])
    directory = paths.encoders / digest
    try:
        for name in names:
            _copy(export / name, directory / Path(name).name)
        encoder = lean.LeanEncoder.open(directory, verify=True)
        header = lean.header_text(lean.read_header(directory))
    except (errors.EncoderError, OSError):
        raise ExportFormatError(f"the encoder in {export} is damaged") from None
    written = (directory / lean.HEADER_FILE).read_text(encoding="utf-8")
    is_named = encoder.fingerprint.digest == digest and written == header
    _require(is_named, f"the encoder in {export} is not the one that its manifest names")


def _compare_lines(told: ExportManifest, paths: StorePaths) -> None:
    """Compare what was built with the export's JSON lines: people read those, they must agree."""
    directory = paths.root / ".lines"
    try:
        with closing(SnapshotView(paths)) as view:
            write_lines(view, directory)
        for name in LINES:
            is_same = files.hash_file(directory / name) == told.files.get(name, {}).get("sha256")
            said = f"{name} and the snapshot of the export say different things"
            _require(is_same, f"{said}: it was changed after it was written")
    finally:
        files.remove_tree(directory)
