"""The graph's state between two nights: brought in step with the corpus."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_file, remove_tree, write_text
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.graph.contributions import (
    ANY_CASE,
    MATCH_TABLES,
    MEMORY_MB,
    NEEDS_CASE,
    OWN_TABLES,
    OwnRows,
    TextRows,
    compact_database,
    count_declined,
    count_runs,
    count_skipped,
    drop_sums,
    name_concepts,
    name_stats,
    open_database,
    place_memories,
    release_memory,
    sum_concept_edges,
    sum_concepts,
    sum_mentions,
    word_code,
)
from noctuary.graph.extract import (
    EXTRACTOR_VERSION,
    KINDS,
    Dictionary,
    Extraction,
    Found,
    Stated,
    Tokens,
    index_dictionary,
)
from noctuary.graph.guards import NameStats
from noctuary.graph.tables import (
    NO_SPAN,
    ArrowColumn,
    ArrowTable,
    GraphTables,
    Merge,
    schema_of,
    to_table,
)
from noctuary.graph.walk import LINK_RELATIONS, RELATIONS, ROLES
from noctuary.sources.corpus import column_batches, take_columns
from noctuary.work.content import WAVE_SHARDS
from noctuary.work.shards import (
    SHARD_ROWS,
    BatchFunction,
    RecordBatch,
    Runner,
    arrow_compute,
    list_shards,
    read_batches,
)

if TYPE_CHECKING:
    import duckdb


# Texts of many memories searched for dictionary names, as a task over record batches.


SEARCH_ROW_MS = 0.06
"""About what one text of 200 characters takes on one core."""


class TextSearch(Protocol):
    """Whoever searches many texts."""

    def __call__(
        self, names: Mapping[str, bool], texts: Iterator[RecordBatch], count: int, *, words: bool
    ) -> Iterator[RecordBatch]:
        """Yield what is found, as `search_texts` gives it; read as slowly as it is asked for."""
        ...


@dataclass(frozen=True, slots=True)
class SearchTexts:
    """The task. Its results rest on the dictionary, so that the salt of its shards must name it."""

    dictionary: Path
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
        names = json.loads(self.dictionary.read_text(encoding="utf-8"))
        dictionary = index_dictionary(names, {})
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
    place: Path
    progress: Progress = SILENT
    shard_rows: int = SHARD_ROWS

    def __call__(
        self, names: Mapping[str, bool], texts: Iterator[RecordBatch], count: int, *, words: bool
    ) -> Iterator[RecordBatch]:
        """See `TextSearch`."""
        if count <= self.shard_rows:
            yield from search_here(names, texts, count, words=words)
            return
        remove_tree(self.place)
        task = SearchTexts(self.place / "dictionary.json", words)
        self.place.mkdir(parents=True)
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

    Each is a list of rows, so that a batch may give as many of each as there are.
    """
    rows = TextRows()
    mids, contents, own = (texts.column(name).to_pylist() for name in ("mid", "content", "own"))
    for mid, content, subjects in zip(mids, contents, own, strict=True):
        tokens = Tokens(content)
        rows.add_matches(mid, content, tokens, dictionary, frozenset(subjects))
        if words:
            rows.add_words(mid, tokens)
    return pack_tables(rows.tables())


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

    return {name: _table_of(packed.column(name), pa) for name in packed.schema.names}


def _table_of(column: Any, pa: Any) -> ArrowTable:
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(column.flatten())])


# Which texts a changed dictionary concerns, found by the index of words and not by reading texts.


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


