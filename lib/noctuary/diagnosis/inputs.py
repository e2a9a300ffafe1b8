"""What `noctuary doctor` says about what a night reads: the source, and the agents' transcripts.

What belongs here: whether they can be reached. What does not: what is in them.
"""

from __future__ import annotations

import os
from pathlib import Path

from noctuary.diagnosis.finding import Finding
from noctuary.errors import StoreError
from noctuary.locate import expand_user
from noctuary.snapshot.manifest import Manifest
from noctuary.transcripts.discovery import is_transcripts


def look_at_source(manifest: Manifest) -> Finding:
    """Return whether the source that a snapshot was made from can be read."""
    location = Path(str(manifest.source.get("location", "")))
    fault = _reading_fault(location)
    if fault is None:
        return Finding("source", "ok", f"{location} can be read")
    return Finding(
        "source", "warn", f"{location} {fault}",
        "the next night cannot run; recall still answers. Put it back, or set source.path",
    )  # fmt: skip


def look_at_transcripts(path: str) -> Finding:
    """Return whether the agents' transcripts can be read.

    Args:
        path: The setting transcripts.path, "" for none.
    """
    if not path:
        return Finding(
            "transcripts", "ok", "no folder is set: only what the Stop hook keeps is remembered"
        )
    remedy = "correct transcripts.path: agents delete old transcripts, unread or not"
    try:
        place = expand_user(path)
    except StoreError as error:
        return Finding("transcripts", "warn", str(error), remedy)
    fault = _reading_fault(place)
    if fault is not None:
        return Finding("transcripts", "warn", f"{place} {fault}", remedy)
    if not is_transcripts(place):
        return Finding("transcripts", "warn", f"{place} holds no transcript of an agent", remedy)
    return Finding("transcripts", "ok", f"{place} can be read")


def _reading_fault(path: Path) -> str | None:
    """Return why a file or folder cannot be read, None if it can; nothing in it is kept open."""
    try:
        if path.is_dir():
            os.scandir(path).close()
        elif path.is_file():
            path.open("rb").close()
        else:
            return "is no file and no folder" if path.exists() else "is gone"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None
