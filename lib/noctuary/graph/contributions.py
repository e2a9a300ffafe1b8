"""What every memory contributes to the graph, kept between nights in step with the corpus."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import (
    fsync_dir,
    fsync_file,
    hash_file,
    hash_text,
    remove_tree,
    write_text,
)
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.graph.extract import (
    EXTRACTOR_VERSION,
    KINDS,
    REFUSALS,
    Dictionary,
    Extraction,
    Found,
    Stated,
    Tokens,
    find_matches,
    index_dictionary,
    needs_case,
    refusal,
)
from noctuary.graph.tables import NO_SPAN, ArrowTable
from noctuary.graph.walk import ROLES
from noctuary.sources.corpus import column_batches, take_columns
from noctuary.work.content import WAVE_SHARDS
from noctuary.work.shards import (
    SHARD_ROWS,
    BatchFunction,
    RecordBatch,
    Runner,
    list_shards,
    read_batches,
)

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
_OWN_TABLES = ("memory", "found", "stated", "stated_end", "alias", "word")
_MATCH_TABLES = ("matched", "declined")  # these rest on the dictionary as well


def open_database(path: Path, memory_mb: int = MEMORY_MB) -> duckdb.DuckDBPyConnection:
    """Open the file; what is damaged, foreign or of another version is dropped and made anew."""
    import duckdb

    path.parent.mkdir(parents=True, exist_ok=True)
    # A killed process leaves these, and both hold texts.
    remove_tree(_spill(path))
    _drop(_fresh(path))
    existed = path.exists()
    try:
        connection = duckdb.connect(str(path), config=_config(path, memory_mb))
    except duckdb.Error as error:
        reason = f"cannot be read ({type(error).__name__})"
    else:
        reason = _mismatch(connection) if existed else None
        if existed and reason is None:
            return connection
        connection.close()
    if reason is not None:
        _LOG.warning("the graph's state %s %s: it is rebuilt from the memories", path, reason)
        _drop(path)
    connection = duckdb.connect(str(path), config=_config(path, memory_mb))
    connection.begin()
    connection.execute(_TABLES)
    connection.execute("INSERT INTO meta VALUES (?, false)", [STATE_VERSION])
    connection.commit()
    return connection


def release_memory(connection: duckdb.DuckDBPyConnection, memory_mb: int = MEMORY_MB) -> None:
    """Give back what the database holds beyond what it needs at rest; its limit stays."""
    import duckdb

    # A lower limit evicts at once; what is set again afterwards is only a permission. What cannot
    # be evicted stays.
    with suppress(duckdb.OutOfMemoryException):
        connection.execute(f"SET memory_limit = '{min(_RESTING_MB, memory_mb)}MB'")
    connection.execute(f"SET memory_limit = '{memory_mb}MB'")


def compact_database(path: Path, memory_mb: int = MEMORY_MB) -> None:
    """Write the file anew without the blocks of deleted rows, which still hold their texts."""
    import duckdb

    fresh = _fresh(path)
    old, new = (str(file).replace("'", "''") for file in (path, fresh))
    with duckdb.connect(config=_config(path, memory_mb)) as connection:
        connection.execute(f"ATTACH '{old}' AS old (READ_ONLY)")
        connection.execute(f"ATTACH '{new}' AS new")
        connection.execute("COPY FROM DATABASE old TO new")
        connection.execute("UPDATE new.meta SET has_leftovers = false")
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


def _mismatch(connection: duckdb.DuckDBPyConnection) -> str | None:
    """Return what is wrong with an opened file, or None; reads one row of every table."""
    import duckdb

    try:
        rows = connection.execute("SELECT version FROM meta").fetchall()
        if rows != [(STATE_VERSION,)]:
            return f"is of version {rows!r} and not {STATE_VERSION}"
        for table in (*_OWN_TABLES, *_MATCH_TABLES, "dictionary"):
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


# The corpus brought in: only what changed is written, all or nothing.


DICTIONARY_KINDS = frozenset({"title", "heading", "key", "label", "leading", "tag"})
"""Kinds of finding whose names are looked for in other memories."""

# `look` of a finding: what it gives to the dictionary; from FIRST_REFUSAL on, why it is refused.
_NOT_LOOKED_FOR, _ANY_CASE, _NEEDS_CASE, FIRST_REFUSAL = -1, 0, 1, 2
_LOOKED_FOR = f"look IN ({_ANY_CASE}, {_NEEDS_CASE})"

_WORD_CACHE_SIZE = 1 << 18
"""Word codes remembered: a few tens of MB for not hashing frequent words again."""

Load = Callable[[Sequence[int]], Iterable[Extraction]]
"""Gives the extractions of the memories at these ascending positions, in that order; read as slowly
as they are written."""


class SyncReport(NamedTuple):
    """What a sync did."""

    added: int
    edited: int
    deleted: int
    rematched: int  # other memories whose text was searched again, because a name changed
    changed_names: int  # dictionary names that appeared, vanished or changed their case rule

    @property
    def touched(self) -> int:
        """Memories of which any row was written or removed."""
        return self.added + self.edited + self.deleted + self.rematched


def sync(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    keys: Sequence[str],
    load: Load,
    search: TextSearch,
) -> SyncReport:
    """Make the contributions equal to the corpus; see `GraphState.sync`."""
    connection.begin()
    try:
        report = _sync(connection, records, keys, load, search)
    except BaseException:
        connection.rollback()
        raise
    connection.commit()
    return report


def _sync(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    keys: Sequence[str],
    load: Load,
    search: TextSearch,
) -> SyncReport:
    _write_current(connection, records, keys)
    connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE gone AS
        SELECT mid, memory_id FROM memory ANTI JOIN current USING (memory_id, key);
        CREATE OR REPLACE TEMP TABLE touched_name AS
        SELECT DISTINCT name FROM found SEMI JOIN gone USING (mid) WHERE {_LOOKED_FOR}"""
    )
    fresh = _numbers(
        connection,
        "SELECT position FROM current ANTI JOIN memory USING (memory_id, key) ORDER BY position",
    )
    ((gone, edited, first),) = connection.execute(
        """SELECT (SELECT count(*) FROM gone),
            (SELECT count(*) FROM gone SEMI JOIN current USING (memory_id)),
            (SELECT coalesce(max(mid) + 1, 0) FROM memory)"""
    ).fetchall()
    if not len(fresh) and not gone:
        return SyncReport(0, 0, 0, 0, 0)
    _remove_gone(connection)
    _add_findings(connection, records, keys, fresh, first, load)
    changed = _update_dictionary(connection)
    concerned = find_concerned(connection, changed)
    _match(connection, records, np.arange(first, first + len(fresh)), fresh, concerned, search)
    return SyncReport(len(fresh) - edited, edited, gone - edited, len(concerned), len(changed))


