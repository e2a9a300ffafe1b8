"""Putting `noctuary hook` into the agents' own settings, taking it out, and the plugin folder."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary import __version__
from noctuary.agents.client import AGENTS, PROMPT, SESSION_START, parse_options
from noctuary.agents.hooks import POST_COMPACT, PRE_COMPACT, SESSION_END, STOP
from noctuary.agents.state import HOOKS, make_private, read_json, read_rows, replace_json
from noctuary.core import formats
from noctuary.core.errors import NoctuaryError, StoreError
from noctuary.core.files import replacement, write_bytes, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.store import expand_user

Settings = dict[str, Any]


class HookInstallError(NoctuaryError):
    """An agent's settings cannot be read, merged or written; nothing was changed."""


# Two tables: the agents with their files and forms, and the events that run `noctuary hook`.


class HookedEvent(NamedTuple):
    """One event of the agents that runs `noctuary hook`."""

    name: str
    # Whole seconds after which the agent kills a hook that cannot start (others end themselves).
    timeout_s: int
    matcher: str | None = None  # kinds of the event, separated by "|"; None means all


EVENTS = (
    # Agents kill a prompt's hook after 30 s at the latest and silently drop its output.
    HookedEvent(PROMPT, timeout_s=10),
    HookedEvent(SESSION_START, timeout_s=10, matcher="startup|resume|fork|clear|compact"),
    HookedEvent(PRE_COMPACT, timeout_s=5),
    HookedEvent(POST_COMPACT, timeout_s=5),
    # Not in the background: `claude -p` ends before it runs such hooks. Reading the transcript is
    # left to a process of its own.
    HookedEvent(STOP, timeout_s=5),
    # All of these hooks share 1.5 s with Claude and have 3 s at most with Codex: whole seconds.
    HookedEvent(SESSION_END, timeout_s=1),
)


def _claude_entry(words: Sequence[str], event: HookedEvent) -> Settings:
    """Return the exec form: no shell reads the path."""
    return {"command": words[0], "args": list(words[1:]), "timeout": event.timeout_s}


def _codex_entry(words: Sequence[str], event: HookedEvent) -> Settings:
    """Return a quoted line, as Codex knows a shell command only, and no background everywhere."""
    return {"command": shlex.join(words), "timeout": event.timeout_s}


class Agent(NamedTuple):
    """Where an agent keeps its settings, and the form of its hooks."""

    # Its folder is `.NAME` in a project and in the user's home, which `variable` moves.
    variable: str
    file: str
    entry: Callable[[Sequence[str], HookedEvent], Settings]
    plugins_file: str
    plugins_key: str
    after_install: str = ""


_AGENTS: Mapping[str, Agent] = {
    "claude": Agent(
        "CLAUDE_CONFIG_DIR", "settings.json", _claude_entry, "settings.json", "enabledPlugins"
    ),
    "codex": Agent(
        "CODEX_HOME", "hooks.json", _codex_entry, "config.toml", "plugins",
        "Codex runs a hook only after you have trusted it: open /hooks in a new session",
    ),
}  # fmt: skip


def hook_groups(agent: str, program: Sequence[str], store: str | None = None) -> Settings:
    """Return the matcher group of every event as the agent's settings hold it, in order."""
    if agent not in _AGENTS or not program:
        raise ValueError(f"agent {agent!r} and program {program!r}: want one of {AGENTS}, words")
    words = [*program, "hook", "--agent", agent, *(["--store", store] if store else [])]
    groups: Settings = {}
    for event in EVENTS:
        entry = {"type": "command", **_AGENTS[agent].entry(words, event)}
        matcher = {"matcher": event.matcher} if event.matcher else {}
        groups[event.name] = {**matcher, "hooks": [entry]}
    return groups


USER = "user"
PROJECT = "project"
SCOPES = (USER, PROJECT)  # whose sessions a file is for: all of the user's, or those in one folder


class SettingsPlace(NamedTuple):
    """One settings file of an agent in a scope; absolute, and it need not exist."""

    agent: str
    scope: str
    path: Path


