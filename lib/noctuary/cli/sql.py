"""`noctuary sql`: the current snapshot as tables of a locked-down DuckDB database."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, time
from functools import cached_property, partial
from itertools import chain, islice
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
from noctuary.core.types import NOTHING, UNDATED_US
from noctuary.graph.fold import ROLES
from noctuary.graph.walk import OPEN_END_US
from noctuary.recall.query import Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.text.marks import visible_line

if TYPE_CHECKING:
    import duckdb


@click.command()
@click.argument("query")
@cli.flag("--csv", "as_csv", "Print CSV with whole values.")
@cli.option("--limit", "Rows to print at most; 0 prints all.", default=1_000, type=cli.AT_LEAST_0)
@cli.option(
    "--user NAME",
    "Only what this user may see: their own memories, shared ones, and those without an owner.",
)
@cli.store_options
def sql(query: str, as_csv: bool, limit: int, user: str | None, store: str | None) -> None:
    """Run one read-only SQL QUERY (DuckDB's dialect) on the current snapshot.

    A tool for the store's owner: without --user it shows everybody's memories. If QUERY is "-", it
    comes from standard input. The query writes nothing, not even temporary files, and reaches no
    file and no network.

    \b
    noctuary sql "show tables"                              docs/sql.md says what they mean
    noctuary sql "describe edges"                           columns and types of one table
    noctuary sql "select wing, count(*) from memories group by all"
    noctuary sql "from summaries select text" --csv > summaries.csv

    Text output shortens values and prints --limit rows. CSV in a file holds the exact values; a
    terminal or pipe shows control and direction characters as marks (\\u001b). Exit code 1 if the
    query is wrong or the store cannot answer, 130 after Ctrl-C.
    """  # noqa: D301 (click wants the control character)
    if as_csv and cli.is_json():
        raise click.UsageError("give one of --csv and --json")
    text = sys.stdin.read() if query == "-" else query
    # At once: DuckDB looks for Ctrl-C too rarely.
    with (
        cli.handling(signal.SIG_DFL, signal.SIGINT),
        closing(SnapshotView(cli.open_paths(store), user)) as view,
        run_query(view, text) as answer,
    ):
        _print(answer, limit, as_csv)


FETCH_ROWS = 2_000  # rows of an answer that are Python objects at once


def _print(answer: duckdb.DuckDBPyConnection, limit: int, as_csv: bool) -> None:
    described = answer.description or []
    names, types = [str(column[0]) for column in described], [str(c[1]) for c in described]
    rows = chain.from_iterable(iter(partial(answer.fetchmany, FETCH_ROWS), []))
    first = islice(rows, limit or None)
    if cli.is_json():
        shown = [[to_json(value) for value in row] for row in first]
        found = {"columns": names, "types": types, "rows": shown, "row_count": len(shown)}
        cli.print_json({**found, "is_cut": next(rows, None) is not None})
        return
    # Files get the exact values as bytes; click escapes control characters for a terminal or pipe.
    is_exact = as_csv and _is_file_output()
    for line in csv_lines(names, first) if as_csv else text_lines(names, first):
        click.echo(line.encode("utf-8", "surrogatepass") if is_exact else line)
    if next(rows, None) is not None:
        cli.warn(f"only the first {limit:,} rows: --limit 0 prints all")


def _is_file_output() -> bool:
    try:
        return stat.S_ISREG(os.fstat(sys.stdout.fileno()).st_mode)
    except (OSError, ValueError):
        return False


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
    """Return a DuckDB value as JSON: times as ISO 8601, other values that JSON lacks as text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float() if math.isfinite(value):
            return value
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
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


# One query on a DuckDB database in memory, which is locked once its tables are filled.

_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    # Otherwise the name of no table is looked up among the variables of this program.
    "python_enable_replacements": "false",
    "memory_limit": "4GB",  # tables included
    "threads": "4",
    "temp_directory": "",  # texts of memories are never spilled to disk
}
# Last, because registering a batch of rows counts as external access. The progress bar would be
# drawn into the answer of a long query.
_LOCK = """SET enable_progress_bar = false; SET enable_external_access = false;
SET lock_configuration = true"""


class QueryError(NoctuaryError, ValueError):
    """A query is invalid or not allowed."""


