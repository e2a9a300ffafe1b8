"""The graph's state between two nights: brought up to date, then added up to one graph."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mnemon.graph.canonical.stats import NameStats
from mnemon.graph.extraction import Extraction
from mnemon.graph.hubs import Hubs
from mnemon.graph.model import Merge
from mnemon.graph.state.holdings import (
    count_declined,
    count_skipped,
    name_concepts,
    name_stats,
    sum_concept_edges,
    sum_concepts,
    sum_mentions,
)
from mnemon.graph.state.links import rate_concepts, sum_links
from mnemon.graph.state.outlines import read_outlines
from mnemon.graph.state.place import count_runs, place_memories
from mnemon.graph.state.schema import compact_database, open_database
from mnemon.graph.state.steps import sum_edges
from mnemon.graph.state.sync import Load, SyncReport, sync
from mnemon.graph.tables import (
    ArrowColumn,
    ArrowTable,
    GraphTables,
    arrow_compute,
    schema_of,
    to_table,
)
from mnemon.types import MemoryRecord

if TYPE_CHECKING:
    import duckdb


class GraphState:
    """What every memory contributes to the graph, in one file.

    The order of use is `sync`, `place`, `names` and `fold`.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._db = connection
        self._memories = 0

    @staticmethod
    @contextmanager
    def open(path: Path) -> Generator[GraphState]:
        """Open or make the file; what is damaged, foreign or older is dropped and made anew.

        When the block ends, a file in which rows were deleted is written anew without them.
        """
        connection = open_database(path)
        try:
            yield GraphState(connection)
            rows = connection.execute("SELECT has_leftovers FROM meta").fetchall()
        finally:
            connection.close()
        if rows == [(True,)]:
            compact_database(path)

    def sync(self, records: Sequence[MemoryRecord], keys: Sequence[str], load: Load) -> SyncReport:
        """Make the contributions equal to the corpus, see `sync.sync`; all or nothing.

        Args:
            records: The memories, ordered by position from 0.
            keys: Their extraction keys.
            load: Gives the extractions of those that are new or changed.

        Raises:
            ValueError: The two do not line up, or positions have gaps.
        """
        _check_alignment(records, keys)
        return sync(self._db, records, keys, load)

    def runs(self) -> dict[str, int]:
        """Return how many memories hold every name of kind `run`; `sync` came before."""
        return count_runs(self._db)

    def outlines(self) -> list[Extraction]:
        """Return what each memory states and is about, by position; `place` came before.

        The rest of the findings, some nine tenths, is left out; aliases are as well.
        """
        return read_outlines(self._db, self._memories)

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
        """Add up the graph; `place` came before.

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
        made = {
            "mentions": sum_mentions(self._db),
            "concept_edges": sum_concept_edges(self._db),
            "edges": sum_edges(self._db, hubs),
            "links": sum_links(self._db, hubs),
        }
        tables = {name: _with_ids(name, table, ids) for name, table in made.items()}
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


def _check_alignment(records: Sequence[MemoryRecord], keys: Sequence[str]) -> None:
    if len(records) != len(keys):
        raise ValueError(
            f"found {len(keys)} extraction keys for {len(records)} memories, expected one each"
        )
    for position, record in enumerate(records):
        if record.position != position:
            raise ValueError(
                f"found position {record.position} at index {position}, expected the memories "
                "ordered by position without gaps"
            )
