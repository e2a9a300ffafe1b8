"""A real night on a set, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bench.datasets import CHECKOUT
from noctuary.core.errors import StoreError
from noctuary.core.files import write_text

# The suite evaluates what the night built; a night that evaluates as well would do it twice.
NIGHT_ENVIRONMENT = {"NOCTUARY_EVALUATION_ENABLED": "false"}


@dataclass(frozen=True, slots=True)
class NightRecord:
    """What a night came to.

    Attributes:
        status: "published", or "unchanged" where the store already held this corpus.
        seconds: Wall time of the whole process.
        load_average_1m: Load of the machine when it ended.
    """

    status: str
    seconds: float
    load_average_1m: float


def build_store(
    directory: Path, store: Path, log: Path, environment: Mapping[str, str] | None = None
) -> NightRecord:
    """Run the night on a set's folder.

    Args:
        directory: The set.
        store: Where the store is, or will be.
        log: Gets what the night said on standard error.
        environment: Settings of this night beside the process's own.

    Raises:
        StoreError: If the night did not end well; the message is the night's own.
    """
    command = [sys.executable, "-m", "noctuary.cli.entry", "nightly", str(directory)]
    started = time.perf_counter()
    done = subprocess.run(
        [*command, "--store", str(store), "--json"],
        cwd=CHECKOUT,
        env={**os.environ, **NIGHT_ENVIRONMENT, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - started
    write_text(log, done.stderr)
    report = _last_object(done.stdout)
    if done.returncode != 0:
        said = report.get("message") or _last_line(done.stderr) or f"exit {done.returncode}"
        raise StoreError(f"the night on {directory.name} failed: {said} (its log is {log})")
    return NightRecord(str(report.get("status")), seconds, os.getloadavg()[0])


def _last_object(text: str) -> dict[str, Any]:
    """Return the JSON object that ends a command's output, empty if there is none."""
    start = text.find("{")
    try:
        found: object = json.loads(text[start:]) if start >= 0 else {}
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
