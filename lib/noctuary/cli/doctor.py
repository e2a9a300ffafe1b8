"""`noctuary doctor`: look for faults of a store and of its surroundings, and name the remedies."""

from __future__ import annotations

import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from noctuary.agents import client, install, server
from noctuary.agents.client import AGENTS
from noctuary.agents.state import COUNTERS, TIMEOUT, EventCounters, read_counters
from noctuary.cli import main as cli
from noctuary.cli.store import find_age_fault, find_path_fault, find_source_fault, snapshot_bytes
from noctuary.compact.archive import ArchiveReader
from noctuary.core import errors, formats
from noctuary.core import store as layout
from noctuary.core.files import make_private, open_to_others
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import Manifest, full_check, read_manifest, read_pointer
from noctuary.core.settings import Settings
from noctuary.core.sqlite import connect_immutable, open_log
from noctuary.core.store import StorePaths, find_home
from noctuary.core.tombstones import read_tombstones
from noctuary.core.types import NOTHING, Origin
from noctuary.embed.fingerprint import EncoderFingerprint, require_same
from noctuary.embed.hosted import read_description
from noctuary.embed.lean import LeanEncoder
from noctuary.embed.onnx import OnnxEncoder, onnx_directory
from noctuary.recall import profile as profiles
from noctuary.recall.result import Calibration
from noctuary.snapshot.forget import find_forged, read_draft, read_receipts
from noctuary.snapshot.publish import PASS
from noctuary.sources.echo import read_injections
from noctuary.sources.histories import is_transcripts
from noctuary.sources.ingest import find_unread_sessions
from noctuary.sources.several import TRANSCRIPTS
from noctuary.text.orders import reads_like_order
from noctuary.usage.access_log import ACCESS_LOG
from noctuary.usage.reader import UsageReader
from noctuary.work.http import read_api_key
from noctuary.work.ledger import find_faults, name_faults
from noctuary.work.lock import find_holder


@click.command()
@cli.flag("--fix", "First make the store's files readable by you only.")
@cli.store_options
def doctor(fix: bool, store: str | None) -> None:
    """Look for faults and say how to fix them.

    Checks the settings, who may read the store, the pointer, every checksum of the current
    snapshot, its age, the encoder, the source, the transcripts, the last verdict, memories that
    read like orders, the working files and logs, the warm server, the agents' hooks, and the MCP
    server.

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
    """The result of one check."""

    name: str
    level: str  # "ok", "warn" or "fail"
    message: str
    remedy: str = ""


# Remedies by the name of the finding, with a second word where a check has several.
_REMEDIES = {
    "settings": "correct the file or the variable; until then defaults apply",
    "privacy": "run `noctuary doctor --fix`",
    "profiles": "correct them; until then a recall skips the layer and warns",
    "pointer": "run `noctuary nightly`, or `noctuary rollback`",
    "snapshot": "run `noctuary rollback`, then `noctuary nightly`",
    "snapshot outdated": "run `noctuary nightly`",
    "age": "run `noctuary nightly`; `noctuary schedule install` runs it every day",
    "encoder": "run `noctuary nightly`: it exports the query encoder again",
    "encoder key": "set {variable} where recall runs, hooks and servers included",
    "source": "the next night cannot run; recall still answers. Restore it, or set source.path",
    "abstention": "run `noctuary nightly`: each night calibrates (docs/abstention.md)",
    "transcripts": "correct transcripts.path: agents delete old transcripts, unread or not",
    "sessions": "update noctuary; until then what you said in them is not kept",
    "gate": "read {verdict}; the snapshot before it keeps serving",
    "orders": "read them with `noctuary browse`; `noctuary forget` removes what somebody planted",
    "injections": "move {file} away; only tags identify earlier injections then",
    "usage": "run `noctuary nightly`: it rewrites the file",
    "archive": "restore the file from a backup, or remove it: then nothing is archived any more",
    "forgetting": "run `noctuary forget --apply` or `noctuary nightly`: either goes on with it",
    "forgetting left": "remove {files}, or what quotes it there; then `noctuary forget --apply`",
    "forgetting receipts": "restore it from a backup: it does not prove anything any more",
    "files": "run `noctuary nightly`: it makes them again",
    "server": "start `noctuary serve` again",
    "server fallback": "see docs/serve.md, Falling back",
    "server unsafe": "until then recall answers without one",
    "hooks": "`noctuary hooks status` shows every event",
    "hooks install": "`{install}`",
    "hooks unreadable": "fix it, then `{install}`",
    "hooks off": "remove that line",
    "hooks twice": "`noctuary hooks uninstall --agent {agent}`",
    f"hooks {TIMEOUT}": "keep `noctuary serve` running, or allow more: hook.deadline_ms",
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


_NAMED_ORDERS = 10
_BREAKS = (errors.NoctuaryError, OSError, ValueError, KeyError, TypeError, sqlite3.Error)


def examine(paths: StorePaths) -> list[Finding]:
    """Run every check; one that raises is itself a finding."""
    settings, home, here = profiles.current_settings()[0], find_home, Path.cwd
    checks: dict[str, Callable[[], Finding | Iterable[Finding]]] = {
        "settings": _check_settings,
        "privacy": lambda: _check_privacy(paths),
        "profiles": lambda: _check_profiles(settings),
        "serving": lambda: check_serving(paths, settings, is_hooked=are_hooked(home(), here())),
        "last_verdict": lambda: _check_verdict(paths),
        "transcripts": lambda: check_transcripts(settings.transcripts.path, settings.sources),
        "sessions": lambda: _check_sessions(paths),
        "access_log": lambda: _check_access_log(paths),
        "injections": lambda: _check_injections(paths),
        "usage": lambda: _check_usage(paths),
        "archive": lambda: _check_archive(paths),
        "forgetting": lambda: _check_forgetting(paths),
        "files": lambda: _check_files(paths),
        "server": lambda: check_server(paths.root),
        "hooks": lambda: check_hooks(home(), here()),
        "mcp": lambda: _check_mcp(here()),
    }
    findings: list[Finding] = []
    for name, check in checks.items():
        try:
            found = check()
            findings.extend([found] if isinstance(found, Finding) else found)
        except _BREAKS as error:
            findings.append(Finding(name, "fail", f"{type(error).__name__}: {error}"))
    return findings


def _check_settings() -> Finding:
    try:
        Settings.load(home=find_home())
    except errors.ConfigError as error:
        return _fail("settings", str(error))
    return _ok("settings", "every key and value is known")


def _check_privacy(paths: StorePaths) -> Finding:
    found, told = open_to_others(paths.root, _source_below(paths)), ""
    if found:
        told = (
            f"others may read, write or enter {len(found):,} files and directories of the store "
            f"({found[0]} has mode {stat.S_IMODE(found[0].lstat().st_mode):04o}, expected 0700 for "
            "directories and 0600 for files)"
        )
    return _warn_if("privacy", told, "nobody else may read the store")


def _source_below(paths: StorePaths) -> Path | None:
    """Return the source if it lies in the store: its permissions are its owner's business."""
    try:
        manifest = read_manifest(paths.snapshots / read_pointer(paths).snapshot_id)
    except errors.StoreError:
        return None
    source = Path(str(manifest.source.get("location", "")))
    return source if paths.root in source.parents else None


