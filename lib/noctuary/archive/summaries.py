"""The summaries that stand for archived groups, as the night packs them into a snapshot.

What belongs here: which of them still hold. What does not: making them (`consolidation`), showing
them (recall).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from noctuary.archive.reading import ArchiveReader
from noctuary.archive.summary_row import summary_of
from noctuary.compact.summary import Summary
from noctuary.immutable import connect_immutable
from noctuary.types import MemoryRecord


class AppliedSummary(NamedTuple):
    """A summary and the plan that created it.

    Attributes:
        plan_id: In force when the summaries were read.
        summary: With today's positions of its sources.
    """

    plan_id: str
    summary: Summary


def applied_summaries(path: Path, records: Iterable[MemoryRecord]) -> list[AppliedSummary]:
    """Return the summaries of plans in force of which every source is still archived, by id.

    A summary is left out as soon as one source or its successor has changed or gone: that source
    is found again, and must not be found twice. Without a readable ledger there are none.

    Args:
        path: archive.sqlite.
        records: The corpus of tonight; gone through once.
    """
    reader = ArchiveReader.open(path)
    if not reader.applied_plans_at(None):
        return []
    known: dict[str, MemoryRecord] = {}

    def hashes(ids: Sequence[str]) -> dict[str, str]:
        wanted = frozenset(ids)
        known.update((r.memory_id, r) for r in records if r.memory_id in wanted)
        return {memory_id: record.content_hash for memory_id, record in known.items()}

    hidden = reader.hidden_in(hashes)
    found: dict[str, AppliedSummary] = {}
    for plan_id, summary in _held(path, reader.applied_plans_at(None)):
        if all(source in hidden for source in summary.source_ids):
            positions = tuple(known[source].position for source in summary.source_ids)
            bound = replace(summary, source_positions=positions)
            found[summary.summary_id] = AppliedSummary(plan_id, bound)
    return [found[summary_id] for summary_id in sorted(found)]


def _held(path: Path, plans: frozenset[str]) -> list[tuple[str, Summary]]:
    """Return the summaries of some plans; one that an older noctuary wrote is left out."""
    sql = "SELECT plan_id, text, body FROM summaries WHERE text IS NOT NULL ORDER BY 1, 2"
    found: list[tuple[str, Summary]] = []
    with suppress(sqlite3.Error), closing(connect_immutable(path)) as db:
        for plan_id, text, body in db.execute(sql):
            if plan_id in plans:
                with suppress(ValueError):
                    found.append((plan_id, summary_of(text, body)))
    return found