@contextmanager
def run_query(view: SnapshotView, query: str) -> Generator[duckdb.DuckDBPyConnection]:
    """Run one read-only query on the tables of a view, and yield the connection to fetch from.

    The query can reach neither files nor the network.

    Raises:
        QueryError: The query is invalid or refused, or fails while its rows are fetched.
    """
    import duckdb

    db = duckdb.connect(":memory:", config=dict(_CONFIG))
    try:
        statements = db.extract_statements(query)
        if len(statements) != 1:
            raise QueryError(f"expected one query, found {len(statements)}")
        if (kind := statements[0].type.name) not in ("SELECT", "EXPLAIN"):
            raise QueryError(
                f"{kind} is not a query: the tables are read-only; write SELECT, WITH, FROM, "
                "DESCRIBE, SUMMARIZE or EXPLAIN"
            )
        for name, table in TABLES.items():
            columns = ", ".join(f'"{column}" {kind}' for column, kind in table.columns.items())
            db.execute(f'CREATE TABLE "{name}" ({columns})')
            for batch in read_table(view, name) if _may_read(query.lower(), name) else ():
                db.register("batch", batch)
                db.execute(f'INSERT INTO "{name}" FROM batch')
                db.unregister("batch")
        db.execute(_LOCK)
        yield db.execute(query)
    except duckdb.Error as error:
        raise QueryError(str(error)) from None
    finally:
        db.close()


def _may_read(query: str, table: str) -> bool:
    # query('...') and query_table('...') can put a table's name together from parts.
    return table in query or "query" in query


# The current snapshot as one user sees it.


class SnapshotView:
    """The current snapshot, limited to what a user may see; None is the owner, who sees all."""

    def __init__(self, paths: StorePaths, user: str | None = None) -> None:
        """Open the current snapshot; StoreError if there is none, or it cannot be read."""
        self.paths, self.user = paths, user
        self.snapshot_id = read_pointer(paths).snapshot_id
        self.reader = SnapshotReader.open(paths.snapshots / self.snapshot_id)
        self.manifest = self.reader.manifest
        mask, _ = build_mask(Scope(user=user), self.reader.facets, self.reader.created_at_us)
        everything = np.ones(self.reader.count, dtype=np.bool_)
        self.seen = everything if user is None or mask is None else mask  # by position, shape (n,)
        if (gone := self.reader.facets["user"].forgotten) is not None:
            self.seen[gone] = False  # not even the owner sees them
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
        """Memory ids by position."""
        return np.array(self._column("memory_id", "main.memories", "position"), object)

    @cached_property
    def concept_ids(self) -> NDArray[np.object_]:
        """Concept ids by ordinal, then None for ordinal -1."""
        return np.array([*self._column("concept_id", "concepts", "ordinal"), None], object)

    @cached_property
    def _seen_ids(self) -> frozenset[str]:
        return frozenset(self.memory_ids[self.seen])

    @cached_property
    def seen_concepts(self) -> NDArray[np.bool_]:
        """Mask of concepts, shape (C,): all mentions are visible, as each may give the name."""
        if self.user is None and self.seen.all():
            return np.ones(self.manifest.counts["concepts"], dtype=np.bool_)
        starts = self.reader.mentions.indptr
        hidden = ~self.seen[self.reader.mentions.positions]
        before = np.concatenate(([0], np.cumsum(hidden)))
        # A concept without mentions stays hidden: the origin of its name is unknown.
        return (before[starts[1:]] == before[starts[:-1]]) & (starts[1:] > starts[:-1])


# Tables that are not in a SQLite file, as parts of columns.

BATCH_ROWS = 20_000  # rows that are Python objects at once

Columns = Sequence[Any]  # lists, numpy or Arrow arrays of one length


def _mentions(view: SnapshotView) -> Iterator[Columns]:
    found, roles = view.reader.mentions, np.array(ROLES, object)
    concept = _rows_of(found.indptr)
    for part in _parts(view.seen_concepts[concept]):
        memories = view.memory_ids[found.positions[part]]
        chars = _chars(found.starts[part], found.ends[part])
        yield view.concept_ids[concept[part]], memories, roles[found.roles[part]], *chars


def _edges(view: SnapshotView) -> Iterator[Columns]:
    """Yield the edges whose ends and concept are visible."""
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
    """Yield the metrics of the last evaluation; a user gets none, as it asks about everybody."""
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
    """Yield facts of the manifest; a user gets none that count other people's memories."""
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
    """Return character ranges of evidence, null where it is a field or missing."""
    import pyarrow as pa

    return [pa.array(ends, pa.int64(), mask=first < 0) for ends in (first, last)]


