"""Which snapshot answers: the store that is meant, and its pinned recaller in this process.

What belongs here: finding, pinning, and what is said about how old it is. No ranking.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

from noctuary.locate import find_home, find_store
from noctuary.recall.engine import Recaller
from noctuary.recall.opening import open_serving
from noctuary.recall.result import RecallWarning
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.nights import last_night_hours

STORES_PINNED = 16
"""Stores that one process keeps open, those asked last: a large one holds some forty descriptors,
of the 1,024 that a process usually has. One beyond them is opened again when it is asked, which
takes milliseconds."""


class Serving(NamedTuple):
    """A pinned snapshot and the pointer's state when it was pinned."""

    recaller: Recaller
    pointer_stamp: tuple[int, int]
    warning: RecallWarning | None


_serving: OrderedDict[Path, Serving] = OrderedDict()
_serving_lock = threading.Lock()


def find_serving(store: str | Path | None) -> tuple[Serving, list[RecallWarning]]:
    """Return what serves a store, and what its caller should know about that.

    Raises:
        StoreError: If there is no such store, or nothing published that opens.
        OSError: If the store cannot be read.
    """
    directory, guessed = find_store(store, home=find_home())
    warnings: list[RecallWarning] = []
    if guessed:
        message = (
            f"several stores exist; {directory.name} published last. Pass store= or set "
            "NOCTUARY_STORE"
        )
        warnings.append(RecallWarning("store_guessed", message))
    stamp = _pointer_stamp(directory)
    with _serving_lock:
        known = _serving.get(directory)
        if known is None or known.pointer_stamp != stamp:
            known = _pin(directory, stamp)
            _serving[directory] = known
        _serving.move_to_end(directory)
        while len(_serving) > STORES_PINNED:
            # Its files close when the last recall over it ends.
            _serving.popitem(last=False)
    if known.warning is not None:
        warnings.append(known.warning)
    return known, warnings


def staleness(paths: StorePaths, limit_hours: float) -> list[RecallWarning]:
    """Warn when the last night that went through is too long ago; a clock set back is not stale."""
    hours = last_night_hours(paths)
    if hours is None or limit_hours <= 0 or hours <= limit_hours:
        return []
    message = f"no night went through for {hours:.0f} h: `noctuary doctor` says what to look at"
    return [RecallWarning("stale_snapshot", message)]


def _pin(directory: Path, stamp: tuple[int, int]) -> Serving:
    paths = StorePaths(directory)
    opened = open_serving(paths)
    warning = None
    if opened.fallback_reason is not None:
        warning = RecallWarning(
            "snapshot_fallback",
            f"snapshot {opened.snapshot_id} answers in its place: {opened.fallback_reason}",
        )
    recaller = Recaller(paths, opened.reader, opened.snapshot_id, may_warm=True)
    return Serving(recaller, stamp, warning)


def _pointer_stamp(directory: Path) -> tuple[int, int]:
    try:
        stat = (directory / "CURRENT").stat()
    except FileNotFoundError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_ino)
