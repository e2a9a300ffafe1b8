"""`noctuary status`, `stores`, `snapshots` and `rollback`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from noctuary.cli import main as cli
from noctuary.compact.archive import ArchiveReader
from noctuary.core import errors
from noctuary.core import store as layout
from noctuary.core.files import tree_bytes
from noctuary.core.manifest import (
    Manifest,
    Pointer,
    quick_check,
    read_manifest,
    read_pointer,
)
from noctuary.core.store import StorePaths, find_home
from noctuary.core.tombstones import open_rows
from noctuary.recall import profile as profiles
from noctuary.snapshot.publish import rollback as roll_back
from noctuary.work.lock import hold_lock

_HOUR_S = 3600.0
_WINGS = "SELECT COALESCE(wing, '(none)'), COUNT(*) FROM memories GROUP BY 1 ORDER BY 2 DESC, 1"

# `noctuary status`: the current snapshot, its age and its contents.


@click.command()
@cli.store_options
def status(store: str | None) -> None:
    """Show the current snapshot: identity, age, source, encoder and counts."""
    found = read_status(cli.open_paths(store))
    cli.tell(found, _status_lines(found))


def _status_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"home       {found['home']}"
    yield f"store      {found['store']}"
    yield f"snapshot   {found['snapshot_id']}  ({found['reason']}, {found['age_hours']:.1f} h ago)"
    yield f"source     {found['source']['location']}  ({found['source']['kind']})"
    encoder = found["encoder"]
    model = f"{encoder['model']}, {encoder['dimension']} dimensions" if encoder else ""
    yield f"encoder    {model or 'none: lexical and graph only'}"
    sizes = found["snapshot_bytes"] / 1e6, found["store_bytes"] / 1e6
    yield f"on disk    {sizes[0]:.1f} MB snapshot, {sizes[1]:.1f} MB store"
    yield f"holds      {', '.join(f'{count:,} {name}' for name, count in found['counts'].items())}"
    if found["archived"] is None:
        yield "archived   unknown: archive.sqlite cannot be read; run `noctuary doctor`"
    elif found["archived"]:
        yield f"archived   {found['archived']:,} of them, out of default recall"
    for wing, count in found["wings"].items():
        yield f"  {count:>8,}  {wing}"


def read_status(paths: StorePaths) -> dict[str, Any]:
    """Return the state of a store as plain values."""
    pointer, manifest = _read_serving(paths)
    snapshot = paths.snapshots / pointer.snapshot_id
    return {
        "home": str(find_home()),
        "store": str(paths.root),
        "snapshot_id": pointer.snapshot_id,
        "digest": pointer.digest,
        "published_at": pointer.published_at,
        "reason": pointer.reason,
        "age_hours": round(age_hours(pointer.published_at), 2),
        "built_at": manifest.built_at,
        "source": manifest.source,
        "encoder": manifest.encoder,
        "counts": manifest.counts,
        "archived": _count_archived(paths, snapshot),
        "wings": wing_counts(snapshot),
        "snapshot_bytes": snapshot_bytes(manifest),
        "store_bytes": tree_bytes(paths.root),
    }


def _read_serving(paths: StorePaths) -> tuple[Pointer, Manifest]:
    pointer = read_pointer(paths)
    return pointer, _read_checked(paths.snapshots / pointer.snapshot_id)


def _read_checked(directory: Path) -> Manifest:
    manifest = read_manifest(directory)
    quick_check(directory, manifest)
    return manifest


def snapshot_bytes(manifest: Manifest) -> int:
    """Return the size of a snapshot's files."""
    return sum(entry.bytes for entry in manifest.files.values())


def age_hours(iso: str) -> float:
    """Return how long ago an ISO-8601 moment was; 0 for one in the future (clock skew)."""
    return max((datetime.now(UTC) - datetime.fromisoformat(iso)).total_seconds() / _HOUR_S, 0.0)


