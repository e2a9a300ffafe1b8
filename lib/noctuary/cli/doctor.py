"""Looking at a store from outside: its status and its health."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from noctuary.agents.hooks import AGENTS
from noctuary.agents.install import enabled_plugin
from noctuary.cli.findings import (
    Finding,
    are_hooked,
    find_sdk_fault,
    look_at_hooks,
    look_at_index,
    look_at_schedule,
    look_at_server,
    look_at_source,
    look_at_transcripts,
    look_at_vectors,
)
from noctuary.compact.archive import ArchiveReader
from noctuary.core import store as layout
from noctuary.core.errors import (
    ConfigError,
    NoctuaryError,
    SnapshotCorruptError,
    SnapshotMissingError,
    SnapshotOutdatedError,
    StoreError,
)
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
from noctuary.core.sqlite import connect_immutable, open_log
from noctuary.core.store import (
    ABSTENTION_FILE,
    StorePaths,
    find_home,
    find_store,
    is_snapshot_id,
    last_night_hours,
    list_stores,
)
from noctuary.embed.fingerprint import EncoderFingerprint, require_same
from noctuary.recall.profile import (
    current_settings,
    layers_of,
    list_profiles,
    read_store_profiles,
)
from noctuary.recall.result import Calibration
from noctuary.snapshot.verdict import PASS
from noctuary.usage.access_log import ACCESS_LOG
from noctuary.work.lock import find_holder

# What `noctuary doctor` says about what serves: pointer, snapshot, age, encoder, calibration.


def look_at_serving(paths: StorePaths, settings: Settings, *, is_hooked: bool) -> Iterator[Finding]:
    """Yield how it is with the snapshot that serves."""
    try:
        pointer = read_pointer(paths)
    except NoctuaryError as error:
        remedy = "run `noctuary nightly`, or `noctuary rollback`"
        yield Finding("pointer", "fail", str(error), remedy)
        return
    yield Finding("pointer", "ok", f"{pointer.snapshot_id} serves since {pointer.published_at}")
    directory = paths.snapshots / pointer.snapshot_id
    try:
        manifest = _verified(directory, pointer)
    except NoctuaryError as error:
        yield Finding(
            "snapshot", "fail", str(error), "run `noctuary rollback`, then `noctuary nightly`"
        )
        return
    total = sum(entry.bytes for entry in manifest.files.values())
    yield Finding(
        "snapshot", "ok", f"{len(manifest.files)} files, {total / 1e6:.1f} MB, every checksum holds"
    )
    yield look_at_age(paths, pointer, settings.recall.stale_after_hours)
    yield _encoder(paths, manifest)
    yield from look_at_vectors(directory, manifest)
    yield look_at_source(manifest)
    yield look_at_abstention(directory, wants=is_hooked and settings.hook.abstain)


def look_at_age(paths: StorePaths, pointer: Pointer, limit_hours: float) -> Finding:
    """Return how long ago a night went through; a limit of 0 means that no age is too old."""
    hours = last_night_hours(paths)
    if hours is None or 0 < limit_hours < hours:
        since = "ever" if hours is None else f"for {hours:.0f} h"
        return Finding(
            "age",
            "warn",
            f"no night went through {since}; the snapshot was published at {pointer.published_at}",
            "check that the schedule is on (`noctuary ui`) or that cron runs `noctuary nightly`",
        )
    return Finding("age", "ok", f"the last night went through {hours:.1f} h ago")


def look_at_abstention(snapshot: Path, *, wants: bool) -> Finding:
    """Return whether the snapshot knows below which score it had better say nothing.

    It matters where something wants to abstain by it: an agent's hooks, unless hook.abstain is off.
    """
    try:
        calibration = Calibration.parse((snapshot / ABSTENTION_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        calibration = None
    except (OSError, ValueError) as error:
        message = f"{ABSTENTION_FILE} cannot be read: {error}"
        return Finding("abstention", "warn", message, "run `noctuary nightly`")
    if calibration is not None:
        thresholds = sorted(calibration.thresholds.items())
        told = ", ".join(f"{signal} below {at:.2f}" for signal, at in thresholds)
        return Finding("abstention", "ok", f"calibrated: {told}")
    if not wants:
        return Finding("abstention", "ok", "not calibrated, and nothing abstains by it here")
    message = "not calibrated: prompts get the best memories, however unlike them"
    remedy = "run `noctuary nightly`: each night calibrates (docs/abstention.md)"
    return Finding("abstention", "warn", message, remedy)


def _verified(directory: Path, pointer: Pointer) -> Manifest:
    manifest = read_manifest(directory)
    full_check(directory, manifest)
    if manifest.digest != pointer.digest:
        raise SnapshotCorruptError(
            f"snapshot {pointer.snapshot_id} is whole, but not the one that was published"
        )
    return manifest


def _encoder(paths: StorePaths, manifest: Manifest) -> Finding:
    if manifest.encoder is None or manifest.encoder_digest is None:
        return Finding(
            "encoder", "warn", "the snapshot has no vectors: recall is lexical and graph only"
        )
    if EncoderFingerprint.from_json(manifest.encoder).is_hosted:
        return _hosted_encoder(paths.encoders / manifest.encoder_digest)
    # Here and not above: numpy must not be loaded before `noctuary recall` has limited its threads.
    from noctuary.embed.lean import LeanEncoder
    from noctuary.embed.onnx import OnnxEncoder, onnx_directory

    expected = EncoderFingerprint.from_json(manifest.encoder)
    directory = paths.encoders / manifest.encoder_digest
    export = onnx_directory(paths.encoders, expected)
    try:
        if export.is_dir() and not directory.is_dir():
            encoder = OnnxEncoder.open(export, 1)
        else:
            encoder = LeanEncoder.open(directory, verify=True)
        require_same(expected, encoder.fingerprint)
    except NoctuaryError as error:
        remedy = "run `noctuary nightly`: it exports the query encoder again"
        return Finding("encoder", "fail", str(error), remedy)
    by = "" if isinstance(encoder, LeanEncoder) else ", by ONNX Runtime"
    made = encoder.fingerprint
    return Finding("encoder", "ok", f"{made.model}, {made.dimension} dimensions{by}")


def _hosted_encoder(directory: Path) -> Finding:
    """Look at the description and the key; the provider is not asked, because that costs."""
    from noctuary.embed.hosted import read_description
    from noctuary.work.http import read_api_key

    try:
        model = read_description(directory)
    except NoctuaryError as error:
        return Finding(
            "encoder", "fail", str(error), "run `noctuary nightly`: it describes the encoder again"
        )
    try:
        read_api_key(model.api_key_variable, "encoder.api_key_variable")
    except ConfigError as error:
        return Finding(
            "encoder",
            "warn",
            f"{model.title} cannot be asked from here: {error}; recall is lexical and graph only",
            f"set {model.api_key_variable} where recall runs, hooks and servers included",
        )
    message = f"{model.title}, {model.dimension} dimensions, over the network: queries leave"
    return Finding("encoder", "ok", message)


# What serves, how old it is, what it holds.


_HOUR_S = 3600.0


def read_status(paths: StorePaths) -> dict[str, Any]:
    """Return the state of a store as plain values."""
    pointer = read_pointer(paths)
    directory = paths.snapshots / pointer.snapshot_id
    manifest = read_manifest(directory)
    quick_check(directory, manifest)
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
        "archived": count_archived(paths, directory / layout.ROWS_FILE),
        "wings": wing_counts(directory / layout.ROWS_FILE),
        "snapshot_bytes": sum(entry.bytes for entry in manifest.files.values()),
        "store_bytes": tree_bytes(paths.root),
    }


def describe_snapshots(paths: StorePaths) -> list[dict[str, Any]]:
    """Describe every published snapshot.

    Oldest first, with whether it serves and whether its files are all there.
    """
    try:
        serving = read_pointer(paths).snapshot_id
    except (SnapshotMissingError, SnapshotCorruptError):
        serving = None
    if not paths.snapshots.is_dir():
        return []
    names = sorted(p.name for p in paths.snapshots.iterdir() if is_snapshot_id(p.name))
    return [_describe(paths, name, name == serving) for name in names]


def describe_stores(home: Path) -> list[dict[str, Any]]:
    """Describe every store of a home: its source and size, what it serves, and what is wrong.

    `default` marks the one that is meant where none is named. `age_hours` tells when a night last
    went through, `fault` what is wrong, None where nothing is.
    """
    published = list_stores(home)
    default = find_store(None, home=home)[0] if published else None
    roots = sorted({*published, *(work.parent for work in home.glob("*/work"))})
    limit_hours = current_settings()[0].recall.stale_after_hours
    return [
        {
            "name": root.name,
            "path": str(root),
            "default": root == default,
            "bytes": tree_bytes(root),
            **_serves(StorePaths(root), limit_hours),
        }
        for root in roots
    ]


def _serves(paths: StorePaths, limit_hours: float) -> dict[str, Any]:
    fields = ("source", "memories", "snapshot_id", "published_at", "age_hours", "fault")
    row: dict[str, Any] = dict.fromkeys(fields)
    try:
        pointer = read_pointer(paths)
        manifest = read_manifest(paths.snapshots / pointer.snapshot_id)
        quick_check(paths.snapshots / pointer.snapshot_id, manifest)
    except (StoreError, OSError) as error:
        return {**row, "fault": str(error)}
    age, source = look_at_age(paths, pointer, limit_hours), look_at_source(manifest)
    wrong = [found.message for found in (age, source) if found.level != "ok"]
    return {
        "source": manifest.source.get("location"),
        "memories": manifest.counts["memories"],
        "snapshot_id": pointer.snapshot_id,
        "published_at": pointer.published_at,
        "age_hours": last_night_hours(paths),
        "fault": "; ".join(wrong) or None,
    }


def age_hours(iso: str) -> float:
    """Return how long ago an ISO-8601 moment was; 0 for one in the future (clock skew)."""
    return max((datetime.now(UTC) - datetime.fromisoformat(iso)).total_seconds() / _HOUR_S, 0.0)


def _describe(paths: StorePaths, name: str, serving: bool) -> dict[str, Any]:
    directory = paths.snapshots / name
    row: dict[str, Any] = {
        "snapshot_id": name, "serving": serving, "intact": False, "outdated": False,
    }  # fmt: skip
    try:
        manifest = read_manifest(directory)
        quick_check(directory, manifest)
    except SnapshotCorruptError as error:
        outdated = isinstance(error, SnapshotOutdatedError)
        nothing = {"memories": None, "bytes": None, "built_at": None}
        return {**row, "outdated": outdated, "fault": str(error), **nothing}
    return {
        **row,
        "intact": True,
        "memories": manifest.counts["memories"],
        "bytes": sum(entry.bytes for entry in manifest.files.values()),
        "built_at": manifest.built_at,
        "digest": manifest.digest,
    }


def count_archived(paths: StorePaths, rows_file: Path) -> int | None:
    """Return how many memories of a snapshot the archive hides now; None where it is unreadable."""
    archive = ArchiveReader(paths.archive)
    if archive.warning is not None:
        return None
    if not archive.applied_plans_at(None):
        return 0
    try:
        with closing(connect_immutable(rows_file)) as rows:
            known = dict(rows.execute("SELECT memory_id, content_hash FROM memories"))
    except sqlite3.Error as error:
        raise SnapshotCorruptError(
            f"{rows_file.name} cannot be read: {error}; run `noctuary doctor`"
        ) from error
    return len(archive.hidden_in(lambda ids: {i: known[i] for i in ids if i in known}))


def wing_counts(rows_file: Path) -> dict[str, int]:
    """Return the exact number of memories of every wing of a snapshot, largest first."""
    try:
        with closing(connect_immutable(rows_file)) as rows:
            found = rows.execute(
                "SELECT COALESCE(wing, '(none)'), COUNT(*) FROM memories GROUP BY 1 ORDER BY 2 "
                "DESC, 1"
            ).fetchall()
    except sqlite3.Error as error:
        raise SnapshotCorruptError(
            f"{rows_file.name} cannot be read: {error}; run `noctuary doctor`"
        ) from error
    return dict(found)


# `examine`: every known way for a store to be unwell, each with what was found and what to do.


def examine(paths: StorePaths) -> list[Finding]:
    """Look at everything; a check that breaks is itself a finding."""
    settings, home, here = _known_settings, find_home, Path.cwd
    looks: dict[str, Callable[[], Iterable[Finding]]] = {
        "settings": _settings,
        "privacy": lambda: _privacy(paths),
        "profiles": lambda: _profiles(paths),
        "serving": lambda: look_at_serving(paths, settings(), is_hooked=are_hooked(home(), here())),
        "schedule": lambda: [look_at_schedule(paths)],
        "last_verdict": lambda: _last_verdict(paths),
        "index": lambda: [look_at_index(paths)],
        "transcripts": lambda: [look_at_transcripts(settings().transcripts.path)],
        "access_log": lambda: _access_log(paths),
        "injections": lambda: _injections(paths),
        "usage": lambda: _usage(paths),
        "archive": lambda: _archive(paths),
        "files": lambda: _files(paths),
        "leftovers": lambda: _leftovers(paths),
        "server": lambda: [look_at_server(paths.root)],
        "hooks": lambda: look_at_hooks(home(), here()),
        "mcp": _mcp,
    }
    findings: list[Finding] = []
    for name, look in looks.items():
        try:
            findings.extend(look())
        except (NoctuaryError, OSError, ValueError, KeyError, TypeError, sqlite3.Error) as error:
            findings.append(Finding(name, "fail", f"{type(error).__name__}: {error}"))
    return findings


def _settings() -> Iterator[Finding]:
    try:
        Settings.load(home=find_home())
    except ConfigError as error:
        yield Finding(
            "settings",
            "fail",
            str(error),
            "correct the file or the variable; until then defaults are in force",
        )
    else:
        yield Finding("settings", "ok", "every key and value is known")


def mend_privacy(paths: StorePaths) -> int:
    """Take others' access from a store's files and directories; return from how many."""
    return make_private(paths.root, _source_below(paths))


def _privacy(paths: StorePaths) -> Iterator[Finding]:
    found = open_to_others(paths.root, _source_below(paths))
    if not found:
        yield Finding("privacy", "ok", "nobody else may read the store")
        return
    shown = f"{found[0]} has mode {stat.S_IMODE(found[0].lstat().st_mode):04o}"
    yield Finding(
        "privacy",
        "warn",
        f"others may read, write or enter {len(found):,} files and directories of the store "
        f"({shown}, expected 0700 for directories and 0600 for files)",
        "run `noctuary doctor --fix`",
    )


def _source_below(paths: StorePaths) -> Path | None:
    """Return the memory store itself, which is its owner's to protect even where it lies here."""
    try:
        manifest = read_manifest(paths.snapshots / read_pointer(paths).snapshot_id)
    except StoreError:
        return None
    source = Path(str(manifest.source.get("location", "")))
    return source if paths.root in source.parents else None


