"""Putting `noctuary mcp` into the settings of agents, and taking it out; other bytes stay."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    indent_of,
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

    # The user's file: below what the variable names, else below the folder.
    variable: str
    folder: str
    files: tuple[str, ...]  # the first that exists, else the first
    project: str  # the file in a project, "" for none
    key: str  # of the object with the servers
    entry: Callable[[Sequence[str]], Settings]
    variables: str = "env"  # what the entry calls the environment variables of the server


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
    """Return the file that an agent's MCP servers of a scope stand in, for a project's folder."""
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


# `install_server` and `uninstall_server`: one agent's file brought to what is wanted.


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
    if isinstance(had, dict):  # with what its owner added
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
    """Take the server out; where nobody changed the file in between, every byte is as before."""
    before, key = _read(place), CLIENTS[place.agent].key
    servers = _servers(before, key)
    rest: bytes | None = None
    if NAME in servers and _is_ours(servers[NAME]):
        others = {name: entry for name, entry in servers.items() if name != NAME}
        after = {**before.value, key: others}
        if not others:
            del after[key]
        rest = _edited(place, before, after, None)
    is_empty = rest is not None and rest.split() in ([], [b"{}"], [b"{", b"}"])
    return take_out(
        place, before, rest, is_empty=is_empty, home=home, kind=SERVER_RECEIPTS, dry_run=dry_run
    )


def installed_places(home: Path) -> list[SettingsPlace]:
    """Return the files that servers were installed into, as the receipts say."""
    noted = read_receipts(home, SERVER_RECEIPTS).values()
    return [SettingsPlace(r.agent, r.scope, Path(r.path)) for r in noted if r.agent in CLIENTS]


def snippet(agent: str, words: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """Return what a person pastes into an agent's file that noctuary cannot edit."""
    entry = _entry(agent, words, environ)
    if agent == "codex":
        return _toml_table(entry)
    return json.dumps({CLIENTS[agent].key: {NAME: entry}}, indent=2, ensure_ascii=False)


def find_environment(home: Path) -> dict[str, str]:
    """Return the variables that a server needs to find what this process does."""
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
    return read_settings(place.path, _parse_toml if place.agent == "codex" else _parse_json)


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
    whole = (before.raw or b"").decode("utf-8")
    text = whole.removeprefix(_BOM)
    if place.agent == "codex":
        edited, parse = _edit_toml(text, entry), _parse_toml
    else:
        edited, parse = _edit_json(text, CLIENTS[place.agent].key, entry), _parse_json
    # Whatever the text looks like: it must read as what is wanted, or it is not written.
    reads: Settings | None = None
    with suppress(HookInstallError):
        reads = parse(place.path, edited)
    if not is_same_json(reads, after):
        raise HookInstallError(
            f"{place.path} is written in a way that noctuary cannot edit: change its server "
            f'"{NAME}" yourself; nothing was changed'
        )
    return (_BOM * (whole != text) + edited).encode("utf-8")


_BOM = "\ufeff"

# JSON as editors allow it: with comments and a comma after the last item. Both become spaces, so
# that places in the rest are those of the text itself.

_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\r\n]*|/\*.*?\*/', re.DOTALL)
_LAST_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_DECODER = json.JSONDecoder()


def _plain(text: str) -> str:
    def spaces(found: re.Match[str]) -> str:
        return found[0] if found[0][0] == '"' else re.sub(r"[^\r\n]", " ", found[0])

    return _LAST_COMMA.sub(spaces, _TOKENS.sub(spaces, text))


def _parse_json(path: Path, text: str) -> Settings:
    plain = _plain(text)
    return parse_settings(path, plain) if plain.strip() else {}


class _Member(NamedTuple):
    """A member of an object in a text: where its key begins, and its value begins and ends."""

    key: str
    at: int
    value: int
    end: int


def _members(plain: str, at: int) -> Iterator[_Member]:
    """Yield the members of the object that begins at a place of valid JSON."""
    at = _skip(plain, at + 1)
    while plain[at] != "}":
        key, end = _DECODER.raw_decode(plain, at)
        value = _skip(plain, _skip(plain, end) + 1)
        _, end = _DECODER.raw_decode(plain, value)
        yield _Member(key, at, value, end)
        at = _skip(plain, end)
        at = _skip(plain, at + 1) if plain[at] == "," else at


def _skip(plain: str, at: int) -> int:
    while plain[at] in " \t\r\n":
        at += 1
    return at


def _edit_json(text: str, key: str, entry: Settings | None) -> str:
    plain = _plain(text)
    if not plain.strip():
        return text + json.dumps({key: {NAME: entry}}, indent=2, ensure_ascii=False) + "\n"
    root = _skip(plain, 0)
    servers = next((m for m in _members(plain, root) if m.key == key), None)
    if servers is None:
        return _insert(text, plain, root, key, {NAME: entry})
    inside = list(_members(plain, servers.value))
    own = next((m for m in inside if m.key == NAME), None)
    if entry is None:  # a key that would be left empty goes too
        where, name = (root, key) if len(inside) == 1 else (servers.value, NAME)
        return _cut(text, plain, where, name)
    if own is None:
        return _insert(text, plain, servers.value, NAME, entry)
    indent = _indent_at(text, own.at)
    return text[: own.value] + _rendered(text, entry, indent) + text[own.end :]