def _count_archived(paths: StorePaths, snapshot: Path) -> int | None:
    """Return how many memories of a snapshot the archive hides now; None where it is unreadable."""
    archive = ArchiveReader(paths.archive)
    if archive.warning is not None:
        return None
    if not archive.applied_plans_at(None):
        return 0
    known = dict(_ask_rows(snapshot, "SELECT memory_id, content_hash FROM memories"))
    return len(archive.hidden_in(lambda ids: {i: known[i] for i in ids if i in known}))


def wing_counts(snapshot: Path) -> dict[str, int]:
    """Return the exact number of memories of every wing of a snapshot, largest first."""
    return dict(_ask_rows(snapshot, _WINGS))


def _ask_rows(snapshot: Path, sql: str) -> list[tuple[str, Any]]:
    try:
        with closing(open_rows(snapshot)) as rows:
            return rows.execute(sql).fetchall()
    except sqlite3.Error as error:
        raise errors.SnapshotCorruptError(
            f"{layout.ROWS_FILE} cannot be read: {error}; run `noctuary doctor`"
        ) from error


# `noctuary snapshots` and `noctuary rollback`.


@click.command()
@cli.store_options
def snapshots(store: str | None) -> None:
    """List the published snapshots, oldest first; * marks the current one."""
    found = describe_snapshots(cli.open_paths(store))
    marked = [("*" if row["serving"] else " ", row) for row in found]
    lines = [f"{mark} {row['snapshot_id']}  {_state(row)}" for mark, row in marked]
    nothing = "nothing has been published yet: run `noctuary nightly`"
    cli.tell({"snapshots": found}, lines or [nothing])


def _state(row: Mapping[str, Any]) -> str:
    if row["outdated"]:
        return "made by another version of noctuary: run the night (`noctuary nightly`)"
    if not row["intact"]:
        return "DAMAGED"
    size = f"{row['memories']:>9,} memories  {row['bytes'] / 1e6:8.1f} MB"
    return f"{size}  built {row['built_at']}"


_AT_WORK = "a night (process {}) would publish over this: wait for it, or stop it"


@click.command()
@click.argument("snapshot_id", required=False)
@cli.store_options
def rollback(snapshot_id: str | None, store: str | None) -> None:
    """Serve an older snapshot: SNAPSHOT_ID, or the newest one older than the current.

    Every byte of it is verified first. The next night publishes again if the source differs from
    it. While a night runs, nothing is changed (exit code 4): it would publish over it, or remove
    the snapshot.
    """
    paths = cli.open_paths(store)
    with hold_lock(paths.lock, lambda holder: _AT_WORK.format(holder)):
        pointer = roll_back(paths, snapshot_id)
    said = f"serving {pointer.snapshot_id} (before: {pointer.previous_id or 'nothing'})"
    cli.tell(pointer._asdict(), [said])


def describe_snapshots(paths: StorePaths) -> list[dict[str, Any]]:
    """Describe every published snapshot, oldest first: whether it serves and is all there."""
    try:
        serving = read_pointer(paths).snapshot_id
    except errors.StoreError:
        serving = None
    names = sorted(p.name for p in paths.snapshots.glob("*") if layout.is_snapshot_id(p.name))
    return [
        {"snapshot_id": name, "serving": name == serving, **_describe(paths.snapshots / name)}
        for name in names
    ]


def _describe(directory: Path) -> dict[str, Any]:
    row = {"intact": True, "outdated": False, "memories": None, "bytes": None, "built_at": None}
    try:
        manifest = _read_checked(directory)
    except errors.SnapshotCorruptError as error:
        outdated = isinstance(error, errors.SnapshotOutdatedError)
        return {**row, "intact": False, "outdated": outdated, "fault": str(error)}
    held, made = manifest.counts["memories"], manifest.built_at
    size, digest = snapshot_bytes(manifest), manifest.digest
    return {**row, "memories": held, "bytes": size, "built_at": made, "digest": digest}


