"""A throw-away PostgreSQL server for tests: its own data directory, a Unix socket, no TCP port."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_START_TIMEOUT_S = 30
_RUNNERS = ("postgres", "nobody")  # users that may run it where the tests run as root


@dataclass(frozen=True)
class Cluster:
    """A running server; `dsn` of any of its databases works without a password."""

    directory: Path

    def dsn(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://tester@/{database}?host={self.directory}"


@dataclass(frozen=True)
class Runner:
    """Whom a process runs as; None and None leave it as it is."""

    user: str | None = None
    group: int | None = None
    groups: list[int] | None = None


def find_binaries() -> dict[str, str] | None:
    """Return the paths of initdb and postgres, or None where there is no server."""
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    path = os.pathsep.join([os.environ.get("PATH", ""), *map(str, places)])
    found = {name: shutil.which(name, path=path) for name in ("initdb", "postgres")}
    return {k: v for k, v in found.items() if v} if all(found.values()) else None


def find_runner() -> Runner | None:
    """Return whom to run it as, or None where there is nobody: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return Runner()
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in _RUNNERS:
        if name in known:
            return Runner(name, known[name].pw_gid, [])
    return None


@contextmanager
def cluster() -> Generator[Cluster]:
    """Run a server for the block.

    Raises:
        RuntimeError: There is none on this machine, or it does not start; says which.
    """
    binaries, runner = find_binaries(), find_runner()
    if binaries is None or runner is None:
        raise RuntimeError("no PostgreSQL server (initdb, postgres), or no user to run it as")
    # Not pytest's own directory: another user may not look into it. A socket's path is short.
    with tempfile.TemporaryDirectory(prefix="mnemon-pg-") as name:
        directory = Path(name)
        if runner.user is not None:
            shutil.chown(directory, runner.user)
        data = directory / "data"
        command = [binaries["initdb"], "-D", str(data), "-U", "tester", "-A", "trust"]
        _run([*command, "--no-sync", "-E", "UTF8", "--locale=C"], directory, runner)
        process = _start([binaries["postgres"], "-D", str(data), *_options(directory)], runner)
        try:
            _wait(Cluster(directory), process)
            yield Cluster(directory)
        finally:
            process.terminate()
            process.wait(_START_TIMEOUT_S)


def _options(directory: Path) -> list[str]:
    settings = ["listen_addresses=", f"unix_socket_directories={directory}", "fsync=off"]
    return [word for setting in settings for word in ("-c", setting)]


def _run(command: list[str], directory: Path, runner: Runner) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        user=runner.user,
        group=runner.group,
        extra_groups=runner.groups,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()}")


def _start(command: list[str], runner: Runner) -> subprocess.Popen[bytes]:
    quiet = subprocess.DEVNULL
    return subprocess.Popen(
        command,
        cwd="/",
        stdout=quiet,
        stderr=quiet,
        user=runner.user,
        group=runner.group,
        extra_groups=runner.groups,
    )


def _wait(started: Cluster, process: subprocess.Popen[bytes]) -> None:
    import psycopg

    deadline = time.monotonic() + _START_TIMEOUT_S
    while True:
        try:
            psycopg.connect(started.dsn("postgres")).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the PostgreSQL server did not start") from None
            time.sleep(0.02)
        else:
            return