def _insert(text: str, plain: str, where: int, name: str, value: Any) -> str:
    """Return a text with one more member at the end of the object that begins there."""
    key, members = json.dumps(name), list(_members(plain, where))
    if members:
        before, at = members[-1].at, members[-1].end
        lead = text[len(text[:before].rstrip(_SPACE)) : before] or " "
        indent = lead.rpartition(_LF)[2] if _LF in lead else ""
        return f"{text[:at]},{lead}{key}: {_rendered(text, value, indent)}{text[at:]}"
    outer, at = _indent_at(text, where), where + 1
    newline, indent = _newline(text), outer + indent_of(text)
    end = "" if _LF in plain[at : _skip(plain, at)] else newline + outer
    return f"{text[:at]}{newline}{indent}{key}: {_rendered(text, value, indent)}{end}{text[at:]}"


def _cut(text: str, plain: str, where: int, name: str) -> str:
    """Return a text without a member; comments beside it stay."""
    members = list(_members(plain, where))
    place = next(i for i, m in enumerate(members) if m.key == name)
    own = members[place]
    begin = len(text[: own.at].rstrip(_SPACE))
    if place > 0:
        comma = plain.index(",", members[place - 1].end)
        return text[:comma] + text[comma + 1 : begin] + text[own.end :]
    if len(members) > 1:
        comma = plain.index(",", own.end)
        return text[:begin] + text[own.end : comma] + text[comma + 1 :]
    return text[:begin] + re.sub(r"\A\s*,", "", text[own.end :])


_SPACE, _LF = " \t\r\n", "\n"


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indent_at(text: str, at: int) -> str:
    """Return what the line of a place begins with."""
    line = text[text.rfind(_LF, 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _rendered(text: str, value: Any, indent: str) -> str:
    lines = json.dumps(value, indent=indent_of(text), ensure_ascii=False).split(_LF)
    return (_newline(text) + indent).join(lines)


# TOML, of Codex: a table of its own at the end, which changes the meaning of nothing before it.

_OWN_TABLE = re.compile(rf"[ \t]*\[mcp_servers\.{NAME}[.\]]")


def _parse_toml(path: Path, text: str) -> Settings:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise HookInstallError(
            f"{path} is not valid TOML: {error}. Correct it first; nothing was changed"
        ) from None


def _edit_toml(text: str, entry: Settings | None) -> str:
    """Return a text with another table of noctuary's, None for none; every comment stays."""
    newline = _newline(text)
    table = "" if entry is None else _toml_table(entry).replace(_LF, newline)
    lines = re.split(r"(?<=\n)", text)
    tables = [i for i, line in enumerate(lines) if _TABLE.match(line)]
    own = [i for i in tables if _OWN_TABLE.match(lines[i])]
    if not own:
        if entry is None:
            return text
        return text + newline * (bool(text) + (text[-1:] not in ("", _LF))) + table
    for begin in reversed(own):
        end = next((i for i in tables if i > begin), len(lines))
        comments = _comments(lines[begin:end], newline)
        if begin == own[0] and table:
            lines[begin:end] = [table, *comments, newline if end < len(lines) else ""]
            continue
        gap = not comments and begin > 0 and not lines[begin - 1].strip()
        lines[begin - gap : end] = comments
    return "".join(lines)


_TABLE = re.compile(r"[ \t]*\[[^\r\n]*\][ \t]*(?:#[^\r\n]*)?\r?\n?\Z")
_COMMENT = re.compile(r"""(?:[^"'#\r\n]|"(?:[^"\\\r\n]|\\.)*"|'[^'\r\n]*')*(#[^\r\n]*)""")


def _comments(lines: Sequence[str], newline: str) -> list[str]:
    """Return what stays of a table that goes: comments, and the blank lines behind the last key."""
    last = max(i for i, line in enumerate(lines) if line.split("#")[0].strip())
    told = [found[1] + newline for line in lines[: last + 1] if (found := _COMMENT.match(line))]
    rest = lines[last + 1 :]
    return [*told, *rest] if told or any(line.strip() for line in rest) else []


def _toml_table(entry: Settings) -> str:
    lines = [f"{key} = {_toml_value(value)}" for key, value in entry.items()]
    return "\n".join([f"[mcp_servers.{NAME}]", *lines, ""])


def _toml_value(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    pairs = cast("Settings", value).items()
    return "{ " + ", ".join(f"{json.dumps(k)} = {_toml_value(v)}" for k, v in pairs) + " }"
