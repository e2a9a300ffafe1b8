"""The graph's state between two nights: brought in step with the corpus, then added up in SQL."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from heapq import merge
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from noctuary.core import formats
from noctuary.core.files import fsync_dir, fsync_file, hash_text, remove_tree
from noctuary.core.types import MemoryRecord
from noctuary.graph.duplicates import KEYED_COLUMNS, read_keys
from noctuary.graph.extract import (
    EXTRACTOR_VERSION,
    KINDS,
    Dictionary,
    Extraction,
    Found,
    Stated,
    Tokens,
    find_matches,
    is_looked_for,
    needs_case,
)
from noctuary.graph.fold import CONCEPT_ID_HEX, ROLES, fold_name
from noctuary.graph.guards import NameStats
from noctuary.graph.successors import KEYS_VERSION
from noctuary.graph.tables import (
    NO_SPAN,
    ArrowColumn,
    ArrowTable,
    GraphTables,
    Merge,
    schema_of,
    to_table,
)
from noctuary.graph.walk import LINK_RELATIONS, RELATIONS
from noctuary.sources.corpus import column_batches, take_columns
from noctuary.work.shards import arrow_compute

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# The file of the contributions: one DuckDB database, rebuilt whenever it is not ours.

# Version of the tables and of the data in them; a file of another version is rebuilt.
STATE_VERSION = (
    f"{formats.GRAPH_STATE.version}:{EXTRACTOR_VERSION}:{KEYS_VERSION}:{hash_text(*KINDS)[:8]}"
)
# DuckDB's memory limit before it spills, if no setting gives one; more keeps the sorts of a million
# memories in memory.
MEMORY_MB = 2_048
# Memory that DuckDB may keep after the sums, while supersessions and files need it; less
# reads blocks of the file again.
_RESTING_MB = 256
_LOG = logging.getLogger(__name__)

_TABLES = """
CREATE TABLE memory (mid BIGINT, memory_id VARCHAR, key VARCHAR, tombstone BOOLEAN, marks BIGINT,
    alike BIGINT, things VARCHAR);
CREATE TABLE found (mid BIGINT, role UTINYINT, kind UTINYINT, look TINYINT, name VARCHAR,
    start INTEGER, stop INTEGER, surface VARCHAR);
CREATE TABLE stated (mid BIGINT, subject VARCHAR, relation VARCHAR, object VARCHAR,
    start INTEGER, stop INTEGER, subject_surface VARCHAR, object_surface VARCHAR);
