"""The dense leg's engines over one store: exact matrix, funnel, the store's LanceDB table, HNSW_SQ.

`python -m bench.scale.reading_engines STORE N`
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.scale.asked import make_questions
from bench.scale.reading_hnsw import open_hnsw
from bench.speed.clock import percentiles, take_turns
from noctuary.embed.funnel import search
from noctuary.embed.rotation import load
from noctuary.embed.tiers import FULL_TIER
from noctuary.lexical.search import top_positions
from noctuary.recall.engine import Recaller
from noctuary.recall.reader import SnapshotReader

K = 10
DEPTH = 50
"""Results asked of an engine, as recall does before fusion; its first ten are judged."""

BLOCK_ROWS = 65_536
"""Rows multiplied at once by the exact engine: 100 MB of 384 dimensions."""

PROBED_SHARE = 1 / 16
"""Share of the partitions of a LanceDB index that a search looks into, at least LEAST_PROBES."""

LEAST_PROBES = 20
HNSW_EF = 100
"""Search width inside a partition of an index that is a graph."""

REFINE = 10
"""An indexed search scores this many times DEPTH exactly, as noctuary.embed.tiers does."""

WARM_UP = 5

Floats = NDArray[np.float32]
Ask = Callable[[Floats], list[int]]


def measure_engines(store: Path, count: int) -> dict[str, Any]:
    """Return times and recall@10 of every engine; {} where the snapshot has no vectors.

    Args:
        store: A published store with its LanceDB tables.
        count: Questions.
    """
    recaller = Recaller.open(store)
    reader = recaller.reader
    if reader.vectors is None:
        return {}
    world = recaller.inputs_now()
    queries = [world.query_vector(text) for text in make_questions(reader, count)]
    lance, index = open_lance(recaller)
    engines: Mapping[str, Ask] = {"exact": exact(reader), "lancedb": lance}
    if reader.tier is not None:
        engines["funnel"] = funnel(reader)
    with tempfile.TemporaryDirectory(prefix="noctuary-hnsw-") as folder:
        hnsw, build_s = open_hnsw(reader, Path(folder), DEPTH, REFINE)
        found = compare({**engines, "hnsw": hnsw}, queries)
    return {
        "memories": reader.count,
        "lancedb_index": index,
        "hnsw_build_s": round(build_s, 1),
        "depth": DEPTH,
        "refine": REFINE,
        "engines": found,
    }


def exact(reader: SnapshotReader) -> Ask:
    """Return a search that multiplies every vector, block by block."""

    def ask(query: Floats) -> list[int]:
        vectors = reader.vectors
        assert vectors is not None
        parts = [vectors[s : s + BLOCK_ROWS] @ query for s in range(0, len(vectors), BLOCK_ROWS)]
        return top_positions(np.concatenate(parts), DEPTH).tolist()

    return ask


def funnel(reader: SnapshotReader) -> Ask:
    """Return recall's own search through the short tier."""

    def ask(query: Floats) -> list[int]:
        assert reader.vectors is not None
        assert reader.tier is not None
        return search(reader.tier, reader.vectors, query, DEPTH).positions.tolist()

    return ask


def open_lance(recaller: Recaller) -> tuple[Ask, str]:
    """Return a search over the store's own full table, and the kind of its index or "none"."""
    from noctuary.embed.tiers import connect

    paths, reader = recaller.paths, recaller.reader
    table: Any = connect(paths.lance).open_table(FULL_TIER)
    kinds = [str(index.index_type) for index in table.list_indices()]
    digest = str(reader.manifest.encoder_digest)
    rotation = load(paths.rotations / digest)
    assert rotation is not None, "the night that wrote the tables wrote the rotation first"
    probes = LEAST_PROBES
    if kinds:
        parts = int(table.index_stats(table.list_indices()[0].name).num_indices or 1)
        probes = max(probes, int(parts * PROBED_SHARE))

    def ask(query: Floats) -> list[int]:
        plan = table.search(query @ rotation.matrix, vector_column_name="vector")
        plan = plan.distance_type("cosine").limit(DEPTH)
        if kinds:
            plan = plan.nprobes(probes).refine_factor(REFINE)
        if "HNSW" in "".join(kinds):
            plan = plan.ef(max(HNSW_EF, REFINE * DEPTH))
        rows = plan.select(["memory_id", "_distance"]).to_arrow()["memory_id"].to_pylist()
        return list(reader.positions_of(rows).values())

    return ask, ", ".join(kinds) or "none"


def compare(engines: Mapping[str, Ask], queries: Sequence[Floats]) -> dict[str, dict[str, float]]:
    """Ask every engine every query, in turns; "exact" is the truth."""
    answers: dict[str, dict[int, list[int]]] = {name: {} for name in engines}

    def asking(name: str) -> Callable[[int], None]:
        def ask(number: int) -> None:
            answers[name][number] = engines[name](queries[number])

        return ask

    systems = {name: asking(name) for name in engines}
    for ask in systems.values():
        for number in range(min(WARM_UP, len(queries))):
            ask(number)
    times = take_turns(systems, dict.fromkeys(engines, range(len(queries))))
    return {
        name: {
            **percentiles(times[name]),
            "recall_at_10": round(_recall(answers[name], answers["exact"]), 4),
        }
        for name in engines
    }


def _recall(found: dict[int, list[int]], truth: dict[int, list[int]]) -> float:
    """Return the mean share of the true best ten that stand among the ten found."""
    shares = [
        len(set(truth[n][:K]) & set(found[n][:K])) / len(truth[n][:K]) for n in truth if truth[n]
    ]
    return float(np.mean(shares)) if shares else 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object."""
    store, count = sys.argv[1:] if arguments is None else arguments
    print(json.dumps(measure_engines(Path(store), int(count))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
