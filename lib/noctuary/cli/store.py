"""Commands that look at a store from outside: status, stores, snapshots, rollback, doctor."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

from noctuary.agents import client, install, server
from noctuary.agents.client import AGENTS, PROMPT
from noctuary.agents.state import COUNTERS, TIMEOUT, EventCounters, read_counters
from noctuary.cli import main as cli
from noctuary.compact.archive import ArchiveReader
from noctuary.core import errors, formats
from noctuary.core import store as layout
from noctuary.core.files import make_private, open_to_others, tree_bytes
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import (
    Manifest,
    Pointer,
    full_check,
    quick_check,
    read_manifest,
    read_pointer,
)
from noctuary.core.settings import Settings
from noctuary.core.sqlite import open_foreign, open_log
from noctuary.core.store import StorePaths, find_home
from noctuary.core.tombstones import open_rows, read_tombstones
from noctuary.core.types import NOTHING
from noctuary.embed.fingerprint import EncoderFingerprint, require_same
from noctuary.embed.tiers import TableHome, connect
from noctuary.recall import profile as profiles
from noctuary.recall.result import Calibration
from noctuary.snapshot.publish import PASS
from noctuary.snapshot.publish import rollback as roll_back
from noctuary.usage.access_log import ACCESS_LOG
from noctuary.usage.reader import UsageReader
from noctuary.work.lock import find_holder, hold_lock

_HOUR_S = 3600.0
_WINGS = "SELECT COALESCE(wing, '(none)'), COUNT(*) FROM memories GROUP BY 1 ORDER BY 2 DESC, 1"

# `noctuary status`: what serves, how old it is, what it holds.


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
        "snapshot_bytes": _size(manifest),
        "store_bytes": tree_bytes(paths.root),
    }


def _read_serving(paths: StorePaths) -> tuple[Pointer, Manifest]:
    pointer = read_pointer(paths)
    return pointer, _read_checked(paths.snapshots / pointer.snapshot_id)


def _read_checked(directory: Path) -> Manifest:
    manifest = read_manifest(directory)
    quick_check(directory, manifest)
    return manifest


def _size(manifest: Manifest) -> int:
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
    size, digest = _size(manifest), manifest.digest
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
    """Describe the stores of a home: what each serves, and as `fault` what is wrong."""
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
    looked_at = (_look_at_age(paths, pointer, limit_hours), look_at_source(manifest))
    wrong = [found.message for found in looked_at if found.level != "ok"]
    return {
        "source": manifest.source.get("location"),
        "memories": manifest.counts["memories"],
        "snapshot_id": pointer.snapshot_id,
        "published_at": pointer.published_at,
        "age_hours": layout.last_night_hours(paths),
        "fault": "; ".join(wrong) or None,
    }


# `noctuary doctor`: every known way for a store to be unwell, what was found and what to do. What
# only one look needs it imports itself: `noctuary status` would start later by that.


@click.command()
@cli.flag("--fix", "First make the store's files readable by you only.")
@cli.store_options
def doctor(fix: bool, store: str | None) -> None:
    """Look for faults and say how to fix them.

    Checks the settings, who may read the store, the pointer, every checksum of the current
    snapshot, its age and vectors, the encoder, the source, the transcripts, the schedule, the last
    verdict, the indexes, the logs, the warm server, the agents' hooks and their performance, and
    the MCP server.

    Exit code 1 if anything fails; warnings alone are 0.
    """
    paths = cli.open_paths(store)
    mended = make_private(paths.root, _source_below(paths)) if fix else 0
    findings = examine(paths)
    found = {
        "home": str(find_home()),
        "store": str(paths.root),
        "findings": [finding._asdict() for finding in findings],
        "mended": mended,
    }
    cli.tell(found, _doctor_lines(found))
    if any(f.level == "fail" for f in findings):
        sys.exit(cli.EXIT_FAILED)


def _doctor_lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"home  {found['home']}\nstore {found['store']}"
    if found["mended"]:
        what = "file or directory" if found["mended"] == 1 else "files and directories"
        yield f"fixed the permissions of {found['mended']:,} {what}: only you can read them now"
    for finding in found["findings"]:
        mark = "ok  " if finding["level"] == "ok" else finding["level"].upper()
        yield f"{mark}  {finding['name']}: {finding['message']}"
        if finding["remedy"]:
            yield f"      -> {cli.as_called(finding['remedy'])}"


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    level: str  # "ok", "warn" or "fail"
    message: str
    remedy: str = ""


# What to do, by the name of a finding and, where there are several, what it is about.
_REMEDIES = {
    "settings": "correct the file or the variable; until then defaults apply",
    "privacy": "run `noctuary doctor --fix`",
    "profiles": "correct them; until then a recall skips the layer and warns",
    "pointer": "run `noctuary nightly`, or `noctuary rollback`",
    "snapshot": "run `noctuary rollback`, then `noctuary nightly`",
    "snapshot outdated": "run `noctuary nightly`",
    "age": "check that the schedule is on (`noctuary ui`) or that cron runs `noctuary nightly`",
    "encoder": "run `noctuary nightly`: it exports the query encoder again",
    "encoder description": "run `noctuary nightly`: it describes the encoder again",
    "encoder key": "set {variable} where recall runs, hooks and servers included",
    "vectors": "run `noctuary rollback`, then `noctuary nightly`",
    "source": "the next night cannot run; recall still answers. Restore it, or set source.path",
    "abstention": "run `noctuary nightly`: each night calibrates (docs/abstention.md)",
    "transcripts": "correct transcripts.path: agents delete old transcripts, unread or not",
    "sessions": "update noctuary; until then what you said in them is not kept",
    "gate": "read {verdict}; the snapshot before it keeps serving",
    "gate never": "run `noctuary nightly`",
    "index": "run `noctuary nightly`: it adds them; recall reads the snapshot and misses none",
    "injections": "move {file} away; only tags identify earlier injections then",
    "usage": "run `noctuary nightly`: it rewrites the file",
    "usage depth": "set max_scan_depth to 0, or leave it: each night goes on where the last one "
    "stopped",
    "archive": "restore the file from a backup, or remove it: then nothing is archived any more",
    "forgetting": "run `noctuary forget --apply` or `noctuary nightly`: either goes on with it",
    "forgetting left": "remove {files}, or what quotes it there; then `noctuary forget --apply`",
    "forgetting receipts": "restore it from a backup: it does not prove anything any more",
    "files": "run `noctuary nightly`: it makes them again",
    "candidates": "a night failed or was stopped; the next one continues from there",
    "schedule": "run `noctuary schedule install`, or switch nightly_schedule on in `noctuary ui` "
    "under Automation, or let cron run `noctuary nightly`",
    "schedule unreadable": "see age; move {home} away and the next night makes a new one",
    "schedule dead": "keep `noctuary ui` running, or let cron run `noctuary nightly`",
    "server": "start `noctuary serve` again",
    "server unsafe": "recall answers without one",
    "server fallback": "see docs/serve.md, Falling back",
    "hooks": "`noctuary hooks status` shows every event",
    "hooks counters": "remove {file}; the next hook starts a new one",
    "hooks install": "`{install}`",
    "hooks unreadable": "fix it, then `{install}`",
    "hooks outdated": "`{install}` renews them",
    "hooks off": "remove that line",
    "hooks twice": "`noctuary hooks uninstall --agent {agent}`",
    f"hooks {TIMEOUT}": "keep `noctuary serve` running, or allow more: hook.deadline_ms",
    "hooks no_snapshot": "run `noctuary nightly`; or install the hooks with --store",
    "hooks store_unreadable": "see the findings above",
    "hooks snapshot_damaged": "run `noctuary rollback`, then `noctuary nightly`",
    "hooks bad_settings": "correct noctuary.toml or the variable: see settings",
    "hooks journal": "free disk space, and make the directory writable",
    "hooks capture": "free memory for another process; `noctuary nightly` reads the transcripts "
    "too",
    "mcp": "{remedy}",
}


def _ok(name: str, message: str) -> Finding:
    return Finding(name, "ok", message)


def _bad(level: str, key: str, message: str, **told: object) -> Finding:
    remedy = _REMEDIES.get(key, "").format(**told)
    if formats.UPDATE in message:
        remedy = f"{formats.UPDATE}: a newer one made this"
    return Finding(key.partition(" ")[0], level, message, remedy)


_warn, _fail = partial(_bad, "warn"), partial(_bad, "fail")


def _warn_if(key: str, fault: str | None, fine: str, **told: object) -> Finding:
    return _warn(key, fault, **told) if fault else _ok(key, fine)


_BREAKS = (errors.NoctuaryError, OSError, ValueError, KeyError, TypeError, sqlite3.Error)


def examine(paths: StorePaths) -> list[Finding]:
    """Look at everything; a check that breaks is itself a finding."""
    settings, home, here = profiles.current_settings()[0], find_home, Path.cwd
    looks: dict[str, Callable[[], Finding | Iterable[Finding]]] = {
        "settings": _look_at_settings,
        "privacy": lambda: _look_at_privacy(paths),
        "profiles": lambda: _look_at_profiles(paths, settings),
        "serving": lambda: look_at_serving(paths, settings, is_hooked=are_hooked(home(), here())),
        "schedule": lambda: look_at_schedule(paths),
        "last_verdict": lambda: _look_at_verdict(paths),
        "index": lambda: look_at_index(paths),
        "transcripts": lambda: look_at_transcripts(settings.transcripts.path, settings.sources),
        "sessions": lambda: _look_at_sessions(paths),
        "access_log": lambda: _look_at_access_log(paths),
        "injections": lambda: _look_at_injections(paths),
        "usage": lambda: _look_at_usage(paths),
        "archive": lambda: _look_at_archive(paths),
        "forgetting": lambda: _look_at_forgetting(paths),
        "files": lambda: _look_at_files(paths),
        "leftovers": lambda: _look_at_leftovers(paths),
        "server": lambda: look_at_server(paths.root),
        "hooks": lambda: look_at_hooks(home(), here()),
        "mcp": lambda: _look_at_mcp(here()),
    }
    findings: list[Finding] = []
    for name, look in looks.items():
        try:
            found = look()
            findings.extend([found] if isinstance(found, Finding) else found)
        except _BREAKS as error:
            findings.append(Finding(name, "fail", f"{type(error).__name__}: {error}"))
    return findings


def _look_at_settings() -> Finding:
    try:
        Settings.load(home=find_home())
    except errors.ConfigError as error:
        return _fail("settings", str(error))
    return _ok("settings", "every key and value is known")


def _look_at_privacy(paths: StorePaths) -> Finding:
    found, told = open_to_others(paths.root, _source_below(paths)), ""
    if found:
        told = (
            f"others may read, write or enter {len(found):,} files and directories of the store "
            f"({found[0]} has mode {stat.S_IMODE(found[0].lstat().st_mode):04o}, expected 0700 for "
            "directories and 0600 for files)"
        )
    return _warn_if("privacy", told, "nobody else may read the store")


def _source_below(paths: StorePaths) -> Path | None:
    """Return the memory store itself, which is its owner's to protect even where it lies here."""
    try:
        manifest = read_manifest(paths.snapshots / read_pointer(paths).snapshot_id)
    except errors.StoreError:
        return None
    source = Path(str(manifest.source.get("location", "")))
    return source if paths.root in source.parents else None


