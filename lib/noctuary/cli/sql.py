"""The tables of `noctuary sql`, their rows, and the closed database that answers a query."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core import store as layout
from noctuary.core.errors import NoctuaryError
from noctuary.core.files import read_array
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import Manifest, quick_check, read_manifest, read_pointer
from noctuary.core.sqlite import connect_immutable
from noctuary.core.store import StorePaths
from noctuary.core.types import UNDATED_US
from noctuary.graph.walk import OPEN_END_US, RELATIONS, ROLES
from noctuary.text.marks import visible_line

if TYPE_CHECKING:
    import duckdb


# What `noctuary sql` shows: tables, columns, types and what they mean; documented in docs/sql.md.


TEXT = "VARCHAR"
TEXTS = "VARCHAR[]"
WHOLE = "BIGINT"
REAL = "DOUBLE"
FLAG = "BOOLEAN"
MOMENT = "TIMESTAMP"
"""UTC, to the microsecond."""
VECTOR = "FLOAT[]"


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: As queries call it.
        type: A type of DuckDB.
        about: What it holds, with unit and range; what null means, where it can be.
    """

    name: str
    type: str
    about: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        name: As queries call it.
        about: What a row is.
        columns: In order.
    """

    name: str
    about: str
    columns: tuple[Column, ...]


def _table(name: str, about: str, *columns: tuple[str, str, str]) -> Table:
    return Table(name, about, tuple(Column(*column) for column in columns))


_VALID = (
    ("valid_from", MOMENT, "from when it holds; null: undated"),
    ("valid_to", MOMENT, "until before when; null: still"),
    ("recorded_at", MOMENT, "when the store wrote the evidence"),
    ("retracted_at", MOMENT, "when the store wrote what ended it; null: nothing did"),
)
_CHARS = (
    ("start_char", WHOLE, "first character of the evidence in the content; null: a field, or none"),
    ("end_char", WHOLE, "one past its last character"),
)

TABLES = (
    _table(
        "memories",
        "a memory of the snapshot",
        ("memory_id", TEXT, "its id in the source, as text"),
        ("position", WHOLE, "its place in the snapshot, from 0"),
        ("content", TEXT, "its text"),
        ("category", TEXT, "as the source says"),
        ("tags", TEXT, "as the source says"),
        ("expanded_keywords", TEXT, "as the source says"),
        ("importance", REAL, "0 to 1"),
        ("created_at", MOMENT, "null: undated"),
        ("updated_at", MOMENT, "null: undated"),
        ("session_id", TEXT, "null: no session"),
        ("wing", TEXT, "null: no wing"),
        ("room", TEXT, "null: no room"),
        ("user", TEXT, "whose it is; null: nobody's"),
        ("is_turn", FLAG, "a turn of a conversation"),
        ("content_hash", TEXT, "of every field but the position"),
    ),
    _table(
        "concepts",
        "something that memories are about or name",
        ("concept_id", TEXT, "hash of the canonical name"),
        ("name", TEXT, "canonical name"),
        ("kind", TEXT, "person, tag, date ..."),
        ("aliases", TEXTS, "other names"),
        ("memories", WHOLE, "memories that hold it"),
    ),
    _table(
        "mentions",
        "a place where a memory holds a concept",
        ("concept_id", TEXT, "the concept"),
        ("memory_id", TEXT, "the memory"),
        ("role", TEXT, "about, mentions, author, speaker"),
        *_CHARS,
    ),
    _table(
        "edges",
        "a step that the graph walk can take from a memory to a memory",
        ("source_id", TEXT, "memory that it leaves"),
        ("target_id", TEXT, "memory that it reaches"),
        ("relation", TEXT, "mentions_subject, mentions_tag, next_turn, previous_turn ..."),
        ("weight", REAL, "above 0, at most 1"),
        ("concept_id", TEXT, "the concept that is the evidence; null: none"),
        *_CHARS,
        *_VALID,
    ),
    _table(
        "concept_edges",
        "a statement about two concepts",
        ("source_concept_id", TEXT, "the subject"),
        ("source_name", TEXT, "its canonical name"),
        ("relation", TEXT, "works_at, part_of ..."),
        ("target_concept_id", TEXT, "the object"),
        ("target_name", TEXT, "its canonical name"),
        ("weight", REAL, "0 to 1: grows with the memories that state it"),
        ("evidence_ids", TEXTS, "memories that state it"),
        *_VALID,
    ),
    _table(
        "supersessions",
        "a memory that a newer one replaced",
        ("older_id", TEXT, "the replaced memory"),
        ("newer_id", TEXT, "what replaced it"),
        ("head_id", TEXT, "the newest of the chain"),
        ("reason", TEXT, "how it was noticed"),
        ("confidence", WHOLE, "0 to 2"),
        ("similarity", REAL, "cosine, where it was measured"),
        ("age_gap_days", WHOLE, "days between the two"),
        ("concept_id", TEXT, "what both are about; null: not told"),
        ("evidence_id", TEXT, "memory that says so"),
        *_CHARS,
        ("valid_to", MOMENT, "until when the older one held"),
        ("recorded_at", MOMENT, "when the store wrote the newer one"),
    ),
    _table(
        "clusters",
        "turns of one session that belong together",
        ("cluster_id", TEXT, "its id"),
        ("session_id", TEXT, "the session"),
        ("ordinal", WHOLE, "its place in the session, from 0"),
        ("first_at", MOMENT, "its first turn"),
        ("last_at", MOMENT, "its last turn"),
        ("is_trivial", FLAG, "a single turn: nothing to sum up"),
    ),
    _table(
        "summaries",
        "an accepted summary",
        ("summary_id", TEXT, "its id"),
        ("cluster_id", TEXT, "what it sums up"),
        ("session_id", TEXT, "the session"),
        ("text", TEXT, "its text"),
        ("method", TEXT, "how it was written"),
        ("first_at", MOMENT, "its first source"),
        ("last_at", MOMENT, "its last source"),
        ("source_tokens", WHOLE, "length of the sources"),
        ("summary_tokens", WHOLE, "length of the text"),
        ("align", REAL, "likeness to its sources; null: not measured"),
        ("cover", REAL, "share of the sources that it covers; null: not measured"),
        ("confidence", REAL, "0 to 1; null: not measured"),
        ("decay_rate", REAL, "1 - confidence; null: not measured"),
        ("facts", TEXT, "fact report as JSON; null: none"),
        ("plan_id", TEXT, "compaction plan that it belongs to; null: a summary of turns"),
    ),
    _table(
        "summary_sources",
        "a memory that a summary stands for",
        ("summary_id", TEXT, "the summary"),
        ("place", WHOLE, "in order of time, from 0"),
        ("memory_id", TEXT, "the memory"),
    ),
    _table(
        "vectors",
        "the vector of a memory; no rows where the snapshot was built without an encoder",
        ("memory_id", TEXT, "the memory"),
        ("vector", VECTOR, "of length 1"),
    ),
    _table(
        "access",
        "a memory that a recall returned, of the last 90 days",
        ("retrieved_at", MOMENT, "when"),
        ("memory_id", TEXT, "the memory; it need not be in the snapshot any more"),
        ("rank", WHOLE, "its place in the answer, from 1"),
        ("snapshot_id", TEXT, "the snapshot that answered"),
    ),
    _table(
        "usage",
        "what the last night counted about a memory",
        ("memory_id", TEXT, "the memory"),
        ("retrievals", WHOLE, "over all time; null: never"),
        ("recent", WHOLE, "inside the window; null: never"),
        ("days", WHOLE, "distinct days with a retrieval; null: never"),
        ("last_at", MOMENT, "last retrieval, else the creation; null: neither is known"),
        ("ltp_multiplier", REAL, "at least 1; null: not scanned"),
        ("ltp_score", REAL, "0 to 1; null: not scanned"),
        ("decayed_score", REAL, "0 to 1; null: not scanned"),
    ),
    _table(
        "archived",
        "a memory that a plan in force has archived",
        ("memory_id", TEXT, "the memory"),
        ("plan_id", TEXT, "the plan"),
        ("successor_id", TEXT, "what stands for it"),
        ("summary_id", TEXT, "the summary of its group; null: the successor stands alone"),
        ("applied_at", MOMENT, "when the plan was applied"),
    ),
    _table(
        "evaluation",
        "a metric of the last evaluated night, which need not be the one that serves",
        ("query_group", TEXT, "labelled, exact ..."),
        ("arm", TEXT, "served, or an alternative that was compared"),
        ("stratum", TEXT, "kind of query; null: all of the group"),
        ("metric", TEXT, "recall@5, ndcg@10 ..."),
        ("mean", REAL, "over the queries"),
        ("low", REAL, "lower end of its 95 % interval; null: not given"),
        ("high", REAL, "upper end; null: not given"),
        ("queries", WHOLE, "how many were asked"),
    ),
    _table(
        "snapshot",
        "a fact about what serves",
        ("key", TEXT, "snapshot_id, digest, built_at, count_memories ..."),
        ("value", TEXT, "as text"),
    ),
)

TABLE_NAMES = tuple(table.name for table in TABLES)


def find_table(name: str) -> Table:
    """Return a table by its name.

    Raises:
        KeyError: There is none of that name.
    """
    return {table.name: table for table in TABLES}[name]


# The serving snapshot as one user sees it: its rows, its arrays, and which memories are visible.


BATCH_ROWS = 20_000
"""Rows that are Python objects at once."""

Rows = Iterator[Sequence[tuple[Any, ...]]]


class SnapshotView:
    """One published snapshot, and what of it a user may see.

    Attributes:
        paths: The store.
        snapshot_id: What serves.
        manifest: Its manifest.
        user: Whose view it is; None means the owner's, who sees everything.
    """

    def __init__(self, paths: StorePaths, user: str | None = None) -> None:
        """Open what serves.

        Raises:
            SnapshotMissingError: Nothing has been published.
            SnapshotCorruptError: It is damaged or of another version.
        """
        self.paths = paths
        self.snapshot_id = read_pointer(paths).snapshot_id
        self.manifest: Manifest = read_manifest(self._directory)
        self.user = user
        quick_check(self._directory, self.manifest)
        self._db = connect_immutable(self._directory / layout.ROWS_FILE)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def select(self, sql: str) -> Rows:
        """Yield the rows of a query of this project's own on rows.sqlite, in batches."""
        with closing(self._db.execute(sql)) as cursor:
            while batch := cursor.fetchmany(BATCH_ROWS):
                yield batch

    def has(self, name: str) -> bool:
        """Say whether the snapshot has a file."""
        return name in self.manifest.files

    def array(self, name: str) -> NDArray[Any]:
        """Memory-map one of its arrays."""
        return read_array(self._directory / name)

    def meta(self, key: str) -> Any:
        """Return a value of table `meta`, or None."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else parse_json(row[0])

    @cached_property
    def memory_ids(self) -> list[str]:
        """By position."""
        return [row[0] for row in self._all("SELECT memory_id FROM memories ORDER BY position")]

    @cached_property
    def concept_ids(self) -> list[str]:
        """By ordinal."""
        return [row[0] for row in self._all("SELECT concept_id FROM concepts ORDER BY ordinal")]

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Memories that the user may see, by position, shape (n,).

        Their own, nobody's, and what the store says is shared with them.
        """
        count = self.manifest.counts["memories"]
        if self.user is None:
            return np.ones(count, dtype=np.bool_)
        owners = self._all("SELECT user FROM memories ORDER BY position")
        seen = np.fromiter((row[0] in (None, "", self.user) for row in owners), np.bool_, count)
        readers: list[str] = self.meta(layout.SHARED_WITH) or []
        if self.user in readers:
            reader = readers.index(self.user)
            starts = self.array(layout.SHARE_STARTS_FILE)
            shared = self.array(layout.SHARE_POSITIONS_FILE)
            seen[shared[starts[reader] : starts[reader + 1]]] = True
        return seen

    @cached_property
    def seen_ids(self) -> frozenset[str]:
        """Ids of the memories that the user may see."""
        return frozenset(self.memory_ids[int(position)] for position in np.flatnonzero(self.seen))

    @cached_property
    def seen_concepts(self) -> NDArray[np.bool_]:
        """Concepts whose every mention the user may see, by ordinal, shape (C,).

        A concept that also stands in somebody else's memory may have its name from there.
        """
        if self.user is None:
            return np.ones(len(self.concept_ids), dtype=np.bool_)
        starts = self.array(layout.mention_file("indptr"))
        hidden = ~self.seen[self.array(layout.mention_file("positions"))]
        before = np.concatenate(([0], np.cumsum(hidden)))
        # One without any mention has its name from nobody knows where.
        return (before[starts[1:]] == before[starts[:-1]]) & (starts[1:] > starts[:-1])

    @property
    def _directory(self) -> Path:
        return self.paths.snapshots / self.snapshot_id

    def _all(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql).fetchall()


