"""When a night last went through. Read side: standard library only."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from noctuary.files import write_text
from noctuary.snapshot.layout import StorePaths

_HOUR_S = 3600.0


def record_night(paths: StorePaths) -> None:
    """Note that a night went through now, whether it published or not."""
    write_text(paths.last_night, datetime.now(UTC).isoformat(timespec="seconds") + "\n")


def last_night_hours(paths: StorePaths) -> float | None:
    """Return how long ago a night went through, published or not; None if none ever did."""
    try:
        touched = paths.last_night.stat().st_mtime
    except OSError:
        return None
    return max((time.time() - touched) / _HOUR_S, 0.0)
