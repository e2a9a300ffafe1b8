"""The kept rankings of a set: the first ids of every arm, small enough to commit.

Grouped by query, because arms agree on most ids of a query and a compressor sees only so far
back. Equal runs give equal bytes. No text of a query or memory.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.suite.plan import ABSTAINING, DEPTH
from noctuary.core.errors import SourceFormatError
from noctuary.core.files import write_bytes
from noctuary.evaluate.run import Run

SCHEMA_VERSION = 1
SCORE_DIGITS = 6
"""Decimals of a kept top score; far finer than what tells two confidences apart."""

Scopes = Mapping[str, Mapping[str, Run]]
"""Runs by arm, by scope: "all", "wing" (the query's own), "unanswerable"."""


@dataclass(frozen=True, slots=True)
class KeptRankings:
    """What is kept of a set.

    Attributes:
        dataset: Its name.
        queries_digest: Of the query files that the arms were asked.
        scopes: Runs cut to DEPTH, without times.
    """

    dataset: str
    queries_digest: str
    scopes: Scopes


def cut(run: Run) -> Run:
    """Return a run as it is kept: DEPTH ids, rounded top scores, no times."""
    scores = run.top_scores if run.name in ABSTAINING else (None,) * len(run.query_ids)
    return Run(
        name=run.name,
        k=DEPTH,
        depth=DEPTH,
        query_ids=run.query_ids,
        rankings=tuple(ranking[:DEPTH] for ranking in run.rankings),
        top_scores=tuple(None if s is None else round(s, SCORE_DIGITS) for s in scores),
        latency_ms=None,
        build_ms=None,
        index_bytes=None,
        unstable_prefixes=0,
    )


def write_kept(path: Path, kept: KeptRankings) -> None:
    """Write the file; the same rankings give the same bytes."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "dataset": kept.dataset,
        "queries_digest": kept.queries_digest,
        "depth": DEPTH,
        "scopes": {name: _pack(runs) for name, runs in kept.scopes.items()},
    }
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    packed = gzip.compress(text.encode("utf-8"), compresslevel=9, mtime=0)
    write_bytes(path, packed)


def read_kept(path: Path) -> KeptRankings:
    """Read a file back.

    Raises:
        SourceFormatError: If it is no such file; the message says what to run.
    """
    try:
        with gzip.open(path, "rt", encoding="utf-8") as handle:
            document: dict[str, Any] = json.load(handle)
        if document["schema_version"] != SCHEMA_VERSION:
            raise SourceFormatError(
                f"{path} has schema version {document['schema_version']!r}, expected "
                f"{SCHEMA_VERSION}; run `make bench-quality` again"
            )
        scopes = {name: _unpack(packed) for name, packed in document["scopes"].items()}
        return KeptRankings(document["dataset"], document["queries_digest"], scopes)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise SourceFormatError(
            f"{path} holds no kept rankings ({error}); run `make bench-quality` again"
        ) from error


def _pack(runs: Mapping[str, Run]) -> dict[str, Any]:
    first = next(iter(runs.values()))
    queries: dict[str, Any] = {}
    for row, query_id in enumerate(first.query_ids):
        rankings = [run.rankings[row] for run in runs.values()]
        pool = {found: place for place, found in enumerate(_distinct(rankings))}
        places = [" ".join(str(pool[found]) for found in ranking) for ranking in rankings]
        queries[query_id] = [list(pool), places]
    scores = {
        name: list(run.top_scores)
        for name, run in runs.items()
        if any(s is not None for s in run.top_scores)
    }
    return {"arms": list(runs), "queries": queries, "top_scores": scores}


def _distinct(rankings: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(found for ranking in rankings for found in ranking))


def _unpack(packed: Mapping[str, Any]) -> dict[str, Run]:
    queries: Mapping[str, Any] = packed["queries"]
    rankings: dict[str, list[tuple[str, ...]]] = {arm: [] for arm in packed["arms"]}
    for pool, places in queries.values():
        for arm, text in zip(packed["arms"], places, strict=True):
            rankings[arm].append(tuple(pool[int(place)] for place in text.split()))
    nothing = [None] * len(queries)
    return {
        arm: Run(
            name=arm,
            k=DEPTH,
            depth=DEPTH,
            query_ids=tuple(queries),
            rankings=tuple(found),
            top_scores=tuple(packed["top_scores"].get(arm, nothing)),
            latency_ms=None,
            build_ms=None,
            index_bytes=None,
            unstable_prefixes=0,
        )
        for arm, found in rankings.items()
    }
