"""Postings of a corpus in parts are those of the same memories at once, bit for bit."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.lexical.build import CountTerms, Postings, build_postings, merge_postings
from noctuary.lexical.search import K1, B
from noctuary.text.tokens import encode_tokens
from noctuary.work.runner import LocalRunner
from noctuary.work.shards import list_shards

# Code points that sort differently as UTF-16, and a token that is a prefix of another.
TOKENS = ["a", "ab", "b", "é", "😀", "￿", "zz"]
DOCUMENTS = st.lists(st.lists(st.sampled_from(TOKENS), max_size=6), max_size=12)


def merged(documents: Sequence[Sequence[str]], rows: int, k1: float, b: float) -> Postings:
    batch = pa.record_batch(
        [
            pa.array(range(len(documents)), pa.int32()),
            pa.array(list(map(encode_tokens, documents)), pa.binary()),
        ],
        names=["position", "value"],
    )
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        shards = list(list_shards([batch], place / "rows", "t", rows))
        found = LocalRunner(1).run(CountTerms(), shards, place / "counted")
        return merge_postings([f.path for f in found], len(documents), k1, b)


def assert_same(found: Postings, expected: Postings) -> None:
    assert found.terms == expected.terms
    assert found.n_memories == expected.n_memories
    for name in ("starts", "positions", "scores"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


@settings(max_examples=30, deadline=None)
@given(DOCUMENTS, st.integers(1, 5), st.floats(0, 4), st.floats(0, 1))
def test_parts_of_any_size_give_the_postings_of_the_whole(
    documents: list[list[str]], rows: int, k1: float, b: float
) -> None:
    assert_same(merged(documents, rows, k1, b), build_postings(documents, k1, b))


def test_a_corpus_without_a_token_has_no_postings() -> None:
    for documents in ([], [[]], [[], [], []]):
        assert_same(merged(documents, 2, K1, B), build_postings(documents))


def test_more_memories_than_a_batch_holds() -> None:
    """A shard is counted batch by batch: a term has a row in each."""
    drawn = np.random.default_rng(7)
    words = [f"w{n}" for n in range(50)]
    documents = [list(drawn.choice(words, size=drawn.integers(0, 9))) for _ in range(2_500)]
    assert_same(merged(documents, 2_000, K1, B), build_postings(documents))
