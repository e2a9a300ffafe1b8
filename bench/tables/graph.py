"""graph.md: what the concept graph adds, from graph-*.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import ENCODER, INTERVALS, Row, commits, difference_cell, short, table

METRICS = ("recall@5", "recall@10", "ndcg@10")

_ASKED = f"""## Question

Does recall find more with the concept graph than without it? We asked the dev queries of each set
over the whole corpus, at k = 10, with {ENCODER} and no language model. *On* is the default profile,
*off* sets its `graph_weight` to 0.

{INTERVALS}"""

_CONSTANTS = """## Constants

`python -m bench.constants --stores DIR` cross-validates the constants. A score is the mean of R@5,
R@10 and nDCG@10, with equal weight per set. *Held out* scores each fifth of the queries by the best
setting of the other four."""

_LIMITS = """## Limits

- We chose the constants on these queries.
- Nothing corrects for the number of sets.
- `json/graph-SET.json` has strata and a run without sessions.
  `json/graph-constants.json` has every setting we tried.
- [Plot](plots/graph-growth.png): building time and memory by size (`json/graph-growth.json`)."""


def write_graph(directory: Path) -> Iterator[str]:
    """Yield the blocks for every graph file of a directory."""
    documents = read_results(directory, "graph_quality")
    if documents:
        yield _ASKED
        yield "## Scores"
        yield table(map(_scores, documents))
        for found in read_results(directory, "graph_constants"):
            yield _CONSTANTS
            yield table(map(_family, found["families"]))
        yield _LIMITS
        yield commits(documents)


def _scores(document: Mapping[str, Any]) -> Row:
    means, differences = document["means"], document["differences"]["on"]["overall"]
    return {
        "set": document["dataset"],
        "n": str(document["n_queries"]),
        **{f"R@10 {name}": f"{means[name]['all']['recall@10']:.3f}" for name in ("off", "on")},
        **{f"Δ {short(metric)}": difference_cell(differences[metric]) for metric in METRICS},
    }


def _family(found: Mapping[str, Any]) -> Row:
    return {
        "family": found["family"],
        "sets": ", ".join(found["sets"]),
        "settings tried": str(len(found["settings"])),
        "shipped": f"{found['shipped_score']:.4f}",
        "held out": f"{found['held_out_score']:.4f}",
        "in sample": f"{found['in_sample_score']:.4f}",
    }