def _write_current(
    connection: duckdb.DuckDBPyConnection, records: Sequence[MemoryRecord], keys: Sequence[str]
) -> None:
    """Fill `current`: position, id and key of tonight's memories."""
    import pyarrow as pa

    if len(records) != len(keys):
        raise ValueError(
            f"found {len(keys)} extraction keys for {len(records)} memories, expected one each"
        )
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE current (position BIGINT, memory_id VARCHAR, key VARCHAR)"
    )
    done = 0
    for batch in column_batches(records, ("position", "memory_id")):
        positions = batch.column("position").to_numpy()
        wrong = np.flatnonzero(positions != np.arange(done, done + len(positions)))
        if len(wrong):
            raise ValueError(
                f"found position {positions[wrong[0]]} at index {done + wrong[0]}, expected the "
                "memories ordered by position without gaps"
            )
        some = pa.array(keys[done : done + batch.num_rows], pa.string())
        _insert(connection, {"current": pa.table(batch.append_column("key", some))})
        done += batch.num_rows


def _remove_gone(connection: duckdb.DuckDBPyConnection) -> None:
    removed = 0
    for table in (*_OWN_TABLES, *_MATCH_TABLES):
        counted = connection.execute(f"DELETE FROM {table} WHERE mid IN (SELECT mid FROM gone)")
        removed += counted.fetchall()[0][0]
    if removed:
        # The blocks of deleted rows keep their texts until the file is written anew.
        connection.execute("UPDATE meta SET has_leftovers = true")


