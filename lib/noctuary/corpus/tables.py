"""The Parquet files of an export: their schemas and a writer whose bytes depend on the rows alone.

What belongs here: columns and row groups. Which rows there are is decided in
`noctuary.corpus.sift`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast

if TYPE_CHECKING:
    import pyarrow as pa

MEMORIES_FILE = "memories.parquet"
TURNS_FILE = "turns.parquet"
QUARANTINE_FILE = "quarantine.parquet"

ROW_GROUP_ROWS = 16_384
"""Rows per row group: larger compresses better, smaller lets readers skip and hold less."""

ROW_GROUP_BYTES = 64 * 2**20
"""Text bytes per row group; keeps memory bounded where rows are as large as they may be."""

ZSTD_LEVEL = 3
"""zstd's own default; 9 saves about 5 % of the bytes for three times the time."""

# (name, Arrow type, nullable), in the order of MemoryRecord's fields.
_MEMORIES = (
    ("position", "int64", False),
    ("memory_id", "string", False),
    ("content", "string", False),
    ("category", "string", False),
    ("tags", "string", False),
    ("expanded_keywords", "string", False),
    ("importance", "float64", False),
    ("created_at_us", "int64", False),
    ("updated_at_us", "int64", False),
    ("session_id", "string", True),
    ("wing", "string", True),
    ("room", "string", True),
    ("user", "string", True),
    ("is_turn", "bool_", False),
    ("content_hash", "string", False),
)
_TURNS = (
    ("position", "int64", False),
    ("memory_id", "string", False),
    ("session_id", "string", False),
    ("user", "string", True),
    ("ordinal", "int64", False),
    ("speaker", "string", True),
    ("created_at_us", "int64", False),
)
_QUARANTINE = (
    ("locator", "string", False),
    ("reason", "string", False),
    ("detail", "string", False),
)
# Dictionaries pay only where values repeat.
_REPEATING = ("category", "session_id", "wing", "room", "user", "speaker", "reason")

_COLUMNS = {MEMORIES_FILE: _MEMORIES, TURNS_FILE: _TURNS, QUARANTINE_FILE: _QUARANTINE}


def column_names(file_name: str) -> tuple[str, ...]:
    """Return the columns of one of the export's files, in order."""
    return tuple(name for name, _, _ in _COLUMNS[file_name])


def arrow_schema(file_name: str) -> pa.Schema:  # pyright: ignore[reportUnknownParameterType]
    """Return the fixed schema of one of the export's files."""
    import pyarrow as pa

    columns = _COLUMNS[file_name]
    return pa.schema([pa.field(n, getattr(pa, kind)(), nullable=null) for n, kind, null in columns])


class TableWriter:
    """Writes tuples in column order; row groups close by row count or text bytes, never by time."""

    def __init__(self, path: Path, file_name: str) -> None:
        import pyarrow.parquet as pq

        self._schema = arrow_schema(file_name)
        self._rows: list[Sequence[object]] = []
        self._held_bytes = 0
        self._writer = pq.ParquetWriter(
            path,
            self._schema,
            compression="zstd",
            compression_level=ZSTD_LEVEL,
            # The stub knows the switch only, not the list of columns.
            use_dictionary=cast("bool", [n for n in column_names(file_name) if n in _REPEATING]),
        )

    def add(self, row: Sequence[object]) -> None:
        """Append one row."""
        self._rows.append(row)
        self._held_bytes += sum(len(value) for value in row if isinstance(value, str))
        if len(self._rows) >= ROW_GROUP_ROWS or self._held_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is left and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._rows.clear()
        self.close()

    def _flush(self) -> None:
        import pyarrow as pa

        columns = zip(*self._rows, strict=True)
        arrays = [
            pa.array(values, type=field.type)
            for values, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self._rows.clear()
        self._held_bytes = 0
