"""Nearest-neighbour engines side by side: exact matrix, funnel over the short tier, LanceDB index.

`OPENBLAS_NUM_THREADS=1 python -m bench.measure engines [--sizes 10000 ...] [--dataset DIR]`

One query at a time in a warm process, the engines in turns, recall@10 against the exact matrix. The
vectors are synthetic: clustered, or without any cluster and with the spectrum of a real set, where
a data set is given; the set itself is measured as well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets import open_dataset, read_corpus
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from noctuary.core.files import read_array, write_array
from noctuary.embed.default_model import DEFAULT_MODEL
from noctuary.embed.funnel import PrefixTier, search
from noctuary.embed.onnx import OnnxEncoder
from noctuary.embed.rotation import Rotation, build_prefix_tier, derive_thresholds, fit
from noctuary.embed.sentence import export_onnx, open_sentence_encoder
from noctuary.embed.tiers import FULL_TIER, TIER_DIMS, TableHome, sync_tiers
from noctuary.evaluate.labels import read_queries
from noctuary.lexical.search import top_positions

SIZES = (10_000, 50_000, 100_000, 300_000, 1_000_000)
DIM = 384
K = 10
DEPTH = 50
"""Results asked of an engine, as recall does before fusion; its first ten are judged."""

QUERIES = 200
"""Timed per engine and size: p95 then rests on ten values."""

CENTRES, SUBSPACE, SPREAD, NOISE = 2_000, 48, 0.6, 0.05
"""Of the clustered vectors, as in research/limits.md: topics in a subspace, rows around them."""

HNSW_EF, HNSW_REFINE = 100, 2
"""Search width and exact rescoring of the index: full recall at 100,000 rows (limits.md 2b)."""

UNCLUSTERED = "unclustered"
CHUNK_ROWS = 65_536
_TIER_FIELDS = ("vectors", "positions", "starts", "centroids", "rotation")
_THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")

MEMORY = """
import sys
from pathlib import Path
from noctuary.core.files import read_array
from noctuary.embed.funnel import PrefixTier, search
directory = Path(sys.argv[1])
tier = PrefixTier(*(read_array(directory / f"{name}.npy") for name in sys.argv[2].split(",")))
full, queries = read_array(directory / "full.npy"), read_array(directory / "queries.npy")
for query in queries:
    search(tier, full, query, int(sys.argv[3]))
