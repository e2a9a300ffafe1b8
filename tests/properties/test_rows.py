"""The legs over rows of every kind, against plain loops over all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from noctuary.lexical.build import Postings, build_postings, build_postings_beside
from noctuary.recall.engine import Recaller
from noctuary.recall.legs import find_exact_matches, rank_dense, rank_lexical
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.rows import Rows
from noctuary.recall.scorers import keyword_coverage
from noctuary.text.tokens import encode_tokens, tokenize
from tests.support.lean import write_encoder
from tests.support.store import new_store, renumber, turns

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
            rows: Any = SimpleNamespace(rows=live, held=self._held_live)
            self.live = rows

    def _held_live(self, tokens: Sequence[str]) -> np.ndarray[Any, Any]:
        held = [[token in tokenize(t) for t in self.texts[self.first_live :]] for token in tokens]
        return np.array(held, dtype=np.bool_).reshape(
            len(tokens), len(self.texts) - self.first_live
        )

    def live_word_scores(self, query: str) -> np.ndarray[Any, Any]:
        """Return the share of the query's words in each live row."""
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


SAID = ("refund for the invoice", "the boat to Berlin", "a key of the cellar", "billing-api down")
K = 3
OWNERS = {"s1": None, "s2": "ana", "s3": "ben", "s4": "ana"}


@cache
def talks() -> Recaller:
    """Four conversations of three owners, twelve turns each, three summaries each."""
    root = Path(tempfile.mkdtemp(prefix="noctuary-talks-")) / "store"
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    records = [
        turn
        for session, owner in OWNERS.items()
        for turn in turns(
            session,
            *(f"Ana: {SAID[(n + len(session)) % 4]} {n % 3}, {session} {n}." for n in range(12)),
            user=owner,
            wing=f"wing-{owner}",
        )
    ]
    store.publish(renumber(records))
    return Recaller.open(store.root)


scopes = st.builds(
    Scope,
    user=st.sampled_from([None, "ana", "ben"]),
    wing=st.sampled_from([None, "wing-ana"]),
    as_of=st.sampled_from([None, datetime(2026, 1, 20, 0, 5, tzinfo=UTC)]),
)


@given(
    st.sampled_from([*SAID, "the key in Berlin", "down 2", "s2 7"]),
    scopes,
    st.sampled_from(["own", "turns"]),
    st.integers(1, 12),
)
def test_a_turn_behind_a_summary_is_in_scope_and_its_summary_was_hit(
    query: str, scope: Scope, vectors: str, depth: int
) -> None:
    recaller = talks()
    reader = recaller.reader
    assert reader.summaries.size == 12
    profile = RetrievalProfile(turn_view="summaries", summary_vectors=vectors, depth=depth)
    answer = recaller.recall(query, K, profile=profile, scope=scope)
    places = reader.positions_of(str(m.id) for m in answer.memories)
    assert len(places) == len(answer.memories), "no summary"
    mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
    allowed = np.ones(reader.count, np.bool_) if mask is None else mask
    assert allowed[list(places.values())].all()

    # By hand: whole summaries in scope stand in the place of their turns.
    whole = [s for s in reader.summaries.views if allowed[list(s.sources)].all()]
    owner = {turn: summary.position for summary in whole for turn in summary.sources}
    searched = np.array([*allowed, *np.zeros(reader.end - reader.count, np.bool_)])
    by_vector = searched.copy()
    searched[list(owner)] = False
    searched[[s.position for s in whole]] = True
    by_vector = by_vector if vectors == "turns" else searched
    vector = recaller.inputs_now().query_vector(query, 1e9)
    hits = {*rank_lexical(reader, query, searched, max(depth, K)).ranking.tolist()}
    hits |= {*rank_dense(reader, vector, by_vector, max(depth, K)).ranking.tolist()}
    opened = {owner.get(p, p) for p in hits}
    for memory in answer.memories:
        position = places[str(memory.id)]
        if position in owner:
            assert owner[position] in opened
            summary = reader.summaries.ids[owner[position] - reader.count]
            assert memory.annotations == {"summarized_by": summary}
        else:
            assert memory.annotations == {}