def find_place(
    agent: str, scope: str, folder: Path, environ: Mapping[str, str] | None = None
) -> SettingsPlace:
    """Return an agent's settings file for hooks, of the user or of a project's folder."""
    if agent not in _AGENTS or scope not in SCOPES:
        raise ValueError(f"agent {agent!r}, scope {scope!r}: want one of {AGENTS}, of {SCOPES}")
    of_agent = _AGENTS[agent]
    if scope == PROJECT:
        return SettingsPlace(agent, scope, folder.absolute() / f".{agent}" / of_agent.file)
    env = os.environ if environ is None else environ
    try:
        directory = expand_user(env.get(of_agent.variable, "").strip() or f"~/.{agent}")
    except StoreError as error:
        raise HookInstallError(str(error)) from error
    return SettingsPlace(agent, scope, directory.absolute() / of_agent.file)


def _places(agents: Sequence[str], folder: Path) -> list[SettingsPlace]:
    """Return the files of some agents in both scopes; no user's files without a home directory."""
    places: dict[Path, SettingsPlace] = {}
    for agent in agents:
        for scope in SCOPES:
            with suppress(HookInstallError):
                place = find_place(agent, scope, folder)
                # In the home directory a project's file is the user's own.
                places.setdefault(place.path, place)
    return list(places.values())


# The command of an entry: this program's, and how to recognise it.

_MODULES = ("noctuary", "noctuary.cli.entry", "noctuary.cli.main")
_PYTHON = re.compile(r"python[\d.]*")


class HookCommand(NamedTuple):
    """The command of one of noctuary's entries: the words before its name, and those behind."""

    program: tuple[str, ...]
    arguments: tuple[str, ...]

    @property
    def store(self) -> str | None:
        """What --store names, or None."""
        options = parse_options(self.arguments)
        return None if options is None else options[1]

    @property
    def is_there(self) -> bool:
        """Whether the program can be started from here."""
        return shutil.which(self.program[0]) is not None


def find_program() -> tuple[str, ...]:
    """Return the words that start this noctuary from any directory."""
    # The executable next to the running Python comes first: it stays when the user enters another
    # environment. A path, as agents that a desktop starts know nothing of a shell's PATH.
    beside = Path(sys.executable).absolute().with_name("noctuary")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("noctuary")
    # -P: an agent runs it in any project, whose numpy.py or noctuary/ must not be imported.
    module = (sys.executable, "-P", "-m", "noctuary.cli.entry")
    words = (os.path.abspath(found),) if found else module  # noqa: PTH100 (symlinks must stay)
    for word in words:
        require_utf8(word)
    return words


def require_utf8(word: str) -> None:
    """Refuse a word that JSON in UTF-8 cannot hold, as a `HookInstallError`."""
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise HookInstallError(
            f"{word!r} is not UTF-8, which an agent's settings need: move it to another path"
        ) from None


def read_command(entry: object) -> HookCommand | None:
    """Return the command of an entry that runs `noctuary hook`, None for any other entry."""
    # Both forms count, so that entries of other versions are found: `command` with `args`, and one
    # line for a shell.
    return split_command(_words(entry), "hook")


def split_command(words: Sequence[str], name: str) -> HookCommand | None:
    """Return the parts of words that run one of noctuary's commands, None for any others."""
    # A command that wraps noctuary's in something else is its owner's.
    place = words.index(name) if name in words[1:] else 0
    program, arguments = list(words[:place]), words[place + 1 :]
    name = re.split(r"[/\\]", words[0])[-1].removesuffix(".exe") if program else ""
    is_ours = len(program) == 1 and name == "noctuary"
    if _PYTHON.fullmatch(name) and program[1:-1] in (["-m"], ["-P", "-m"]):
        is_ours = program[-1] in _MODULES
    return HookCommand(tuple(program), tuple(arguments)) if is_ours else None


