"""Warm recall and the FTS5 searches over one store, in one process, in turns.

Two passes: while the process is new the encoder reads its file as it lies, then it is packed as a
server does at its start. A question is encoded where it is asked for the first time; its vector is
known where it is asked again, a few questions later.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.arms.fts_seed import FtsSeed
from bench.measure.clock import Ask, percentiles, ratio_p50, take_turns, time_ms
from noctuary.core.errors import StoreError
from noctuary.core.store import ROWS_FILE
from noctuary.recall import inputs
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs

K = 10
AGAIN_AFTER = 5
"""Questions between the first and the second time that one is asked: the second finds its vector
and no cache line of the first."""

WARM_UP = 10
"""Questions asked before the clock runs, so that the files are mapped and read once."""

SETTLE = 3
"""Least questions for which a system is timed at all."""

_SEED_COLUMNS = "position, content, category, tags, expanded_keywords, importance"


class GivenVectors:
    """The world of a store as a recall sees it, but for where a question's vector comes from."""

    def __init__(self, world: Inputs, vector_of: Callable[[str], NDArray[np.float32]]) -> None:
        """Take the live world and what gives a text's vector."""
        self._world = world
        self._vector_of = vector_of

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        """Return the vector that was given; nobody waits for it."""
        return self._vector_of(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


def measure_warm(store: Path, texts: Sequence[str], fts_questions: int) -> dict[str, Any]:
    """Return times of every system over one store.

    Args:
        store: The store.
        texts: Questions, each once.
        fts_questions: How many of them the FTS5 searches are asked as well; they take seconds each
            over a million memories.

    Raises:
        StoreError: If a recall finds nothing or leaves a leg out.
    """
    recaller = Recaller.open(store)
    _check(store, texts[0])
    with closing(sqlite3.connect(recaller.reader.directory / ROWS_FILE)) as rows:
        fts = FtsSeed.build(rows.execute(f"SELECT {_SEED_COLUMNS} FROM memories ORDER BY position"))
    timed = range(WARM_UP, len(texts))
    lean = _pass_lean(store, texts)
    inputs.forget_queries()
    inputs.warm_up(recaller.paths, recaller.reader.manifest)
    for text in texts[:WARM_UP]:
        recall(text, K, store=store)
    systems: dict[str, Ask] = {
        "fts_plain": lambda i: fts.search(texts[i], K, "or"),
        "fts_seed": lambda i: fts.search(texts[i], K, "and_then_or"),
        "recall": lambda i: recall(texts[i], K, store=store),
        "recall_known_vector": lambda i: recall(texts[i - AGAIN_AFTER], K, store=store),
    }
    few = timed[:: max(len(timed) // max(fts_questions, SETTLE), 1)]
    asked = {name: few if name.startswith("fts") else timed for name in systems}
    times = {"recall_lean": lean, **take_turns(systems, asked)}
    fts.close()
    return {
        "store": store.name,
        "memories": recaller.reader.count,
        "systems": {name: percentiles(found) for name, found in times.items()},
        "ratio_to_fts_seed": {
            name: round(ratio_p50(found, times["fts_seed"]), 3) for name, found in times.items()
        },
        "ratio_to_fts_plain": {
            name: round(ratio_p50(found, times["fts_plain"]), 3) for name, found in times.items()
        },
        "phases_ms": _phases(store, texts),
    }


def _pass_lean(store: Path, texts: Sequence[str]) -> dict[int, float]:
    """Time recall as a process without a server makes it, before the encoder is packed."""
    recaller = Recaller.open(store)
    place = recaller.paths, recaller.reader.manifest
    world: Any = GivenVectors(recaller.inputs_now(), lambda text: inputs.encode_query(*place, text))
    for text in texts[:WARM_UP]:
        recaller.recall(text, K, inputs=world)
    return {
        i: time_ms(lambda number: recaller.recall(texts[number], K, inputs=world), i)
        for i in range(WARM_UP, len(texts))
    }


def _phases(store: Path, texts: Sequence[str]) -> dict[str, float]:
    """Return the median time of every step of a recall whose vector is known."""
    found = [recall(text, K, store=store).phase_timing_ms for text in texts]
    names = dict.fromkeys(name for timings in found for name in timings)
    return {
        name: round(float(np.median([timings.get(name, 0.0) for timings in found])), 3)
        for name in names
    }


def _check(store: Path, text: str) -> None:
    result = recall(text, K, store=store)
    codes = [warning.code for warning in result.warnings]
    if not result.memories or "dense_unavailable" in codes:
        raise StoreError(f"a recall on {store} found {len(result.memories)} memories, {codes}")
