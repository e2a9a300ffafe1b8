"""`noctuary export`: a snapshot as files for other programs, or as notes."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from noctuary.cli import main as cli
from noctuary.cli.sql import SnapshotView, read_rows
from noctuary.cli.vault import Vault, write_vault
from noctuary.core import errors, files, manifest
from noctuary.core.store import StorePaths
from noctuary.core.tombstones import read_tombstones
from noctuary.core.types import SILENT, Progress
from noctuary.embed import lean
from noctuary.snapshot.checks import find_sensitive_texts


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@cli.option(
    "--encoder/--no-encoder",
    "with_encoder",
    "Include the encoder, which embeds queries for the vectors (90 MB).",
    default=True,
)
@cli.flag("--markdown", "Write notes that Obsidian opens, for reading and editing.")
@cli.store_options
def export(directory: Path, with_encoder: bool, markdown: bool, store: str | None) -> None:
    """Write the current snapshot to DIRECTORY, which must not exist or be empty.

    The formats are readable by other programs: memories.jsonl (also a source for `noctuary
    nightly`), graph/nodes.jsonl and graph/edges.jsonl, summaries.jsonl, and the snapshot's own
    SQLite file and arrays. To move or keep a store, use `noctuary backup`. Equal snapshots give
    equal bytes. Snapshots hold no sensitive memories. If a text looks sensitive by today's rules,
    nothing is exported.

    \b
    noctuary export ~/memories-2026-03
    noctuary nightly ~/memories-2026-03/memories.jsonl
    noctuary export --markdown ~/vault       again to update it; keeps what you edited

    Exit code 1 if nothing was written.
    """  # noqa: D301 (click wants the control character)
    target = directory.absolute()
    if markdown:
        vault = export_vault(cli.open_paths(store), target)
        changes = (
            f"{vault.written:,} written, {vault.removed:,} removed, {vault.kept:,} kept as edited"
        )
        lines = [f"{vault.notes:,} notes in {directory} ({changes})"]
        cli.tell({**vault._asdict(), "directory": str(target)}, lines)
        return
    found = export_snapshot(
        cli.open_paths(store), directory, with_encoder=with_encoder, progress=cli.ScanProgress()
    )
    size = f"{found.files} files, {found.bytes / 2**20:.1f} MiB"
    lines = [f"exported {found.memories:,} memories to {directory} ({size})"]
    cli.tell({**found._asdict(), "directory": str(target)}, [*lines, f"digest {found.digest}"])


# Equal snapshots give equal files; docs/export.md describes them.

FORMAT, FORMAT_VERSION = "noctuary-export", 3  # for the programs that read it
MANIFEST = "manifest.json"
MEMORIES, NODES, EDGES = "memories.jsonl", "graph/nodes.jsonl", "graph/edges.jsonl"
LINES = (MEMORIES, NODES, EDGES, "summaries.jsonl")
SNAPSHOT, ENCODER = "snapshot", "encoder"  # folders: its own files, and what embeds queries

SNAPSHOT_KEYS = (
    "format_version", "counts", "id_kind", "encoder", "encoder_digest", "corpus_digest",
    "warnings", "built_at", "settings",
)  # fmt: skip
"""Of a snapshot's manifest, what is exported: not its digest and its files' checksums, which change
with the version of SQLite, and no place on this machine."""

# Settings that name a place, an address, a user or a variable: they are of this machine only.
_OF_ONE_MACHINE = re.compile(
    r"evaluation\.queries|.*\.(path|user|address|wings)|.*[._]ur[il]|.*_variable"
)
_PLACES = ("/", "~", ".")  # what a model begins with that is named by its directory


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
    """Write the serving snapshot into a new directory, readable by its owner only."""
    if read_tombstones(paths.root).is_pending:
        raise errors.StoreError(
            "the snapshot still holds memories that are being forgotten: complete that with "
            "`noctuary forget --apply`, then export"
        )
    with closing(SnapshotView(paths)) as view, _appearing(target.absolute()) as building:
        snapshot, made = paths.snapshots / view.snapshot_id, view.manifest
        _require_sound(snapshot, view)
        for done, name in enumerate(sorted(made.files), start=1):
            _copy(snapshot / name, building / SNAPSHOT / name)
            progress.update("export", done, len(made.files))
        _write_lines(view, building)
        has_encoder = with_encoder and _copy_encoder(paths, made, building)
        raw = {**made.to_json(), "settings": without_places(made.settings)}
        digest = _write_manifest(building, {name: raw[name] for name in SNAPSHOT_KEYS})
    sizes = [path.stat().st_size for path in target.rglob("*") if path.is_file()]
    return Exported(target, digest, made.counts["memories"], len(sizes), sum(sizes), has_encoder)


@contextmanager
def _appearing(target: Path) -> Generator[Path]:
    """Yield where to build a directory that gets its name once complete, or leaves nothing."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise errors.StoreError(
            f"{target} exists and is not an empty directory: name another place"
        )
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


