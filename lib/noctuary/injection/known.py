"""What the night knows of past injections: the record read into memory, looked up by wording.

What belongs here: reading `injected.sqlite` and finding a recorded wording in a sequence of words.
What does not: the rules for a row (`recogniser`). Build side.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from noctuary.injection.record import ASKED, LOOKUP, RECORD, SHORT
from noctuary.injection.wording import ANCHOR_WORDS, hash_anchor, hash_words

_READ = "SELECT kind, text_hash, memory_hash, user_hash, anchor, words, first_us FROM injected"


class Occurrence(NamedTuple):
    """One wording of one memory, as it was injected.

    Attributes:
        memory_hash: Of the id of the memory that it came from, or `NOBODY`.
        user_hash: Of the user that the memory belongs to, or `NOBODY`.
        first_us: When it was first injected, microseconds since the epoch.
    """

    memory_hash: bytes
    user_hash: bytes
    first_us: int


@dataclass(frozen=True, slots=True)
class KnownInjections:
    """All recorded wordings; about 300 bytes each.

    Attributes:
        occurrences: Hash of a wording -> where it came from.
        lengths: Anchor -> lengths in words of the wordings that begin with it, longest first.
        short: Hashes of wordings that count beside longer ones only.
        asked: Hashes of questions.
        lookups: Hashes of prompts that only asked memory -> when first, microseconds since the
            epoch.
        fault: Why the record could not be read, or None.
    """

    occurrences: Mapping[bytes, tuple[Occurrence, ...]] = field(
        default_factory=dict[bytes, tuple[Occurrence, ...]]
    )
    lengths: Mapping[bytes, tuple[int, ...]] = field(default_factory=dict[bytes, tuple[int, ...]])
    short: frozenset[bytes] = frozenset()
    asked: frozenset[bytes] = frozenset()
    lookups: Mapping[bytes, int] = field(default_factory=dict[bytes, int])
    fault: str | None = None

    def find(
        self,
        words: Sequence[str],
        start: int,
        counts: Callable[[tuple[Occurrence, ...]], bool],
    ) -> tuple[bytes, int] | None:
        """Return the longest recorded wording that begins at a word: its hash and where it ends.

        Args:
            words: The words of a text.
            start: Index into them.
            counts: Whether a wording of these origins is to be found.
        """
        longest = min(ANCHOR_WORDS, len(words) - start)
        for anchored in range(longest, 0, -1):
            for length in self.lengths.get(hash_anchor(words[start : start + anchored]), ()):
                if min(length, ANCHOR_WORDS) != anchored or start + length > len(words):
                    continue
                text_hash = hash_words(words[start : start + length])
                if text_hash in self.occurrences and counts(self.occurrences[text_hash]):
                    return text_hash, start + length
        return None


def read_injections(path: Path) -> KnownInjections:
    """Return what was ever injected and not pruned; a missing record is an empty one.

    A record that cannot be read is an empty one with a `fault`.
    """
    if not path.exists():
        return KnownInjections()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as record:
            version = record.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                return KnownInjections()  # being made at this moment
            if version != RECORD.version:
                fault = f"{path.name} has format {version}, expected {RECORD.version}"
                return KnownInjections(fault=fault)
            return _collect(record.execute(_READ))
    except sqlite3.Error as error:
        return KnownInjections(fault=f"{path.name} cannot be read: {error}")


def _collect(rows: Iterable[tuple[str, bytes, bytes, bytes, bytes, int, int]]) -> KnownInjections:
    occurrences: dict[bytes, list[Occurrence]] = defaultdict(list)
    lengths: dict[bytes, set[int]] = defaultdict(set)
    asked: set[bytes] = set()
    lookups: dict[bytes, int] = {}
    short: set[bytes] = set()
    for kind, text_hash, memory_hash, user_hash, anchor, words, first_us in rows:
        if kind == ASKED:
            asked.add(text_hash)
            continue
        if kind == LOOKUP:
            lookups[text_hash] = first_us
            continue
        if kind == SHORT:
            short.add(text_hash)
        occurrences[text_hash].append(Occurrence(memory_hash, user_hash, first_us))
        lengths[anchor].add(words)
    return KnownInjections(
        {text_hash: tuple(found) for text_hash, found in occurrences.items()},
        {anchor: tuple(sorted(found, reverse=True)) for anchor, found in lengths.items()},
        frozenset(short),
        frozenset(asked),
        lookups,
    )
