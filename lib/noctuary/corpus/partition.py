"""Which memories of an exported table are one shard of a store of many millions.

What belongs here: the names of shards and membership by content hash. What does not: what is
computed of a shard (`noctuary.night.shard`), the files that runners cut (`noctuary.shards`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.corpus.columns import iter_batches
from noctuary.errors import ShardError, StoreError

_HASH = "content_hash"
_HASH_DIGITS = 8
"""Of a memory's hash, in hex: 32 bits spread any count of shards evenly."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One of so many shards; the count alone and its own hash decide where a memory belongs.

    So no memory moves when others come or go.

    Attributes:
        number: Which one, from 0.
        count: Of how many, at least 1.
    """

    number: int
    count: int

    @property
    def name(self) -> str:
        """Return what it is called, `shard-000`."""
        return f"shard-{self.number:03}"

    def members(self, hashes: Sequence[str]) -> NDArray[np.int64]:
        """Return which of some memories are its own, ascending.

        Args:
            hashes: Their content hashes, at least 8 hex digits each.
        """
        start = bytes.fromhex("".join(value[:_HASH_DIGITS] for value in hashes))
        numbers = np.frombuffer(start, dtype=">u4").astype(np.int64)
        return np.flatnonzero(numbers % self.count == self.number)

    def write(self, table: Path, to: Path) -> int:
        """Write its memories as a table of the same columns, in the same order; return how many.

        Both tables are streamed.

        Raises:
            StoreError: The table is missing or damaged.
        """
        import pyarrow.parquet as pq

        schema, rows = read_schema(table), 0
        to.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(to, schema, compression="zstd") as writer:
            for batch in iter_batches(table, schema.names):
                own = self.members(batch.column(schema.names.index(_HASH)).to_pylist())
                if len(own):
                    writer.write_batch(batch.take(own))
                    rows += len(own)
        return rows


def partition_names(count: int) -> list[str]:
    """Return the names of all shards, in order."""
    return [Partition(number, count).name for number in range(count)]


def find_partition(name: str, count: int) -> Partition:
    """Return the shard of a name.

    Raises:
        ShardError: There is none: the count is another since the name was given.
    """
    names = partition_names(count)
    if name not in names:
        raise ShardError(
            f"there is no {name} among {count} shards (shards.count): choose one of "
            f"{names[0]} to {names[-1]}"
        )
    return Partition(names.index(name), count)


def read_schema(table: Path) -> Any:
    """Return the columns of an exported table, a pyarrow.Schema.

    Raises:
        StoreError: It is missing or damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(table)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"cannot read {table.name}: run the nightly job again") from error
