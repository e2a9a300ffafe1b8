"""One memory in full, or one summary with all that it stands for.

What belongs here: reading them inside a view. What does not: what connects memories (`relations`),
choosing them (`recalling`), the record of what was handed out (`handed_out`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from noctuary.mcp_server.relations import name_concepts
from noctuary.mcp_server.schemas import ClusterAnswer, Item, Memory, cluster_uri, item_uri
from noctuary.mcp_server.view import Seen, UnknownItemError, is_text
from noctuary.recall.expanding import expand_from
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.types import from_micros

CONCEPTS_SHOWN = 12
"""Concepts named beside a memory: its own come before those that it only mentions."""


def read_item(seen: Seen, item_id: str) -> Item:
    """Return a memory or a summary in full, with what is known about it.

    Args:
        seen: What may be seen.
        item_id: As a recall returns it, as text.

    Raises:
        UnknownItemError: There is none of this id for this server.
    """
    position = seen.find(item_id)
    reader = seen.recaller.reader
    own: dict[str, Any] = _standing(seen, position) if position < reader.count else {}
    with seen.graph() as (source, book):
        held = name_concepts(source, book, position, CONCEPTS_SHOWN) if own else []
    return Item(
        **memory_fields(reader, position),
        snapshot_id=seen.recaller.snapshot_id,
        concepts=[concept.name for concept in held] or None,
        **own,
    )


def read_cluster(seen: Seen, item_id: str) -> ClusterAnswer:
    """Return a summary and every memory that it stands for, in full.

    Args:
        seen: What may be seen.
        item_id: Id of the summary, or of the cluster that it was made of.

    Raises:
        UnknownItemError: There is none of this id for this server, or its cluster has no accepted
            summary: what is in it is then found as turns.
    """
    reader = seen.recaller.reader
    if not is_text(item_id):
        raise UnknownItemError(f"{item_id!r} is no id of a cluster: it is no text")
    columns = "summary_id, cluster_id, session_id"
    found = [
        *reader.look_up("summaries", "summary_id", columns, [item_id]),
        *sorted(reader.look_up("summaries", "cluster_id", columns, [item_id])),
    ]
    visible = [row for row in found if seen.position_of(row[0]) is not None]
    if not visible:
        raise UnknownItemError(
            f"there is no summary or summarised cluster {item_id!r} here: ids are those of kind "
            '"summary" in a recall; they change when a night summarises anew'
        )
    summary_id, cluster_id, session_id = visible[0]
    whole = expand_from(reader, seen.recaller.snapshot_id, summary_id, seen.user)
    known = reader.positions_of(str(source.id) for source in whole.sources)
    return ClusterAnswer(
        id=summary_id,
        cluster_id=cluster_id,
        session_id=session_id,
        summary=whole.text,
        method=whole.method,
        first_at=_iso(whole.first_at),
        last_at=_iso(whole.last_at),
        confidence=whole.confidence,
        plan_id=whole.plan_id,
        memories=[Memory(**memory_fields(reader, position)) for position in known.values()],
        snapshot_id=whole.snapshot_id,
    )


def memory_fields(reader: SnapshotReader, position: int) -> dict[str, Any]:
    """Return the fields of `Memory` of a position of an opened snapshot."""
    row = reader.describe([position])[position]
    public = reader.public_ids([position, *row["sources"]])
    summary = bool(row["sources"])
    shown = public[position]
    return {
        "id": shown,
        "uri": cluster_uri(str(shown)) if summary else item_uri(shown),
        "kind": "summary" if summary else "memory",
        "tags": list(row["tags"]),
        "created_at": _iso(from_micros(row["created_at_us"])),
        "sources": [public[p] for p in row["sources"]] or None,
        **{
            name: row[name]
            for name in (
                "content", "category", "importance", "wing", "room", "session_id", "user",
            )
        },
    }  # fmt: skip


def _standing(seen: Seen, position: int) -> dict[str, Any]:
    """Return what replaces, hides or summarises a memory, as far as it may be seen."""
    reader = seen.recaller.reader
    newer, older = _supersessions(seen, position)
    searched = seen.recaller.find_searched(
        RetrievalProfile(), seen.recaller.live_world(), seen.allowed
    )
    archived = None if searched is None else searched.archived
    behind = None if archived is None else archived.successor_of(position)
    summary = reader.summaries.of_sources(np.array([position], dtype=np.int64)).get(position)
    if summary is not None and not seen.allowed[list(summary.sources)].all():
        summary = None
    others = [p for p in (newer, behind) if p is not None]
    ids = reader.public_ids([*others, *older])
    return {
        "superseded_by": None if newer is None else ids[newer],
        "supersedes": [ids[p] for p in older] or None,
        "archived_behind": None if behind is None else ids[behind],
        "summarized_by": None
        if summary is None
        else reader.summaries.ids[summary.position - reader.count],
    }


def _supersessions(seen: Seen, position: int) -> tuple[int | None, list[int]]:
    """Return the visible memory that directly replaces one, and those that it replaces."""
    look_up = seen.recaller.reader.look_up
    asked = [str(position)]
    newer = [int(n) for (n,) in look_up("supersessions", "older", "newer", asked)]
    older = [int(o) for (o,) in look_up("supersessions", "newer", "older", asked)]
    visible = [n for n in newer if seen.allowed[n]]
    return (visible[0] if visible else None), sorted(o for o in older if seen.allowed[o])


def _iso(moment: Any) -> str | None:
    return None if moment is None else moment.isoformat()