def _add_findings(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    keys: Sequence[str],
    fresh: NDArray[np.int64],
    first: int,
    load: Load,
) -> None:
    if not len(fresh):
        return
    mids, extractions = count(first), iter(load(fresh.tolist()))
    for batch in take_columns(records, fresh, ("position", "memory_id", "content")):
        rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _OWN_TABLES[:-1]}
        columns = (batch.column(name).to_pylist() for name in ("position", "memory_id", "content"))
        for position, memory_id, content in zip(*columns, strict=True):
            mid, extraction = next(mids), next(extractions)
            rows["memory"].append((mid, memory_id, keys[position]))
            rows["found"] += ((mid, *_found_row(item)) for item in extraction.found)
            rows["stated"] += ((mid, *item) for item in extraction.stated)
            rows["stated_end"] += ((mid, *end) for end in _ends_of(content, extraction.stated))
            rows["alias"] += ((mid, *alias) for alias in extraction.aliases)
        _insert(connection, {table: _to_table(table, found) for table, found in rows.items()})
    connection.execute(
        f"""INSERT INTO touched_name SELECT DISTINCT name FROM found
        WHERE mid >= {first} AND {_LOOKED_FOR} AND name NOT IN (SELECT name FROM touched_name)"""
    )


def _found_row(item: Found) -> tuple[int, int, int, str, int, int, str]:
    role, kind, name, start, end, surface = item
    look = _NOT_LOOKED_FOR
    if kind in DICTIONARY_KINDS:
        reason = refusal(name)
        look = _NEEDS_CASE if needs_case(name, surface) else _ANY_CASE
        look = look if reason is None else FIRST_REFUSAL + REFUSALS.index(reason)
    return _ROLE_CODES[role], _KIND_CODES[kind], look, name, start, end, surface


_ROLE_CODES = {role: code for code, role in enumerate(ROLES)}
_KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}


def _ends_of(content: str, stated: Iterable[Stated]) -> Iterator[tuple[str, int, int, str]]:
    """Yield name, span and surface of both ends of every statement between two names.

    The span is that of the surface inside the statement, the first for the subject and the last for
    the object; NO_SPAN where it does not stand there as such.
    """
    for item in stated:
        if not item.subject or not item.object or "#" in (item.subject[0], item.object[0]):
            continue  # about a memory itself
        where = (item.start, item.end) if item.start >= 0 else (0, 0)
        for name, surface, find in (
            (item.subject, item.subject_surface, content.find),
            (item.object, item.object_surface, content.rfind),
        ):
            start, text = find(surface, *where) if surface else NO_SPAN, surface or name
            yield name, start, start + len(text) if start >= 0 else NO_SPAN, text


_COLUMNS = {
    "memory": "mid memory_id key",
    "found": "mid role kind look name start stop surface",
    "stated": "mid subject relation object start stop subject_surface object_surface",
    "stated_end": "mid name start stop surface",
    "alias": "mid alias canonical detail",
    "matched": "mid name start stop surface",
    "declined": "mid script runs",
}
_INTEGERS = frozenset({"role", "kind", "look", "start", "stop", "runs"})


def _to_table(table: str, rows: Sequence[tuple[Any, ...]]) -> ArrowTable:
    """Return rows of one table of the state as Arrow columns."""
    import pyarrow as pa

    def type_of(name: str) -> Any:
        return pa.int64() if name == "mid" else pa.int32() if name in _INTEGERS else pa.string()

    columns = zip(*rows, strict=True) if rows else repeat(())
    return pa.table(
        {
            name: pa.array(values, type_of(name))
            for name, values in zip(_COLUMNS[table].split(), columns, strict=False)
        }
    )


