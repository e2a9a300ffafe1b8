"""compaction.md: what summaries in the place of turns save and cost, from compaction-*.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import (
    ENCODER,
    INTERVALS,
    Row,
    commits,
    difference_cell,
    share,
    short,
    table,
)

_ASKED = f"""## Question

What do you lose if recall searches summaries in the place of the turns they cover, and then ranks
the turns of those that it hit? We asked the dev queries of locomo and the labelled queries of the
sample both ways: whole corpus, k = 10, {ENCODER}, no language model.

- *compact*, the shipped profile, searches the words of summaries and the vectors of their turns.
- *own vectors* gives each summary one vector of its own.
- *whole summaries* adds `consolidation_enabled`: a summary comes back in the place of two of its
  turns, and counts if it expands to the labelled one.
- *fusion alone* compares both views without the concept graph.

{INTERVALS}

## Recall of the evidence

You see every profile with sentences, the default, and *compact* with the other settings of
`[compaction]` on locomo. Tokens *not searched* are a share of the turns' tokens, and so are those
*read* afterwards, in the turns of the summaries that a question hit. On a store as small as the
sample most questions hit most summaries."""

_FEEDBACK = """## Thirty nights with recall between them

The sample, thirty nights per row. Each day {prompts} real recalls go into a transcript, an agent
saves what it saw, and {new_memories} memories are new. In *on, reworded* it saves in other words.
The [plot](plots/feedback.png) shows every night."""

_LIMITS = """## Limits

- We chose the constants of the sentence summarizer on locomo's queries.
- Fewer tokens searched are no smaller snapshot: it keeps words and vectors of every turn.
- Nothing corrects for the number of rows. The sample's 43 queries show large effects only.
- `json/compaction-SET.json` has other profiles, strata, Q_align and Q_cover.
- Size and time up to a million made-up turns: [plot](plots/compaction-growth.png),
  `json/compaction-growth.json`."""


def write_compaction(directory: Path) -> Iterator[str]:
    """Yield the blocks for every compaction file of a directory."""
    documents = read_results(directory, "compaction_quality")
    if documents:
        yield _ASKED
        yield table(row for document in documents for row in _recall(document))
        for found in read_results(directory, "feedback"):
            yield _FEEDBACK.format(**found["day"])
            yield table(_guard(name, of) for name, of in found["summary"].items())
        yield _LIMITS
        yield commits(documents)


def _recall(document: Mapping[str, Any]) -> Iterator[Row]:
    for name, found in document["arms"].items():
        shown = found["views"] if name == "sentences" else ["compact"]
        for profile in shown if document["dataset"] == "locomo" or name == "sentences" else ():
            view = found["views"][profile]
            means, tokens = view["means"], view["answer_tokens"]
            overall = view["difference"]["overall"]
            yield {
                "set": document["dataset"],
                "n": str(document["n_queries"]),
                "compaction": name,
                "profile": profile,
                "not searched": share(found["turn_tokens_saved_share"]),
                "read": share(view["read_tokens_share"]),
                "facts kept": f"{found['facts_kept'] / max(found['facts_total'], 1):.0%}",
                "R@5 turns": f"{means['raw']['recall@5']:.3f}",
                "R@5 compacted": f"{means['summaries']['recall@5']:.3f}",
                **{f"Δ {short(m)}": difference_cell(overall[m]) for m in ("recall@5", "recall@10")},
                "answer tokens": f"{tokens['raw']:.0f} → {tokens['summaries']:.0f}",
            }


def _guard(name: str, found: Mapping[str, Any]) -> Row:
    return {
        "guard": name.replace("_", ", "),
        "rows that only repeat": str(found["rows_not_own"][-1]),
        "characters not their own": f"{found['chars_not_own'][-1]:,}",
        "exact duplicates": share(found["exact_duplicates"][-1]),
        "near duplicates": share(found["near_duplicates"][-1]),
        "own rows lost": str(found["own_rows_lost"]),
    }
