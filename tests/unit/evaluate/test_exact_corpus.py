"""What the exact stratum asks of a corpus, against reading every text again."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.evaluate.queries import NEAR_DUPLICATE, ExactCorpus, fold_text, read_keys
from noctuary.text.tokens import STOP_WORDS

WORDS = ["Zebra", "ＺＥＢＲＡ", "quay", "the", "of", "東京", "é", "naïve", "a\nb", "\ud800", "x.y"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)


def record(position: int, content: str, tags: str = "", keywords: str = "") -> MemoryRecord:
    return MemoryRecord(
        position, str(position), content, "facts", tags, keywords, 0.5, UNDATED_US, UNDATED_US,
        None, None, None, None, False, "",
    )  # fmt: skip


def keys(text: str) -> set[str]:
    return set(read_keys(text)) - STOP_WORDS


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(TEXTS, TEXTS, TEXTS), min_size=1, max_size=8), TEXTS.filter(fold_text))
def test_it_answers_as_a_reading_of_every_text(
    rows: list[tuple[str, str, str]], phrase: str
) -> None:
    records = [record(n, *row) for n, row in enumerate(rows)]
    corpus = ExactCorpus(records)
    folded = [fold_text("\n".join((c, k, t))) for c, t, k in rows]
    sets = [keys(content) for content, _, _ in rows]
    assert corpus.sizes.tolist() == [len(found) for found in sets]
    for word in {w for found in sets for w in found}:
        held = sum(word in found for found in sets)
        assert corpus.rarity(word) == math.log(len(rows) / held)
    assert corpus.rarity("no such word") == 0.0
    sought = fold_text(phrase)
    for place in range(len(rows)):
        holders = [n for n, text in enumerate(folded) if sought in text]
        assert corpus.is_unique(phrase, place) == (holders == [place])


@settings(max_examples=80, deadline=None)
@given(st.lists(TEXTS.filter(keys), min_size=1, max_size=8))
def test_a_near_duplicate_is_one_of_nearly_the_same_words(texts: list[str]) -> None:
    sets = [keys(text) for text in texts]
    corpus = ExactCorpus([record(n, text) for n, text in enumerate(texts)])
    for place, own in enumerate(sets):
        expected = any(
            len(own & other) / len(own | other) >= NEAR_DUPLICATE
            for n, other in enumerate(sets)
            if n != place
        )
        assert corpus.has_near_duplicate(place) == expected


def test_an_empty_corpus_can_be_read() -> None:
    assert len(ExactCorpus([]).sizes) == 0
