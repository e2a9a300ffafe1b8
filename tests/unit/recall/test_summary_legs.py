"""The words of summaries, and masks over summaries, against plain loops."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from noctuary.lexical.build import build_postings, build_postings_beside
from noctuary.lexical.search import K1, B, add_scores
from noctuary.snapshot.arrays import SummaryArrays
from noctuary.text.tokens import encode_tokens

words = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=6)


@given(st.lists(words, min_size=1, max_size=8), st.lists(words, min_size=1, max_size=4), words)
def test_a_summarys_words_weigh_what_they_weigh_in_the_corpus(
    corpus: list[list[str]], texts: list[list[str]], query: list[str]
) -> None:
    """Against the formula in plain loops."""
    beside = build_postings_beside(
        map(encode_tokens, texts), build_postings(map(encode_tokens, corpus))
    )
    found = np.zeros(len(texts), dtype=np.float32)
    ranges = beside.ranges(sorted(set(query)))
    add_scores(found, ranges, beside.positions, beside.scores)
    mean = sum(map(len, texts)) / len(texts)
    for i, text in enumerate(texts):
        counts, expected = Counter(text), 0.0
        for term in set(query) & set(text):
            df = sum(term in memory for memory in corpus)
            idf = math.log1p((len(corpus) - df + 0.5) / (df + 0.5))
            tf = counts[term]
            expected += idf * tf / (tf + K1 * (1 - B + B * len(text) / mean))
        assert math.isclose(found[i], expected, rel_tol=1e-5, abs_tol=1e-6)


def arrays_of(sources: list[list[int]]) -> SummaryArrays:
    lengths = [len(s) for s in sources]
    return SummaryArrays(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        sources=np.array([p for s in sources for p in s], dtype=np.int32),
        confidences=np.ones(len(sources)),
        plans=np.full(len(sources), -1, dtype=np.int32),
    )


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=4), max_size=5),
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.lists(st.booleans(), min_size=5, max_size=5),
)
def test_masks_over_summaries_say_what_plain_loops_say(
    sources: list[list[int]], seen: list[bool], shown: list[bool]
) -> None:
    arrays, mask = arrays_of(sources), np.array(seen)
    assert arrays.is_aligned(10)
    assert arrays.where_all(mask).tolist() == [all(seen[p] for p in s) for s in sources]
    chosen = np.array(shown[: len(sources)], dtype=np.bool_)
    covered = {p for s, b in zip(sources, chosen, strict=True) if b for p in s}
    assert np.flatnonzero(arrays.covered(chosen, 10)).tolist() == sorted(covered)
    assert arrays.first_sources().tolist() == [s[0] for s in sources]


def test_arrays_that_do_not_fit_are_not_aligned() -> None:
    good = arrays_of([[0, 1], [2]])
    assert good.is_aligned(3)
    assert not good.is_aligned(2), "a source beyond the memories"
    assert not arrays_of([[0, 1], []]).is_aligned(3), "a summary of nothing"