def _look_at_profiles(paths: StorePaths, settings: Settings) -> Finding:
    known = profiles.list_profiles(settings)
    faults = [f"{profile.name}: {fault}" for profile in known for fault in profile.faults]
    return _warn_if("profiles", "; ".join(faults), f"{len(known)} profiles, all values in range")


# What serves: pointer, snapshot, age, encoder, vectors, source, calibration.


def look_at_serving(paths: StorePaths, settings: Settings, *, is_hooked: bool) -> Iterator[Finding]:
    """Yield how it is with the snapshot that serves."""
    try:
        pointer = read_pointer(paths)
    except errors.NoctuaryError as error:
        yield _fail("pointer", str(error))
        return
    yield _ok("pointer", f"{pointer.snapshot_id} serves since {pointer.published_at}")
    directory = paths.snapshots / pointer.snapshot_id
    try:
        manifest = read_manifest(directory)
        full_check(directory, manifest)
        if manifest.digest != pointer.digest:
            raise errors.SnapshotCorruptError(
                f"snapshot {pointer.snapshot_id} is intact, but not the published one"
            )
    except errors.NoctuaryError as error:
        is_outdated = isinstance(error, errors.SnapshotOutdatedError)
        yield _fail("snapshot outdated" if is_outdated else "snapshot", str(error))
        return
    size = f"{len(manifest.files)} files, {_size(manifest) / 1e6:.1f} MB"
    yield _ok("snapshot", f"{size}, every checksum holds")
    yield _look_at_age(paths, pointer, settings.recall.stale_after_hours)
    yield _look_at_encoder(paths, manifest)
    if manifest.encoder is not None:
        yield look_at_vectors(directory, manifest)
    yield look_at_source(manifest)
    yield look_at_abstention(directory, wants=is_hooked and settings.hook.abstain)


