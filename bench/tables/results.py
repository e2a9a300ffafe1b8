"""results.md: latency and speed, from latency-*, speed, engines and encoding-*.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import ENCODER, Row, commits, number, pair, table

_WARM = {
    "fts_seed": "FTS5 as the seed asks it",
    "recall": "recall",
    "recall_lean": "recall, lean encoder",
    "recall_known_vector": "recall, vector known",
}
_PROCESSES = {
    "bare": "`python -c pass`",
    "import_numpy": "`import numpy`",
    "import_recall": "`import noctuary.recall.api`",
    "recall": "one-shot recall",
    "client": "client of the warm server",
    "command": "`noctuary recall --json` with a server",
    "library": "sentence-transformers: load, encode one query",
}
_ENGINES = ("exact", "funnel", "lancedb")

_ASKED = """## Question

How long do you wait for a recall? Times are single runs on a shared machine ({machine}), so trust
ratios before milliseconds. Texts are embedded by {encoder}."""

_LATENCY = """## Latency

One retrieval at k = {k} in a warm process, {n} queries. A cold process starts, asks once and ends
({rounds} rounds). FTS5 asks for any word of the query."""

_SPEED = """## Speed of the read path

`python -m bench.measure speed`: k = {k}, one BLAS thread, all systems of a store in turns. Cells
hold p50 / p95 in milliseconds; n is the number of questions (FTS5 / recall). Synthetic stores hold
clustered vectors instead of embedded texts."""

_ENGINE = """## Nearest neighbours

`python -m bench.measure engines`: {queries} queries, {depth} results each, {threads}. *Exact* scans
the whole matrix, *lancedb* is IVF_HNSW_SQ with exact rescoring. Recall uses the *funnel* from
20,000 memories on. R@10 is against *exact*. Unclustered vectors, drawn from one Gaussian, are the
funnel's worst case."""

_ENCODING = """## Embedding

`python -m bench.measure encoding`: {documents} documents with {mean_tokens:.0f} tokens on average,
{model}, {threads} threads, {slices} slices in turns. ONNX Runtime embeds {onnx:.1f} documents per
second, {best} {library:.1f}. Per slice the ratio is {median:.2f} in the median, {least:.2f} to
{most:.2f}; the least cosine between both is {cosine:.7f}."""

_LIMITS = """## Limits

- Latency and embedding ran on a loaded machine: see `load_average_1m`.
- `json/speed.json` has the other promises and the steps of a recall, `json/engines.json` p95, build
  times and early exits."""


def write_results(directory: Path) -> Iterator[str]:
    """Yield the blocks for every latency, speed, engine and encoding file of a directory."""
    kinds = ("latency", "speed", "engines", "encoding")
    latencies, speeds, engines, encodings = (read_results(directory, k) for k in kinds)
    documents = [*latencies, *speeds, *engines, *encodings]
    if not documents:
        return
    yield _ASKED.format(machine=documents[0]["manifest"]["machine"], encoder=ENCODER)
    if latencies:
        k, warm, cold = (latencies[0][part] for part in ("manifest", "warm", "cold"))
        yield _LATENCY.format(k=k["k"], n=warm["n"], rounds=cold["rounds"])
        yield table(map(_latency, latencies))
    for found in speeds:
        yield _SPEED.format(k=found["manifest"]["k"])
        yield from _speed(found)
    for found in engines:
        manifest = found["manifest"]
        threads = ", ".join(f"{name}={value}" for name, value in manifest["environment"].items())
        yield _ENGINE.format(**manifest, threads=threads or "no thread variables")
        yield table(map(_engines, found["sets"]))
    for found in encodings:
        speeds, best = found["documents_per_s"], found["best_library_setting"]
        ratios = found["ratio_per_slice"]
        yield _ENCODING.format(
            **found["manifest"], best=best, onnx=speeds["onnx"], library=speeds[best],
            slices=len(ratios), median=found["median_ratio"], least=min(ratios), most=max(ratios),
            cosine=found["min_cosine"],
        )  # fmt: skip
    yield _LIMITS
    yield commits(documents)


def _latency(document: Mapping[str, Any]) -> Row:
    warm, cold = document["warm"], document["cold"]["recall"]
    return {
        "set": document["dataset"],
        "memories": f"{document['manifest']['memories']:,}",
        "FTS5, p50 / p95 ms": pair(warm["fts_plain"]),
        "recall, p50 / p95 ms": pair(warm["recall"]),
        "recall / FTS5": number(warm["ratio_p50"], 2),
        "cold recall, median (min) ms": _median(cold),
        "cold / `import numpy`": number(cold["ratio_to_import_numpy"], 2),
    }


def _speed(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield warm times by store, fresh processes, and the promises that are not kept."""
    yield table(map(_store, document["stores"]))
    systems = document["oneshot"]["systems"]
    yield table(
        {
            "fresh process, locomo": said,
            "median (min) ms": _median(systems[key]),
            "n": str(systems[key]["rounds"]),
        }
        for key, said in _PROCESSES.items()
    )
    missed = [target for target in document["targets"] if not target["met"]]
    yield f"{len(missed)} of {len(document['targets'])} promises are not kept."
    if missed:
        yield table(map(_target, missed))


def _store(store: Mapping[str, Any]) -> Row:
    found = store["systems"]
    return {
        "store": store["store"],
        "memories": f"{store['memories']:,}",
        "n": f"{found['fts_seed']['n']} / {found['recall']['n']}",
        **{said: pair(found[key], 2) if key in found else "" for key, said in _WARM.items()},
        "resident MB": number(store["resident"]["VmRSS"]),
    }


def _target(target: Mapping[str, Any]) -> Row:
    return {
        "promise": target["name"],
        "measured": number(target["measured"], 2),
        "limit": f"{'>=' if target['at_least'] else '<='} {target['limit']:g}",
    }


def _engines(found: Mapping[str, Any]) -> Row:
    engines = {name: found["engines"].get(name, {}) for name in _ENGINES}
    return {
        "vectors": found["vectors"],
        "rows": f"{found['rows']:,}",
        **{f"{name}, p50 ms": number(of.get("p50_ms"), 2) for name, of in engines.items()},
        "funnel, R@10": number(engines["funnel"].get("recall@10"), 3),
        "lancedb, R@10": number(engines["lancedb"].get("recall@10"), 3),
    }


def _median(entry: Mapping[str, Any]) -> str:
    return f"{entry['median_ms']:.0f} ({entry['min_ms']:.0f})"
