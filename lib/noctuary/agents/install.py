"""Putting `noctuary hook` into the agents' own settings, taking it out, and the plugin folder."""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary import __version__
from noctuary.agents.hooks import (
    AGENTS,
    POST_COMPACT,
    PRE_COMPACT,
    PROMPT,
    SESSION_END,
    SESSION_START,
    STOP,
)
from noctuary.agents.settings_files import (
    HookInstallError,
    SettingsText,
    Written,
    is_same_json,
    read_settings,
    remove_settings,
    write_settings,
)
from noctuary.agents.state import HookPlaces, make_private, read_json, replace_json
from noctuary.core.errors import StoreError
from noctuary.core.files import write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.store import expand_user
from noctuary.core.types import dataclass

# Which events noctuary's hooks are for: one table, and its entries in each agent's form.


CLAUDE, CODEX = AGENTS


@dataclass(frozen=True, slots=True)
class HookedEvent:
    """One event of the agents that runs `noctuary hook`.

    Attributes:
        name: The event, the same with both agents.
        timeout_s: Whole seconds after which the agent kills the hook, > 0. The hook ends itself
            long before (noctuary.agents.hooks): this is for a process that cannot start.
        matcher: Which kinds of the event, separated by "|"; None means all, or that the agent
            knows no kinds.
        in_background: The agent need not wait, where it can do without.
    """

    name: str
    timeout_s: int
    matcher: str | None = None
    in_background: bool = False


EVENTS = (
    # Agents kill a prompt's hook after 30 s at the latest and drop what it said without a word.
    HookedEvent(PROMPT, timeout_s=10),
    HookedEvent(SESSION_START, timeout_s=10, matcher="startup|resume|clear|compact"),
    HookedEvent(PRE_COMPACT, timeout_s=5),
    HookedEvent(POST_COMPACT, timeout_s=5),
    # Reads the transcript; a first time may find megabytes.
    HookedEvent(STOP, timeout_s=30, in_background=True),
    # All of these hooks share 1.5 s with Claude and have 3 s at most with Codex: whole seconds.
    HookedEvent(SESSION_END, timeout_s=1),
)