CREATE TABLE alias (mid BIGINT, alias VARCHAR, canonical VARCHAR, detail VARCHAR);
CREATE TABLE word (mid BIGINT, word UINTEGER);
CREATE TABLE dictionary (name VARCHAR, cased BOOLEAN);
CREATE TABLE matched (mid BIGINT, name VARCHAR, start INTEGER, stop INTEGER, surface VARCHAR);
CREATE TABLE meta (version VARCHAR, has_leftovers BOOLEAN);
"""
_OWN_TABLES = ("memory", "found", "stated", "alias", "word", "matched")


def open_database(path: Path, memory_mb: int = MEMORY_MB) -> DuckDBPyConnection:
    """Open the file; a damaged, foreign or outdated one is deleted and created again."""
    import duckdb

    path.parent.mkdir(parents=True, exist_ok=True)
    # A killed process leaves these, and both hold texts.
    remove_tree(_spill(path))
    _drop(_fresh(path))
    if path.exists():
        try:
            connection = duckdb.connect(str(path), config=_config(path, memory_mb))
        except duckdb.Error as error:
            reason = f"cannot be read ({type(error).__name__})"
        else:
            reason = _mismatch(connection)
            if reason is None:
                return connection
            connection.close()
        _LOG.warning("the graph's state %s %s: it is rebuilt from the memories", path, reason)
        _drop(path)
    connection = duckdb.connect(str(path), config=_config(path, memory_mb))
    made = f"INSERT INTO meta VALUES ('{STATE_VERSION}', false)"
    connection.execute(f"BEGIN; {_TABLES} {made}; COMMIT")
    return connection


def release_memory(connection: DuckDBPyConnection, memory_mb: int = MEMORY_MB) -> None:
    """Free the memory that the database does not need at rest; its limit stays."""
    import duckdb

    # A lower limit evicts at once; raising it again reserves nothing. A block that cannot
    # be evicted stays.
    with suppress(duckdb.OutOfMemoryException):
        connection.execute(f"SET memory_limit = '{min(_RESTING_MB, memory_mb)}MB'")
    connection.execute(f"SET memory_limit = '{memory_mb}MB'")


def _compact_database(path: Path, memory_mb: int) -> None:
    """Rewrite the file without the blocks of deleted rows, which still hold their texts."""
    import duckdb

    fresh = _fresh(path)
    old, new = (str(file).replace("'", "''") for file in (path, fresh))
    with duckdb.connect(config=_config(path, memory_mb)) as connection:
        connection.execute(
            f"""ATTACH '{old}' AS old (READ_ONLY); ATTACH '{new}' AS new;
            COPY FROM DATABASE old TO new; UPDATE new.meta SET has_leftovers = false"""
        )
        connection.execute("CHECKPOINT new")
    fsync_file(fresh)
    path.with_name(f"{path.name}.wal").unlink(missing_ok=True)
    fresh.replace(path)
    fsync_dir(path.parent)


def _config(path: Path, memory_mb: int) -> dict[str, str | bool | int | float | list[str]]:
    # One thread: a parallel sort hands over the same rows in batches of varying size.
    return {
        "threads": 1,
        "memory_limit": f"{memory_mb}MB",
        "temp_directory": str(_spill(path)),
        "autoinstall_known_extensions": "false",
    }


def _mismatch(connection: DuckDBPyConnection) -> str | None:
    """Return why an opened file is unusable, or None; reads one row of every table."""
    import duckdb

    try:
        rows = connection.execute("SELECT version FROM meta").fetchall()
        if rows != [(STATE_VERSION,)]:
            return f"is of version {rows!r} and not {STATE_VERSION}"
        for table in (*_OWN_TABLES, "dictionary"):
            connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchall()
    except duckdb.Error as error:
        return f"is no state of this graph ({type(error).__name__})"
    return None


def _drop(path: Path) -> None:
    for name in (path.name, f"{path.name}.wal"):
        path.with_name(name).unlink(missing_ok=True)


def _spill(path: Path) -> Path:
    return path.with_name(f"{path.name}.spill")


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.fresh")


# The state: only changes are written, in one transaction; then the sums.

# Kinds of finding whose names are looked for in other memories.
DICTIONARY_KINDS = frozenset({"title", "heading", "key", "label", "leading", "tag", "placed"})
_READ_ROWS = 50_000  # rows held as objects at once

# Gives the extractions of the memories at these ascending positions, in that order; read as slowly
# as they are written.
Load = Callable[[Sequence[int]], Iterable[Extraction]]
Rows = list[tuple[Any, ...]]


class SyncReport(NamedTuple):
    """Counts of a sync."""

    added: int
    edited: int
    deleted: int
    rematched: int  # other memories whose text was searched again, because a name changed
    changed_names: int  # dictionary names that appeared, vanished or changed their case rule

    @property
    def touched(self) -> int:
        """Memories of which any row was written or removed."""
        return self.added + self.edited + self.deleted + self.rematched


class GraphState:
    """The contributions of every memory, in one file; call sync, place, names, fold in order."""

    def __init__(self, connection: DuckDBPyConnection, memory_mb: int = MEMORY_MB) -> None:
        self._db = connection
        self._memory_mb = memory_mb
        self._memories = 0

    @staticmethod
    @contextmanager
    def open(path: Path, memory_mb: int = MEMORY_MB) -> Generator[GraphState]:
        """Open or create the file; a damaged, foreign or outdated one is deleted and recreated.

        When the block ends, a file with deleted rows is rewritten without them. While it is open, a
        spill directory next to it takes data that does not fit into memory.
        """
        connection = open_database(path, memory_mb)
        try:
            yield GraphState(connection, memory_mb)
            rows = connection.execute("SELECT has_leftovers FROM meta").fetchall()
        finally:
            connection.close()
        if rows == [(True,)]:
            _compact_database(path, memory_mb)

    def sync(self, records: Sequence[MemoryRecord], keys: Sequence[str], load: Load) -> SyncReport:
        """Make the contributions match the corpus, in one transaction.

        `load` is called once, for memories with a new extraction key. Raises ValueError if keys and
        records do not line up, or positions are not 0..n-1 in order.
        """
        self._db.begin()
        try:
            report = self._sync(records, keys, load)
        except BaseException:
            self._db.rollback()
            raise
        self._db.commit()
        self._memories = len(records)
        return report

    def _sync(self, records: Sequence[MemoryRecord], keys: Sequence[str], load: Load) -> SyncReport:
        self._write_current(records, keys)
        self._db.execute(_GONE)
        fresh = self._numbers(_FRESH_POSITIONS)
        ((gone, edited, first),) = self._db.execute(_CHANGE_COUNTS).fetchall()
        if not len(fresh) and not gone:
            return SyncReport(0, 0, 0, 0, 0)
        removed = (
            f"DELETE FROM {table} WHERE mid IN (SELECT mid FROM gone)" for table in _OWN_TABLES
        )
        if sum(self._db.execute(sql).fetchall()[0][0] for sql in removed):
            # The blocks of deleted rows keep their texts until the file is rewritten.
            self._db.execute("UPDATE meta SET has_leftovers = true")
        if len(fresh):
            self._add_findings(records, keys, fresh, first, load)
        self._db.execute(_UPDATE_DICTIONARY)
        changed = [name for (name,) in self._db.execute(_CHANGED).fetchall()]
        self.find_concerned(changed)
        known = self._db.execute("SELECT name, cased FROM dictionary ORDER BY name").fetchall()
        dictionary = Dictionary(dict(known))
        mids = np.arange(first, first + len(fresh))
        self._search(records, mids, fresh, dictionary, words=True)
        self._db.execute("DELETE FROM matched WHERE mid IN (SELECT mid FROM concerned)")
        mids, positions = (
            self._numbers(_CONCERNED_AT.format(name)) for name in ("mid", "position")
        )
        self._search(records, mids, positions, dictionary, words=False)
        return SyncReport(len(fresh) - edited, edited, gone - edited, len(mids), len(changed))

    def _write_current(self, records: Sequence[MemoryRecord], keys: Sequence[str]) -> None:
        """Fill `current`: tonight's memories, their keys, and the columns that the graph needs."""
        import pyarrow as pa

        if len(records) != len(keys):
            raise ValueError(
                f"found {len(keys)} extraction keys for {len(records)} memories, expected one each"
            )
        self._db.execute(_CURRENT)
        done = 0
        for batch in column_batches(records, _CURRENT_COLUMNS):
            positions = batch.column("position").to_numpy()
            wrong = np.flatnonzero(positions != np.arange(done, done + len(positions)))
            if len(wrong):
                raise ValueError(
                    f"found position {positions[wrong[0]]} at index {done + wrong[0]}, expected "
                    "the memories ordered by position without gaps"
                )
            turns, sessions = (batch.column(n).to_pylist() for n in ("is_turn", "session_id"))
            names = (_folded(s) if t and s else None for t, s in zip(turns, sessions, strict=True))
            some = list(keys[done : done + batch.num_rows])
            rows = batch.append_column("session_name", pa.array(list(names), pa.string()))
            self._run_with(
                _ADD_CURRENT, pa.table(rows.append_column("key", pa.array(some, pa.string())))
            )
            done += batch.num_rows

    def _add_findings(
        self,
        records: Sequence[MemoryRecord],
        keys: Sequence[str],
        fresh: NDArray[np.int64],
        first: int,
        load: Load,
    ) -> None:
        mids, extractions = count(first), iter(load(fresh.tolist()))
        for batch in take_columns(records, fresh, ("position", "memory_id", *KEYED_COLUMNS)):
            rows: dict[str, Rows] = {table: [] for table in ("memory", "found", "stated", "alias")}
            read = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            for position, memory_id, *text in read:
                mid, extraction = next(mids), next(extractions)
                rows["memory"].append((mid, memory_id, keys[position], *read_keys(*text)))
                rows["found"] += ((mid, *_found_row(item)) for item in extraction.found)
                rows["stated"] += ((mid, *item) for item in extraction.stated)
                rows["alias"] += ((mid, *alias) for alias in extraction.aliases)
            for table, found in rows.items():
                self._insert(table, found)
        self._db.execute(_TOUCH_NAMES, [first])

    def find_concerned(self, changed: Sequence[str]) -> None:
        """Fill `concerned`: memories in the index of words that hold every word of such a name."""
        parts = [(name, c) for name in changed for c in sorted(set(map(word_code, name.split())))]
        self._db.execute("CREATE OR REPLACE TEMP TABLE part (name VARCHAR, word UINTEGER)")
        self._insert("part", parts)
        self._db.execute(_CONCERNED)

    def _search(
        self,
        records: Sequence[MemoryRecord],
        mids: NDArray[np.int64],
        positions: NDArray[np.int64],
        dictionary: Dictionary,
        *,
        words: bool,
    ) -> None:
        """Search the texts of the memories at ascending positions for the dictionary's names."""
        done = 0
        for batch in take_columns(records, positions, ("content",)):
            some = mids[done : done + batch.num_rows].tolist()
            done += batch.num_rows
            asked = {"mids": some, "low": min(some), "high": max(some)}
            own = dict(self._db.execute(_OWN_NAMES, asked).fetchall())
            contents = zip(some, batch.column("content").to_pylist(), strict=True)
            texts = ((mid, content, own.get(mid, ())) for mid, content in contents)
            found = search_texts(texts, dictionary, words=words)
            self._insert("matched", found["matched"])
            self._insert("word", found["word"], "c0, unnest(c1)")

    def _insert(self, table: str, rows: Rows, columns: str = "*") -> None:
        import pyarrow as pa

        if rows:
            arrays = list(map(pa.array, zip(*rows, strict=True)))
            incoming = pa.Table.from_arrays(arrays, names=[f"c{i}" for i in range(len(arrays))])
            self._run_with(f"INSERT INTO {table} SELECT {columns} FROM incoming", incoming)

    def _run_with(self, sql: str, incoming: ArrowTable) -> None:
        self._db.register("incoming", incoming)
        self._db.execute(sql)
        self._db.unregister("incoming")

    def _numbers(self, sql: str) -> NDArray[np.int64]:
        (column,) = self._db.execute(sql).fetchnumpy().values()
        return np.asarray(column, dtype=np.int64)

    def runs(self) -> dict[str, int]:
        """Return how many memories hold every name of kind `run`; `sync` came before."""
        return dict(self._db.execute(_RUN_COUNTS).fetchall())

    def aliases(self) -> list[tuple[str, str, str]]:
        """Return every (alias, canonical, detail) that a memory gives, sorted, without repeats."""
        return self._db.execute(
            "SELECT DISTINCT alias, canonical, detail FROM alias ORDER BY alias, canonical, detail"
        ).fetchall()

    def place(self, kept_runs: Collection[str] = ()) -> None:
        """Join the contributions with the memories' positions; only `kept_runs` count as runs."""
        import pyarrow as pa

        self._db.execute(_PLACE)
        runs = pa.table({"name": pa.array(sorted(kept_runs), pa.string())})
        self._run_with("CREATE OR REPLACE TEMP TABLE kept_run AS SELECT * FROM incoming", runs)
        self._db.execute(_HOLDING)

    def names(self) -> Iterator[NameStats]:
        """Yield every folded name that memories hold, in code-point order; `place` came before."""
        columns = self._db.sql(_NAMES).to_arrow_table().columns
        names, kinds, surfaces, df = (column.to_pylist() for column in columns)
        yield from map(NameStats, names, map(KINDS.__getitem__, kinds), map(tuple, surfaces), df)

    def iter_outlines(self, *, stated_only: bool = False) -> Iterator[tuple[int, Extraction]]:
        """Yield each memory's statements, subjects and tags by position; call `place` first.

        The rest of the findings, about nine tenths, is left out, as are memories without any of
        these; with `stated_only` also those without a statement or a `key: value`.
        Both queries finish before the first item, so that other queries may run between items.
        """
        found = self._db.sql(_FOUND, params={"stated_only": stated_only}).to_arrow_table()
        stated = self._db.sql(_STATED_ROWS).to_arrow_table()
        rows = merge(_objects(found, Found), _objects(stated, Stated), key=itemgetter(0))
        for position, group in groupby(rows, key=itemgetter(0)):
            items = [item for _, item in group]
            about = tuple(item for item in items if isinstance(item, Found))
            yield position, Extraction(about, tuple(i for i in items if isinstance(i, Stated)))

    def text_keys(self) -> ArrowTable:
        """Return every position with what `duplicates.read_keys` found; call `place` first."""
        return self._db.sql(
            "SELECT position::BIGINT AS position, tombstone, marks, alike, things "
            "FROM memory JOIN place USING (mid)"
        ).to_arrow_table()

    def fold(
        self, canonical_of: Mapping[str, str] | None = None, merges: Sequence[Merge] = ()
    ) -> GraphTables:
        """Sum up the graph; call `place` before each sum.

        `canonical_of` holds the names that were merged into another, `merges` the reasons.
        """
        self._db.execute(
            "CREATE OR REPLACE TEMP TABLE canonical_of (name VARCHAR, canonical VARCHAR)"
        )
        self._insert("canonical_of", list((canonical_of or {}).items()))
        limits = hub_limits(self._memories)
        # `held` takes the place of `holding`: both are as large as all findings together.
        self._db.execute(f"{_CONCEPT_OF};{_HELD};DROP TABLE holding;{_RATED}")
        concepts = self._db.sql(_CONCEPTS).to_arrow_table()
        ids = concepts["concept_id"].combine_chunks()

        # One at a time: mentions with ordinals are half a gigabyte at a million memories.
        def read(name: str, sql: str, values: Mapping[str, int] | None = None) -> ArrowTable:
            return _with_ids(name, self._db.sql(sql, params=values).to_arrow_table(), ids)

        mentions = read("mentions", _MENTION_ROWS)
        stated = read("concept_edges", _CONCEPT_EDGES)
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE step AS {_SUBJECT_STEPS}", limits)
        self._db.execute(f"INSERT INTO step {_TURN_STEPS};INSERT INTO step {_LINK_STEPS}")
        edges = read("edges", _DATED)
        links = read("links", _LINKS, limits)
        self._db.execute("DROP TABLE held; DROP TABLE rated; DROP TABLE step")
        release_memory(self._db, self._memory_mb)
        return GraphTables(
            concepts=concepts.cast(schema_of("concepts")),
            mentions=mentions,
            concept_edges=stated,
            edges=edges,
            merges=to_table("merges", sorted(merges, key=lambda merge: merge.name)),
            supersessions=to_table("supersessions", ()),
            links=links,
        )


