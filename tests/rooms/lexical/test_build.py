"""Tokens of memories by key: what the task gives is what the fields say."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.lexical import build
from noctuary.lexical.build import (
    Postings,
    TokenizeMemories,
    build_postings,
    choose_words,
    iter_keyed,
    tokens_key,
)
from noctuary.lexical.search import K1, B, idf, saturation
from noctuary.sources.corpus import MEMORIES_FILE, open_table
from noctuary.text.tokens import encode_tokens, index_tokens

DOCUMENTS = [b"cat\ndog\ncat", b"dog", b"", b"bird\ndog"]
MEAN_TOKENS = 6 / 4


def bm25(tf: int, df: int, length: int) -> float:
    idf = math.log(1 + (4 - df + 0.5) / (df + 0.5))
    return idf * tf / (tf + K1 * (1 - B + B * length / MEAN_TOKENS))


# Code points that sort differently as UTF-16, and a token that is a prefix of another.
TOKENS = ["a", "ab", "b", "é", "😀", "￿", "zz", "@when", "@--05"]


def naive_postings(documents: Sequence[Sequence[str]], k1: float, b: float) -> Postings:
    """The same, a pair at a time."""
    counts = [Counter(document) for document in documents]
    terms = sorted({token for document in documents for token in document})
    held = {t: [p for p, count in enumerate(counts) if t in count] for t in terms}
    # Words of dates count, and make no text longer.
    lengths = [sum(not token.startswith("@") for token in d) for d in documents]
    mean = (float(np.mean(lengths)) if documents else 0.0) or 1.0
    scores = [
        (
            saturation(np.array([counts[p][t]]), np.array([lengths[p]]), mean, k1, b)
            * idf(np.array([len(held[t])]), len(documents))
        )[0]
        for t in terms
        for p in held[t]
    ]
    return Postings(
        terms,
        np.cumsum([0, *(len(held[t]) for t in terms)], dtype=np.int64),
        np.array([p for t in terms for p in held[t]], dtype=np.int32),
        np.array(scores, dtype=np.float32),
        len(documents),
    )


@given(
    st.lists(st.lists(st.sampled_from(TOKENS), max_size=6), max_size=12),
    st.integers(1, 5),
    st.floats(0, 4),
    st.floats(0, 1),
)
def test_postings_are_those_of_a_naive_twin_bit_for_bit(
    documents: list[list[str]], texts_at_once: int, k1: float, b: float
) -> None:
    expected = naive_postings(documents, k1, b)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "TEXTS_AT_ONCE", texts_at_once)
        patch.setattr(build, "WEIGHED_AT_ONCE", texts_at_once)
        found = build_postings(map(encode_tokens, documents), k1, b)
    assert found.terms == expected.terms
    assert found.n_memories == expected.n_memories
    for name in ("starts", "positions", "scores"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def test_postings_in_closed_form() -> None:
    postings = build_postings(DOCUMENTS)
    assert postings.terms == ["bird", "cat", "dog"]
    assert postings.starts.tolist() == [0, 1, 2, 5]
    assert postings.positions.tolist() == [3, 0, 0, 1, 3]
    assert postings.n_memories == 4
    expected = [bm25(1, 1, 2), bm25(2, 1, 3), bm25(1, 3, 3), bm25(1, 3, 1), bm25(1, 3, 2)]
    assert postings.scores.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("k1", "b"), [(-0.1, 0.4), (float("nan"), 0.4), (0.9, 1.1), (0.9, -0.1)])
def test_parameters_out_of_range(k1: float, b: float) -> None:
    with pytest.raises(ValueError, match="k1 >= 0"):
        build_postings(DOCUMENTS, k1=k1, b=b)


ROWS = [
    ("The billing-api is down", "wing:a, urgent", "outage", "facts"),
    ("the of and", "", "", "facts"),
    ("", "", "", ""),
    ("東京タワー", "", "tower", "notes"),
    ("I left yesterday", "", "", "facts"),
]
NOON_US = 1_683_547_200_000_000  # 8 May 2023


@pytest.fixture
def memories(tmp_path: Path) -> Path:
    path = tmp_path / MEMORIES_FILE
    with open_table(path, MEMORIES_FILE) as add:
        for n, (content, tags, keywords, category) in enumerate(ROWS):
            row = (n, str(n), content, category, tags, keywords, 0.5, NOON_US, NOON_US)
            add((*row, None, None, None, None, True, "h", "import", None))
    return path


def test_every_memory_gets_its_key_and_its_tokens(memories: Path) -> None:
    (batch,) = iter_keyed(memories)
    found = TokenizeMemories().open(1)(batch)
    assert found.schema.names == ["key", "value"]
    assert found.column("key").type == pa.binary(32)
    assert found.column("key").to_pylist() == [tokens_key(*row, NOON_US, True) for row in ROWS]
    values = [value.decode().split() for value in found.column("value").to_pylist()]
    assert values == [index_tokens(*row, NOON_US, True) for row in ROWS]
    assert values[4] == [
        "left",
        "yesterday",
        "@--05",
        "@--05-07",
        "@2023-05",
        "@2023-05-07",
        "@when",
    ]
    assert values[0]
    assert not values[2]


def test_words_that_may_have_near_ones_are_common_and_no_names(tmp_path: Path) -> None:
    texts = [
        "Camping with Melanie, a camper's camp; her sister isn't there.",
        "melanie's sisters: Sister Anne and Melanie went camping in Berlin.",
        "Melanie saw snow and the camp in berlin. Once: lantern2",
    ]
    path = tmp_path / MEMORIES_FILE
    with open_table(path, MEMORIES_FILE) as add:
        for n, text in enumerate(texts):
            row = (n, str(n), text, "", "", "", 0.5, NOON_US, NOON_US, None, None, None, None)
            add((*row, False, "h", "import", None))
    postings = build_postings(encode_tokens(index_tokens(t, "", "", "", 0, False)) for t in texts)
    # Written small in half at least of those that hold it; "snow" is in one memory only.
    assert choose_words(path, postings) == {"camp": "camp", "sister": "sister", "berlin": "berlin"}


def test_every_field_tells_keys_apart() -> None:
    one = ("content", "tags", "keywords", "category")
    changed = [(*one[:n], "x", *one[n + 1 :]) for n in range(4)]
    keys = {tokens_key(a, b, c, d, 0, False) for a, b, c, d in map(tuple, (one, *changed))}
    assert len(keys) == 5
    assert tokens_key("ab", "", "", "", 0, False) != tokens_key("a", "b", "", "", 0, False)
    # Relative dates count from the day; the time of day moves none.
    noon = tokens_key(*one, NOON_US, False)
    assert noon == tokens_key(*one, NOON_US + 1, False)
    assert noon not in {tokens_key(*one, NOON_US, True), tokens_key(*one, 0, False)}