def _profiles(paths: StorePaths) -> Iterator[Finding]:
    settings, _ = current_settings()
    stored = read_store_profiles(paths.profiles)
    known = list_profiles(layers_of(settings, {}, stored.tables))
    faults = [w.message for w in stored.warnings] + [
        f"{profile.name}: {fault}" for profile in known for fault in profile.faults
    ]
    if faults:
        remedy = "correct them; a recall leaves the layer out and warns"
        yield Finding("profiles", "warn", "; ".join(faults), remedy)
    else:
        yield Finding("profiles", "ok", f"{len(known)} profiles, all values in range")


def _mcp() -> Iterator[Finding]:
    fault = find_sdk_fault()
    plugin = next((p for a in AGENTS if (p := enabled_plugin(a, Path.cwd())) is not None), None)
    if fault is None:
        yield Finding("mcp", "ok", "the MCP server can run")
    elif plugin is not None:
        message, remedy = fault.split(": ", 1)
        yield Finding("mcp", "warn", f"{message}, and the plugin in {plugin} starts it", remedy)
    else:
        yield Finding("mcp", "ok", f"{fault}. Nothing else needs it")


def _known_settings() -> Settings:
    """Return the settings in force: the defaults where a file or a variable is wrong."""
    try:
        return Settings.load(home=find_home())
    except NoctuaryError:
        return Settings()