# Folded names of conversations are cached: their turns come close together.
@lru_cache(maxsize=1 << 12)
def _folded(session_id: str) -> str | None:
    return fold_name(session_id) or None


# `look` of a finding: its entry in the dictionary, NULL if it is not looked for.
_ANY_CASE, _NEEDS_CASE = 0, 1
_LOOKED_FOR = "look IS NOT NULL"
_ROLE_CODES = {role: code for code, role in enumerate(ROLES)}
_KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}


def _found_row(item: Found) -> tuple[int, int, int | None, str, int, int, str]:
    role, kind, name, start, end, surface = item
    look = None
    if kind in DICTIONARY_KINDS and is_looked_for(name, surface):
        look = _NEEDS_CASE if needs_case(name, surface) else _ANY_CASE
    return _ROLE_CODES[role], _KIND_CODES[kind], look, name, start, end, surface


def search_texts(
    texts: Iterable[tuple[int, str, Collection[str]]], dictionary: Dictionary, *, words: bool
) -> dict[str, Rows]:
    """Return rows of `matched` and, where asked, number and word codes of every text.

    A text is given by number, content and own subjects.
    """
    found: dict[str, Rows] = {"word": [], "matched": []}
    for mid, content, own in texts:
        tokens = Tokens(content)
        for name, start, end in find_matches(content, dictionary, frozenset(own), tokens):
            found["matched"].append((mid, name, start, end, content[start:end]))
        if words:
            found["word"].append((mid, word_codes(tokens)))
    return found