def _words(entry: object) -> list[str]:
    fields = cast("Settings", entry) if isinstance(entry, dict) else {}
    command, arguments = fields.get("command"), fields.get("args")
    if fields.get("type") != "command" or not isinstance(command, str):
        return []
    if isinstance(arguments, list):
        words = [command, *cast("list[Any]", arguments)]
        return words if all(isinstance(word, str) for word in words) else []
    try:
        return shlex.split(command)
    except ValueError:
        return []


# Noctuary's entries in the value of an agent's settings: adding, renewing, removing, listing.
#
# Agents keep hooks in one form: {"hooks": {event: [{"matcher"?, "hooks": [entry, ...]}, ...]}}.
# Only entries that run `noctuary hook` are ever touched (`read_command`).


def list_hooks(settings: Settings) -> list[tuple[str, HookCommand]]:
    """Return noctuary's entries, event and command, passing over other forms."""
    return [
        (event, command)
        for event, groups in _events(settings).items()
        if isinstance(groups, list)
        for group in cast("list[Any]", groups)
        for entry in _entries(group)
        if (command := read_command(entry)) is not None
    ]


def add_hooks(settings: Settings, wanted: Mapping[str, Settings]) -> Settings:
    """Return settings in which exactly the wanted entries (`hook_groups`) are noctuary's."""
    # An entry that is there stays in its place and is renewed: Codex remembers which hooks its user
    # trusts by their places. A `HookInstallError` names a field of another type.
    events = _events(settings)
    _require("hooks", settings.get("hooks", {}), dict)
    for event in wanted:
        _require(f"hooks.{event}", events.get(event, []), list)
    hooks = {event: _with_group(groups, wanted.get(event)) for event, groups in events.items()}
    kept = {event: groups for event, groups in hooks.items() if groups != [] or events[event] == []}
    new = {event: [group] for event, group in wanted.items() if event not in events}
    return {**settings, "hooks": {**kept, **new}}


def remove_hooks(settings: Settings) -> Settings:
    """Remove noctuary's entries, and the lists and objects that become empty."""
    if not list_hooks(settings):
        return settings
    return {key: value for key, value in add_hooks(settings, {}).items() if key != "hooks" or value}


def _events(settings: Settings) -> Settings:
    found = settings.get("hooks")
    return cast("Settings", found) if isinstance(found, dict) else {}


def _entries(group: Any) -> list[Any]:
    found = cast("Settings", group).get("hooks") if isinstance(group, dict) else None
    return cast("list[Any]", found) if isinstance(found, list) else []


_CALLED: Mapping[type, str] = {
    dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "null",
}  # fmt: skip