def hook_groups(
    agent: str, program: Sequence[str], store: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return the matcher group of every event as the agent's settings hold it.

    Claude gets the exec form (`command` and `args`): no shell reads the path. Codex knows a shell
    command only; it is quoted. Codex in the background would be skipped by its older versions, so
    its hook detaches by itself.

    Args:
        agent: One of `noctuary.agents.hooks.AGENTS`.
        program: The words that start noctuary (`program.find_program`), at least one.
        store: Passed on as --store; None lets the hook find the store.

    Returns:
        By event, in the table's order: {"matcher"?: ..., "hooks": [entry]}.

    Raises:
        ValueError: The agent is unknown or the program is empty.
    """
    if agent not in AGENTS or not program:
        raise ValueError(f"agent {agent!r} and program {program!r}: want one of {AGENTS}, words")
    words = [*program, "hook", "--agent", agent, *(["--store", store] if store else [])]
    return {
        event.name: {
            **({"matcher": event.matcher} if event.matcher else {}),
            "hooks": [_claude(event, words) if agent == CLAUDE else _codex(event, words)],
        }
        for event in EVENTS
    }


def _claude(event: HookedEvent, words: list[str]) -> dict[str, Any]:
    entry = {
        "type": "command", "command": words[0], "args": words[1:], "timeout": event.timeout_s,
    }  # fmt: skip
    return {**entry, "async": True} if event.in_background else entry


def _codex(event: HookedEvent, words: list[str]) -> dict[str, Any]:
    return {"type": "command", "command": shlex.join(words), "timeout": event.timeout_s}


# Which program an entry starts, and whether an entry is one of noctuary's.


_MODULES = ("noctuary", "noctuary.cli.entry", "noctuary.cli.main")
_PYTHON = re.compile(r"python[\d.]*")


class HookCommand(NamedTuple):
    """The command of one of noctuary's entries.

    Attributes:
        program: The words that start noctuary: its executable, or Python, "-P", "-m" and a module.
        arguments: What follows "hook".
    """

    program: tuple[str, ...]
    arguments: tuple[str, ...]

    @property
    def store(self) -> str | None:
        """What --store names, or None."""
        for index, word in enumerate(self.arguments):
            if word == "--store" and index + 1 < len(self.arguments):
                return self.arguments[index + 1]
            if word.startswith("--store="):
                return word.removeprefix("--store=")
        return None

    @property
    def is_there(self) -> bool:
        """Whether the program can be started from here."""
        return shutil.which(self.program[0]) is not None


def find_program() -> tuple[str, ...]:
    """Return the words that start this noctuary from any directory.

    The executable beside the running Python comes first: it stays the same when the user enters
    another environment. Agents that a desktop starts know nothing of a shell's PATH, so the path
    is absolute.

    Raises:
        HookInstallError: The path is no UTF-8, so no JSON file can hold it.
    """
    beside = Path(sys.executable).absolute().with_name("noctuary")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("noctuary")
    # -P: an agent runs it in any project, whose numpy.py or noctuary/ must not be imported.
    module = (sys.executable, "-P", "-m", "noctuary.cli.entry")
    words = (os.path.abspath(found),) if found else module  # noqa: PTH100 (symlinks must stay)
    for word in words:
        require_utf8(word)
    return words


def require_utf8(word: str) -> None:
    """Refuse a word that JSON in UTF-8 cannot hold.

    Raises:
        HookInstallError: It holds bytes that are no UTF-8.
    """
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise HookInstallError(
            f"{word!r} is no UTF-8 and cannot stand in an agent's settings: move it to another path"
        ) from None


def read_command(entry: object) -> HookCommand | None:
    """Return the command of an entry that runs `noctuary hook`, None for any other entry.

    Both forms count, so that entries of other versions are found: `command` with `args`, and one
    line for a shell. A command that wraps noctuary's in something else is its owner's.
    """
    words = _words(entry)
    for length in (1, 3, 4):
        if words[length : length + 1] == ["hook"] and _starts_noctuary(words[:length]):
            return HookCommand(tuple(words[:length]), tuple(words[length + 1 :]))
    return None


def _words(entry: object) -> list[str]:
    if not isinstance(entry, dict):
        return []
    fields = cast("dict[str, Any]", entry)
    command, arguments = fields.get("command"), fields.get("args")
    if fields.get("type") != "command" or not isinstance(command, str):
        return []
    if isinstance(arguments, list):
        words = [command, *cast("list[Any]", arguments)]
        return [w for w in words if isinstance(w, str)] if _all_text(words) else []
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _all_text(words: Sequence[object]) -> bool:
    return all(isinstance(word, str) for word in words)


def _starts_noctuary(words: Sequence[str]) -> bool:
    name = re.split(r"[/\\]", words[0])[-1].removesuffix(".exe")
    if len(words) == 1:
        return name == "noctuary"
    options, module = [*words[1:-1]], words[-1]
    is_module = options in (["-m"], ["-P", "-m"]) and module in _MODULES
    return _PYTHON.fullmatch(name) is not None and is_module


# Noctuary's entries in the value of an agent's settings: adding, renewing, removing, listing.
#
# Both agents keep hooks in one form: {"hooks": {event: [{"matcher"?, "hooks": [entry, ...]},
# ...]}}. Only entries that run `noctuary hook` are ever touched (`program.read_command`).


Settings = dict[str, Any]

HOOKS_KEY = "hooks"


class FoundHook(NamedTuple):
    """One entry of noctuary's.

    Attributes:
        event: The event it hangs on.
        matcher: The matcher of its group, or None.
        entry: The entry as it stands.
        command: The words that it runs.
    """

    event: str
    matcher: str | None
    entry: dict[str, Any]
    command: HookCommand


def list_hooks(settings: Settings) -> tuple[FoundHook, ...]:
    """Return noctuary's entries in the order of the settings, passing over other forms."""
    return tuple(
        FoundHook(event, group.get("matcher"), entry, command)
        for event, groups in _events(settings).items()
        if isinstance(groups, list)
        for group in cast("list[Any]", groups)
        if _is_group(group)
        for entry in group["hooks"]
        if (command := read_command(entry)) is not None
    )


def add_hooks(settings: Settings, wanted: Mapping[str, dict[str, Any]]) -> Settings:
    """Return settings in which exactly the wanted entries are noctuary's.

    An entry that is there already stays in its place and is renewed, so that nothing of the
    owner's moves: Codex remembers which hooks its user trusts by their places.

    Args:
        settings: The settings; not changed.
        wanted: The group of every event (`events.hook_groups`).

    Raises:
        HookInstallError: `hooks`, or what it holds for a wanted event, has another type.
    """
    _require_types(settings, wanted)
    hooks = dict(_events(settings))
    for event in hooks:
        hooks[event] = _with_group(hooks[event], wanted.get(event))
    for event, group in wanted.items():
        if event not in hooks:
            hooks[event] = [group]
    dropped = {e for e, v in hooks.items() if v == [] and _events(settings)[e] != []}
    kept = {event: groups for event, groups in hooks.items() if event not in dropped}
    return {**settings, HOOKS_KEY: kept}


def remove_hooks(settings: Settings, made: frozenset[str] | None = None) -> Settings:
    """Return settings without noctuary's entries.

    Args:
        settings: The settings; not changed.
        made: What installing made (`created_places`): of it, what is empty now goes too. None
            where that is not known: then whatever noctuary's entries leave empty.
    """
    before = _events(settings)
    if made is None:
        made = frozenset({HOOKS_KEY, *(f"{HOOKS_KEY}.{h.event}" for h in list_hooks(settings))})
    after = {event: _with_group(groups, None) for event, groups in before.items()}
    after = {
        event: groups
        for event, groups in after.items()
        if groups != [] or f"{HOOKS_KEY}.{event}" not in made
    }
    if HOOKS_KEY not in settings or not isinstance(settings[HOOKS_KEY], dict):
        return settings
    if not after and HOOKS_KEY in made:
        return {key: value for key, value in settings.items() if key != HOOKS_KEY}
    return {**settings, HOOKS_KEY: after}


def created_places(before: Settings, after: Settings) -> frozenset[str]:
    """Return which containers one value has and the other had not: "hooks", "hooks.<event>"."""
    old, new = _events(before), _events(after)
    made = {f"{HOOKS_KEY}.{event}" for event in new if event not in old}
    return frozenset(made | ({HOOKS_KEY} if HOOKS_KEY not in before else set[str]()))


def _events(settings: Settings) -> dict[str, Any]:
    found = settings.get(HOOKS_KEY)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _is_group(group: object) -> bool:
    return isinstance(group, dict) and isinstance(cast("Settings", group).get("hooks"), list)


def _require_types(settings: Settings, wanted: Mapping[str, Any]) -> None:
    if not isinstance(settings.get(HOOKS_KEY, {}), dict):
        raise HookInstallError(
            f'"{HOOKS_KEY}" holds {_kind(settings[HOOKS_KEY])} where an object was expected: '
            "correct the file first; nothing was changed"
        )
    for event, groups in _events(settings).items():
        if event in wanted and not isinstance(groups, list):
            raise HookInstallError(
                f'"{HOOKS_KEY}.{event}" holds {_kind(groups)} where an array was expected: '
                "correct the file first; nothing was changed"
            )


def _with_group(groups: Any, wanted: dict[str, Any] | None) -> Any:
    """Return an event's groups with `wanted` as the only one of noctuary's, or with none."""
    if not isinstance(groups, list):
        return groups
    merged: list[Any] = []
    place: int | None = None
    for group in cast("list[Any]", groups):
        rest, had = _without_entries(group)
        if had and place is None:
            place = len(merged)
        if not had or rest is not None:
            merged.append(group if not had else rest)
    if wanted is not None:
        merged.insert(len(merged) if place is None else place, wanted)
    return merged


def _without_entries(group: Any) -> tuple[dict[str, Any] | None, bool]:
    """Return a group without noctuary's entries, None if that empties it, and if it had any."""
    if not _is_group(group):
        return None, False
    entries = list(_foreign(group))
    had = len(entries) < len(group["hooks"])
    return ({**group, "hooks": entries} if entries else None), had


def _foreign(group: Settings) -> Iterator[Any]:
    return (entry for entry in group["hooks"] if read_command(entry) is None)


def _kind(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    kinds = {dict: "an object", list: "an array", str: "text"}
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), "a number")


