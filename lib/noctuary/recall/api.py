"""`recall`: the one function that hooks and agents call, and which snapshot answers it.

It always answers: a missing or damaged store is a warning.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noctuary.core.errors import EncoderError, NoctuaryError, SnapshotMissingError, StoreError
from noctuary.core.manifest import full_check
from noctuary.core.settings import Settings
from noctuary.core.store import StorePaths, find_home, find_store, last_night_hours
from noctuary.core.tombstones import FileStamp, stamp_of_tombstones
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import (
    RetrievalProfile,
    current_settings,
    resolve_for_recall,
)
from noctuary.recall.query import Query, Scope, check_arguments
from noctuary.recall.reader import SnapshotReader, open_serving
from noctuary.recall.result import RecallResult, RecallWarning
from noctuary.usage.access_log import append_retrievals

if TYPE_CHECKING:
    from noctuary.recall.explain import Expansion

_WITHHELD = RecallWarning("query_withheld", "the question reads like a secret: it was not kept")


def recall(
    query: str,
    k: int = 10,
    *,
    profile: RetrievalProfile | str | Mapping[str, Any] | None = None,
    wing: str | None = None,
    room: str | None = None,
    category: str | None = None,
    user: str | None = None,
    sort_by: str = "relevance",
    as_of: datetime | None = None,
    explain: bool = False,
    candidate_trace: bool = False,
    dry_run: bool = False,
    deadline_ms: float | None = None,
    session_id: str | None = None,
    store: str | Path | None = None,
    person: bool = False,
) -> RecallResult:
    """Return the memories that answer a query, from the serving snapshot.

    Args:
        query: Any text.
        k: How many memories at most, >= 0.
        profile: How to rank: the name of a profile, flags on top of the configured one, or a whole
            RetrievalProfile; None means the configured one.
        wing: Only memories of this wing.
        room: Only memories of this room.
        category: Only memories of this category.
        user: Whose memories; those of other named users are never returned.
        sort_by: "relevance", "importance" or "recency".
        as_of: Only what existed at this moment; naive times are UTC.
        explain: Return what every step added to each memory's score.
        candidate_trace: Say which candidates were dropped, where and why.
        dry_run: Write nothing: no access log, no query log, no replay log. With `explain`, every
            candidate is described, not only the first k.
        deadline_ms: Answer with what there is after this much wall time.
        session_id: The conversation that asks; profiles of the scorer "hybrid" prefer its memories.
        store: A store directory, its name, or the source it was built from; None means the
            configured or only one.
        person: With a wing: also what holds for the person in every project.

    Returns:
        Always a result: a missing or damaged snapshot, an unknown wing, profile or missing encoder
        is a warning in it.

    Raises:
        ValueError: For arguments that no store could honour (negative k, unknown sort_by, a flag
            that no profile has), listing every fault.
    """
    started = time.perf_counter()
    scope = Scope(wing, room, category, user, as_of, person)
    check_arguments(query, k, sort_by, scope, deadline_ms, session_id)
    settings, bad_settings = current_settings()
    flags = {"explain": explain or None, "candidate_trace": candidate_trace or None}
    warnings = list(bad_settings)
    try:
        recaller, found = find_serving(store)
    except (StoreError, OSError, ValueError) as error:
        resolve_for_recall(settings, {}, profile, flags)  # a bad flag is a ValueError anyway
        code = "no_snapshot" if isinstance(error, SnapshotMissingError) else "store_unreadable"
        return _empty(query, [*warnings, RecallWarning(code, str(error))], started)
    resolved = resolve_for_recall(settings, recaller.reader.adopted, profile, flags)
    warnings += [*found, *staleness(recaller.paths, settings.recall.stale_after_hours)]
    warnings += resolved.warnings
    profile = resolved.profile
    withheld = False
    if not dry_run and (profile.replay_log or profile.query_expansion_enabled):
        from noctuary.text.secrets import find_text_sensitivity

        # What drops rows also keeps a question from being kept.
        withheld = find_text_sensitivity(query) is not None
    asked = Query(query, k, profile, resolved.used, scope, sort_by, session_id, dry_run)
    try:
        result = _ask(recaller, asked, settings, deadline_ms, withheld=withheld)
    except Exception as error:
        # A snapshot that is damaged below the reach of the quick check must not reach a prompt as a
        # traceback.
        message = f"{type(error).__name__} in {recaller.snapshot_id}: run `noctuary doctor`"
        return _empty(query, [*warnings, RecallWarning("snapshot_damaged", message)], started)
    if result.memories and not dry_run:
        warnings += _log(recaller, asked, result, settings, withheld=withheld)
    told = (_WITHHELD,) if withheld else ()
    return result._replace(warnings=(*warnings, *told, *result.warnings))


def _ask(
    recaller: Recaller, asked: Query, settings: Settings, deadline_ms: float | None, *,
    withheld: bool,
) -> RecallResult:  # fmt: skip
    """Answer with the current inputs, and keep a packet if the profile sets `replay_log`."""
    inputs = recaller.inputs_now(asked.scope.user).with_store(settings)
    if not asked.profile.replay_log:
        return recaller.ask(asked, inputs, deadline_ms)
    from noctuary.recall.replay import recall_and_log

    path = None if withheld else recaller.paths.replays
    return recall_and_log(recaller, asked, log_path=path, inputs=inputs, deadline_ms=deadline_ms)


def _log(
    recaller: Recaller, asked: Query, result: RecallResult, settings: Settings, *, withheld: bool
) -> Iterator[RecallWarning]:
    """Log the memories found, and the query for later expansions, if settings and profile ask."""
    # What a further question of an expansion found must not feed itself.
    expanded = set(result.pipeline.get("expanded", ()))
    ids = [str(m.id) for m in result.memories if m.kind == "memory" and m.id not in expanded]
    if ids and settings.recall.log_retrievals:
        fault = append_retrievals(
            recaller.paths.access_log, snapshot_id=recaller.snapshot_id, memory_ids=ids
        )
        if fault is not None:
            yield RecallWarning("access_log", fault)
    digest, guard = recaller.reader.manifest.encoder_digest, result.pipeline.get("model_guard")
    if withheld or digest is None or guard == "MISMATCH":
        return
    if not asked.profile.query_expansion_enabled:
        return
    from noctuary.usage.query_log import append_query

    inputs = recaller.inputs_now()
    try:
        # Known from the recall, or not to be had: a provider is not asked again for a log. Without
        # a vector the question could not be found again.
        vector = inputs.query_vector(asked.text, within_ms=0.0)
    except (EncoderError, OSError, ValueError):
        return  # the recall has warned already
    fault = append_query(
        recaller.paths.queries,
        text=asked.text,
        vector=vector,
        memory_ids=ids,
        encoder_digest=digest,
        asked_us=inputs.now_us(),
        user=asked.scope.user,
    )
    if fault is not None:
        yield RecallWarning("query_log", fault)


def _empty(query: str, warnings: list[RecallWarning], started: float) -> RecallResult:
    elapsed = round((time.perf_counter() - started) * 1000, 3)
    timing = {"total": elapsed}
    return RecallResult(query, (), tuple(warnings), timing, profile={}, pipeline={})


# Which snapshot answers: the store that is meant, and its pinned recaller in this process.

STORES_PINNED = 32
"""Stores that one process keeps open, those asked last: each holds six descriptors (rows, arrays,
vectors, the access log's three), of the 256 to 1,024 that a process usually has. One beyond them
is opened again when it is asked, which takes milliseconds."""


class _Pinned(NamedTuple):
    recaller: Recaller
    stamps: tuple[FileStamp, FileStamp]  # of the pointer and the tombstones when it was pinned
    warnings: list[RecallWarning]


_pinned: OrderedDict[Path, _Pinned] = OrderedDict()
_pinning = threading.Lock()


def find_serving(store: str | Path | None) -> tuple[Recaller, list[RecallWarning]]:
    """Return the recaller that serves a store, and warnings; StoreError, OSError."""
    directory, guessed = find_store(store, home=find_home())
    warnings: list[RecallWarning] = []
    if guessed:
        message = (
            f"several stores exist; {directory.name} published last. Pass store= or set "
            "NOCTUARY_STORE"
        )
        warnings.append(RecallWarning("store_guessed", message))
    try:
        stat = (directory / "CURRENT").stat()
        stamp = (stat.st_mtime_ns, stat.st_ino)
    except FileNotFoundError:
        stamp = (0, 0)
    # Both stamps, so that a forgotten memory is gone from this process with the next query.
    stamps = stamp, stamp_of_tombstones(directory)
    with _pinning:
        known = _pinned.get(directory)
        if known is None or known.stamps != stamps:
            known = _pinned[directory] = _pin(directory, stamps)
        else:
            _check_in_background(known.recaller.reader)
        _pinned.move_to_end(directory)
        while len(_pinned) > STORES_PINNED:
            # Its files close when the last recall over it ends.
            _pinned.popitem(last=False)
        altered = _checked.get(known.recaller.reader.directory, ())
        return known.recaller, [*warnings, *known.warnings, *altered]


def _pin(directory: Path, stamps: tuple[FileStamp, FileStamp]) -> _Pinned:
    paths, warnings = StorePaths(directory), list[RecallWarning]()
    opened = open_serving(paths)
    if opened.fallback_reason is not None:
        message = f"snapshot {opened.snapshot_id} answers in its place: {opened.fallback_reason}"
        warnings.append(RecallWarning("snapshot_fallback", message))
    recaller = Recaller(paths, opened.reader, opened.snapshot_id, may_warm=True)
    return _Pinned(recaller, stamps, warnings)


# Opening a snapshot checks sizes only. A process that asks a second time is not a hook: it reads
# every byte once, in the background, because an array with a flipped bit changes the ranking.
_checked: dict[Path, list[RecallWarning]] = {}  # by snapshot; guarded by `_pinning`


def _check_in_background(reader: SnapshotReader) -> None:
    found: list[RecallWarning] = []
    if _checked.setdefault(reader.directory, found) is not found:
        return
    directory, manifest = reader.directory, reader.manifest

    def check() -> None:
        with suppress(AttributeError, OSError):  # Linux alone gives a thread its own priority
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        try:
            full_check(directory, manifest)
        except (NoctuaryError, OSError) as error:
            if directory.is_dir():  # else a newer night has removed it
                message = f"memories may rank wrongly or be missing: {error}"
                found.append(RecallWarning("snapshot_altered", message))

    threading.Thread(target=check, name="noctuary-check", daemon=True).start()


def staleness(paths: StorePaths, limit_hours: float) -> list[RecallWarning]:
    """Warn when the last night that went through is too long ago; a clock set back is not stale."""
    hours = last_night_hours(paths)
    if hours is None or limit_hours <= 0 or hours <= limit_hours:
        return []
    message = f"no night went through for {hours:.0f} h: `noctuary doctor` says what to look at"
    return [RecallWarning("stale_snapshot", message)]


def expand(summary_id: str, *, user: str | None = None, store: str | None = None) -> Expansion:
    """Return every source of a summary of the serving snapshot.

    Args:
        summary_id: As a recall returns it.
        user: Who asks; a summary of another user's memories does not exist for them.
        store: A store directory, its name, or the source it was built from; None means the
            configured or only one.

    Raises:
        UnknownSummaryError: There is no such summary for this user.
        StoreError: There is no store, or its snapshot cannot be read.
    """
    from noctuary.recall.explain import expand_from

    recaller, _ = find_serving(store)
    return expand_from(recaller.reader, recaller.snapshot_id, summary_id, user)
