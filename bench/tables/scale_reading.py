"""The part of scale.md about recall over large stores, from scale-reading.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import commit, number_cell, table

_STEPS = ("lexical", "encode", "dense", "graph", "fetch")
_ENGINES = (
    ("exact", "exact, numpy, blockwise"),
    ("funnel", "recall's funnel over cells"),
    ("lancedb", "the store's LanceDB table"),
    ("hnsw", "LanceDB IVF_HNSW_SQ, refined"),
)


def render_reading(directory: Path) -> list[str]:
    """Return the blocks of the reading file of a directory; none where there is none."""
    blocks: list[str] = []
    for found in read_results(directory, "scale-reading"):
        stores: Sequence[Mapping[str, Any]] = found["stores"]
        blocks += [
            "## Recall over them",
            (
                f"Measured on {commit(found['manifest'])}: the published snapshots of these "
                f"nights, {stores[-1]['questions']} questions ({stores[-1]['question']}), "
                "k = 10, one BLAS thread, warm process."
            ),
            _recalls(stores),
            (
                "Milliseconds of wall time, median and 95th percentile; memory after the "
                "questions, of it what is no mapped file. A fresh process starts, recalls once "
                "and ends."
            ),
            _legs(stores),
            "## Dense engines side by side",
            _engines(stores),
            (
                f"Depth {stores[-1]['dense']['depth']}; LanceDB refines "
                f"{stores[-1]['dense']['refine']} times that many. Recall@10 against exact "
                "cosines. In turns, in one process; each LanceDB answer carries ids as well."
            ),
        ]
    return blocks


def _recalls(stores: Sequence[Mapping[str, Any]]) -> str:
    rows: list[list[str]] = []
    for store in stores:
        for mode, warm in store["warm"].items():
            memory = warm["memory_mb"]
            rows.append([
                f"{store['memories']:,}", mode, number_cell(warm["recall"]["p50_ms"], 1),
                number_cell(warm["recall"]["p95_ms"], 1),
                number_cell(warm["recall_cpu"]["p50_ms"], 1), f"{memory['Rss']:,.0f}",
                f"{memory['Pss_Anon']:,.0f}", number_cell(warm["open_ms"], 0),
                number_cell(store["fresh"]["cached"]["median_ms"], 0) if mode == "walk" else "",
            ])  # fmt: skip
    header = [
        "memories", "graph", "p50, ms", "p95, ms", "CPU p50, ms", "resident, MB", "own, MB",
        "open, ms", "fresh process, ms",
    ]  # fmt: skip
    return table(header, rows)


def _legs(stores: Sequence[Mapping[str, Any]]) -> str:
    rows = [
        [f"{store['memories']:,}", mode,
         *(_pair(warm["steps"].get(step)) for step in _STEPS)]
        for store in stores for mode, warm in store["warm"].items()
    ]  # fmt: skip
    return table(["memories", "graph", *(f"{step}, p50 / p95" for step in _STEPS)], rows)


def _engines(stores: Sequence[Mapping[str, Any]]) -> str:
    rows: list[list[str]] = []
    for store in stores:
        dense = store["dense"]
        for key, name in _ENGINES:
            found = dense["engines"].get(key)
            if found is None:
                continue
            said = f"{name} ({dense['lancedb_index']})" if key == "lancedb" else name
            built = number_cell(dense["hnsw_build_s"], 1) if key == "hnsw" else ""
            rows.append([
                f"{store['memories']:,}", said, number_cell(found["p50_ms"], 1),
                number_cell(found["p95_ms"], 1), number_cell(found["recall_at_10"], 4), built,
            ])  # fmt: skip
    return table(["memories", "engine", "p50, ms", "p95, ms", "recall@10", "built in, s"], rows)


def _pair(step: Mapping[str, float] | None) -> str:
    if step is None:
        return ""
    return f"{number_cell(step['p50_ms'], 1)} / {number_cell(step['p95_ms'], 1)}"
