"""Measure noctuary and its peers over the same sets, and write docs/benchmarks/peers.md.

`python -m bench.peers [--sets NAME...] [--arms GLOB...] [--stores DIR] [--out DIR] [--fresh]`

pip installs the peers; after that nothing uses a network. Results of other peers and sets in the
committed file stay: `--arms noctuary --fresh` measures noctuary alone again. A peer that fails is
listed with its reason. Exit codes: 0 done; 1 a set could not be loaded; 2 the sets are not there.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bench.datasets import CHECKOUT, find_shared
from bench.manifest import describe_run
from bench.peers import runner
from bench.peers.measure import SESSION_DEPTH, Measured, PeerError, encode_set, measure_peer
from bench.results import read_result, write_result
from bench.suite.kept import KeptRankings, read_kept, write_kept
from bench.suite.loading import LoadedSet, load_all
from bench.suite.plan import DEPTH, DOCS
from bench.suite.result import SPLIT
from bench.tables import pages
from bench.tables.peers import COUNTED, METRICS, OURS, QUIET_LOAD, SESSION
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import compare, score_run, summarize
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import STANDARD

SETS = ("locomo", "2wikimultihopqa", "hotpotqa", "memdaily_zh")
DEFAULT_ROOT = CHECKOUT / "artifacts" / "peers"
"""Ignored by git; `make clean` removes it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for and return the exit code."""
    options = _parse(arguments)
    shared = find_shared()
    if shared is None:
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    loaded, faults = load_all([(shared / "data" / name).absolute() for name in options.sets])
    for name, fault in faults.items():
        print(f"{name} cannot be loaded: {fault}", file=sys.stderr, flush=True)
    for one in loaded:
        root, found = options.stores.absolute(), dict[str, Measured | str]()
        arms = [n for n in runner.PEERS if any(fnmatch.fnmatchcase(n, g) for g in options.arms)]
        # noctuary and FTS5 do without the vectors that the others are given.
        given = any(runner.PEERS[name].packages for name in arms)
        seconds = encode_set(one, root, fresh=options.fresh) if given else None
        seconds = seconds if os.getloadavg()[0] <= QUIET_LOAD else None
        for name in arms:
            found[name] = _measure(name, one, root, options.fresh)
        merge(one, found, options.out or DOCS, seconds)
    if options.out is None:
        pages.main([])
    return int(bool(faults))


def _measure(name: str, loaded: LoadedSet, root: Path, fresh: bool) -> Measured | str:
    """Return what a peer did, or what stopped it."""
    try:
        found: Measured | str = measure_peer(name, loaded, root, fresh=fresh)
    except PeerError as error:
        found = str(error)
    said = found if isinstance(found, str) else f"built in {found.costs['build_seconds']} s"
    print(f"{loaded.name} {name}: {said} (load {os.getloadavg()[0]:.1f})", flush=True)
    return found


def merge(
    loaded: LoadedSet, found: Mapping[str, Measured | str], out: Path, encode_seconds: float | None
) -> dict[str, Any]:
    """Put results into the committed file and rankings, score the whole set again, and write."""
    path, rankings = out / "json" / "peers.json", out / "runs" / f"peers-{loaded.name}.json.gz"
    document: dict[str, Any] = read_result(path) if path.is_file() else {"sets": {}}
    scopes = _read_scopes(rankings, loaded)
    known: dict[str, Any] = document["sets"].get(loaded.name, {}) if scopes else {}
    measured, stopped = known.get("measured", {}), known.get("stopped", {})
    for name, result in found.items():
        for place in (measured, stopped, *scopes.values()):
            place.pop(name, None)
        if isinstance(result, str):
            stopped[name] = result
            continue
        measured[name] = _costs(result)
        for scope, run in make_runs(name, loaded, result.answers).items():
            scopes.setdefault(scope, {})[name] = run
    scopes = {scope: _in_order(runs) for scope, runs in scopes.items() if runs}
    kept = KeptRankings(loaded.name, loaded.queries_digest(), scopes)
    write_kept(rankings, kept)
    document["sets"][loaded.name] = {
        "n": len(loaded.queries),
        "memories": len(loaded.rows),
        "encode_seconds": encode_seconds or known.get("encode_seconds"),
        "measured": _in_order(measured),
        "stopped": _in_order(stopped),
        "scopes": score_scopes(kept, loaded),
    }
    asked = {"k": runner.K, "warm_up": runner.WARM_UP, "session_depth": SESSION_DEPTH}
    drawn = {"draws": STANDARD.draws, "seed": STANDARD.seed, "confidence": STANDARD.confidence}
    document = {
        "kind": "peers",
        "split": SPLIT,
        "manifest": {**describe_run(), **asked, **drawn},
        "peers": {
            name: {"packages": peer.packages, "vectors": peer.vectors, "what": peer.open.__doc__}
            for name, peer in runner.PEERS.items()
        },
        "sets": {name: document["sets"][name] for name in sorted(document["sets"])},
    }
    write_result(path, document)
    return document


def _read_scopes(path: Path, loaded: LoadedSet) -> dict[str, dict[str, Run]]:
    """Return the rankings of earlier invocations, none if they answered other queries."""
    kept = read_kept(path) if path.is_file() else None
    if kept is None or kept.queries_digest != loaded.queries_digest():
        return {}
    return {scope: dict(runs) for scope, runs in kept.scopes.items()}


def _in_order(by_name: Mapping[str, Any]) -> dict[str, Any]:
    return {name: by_name[name] for name in runner.PEERS if name in by_name}


def _costs(result: Measured) -> dict[str, Any]:
    """Return what a peer cost, without times that a busy machine has stretched."""
    if result.costs["load_average_1m"] > QUIET_LOAD:
        return {name: cost for name, cost in result.costs.items() if name != "build_seconds"}
    return {**result.costs, **_percentiles(result.answers)}


def _percentiles(answers: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    times = [answer["ms"] for answer in answers if answer["scope"] == "all"]
    p50, p95 = np.percentile(times, [50.0, 95.0])
    return {"p50_ms": round(float(p50), 2), "p95_ms": round(float(p95), 2)}


def make_runs(name: str, loaded: LoadedSet, answers: Sequence[Mapping[str, Any]]) -> dict[str, Run]:
    """Return a peer's runs by scope: "all", "wing" (the query's own), and the sessions of both."""
    session_of = _sessions(loaded)
    rankings: dict[str, dict[str, tuple[str, ...]]] = {}
    for answer in answers:
        scope, query_id = answer["scope"], answer["query_id"]
        rankings.setdefault(scope, {})[query_id] = tuple(answer["ids"])
        if "deep" in answer:
            found = rank_sessions(answer["deep"], session_of)
            rankings.setdefault(f"{SESSION}_{scope}", {})[query_id] = found
    nothing = (None,) * len(loaded.queries)
    return {
        scope: Run(name, DEPTH, DEPTH, tuple(found), tuple(found.values()), nothing)
        for scope, found in rankings.items()
    }


def rank_sessions(ranking: Sequence[str], session_of: Mapping[str, str]) -> tuple[str, ...]:
    """Return the first sessions by their best memory.

    A session's score is the maximum over its memories, so it stands where the first of them does.
    """
    return tuple(dict.fromkeys(session_of[memory_id] for memory_id in ranking))[:DEPTH]


def label_sessions(queries: Sequence[Query], session_of: Mapping[str, str]) -> list[Query]:
    """Return the queries with the sessions of their relevant memories as labels."""
    return [
        replace(q, relevant_ids=tuple(dict.fromkeys(session_of[i] for i in q.relevant_ids)))
        for q in queries
    ]


def _sessions(loaded: LoadedSet) -> dict[str, str]:
    return {str(row["id"]): str(row.get("session_id")) for row in loaded.rows}


def score_scopes(kept: KeptRankings, loaded: LoadedSet) -> dict[str, Any]:
    """Return every peer's means and noctuary's paired differences to them, by scope."""
    by_session = label_sessions(loaded.queries, _sessions(loaded))
    found: dict[str, Any] = {}
    metrics = tuple(dict.fromkeys((*METRICS, *COUNTED.values())))
    for scope, runs in kept.scopes.items():
        queries = by_session if scope.startswith(SESSION) else loaded.queries
        scores = {name: score_run(run, queries, metrics) for name, run in runs.items()}
        ours = scores.get(OURS)
        pairs = [(ours, other) for name, other in scores.items() if ours and name != OURS]
        compared = compare(pairs) if pairs else []
        reports = summarize(list(scores.values()))
        found[scope] = {
            "means": {
                one.name: {m: v.to_json() for m, v in one.overall.items()} for one in reports
            },
            "differences": {
                one.baseline: {m: v.to_json() for m, v in one.overall.items()} for one in compared
            },
        }
    return found


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME")
    parser.add_argument("--arms", nargs="+", default=["*"], metavar="GLOB", help="which peers")
    parser.add_argument("--stores", type=Path, default=DEFAULT_ROOT, help="environments and stores")
    parser.add_argument("--out", type=Path, help="write here instead of docs/benchmarks")
    parser.add_argument("--fresh", action="store_true", help="measure again what is done")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
