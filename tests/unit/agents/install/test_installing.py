"""Settings files: what is written, what is kept, what is refused."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents import install as installing
from noctuary.agents.client import AGENTS
from noctuary.agents.install import (
    HookInstallError,
    SettingsPlace,
    find_place,
    install_hooks,
    read_receipts,
    read_settings,
    receipts_path,
    remove_hooks,
    uninstall_hooks,
    write_settings,
)
from tests.support.agent_settings import hook_faults, json_layouts, settings_values

PROGRAM = ("/opt/noctuary/bin/noctuary",)
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


def backups(place: SettingsPlace) -> list[Path]:
    return sorted(place.path.parent.glob("*.bak"))


def test_installing_twice_writes_once(place: SettingsPlace, noctuary_home: Path) -> None:
    first = install_hooks(place, PROGRAM, home=noctuary_home)
    written = place.path.read_bytes()
    second = install_hooks(place, PROGRAM, home=noctuary_home)
    assert (first.action, second.action) == ("installed", "unchanged")
    assert place.path.read_bytes() == written
    assert second.diff == ""
    assert second.backup is None
    assert len(backups(place)) == 1
    hooks = json.loads(written)["hooks"]
    assert hook_faults("claude", hooks) == []


def test_the_owners_bytes_stay_and_come_back(place: SettingsPlace, noctuary_home: Path) -> None:
    install_hooks(place, PROGRAM, home=noctuary_home, store="/data/store")
    text = place.path.read_text(encoding="utf-8")
    assert text.startswith('{\n    "model": "opus",\n    "n": [\n        1,\n        2\n    ],')
    assert uninstall_hooks(place, home=noctuary_home).action == "removed"
    assert place.path.read_text(encoding="utf-8") == OWN
    assert uninstall_hooks(place, home=noctuary_home).action == "absent"


def test_the_old_file_is_kept_once(place: SettingsPlace, noctuary_home: Path) -> None:
    change = install_hooks(place, PROGRAM, home=noctuary_home)
    assert change.backup is not None
    assert Path(change.backup).read_text(encoding="utf-8") == OWN
    place.path.write_text(OWN, encoding="utf-8")
    again = install_hooks(place, PROGRAM, home=noctuary_home)
    assert again.backup == change.backup
    assert len(backups(place)) == 1


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


def test_an_empty_file_counts_as_no_settings(place: SettingsPlace, noctuary_home: Path) -> None:
    place.path.write_bytes(b"")
    install_hooks(place, PROGRAM, home=noctuary_home)
    uninstall_hooks(place, home=noctuary_home)
    assert place.path.read_bytes() == b""


@pytest.mark.parametrize("lost", ["missing", "damaged"])
def test_without_the_receipt_every_entry_goes_all_the_same(
    place: SettingsPlace, noctuary_home: Path, lost: str
) -> None:
    place.path.write_text('{"a": 1}')
    install_hooks(place, PROGRAM, home=noctuary_home)
    receipt = receipts_path(noctuary_home)
    receipt.unlink() if lost == "missing" else receipt.write_text('{"version": 1, "installs": [3')
    uninstall_hooks(place, home=noctuary_home)
    assert json.loads(place.path.read_bytes()) == {"a": 1}


def test_an_older_installation_is_renewed_and_still_comes_out(
    place: SettingsPlace, noctuary_home: Path
) -> None:
    place.path.unlink()
    install_hooks(place, ("/old/noctuary",), home=noctuary_home)
    assert install_hooks(place, PROGRAM, home=noctuary_home).action == "renewed"
    assert "/old/noctuary" not in place.path.read_text()
    uninstall_hooks(place, home=noctuary_home)
    assert not place.path.exists()


@pytest.mark.parametrize("undo", [False, True])
def test_a_dry_run_writes_nothing_and_says_the_same(
    place: SettingsPlace, noctuary_home: Path, tmp_path: Path, undo: bool
) -> None:
    if undo:
        install_hooks(place, PROGRAM, home=noctuary_home)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    if undo:
        dry = uninstall_hooks(place, home=noctuary_home, dry_run=True)
    else:
        dry = install_hooks(place, PROGRAM, home=noctuary_home, dry_run=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before
    wet = (
        uninstall_hooks(place, home=noctuary_home)
        if undo
        else install_hooks(place, PROGRAM, home=noctuary_home)
    )
    assert (dry.action, dry.diff) == (wet.action, wet.diff)
    assert dry.diff
    assert dry.dry_run


def test_links_are_followed_and_permissions_stay(tmp_path: Path, noctuary_home: Path) -> None:
    target = tmp_path / "dotfiles" / "settings.json"
    target.parent.mkdir()
    target.write_text("{}\n")
    target.chmod(0o640)
    link = tmp_path / ".claude" / "settings.json"
    link.parent.mkdir()
    link.symlink_to(target)
    change = install_hooks(SettingsPlace("claude", "user", link), PROGRAM, home=noctuary_home)
    assert link.is_symlink()
    assert "UserPromptSubmit" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert change.backup is not None
    assert Path(change.backup).parent == target.parent
    assert stat.S_IMODE(Path(change.backup).stat().st_mode) == 0o640
    assert not list(target.parent.glob("*.tmp"))


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"{", "not valid JSON"),
        (b'{"a": 1} x', "not valid JSON"),
        (b'{"a": 1,}', "not valid JSON"),
        (b'{// mine\n"a": 1}', "JSON has no comments"),
        (b'{"a": NaN}', "NaN is no JSON"),
        (b'{"a": 1, "a": 2}', "appears twice"),
        (b'{"hooks": {"Stop": [], "Stop": []}}', "appears twice"),
        (b"[]", "holds list"),
        (b"null", "holds NoneType"),
        (b'"text"', "holds str"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"hooks": []}', "an array"),
        (b'{"hooks": {"Stop": {}}}', "an object"),
        (b'{"a":' * 200_000, "not"),
        (b"[" * 200_000, "not"),
        (b" " * 8_000_001, "more than"),
    ],
)
def test_a_file_that_is_not_understood_is_refused_and_stays(
    place: SettingsPlace, noctuary_home: Path, raw: bytes, says: str
) -> None:
    place.path.write_bytes(raw)
    with pytest.raises(HookInstallError, match=says):
        install_hooks(place, PROGRAM, home=noctuary_home)
    assert place.path.read_bytes() == raw
    assert [p.name for p in place.path.parent.iterdir()] == [place.path.name]
    assert not noctuary_home.exists()


def test_what_is_no_file_is_refused(place: SettingsPlace, noctuary_home: Path) -> None:
    place.path.unlink()
    place.path.mkdir()
    with pytest.raises(HookInstallError, match="not a regular file"):
        install_hooks(place, PROGRAM, home=noctuary_home)
    place.path.rmdir()
    os.mkfifo(place.path)
    with pytest.raises(HookInstallError, match="not a regular file"):
        install_hooks(place, PROGRAM, home=noctuary_home)
    place.path.unlink()
    place.path.symlink_to(place.path)
    with pytest.raises(HookInstallError, match="cannot be reached"):
        install_hooks(place, PROGRAM, home=noctuary_home)


def test_a_file_that_changes_meanwhile_is_not_overwritten(place: SettingsPlace) -> None:
    before = read_settings(place.path)
    place.path.write_text('{"by": "the agent"}')
    with pytest.raises(HookInstallError, match="changed by another program"):
        write_settings(before, b"{}")
    assert place.path.read_text() == '{"by": "the agent"}'
    assert backups(place) == []


def test_a_failed_replacement_leaves_the_old_file(
    place: SettingsPlace, monkeypatch: pytest.MonkeyPatch, noctuary_home: Path
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        install_hooks(place, PROGRAM, home=noctuary_home)
    assert place.path.read_text(encoding="utf-8") == OWN
    assert [p.name for p in place.path.parent.iterdir()] == [place.path.name]
    assert read_receipts(noctuary_home) == {}


def test_a_byte_order_mark_stays(place: SettingsPlace, noctuary_home: Path) -> None:
    place.path.write_bytes(b"\xef\xbb\xbf" + OWN.encode())
    install_hooks(place, PROGRAM, home=noctuary_home)
    assert place.path.read_bytes().startswith(b"\xef\xbb\xbf{")


def test_both_scopes_at_once_are_told(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    user = install_hooks(find_place("claude", "user", folder), PROGRAM, home=home)
    assert user.notes == ()
    project = install_hooks(find_place("claude", "project", folder), PROGRAM, home=home)
    assert any("both run" in note and str(tmp_path / "claude") in note for note in project.notes)
    assert installing.environment_notes({}) == ()
    assert "start the agent with it" in installing.environment_notes({"NOCTUARY_HOME": "/m"})[0]


def test_switched_off_hooks_are_told(place: SettingsPlace, noctuary_home: Path) -> None:
    place.path.write_text('{"disableAllHooks": true}')
    notes = install_hooks(place, PROGRAM, home=noctuary_home).notes
    assert any("no hook runs" in note for note in notes)


def test_equal_installations_have_equal_receipts(place: SettingsPlace, noctuary_home: Path) -> None:
    install_hooks(place, PROGRAM, home=noctuary_home)
    first = receipts_path(noctuary_home).read_bytes()
    uninstall_hooks(place, home=noctuary_home)
    install_hooks(place, PROGRAM, home=noctuary_home)
    assert receipts_path(noctuary_home).read_bytes() == first


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
