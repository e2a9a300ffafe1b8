"""Where tonight's memories stand, and everything they hold, under the names the texts use.

Belongs here: the join of the contributions with the corpus (positions, times, sessions). Does not
belong here: canonical names, concepts, edges.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from mnemon.graph.arrays import ROLES
from mnemon.graph.extraction import KINDS
from mnemon.graph.fold import fold_name
from mnemon.graph.model import NO_SPAN
from mnemon.graph.tables import ArrowTable
from mnemon.types import MemoryRecord

if TYPE_CHECKING:
    import duckdb

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
_RUN_COUNTS = f"""
SELECT name, count(*) FROM (SELECT DISTINCT name, mid FROM found WHERE kind = {_RUN})
GROUP BY name ORDER BY name
"""


def session_name(record: MemoryRecord) -> str | None:
    """Return the folded name of the conversation that a turn belongs to, or None."""
    if not record.is_turn or not record.session_id:
        return None
    return fold_name(record.session_id) or None


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

    connection.register("places", _places(records))
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE place AS
        SELECT memory.mid, places.* EXCLUDE (memory_id)
        FROM memory JOIN places USING (memory_id)"""
    )
    connection.unregister("places")
    connection.register("runs", pa.table({"name": pa.array(sorted(kept_runs), pa.string())}))
    connection.execute("CREATE OR REPLACE TEMP TABLE kept_run AS SELECT name FROM runs")
    connection.unregister("runs")
    connection.execute(_HOLDING)


def count_runs(connection: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Return how many memories hold every name of kind `run`; needs only a synced state."""
    table = connection.sql(_RUN_COUNTS).to_arrow_table()
    names, counts = (column.to_numpy(zero_copy_only=False).tolist() for column in table.columns)
    return dict(zip(names, counts, strict=True))


def _places(records: Sequence[MemoryRecord]) -> ArrowTable:
    import pyarrow as pa

    return pa.table(
        {
            "position": pa.array([r.position for r in records], pa.int32()),
            "memory_id": pa.array([r.memory_id for r in records], pa.string()),
            "created_at_us": pa.array([r.created_at_us for r in records], pa.int64()),
            "updated_at_us": pa.array([r.updated_at_us for r in records], pa.int64()),
            "session_id": pa.array([r.session_id for r in records], pa.string()),
            "session_name": pa.array([session_name(r) for r in records], pa.string()),
            "user_name": pa.array([r.user or "" for r in records], pa.string()),
            "wing": pa.array([r.wing or "" for r in records], pa.string()),
            "chars": pa.array([len(r.content) for r in records], pa.int32()),
        }
    )