def _update_dictionary(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Bring the dictionary up to date for the names in `touched_name`; return those that changed.

    A name changed if it appeared, vanished, or needs a capital from now on or no longer.
    """
    connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE changed AS
        WITH renewed AS (
            SELECT name, bool_and(look = {_NEEDS_CASE}) AS cased FROM found
            WHERE {_LOOKED_FOR} AND name IN (SELECT name FROM touched_name) GROUP BY name)
        SELECT t.name, r.cased FROM touched_name t LEFT JOIN renewed r USING (name)
        LEFT JOIN dictionary d USING (name) WHERE r.cased IS DISTINCT FROM d.cased;
        DELETE FROM dictionary WHERE name IN (SELECT name FROM changed);
        INSERT INTO dictionary SELECT * FROM changed WHERE cased IS NOT NULL"""
    )
    rows = connection.execute("SELECT name FROM changed ORDER BY name").fetchall()
    return [name for (name,) in rows]


# A text may name X only if it holds every word of X. The rarest word gives the candidates, so that
# the cost follows the rarest and not the most frequent word of a name.
_RAREST = """
CREATE OR REPLACE TEMP TABLE rarest AS
WITH uses AS (
    SELECT word, count(*) AS uses FROM word WHERE word IN (SELECT word FROM part) GROUP BY word)
SELECT name, arg_min(word, (coalesce(uses, 0), word)) AS word, count(*) AS parts
FROM part LEFT JOIN uses USING (word) GROUP BY name
"""
_CONCERNED = """
WITH candidate AS (SELECT word.mid, name, parts FROM word JOIN rarest USING (word))
SELECT DISTINCT mid FROM (
    SELECT candidate.mid FROM candidate JOIN part USING (name)
    JOIN word ON word.mid = candidate.mid AND word.word = part.word
    GROUP BY candidate.mid, name, parts HAVING count(*) = parts)
ORDER BY mid
"""


def find_concerned(connection: duckdb.DuckDBPyConnection, changed: list[str]) -> list[int]:
    """Return the memories in the index of words that hold every word of a changed name."""
    import pyarrow as pa

    pairs = [(name, code) for name in changed for code in sorted(set(map(word_code, name.split())))]
    if not pairs:
        return []
    names, codes = zip(*pairs, strict=True)
    parts = pa.table({"name": pa.array(names, pa.string()), "word": pa.array(codes, pa.uint32())})
    connection.execute("CREATE OR REPLACE TEMP TABLE part (name VARCHAR, word UINTEGER)")
    _insert(connection, {"part": parts})
    connection.execute(_RAREST)
    return [mid for (mid,) in connection.execute(_CONCERNED).fetchall()]


def _match(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    mids: NDArray[np.int64],
    fresh: NDArray[np.int64],
    concerned: Sequence[int],
    search: TextSearch,
) -> None:
    """Search the texts of fresh memories and, again, of those that a changed name concerns."""
    names = dict(connection.execute("SELECT name, cased FROM dictionary ORDER BY name").fetchall())
    for found in search(names, _texts(connection, records, mids, fresh), len(fresh), words=True):
        _insert(connection, unpack_tables(found))
    _name_mids(connection, concerned)
    for table in _MATCH_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE mid IN (SELECT mid FROM chosen)")
    placed = """FROM chosen JOIN memory USING (mid) JOIN current USING (memory_id)
        ORDER BY position"""
    chosen = [_numbers(connection, f"SELECT {name} {placed}") for name in ("mid", "position")]
    texts = _texts(connection, records, *chosen)
    for found in search(names, texts, len(concerned), words=False):
        _insert(connection, unpack_tables(found))


