"""The replay packet: everything that a re-run of one recall needs, as JSON values.

What belongs here: what a packet holds, and making one while a recall runs. What does not: keeping
it (`log`), running it again (`comparison`).

Source: RFC 914, phases 10 to 14 ("Replay"); what noctuary adds is under `world` (`worlds`). No text
of a memory is in a packet, its id is; the query's text is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from noctuary import __version__
from noctuary.recall.asking import Request
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.replaying.log import append_packet
from noctuary.recall.replaying.worlds import RecordingWorld
from noctuary.recall.result import RecallResult, RecallWarning
from noctuary.recall.scope import Scope, build_mask
from noctuary.recall.world import World
from noctuary.types import from_micros
from noctuary.usage.reading import UsageReader

PACKET_FORMAT = 2
"""Bumped when an older version could not re-run the packet, or calls its steps otherwise: of format
1 steps are not compared."""

_ID_BYTES = 6
"""Of a packet's id, 12 hex digits: two among the some thousands of one log never meet."""


def recall_and_log(
    recaller: Recaller,
    query: str,
    k: int,
    *,
    log_path: Path | None,
    profile: RetrievalProfile,
    profile_used: str,
    scope: Scope,
    sort_by: str = "relevance",
    deadline_ms: float | None = None,
    session_id: str | None = None,
    dry_run: bool = False,
    world: World | None = None,
) -> RecallResult:
    """Recall; where the profile says `replay_log`, keep what a re-run needs.

    The recall itself is the same either way. The packet is in the result also with `dry_run`, which
    only keeps it out of the log. A log that cannot be written is the warning "replay_log".

    Args:
        recaller: The pinned snapshot.
        query: As in `Recaller.recall`, and so are the others.
        k: How many memories.
        log_path: `StorePaths.replays`; None keeps the packet out of the log.
        profile: How to rank.
        profile_used: What that is called.
        scope: What may be seen.
        sort_by: The order.
        deadline_ms: The recall's deadline.
        session_id: The active conversation.
        dry_run: Write nothing.
        world: What changes besides the snapshot; None means the store's own, as it is now.

    Raises:
        ValueError: As `Recaller.recall`.
    """
    request = Request(query, k, profile, profile_used, scope, sort_by, session_id, dry_run)
    asked = world or recaller.live_world(scope.user)
    recording = RecordingWorld(asked) if profile.replay_log else None
    result = recaller.recall(
        query,
        k,
        profile=profile,
        profile_used=profile_used,
        scope=scope,
        sort_by=sort_by,
        deadline_ms=deadline_ms,
        session_id=session_id,
        dry_run=dry_run,
        world=recording or asked,
    )
    if recording is None:
        return result
    packet = make_packet(
        request,
        result,
        recording.record(),
        count_wings(recaller.reader, scope),
        _scan_told(recaller, scope, profile),
    )
    fault = None if dry_run or log_path is None else append_packet(log_path, packet)
    warnings = result.warnings
    if fault is not None:
        warnings = (*warnings, RecallWarning("replay_log", fault))
    return replace(result, warnings=warnings, replay_packet=packet)


def make_packet(
    request: Request,
    result: RecallResult,
    record: Mapping[str, Any],
    wing_counts: Mapping[str, int],
    pagination: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the packet of one recall.

    Args:
        request: What was asked.
        result: What `Recaller.recall` made of it, with a profile that says `replay_log`.
        record: `RecordingWorld.record` of that recall.
        wing_counts: `count_wings` of its scope.
        pagination: `pagination_state` at that time, as far as it may be told.
    """
    scope = request.scope._asdict()
    if request.scope.as_of is not None:
        scope["as_of"] = request.scope.as_of.isoformat()
    return {
        "format": PACKET_FORMAT,
        "replay_id": os.urandom(_ID_BYTES).hex(),
        "made_at": _moment(int(record["now_us"])),
        "made_by": __version__,
        "query": request.query,
        "k": request.k,
        "sort_by": request.sort_by,
        "scope": scope,
        "session_id": request.session_id,
        "profile": request.profile.to_json(),
        "profile_used": request.profile_used,
        "snapshot_id": result.snapshot_id,
        "wing_counts_at_query_time": dict(wing_counts),
        "pagination_state": dict(pagination),
        **outcome_of(result),
        "world": dict(record),
    }


def outcome_of(result: RecallResult) -> dict[str, Any]:
    """Return what a re-run is compared by: memories, events, the guard's verdict, warnings."""
    told = result.replay_packet or {}
    return {
        "model_guard_result": result.pipeline["model_guard"],
        "results": [{"id": m.id, "final_score": m.final_score} for m in result.memories],
        "score_events": told.get("score_events", {}),
        "warnings": [w.code for w in result.warnings],
    }


def count_wings(reader: SnapshotReader, scope: Scope) -> dict[str, int]:
    """Return the memories per wing that a scope allows; those without a wing are left out."""
    mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
    wings = reader.facets["wing"]
    codes = wings.codes if mask is None else wings.codes[mask]
    counts = np.bincount(codes[codes >= 0], minlength=len(wings.values)).tolist()
    return {wing: count for wing, count in zip(wings.values, counts, strict=True) if count}


def _scan_told(recaller: Recaller, scope: Scope, profile: RetrievalProfile) -> dict[str, Any]:
    """Return `pagination_state` as far as a user may know it.

    Where there are named users, how far the scan of all their memories came would tell how many
    they have: the total is of what may be seen, and nothing is said of the scan.
    """
    reader = recaller.reader
    own, _ = build_mask(Scope(user=scope.user), reader.facets, reader.created_at_us)
    if own is None:
        return pagination_state(recaller.paths.usage, reader.count, profile)
    return {
        "total": int(own.sum()),
        "batches_processed": 0,
        "last_offset": 0,
        "scan_depth_reached": False,
    }


def pagination_state(usage: Path, total: int, profile: RetrievalProfile) -> dict[str, Any]:
    """Return how far the night's last LTP scan came, in the RFC's shape.

    Args:
        usage: `StorePaths.usage`.
        total: Memories in the snapshot.
        profile: Where the size of a batch comes from.
    """
    reader = UsageReader.open(usage)
    reader.close()
    if reader.warning is not None:
        scanned = batches = 0
    else:
        scanned = max(total - reader.not_scanned, 0)
        batches = -(-scanned // profile.batch_size) if profile.paginated_scoring else 1
    return {
        "total": total,
        "batches_processed": batches,
        "last_offset": scanned,
        "scan_depth_reached": reader.not_scanned > 0,
    }


def _moment(now_us: int) -> str:
    return (from_micros(now_us) or datetime.fromtimestamp(0, UTC)).isoformat()
