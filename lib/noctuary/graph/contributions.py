"""What every memory contributes to the graph, kept between nights in one DuckDB file."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from noctuary.core.files import fsync_dir, fsync_file, hash_text, remove_tree
from noctuary.core.types import MemoryRecord
from noctuary.graph.extract import (
    EXTRACTOR_VERSION,
    KINDS,
    REFUSALS,
    Dictionary,
    Extraction,
    Tokens,
    find_matches,
    needs_case,
    refusal,
)
from noctuary.graph.fold import CONCEPT_ID_HEX, fold_name
from noctuary.graph.guards import NameStats
from noctuary.graph.tables import NO_SPAN, ArrowTable
from noctuary.graph.walk import ROLES
from noctuary.sources.corpus import column_batches
from noctuary.work.shards import RecordBatch, arrow_compute

if TYPE_CHECKING:
    import duckdb


# The file of the contributions: one DuckDB database, rebuilt whenever it is not ours.


STATE_VERSION = f"1:{EXTRACTOR_VERSION}:{hash_text(*KINDS)[:8]}"
"""Of the tables and of what is stored in them; another one means that the file is rebuilt."""

MEMORY_MB = 2_048
"""What DuckDB may hold before it spills, where no setting says; more keeps the sorts of a million
memories in memory."""

_RESTING_MB = 256
"""What DuckDB may keep once the sums are done, while supersessions and files need the memory; less
reads blocks of the file again."""

_LOG = logging.getLogger(__name__)

_TABLES = """
CREATE TABLE memory (mid BIGINT, memory_id VARCHAR, key VARCHAR);
CREATE TABLE found (mid BIGINT, role UTINYINT, kind UTINYINT, look TINYINT, name VARCHAR,
    start INTEGER, stop INTEGER, surface VARCHAR);
CREATE TABLE stated (mid BIGINT, subject VARCHAR, relation VARCHAR, object VARCHAR,
    start INTEGER, stop INTEGER, subject_surface VARCHAR, object_surface VARCHAR);
CREATE TABLE stated_end (mid BIGINT, name VARCHAR, start INTEGER, stop INTEGER, surface VARCHAR);
CREATE TABLE alias (mid BIGINT, alias VARCHAR, canonical VARCHAR, detail VARCHAR);
CREATE TABLE word (mid BIGINT, word UINTEGER);
CREATE TABLE dictionary (name VARCHAR, cased BOOLEAN);
CREATE TABLE matched (mid BIGINT, name VARCHAR, start INTEGER, stop INTEGER, surface VARCHAR);
CREATE TABLE declined (mid BIGINT, script VARCHAR, runs INTEGER);
CREATE TABLE meta (version VARCHAR, has_leftovers BOOLEAN);
"""

OWN_TABLES = ("memory", "found", "stated", "stated_end", "alias", "word")
"""Tables whose rows rest on one memory's own extraction."""

MATCH_TABLES = ("matched", "declined")
"""Tables whose rows rest on one memory's text and on the dictionary."""


def open_database(path: Path, memory_mb: int = MEMORY_MB) -> duckdb.DuckDBPyConnection:
    """Open the file; what is damaged, foreign or of another version is dropped and made anew."""
    import duckdb

    path.parent.mkdir(parents=True, exist_ok=True)
    # A killed process leaves these, and both hold texts.
    remove_tree(_spill(path))
    drop_database(_fresh(path))
    existed = path.exists()
    try:
        connection = _connect(path, memory_mb)
    except duckdb.Error as error:
        return _make_anew(path, memory_mb, f"cannot be read ({type(error).__name__})")
    reason = _mismatch(connection) if existed else None
    if reason is not None:
        connection.close()
        return _make_anew(path, memory_mb, reason)
    if not existed:
        _create(connection)
    return connection


def release_memory(connection: duckdb.DuckDBPyConnection, memory_mb: int = MEMORY_MB) -> None:
    """Give back what the database holds beyond what it needs at rest; its limit stays."""
    import duckdb

    # A lower limit evicts at once; what is set again afterwards is only a permission. What cannot
    # be evicted stays.
    with suppress(duckdb.OutOfMemoryException):
        connection.execute(f"SET memory_limit = '{min(_RESTING_MB, memory_mb)}MB'")
    connection.execute(f"SET memory_limit = '{memory_mb}MB'")