# What the chosen memories are about, and who speaks in them. The range lets blocks be skipped.
_OWN_NAMES = f"""
WITH own AS (
    SELECT mid, list_sort(list(DISTINCT name)) AS names FROM found SEMI JOIN chosen USING (mid)
    WHERE role IN ({_ROLE_CODES["about"]}, {_ROLE_CODES["speaker"]}) AND mid BETWEEN ? AND ?
    GROUP BY mid)
SELECT coalesce(names, []::VARCHAR[]) AS names FROM chosen LEFT JOIN own USING (mid) ORDER BY place
"""


def _texts(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    mids: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> Iterator[RecordBatch]:
    """Yield `mid`, `content` and `own` of the memories at ascending positions."""
    import pyarrow as pa

    done = 0
    for batch in take_columns(records, positions, ("content",)):
        some = mids[done : done + batch.num_rows]
        _name_mids(connection, some)
        own = connection.sql(_OWN_NAMES, params=[int(some.min()), int(some.max())])
        names = own.to_arrow_table().column("names").combine_chunks()
        yield pa.record_batch(
            {"mid": pa.array(some), "content": batch.column("content"), "own": names}
        )
        done += batch.num_rows


def _name_mids(
    connection: duckdb.DuckDBPyConnection, mids: Sequence[int] | NDArray[np.int64]
) -> None:
    """Fill `chosen`: the numbers and where they stand among the given ones."""
    import pyarrow as pa

    connection.execute("CREATE OR REPLACE TEMP TABLE chosen (mid BIGINT, place BIGINT)")
    columns = {"mid": pa.array(mids, pa.int64()), "place": np.arange(len(mids))}
    _insert(connection, {"chosen": pa.table(columns)})


def _insert(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, ArrowTable]) -> None:
    for table, rows in tables.items():
        if rows.num_rows:
            connection.register("incoming", rows)
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
            connection.unregister("incoming")


def _numbers(connection: duckdb.DuckDBPyConnection, sql: str) -> NDArray[np.int64]:
    (column,) = connection.execute(sql).fetchnumpy().values()
    return np.asarray(column, dtype=np.int64)


# Texts of many memories searched for dictionary names, as a task over record batches.


SEARCH_ROW_MS = 0.06
"""About what one text of 200 characters takes on one core."""


class TextSearch(Protocol):
    """Whoever searches many texts."""

    def __call__(
        self, names: Mapping[str, bool], texts: Iterator[RecordBatch], count: int, *, words: bool
    ) -> Iterator[RecordBatch]:
        """Yield what `search_texts` finds; read as slowly as it is asked for.

        The names come with their case rule, the texts as `mid`, `content` and `own`, the folded
        names of the text's subjects; `count` says about how many there are.
        """
        ...


@dataclass(frozen=True, slots=True)
class SearchTexts:
    """The task. Its results rest on the dictionary, so that the salt of its shards must name it."""

    dictionary: Path  # a file that `write_dictionary` wrote
    words: bool

    @property
    def name(self) -> str:
        """See `BatchTask`."""
        return "search_texts"

    @property
    def row_ms(self) -> float:
        """See `BatchTask`."""
        return SEARCH_ROW_MS

    def open(self, threads: int) -> BatchFunction:
        """See `BatchTask`; one thread is used."""
        del threads
        dictionary = index_dictionary(json.loads(self.dictionary.read_text(encoding="utf-8")), {})
        return lambda texts: search_texts(texts, dictionary, words=self.words)


def write_dictionary(names: Mapping[str, bool], path: Path) -> None:
    """Write names and their case rules to where every worker reads them."""
    write_text(path, json.dumps(dict(sorted(names.items())), ensure_ascii=False))


def search_here(
    names: Mapping[str, bool], texts: Iterator[RecordBatch], count: int, *, words: bool
) -> Iterator[RecordBatch]:
    """Search in this process; see `TextSearch`."""
    del count
    dictionary = index_dictionary(names, {})
    for batch in texts:
        yield search_texts(batch, dictionary, words=words)