# `noctuary stores`: which stores there are, and what is wrong with them.


@click.command()
@cli.json_option
def stores() -> None:
    """List the stores in noctuary's home: source, size, current snapshot, age and faults.

    * marks the default store. Pass such a name to --store; its beginning is enough if it is unique.
    The home is NOCTUARY_HOME, else noctuary in your data directory (~/.local/share/noctuary).
    """
    home = find_home()
    found = describe_stores(home)
    cli.tell({"home": str(home), "stores": found}, _store_lines(home, found))


def _store_lines(home: Path, found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield f"home  {home}"
    for row in found:
        held = ""
        if row["snapshot_id"] is not None:
            age = "never" if row["age_hours"] is None else f"{row['age_hours']:.1f} h ago"
            held = (
                f"  {row['memories']:,} memories of {row['source']}, serves {row['snapshot_id']}, "
                f"last night {age}"
            )
        mark = "*" if row["default"] else " "
        yield f"{mark} {row['name']}  {row['bytes'] / 1e6:,.1f} MB{held}"
        if row["fault"]:
            yield f"    ! {row['fault']}"
    if not found:
        yield f"no store below {home} has published yet: run `noctuary nightly`"


def describe_stores(home: Path) -> list[dict[str, Any]]:
    """Describe the stores of a home: the snapshot of each, and its `fault`, if any."""
    published = layout.list_stores(home)
    default = layout.find_store(None, home=home)[0] if published else None
    roots = sorted({*published, *(work.parent for work in home.glob("*/work"))})
    limit_hours = profiles.current_settings()[0].recall.stale_after_hours
    return [
        {
            "name": root.name,
            "path": str(root),
            "default": root == default,
            "bytes": tree_bytes(root),
            **_describe_serving(StorePaths(root), limit_hours),
        }
        for root in roots
    ]


def _describe_serving(paths: StorePaths, limit_hours: float) -> dict[str, Any]:
    try:
        pointer, manifest = _read_serving(paths)
    except (errors.StoreError, OSError) as error:
        fields = ("source", "memories", "snapshot_id", "published_at", "age_hours")
        return {**dict.fromkeys(fields), "fault": str(error)}
    faults = (find_age_fault(paths, pointer, limit_hours), find_source_fault(manifest))
    return {
        "source": manifest.source.get("location"),
        "memories": manifest.counts["memories"],
        "snapshot_id": pointer.snapshot_id,
        "published_at": pointer.published_at,
        "age_hours": layout.last_night_hours(paths),
        "fault": "; ".join(filter(None, faults)) or None,
    }


def find_age_fault(paths: StorePaths, pointer: Pointer, limit_hours: float) -> str | None:
    """Return why the current snapshot is too old, if it is; a limit of 0 never is."""
    hours = layout.last_night_hours(paths)
    if hours is not None and not 0 < limit_hours < hours:
        return None
    since = "ever" if hours is None else f"for {hours:.0f} h"
    return f"no night went through {since}; the snapshot was published at {pointer.published_at}"


def find_source_fault(manifest: Manifest) -> str | None:
    """Return why the source of a snapshot, or a store in it, cannot be read, if so."""
    # The own store need not be there before something is remembered.
    listed: dict[str, dict[str, Any]] = manifest.source.get("members", {})
    read = [str(one["location"]) for one in listed.values() if one["rows"]]
    files = [name for name in read if not layout.names_postgres(name)]
    named = (str(manifest.source.get("location", "")), *files)
    return "; ".join(fault for name in named if (fault := find_path_fault(Path(name)))) or None


def find_path_fault(path: Path) -> str | None:
    """Return why a file or folder cannot be read, if so."""
    try:
        if path.is_dir():
            os.scandir(path).close()
        elif path.is_file():
            path.open("rb").close()
        else:
            return f"{path} {'is neither a file nor a folder' if path.exists() else 'is gone'}"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    return None
