"""Which runs of plain words are concepts: document frequency limits and C-value.

C-value (Frantzi, Ananiadou and Mima 2000) asks whether a run of words lives a life of its own or
only occurs inside longer ones: log2(words) x (frequency - mean frequency of the longer runs that
hold it). The paper's form for runs of two words or more is used: a single word scores 0 and is
never a concept by itself, since frequent single words are mostly vocabulary.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

C_VALUE_MIN = 0.0
"""Runs must score above this. Higher keeps fewer and longer runs; 0 drops single words and what
only occurs inside one longer run."""

DF_MIN = 2
"""Fewest memories that hold a run; in one memory it connects nothing."""

DF_MAX_SHARE = 0.02
"""Largest share of the memories that hold a run; beyond it is vocabulary and would be a hub."""

RUN_MAX_WORDS = 8
"""Longest run that is looked into; bounds the work per run to 28 parts."""


def c_values(counts: Mapping[str, int]) -> dict[str, float]:
    """Return the C-value of every run, in the order given.

    Args:
        counts: Total frequency by folded run, occurrences inside longer runs included, as in the
            paper: a run counted only where it stands alone would be charged twice for its hosts.

    Returns:
        log2(words) * (count - mean count of the longer runs in `counts` that contain it as
        consecutive words); the mean is 0 where there is none. Never negative where the counts are
        total frequencies and runs stand once a memory.
    """
    return _score(counts, counts, 1)


def keep_runs(counts: Mapping[str, int], memories: int) -> tuple[str, ...]:
    """Return the runs that become concepts, sorted.

    Args:
        counts: By run, the number of memories that hold it anywhere, also inside a longer run.
        memories: Size of the corpus; 2 % of it is the limit, which never falls below DF_MIN.
    """
    df_max = max(DF_MIN, math.floor(DF_MAX_SHARE * memories))
    asked = {
        run: count for run, count in counts.items() if DF_MIN <= count <= df_max and " " in run
    }
    values = _score(asked, counts, 2)
    return tuple(sorted(run for run, value in values.items() if value > C_VALUE_MIN))


def _score(asked: Mapping[str, int], counts: Mapping[str, int], shortest: int) -> dict[str, float]:
    """Return the C-value of some of the runs, none of fewer words than `shortest`."""
    hosts: defaultdict[str, list[int]] = defaultdict(list)
    for run, count in counts.items():
        for part in set(_parts(run.split(), shortest)):
            if part in asked:
                hosts[part].append(count)
    return {run: _c_value(run, count, hosts.get(run, ())) for run, count in asked.items()}


def _parts(tokens: Sequence[str], shortest: int) -> Iterator[str]:
    """Yield the shorter runs of consecutive words inside a run, of `shortest` words or more."""
    if len(tokens) > RUN_MAX_WORDS:
        return
    for length in range(shortest, len(tokens)):
        for start in range(len(tokens) - length + 1):
            yield " ".join(tokens[start : start + length])


def _c_value(run: str, count: int, host_counts: Sequence[int]) -> float:
    mean = sum(host_counts) / len(host_counts) if host_counts else 0.0
    return math.log2(len(run.split())) * (count - mean)