def _last_verdict(paths: StorePaths) -> Iterator[Finding]:
    verdicts = sorted(paths.verdicts.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
    if not verdicts:
        yield Finding("gate", "warn", "no candidate was ever judged", "run `noctuary nightly`")
        return
    last: dict[str, Any] = parse_json(verdicts[-1].read_text(encoding="utf-8"))
    failed = [c["name"] for c in last["checks"] if not c["passed"]]
    if last["outcome"] == PASS:
        yield Finding(
            "gate",
            "ok",
            f"the last candidate passed {len(last['checks'])} checks at {last['judged_at']}",
        )
    else:
        yield Finding(
            "gate",
            "fail",
            f"the last night was refused at {last['judged_at']}: {', '.join(failed)}",
            f"read {verdicts[-1]}; the snapshot before it keeps serving",
        )


def _access_log(paths: StorePaths) -> Iterator[Finding]:
    if not paths.access_log.exists():
        yield Finding("access_log", "ok", "nothing has been recalled yet")
        return
    with closing(open_log(paths.access_log, ACCESS_LOG)) as log:
        count = log.execute("SELECT COUNT(*) FROM retrievals").fetchone()[0]
    yield Finding("access_log", "ok", f"{count:,} retrievals")


def _injections(paths: StorePaths) -> Iterator[Finding]:
    from noctuary.sources.echo import read_injections

    known = read_injections(paths.injections)
    if known.fault is None:
        yield Finding(
            "injections", "ok", f"{len(known.occurrences):,} injected texts are on record"
        )
        return
    yield Finding(
        "injections",
        "warn",
        f"{known.fault}: injected text that lost its tag is not recognised",
        f"move {paths.injections.name} away; what was injected before is known by its tag alone",
    )


def _usage(paths: StorePaths) -> Iterator[Finding]:
    # Here and not above, as for the encoder: numpy.
    from noctuary.usage.reader import UsageReader

    usage = UsageReader(paths.usage)
    if usage.is_missing:
        yield Finding("usage", "ok", "no night has counted retrievals yet")
    elif usage.warning is not None:
        remedy = "run `noctuary nightly`: it writes the file anew"
        yield Finding("usage", "warn", usage.warning, remedy)
    elif usage.not_scanned:
        yield Finding(
            "usage",
            "warn",
            f"the last scan left out {usage.not_scanned:,} memories: max_scan_depth",
            "set max_scan_depth to 0, or leave it: each night goes on where the last one stopped",
        )
    else:
        yield Finding("usage", "ok", f"retrievals of {usage.window_days} days are counted")
    usage.close()


def _archive(paths: StorePaths) -> Iterator[Finding]:
    archive = ArchiveReader(paths.archive)
    if archive.is_missing:
        yield Finding("archive", "ok", "nothing was ever archived")
    elif archive.warning is not None:
        yield Finding(
            "archive", "warn", archive.warning,
            "put the file back from a backup, or remove it: then nothing is archived any more",
        )  # fmt: skip
    else:
        plans = len(archive.applied_plans_at(None))
        count = len(archive.entries_at(None))
        yield Finding("archive", "ok", f"{count:,} memories are archived by {plans} plan(s)")


def _files(paths: StorePaths) -> Iterator[Finding]:
    from noctuary.work.ledger import find_faults, name_faults

    if (holder := find_holder(paths.lock)) is not None:
        yield Finding("files", "ok", f"night {holder} is writing them: not compared")
    elif faults := find_faults(paths):
        yield Finding(
            "files", "warn", f"not as the last night left them: {name_faults(faults)}",
            "run `noctuary nightly`: it makes them again",
        )  # fmt: skip
    else:
        yield Finding("files", "ok", "all working files are as the last night left them")


def _leftovers(paths: StorePaths) -> Iterator[Finding]:
    waiting = [p.name for p in paths.candidates.glob("*")] if paths.candidates.is_dir() else []
    if waiting:
        yield Finding(
            "candidates",
            "warn",
            f"{len(waiting)} candidate(s) were built but not published",
            "a night failed or was stopped; the next one builds on what is there",
        )