def _look_at_age(paths: StorePaths, pointer: Pointer, limit_hours: float) -> Finding:
    """Return how long ago a night went through; a limit of 0 means that no age is too old."""
    hours = layout.last_night_hours(paths)
    if hours is not None and not 0 < limit_hours < hours:
        return _ok("age", f"the last night went through {hours:.1f} h ago")
    since = "ever" if hours is None else f"for {hours:.0f} h"
    published = f"the snapshot was published at {pointer.published_at}"
    return _warn("age", f"no night went through {since}; {published}")


def _look_at_encoder(paths: StorePaths, manifest: Manifest) -> Finding:
    from noctuary.embed.lean import LeanEncoder
    from noctuary.embed.onnx import OnnxEncoder, onnx_directory

    if manifest.encoder is None or manifest.encoder_digest is None:
        message = "the snapshot has no vectors: recall is lexical and graph only"
        return Finding("encoder", "warn", message)
    expected = EncoderFingerprint.from_json(manifest.encoder)
    directory = paths.encoders / manifest.encoder_digest
    if expected.is_hosted:
        return _look_at_hosted_encoder(directory)
    export = onnx_directory(paths.encoders, expected)
    try:
        if export.is_dir() and not directory.is_dir():
            encoder = OnnxEncoder.open(export, 1)
        else:
            encoder = LeanEncoder.open(directory, verify=True)
        require_same(expected, encoder.fingerprint)
    except errors.NoctuaryError as error:
        return _fail("encoder", str(error))
    by = "" if isinstance(encoder, LeanEncoder) else ", by ONNX Runtime"
    made = encoder.fingerprint
    return _ok("encoder", f"{made.model}, {made.dimension} dimensions{by}")