def update_dictionary(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """Bring the dictionary up to date for the names in `touched_name`; return those that changed.

    A name changed if it appeared, vanished, or needs a capital from now on or no longer.
    """
    connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE renewed AS
        SELECT name, bool_and(look = {NEEDS_CASE}) AS cased FROM found
        WHERE look IN ({ANY_CASE}, {NEEDS_CASE}) AND name IN (SELECT name FROM touched_name)
        GROUP BY name"""
    )
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE changed AS
        SELECT t.name, r.cased FROM touched_name t LEFT JOIN renewed r USING (name)
        LEFT JOIN dictionary d USING (name) WHERE r.cased IS DISTINCT FROM d.cased"""
    )
    connection.execute("DELETE FROM dictionary WHERE name IN (SELECT name FROM changed)")
    connection.execute("INSERT INTO dictionary SELECT * FROM changed WHERE cased IS NOT NULL")
    rows = connection.execute("SELECT name FROM changed ORDER BY name").fetchall()
    return [name for (name,) in rows]


def find_concerned(connection: duckdb.DuckDBPyConnection, changed: list[str]) -> list[int]:
    """Return the memories in the index of words that hold every word of a changed name."""
    import pyarrow as pa

    pairs = [(name, code) for name in changed for code in sorted(_codes(name))]
    if not pairs:
        return []
    names, codes = zip(*pairs, strict=True)
    parts = pa.table({"name": pa.array(names, pa.string()), "word": pa.array(codes, pa.uint32())})
    connection.register("parts", parts)
    connection.execute("CREATE OR REPLACE TEMP TABLE part AS SELECT * FROM parts")
    connection.unregister("parts")
    connection.execute(_RAREST)
    return [mid for (mid,) in connection.execute(_CONCERNED).fetchall()]


def load_dictionary(connection: duckdb.DuckDBPyConnection) -> dict[str, bool]:
    """Return the dictionary in force: by folded name, whether a mention must show a capital."""
    columns = connection.sql("SELECT name, cased FROM dictionary ORDER BY name").to_arrow_table()
    names, cased = columns["name"].to_pylist(), columns["cased"].to_pylist()
    return dict(zip(names, cased, strict=True))


def _codes(name: str) -> set[int]:
    return {word_code(part) for part in name.split(" ")}


# Extractions read back from the state, as far as supersession needs them.


_READ_ROWS = 50_000
"""Rows held as objects at once."""

_ABOUT, _TAG, _KEY = ROLES.index("about"), KINDS.index("tag"), KINDS.index("key")
_TELLING = f"""
SELECT mid FROM stated UNION
SELECT mid FROM found WHERE role = {_ABOUT} AND kind = {_KEY}
"""
_FOUND = f"""
SELECT position, {list(ROLES)!r}[role + 1] AS role, {list(KINDS)!r}[kind + 1] AS kind, name, start,
    stop, surface
FROM found JOIN place USING (mid)
WHERE (role = {_ABOUT} OR kind = {_TAG}) AND (NOT $stated_only OR mid IN ({_TELLING}))
ORDER BY position, start, stop, role, kind, name, surface
"""
_STATED = """
SELECT position, stated.* EXCLUDE (mid) FROM stated JOIN place USING (mid)
ORDER BY position, start, stop, relation, subject, object
"""


def iter_outlines(
    connection: duckdb.DuckDBPyConnection, *, stated_only: bool = False
) -> Iterator[tuple[int, Extraction]]:
    """Yield position, subjects, tags and statements of memories that hold any, by position.

    Both queries are done before the first is yielded, so that others may follow meanwhile.
    """
    limits = {"stated_only": stated_only}
    found = _by_position(connection.sql(_FOUND, params=limits).to_arrow_table())
    stated = _by_position(connection.sql(_STATED).to_arrow_table())
    nothing: tuple[int, list[Any]] = (-1, [])
    mine, said = next(found, None), next(stated, None)
    while mine is not None or said is not None:
        at = min(item[0] for item in (mine, said) if item is not None)
        here = mine if mine is not None and mine[0] == at else nothing
        told = said if said is not None and said[0] == at else nothing
        yield at, Extraction(tuple(Found(*v) for v in here[1]), tuple(Stated(*v) for v in told[1]))
        mine = next(found, None) if here is mine else mine
        said = next(stated, None) if told is said else said


