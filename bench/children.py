"""Measuring processes: each starts anew, with one BLAS thread, and prints its result as JSON.

What belongs here: starting one and reading what it says. What does not: what it measures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench.datasets import CHECKOUT
from mnemon.errors import StoreError

ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""What a manifest says of the environment of these processes."""


def measure_in_child(command: Sequence[str]) -> dict[str, Any]:
    """Run Python with these words in the checkout and return the JSON object of its last line.

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
    return json.loads(done.stdout.strip().splitlines()[-1])
