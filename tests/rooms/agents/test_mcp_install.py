"""MCP servers in agents' settings: what is written, what is kept, what is refused."""

from __future__ import annotations

import json
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents.install import (
    SERVER_RECEIPTS,
    HookInstallError,
    SettingsPlace,
    receipts_path,
)
from noctuary.agents.mcp_install import (
    CLIENTS,
    NAME,
    find_place,
    find_used,
    install_server,
    installed_places,
    snippet,
    uninstall_server,
)
from tests.support.agent_settings import json_layouts, settings_values

WORDS = ["/opt/noctuary/bin/noctuary", "mcp", "--store", "/data/a b"]
ENVIRON = {"NOCTUARY_HOME": "/data/home"}
STDIO = {"command": WORDS[0], "args": WORDS[1:]}

# What each agent's own page shows for a server that it starts (docs/mcp.md has the addresses).
PUBLISHED: dict[str, tuple[str, str | None, str, dict[str, Any]]] = {
    "claude": (".claude.json", ".mcp.json", "mcpServers", {"type": "stdio", **STDIO}),
    "codex": (".codex/config.toml", ".codex/config.toml", "mcp_servers", STDIO),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json", "mcpServers", STDIO),
    "gemini": (".gemini/settings.json", ".gemini/settings.json", "mcpServers", STDIO),
    "opencode": (
        ".config/opencode/opencode.json", "opencode.json", "mcp",
        {"type": "local", "command": WORDS, "enabled": True},
    ),
    "windsurf": (".codeium/windsurf/mcp_config.json", None, "mcpServers", STDIO),
    "vscode": (
        ".config/Code/User/mcp.json", ".vscode/mcp.json", "servers", {"type": "stdio", **STDIO}
    ),
}  # fmt: skip


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home directory, with none of the agents' variables."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "user"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def read(place: SettingsPlace) -> dict[str, Any]:
    text = place.path.read_text(encoding="utf-8")
    return tomllib.loads(text) if place.agent == "codex" else json.loads(text)


@pytest.mark.parametrize("agent", PUBLISHED)
def test_every_agent_gets_its_published_form_and_loses_it_again(agent: str, user: Path) -> None:
    path, in_project, key, entry = PUBLISHED[agent]
    home, project = user / "noctuary", user / "project"
    assert set(PUBLISHED) == set(CLIENTS)
    place = find_place(agent, "user", project)
    assert place.path == user / path
    first = install_server(place, WORDS, home=home)
    assert (first.action, read(place)) == ("installed", {key: {NAME: entry}})
    assert install_server(place, WORDS, home=home).action == "unchanged"
    named = "environment" if agent == "opencode" else "env"
    again = install_server(place, WORDS, home=home, environ=ENVIRON)
    assert (again.action, read(place)[key][NAME]) == ("renewed", {**entry, named: ENVIRON})
    assert install_server(place, WORDS, home=home).action == "unchanged", "what is there stays"
    assert installed_places(home) == [place]
    assert uninstall_server(place, home=home).action == "removed"
    assert (place.path.exists(), installed_places(home)) == (False, [])
    assert uninstall_server(place, home=home).action == "absent"
    if in_project is None:
        with pytest.raises(HookInstallError, match="no MCP servers of a project"):
            find_place(agent, "project", project)
    else:
        assert find_place(agent, "project", project).path == project / in_project