def _require(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise HookInstallError(
            f'"{name}" holds {_CALLED.get(type(value), "a number")} where {_CALLED[kind]} was '
            "expected: correct the file first; nothing was changed"
        )


def _with_group(groups: Any, wanted: Settings | None) -> Any:
    """Return an event's groups with `wanted` as the only one of noctuary's, or with none."""
    if not isinstance(groups, list):
        return groups
    merged: list[Any] = []
    place: int | None = None
    for group in cast("list[Any]", groups):
        entries = _entries(group)
        foreign = [entry for entry in entries if read_command(entry) is None]
        if len(foreign) == len(entries):
            merged.append(group)
            continue
        place = len(merged) if place is None else place
        merged += [{**group, "hooks": foreign}] if foreign else []
    if wanted is not None:
        merged.insert(len(merged) if place is None else place, wanted)
    return merged


# An agent's settings file: read as strictly as its agent does, and replaced whole or not at all.

MAX_BYTES = 8_000_000  # settings are kilobytes: more would be a wrong file

_BOM = "\ufeff"
_FIRST_INDENT = re.compile(r"[\[{][ \t]*\r?\n([ \t]+)")


class SettingsFile(NamedTuple):
    """A settings file as it was read: itself, behind any links."""

    path: Path
    raw: bytes | None  # None where there is no file
    value: Settings

    def render(self, value: Settings) -> bytes:
        """Return a value with the indentation, line ends and byte order mark of this file."""
        text = (self.raw or b"").decode("utf-8")
        written = json.dumps(value, indent=indent_of(text), ensure_ascii=False) + "\n"
        if "\r\n" in text:
            written = written.replace("\n", "\r\n")
        # A lone surrogate, which only an escape can write, becomes that escape again.
        data = written.encode("utf-8", "backslashreplace")
        return _BOM.encode() + data if text.startswith(_BOM) else data


def parse_settings(path: Path, text: str) -> Settings:
    """Parse a JSON object strictly; raise a `HookInstallError` that names the fault."""
    try:
        value: Any = parse_json(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        json.dumps(value, allow_nan=False)  # 1e999 reads as infinite, which could not be written
    except ValueError as error:
        comment = "//" in text or "/*" in text
        why = " (JSON has no comments)" if comment else ""
        raise HookInstallError(
            f"{path} is not valid JSON: {error}{why}. Correct it first; nothing was changed"
        ) from None
    if not isinstance(value, dict):
        raise HookInstallError(
            f"{path} holds {type(value).__name__} where a JSON object was expected; "
            "nothing was changed"
        )
    return cast("Settings", value)


def read_settings(
    path: Path, parse: Callable[[Path, str], Settings] = parse_settings
) -> SettingsFile:
    """Read a settings file, behind any links, as strictly as its agent; an empty one holds {}."""
    try:
        real = path.resolve()
        if real.exists() and not real.is_file():
            raise HookInstallError(f"{real} is not a regular file; nothing was changed")
    except (OSError, RuntimeError) as error:
        raise HookInstallError(f"{path} cannot be reached: {error}; nothing was changed") from None
    raw = _read(real)
    try:
        text = (raw or b"").decode("utf-8").removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise HookInstallError(
            f"{path} is not UTF-8 from byte {error.start} on: save it as UTF-8; nothing was changed"
        ) from None
    return SettingsFile(real, raw, parse(path, text) if text.strip() else {})


def write_settings(before: SettingsFile, data: bytes | None) -> str | None:
    """Replace a settings file, None removes it; return where its old bytes are kept, if so."""
    # The backup lies next to it, one per content. Permissions stay; a new file is private.
    path, raw = before.path, before.raw
    if _read(path) != raw:
        raise HookInstallError(f"{path} was just changed by another program: run the command again")
    if data is None:
        path.unlink()
        return None
    if raw is None:
        write_bytes(path, data)
        return None
    mode, backup = stat.S_IMODE(path.stat().st_mode), _backup(path, _hash(raw))
    if _read(backup) != raw:
        replace_keeping(backup, raw, mode)
    replace_keeping(path, data, mode)
    return str(backup)


def indent_of(text: str) -> str:
    """Return how a JSON text indents its first line, two spaces where it does not."""
    found = _FIRST_INDENT.search(text)
    return found[1] if found else "  "


def is_same_json(one: Any, other: Any) -> bool:
    """Tell whether two values are the same JSON: 1, 1.0 and true differ, the order of keys not."""
    # What only TOML has, such as dates, counts by its form in Python.
    told, others = (json.dumps(v, sort_keys=True, default=repr) for v in (one, other))
    return told == others


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HookInstallError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise HookInstallError(
            f"{path} has more than {MAX_BYTES:,} bytes: this is not a settings file"
        )
    return raw


def _unique(pairs: list[tuple[str, Any]]) -> Settings:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} appears twice in one object")
    return dict(pairs)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _backup(path: Path, digest: str) -> Path:
    return path.with_name(f"{path.name}.noctuary-{digest[:16]}.bak")


def replace_keeping(path: Path, data: bytes, mode: int) -> None:
    """Replace a file atomically; it has its final mode before it gets its name."""
    with replacement(path) as tmp:
        tmp.write_bytes(data)
        tmp.chmod(mode)


# What was installed where, so that uninstalling puts back the very bytes, and `noctuary doctor`
# knows the projects. Without it uninstalling still removes every entry of noctuary's.

NO_FILE = "none"  # in the place of a hash: there was no settings file before

_MAX_RECEIPT_BYTES = 1_000_000


class Receipt(NamedTuple):
    """One file that hooks were installed into."""

    agent: str
    scope: str
    path: str
    original: str  # SHA-256 of the file before, `NO_FILE`, or "" where that cannot come back
    written: str  # SHA-256 of the file as installing left it
    made_folder: bool = False


HOOK_RECEIPTS = "installs"
SERVER_RECEIPTS = "mcp_installs"  # of MCP servers
RECEIPT_KINDS = (HOOK_RECEIPTS, SERVER_RECEIPTS)


def receipts_path(home: Path, kind: str = HOOK_RECEIPTS) -> Path:
    """Return the file of the receipts below noctuary's home."""
    return home / HOOKS / f"{kind}.json"


def read_receipts(home: Path, kind: str = HOOK_RECEIPTS) -> dict[str, Receipt]:
    """Return the receipts by settings file, without damaged ones."""
    found, _ = read_json(receipts_path(home, kind), _MAX_RECEIPT_BYTES)
    rows = read_rows(Receipt, found, "installs", formats.INSTALL_RECEIPTS.version)
    return {r.path: r for r in rows if kind != HOOK_RECEIPTS or r.agent in _AGENTS}


def _require_ours(home: Path, kind: str) -> None:
    """Refuse to change settings where a newer noctuary wrote the receipts: they would be lost."""
    path, expected = receipts_path(home, kind), formats.INSTALL_RECEIPTS.version
    found, _ = read_json(path, _MAX_RECEIPT_BYTES)
    version = cast("dict[str, Any]", found).get("version") if isinstance(found, dict) else None
    if isinstance(version, int) and version > expected:
        told = f"{path} has format {version}, expected {expected}"
        raise HookInstallError(f"{told}: {formats.UPDATE}; nothing was changed")


def write_receipts(home: Path, receipts: Mapping[str, Receipt], kind: str = HOOK_RECEIPTS) -> bool:
    """Write the receipts; return whether that worked. Equal receipts give equal bytes."""
    rows = [receipts[path]._asdict() for path in sorted(receipts)]
    path = receipts_path(home, kind)
    return make_private(path.parent) and replace_json(
        path, {"version": formats.INSTALL_RECEIPTS.version, "installs": rows}
    )


# Changing one settings file, with its receipt: `put_in` and `take_out` for any
# kind of entry, `install_hooks` and `uninstall_hooks` for hooks.


class HookChange(NamedTuple):
    """What was done to one settings file, or would be."""

    agent: str
    scope: str
    path: str
    action: str  # "installed", "renewed", "unchanged", "removed" or "absent" (nothing to remove)
    dry_run: bool  # nothing was written
    backup: str | None  # where the old bytes are kept
    diff: str  # unified, "" for none
    notes: tuple[str, ...] = ()  # sentences that the user should read


def install_hooks(
    place: SettingsPlace,
    program: Sequence[str],
    *,
    home: Path,
    store: str | None = None,
    dry_run: bool = False,
) -> HookChange:
    """Put noctuary's hooks into a settings file; a second time changes nothing."""
    before = read_settings(place.path)
    wanted = add_hooks(before.value, hook_groups(place.agent, program, store))
    changed = not is_same_json(before.value, wanted)
    data = before.render(wanted) if changed else None
    had, notes = bool(list_hooks(before.value)), _notes(place, before, changed=changed)
    return put_in(place, before, data, had=had, home=home, dry_run=dry_run, notes=notes)


def uninstall_hooks(place: SettingsPlace, *, home: Path, dry_run: bool = False) -> HookChange:
    """Remove the hooks; restore the old bytes if the file is unchanged since the installation."""
    before = read_settings(place.path)
    rest = remove_hooks(before.value)
    data = before.render(rest) if list_hooks(before.value) else None
    return take_out(place, before, data, is_empty=not rest, home=home, dry_run=dry_run)


def put_in(
    place: SettingsPlace,
    before: SettingsFile,
    data: bytes | None,
    *,
    had: bool,
    home: Path,
    kind: str = HOOK_RECEIPTS,
    dry_run: bool = False,
    notes: Sequence[str] = (),
) -> HookChange:
    """Replace a settings file by one with noctuary's entries; None leaves it as it is."""
    # `had`: there were entries of noctuary's before, so the file before is not the owner's own.
    notes, backup = list(notes), None
    if data is not None and not dry_run:
        _require_ours(home, kind)
        receipts, path = read_receipts(home, kind), str(place.path)
        made_folder = not before.path.parent.is_dir()
        backup = write_settings(before, data)
        receipt = receipts.get(path)
        if had and receipt is not None and receipt.written == _hash(before.raw or b""):
            receipt = receipt._replace(written=_hash(data))
        else:
            original = NO_FILE if before.raw is None else "" if had else _hash(before.raw)
            receipt = Receipt(place.agent, place.scope, path, original, _hash(data), made_folder)
        if not write_receipts(home, {**receipts, path: receipt}, kind):
            notes.append(f"no receipt could be written below {home}: uninstalling works without")
    action = "unchanged" if data is None else "renewed" if had else "installed"
    diff = "" if data is None else _diff(place, before, data)
    whose = (place.agent, place.scope, str(place.path))
    return HookChange(*whose, action, dry_run, backup, diff, tuple(notes))


def take_out(
    place: SettingsPlace,
    before: SettingsFile,
    rest: bytes | None,
    *,
    is_empty: bool,
    home: Path,
    kind: str = HOOK_RECEIPTS,
    dry_run: bool = False,
) -> HookChange:
    """Restore a settings file, or write the rest that remains without noctuary's entries."""
    # A rest of None: the file has no entry of noctuary's. `is_empty`: it has nothing else.
    receipts = read_receipts(home, kind)
    receipt = receipts.pop(str(place.path), None)
    is_there = rest is not None
    data, backup = before.raw, None
    if rest is not None:
        data = _original(before, receipt, rest, is_empty=is_empty)
    if not dry_run:
        if is_there:
            _require_ours(home, kind)
            backup = write_settings(before, data)
        if data is None and receipt is not None and receipt.made_folder:
            with suppress(OSError):  # something else is in it by now
                before.path.parent.rmdir()
        if receipt is not None:
            write_receipts(home, receipts, kind)
    action = "removed" if is_there else "absent"
    whose, diff = (place.agent, place.scope, str(place.path)), _diff(place, before, data)
    return HookChange(*whose, action, dry_run, backup, diff)


def _original(
    before: SettingsFile, receipt: Receipt | None, rest: bytes, *, is_empty: bool
) -> bytes | None:
    """Return the bytes from before the installation, otherwise the rest; None deletes the file."""
    if receipt is not None and receipt.original == NO_FILE and is_empty:
        return None
    if receipt is not None and receipt.written == _hash(before.raw or b""):
        with suppress(OSError):
            kept = _backup(before.path, receipt.original).read_bytes()
            if _hash(kept) == receipt.original:
                return kept
    return rest


def environment_notes(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return notes about variables that the agent must have as well."""
    env = os.environ if environ is None else environ
    home = env.get("NOCTUARY_HOME", "").strip()
    if not home:
        return ()
    told = f"NOCTUARY_HOME is {home} here: start the agent with it too"
    return (f"{told}, or its hooks look for settings and stores in the default home",)


def _notes(place: SettingsPlace, before: SettingsFile, *, changed: bool) -> list[str]:
    notes: list[str] = []
    if changed and _AGENTS[place.agent].after_install:
        notes.append(_AGENTS[place.agent].after_install)
    if before.value.get("disableAllHooks") is True:
        notes.append(f'"disableAllHooks" is true in {place.path}: no hook runs')
    if changed and place.scope == PROJECT:
        notes.append(f"{place.path} names programs of this machine: do not commit it for others")
    folder = place.path.parent.parent if place.scope == PROJECT else Path.cwd()
    for other in _places([place.agent], folder):
        with suppress(HookInstallError, OSError):
            is_other = other.scope != place.scope and other.path.resolve() != place.path.resolve()
            if is_other and list_hooks(read_settings(other.path).value):
                twice = f"hooks are also installed in {other.path}"
                notes.append(f"{twice}: both run in this project; remove one")
    return notes


def _diff(place: SettingsPlace, before: SettingsFile, data: bytes | None) -> str:
    old, new = ((raw or b"").decode("utf-8").splitlines() for raw in (before.raw, data))
    name = str(place.path)
    return "\n".join(difflib.unified_diff(old, new, name, name, lineterm=""))


# Where noctuary's hooks are installed, and whether they can run.

PLUGIN_NAME = "noctuary"  # name of the plugin that `noctuary hooks plugin` writes

ABSENT = "absent"
INSTALLED = "installed"
OUTDATED = "outdated"  # other entries than this version writes
BROKEN = "broken"  # the program is gone
DISABLED = "disabled"
UNREADABLE = "unreadable"
RUNNING = frozenset({INSTALLED, OUTDATED})  # states in which the agent runs the hooks


class PlaceState(NamedTuple):
    """How it is with the hooks of one settings file."""

    agent: str
    scope: str
    path: str
    state: str = ABSENT
    events: tuple[str, ...] = ()  # those that have an entry of noctuary's
    store: str | None = None  # --store of the entries
    message: str = ""  # a sentence for every state but "absent" and "installed"


def look_at_places(home: Path, folder: Path) -> tuple[PlaceState, ...]:
    """Return the state of the user's files, of a project's, and of all that a receipt names."""
    places = _places(AGENTS, folder)
    known = {str(place.path) for place in places}
    noted = sorted(read_receipts(home).items())
    places += [SettingsPlace(r.agent, r.scope, Path(p)) for p, r in noted if p not in known]
    return tuple(look_at_place(place) for place in places)


def look_at_place(place: SettingsPlace) -> PlaceState:
    """Return the state of one settings file."""
    agent, scope, path = place
    found = PlaceState(agent, scope, str(path))
    try:
        value = read_settings(path).value
    except (HookInstallError, OSError) as error:
        return found._replace(state=UNREADABLE, message=str(error))
    hooks = list_hooks(value)
    if not hooks:
        return found
    command = hooks[0][1]
    gone = next((c.program[0] for _, c in hooks if not c.is_there), None)
    wanted = add_hooks(value, hook_groups(agent, command.program, command.store))
    again = f"run `noctuary hooks install --agent {agent} --{scope}` again"
    state, message = INSTALLED, ""
    if value.get("disableAllHooks") is True:
        state, message = DISABLED, f'"disableAllHooks" is true in {path}'
    elif gone is not None:
        state, message = BROKEN, f"{gone} cannot be started: {again}"
    elif not is_same_json(wanted, value):
        state, message = OUTDATED, f"the entries differ from what this version writes: {again}"
    events = tuple(dict.fromkeys(event for event, _ in hooks))
    return found._replace(state=state, events=events, store=command.store, message=message)


def enabled_plugin(agent: str, folder: Path) -> Path | None:
    """Return the file that switches noctuary's plugin on for an agent, None if none does."""
    for place in _places([agent], folder):
        path = place.path.with_name(_AGENTS[agent].plugins_file)
        plugins: Any = {}
        with suppress(HookInstallError, OSError, ValueError, RecursionError):
            is_toml = path.suffix == ".toml"
            read = tomllib.loads(path.read_bytes().decode("utf-8")) if is_toml else None
            value = read_settings(path).value if read is None else read
            plugins = value.get(_AGENTS[agent].plugins_key)
        found = cast("Settings", plugins) if isinstance(plugins, dict) else {}
        if any(name.split("@")[0] == PLUGIN_NAME and _is_on(on) for name, on in found.items()):
            return path
    return None


def _is_on(switch: Any) -> bool:
    """Tell whether a plugin's value switches it on: Claude's true or versions, Codex's table."""
    if isinstance(switch, dict):
        return cast("Settings", switch).get("enabled", True) is True
    return switch is True or isinstance(switch, list)


def is_used(agent: str) -> bool:
    """Tell whether the agent keeps settings on this machine, that is, whether somebody uses it."""
    places = _places([agent], Path.cwd())
    return any(place.scope == USER and place.path.parent.is_dir() for place in places)


# The plugin folder: noctuary's hooks and its MCP server as one plugin of both agents. Codex takes
# none from a marketplace's own root, and reads `hooks/hooks.json` unless its manifest names another
# file, so its hooks have a file of their own.

MARKETPLACE_NAME = "noctuary-local"
CLAUDE_MANIFEST = f"{PLUGIN_NAME}/.claude-plugin/plugin.json"
CODEX_MANIFEST = f"{PLUGIN_NAME}/.codex-plugin/plugin.json"

_AUTHOR = {"name": "noctuary"}
_DESCRIPTION = "Recalls memories of earlier sessions into prompts, from a nightly built snapshot."
_LICENSE = "Apache-2.0"
_KEYWORDS = ["memory", "recall", "context"]


def plugin_files(program: Sequence[str], store: str | None = None) -> dict[str, str]:
    """Return the files of the plugin folder: text by path below the folder, sorted."""
    base = {"name": PLUGIN_NAME, "version": __version__, "description": _DESCRIPTION}
    manifest = {**base, "author": _AUTHOR, "license": _LICENSE, "keywords": _KEYWORDS}
    server = [*program, "mcp", *(["--store", store] if store else [])]
    listed = {**base, "source": f"./{PLUGIN_NAME}"}
    hooks = {
        agent: {event: [group] for event, group in hook_groups(agent, program, store).items()}
        for agent in AGENTS
    }
    values: dict[str, Any] = {
        ".claude-plugin/marketplace.json": {
            "name": MARKETPLACE_NAME,
            "description": _DESCRIPTION,
            "owner": _AUTHOR,
            "plugins": [{**listed, "author": _AUTHOR, "category": "productivity"}],
        },
        ".agents/plugins/marketplace.json": {
            "name": MARKETPLACE_NAME,
            "plugins": [
                {
                    "name": PLUGIN_NAME,
                    "source": {"source": "local", "path": f"./{PLUGIN_NAME}"},
                    "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
                    "category": "Productivity",
                }
            ],
        },
        CLAUDE_MANIFEST: manifest,
        CODEX_MANIFEST: {**manifest, "hooks": "./hooks/codex.json", "mcpServers": "./.mcp.json"},
        f"{PLUGIN_NAME}/hooks/hooks.json": {
            "description": _DESCRIPTION, "hooks": hooks["claude"],
        },
        f"{PLUGIN_NAME}/hooks/codex.json": {"hooks": hooks["codex"]},
        f"{PLUGIN_NAME}/.mcp.json": {
            "mcpServers": {PLUGIN_NAME: {"command": server[0], "args": server[1:]}}
        },
    }  # fmt: skip
    return {
        path: json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        for path, value in sorted(values.items())
    }


def write_plugin(folder: Path, files: dict[str, str]) -> tuple[Path, ...]:
    """Write `plugin_files` below a folder; return the paths of those that differed."""
    if folder.exists() and not folder.is_dir():
        raise HookInstallError(f"{folder} is not a folder: name a new or an empty one")
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder):
        raise HookInstallError(
            f"{folder} holds more than noctuary's plugin: name a new or an empty folder"
        )
    written: list[Path] = []
    for name, text in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
            write_text(path, text)
            written.append(path)
    return tuple(written)


def _is_ours(folder: Path) -> bool:
    try:
        found: Any = parse_json((folder / CLAUDE_MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and cast("Settings", found).get("name") == PLUGIN_NAME
