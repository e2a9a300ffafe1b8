"""Which state of the source the last night read, for the sensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from noctuary.core.errors import NoctuaryError
from noctuary.core.files import write_text
from noctuary.core.store import StorePaths
from noctuary.sources.source import read_marker
from noctuary_pipelines.site import Site


def mark_start(site: Site) -> None:
    """Note the state of the source as a night begins, before it reads anything.

    What changes while it reads belongs to the next night. A source that cannot be looked at is left
    to the night, which says what is wrong with it.
    """
    try:
        marker = read_marker(site.source, site.settings)
    except (NoctuaryError, OSError):
        return
    write_text(site.paths.source_marker, json.dumps({"marker": marker}) + "\n")


def read_completed_marker(paths: StorePaths) -> str | None:
    """Return the source's marker at the beginning of the last night, if that night went through.

    A night that went through touches `LAST_NIGHT` after it made its mark.
    """
    try:
        if _changed_ns(paths.last_night) < _changed_ns(paths.source_marker):
            return None
        raw: Any = json.loads(paths.source_marker.read_text(encoding="utf-8"))
        marker = raw["marker"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return marker if isinstance(marker, str) else None


def _changed_ns(path: Path) -> int:
    return path.stat().st_mtime_ns