status = dict(l.split(":", 1) for l in Path("/proc/self/status").read_text().splitlines())
print(sum(int(status[name].split()[0]) for name in ("RssAnon", "RssFile", "RssShmem")))
"""

Floats = NDArray[np.float32]
Ask = Callable[[Floats], Sequence[int]]


def make_clustered(rows: int, seed: int = 0) -> Floats:
    """Return unit rows around topics of a subspace, with noise in all dimensions, (rows, DIM)."""
    rng = np.random.default_rng(seed)
    basis = rng.standard_normal((SUBSPACE, DIM), dtype=np.float32) / np.float32(np.sqrt(DIM))
    centres = rng.standard_normal((CENTRES, SUBSPACE), dtype=np.float32)

    def draw(count: int) -> Floats:
        spread = SPREAD * rng.standard_normal((count, SUBSPACE), dtype=np.float32)
        noise = rng.standard_normal((count, DIM), dtype=np.float32)
        drawn = (centres[rng.integers(0, CENTRES, count)] + spread) @ basis + NOISE * noise
        return drawn.astype(np.float32)

    return _unit_rows(rows, draw)


def make_unclustered(rows: int, like: Floats, seed: int = 0) -> Floats:
    """Return unit rows of one Gaussian with the mean and covariance of real vectors, (rows, d)."""
    rng = np.random.default_rng(seed)
    values, axes = np.linalg.eigh(np.cov(like.T))
    shape = (axes * np.sqrt(np.clip(values, 0.0, None))).T.astype(np.float32)
    mean = like.mean(axis=0)
    width = like.shape[1]
    return _unit_rows(
        rows, lambda n: rng.standard_normal((n, width), dtype=np.float32) @ shape + mean
    )


def _unit_rows(rows: int, draw: Callable[[int], Floats]) -> Floats:
    parts: list[Floats] = []
    for start in range(0, rows, CHUNK_ROWS):
        part = draw(min(CHUNK_ROWS, rows - start))
        parts.append((part / np.linalg.norm(part, axis=1, keepdims=True)).astype(np.float32))
    return np.concatenate(parts)


def measure(name: str, full: Floats, queries: Floats, *, lance: bool) -> dict[str, Any]:
    """Return latency and recall of every engine over some vectors.

    Args:
        name: Of the vectors.
        full: Unit rows, shape (n, d).
        queries: Unit rows, shape (q, d), not among them.
        lance: Build and measure the LanceDB index as well, which takes minutes at a million rows.
    """
    with tempfile.TemporaryDirectory(prefix="noctuary-engines-") as folder:
        directory = Path(folder)
        started = time.perf_counter()
        rotation = fit(full, name)
        tier = build_prefix_tier(full, rotation)
        build_s = {"funnel": time.perf_counter() - started}
        for field in _TIER_FIELDS:
            write_array(directory / f"{field}.npy", getattr(tier, field))
        write_array(directory / "full.npy", full)
        write_array(directory / "queries.npy", queries)
        mapped = read_array(directory / "full.npy")
        held = PrefixTier(*(read_array(directory / f"{field}.npy") for field in _TIER_FIELDS))
        engines: dict[str, Ask] = {
            "exact": lambda query: top_positions(mapped @ query, DEPTH).tolist(),
            "funnel": lambda query: search(held, mapped, query, DEPTH).positions.tolist(),
            "funnel_whole_tier": lambda query: search(
                held, mapped, query, DEPTH, probe_share=1.0
            ).positions.tolist(),
        }
        if lance:
            started = time.perf_counter()
            engines["lancedb"] = open_lance(directory / "lance", full, rotation)
            build_s["lancedb"] = time.perf_counter() - started
        del full
        return {
            "vectors": name,
            "rows": len(mapped),
            "cells": len(tier.centroids),
            "build_s": {engine: round(seconds, 1) for engine, seconds in build_s.items()},
            "engines": compare(engines, queries),
            "funnel_resident_mb": resident_mb(directory),
            "load_average_1m": round(os.getloadavg()[0], 2),
        }


def compare(engines: dict[str, Ask], queries: Floats) -> dict[str, dict[str, float]]:
    """Ask every engine every query, in turns; "exact" is the truth."""
    for ask in engines.values():
        for query in queries[:5]:
            ask(query)
    times: dict[str, list[float]] = {name: [] for name in engines}
    shared: dict[str, list[float]] = {name: [] for name in engines}
    names = list(engines)
    for turn, query in enumerate(queries):
        shift = turn % len(names)
        answers: dict[str, set[int]] = {}
        for name in names[shift:] + names[:shift]:
            started = time.perf_counter_ns()
            found = engines[name](query)
            times[name].append((time.perf_counter_ns() - started) / 1e6)
            answers[name] = set(found[:K])
        truth = answers["exact"]
        for name in names:
            shared[name].append(len(truth & answers[name]) / max(len(truth), 1))
    return {
        name: {
            "p50_ms": round(float(np.percentile(times[name], 50)), 3),
            "p95_ms": round(float(np.percentile(times[name], 95)), 3),
            "min_ms": round(min(times[name]), 3),
            "recall@10": round(float(np.mean(shared[name])), 4),
        }
        for name in names
    }


def open_lance(directory: Path, full: Floats, rotation: Rotation) -> Ask:
    """Build the full tier with its index as a night does, and return a search over it."""
    ids = [str(position) for position in range(len(full))]
    sync_tiers(TableHome(directory), ids, ids, full, rotation, dims=(), index_min_rows=1)
    import lancedb

    table: Any = lancedb.connect(str(directory)).open_table(FULL_TIER)

    def ask(query: Floats) -> list[int]:
        plan = table.search(query @ rotation.matrix, vector_column_name="vector")
        plan = plan.distance_type("cosine").ef(HNSW_EF).refine_factor(HNSW_REFINE).limit(DEPTH)
        return [
            int(i)
            for i in plan.select(["memory_id", "_distance"]).to_arrow()["memory_id"].to_pylist()
        ]

    return ask


def resident_mb(directory: Path) -> float:
    """Return what a fresh process holds in memory after asking the funnel every query."""
    command = [sys.executable, "-c", MEMORY, str(directory), ",".join(_TIER_FIELDS), str(DEPTH)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return round(int(done.stdout) / 1024, 1)


def embed_dataset(directory: Path) -> tuple[Floats, Floats]:
    """Return the vectors of a labelled set's corpus and of its first queries."""
    dataset = open_dataset(directory)
    texts = [str(row["content"]) for row in read_corpus(dataset)]
    asked = read_queries(dataset.queries).ranked
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(open_sentence_encoder(DEFAULT_MODEL), Path(folder) / "onnx", texts[:16])
        encoder = OnnxEncoder.open(Path(folder) / "onnx")
        step = max(len(asked) // QUERIES, 1)
        queries = [encoder.encode_query(query.text) for query in asked[::step][:QUERIES]]
        return encoder.encode_documents(texts), np.stack(queries)


def run(sizes: Sequence[int], dataset: Path | None, out: Path, lance_rows: int) -> dict[str, Any]:
    """Measure and write the engines document, anew after every set: the last ones take long.

    Args:
        sizes: Rows of the synthetic sets.
        dataset: A labelled set to measure as well, and to make unclustered vectors like; or None.
        out: The result file.
        lance_rows: Largest set that the LanceDB index is built for.
    """
    document: dict[str, Any] = {"kind": "engines", "manifest": describe_run(), "sets": []}
    environment = {n: os.environ[n] for n in _THREAD_VARIABLES if n in os.environ}
    document["manifest"].update(k=K, depth=DEPTH, queries=QUERIES, environment=environment)
    real: Floats | None = None

    def add(name: str, full: Floats, queries: Floats) -> None:
        lance = len(full) <= lance_rows and name != UNCLUSTERED
        document["sets"].append(measure(name, full, queries, lance=lance))
        write_result(out, document)
        print(json.dumps(document["sets"][-1]), flush=True)

    if dataset is not None:
        real, queries = embed_dataset(dataset)
        derived = derive_thresholds(real, fit(real, dataset.name), TIER_DIMS)
        document["exits"] = {str(dim): found.to_json() for dim, found in derived.items()}
        add(dataset.name, real, queries)
    for size in sizes:
        made = make_clustered(size + QUERIES)
        add("clustered", made[:size], made[size:].copy())
        if real is not None:
            made = make_unclustered(size + QUERIES, real)
            add(UNCLUSTERED, made[:size], made[size:].copy())
    return document


def main(arguments: Sequence[str] | None = None) -> None:
    """Write engines.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure engines", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="ROWS")
    parser.add_argument("--dataset", type=Path, help="a labelled set, measured as well")
    parser.add_argument("--lance-rows", type=int, default=max(SIZES), help="largest set to index")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR)
    options = parser.parse_args(arguments)
    path = options.out / "engines.json"
    run(options.sizes, options.dataset, path, options.lance_rows)
    print(f"wrote {path}")
