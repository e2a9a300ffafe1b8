"""What a result was measured on: commit, libraries, machine. Identity only, no measurement."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from noctuary.evaluate.run import describe_code, library_versions

RESULTS = "docs/benchmarks"


def describe_run() -> dict[str, Any]:
    """Return commit, machine and library versions of this process; no path, no user name."""
    return {
        **describe_code(Path(__file__), RESULTS),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        # A busy machine stretches every time below; ratios and minima suffer less.
        "load_average_1m": round(os.getloadavg()[0], 2),
        "libraries": library_versions(),
    }
