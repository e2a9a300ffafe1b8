"""Measuring processes, each started anew: what it printed as JSON, or what it used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench.datasets import CHECKOUT
from noctuary.core.errors import StoreError

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""What a manifest says of the environment of these processes."""


def run_in_child(command: Sequence[str]) -> str:
    """Run Python with these words in the checkout and return what it printed.

    Raises:
        StoreError: If it fails, with the end of what it said.
    """
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=CHECKOUT,
        env={**os.environ, **ONE_THREAD},
    )
    if done.returncode != 0:
        raise StoreError(f"{' '.join(command[:2])} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def measure_in_child(command: Sequence[str]) -> dict[str, Any]:
    """Run a child and return the JSON object of its last line; raises as `run_in_child`."""
    return json.loads(run_in_child(command).strip().splitlines()[-1])


def wait_for(child: subprocess.Popen[Any]) -> dict[str, Any]:
    """Wait until a process ends; return what it and all that it waited for used.

    The peak is that of the largest process, and never below that of this one, which Linux counts
    until a child has become its program. What a process forgets of its own (`work.measure` does
    before each stage) is not in it.
    """
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = round(used.ru_utime + used.ru_stime, 2)
    return {"cpu_s": cpu_s, "peak_rss_bytes": used.ru_maxrss * 1024}
