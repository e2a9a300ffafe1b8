"""Looking into the store that a snapshot was made of, once per state of the store and process.

What belongs here: whether there is something to look at, what is remembered, and that no failure
gets out. What does not: the look itself (`sqlite_look`, `postgres_look`), judging (`judging`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from noctuary.errors import NoctuaryError
from noctuary.live.found import Limits, Since
from noctuary.live.judging import HoldsMemories, corpus_settings, judge
from noctuary.live.state import UNREACHABLE, LiveState
from noctuary.settings import LiveSettings, SourceSettings
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import Manifest
from noctuary.source_name import DatabaseName, name_source, names_postgres

SETTLED_NS = 50_000_000
"""A store that was written this shortly before a look is looked into again: two writes within one
tick of the file system's clock leave the same time of change."""

ASK_AGAIN_S = 2.0
"""How long the answer of a database, which has no file to look at, is used again; longer shows new
rows later, shorter connects more often."""

KEPT = 32
"""Snapshots whose last look is remembered: a process serves one store, tests many."""

_READ_MARGIN_US = 120_000_000
"""A file last written this long before the night read it holds nothing that the night missed; as
`sqlite_look.LATE_COMMIT_S`."""

_SQLITE, _POSTGRES = "claude-memory-sqlite", "claude-memory-postgres"


class Snapshot(HoldsMemories, Protocol):
    """What a look needs of a snapshot."""

    @property
    def manifest(self) -> Manifest:
        """What it is and what it was made from."""
        ...


class _Looked(NamedTuple):
    stamp: Any
    state: LiveState
    until_s: float


_known: dict[tuple[str, str, LiveSettings], _Looked] = {}
_lock = threading.Lock()


def look_now(
    paths: StorePaths, snapshot: Snapshot, live: LiveSettings, source: SourceSettings
) -> LiveState | None:
    """Return what the store has beyond a snapshot; None where that is nothing.

    Never raises: a store that cannot be looked into is a fault of the state.

    Args:
        paths: Of the store's own directory.
        snapshot: The one that answers.
        live: What the look may take.
        source: Where a database is, and whose rows are read.
    """
    since = _since(snapshot.manifest.source)
    kind = snapshot.manifest.source.get("kind")
    if not live.enabled or since is None or kind not in (_SQLITE, _POSTGRES):
        return None
    key = (str(paths.root), snapshot.manifest.digest, live)
    try:
        if kind == _SQLITE:
            state = _look_at_file(key, paths, snapshot, live, since)
        else:
            state = _look_at_database(key, paths, snapshot, live, source, since)
    # Whatever is wrong with the store, the snapshot answers.
    except Exception as error:
        state = LiveState(faults=((UNREACHABLE, _said(snapshot, error)),))
    if state is None or (state.changes_nothing and not state.faults):
        return None
    return state


def _look_at_file(
    key: tuple[str, str, LiveSettings],
    paths: StorePaths,
    snapshot: Snapshot,
    live: LiveSettings,
    since: Since,
) -> LiveState | None:
    from noctuary.live.sqlite_look import look, stamp_of

    path = Path(str(snapshot.manifest.source["location"]))
    stamp = stamp_of(path)
    written_ns = max((changed_ns for _, changed_ns, _ in stamp), default=time.time_ns())
    if written_ns // 1000 < since.read_us - _READ_MARGIN_US:
        return None
    known = _known.get(key)
    if known is not None and known.stamp == stamp:
        return known.state
    limits = _limits(live)
    now_ns = time.time_ns()
    found = look(path, since, limits)
    state = _judged(found, paths, snapshot, limits)
    if now_ns - written_ns > SETTLED_NS:
        _remember(key, _Looked(stamp, state, 0.0))
    return state


def _look_at_database(
    key: tuple[str, str, LiveSettings],
    paths: StorePaths,
    snapshot: Snapshot,
    live: LiveSettings,
    source: SourceSettings,
    since: Since,
) -> LiveState:
    from noctuary.live.postgres_look import look

    known = _known.get(key)
    if known is not None and time.monotonic() < known.until_s:
        return known.state
    limits = _limits(live)
    try:
        state = _judged(
            look(_database(snapshot, source), source, since, limits), paths, snapshot, limits
        )
    except Exception as error:
        state = LiveState(faults=((UNREACHABLE, _said(snapshot, error)),))
    _remember(key, _Looked(None, state, time.monotonic() + ASK_AGAIN_S))
    return state


def _database(snapshot: Snapshot, source: SourceSettings) -> DatabaseName:
    """Return the database, whose password no manifest holds.

    Raises:
        ConfigError: The settings name another source.
    """
    from noctuary.errors import ConfigError

    location = str(snapshot.manifest.source["location"])
    if names_postgres(source.path):
        named = name_source(source.path)
        if isinstance(named, DatabaseName) and named.display == location:
            return named
    raise ConfigError(f"source.path does not name {location}, which the snapshot was made of")


def _judged(found: Any, paths: StorePaths, snapshot: Snapshot, limits: Limits) -> LiveState:
    settings = corpus_settings(snapshot.manifest.settings.get("corpus", {}))
    return judge(found, snapshot, settings, paths.injections, limits.until_s)


def _limits(live: LiveSettings) -> Limits:
    return Limits(live.max_rows, time.perf_counter() + live.deadline_ms / 1000)


def _since(source: Mapping[str, Any]) -> Since | None:
    """Return what a manifest says of the reading; None where an older night did not say it."""
    read_us, last_id, rows = (source.get(name) for name in ("read_us", "last_id", "rows"))
    if not isinstance(read_us, int):
        return None
    return Since(
        last_id if isinstance(last_id, int) else 0, rows if isinstance(rows, int) else None, read_us
    )


def _remember(key: tuple[str, str, LiveSettings], looked: _Looked) -> None:
    with _lock:
        if len(_known) >= KEPT:
            _known.clear()
        _known[key] = looked


def _said(snapshot: Snapshot, error: Exception) -> str:
    """Return what happened; a message of SQLite's may quote a row, one of libpq's an address."""
    what = str(error) if isinstance(error, NoctuaryError | TimeoutError) else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        what = error.strerror
    name = getattr(error, "sqlite_errorname", "")
    shown = f"{what} {name}".strip()
    return f"{snapshot.manifest.source['location']} could not be looked into: {shown}"
