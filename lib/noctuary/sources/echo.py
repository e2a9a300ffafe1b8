"""Detect rows of a source that only repeat memories which recall injected."""

from __future__ import annotations

import json
import re
import sqlite3
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from noctuary.core.errors import StoreError
from noctuary.core.sqlite import connect_immutable, delete_rows, open_log
from noctuary.core.types import DAY_US, UNDATED_US, MemoryRecord
from noctuary.sources.corpus import iter_batches
from noctuary.sources.injected import (
    ANCHOR_WORDS,
    ASKED,
    HASH_BYTES,
    LOOKUP,
    NOBODY,
    NOTES,
    PLACE,
    SHORT,
    cut_blocks,
    hash_anchor,
    hash_exact,
    hash_words,
    record_format,
    words_of,
)
from noctuary.text.marks import split_speaker


class ExportedContents:
    """Hashes of the ids and contents of an earlier export, 40 bytes a row; holds no text."""

    def __init__(self, rows: Iterable[tuple[str, str]] = ()) -> None:  # (memory id, content)
        self._unread = rows

    @cached_property
    def _rows(self) -> bytes:
        rows, self._unread = self._unread, ()
        try:
            return b"".join(sorted(hash_exact(m) + hash_exact(text) for m, text in rows))
        except (StoreError, sqlite3.Error):
            return b""

    @cached_property
    def _firsts(self) -> memoryview:
        # Python compares plain integers of a buffer quicker than slices of bytes.
        return np.frombuffer(self._rows, ">u8")[:: 2 * HASH_BYTES // 8].astype("u8").data

    @classmethod
    def read(cls, memories: Path | None, serving: Path | None = None) -> ExportedContents:
        """Read an export, else the serving snapshot, when first asked; empty if neither can be."""
        return cls(_exported_rows(memories, serving))

    def __len__(self) -> int:
        return len(self._rows) // (2 * HASH_BYTES)

    def __contains__(self, memory_id: object) -> bool:
        return isinstance(memory_id, str) and self.get(memory_id) is not None

    def get(self, memory_id: str, /) -> bytes | None:
        """Return the hash (`hash_exact`) of the content stored under an id, or None."""
        wanted = hash_exact(memory_id)
        first = int.from_bytes(wanted[:8], "big")
        place = bisect_left(self._firsts, first)
        while place < len(self) and self._firsts[place] == first:
            row = self._rows[place * 2 * HASH_BYTES : (place + 1) * 2 * HASH_BYTES]
            if row.startswith(wanted):
                return row[HASH_BYTES:]
            place += 1
        return None


def _exported_rows(memories: Path | None, serving: Path | None) -> Iterator[tuple[str, str]]:
    if memories is not None:
        for batch in iter_batches(memories, ("memory_id", "content")):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
    elif serving is not None:
        with closing(connect_immutable(serving)) as rows:
            yield from rows.execute("SELECT memory_id, content FROM memories")


class Occurrence(NamedTuple):
    """One injection of a memory's wording: hashes of its id and user, and when first."""

    memory_hash: bytes  # Hash of the memory's id, or `NOBODY`
    user_hash: bytes  # Hash of the memory's user, or `NOBODY`
    first_us: int  # When it was first injected, microseconds since the epoch


@dataclass(slots=True)
class KnownInjections:
    """The record of past injections in memory, by wording; about 300 bytes each."""

    # Hash of a wording -> its injections
    occurrences: dict[bytes, list[Occurrence]] = field(
        default_factory=dict[bytes, list[Occurrence]]
    )
    lengths: dict[bytes, set[int]] = field(default_factory=dict[bytes, set[int]])  # By anchor
    short: set[bytes] = field(default_factory=set[bytes])  # Count only together with longer ones
    asked: set[bytes] = field(default_factory=set[bytes])  # Questions
    # Prompts that only queried memory -> when first, microseconds since the epoch
    lookups: dict[bytes, int] = field(default_factory=dict[bytes, int])
    fault: str | None = None  # Why the record could not be read, or None

    def find(
        self, words: Sequence[str], start: int, counts: Callable[[Sequence[Occurrence]], bool]
    ) -> tuple[bytes, int] | None:
        """Return hash and end of the longest recorded wording at a word that `counts` accepts."""
        longest = min(ANCHOR_WORDS, len(words) - start)
        for anchored in range(longest, 0, -1):
            lengths = self.lengths.get(hash_anchor(words[start : start + anchored]), ())
            for length in sorted(lengths, reverse=True):
                if min(length, ANCHOR_WORDS) != anchored or start + length > len(words):
                    continue
                text_hash = hash_words(words[start : start + length])
                if text_hash in self.occurrences and counts(self.occurrences[text_hash]):
                    return text_hash, start + length
        return None


def read_injections(path: Path) -> KnownInjections:
    """Read the record of injections; an unreadable one is returned empty, with a `fault`."""
    known = KnownInjections()
    columns = "kind, text_hash, memory_hash, user_hash, first_us, anchor, words"
    try:
        with closing(open_log(path, record_format(), or_empty=True)) as record:
            for kind, text_hash, *origin, anchor, words in record.execute(
                f"SELECT {columns} FROM injected"
            ):
                if kind == ASKED:
                    known.asked.add(text_hash)
                elif kind == LOOKUP:
                    known.lookups[text_hash] = origin[-1]
                else:
                    known.occurrences.setdefault(text_hash, []).append(Occurrence(*origin))
                    known.lengths.setdefault(anchor, set()).add(words)
                if kind == SHORT:
                    known.short.add(text_hash)
    except sqlite3.Error as error:
        return KnownInjections(fault=f"{path.name} cannot be read: {error}")
    return known


# Decide whether a row of the source was injected by recall: the rules, in this order. Build side.
#
#     1. Tagged blocks are cut (`cut_blocks`). If only a speaker's name is left: quarantined.
#     2. A row that the previous export held with exactly this text stays.
#     3. A turn that only queries memory (`lookups`) is quarantined: it would rank above its own
#        answers. Not if it was made long before that query.
#     4. A row that is the origin of a matching wording stays, whatever its timestamp.
#     5. A turn with the wording of a recorded question stays: a person typed it.
#     6. A line is injected if recorded wordings cover it, after bullets, numbers, quotes, ids,
#        days and neutral labels. Short ones count only together with a longer one. A wording does
#        not count for rows dated more than `CLOCK_OFFSET_US` before it, nor between named users.
#     7. All lines injected: the row is quarantined. At least `MOSTLY` of the words: those lines
#        are cut. Less: it is a quotation, and all of it stays.

# Share of a row's words in injected lines from which these are cut; a lower share cuts quotes.
MOSTLY = 0.8
# A row dated longer than this before an injection cannot repeat it: the widest time zone, because
# timestamps without an offset are read as UTC. A narrower one lets echoes with local times in.
CLOCK_OFFSET_US = 14 * 3_600_000_000
# Labels before a colon that do not change the meaning of the text after; "outdated:" would.
NEUTRAL_LABELS = frozenset(
    {
        "fact", "from memory", "memories", "memory", "note", "note to self", "notes", "recalled",
        "recalled memories", "recalled memory", "remember", "saved memory", "assistant", "user",
    }
)  # fmt: skip

_HEAD = re.compile(
    r"[\s>#*+•–—-]*(?:\d{1,3}[.)]\s+)?(?:\[[^\]\n]{0,6144}\]\s*)?"
    # A place counts only with its colon: people put remarks in parentheses as well.
    rf"(?:(?:\d{{4}}-\d{{2}}-\d{{2}}|undated)(?:{PLACE}(?=:))?:?\s+)?"
)
_NOTE_WORDS = [words_of(note) for note in NOTES]


class _Line(NamedTuple):
    """One line of a row, with its word positions."""

    text: str  # Verbatim
    start: int  # Index of its first word among the row's words
    end: int  # Index after its last word
    starts: tuple[int, ...]  # Where a wording may begin: its first word, or after a label
    is_empty: bool  # Whether it has no content: no word, the note of a block, or a label alone


class Verdict(NamedTuple):
    """The text of a row to keep, and counts of the parts cut from it."""

    text: str | None  # The content to keep; None to quarantine a row without own text
    blocks: int = 0  # Number of tagged blocks in it
    lines: int = 0  # Number of injected lines that were cut, apart from blocks


Exported = ExportedContents | Mapping[str, bytes]
"""Hashes (`hash_exact`) of contents by memory id."""


class EchoGuard:
    """Finds injected text in the rows of one export, given past injections and the last export."""

    def __init__(self, known: KnownInjections, exported: Exported | None = None) -> None:
        # Wordings for which something was cut: pruning them would let the echo back in.
        self.used: set[bytes] = set()
        self._known = known
        self._exported: Exported = exported or {}

    def judge(self, record: MemoryRecord) -> Verdict:
        """Return the verdict on a row that is a memory otherwise: keep, cut or quarantine."""
        cut = cut_blocks(record.content)
        if cut.blocks and not _own_words(cut.text):
            return Verdict(None, cut.blocks)
        was_injected = self._known.lookups or self._known.occurrences
        if not was_injected or self._exported.get(record.memory_id) == hash_exact(cut.text):
            return Verdict(cut.text, cut.blocks)
        said = hash_words(_own_words(cut.text)) if record.is_turn else NOBODY
        asked_us = self._known.lookups.get(said)
        if asked_us is not None and _may_follow(record, asked_us):
            self.used.add(said)
            return Verdict(None, cut.blocks, 1)
        if not self._known.occurrences:
            return Verdict(cut.text, cut.blocks)
        words, lines = _split(cut.text, is_turn=record.is_turn)
        found = self._injected_lines(record, words, lines)
        typed = (cut.text, split_speaker(cut.text)[1]) if record.is_turn else ()
        if not found or any(hash_words(words_of(text)) in self._known.asked for text in typed):
            return Verdict(cut.text, cut.blocks)
        sizes = {i: x.end - x.start for i, x in enumerate(lines) if not x.is_empty}
        if sum(sizes[i] for i in found) / sum(sizes.values()) < MOSTLY:
            return Verdict(cut.text, cut.blocks)
        self.used.update(*found.values())
        rest = [x.text for i, x in enumerate(lines) if i not in found and not x.is_empty]
        return Verdict("\n".join(rest) if rest else None, cut.blocks, len(found))

    def _injected_lines(
        self, record: MemoryRecord, words: Sequence[str], lines: Sequence[_Line]
    ) -> dict[int, set[bytes]]:
        """Map injected lines of a row, by index, to their wordings; {} if it is the original."""
        own_id, is_original = hash_exact(record.memory_id), False
        user = NOBODY if record.user is None else hash_exact(record.user)

        def counts(occurrences: Sequence[Occurrence]) -> bool:
            nonlocal is_original
            is_original = is_original or any(x.memory_hash == own_id for x in occurrences)
            return any(
                (NOBODY in (user, x.user_hash) or user == x.user_hash)
                and _may_follow(record, x.first_us)
                for x in occurrences
            )

        ends = {line.end: i for i, line in enumerate(lines) if line.start < line.end}
        found: dict[int, set[bytes]] = {}
        done = -1
        for i, line in enumerate(lines):
            if i <= done or line.is_empty:
                continue
            tiled = self._tile(words, line.starts, ends, counts)
            if is_original:
                return {}
            if tiled is not None:
                done, hashes = tiled
                found.update((j, hashes) for j in range(i, done + 1) if not lines[j].is_empty)
        # Short wordings alone may be coincidence.
        return found if set().union(*found.values()) - self._known.short else {}

    def _tile(
        self,
        words: Sequence[str],
        starts: Sequence[int],
        ends: Mapping[int, int],
        counts: Callable[[Sequence[Occurrence]], bool],
    ) -> tuple[int, set[bytes]] | None:
        """Cover a line from a start with recorded wordings; return where they end, and hashes."""
        for place in starts:
            hashes = set[bytes]()
            while (match := self._known.find(words, place, counts)) is not None:
                hashes.add(match[0])
                place = match[1]
                if place in ends:
                    return ends[place], hashes
        return None


def _may_follow(record: MemoryRecord, moment_us: int) -> bool:
    """Return whether a row may have been made after a moment, in any time zone."""
    made_us = record.created_at_us
    return made_us == UNDATED_US or made_us >= moment_us - CLOCK_OFFSET_US


def _split(text: str, *, is_turn: bool) -> tuple[list[str], list[_Line]]:
    words: list[str] = []
    lines: list[_Line] = []
    for raw in text.splitlines():
        own = words_of(raw)
        start, end = len(words), len(words) + len(own)
        rest = _HEAD.sub("", raw, count=1)
        starts = {start, end - len(words_of(rest)) if len(rest) < len(raw) else start}
        is_label = False
        label, said = split_speaker(f"{rest}\n")
        may_speak = is_turn and not lines
        if label is not None and (may_speak or label.casefold() in NEUTRAL_LABELS):
            spoken = words_of(_HEAD.sub("", said, count=1))
            starts.add(end - len(spoken))
            is_label = not spoken
        is_empty = not own or own in _NOTE_WORDS or is_label
        lines.append(_Line(raw, start, end, tuple(sorted(starts - {end})), is_empty))
        words += own
    return words, lines


def _own_words(text: str) -> list[str]:
    """Return the words of a text without its speaker's name."""
    speaker, said = split_speaker(f"{text}\n")
    return words_of(said if speaker is not None else text)


# How long a wording is kept after its last injection; agents keep transcripts some 30 days.
RETENTION_DAYS = 90


def prune_injections(path: Path, *, used: Collection[bytes], now_us: int) -> tuple[int, str | None]:
    """Delete wordings neither injected for `RETENTION_DAYS` nor used; return count and fault."""
    key = "kind, text_hash, memory_hash, user_hash"
    # Evaluated again for every batch: a recall may have injected them again meanwhile.
    where = "last_us < ? AND lower(hex(text_hash)) NOT IN (SELECT value FROM json_each(?))"
    values = (now_us - RETENTION_DAYS * DAY_US, json.dumps([text.hex() for text in used]))
    return delete_rows(path, record_format(), "injected", key, where, values)