def _look_at_hosted_encoder(directory: Path) -> Finding:
    """Look at the description and the key; the provider is not asked, because that costs."""
    from noctuary.embed.hosted import read_description
    from noctuary.work.http import read_api_key

    try:
        model = read_description(directory)
    except errors.NoctuaryError as error:
        return _fail("encoder description", str(error))
    try:
        read_api_key(model.api_key_variable, "encoder.api_key_variable")
    except errors.ConfigError as error:
        asked = f"{model.title} cannot be asked from here: {error}"
        message = f"{asked}; recall is lexical and graph only"
        return _warn("encoder key", message, variable=model.api_key_variable)
    made = f"{model.title}, {model.dimension} dimensions"
    return _ok("encoder", f"{made}, over the network: queries leave")


def look_at_vectors(snapshot: Path, manifest: Manifest) -> Finding:
    """Return whether every memory of a snapshot has a vector."""
    memories = int(manifest.counts.get("memories", 0))
    vectors = np.load(snapshot / layout.VECTORS_FILE, mmap_mode="r", allow_pickle=False)
    if memories == len(vectors):
        return _ok("vectors", f"each of {memories:,} memories has one")
    return _fail("vectors", f"{memories:,} memories have {len(vectors):,} vectors")


def look_at_source(manifest: Manifest) -> Finding:
    """Return whether the source that a snapshot was made from can be read."""
    location = Path(str(manifest.source.get("location", "")))
    # The own store need not be there: nothing was remembered yet.
    listed: dict[str, dict[str, Any]] = manifest.source.get("members", {})
    read = [str(one["location"]) for one in listed.values() if one["rows"]]
    files = [location, *(Path(name) for name in read if not layout.names_postgres(name))]
    faults = [fault for file in files if (fault := _reading_fault(file))]
    return _warn_if("source", "; ".join(faults), f"{location} can be read")


