"""A new store from an export: the snapshot is built again, judged, compared, and serves.

What belongs here: the order of things. What does not: the form of the files (`columns`), the
sentences that must hold (`imported_checks`).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noctuary.encode.lean import LeanEncoder
from noctuary.encode.lean_format import HEADER_FILE, header_text, read_header
from noctuary.errors import EncoderError, NoctuaryError, SnapshotCorruptError, StoreError
from noctuary.exchange import export_format
from noctuary.exchange.columns import parquet_rows, parquet_to_array
from noctuary.exchange.export_format import ExportFormatError, ExportManifest, read_manifest
from noctuary.exchange.exporting import table_names
from noctuary.exchange.imported_checks import (
    judge_import,
    require_sound_files,
    require_sound_snapshot,
)
from noctuary.exchange.lines import write_lines
from noctuary.files import fsync_dir, fsync_file, make_directory, make_private, remove_tree
from noctuary.hashing import hash_file
from noctuary.progress import SILENT, Progress
from noctuary.snapshot.layout import (
    DIGEST_NAME_CHARS,
    PACK_FORMAT_VERSION,
    ROWS_FILE,
    StorePaths,
)
from noctuary.snapshot.manifest import (
    Manifest,
    compute_digest,
    describe_files,
    write_manifest,
)
from noctuary.snapshot.publish import publish_candidate
from noctuary.snapshot.row_file import ROWS_SCHEMA
from noctuary.snapshot.verdict import PASS, store_verdict
from noctuary.sql.view import SnapshotView

KIND = "noctuary-export"
"""The kind of source of an imported snapshot: there is no store behind it that could be looked
into."""

_TASK = "import"
_CLUSTERS = "clusters"
_LAST = "meta"  # of the tables: a build writes it last, and the order decides the file's pages


Rows = Sequence[tuple[Any, ...]]


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
    manifest = read_manifest(export)
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
        _copy_encoder(export, manifest, paths)
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
        progress.update(_TASK, done, len(names))
        folder, _, file = name.partition("/")
        if folder == export_format.TABLES:
            tables[Path(file).stem] = export / name
        elif folder == export_format.ARRAYS:
            parquet_to_array(export / name, target / f"{Path(file).stem}.npy")
        elif folder == export_format.OTHER:
            shutil.copyfile(export / name, target / file)
    _write_rows(target / ROWS_FILE, tables)
    progress.update(_TASK, len(names), len(names))


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


def _in_order(table: str, batches: Iterator[Rows]) -> Iterator[Rows]:
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
            "schema_version": str(export_format.FORMAT_VERSION),
            "location": str(export.absolute()),
        },
        corpus_digest=said["corpus_digest"],
        settings=export_format.without_places(said["settings"]),
        warnings=[(str(code), str(message)) for code, message in said["warnings"]],
        built_at=said["built_at"],
    )


def _judge(paths: StorePaths, directory: Path, manifest: Manifest) -> None:
    results = judge_import(directory, manifest)
    verdict = store_verdict(paths, manifest.digest, results)
    if verdict.outcome != PASS:
        failed = ", ".join(result.name for result in results if not result.passed)
        raise StoreError(f"what the export holds may not serve: {failed} failed")


def _copy_encoder(export: Path, manifest: ExportManifest, paths: StorePaths) -> None:
    """Copy the encoder that the snapshot names, checked as a recall would open it.

    Raises:
        ExportFormatError: It is damaged, or another one.
    """
    names = [f"{export_format.ENCODER}/{name}" for name in export_format.ENCODER_FILES]
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
        for name in export_format.LINES:
            if hash_file(directory / name) != manifest.files.get(name, {}).get("sha256"):
                raise ExportFormatError(
                    f"{name} and the Parquet files of the export say different things: it was "
                    "changed after it was written"
                )
    finally:
        view.close()
        remove_tree(directory)