# Where each agent reads hooks from.
#
# No file contents.


USER = "user"
PROJECT = "project"
SCOPES = (USER, PROJECT)
"""Whose sessions a file is for: all of the user's, or those in one folder."""


class SettingsPlace(NamedTuple):
    """One settings file of an agent.

    Attributes:
        agent: One of `noctuary.agents.hooks.AGENTS`.
        scope: One of `SCOPES`.
        path: The file, absolute; need not exist.
    """

    agent: str
    scope: str
    path: Path


def find_place(
    agent: str, scope: str, folder: Path, environ: Mapping[str, str] | None = None
) -> SettingsPlace:
    """Return the file that hooks of an agent and a scope stand in.

    Args:
        agent: One of `noctuary.agents.hooks.AGENTS`.
        scope: One of `SCOPES`.
        folder: The project's folder, for "project".
        environ: Environment variables; CLAUDE_CONFIG_DIR and CODEX_HOME move the user's files.

    Raises:
        HookInstallError: The user's home directory is unknown.
        ValueError: The agent or the scope is unknown.
    """
    if agent not in AGENTS or scope not in SCOPES:
        raise ValueError(f"agent {agent!r}, scope {scope!r}: want one of {AGENTS}, of {SCOPES}")
    name = "settings.json" if agent == CLAUDE else "hooks.json"
    if scope == PROJECT:
        return SettingsPlace(agent, scope, folder.absolute() / f".{agent}" / name)
    env = os.environ if environ is None else environ
    moved = env.get("CLAUDE_CONFIG_DIR" if agent == CLAUDE else "CODEX_HOME", "").strip()
    try:
        directory = expand_user(moved or f"~/.{agent}")
    except StoreError as error:
        raise HookInstallError(str(error)) from error
    return SettingsPlace(agent, scope, directory.absolute() / name)


