"""A labelled set made small and without its labels: what a night on somebody's own store sees."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.abstention.questions import SEED, sample
from bench.suite.loading import LoadedSet
from noctuary.evaluate.labels import Query

MEMORIES = 1_200
"""Memories kept of a set, at least where it has as many: more take longer for six nights."""

QUESTIONS = 200
"""Questions with an answer that are asked of each."""


class Cut(NamedTuple):
    """What is left of a set.

    Attributes:
        folder: Holds the memories and no label.
        queries: Labelled queries, each with every labelled memory kept.
        unanswerable: Queries that nothing answers, about what was kept.
    """

    folder: Path
    queries: tuple[Query, ...]
    unanswerable: tuple[Query, ...]


def cut_set(loaded: LoadedSet, folder: Path) -> Cut:
    """Write some of a set's memories into a folder and return what can be asked of them.

    Whole wings where every question names one, so that a conversation keeps its company; else what
    answers the questions, filled up with others.
    """
    rows = loaded.rows
    if loaded.has_wings:
        sizes = Counter(str(row["wing"]) for row in rows)
        wings: set[str] = set()
        for wing in sorted(sizes):
            if sum(sizes[w] for w in wings) < MEMORIES:
                wings.add(wing)
        rows = [row for row in rows if row["wing"] in wings]
        queries = sample([q for q in loaded.queries if q.wing in wings], QUESTIONS)
        unanswerable = tuple(q for q in loaded.unanswerable if q.wing in wings)
    else:
        queries, unanswerable = sample(loaded.queries, QUESTIONS), loaded.unanswerable
        wanted = {i for query in queries for i in query.relevant_ids}
        order = np.random.default_rng(SEED).permutation(len(rows))
        others = [i for i in order.tolist() if str(rows[i]["id"]) not in wanted]
        chosen = set(others[: max(0, MEMORIES - len(wanted))])
        rows = [row for i, row in enumerate(rows) if str(row["id"]) in wanted or i in chosen]
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(folder / "corpus.jsonl.gz", "wt", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    return Cut(folder, tuple(queries), unanswerable)