def _reading_fault(path: Path) -> str | None:
    """Return why a file or folder cannot be read, None if it can; nothing in it is kept open."""
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


def look_at_abstention(snapshot: Path, *, wants: bool) -> Finding:
    """Return whether the snapshot knows when to say nothing; it matters to hooks that abstain."""
    file = snapshot / layout.ABSTENTION_FILE
    try:
        calibration = Calibration.parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        calibration = None
    except (OSError, ValueError) as error:
        return _warn("abstention", f"{file.name} cannot be read: {error}")
    if calibration is not None:
        thresholds = sorted(calibration.thresholds.items())
        told = ", ".join(f"{signal} below {at:.2f}" for signal, at in thresholds)
        return _ok("abstention", f"calibrated: {told}")
    fault = "not calibrated: prompts get the best memories, however unlike them" if wants else ""
    return _warn_if("abstention", fault, "not calibrated, and nothing abstains by it here")


# What nights read, write and leave: transcripts, the verdict, indexes, logs, files.


def look_at_transcripts(path: str, sources: Mapping[str, str] = NOTHING) -> Finding:
    """Return whether the agents' transcripts can be read."""
    from noctuary.sources.histories import is_transcripts
    from noctuary.sources.several import TRANSCRIPTS

    listed = [name for name, said in sources.items() if said.startswith(TRANSCRIPTS)]
    if not path and listed:
        return _ok("transcripts", f"every night reads those of {', '.join(listed)}")
    if not path:
        return _ok("transcripts", "no folder is set: only the Stop hook keeps turns")
    try:
        place = layout.expand_user(path)
    except errors.StoreError as error:
        return _warn("transcripts", str(error))
    fault = _reading_fault(place)
    if fault is None and not is_transcripts(place):
        fault = f"{place} holds no transcript of an agent"
    return _warn_if("transcripts", fault, f"{place} can be read")


def _look_at_sessions(paths: StorePaths) -> Iterator[Finding]:
    from noctuary.sources.ingest import find_unread_sessions

    yield from (_warn("sessions", sentence) for sentence in find_unread_sessions(paths.turns))


