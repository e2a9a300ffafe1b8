"""Who lives all year: a process that asks, one that forks each night, and a warm server."""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.children import ONE_THREAD
from bench.datasets import CHECKOUT

PRELOADED = (
    *("noctuary_pipelines.definitions", "noctuary_pipelines.resources", "alembic.command"),
    *("lance_namespace", "matplotlib.backends.backend_agg", "matplotlib.figure", "jinja2"),
    *("duckdb", "tokenizers", "rich.console", "upath.core", "numpy", "pydantic", "structlog"),
    *("sqlalchemy.dialects.sqlite", "alembic.runtime.migration", "watchdog.observers"),
    *("dagster._core.execution.execute_in_process", "dagster._core.executor.in_process"),
    *("dagster._core.storage.sqlite_storage", "dagster._core.instance.factory"),
    *("dagster._core.storage.schedules", "dagster._core.storage.noop_compute_log_manager"),
    *("noctuary.cli.main", "noctuary.recall.phases", "noctuary.embed.lean", "scipy.stats"),
)
"""What a night imports and takes long, without the libraries that start threads at import: no
thread survives a fork, and what it held stays locked."""


class Resident:
    """A function of this module that answers orders, a JSON line each, in a process of its own."""

    def __init__(self, function: str, environ: Mapping[str, str]) -> None:
        code = f"from bench.year.residents import {function}; {function}()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=CHECKOUT, env={**environ, **ONE_THREAD},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def ask(self, **order: Any) -> dict[str, Any]:
        """Give an order and return what comes of it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()


def look_at(pid: int | str) -> dict[str, int]:
    """Return memory, descriptors, mappings and threads of a process."""
    of = Path("/proc", str(pid))
    pages = int((of / "statm").read_text().split()[1])
    return {
        "rss_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(list((of / "fd").iterdir())),
        "maps": len((of / "maps").read_text().splitlines()),
        "threads": len(list((of / "task").iterdir())),
    }


def answer_questions() -> None:
    """Ask questions of a store, as often as ordered, and tell what it cost."""
    from noctuary import recall

    for line in sys.stdin:
        order = json.loads(line)
        cpu_ms, wall_ms, found = list[float](), list[float](), 0
        for question in order["questions"]:
            cpu, wall = time.process_time(), time.perf_counter()
            found += bool(recall(question, 3, store=order["store"]).memories)
            cpu_ms.append((time.process_time() - cpu) * 1000)
            wall_ms.append((time.perf_counter() - wall) * 1000)
        told = {"cpu_ms": statistics.median(cpu_ms), "wall_ms": statistics.median(wall_ms)}
        _say({**told, "answered": found, **look_at("self")})


def fork_commands() -> None:
    """Run commands of noctuary in forks of this process, which has imported what a night needs."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is loaded once is not searched for garbage in every night
    threads = look_at("self")["threads"]
    assert threads == 1, f"{threads} threads at the fork: one of {PRELOADED} starts its own"
    for line in sys.stdin:
        order = json.loads(line)
        began = time.perf_counter()
        child = os.fork()
        if child == 0:
            _become(order["words"], order["environ"], order["out"])
            return
        _, status, used = os.wait4(child, 0)
        _say({
            "code": os.waitstatus_to_exitcode(status),
            "cpu_s": used.ru_utime + used.ru_stime,
            "wall_s": time.perf_counter() - began,
            "rss_bytes": used.ru_maxrss * 1024,
        })  # fmt: skip


def _say(told: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def _become(words: Sequence[str], environ: Mapping[str, str], out: str) -> None:
    os.environ.update(environ)
    for file, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, f"{out}.err", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, file)
        os.close(opened)
    sys.argv = ["noctuary", *words]
    runpy.run_module("noctuary.cli.entry", run_name="__main__", alter_sys=True)
