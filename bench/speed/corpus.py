"""Synthetic memories and questions about them, of any number, equal for equal seeds.

Words follow Zipf's law over English function words and made-up content words; a memory has 20 to
60 of them, as chat turns and notes have. Wings differ in size by three orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import MemoryRecord, content_hash
from noctuary.text.tokens import tokenize

WORDS_MIN, WORDS_MAX = 20, 60
"""Words of a memory, evenly spread: 40 on average, as the passages in research/limits.md have."""

VOCABULARY = 50_000
"""Distinct words: about those that a million short texts use more than once."""

ZIPF_SHIFT = 2.7
"""Of Mandelbrot's form 1 / (rank + shift): natural texts flatten at the head like this."""

ASKED_WORDS, STRAY_WORDS = 6, 3
"""Words of a question that its memory holds, and words that it need not hold: a search for all of
them finds nothing, as with real prompts."""

SESSION_TURNS = 20
"""Memories of one conversation. Every second block of so many is one."""

WINGS = 40
ROOMS = 12
CATEGORIES = ("fact", "decision", "event", "preference", "turn")
DAY_US = 86_400_000_000
FIRST_DAY_US = 1_704_067_200_000_000
"""2024-01-01T00:00:00Z; the memories spread over the 1,000 days from then on."""

_DAYS = 1_000
_COMMON_TEXT = """
the of and to a in is it you that he was for on are with as his they be at one have this from or
had by not but what all were we when your can said there use an each which she do how their if will
up other about out many then them these so some her would like him into time has two more go see no
way could people my than first been who its now find long down day did get come made may part over
new take only little work know place year live me back give most very after our just name good
"""
_ONSETS_TEXT = "b c d f g h j k l m n p r s t v w z br cr dr fl gr kl pl pr st tr sh th"
_VOWELS_TEXT = "a e i o u ai ea ou"
_LONG_SHARE = 0.5
_NEIGHBOUR = "zzyzx"
_CODAS = ("", "", "n", "r", "l", "m", "t", "k", "nd", "rt")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts as word numbers.

    Attributes:
        words: The vocabulary, most frequent first.
        word_ids: Words of all memories in a row, int32.
        starts: First word of each memory and the number of words at the end, shape (n + 1,).
        seed: What it was drawn from.
    """

    words: list[str]
    word_ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    seed: int

    @property
    def count(self) -> int:
        """Number of memories."""
        return len(self.starts) - 1

    def text(self, position: int) -> str:
        """Return one memory's text."""
        return self._joined(self.word_ids[self.starts[position] : self.starts[position + 1]])

    def tokens(self) -> Iterator[list[str]]:
        """Yield what `tokenize` returns for every text, each word tokenized once."""
        # A text of nothing but stop words would keep them; twenty words never are.
        kept = [_token_of(word) for word in self.words]
        ids, starts = self.word_ids.tolist(), self.starts.tolist()
        for position in range(self.count):
            found = (kept[word] for word in ids[starts[position] : starts[position + 1]])
            yield [token for token in found if token]

    def _joined(self, ids: NDArray[np.int32]) -> str:
        return " ".join(self.words[word] for word in ids.tolist())


def make_corpus(count: int, seed: int = 0) -> Corpus:
    """Draw a corpus of `count` memories."""
    rng = np.random.default_rng([seed, count])
    words = make_words(VOCABULARY)
    lengths = rng.integers(WORDS_MIN, WORDS_MAX + 1, count)
    starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return Corpus(words, _draw_words(rng, int(starts[-1])), starts, seed)


def make_words(count: int) -> list[str]:
    """Return distinct words, function words first, then made-up ones of two or three syllables."""
    rng = np.random.default_rng(1)
    onsets, vowels = _ONSETS_TEXT.split(), _VOWELS_TEXT.split()
    words: dict[str, None] = dict.fromkeys(_COMMON_TEXT.split())
    while len(words) < count:
        drawn = [rng.choice(pool, count).tolist() for pool in (onsets, vowels, _CODAS) * 2]
        tails = [rng.choice(pool, count).tolist() for pool in (onsets, vowels)]
        long = rng.random(count) < _LONG_SHARE
        for row in range(count):
            tail = [part[row] for part in tails] if long[row] else []
            words.setdefault("".join([*(part[row] for part in drawn), *tail]))
    return list(words)[:count]


def _draw_words(rng: np.random.Generator, count: int) -> NDArray[np.int32]:
    weights = 1.0 / (np.arange(VOCABULARY) + 1.0 + ZIPF_SHIFT)
    bounds = np.cumsum(weights / weights.sum())
    drawn = np.searchsorted(bounds, rng.random(count, dtype=np.float32))
    return np.minimum(drawn, VOCABULARY - 1).astype(np.int32)


def _token_of(word: str) -> str:
    """Return the token of a word inside a text, empty for a stop word."""
    # Alone, a stop word would be kept.
    beside = tokenize(f"{word} {_NEIGHBOUR}")
    return beside[0] if len(beside) > 1 else ""


def make_questions(corpus: Corpus, count: int) -> tuple[list[str], NDArray[np.int64]]:
    """Return questions and the memories they ask about, drawn evenly over the corpus."""
    rng = np.random.default_rng([corpus.seed, corpus.count, 2])
    about = rng.integers(0, corpus.count, count)
    texts: list[str] = []
    for position in about.tolist():
        held = corpus.word_ids[corpus.starts[position] : corpus.starts[position + 1]]
        asked = rng.choice(held, ASKED_WORDS, replace=False)
        mixed = rng.permutation(np.concatenate((asked, _draw_words(rng, STRAY_WORDS))))
        texts.append(" ".join(corpus.words[word] for word in mixed.tolist()) + "?")
    return texts, about.astype(np.int64)


def make_records(corpus: Corpus) -> list[MemoryRecord]:
    """Return the memories; dates rise with positions, as in an append-only store."""
    count = corpus.count
    rng = np.random.default_rng([corpus.seed, count, 3])
    sizes = 1.0 / np.arange(1, WINGS + 1) ** 2
    wings = np.searchsorted(np.cumsum(sizes / sizes.sum()), rng.random(count)).clip(0, WINGS - 1)
    rooms, kinds = rng.integers(0, ROOMS, count), rng.integers(0, len(CATEGORIES), count)
    importance = rng.integers(1, 11, count) / 10
    wing_list, room_list, kind_list = wings.tolist(), rooms.tolist(), kinds.tolist()
    importance_list = importance.tolist()
    step_us = _DAYS * DAY_US // max(count, 1)
    records: list[MemoryRecord] = []
    for position in range(count):
        block = position // SESSION_TURNS
        in_session = is_session_block(block)
        when_us = FIRST_DAY_US + position * step_us
        record = MemoryRecord(
            position=position,
            memory_id=str(position + 1),
            content=corpus.text(position),
            category="turn" if in_session else CATEGORIES[kind_list[position]],
            tags="",
            expanded_keywords="",
            importance=importance_list[position],
            created_at_us=when_us,
            updated_at_us=when_us,
            session_id=f"s{block}" if in_session else None,
            wing=f"wing-{wing_list[position]:02d}",
            room=f"room-{room_list[position]:02d}",
            user=None,
            is_turn=in_session,
            content_hash="",
        )
        records.append(record._replace(content_hash=content_hash(record)))
    return records


def is_session_block(block: int) -> bool:
    """Say whether a block of SESSION_TURNS memories is a conversation."""
    return block % 2 == 0
