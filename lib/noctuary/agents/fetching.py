"""Memories of the serving snapshot by id, for restoring what a compaction took away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noctuary.core.types import from_micros
from noctuary.recall.query import Scope, build_mask
from noctuary.recall.reader import SnapshotReader

_FIELDS = ("content", "category", "wing", "room", "session_id", "user")


def fetch_memories(
    reader: SnapshotReader, memory_ids: Sequence[str], user: str | None
) -> list[dict[str, Any]]:
    """Return memories and summaries as `RecalledMemory.to_json` names their fields, unscored.

    Args:
        reader: An opened snapshot.
        memory_ids: As text, of any store; unknown ones are left out.
        user: Whose recall it is; what belongs to another named user is left out, and so is a
            summary of anything that does.
    """
    known = reader.positions_of(memory_ids)
    summaries = {
        i: position
        for i in memory_ids
        if i not in known and (position := reader.summaries.position_of(i)) is not None
    }
    mask, _ = build_mask(Scope(user=user), reader.facets, reader.created_at_us)
    positions = [
        position
        for position in (*known.values(), *summaries.values())
        if mask is None or bool(mask[_stands_for(reader, position)].all())
    ]
    rows, ids = reader.describe(positions), reader.public_ids(positions)
    return [
        {
            "id": ids[p],
            "created_at": _iso(rows[p]["created_at_us"]),
            **{name: rows[p][name] for name in _FIELDS},
        }
        for p in positions
    ]


def _stands_for(reader: SnapshotReader, position: int) -> list[int]:
    return [position] if position < reader.count else list(reader.summaries.at(position).sources)


def _iso(micros: int) -> str | None:
    moment = from_micros(micros)
    return None if moment is None else moment.isoformat()