def drop_database(path: Path) -> None:
    """Remove the file and what DuckDB keeps beside it."""
    for name in (path.name, f"{path.name}.wal"):
        path.with_name(name).unlink(missing_ok=True)


def compact_database(path: Path, memory_mb: int = MEMORY_MB) -> None:
    """Write the file anew without the blocks of deleted rows, which still hold their texts."""
    import duckdb

    fresh = _fresh(path)
    with duckdb.connect(config=_config(path, memory_mb)) as connection:
        connection.execute(f"ATTACH '{_quoted(path)}' AS old (READ_ONLY)")
        connection.execute(f"ATTACH '{_quoted(fresh)}' AS new")
        connection.execute("COPY FROM DATABASE old TO new")
        connection.execute("UPDATE new.meta SET has_leftovers = false")
        connection.execute("CHECKPOINT new")
    fsync_file(fresh)
    path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
    fresh.replace(path)
    fsync_dir(path.parent)


def _make_anew(path: Path, memory_mb: int, reason: str) -> duckdb.DuckDBPyConnection:
    _LOG.warning("the graph's state %s %s: it is rebuilt from the memories", path, reason)
    drop_database(path)
    connection = _connect(path, memory_mb)
    _create(connection)
    return connection


def _connect(path: Path, memory_mb: int) -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect(str(path), config=_config(path, memory_mb))


def _config(path: Path, memory_mb: int) -> dict[str, str | bool | int | float | list[str]]:
    # One thread: a parallel sort hands over the same rows in batches of varying size.
    return {
        "threads": 1,
        "memory_limit": f"{memory_mb}MB",
        "temp_directory": str(_spill(path)),
        "autoinstall_known_extensions": "false",
    }


def _create(connection: duckdb.DuckDBPyConnection) -> None:
    connection.begin()
    connection.execute(_TABLES)
    connection.execute("INSERT INTO meta VALUES (?, false)", [STATE_VERSION])
    connection.commit()


