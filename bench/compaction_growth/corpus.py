"""Synthetic conversations of any number of turns, streamed, equal for equal seeds.

`python -m bench.compaction_growth.corpus FOLDER SIZE [one]` writes a store of them.

Sessions of 20 to 600 turns go on side by side, as those of several people do, so that the rows
of one session lie scattered. A user's turn has some 15 words, an assistant's some 35, and each
stretch of a session keeps to a subject. Every third turn or so names somebody, a day or an
amount, so that the fact check has something to check.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_text
from noctuary.core.types import MemoryRecord
from noctuary.sources.corpus import (
    MEMORIES_FILE,
    TURNS_FILE,
    open_table,
    order_turns,
    record_row,
    turn_row,
)

DIMENSION = 384
"""As of the bundled encoder."""

VOCABULARY = 8_192
SUBJECT_WORDS = 60
SUBJECT_TURNS = 12
"""Turns after which a conversation changes its subject."""

FACT_SHARE = 0.3
"""Turns that state something that can be told wrongly."""

OPEN_SESSIONS = 8
SHORTEST_SESSION, LONGEST_SESSION = 20, 600
USER_WORDS, ASSISTANT_WORDS = 15, 35
SECOND_US = 1_000_000
FIRST_US = 1_704_067_200_000_000

_SYLLABLES = ("ba", "ne", "ko", "ri", "ta", "lu", "me", "so", "vi", "da", "po", "ga", "zu", "fe")
_NAMES = ("Nina", "Omar", "Priya", "Jonas", "Keiko", "Lucia", "Tariq", "Wanda")
_BLOCK_ROWS = 8_192


class WordVectors:
    """A cheap deterministic encoder: the unit sum of fixed random vectors of a text's words.

    Stands in for a language model where only the work around it is measured.
    """

    def __init__(self) -> None:
        drawn = np.random.default_rng(0)
        self._table = drawn.standard_normal((VOCABULARY, DIMENSION), dtype=np.float32)
        self._place = {word: i for i, word in enumerate(make_words())}

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return unit rows, float32, shape (len(texts), DIMENSION); unknown words count nothing."""
        rows = np.zeros((len(texts), DIMENSION), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            places = [self._place[w] for w in text.split() if w in self._place]
            row[:] = self._table[places].sum(axis=0) if places else 0.0
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, norms, out=rows, where=norms > 0)


class _Session:
    """One conversation while it goes on."""

    def __init__(self, number: int, drawn: random.Random, turns: int) -> None:
        self.number = number
        self.turns = turns
        self.said = 0
        self._drawn = drawn
        self._subject: list[int] = []

    def next_text(self, words: Sequence[str]) -> str:
        """Return what is said next."""
        if self.said % SUBJECT_TURNS == 0:
            self._subject = [self._drawn.randrange(VOCABULARY) for _ in range(SUBJECT_WORDS)]
        asks = self.said % 2 == 0
        self.said += 1
        mean = USER_WORDS if asks else ASSISTANT_WORDS
        length = max(3, round(self._drawn.lognormvariate(0.0, 0.5) * mean))
        said = " ".join(words[self._drawn.choice(self._subject)] for _ in range(length))
        if self._drawn.random() < FACT_SHARE:
            said += f" {self._fact()}"
        return f"User: {said} ?" if asks else f"Assistant: {said} ."

    def _fact(self) -> str:
        name = self._drawn.choice(_NAMES)
        match self._drawn.randrange(4):
            case 0:
                return f"with {name} on {self._drawn.randint(1, 28)} March 2026"
            case 1:
                return f"and {name} paid {self._drawn.randint(2, 900)} dollars"
            case 2:
                return f"but {name} did not come at {self._drawn.randint(1, 11)} pm"
            case _:
                return f"as in ticket MN-{self._drawn.randint(100, 9999)}"


def make_words() -> list[str]:
    """Return the vocabulary: distinct made-up words."""
    drawn = random.Random(0)
    words: dict[str, None] = {}
    while len(words) < VOCABULARY:
        words["".join(drawn.choice(_SYLLABLES) for _ in range(drawn.randint(3, 5)))] = None
    return list(words)


def iter_turns(size: int, *, seed: int = 0, one_session: bool = False) -> Iterator[MemoryRecord]:
    """Yield so many turns by position.

    Args:
        size: How many.
        seed: Equal seeds give equal turns.
        one_session: All of them in a single conversation that never ends.
    """
    drawn, words = random.Random(seed), make_words()
    sessions: list[_Session] = []
    opened = 0
    for position in range(size):
        while len(sessions) < (1 if one_session else OPEN_SESSIONS):
            turns = size if one_session else drawn.randint(SHORTEST_SESSION, LONGEST_SESSION)
            sessions.append(_Session(opened, drawn, turns))
            opened += 1
        session = drawn.choice(sessions)
        yield _record(position, session.number, session.next_text(words))
        if session.said == session.turns:
            sessions.remove(session)


def write_store(folder: Path, size: int, *, one_session: bool = False) -> None:
    """Write memories.parquet, turns.parquet and memories.npy as a night would have left them."""
    encoder = WordVectors()
    shape = (size, DIMENSION)
    vectors = np.lib.format.open_memmap(
        folder / "memories.npy", mode="w+", dtype=np.float32, shape=shape
    )
    unordered = folder / "unordered.parquet"
    block: list[str] = []
    done = 0
    with (
        open_table(folder / MEMORIES_FILE, MEMORIES_FILE) as memories,
        open_table(unordered, TURNS_FILE) as turns,
    ):
        for record in iter_turns(size, one_session=one_session):
            memories(record_row(record))
            turns(turn_row(record))
            block.append(record.content)
            if len(block) == _BLOCK_ROWS or record.position == size - 1:
                vectors[done : done + len(block)] = encoder.encode(block)
                done += len(block)
                block.clear()
    vectors.flush()
    order_turns(unordered, folder / TURNS_FILE)
    unordered.unlink()


def _record(position: int, session: int, content: str) -> MemoryRecord:
    moment_us = FIRST_US + position * 20 * SECOND_US
    return MemoryRecord(
        position=position,
        memory_id=str(position),
        content=content,
        category="turn",
        tags="",
        expanded_keywords="",
        importance=0.5,
        created_at_us=moment_us,
        updated_at_us=moment_us,
        session_id=f"s{session}",
        wing=f"w{session % 7}",
        room=None,
        user=None,
        is_turn=True,
        content_hash=hash_text(str(position), content),
    )


if __name__ == "__main__":
    write_store(Path(sys.argv[1]), int(sys.argv[2]), one_session="one" in sys.argv[3:])
