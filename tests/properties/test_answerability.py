"""What holds for every score and every threshold, whatever was written and asked."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mnemon.evaluate.calibration import choose_threshold, floor_score
from mnemon.recall.answerability import SIGNALS, WORDS, Calibration
from mnemon.recall.answerability_score import combine, find_attribution, find_support
from mnemon.recall.answerability_words import read_words

SHARES = st.floats(0.0, 1.0)
COVERED = st.lists(SHARES, max_size=12).map(lambda values: np.array(values, dtype=np.float64))
SIGNAL = st.sampled_from(SIGNALS)
TERMS: tuple[str, ...] = ("tea", "cup", "pot", "mug")


class Corpus(NamedTuple):
    """Memories as sets of terms, and what may be seen."""

    memories: list[frozenset[str]]
    visible: list[bool]


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    held = st.frozensets(st.sampled_from(TERMS))
    memories = draw(st.lists(held, min_size=1, max_size=8))
    size = len(memories)
    return Corpus(memories, draw(st.lists(st.booleans(), min_size=size, max_size=size)))


class Postings:
    """What `read_words` needs of a snapshot, over a corpus."""

    def __init__(self, memories: list[frozenset[str]]) -> None:
        self.count = len(memories)
        self._slices: dict[str, tuple[int, int]] = {}
        positions: list[int] = []
        for term in TERMS:
            holders = [p for p, held in enumerate(memories) if term in held]
            if holders:
                self._slices[term] = (len(positions), len(positions) + len(holders))
                positions += holders
        self.posting_positions = np.array(positions, dtype=np.int32)

    def look_up_terms(self, terms: list[str]) -> list[tuple[int, int]]:
        return [self._slices[term] for term in terms if term in self._slices]


def naive_coverage(corpus: Corpus, asked: set[str]) -> list[float]:
    """Return the share of idf that each visible memory holds, by the definition."""
    seen = [held for held, shown in zip(*corpus, strict=True) if shown]
    idf = {
        term: math.log1p((len(seen) - df + 0.5) / (df + 0.5))
        for term in asked
        for df in [sum(term in held for held in seen)]
    }
    total = sum(idf.values())
    return [
        sum(idf[t] for t in asked & held) / total if shown and total else 0.0
        for held, shown in zip(*corpus, strict=True)
    ]


@given(corpora(), st.lists(st.sampled_from((*TERMS, "unknown")), max_size=6), st.booleans())
def test_coverage_is_the_naive_one(corpus: Corpus, asked: list[str], masked: bool) -> None:
    seen = corpus if masked else Corpus(corpus.memories, [True] * len(corpus.memories))
    mask = np.array(corpus.visible, dtype=np.bool_) if masked else None
    reader: Any = Postings(corpus.memories)
    words = read_words(reader, asked, mask)
    expected = naive_coverage(seen, set(asked))
    everywhere = np.arange(len(corpus.memories), dtype=np.int64)
    for found in (words.coverage(reader.count), words.coverage_at(everywhere)):
        assert np.allclose(found, expected)
        assert ((found >= 0.0) & (found <= 1.0)).all()


@given(corpora(), st.sets(st.sampled_from(TERMS), min_size=1))
def test_what_is_hidden_changes_nothing(corpus: Corpus, asked: set[str]) -> None:
    mask = np.array(corpus.visible, dtype=np.bool_)
    shown: Any = Postings([m for m, v in zip(*corpus, strict=True) if v])
    whole: Any = Postings(corpus.memories)
    among = read_words(whole, asked, mask).coverage(whole.count)[mask]
    alone = read_words(shown, asked, None).coverage(shown.count)
    assert np.array_equal(among, alone)


@given(COVERED, COVERED)
def test_attribution_lies_in_its_range_and_turns_with_its_sides(said: Any, others: Any) -> None:
    found = find_attribution(said, others)
    assert -1.0 <= found <= 1.0
    assert find_attribution(others, said) == -found


@given(COVERED, SHARES)
def test_support_is_reached_by_one_memory(covered: Any, cosine: float) -> None:
    cosines = np.full(covered.size, cosine)
    found = find_support(covered, cosines)
    assert found == (max(covered) + 2.0 * cosine if covered.size else 0.0)


@given(st.floats(0.0, 3.0), st.floats(-1.0, 1.0), SIGNAL, st.floats(0.0, 1.0))
def test_the_score_lies_in_its_range_and_rises_in_both_factors(
    support: float, attribution: float, signal: str, more: float
) -> None:
    found = combine(support, attribution, signal)
    assert 0.0 <= found <= 1.0
    assert combine(support + more, attribution, signal) >= found
    assert combine(support, min(1.0, attribution + more), signal) >= found


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(-1.0, 1.0), SIGNAL)
def test_no_support_whatever_it_is_makes_a_score_that_is_no_number(
    support: float, attribution: float, signal: str
) -> None:
    assert 0.0 <= combine(support, attribution, signal) <= 1.0


@given(
    st.lists(st.tuples(SHARES, SHARES), min_size=1, max_size=40).filter(
        lambda rows: sum(recall for _, recall in rows) > 0.0
    ),
    SHARES,
)
def test_the_threshold_is_the_largest_that_keeps_the_recall(
    rows: list[tuple[float, float]], loss: float
) -> None:
    scores, recalls = (np.array(column) for column in zip(*rows, strict=True))
    allowed = loss * recalls.sum() + 1e-6

    def lost(at: float) -> float:
        return float(recalls[scores < at].sum())

    chosen = choose_threshold(scores, recalls, loss)
    assert chosen in scores
    assert lost(chosen) <= allowed
    larger = [at for at in scores.tolist() if at > chosen]
    assert all(lost(at) > allowed - 2e-6 for at in larger)


@given(SHARES)
def test_a_rounded_threshold_never_abstains_from_the_score_it_came_from(score: float) -> None:
    at = floor_score(score)
    judged = Calibration({WORDS: at}).judge(score, WORDS)
    assert judged is not None
    assert not judged.abstain
    assert score - at < 1.1e-5
