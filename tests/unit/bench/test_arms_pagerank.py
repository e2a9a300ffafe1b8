from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.arms.corpus_views import CorpusViews
from bench.arms.pagerank import (
    DAMPING,
    NAMED_SHARE,
    PageRankRetriever,
    join,
    personalised_pagerank,
    spread,
)
from bench.arms.recalled import RecallRetriever
from noctuary.graph.walk import Walk
from noctuary.recall.profile import RetrievalProfile
from tests.support.arms import ask, build_context, ids
from tests.support.mentions import Held, mention_arrays, random_mentions
from tests.support.store import memory, renumber

RARE, COMMON, OTHER, ALONE = range(4)
# 0 and 1 share two concepts, 2 and 3 the more common one, 4 is two steps away, 5 is isolated.
SMALL: list[Held] = [
    (RARE, 0, "mentions"), (RARE, 1, "about"),
    (COMMON, 0, "mentions"), (COMMON, 1, "mentions"), (COMMON, 2, "about"), (COMMON, 3, "author"),
    (OTHER, 3, "mentions"), (OTHER, 4, "about"),
    (ALONE, 5, "about"),
]  # fmt: skip


def naive(held: list[Held], memories: int, starts: NDArray[np.float64]) -> NDArray[np.float64]:
    """PageRank over memories and concepts together, one node at a time, from the definition."""
    holders: dict[int, set[int]] = defaultdict(set)
    for concept, where, _ in held:
        holders[concept].add(where)
    chance = np.zeros((starts.size, starts.size))
    for concept, of in holders.items():
        for where in of if len(of) > 1 else ():
            chance[memories + concept, where] = 1 / len(of)
            chance[where, memories + concept] = 1 / len(of)
    for i, total in enumerate(chance.sum(axis=1).tolist()):
        chance[i] = chance[i] / total if total else starts
    found = np.linalg.solve(np.eye(starts.size) - DAMPING * chance.T, (1 - DAMPING) * starts)
    return found[:memories].astype(np.float64)


def spread_from(seeds: dict[int, float], *named: int, mask: list[bool] | None = None) -> Walk:
    seen = None if mask is None else np.array(mask)
    positions, scores = np.array([*seeds], dtype=np.int64), np.array([*seeds.values()], dtype=float)
    joined = join(mention_arrays(SMALL, 4), 6, seen)
    return spread(positions, scores, np.array(named, dtype=np.int64), joined, seen)


@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_stationary_distribution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    held = random_mentions(rng, 40, 25)
    joined = join(mention_arrays(held, 25), 40, None)
    starts = rng.random(65) * (rng.random(65) < 0.2)
    starts[40:] *= joined.degrees > 0
    starts /= starts.sum()
    found = personalised_pagerank(joined, starts[:40], starts[40:])
    assert np.abs(found - naive(held, 40, starts)).max() < 1e-9


def test_the_scores_are_those_of_the_definition() -> None:
    starts = np.zeros(6 + 4)
    starts[[0, 3, 6 + OTHER]] = [0.6 * (1 - NAMED_SHARE), 0.4 * (1 - NAMED_SHARE), NAMED_SHARE]
    expected = naive(SMALL, 6, starts)
    found = spread_from({3: 0.4, 0: 0.6}, OTHER)
    assert found.positions.tolist() == [0, 1, 2, 3, 4]
    assert found.scores.tolist() == pytest.approx(expected[:5] / expected.max(), abs=1e-9)


def test_what_may_not_be_seen_passes_nothing_on() -> None:
    found = spread_from({0: 0.8}, mask=[True, True, True, False, True, True])
    assert found.positions.tolist() == [0, 1, 2]


def test_without_a_way_nothing_arrives() -> None:
    assert spread_from({5: 0.8}).is_empty
    assert spread_from({}, ALONE).is_empty


def test_the_arm_reaches_what_no_directed_step_does(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    texts = (
        "Nina wants an anchor for the boat before May, says `MARLIN-7`.",
        "The sailmaker has `MARLIN-7` on his list and asks about `HALYARD-3`.",
        "Invoices with `HALYARD-3` are paid on Fridays.",
    )
    root = tmp_path_factory.mktemp("pagerank")
    views = CorpusViews(build_context(root, renumber([memory(text) for text in texts])))
    words = RetrievalProfile(dense_weight=0.0)
    question = ask("what did Nina order for the boat")
    assert ids(RecallRetriever("walk", views, words, timed=False), question, 5) == ["101"]
    found = PageRankRetriever("graph_ppr", views, words).retrieve_hits(question, 5)
    assert [i for i, _ in found] == ["101", "102", "103"]
