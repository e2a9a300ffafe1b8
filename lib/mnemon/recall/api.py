"""`recall`: the one function that hooks and agents call.

It answers, with warnings, whatever state the store is in.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from mnemon.errors import ConfigError, SnapshotMissingError, StoreError
from mnemon.locate import find_home, find_store
from mnemon.recall.engine import Recaller, check_arguments
from mnemon.recall.opening import open_serving
from mnemon.recall.profile import Profile
from mnemon.recall.result import RecallResult, RecallWarning
from mnemon.recall.scope import Scope
from mnemon.settings import RecallSettings, Settings
from mnemon.snapshot.layout import StorePaths
from mnemon.snapshot.nights import last_night_hours
from mnemon.usage.access_log import append_retrievals


@dataclass(frozen=True, slots=True)
class _Serving:
    """A pinned snapshot and the pointer's state when it was pinned."""

    recaller: Recaller
    pointer_stamp: tuple[int, int]
    warning: RecallWarning | None


_serving: dict[Path, _Serving] = {}
_serving_lock = threading.Lock()


def recall(
    query: str,
    k: int = 10,
    *,
    profile: Profile | None = None,
    wing: str | None = None,
    room: str | None = None,
    category: str | None = None,
    user: str | None = None,
    sort_by: str = "relevance",
    as_of: datetime | None = None,
    deadline_ms: float | None = None,
    dry_run: bool = False,
    store: str | Path | None = None,
) -> RecallResult:
    """Return the memories that answer a query, from the serving snapshot.

    Args:
        query: Any text.
        k: How many memories at most, >= 0.
        profile: How to rank; None means the configured default.
        wing: Only memories of this wing.
        room: Only memories of this room.
        category: Only memories of this category.
        user: Whose memories; those of other named users are never returned.
        sort_by: "relevance", "importance" or "recency".
        as_of: Only what existed at this moment; naive times are UTC.
        deadline_ms: Answer with what there is after this much wall time.
        dry_run: Do not write to the access log.
        store: A store directory, its name, or the source it was built from; None means the
            configured or only one.

    Returns:
        Always a result: a missing or damaged snapshot, an unknown wing or a missing encoder is a
        warning in it.

    Raises:
        ValueError: For arguments that no store could honour (negative k, unknown sort_by).
    """
    started = time.perf_counter()
    check_arguments(k, sort_by)
    warnings: list[RecallWarning] = []
    settings, settings_warning = _load_settings()
    warnings.extend(settings_warning)
    try:
        serving, guess = _find_serving(store)
        warnings.extend(guess)
    except (StoreError, OSError) as error:
        code = "no_snapshot" if isinstance(error, SnapshotMissingError) else "store_unreadable"
        return _empty(query, [*warnings, RecallWarning(code, str(error))], started)
    if serving.warning is not None:
        warnings.append(serving.warning)
    warnings.extend(_staleness(serving.recaller.paths, settings.stale_after_hours))
    try:
        result = serving.recaller.recall(
            query,
            k,
            profile=profile or Profile.from_settings(settings, serving.recaller.reader.adopted),
            scope=Scope(wing, room, category, user, as_of),
            sort_by=sort_by,
            deadline_ms=deadline_ms,
        )
    except Exception as error:
        # A snapshot that is damaged below the reach of the quick check must not reach a prompt as a
        # traceback.
        message = f"{type(error).__name__} in {serving.recaller.snapshot_id}: run `mnemon doctor`"
        return _empty(query, [*warnings, RecallWarning("snapshot_damaged", message)], started)
    if settings.log_retrievals and not dry_run and result.memories:
        warnings.extend(_log(serving.recaller, result))
    return replace(result, warnings=(*warnings, *result.warnings))


def configured_profile() -> Profile:
    """Return the profile that the settings in force describe; the built-in one if they are bad."""
    settings, _ = _load_settings()
    return Profile.from_settings(settings)


def _load_settings() -> tuple[RecallSettings, list[RecallWarning]]:
    try:
        return Settings.load(home=find_home()).recall, []
    except (ConfigError, StoreError, OSError) as error:
        return RecallSettings(), [RecallWarning("bad_settings", f"defaults are in force: {error}")]


def _find_serving(store: str | Path | None) -> tuple[_Serving, list[RecallWarning]]:
    directory, guessed = find_store(store, home=find_home())
    warnings = (
        [
            RecallWarning(
                "store_guessed",
                f"several stores exist; {directory.name} published last. Pass store= or set "
                "MNEMON_STORE",
            )
        ]
        if guessed
        else []
    )
    stamp = _pointer_stamp(directory)
    with _serving_lock:
        known = _serving.get(directory)
        if known is None or known.pointer_stamp != stamp:
            known = _pin(directory, stamp)
            _serving[directory] = known
        return known, warnings


def _pin(directory: Path, stamp: tuple[int, int]) -> _Serving:
    paths = StorePaths(directory)
    opened = open_serving(paths)
    warning = None
    if opened.fallback_reason is not None:
        warning = RecallWarning(
            "snapshot_fallback",
            f"serving older snapshot {opened.snapshot_id}: {opened.fallback_reason}",
        )
    return _Serving(Recaller(paths, opened.reader, opened.snapshot_id), stamp, warning)


def _staleness(paths: StorePaths, limit_hours: float) -> list[RecallWarning]:
    """Warn when the last night that went through is too long ago; a clock set back is not stale."""
    hours = last_night_hours(paths)
    if hours is None or limit_hours <= 0 or hours <= limit_hours:
        return []
    message = f"no night went through for {hours:.0f} h: `mnemon doctor` says what to look at"
    return [RecallWarning("stale_snapshot", message)]


def _pointer_stamp(directory: Path) -> tuple[int, int]:
    try:
        stat = (directory / "CURRENT").stat()
    except FileNotFoundError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_ino)


def _log(recaller: Recaller, result: RecallResult) -> list[RecallWarning]:
    fault = append_retrievals(
        recaller.paths.access_log,
        snapshot_id=recaller.snapshot_id,
        memory_ids=[str(m.id) for m in result.memories],
    )
    return [] if fault is None else [RecallWarning("access_log", fault)]


def _empty(query: str, warnings: list[RecallWarning], started: float) -> RecallResult:
    elapsed = round((time.perf_counter() - started) * 1000, 3)
    return RecallResult(query=query, warnings=tuple(warnings), timings_ms={"total": elapsed})
