"""Putting `noctuary mcp` into the settings of agents, and taking it out again."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.agents.install import (
    PROJECT,
    SCOPES,
    SERVER_RECEIPTS,
    USER,
    HookChange,
    HookInstallError,
    Settings,
    SettingsFile,
    SettingsPlace,
    enabled_plugin,
    is_same_json,
    parse_settings,
    put_in,
    read_receipts,
    read_settings,
    require_utf8,
    split_command,
    take_out,
)
from noctuary.core.errors import StoreError
from noctuary.core.store import expand_user

NAME = "noctuary"  # of the server in every agent's settings

# The agents: where each keeps its MCP servers, and in which form.


def _stdio(words: Sequence[str]) -> Settings:
    return {"command": words[0], "args": list(words[1:])}


def _typed(words: Sequence[str]) -> Settings:
    return {"type": "stdio", **_stdio(words)}


def _opencode(words: Sequence[str]) -> Settings:
    return {"type": "local", "command": list(words), "enabled": True}


class Client(NamedTuple):
    """One agent that starts MCP servers."""

    # The user's file: below the variable's folder, otherwise below `folder`.
    variable: str
    folder: str
    files: tuple[str, ...]  # the first that exists, else the first
    project: str  # the file in a project, "" for none
    key: str  # of the object with the servers
    entry: Callable[[Sequence[str]], Settings]
    variables: str = "env"  # key of the server's environment variables


_APPROVE = "Claude Code asks before it starts a project's server: approve it in the next session"

CLIENTS: Mapping[str, Client] = {
    # https://code.claude.com/docs/en/mcp
    "claude": Client(
        "CLAUDE_CONFIG_DIR", "~", (".claude.json",), ".mcp.json", "mcpServers", _typed
    ),
    # https://developers.openai.com/codex/mcp
    "codex": Client(
        "CODEX_HOME", "~/.codex", ("config.toml",), ".codex/config.toml", "mcp_servers", _stdio
    ),
    # https://cursor.com/docs/mcp
    "cursor": Client("", "~/.cursor", ("mcp.json",), ".cursor/mcp.json", "mcpServers", _stdio),
    # https://geminicli.com/docs/tools/mcp-server
    "gemini": Client(
        "", "~/.gemini", ("settings.json",), ".gemini/settings.json", "mcpServers", _stdio
    ),
    # https://opencode.ai/docs/mcp-servers and https://opencode.ai/docs/config
    "opencode": Client(
        "XDG_CONFIG_HOME", "~/.config", ("opencode/opencode.json", "opencode/opencode.jsonc"),
        "opencode.json", "mcp", _opencode, "environment",
    ),
    # https://docs.windsurf.com/windsurf/cascade/mcp
    "windsurf": Client("", "~/.codeium/windsurf", ("mcp_config.json",), "", "mcpServers", _stdio),
    # https://code.visualstudio.com/docs/agents/reference/mcp-configuration
    "vscode": Client(
        *{
            "darwin": ("", "~/Library/Application Support"), "win32": ("APPDATA", "~"),
        }.get(sys.platform, ("XDG_CONFIG_HOME", "~/.config")),
        ("Code/User/mcp.json",), ".vscode/mcp.json", "servers", _typed,
    ),
}  # fmt: skip


def find_place(agent: str, scope: str, folder: Path) -> SettingsPlace:
    """Return an agent's settings file for MCP servers, of the user or of a project's folder."""
    if agent not in CLIENTS or scope not in SCOPES:
        raise ValueError(f"agent {agent!r}, scope {scope!r}: want one of {[*CLIENTS]}, {SCOPES}")
    client = CLIENTS[agent]
    if scope == PROJECT:
        if not client.project:
            raise HookInstallError(f"{agent} has no MCP servers of a project: leave --project out")
        return SettingsPlace(agent, scope, folder.absolute() / client.project)
    try:
        base = expand_user(os.environ.get(client.variable, "").strip() or client.folder).absolute()
    except StoreError as error:
        raise HookInstallError(str(error)) from error
    paths = [base / name for name in client.files]
    return SettingsPlace(agent, scope, next((p for p in paths if p.exists()), paths[0]))


def find_used() -> list[str]:
    """Return the agents that keep settings on this machine, that is, that somebody uses."""
    paths = {agent: find_place(agent, USER, Path()).path for agent in CLIENTS}
    homes = (Path.home(), *Path.home().parents)
    return [
        a for a, p in paths.items() if p.exists() or (p.parent.is_dir() and p.parent not in homes)
    ]


# `install_server` and `uninstall_server`: changing one agent's file.


def install_server(
    place: SettingsPlace,
    words: Sequence[str],
    *,
    home: Path,
    environ: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> HookChange:
    """Put the server that some words start into an agent's file; a second time changes nothing."""
    form, before = CLIENTS[place.agent], _read(place)
    servers = _servers(before, form.key)
    had, wanted = servers.get(NAME), _entry(place.agent, words, environ)
    if had is not None and not _is_ours(had):
        raise HookInstallError(
            f'{place.path} has an MCP server "{NAME}" that noctuary did not write: rename or '
            "remove it first; nothing was changed"
        )
    if isinstance(had, dict):  # keep the owner's additions
        known, own = cast("Settings", had), form.variables
        if own in wanted and isinstance(known.get(own), dict):
            wanted[own] = {**known[own], **wanted[own]}
        wanted = {**known, **wanted}
    after = {**before.value, form.key: {**servers, NAME: wanted}}
    is_new = not is_same_json(before.value, after)
    data, notes = _edited(place, before, after, wanted) if is_new else None, list[str]()
    if is_new and place.scope == PROJECT:
        notes.append(f"{place.path} names programs of this machine: do not commit it for others")
        notes += [_APPROVE] if place.agent == "claude" else []
    if place.agent in ("claude", "codex") and (plugin := enabled_plugin(place.agent, Path.cwd())):
        notes.append(f"{plugin} switches noctuary's plugin on, which brings this server too")
    return put_in(
        place, before, data, had=had is not None, home=home, kind=SERVER_RECEIPTS,
        dry_run=dry_run, notes=notes,
    )  # fmt: skip