def word_codes(tokens: Tokens) -> list[int]:
    """Return the codes of the words of a text, sorted: the order of a set is not that elsewhere."""
    distinct = set(tokens.folded)
    # A character may fold to several words, and a name is matched word by word.
    distinct |= {part for word in distinct if " " in word for part in word.split(" ")}
    return sorted(set(map(word_code, distinct)))


@lru_cache(maxsize=1 << 18)  # a few tens of MB for not hashing frequent words again
def word_code(word: str) -> int:
    """Return the 32-bit code of a folded word; two words may share one."""
    return crc32(word.encode("utf-8", "surrogatepass"))


def _objects(table: ArrowTable, noun: type[Found | Stated]) -> Iterator[tuple[int, Any]]:
    """Yield position and finding of every row, whose first column is the position."""
    for batch in table.to_batches(max_chunksize=_READ_ROWS):
        columns = [column.to_pylist() for column in batch.columns]
        for position, *values in zip(*columns, strict=True):
            yield position, noun(*values)


_ORDINALS = {"concept": "concept_id", "src": "src_concept", "dst": "dst_concept"}


def _with_ids(name: str, table: ArrowTable, ids: ArrowColumn) -> ArrowTable:
    """Return a table with concept ids in place of ordinals, "" where a link rests on none."""
    schema = schema_of(name)
    for ordinal, column in _ORDINALS.items():
        if ordinal in table.column_names:
            taken = ids.take(table[ordinal].combine_chunks())
            if taken.null_count:
                taken = arrow_compute().fill_null(taken, "")
            table = table.set_column(table.column_names.index(ordinal), column, taken)
    return table.select(schema.names).cast(schema)


