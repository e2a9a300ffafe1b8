"""`noctuary init`: what it finds, what it refuses, and that it takes back every byte."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from noctuary import remember
from noctuary.cli import init as command
from noctuary.cli.main import main
from noctuary.core.settings import Settings
from noctuary.core.store import store_for_source
from noctuary.sources import finders
from noctuary.sources.open import open_source
from noctuary.sources.source import Source
from tests.support.agents import place
from tests.support.laptop import SECRET, SETTINGS, files_of, make_laptop

Run = Callable[..., Result]
VARIABLES = (
    "CLAUDE_CONFIG_DIR", "CODEX_HOME", "CLAUDE_MEM_DATA_DIR", "MEMORY_HOME", "MEMORY_DB",
    "MEMPALACE_PALACE_PATH", "MEMPALACE_PALACE", "MEMPAL_PALACE_PATH", "MEMPALACE_CONFIG_DIR",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "OPENCODE_DB", "GEMINI_CLI_HOME", "QWEN_HOME",
    "QWEN_RUNTIME_DIR", "PI_CODING_AGENT_DIR", "PI_CODING_AGENT_SESSION_DIR",
)  # fmt: skip


@pytest.fixture
def user(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home directory of a user, empty; noctuary's home lies inside it."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    directory = tmp_path / "user"
    directory.mkdir()
    monkeypatch.setenv("HOME", str(directory))
    monkeypatch.setenv("NOCTUARY_HOME", str(directory / ".local/share/noctuary"))
    return directory


@pytest.fixture(scope="session")
def laptop_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_laptop(tmp_path_factory.mktemp("laptop"))


@pytest.fixture
def laptop(user: Path, laptop_files: Path) -> Path:
    subprocess.run(["cp", "-r", f"{laptop_files}/.", str(user)], check=True)
    return user


@pytest.fixture
def night(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """In the place of the night, whose own tests run it: the words that would start it."""
    ran: list[list[str]] = []

    def started(words: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        ran.append(words)
        return subprocess.CompletedProcess(words, 0, b'{"status": "published", "message": "m"}')

    monkeypatch.setattr(command.subprocess, "run", started)
    return ran


def root(user: Path) -> Path:
    return user / ".local/share/noctuary"


def by_name(found: Any) -> dict[str, Any]:
    return {one["name"]: one for one in found["sources"]}


def test_a_look_says_what_there_is_and_writes_nothing(
    laptop: Path, run: Run, run_json: Callable[..., Any]
) -> None:
    before = dict(files_of(laptop))
    found = run_json("init", "--dry-run")
    sources = by_name(found)
    assert {name: one["memories"] for name, one in sources.items() if not one["fault"]} == {
        "claude": 3, "codex": 2, "auto-memory": 1, "claude-md": 1,
        "claude-memory": 8, "palace": 1, "palace-2": 1,
    }  # fmt: skip
    assert (sources["palace"]["secrets"], sources["palace"]["set_aside"]) == (1, 1)
    assert sources["codex"]["secrets"] == 1
    assert sources["claude"]["size_bytes"] > 1_000
    assert "unheard_of" in sources["claude-mem"]["fault"]
    assert [(agent["agent"], agent["what"]) for agent in found["agents"]] == [
        ("claude", "hooks"), ("codex", "hooks"), ("claude", "MCP server"), ("codex", "MCP server"),
        ("cursor", "MCP server"),
    ]  # fmt: skip
    told = run("init", "--dry-run")
    assert told.exit_code == 0
    assert "MemPalace, one folder up" in told.stdout
    assert "left out: claude-mem" in told.stdout
    assert SECRET not in told.output
    assert SECRET not in json.dumps(found)
    assert dict(files_of(laptop)) == before
    assert not (laptop / ".local").exists()


def test_sessions_of_other_agents_are_found_and_left_as_they_are(
    user: Path, run: Run, run_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    place(user / ".local/share/opencode", "opencode-1.18.33.json", "opencode-1.1.65.json")
    place(user / ".gemini", "gemini-0.61.0-resumed.jsonl", "gemini-0.24.0.json")
    place(user / ".qwen", "qwen-0.24.4-resumed.jsonl")
    place(user, "qwen-0.1.4.json")
    place(user / "elsewhere", "pi-0.73.1-files.jsonl")
    monkeypatch.setenv("PI_CODING_AGENT_SESSION_DIR", str(user / "elsewhere"))
    before = dict(files_of(user))
    found = run_json("init", "--dry-run")
    counts = {name: (one["memories"], one["fault"]) for name, one in by_name(found).items()}
    assert counts == {
        "opencode": (29, ""), "gemini": (14, ""), "qwen": (7, ""), "qwen-old": (3, ""),
        "pi-2": (7, ""),
    }  # fmt: skip
    told = run("init", "--dry-run").stdout
    for what in ("OpenCode sessions", "Gemini CLI sessions", "Qwen Code sessions", "pi sessions"):
        assert what in told
    assert dict(files_of(user)) == before


def test_without_anybody_to_ask_it_refuses_and_changes_nothing(laptop: Path, run: Run) -> None:
    before = dict(files_of(laptop))
    refused = run("init")
    assert refused.exit_code == 3
    assert "no terminal to ask" in refused.stderr
    assert "nothing was changed" in refused.stderr
    assert run("init", "--json").exit_code == 3
    assert dict(files_of(laptop)) == before
    assert not (laptop / ".local").exists()


@pytest.mark.parametrize("answer", ["n", ""])
def test_a_no_changes_nothing(
    laptop: Path, night: list[Any], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    before = dict(files_of(laptop))

    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(command.sys, "stdin", Terminal())
    with CliRunner().isolation(input=f"{answer}\n"):
        sys.stdin.isatty = lambda: True
        with pytest.raises(SystemExit) as ended:
            main(["init"], standalone_mode=False)
    assert ended.value.code == 3
    assert dict(files_of(laptop)) == before
    assert not night
    assert not (laptop / ".local").exists()


def test_it_lists_the_sources_hooks_the_agents_and_takes_back_every_byte(
    laptop: Path, run: Run, run_json: Callable[..., Any], night: list[list[str]]
) -> None:
    before = dict(files_of(laptop))
    done = run_json("init", "--yes")
    toml = root(laptop) / "noctuary.toml"
    settings = Settings.load(home=root(laptop))
    assert settings.sources == {
        name: one["said"] for name, one in by_name(done).items() if not one["fault"]
    }
    store = store_for_source(root(laptop), toml)
    assert (done["store"], done["night"]["status"]) == (str(store), "published")
    assert night == [[*night[0][:5], "--store", str(store), "--json"]]
    assert [change["action"] for change in done["connections"]] == ["installed"] * 5
    for name in (".claude.json", ".codex/config.toml", ".cursor/mcp.json"):
        assert str(store) in (laptop / name).read_text("utf-8")
    hooked = (laptop / ".claude/settings.json").read_text("utf-8")
    assert str(store) in hooked
    assert (store / "turns.sqlite").is_file(), "the night reads no session again"
    written = dict(files_of(laptop)), toml.read_bytes()
    again = run_json("init", "--yes")
    assert [change["action"] for change in again["connections"]] == ["unchanged"] * 5
    assert (dict(files_of(laptop)), toml.read_bytes()) == written, "twice is once"
    undone = run_json("init", "--undo")
    assert (undone["listed_in"], undone["faults"]) == (str(toml), [])
    assert dict(files_of(laptop)) == before
    assert (laptop / ".claude/settings.json").read_bytes() == SETTINGS
    assert not toml.exists()
    assert (store / "turns.sqlite").is_file(), "memories stay"
    assert "nothing to take back" in run("init", "--undo").stdout


@pytest.mark.parametrize(
    "text",
    [
        "", "\n", "# mine", "# mine\n", "[snapshot]\nkeep = 9", "[snapshot]\r\nkeep = 9\r\n",
        "snapshot.keep = 9\n\n\n", "[profiles.warm]\nk = 1\n",
    ],
)  # fmt: skip
def test_the_settings_that_were_there_stay_and_come_back_byte_by_byte(
    laptop: Path, run_json: Callable[..., Any], night: list[Any], text: str
) -> None:
    toml = root(laptop) / "noctuary.toml"
    toml.parent.mkdir(parents=True)
    toml.write_bytes(text.encode())
    toml.chmod(0o640)
    before = Settings.load(home=root(laptop))
    run_json("init", "--yes")
    now = Settings.load(home=root(laptop))
    assert len(now.sources) == 7
    assert now._replace(sources={}) == before
    assert toml.stat().st_mode & 0o777 == 0o640
    run_json("init", "--undo")
    assert toml.read_bytes() == text.encode()
    run_json("init", "--yes")
    edited = toml.read_bytes() + b"[recall]\nfusion = 'rrf'\n"
    toml.write_bytes(edited)
    run_json("init", "--yes", "--without", "palace-2")
    assert len(Settings.load(home=root(laptop)).sources) == 6
    assert Settings.load(home=root(laptop)).recall.fusion == "rrf"
    run_json("init", "--undo")
    ended = text if text.endswith("\n") or not text else f"{text}\n"
    assert toml.read_bytes() == ended.encode() + b"[recall]\nfusion = 'rrf'\n"


def test_a_list_of_the_users_own_is_left_alone(
    laptop: Path, run_json: Callable[..., Any], night: list[Any]
) -> None:
    toml = root(laptop) / "noctuary.toml"
    toml.parent.mkdir(parents=True)
    toml.write_text("[sources]\nnotes = 'n.jsonl'\n", encoding="utf-8")
    before = toml.read_bytes()
    done = run_json("init", "--yes")
    assert "has a list of its own, without claude = " in " ".join(done["warnings"])
    assert toml.read_bytes() == before
    run_json("init", "--undo")
    assert toml.read_bytes() == before


def test_a_table_that_goes_on_behind_the_part_is_not_torn(
    laptop: Path, run: Run, run_json: Callable[..., Any], night: list[Any]
) -> None:
    run_json("init", "--yes")
    toml = root(laptop) / "noctuary.toml"
    edited = toml.read_text("utf-8") + "mine = 'x.jsonl'\n"
    toml.write_text(edited, encoding="utf-8")
    undone = run("init", "--undo")
    assert undone.exit_code == 1
    assert "cannot edit" in undone.stderr
    assert toml.read_text("utf-8") == edited


def test_hooks_of_the_owners_own_stay_where_they_are(
    laptop: Path, run_json: Callable[..., Any], night: list[Any]
) -> None:
    run_json("hooks", "install", "--agent", "claude")
    before = (laptop / ".claude/settings.json").read_bytes()
    (laptop / ".codex/hooks.json").write_text("{broken", encoding="utf-8")
    done = run_json("init", "--yes")
    assert {change["what"] for change in done["connections"]} == {"MCP server"}
    assert "hooks stand there already" in done["warnings"][0]
    assert "not valid JSON" in done["warnings"][1]
    assert (laptop / ".codex/hooks.json").read_text("utf-8") == "{broken"
    run_json("init", "--undo")
    assert (laptop / ".claude/settings.json").read_bytes() == before


def test_undo_leaves_no_copy_of_its_own_making_and_no_comment_is_lost(
    laptop: Path, run_json: Callable[..., Any], night: list[Any]
) -> None:
    toml, claude = laptop / ".codex/config.toml", laptop / ".claude/settings.json"
    toml.write_text("model = 'o' # fast\n", encoding="utf-8")
    claude.write_text('{"theme": "dark"}', encoding="utf-8")
    (laptop / ".claude/settings.json.bak").write_text("the owner's", encoding="utf-8")
    run_json("init", "--yes")
    toml.write_text(toml.read_text("utf-8") + "# why it is here\n", encoding="utf-8")
    edited = json.loads(claude.read_text("utf-8"))
    claude.write_text(json.dumps({**edited, "model": "m"}), encoding="utf-8")
    run_json("init", "--undo")
    told = [line for line in toml.read_text("utf-8").splitlines() if line]
    assert told == ["model = 'o' # fast", "# why it is here"]
    assert json.loads(claude.read_text("utf-8")) == {"theme": "dark", "model": "m"}
    assert [path.name for path in laptop.rglob("*.bak")] == ["settings.json.bak"]


def test_undo_goes_on_where_one_file_cannot_be_changed(
    laptop: Path, run: Run, run_json: Callable[..., Any], night: list[Any]
) -> None:
    run_json("init", "--yes")
    settings = laptop / ".claude/settings.json"
    written = settings.read_bytes()
    settings.write_text("{broken", encoding="utf-8")
    (root(laptop) / "noctuary.toml").write_text("[broken", encoding="utf-8")
    undone = run("init", "--undo")
    assert undone.exit_code == 1
    assert "not valid JSON" in undone.stderr
    assert "not valid TOML" in undone.stderr
    assert not (laptop / ".codex/hooks.json").exists()
    settings.write_bytes(written)
    (root(laptop) / "noctuary.toml").unlink()
    run_json("init", "--undo")
    assert settings.read_bytes() == SETTINGS


def test_a_night_that_fails_is_said_and_no_agent_is_connected(
    laptop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(files_of(laptop))

    def failed(words: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(words, 4, b'{"message": "another night"}')

    monkeypatch.setattr(command.subprocess, "run", failed)
    ended = run("init", "--yes", "--json")
    assert ended.exit_code == 4
    assert "another night" in ended.stdout
    assert "noctuary init --undo" in ended.stdout
    assert dict(files_of(laptop)) == before


def test_what_is_hostile_is_left_out_with_a_word(
    laptop: Path, run_json: Callable[..., Any], tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (laptop / ".claude-mem/claude-mem.db").unlink()
    (laptop / ".claude-mem/claude-mem.db").symlink_to(laptop_db := tmp_path / "other.db")
    laptop_db.write_bytes((laptop / ".claude/claude-memory/memory/memory.db").read_bytes())
    (laptop / ".codex/archived_sessions").symlink_to(outside)
    (laptop / ".codex/memories").symlink_to(laptop / ".codex/memories")
    (laptop / ".mempalace/palace/chroma.sqlite3").write_bytes(b"SQLite format 3\0" + b"\xff" * 500)
    (laptop / ".mempalace/config.json").write_text('{"palace_path": ["a"]}')
    (laptop / ".claude/projects/-home-me-shop/b.jsonl").write_bytes(b'{"type": "user"' * 1_000)
    found = by_name(run_json("init", "--dry-run"))
    assert "leads out of your home" in found["claude-mem"]["fault"]
    assert "leads out of your home" in found["codex-archive"]["fault"]
    assert "codex-notes" not in found
    assert "cannot be read" in found["palace"]["fault"]
    assert not found["palace-2"]["fault"]
    assert (found["claude"]["files"], found["claude"]["memories"]) == (2, 3)


def test_variables_and_settings_of_the_tools_say_where_else_to_look(
    laptop: Path, run_json: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "moved"
    (laptop / ".mempalace/palace").rename(moved)
    (laptop / ".mempalace/config.json").write_text(json.dumps({"palace_path": str(moved)}))
    (laptop / ".codex").rename(tmp_path / "codex-home")
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex-home"))
    store = laptop / ".claude/claude-memory/memory/memory.db"
    monkeypatch.setenv("MEMORY_DB", str(store))
    found = by_name(run_json("init", "--dry-run"))
    assert found["palace-3"]["said"] == str(moved / "chroma.sqlite3")
    assert found["codex"]["memories"] == 2
    assert "claude-memory-2" not in found, "each place once"


@pytest.mark.parametrize(
    ("place", "variables", "name"),
    [
        (".config/mempalace/palace", {}, "palace-4"),
        (".config/mempalace/palace", {"XDG_CONFIG_HOME": "relative"}, "palace-4"),
        ("xdg/mempalace/palace", {"XDG_CONFIG_HOME": "{home}/xdg"}, "palace-4"),
        ("own/palace", {"MEMPALACE_CONFIG_DIR": "{home}/own"}, "palace-5"),
        ("p", {"MEMPALACE_PALACE": "{home}/p"}, "palace-6"),
        ("p", {"MEMPAL_PALACE_PATH": "~/p"}, "palace-7"),
        ("p", {"XDG_CONFIG_HOME": "{home}/xdg", "config": "xdg/mempalace"}, "palace-3"),
        ("p", {"MEMPALACE_CONFIG_DIR": "{home}/own", "config": "own"}, "palace-3"),
        ("p", {"config": ".config/mempalace"}, "palace-3"),
    ],
)  # fmt: skip
def test_a_palace_is_found_where_its_tool_makes_a_new_one(
    laptop: Path,
    run_json: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    variables: dict[str, str],
    name: str,
) -> None:
    palace = laptop / place
    palace.parent.mkdir(parents=True, exist_ok=True)
    (laptop / ".mempalace/palace").rename(palace)
    if config := variables.get("config"):
        file = laptop / config / "config.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"palace_path": str(palace)}))
    for variable, said in variables.items():
        monkeypatch.setenv(variable, said.format(home=laptop))
    found = by_name(run_json("init", "--dry-run"))
    assert found[name]["said"] == str(palace / "chroma.sqlite3")
    assert (found[name]["memories"], found[name]["fault"]) == (1, "")


def test_a_place_that_nobody_understands_hides_no_other(
    laptop: Path, run: Run, run_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> Source:
        if "claude-memory" in str(path):
            raise RecursionError(SECRET)
        return open_source(path)

    monkeypatch.setattr(finders, "open_source", broken)
    found = by_name(run_json("init", "--dry-run"))
    assert "does not know why (RecursionError)" in found["claude-memory"]["fault"]
    assert found["palace"]["memories"] == 1
    assert found["claude"]["memories"] == 3
    assert SECRET not in run("init", "--dry-run").output


def test_what_is_remembered_is_enough_and_nothing_is_too_little(
    user: Path, run: Run, run_json: Callable[..., Any], night: list[Any]
) -> None:
    assert run("init", "--dry-run").stdout.startswith("No tool's memories were found")
    refused = run("init", "--yes")
    assert refused.exit_code == 3
    assert "no memory yet" in refused.stderr
    assert not (user / ".local").exists()
    remember("The spare key hangs behind the blue door.")
    done = run_json("init", "--yes")
    assert done["store"] == str(store_for_source(root(user), root(user) / "memories.sqlite"))
    assert not (root(user) / "noctuary.toml").exists()


def test_a_named_folder_must_not_be_noctuarys_own(laptop: Path, run: Run) -> None:
    for path in (laptop, root(laptop)):
        path.mkdir(parents=True, exist_ok=True)
        refused = run("init", "--dry-run", "--markdown", str(path))
        assert refused.exit_code == 3
        assert "is or holds noctuary's home" in refused.stderr


def test_one_store_by_name_is_a_choice_that_init_does_not_undo(
    laptop: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_SOURCE_PATH", "a.db")
    refused = run("init", "--yes")
    assert refused.exit_code == 3
    assert "NOCTUARY_SOURCE_PATH" in refused.stderr