def _by_position(table: Any) -> Iterator[tuple[int, list[Any]]]:
    """Yield the other columns' rows, grouped by the first column, which is sorted."""
    rows = (
        row
        for batch in table.to_batches(max_chunksize=_READ_ROWS)
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    for position, group in groupby(rows, key=itemgetter(0)):
        yield position, [row[1:] for row in group]


# From how many memories on a concept tells nothing apart: the limits of the edges.


HUB_MENTION_FRACTION = 0.02
"""A concept that more than this share of the memories mention separates nothing: no edges. More
lets chance arrivals in and costs time, less loses the names of a store with few topics."""

HUB_MENTION_MIN = 50
"""... but up to this many mentions are always fine; keeps small stores from losing their names."""

HUB_SUBJECT_LIMIT = 50
"""A concept that more memories than this are about (or tagged with) gets no edges: each edge would
weigh less than 1/50, and their number is the product of both counts."""


class Hubs(NamedTuple):
    """Limits beyond which a concept tells nothing apart."""

    mentions: int
    subjects: int

    @staticmethod
    def of(memories: int) -> Hubs:
        """Return the limits in a corpus of so many memories."""
        fraction = int(HUB_MENTION_FRACTION * memories)
        return Hubs(max(HUB_MENTION_MIN, fraction), HUB_SUBJECT_LIMIT)


# How specific concepts are, and the names by which a query may link to one, as SQL.


LOWER_CASE_WORTH = 0.4
"""Worth of a title or key that other texts only ever write in lower case: a common noun ("obesity")
names its memory far less surely than a proper one. Lower silences notes titled by common nouns."""

LEADING_WORTH = 0.6
"""Worth of a subject that only the first words of short memories gave: some of them begin a
sentence and name nothing. Higher trusts chance starts as much as titles."""

LONG_LEADING_WORTH = 0.2
"""The same where every such memory is long: the first words of an abstract say little about the
rest. Higher lets abstracts link to each other by chance (scifact, cisi)."""

LEADING_SHORT_CHARS = 400
"""Up to this many characters, some three sentences, the first words say what a memory is about."""

DF_POWER = 0.25
"""(1 + number of memories that mention a concept) to this power divides what a query that names it
gives; higher distrusts much-named concepts more."""

_LINK_ABOUT, _AUTHOR, _SPEAKER = (ROLES.index(role) for role in ("about", "author", "speaker"))
_TITLE, _LINK_KEY, _LEADING = (KINDS.index(kind) for kind in ("title", "key", "leading"))

# Small words between capitals ("Bank of England") tell nothing about case, nor does what a title
# adds in parentheses.
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
    * CASE WHEN kind IN ({_TITLE}, {_LINK_KEY}, {_LEADING})
        THEN {LOWER_CASE_WORTH}::DOUBLE + (1 - {LOWER_CASE_WORTH}::DOUBLE) * coalesce(capitals, 1.0)
        ELSE 1.0::DOUBLE END AS worth
FROM known LEFT JOIN shown USING (concept)
"""
# A speaker needs no capital: questions about people are typed in lower case.
_LINKS = f"""
WITH subject AS (
    SELECT concept, count(DISTINCT position) AS targets FROM held WHERE role = {_LINK_ABOUT}
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


def rate_concepts(connection: duckdb.DuckDBPyConnection) -> None:
    """Fill the temporary table `rated`: the worth of every concept as a link, in (0, 1]."""
    connection.execute(_RATED)


def sum_links(connection: duckdb.DuckDBPyConnection, hubs: Hubs) -> ArrowTable:
    """Return the names that a query may link to, with the concept's ordinal as `concept`.

    Needs `rate_concepts`. A name of a concept that only speaks has weight 0.
    """
    limits = {"hub_mentions": hubs.mentions, "hub_subjects": hubs.subjects}
    return connection.sql(_LINKS, params=limits).to_arrow_table()


# Edges between memories: from a mention to its subject, from turn to turn, by links, as SQL.


_STEP_ABOUT, _STEP_AUTHOR, _STEP_SPEAKER = (
    ROLES.index(role) for role in ("about", "author", "speaker")
)
_TO_SUBJECT, _TO_TAG = (RELATIONS.index(n) for n in ("mentions_subject", "mentions_tag"))
_NEXT, _PREVIOUS = (RELATIONS.index(n) for n in ("next_turn", "previous_turn"))
_PART_OF, _SEE_ALSO, _RESOLVED_BY = (RELATIONS.index(name) for name in LINK_RELATIONS)

# Of several names that lead from one memory to another, the most specific and earliest counts. A
# memory's own subjects, under whatever name, lead nowhere.
_SUBJECT_STEPS = f"""
WITH target AS (
    SELECT concept, position,
        CASE WHEN bool_or(role = {_STEP_ABOUT}) THEN {_TO_SUBJECT} ELSE {_TO_TAG} END AS relation
    FROM held WHERE role = {_STEP_ABOUT} OR (role = {_STEP_AUTHOR} AND kind = {KINDS.index("tag")})
    GROUP BY concept, position
), few_targets AS (
    SELECT concept, count(*) AS targets FROM target GROUP BY concept
    HAVING count(*) <= $hub_subjects
), own AS (
    SELECT DISTINCT concept, position FROM held WHERE role IN ({_STEP_ABOUT}, {_STEP_SPEAKER})
), mention AS (
    SELECT DISTINCT concept, position, start, stop FROM held ANTI JOIN own USING (concept, position)
    WHERE by_match
), few_mentions AS (
    SELECT concept FROM mention GROUP BY concept
    HAVING count(DISTINCT position) <= $hub_mentions)
SELECT DISTINCT ON (src, relation, dst) mention.position AS src, relation,
    target.position AS dst, worth / targets AS weight, mention.concept, start, stop
FROM mention JOIN few_mentions USING (concept) JOIN few_targets USING (concept)
JOIN rated USING (concept)
JOIN target USING (concept)
WHERE target.position <> mention.position
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
# A link that the store tells of two memories: a statement about the other one's id, at no span.
# To a memory that is not there, or between two users, there is none.
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


def sum_edges(connection: duckdb.DuckDBPyConnection, hubs: Hubs) -> ArrowTable:
    """Return the edges in their canonical order, with the concept's ordinal as `concept`.

    The ordinal is null for a link of the store. Needs `place_memories`, `name_concepts` and
    `rate_concepts`.
    """
    limits = {"hub_mentions": hubs.mentions, "hub_subjects": hubs.subjects}
    connection.execute(f"CREATE OR REPLACE TEMP TABLE step AS {_SUBJECT_STEPS}", limits)
    connection.execute(f"INSERT INTO step {_TURN_STEPS}")
    connection.execute(f"INSERT INTO step {_LINK_STEPS}")
    return connection.sql(_DATED).to_arrow_table()


# Bring the contributions up to date with the corpus: only what changed is written.


_SYNC_ABOUT, _SYNC_SPEAKER = ROLES.index("about"), ROLES.index("speaker")

Mids = NDArray[np.int64]
"""Numbers of memories in the state, shape (n,)."""

Load = Callable[[Sequence[int]], Iterable[Extraction]]
"""Gives the extractions of the memories at these ascending positions, in that order; read as slowly
as they are written."""

# What the chosen memories are about, and who speaks in them. The range lets blocks be skipped.
_OWN_NAMES = f"""
WITH own AS (
    SELECT mid, list_sort(list(DISTINCT name)) AS names FROM found SEMI JOIN chosen USING (mid)
    WHERE role IN ({_SYNC_ABOUT}, {_SYNC_SPEAKER}) AND mid BETWEEN ? AND ? GROUP BY mid)
SELECT coalesce(names, []::VARCHAR[]) AS names FROM chosen LEFT JOIN own USING (mid) ORDER BY place
"""


class SyncReport(NamedTuple):
    """What a sync did."""

    added: int
    edited: int
    deleted: int
    rematched: int
    changed_names: int

    @property
    def touched(self) -> int:
        """Memories of which any row was written or removed."""
        return self.added + self.edited + self.deleted + self.rematched


class _Difference(NamedTuple):
    added: int
    edited: int
    deleted: int
    fresh: NDArray[np.int64]
    """Positions of the memories to be read, ascending."""
    first_mid: int
    """Number of the first of them; the others follow."""


def sync(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    keys: Sequence[str],
    load: Load,
    search: TextSearch = search_here,
) -> SyncReport:
    """Make the contributions equal to the corpus; all or nothing."""
    with _transaction(connection):
        difference = _compare(connection, records, keys)
        if not len(difference.fresh) and not difference.deleted:
            return SyncReport(0, 0, 0, 0, 0)
        _remove_gone(connection)
        _add_findings(connection, records, keys, difference, load)
        changed = update_dictionary(connection)
        concerned = find_concerned(connection, changed)
        _match(connection, records, difference, concerned, search)
    return SyncReport(
        difference.added, difference.edited, difference.deleted, len(concerned), len(changed)
    )


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Generator[None]:
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _compare(
    connection: duckdb.DuckDBPyConnection, records: Sequence[MemoryRecord], keys: Sequence[str]
) -> _Difference:
    """Fill `gone` and `touched_name`, and return what is to be read."""
    _write_current(connection, records, keys)
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE gone AS
        SELECT mid, memory_id FROM memory ANTI JOIN current USING (memory_id, key)"""
    )
    fresh = _numbers(
        connection,
        """SELECT position FROM current ANTI JOIN memory USING (memory_id, key)
        ORDER BY position""",
    )
    edited = _value(connection, "SELECT count(*) FROM gone SEMI JOIN current USING (memory_id)")
    gone = _value(connection, "SELECT count(*) FROM gone")
    first = _value(connection, "SELECT coalesce(max(mid) + 1, 0) FROM memory")
    connection.execute(
        f"""CREATE OR REPLACE TEMP TABLE touched_name AS
        SELECT DISTINCT name FROM found SEMI JOIN gone USING (mid)
        WHERE look IN ({ANY_CASE}, {NEEDS_CASE})"""
    )
    return _Difference(len(fresh) - edited, edited, gone - edited, fresh, first)


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
        _check_positions(batch.column("position").to_numpy(), done)
        some = pa.array(keys[done : done + batch.num_rows], pa.string())
        _insert(connection, {"current": pa.table(batch.append_column("key", some))})
        done += batch.num_rows


def _check_positions(positions: NDArray[np.int64], first: int) -> None:
    wrong = np.flatnonzero(positions != np.arange(first, first + len(positions)))
    if len(wrong):
        raise ValueError(
            f"found position {positions[wrong[0]]} at index {first + wrong[0]}, expected the "
            "memories ordered by position without gaps"
        )


def _remove_gone(connection: duckdb.DuckDBPyConnection) -> None:
    removed = 0
    for table in (*OWN_TABLES, *MATCH_TABLES):
        counted = connection.execute(f"DELETE FROM {table} WHERE mid IN (SELECT mid FROM gone)")
        removed += counted.fetchall()[0][0]
    if removed:
        # The blocks of deleted rows keep their texts until the file is written anew.
        connection.execute("UPDATE meta SET has_leftovers = true")


def _add_findings(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    keys: Sequence[str],
    difference: _Difference,
    load: Load,
) -> None:
    if not len(difference.fresh):
        return
    extractions = iter(load(difference.fresh.tolist()))
    mids = count(difference.first_mid)
    for batch in take_columns(records, difference.fresh, ("position", "memory_id", "content")):
        rows = OwnRows()
        columns = (batch.column(name).to_pylist() for name in ("position", "memory_id", "content"))
        for at, memory_id, content in zip(*columns, strict=True):
            position: int = at
            rows.add(next(mids), memory_id, keys[position], content, next(extractions))
        _insert(connection, rows.tables())
    connection.execute(
        f"""INSERT INTO touched_name SELECT DISTINCT name FROM found
        WHERE mid >= {difference.first_mid} AND look IN ({ANY_CASE}, {NEEDS_CASE})
        AND name NOT IN (SELECT name FROM touched_name)"""
    )


def _match(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    difference: _Difference,
    concerned: Sequence[int],
    search: TextSearch,
) -> None:
    """Search the texts of fresh memories and, again, of those that a changed name concerns."""
    names = load_dictionary(connection)
    fresh = difference.first_mid + np.arange(len(difference.fresh), dtype=np.int64)
    texts = _texts(connection, records, fresh, difference.fresh)
    for found in search(names, texts, len(fresh), words=True):
        _insert(connection, unpack_tables(found))
    _name_mids(connection, concerned)
    for table in MATCH_TABLES:
        connection.execute(f"DELETE FROM {table} WHERE mid IN (SELECT mid FROM chosen)")
    placed = connection.execute(
        """SELECT mid, position FROM chosen JOIN memory USING (mid)
        JOIN current USING (memory_id) ORDER BY position"""
    ).fetchnumpy()
    texts = _texts(connection, records, *map(_as_array, (placed["mid"], placed["position"])))
    for found in search(names, texts, len(concerned), words=False):
        _insert(connection, unpack_tables(found))


def _texts(
    connection: duckdb.DuckDBPyConnection,
    records: Sequence[MemoryRecord],
    mids: NDArray[np.int64],
    positions: NDArray[np.int64],
) -> Iterator[RecordBatch]:
    """Yield `mid`, `content` and `own` of memories, what `TextSearch` reads.

    Args:
        connection: The state.
        records: The memories.
        mids: Their numbers, shape (n,).
        positions: Their positions, ascending, shape (n,).
    """
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


def _name_mids(connection: duckdb.DuckDBPyConnection, mids: Sequence[int] | Mids) -> None:
    """Fill `chosen`: the numbers and where they stand among the given ones."""
    import pyarrow as pa

    columns = {"mid": pa.array(mids, pa.int64()), "place": np.arange(len(mids))}
    connection.register("mids", pa.table(columns))
    connection.execute("CREATE OR REPLACE TEMP TABLE chosen AS SELECT mid, place FROM mids")
    connection.unregister("mids")


def _insert(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, ArrowTable]) -> None:
    for table, rows in tables.items():
        if rows.num_rows:
            connection.register("incoming", rows)
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM incoming")
            connection.unregister("incoming")