# Changes since last night, and the memories that they affect.

_CURRENT_COLUMNS = (
    "position", "memory_id", "created_at_us", "updated_at_us", "session_id", "user", "wing",
    "is_turn", "content",
)  # fmt: skip
_CURRENT = """
CREATE OR REPLACE TEMP TABLE current (memory_id VARCHAR, key VARCHAR, position INTEGER,
    created_at_us BIGINT, updated_at_us BIGINT, session_id VARCHAR, session_name VARCHAR,
    user_name VARCHAR, wing VARCHAR, chars INTEGER)
"""
_ADD_CURRENT = """
INSERT INTO current SELECT memory_id, key, position, created_at_us, updated_at_us, session_id,
    session_name, coalesce("user", ''), coalesce(wing, ''), length(content) FROM incoming
"""
_GONE = f"""
CREATE OR REPLACE TEMP TABLE gone AS
SELECT mid, memory_id FROM memory ANTI JOIN current USING (memory_id, key);
CREATE OR REPLACE TEMP TABLE touched_name AS
SELECT DISTINCT name FROM found SEMI JOIN gone USING (mid) WHERE {_LOOKED_FOR}
"""
_FRESH_POSITIONS = """
SELECT position FROM current ANTI JOIN memory USING (memory_id, key) ORDER BY position
"""
_CHANGE_COUNTS = """
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM gone SEMI JOIN current USING (memory_id)),
    (SELECT coalesce(max(mid) + 1, 0) FROM memory)
"""
_TOUCH_NAMES = f"""
INSERT INTO touched_name SELECT DISTINCT name FROM found
WHERE mid >= ? AND {_LOOKED_FOR} AND name NOT IN (SELECT name FROM touched_name)
"""
_UPDATE_DICTIONARY = f"""
CREATE OR REPLACE TEMP TABLE changed AS
WITH renewed AS (
    SELECT name, bool_and(look = {_NEEDS_CASE}) AS cased FROM found
    WHERE {_LOOKED_FOR} AND name IN (SELECT name FROM touched_name) GROUP BY name)
SELECT t.name, r.cased FROM touched_name t LEFT JOIN renewed r USING (name)
LEFT JOIN dictionary d USING (name) WHERE r.cased IS DISTINCT FROM d.cased;
DELETE FROM dictionary WHERE name IN (SELECT name FROM changed);
INSERT INTO dictionary SELECT * FROM changed WHERE cased IS NOT NULL
"""
_CHANGED = "SELECT name FROM changed ORDER BY name"
# A text may name X only if it holds every word of X. The rarest word gives the candidates, so that
# the cost follows the rarest and not the most frequent word of a name.
_CONCERNED = """
CREATE OR REPLACE TEMP TABLE concerned AS
WITH uses AS (
    SELECT word, count(*) AS uses FROM word WHERE word IN (SELECT word FROM part) GROUP BY word
), rarest AS (
    SELECT name, arg_min(word, (coalesce(uses, 0), word)) AS word, count(*) AS parts
    FROM part LEFT JOIN uses USING (word) GROUP BY name
), candidate AS (SELECT word.mid, name, parts FROM word JOIN rarest USING (word))
SELECT DISTINCT mid FROM (
    SELECT candidate.mid FROM candidate JOIN part USING (name)
    JOIN word ON word.mid = candidate.mid AND word.word = part.word
    GROUP BY candidate.mid, name, parts HAVING count(*) = parts)
"""
_CONCERNED_AT = """
SELECT {} FROM concerned JOIN memory USING (mid) JOIN current USING (memory_id) ORDER BY position
"""
# Subjects and speakers of memories. The range lets blocks be skipped.
_OWN_NAMES = f"""
SELECT mid, list(DISTINCT name) FROM found
WHERE mid BETWEEN $low AND $high AND mid IN (SELECT unnest($mids))
    AND role IN ({_ROLE_CODES["about"]}, {_ROLE_CODES["speaker"]})
GROUP BY mid
"""

