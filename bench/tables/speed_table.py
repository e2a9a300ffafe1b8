"""The section of results.md on the read path's speed: promises, warm times, fresh processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.tables.markdown import commit, table

_WARM_NAMES = {
    "fts_plain": "FTS5, any word",
    "fts_seed": "FTS5 as the seed asks it",
    "recall": "recall, ONNX Runtime encodes",
    "recall_lean": "recall, the lean encoder encodes",
    "recall_known_vector": "recall, vector known",
    "engine_near_vector": "recall without settings and log, vector near a memory's",
}
_PROCESS_NAMES = {
    "bare": "`python -c pass`",
    "import_numpy": "`import numpy`",
    "import_recall": "`import noctuary.recall.api`",
    "recall": "one-shot recall",
    "client": "client of the warm server",
    "command": "`noctuary recall --json`, the server runs",
    "library": "sentence-transformers: load, encode one query",
}


def render_speed(document: Mapping[str, Any]) -> str:
    """Return the section of one speed document."""
    manifest = document["manifest"]
    caption = (
        f"`python -m bench.speed`: k = {manifest['k']}, one BLAS thread, {commit(manifest)}, "
        f"{manifest['machine']}, load average {manifest['load_average_1m']:.1f} at the start. "
        "All systems of a store were asked in turns in one process; fresh processes ran in "
        "alternating rounds with compiled modules."
    )
    parts = [f"### Promises\n\n{caption}\n\n{_targets(document)}"]
    parts += [_store(store) for store in document["stores"]]
    parts.append(_processes(document["oneshot"]))
    return "\n\n".join(parts)


def _targets(document: Mapping[str, Any]) -> str:
    rows = [
        [
            target["name"],
            _number(target["measured"]),
            f"{'>=' if target['at_least'] else '<='} {target['limit']:g}",
            "yes" if target["met"] else "**no**",
        ]
        for target in document["targets"]
    ]
    return table(["promise", "measured", "limit", "kept"], rows)


def _store(store: Mapping[str, Any]) -> str:
    rows = [
        [
            label,
            f"{store['systems'][name]['p50_ms']:.2f} / {store['systems'][name]['p95_ms']:.2f}",
            str(store["systems"][name]["n"]),
            _number(store["ratio_to_fts_seed"][name]),
            _number(store["ratio_to_fts_plain"][name]),
        ]
        for name, label in _WARM_NAMES.items()
        if name in store["systems"]
    ]
    header = ["system", "p50 / p95 ms", "questions", "p50 / seed's", "p50 / plain's"]
    steps = ", ".join(f"{n} {ms:.2f}" for n, ms in store["phases_ms"].items() if n != "total")
    resident = store["resident"]
    text = (
        f"A process that has answered every question holds {resident['VmRSS']:,.0f} MB, "
        f"{resident['RssFile']:,.0f} of them mapped files. "
        f"Median ms of the steps with the vector known: {steps}."
    )
    if store["runtime_not_used"]:
        text += f" ONNX Runtime was not used: {store['runtime_not_used']}."
    title = f"### {store['store']}: {store['memories']:,} memories, warm"
    return f"{title}\n\n{table(header, rows)}\n\n{text}"


def _processes(document: Mapping[str, Any]) -> str:
    systems = document["systems"]
    rows = [
        [
            label,
            f"{systems[name]['median_ms']:.0f} ({systems[name]['min_ms']:.0f})",
            str(systems[name]["rounds"]),
        ]
        for name, label in _PROCESS_NAMES.items()
    ]
    header = ["process", "median (min) ms", "rounds"]
    return f"### Fresh processes, locomo\n\n{table(header, rows)}"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"
