"""The files of a machine's own timer: read back as their readers read them, and nobody else's."""

from __future__ import annotations

import plistlib
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noctuary.cli import schedule
from noctuary.cli.schedule import is_on
from tests.rooms.cli.conftest import Run

RunJson = Callable[..., Any]
HOSTILE = """so urce/%h %% $HOME ${HOME} "q" 'q' \\n \\ ; # é 漢.db"""
_ESCAPES = {"\\\\": "\\", '\\"': '"', "%%": "%", "$$": "$"}


@pytest.fixture
def folder(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("sys.platform", "linux")
    return tmp_path / "config" / "systemd" / "user"


@pytest.fixture
def agent(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    return tmp_path / "user" / "Library" / "LaunchAgents" / "noctuary.night.plist"


def words_of(line: str) -> list[str]:
    """Read a list of a unit as systemd.syntax(7) and systemd.service(5) say."""
    quoted = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
    assert " ".join(f'"{word}"' for word in quoted) == line
    return [re.sub(r'\\\\|\\"|%%|\$\$', lambda m: _ESCAPES[m[0]], word) for word in quoted]


def setting(text: str, name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
    return found


def test_a_timer_runs_the_night_it_was_asked_for(
    run_json: RunJson, folder: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run_json("schedule", "install", HOSTILE, "--store", "a/%s $x", "--at", "3:05")
    service, timer = (folder / f"noctuary-night.{kind}" for kind in ("service", "timer"))
    assert found["written"] == [str(service), str(timer)]
    text = service.read_text("utf-8")
    program, *rest = words_of(setting(text, "ExecStart"))
    assert Path(program).name == "noctuary"
    assert rest == ["nightly", str(tmp_path / HOSTILE), "--store", str(tmp_path / "a/%s $x")]
    assert words_of(setting(text, "Environment")) == [f"NOCTUARY_HOME={home}"]
    assert setting(timer.read_text(), "OnCalendar") == "*-*-* 03:05:00"
    assert "enable --now noctuary-night.timer" in found["switch_on"]
    assert {stat.S_IMODE(p.stat().st_mode) for p in (service, timer)} == {0o600}
    assert (
        run_json("schedule", "install", HOSTILE, "--store", "a/%s $x", "--at", "3:05")["written"]
        == []
    )


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_itself_reads_the_files(
    run: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes what it cannot read for a warning, and names the program it would start."""
    program = tmp_path / "b in/%h %% $HOME ${HOME} ; # é" / "noctuary"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    monkeypatch.setattr(schedule, "find_program", lambda: (str(program),))
    assert run("schedule", "install", HOSTILE).exit_code == 0
    files = sorted(map(str, folder.iterdir()))

    def verify() -> str:
        words = ["systemd-analyze", "--user", "verify", "--man=no", *files]
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        return subprocess.run(words, capture_output=True, text=True, check=False).stderr

    assert f"Command {program} is not executable" in verify()
    program.chmod(0o700)
    assert "noctuary" not in verify()


def test_launchd_reads_the_agent(
    run_json: RunJson, agent: Path, home: Path, tmp_path: Path
) -> None:
    source = str(tmp_path / HOSTILE)
    found = run_json("schedule", "install", source, "--at", "23:59")
    value = plistlib.loads(agent.read_bytes())
    assert value["ProgramArguments"][1:] == ["nightly", source]
    assert value["StartCalendarInterval"] == {"Hour": 23, "Minute": 59}
    assert value["EnvironmentVariables"] == {"NOCTUARY_HOME": str(home)}
    assert value["Label"] == agent.stem
    assert str(agent) in shlex.split(found["switch_on"])
    status = run_json("schedule", "status")
    assert status["files"][0]["says"][1] == "23:59"
    assert status["on"] is True
    assert run_json("schedule", "install", "--undo")["removed"] == [str(agent)]
    assert not agent.exists()


def test_undo_leaves_everything_as_it_was_and_a_dry_run_too(
    run: Run, run_json: RunJson, folder: Path
) -> None:
    others = folder / "timers.target.wants"
    others.mkdir(parents=True)
    (folder / "other.timer").write_text("[Timer]\n")
    (others / "other.timer").symlink_to(folder / "other.timer")
    before = tree(folder)
    dry = run("schedule", "install", "--dry-run")
    assert "OnCalendar=*-*-* 03:00:00" in dry.output
    assert "would be written" in dry.output
    assert tree(folder) == before
    assert run("schedule", "install").exit_code == 0
    assert is_on() is False
    link = others / "noctuary-night.timer"
    link.symlink_to(folder / "noctuary-night.timer")  # as `systemctl --user enable` makes it
    assert is_on() is True
    assert run_json("schedule", "status")["on"] is True
    assert len(run_json("schedule", "install", "--undo", "--dry-run")["removed"]) == 3
    assert link.is_symlink()
    assert len(run_json("schedule", "install", "--undo")["removed"]) == 3
    assert tree(folder) == before
    assert run_json("schedule", "install", "--undo")["removed"] == []
    assert run_json("schedule", "status")["on"] is False


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("undo", [[], ["--undo"]])
@pytest.mark.parametrize("kind", ["timer", "service"])
def test_a_file_of_somebody_else_is_left_alone(
    run: Run, folder: Path, kind: str, undo: list[str]
) -> None:
    path = folder / f"noctuary-night.{kind}"
    path.parent.mkdir(parents=True)
    path.write_text("[Timer]\nOnCalendar=weekly\n")
    said = run("schedule", "install", *undo)
    assert (said.exit_code, "is not noctuary's" in said.output) == (1, True)
    assert [p.name for p in folder.iterdir()] == [path.name]
    path.unlink()
    assert run("schedule", "install").exit_code == 0
    path.write_text(path.read_text().replace("noctuary's", "my"))
    before = tree(folder)
    said = run("schedule", "install", *undo)
    assert (said.exit_code, "was changed since" in said.output) == (1, True)
    assert tree(folder) == before
    assert "changed" in run("schedule", "status").output


def test_another_time_or_source_replaces_the_files(run_json: RunJson, folder: Path) -> None:
    run_json("schedule", "install", "--at", "03:00")
    found = run_json("schedule", "install", "--at", "04:00")
    assert [Path(p).suffix for p in found["written"]] == [".timer"]
    found = run_json("schedule", "install", "env:NO_SUCH", "--at", "04:00")
    assert [Path(p).suffix for p in found["written"]] == [".service"]
    text = (folder / "noctuary-night.service").read_text()
    assert words_of(setting(text, "ExecStart"))[1:] == ["nightly", "env:NO_SUCH"]


def test_a_variable_that_a_timer_would_not_see_is_named(
    run_json: RunJson, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_SOURCE_USER", "ana")
    monkeypatch.setenv("NOCTUARY_STORE", "notes")
    found = run_json("schedule", "install")
    assert any("NOCTUARY_SOURCE_USER is set here only" in note for note in found["notes"])
    assert not any("NOCTUARY_STORE" in note for note in found["notes"])
    text = (folder / "noctuary-night.service").read_text()
    assert words_of(setting(text, "ExecStart"))[1:] == ["nightly", "--store", "notes"]
    assert "ana" not in text


@pytest.mark.parametrize("at", ["24:00", "3", "03:60", "-1:00", "03:30:00", "\u0663:30", "noon"])
def test_no_time_of_day_is_a_wrong_call(run: Run, folder: Path, at: str) -> None:
    said = run("schedule", "install", "--at", at)
    assert (said.exit_code, "no time of day" in said.output) == (2, True)
    assert not folder.exists()


@pytest.mark.parametrize("source", ["a\nExecStart=x", "a\x1b", "a\udcff", "a\x00"])
def test_what_no_file_can_hold_is_refused(run: Run, folder: Path, source: str) -> None:
    assert run("schedule", "install", source).exit_code == 1
    assert not folder.exists()


def test_a_program_that_systemd_would_not_start_is_refused(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/o'brien/noctuary", '/a"b/noctuary', "/a\\b/noctuary"):
        monkeypatch.setattr(schedule, "find_program", lambda path=path: (path,))
        said = run("schedule", "install")
        assert (said.exit_code, "holds a quote" in said.output) == (1, True)
    assert not folder.exists()


def test_another_system_is_told(run: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "freebsd14")
    for command in (["install"], ["install", "--undo"], ["status"]):
        said = run("schedule", *command)
        assert (said.exit_code, "Linux or macOS" in said.output) == (1, True)
    assert is_on() is False
