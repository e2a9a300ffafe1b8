"""The legs over rows of every kind, against plain loops over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from noctuary.lexical.build import Postings, build_postings, build_postings_beside
from noctuary.recall.candidates import Rows
from noctuary.recall.legs import find_exact_matches, rank_dense, rank_lexical
from noctuary.recall.phases import keyword_coverage
from noctuary.recall.reader import SnapshotReader
from noctuary.text.tokens import encode_tokens, tokenize

words = st.sampled_from(["refund", "invoice", "Berlin", "退款", "врач", "billing-api"])
texts = st.lists(words, max_size=6).map(" ".join)
grades = st.sampled_from([-0.5, 0.0, 0.25, 0.5, 0.75, 1.0])


def tokens_of(contents: Sequence[str]) -> map[bytes]:
    return map(encode_tokens, map(tokenize, contents))


class Table(SnapshotReader):
    """The searchable part of a snapshot in memory: texts of memories, summaries and live rows."""

    def __init__(
        self, memories: Sequence[str], summaries: Sequence[str], live: Sequence[str]
    ) -> None:
        self.count, self.first_live = len(memories), len(memories) + len(summaries)
        self.texts = [*memories, *summaries, *live]
        self._snapshot, self.tier, self.live = None, None, None
        held = build_postings(tokens_of(memories))
        beside = build_postings_beside(tokens_of(summaries), held)
        self.posting_positions, self.posting_scores = held.positions, held.scores
        vars(self)["summary_postings"] = (beside.positions, beside.scores)
        self._postings = {"terms": held, "summary_terms": beside}
        if live:
            rows: Any = SimpleNamespace(
                rows=live, held=self._held_live, word_scores=self._said_live
            )
            self.live = rows

    def _held_live(self, tokens: Sequence[str]) -> np.ndarray[Any, Any]:
        held = [[token in tokenize(t) for t in self.texts[self.first_live :]] for token in tokens]
        return np.array(held, dtype=np.bool_).reshape(
            len(tokens), len(self.texts) - self.first_live
        )

    def _said_live(self, query: str) -> np.ndarray[Any, Any]:
        return self._held_live(tokenize(query)).sum(0) / 8

    def look_up(self, table: str, key: str, columns: str, values: Sequence[Any]) -> list[Any]:
        postings: Postings = self._postings[table]
        ranges = zip(values, postings.ranges(values), strict=True)
        return [(term, *found) for term, found in ranges if found[1]]


tables = st.builds(
    Table, st.lists(texts, min_size=1, max_size=6), st.lists(texts, max_size=4),
    st.lists(texts, max_size=3),
)  # fmt: skip
bits = st.lists(st.booleans(), min_size=12, max_size=12)


def rows_of(table: Table, shown: list[bool]) -> tuple[Rows, list[int]]:
    """Return rows by arbitrary masks of memories and summaries, and the positions searched."""
    mask = np.array(shown, dtype=np.bool_)
    memories, summaries = mask[: table.count], mask[table.count : table.first_live]
    rows = Rows.of(table, memories, memories, summaries)
    inside = np.flatnonzero(mask[: table.first_live]).tolist()
    return rows, [*inside, *range(table.first_live, table.end)]


@given(tables, texts)
def test_coverage_and_exact_matches_equal_counting_the_words_of_every_text(
    table: Table, query: str
) -> None:
    positions = np.arange(table.end)[::-1].astype(np.int64)
    keywords = set(tokenize(query))
    held = [len(keywords & set(tokenize(table.texts[p]))) for p in positions]
    shares = keyword_coverage(table, tokenize(query), positions)
    assert shares.tolist() == [n / max(len(keywords), 1) for n in held]
    exact = find_exact_matches(table, query, positions)
    assert exact.tolist() == [len(keywords) > 1 and n == len(keywords) for n in held]


@given(tables, texts, bits, st.integers(0, 15))
def test_all_kinds_are_ranked_by_words_then_position(
    table: Table, query: str, shown: list[bool], depth: int
) -> None:
    rows, searched = rows_of(table, shown)
    leg = rank_lexical(table, query, rows.searched, depth)
    scores = leg.scores_at(np.arange(table.end)).tolist()
    held = [bool({*tokenize(query)} & {*tokenize(text)}) for text in table.texts]
    assert all(scores[p] > 0 for p in searched if held[p])
    assert not any(scores[p] > 0 for p in range(table.end) if not held[p])
    expected = sorted((-scores[p], p) for p in searched if scores[p] > 0)[:depth]
    assert leg.ranking.tolist() == [p for _, p in expected]
    everything = rank_lexical(table, query, None, table.end)
    memories = range(table.count)
    assert not any(table.count <= p < table.first_live for p in everything.ranking.tolist())
    assert everything.scores_at(np.array(memories)).tolist() == scores[: table.count]


@given(tables, st.lists(grades, min_size=13, max_size=13), bits, st.integers(0, 15))
def test_all_kinds_are_ranked_by_cosine_then_position(
    table: Table, cosines: list[float], shown: list[bool], depth: int
) -> None:
    vectors = np.array(cosines[: table.end], dtype=np.float32)[:, None]
    table.vectors = vectors[: table.count]
    vars(table)["summary_vectors"] = vectors[table.count : table.first_live]
    if table.live is not None:
        table.live.vectors = vectors[table.first_live :]
    rows, searched = rows_of(table, shown)
    leg = rank_dense(table, np.ones(1, dtype=np.float32), rows.searched, depth)
    expected = sorted((-cosines[p], p) for p in searched if cosines[p] > 0)[:depth]
    assert leg.ranking.tolist() == [p for _, p in expected]
    assert leg.scores_at(np.array(searched, dtype=np.int64)).tolist() == [
        cosines[p] for p in searched
    ]
