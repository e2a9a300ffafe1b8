"""Questions that a store can answer, made by rule of its own memories: no label, no model."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from noctuary.core.files import hash_text
from noctuary.recall.query import Mask
from noctuary.recall.reader import SnapshotReader
from noctuary.text.tokens import UNSPACED, regex_class, tokenize

MEMORIES_ASKED = 60
"""More narrow what is known of a threshold and cost a night a second a dozen."""


MIN_WORDS = 5
"""Words of the shortest memory that is asked for: of a shorter one nothing can be left out."""


MAX_WORDS = 8
"""Words of the longest question."""


_PIECE_CHARS = 4
"""Characters of what counts as a word where no spaces separate any."""


_EVERYDAY = Path(__file__).with_name("everyday.txt")


def read_everyday() -> list[str]:
    """Return prompts that are nobody's memory: chores, small talk, general knowledge, commands."""
    return _EVERYDAY.read_text(encoding="utf-8").splitlines()


def make_questions(
    reader: SnapshotReader, mask: Mask | None = None, memories: int = MEMORIES_ASKED
) -> Iterator[tuple[str, str]]:
    """Yield questions of some memories, each with the id of the one that it was made of.

    Memories are taken in the order of a hash of their id, so that one that is added displaces few.

    Args:
        reader: The snapshot.
        mask: What may be seen, shape (n,); None for everything.
        memories: How many are asked for, where as many are long enough.
    """
    seen = np.arange(reader.count) if mask is None else np.flatnonzero(mask)
    named = reader.memory_ids(seen.tolist())
    first = heapq.nsmallest(2 * memories, ((hash_text(i), p) for p, i in named.items()))
    rows = reader.describe([position for _, position in first])
    asked = 0
    for _, position in first:
        words = _words(reader, rows[position]["content"])
        if len(words) >= MIN_WORDS and asked < memories:
            asked += 1
            for some in _asked(words, _name(reader, position)):
                yield " ".join(sorted(some, key=hash_text)), named[position]


def _asked(words: Sequence[str], name: str | None) -> tuple[Sequence[str], ...]:
    """Return the words of each difficulty; given the rarest first."""
    rest = words[1:]
    few = rest[len(rest) // 3 :][:2]
    return rest[:MAX_WORDS], rest[::2][:MAX_WORDS], [*few, name or rest[0]]


def _words(reader: SnapshotReader, text: str) -> list[str]:
    """Return the distinct content words of a text, the rarest first."""
    unspaced = regex_class(UNSPACED)
    pieces = re.findall(rf"[{unspaced}]{{2,{_PIECE_CHARS}}}|[^\W{unspaced}]+", text)
    rarity: dict[str, float] = {}
    for piece in dict.fromkeys(pieces):
        slices = reader.look_up_terms(tokenize(piece))
        if slices and not (len(piece) < 3 and piece.isascii() and piece.isalpha()):
            rarity[piece] = min(stop - start for start, stop in slices)
    return sorted(rarity, key=lambda piece: (rarity[piece], hash_text(piece)))


def _name(reader: SnapshotReader, position: int) -> str | None:
    """Return the name of a concept that a memory mentions, None where it mentions none."""
    places = np.flatnonzero(reader.mentions.positions == position)
    if not places.size:
        return None
    ordinal = np.searchsorted(reader.mentions.indptr, places[0], side="right") - 1
    return reader.concept_name(int(ordinal))