# What installing made, by file: so that uninstalling leaves no more and no less behind.
#
# The file also tells `noctuary doctor` in which projects hooks were installed. Without it
# uninstalling still removes every entry of noctuary's, and takes what that empties for its own.


VERSION = 1
RECEIPTS_FILE = "installs.json"
FILE = "file"
FOLDER = "folder"
"""Among what was made: the settings file itself, and the folder that it lies in."""

_MAX_BYTES = 1_000_000


class Receipt(NamedTuple):
    """One file that hooks were installed into.

    Attributes:
        place: Whose file it is.
        made: What was not there before: `FOLDER`, `FILE`, "hooks", "hooks.<event>".
    """

    place: SettingsPlace
    made: frozenset[str]


def receipts_path(home: Path) -> Path:
    """Return the file of the receipts below noctuary's home."""
    return HookPlaces(home).directory / RECEIPTS_FILE


def read_receipts(home: Path) -> dict[Path, Receipt]:
    """Return what was installed where, by the settings file; what is damaged is left out."""
    found, _ = read_json(receipts_path(home), _MAX_BYTES)
    raw: Any = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    rows: Any = raw.get("installs") if raw.get("version") == VERSION else None
    receipts: dict[Path, Receipt] = {}
    for row in cast("list[Any]", rows) if isinstance(rows, list) else []:
        receipt = _receipt(row)
        if receipt is not None:
            receipts[receipt.place.path] = receipt
    return receipts


def write_receipts(home: Path, receipts: Mapping[Path, Receipt]) -> bool:
    """Replace the receipts and tell whether that worked; equal receipts give equal bytes."""
    path = receipts_path(home)
    rows = [
        {
            "path": str(r.place.path), "agent": r.place.agent, "scope": r.place.scope,
            "made": sorted(r.made),
        }
        for _, r in sorted(receipts.items(), key=lambda item: str(item[0]))
    ]  # fmt: skip
    return make_private(path.parent) and replace_json(path, {"version": VERSION, "installs": rows})


def _receipt(row: Any) -> Receipt | None:
    if not isinstance(row, dict):
        return None
    fields = cast("dict[str, Any]", row)
    texts = [fields.get(name) for name in ("agent", "scope", "path")]
    made: Any = fields.get("made")
    if not all(isinstance(text, str) for text in texts) or not isinstance(made, list):
        return None
    agent, scope, path = (str(text) for text in texts)
    names = frozenset(str(name) for name in cast("list[Any]", made))
    return Receipt(SettingsPlace(agent, scope, Path(path)), names)


# `install_hooks` and `uninstall_hooks`: one settings file brought to what is wanted.


