"""What holds for every score and every threshold, whatever was written and asked."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.render import worth_injecting
from noctuary.evaluate.abstain import choose_threshold, find_usual, floor_score, reached_by
from noctuary.recall.answerability import (
    Features,
    find_attribution,
    find_supports,
    read_words,
)
from noctuary.recall.result import FEATURES as ALL_FEATURES
from noctuary.recall.result import RELATIVE_BAR, SIGNALS, WORDS, Measure
from noctuary.recall.support import combine
from tests.support.calibration import calibrated

SHARES = st.floats(0.0, 1.0)
COVERED = st.lists(SHARES, max_size=12).map(lambda values: np.array(values, dtype=np.float64))
SIGNAL = st.sampled_from(SIGNALS)
LIKENESSES = st.none() | st.floats(-3.0, 3.0)
USUAL = st.tuples(st.floats(-1.0, 1.0), st.floats(0.02, 1.0))


def a_measure(usual: dict[str, tuple[float, float]]) -> Measure:
    return Measure({"any": usual})


def some_features(signal: str, pairs: list[tuple[float, float]], known: float) -> Features:
    cosines, coverage = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return Features(signal, "latin", np.arange(len(pairs)), cosines, coverage, known)


MEASURES = st.builds(a_measure, st.fixed_dictionaries(dict.fromkeys(ALL_FEATURES, USUAL)))
FEATURES_OF = st.builds(
    some_features, SIGNAL, st.lists(st.tuples(SHARES, SHARES), max_size=8), SHARES
)
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
    looked_up = [words.coverage_at(everywhere, count) for count in (reader.count, 1_000_000)]
    for found in (words.coverage(reader.count), *looked_up):
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


@given(FEATURES_OF, MEASURES, LIKENESSES, st.floats(0.0, 1.0))
def test_support_rises_in_every_feature_and_is_each_memorys_own(
    found: Features, measure: Measure, likeness: float | None, more: float
) -> None:
    supports = find_supports(found, measure, likeness)
    assert supports.shape == found.positions.shape
    assert np.isfinite(supports).all()
    for better in (
        found._replace(coverage=found.coverage + more),
        found._replace(cosines=found.cosines + more),
        found._replace(known=found.known + more),
    ):
        assert (find_supports(better, measure, likeness) >= supports - 1e-9).all()
    if likeness is not None:
        assert (find_supports(found, measure, likeness + more) >= supports - 1e-9).all()


@given(st.floats(allow_nan=False), st.floats(-1.0, 1.0), st.floats(0.0, 1.0))
def test_the_score_lies_in_its_range_and_rises_in_both_factors(
    support: float, attribution: float, more: float
) -> None:
    found = combine(support, attribution)
    assert 0.0 <= found <= 1.0
    assert combine(support + more, attribution) >= found
    assert combine(support, min(1.0, attribution + more)) >= found


@given(st.sampled_from((math.nan, -math.inf)), st.floats(-1.0, 1.0))
def test_no_support_is_no_score(support: float, attribution: float) -> None:
    assert combine(support, attribution) == 0.0


@given(st.lists(SHARES, min_size=1, max_size=60), st.floats(0.0, 0.99), st.floats(0.0, 0.99))
def test_at_most_the_share_of_prompts_reaches_the_threshold_and_fewer_reach_a_stricter_one(
    scores: list[float], share: float, other: float
) -> None:
    at = reached_by(scores, share)
    assert 0.0 <= at <= 1.0
    reached = sum(floor_score(score) >= at for score in scores)
    assert reached <= share * len(scores) or at == 1.0
    assert (reached_by(scores, other) >= at) == (other <= share) or reached_by(scores, other) == at


@given(st.lists(st.sampled_from(("latin", "han")), min_size=1, max_size=20), st.floats(0.0, 1.0))
def test_what_is_usual_can_be_measured_by_whatever_the_prompts_were(
    scripts: list[str], value: float
) -> None:
    column = np.full(len(scripts), value)
    usual = find_usual(scripts, dict.fromkeys(ALL_FEATURES, column))
    assert set(usual) == {*scripts, "any"}
    assert Measure.parse(Measure(usual, (0.5, -0.5)).to_json()) == Measure(usual, (0.5, -0.5))


@given(SHARES, SHARES, st.lists(SHARES, max_size=6), SIGNAL)
def test_a_memory_is_injected_only_above_its_bar_and_all_of_them_without_a_judgement(
    score: float, bar: float, own: list[float], signal: str
) -> None:
    memories = [{"id": n, "support": support} for n, support in enumerate(own)]
    judged = calibrated(0.5, bar).judge(score, signal).to_json()
    kept = worth_injecting({"memories": memories, "answerability": judged})
    least = max(bar, RELATIVE_BAR * score)
    assert kept == ([] if score < 0.5 else [m for m in memories if m["support"] >= least])
    assert worth_injecting({"memories": kept, "answerability": judged}) == kept
    assert worth_injecting({"memories": memories}) == memories
    without: list[Any] = [{"id": 1}]
    assert worth_injecting({"memories": without, "answerability": {"bar": bar}}) == without


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
    assert not calibrated(at).judge(score, WORDS).abstain
    assert score - at < 1.1e-5
