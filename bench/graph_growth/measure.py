"""One build of one size, in a process of its own: `python -m bench.graph_growth.measure SIZE`."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.graph_growth.corpus import make_records
from noctuary.core.types import MemoryRecord
from noctuary.graph.build import build_graph, to_arrays
from noctuary.graph.extract import Extraction, extract
from noctuary.graph.state import GraphState
from noctuary.graph.tables import FILES, write_tables
from noctuary.work.stage import measure


class _Extractor:
    """Extracts on demand, as a first night does, and knows what that cost."""

    def __init__(self, records: Sequence[MemoryRecord]) -> None:
        self._records = records
        self.cpu_s = 0.0

    def load(self, chosen: Sequence[int]) -> Iterator[Extraction]:
        """Yield the extractions of the memories at some positions."""
        for position in chosen:
            r, started = self._records[position], time.process_time()
            found = extract(r.content, r.tags, r.expanded_keywords, is_turn=r.is_turn)
            self.cpu_s += time.process_time() - started
            yield found


def measure_build(size: int) -> dict[str, Any]:
    """Return what it costs to build the graph of so many memories, and again with nothing new.

    CPU seconds of this process, extraction apart; the peak holds the memories themselves, which
    `memories_rss_bytes` tells.
    """
    with measure() as generation:
        records = make_records(size)
    keys = [record.content_hash for record in records]
    extractor = _Extractor(records)
    with tempfile.TemporaryDirectory(prefix="noctuary-graph-") as folder:
        with measure() as first:
            tables = _build(Path(folder), records, keys, extractor)
        with measure() as again:
            _build(Path(folder), records, keys, extractor)
        state_bytes = (Path(folder) / "graph.duckdb").stat().st_size
    return {
        "memories": size,
        "extract_cpu_s": round(extractor.cpu_s, 2),
        "build_cpu_s": round(first.cpu_ms / 1000 - extractor.cpu_s, 2),
        "nothing_new_cpu_s": round(again.cpu_ms / 1000, 2),
        "peak_rss_bytes": first.peak_rss_bytes,
        "memories_rss_bytes": generation.peak_rss_bytes,
        "state_bytes": state_bytes,
        "rows": {name: getattr(tables, name).num_rows for name in FILES},
    }


def _build(
    folder: Path, records: Sequence[MemoryRecord], keys: Sequence[str], extractor: _Extractor
) -> Any:
    with GraphState.open(folder / "graph.duckdb") as state:
        state.sync(records, keys, extractor.load)
        tables = build_graph(state, records).tables
    to_arrays(tables, len(records))
    write_tables(tables, folder / "graph")
    return tables


if __name__ == "__main__":
    print(json.dumps(measure_build(int(sys.argv[1]))))
