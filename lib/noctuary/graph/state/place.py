"""Where tonight's memories stand, and everything they hold, under the names the texts use.

Belongs here: the join of the contributions with the corpus (positions, times, sessions). Does not
belong here: canonical names, concepts, edges.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from noctuary.arrow import arrow_compute
from noctuary.corpus.record_file import column_batches
from noctuary.graph.arrays import ROLES
from noctuary.graph.extraction import KINDS
from noctuary.graph.fold import fold_name
from noctuary.graph.model import NO_SPAN
from noctuary.graph.tables import ArrowTable
from noctuary.shards.task import RecordBatch
from noctuary.types import MemoryRecord

if TYPE_CHECKING:
    import duckdb

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
    """Fill the temporary tables `place` (a row per memory) and `holding` (a row per finding).

    Args:
        connection: A state in step with the records.
        records: The memories, by position.
        kept_runs: Names of kind `run` that may be concepts.
    """
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