def test_agents_are_found_by_what_they_keep_and_where_variables_say(
    user: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_used() == []
    (user / ".claude.json").write_text("{}")
    (user / ".gemini").mkdir()
    (user / ".config/opencode").mkdir(parents=True)
    assert find_used() == ["claude", "gemini", "opencode"]
    (user / ".config/opencode/opencode.jsonc").write_text("{}")
    assert find_place("opencode", "user", user).path.name == "opencode.jsonc"
    moved = {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "XDG_CONFIG_HOME": "/o"}
    for name, value in moved.items():
        monkeypatch.setenv(name, value)
    found = [str(find_place(a, "user", user).path) for a in ("claude", "codex", "opencode")]
    assert found == ["/c/.claude.json", "/x/config.toml", "/o/opencode/opencode.json"]


COMMENTED = """{
\t// my servers
\t"servers": {"one": {"command": "x"}},
}
"""


def test_json_with_comments_is_not_touched_and_the_rest_keeps_order_and_indentation(
    user: Path,
) -> None:
    place = find_place("vscode", "user", user)
    place.path.parent.mkdir(parents=True)
    place.path.write_text(COMMENTED, encoding="utf-8")
    with pytest.raises(HookInstallError, match="JSON has no comments"):
        install_server(place, WORDS, home=user / "n")
    assert place.path.read_text(encoding="utf-8") == COMMENTED
    plain = '{\n\t"servers": {\n\t\t"one": {\n\t\t\t"command": "x"\n\t\t}\n\t},\n\t"inputs": 1\n}\n'
    place.path.write_text(plain, encoding="utf-8")
    install_server(place, WORDS, home=user / "n")
    edited = place.path.read_text(encoding="utf-8")
    assert edited.startswith(plain[: plain.index("\n\t},")] + ",\n\t\t")
    assert edited.endswith('\n\t},\n\t"inputs": 1\n}\n')
    # What its owner adds stays, also when the entry is renewed, and when it goes.
    mine = edited.replace('"inputs": 1', '"inputs": 2').replace(
        '"type": "stdio",', '"type": "stdio", "dev": {},'
    )
    place.path.write_text(mine, encoding="utf-8")
    install_server(place, ["/m/noctuary", "mcp"], home=user / "n")
    own = read(place)["servers"][NAME]
    assert (own["dev"], own["command"]) == ({}, "/m/noctuary")
    uninstall_server(place, home=user / "n")
    assert place.path.read_text(encoding="utf-8") == plain.replace(": 1", ": 2")


MINE = '# top\r\nmodel = "o"\r\n\r\n[mcp_servers.b]\r\ncommand = "x"\r\nat = 2026-01-01'
TAIL = '\n[tui] # last\nn = nan\n[[x]]\ny = """\n[a]\n"""\n'


def test_toml_keeps_what_stands_around_the_table(user: Path) -> None:
    place = find_place("codex", "user", user)
    place.path.parent.mkdir()
    place.path.write_bytes(MINE.encode())
    install_server(place, WORDS, home=user / "n")
    edited = place.path.read_bytes().decode()
    assert edited.startswith(MINE + "\r\n\r\n[mcp_servers.noctuary]\r\n")
    place.path.write_bytes(edited.encode() + b"tool_timeout_sec = 9\r\n")
    install_server(place, [WORDS[0], "mcp"], home=user / "n", environ=ENVIRON)
    own = read(place)["mcp_servers"][NAME]
    assert own == {
        "command": WORDS[0], "args": ["mcp"], "env": ENVIRON, "tool_timeout_sec": 9,
    }  # fmt: skip
    assert uninstall_server(place, home=user / "n").action == "removed"
    assert place.path.read_bytes().decode() == MINE + "\r\n"
    place.path.write_bytes((MINE + TAIL).encode())
    install_server(place, WORDS, home=user / "n")
    assert uninstall_server(place, home=user / "n").action == "removed"
    assert place.path.read_bytes().decode() == MINE + TAIL


HEAD = f"[mcp_servers.{NAME}]"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("written", "left"),
    [
        ("{own}# about nothing\n", "# about nothing\n"),
        ("{own}\n# about tui\n[tui]\nn = 1\n", "\n# about tui\n[tui]\nn = 1\n"),
        ("{own}# at the end", "# at the end"),
        ("{own}tool_timeout_sec = 9 # slow disk\n", "# slow disk\n"),
        ("# above\n{own}", "# above\n"),
        ("{own}# one\n[mcp_servers.noctuary.env]\nA = '#1' # two\n", "# one\n# two\n"),
        ("{own}  # indented\n  [tui] # it\nn = 1\n", "  # indented\n  [tui] # it\nn = 1\n"),
        ("{head} # of mine\n{rest}", "# of mine\n"),
    ],
)
def test_a_comment_of_the_owner_s_stays_wherever_it_stands(
    user: Path, written: str, left: str, end: str
) -> None:
    place = find_place("codex", "user", user)
    place.path.parent.mkdir()
    place.path.write_text("model = 'o'\n")
    install_server(place, WORDS, home=user / "n")
    before, _, own = place.path.read_text().partition(HEAD)
    parts = {"own": HEAD + own, "head": HEAD, "rest": own.lstrip("\n")}
    text = before + written.format(**parts)
    place.path.write_bytes(text.replace("\n", end).encode())
    # Renewed, it keeps its comments as well.
    install_server(place, [WORDS[0], "mcp", "--store", "x"], home=user / "n")
    renewed = place.path.read_bytes().decode()
    assert [c for c in left.split("\n") if "#" in c and c.strip() not in renewed] == []
    place.path.write_bytes(text.replace("\n", end).encode())
    assert uninstall_server(place, home=user / "n").action == "removed"
    found = place.path.read_bytes().decode().replace(end, "\n")
    assert found.removeprefix("model = 'o'\n").strip() == left.strip()
    assert tomllib.loads(found).get("mcp_servers") is None