@dataclass(frozen=True, slots=True)
class RunnerSearch:
    """A `TextSearch` by a runner, where there are enough texts for it."""

    runner: Runner
    place: Path  # a directory for dictionary, texts and findings; removed at the end
    progress: Progress = SILENT
    shard_rows: int = SHARD_ROWS  # up to as many texts are searched in this process

    def __call__(
        self, names: Mapping[str, bool], texts: Iterator[RecordBatch], count: int, *, words: bool
    ) -> Iterator[RecordBatch]:
        """See `TextSearch`."""
        if count <= self.shard_rows:
            yield from search_here(names, texts, count, words=words)
            return
        remove_tree(self.place)
        self.place.mkdir(parents=True)
        task = SearchTexts(self.place / "dictionary.json", words)
        write_dictionary(names, task.dictionary)
        try:
            yield from self._search(task, texts)
        finally:
            remove_tree(self.place)

    def _search(self, task: SearchTexts, texts: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        salt = f"{task.name}:{EXTRACTOR_VERSION}:{task.words}:{hash_file(task.dictionary)}"
        shards = list_shards(texts, self.place / "texts", salt, self.shard_rows)
        while wave := list(islice(shards, WAVE_SHARDS)):
            for fragment in self.runner.run(task, wave, self.place / "found", self.progress):
                yield from read_batches(fragment.path)
                fragment.path.unlink()
            for shard in wave:
                shard.path.unlink(missing_ok=True)


def search_texts(texts: RecordBatch, dictionary: Dictionary, *, words: bool) -> RecordBatch:
    """Return one row whose columns are the state's tables `word`, `matched` and `declined`.

    Each is a list of rows, so that a batch may give as many of each as there are; `word` is only
    filled where that is asked for.
    """
    import pyarrow as pa

    holders, codes = list[int](), list[int]()
    matched, declined = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
    columns = (texts.column(name).to_pylist() for name in ("mid", "content", "own"))
    for mid, content, own in zip(*columns, strict=True):
        tokens = Tokens(content)
        found = find_matches(content, dictionary, frozenset(own), tokens)
        matched += ((mid, *match, content[match.start : match.end]) for match in found.found)
        declined += ((mid, *runs) for runs in found.declined.items())
        if words:
            mine = word_codes(tokens)
            holders += repeat(mid, len(mine))
            codes += mine
    word = {"mid": np.array(holders, np.int64), "word": np.array(codes, np.uint32)}
    return pack_tables(
        {
            "word": pa.table(word),
            "matched": _to_table("matched", matched),
            "declined": _to_table("declined", declined),
        }
    )


def word_codes(tokens: Tokens) -> list[int]:
    """Return the codes of the words of a text, sorted: the order of a set is not that elsewhere."""
    distinct = set(tokens.folded)
    # A character may fold to several words, and a name is matched word by word.
    distinct |= {part for word in distinct if " " in word for part in word.split(" ")}
    return sorted(set(map(word_code, distinct)))


@lru_cache(maxsize=_WORD_CACHE_SIZE)
def word_code(word: str) -> int:
    """Return the 32-bit code of a folded word; two words may share one."""
    return crc32(word.encode("utf-8", "surrogatepass"))


def pack_tables(tables: Mapping[str, ArrowTable]) -> RecordBatch:
    """Return one row that holds whole tables, a column each."""
    import pyarrow as pa

    lists = {}
    for name, table in tables.items():
        rows = table.combine_chunks().to_struct_array()
        rows = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
        lists[name] = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
    return pa.record_batch(lists)


def unpack_tables(packed: RecordBatch) -> dict[str, ArrowTable]:
    """Return the tables that `pack_tables` put in each row, those of one name together."""
    import pyarrow as pa

    return {
        name: pa.Table.from_batches([pa.RecordBatch.from_struct_array(column.flatten())])
        for name, column in zip(packed.schema.names, packed.columns, strict=True)
    }