# Positions of tonight's memories and all their findings, by the names in the texts.

_ABOUT, _MENTIONS, _AUTHOR, _SPEAKER = (
    ROLES.index(role) for role in ("about", "mentions", "author", "speaker")
)
_TITLE, _KEY, _LEADING, _TAG, _NAME, _PLACED, _STATED, _SESSION, _RUN = (
    KINDS.index(kind)
    for kind in ("title", "key", "leading", "tag", "name", "placed", "stated", "session", "run")
)
_ROLE_NAMES = f"{list(ROLES)!r}"
_KIND_NAMES = f"{list(KINDS)!r}"

_PLACE = """
CREATE OR REPLACE TEMP TABLE place AS
SELECT memory.mid, current.* EXCLUDE (memory_id, key) FROM memory JOIN current USING (memory_id)
"""
# A statement between two names makes them concepts, but counts as a mention only where the memory
# does not hold the name anyway: where the store and not the text states it.
_HOLDING = f"""
CREATE OR REPLACE TEMP TABLE holding AS
WITH own AS (
    SELECT place.position, role, kind, name, start, stop, surface, false AS by_match
    FROM found JOIN place USING (mid) WHERE kind <> {_RUN} OR name IN (SELECT name FROM kept_run)
    UNION ALL
    SELECT place.position, {_MENTIONS}, {_NAME}, name, start, stop, surface, true
    FROM matched JOIN place USING (mid)
), ends AS (
    SELECT DISTINCT position, {_MENTIONS}, {_STATED}, name, {NO_SPAN}, {NO_SPAN},
        coalesce(nullif(surface, ''), name), false
    FROM (SELECT mid, unnest([subject, object]) AS name,
            unnest([subject_surface, object_surface]) AS surface
        FROM stated WHERE '' NOT IN (subject, object) AND '#' NOT IN (subject[1], object[1]))
    JOIN place USING (mid)
)
SELECT * FROM own
UNION ALL SELECT * FROM ends WHERE NOT EXISTS (
    SELECT 1 FROM own WHERE own.position = ends.position AND own.name = ends.name)
UNION ALL SELECT position, {_AUTHOR}, {_SESSION}, session_name, {NO_SPAN}, {NO_SPAN}, session_id,
    false FROM place WHERE session_name IS NOT NULL
"""
_RUN_COUNTS = f"""
SELECT name, count(*) FROM (SELECT DISTINCT name, mid FROM found WHERE kind = {_RUN})
GROUP BY name ORDER BY name
"""
# Nine names in ten are spelt one way: only the others need a list.
_NAMES = """
WITH stood AS (
    SELECT name, position, min(kind) AS kind, min(surface) AS first, max(surface) AS last
    FROM holding GROUP BY name, position
), named AS (
    SELECT name, min(kind)::INTEGER AS kind, min(first) AS first, max(last) AS last, count(*) AS df
    FROM stood GROUP BY name
), spelt AS (
    SELECT name, list_sort(list(DISTINCT surface)) AS surfaces FROM holding
    WHERE name IN (SELECT name FROM named WHERE first <> last) GROUP BY name)
SELECT name, kind, coalesce(surfaces, [first]) AS surfaces, df
FROM named LEFT JOIN spelt USING (name) ORDER BY name
"""

# Extractions read back from the state, as far as supersession needs them.

_TELLING = f"""
SELECT mid FROM stated UNION
SELECT mid FROM found WHERE role = {_ABOUT} AND kind = {_KEY}
"""
_FOUND = f"""
SELECT position, {_ROLE_NAMES}[role + 1] AS role, {_KIND_NAMES}[kind + 1] AS kind, name, start,
    stop, surface
FROM found JOIN place USING (mid)
WHERE (role = {_ABOUT} OR kind = {_TAG}) AND (NOT $stated_only OR mid IN ({_TELLING}))
ORDER BY position, start, stop, role, kind, name, surface
"""
_STATED_ROWS = """
SELECT position, stated.* EXCLUDE (mid) FROM stated JOIN place USING (mid)
ORDER BY position, start, stop, relation, subject, object
"""


# Sums over all memories: concepts, mentions, concept edges.

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


# Limits of the edges: a concept in more memories no longer distinguishes any.

# A concept that more than this share of the memories mention is a hub and gets no edges. More lets
# chance arrivals in and costs time, less loses the names of a store with few topics.
HUB_MENTION_FRACTION = 0.02
# ... but up to this many mentions are always fine; keeps small stores from losing their names.
HUB_MENTION_MIN = 50
# A concept that more memories than this are about (or tagged with) gets no edges: each edge would
# weigh less than 1/50, and their number is the product of both counts.
HUB_SUBJECT_LIMIT = 50


