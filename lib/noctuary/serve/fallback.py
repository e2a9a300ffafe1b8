"""The note of the last fallback worth knowing: written by clients, read by `noctuary doctor`.

Best effort: a client that cannot write it recalls all the same. No text of a query is in it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.foreign_json import parse_json
from noctuary.serve.place import Place, directory_fault
from noctuary.serve.protocol import Refusal

ORDINARY = frozenset({"absent", "invalid"})
"""Codes not worth a note: no server was started; the recall itself refuses such arguments too."""


class Fallback(NamedTuple):
    """Why a client recalled without the server, and when (seconds since the epoch)."""

    code: str
    message: str
    at_s: float


def note_fallback(place: Place, refusal: Refusal) -> None:
    """Keep a reason worth knowing in place of the one before. Never raises."""
    if refusal.code in ORDINARY:
        return
    temporary = place.fallback.with_suffix(f".{os.getpid()}.tmp")
    try:
        if directory_fault(place.directory) is not None:
            return
        _write(temporary, json.dumps({**refusal.to_json(), "at_s": time.time()}))
        temporary.replace(place.fallback)
    except OSError:
        return


def read_fallback(place: Place) -> Fallback | None:
    """Return the last note; None if there is none that can be read."""
    try:
        found: Any = parse_json(place.fallback.read_text(encoding="utf-8"))
        return Fallback(str(found["code"]), str(found["message"]), float(found["at_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(path: Path, text: str) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as handle:  # noqa: PTH123 (a descriptor with its mode)
        handle.write(text)
