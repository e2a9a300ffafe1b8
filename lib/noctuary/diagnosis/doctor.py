"""`examine`: every known way for a store to be unwell, each with what was found and what to do."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from noctuary.agents.events import AGENTS
from noctuary.agents.install.status import enabled_plugin
from noctuary.archive.reading import ArchiveReader
from noctuary.diagnosis.finding import Finding
from noctuary.diagnosis.hooks import are_hooked, look_at_hooks
from noctuary.diagnosis.inputs import look_at_transcripts
from noctuary.diagnosis.rows import look_at_index
from noctuary.diagnosis.schedule import look_at_schedule
from noctuary.diagnosis.server import look_at_server
from noctuary.diagnosis.serving import look_at_serving
from noctuary.errors import ConfigError, NoctuaryError, StoreError
from noctuary.files import make_private, open_to_others
from noctuary.foreign_json import parse_json
from noctuary.locate import find_home
from noctuary.mcp_server.extra import find_sdk_fault
from noctuary.recall.current_settings import current_settings
from noctuary.recall.profile import layers_of, read_store_profiles
from noctuary.recall.profile.catalogue import list_profiles
from noctuary.settings import Settings
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import read_manifest, read_pointer
from noctuary.snapshot.verdict import PASS
from noctuary.work.lock import find_holder

__all__ = ["Finding", "examine"]


def examine(paths: StorePaths) -> list[Finding]:
    """Look at everything; a check that breaks is itself a finding."""
    findings: list[Finding] = []
    looks = (
        _settings, _privacy, _profiles, _serving, _schedule, _last_verdict, _index, _transcripts,
        _access_log, _injections, _usage, _archive, _files, _leftovers, _server, _hooks, _mcp,
    )  # fmt: skip
    for look in looks:
        try:
            findings.extend(look(paths))
        except (NoctuaryError, OSError, ValueError, KeyError, TypeError, sqlite3.Error) as error:
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


def _serving(paths: StorePaths) -> Iterator[Finding]:
    is_hooked = are_hooked(find_home(), Path.cwd())
    yield from look_at_serving(paths, _known_settings(), is_hooked=is_hooked)


def _schedule(paths: StorePaths) -> Iterator[Finding]:
    yield look_at_schedule(paths)


def _index(paths: StorePaths) -> Iterator[Finding]:
    yield look_at_index(paths)


def _transcripts(_: StorePaths) -> Iterator[Finding]:
    yield look_at_transcripts(_known_settings().transcripts.path)


def _hooks(_: StorePaths) -> Iterator[Finding]:
    yield from look_at_hooks(find_home(), Path.cwd())


def _mcp(_: StorePaths) -> Iterator[Finding]:
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
        yield Finding("gate", "warn", "no candidate was ever judged", "run `make nightly`")
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
    with closing(
        sqlite3.connect(f"{paths.access_log.absolute().as_uri()}?mode=ro", uri=True)
    ) as log:
        count = log.execute("SELECT COUNT(*) FROM retrievals").fetchone()[0]
    yield Finding("access_log", "ok", f"{count:,} retrievals")


def _injections(paths: StorePaths) -> Iterator[Finding]:
    from noctuary.injection.known import read_injections

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
    from noctuary.usage.reading import UsageReader

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


def _files(paths: StorePaths) -> Iterator[Finding]:
    from noctuary.night.ledger import find_faults, name_faults

    if (holder := find_holder(paths.lock)) is not None:
        yield Finding("files", "ok", f"night {holder} is writing them: not compared")
    elif faults := find_faults(paths):
        yield Finding(
            "files", "warn", f"not as the last night left them: {name_faults(faults)}",
            "run `make nightly`: it makes them again",
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


def _server(paths: StorePaths) -> Iterator[Finding]:
    yield Finding("server", *look_at_server(paths.root))