def hub_limits(memories: int) -> dict[str, int]:
    """Return the most mentions and the most subjects of a concept that still gets edges."""
    mentions = max(HUB_MENTION_MIN, int(HUB_MENTION_FRACTION * memories))
    return {"hub_mentions": mentions, "hub_subjects": HUB_SUBJECT_LIMIT}


# How specific concepts are, and the names by which a query may link to one, as SQL.

# Worth of a title or key that other texts only ever write in lower case: a common noun ("obesity")
# names its memory far less surely than a proper one. Lower silences notes titled by common nouns.
LOWER_CASE_WORTH = 0.4
# Worth of a subject that only the first words of short memories gave: some of them begin a sentence
# and name nothing. Higher trusts chance starts as much as titles.
LEADING_WORTH = 0.6
# The same where every such memory is long: the first words of an abstract rarely describe the
# rest. Higher lets abstracts link to each other by chance (scifact, cisi).
LONG_LEADING_WORTH = 0.2
# Up to this many characters, some three sentences, the first words name the subject of a memory.
LEADING_SHORT_CHARS = 400
# (1 + number of memories that mention a concept) to this power divides the score that a query
# naming it gives; higher distrusts much-named concepts more.
DF_POWER = 0.25

# Small words between capitals ("Bank of England") do not show case, nor do additions of a title
# in parentheses.
_SMALL = (
    "a", "al", "an", "and", "at", "by", "da", "de", "del", "der", "di", "du", "el", "en", "et",
    "for", "in", "la", "le", "of", "on", "the", "to", "van", "von", "y",
)  # fmt: skip
_RATED = rf"""
CREATE OR REPLACE TEMP TABLE rated AS
WITH spelt AS (
    SELECT concept, regexp_extract_all(regexp_replace(surface, '[(（][^()（）]*[)）]?', ' ', 'g'),
        '[\p{{L}}\p{{N}}\p{{M}}''’]+') AS words
    FROM held WHERE by_match
), shown AS (
    SELECT concept, avg(CASE WHEN len(list_filter(words, lambda word:
            regexp_matches(word, '^\p{{Ll}}') AND word NOT IN {_SMALL!r})) > 0
        THEN 0.0::DOUBLE ELSE 1.0::DOUBLE END) AS capitals
    FROM spelt GROUP BY concept
), known AS (
    SELECT concept, min(kind) AS kind, min(CASE WHEN kind = {_LEADING} THEN chars END) AS chars
    FROM held JOIN place USING (position) GROUP BY concept)
SELECT concept, CASE WHEN kind <> {_LEADING} THEN 1.0::DOUBLE
        WHEN chars <= {LEADING_SHORT_CHARS} THEN {LEADING_WORTH}::DOUBLE
        ELSE {LONG_LEADING_WORTH}::DOUBLE END
    * CASE WHEN kind IN ({_TITLE}, {_KEY}, {_LEADING})
        THEN {LOWER_CASE_WORTH}::DOUBLE + (1 - {LOWER_CASE_WORTH}::DOUBLE) * coalesce(capitals, 1.0)
        ELSE 1.0::DOUBLE END AS worth
FROM known LEFT JOIN shown USING (concept)
"""
# A speaker needs no capital: questions about people are typed in lower case.
_LINKS = f"""
WITH subject AS (
    SELECT concept, count(DISTINCT position) AS targets FROM held WHERE role = {_ABOUT}
    GROUP BY concept HAVING count(DISTINCT position) <= $hub_subjects
), mention AS (
    SELECT concept, count(DISTINCT position) AS df FROM held WHERE by_match GROUP BY concept
), speaker AS (SELECT DISTINCT concept FROM held WHERE role = {_SPEAKER}),
linked AS (
    SELECT name, concept, cased AND speaker.concept IS NULL AS cased,
        CASE WHEN coalesce(df, 0) > $hub_mentions THEN 0.0::DOUBLE
            ELSE coalesce(worth / targets / pow(1 + coalesce(df, 0), {DF_POWER}), 0.0)
        END AS weight,
        speaker.concept IS NOT NULL AS speaks
    FROM concept_of JOIN rated USING (concept)
    LEFT JOIN dictionary USING (name) LEFT JOIN subject USING (concept)
    LEFT JOIN mention USING (concept) LEFT JOIN speaker USING (concept)
    WHERE (dictionary.name IS NOT NULL AND subject.concept IS NOT NULL)
        OR speaker.concept IS NOT NULL)
SELECT name, concept, weight, coalesce(cased, false) AS cased
FROM linked WHERE weight > 0 OR speaks ORDER BY name
"""


# Edges between memories: from a mention to its subject, from turn to turn, by links, as SQL.

_TO_SUBJECT, _TO_TAG = (RELATIONS.index(n) for n in ("mentions_subject", "mentions_tag"))
_NEXT, _PREVIOUS = (RELATIONS.index(n) for n in ("next_turn", "previous_turn"))
_PART_OF, _SEE_ALSO, _RESOLVED_BY = (RELATIONS.index(name) for name in LINK_RELATIONS)

