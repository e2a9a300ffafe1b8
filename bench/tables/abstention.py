"""abstention.md: which signal tells that there is no answer, from abstention.json, silence.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import ENCODER, Row, commits, number, share, table

SIGNALS = ("cosine", "support of words and attribution", "support and attribution")
SHIPPED = SIGNALS[-1]
KINDS = {"unanswerable": "labelled", "removed": "removed", "foreign": "foreign"}
MAX_LOSS = 0.05
"""What a night allows."""

_ASKED = f"""## Question

Can a score tell that the store holds no answer? We asked questions with and without one over the
whole corpus, with {ENCODER}. Three kinds have none:

- *labelled*: locomo's adversarial questions, the sample's unanswerable ones;
- *removed*: the set's own, with their labelled memories hidden (many still have an answer, because
  labels are seldom complete);
- *foreign*: questions of other sets.

AUROC is the probability that a question with an answer scores higher than one without; 0.5 says
nothing. Brackets hold 95 % percentile bootstrap intervals; n counts the questions without an
answer. *{SHIPPED}* is the shipped score, *{SIGNALS[1]}* that of a recall without vectors.

## Signals: AUROC"""

_COST = f"""## Costs and savings

The night picks the largest threshold on *{SHIPPED}* that keeps 95 % of the answerable questions'
recall@10. "Kept" and "answerable dropped" are cross-validated. The last three columns show the
share of each kind that gets no answer."""

_SILENCE = """## Silence without labels

Here thresholds need no labels: they come from 401 everyday prompts and, with vectors, from
questions the night writes. Each set is cut to some 1,500 memories at most. We asked 200 other
*everyday* prompts, 40 *foreign* questions of each other set, and n questions of its own. "Let
through" is the share that gets any memory. "Kept" is the share of recall@3 still injected."""

_LIMITS = """## Limits

- We fitted the weights of the last table on the sample and prefeval, but chose features, shares and
  the bar with all these sets in view. New prompts may fare worse.
- The first two tables show the older signals; hooks now go by the last one.
- We fitted the older signals on some of these sets ([decision
  0008](../decisions/0008-abstention.md)).
- `json/abstention.json` has all sixteen signals, refits, other thresholds and times;
  `json/silence.json` has curves, precision and AUROCs."""


def write_abstention(directory: Path) -> Iterator[str]:
    """Yield the blocks for the abstention files of a directory."""
    documents = read_results(directory, "abstention")
    for found in documents:
        sets = found["sets"].items()
        yield _ASKED
        yield table(row for name, of in sets for row in _signals(name, of))
        yield _COST
        yield table(row for name, of in sets for row in _thresholds(name, of))
    silence = read_results(directory, "silence")
    for found in silence:
        yield _SILENCE
        yield table(row for name, of in found["sets"].items() for row in _silence(name, of))
    if documents:
        yield _LIMITS
        yield commits([*documents, *silence])


def _signals(name: str, of_set: Mapping[str, Any]) -> Iterator[Row]:
    for key, kind in KINDS.items():
        if asked := of_set["questions"].get(key):
            cells = {signal: _auroc(of_set["aurocs"][signal][key]) for signal in SIGNALS}
            yield {"set": name, "kind": kind, "n": str(asked), **cells}


def _auroc(found: Mapping[str, Any]) -> str:
    ends = "" if found["low"] is None else f" [{found['low']:.2f}, {found['high']:.2f}]"
    return f"{found['auroc']:.3f}{ends}"


def _thresholds(name: str, of_set: Mapping[str, Any]) -> Iterator[Row]:
    for found in of_set["thresholds"]:
        if (found["signal"], found["max_recall_loss"]) == (SHIPPED, MAX_LOSS):
            recall = found["recall"]
            yield {
                "set": name,
                "n": str(of_set["questions"]["answerable"]),
                "recall@10": number(recall, 3),
                "kept": share(found["recall_kept"] / recall if recall else None),
                "answerable dropped": share(found["answerable_abstained"]),
                **{
                    f"{kind} dropped": share(found["abstained"].get(k)) for k, kind in KINDS.items()
                },
            }


def _silence(name: str, of_set: Mapping[str, Any]) -> Iterator[Row]:
    for signal, found in of_set["signals"].items():
        yield {
            "set": name,
            "n": str(of_set["questions"]["own"]),
            "signal": signal,
            "everyday let through": share(found["everyday_let_through"]),
            "foreign let through": share(found["foreign_let_through"]),
            "recall@3": number(found["recall_at_3"], 3),
            "kept": share(found["recall_kept"]),
        }
