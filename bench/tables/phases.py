"""phases.md: what each phase does to the answers, from phases-*.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import ENCODER, INTERVALS, Row, commits, difference_cell, short, table

METRICS = ("ndcg@10", "recall@10")
CONDITIONS = (
    "ltp 2, once",
    "ltp 2, rounds",
    "ltp 2, again_labels",
    "association, once",
    "pinned, five",
    "query expansion, queries",
    "decay 90 d, floor 0.5, wing_after",
    "decay 90 d, floor 0.9, wing_after",
    "tagging 1.5, wing_newest",
    "supersede filter, wing_after",
    "mmr 0.95, wings 0",
    "mmr 0.7, wings 0",
    "consolidation, turns count",
    "consolidation, summaries count",
)
"""Each phase, with a mild and a strong setting where that matters; the files have some eighty."""
PROFILES = ("off", "seed-hybrid", "libravdb", "libravdb-two-pass", "orient", "evaluate", "decide")

_ASKED = f"""## Question

Does a phase of use, age or variety improve the answers? We asked up to 400 dev queries of a set at
k = 10, with {ENCODER}, then again with one phase switched on. Differences are in nDCG@10, to the
default profile with all phases off.

{INTERVALS} An empty cell means that the set has no dates, wings or summaries for it. "Same" means
that no ranking changed.

## Without any phase"""

_CONDITIONS = """## Phases

The store remembers the other half of the queries. *Once* and *five* log the ten answers to each
query one or five times. *Rounds* logs them five times and lets the log feed itself. *Again_labels*
logs only the right answers to the very same query. *Queries* uses the query log. With *summaries
count*, a summary of the right turn is a right answer.

*Wing_after* asks in the query's wing, one day after its newest memory; *wing_newest* asks at that
memory."""

_LIMITS = """## Limits

- You see a choice of conditions. Nothing corrects for their number. The logged use is made up.
- `json/phases-SET.json` has every condition, R@10 and other moments.
  [Decision 0007](../decisions/0007-profile-defaults.md) has our conclusions."""


def write_phases(directory: Path) -> Iterator[str]:
    """Yield the blocks for every phases file of a directory."""
    documents = read_results(directory, "phases")
    if documents:
        yield _ASKED
        yield table(row for document in documents for row in _baselines(document))
        yield _CONDITIONS
        yield table(_differences(documents, CONDITIONS))
        yield "## Named profiles"
        yield table(_differences(documents, PROFILES))
        yield _LIMITS
        yield commits(documents)


def _baselines(document: Mapping[str, Any]) -> Iterator[Row]:
    for frame in ("everything", "wing_after"):
        if found := document["baselines"].get(frame):
            yield {
                "set": document["dataset"],
                "memories": f"{document['manifest']['memories']:,}",
                "n": str(document["manifest"]["n_queries"]),
                "asked": frame,
                **{short(metric): f"{found['means'][metric]:.3f}" for metric in METRICS},
            }


def _differences(documents: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Iterator[Row]:
    found = {d["dataset"]: {c["name"]: c for c in d["conditions"]} for d in documents}
    for name in names:
        cells = {dataset: _cell(of.get(name)) for dataset, of in found.items()}
        yield {"Δ nDCG@10": name, **cells}


def _cell(condition: Mapping[str, Any] | None) -> str:
    if condition is None:
        return ""
    if not condition["changed_rankings"]:
        return "same"
    return difference_cell(condition["differences"]["ndcg@10"])
