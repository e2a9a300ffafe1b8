"""Noctuary's entries in the value of an agent's settings: adding, renewing, removing, listing.

What belongs here: values in, values out. What does not: the file around them (`settings_file`).
Both agents keep hooks in one form: {"hooks": {event: [{"matcher"?, "hooks": [entry, ...]}, ...]}}.
Only entries that run `noctuary hook` are ever touched (`program.read_command`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from noctuary.agents.install.errors import HookInstallError
from noctuary.agents.install.program import HookCommand, read_command

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
