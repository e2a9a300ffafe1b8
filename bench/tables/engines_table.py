"""The part of results.md about nearest-neighbour engines by size of the store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.tables.markdown import Row, commit, number_cell, table

_CAPTION = """`exact` scans the full matrix, `funnel` is what recall uses from 20,000 memories on,
`funnel_whole_tier` looks at every cell, `lancedb` is the index IVF_HNSW_SQ with exact rescoring in
a warm process. Recall is against `exact`. Unclustered vectors are drawn from one Gaussian with the
mean and covariance of the real ones: the worst case for cells."""


def render_engines(document: Mapping[str, Any]) -> str:
    """Return the caption, the table by set, and how the early-exit thresholds came out."""
    manifest = document["manifest"]
    header = ["vectors", "rows", "engine", "p50 ms", "p95 ms", "least ms", "R@10", "build s",
              "resident MB", "load average"]  # fmt: skip
    rows = [row for found in document["sets"] for row in _rows(found)]
    threads = ", ".join(f"{name}={value}" for name, value in manifest["environment"].items())
    caption = (
        f"{manifest['queries']} queries, {manifest['depth']} results each, "
        f"{threads or 'no thread variables set'}, {commit(manifest)}, {manifest['machine']}."
    )
    blocks = [_CAPTION, caption, table(header, rows), *_exits(document.get("exits", {}))]
    return "\n\n".join(blocks)


def _rows(found: Mapping[str, Any]) -> list[Row]:
    return [
        [
            found["vectors"],
            str(found["rows"]),
            name,
            f"{engine['p50_ms']:.2f}",
            f"{engine['p95_ms']:.2f}",
            f"{engine['min_ms']:.2f}",
            f"{engine['recall@10']:.3f}",
            number_cell(found["build_s"].get(name), 1),
            f"{found['funnel_resident_mb']:.0f}" if name == "funnel" else "",
            f"{found['load_average_1m']:.1f}",
        ]
        for name, engine in found["engines"].items()
    ]


def _exits(exits: Mapping[str, Mapping[str, Any]]) -> list[str]:
    if not exits:
        return []
    header = ["early exit of the tier", "exit at", "exits", "precision", "AUROC",
              "precision at the reference's threshold"]  # fmt: skip
    rows: list[Row] = [
        [
            f"{dim} dimensions",
            number_cell(found["exit_at"]) or "never",
            number_cell(found["exits"]),
            number_cell(found["precision"]),
            number_cell(found["auroc"]),
            number_cell(found["reference_precision"]),
        ]
        for dim, found in exits.items()
    ]
    return [table(header, rows)]