# Rows of the tables that a snapshot itself holds.


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


# Rows of the tables about the store around a snapshot: use, archive, evaluation, what serves.


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


# A closed DuckDB database in memory: the tables that a query names, filled, and then no way out.


FETCH_ROWS = 2_000
"""Rows of an answer that are Python objects at once."""

MEMORY_LIMIT = "4GB"
"""What a query may use, tables included; nothing is ever spilled to disk, where texts would lie."""

LOADERS: Mapping[str, Callable[[SnapshotView], Rows]] = {
    "memories": memories,
    "concepts": concepts,
    "mentions": mentions,
    "edges": edges,
    "concept_edges": concept_edges,
    "supersessions": supersessions,
    "clusters": clusters,
    "summaries": summaries,
    "summary_sources": summary_sources,
    "vectors": vectors,
    "access": access,
    "usage": usage,
    "archived": archived,
    "evaluation": evaluation,
    "snapshot": snapshot,
}

_CONFIG: Mapping[str, str] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Else a name that is no table would be looked for among the variables of this program.
    "python_enable_replacements": "false",
    "memory_limit": MEMORY_LIMIT,
    "temp_directory": "",
}
_INTERRUPTED = "Query interrupted"  # in a RuntimeError: how DuckDB hands Ctrl-C on
_ADVICE = "Please try installing"
_QUERIES = frozenset({"SELECT", "EXPLAIN"})
_BY_TEXT = re.compile(r"\bquery(_table)?\s*\(", re.IGNORECASE)
"""Functions of DuckDB that read tables named by a text: the parser does not see which."""