def _value(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    return int(connection.execute(sql).fetchall()[0][0])


def _numbers(connection: duckdb.DuckDBPyConnection, sql: str) -> NDArray[np.int64]:
    (column,) = connection.execute(sql).fetchnumpy().values()
    return _as_array(column)


def _as_array(column: Any) -> NDArray[np.int64]:
    return np.asarray(column, dtype=np.int64)


# The graph's state between two nights: brought up to date, then added up to one graph.


class GraphState:
    """What every memory contributes to the graph, in one file.

    The order of use is `sync`, `place`, `names` and `fold`.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, memory_mb: int = MEMORY_MB) -> None:
        self._db = connection
        self._memory_mb = memory_mb
        self._memories = 0

    @staticmethod
    @contextmanager
    def open(path: Path, memory_mb: int = MEMORY_MB) -> Generator[GraphState]:
        """Open or make the file; what is damaged, foreign or older is dropped and made anew.

        When the block ends, a file in which rows were deleted is written anew without them.
        """
        connection = open_database(path, memory_mb)
        try:
            yield GraphState(connection, memory_mb)
            rows = connection.execute("SELECT has_leftovers FROM meta").fetchall()
        finally:
            connection.close()
        if rows == [(True,)]:
            compact_database(path, memory_mb)

    def sync(
        self,
        records: Sequence[MemoryRecord],
        keys: Sequence[str],
        load: Load,
        search: TextSearch = search_here,
    ) -> SyncReport:
        """Make the contributions equal to the corpus, see `sync.sync`; all or nothing."""
        return sync(self._db, records, keys, load, search)

    def runs(self) -> dict[str, int]:
        """Return how many memories hold every name of kind `run`; `sync` came before."""
        return count_runs(self._db)

    def iter_outlines(self, *, stated_only: bool = False) -> Iterator[tuple[int, Extraction]]:
        """Yield what each memory states and is about, by position; `place` came before.

        The rest of the findings, some nine tenths, is left out, as are aliases and memories that
        hold neither. Each call begins anew.
        """
        return iter_outlines(self._db, stated_only=stated_only)

    def aliases(self) -> list[tuple[str, str, str]]:
        """Return every (alias, canonical, detail) that a memory gives, sorted, without repeats."""
        rows = self._db.execute(
            "SELECT DISTINCT alias, canonical, detail FROM alias ORDER BY alias, canonical, detail"
        )
        return [(alias, canonical, detail) for alias, canonical, detail in rows.fetchall()]

    def place(self, records: Sequence[MemoryRecord], kept_runs: Collection[str] = ()) -> None:
        """Join the contributions with where and when the memories stand; `sync` came before."""
        self._memories = len(records)
        place_memories(self._db, records, kept_runs)

    def names(self) -> Iterator[NameStats]:
        """Yield every folded name that memories hold, in code-point order; `place` came before."""
        return name_stats(self._db)

    def fold(
        self, canonical_of: Mapping[str, str] | None = None, merges: Sequence[Merge] = ()
    ) -> GraphTables:
        """Add up the graph; `place` came before, and comes again before another sum."""
        import pyarrow as pa

        name_concepts(self._db, canonical_of or {})
        rate_concepts(self._db)
        concepts = sum_concepts(self._db)
        ids = concepts["concept_id"].combine_chunks()
        hubs = Hubs.of(self._memories)
        # One at a time: mentions with ordinals are half a gigabyte at a million memories.
        tables = {
            "mentions": _with_ids("mentions", sum_mentions(self._db), ids),
            "concept_edges": _with_ids("concept_edges", sum_concept_edges(self._db), ids),
            "edges": _with_ids("edges", sum_edges(self._db, hubs), ids),
            "links": _with_ids("links", sum_links(self._db, hubs), ids),
        }
        drop_sums(self._db)
        release_memory(self._db, self._memory_mb)
        return GraphTables(
            concepts=concepts.cast(schema_of("concepts")),
            merges=to_table("merges", sorted(merges, key=lambda merge: merge.name)),
            supersessions=pa.Table.from_pylist([], schema=schema_of("supersessions")),
            skipped_subjects=count_skipped(self._db),
            declined_runs=count_declined(self._db),
            **tables,
        )


_ORDINALS = {"concept": "concept_id", "src": "src_concept", "dst": "dst_concept"}


def _with_ids(name: str, table: ArrowTable, ids: ArrowColumn) -> ArrowTable:
    """Replace the columns that hold ordinals by columns of concept ids, as the table has them."""
    import pyarrow as pa

    columns = {
        _ORDINALS.get(column, column): (
            _ids_at(ids, table[column]) if column in _ORDINALS else table[column]
        )
        for column in table.column_names
    }
    schema = schema_of(name)
    return pa.table({column: columns[column] for column in schema.names}).cast(schema)


def _ids_at(ids: ArrowColumn, ordinals: ArrowColumn) -> ArrowColumn:
    """Return the ids at some ordinals, "" where there is none: a link rests on no concept."""
    taken = ids.take(ordinals.combine_chunks())
    return arrow_compute().fill_null(taken, "") if taken.null_count else taken