# Of several names that lead from one memory to another, the most specific and earliest counts. A
# memory's own subjects, under whatever name, lead nowhere. "Casino" leads to "Casino, New South
# Wales" only from memories that hold "New South Wales" too, and only where no memory is about plain
# "Casino": two towns may have one name.
_SUBJECT_STEPS = f"""
WITH target AS (
    SELECT concept, position, NULL AS around,
        CASE WHEN bool_or(role = {_ABOUT}) THEN {_TO_SUBJECT} ELSE {_TO_TAG} END AS relation
    FROM held WHERE role = {_ABOUT} OR (role = {_AUTHOR} AND kind = {_TAG})
    GROUP BY concept, position
    UNION ALL
    SELECT DISTINCT town.concept, position, state.concept, {_TO_SUBJECT}
    FROM found placed JOIN found whole USING (mid) JOIN place USING (mid)
    JOIN concept_of town ON town.name = placed.name
    JOIN concept_of state ON state.name = substr(whole.name, length(placed.name) + 2)
    WHERE placed.kind = {_PLACED} AND whole.role = {_ABOUT} AND whole.start = placed.start
        AND starts_with(whole.name, placed.name || ' ')
        AND town.concept NOT IN (SELECT concept FROM held WHERE role = {_ABOUT})
), few_targets AS (
    SELECT concept, around, count(*) AS targets FROM target GROUP BY concept, around
    HAVING count(*) <= $hub_subjects
), own AS (
    SELECT DISTINCT concept, position FROM held WHERE role IN ({_ABOUT}, {_SPEAKER})
), mention AS (
    SELECT DISTINCT concept, position, start, stop FROM held ANTI JOIN own USING (concept, position)
    WHERE by_match
), few_mentions AS (
    SELECT concept FROM mention GROUP BY concept
    HAVING count(DISTINCT position) <= $hub_mentions)
SELECT DISTINCT ON (src, relation, dst) mention.position AS src, relation,
    target.position AS dst, worth / targets AS weight, mention.concept, start, stop
FROM mention JOIN few_mentions USING (concept) JOIN target USING (concept)
JOIN few_targets ON few_targets.concept = target.concept
    AND few_targets.around IS NOT DISTINCT FROM target.around
JOIN rated ON rated.concept = target.concept
WHERE target.position <> mention.position AND (target.around IS NULL OR EXISTS (
    FROM held WHERE held.position = mention.position AND held.concept = target.around))
ORDER BY src, relation, dst, weight DESC, start, stop, concept
"""
_TURN_STEPS = f"""
WITH turn AS (
    SELECT position AS earlier, session_name, lead(position) OVER (
        PARTITION BY user_name, wing, session_id ORDER BY created_at_us, position) AS later
    FROM place WHERE session_name IS NOT NULL
), pair AS (
    SELECT earlier, later, concept FROM turn JOIN concept_of ON name = session_name
    WHERE later IS NOT NULL)
SELECT earlier AS src, {_NEXT} AS relation, later AS dst, 1.0::DOUBLE AS weight, concept,
    {NO_SPAN} AS start, {NO_SPAN} AS stop FROM pair
UNION ALL SELECT later, {_PREVIOUS}, earlier, 1.0::DOUBLE, concept, {NO_SPAN}, {NO_SPAN} FROM pair
"""
# A link between two memories from the store: a statement with the other one's id and no span.
# Links to a missing memory, or between two users, are dropped.
_LINK_STEPS = f"""
WITH link AS (
    SELECT DISTINCT mid, substr(object, 2) AS memory_id, CASE relation
        WHEN 'part_of' THEN {_PART_OF} WHEN 'has' THEN {_SEE_ALSO} ELSE {_RESOLVED_BY} END AS code
    FROM stated WHERE start = {NO_SPAN} AND subject = '' AND length(object) > 1
        AND starts_with(object, '#') AND relation IN ('part_of', 'has', 'resolved_by'))
SELECT s.position AS src, code AS relation, d.position AS dst, 1.0::DOUBLE AS weight,
    NULL::INTEGER AS concept, {NO_SPAN} AS start, {NO_SPAN} AS stop
FROM link JOIN place s USING (mid) JOIN memory USING (memory_id)
JOIN place d ON d.mid = memory.mid
WHERE s.position <> d.position
    AND (s.user_name = d.user_name OR s.user_name = '' OR d.user_name = '')
"""
_DATED = f"""
SELECT src::BIGINT AS src_position, dst::BIGINT AS dst_position,
    {list(RELATIONS)!r}[relation + 1] AS relation, weight, concept,
    src::BIGINT AS evidence_position, start::BIGINT AS evidence_start, stop::BIGINT AS evidence_end,
    greatest(s.created_at_us, d.created_at_us) AS valid_from_us, NULL::BIGINT AS valid_to_us,
    s.updated_at_us AS recorded_at_us, NULL::BIGINT AS retracted_at_us
FROM step JOIN place s ON s.position = src JOIN place d ON d.position = dst
ORDER BY src, step.relation, dst
"""
