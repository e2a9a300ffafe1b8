"""The graph's state between two nights: brought up to date, then added up to one graph."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from noctuary.arrow import arrow_compute
from noctuary.graph.canonical.stats import NameStats
from noctuary.graph.extraction import Extraction
from noctuary.graph.hubs import Hubs
from noctuary.graph.model import Merge
from noctuary.graph.state.holdings import (
    count_declined,
    count_skipped,
    drop_sums,
    name_concepts,
    name_stats,
    sum_concept_edges,
    sum_concepts,
    sum_mentions,
)
from noctuary.graph.state.links import rate_concepts, sum_links
from noctuary.graph.state.outlines import iter_outlines
from noctuary.graph.state.place import count_runs, place_memories
from noctuary.graph.state.schema import (
    MEMORY_MB,
    compact_database,
    open_database,
    release_memory,
)
from noctuary.graph.state.steps import sum_edges
from noctuary.graph.state.sync import Load, SyncReport, sync
from noctuary.graph.state.text_search import TextSearch, search_here
from noctuary.graph.tables import (
    ArrowColumn,
    ArrowTable,
    GraphTables,
    schema_of,
    to_table,
)
from noctuary.types import MemoryRecord

if TYPE_CHECKING:
    import duckdb


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

        Args:
            path: The file; beside it lies, while it is open, what does not fit into memory.
            memory_mb: What the database may hold in memory.
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
        """Make the contributions equal to the corpus, see `sync.sync`; all or nothing.

        Args:
            records: The memories, ordered by position from 0.
            keys: Their extraction keys.
            load: Gives the extractions of those that are new or changed.
            search: Searches texts for names.

        Raises:
            ValueError: The two do not line up, or positions have gaps.
        """
        return sync(self._db, records, keys, load, search)

    def runs(self) -> dict[str, int]:
        """Return how many memories hold every name of kind `run`; `sync` came before."""
        return count_runs(self._db)

    def iter_outlines(self, *, stated_only: bool = False) -> Iterator[tuple[int, Extraction]]:
        """Yield what each memory states and is about, by position; `place` came before.

        The rest of the findings, some nine tenths, is left out, as are aliases and memories that
        hold neither. Each call begins anew.

        Args:
            stated_only: Leave out memories that neither state anything nor are a `key: value`.
        """
        return iter_outlines(self._db, stated_only=stated_only)

    def aliases(self) -> list[tuple[str, str, str]]:
        """Return every (alias, canonical, detail) that a memory gives, sorted, without repeats."""
        rows = self._db.execute(
            "SELECT DISTINCT alias, canonical, detail FROM alias ORDER BY alias, canonical, detail"
        )
        return [(alias, canonical, detail) for alias, canonical, detail in rows.fetchall()]

    def place(self, records: Sequence[MemoryRecord], kept_runs: Collection[str] = ()) -> None:
        """Join the contributions with where and when the memories stand; `sync` came before.

        Args:
            records: Those of the last sync.
            kept_runs: The names of kind `run` that may be concepts.
        """
        self._memories = len(records)
        place_memories(self._db, records, kept_runs)

    def names(self) -> Iterator[NameStats]:
        """Yield every folded name that memories hold, in code-point order; `place` came before."""
        return name_stats(self._db)

    def fold(
        self, canonical_of: Mapping[str, str] | None = None, merges: Sequence[Merge] = ()
    ) -> GraphTables:
        """Add up the graph; `place` came before, and comes again before another sum.

        Args:
            canonical_of: By folded name, the name that stands for it; names that stand for
                themselves are left out.
            merges: Why, for the record.
        """
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