def _check_profiles(settings: Settings) -> Finding:
    known = profiles.list_profiles(settings)
    faults = [f"{profile.name}: {fault}" for profile in known for fault in profile.faults]
    return _warn_if("profiles", "; ".join(faults), f"{len(known)} profiles, all values in range")


# The current snapshot: pointer, checksums, age, encoder, source, calibration.


def check_serving(paths: StorePaths, settings: Settings, *, is_hooked: bool) -> Iterator[Finding]:
    """Check the current snapshot, its encoder and its source."""
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
    size = f"{len(manifest.files)} files, {snapshot_bytes(manifest) / 1e6:.1f} MB"
    yield _ok("snapshot", f"{size}, every checksum holds")
    fine = f"the last night went through {layout.last_night_hours(paths) or 0:.1f} h ago"
    yield _warn_if("age", find_age_fault(paths, pointer, settings.recall.stale_after_hours), fine)
    yield _check_encoder(paths, manifest)
    location = manifest.source.get("location", "")
    yield _warn_if("source", find_source_fault(manifest), f"{location} can be read")
    yield check_abstention(directory, wants=is_hooked and settings.hook.abstain)
    yield _check_orders(directory / layout.ROWS_FILE)


def _check_encoder(paths: StorePaths, manifest: Manifest) -> Finding:
    if manifest.encoder is None or manifest.encoder_digest is None:
        message = "the snapshot has no vectors: recall is lexical and graph only"
        return Finding("encoder", "warn", message)
    expected = EncoderFingerprint.from_json(manifest.encoder)
    directory = paths.encoders / manifest.encoder_digest
    if expected.is_hosted:
        return _check_hosted_encoder(directory)
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


def _check_hosted_encoder(directory: Path) -> Finding:
    """Check the description and the key, without a paid request to the provider."""
    try:
        model = read_description(directory)
    except errors.NoctuaryError as error:
        return _fail("encoder", str(error))
    try:
        read_api_key(model.api_key_variable, "encoder.api_key_variable")
    except errors.ConfigError as error:
        asked = f"{model.title} cannot be asked from here: {error}"
        message = f"{asked}; recall is lexical and graph only"
        return _warn("encoder key", message, variable=model.api_key_variable)
    made = f"{model.title}, {model.dimension} dimensions"
    return _ok("encoder", f"{made}, over the network: queries leave")