@dataclass(frozen=True, slots=True)
class HookChange:
    """What was done to one settings file, or would be.

    Attributes:
        agent: Whose settings.
        scope: "user" or "project".
        path: The settings file.
        action: "installed", "renewed", "unchanged", "removed" or "absent" (nothing to remove).
        dry_run: Nothing was written.
        backup: Where the old bytes are kept, or None.
        diff: The change as a unified diff, "" for none.
        notes: Sentences that the user should read.
    """

    agent: str
    scope: str
    path: str
    action: str
    dry_run: bool
    backup: str | None
    diff: str
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def install_hooks(
    place: SettingsPlace,
    program: Sequence[str],
    *,
    home: Path,
    store: str | None = None,
    dry_run: bool = False,
) -> HookChange:
    """Put noctuary's hooks into a settings file; a second time changes nothing.

    Args:
        place: The file (`settings_places.find_place`).
        program: The words that start noctuary (`program.find_program`).
        home: Noctuary's home; the receipt goes below it.
        store: Passed to the hooks as --store.
        dry_run: Return the change and write nothing.

    Raises:
        HookInstallError: The file is not understood; nothing was changed.
        OSError: It cannot be written.
    """
    before = read_settings(place.path)
    made = _files_to_make(before)
    had = list_hooks(before.value)
    wanted = add_hooks(before.value, hook_groups(place.agent, program, store))
    written = write_settings(before, wanted, dry_run=dry_run)
    notes = _notes(place, written, before)
    if not dry_run and written.changed:
        made |= created_places(before.value, wanted)
        receipts = read_receipts(home)
        known = receipts.get(place.path)
        receipts[place.path] = Receipt(place, made | (known.made if known and had else frozenset()))
        if not write_receipts(home, receipts):
            notes.append(f"no receipt could be written below {home}: uninstalling works without")
    action = ("renewed" if had else "installed") if written.changed else "unchanged"
    return _change(place, action, before, written, notes, dry_run=dry_run)


def uninstall_hooks(place: SettingsPlace, *, home: Path, dry_run: bool = False) -> HookChange:
    """Take noctuary's hooks out of a settings file; everything else stays as it is.

    Args:
        place: The file.
        home: Noctuary's home, where the receipt of the installation is.
        dry_run: Return the change and write nothing.

    Raises:
        HookInstallError: The file is not understood; nothing was changed.
        OSError: It cannot be written.
    """
    before = read_settings(place.path)
    receipts = read_receipts(home)
    receipt = receipts.pop(place.path, None)
    written = Written(False, before.text, None)
    if list_hooks(before.value):
        value = remove_hooks(before.value, receipt.made if receipt else None)
        if not value and receipt is not None and FILE in receipt.made:
            written = remove_settings(before, with_folder=FOLDER in receipt.made, dry_run=dry_run)
        else:
            written = write_settings(before, value, dry_run=dry_run)
    if receipt is not None and not dry_run:
        write_receipts(home, receipts)
    action = "removed" if written.changed else "absent"
    return _change(place, action, before, written, [], dry_run=dry_run)