def _look_at_verdict(paths: StorePaths) -> Finding:
    verdicts = sorted(paths.verdicts.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
    if not verdicts:
        return _warn("gate never", "no candidate was ever judged")
    last: dict[str, Any] = parse_json(verdicts[-1].read_text(encoding="utf-8"))
    checks, judged_at = last["checks"], last["judged_at"]
    failed = ", ".join(c["name"] for c in checks if not c["passed"])
    if last["outcome"] == PASS:
        return _ok("gate", f"the last candidate passed {len(checks)} checks at {judged_at}")
    told = f"the last night was refused at {judged_at}: {failed}"
    return _fail("gate", told, verdict=verdicts[-1])


def look_at_index(paths: StorePaths) -> Finding:
    """Return how many rows of the LanceDB tables their indexes leave out."""
    tables = TableHome(paths.lance).list_tables("")
    indexed = [name for name in tables if any((paths.lance / f"{name}.lance/_indices").glob("*"))]
    if not tables:
        return _ok("index", "there are no LanceDB tables; recall needs none")
    if not indexed:
        return _ok("index", f"{len(tables)} LanceDB tables without an index: scans are exact")
    if not cli.is_installed("lancedb"):
        return _ok("index", "LanceDB is not installed here: its indexes cannot be read")
    database = connect(paths.lance)
    counted = {
        name: sum(int(i.num_unindexed_rows) for i in database.open_table(name).list_indices())
        for name in indexed
    }
    told = ", ".join(f"{count:,} rows of {name}" for name, count in counted.items() if count)
    fault = f"{told} are in no index: searches scan them one by one" if told else ""
    return _warn_if("index", fault, f"the indexes of {len(indexed)} LanceDB tables cover every row")


def _look_at_access_log(paths: StorePaths) -> Finding:
    if not paths.access_log.exists():
        return _ok("access_log", "nothing has been recalled yet")
    with closing(open_log(paths.access_log, ACCESS_LOG)) as log:
        (count,) = log.execute("SELECT COUNT(*) FROM retrievals").fetchone()
    return _ok("access_log", f"{count:,} retrievals")


def _look_at_injections(paths: StorePaths) -> Finding:
    from noctuary.sources.echo import read_injections

    known = read_injections(paths.injections)
    fault = known.fault and f"{known.fault}: injected text that lost its tag is not recognised"
    fine = f"{len(known.occurrences):,} injected texts are on record"
    return _warn_if("injections", fault, fine, file=paths.injections.name)


def _look_at_usage(paths: StorePaths) -> Finding:
    with closing(UsageReader(paths.usage)) as usage:
        if usage.is_missing:
            return _ok("usage", "no night has counted retrievals yet")
        if usage.warning is not None:
            return _warn("usage", usage.warning)
        if usage.not_scanned:
            left_out = f"the last scan left out {usage.not_scanned:,} memories: max_scan_depth"
            return _warn("usage depth", left_out)
        return _ok("usage", f"retrievals of {usage.window_days} days are counted")


def _look_at_archive(paths: StorePaths) -> Finding:
    archive = ArchiveReader(paths.archive)
    if archive.is_missing:
        return _ok("archive", "nothing was ever archived")
    if archive.warning is not None:
        return _warn("archive", archive.warning)
    plans, count = len(archive.applied_plans_at(None)), len(archive.entries_at(None))
    return _ok("archive", f"{count:,} memories are archived by {plans} plan(s)")


def _look_at_forgetting(paths: StorePaths) -> Finding:
    from noctuary.snapshot.forget import find_forged, read_draft, read_receipts

    stones = read_tombstones(paths.root)
    if stones.is_pending:
        said = f"{len(stones.ids):,} memories are hidden and not purged yet, since {stones.since}"
        left = ", ".join(str(name) for name, *_ in read_draft(paths).get("left", ()))
        key = "forgetting left" if left else "forgetting"
        return _warn(key, f"{said}; left in {left}" if left else said, files=left)
    if (forged := find_forged(paths)) is not None:
        return _warn("forgetting receipts", f"receipt {forged} is not as it was written")
    return _ok("forgetting", f"nothing is unfinished; {len(read_receipts(paths))} receipts")


def _look_at_files(paths: StorePaths) -> Finding:
    from noctuary.work.ledger import find_faults, name_faults

    if (holder := find_holder(paths.lock)) is not None:
        return _ok("files", f"night {holder} is writing them: not compared")
    faults = find_faults(paths)
    fault = f"not as the last night left them: {name_faults(faults)}" if faults else ""
    return _warn_if("files", fault, "all working files are as the last night left them")


def _look_at_leftovers(paths: StorePaths) -> Iterator[Finding]:
    waiting = len(list(paths.candidates.glob("*")))
    if waiting:
        yield _warn("candidates", f"{waiting} candidate(s) were built but not published")


# Whether a next night will run by itself: Dagster's schedule, else the nights of the last days,
# else the age tells.

JOB = "nightly"  # name of the job whose runs are nights (noctuary_pipelines.schedules)

_HEARTBEAT_S = 300.0  # Dagster's daemon says every 30 s that it lives; it is dead after this
_DAYS = 3
_LEAST_DAYS = 2  # nights on two of the last three days are cron's work, or a habit

_DAY_S = 86_400.0
_WAIT_S = 0.5

_RUNNING_SCHEDULES = (
    "SELECT COUNT(*) FROM instigators WHERE instigator_type='SCHEDULE' AND status='RUNNING'"
)
_HEARTBEAT = (  # Dagster writes naive UTC
    "SELECT MAX(CAST(strftime('%s', timestamp) AS INTEGER)) FROM daemon_heartbeats "
    "WHERE daemon_type='SCHEDULER'"
)
_NIGHT_DAYS = (  # of 24 h each, counted back from now
    "SELECT COUNT(DISTINCT CAST((? - end_time) / ? AS INTEGER)) FROM runs WHERE "
    "pipeline_name=? AND status='SUCCESS' AND end_time > ? AND end_time <= ?"
)


def look_at_schedule(paths: StorePaths, now_s: float | None = None) -> Finding:
    """Return whether nights run by themselves."""
    now_s = time.time() if now_s is None else now_s
    schedules = paths.dagster_home / "schedules" / "schedules.db"
    runs = paths.dagster_home / "history" / "runs.db"
    if not schedules.is_file():
        return _ok("schedule", "there is no Dagster instance to look into: age tells")
    try:
        running = _ask_dagster(schedules, _RUNNING_SCHEDULES)
        heartbeat_s = _ask_dagster(runs, _HEARTBEAT)
        window = (now_s, _DAY_S, JOB, now_s - _DAYS * _DAY_S, now_s)
        days = int(_ask_dagster(runs, _NIGHT_DAYS, window) or 0)
    except sqlite3.Error as error:
        message = f"the Dagster instance cannot be read: {error}"
        return _warn("schedule unreadable", message, home=paths.dagster_home)
    if running and heartbeat_s is not None and now_s - heartbeat_s <= _HEARTBEAT_S:
        return _ok("schedule", "on, and Dagster's daemon is alive")
    if running:
        since = "never" if heartbeat_s is None else f"{(now_s - heartbeat_s) / _HOUR_S:.1f} h ago"
        message = f"on, but Dagster's daemon was last alive {since}: nothing ticks"
        return _warn("schedule dead", message)
    if days >= _LEAST_DAYS:
        told = f"nights ran on {days} of the last {_DAYS} days all the same"
        return _ok("schedule", f"off in Dagster, and {told}")
    from noctuary.cli.schedule import is_on

    if is_on():
        return _ok("schedule", "off in Dagster; the timer of `noctuary schedule` is on")
    return _warn("schedule", "off in Dagster, so no night will run by itself")


def _ask_dagster(database: Path, query: str, arguments: tuple[object, ...] = ()) -> float | None:
    if not database.is_file():
        return None
    with closing(open_foreign(database, _WAIT_S)[0]) as connection:
        (found,) = connection.execute(query, arguments).fetchone()
    return found


# The warm server: whether it runs, and what kept clients from it.

_RECENT_S = 24 * _HOUR_S  # an older fallback says little; a daily look sees a younger one


def look_at_server(store: Path) -> Finding:
    """Return how the store's server is, and whether a client had a reason not to use it."""
    place = server.find_place(store)
    none_runs = _ok("server", "none runs: recall answers in its own process")
    try:
        fault = client.directory_fault(place.directory)
    except FileNotFoundError:
        return none_runs
    if fault is not None:
        return _warn("server unsafe", f"no server can be used: {fault}")
    answer, fallback, told = client.ping(store), server.read_fallback(place), ""
    if fallback is not None and time.time() - fallback.at_s <= _RECENT_S:
        minutes = max(time.time() - fallback.at_s, 0.0) / 60
        told = f"{minutes:.0f} min ago a client fell back ({fallback.code}): {fallback.message}"
    if isinstance(answer, client.Refusal):
        if answer.code != "absent":
            return _warn("server", f"{answer.code}: {answer.message}")
        return _ok("server", f"none runs; {told}") if told else none_runs
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(answer["started_s"]))
    runs = f"process {answer['pid']} answers since {since}, {answer['answered']:,} recalls"
    reason = answer.get("lean_reason")
    if reason is not None:  # servers of before did not say
        runs += f"; encodes with {f'the lean encoder: {reason}' if reason else 'ONNX Runtime'}"
    if told and fallback is not None and fallback.at_s >= answer["started_s"]:
        return _warn("server fallback", f"{runs}; {told}")
    return _ok("server", runs)


