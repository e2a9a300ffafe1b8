"""Who is told of a night that failed or did not happen, by real programs and a real server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import dagster as dg
import pytest

from noctuary.core.errors import ConfigError
from noctuary.core.settings import NotifySettings, Settings
from noctuary.core.store import StorePaths
from noctuary_pipelines.notify import NIGHT_FAILED, notify
from noctuary_pipelines.sensors import LATE_S, missed_sensor
from noctuary_pipelines.site import Site

DUE_S = datetime.fromisoformat("2026-11-23T03:00:00+00:00").timestamp()


def site_of(directory: Path, text: str, mode: int = 0o600) -> Site:
    """Return a site whose settings a file of this text sets."""
    file = directory / "noctuary.toml"
    file.write_text(f'[schedule]\ntimezone = "UTC"\n[notify]\n{text}\n')
    file.chmod(mode)
    paths = StorePaths(directory / "store")
    paths.root.mkdir(exist_ok=True)
    return Site(directory, directory / "memory.db", paths, Settings.load(file, environ={}))


@pytest.fixture
def told(tmp_path: Path) -> Path:
    return tmp_path / "told.jsonl"


def command_to(told: Path) -> str:
    """Return a command that appends what it is told to a file."""
    code = f"import sys; open({str(told)!r}, 'a').write(sys.stdin.read() + chr(10))"
    return f"command = {json.dumps(f'{sys.executable} -c {json.dumps(code)}')}"


def said_in(told: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []


def test_a_command_is_told_in_json_and_by_default_nobody(tmp_path: Path, told: Path) -> None:
    assert notify(site_of(tmp_path, ""), NIGHT_FAILED) == []
    assert notify(site_of(tmp_path, command_to(told)), NIGHT_FAILED, status="refused") == []
    (message,) = said_in(told)
    assert datetime.fromisoformat(message.pop("at")).tzinfo is not None
    assert message == {"event": "night_failed", "store": "store", "status": "refused"}


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_runs_nothing(tmp_path: Path, told: Path, mode: int) -> None:
    (fault,) = notify(site_of(tmp_path, command_to(told), mode), NIGHT_FAILED)
    assert "others may write" in fault
    assert not told.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_somebody_else_runs_nothing(tmp_path: Path, told: Path) -> None:
    site = site_of(tmp_path, command_to(told))
    os.chown(tmp_path / "noctuary.toml", 4711, 4711)
    assert len(notify(site, NIGHT_FAILED)) == 1
    assert not told.exists()


@pytest.mark.parametrize(
    ("command", "fault"),
    [("/no/such/program", "cannot be run"), ("false", "ended with code 1"), ("sleep 60", "longer")],
)
def test_a_command_that_fails_is_a_sentence(
    tmp_path: Path, command: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noctuary_pipelines.notify.TIMEOUT_S", 0.5)
    (found,) = notify(site_of(tmp_path, f"command = '{command}'"), NIGHT_FAILED)
    assert fault in found


class _Server(BaseHTTPRequestHandler):
    bodies: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append(json.loads(body))
        self.send_response(500 if self.path == "/broken" else 204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[HTTPServer]:
    _Server.bodies = []
    with HTTPServer(("127.0.0.1", 0), _Server) as found:
        Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def test_a_webhook_is_told_the_same(tmp_path: Path, server: HTTPServer) -> None:
    address = f"http://127.0.0.1:{server.server_port}"
    assert notify(site_of(tmp_path, f"webhook = '{address}/key'"), NIGHT_FAILED, status="x") == []
    (message,) = _Server.bodies
    assert message["status"] == "x"
    (fault,) = notify(site_of(tmp_path, f"webhook = '{address}/broken'"), NIGHT_FAILED)
    assert "HTTP 500" in fault
    assert "127.0.0.1" not in fault


@pytest.mark.parametrize(
    "text",
    ["webhook = 'ftp://x/y'", "webhook = 'file:///etc/passwd'", "webhook = 'https://a:b@x/'",
     "command = \"'unclosed\""],
)  # fmt: skip
def test_what_cannot_be_told_is_a_fault_of_the_settings(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"notify\."):
        site_of(tmp_path, text)


def test_addresses_are_in_no_manifest() -> None:
    assert "notify" not in Settings(notify=NotifySettings(webhook="https://x/key")).to_json()


def test_a_night_that_did_not_happen_is_told_once(tmp_path: Path, told: Path) -> None:
    site = site_of(tmp_path, command_to(told))
    now_s = DUE_S + LATE_S - 1
    sensor = missed_sensor(site.settings.notify, lambda: site, lambda: now_s)
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING

    def look(cursor: str | None = None) -> str | None:
        with dg.DagsterInstance.ephemeral() as instance:
            found: Any = sensor(dg.build_sensor_context(instance, cursor=cursor))
        return getattr(found, "cursor", None)

    # A store that never had a night misses none.
    now_s += 2
    assert look() is None
    site.paths.last_night.touch()
    os.utime(site.paths.last_night, (DUE_S + 5, DUE_S + 5))
    assert look() is None
    os.utime(site.paths.last_night, (DUE_S - 86_000, DUE_S - 86_000))
    now_s -= 2
    assert look() is None
    assert said_in(told) == []
    now_s += 2
    cursor = look()
    assert look(cursor) is None
    (message,) = said_in(told)
    assert (message["event"], message["due"]) == ("night_missed", "2026-11-23T03:00:00+00:00")


def test_a_night_that_began_was_not_missed(tmp_path: Path, told: Path) -> None:
    site = site_of(tmp_path, command_to(told))
    site.paths.last_night.touch()
    os.utime(site.paths.last_night, (1, 1))
    sensor = missed_sensor(site.settings.notify, lambda: site)

    @dg.job(name="nightly")
    def night() -> None:
        """Stand for a night that failed."""

    with dg.DagsterInstance.ephemeral() as instance:
        instance.create_run_for_job(night, status=dg.DagsterRunStatus.FAILURE)
        found: Any = sensor(dg.build_sensor_context(instance))
    assert "has begun" in found.skip_message
    assert said_in(told) == []
