"""Near duplicates kept from night to night: a changed memory is compared, the others are not again.

What belongs here: what of last night still holds, and what must be looked at anew. What does not:
comparing (`near`).

An added or edited memory is compared with its group in both directions; a memory whose successor
was deleted or edited is asked anew; every other pair is taken over. The result is that of a
rebuild, since whether two rows are compared never depends on a third one, but for the size of their
group: one that outgrows exact comparison is looked at as a whole, once.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.supersession.columns import MemoryColumns, Sighting
from noctuary.graph.supersession.near import (
    EXACT_PAIRS,
    Comparison,
    NearPair,
    comparisons,
    exact_cosine,
    newest_near_duplicates,
)
from noctuary.vectors.cascade import release_pages

_KEY_BYTES = 16
_KEYS_AT_ONCE = 16_384  # rows of vectors that are mapped: 25 MB at 384 dimensions
_NOBODY = ""

NearMemo = Mapping[str, Sequence[str]]
"""Content key of every memory that was compared -> keys of its newest near duplicates, one per
comparison in which it was the older ("" for none). JSON-able."""


class NearDuplicates(NamedTuple):
    """What was found, and what to keep for the next night.

    Attributes:
        pairs: Sorted by older and newer position; at most two per older memory.
        memo: To be handed in next time.
        asked: Pairs of rows that had to be considered.
    """

    pairs: tuple[NearPair, ...]
    memo: NearMemo
    asked: int


def find_near_duplicates(
    memories: MemoryColumns,
    vectors: NDArray[np.float32],
    known: NearMemo | None = None,
    *,
    exact_pairs: int = EXACT_PAIRS,
) -> NearDuplicates:
    """Return the newest near duplicates of every memory that has one.

    Args:
        memories: Of the corpus.
        vectors: Unit rows by position, shape (n, d).
        known: The memo of an earlier call, or None to compare everything.
        exact_pairs: Most pairs of an exact comparison.
    """
    night = _Night(memories, vectors, known or {}, exact_pairs)
    for comparison in night.comparisons:
        night.examine(comparison)
    pairs = sorted(pair for found in night.found.values() for pair in found if pair is not None)
    memo = {
        night.keys[position]: tuple(
            _NOBODY if pair is None else night.keys[pair.newer] for pair in night.found[position]
        )
        for position in sorted(night.keys)
    }
    return NearDuplicates(tuple(pairs), memo, night.asked)


class _Night:
    def __init__(
        self,
        memories: MemoryColumns,
        vectors: NDArray[np.float32],
        known: NearMemo,
        exact_pairs: int,
    ) -> None:
        self.comparisons = list(comparisons(memories, exact_pairs=exact_pairs))
        self.found: dict[int, list[NearPair | None]] = defaultdict(list)
        self.asked = self._touched = 0
        self._vectors = vectors
        self._known = known
        self._created, self._alike = memories.created_at_us, memories.alike
        self.keys = self._content_keys(memories)
        self._position_of = {key: position for position, key in self.keys.items()}

    def examine(self, comparison: Comparison) -> None:
        """Add what one comparison finds for each of its older rows."""
        slots = {p: len(self.found[p]) for p in comparison.olders.tolist()}
        kept = {p: self._kept(p, slot) for p, slot in slots.items()}
        anew = np.array([kept[p] is None for p in comparison.olders.tolist()], dtype=np.bool_)
        fresh = np.array(
            [self.keys[p] not in self._known for p in comparison.newers.tolist()], dtype=np.bool_
        )
        best = {p: pair for p, pair in kept.items() if isinstance(pair, NearPair)}
        for pair in self._ask(comparison, comparison.olders[anew], comparison.newers):
            best[pair.older] = pair
        for pair in self._ask(comparison, comparison.olders[~anew], comparison.newers[fresh]):
            best[pair.older] = max(best.get(pair.older, pair), pair, key=self._newness)
        for position in slots:
            self.found[position].append(best.get(position))
        # Groups are many and mostly small.
        self._touched += len(slots) + len(comparison.newers)
        if self._touched >= _KEYS_AT_ONCE:
            self._touched = 0
            release_pages(self._vectors)

    def _ask(
        self, comparison: Comparison, olders: NDArray[np.int64], newers: NDArray[np.int64]
    ) -> list[NearPair]:
        if not len(olders) or not len(newers):
            return []
        self.asked += len(olders) * len(newers)
        part = Comparison(olders, newers, comparison.bits)
        return newest_near_duplicates(part, self._vectors, self._created)

    def _kept(self, position: int, slot: int) -> NearPair | str | None:
        """Return last night's pair, "" where it had none, or None where it must be asked anew."""
        known = self._known.get(self.keys[position])
        if known is None:
            return None
        newer = known[slot] if slot < len(known) else _NOBODY
        if newer == _NOBODY:
            return _NOBODY
        if newer not in self._position_of:
            return None
        other = self._position_of[newer]
        similarity = exact_cosine(self._vectors[position], self._vectors[other])
        return NearPair(position, other, similarity)

    def _newness(self, pair: NearPair) -> tuple[int, int]:
        return int(self._created[pair.newer]), pair.newer

    def _content_keys(self, memories: MemoryColumns) -> dict[int, str]:
        bits: dict[int, list[int]] = defaultdict(list)
        for comparison in self.comparisons:
            for position in comparison.olders.tolist():
                bits[position].append(comparison.bits)
        positions = sorted(bits)
        keys: dict[int, str] = {}
        for start in range(0, len(positions), _KEYS_AT_ONCE):
            chosen = positions[start : start + _KEYS_AT_ONCE]
            ids = memories.memory_ids.take(chosen).to_pylist()
            for position, memory_id in zip(chosen, ids, strict=True):
                keys[position] = self._key(memories.sighting(position), memory_id, bits[position])
            release_pages(self._vectors)
        return keys

    def _key(self, sighting: Sighting, memory_id: str, bits: Sequence[int]) -> str:
        # How a memory is compared is part of its key: rows of a group that outgrew exact comparison
        # are all new. A trailing 0 is left out, so that a first memory without a wing, which adds a
        # comparison, makes nothing else new.
        when, alike = sighting.created_at_us, self._alike[sighting.position]
        scope = [memory_id, sighting.user, sighting.wing, str(when), str(alike)]
        methods = [str(b) for b in bits[:1]] + [str(b) for b in bits[1:] if b]
        digest = hashlib.sha256("\0".join([*scope, *methods]).encode("utf-8", "surrogatepass"))
        digest.update(np.ascontiguousarray(self._vectors[sighting.position]).tobytes())
        return digest.hexdigest()[: 2 * _KEY_BYTES]
