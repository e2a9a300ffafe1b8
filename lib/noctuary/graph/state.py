"""The graph's state between two nights: brought in step with the corpus, then added up in SQL."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from heapq import merge
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from noctuary.core.types import MemoryRecord
from noctuary.graph.contributions import (
    FIRST_REFUSAL,
    MEMORY_MB,
    Load,
    SyncReport,
    TextSearch,
    compact_database,
    open_database,
    release_memory,
    search_here,
    sync,
)
from noctuary.graph.extract import KINDS, REFUSALS, Extraction, Found, Stated
from noctuary.graph.fold import CONCEPT_ID_HEX, fold_name
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
from noctuary.sources.corpus import column_batches
from noctuary.work.shards import arrow_compute

if TYPE_CHECKING:
    import duckdb

_SESSION_CACHE_SIZE = 1 << 12
"""Folded names of conversations remembered: their turns stand near one another."""

_READ_ROWS = 50_000
"""Rows held as objects at once."""


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

        When the block ends, a file in which rows were deleted is written anew without them. Beside
        it lies, while it is open, what does not fit into memory.
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
        """Make the contributions equal to the corpus; all or nothing.

        Equal extraction keys promise equal content and equal extraction, so that `load` is asked,
        once, for memories that are new or changed only.

        Raises:
            ValueError: Keys and records do not line up, or positions are not 0..n-1 in order.
        """
        return sync(self._db, records, keys, load, search)

    def runs(self) -> dict[str, int]:
        """Return how many memories hold every name of kind `run`; `sync` came before."""
        return dict(self._db.execute(_RUN_COUNTS).fetchall())

    def aliases(self) -> list[tuple[str, str, str]]:
        """Return every (alias, canonical, detail) that a memory gives, sorted, without repeats."""
        return self._db.execute(
            "SELECT DISTINCT alias, canonical, detail FROM alias ORDER BY alias, canonical, detail"
        ).fetchall()

    def place(self, records: Sequence[MemoryRecord], kept_runs: Collection[str] = ()) -> None:
        """Join the contributions with where and when the memories of the last sync stand.

        Of the names of kind `run`, only `kept_runs` may be concepts.
        """
        import pyarrow as pa

        self._memories = len(records)
        self._db.execute(_PLACES)
        for batch in column_batches(records, _PLACE_COLUMNS):
            turns, sessions = (batch.column(n).to_pylist() for n in ("is_turn", "session_id"))
            names = [
                _folded(s) if turn and s else None for turn, s in zip(turns, sessions, strict=True)
            ]
            named = batch.append_column("session_name", pa.array(names, pa.string()))
            self._run_with(_ADD_PLACES, pa.table(named))
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
        """Yield what each memory states, is about and tagged with, by position; `place` came first.

        The rest of the findings, some nine tenths, is left out, as are memories without any of
        these; with `stated_only` also those that neither state anything nor are a `key: value`.
        Both queries are done before the first is yielded, so that others may follow meanwhile.
        """
        found = self._db.sql(_FOUND, params={"stated_only": stated_only}).to_arrow_table()
        stated = self._db.sql(_STATED_ROWS).to_arrow_table()
        rows = merge(_objects(found, Found), _objects(stated, Stated), key=itemgetter(0))
        for position, group in groupby(rows, key=itemgetter(0)):
            items = [item for _, item in group]
            about = tuple(item for item in items if isinstance(item, Found))
            yield position, Extraction(about, tuple(i for i in items if isinstance(i, Stated)))

    def fold(
        self, canonical_of: Mapping[str, str] | None = None, merges: Sequence[Merge] = ()
    ) -> GraphTables:
        """Add up the graph; `place` came before, and comes again before another sum.

        `canonical_of` holds the names that do not stand for themselves, `merges` says why.
        """
        import pyarrow as pa

        moved = canonical_of or {}
        columns = {"name": list(moved), "canonical": list(moved.values())}
        self._run_with(
            "CREATE OR REPLACE TEMP TABLE canonical_of AS SELECT * FROM incoming",
            pa.table({name: pa.array(texts, pa.string()) for name, texts in columns.items()}),
        )
        hubs = Hubs.of(self._memories)
        limits = {"hub_mentions": hubs.mentions, "hub_subjects": hubs.subjects}
        # `held` takes the place of `holding`: both are as large as all findings together.
        self._db.execute(f"{_CONCEPT_OF};{_HELD};DROP TABLE holding;{_RATED}")
        concepts = self._db.sql(_CONCEPTS).to_arrow_table()
        ids = concepts["concept_id"].combine_chunks()
        # One at a time: mentions with ordinals are half a gigabyte at a million memories.
        mentions = _with_ids("mentions", self._db.sql(_MENTION_ROWS).to_arrow_table(), ids)
        stated = _with_ids("concept_edges", self._db.sql(_CONCEPT_EDGES).to_arrow_table(), ids)
        self._db.execute(f"CREATE OR REPLACE TEMP TABLE step AS {_SUBJECT_STEPS}", limits)
        self._db.execute(f"INSERT INTO step {_TURN_STEPS};INSERT INTO step {_LINK_STEPS}")
        edges = _with_ids("edges", self._db.sql(_DATED).to_arrow_table(), ids)
        links = _with_ids("links", self._db.sql(_LINKS, params=limits).to_arrow_table(), ids)
        self._db.execute("DROP TABLE held; DROP TABLE rated; DROP TABLE step")
        release_memory(self._db, self._memory_mb)
        skipped = self._db.execute(_SKIPPED).fetchall()
        return GraphTables(
            concepts=concepts.cast(schema_of("concepts")),
            mentions=mentions,
            concept_edges=stated,
            edges=edges,
            links=links,
            merges=to_table("merges", sorted(merges, key=lambda merge: merge.name)),
            supersessions=to_table("supersessions", ()),
            skipped_subjects=dict(sorted((REFUSALS[n - FIRST_REFUSAL], k) for n, k in skipped)),
            declined_runs=dict(self._db.execute(_DECLINED).fetchall()),
        )

    def _run_with(self, sql: str, incoming: ArrowTable) -> None:
        self._db.register("incoming", incoming)
        self._db.execute(sql)
        self._db.unregister("incoming")


@lru_cache(maxsize=_SESSION_CACHE_SIZE)
def _folded(session_id: str) -> str | None:
    return fold_name(session_id) or None


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


# Where tonight's memories stand, and everything they hold, under the names the texts use.


_ABOUT, _MENTIONS, _AUTHOR, _SPEAKER = (
    ROLES.index(role) for role in ("about", "mentions", "author", "speaker")
)
_TITLE, _KEY, _LEADING, _TAG, _NAME, _STATED, _SESSION, _RUN = (
    KINDS.index(kind)
    for kind in ("title", "key", "leading", "tag", "name", "stated", "session", "run")
)
_ROLE_NAMES = f"{list(ROLES)!r}"
_KIND_NAMES = f"{list(KINDS)!r}"

_PLACE_COLUMNS = (
    "position", "memory_id", "created_at_us", "updated_at_us", "session_id", "user", "wing",
    "is_turn", "content",
)  # fmt: skip
_PLACES = """
CREATE OR REPLACE TEMP TABLE places (position INTEGER, memory_id VARCHAR, created_at_us BIGINT,
    updated_at_us BIGINT, session_id VARCHAR, session_name VARCHAR, user_name VARCHAR, wing VARCHAR,
    chars INTEGER)
