"""`expand`: everything that a summary stands for, from the snapshot that serves.

A summary may leave out what its sources say; nothing of it is ever out of reach.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, cast

from noctuary.core.errors import SnapshotCorruptError, StoreError
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import dataclass, from_micros
from noctuary.recall.query import Mask, Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import MemoryId

_LINEAGE = (
    "summary_id, method, session_id, first_us, last_us, source_tokens, summary_tokens, "
    "align, cover, confidence, decay_rate, facts, plan_id"
)


class UnknownSummaryError(StoreError):
    """There is no such summary, or whoever asks may not see all that it stands for."""


@dataclass(frozen=True, slots=True)
class Source:
    """One memory that a summary stands for, in full."""

    id: MemoryId
    content: str
    category: str
    created_at: datetime | None
    wing: str | None
    room: str | None
    session_id: str | None
    user: str | None


@dataclass(frozen=True, slots=True)
class Parent:
    """An earlier summary that the summarizer was shown as context.

    Attributes:
        id: Its id.
        text: Its text; None where the snapshot does not hold it any more, or where whoever asks may
            not see all that it stands for.
    """

    id: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Expansion:
    """A summary with everything that it stands for.

    Attributes:
        summary_id: Its id.
        text: What it says.
        sources: Every source exactly once, in order of time.
        parents: Earlier summaries that it was written with, oldest first; it says nothing for them.
        method: How it was made.
        first_at: Time of its first source; None where no source has a date.
        last_at: Time of its last source.
        confidence: In [0, 1], or None where it was not judged.
        gate: The gate's report: align, cover, confidence, decay_rate, source_tokens,
            summary_tokens, and `facts` (kept, total, introduced, contradicted) where facts were
            checked.
        plan_id: The compaction plan that it belongs to; None for a summary of turns.
        snapshot_id: Where it was read.
    """

    summary_id: str
    text: str
    sources: tuple[Source, ...]
    parents: tuple[Parent, ...]
    method: str
    first_at: datetime | None
    last_at: datetime | None
    confidence: float | None
    gate: Mapping[str, Any]
    plan_id: str | None
    snapshot_id: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values; dates as ISO-8601."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def expand(summary_id: str, *, user: str | None = None, store: str | None = None) -> Expansion:
    """Return every memory that a summary of the serving snapshot stands for.

    Args:
        summary_id: As a recall returns it.
        user: Who asks; a summary of another user's memories does not exist for them.
        store: A store directory, its name, or the source it was built from; None means the
            configured or only one.

    Raises:
        UnknownSummaryError: There is no such summary for this user.
        StoreError: There is no store, or its snapshot cannot be read.
    """
    from noctuary.recall.engine import find_serving

    serving, _ = find_serving(store)
    recaller = serving.recaller
    return expand_from(recaller.reader, recaller.snapshot_id, summary_id, user)


def expand_from(
    reader: SnapshotReader, snapshot_id: str, summary_id: str, user: str | None
) -> Expansion:
    """Return what a summary of an opened snapshot stands for.

    Raises:
        UnknownSummaryError: There is no such summary for this user.
        SnapshotCorruptError: The snapshot is damaged.
    """
    try:
        found = _expansion(reader, snapshot_id, summary_id, user)
    # Damage below the reach of the quick check raises whatever the step that meets it raises.
    except Exception as error:
        raise SnapshotCorruptError(
            f"{type(error).__name__} in {snapshot_id}: run `noctuary doctor`"
        ) from error
    if found is None:
        raise UnknownSummaryError(
            f"there is no summary {summary_id!r} in snapshot {snapshot_id} for "
            f"{'nobody in particular' if user is None else 'user ' + repr(user)}: ids of summaries "
            "are those of kind 'summary' in a recall; it may be older than the last night, or "
            "stand for memories of another user (--user)"
        )
    return found


def _expansion(
    reader: SnapshotReader, snapshot_id: str, summary_id: str, user: str | None
) -> Expansion | None:
    position = reader.summaries.position_of(summary_id)
    if position is None:
        return None
    sources = reader.summaries.at(position).sources
    mask, _ = build_mask(Scope(user=user), reader.facets, reader.created_at_us)
    if mask is not None and not mask[list(sources)].all():
        return None
    (row,) = reader.look_up("summaries", "summary_id", _LINEAGE, [summary_id])
    lineage = dict(zip(_LINEAGE.split(", "), row, strict=True))
    facts = lineage.pop("facts")
    judged = ("align", "cover", "confidence", "decay_rate", "source_tokens", "summary_tokens")
    gate = {name: lineage[name] for name in judged}
    return Expansion(
        summary_id=summary_id,
        text=reader.describe([position])[position]["content"],
        sources=_sources(reader, sources),
        parents=_parents(reader, summary_id, mask),
        method=lineage["method"],
        first_at=from_micros(lineage["first_us"]),
        last_at=from_micros(lineage["last_us"]),
        confidence=lineage["confidence"],
        gate=gate if facts is None else {**gate, "facts": parse_json(facts)},
        plan_id=lineage["plan_id"],
        snapshot_id=snapshot_id,
    )


def _sources(reader: SnapshotReader, positions: Sequence[int]) -> tuple[Source, ...]:
    rows = reader.describe(positions)
    ids = reader.public_ids(positions)
    fields = ("content", "category", "wing", "room", "session_id", "user")
    return tuple(
        Source(
            id=ids[p],
            created_at=from_micros(rows[p]["created_at_us"]),
            **{name: rows[p][name] for name in fields},
        )
        for p in positions
    )


def _parents(reader: SnapshotReader, summary_id: str, mask: Mask | None) -> tuple[Parent, ...]:
    rows = reader.look_up("summary_parents", "summary_id", "place, parent_id", [summary_id])
    ids = [parent for _, parent in sorted(rows)]
    places = {i: reader.summaries.position_of(i) for i in ids}
    # A user may share the turns of one summary and not those of the one before it.
    seen = [
        i
        for i, position in places.items()
        if position is not None
        and (mask is None or mask[list(reader.summaries.at(position).sources)].all())
    ]
    rows = reader.describe(p for i in seen if (p := places[i]) is not None)
    texts = {row["memory_id"]: str(row["content"]) for row in rows.values()}
    return tuple(Parent(parent, texts.get(parent)) for parent in ids)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {key: _plain(item) for key, item in fields.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    return value