def _rows_of(starts: NDArray[Any]) -> NDArray[np.intp]:
    """Return the row that each entry of a CSR matrix belongs to."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _parts(shown: NDArray[np.bool_]) -> Iterator[NDArray[np.intp]]:
    indices = np.flatnonzero(shown)
    for first in range(0, len(indices), BATCH_ROWS):
        yield indices[first : first + BATCH_ROWS]


# The documented tables (docs/sql.md): where their rows come from, and their columns. In the SQL,
# which runs on rows.sqlite, sees(position), sees_concept(ordinal) and sees_id(memory_id) belong to
# the view: a row is visible if everything it was made of is.

TEXT, TEXTS, WHOLE, REAL, FLAG = "VARCHAR", "VARCHAR[]", "BIGINT", "DOUBLE", "BOOLEAN"
MOMENT, VECTOR = "TIMESTAMP", "FLOAT[]"  # UTC, stored as microseconds; of length 1


class Table(NamedTuple):
    """One table of the view."""

    source: str | Callable[[SnapshotView], Iterator[Columns]]  # SQL from FROM on, or a function
    columns: Mapping[str, str]  # DuckDB's types by name
    renamed: Mapping[str, str] = NOTHING  # SQL of columns; else the name, of moments NAME_us


_EVIDENCE_IDS = """(SELECT json_group_array(memory_id) FROM (
    SELECT memory_id FROM json_each(evidence) j
    JOIN memories ON position = json_extract(j.value, '$[0]') ORDER BY j.key))"""
_SHOWN_SUMMARY = """summary_id NOT IN (
    SELECT summary_id FROM summary_sources WHERE NOT sees(position))"""
_VALID = {
    "valid_from": MOMENT, "valid_to": MOMENT, "recorded_at": MOMENT, "retracted_at": MOMENT,
}  # fmt: skip
_CHARS = {"start_char": WHOLE, "end_char": WHOLE}

TABLES = {
    "memories": Table(
        "FROM memories WHERE sees(position) ORDER BY position",
        {
            "memory_id": TEXT, "position": WHOLE, "content": TEXT, "category": TEXT, "tags": TEXT,
            "expanded_keywords": TEXT, "importance": REAL, "created_at": MOMENT,
            "updated_at": MOMENT, "session_id": TEXT, "wing": TEXT, "room": TEXT, "user": TEXT,
            "is_turn": FLAG, "content_hash": TEXT, "origin": TEXT,
            "valid_until": MOMENT,
        },
    ),
    "concepts": Table(
        "FROM concepts WHERE sees_concept(ordinal) ORDER BY ordinal",
        {"concept_id": TEXT, "name": TEXT, "kind": TEXT, "aliases": TEXTS, "memories": WHOLE},
        {"name": "canonical_name", "memories": "df"},
    ),
    "mentions": Table(
        _mentions, {"concept_id": TEXT, "memory_id": TEXT, "role": TEXT, **_CHARS}
    ),
    "edges": Table(
        _edges,
        {
            "source_id": TEXT, "target_id": TEXT, "relation": TEXT, "weight": REAL,
            "concept_id": TEXT, **_CHARS, **_VALID,
        },
    ),
    "concept_edges": Table(
        """FROM concept_edges e JOIN concepts a ON a.ordinal = src
        JOIN concepts b ON b.ordinal = dst
        WHERE sees_concept(src) AND sees_concept(dst) AND NOT EXISTS (
            SELECT 1 FROM json_each(evidence) j WHERE NOT sees(json_extract(j.value, '$[0]')))
        ORDER BY e.rowid""",
        {
            "source_concept_id": TEXT, "source_name": TEXT, "relation": TEXT,
            "target_concept_id": TEXT, "target_name": TEXT, "weight": REAL, "evidence_ids": TEXTS,
            **_VALID,
        },
        {
            "source_concept_id": "a.concept_id", "source_name": "a.canonical_name",
            "target_concept_id": "b.concept_id", "target_name": "b.canonical_name",
            "evidence_ids": _EVIDENCE_IDS,
        },
    ),
    "supersessions": Table(
        """FROM supersessions JOIN memories o ON o.position = older
        JOIN memories n ON n.position = newer JOIN memories h ON h.position = head
        JOIN memories e ON e.position = evidence_position
        LEFT JOIN concepts c ON c.ordinal = concept AND sees_concept(c.ordinal)
        WHERE sees(older) AND sees(newer) AND sees(head) AND sees(evidence_position)
        ORDER BY older, newer""",
        {
            "older_id": TEXT, "newer_id": TEXT, "head_id": TEXT, "reason": TEXT,
            "confidence": WHOLE, "similarity": REAL, "age_gap_days": WHOLE, "concept_id": TEXT,
            "evidence_id": TEXT, **_CHARS, "valid_to": MOMENT, "recorded_at": MOMENT,
        },
        {
            "older_id": "o.memory_id", "newer_id": "n.memory_id", "head_id": "h.memory_id",
            "concept_id": "c.concept_id", "evidence_id": "e.memory_id",
            "start_char": "CASE WHEN evidence_start >= 0 THEN evidence_start END",
            "end_char": "CASE WHEN evidence_start >= 0 THEN evidence_end END",
        },
    ),
    "clusters": Table(
        """FROM clusters WHERE session_id NOT IN (SELECT session_id FROM memories
        WHERE session_id IS NOT NULL AND NOT sees(position))
        ORDER BY session_id, ordinal, cluster_id""",
        {
            "cluster_id": TEXT, "session_id": TEXT, "ordinal": WHOLE, "first_at": MOMENT,
            "last_at": MOMENT, "is_trivial": FLAG,
        },
        {"first_at": "first_us", "last_at": "last_us", "is_trivial": "trivial"},
    ),
    "summaries": Table(
        f"FROM summaries WHERE {_SHOWN_SUMMARY} ORDER BY ordinal",
        {
            "summary_id": TEXT, "cluster_id": TEXT, "session_id": TEXT, "text": TEXT,
            "method": TEXT, "first_at": MOMENT, "last_at": MOMENT, "source_tokens": WHOLE,
            "summary_tokens": WHOLE, "align": REAL, "cover": REAL, "confidence": REAL,
            "decay_rate": REAL, "facts": TEXT, "plan_id": TEXT,
        },
        {"first_at": "first_us", "last_at": "last_us"},
    ),
    "summary_sources": Table(
        f"FROM summary_sources WHERE {_SHOWN_SUMMARY} ORDER BY summary_id, place",
        {"summary_id": TEXT, "place": WHOLE, "memory_id": TEXT},
    ),
    "vectors": Table(_vectors, {"memory_id": TEXT, "vector": VECTOR}),
    "access": Table(
        "FROM access_log.retrievals WHERE sees_id(memory_id) ORDER BY position",
        {"retrieved_at": MOMENT, "memory_id": TEXT, "rank": WHOLE, "snapshot_id": TEXT},
    ),
    "usage": Table(
        """FROM (SELECT memory_id FROM usage.access UNION SELECT memory_id FROM usage.ltp)
        LEFT JOIN usage.access USING (memory_id) LEFT JOIN usage.ltp USING (memory_id)
        WHERE sees_id(memory_id) ORDER BY memory_id""",
        {
            "memory_id": TEXT, "retrievals": WHOLE, "recent": WHOLE, "days": WHOLE,
            "last_at": MOMENT, "ltp_multiplier": REAL, "ltp_score": REAL, "decayed_score": REAL,
        },
        {"last_at": "coalesce(last_accessed_us, last_us)"},
    ),
    "archived": Table(
        """FROM archive.entries JOIN archive.applications USING (plan_id)
        WHERE undone_at_us IS NULL AND sees_id(memory_id) AND sees_id(successor_id)
        ORDER BY memory_id, plan_id, applied_at_us""",
        {
            "memory_id": TEXT, "plan_id": TEXT, "successor_id": TEXT, "summary_id": TEXT,
            "applied_at": MOMENT,
        },
    ),
    "evaluation": Table(
        _evaluation,
        {
            "query_group": TEXT, "arm": TEXT, "stratum": TEXT, "metric": TEXT, "mean": REAL,
            "low": REAL, "high": REAL, "queries": WHOLE,
        },
    ),
    "snapshot": Table(_facts, {"key": TEXT, "value": TEXT}),
}  # fmt: skip

_FILES = {"access": "access_log", "usage": "usage", "archived": "archive"}
"""By table, the file next to the snapshots that it reads; only the log is written meanwhile."""


def read_table(view: SnapshotView, name: str) -> Iterator[Any]:
    """Yield the rows of a table that the view's user may see, as Arrow record batches."""
    import pyarrow as pa

    table = TABLES[name]
    parts = _select(view, name, table) if isinstance(table.source, str) else table.source(view)
    for part in parts:
        arrays = map(_to_arrow, part, table.columns.values())
        yield pa.RecordBatch.from_arrays(list(arrays), list(table.columns))


def read_rows(view: SnapshotView, name: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of `read_table`, columns by name."""
    for batch in read_table(view, name):
        yield from batch.to_pylist()


def _select(view: SnapshotView, name: str, table: Table) -> Iterator[Columns]:
    if (schema := _FILES.get(name)) is not None:
        path = getattr(view.paths, schema)
        if not path.is_file():
            return
        immutable = "" if path == view.paths.access_log else "&immutable=1"
        uri = f"{path.absolute().as_uri()}?mode=ro{immutable}"
        view.db.execute(f"ATTACH ? AS {schema}", (uri,))
    columns = (
        table.renamed.get(column, f"{column}_us" if kind == MOMENT else column)
        for column, kind in table.columns.items()
    )
    with closing(view.db.execute(f"SELECT {', '.join(columns)} {table.source}")) as cursor:
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
