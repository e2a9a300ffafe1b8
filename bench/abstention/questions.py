"""Questions with and without an answer, of four kinds, for one set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.suite.loading import LoadedSet, load_set
from noctuary.evaluate.labels import Query

ANSWERABLE = "answerable"
UNANSWERABLE = "unanswerable"
REMOVED = "removed"
FOREIGN = "foreign"
UNANSWERED = (UNANSWERABLE, REMOVED, FOREIGN)
"""Labelled as having no answer; with their labelled memories hidden; of other sets. A set's labels
are seldom exhaustive, so that many a question with its evidence removed still has an answer."""

MOST_REMOVED = 300
FOREIGN_PER_SET = 60
"""More narrow the intervals and take as much longer."""

FOREIGN_SETS = ("hotpotqa", "scifact", "realmem", "locomo")
"""Whose questions are asked to the others: trivia, science, a user's life, two friends' talk."""

TWINS = {"locomo_obs": "locomo"}
"""Sets made of the same conversations: what one does not answer, the other does not either, and its
questions are no foreign ones."""

SEED = 20_251


@dataclass(frozen=True, slots=True)
class Asked:
    """One question.

    Attributes:
        kind: ANSWERABLE or one of UNANSWERED.
        query: Its text, user and moment; relevant_ids only where it is answerable.
        hidden: Ids of memories that it may not see.
    """

    kind: str
    query: Query
    hidden: tuple[str, ...] = ()


def gather(loaded: LoadedSet, data: Path) -> list[Asked]:
    """Return the questions of a set, always the same.

    Args:
        loaded: The set.
        data: The folder of all sets.
    """
    twin = TWINS.get(loaded.name)
    unanswerable = loaded.unanswerable or (load_set(data / twin).unanswerable if twin else ())
    removed = sample(loaded.queries, MOST_REMOVED)
    others = [n for n in FOREIGN_SETS if n not in (loaded.name, twin)]
    foreign = [q for n in others for q in sample(load_set(data / n).queries, FOREIGN_PER_SET)]
    return [
        *(Asked(ANSWERABLE, query) for query in loaded.queries),
        *(Asked(UNANSWERABLE, query) for query in unanswerable),
        *(Asked(REMOVED, query, tuple(query.relevant_ids)) for query in removed),
        *(Asked(FOREIGN, query) for query in foreign),
    ]


def sample(queries: Sequence[Query], at_most: int) -> list[Query]:
    """Return some of many queries in their order, always the same."""
    order = np.random.default_rng(SEED).permutation(len(queries))
    return [queries[i] for i in sorted(order[:at_most].tolist())]
