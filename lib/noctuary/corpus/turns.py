"""The turns of every session in the order in which they were said.

What belongs here: session order. A session is named by its id and its user together: two users may
well call a session the same, and their turns must never meet in one summary.
"""

from __future__ import annotations

from pathlib import Path

from noctuary.corpus.engine import open_duckdb
from noctuary.corpus.speaker import find_speaker
from noctuary.corpus.tables import ROW_GROUP_ROWS, TURNS_FILE, arrow_schema
from noctuary.types import MemoryRecord

# Undated turns come first: their stamp is the smallest int64. Text orders by code point.
_IN_ORDER = """
    SELECT position, memory_id, session_id, "user",
           row_number() OVER (
               PARTITION BY session_id, "user" ORDER BY created_at_us, position
           ) - 1 AS ordinal,
           speaker, created_at_us
    FROM read_parquet(?)
    ORDER BY session_id, "user" NULLS FIRST, ordinal
"""


def turn_row(record: MemoryRecord) -> tuple[object, ...]:
    """Return the row of a turn in turns.parquet, its ordinal still 0."""
    return (
        record.position,
        record.memory_id,
        record.session_id,
        record.user,
        0,
        find_speaker(record.content),
        record.created_at_us,
    )


def order_turns(unordered: Path, ordered: Path) -> int:
    """Sort a file of turns by session and time, number them per session; return how many there are.

    Args:
        unordered: Parquet with the columns of turns.parquet, ordinals unset.
        ordered: Written anew, by (session_id, user, ordinal); within a session by
            (created_at_us, position).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(TURNS_FILE)
    turns = 0
    with (
        open_duckdb(ordered.parent) as db,
        pq.ParquetWriter(ordered, schema, compression="zstd") as writer,
    ):
        for batch in db.sql(_IN_ORDER, params=[str(unordered)]).to_arrow_reader(ROW_GROUP_ROWS):
            writer.write_table(pa.Table.from_batches([batch]).cast(schema))
            turns += batch.num_rows
    return turns
