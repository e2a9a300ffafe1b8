"""`examine`: every known way for a store to be unwell, each with what was found and what to do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mnemon.archive.reading import ArchiveReader
from mnemon.diagnosis.server import look_at_server
from mnemon.encode.fingerprint import EncoderFingerprint, require_same
from mnemon.errors import ConfigError, MnemonError, SnapshotCorruptError
from mnemon.locate import find_home
from mnemon.recall.current_settings import current_settings
from mnemon.recall.profile import layers_of, read_store_profiles
from mnemon.recall.profile.catalogue import list_profiles
from mnemon.settings import RecallSettings, Settings
from mnemon.snapshot.layout import StorePaths
from mnemon.snapshot.manifest import Manifest, Pointer, full_check, read_manifest, read_pointer
from mnemon.snapshot.nights import last_night_hours
from mnemon.snapshot.verdict import PASS


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        level: "ok", "warn" or "fail".
        message: What was found.
        remedy: What to do, or "".
    """

    name: str
    level: str
    message: str
    remedy: str = ""

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return asdict(self)


def examine(paths: StorePaths) -> list[Finding]:
    """Look at everything; a check that breaks is itself a finding."""
    findings: list[Finding] = []
    looks = (
        _settings, _profiles, _serving, _last_verdict, _access_log, _injections, _usage, _archive,
        _leftovers, _server,
    )  # fmt: skip
    for look in looks:
        try:
            findings.extend(look(paths))
        except (MnemonError, OSError, ValueError, KeyError, TypeError, sqlite3.Error) as error:
            findings.append(
                Finding(look.__name__.strip("_"), "fail", f"{type(error).__name__}: {error}")
            )
    return findings


def _settings(_: StorePaths) -> Iterator[Finding]:
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


def _serving(paths: StorePaths) -> Iterator[Finding]:
    try:
        pointer = read_pointer(paths)
    except MnemonError as error:
        yield Finding("pointer", "fail", str(error), "run `make nightly`, or `mnemon rollback`")
        return
    yield Finding("pointer", "ok", f"{pointer.snapshot_id} serves since {pointer.published_at}")
    try:
        manifest = _verified(paths, pointer)
    except MnemonError as error:
        yield Finding("snapshot", "fail", str(error), "run `mnemon rollback`, then `make nightly`")
        return
    total = sum(entry.bytes for entry in manifest.files.values())
    yield Finding(
        "snapshot", "ok", f"{len(manifest.files)} files, {total / 1e6:.1f} MB, every checksum holds"
    )
    yield _age(paths, pointer)
    yield _encoder(paths, manifest)
    yield _source(manifest)
    for code, message in manifest.warnings:
        yield Finding(code, "warn", message)


def _verified(paths: StorePaths, pointer: Pointer) -> Manifest:
    directory = paths.snapshots / pointer.snapshot_id
    manifest = read_manifest(directory)
    full_check(directory, manifest)
    if manifest.digest != pointer.digest:
        raise SnapshotCorruptError(
            f"snapshot {pointer.snapshot_id} is whole, but not the one that was published"
        )
    return manifest


def _age(paths: StorePaths, pointer: Pointer) -> Finding:
    limit = _stale_after_hours()
    hours = last_night_hours(paths)
    if hours is None or 0 < limit < hours:
        since = "ever" if hours is None else f"for {hours:.0f} h"
        return Finding(
            "age",
            "warn",
            f"no night went through {since}; the snapshot was published at {pointer.published_at}",
            "check that the schedule is on (`make ui`) or that cron runs `make nightly`",
        )
    return Finding("age", "ok", f"the last night went through {hours:.1f} h ago")


def _stale_after_hours() -> float:
    try:
        return Settings.load(home=find_home()).recall.stale_after_hours
    except MnemonError:
        return RecallSettings().stale_after_hours


def _encoder(paths: StorePaths, manifest: Manifest) -> Finding:
    if manifest.encoder is None or manifest.encoder_digest is None:
        return Finding(
            "encoder", "warn", "the snapshot has no vectors: recall is lexical and graph only"
        )
    # Here and not above: numpy must not be loaded before `mnemon recall` has limited its threads.
    from mnemon.encode.lean import LeanEncoder

    try:
        encoder = LeanEncoder.open(paths.encoders / manifest.encoder_digest, verify=True)
        require_same(EncoderFingerprint.from_json(manifest.encoder), encoder.fingerprint)
    except MnemonError as error:
        return Finding(
            "encoder", "fail", str(error), "run `make nightly`: it exports the query encoder again"
        )
    return Finding(
        "encoder", "ok", f"{encoder.fingerprint.model}, {encoder.fingerprint.dimension} dimensions"
    )


def _source(manifest: Manifest) -> Finding:
    location = Path(str(manifest.source.get("location", "")))
    if location.exists():
        return Finding("source", "ok", f"{location} is there")
    return Finding(
        "source", "warn", f"{location} is gone", "the next night cannot run; recall still answers"
    )


def _last_verdict(paths: StorePaths) -> Iterator[Finding]:
    verdicts = sorted(paths.verdicts.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
    if not verdicts:
        yield Finding("gate", "warn", "no candidate was ever judged", "run `make nightly`")
        return
    last: dict[str, Any] = json.loads(verdicts[-1].read_text(encoding="utf-8"))
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
    with closing(
        sqlite3.connect(f"{paths.access_log.absolute().as_uri()}?mode=ro", uri=True)
    ) as log:
        count = log.execute("SELECT COUNT(*) FROM retrievals").fetchone()[0]
    yield Finding("access_log", "ok", f"{count:,} retrievals")


def _injections(paths: StorePaths) -> Iterator[Finding]:
    from mnemon.injection.known import read_injections

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
    from mnemon.usage.reading import UsageReader

    usage = UsageReader.open(paths.usage)
    if usage.is_missing:
        yield Finding("usage", "ok", "no night has counted retrievals yet")
    elif usage.warning is not None:
        yield Finding("usage", "warn", usage.warning, "run `make nightly`: it writes the file anew")
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
    archive = ArchiveReader.open(paths.archive)
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


def _leftovers(paths: StorePaths) -> Iterator[Finding]:
    waiting = [p.name for p in paths.candidates.glob("*")] if paths.candidates.is_dir() else []
    if waiting:
        yield Finding(
            "candidates",
            "warn",
            f"{len(waiting)} candidate(s) were built but not published",
            "a night failed or was stopped; the next one builds on what is there",
        )


def _server(paths: StorePaths) -> Iterator[Finding]:
    yield Finding("server", *look_at_server(paths.root))


Look = Callable[[StorePaths], Iterator[Finding]]