def is_installed(place: SettingsPlace) -> bool:
    """Tell whether an agent's file has a server of this name."""
    return NAME in _servers(_read(place), CLIENTS[place.agent].key)


def uninstall_server(place: SettingsPlace, *, home: Path, dry_run: bool = False) -> HookChange:
    """Remove the server; restore the old bytes if the file is unchanged since the installation."""
    before, key = _read(place), CLIENTS[place.agent].key
    servers = _servers(before, key)
    rest: bytes | None = None
    if NAME in servers and _is_ours(servers[NAME]):
        others = {name: entry for name, entry in servers.items() if name != NAME}
        after = {**before.value, key: others}
        if not others:
            del after[key]
        rest = _edited(place, before, after, None)
    is_empty = rest is not None and rest.split() in ([], [b"{}"])
    return take_out(
        place, before, rest, is_empty=is_empty, home=home, kind=SERVER_RECEIPTS, dry_run=dry_run
    )


def installed_places(home: Path) -> list[SettingsPlace]:
    """Return the files that servers were installed into, as the receipts say."""
    noted = read_receipts(home, SERVER_RECEIPTS).values()
    return [SettingsPlace(r.agent, r.scope, Path(r.path)) for r in noted if r.agent in CLIENTS]


def snippet(agent: str, words: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """Return the text to paste into a file that noctuary cannot edit."""
    entry = _entry(agent, words, environ)
    if agent == "codex":
        return _toml_table(entry)
    return json.dumps({CLIENTS[agent].key: {NAME: entry}}, indent=2, ensure_ascii=False)


def find_environment(home: Path) -> dict[str, str]:
    """Return the variables that make a server find the same home and settings."""
    # Agents pass on few of their own: HOME, PATH and the like.
    names = ("NOCTUARY_HOME", "NOCTUARY_CONFIG")
    found = {n: value for n in names if (value := os.environ.get(n, "").strip())}
    absolute = {n: str(expand_user(value).absolute()) for n, value in found.items()}
    return absolute | ({"NOCTUARY_HOME": str(home)} if "NOCTUARY_HOME" in found else {})


def _entry(agent: str, words: Sequence[str], environ: Mapping[str, str] | None) -> Settings:
    for word in (*words, *(environ or {}).values()):
        require_utf8(word)
    form = CLIENTS[agent]
    return form.entry(words) | ({form.variables: dict(environ)} if environ else {})


def _read(place: SettingsPlace) -> SettingsFile:
    return read_settings(place.path, _parse_toml if place.agent == "codex" else parse_settings)


def _servers(before: SettingsFile, key: str) -> Settings:
    found = before.value.get(key, {})
    if not isinstance(found, dict):
        raise HookInstallError(
            f'"{key}" of {before.path} holds no object: correct the file first; nothing was changed'
        )
    return cast("Settings", found)


def _is_ours(entry: Any) -> bool:
    """Tell whether a server's entry runs `noctuary mcp`, in any agent's form."""
    fields = cast("Settings", entry) if isinstance(entry, dict) else {}
    words: list[Any] = []
    for part in (fields.get("command"), fields.get("args", [])):
        words += cast("list[Any]", part) if isinstance(part, list) else [part]
    return all(isinstance(w, str) for w in words) and split_command(words, "mcp") is not None


def _edited(
    place: SettingsPlace, before: SettingsFile, after: Settings, entry: Settings | None
) -> bytes:
    """Return a file's bytes with another entry of noctuary's, None for none, all others kept."""
    if place.agent != "codex":
        return before.render(after)
    reads: Settings | None = None
    edited = ""
    with suppress(HookInstallError, KeyError, TypeError, ValueError):
        edited = _edit_toml((before.raw or b"").decode("utf-8"), entry)
        reads = _parse_toml(place.path, edited)
    # The edited text must parse to the wanted value, or it is not written.
    if not is_same_json(reads, after):
        raise HookInstallError(
            f"{place.path} is written in a way that noctuary cannot edit: change its server "
            f'"{NAME}" yourself; nothing was changed'
        )
    return edited.encode("utf-8")


# TOML, of Codex: a new table goes to the end, where it cannot change earlier keys.

_OWN_HEADER = re.compile(rf'(?m)^[ \t]*\[mcp_servers\.[\'"]?{NAME}\b[^\r\n]*?\][ \t]*(?:\r?\n)?')


def _parse_toml(path: Path, text: str) -> Settings:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise HookInstallError(
            f"{path} is not valid TOML: {error}. Correct it first; nothing was changed"
        ) from None


def _edit_toml(text: str, entry: Settings | None) -> str:
    """Return the text with noctuary's table replaced, or removed for None; comments stay."""
    import tomlkit  # of the installer alone

    document: Any = tomlkit.parse(text)
    own = document.get("mcp_servers", {}).get(NAME)
    if own is None:
        gap = "\n" * (bool(text) + (text[-1:] not in ("", "\n")))
        edited = text + gap + _toml_table(entry or {})
    elif entry is None:
        _drop_keys(own)
        # Only comments are left of it: they stay where the table was.
        edited = _OWN_HEADER.sub("", document.as_string())
        edited = re.sub(r"(\n)\s+\Z", r"\1", edited)
    else:
        for key, value in entry.items():
            if own.get(key) != value:
                own[key] = _toml_value(value)
        edited = document.as_string()
    return re.sub(r"\r?\n", "\r\n", edited) if "\r\n" in text else edited


def _drop_keys(table: Any) -> None:
    """Delete the keys of a table and of the tables in it; their comments become lines."""
    import tomlkit
    from tomlkit.items import Table

    for key in list(table):
        item = table[key]
        if isinstance(item, Table):
            _drop_keys(item)
            continue
        comment = item.trivia.comment
        del table[key]
        if comment:
            table.add(tomlkit.comment(comment.removeprefix("#").removeprefix(" ")))


def _toml_table(entry: Settings) -> str:
    lines = [f"{key} = {_toml_value(value).as_string()}" for key, value in entry.items()]
    return "\n".join([f"[mcp_servers.{NAME}]", *lines, ""])


def _toml_value(value: Any) -> Any:
    """Return a value as TOML holds it, an object on one line."""
    import tomlkit

    if not isinstance(value, dict):
        return tomlkit.item(value)
    table = tomlkit.inline_table()
    table.update(cast("Settings", value))
    return table
