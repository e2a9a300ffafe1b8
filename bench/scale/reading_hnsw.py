"""An IVF_HNSW_SQ index over a snapshot's vectors, built for a comparison and thrown away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.embed.tiers import connect
from noctuary.recall.reader import SnapshotReader

ROWS_PER_PARTITION, EDGES, BUILD_WIDTH = 65_536, 16, 64
"""As research/limits.md 2b measured them: a single graph of a million rows takes hours."""

SEARCH_WIDTH = 100
BLOCK_ROWS = 65_536
_NAME = "hnsw"


def open_hnsw(
    reader: SnapshotReader, folder: Path, depth: int, refine: int
) -> tuple[Callable[[NDArray[np.float32]], list[int]], float]:
    """Return a search over a fresh index, and the seconds that building it took.

    Args:
        reader: A snapshot with vectors.
        folder: Empty; 4 bytes a dimension and row are written, twice.
        depth: Results of a search.
        refine: A search scores this many times `depth` exactly.
    """
    from lancedb.index import HnswSq

    table: Any = connect(folder).create_table(_NAME, data=_rows(reader))
    started = time.perf_counter()
    parts = max(1, reader.count // ROWS_PER_PARTITION)
    config = HnswSq("cosine", num_partitions=parts, m=EDGES, ef_construction=BUILD_WIDTH)
    table.create_index("vector", config=config)
    seconds = time.perf_counter() - started

    def ask(query: NDArray[np.float32]) -> list[int]:
        plan = table.search(query, vector_column_name="vector").distance_type("cosine")
        plan = plan.limit(depth).nprobes(parts).ef(max(SEARCH_WIDTH, refine * depth))
        found = plan.refine_factor(refine).select(["position", "_distance"]).to_arrow()
        return found["position"].to_pylist()

    return ask, seconds


def _rows(reader: SnapshotReader) -> Any:
    import pyarrow as pa

    assert reader.vectors is not None
    vectors, dim = reader.vectors, reader.vectors.shape[1]
    fields = [("position", pa.int64()), ("vector", pa.list_(pa.float32(), dim))]
    schema = pa.schema(fields)

    def batches() -> Iterator[Any]:
        for start in range(0, len(vectors), BLOCK_ROWS):
            block = np.ascontiguousarray(vectors[start : start + BLOCK_ROWS])
            positions = pa.array(np.arange(start, start + len(block)))
            column = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), dim)
            yield pa.record_batch([positions, column], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
