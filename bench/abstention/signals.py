"""Every signal that was tried, of one question: what might tell that there is no answer."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.abstention.questions import Asked
from noctuary.core.errors import StoreError
from noctuary.recall.answerability import Scored, read_words, score_answer
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs
from noctuary.recall.legs import Leg
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Mask, Scope, build_mask
from noctuary.recall.ranking import rank_alone
from noctuary.recall.reader import SnapshotGraph
from noctuary.recall.search import BaseRanking
from noctuary.text.tokens import tokenize

DEPTH = 50
"""Candidates of each leg, as recall has them."""

SHIPPED = "support and attribution"
SHIPPED_WORDS = "support of words and attribution"
SUPPORT = "support"
ATTRIBUTION = "attribution"

DESCRIPTIONS: Mapping[str, str] = {
    "fused score": "final score of the best candidate",
    "fused gap": "that, less the tenth's",
    "cosine": "largest cosine",
    "cosine of five": "mean of the five largest cosines",
    "cosine gap": "largest cosine, less the tenth",
    "cosine z": "largest cosine in standard deviations above the mean of all memories",
    "BM25": "largest BM25 score",
    "coverage": "share of the query's idf in the best memory",
    "coverage of the first": "the same of the first result",
    "coverage of ten": "the same of the ten first results together",
    "known words": "share of the query's idf that any memory holds",
    "coverage x cosine": "largest product over the candidates (a second pass)",
    SUPPORT: "largest sum of cosine, coverage, known words and likeness above everyday prompts",
    ATTRIBUTION: "coverage by who is asked about, less that by others; 0 where nobody is",
    SHIPPED_WORDS: "the shipped score of a recall without a dense leg",
    SHIPPED: "the shipped score",
}


class Asker:
    """Asks one snapshot for signals.

    Attributes:
        recaller: The snapshot.
        score_ms: Wall time of every shipped score so far, in milliseconds.
    """

    def __init__(self, recaller: Recaller, inputs: Inputs) -> None:
        self.recaller = recaller
        self.score_ms: list[float] = []
        self._inputs = inputs
        self._graph = SnapshotGraph(recaller.reader)
        ids = recaller.reader.memory_ids(range(recaller.reader.count))
        self._positions = {memory_id: position for position, memory_id in ids.items()}

    def signals(self, asked: Asked) -> dict[str, float]:
        """Return the value of every signal of DESCRIPTIONS."""
        reader, text, mask = self.recaller.reader, asked.query.text, self._mask(asked)
        ranking = rank_alone(
            reader, self._graph, RetrievalProfile(), mask, self._inputs.query_vector, text, DEPTH
        )
        vector = self._inputs.query_vector(text)
        begin = time.perf_counter()
        calibration = self.recaller.calibration
        measures = {} if calibration is None else calibration.measures
        how: Any = {"measures": measures, "vector": vector}
        shipped = score_answer(reader, self._graph, text, mask, ranking, **how)
        self.score_ms.append((time.perf_counter() - begin) * 1000)
        alone = ranking._replace(dense=Leg.empty())
        words = score_answer(reader, self._graph, text, mask, alone, **how)
        if shipped is None or words is None:
            raise StoreError(f"{self.recaller.snapshot_id} is not calibrated: run a night on it")
        return {**self._scores(ranking, mask), **self._words(text, ranking, mask),
                **_shipped(shipped, words)}  # fmt: skip

    def _mask(self, asked: Asked) -> Mask | None:
        reader = self.recaller.reader
        mask, _ = build_mask(Scope(as_of=asked.query.as_of), reader.facets, reader.created_at_us)
        if not asked.hidden:
            return mask
        mask = np.ones(reader.count, dtype=np.bool_) if mask is None else mask.copy()
        mask[[self._positions[memory_id] for memory_id in asked.hidden]] = False
        return mask

    def _scores(self, ranking: BaseRanking, mask: Mask | None) -> dict[str, float]:
        final = np.sort(ranking.final)[::-1]
        memories = np.arange(self.recaller.reader.count)
        cosines = ranking.dense.scores_at(memories)
        lexical = ranking.lexical.scores_at(memories)
        if mask is not None:
            cosines, lexical = cosines[mask], lexical[mask]
        near = np.sort(cosines)[::-1]
        return {
            "fused score": _at(final, 0),
            "fused gap": _at(final, 0) - _at(final, 9),
            "cosine": _at(near, 0),
            "cosine of five": float(near[:5].mean()),
            "cosine gap": _at(near, 0) - _at(near, 9),
            "cosine z": float((near[0] - near.mean()) / near.std()),
            "BM25": float(lexical.max()),
        }

    def _words(self, text: str, ranking: BaseRanking, mask: Mask | None) -> dict[str, float]:
        words = read_words(self.recaller.reader, tokenize(text), mask)
        ordered = ranking.positions[ranking.order]
        covered = words.coverage_at(ordered)
        cosines = np.maximum(ranking.dense.scores_at(ordered), 0.0)
        weights = np.array(words.weights)
        held = np.array([np.isin(ordered[:10], h).any() for h in words.holders], dtype=np.bool_)
        seen = np.array([h.size > 0 for h in words.holders], dtype=np.bool_)
        return {
            "coverage": float(covered.max(initial=0.0)),
            "coverage of the first": _at(covered, 0),
            "coverage of ten": _share(weights, held, words.total),
            "known words": _share(weights, seen, words.total),
            "coverage x cosine": float((covered * cosines).max(initial=0.0)),
        }


def _shipped(found: Scored, words: Scored) -> dict[str, float]:
    return {
        SUPPORT: found.support,
        ATTRIBUTION: found.attribution,
        SHIPPED_WORDS: words.score,
        SHIPPED: found.score,
    }


def _at(values: NDArray[np.float64], place: int) -> float:
    return float(values[place]) if values.size > place else 0.0


def _share(weights: NDArray[np.float64], chosen: NDArray[np.bool_], total: float) -> float:
    return float(weights[chosen].sum()) / total if total > 0.0 else 0.0