@pytest.mark.parametrize(
    "text",
    [
        'a = """\n[mcp_servers.noctuary]\n"""\n',
        '[mcp_servers."noctuary"] # mine\ncommand="/old/noctuary"\nargs=["mcp"]\n[tui]\n',
        "mcp_servers.noctuary = {command='noctuary', args=['mcp']}\nm = 1 # one\n",
    ],
    ids=["text-like-a-table", "quoted", "inline"],
)
def test_toml_in_any_spelling_is_edited_or_refused_whole(user: Path, text: str) -> None:
    place = find_place("codex", "user", user)
    place.path.parent.mkdir()
    place.path.write_text(text)
    before = tomllib.loads(text)
    install_server(place, WORDS, home=user / "n")
    assert read(place)["mcp_servers"][NAME] == STDIO
    receipts_path(user / "n", SERVER_RECEIPTS).unlink()
    try:
        uninstall_server(place, home=user / "n")
    except HookInstallError:
        assert read(place)["mcp_servers"][NAME] == STDIO
        return
    before.pop("mcp_servers", None)
    assert read(place) == before
    assert [c for c in ("# mine", "# one") if c in text and c not in place.path.read_text()] == []


ELSE = {"command": "docker", "args": ["run", "noctuary", "mcp"]}


@pytest.mark.parametrize(
    ("agent", "text", "says"),
    [
        ("cursor", '{"mcpServers": {"a": 1, "a": 2}}', "appears twice"),
        ("cursor", '{"mcpServers": {} /* open }', "not valid JSON"),
        ("cursor", "[]", "a JSON object was expected"),
        ("cursor", '{"mcpServers": []}', "holds no object"),
        ("cursor", '{"a": ' + "[" * 200 + "]" * 200 + "}", "nested too deeply"),
        ("cursor", json.dumps({"mcpServers": {NAME: ELSE}}), "did not write"),
        ("cursor", json.dumps({"mcpServers": {NAME: "x"}}), "did not write"),
        ("codex", "model = ", "not valid TOML"),
        ("codex", "mcp_servers = {}", "cannot edit"),
        ("codex", f"[mcp_servers.{NAME}]\nargs = [\n['mcp']]\ncommand='noctuary'", "did not write"),
        ("codex", "mcp_servers = 1", "holds no object"),
    ],
)
def test_what_is_not_understood_is_refused_and_stays(
    agent: str, text: str, says: str, user: Path
) -> None:
    place = find_place(agent, "user", user)
    place.path.parent.mkdir()
    place.path.write_text(text)
    with pytest.raises(HookInstallError, match=says) as refused:
        install_server(place, WORDS, home=user / "n")
    assert str(place.path) in str(refused.value)
    assert place.path.read_text() == text
    assert [p.name for p in place.path.parent.iterdir()] == [place.path.name]
    assert WORDS[0] in snippet(agent, WORDS)


def test_links_are_followed_and_a_dry_run_writes_nothing(user: Path) -> None:
    place = find_place("gemini", "user", user)
    place.path.parent.mkdir()
    real = user / "dotfiles.json"
    real.write_text('{"theme": "x"}')
    real.chmod(0o640)
    place.path.symlink_to(real)
    dry = install_server(place, WORDS, home=user / "n", dry_run=True)
    assert '+  "mcpServers": {' in dry.diff
    assert (real.read_text(), (user / "n").exists()) == ('{"theme": "x"}', False)
    install_server(place, WORDS, home=user / "n")
    assert place.path.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    uninstall_server(place, home=user / "n")
    assert (place.path.is_symlink(), real.read_text()) == (True, '{"theme": "x"}')


@given(
    settings_values, json_layouts, st.sampled_from(["cursor", "opencode", "vscode"]),
    st.booleans(), st.sampled_from(["mine", "none", "empty"]),
)  # fmt: skip
def test_any_settings_come_back_byte_by_byte(
    value: dict[str, Any], layout: dict[str, Any], agent: str, forgot: bool, servers: str
) -> None:
    key, held = CLIENTS[agent].key, {"mine": {"one": value, NAME + "2": []}, "empty": {}}
    before = {**value, key: held.get(servers)} if servers != "none" else value
    raw = json.dumps(before, **layout).encode("utf-8", "surrogatepass")
    with tempfile.TemporaryDirectory() as directory:
        place = SettingsPlace(agent, "user", Path(directory, "mcp.json"))
        home = Path(directory, "n")
        place.path.write_bytes(raw)
        assert install_server(place, WORDS, home=home).action == "installed"
        assert json.loads(place.path.read_bytes())[key][NAME]["command"]
        if forgot:  # without a receipt the entry is cut out of what is there now
            receipts_path(home, SERVER_RECEIPTS).unlink()
        assert uninstall_server(place, home=home).action == "removed"
        if not forgot:
            assert place.path.read_bytes() == raw
        elif servers == "mine":
            assert json.loads(place.path.read_bytes()) == json.loads(raw)
        else:
            rest = {name: held for name, held in before.items() if name != key}
            assert json.loads(place.path.read_bytes()) == rest
