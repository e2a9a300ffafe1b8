"""Rows of the tables about the store around a snapshot: use, archive, evaluation, what serves.

What belongs here: from the store's small files to tuples in the order of `schema`; a file that is
not there has no rows. What does not: what the snapshot itself holds (`snapshot_rows`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from noctuary.immutable import connect_immutable
from noctuary.sql.snapshot_rows import Row, in_batches, to_moment
from noctuary.sql.view import BATCH_ROWS, Rows, SnapshotView

_EVALUATION = "evaluation/report.json"


def access(view: SnapshotView) -> Rows:
    """Rows of table `access`."""
    sql = "SELECT retrieved_at_us, memory_id, rank, snapshot_id FROM retrievals ORDER BY position"
    path = view.paths.access_log
    if not path.is_file():
        return
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        cursor = db.execute(sql)
        while batch := cursor.fetchmany(BATCH_ROWS):
            yield [(to_moment(r[0]), *r[1:]) for r in batch if _may_see(view, r[1])]


def usage(view: SnapshotView) -> Rows:
    """Rows of table `usage`."""
    if not view.paths.usage.is_file():
        return
    sql = """SELECT i.memory_id, retrievals, recent, days, coalesce(last_accessed_us, last_us),
        ltp_multiplier, ltp_score, decayed_score
        FROM (SELECT memory_id FROM access UNION SELECT memory_id FROM ltp) i
        LEFT JOIN access USING (memory_id) LEFT JOIN ltp USING (memory_id) ORDER BY i.memory_id"""
    with closing(connect_immutable(view.paths.usage)) as db:
        cursor = db.execute(sql)
        while batch := cursor.fetchmany(BATCH_ROWS):
            yield [(*r[:4], to_moment(r[4]), *r[5:]) for r in batch if _may_see(view, r[0])]


def archived(view: SnapshotView) -> Rows:
    """Rows of table `archived`."""
    if not view.paths.archive.is_file():
        return
    sql = """SELECT e.memory_id, e.plan_id, e.successor_id, e.summary_id, a.applied_at_us
        FROM entries e JOIN applications a USING (plan_id) WHERE a.undone_at_us IS NULL
        ORDER BY e.memory_id, e.plan_id, a.applied_at_us"""
    with closing(connect_immutable(view.paths.archive)) as db:
        yield from in_batches(
            (*row[:4], to_moment(row[4]))
            for row in db.execute(sql)
            if _may_see(view, row[0]) and _may_see(view, row[2])
        )


def evaluation(view: SnapshotView) -> Rows:
    """Rows of table `evaluation`; nobody's but the owner's: its queries are about everybody."""
    path = view.paths.work / _EVALUATION
    if view.user is not None or not path.is_file():
        return
    yield from in_batches(_measured(json.loads(path.read_text(encoding="utf-8"))))


def _measured(report: dict[str, Any]) -> Iterator[Row]:
    for group, found in report["groups"].items():
        for arm in found["reports"]:
            for stratum, metrics in {None: arm["overall"], **arm["strata"]}.items():
                for metric, value in metrics.items():
                    yield (
                        group, arm["name"], stratum, metric,
                        value["mean"], value.get("low"), value.get("high"), value["n"],
                    )  # fmt: skip


def snapshot(view: SnapshotView) -> Rows:
    """Rows of table `snapshot`; to a user without what counts other people's memories."""
    manifest = view.manifest
    facts: dict[str, str | None] = {
        "snapshot_id": view.snapshot_id,
        "built_at": manifest.built_at,
        "id_kind": manifest.id_kind,
        "encoder_digest": manifest.encoder_digest,
    }
    if view.user is None:
        facts |= {
            "digest": manifest.digest,
            "corpus_digest": manifest.corpus_digest,
            "source_kind": str(manifest.source.get("kind", "")),
            **{f"count_{name}": str(count) for name, count in sorted(manifest.counts.items())},
        }
    yield list(facts.items())


def _may_see(view: SnapshotView, memory_id: str) -> bool:
    return view.user is None or memory_id in view.seen_ids