class QueryError(NoctuaryError, ValueError):
    """A query that cannot be run: what is wrong with it, in DuckDB's words or ours."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query came to.

    Attributes:
        columns: Names.
        types: DuckDB's, aligned.
        batches: The rows, at most `FETCH_ROWS` at a time; raises QueryError like `run_query`.
    """

    columns: Sequence[str]
    types: Sequence[str]
    batches: Iterator[Sequence[tuple[Any, ...]]]


def run_query(view: SnapshotView, query: str) -> Answer:
    """Run one query on the tables of a view.

    Only the tables that it names are filled. The database can reach neither files nor the network
    nor variables, and the query cannot change that.

    Raises:
        QueryError: It is none, or more than one, or DuckDB refuses it.
        ModuleNotFoundError: DuckDB is not installed; the command line says what to install.
    """
    import duckdb

    db = duckdb.connect(":memory:", config=dict(_CONFIG))
    try:
        _require_one_query(db, query)
        named = _named_tables(db, query)
        for table in TABLES:
            _make_table(db, table)
            if table.name in named:
                _fill(db, table, LOADERS[table.name](view))
        # Else DuckDB draws one into the answer of a long query.
        db.execute("SET enable_progress_bar = false")
        # Last: registering what was read is an access from outside as well.
        db.execute("SET enable_external_access = false")
        db.execute("SET lock_configuration = true")
        found = db.execute(query)
        described = found.description or []
        columns = [str(column[0]) for column in described]
        types = [str(column[1]) for column in described]
    except (duckdb.Error, RuntimeError) as error:
        db.close()
        raise _refused(error) from None
    except BaseException:
        db.close()
        raise
    return Answer(columns, types, _fetch(db))