# The agents: their hooks, installed or not, and how they fare; and the MCP server.


def look_at_hooks(home: Path, folder: Path) -> Iterator[Finding]:
    """Yield how it is with the hooks of every agent that is used here."""
    states = install.look_at_places(home, folder)
    counters = read_counters(home / COUNTERS)
    if counters.fault is not None:
        message = f"{counters.fault}: how the hooks fared cannot be told"
        yield _warn("hooks counters", message, file=home / COUNTERS)
    known = 0
    for agent in AGENTS:
        plugin = install.enabled_plugin(agent, folder)
        own = [state for state in states if state.agent == agent and state.state != install.ABSENT]
        called = [event for event in counters.events if event.agent == agent]
        if own or plugin or called or install.is_used(agent):
            known += 1
            yield _look_at_agent(agent, own, plugin, called)
    if not known:
        yield _ok("hooks", "no agent keeps settings here: nothing to install them into")


def are_hooked(home: Path, folder: Path) -> bool:
    """Tell whether some agent runs noctuary's hooks."""
    if any(state.state in install.RUNNING for state in install.look_at_places(home, folder)):
        return True
    return any(install.enabled_plugin(agent, folder) for agent in AGENTS)


def _look_at_agent(
    agent: str,
    states: Sequence[install.PlaceState],
    plugin: Path | None,
    called: Sequence[EventCounters],
) -> Finding:
    again = f"noctuary hooks install --agent {agent}"
    for state in states:
        told, command = f"{state.path}: {state.message}", f"{again} --{state.scope}"
        if state.state == install.BROKEN:
            return _fail("hooks install", told, install=command)
        if state.state == install.UNREADABLE:
            return _warn("hooks unreadable", told, install=command)
    where = [state.path for state in states if state.state in install.RUNNING]
    where += [f"the plugin in {plugin}"] if plugin else []
    odd = next((state for state in states if state.message), None)
    if not where and odd is not None:
        return _warn("hooks off", f"{agent} runs none: {odd.message}")
    if not where:
        message = f"not installed: prompts of {agent} get no memories"
        return _warn("hooks install", message, install=again)
    failing = [event for event in called if event.outage_code is not None]
    if failing:
        return _tell_failing(agent, failing)
    if plugin and len(where) > 1:
        message = f"installed twice, so every prompt of {agent} runs both: {', '.join(where)}"
        return _warn("hooks twice", message, agent=agent)
    if odd is not None:
        told, command = f"{odd.path}: {odd.message}", f"{again} --{odd.scope}"
        return _warn("hooks outdated", told, install=command)
    return _ok("hooks", f"{agent}: {', '.join(where)}: {_tell_calls(agent, called)}")


