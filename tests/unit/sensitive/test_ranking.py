from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.lexical.search import K1, B
from noctuary.recall.sensitive import score_documents

WORDS = st.sampled_from(["alarm", "code", "safe", "boiler", "diary"])
DOCUMENTS = st.lists(st.lists(WORDS, max_size=6), max_size=7)


def naive(tokens: list[str], documents: list[list[str]]) -> list[float]:
    """Return BM25 in Lucene's form, written out."""
    n = len(documents)
    mean = sum(map(len, documents)) / n if n and any(documents) else 1.0
    scores = [0.0] * n
    for token in set(tokens):
        df = sum(token in d for d in documents)
        rarity = math.log(1 + (n - df + 0.5) / (df + 0.5))
        for i, d in enumerate(documents):
            tf = d.count(token)
            scores[i] += rarity * tf / (tf + K1 * (1 - B + B * len(d) / mean)) if tf else 0.0
    return scores


@given(query=st.lists(WORDS, max_size=4), documents=DOCUMENTS)
def test_the_same_as_the_formula(query: list[str], documents: list[list[str]]) -> None:
    # Words of the list whose stem is another word would be missed by the naive twin.
    stems = {"alarm": "alarm", "code": "code", "safe": "safe", "boiler": "boiler", "diary": "diari"}
    indexed = [[stems[w] for w in d] for d in documents]
    expected = naive([stems[w] for w in query], indexed)
    assert score_documents(" ".join(query), indexed).tolist() == pytest.approx(expected)


@given(documents=DOCUMENTS, query=st.text(max_size=12))
def test_scores_are_finite_and_zero_without_a_shared_word(
    documents: list[list[str]], query: str
) -> None:
    scores = score_documents(query, documents)
    assert scores.shape == (len(documents),)
    assert all(math.isfinite(s) and s >= 0 for s in scores)
    assert not score_documents("zebra", documents).any()