def _require_one_query(db: duckdb.DuckDBPyConnection, query: str) -> None:
    statements = db.extract_statements(query)
    if len(statements) != 1:
        raise QueryError(f"expected one query, found {len(statements)}")
    kind = statements[0].type.name
    # PIVOT and the like become several statements; they begin with a type of their own.
    if kind not in _QUERIES:
        raise QueryError(
            f"{kind} is no query: the tables are read-only; write SELECT, WITH, FROM, DESCRIBE, "
            "SUMMARIZE or EXPLAIN"
        )


def _named_tables(db: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    """Return the tables that a query may read; all of them where that cannot be told."""
    import duckdb

    known = {table.name for table in TABLES}
    if _BY_TEXT.search(query):
        return known
    try:
        return {name.lower() for name in db.get_table_names(query)} & known
    except duckdb.Error:
        return known


def _make_table(db: duckdb.DuckDBPyConnection, table: Table) -> None:
    columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
    db.execute(f'CREATE TABLE "{table.name}" ({columns})')


def _fill(db: duckdb.DuckDBPyConnection, table: Table, rows: Rows) -> None:
    import pyarrow as pa

    types = _arrow_types()
    fields = [pa.field(column.name, types[column.type]) for column in table.columns]
    for batch in rows:
        if not batch:
            continue
        columns = [
            pa.array(list(values), field.type)
            for values, field in zip(zip(*batch, strict=True), fields, strict=True)
        ]
        db.register("batch", pa.Table.from_arrays(columns, schema=pa.schema(fields)))
        db.execute(f'INSERT INTO "{table.name}" SELECT * FROM batch')
        db.unregister("batch")


def _arrow_types() -> Mapping[str, Any]:
    import pyarrow as pa

    return {
        TEXT: pa.string(),
        TEXTS: pa.list_(pa.string()),
        WHOLE: pa.int64(),
        REAL: pa.float64(),
        FLAG: pa.bool_(),
        MOMENT: pa.timestamp("us"),
        VECTOR: pa.list_(pa.float32()),
    }


def _fetch(db: duckdb.DuckDBPyConnection) -> Iterator[Sequence[tuple[Any, ...]]]:
    import duckdb

    try:
        while batch := db.fetchmany(FETCH_ROWS):
            yield batch
    except (duckdb.Error, RuntimeError) as error:
        raise _refused(error) from None
    finally:
        db.close()


def _refused(error: Exception) -> BaseException:
    """Return what to raise: DuckDB's message without its blank lines, or that Ctrl-C was pressed.

    Its long advice about extensions is left out: they cannot be installed here.
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    if lines == [_INTERRUPTED]:
        return KeyboardInterrupt()
    end = next((i for i, line in enumerate(lines) if line.startswith(_ADVICE)), len(lines))
    return QueryError("\n".join(lines[:end]))


# An answer as text, CSV or JSON: row by row, so that a large one needs no memory.


CELL_CHARS = 60
"""Of a value in text output: a memory's beginning, so that a row stays readable."""


class Printed:
    """The rows of an answer up to a limit, and whether there were more.

    Attributes:
        count: Rows given out so far.
        is_cut: True once the limit left something out.
    """

    def __init__(self, answer: Answer, limit: int | None) -> None:
        """Take an answer; a limit of None means every row."""
        self.count = 0
        self.is_cut = False
        self._answer = answer
        self._limit = limit

    def batches(self) -> Iterator[Sequence[Row]]:
        """Yield the rows in batches, never an empty one."""
        for batch in self._answer.batches:
            left = None if self._limit is None else self._limit - self.count
            kept = batch if left is None else batch[:left]
            self.is_cut = len(kept) < len(batch)
            self.count += len(kept)
            if kept:
                yield kept
            if self.is_cut:
                return


def text_lines(answer: Answer, printed: Printed) -> Iterator[str]:
    """Yield a table: names, a rule, one line per row; widths are those of the first batch."""
    widths: list[int] | None = None
    for batch in printed.batches():
        cells = [[_cell(value) for value in row] for row in batch]
        if widths is None:
            widths = [
                max(len(name), *(len(row[i]) for row in cells))
                for i, name in enumerate(answer.columns)
            ]
            yield _line(answer.columns, widths)
            yield _line(["-" * width for width in widths], widths)
        for row in cells:
            yield _line(row, widths)
    if widths is None:
        yield _line(answer.columns, [len(name) for name in answer.columns])


def csv_lines(answer: Answer, printed: Printed) -> Iterator[str]:
    """Yield a header and one record per row (RFC 4180, but for LF); null is an empty field."""
    yield _record(answer.columns)
    for batch in printed.batches():
        for row in batch:
            yield _record(["" if value is None else _plain(value) for value in row])


def json_pieces(answer: Answer, printed: Printed) -> Iterator[str]:
    """Yield one JSON object in pieces: columns, types, rows, row_count, is_cut."""
    yield f'{{"columns": {_dump(answer.columns)},\n "types": {_dump(answer.types)},\n "rows": ['
    separator = "\n  "
    for batch in printed.batches():
        for row in batch:
            yield separator + _dump([to_json(value) for value in row])
            separator = ",\n  "
    yield f'],\n "row_count": {printed.count},\n "is_cut": {_dump(printed.is_cut)}}}\n'


def to_json(value: Any) -> Any:
    """Return a value of DuckDB as JSON has it; moments as ISO 8601, what JSON lacks as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): to_json(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in cast("Sequence[Any]", value)]
    return str(value)


def _cell(value: Any) -> str:
    text = "" if value is None else _plain(value)
    head = visible_line(" ".join(text[: CELL_CHARS + 1].expandtabs(1).splitlines()))
    return head if len(head) <= CELL_CHARS else f"{head[: CELL_CHARS - 3]}..."


def _plain(value: Any) -> str:
    shown = to_json(value)
    if isinstance(shown, str):
        return shown
    return json.dumps(shown, ensure_ascii=False)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()


def _record(values: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
