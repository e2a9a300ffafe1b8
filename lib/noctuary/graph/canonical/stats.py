"""How a name is described to canonicalisation, and which of two names is the better one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class NameStats(NamedTuple):
    """A folded name and how the memories hold it.

    Attributes:
        name: Folded (`noctuary.graph.fold.fold_name`), never empty.
        kind: Its strongest kind (`noctuary.graph.extraction.KINDS`).
        surfaces: Its distinct spellings as authored; they give case and parentheses.
        df: Number of memories in which it has any role, at least 1.
    """

    name: str
    kind: str
    surfaces: tuple[str, ...]
    df: int


def rank(stats: NameStats) -> tuple[int, int, str]:
    """Sort key: the name that stands for others comes first.

    Highest df, then the longest, then the smallest in code-point order; no ties.
    """
    return (-stats.df, -len(stats.name), stats.name)


def ranked(names: Sequence[NameStats]) -> list[NameStats]:
    """Return the names best first, whatever order they came in.

    Raises:
        ValueError: A name stands twice.
    """
    found = sorted(names, key=rank)
    if len({stats.name for stats in found}) < len(found):
        twice = Counter(stats.name for stats in found).most_common(1)[0][0]
        raise ValueError(f"found two NameStats for {twice!r}, expected one a name: add up their df")
    return found