def check_abstention(snapshot: Path, *, wants: bool) -> Finding:
    """Check the calibration for abstention; a missing one matters only to hooks that abstain."""
    file, calibration = snapshot / layout.ABSTENTION_FILE, None
    try:
        calibration = Calibration.parse(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        return _warn("abstention", f"{file.name} cannot be read: {error}")
    if calibration is None and wants:
        return _warn("abstention", "not calibrated: prompts get the best memories, however unlike")
    return _ok("abstention", "not calibrated, nor needed" if calibration is None else "calibrated")


def _check_orders(rows: Path) -> Finding:
    """List memories that read like orders to the agent, those that their user typed aside."""
    with closing(connect_immutable(rows)) as db:
        sql = "SELECT memory_id, content FROM memories WHERE origin <> ? ORDER BY position"
        told = db.execute(sql, (Origin.USER,))
        found = [str(memory_id) for memory_id, content in told if reads_like_order(content)]
    if not found:
        return _ok("orders", "no memory reads like an order to the agent")
    more = f" and {len(found) - _NAMED_ORDERS:,} more" if len(found) > _NAMED_ORDERS else ""
    said = f"{', '.join(found[:_NAMED_ORDERS])}{more} read like orders to the agent"
    return _warn("orders", f"{said}: no prompt gets them")


# What nights read and write: transcripts, the verdict, logs, files.


def check_transcripts(path: str, sources: Mapping[str, str] = NOTHING) -> Finding:
    """Check that the agents' transcripts can be read."""
    listed = [name for name, said in sources.items() if said.startswith(TRANSCRIPTS)]
    if not path and listed:
        return _ok("transcripts", f"every night reads those of {', '.join(listed)}")
    if not path:
        return _ok("transcripts", "no folder is set: only the Stop hook keeps turns")
    try:
        place = layout.expand_user(path)
    except errors.StoreError as error:
        return _warn("transcripts", str(error))
    fault = find_path_fault(place)
    if fault is None and not is_transcripts(place):
        fault = f"{place} holds no transcript of an agent"
    return _warn_if("transcripts", fault, f"{place} can be read")


def _check_sessions(paths: StorePaths) -> Iterator[Finding]:
    yield from (_warn("sessions", sentence) for sentence in find_unread_sessions(paths.turns))


def _check_verdict(paths: StorePaths) -> Finding:
    verdicts = sorted(paths.verdicts.glob("*.json"), key=lambda p: p.stat().st_mtime_ns)
    if not verdicts:
        return _ok("gate", "no candidate was ever judged")
    last: dict[str, Any] = parse_json(verdicts[-1].read_text(encoding="utf-8"))
    checks, judged_at = last["checks"], last["judged_at"]
    failed = ", ".join(c["name"] for c in checks if not c["passed"])
    if last["outcome"] == PASS:
        return _ok("gate", f"the last candidate passed {len(checks)} checks at {judged_at}")
    told = f"the last night was refused at {judged_at}: {failed}"
    return _fail("gate", told, verdict=verdicts[-1])


def _check_access_log(paths: StorePaths) -> Finding:
    if not paths.access_log.exists():
        return _ok("access_log", "nothing has been recalled yet")
    with closing(open_log(paths.access_log, ACCESS_LOG)) as log:
        (count,) = log.execute("SELECT COUNT(*) FROM retrievals").fetchone()
    return _ok("access_log", f"{count:,} retrievals")


def _check_injections(paths: StorePaths) -> Finding:
    fault = read_injections(paths.injections).fault
    told = fault and f"{fault}: injected text that lost its tag is not recognised"
    fine = "the record of injected texts can be read, if there is one"
    return _warn_if("injections", told, fine, file=paths.injections.name)


def _check_usage(paths: StorePaths) -> Finding:
    with closing(UsageReader(paths.usage)) as usage:
        fault = None if usage.is_missing else usage.warning
        return _warn_if("usage", fault, "counts of recalls can be read, if there are any")


def _check_archive(paths: StorePaths) -> Finding:
    fault = ArchiveReader(paths.archive).warning
    return _warn_if("archive", fault, "applied plans can be read, if there are any")


def _check_forgetting(paths: StorePaths) -> Finding:
    stones = read_tombstones(paths.root)
    if stones.is_pending:
        said = f"{len(stones.ids):,} memories are hidden and not purged yet, since {stones.since}"
        left = ", ".join(str(name) for name, *_ in read_draft(paths).get("left", ()))
        key = "forgetting left" if left else "forgetting"
        return _warn(key, f"{said}; left in {left}" if left else said, files=left)
    if (forged := find_forged(paths)) is not None:
        return _warn("forgetting receipts", f"receipt {forged} is not as it was written")
    return _ok("forgetting", f"nothing is unfinished; {len(read_receipts(paths))} receipts")


def _check_files(paths: StorePaths) -> Finding:
    if (holder := find_holder(paths.lock)) is not None:
        return _ok("files", f"night {holder} is writing them: not compared")
    faults = find_faults(paths)
    fault = f"not as the last night left them: {name_faults(faults)}" if faults else ""
    return _warn_if("files", fault, "all working files are as the last night left them")


# The warm server.

_RECENT_S = 24 * 3600.0  # older fallbacks say little about today


def check_server(store: Path) -> Finding:
    """Check the warm server of a store, and whether a client fell back from it lately."""
    place, none_runs = server.find_place(store), "none runs: recall answers in its own process"
    try:
        fault = client.directory_fault(place.directory)
    except FileNotFoundError:
        return _ok("server", none_runs)
    if fault is not None:
        return _warn("server unsafe", f"no server can be used: {fault}")
    answer, fallback = client.ping(store), server.read_fallback(place)
    if isinstance(answer, client.Refusal):
        is_absent = answer.code == "absent"
        return _warn_if(
            "server", "" if is_absent else f"{answer.code}: {answer.message}", none_runs
        )
    runs = f"process {answer['pid']} answered {answer['answered']:,} recalls"
    since_s = max(answer["started_s"], time.time() - _RECENT_S)
    if fallback is not None and fallback.at_s >= since_s:
        message = f"{runs}; a client fell back ({fallback.code}): {fallback.message}"
        return _warn("server fallback", message)
    return _ok("server", runs)


# The agents: their hooks, installed or not, and how they fare; and the MCP server.


def check_hooks(home: Path, folder: Path) -> Iterator[Finding]:
    """Check the hooks of every agent that is used here."""
    states = install.look_at_places(home, folder)
    counters = read_counters(home / COUNTERS)
    known = 0
    for agent in AGENTS:
        plugin = install.enabled_plugin(agent, folder)
        own = [state for state in states if state.agent == agent and state.state != install.ABSENT]
        called = [event for event in counters.events if event.agent == agent]
        if own or plugin or called or install.is_used(agent):
            known += 1
            yield _check_agent(agent, own, plugin, called)
    if not known:
        yield _ok("hooks", "no agent keeps settings here: nothing to install them into")


def are_hooked(home: Path, folder: Path) -> bool:
    """Say whether any agent runs noctuary's hooks."""
    if any(state.state in install.RUNNING for state in install.look_at_places(home, folder)):
        return True
    return any(install.enabled_plugin(agent, folder) for agent in AGENTS)


def _check_agent(
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
        return _describe_failures(agent, failing)
    if plugin and len(where) > 1:
        message = f"installed twice, so every prompt of {agent} runs both: {', '.join(where)}"
        return _warn("hooks twice", message, agent=agent)
    if odd is not None:
        return _warn(
            "hooks install", f"{odd.path}: {odd.message}", install=f"{again} --{odd.scope}"
        )
    told = f"{agent}: {', '.join(where)}"
    if not any(event.calls for event in called):
        told += "; never called yet" + (" (trust them with /hooks)" if agent == "codex" else "")
    return _ok("hooks", told)


def _describe_failures(agent: str, failing: Sequence[EventCounters]) -> Finding:
    worst = max(failing, key=lambda event: (event.outage_code != TIMEOUT, event.outage_calls))
    since_s = max(time.time() - (worst.outage_since_s or time.time()), 0.0)
    message = (
        f"{worst.event} of {agent} fails since {since_s / 3600:.1f} h ago, "
        f"{worst.outage_calls:,} time(s) one after the other: {worst.outage_code}"
    )
    key = f"hooks {worst.outage_code}"
    level = "warn" if worst.outage_code == TIMEOUT else "fail"
    return _bad(level, key if key in _REMEDIES else "hooks", message)


def _check_mcp(folder: Path) -> Finding:
    fault = cli.find_sdk_fault()
    if fault is None:
        return _ok("mcp", "the MCP server can run")
    plugin = next((p for a in AGENTS if (p := install.enabled_plugin(a, folder)) is not None), None)
    if plugin is None:
        return _ok("mcp", f"{fault}. Nothing else needs it")
    message, remedy = fault.split(": ", 1)
    return _warn("mcp", f"{message}, and the plugin in {plugin} starts it", remedy=remedy)
