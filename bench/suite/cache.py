"""Finished runs on disk, one file per set, scope and arm, so that a stopped suite goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from noctuary.core.errors import SourceError
from noctuary.evaluate.run import Run, read_run, write_run


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run and what it cost.

    Attributes:
        key: Digest of everything that it depends on.
        run: Rankings, scores and times.
        seconds: Wall time, index building and warm-up included.
        warnings: Degradations met, by code: an arm with a missing leg is not what its name says.
    """

    key: str
    run: Run
    seconds: float
    warnings: Mapping[str, int] = field(default_factory=dict[str, int])


def run_path(directory: Path, scope: str, arm: str) -> Path:
    """Return the file of an arm in a scope."""
    return directory / scope / f"{arm}.json"


def write_finished(path: Path, finished: FinishedRun) -> None:
    """Write a run at once; a file is whole or not there."""
    manifest = {
        "key": finished.key,
        "seconds": round(finished.seconds, 3),
        "warnings": dict(finished.warnings),
    }
    write_run(path, finished.run, manifest)


def read_finished(path: Path, key: str) -> FinishedRun | None:
    """Return the run of a file if it was made under this key.

    A missing, stale or damaged file is None: the arm simply runs again.
    """
    try:
        run, manifest = read_run(path)
    except SourceError:
        return None
    if manifest.get("key") != key:
        return None
    return FinishedRun(key, run, float(manifest["seconds"]), manifest["warnings"])
