"""silence.md: what a store without labels says to prompts that do not concern it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import Row, commits, number, share, table

_ASKED = """## Question

Who gets an answer on a store without labels? Its thresholds come from 401 everyday prompts and,
with vectors, from questions the night writes. Each set is cut to some 1,500 memories at most. We
asked 200 other *everyday* prompts, 40 *foreign* questions of each other set, and n questions of its
own. "Let through" is the share that gets any memory. "Kept" is the share of recall@3 still
injected."""

_LIMITS = """## Limits

- We fitted the weights on the sample and prefeval, but chose features, shares and the bar with all
  these sets in view. New prompts may fare worse.
- `json/silence.json` has curves, precision and AUROCs."""


def write_silence(directory: Path) -> Iterator[str]:
    """Yield the blocks for the silence file of a directory."""
    for found in read_results(directory, "silence"):
        yield _ASKED
        yield table(row for name, of in found["sets"].items() for row in _silence(name, of))
        yield _LIMITS
        yield commits([found])


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
