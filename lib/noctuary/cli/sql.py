"""`noctuary sql`: the current snapshot as tables of a locked-down DuckDB database."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime, time
from functools import cached_property
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import click
import numpy as np
from numpy.typing import NDArray

from noctuary.cli import main as cli
from noctuary.core.errors import NoctuaryError
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import read_pointer
from noctuary.core.store import StorePaths
from noctuary.core.tombstones import open_rows
from noctuary.core.types import UNDATED_US
from noctuary.graph.walk import OPEN_END_US, ROLES
from noctuary.recall.query import Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.text.marks import visible_line

if TYPE_CHECKING:
    import duckdb

# `noctuary sql`: one read-only query on what serves.


@click.command()
@click.argument("query", required=False)
@cli.flag("--schema", "List all tables and columns, or those of the table QUERY.")
@cli.flag("--csv", "as_csv", "Print CSV with whole values.")
@cli.option("--limit", "Rows to print at most; 0 prints all.", default=1_000, type=cli.AT_LEAST_0)
@cli.option(
    "--user NAME",
    "Only what this user may see: their own memories, shared ones, and those without an owner.",
)
@cli.store_options
def sql(
    query: str | None, schema: bool, as_csv: bool, limit: int, user: str | None, store: str | None
) -> None:
    """Run one read-only SQL QUERY (DuckDB's dialect) on the current snapshot.

    A tool for the store's owner: without --user it shows everybody's memories. If QUERY is "-", it
    comes from standard input. The query writes nothing, not even temporary files, and reaches no
    file and no network.

    \b
    noctuary sql --schema                                   tables, columns, types, meanings
    noctuary sql --schema edges                             one table
    noctuary sql "select wing, count(*) from memories group by all"
    noctuary sql "from summaries select text" --csv > summaries.csv

    Text output shortens values and prints --limit rows. CSV in a file holds the exact values; a
    terminal or pipe shows control and direction characters as marks (\\u001b). Exit code 1 if the
    query is wrong or the store cannot answer, 130 after Ctrl-C.
    """  # noqa: D301 (click wants the control character)
    if as_csv and cli.is_json():
        raise click.UsageError("give one of --csv and --json")
    if schema:
        _show_schema(query)
        return
    if query is None:
        raise click.UsageError("give a query, or --schema")
    text = sys.stdin.read() if query == "-" else query
    # At once: DuckDB looks for Ctrl-C too rarely.
    with (
        cli.handling(signal.SIG_DFL, signal.SIGINT),
        closing(SnapshotView(cli.open_paths(store), user)) as view,
    ):
        _print(run_query(view, text), limit, as_csv)


def _print(answer: Answer, limit: int, as_csv: bool) -> None:
    first = islice(answer.rows, limit or None)
    if cli.is_json():
        rows = [[to_json(value) for value in row] for row in first]
        named = {"columns": answer.columns, "types": answer.types, "rows": rows}
        is_cut = next(answer.rows, None) is not None
        cli.print_json({**named, "row_count": len(rows), "is_cut": is_cut})
        return
    # Files get the exact values as bytes; click escapes control characters for a terminal or pipe.
    is_exact = as_csv and _is_file_output()
    for line in csv_lines(answer.columns, first) if as_csv else text_lines(answer.columns, first):
        click.echo(line.encode("utf-8", "surrogatepass") if is_exact else line)
    if next(answer.rows, None) is not None:
        cli.warn(f"only the first {limit:,} rows: --limit 0 prints all")


def _is_file_output() -> bool:
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _show_schema(name: str | None) -> None:
    tables = [table for table in TABLES if name in (None, table.name)]
    if not tables:
        known = ", ".join(TABLE_NAMES)
        raise click.BadParameter(f"there is no table {name!r}; there are {known}")
    found, lines = list[dict[str, Any]](), list[str]()
    for table in tables:
        columns = [{"name": c.name, "type": c.type, "about": c.about} for c in table.columns]
        found.append({"table": table.name, "about": table.about, "columns": columns})
        lines.append(f"{table.name}: {table.about}")
        lines += [f"  {c.name:<20} {c.type:<10} {c.about}" for c in table.columns]
    cli.tell({"tables": found}, lines)


# The current snapshot as one user sees it.


class SnapshotView:
    """One published snapshot, and what of it a user may see; None is the owner, who sees all."""

    def __init__(self, paths: StorePaths, user: str | None = None) -> None:
        """Open what serves; StoreError where nothing was published, or it cannot be read."""
        self.paths, self.user = paths, user
        self.snapshot_id = read_pointer(paths).snapshot_id
        self.reader = SnapshotReader.open(paths.snapshots / self.snapshot_id)
        self.manifest = self.reader.manifest
        mask, _ = build_mask(Scope(user=user), self.reader.facets, self.reader.created_at_us)
        everything = np.ones(self.reader.count, dtype=np.bool_)
        self.seen = everything if user is None or mask is None else mask  # by position, shape (n,)
        if (gone := self.reader.facets["user"].forgotten) is not None:
            self.seen[gone] = False  # nobody sees them, the owner neither
        forgotten = self.reader.forgotten.ids
        self.db = open_rows(self.reader.directory, self.reader.forgotten)
        sees: dict[str, Callable[[Any], bool]] = {
            "sees": lambda position: bool(self.seen[position]),
            "sees_id": lambda name: (
                name not in forgotten if user is None else name in self._seen_ids
            ),
            "sees_concept": lambda ordinal: bool(self.seen_concepts[ordinal]),
        }
        for name, function in sees.items():
            self.db.create_function(name, 1, function)

    def close(self) -> None:
        """Close the files."""
        self.db.close()
        self.reader.close()

    def _column(self, name: str, table: str, order: str) -> list[Any]:
        return [row[0] for row in self.db.execute(f"SELECT {name} FROM {table} ORDER BY {order}")]

    @cached_property
    def memory_ids(self) -> NDArray[np.object_]:
        """By position."""
        return np.array(self._column("memory_id", "main.memories", "position"), object)

    @cached_property
    def concept_ids(self) -> NDArray[np.object_]:
        """By ordinal; the last entry is None, for ordinal -1."""
        return np.array([*self._column("concept_id", "concepts", "ordinal"), None], object)

    @cached_property
    def _seen_ids(self) -> frozenset[str]:
        return frozenset(self.memory_ids[self.seen])

    @cached_property
    def seen_concepts(self) -> NDArray[np.bool_]:
        """Concepts whose every mention (it may have given the name) may be seen, shape (C,)."""
        if self.user is None and self.seen.all():
            return np.ones(self.manifest.counts["concepts"], dtype=np.bool_)
        starts = self.reader.mentions.indptr
        hidden = ~self.seen[self.reader.mentions.positions]
        before = np.concatenate(([0], np.cumsum(hidden)))
        # The origin of a name without any mention is unknown, so it is hidden.
        return (before[starts[1:]] == before[starts[:-1]]) & (starts[1:] > starts[:-1])


# Rows of the tables that no SQLite file holds, as columns; large ones in parts.

BATCH_ROWS = 20_000  # rows that are Python objects at once

Columns = Sequence[Any]  # of one part of a table: lists, numpy or Arrow arrays of one length


def _mentions(view: SnapshotView) -> Iterator[Columns]:
    found, roles = view.reader.mentions, np.array(ROLES, object)
    concept = _rows_of(found.indptr)
    for part in _parts(view.seen_concepts[concept]):
        memories = view.memory_ids[found.positions[part]]
        chars = _chars(found.starts[part], found.ends[part])
        yield view.concept_ids[concept[part]], memories, roles[found.roles[part]], *chars


def _edges(view: SnapshotView) -> Iterator[Columns]:
    """Yield the edges of which both ends and the concept may be seen."""
    e, relations = view.reader.graph_edges, np.array(view.reader.relations, object)
    source = _rows_of(e.indptr)
    shown = view.seen[source] & view.seen[e.targets]
    shown &= np.append(view.seen_concepts, True)[e.concepts]  # -1, the last one: none
    moments = (e.valid_from_us, e.valid_to_us, e.recorded_at_us, e.retracted_at_us)
    for part in _parts(shown):
        yield (
            view.memory_ids[source[part]], view.memory_ids[e.targets[part]],
            relations[e.relations[part]], e.weights[part], view.concept_ids[e.concepts[part]],
            *_chars(e.evidence_starts[part], e.evidence_ends[part]), *(m[part] for m in moments),
        )  # fmt: skip


def _vectors(view: SnapshotView) -> Iterator[Columns]:
    if (found := view.reader.vectors) is not None:
        for part in _parts(view.seen):
            yield view.memory_ids[part], list(found[part])


def _evaluation(view: SnapshotView) -> Iterator[Columns]:
    """Yield nothing to a user: the queries are about everybody."""
    path = view.paths.work / "evaluation/report.json"
    if view.user is not None or not path.is_file():
        return
    groups = json.loads(path.read_text(encoding="utf-8"))["groups"]
    rows = [
        (group, arm["name"], stratum, metric, v["mean"], v.get("low"), v.get("high"), v["n"])
        for group, found in groups.items()
        for arm in found["reports"]
        for stratum, metrics in {None: arm["overall"], **arm["strata"]}.items()
        for metric, v in metrics.items()
    ]
    if rows:
        yield list(zip(*rows, strict=True))


def _facts(view: SnapshotView) -> Iterator[Columns]:
    """Yield the manifest; to a user without what counts other people's memories."""
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
    yield list(facts), list(facts.values())


def _chars(first: NDArray[Any], last: NDArray[Any]) -> Columns:
    """Return the character ranges of evidence; null where it is a field, or there is none."""
    import pyarrow as pa

    return [pa.array(ends, pa.int64(), mask=first < 0) for ends in (first, last)]


def _rows_of(starts: NDArray[Any]) -> NDArray[np.intp]:
    """Return the row that each entry of a CSR matrix belongs to."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _parts(shown: NDArray[np.bool_]) -> Iterator[NDArray[np.intp]]:
    indices = np.flatnonzero(shown)
    for first in range(0, len(indices), BATCH_ROWS):
        yield indices[first : first + BATCH_ROWS]


# What `noctuary sql` shows: tables, columns, types, meanings, and the SQL on rows.sqlite that reads
# them. In it, sees(position), sees_concept(ordinal) and sees_id(memory_id) are the view's: what a
# table is made of is visible, or its row is not. Documented in docs/sql.md.

TEXT, TEXTS, WHOLE, REAL, FLAG = "VARCHAR", "VARCHAR[]", "BIGINT", "DOUBLE", "BOOLEAN"
MOMENT, VECTOR = "TIMESTAMP", "FLOAT[]"  # UTC, to the microsecond; of length 1


class Column(NamedTuple):
    """One column: its type of DuckDB, and what it holds, with unit, range and what null means."""

    name: str
    type: str
    about: str
    sql: str = ""  # where it is not the name; texts are JSON, moments in µs

    @property
    def expression(self) -> str:
        """The SQL that reads it."""
        return self.sql or (f"{self.name}_us" if self.type == MOMENT else self.name)


class Table(NamedTuple):
    """One table: what a row is, and where its rows are from."""

    name: str
    about: str
    source: str | Callable[[SnapshotView], Iterator[Columns]]  # SQL on rows.sqlite, or a function
    columns: tuple[Column, ...]


def _table(name: str, about: str, source: Any, *columns: tuple[str, ...]) -> Table:
    return Table(name, about, source, tuple(Column(*told) for told in columns))


_EVIDENCE_IDS = """(SELECT json_group_array(memory_id) FROM (
    SELECT memory_id FROM json_each(evidence) j
    JOIN memories ON position = json_extract(j.value, '$[0]') ORDER BY j.key))"""
_SHOWN_SUMMARY = """summary_id NOT IN (
    SELECT summary_id FROM summary_sources WHERE NOT sees(position))"""

_VALID = (
    ("valid_from", MOMENT, "from when it holds; null: undated"),
    ("valid_to", MOMENT, "until before when; null: still"),
    ("recorded_at", MOMENT, "when the store wrote the evidence"),
    ("retracted_at", MOMENT, "when the store wrote what ended it; null: nothing did"),
)
_START, _END = (
    f"CASE WHEN evidence_start >= 0 THEN {c} END" for c in ("evidence_start", "evidence_end")
)
_CHARS = (
    ("start_char", WHOLE, "first character of the evidence in the content; null: a field, or none",
     _START),
    ("end_char", WHOLE, "one past its last character", _END),
)  # fmt: skip

TABLES = (
    _table("memories", "a memory of the snapshot",
        "FROM memories WHERE sees(position) ORDER BY position",
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
        ("content_hash", TEXT, "of every field but the position")),
    _table("concepts", "something that memories are about or name",
        "FROM concepts WHERE sees_concept(ordinal) ORDER BY ordinal",
        ("concept_id", TEXT, "hash of the canonical name"),
        ("name", TEXT, "canonical name", "canonical_name"),
        ("kind", TEXT, "person, tag, date ..."),
        ("aliases", TEXTS, "other names"),
        ("memories", WHOLE, "memories that hold it", "df")),
    _table("mentions", "a place where a memory holds a concept", _mentions,
        ("concept_id", TEXT, "the concept"),
        ("memory_id", TEXT, "the memory"),
        ("role", TEXT, "about, mentions, author, speaker"),
        *_CHARS),
    _table("edges", "a step that the graph walk can take from a memory to a memory", _edges,
        ("source_id", TEXT, "memory that it leaves"),
        ("target_id", TEXT, "memory that it reaches"),
        ("relation", TEXT, "mentions_subject, mentions_tag, next_turn, previous_turn ..."),
        ("weight", REAL, "above 0, at most 1"),
        ("concept_id", TEXT, "the concept that is the evidence; null: none"),
        *_CHARS,
        *_VALID),
    _table("concept_edges", "a statement about two concepts",
        """FROM concept_edges e JOIN concepts a ON a.ordinal = src
        JOIN concepts b ON b.ordinal = dst
        WHERE sees_concept(src) AND sees_concept(dst) AND NOT EXISTS (
            SELECT 1 FROM json_each(evidence) j WHERE NOT sees(json_extract(j.value, '$[0]')))
        ORDER BY e.rowid""",
        ("source_concept_id", TEXT, "the subject", "a.concept_id"),
        ("source_name", TEXT, "its canonical name", "a.canonical_name"),
        ("relation", TEXT, "works_at, part_of ..."),
        ("target_concept_id", TEXT, "the object", "b.concept_id"),
        ("target_name", TEXT, "its canonical name", "b.canonical_name"),
        ("weight", REAL, "0 to 1: grows with the memories that state it"),
        ("evidence_ids", TEXTS, "memories that state it", _EVIDENCE_IDS),
        *_VALID),
    _table("supersessions", "a memory that a newer one replaced",
        """FROM supersessions JOIN memories o ON o.position = older
        JOIN memories n ON n.position = newer JOIN memories h ON h.position = head
        JOIN memories e ON e.position = evidence_position
        LEFT JOIN concepts c ON c.ordinal = concept AND sees_concept(c.ordinal)
        WHERE sees(older) AND sees(newer) AND sees(head) AND sees(evidence_position)
        ORDER BY older, newer""",
        ("older_id", TEXT, "the replaced memory", "o.memory_id"),
        ("newer_id", TEXT, "what replaced it", "n.memory_id"),
        ("head_id", TEXT, "the newest of the chain", "h.memory_id"),
        ("reason", TEXT, "how it was noticed"),
        ("confidence", WHOLE, "0 to 2"),
        ("similarity", REAL, "cosine, where it was measured"),
        ("age_gap_days", WHOLE, "days between the two"),
        ("concept_id", TEXT, "what both are about; null: not told", "c.concept_id"),
        ("evidence_id", TEXT, "memory that says so", "e.memory_id"),
        *_CHARS,
        ("valid_to", MOMENT, "until when the older one held"),
        ("recorded_at", MOMENT, "when the store wrote the newer one")),
    _table("clusters", "turns of one session that belong together",
        """FROM clusters WHERE session_id NOT IN (SELECT session_id FROM memories
        WHERE session_id IS NOT NULL AND NOT sees(position))
        ORDER BY session_id, ordinal, cluster_id""",
        ("cluster_id", TEXT, "its id"),
        ("session_id", TEXT, "the session"),
        ("ordinal", WHOLE, "its place in the session, from 0"),
        ("first_at", MOMENT, "its first turn", "first_us"),
        ("last_at", MOMENT, "its last turn", "last_us"),
        ("is_trivial", FLAG, "a single turn: nothing to sum up", "trivial")),
    _table("summaries", "an accepted summary",
        f"FROM summaries WHERE {_SHOWN_SUMMARY} ORDER BY ordinal",
        ("summary_id", TEXT, "its id"),
        ("cluster_id", TEXT, "what it sums up"),
        ("session_id", TEXT, "the session"),
        ("text", TEXT, "its text"),
        ("method", TEXT, "how it was written"),
        ("first_at", MOMENT, "its first source", "first_us"),
        ("last_at", MOMENT, "its last source", "last_us"),
        ("source_tokens", WHOLE, "length of the sources"),
        ("summary_tokens", WHOLE, "length of the text"),
        ("align", REAL, "likeness to its sources; null: not measured"),
        ("cover", REAL, "share of the sources that it covers; null: not measured"),
        ("confidence", REAL, "0 to 1; null: not measured"),
        ("decay_rate", REAL, "1 - confidence; null: not measured"),
        ("facts", TEXT, "fact report as JSON; null: none"),
        ("plan_id", TEXT, "compaction plan that it belongs to; null: a summary of turns")),
    _table("summary_sources", "a memory that a summary stands for",
        f"FROM summary_sources WHERE {_SHOWN_SUMMARY} ORDER BY summary_id, place",
        ("summary_id", TEXT, "the summary"),
        ("place", WHOLE, "in order of time, from 0"),
        ("memory_id", TEXT, "the memory")),
    _table("vectors",
        "the vector of a memory; no rows where the snapshot was built without an encoder",
        _vectors,
        ("memory_id", TEXT, "the memory"),
        ("vector", VECTOR, "of length 1")),
    _table("access", "a memory that a recall returned, of the last 90 days",
        "FROM access_log.retrievals WHERE sees_id(memory_id) ORDER BY position",
        ("retrieved_at", MOMENT, "when"),
        ("memory_id", TEXT, "the memory; it need not be in the snapshot any more"),
        ("rank", WHOLE, "its place in the answer, from 1"),
        ("snapshot_id", TEXT, "the snapshot that answered")),
    _table("usage", "what the last night counted about a memory",
        """FROM (SELECT memory_id FROM usage.access UNION SELECT memory_id FROM usage.ltp)
        LEFT JOIN usage.access USING (memory_id) LEFT JOIN usage.ltp USING (memory_id)
        WHERE sees_id(memory_id) ORDER BY memory_id""",
        ("memory_id", TEXT, "the memory"),
        ("retrievals", WHOLE, "over all time; null: never"),
        ("recent", WHOLE, "inside the window; null: never"),
        ("days", WHOLE, "distinct days with a retrieval; null: never"),
        ("last_at", MOMENT, "last retrieval, else the creation; null: neither is known",
         "coalesce(last_accessed_us, last_us)"),
        ("ltp_multiplier", REAL, "at least 1; null: not scanned"),
        ("ltp_score", REAL, "0 to 1; null: not scanned"),
        ("decayed_score", REAL, "0 to 1; null: not scanned")),
    _table("archived", "a memory that a plan in force has archived",
        """FROM archive.entries JOIN archive.applications USING (plan_id)
        WHERE undone_at_us IS NULL AND sees_id(memory_id) AND sees_id(successor_id)
        ORDER BY memory_id, plan_id, applied_at_us""",
        ("memory_id", TEXT, "the memory"),
        ("plan_id", TEXT, "the plan"),
        ("successor_id", TEXT, "what stands for it"),
        ("summary_id", TEXT, "the summary of its group; null: the successor stands alone"),
        ("applied_at", MOMENT, "when the plan was applied")),
    _table("evaluation",
        "a metric of the last evaluated night, which need not be the one that serves",
        _evaluation,
        ("query_group", TEXT, "labelled, exact ..."),
        ("arm", TEXT, "served, or an alternative that was compared"),
        ("stratum", TEXT, "kind of query; null: all of the group"),
        ("metric", TEXT, "recall@5, ndcg@10 ..."),
        ("mean", REAL, "over the queries"),
        ("low", REAL, "lower end of its 95 % interval; null: not given"),
        ("high", REAL, "upper end; null: not given"),
        ("queries", WHOLE, "how many were asked")),
    _table("snapshot", "a fact about what serves", _facts,
        ("key", TEXT, "snapshot_id, digest, built_at, count_memories ..."),
        ("value", TEXT, "as text")),
)  # fmt: skip

TABLE_NAMES = tuple(table.name for table in TABLES)

_BESIDE = {"access": "access_log", "usage": "usage", "archived": "archive"}
"""By table, which file beside the snapshot it is read from; only the log is written meanwhile."""


def read_table(view: SnapshotView, name: str) -> Iterator[Any]:
    """Yield the rows of a table that the view's user may see, as Arrow record batches."""
    import pyarrow as pa

    table = next(table for table in TABLES if table.name == name)
    parts = _select(view, table) if isinstance(table.source, str) else table.source(view)
    names = [column.name for column in table.columns]
    for part in parts:
        arrays = [
            _to_arrow(values, column.type)
            for values, column in zip(part, table.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names)


def read_rows(view: SnapshotView, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of `read_table`, columns by name."""
    for batch in read_table(view, name):
        yield from batch.to_pylist()


def _select(view: SnapshotView, table: Table) -> Iterator[Columns]:
    if table.name in _BESIDE:
        beside = _BESIDE[table.name]
        path = getattr(view.paths, beside)
        if not path.is_file():
            return
        immutable = "" if path == view.paths.access_log else "&immutable=1"
        uri = f"{path.absolute().as_uri()}?mode=ro{immutable}"
        view.db.execute(f"ATTACH ? AS {beside}", (uri,))
    columns = ", ".join(column.expression for column in table.columns)
    with closing(view.db.execute(f"SELECT {columns} {table.source}")) as cursor:
        while batch := cursor.fetchmany(BATCH_ROWS):
            yield list(zip(*batch, strict=True))


def _to_arrow(values: Any, kind: str) -> Any:
    import pyarrow as pa

    if kind == MOMENT:
        us = [None if us in (UNDATED_US, OPEN_END_US) else us for us in values]
        return pa.array(us, pa.int64()).cast(pa.timestamp("us"))
    if kind == FLAG:
        return pa.array(values, pa.int64()).cast(pa.bool_())
    if kind == TEXTS:
        return pa.array([parse_json(text) for text in values], pa.list_(pa.string()))
    types = {TEXT: pa.string(), WHOLE: pa.int64(), REAL: pa.float64()}
    return pa.array(values, types.get(kind, pa.list_(pa.float32())))


# A DuckDB database in memory: the tables that a query names are filled, then it is locked.

FETCH_ROWS = 2_000  # rows of an answer that are Python objects at once

MEMORY_LIMIT = "4GB"  # tables included; nothing is spilled to disk, where texts would lie
_CONFIG: Mapping[str, str] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Else a name that is no table would be looked for among the variables of this program.
    "python_enable_replacements": "false",
    "memory_limit": MEMORY_LIMIT,
    "temp_directory": "",
}
_ADVICE = "Please try installing"
_QUERIES = frozenset({"SELECT", "EXPLAIN"})
_BY_TEXT = re.compile(r"\bquery(_table)?\s*\(", re.IGNORECASE)
"""Functions of DuckDB that read tables named by a text: the parser does not see which."""


class QueryError(NoctuaryError, ValueError):
    """A query is invalid or not allowed."""


class Answer(NamedTuple):
    """The answer to a query; iterating the rows raises QueryError like `run_query`."""

    columns: list[str]
    types: list[str]  # names of DuckDB's types
    rows: Iterator[tuple[Any, ...]]


def run_query(view: SnapshotView, query: str) -> Answer:
    """Run one read-only query on the tables of a view, and fill only those that it names.

    It can reach neither files nor the network. Raises QueryError if it is invalid or refused.
    """
    import duckdb

    db = duckdb.connect(":memory:", config=dict(_CONFIG))
    try:
        _require_one_query(db, query)
        named = _named_tables(db, query)
        for table in TABLES:
            columns = ", ".join(f'"{column.name}" {column.type}' for column in table.columns)
            db.execute(f'CREATE TABLE "{table.name}" ({columns})')
            for batch in read_table(view, table.name) if table.name in named else ():
                db.register("batch", batch)
                db.execute(f'INSERT INTO "{table.name}" FROM batch')
                db.unregister("batch")
        # Else DuckDB draws one into the answer of a long query.
        db.execute("SET enable_progress_bar = false")
        # Last: registering what was read is an access from outside as well.
        db.execute("SET enable_external_access = false")
        db.execute("SET lock_configuration = true")
        db.execute(query)
        described = db.description or []
        names, types = [str(column[0]) for column in described], [str(c[1]) for c in described]
        return Answer(names, types, _fetch(db))
    except BaseException as error:
        db.close()
        if isinstance(error, duckdb.Error):
            raise _to_query_error(error) from None
        raise


def _fetch(db: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    import duckdb

    try:
        while batch := db.fetchmany(FETCH_ROWS):
            yield from batch
    except duckdb.Error as error:
        raise _to_query_error(error) from None
    finally:
        db.close()


def _require_one_query(db: duckdb.DuckDBPyConnection, query: str) -> None:
    statements = db.extract_statements(query)
    if len(statements) != 1:
        raise QueryError(f"expected one query, found {len(statements)}")
    kind = statements[0].type.name
    # PIVOT and the like become several statements; they begin with a type of their own.
    if kind not in _QUERIES:
        raise QueryError(
            f"{kind} is not a query: the tables are read-only; write SELECT, WITH, FROM, DESCRIBE, "
            "SUMMARIZE or EXPLAIN"
        )


def _named_tables(db: duckdb.DuckDBPyConnection, query: str) -> Collection[str]:
    """Return the tables that a query may read; all of them where that cannot be told."""
    import duckdb

    try:
        if not _BY_TEXT.search(query):
            return {name.lower() for name in db.get_table_names(query)}
    except duckdb.Error:
        pass
    return TABLE_NAMES


def _to_query_error(error: Exception) -> QueryError:
    """Return DuckDB's message without its advice to install extensions."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return QueryError("\n".join(takewhile(lambda line: not line.startswith(_ADVICE), lines)))


# An answer as text, CSV or JSON.

CELL_CHARS = 60  # shown of a value in text output, so that a row stays readable


def text_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield a table: names, a rule, one line per row."""
    cells = [[_shorten(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *cells, strict=True)]
    rule = [["-" * width for width in widths]] if cells else []
    yield from cli.columns([names, *rule, *cells])


def csv_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Iterator[str]:
    """Yield a header and one record per row (RFC 4180, but for LF); null is an empty field."""
    for row in chain([names], ([_plain(value) for value in row] for row in rows)):
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow(row)
        yield line.getvalue()


def to_json(value: Any) -> Any:
    """Return a value of DuckDB as JSON has it; moments as ISO 8601, what JSON lacks as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case bytes() | bytearray():
            return value.hex()
        case dict():
            items = cast("dict[Any, Any]", value).items()
            return {str(key): to_json(item) for key, item in items}
        case list() | tuple():
            return [to_json(item) for item in cast("Sequence[Any]", value)]
        case _:
            return str(value)


def _shorten(value: Any) -> str:
    head = visible_line(" ".join(_plain(value)[: CELL_CHARS + 1].expandtabs(1).splitlines()))
    return head if len(head) <= CELL_CHARS else f"{head[: CELL_CHARS - 3]}..."


def _plain(value: Any) -> str:
    shown = "" if value is None else to_json(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