"""
_ADD_PLACES = """
INSERT INTO places SELECT position, memory_id, created_at_us, updated_at_us, session_id,
    session_name, coalesce("user", ''), coalesce(wing, ''), length(content) FROM incoming
"""
_PLACE = """
CREATE OR REPLACE TEMP TABLE place AS
SELECT memory.mid, places.* EXCLUDE (memory_id) FROM memory JOIN places USING (memory_id);
DROP TABLE places
"""
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


# What all memories hold together: concepts, mentions, concept edges.


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
_SKIPPED = f"""
SELECT look, count(DISTINCT name) FROM found WHERE look >= {FIRST_REFUSAL} GROUP BY look
"""
_DECLINED = "SELECT script, sum(runs)::BIGINT FROM declined GROUP BY script ORDER BY script"


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
# memory's own subjects, under whatever name, lead nowhere.
_SUBJECT_STEPS = f"""
WITH target AS (
    SELECT concept, position,
        CASE WHEN bool_or(role = {_ABOUT}) THEN {_TO_SUBJECT} ELSE {_TO_TAG} END AS relation
    FROM held WHERE role = {_ABOUT} OR (role = {_AUTHOR} AND kind = {_TAG})
    GROUP BY concept, position
), few_targets AS (
    SELECT concept, count(*) AS targets FROM target GROUP BY concept
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
