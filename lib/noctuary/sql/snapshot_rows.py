"""Rows of the tables that a snapshot itself holds.

What belongs here: from rows.sqlite and the arrays to tuples in the order of `schema`, without what
the user may not see. What does not: tables about the store around it (`store_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from noctuary.foreign_json import parse_json
from noctuary.graph.arrays import OPEN_END_US, RELATIONS, ROLES
from noctuary.snapshot import layout
from noctuary.sql.view import BATCH_ROWS, Rows, SnapshotView
from noctuary.types import UNDATED_US

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)

Row = tuple[Any, ...]


def to_moment(us: int | None) -> datetime | None:
    """Return a moment in UTC without a zone; None for an undated or an open one."""
    if us is None or us in (UNDATED_US, OPEN_END_US):
        return None
    return _EPOCH + timedelta(microseconds=int(us))


def in_batches(rows: Iterable[Row]) -> Rows:
    """Yield rows in batches."""
    batch: list[Row] = []
    for row in rows:
        batch.append(row)
        if len(batch) >= BATCH_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def memories(view: SnapshotView) -> Rows:
    """Rows of table `memories`."""
    seen = view.seen
    sql = """SELECT memory_id, position, content, category, tags, expanded_keywords, importance,
        created_at_us, updated_at_us, session_id, wing, room, user, is_turn, content_hash
        FROM memories ORDER BY position"""
    for batch in view.select(sql):
        yield [
            (*r[:7], to_moment(r[7]), to_moment(r[8]), *r[9:13], bool(r[13]), r[14])
            for r in batch
            if seen[r[1]]
        ]


def concepts(view: SnapshotView) -> Rows:
    """Rows of table `concepts`."""
    sql = "SELECT ordinal, concept_id, canonical_name, kind, aliases, df FROM concepts ORDER BY 1"
    for batch in view.select(sql):
        yield [
            (concept_id, name, kind, parse_json(aliases), df)
            for ordinal, concept_id, name, kind, aliases, df in batch
            if view.seen_concepts[ordinal]
        ]


def mentions(view: SnapshotView) -> Rows:
    """Rows of table `mentions`."""
    starts = view.array(layout.mention_file("indptr"))
    columns = [view.array(layout.mention_file(n)) for n in ("positions", "roles", "starts", "ends")]
    concept = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    shown = np.flatnonzero(view.seen_concepts[concept])
    for part in _parts(shown):
        positions, roles, first, last = (column[part].tolist() for column in columns)
        yield [
            (view.concept_ids[c], view.memory_ids[p], ROLES[r], *_chars(a, b))
            for c, p, r, a, b in zip(
                concept[part].tolist(), positions, roles, first, last, strict=True
            )
        ]


def edges(view: SnapshotView) -> Rows:
    """Rows of table `edges`; only where both ends and the concept may be seen."""
    names = (
        "targets", "relations", "weights", "concepts", "evidence_starts", "evidence_ends",
        "valid_from_us", "valid_to_us", "recorded_at_us", "retracted_at_us",
    )  # fmt: skip
    starts = view.array(layout.graph_file("indptr"))
    columns = {name: view.array(layout.graph_file(name)) for name in names}
    source = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    shown = view.seen[source] & view.seen[columns["targets"]]
    about = columns["concepts"]
    shown &= (about < 0) | np.append(view.seen_concepts, True)[about]
    relations: list[str] = view.meta("relations") or list(RELATIONS)
    for part in _parts(np.flatnonzero(shown)):
        rows = zip(source[part].tolist(), *(columns[n][part].tolist() for n in names), strict=True)
        yield [
            (
                view.memory_ids[s], view.memory_ids[t], relations[relation], weight,
                view.concept_ids[c] if c >= 0 else None, *_chars(first, last),
                *map(to_moment, moments),
            )
            for s, t, relation, weight, c, first, last, *moments in rows
        ]  # fmt: skip


def concept_edges(view: SnapshotView) -> Rows:
    """Rows of table `concept_edges`; only where every memory that states it may be seen."""
    sql = """SELECT e.src, a.concept_id, a.canonical_name, e.relation, e.dst, b.concept_id,
        b.canonical_name, e.weight, e.evidence, e.valid_from_us, e.valid_to_us, e.recorded_at_us,
        e.retracted_at_us FROM concept_edges e JOIN concepts a ON a.ordinal = e.src
        JOIN concepts b ON b.ordinal = e.dst ORDER BY e.rowid"""
    for batch in view.select(sql):
        yield list(_stated(view, batch))


def _stated(view: SnapshotView, batch: Iterable[Row]) -> Iterator[Row]:
    shown = view.seen_concepts
    for src, src_id, src_name, relation, dst, dst_id, dst_name, weight, text, *moments in batch:
        positions = [int(item[0]) for item in parse_json(text)]
        if shown[src] and shown[dst] and all(view.seen[p] for p in positions):
            evidence = [view.memory_ids[p] for p in positions]
            ends = (src_id, src_name, relation, dst_id, dst_name)
            yield (*ends, weight, evidence, *map(to_moment, moments))


def supersessions(view: SnapshotView) -> Rows:
    """Rows of table `supersessions`; only where every memory of it may be seen."""
    sql = """SELECT older, newer, head, reason, confidence, similarity, age_gap_days, concept,
        evidence_position, evidence_start, evidence_end, valid_to_us, recorded_at_us
        FROM supersessions ORDER BY older, newer"""
    ids, seen = view.memory_ids, view.seen
    for batch in view.select(sql):
        yield [
            (
                ids[older], ids[newer], ids[head], *told, _concept(view, concept), ids[stated],
                *_chars(first, last), *map(to_moment, moments),
            )
            for older, newer, head, *told, concept, stated, first, last, valid, recorded in batch
            if seen[older] and seen[newer] and seen[head] and seen[stated]
            for moments in [(valid, recorded)]
        ]  # fmt: skip


def clusters(view: SnapshotView) -> Rows:
    """Rows of table `clusters`; only of sessions of which every turn may be seen."""
    hidden = {
        session
        for batch in view.select("SELECT position, session_id FROM memories")
        for position, session in batch
        if not view.seen[position]
    }
    sql = """SELECT cluster_id, session_id, ordinal, first_us, last_us, trivial FROM clusters
        ORDER BY session_id, ordinal, cluster_id"""
    for batch in view.select(sql):
        yield [
            (*r[:3], to_moment(r[3]), to_moment(r[4]), bool(r[5]))
            for r in batch
            if r[1] not in hidden
        ]


def summaries(view: SnapshotView) -> Rows:
    """Rows of table `summaries`; only where every source may be seen."""
    shown = _shown_summaries(view)
    sql = """SELECT summary_id, cluster_id, session_id, text, method, first_us, last_us,
        source_tokens, summary_tokens, align, cover, confidence, decay_rate, facts, plan_id
        FROM summaries ORDER BY ordinal"""
    for batch in view.select(sql):
        yield [(*r[:5], to_moment(r[5]), to_moment(r[6]), *r[7:]) for r in batch if r[0] in shown]


def summary_sources(view: SnapshotView) -> Rows:
    """Rows of table `summary_sources`."""
    shown = _shown_summaries(view)
    sql = "SELECT summary_id, place, memory_id FROM summary_sources ORDER BY summary_id, place"
    for batch in view.select(sql):
        yield [row for row in batch if row[0] in shown]


def vectors(view: SnapshotView) -> Rows:
    """Rows of table `vectors`."""
    if not view.has(layout.VECTORS_FILE):
        return
    found = view.array(layout.VECTORS_FILE)
    for part in _parts(np.flatnonzero(view.seen)):
        ids = [view.memory_ids[p] for p in part.tolist()]
        yield list(zip(ids, list(found[part]), strict=True))


def _shown_summaries(view: SnapshotView) -> set[str]:
    all_ids: set[str] = set()
    hidden: set[str] = set()
    for batch in view.select("SELECT summary_id FROM summaries"):
        all_ids.update(row[0] for row in batch)
    for batch in view.select("SELECT summary_id, position FROM summary_sources"):
        hidden.update(row[0] for row in batch if not view.seen[row[1]])
    return all_ids - hidden


def _concept(view: SnapshotView, ordinal: int | None) -> str | None:
    if ordinal is None or not view.seen_concepts[ordinal]:
        return None
    return view.concept_ids[ordinal]


def _chars(start: int, end: int) -> tuple[int | None, int | None]:
    return (None, None) if start < 0 else (start, end)


def _parts(indices: Any) -> Iterator[Any]:
    for first in range(0, len(indices), BATCH_ROWS):
        yield indices[first : first + BATCH_ROWS]