def _tell_failing(agent: str, failing: Sequence[EventCounters]) -> Finding:
    worst = max(failing, key=lambda event: (event.outage_code != TIMEOUT, event.outage_calls))
    since_s = max(time.time() - (worst.outage_since_s or time.time()), 0.0)
    message = (
        f"{worst.event} of {agent} fails since {since_s / _HOUR_S:.1f} h ago, "
        f"{worst.outage_calls:,} time(s) one after the other: {worst.outage_code}"
    )
    if len(failing) > 1:
        message += f"; {len(failing) - 1} more event(s) fail"
    key = f"hooks {worst.outage_code}"
    level = "warn" if worst.outage_code == TIMEOUT else "fail"
    return _bad(level, key if key in _REMEDIES else "hooks", message)


def _tell_calls(agent: str, called: Sequence[EventCounters]) -> str:
    calls = sum(event.calls for event in called)
    if not calls:
        hint = " (trust them with /hooks)" if agent == "codex" else ""
        return f"installed, never called yet{hint}"
    failures = sum(event.failures for event in called)
    prompt = next((event for event in called if event.event == PROMPT), None)
    p95 = prompt.percentile_ms(0.95) if prompt else None
    told = "" if p95 is None else f", a prompt takes {p95:.0f} ms (p95)"
    failed = f", {failures:,} failed at times, none now" if failures else ""
    return f"{calls:,} calls{failed}{told}"


def _look_at_mcp(folder: Path) -> Finding:
    fault = cli.find_sdk_fault()
    if fault is None:
        return _ok("mcp", "the MCP server can run")
    plugin = next((p for a in AGENTS if (p := install.enabled_plugin(a, folder)) is not None), None)
    if plugin is None:
        return _ok("mcp", f"{fault}. Nothing else needs it")
    message, remedy = fault.split(": ", 1)
    return _warn("mcp", f"{message}, and the plugin in {plugin} starts it", remedy=remedy)
