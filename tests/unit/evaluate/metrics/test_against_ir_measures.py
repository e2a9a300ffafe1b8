"""Differential test: our metrics against ir-measures (trec_eval) on seeded random runs.

trec_eval sorts by score and breaks ties by document id, and a run holds a document once; so the
runs here have distinct scores and no duplicates. Its reciprocal rank knows no cutoff, so it is
given runs cut at k. "All relevant" has no counterpart there; it must hold exactly where their
recall is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ir_measures
import numpy as np
import pytest

from noctuary.evaluate.metrics import (
    all_relevant_at_k,
    average_precision,
    graded_ndcg_at_k,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
    reciprocal_rank,
)

N_QUERIES = 150
N_DOCUMENTS = 60
CUTOFFS = (1, 3, 5, 10, 50, 100)
TOLERANCE = 1e-9

Rankings = Mapping[str, Sequence[str]]
Qrels = Mapping[str, Mapping[str, int]]
OfGrades = Callable[[Sequence[str], Mapping[str, int], int], float]


def random_case(seed: int, highest_grade: int) -> tuple[Rankings, Qrels]:
    """Rankings of 1 to 60 documents and labels of 1 to 20, zeros and unretrieved ones included."""
    rng = np.random.default_rng(seed)
    documents = [f"d{i}" for i in range(N_DOCUMENTS)]
    rankings: dict[str, list[str]] = {}
    qrels: dict[str, dict[str, int]] = {}
    for query in range(N_QUERIES):
        length, n_judged = int(rng.integers(1, N_DOCUMENTS + 1)), int(rng.integers(1, 21))
        rankings[f"q{query}"] = [documents[i] for i in rng.permutation(N_DOCUMENTS)[:length]]
        judged = [documents[i] for i in rng.permutation(N_DOCUMENTS)[:n_judged]]
        grades = [int(g) for g in rng.integers(0, highest_grade + 1, n_judged)]
        grades[0] = max(1, grades[0])
        qrels[f"q{query}"] = dict(zip(judged, grades, strict=True))
    return rankings, qrels


def theirs(measure: Any, rankings: Rankings, qrels: Qrels) -> dict[str, float]:
    run = {
        query: {document: float(len(ids) - rank) for rank, document in enumerate(ids)}
        for query, ids in rankings.items()
    }
    plain_qrels = {query: dict(grades) for query, grades in qrels.items()}
    found: Any = ir_measures.pytrec_eval.iter_calc([measure], plain_qrels, run)
    return {metric.query_id: metric.value for metric in found}


def relevant(grades: Mapping[str, int]) -> set[str]:
    return {document for document, grade in grades.items() if grade > 0}


FAMILIES: dict[str, Any] = {
    "R": ir_measures.R,
    "P": ir_measures.P,
    "AP": ir_measures.AP,
    "nDCG": ir_measures.nDCG,
}
MEASURES: dict[str, OfGrades] = {
    "R": lambda ranking, grades, k: recall_at_k(ranking, relevant(grades), k),
    "P": lambda ranking, grades, k: precision_at_k(ranking, relevant(grades), k),
    "RR": lambda ranking, grades, k: reciprocal_rank(ranking, relevant(grades), k),
    "AP": lambda ranking, grades, k: average_precision(ranking, relevant(grades), k),
    "nDCG": graded_ndcg_at_k,
}


@pytest.mark.parametrize("highest_grade", [1, 3])
@pytest.mark.parametrize("k", CUTOFFS)
@pytest.mark.parametrize("family", MEASURES)
def test_our_metric_is_trec_evals_on_random_runs(family: str, k: int, highest_grade: int) -> None:
    rankings, qrels = random_case(seed=1000 * highest_grade + k, highest_grade=highest_grade)
    if family == "RR":
        expected = theirs(
            ir_measures.RR, {query: ids[:k] for query, ids in rankings.items()}, qrels
        )
    else:
        expected = theirs(FAMILIES[family] @ k, rankings, qrels)
    ours = {query: MEASURES[family](rankings[query], qrels[query], k) for query in rankings}
    assert len(expected) == N_QUERIES
    assert len(set(expected.values())) > 1  # all zeros would agree with anything
    assert ours == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("k", CUTOFFS)
def test_our_binary_ndcg_is_trec_evals_on_labels_without_grades(k: int) -> None:
    rankings, qrels = random_case(seed=k, highest_grade=1)
    expected = theirs(ir_measures.nDCG @ k, rankings, qrels)
    ours = {query: ndcg_at_k(rankings[query], relevant(qrels[query]), k) for query in rankings}
    assert ours == pytest.approx(expected, abs=TOLERANCE)


@pytest.mark.parametrize("k", [10, 50])
def test_all_relevant_holds_exactly_where_their_recall_is_one(k: int) -> None:
    rankings, qrels = random_case(seed=k, highest_grade=1)
    complete = {
        q: recall == 1.0 for q, recall in theirs(ir_measures.R @ k, rankings, qrels).items()
    }
    ours = {q: all_relevant_at_k(rankings[q], relevant(qrels[q]), k) == 1.0 for q in rankings}
    assert len(set(complete.values())) > 1
    assert ours == complete
