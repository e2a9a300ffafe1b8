"""A throw-away PostgreSQL server for tests: its own data directory, loopback only.

`python -m tests.support.postgres` installs the Debian package where there is no server and this
user may; `make test` does so. Without a server the tests that need one skip and say why.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "tide-and-harbour"
"""Of every user that connects over TCP; over the socket none is asked for."""

PACKAGE = "postgresql"
VECTOR_PACKAGES = ("postgresql-{}-pgvector",)

_START_TIMEOUT_S = 30
_RUNNERS = ("postgres", "nobody")  # users that may run it where the tests run as root
_OWN_CLUSTERS = Path("/etc/postgresql-common/createcluster.conf")


@dataclass(frozen=True)
class Cluster:
    """A running server; its superuser is `tester`."""

    directory: Path
    port: int

    def dsn(self, database: str) -> str:
        """Return the address of a database over the server's socket; no password is needed."""
        return f"postgresql://tester@/{database}?host={self.directory}&port={self.port}"

    def tcp_dsn(
        self, database: str, *, password: str | None = PASSWORD, port: int | None = None
    ) -> str:
        """Return the address of a database over TCP, where a password is asked for."""
        secret = "" if password is None else f":{password}"
        return f"postgresql://tester{secret}@127.0.0.1:{port or self.port}/{database}"


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


def install_commands(version: str | None) -> list[list[str]]:
    """Return what installs the server, or pgvector for a server that is there.

    Args:
        version: Of the server that is there, or None.
    """
    wanted = [PACKAGE] if version is None else [x.format(version) for x in VECTOR_PACKAGES]
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *wanted]
    return [["apt-get", "update", "--quiet"], install]


def install_server() -> str:
    """Install the Debian package of the server, and pgvector where there is one; say what was done.

    Never fails: what is missing then is said by the tests that skip.
    """
    said: list[str] = []
    if find_binaries() is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            return "no PostgreSQL server, and this user may not install one: its tests skip"
        if not _OWN_CLUSTERS.exists():
            # The package would start a server of its own on the usual port.
            _OWN_CLUSTERS.parent.mkdir(parents=True, exist_ok=True)
            _OWN_CLUSTERS.write_text("create_main_cluster = false\n", encoding="utf-8")
        said.append("server installed" if _apt(install_commands(None)) else "server not installed")
    version = server_version()
    if version is not None and not has_vector_package(version) and os.geteuid() == 0:
        known = _packages(install_commands(version)[1][4:])
        if known and _apt(install_commands(version)):
            said.append("pgvector installed")
        else:
            said.append("no package of pgvector here: its columns are stood in for")
    return "; ".join(said) or "a PostgreSQL server is there"


def server_version() -> str | None:
    """Return the major version of the server that the tests run, or None."""
    binaries = find_binaries()
    if binaries is None:
        return None
    shown = subprocess.run(
        [binaries["postgres"], "--version"], capture_output=True, text=True, check=True
    )
    return shown.stdout.split()[2].split(".")[0]


def has_vector_package(version: str) -> bool:
    """Say whether pgvector is installed for a version of the server."""
    return Path(f"/usr/share/postgresql/{version}/extension/vector.control").exists()


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
    with tempfile.TemporaryDirectory(prefix="noctuary-pg-") as name:
        directory = Path(name)
        data, secret = directory / "data", directory / "password"
        secret.write_text(PASSWORD, encoding="utf-8")
        if runner.user is not None:
            shutil.chown(directory, runner.user)
            shutil.chown(secret, runner.user)
        command = [binaries["initdb"], "-D", str(data), "-U", "tester", f"--pwfile={secret}"]
        command += ["--auth-local=trust", "--auth-host=scram-sha-256"]
        _run([*command, "--no-sync", "-E", "UTF8", "--locale=C"], directory, runner)
        started = Cluster(directory, _free_port())
        process = _start([binaries["postgres"], "-D", str(data), *_options(started)], runner)
        try:
            _wait(started, process)
            yield started
        finally:
            process.terminate()
            process.wait(_START_TIMEOUT_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _options(started: Cluster) -> list[str]:
    settings = [
        "listen_addresses=127.0.0.1",
        f"port={started.port}",
        f"unix_socket_directories={started.directory}",
        "fsync=off",
    ]
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


def _packages(names: Sequence[str]) -> bool:
    """Say whether apt knows every one of some packages."""
    shown = subprocess.run(
        ["apt-cache", "show", *names], capture_output=True, text=True, check=False
    )
    return shown.returncode == 0 and bool(shown.stdout.strip())


def _apt(commands: list[list[str]]) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return all(
        subprocess.run(command, env=environment, check=False).returncode == 0
        for command in commands
    )


if __name__ == "__main__":
    sys.stdout.write(f"{install_server()}\n")
