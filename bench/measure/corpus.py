"""Memory stores of any size with the words and lengths of real ones, equal for equal seeds.

Half of the memories read like turns of locomo, half like the extracted memories of realmem:
which word follows which, and how long a text is, are drawn from those sets (../shared/data,
only read, nothing of them is kept here). Proper names are replaced by made-up ones, other ones
for every wing, so that names grow with the store as those of a real one do: with the words of
two small sets alone every name would be in thousands of memories.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.datasets import find_shared

SETS = ("locomo", "realmem")
"""Whose words and lengths; every other memory is of the first."""

WING_MEMORIES = 2_500
"""Memories of one wing: locomo and realmem have some 550 each, a store of years more."""

SESSION_MEMORIES = 20
BLOCK_MEMORIES = 10_000
MAX_WORDS = 400
FIRST = datetime(2023, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=90)
"""A million memories are then 2.9 years."""

_PROPER = re.compile(r"^[A-Z][a-z]+$")
_EDGES = ".,;:!?\"'()[]"
_SYLLABLES = ("ba", "ne", "ko", "ri", "ta", "lu", "me", "so", "vi", "da", "po", "ga", "zu", "fe",
              "han", "mor", "lin", "tes", "rud", "kal")  # fmt: skip

_SCHEMA = """
CREATE TABLE memories (
    id INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT NOT NULL, category TEXT DEFAULT 'facts',
    tags TEXT DEFAULT '', expanded_keywords TEXT DEFAULT '', importance REAL DEFAULT 0.5,
    is_sensitive INTEGER DEFAULT 0, created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
    server_id INTEGER);
"""
_INSERT = (
    "INSERT INTO memories (id, content, category, tags, importance, created_at, updated_at)"
    " VALUES (?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True)
class Chain:
    """Which word follows which in a set, and how many words its texts have.

    Attributes:
        words: Distinct words, punctuation included.
        proper: Which of them are names; bool, shape (n_words,).
        first: First words of texts, ordinals, shape (n_texts,).
        lengths: Words of every text, shape (n_texts,).
        starts: Followers of word w are followers[starts[w] : starts[w + 1]], shape (n_words + 1,).
        followers: Ordinals; as often as they follow.
    """

    words: list[str]
    proper: NDArray[np.bool_]
    first: NDArray[np.int64]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    followers: NDArray[np.int64]


def read_chain(directory: Path) -> Chain:
    """Return the chain of a labelled set's corpus."""
    with gzip.open(directory / "corpus.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["content"].split() for line in file]
    words = sorted({word for text in texts for word in text})
    place = {word: ordinal for ordinal, word in enumerate(words)}
    after: defaultdict[int, list[int]] = defaultdict(list)
    for text in texts:
        for left, right in pairwise(text):
            after[place[left]].append(place[right])
    sizes = [len(after[w]) for w in range(len(words))]
    lower = Counter(w.strip(_EDGES) for text in texts for w in text)
    return Chain(
        words=words,
        proper=np.array([_is_proper(w.strip(_EDGES), lower) for w in words]),
        first=np.array([place[text[0]] for text in texts if text]),
        lengths=np.array([min(len(text), MAX_WORDS) for text in texts if text]),
        starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        followers=np.array([r for w in range(len(words)) for r in after[w]], dtype=np.int64),
    )


def iter_rows(size: int, chains: Sequence[Chain], seed: int = 0) -> Iterator[tuple[object, ...]]:
    """Yield the rows of a store, by id from 1; what comes first does not depend on `size`."""
    for start in range(0, size, BLOCK_MEMORIES):
        drawn = np.random.default_rng([seed, start])
        count = min(BLOCK_MEMORIES, size - start)
        texts = [_walks(chain, BLOCK_MEMORIES, drawn) for chain in chains]
        for offset in range(count):
            number = start + offset
            kind = number // SESSION_MEMORIES % len(chains)
            yield _row(number, kind, chains[kind], texts[kind][offset])


def write_store(path: Path, size: int, seed: int = 0) -> None:
    """Write a `memory.db` of so many memories.

    Raises:
        SystemExit: The labelled sets are not there.
    """
    shared = find_shared()
    if shared is None:
        sys.exit(
            "no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED"
        )
    chains = [read_chain(shared / "data" / name) for name in SETS]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(_SCHEMA)
        db.executemany(_INSERT, iter_rows(size, chains, seed))


def _row(number: int, kind: int, chain: Chain, walk: NDArray[np.int64]) -> tuple[object, ...]:
    wing = number // WING_MEMORIES
    words = [
        _named(chain.words[w], wing, kind) if chain.proper[w] else chain.words[w]
        for w in walk.tolist()
    ]
    moment = (FIRST + number * STEP).isoformat(timespec="seconds")
    tags = f"wing:w{wing}, session:s{number // SESSION_MEMORIES}"
    category = "dialog_turn" if kind == 0 else "facts"
    content = " ".join(words)
    if kind == 0 and not content.partition(" ")[0].endswith(":"):
        content = f"{_made_up(wing * 7 + number % 2)}: {content}"
    return number + 1, content, category, tags, 0.5, moment, moment


def _walks(chain: Chain, count: int, drawn: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return `count` texts as word ordinals; a word that nothing follows starts a new sentence."""
    lengths = drawn.choice(chain.lengths, count)
    steps = np.empty((int(lengths.max()), count), dtype=np.int64)
    steps[0] = drawn.choice(chain.first, count)
    for step in range(1, len(steps)):
        before = steps[step - 1]
        sizes = chain.starts[before + 1] - chain.starts[before]
        place = chain.starts[before] + (drawn.random(count) * sizes).astype(np.int64)
        ended = sizes == 0
        place[ended] = 0
        steps[step] = np.where(ended, drawn.choice(chain.first, count), chain.followers[place])
    return [steps[:length, column] for column, length in enumerate(lengths.tolist())]


def _is_proper(word: str, counts: Counter[str]) -> bool:
    return bool(_PROPER.match(word)) and counts[word.lower()] == 0 and counts[word] > 1


def _named(word: str, wing: int, kind: int) -> str:
    """Return the wing's name in place of a proper name; its punctuation stays."""
    bare = word.strip(_EDGES)
    start = word.index(bare)
    number = _number(bare) * 31 + wing * 1009 + kind
    return f"{word[:start]}{_made_up(number)}{word[start + len(bare) :]}"


def _number(word: str) -> int:
    value = 0
    for character in word:
        value = (value * 131 + ord(character)) % 1_000_003
    return value


def _made_up(number: int) -> str:
    parts: list[str] = []
    number = number * 2_654_435_761 % 2**32
    for _ in range(2 + number % 3):
        number, which = divmod(number, len(_SYLLABLES))
        parts.append(_SYLLABLES[which])
    return "".join(parts).capitalize()
