"""Settings files: what is written, what is kept, what is refused."""

from __future__ import annotations

import copy
import json
import os
import shlex
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary import __version__
from noctuary.agents import install as installing
from noctuary.agents.client import AGENTS
from noctuary.agents.install import (
    ABSENT,
    BROKEN,
    DISABLED,
    EVENTS,
    INSTALLED,
    OUTDATED,
    UNREADABLE,
    HookChange,
    HookInstallError,
    SettingsPlace,
    add_hooks,
    enabled_plugin,
    find_place,
    find_program,
    hook_groups,
    install_hooks,
    is_same_json,
    is_used,
    list_hooks,
    look_at_place,
    look_at_places,
    plugin_files,
    read_command,
    read_receipts,
    read_settings,
    receipts_path,
    remove_hooks,
    require_utf8,
    uninstall_hooks,
    write_plugin,
    write_settings,
)
from tests.support.agent_settings import hook_faults, json_layouts, plugin_faults, settings_values

PROGRAM = ("/opt/noctuary/bin/noctuary",)
Install = Callable[..., HookChange]
OWN = '{\n    "model": "opus",  "n": [1,\n 2],\n    "hooks": {"Stop": []}\n}\n'


@pytest.fixture
def place(tmp_path: Path) -> SettingsPlace:
    (tmp_path / ".claude").mkdir()
    path = tmp_path / ".claude" / "settings.json"
    path.write_text(OWN, encoding="utf-8")
    return SettingsPlace("claude", "user", path)


@pytest.fixture
def noctuary_home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def install(place: SettingsPlace, noctuary_home: Path) -> Install:
    """Install into the place, or with `undo` take out of it."""

    def change(
        program: Sequence[str] = PROGRAM, *, undo: bool = False, **options: Any
    ) -> HookChange:
        if undo:
            return uninstall_hooks(place, home=noctuary_home, **options)
        return install_hooks(place, program, home=noctuary_home, **options)

    return change


def backups(place: SettingsPlace) -> list[Path]:
    return sorted(place.path.parent.glob("*.bak"))


def test_installing_twice_writes_once_and_keeps_the_old_file_once(
    place: SettingsPlace, install: Install
) -> None:
    first = install()
    assert first.backup is not None
    assert Path(first.backup).read_text(encoding="utf-8") == OWN
    written = place.path.read_bytes()
    second = install()
    assert (first.action, second.action) == ("installed", "unchanged")
    assert place.path.read_bytes() == written
    assert (second.diff, second.backup) == ("", None)
    assert hook_faults("claude", json.loads(written)["hooks"]) == []
    place.path.write_text(OWN, encoding="utf-8")
    assert install().backup == first.backup
    assert len(backups(place)) == 1


def test_the_owners_bytes_stay_and_come_back(
    place: SettingsPlace, noctuary_home: Path, install: Install
) -> None:
    install(store="/data/store")
    receipts = receipts_path(noctuary_home).read_bytes()
    text = place.path.read_text(encoding="utf-8")
    assert text.startswith('{\n    "model": "opus",\n    "n": [\n        1,\n        2\n    ],')
    assert install(undo=True).action == "removed"
    assert place.path.read_text(encoding="utf-8") == OWN
    assert install(undo=True).action == "absent"
    install(store="/data/store")
    assert receipts_path(noctuary_home).read_bytes() == receipts, "equal installations, equal ones"


def test_a_file_that_was_not_there_goes_with_its_folder(tmp_path: Path) -> None:
    place = find_place("codex", "project", tmp_path / "project")
    (tmp_path / "project").mkdir()
    change = install_hooks(place, PROGRAM, home=tmp_path / "home")
    assert place.path.read_bytes().endswith(b"}\n")
    assert stat.S_IMODE(place.path.stat().st_mode) == 0o600
    assert change.backup is None
    assert any("trusted" in note for note in change.notes)
    assert any("do not commit" in note for note in change.notes)
    uninstall_hooks(place, home=tmp_path / "home")
    assert list((tmp_path / "project").iterdir()) == []
    assert read_receipts(tmp_path / "home") == {}