def _write_lines(view: SnapshotView, directory: Path) -> None:
    """Write the four files of JSON lines below a directory."""

    def moment(value: datetime) -> str:
        return value.replace(tzinfo=UTC).isoformat()

    tables = ("mention", "edge", "concept_edge", "supersession", "summary_source")
    edges = ({"kind": kind, **row} for kind in tables for row in read_rows(view, f"{kind}s"))
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


def _copy_encoder(paths: StorePaths, made: manifest.Manifest, target: Path) -> bool:
    directory = paths.encoders / (made.encoder_digest or "")
    # Where a provider made the vectors there is no such file: its address is its owner's.
    if made.encoder_digest is None or not (directory / lean.HEADER_FILE).is_file():
        return False
    encoder = lean.LeanEncoder.open(directory, verify=True)
    weights = lean.locate_weights(directory, encoder.fingerprint)
    for path in (directory / lean.HEADER_FILE, directory / lean.VOCAB_FILE, weights):
        _copy(path, target / ENCODER / path.name)
    return True


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def without_places(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return a snapshot's settings with nothing in them that is of one machine only."""

    def is_ours(name: str, value: Any) -> bool:
        is_place = isinstance(value, str) and value.startswith(_PLACES)
        return is_place or _OF_ONE_MACHINE.fullmatch(name) is not None

    return {
        section: {k: type(v)() if is_ours(f"{section}.{k}", v) else v for k, v in values.items()}
        for section, values in settings.items()
    }


def _write_manifest(directory: Path, snapshot: Mapping[str, Any]) -> str:
    """Describe every file of a directory and return the digest of all of it."""
    entries = {
        path.relative_to(directory).as_posix(): {
            "bytes": path.stat().st_size, "sha256": files.hash_file(path),
        }
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }  # fmt: skip
    held = {"files": entries, "snapshot": snapshot}
    digest = files.hash_json({"version": FORMAT_VERSION, **held})
    body = {"format": FORMAT, "format_version": FORMAT_VERSION, "digest": digest, **held}
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False)
    files.write_text(directory / MANIFEST, text + "\n")
    return digest


def export_vault(paths: StorePaths, target: Path) -> Vault:
    """Write the serving snapshot as Markdown notes, or bring an earlier vault up to date."""
    with closing(SnapshotView(paths)) as view:
        _require_sound(paths.snapshots / view.snapshot_id, view)
        return write_vault(view, target)


def _require_sound(snapshot: Path, view: SnapshotView) -> None:
    """Refuse a damaged snapshot, and one with a text that looks sensitive by today's rules."""
    manifest.full_check(snapshot, view.manifest)
    found = find_sensitive_texts(view.db)
    if "ids" in found:
        raise errors.StoreError(
            f"{found['ids']} look sensitive by the rules of today: run a night, which takes them "
            "out, then export"
        )