def environment_notes(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return what the environment makes worth saying about hooks that other programs start."""
    env = os.environ if environ is None else environ
    home = env.get("NOCTUARY_HOME", "").strip()
    if not home:
        return ()
    told = f"NOCTUARY_HOME is {home} here: start the agent with it too"
    return (f"{told}, or its hooks look for settings and stores in the default home",)


def _files_to_make(before: SettingsText) -> frozenset[str]:
    if before.raw is not None:
        return frozenset()
    return frozenset({FILE} if before.path.parent.is_dir() else {FILE, FOLDER})


def _notes(place: SettingsPlace, written: Written, before: SettingsText) -> list[str]:
    notes: list[str] = []
    if written.changed and place.agent == CODEX:
        notes.append(
            "Codex runs a hook only after you have trusted it: open /hooks in a new session"
        )
    if before.value.get("disableAllHooks") is True:
        notes.append(f'"disableAllHooks" is true in {place.path}: no hook runs')
    if written.changed and place.scope == PROJECT:
        notes.append(f"{place.path} names programs of this machine: do not commit it for others")
    twice = _other_place(place)
    if twice is not None:
        notes.append(f"hooks are also installed in {twice}: both run in this project; remove one")
    return notes


def _other_place(place: SettingsPlace) -> Path | None:
    """Return the file of the other scope if noctuary's hooks are in that one as well."""
    folder = place.path.parent.parent if place.scope == PROJECT else Path.cwd()
    other = next(scope for scope in SCOPES if scope != place.scope)
    try:
        found = find_place(place.agent, other, folder)
        is_other = found.path.resolve() != place.path.resolve()
        return found.path if is_other and list_hooks(read_settings(found.path).value) else None
    except (HookInstallError, OSError):
        return None


def _change(
    place: SettingsPlace,
    action: str,
    before: SettingsText,
    written: Written,
    notes: Sequence[str],
    *,
    dry_run: bool,
) -> HookChange:
    old = before.text.splitlines() if before.raw is not None else []
    new = written.text.splitlines() if written.changed else old
    name = str(place.path)
    diff = "\n".join(difflib.unified_diff(old, new, name, name, lineterm=""))
    backup = str(written.backup) if written.backup else None
    return HookChange(
        place.agent, place.scope, name, action, dry_run, backup, diff, tuple(notes)
    )  # fmt: skip


# Where noctuary's hooks are installed and whether what stands there can run.
#
# Reads only, raises nothing for a file's content.


PLUGIN_NAME = "noctuary"
"""Name of the plugin that `noctuary hooks plugin` writes."""

ABSENT = "absent"
INSTALLED = "installed"
OUTDATED = "outdated"
BROKEN = "broken"
DISABLED = "disabled"
UNREADABLE = "unreadable"
RUNNING = frozenset({INSTALLED, OUTDATED})
"""States in which the agent runs the hooks."""


@dataclass(frozen=True, slots=True)
class PlaceState:
    """How it is with the hooks of one settings file.

    Attributes:
        agent: Whose settings.
        scope: "user" or "project".
        path: The settings file.
        state: "absent", "installed", "outdated" (other entries than this version writes),
            "broken" (the program is gone), "disabled" or "unreadable".
        events: Events that have an entry of noctuary's.
        store: What the entries pass as --store, or None.
        message: A sentence for every state but "absent" and "installed", else "".
    """

    agent: str
    scope: str
    path: str
    state: str
    events: tuple[str, ...] = ()
    store: str | None = None
    message: str = ""


def look_at_places(
    home: Path, folder: Path, environ: Mapping[str, str] | None = None
) -> tuple[PlaceState, ...]:
    """Return the state of every settings file that may hold noctuary's hooks.

    Those are the user's files, the ones of `folder`, and every other file that a receipt names.

    Args:
        home: Noctuary's home.
        folder: The project's folder, usually the current one.
        environ: Environment variables.
    """
    places = [
        place
        for agent in AGENTS
        for scope in SCOPES
        if (place := _place(agent, scope, folder, environ)) is not None
    ]
    known = {place.path for place in places}
    places += [r.place for path, r in sorted(read_receipts(home).items()) if path not in known]
    return tuple(look_at_place(place) for place in places)


def look_at_place(place: SettingsPlace) -> PlaceState:
    """Return the state of one settings file."""
    agent, scope, path = place.agent, place.scope, str(place.path)
    try:
        value = read_settings(place.path).value
    except (HookInstallError, OSError) as error:
        return PlaceState(agent, scope, path, UNREADABLE, message=str(error))
    found = list_hooks(value)
    if not found:
        return PlaceState(agent, scope, path, ABSENT)
    state, message = _judge(place, value, found)
    events = tuple(dict.fromkeys(hook.event for hook in found))
    return PlaceState(agent, scope, path, state, events, found[0].command.store, message)


def enabled_plugin(
    agent: str, folder: Path, environ: Mapping[str, str] | None = None
) -> Path | None:
    """Return the file that switches noctuary's plugin on for an agent, None if none does."""
    for scope in SCOPES:
        place = _place(agent, scope, folder, environ)
        if place is None:
            continue
        path = place.path if agent == CLAUDE else place.path.with_name("config.toml")
        plugins = _claude_plugins(path) if agent == CLAUDE else _codex_plugins(path)
        if any(name.split("@")[0] == PLUGIN_NAME and on for name, on in plugins.items()):
            return path
    return None


def is_used(agent: str, environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether the agent keeps settings on this machine, that is, whether somebody uses it."""
    place = _place(agent, USER, Path.cwd(), environ)
    return place is not None and place.path.parent.is_dir()


def _place(
    agent: str, scope: str, folder: Path, environ: Mapping[str, str] | None
) -> SettingsPlace | None:
    try:
        return find_place(agent, scope, folder, environ)
    except HookInstallError:  # no home directory
        return None


def _judge(
    place: SettingsPlace, value: dict[str, Any], found: tuple[FoundHook, ...]
) -> tuple[str, str]:
    command = found[0].command
    gone = next((h.command.program[0] for h in found if not h.command.is_there), None)
    again = f"run `noctuary hooks install --agent {place.agent} --{place.scope}` again"
    if value.get("disableAllHooks") is True:
        return DISABLED, f'"disableAllHooks" is true in {place.path}'
    if gone is not None:
        return BROKEN, f"{gone} cannot be started: {again}"
    wanted = add_hooks(value, hook_groups(place.agent, command.program, command.store))
    if not is_same_json(wanted, value):
        return OUTDATED, f"the entries differ from what this version writes: {again}"
    return INSTALLED, ""


def _claude_plugins(path: Path) -> dict[str, bool]:
    try:
        found: Any = read_settings(path).value.get("enabledPlugins")
    except (HookInstallError, OSError):
        return {}
    switches = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    # A list of versions switches a plugin on as well.
    return {name: on is True or isinstance(on, list) for name, on in switches.items()}


def _codex_plugins(path: Path) -> dict[str, bool]:
    try:
        with path.open("rb") as file:
            found: Any = tomllib.load(file).get("plugins")
    except (OSError, ValueError, RecursionError):
        return {}
    tables = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    return {
        name: cast("dict[str, Any]", table).get("enabled", True) is True
        for name, table in tables.items()
        if isinstance(table, dict)
    }


# The plugin folder: noctuary's hooks and its MCP server as one plugin of both agents.
#
# The folder is a marketplace of one plugin below it: Codex takes no plugin from a marketplace's
# own root. Codex reads `hooks/hooks.json` unless its manifest names another file, so its hooks
# have a file of their own.


MARKETPLACE_NAME = "noctuary-local"
CLAUDE_MANIFEST = f"{PLUGIN_NAME}/.claude-plugin/plugin.json"
CODEX_MANIFEST = f"{PLUGIN_NAME}/.codex-plugin/plugin.json"

_AUTHOR = {"name": "noctuary"}
_DESCRIPTION = "Recalls memories of earlier sessions into prompts, from a nightly built snapshot."
_LICENSE = "Apache-2.0"
_KEYWORDS = ["memory", "recall", "context"]


def plugin_files(program: Sequence[str], store: str | None = None) -> dict[str, str]:
    """Return the files of the plugin folder: text by path below the folder, sorted.

    Args:
        program: The words that start noctuary: an absolute path for one machine, `["noctuary"]` for
            every machine that has it on its PATH.
        store: Passed to hooks and server as --store.
    """
    base = {"name": PLUGIN_NAME, "version": __version__, "description": _DESCRIPTION}
    manifest = {**base, "author": _AUTHOR, "license": _LICENSE, "keywords": _KEYWORDS}
    server = [*program, "mcp", *(["--store", store] if store else [])]
    listed = {**base, "source": f"./{PLUGIN_NAME}"}
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
            "description": _DESCRIPTION, "hooks": _hook_lists(CLAUDE, program, store),
        },
        f"{PLUGIN_NAME}/hooks/codex.json": {"hooks": _hook_lists(CODEX, program, store)},
        f"{PLUGIN_NAME}/.mcp.json": {
            "mcpServers": {PLUGIN_NAME: {"command": server[0], "args": server[1:]}}
        },
    }  # fmt: skip
    return {
        path: json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        for path, value in sorted(values.items())
    }


def write_plugin(folder: Path, files: dict[str, str]) -> tuple[Path, ...]:
    """Write the files below a folder; equal files are left alone.

    Args:
        folder: A new or empty folder, or one that this wrote before.
        files: `plugin_files`.

    Returns:
        The paths that were written.

    Raises:
        HookInstallError: The folder holds something else.
        OSError: It cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise HookInstallError(f"{folder} is no folder: name a new or an empty one")
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder):
        raise HookInstallError(
            f"{folder} holds other things than noctuary's plugin: name a new or an empty folder"
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
    return isinstance(found, dict) and cast("dict[str, Any]", found).get("name") == PLUGIN_NAME


def _hook_lists(agent: str, program: Sequence[str], store: str | None) -> dict[str, Any]:
    return {event: [group] for event, group in hook_groups(agent, program, store).items()}