def test_a_folder_that_holds_something_else_stays(tmp_path: Path) -> None:
    place = find_place("codex", "project", tmp_path)
    install_hooks(place, PROGRAM, home=tmp_path / "home")
    (place.path.parent / "config.toml").write_text("x = 1\n")
    uninstall_hooks(place, home=tmp_path / "home")
    assert [p.name for p in place.path.parent.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf" + OWN.encode()])
def test_an_empty_file_counts_as_no_settings_and_a_byte_order_mark_stays(
    place: SettingsPlace, install: Install, content: bytes
) -> None:
    place.path.write_bytes(content)
    install()
    assert place.path.read_bytes().startswith(content[:3] + b"{")
    install(undo=True)
    assert place.path.read_bytes() == content


@pytest.mark.parametrize("lost", ["missing", "damaged"])
def test_without_the_receipt_every_entry_goes_all_the_same(
    place: SettingsPlace, noctuary_home: Path, install: Install, lost: str
) -> None:
    place.path.write_text('{"a": 1}')
    install()
    receipt = receipts_path(noctuary_home)
    receipt.unlink() if lost == "missing" else receipt.write_text('{"version": 1, "installs": [3')
    install(undo=True)
    assert json.loads(place.path.read_bytes()) == {"a": 1}


def test_an_older_installation_is_renewed_and_goes(place: SettingsPlace, install: Install) -> None:
    place.path.unlink()
    install(("/old/noctuary",))
    assert install().action == "renewed"
    assert "/old/noctuary" not in place.path.read_text()
    install(undo=True)
    assert not place.path.exists()


@pytest.mark.parametrize("undo", [False, True])
def test_a_dry_run_only_says_what_it_would(install: Install, tmp_path: Path, undo: bool) -> None:
    if undo:
        install()
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    dry = install(undo=undo, dry_run=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    wet = install(undo=undo)
    assert (dry.action, dry.diff) == (wet.action, wet.diff)
    assert dry.diff
    assert dry.dry_run


def test_links_are_followed_and_permissions_stay(place: SettingsPlace, install: Install) -> None:
    target = place.path.parent.with_name("dotfiles") / "settings.json"
    target.parent.mkdir()
    place.path.unlink()
    place.path.symlink_to(target)
    target.write_text("{}\n")
    target.chmod(0o640)
    change = install()
    assert place.path.is_symlink()
    assert "UserPromptSubmit" in target.read_text()
    assert change.backup is not None
    assert Path(change.backup).parent == target.parent
    for path in (target, Path(change.backup)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert not list(target.parent.glob("*.tmp"))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"{", "not valid JSON"), (b'{"a": 1} x', "not valid JSON"),
        (b'{"a": 1,}', "not valid JSON"), (b'{// mine\n"a": 1}', "JSON has no comments"),
        (b'{"a": NaN}', "NaN is no JSON"), (b'{"a": 1, "a": 2}', "appears twice"),
        (b'{"hooks": {"Stop": [], "Stop": []}}', "appears twice"), (b"[]", "holds list"),
        (b"null", "holds NoneType"), (b'"text"', "holds str"), (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"hooks": []}', "an array"), (b'{"hooks": {"Stop": {}}}', "an object"),
        (b'{"a":' * 200_000, "not"), (b"[" * 200_000, "not"), (b" " * 8_000_001, "more than"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_understood_is_refused_and_stays(
    place: SettingsPlace, noctuary_home: Path, install: Install, raw: bytes, says: str
) -> None:
    place.path.write_bytes(raw)
    with pytest.raises(HookInstallError, match=says):
        install()
    assert place.path.read_bytes() == raw
    assert [p.name for p in place.path.parent.iterdir()] == [place.path.name]
    assert not noctuary_home.exists()


def test_what_is_no_file_is_refused(place: SettingsPlace, install: Install) -> None:
    place.path.unlink()
    place.path.mkdir()
    with pytest.raises(HookInstallError, match="not a regular file"):
        install()
    place.path.rmdir()
    os.mkfifo(place.path)
    with pytest.raises(HookInstallError, match="not a regular file"):
        install()
    place.path.unlink()
    place.path.symlink_to(place.path)
    # Python 3.13 resolves a loop of links, and only reading tells.
    with pytest.raises(
        HookInstallError, match=r"cannot be (reached|read): .*(?i:symlink|symbolic)"
    ):
        install()


def test_a_file_that_changes_meanwhile_is_not_overwritten(place: SettingsPlace) -> None:
    before = read_settings(place.path)
    place.path.write_text('{"by": "the agent"}')
    with pytest.raises(HookInstallError, match="changed by another program"):
        write_settings(before, b"{}")
    assert place.path.read_text() == '{"by": "the agent"}'
    assert backups(place) == []


def test_a_failed_replacement_leaves_the_old_file(
    place: SettingsPlace, monkeypatch: pytest.MonkeyPatch, noctuary_home: Path, install: Install
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        install()
    assert place.path.read_text(encoding="utf-8") == OWN
    assert [p.name for p in place.path.parent.iterdir()] == [place.path.name]
    assert read_receipts(noctuary_home) == {}


def test_both_scopes_and_switched_off_hooks_are_told(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    user = find_place("claude", "user", folder)
    assert install_hooks(user, PROGRAM, home=home).notes == ()
    project = install_hooks(find_place("claude", "project", folder), PROGRAM, home=home)
    assert any("both run" in note and str(tmp_path / "claude") in note for note in project.notes)
    assert installing.environment_notes({}) == ()
    assert "start the agent with it" in installing.environment_notes({"NOCTUARY_HOME": "/m"})[0]
    user.path.write_text('{"disableAllHooks": true}')
    notes = install_hooks(user, PROGRAM, home=home).notes
    assert any("no hook runs" in note for note in notes)


@given(settings_values, json_layouts, st.sampled_from(AGENTS), st.booleans(), st.booleans())
def test_installing_and_uninstalling_gives_the_bytes_of_before(
    settings: dict[str, Any], layout: dict[str, Any], agent: str, newline: bool, twice: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "settings.json"
        text = json.dumps(settings, **layout) + ("\n" if newline else "")
        raw = text.encode("utf-8", "surrogatepass")
        path.write_bytes(raw)
        place = SettingsPlace(agent, "user", path)
        for program in (PROGRAM, ("/another/noctuary",))[: 1 + twice]:
            install_hooks(place, program, home=Path(directory))
            installed = json.loads(path.read_bytes())
            assert len(installed["hooks"]) >= 6
            assert {**installed, "hooks": 0} == {**settings, "hooks": 0}
        uninstall_hooks(place, home=Path(directory))
        assert path.read_bytes() == raw


@given(settings_values, json_layouts, st.sampled_from(AGENTS), st.booleans())
def test_what_somebody_changed_meanwhile_stays(
    settings: dict[str, Any], layout: dict[str, Any], agent: str, backup_is_damaged: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "settings.json"
        path.write_text(json.dumps(settings, **layout), encoding="utf-8")
        place = SettingsPlace(agent, "user", path)
        change = install_hooks(place, PROGRAM, home=Path(directory))
        expected = remove_hooks(read_settings(path).value)
        if backup_is_damaged:
            assert change.backup is not None
            Path(change.backup).write_bytes(b"{}")
        else:
            path.write_text(json.dumps({**read_settings(path).value, "added": [1]}))
            expected = {**expected, "added": [1]}
        uninstall_hooks(place, home=Path(directory))
        assert read_settings(path).value == expected


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_what_is_written_has_the_indentation_and_line_ends_of_the_file(
    place: SettingsPlace, noctuary_home: Path, line_end: str
) -> None:
    text = f'{{{line_end}\t"é": "\\ud800"{line_end}}}'
    place.path.write_bytes(text.encode())
    install_hooks(place, PROGRAM, home=noctuary_home)
    written = place.path.read_bytes().decode("utf-8")
    lines = ["{", '\t"é": "\\ud800",', '\t"hooks": {', '\t\t"']
    assert written.startswith(line_end.join(lines))
    assert written.count("\n") == written.count(line_end)


agents = st.sampled_from(AGENTS)
OLD = {"type": "command", "command": "noctuary hook --agent claude"}
FOREIGN = {"type": "command", "command": "say done"}


def without_empty(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without the lists of ours that hold nothing: whose they were is not known."""
    ours = {event.name for event in EVENTS}
    events = {e: g for e, g in settings.get("hooks", {}).items() if g or e not in ours}
    rest = {key: value for key, value in settings.items() if key != "hooks"}
    return {**rest, "hooks": events} if events else rest


@given(settings_values, agents)
def test_removing_gives_the_settings_of_before(settings: dict[str, Any], agent: str) -> None:
    kept = copy.deepcopy(settings)
    groups = hook_groups(agent, ["/bin/noctuary"])
    added = add_hooks(settings, groups)
    assert is_same_json(add_hooks(added, groups), added)
    assert is_same_json(without_empty(remove_hooks(added)), without_empty(kept))
    assert is_same_json(settings, kept)  # nothing was changed in place


@given(settings_values, agents)
def test_each_event_has_one_of_ours_and_all_others(settings: dict[str, Any], agent: str) -> None:
    wanted = hook_groups(agent, ["/bin/noctuary"])
    added = add_hooks(settings, wanted)
    assert sorted(event for event, _ in list_hooks(added)) == sorted(e.name for e in EVENTS)
    for event, groups in settings.get("hooks", {}).items():
        texts = [json.dumps(group, sort_keys=True) for group in added["hooks"][event]]
        others = [json.dumps(group, sort_keys=True) for group in groups]
        assert [t for t in texts if "/bin/noctuary" not in t] == others
    assert {**added, "hooks": 0} == {**settings, "hooks": 0}
    old = add_hooks(settings, hook_groups(agent, ["/old/noctuary"], "/old"))
    renewed = add_hooks(old, wanted)
    assert is_same_json(renewed, added), "other entries of ours are renewed in their places"
    assert [len(v) for v in renewed["hooks"].values()] == [len(v) for v in old["hooks"].values()]


def test_a_renewed_entry_keeps_its_place_among_the_owners() -> None:
    wanted = hook_groups("claude", ["/bin/noctuary"])
    moved = [{"matcher": "x", "hooks": [FOREIGN, OLD]}, {"hooks": [OLD]}]
    found = add_hooks({"hooks": {"Stop": moved}}, wanted)["hooks"]["Stop"]
    by_text = sorted(found, key=json.dumps)
    assert by_text == sorted([{"matcher": "x", "hooks": [FOREIGN]}, wanted["Stop"]], key=json.dumps)
    between = [{"hooks": [FOREIGN]}, {"hooks": [OLD]}, {"hooks": [FOREIGN]}]
    found = add_hooks({"hooks": {"Stop": between}}, wanted)["hooks"]["Stop"]
    assert found == [{"hooks": [FOREIGN]}, wanted["Stop"], {"hooks": [FOREIGN]}]
    no_longer_ours = {"PreToolUse": [{"hooks": [OLD]}], "Notification": []}
    hooks = add_hooks({"hooks": no_longer_ours}, wanted)["hooks"]
    assert "PreToolUse" not in hooks
    assert hooks["Notification"] == []


def test_what_ours_leave_empty_goes_and_what_the_owner_added_stays() -> None:
    settings = {"a": 1, "hooks": {"Stop": [{"hooks": [OLD]}], "PreCompact": []}}
    assert remove_hooks(settings) == {"a": 1, "hooks": {"PreCompact": []}}
    assert remove_hooks({"hooks": {"Stop": [{"hooks": [OLD]}]}}) == {}
    assert remove_hooks({"a": 1}) == {"a": 1}
    added = add_hooks({}, hook_groups("claude", ["/bin/noctuary"]))
    added["hooks"]["Stop"][0]["hooks"].append(FOREIGN)
    added["hooks"]["PreToolUse"] = [{"hooks": [FOREIGN]}]
    assert remove_hooks(added) == {
        "hooks": {"Stop": [{"hooks": [FOREIGN]}], "PreToolUse": [{"hooks": [FOREIGN]}]}
    }


@pytest.mark.parametrize(
    ("hooks", "says"),
    [
        ([], '"hooks" holds an array'), (None, '"hooks" holds null'), (True, "true or false"),
        (3, "a number"), ({"Stop": {}}, '"hooks.Stop" holds an object'),
        ({"Stop": "x"}, '"hooks.Stop" holds text'),
    ],
)  # fmt: skip
def test_another_type_is_refused_with_a_sentence(hooks: Any, says: str) -> None:
    with pytest.raises(HookInstallError, match=says) as refused:
        add_hooks({"hooks": hooks}, hook_groups("claude", ["/bin/noctuary"]))
    assert "nothing was changed" in str(refused.value)


@pytest.mark.parametrize(
    "hooks", [[], None, {"Stop": {}}, {"Stop": [1, {}, {"hooks": 1}]}, {"PreToolUse": 7}]
)
def test_other_forms_are_passed_over_when_looking(hooks: Any) -> None:
    assert list_hooks({"hooks": hooks}) == []
    assert remove_hooks({"hooks": hooks}) == {"hooks": hooks}


ONLY_NOCTUARY = ("/opt/my tools/noctuary",)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("store", [None, "/data/my store"])
def test_every_entry_is_as_published_and_gives_its_words(agent: str, store: str | None) -> None:
    groups = hook_groups(agent, ONLY_NOCTUARY, store)
    assert hook_faults(agent, {event: [group] for event, group in groups.items()}) == []
    assert set(groups) == {
        "UserPromptSubmit", "SessionStart", "PreCompact", "PostCompact", "Stop", "SessionEnd",
    }  # fmt: skip
    for group in groups.values():
        command = read_command(group["hooks"][0])
        assert command is not None
        assert command.program == ONLY_NOCTUARY
        assert command.arguments == ("--agent", agent, *(("--store", store) if store else ()))
        assert (command.store, command.is_there) == (store, False)


def test_claude_gets_no_shell_and_codex_a_quoted_line() -> None:
    (claude,) = hook_groups("claude", ONLY_NOCTUARY)["Stop"]["hooks"]
    assert claude["command"] == ONLY_NOCTUARY[0]
    assert claude["args"] == ["hook", "--agent", "claude"]
    # Claude Code leaves hooks that run in the background undone when `claude -p` ends.
    assert "async" not in claude
    (codex,) = hook_groups("codex", ONLY_NOCTUARY)["Stop"]["hooks"]
    assert shlex.split(codex["command"]) == [*ONLY_NOCTUARY, "hook", "--agent", "codex"]
    assert not {"async", "args"} & codex.keys()
    assert "compact" in hook_groups("claude", ONLY_NOCTUARY)["SessionStart"]["matcher"].split("|")
    seconds = {event.name: event.timeout_s for event in EVENTS}
    assert seconds["UserPromptSubmit"] <= 30  # Claude ends it then, and says nothing
    assert seconds["SessionEnd"] <= 1.5  # shared by all such hooks of Claude


COMMANDS: dict[str, list[tuple[Any, ...]]] = {
    "of-other-versions": [
        ("noctuary hook --agent claude",), ("'/opt/my tools/noctuary' hook",),
        ("C:/tools/noctuary.exe", ["hook"]),
        ("/usr/bin/python3.12 -m noctuary.cli.entry hook --agent x",),
        ("python", ["-m", "noctuary", "hook"]),
    ],
    "of-its-owner": [
        ("",), ("noctuary",), ("noctuary recall hook",), ("noctuary", ["recall", "hook"]),
        ("noctuary", ["hook", 1]), ("noctuary hook '",), ("notnoctuary hook",),
        ("my-noctuary hook",), ("nice noctuary hook",), ("python -m other hook",),
        ("ruby -m noctuary hook",), (5, ["hook"]),
    ],
}  # fmt: skip


@pytest.mark.parametrize("whose", COMMANDS)
def test_entries_of_other_versions_are_ours_and_what_the_owner_wrote_is_not(whose: str) -> None:
    for command in COMMANDS[whose]:
        entry = dict(zip(("command", "args"), command, strict=False))
        found = read_command({"type": "command", **entry, "timeout": 9})
        assert (found is not None) == (whose == "of-other-versions"), entry
    for entry in (None, "noctuary hook", {}, {"type": "command"}):
        assert read_command(entry) is None
    assert read_command({"type": "prompt", "command": "noctuary hook"}) is None


def test_the_program_is_found_by_its_full_path() -> None:
    program = find_program()
    assert program[0].startswith("/")
    assert Path(program[0]).exists()
    assert read_command({"type": "command", "command": shlex.join([*program, "hook"])})


def test_without_an_executable_nothing_of_the_project_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook runs in whatever folder the agent works in, with whatever modules lie there."""
    python = sys.executable
    (tmp_path / "python").symlink_to(python)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    program = find_program()
    assert read_command({"type": "command", "command": shlex.join([*program, "hook"])})
    (tmp_path / "project" / "noctuary").mkdir(parents=True)
    for name in ("noctuary/__init__.py", "json.py"):
        (tmp_path / "project" / name).write_text("print('taken over')")
    words = [python, *program[1:], "hook"]
    ran = subprocess.run(words, cwd=tmp_path / "project", input=b"{}", capture_output=True,
                         check=True)  # fmt: skip
    assert b"taken over" not in ran.stdout + ran.stderr


def test_an_unknown_agent_an_empty_program_and_a_path_that_is_no_utf8_are_refused() -> None:
    with pytest.raises(ValueError, match="cursor"):
        hook_groups("cursor", ONLY_NOCTUARY)
    with pytest.raises(ValueError, match="words"):
        hook_groups("claude", ())
    with pytest.raises(HookInstallError, match="not UTF-8"):
        require_utf8("/opt/\udcff/noctuary")


PLUGGED = ("/opt/my tools/noctuary",)


@pytest.mark.parametrize(
    "program", [PLUGGED, ("noctuary",), ("/usr/bin/python3", "-m", "noctuary")]
)
@pytest.mark.parametrize("store", [None, "/data/ä store"])
def test_every_file_has_the_published_form(program: tuple[str, ...], store: str | None) -> None:
    files = plugin_files(program, store)
    assert plugin_faults(files) == []
    assert list(files) == sorted(files)
    server = json.loads(files["noctuary/.mcp.json"])["mcpServers"]["noctuary"]
    assert [server["command"], *server["args"]][: len(program) + 1] == [*program, "mcp"]
    assert ("--store" in server["args"]) == (store is not None)
    assert all(text.endswith("\n") for text in files.values())
    manifests = {a: json.loads(files[f"noctuary/.{a}-plugin/plugin.json"]) for a in AGENTS}
    assert {manifest["version"] for manifest in manifests.values()} == {__version__}
    codex = manifests["codex"]["hooks"].removeprefix("./")
    assert "--agent codex" in files[f"noctuary/{codex}"], "each agent reads hooks of its own"
    assert '"claude"' in files["noctuary/hooks/hooks.json"]
    assert "codex" not in files["noctuary/hooks/hooks.json"]


def test_writing_again_writes_nothing(tmp_path: Path) -> None:
    files = plugin_files(PLUGGED)
    folder = tmp_path / "plugin"
    assert len(write_plugin(folder, files)) == len(files)
    times = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    assert write_plugin(folder, files) == ()
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == times
    newer = plugin_files(("/new/noctuary",))
    changed = write_plugin(folder, newer)
    assert {p.name for p in changed} == {"hooks.json", "codex.json", ".mcp.json"}


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.md").write_text("mine")
    with pytest.raises(HookInstallError, match="holds more than"):
        write_plugin(folder, plugin_files(PLUGGED))
    assert [p.name for p in folder.iterdir()] == ["notes.md"]
    with pytest.raises(HookInstallError, match="not a folder"):
        write_plugin(folder / "notes.md", plugin_files(PLUGGED))
    path = tmp_path / "theirs" / "noctuary" / ".claude-plugin" / "plugin.json"
    path.parent.mkdir(parents=True)
    for manifest in ("[]", "{", '{"name": "other"}', "[" * 100_000):
        path.write_text(manifest)
        with pytest.raises(HookInstallError, match="holds more than"):
            write_plugin(tmp_path / "theirs", plugin_files(PLUGGED))


RUNS = (sys.executable, "-m", "noctuary")


@pytest.fixture
def settings(tmp_path: Path) -> SettingsPlace:
    return SettingsPlace("claude", "user", tmp_path / "settings.json")


def test_installed_and_taken_out(settings: SettingsPlace, tmp_path: Path) -> None:
    assert look_at_place(settings).state == ABSENT
    settings.path.write_text('{"hooks": {"Stop": [{"hooks": []}]}}')
    assert look_at_place(settings).state == ABSENT
    install_hooks(settings, RUNS, home=tmp_path, store="/s")
    found = look_at_place(settings)
    assert (found.state, found.store, found.message) == (INSTALLED, "/s", "")
    assert len(found.events) == 6
    uninstall_hooks(settings, home=tmp_path)
    assert look_at_place(settings).state == ABSENT


def test_a_program_that_is_gone_is_broken(settings: SettingsPlace, tmp_path: Path) -> None:
    program = tmp_path / "noctuary"
    install_hooks(settings, (str(program),), home=tmp_path)
    found = look_at_place(settings)
    assert found.state == BROKEN
    assert "hooks install --agent claude --user" in found.message
    program.write_text("#!/bin/sh\n")
    assert look_at_place(settings).state == BROKEN  # not executable
    program.chmod(0o755)
    assert look_at_place(settings).state == INSTALLED


def test_others_are_outdated_disabled_or_unreadable(
    settings: SettingsPlace, tmp_path: Path
) -> None:
    install_hooks(settings, RUNS, home=tmp_path)
    text = settings.path.read_text()
    value = json.loads(text)
    fewer = {event: group for event, group in value["hooks"].items() if event != "PreCompact"}
    for changed, state in (
        (text.replace('"timeout": 10', '"timeout": 7', 1), OUTDATED),
        (text.replace("startup|", "", 1), OUTDATED),
        (json.dumps({**value, "hooks": fewer}), OUTDATED),
        (json.dumps({**value, "disableAllHooks": True}), DISABLED),
        ("{", UNREADABLE),
    ):
        settings.path.write_text(changed)
        found = look_at_place(settings)
        assert found.state == state
    assert "not valid JSON" in found.message


def test_every_place_is_looked_at_once_and_projects_by_their_receipts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    install_hooks(find_place("codex", "project", there), RUNS, home=home)
    own = [(agent, scope, ABSENT) for agent in AGENTS for scope in ("user", "project")]
    states = [(s.agent, s.scope, s.state) for s in look_at_places(home, here)]
    assert states == [*own, ("codex", "project", INSTALLED)]
    paths = [s.path for s in look_at_places(home, there)]
    assert paths.count(str(there / ".codex/hooks.json")) == 1
    receipts_path(home).write_text('{"version": 99}')
    assert len(look_at_places(home, here)) == 4
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(here / ".claude"))
    monkeypatch.setenv("CODEX_HOME", str(here / ".codex"))
    assert [(s.agent, s.scope) for s in look_at_places(home, here)] == [(a, "user") for a in AGENTS]


def test_the_users_files_lie_where_the_variables_say(tmp_path: Path) -> None:
    environ = {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "~/x"}
    assert find_place("claude", "user", tmp_path, environ).path == Path("/c/settings.json")
    assert find_place("codex", "user", tmp_path, environ).path == Path.home() / "x/hooks.json"
    assert find_place("claude", "user", tmp_path, {}).path == Path.home() / ".claude/settings.json"
    project = find_place("claude", "project", tmp_path, environ).path
    assert project == tmp_path / ".claude" / "settings.json"
    with pytest.raises(ValueError, match="cursor"):
        find_place("cursor", "user", tmp_path)


def test_a_switched_on_plugin_is_found(tmp_path: Path, home: Path) -> None:
    claude, codex = tmp_path / "claude" / "settings.json", tmp_path / "codex" / "config.toml"
    for agent in ("claude", "codex"):
        assert not is_used(agent)
        assert enabled_plugin(agent, tmp_path) is None
    claude.parent.mkdir()
    codex.parent.mkdir()
    claude.write_text('{"enabledPlugins": {"noctuary@local": true, "other@x": true}}')
    codex.write_text('[plugins."noctuary@local"]\nenabled = true\n')
    assert is_used("claude")
    assert enabled_plugin("claude", tmp_path) == claude
    assert enabled_plugin("codex", tmp_path) == codex
    claude.write_text('{"enabledPlugins": {"noctuary@local": false, "noctuarian@local": true}}')
    codex.write_text('[plugins."noctuary@local"]\nenabled = false\n')
    for agent in ("claude", "codex"):
        assert enabled_plugin(agent, tmp_path) is None


def test_damaged_files_hold_no_plugin(tmp_path: Path, home: Path) -> None:
    for agent, name in (("claude", "settings.json"), ("codex", "config.toml")):
        (tmp_path / agent).mkdir()
        for text in ("{", "plugins = 3", "[plugins]\nnoctuary = 3", "\xff"):
            (tmp_path / agent / name).write_text(text, encoding="latin-1")
            assert enabled_plugin(agent, tmp_path) is None
