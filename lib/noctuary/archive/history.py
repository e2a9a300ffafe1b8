"""What was archived when, and by which plan: the ledger as a list for people.

What belongs here: reading plans with their times and traces. What does not: what recall needs of
them (`reading`).
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noctuary.archive.reading import Application, ArchiveReader
from noctuary.errors import StoreError
from noctuary.immutable import connect_immutable


@dataclass(frozen=True, slots=True)
class PlanHistory:
    """One plan that was applied at least once.

    Attributes:
        plan_id: Its id.
        snapshot_id: The snapshot that it was made from.
        applications: When it held, oldest first.
        traces: The justification of every memory, by id.
        summary_ids: Its summaries, sorted.
        forgotten: How many of their texts were forgotten, because a source changed or went.
        rules: What decided.
    """

    plan_id: str
    snapshot_id: str
    applications: tuple[Application, ...]
    traces: tuple[dict[str, Any], ...]
    summary_ids: tuple[str, ...]
    forgotten: int
    rules: dict[str, Any]

    @property
    def in_force(self) -> bool:
        """Say whether it holds now."""
        return any(a.holds_at(None) for a in self.applications)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; RFC 914's names for what a replay packet records."""
        return {
            "plan_id": self.plan_id,
            "snapshot_id": self.snapshot_id,
            "in_force": self.in_force,
            "applications": [
                {"applied_at_us": a.applied_at_us, "undone_at_us": a.undone_at_us}
                for a in self.applications
            ],
            "compaction_candidates": list(self.traces),
            "summary_ids": list(self.summary_ids),
            "forgotten_summaries": self.forgotten,
            "rules": self.rules,
        }


def list_plans(path: Path) -> list[PlanHistory]:
    """Return every plan that was ever applied, the one applied first first.

    Raises:
        StoreError: The ledger is damaged.
    """
    reader = ArchiveReader.open(path)
    if reader.is_missing:
        return []
    if reader.warning is not None:
        raise StoreError(f"{path}: {reader.warning}")
    try:
        with closing(connect_immutable(path)) as db:
            rows = db.execute("SELECT plan_id, snapshot_id, rules FROM plans").fetchall()
            found = [_history(db, reader, *row) for row in rows]
    except (sqlite3.Error, ValueError) as error:
        raise StoreError(f"{path} cannot be read ({error}): put back a copy of it") from error
    return sorted(found, key=lambda plan: plan.applications[0].applied_at_us)


def _history(
    db: sqlite3.Connection, reader: ArchiveReader, plan_id: str, snapshot_id: str, rules: str
) -> PlanHistory:
    traces = db.execute(
        "SELECT trace FROM entries WHERE plan_id = ? ORDER BY memory_id", [plan_id]
    ).fetchall()
    summaries = db.execute(
        "SELECT summary_id, text IS NULL FROM summaries WHERE plan_id = ? ORDER BY 1", [plan_id]
    ).fetchall()
    return PlanHistory(
        plan_id,
        snapshot_id,
        tuple(a for a in reader.applications if a.plan_id == plan_id),
        tuple(json.loads(trace) for (trace,) in traces),
        tuple(summary_id for summary_id, _ in summaries),
        sum(is_forgotten for _, is_forgotten in summaries),
        json.loads(rules),
    )