def _mismatch(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Return what is wrong with an opened file, or None; reads one row of every table."""
    import duckdb

    try:
        rows = connection.execute("SELECT version FROM meta").fetchall()
        if rows != [(STATE_VERSION,)]:
            return f"is of version {rows!r} and not {STATE_VERSION}"
        for table in (*OWN_TABLES, *MATCH_TABLES, "dictionary"):
            connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchall()
    except duckdb.Error as error:
        return f"is no state of this graph ({type(error).__name__})"
    return None


def _spill(path: Path) -> Path:
    return path.with_name(f"{path.name}.spill")


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.fresh")


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


# Findings of single memories as columns of rows, in batches. No database, no corpus.


DICTIONARY_KINDS = frozenset({"title", "heading", "key", "label", "leading", "tag"})
"""Kinds of finding whose names are looked for in other memories."""

NOT_LOOKED_FOR = -1
"""`look` of a finding that gives no dictionary name."""

ANY_CASE, NEEDS_CASE, FIRST_REFUSAL = 0, 1, 2
"""`look` of a finding that gives one; from FIRST_REFUSAL on, the reason why it is refused."""

_WORD_CACHE_SIZE = 1 << 18
"""Word codes remembered: a few tens of MB for not hashing frequent words again."""

_ROLE_CODES = {role: code for code, role in enumerate(ROLES)}
_KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}

_COLUMNS = {
    "memory": ("mid", "memory_id", "key"),
    "found": ("mid", "role", "kind", "name", "start", "stop", "surface"),
    "stated": (
        "mid", "subject", "relation", "object", "start", "stop", "subject_surface",
        "object_surface",
    ),
    "stated_end": ("mid", "name", "start", "stop", "surface"),
    "alias": ("mid", "alias", "canonical", "detail"),
    "matched": ("mid", "name", "start", "stop", "surface"),
    "declined": ("mid", "script", "runs"),
}  # fmt: skip
_OWN = ("memory", "found", "stated", "stated_end", "alias")
_OF_TEXT = ("matched", "declined")


class Columns:
    """Rows of one table of the state, column by column: a fraction of the objects that rows are."""

    def __init__(self, table: str) -> None:
        self._names = _COLUMNS[table]
        self._values: list[list[Any]] = [[] for _ in self._names]

    def add(self, mid: int, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows of one memory, each without the memory's number in front."""
        if not rows:
            return
        mids, *others = self._values
        mids += repeat(mid, len(rows))
        for values, added in zip(others, zip(*rows, strict=True), strict=True):
            values += added

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return self._values[self._names.index(name)]

    def to_table(self, **codes: Sequence[int]) -> ArrowTable:
        """Return an Arrow table with these rows."""
        import pyarrow as pa

        columns = {**dict(zip(self._names, self._values, strict=True)), **codes}
        return pa.table(
            {name: pa.array(values, type=_arrow_type(name)) for name, values in columns.items()}
        )


class OwnRows:
    """Rows that rest on a memory's own extraction, by table (see `schema`)."""

    def __init__(self) -> None:
        self._of = {table: Columns(table) for table in _OWN}

    def add(self, mid: int, memory_id: str, key: str, content: str, found: Extraction) -> None:
        """Add the rows of one memory."""
        self._of["memory"].add(mid, [(memory_id, key)])
        self._of["found"].add(mid, found.found)
        self._of["stated"].add(mid, found.stated)
        self._of["stated_end"].add(mid, stated_ends(content, found))
        self._of["alias"].add(mid, found.aliases)

    def tables(self) -> dict[str, ArrowTable]:
        """Return the rows as Arrow tables."""
        found = self._of["found"]
        kinds, names, surfaces = map(found.column, ("kind", "name", "surface"))
        codes = {
            "role": [_ROLE_CODES[role] for role in found.column("role")],
            "kind": [_KIND_CODES[kind] for kind in kinds],
            "look": [
                _look(name, surface) if kind in DICTIONARY_KINDS else NOT_LOOKED_FOR
                for kind, name, surface in zip(kinds, names, surfaces, strict=True)
            ],
        }
        return {
            table: columns.to_table(**codes) if table == "found" else columns.to_table()
            for table, columns in self._of.items()
        }


class TextRows:
    """Rows that rest on a memory's text: its dictionary matches and its words."""

    def __init__(self) -> None:
        self._of = {table: Columns(table) for table in _OF_TEXT}
        self._mids: list[int] = []
        self._counts: list[int] = []
        self._words: list[int] = []

    def add_matches(
        self, mid: int, content: str, tokens: Tokens, dictionary: Dictionary, own: frozenset[str]
    ) -> None:
        """Add what the dictionary finds in one text."""
        matches = find_matches(content, dictionary, own, tokens)
        self._of["matched"].add(
            mid, [(name, start, stop, content[start:stop]) for name, start, stop in matches.found]
        )
        self._of["declined"].add(mid, list(matches.declined.items()))

    def add_words(self, mid: int, tokens: Tokens) -> None:
        """Add the words of one text to the index."""
        distinct = set(tokens.folded)
        # A character may fold to several words, and a name is matched word by word.
        distinct |= {part for word in distinct if " " in word for part in word.split(" ")}
        codes = set(map(word_code, distinct))
        self._mids.append(mid)
        self._counts.append(len(codes))
        # The order of a set differs from process to process.
        self._words += sorted(codes)

    def tables(self) -> dict[str, ArrowTable]:
        """Return the rows as Arrow tables, those of the index of words among them."""
        import numpy as np
        import pyarrow as pa

        mids = np.repeat(np.array(self._mids, np.int64), np.array(self._counts, np.int64))
        words = pa.table({"mid": mids, "word": np.array(self._words, np.uint32)})
        return {"word": words, **{table: found.to_table() for table, found in self._of.items()}}


@lru_cache(maxsize=_WORD_CACHE_SIZE)
def word_code(word: str) -> int:
    """Return the 32-bit code of a folded word; two words may share one."""
    return crc32(word.encode("utf-8", "surrogatepass"))


def stated_ends(content: str, found: Extraction) -> list[tuple[str, int, int, str]]:
    """Return name, span and surface of both ends of every statement between two names.

    The span is that of the surface inside the statement, the first for the subject and the last for
    the object; NO_SPAN where it does not stand there as such.
    """
    ends: list[tuple[str, int, int, str]] = []
    for item in found.stated:
        if not joins_names(item.subject, item.object):
            continue
        where = (item.start, item.end) if item.start >= 0 else (0, 0)
        first = content.find(item.subject_surface, *where) if item.subject_surface else NO_SPAN
        last = content.rfind(item.object_surface, *where) if item.object_surface else NO_SPAN
        ends.append(_end(item.subject, first, item.subject_surface))
        ends.append(_end(item.object, last, item.object_surface))
    return ends


def joins_names(subject: str, thing: str) -> bool:
    """Say whether a statement is between two names and not about a memory itself."""
    return bool(subject and thing) and "#" not in (subject[0], thing[0])


def _end(name: str, start: int, surface: str) -> tuple[str, int, int, str]:
    text = surface or name
    return (name, start, start + len(text), text) if start >= 0 else (name, NO_SPAN, NO_SPAN, text)


def _look(name: str, surface: str) -> int:
    reason = refusal(name)
    if reason is not None:
        return FIRST_REFUSAL + REFUSALS.index(reason)
    return NEEDS_CASE if needs_case(name, surface) else ANY_CASE


def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    if name == "mid":
        return pa.int64()
    return pa.int32() if name in _INTEGERS else pa.string()


_INTEGERS = frozenset({"role", "kind", "look", "start", "stop", "runs"})


# Where tonight's memories stand, and everything they hold, under the names the texts use.


_SESSION_CACHE_SIZE = 1 << 12
"""Folded names of conversations remembered: their turns stand near one another."""

_MENTIONS, _AUTHOR = ROLES.index("mentions"), ROLES.index("author")
_NAME, _STATED, _SESSION, _RUN = map(KINDS.index, ("name", "stated", "session", "run"))

# A statement makes its ends concepts, but counts as a mention only where the memory does not hold
# the name anyway.
_HOLDING = f"""
CREATE OR REPLACE TEMP TABLE holding AS
WITH own AS (
    SELECT place.position, role, kind, name, start, stop, surface, false AS by_match
    FROM found JOIN place USING (mid) WHERE kind <> {_RUN} OR name IN (SELECT name FROM kept_run)
    UNION ALL
    SELECT place.position, {_MENTIONS}, {_NAME}, name, start, stop, surface, true
    FROM matched JOIN place USING (mid)
), ends AS (
    SELECT DISTINCT place.position, {_MENTIONS}, {_STATED}, name, start, stop, surface, false
    FROM stated_end JOIN place USING (mid)
)
SELECT * FROM own
UNION ALL SELECT * FROM ends WHERE NOT EXISTS (
    SELECT 1 FROM own WHERE own.position = ends.position AND own.name = ends.name)
UNION ALL SELECT position, {_AUTHOR}, {_SESSION}, session_name, {NO_SPAN}, {NO_SPAN}, session_id,
    false FROM place WHERE session_name IS NOT NULL
"""
_PLACES = """
CREATE OR REPLACE TEMP TABLE places (position INTEGER, memory_id VARCHAR, created_at_us BIGINT,
    updated_at_us BIGINT, session_id VARCHAR, session_name VARCHAR, user_name VARCHAR, wing VARCHAR,
    chars INTEGER)
"""
_PLACE_COLUMNS = (
    "position", "memory_id", "created_at_us", "updated_at_us", "session_id", "user", "wing",
    "is_turn", "content",
)  # fmt: skip
_RUN_COUNTS = f"""
SELECT name, count(*) FROM (SELECT DISTINCT name, mid FROM found WHERE kind = {_RUN})
GROUP BY name ORDER BY name
"""


def place_memories(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    kept_runs: Collection[str],
) -> None:
    """Fill the temporary tables `place` (a row per memory) and `holding` (a row per finding)."""
    import pyarrow as pa

    connection.execute(_PLACES)
    for batch in column_batches(records, _PLACE_COLUMNS):
        connection.register("incoming", _places(batch))
        connection.execute("INSERT INTO places SELECT * FROM incoming")
        connection.unregister("incoming")
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE place AS
        SELECT memory.mid, places.* EXCLUDE (memory_id)
        FROM memory JOIN places USING (memory_id)"""
    )
    connection.execute("DROP TABLE places")
    connection.register("runs", pa.table({"name": pa.array(sorted(kept_runs), pa.string())}))
    connection.execute("CREATE OR REPLACE TEMP TABLE kept_run AS SELECT name FROM runs")
    connection.unregister("runs")
    connection.execute(_HOLDING)


def count_runs(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return how many memories hold every name of kind `run`; needs only a synced state."""
    table = connection.sql(_RUN_COUNTS).to_arrow_table()
    names, counts = (column.to_numpy(zero_copy_only=False).tolist() for column in table.columns)
    return dict(zip(names, counts, strict=True))


def _places(batch: RecordBatch) -> ArrowTable:
    import pyarrow as pa

    pc = arrow_compute()
    columns = {name: batch.column(name) for name in _PLACE_COLUMNS}
    turns, sessions = (columns[name].to_pylist() for name in ("is_turn", "session_id"))
    names = [_folded(s) if turn and s else None for turn, s in zip(turns, sessions, strict=True)]
    return pa.table(
        {
            "position": columns["position"].cast(pa.int32()),
            "memory_id": columns["memory_id"],
            "created_at_us": columns["created_at_us"],
            "updated_at_us": columns["updated_at_us"],
            "session_id": columns["session_id"],
            "session_name": pa.array(names, pa.string()),
            "user_name": pc.fill_null(columns["user"], ""),
            "wing": pc.fill_null(columns["wing"], ""),
            "chars": pc.utf8_length(columns["content"]),
        }
    )


@lru_cache(maxsize=_SESSION_CACHE_SIZE)
def _folded(session_id: str) -> str | None:
    return fold_name(session_id) or None


# What all memories hold together: names, concepts, mentions, concept edges.


_ROLE_NAMES = f"{list(ROLES)!r}"
_KIND_NAMES = f"{list(KINDS)!r}"

_NAMES = """
WITH stood AS (
    SELECT name, position, min(kind) AS kind, min(surface) AS first, max(surface) AS last
    FROM holding GROUP BY name, position)
SELECT name, min(kind)::INTEGER, count(*), min(first), max(last)
FROM stood GROUP BY name ORDER BY name
"""
_CONCEPT_OF = f"""
CREATE OR REPLACE TEMP TABLE concept_of AS
WITH named AS (
    SELECT name, coalesce(canonical, name) AS canonical
    FROM (SELECT DISTINCT name FROM holding) LEFT JOIN canonical_of USING (name)
), numbered AS (
    SELECT canonical, concept_id,
        (row_number() OVER (ORDER BY concept_id) - 1)::INTEGER AS concept
    FROM (SELECT DISTINCT canonical, left(sha256(canonical), {CONCEPT_ID_HEX}) AS concept_id
        FROM named))
SELECT name, concept, concept_id, name = canonical AS is_canonical
FROM named JOIN numbered USING (canonical)
"""
_HELD = """
CREATE OR REPLACE TEMP TABLE held AS
SELECT holding.* EXCLUDE (name), concept, is_canonical FROM holding JOIN concept_of USING (name)
"""
# The name by which people call it most: among the spellings of the canonical name, where any.
_CONCEPTS = f"""
WITH spelling AS (
    SELECT concept, surface, count(*) AS uses, bool_or(is_canonical) AS is_canonical
    FROM held GROUP BY concept, surface
), spelt AS (
    SELECT concept, list(surface ORDER BY is_canonical DESC, uses DESC, surface) AS surfaces
    FROM spelling GROUP BY concept
), summed AS (
    SELECT concept, {_KIND_NAMES}[min(kind) + 1] AS kind, count(DISTINCT position) AS df
    FROM held GROUP BY concept)
SELECT concept_id, surfaces[1] AS canonical_name, kind,
    list_sort(surfaces[2:]) AS aliases, df
FROM summed JOIN spelt USING (concept)
JOIN (SELECT DISTINCT concept, concept_id FROM concept_of) USING (concept)
ORDER BY concept
"""
_MENTION_ROWS = f"""
SELECT position::BIGINT AS position, concept, {_ROLE_NAMES}[role + 1] AS role,
    start::BIGINT AS start, stop::BIGINT AS "end", surface
FROM (SELECT DISTINCT position, concept, role, start, stop, surface FROM held)
ORDER BY position, start, "end", role, concept, surface
"""
_CONCEPT_EDGES = """
WITH told AS (
    SELECT DISTINCT s.concept AS src, relation, o.concept AS dst, position, start, stop,
        created_at_us, updated_at_us
    FROM stated JOIN place USING (mid)
    JOIN concept_of s ON s.name = subject JOIN concept_of o ON o.name = object
    WHERE s.concept <> o.concept)
SELECT src, dst, relation, 1.0::DOUBLE - 1.0::DOUBLE / (1 + count(DISTINCT position)) AS weight,
    list({'position': position::BIGINT, 'start': start::BIGINT, 'end': stop::BIGINT}
        ORDER BY position, start, stop) AS evidence,
    min(created_at_us) AS valid_from_us, NULL::BIGINT AS valid_to_us,
    arg_min(updated_at_us, (created_at_us, position)) AS recorded_at_us,
    NULL::BIGINT AS retracted_at_us
FROM told GROUP BY src, relation, dst ORDER BY src, relation, dst
"""


def name_stats(connection: duckdb.DuckDBPyConnection) -> Iterator[NameStats]:
    """Yield every name that is held, in code-point order; needs `place_memories`."""
    table = connection.sql(_NAMES).to_arrow_table()
    names, kinds, df, first, last = (
        column.to_numpy(zero_copy_only=False).tolist() for column in table.columns
    )
    # Nine names in ten are spelt one way: only the others need a list.
    several = [name for name, a, b in zip(names, first, last, strict=True) if a != b]
    surfaces: dict[str, tuple[str, ...]] = {
        name: (surface,) for name, surface in zip(names, first, strict=True)
    }
    surfaces.update(_all_surfaces(connection, several))
    yield from map(NameStats, names, map(KINDS.__getitem__, kinds), surfaces.values(), df)


def _all_surfaces(
    connection: duckdb.DuckDBPyConnection, names: list[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    import pyarrow as pa

    connection.register("several", pa.table({"name": pa.array(names, pa.string())}))
    rows = connection.execute(
        """SELECT name, list_sort(list(DISTINCT surface)) FROM holding
        WHERE name IN (SELECT name FROM several) GROUP BY name"""
    ).fetchall()
    connection.unregister("several")
    return ((name, tuple(found)) for name, found in rows)


def name_concepts(connection: duckdb.DuckDBPyConnection, canonical_of: Mapping[str, str]) -> None:
    """Fill the temporary tables `concept_of` (a row per name) and `held` (a row per finding).

    `held` takes the place of `holding`: both are as large as all findings together.
    """
    import pyarrow as pa

    moved = pa.table(
        {
            "name": pa.array(list(canonical_of), pa.string()),
            "canonical": pa.array(list(canonical_of.values()), pa.string()),
        }
    )
    connection.register("moved", moved)
    connection.execute("CREATE OR REPLACE TEMP TABLE canonical_of AS SELECT * FROM moved")
    connection.unregister("moved")
    connection.execute(_CONCEPT_OF)
    connection.execute(_HELD)
    connection.execute("DROP TABLE holding")


def drop_sums(connection: duckdb.DuckDBPyConnection) -> None:
    """Let go of the temporary tables that only `fold` reads."""
    for table in ("held", "rated", "step"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")


def sum_concepts(connection: duckdb.DuckDBPyConnection) -> ArrowTable:
    """Return the concepts, sorted by concept_id; the row is the ordinal."""
    return connection.sql(_CONCEPTS).to_arrow_table()


def sum_mentions(connection: duckdb.DuckDBPyConnection) -> ArrowTable:
    """Return the mentions in their canonical order, with the concept's ordinal as `concept`."""
    return connection.sql(_MENTION_ROWS).to_arrow_table()


def sum_concept_edges(connection: duckdb.DuckDBPyConnection) -> ArrowTable:
    """Return what is stated between concepts, with ordinals as `src` and `dst`."""
    return connection.sql(_CONCEPT_EDGES).to_arrow_table()


def count_skipped(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return the number of subjects that are not looked for, by reason."""
    rows = connection.execute(
        """SELECT look, count(DISTINCT name) FROM found WHERE look >= ? GROUP BY look""",
        [FIRST_REFUSAL],
    ).fetchall()
    return dict(sorted((REFUSALS[look - FIRST_REFUSAL], names) for look, names in rows))


def count_declined(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return the number of runs of text that were not segmented, by script."""
    rows = connection.execute(
        "SELECT script, sum(runs)::BIGINT FROM declined GROUP BY script ORDER BY script"
    ).fetchall()
    return dict(rows)
