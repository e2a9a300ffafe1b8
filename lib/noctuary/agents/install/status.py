"""Where noctuary's hooks are installed and whether what stands there can run.

What belongs here: looking. What does not: how the hooks fared (`noctuary.agents.counters`), what is
said about it (`noctuary.diagnosis.hooks`, `noctuary hooks status`). Reads only, raises nothing for
a file's content.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from noctuary.agents.events import AGENTS
from noctuary.agents.install.errors import HookInstallError
from noctuary.agents.install.events import CLAUDE, hook_groups
from noctuary.agents.install.json_patch import is_same_json
from noctuary.agents.install.merging import FoundHook, add_hooks, list_hooks
from noctuary.agents.install.receipts import read_receipts
from noctuary.agents.install.settings_file import read_settings
from noctuary.agents.install.settings_places import SCOPES, USER, SettingsPlace, find_place
from noctuary.values import dataclass

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
