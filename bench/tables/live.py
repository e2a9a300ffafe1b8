"""live.md: what the live overlay costs and how near it comes to the next night, from live.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.results import read_results
from bench.tables.markdown import ENCODER, commits, number, table

_RECALLS = {"in a warm process": "warm_cpu_ms", "as its own process": "cold_process_cpu_ms"}
_AGREEMENT = {
    "same first memory": "same_first",
    "same ten memories": "same_ids",
    "same ten in the same order": "same_order",
    "overlap of both lists (mean Jaccard)": "mean_jaccard",
    "new memories of the night's ten that the overlay shows": "held_out_shown",
}

_ASKED = """## Question

What does the live overlay cost, and how near does it come to the next night?
[live.md](../live.md) explains it.

## One look into a SQLite store"""

_NIGHT = f"""## Agreement with the next night

We kept the {{held_out}} newest memories of the sample from a night and let the overlay show them. A
second night then took them in. We asked {{queries}} labelled queries at k = 10, with the default
profile and {ENCODER}. The lists differ in things only a night computes: edges of new memories
in the graph, word statistics, summaries."""


def write_live(directory: Path) -> Iterator[str]:
    """Yield the blocks for the live file of a directory."""
    for found in read_results(directory, "live"):
        agreement, costs = found["agreement"], found["costs"]
        yield _ASKED
        yield table(
            {
                "rows in the store": f"{look['rows']:,}",
                **{f"{new} new, CPU ms": number(ms, 1) for new, ms in look["cpu_ms"].items()},
            }
            for look in found["looks"]
        )
        yield f"## A recall on the sample with {found['held_out']} new memories"
        yield table(
            {
                "recall": name,
                "with overlay, CPU ms": number(costs[key]["with"], 1),
                "without": number(costs[key]["without"], 1),
                "ratio": number(costs[key]["ratio"], 2),
            }
            for name, key in _RECALLS.items()
        )
        yield _NIGHT.format(held_out=found["held_out"], queries=agreement["queries"])
        yield table(
            {"over the queries": name, "share": number(agreement[key], 3)}
            for name, key in _AGREEMENT.items()
        )
        yield commits([found])
