"""From rows as the store has them to memories: the rules of the export, applied at once.

What belongs here: calling those rules and comparing with the snapshot. What does not: the rules
(noctuary.corpus.sift), finding the rows (`sqlite_look`, `postgres_look`). They are loaded when
there is a row to judge: most recalls find none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from noctuary.immutable import FileIdentity, identify
from noctuary.live.found import Found
from noctuary.live.state import PARTIAL, LiveRow, LiveState
from noctuary.settings import CorpusSettings
from noctuary.types import MemoryRecord

if TYPE_CHECKING:
    from noctuary.injection.known import KnownInjections

KEPT_TOKENS = 4_096
"""Rows whose tokens are kept for later looks of this process: some kilobytes each."""


class HoldsMemories(Protocol):
    """A snapshot, as far as a comparison needs it."""

    def content_hashes(self, memory_ids: Iterable[str]) -> dict[str, str]:
        """Return the content hash of every known id (as text)."""
        ...

    def contents(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the text of every known id (as text)."""
        ...

    def all_memory_ids(self) -> list[str]:
        """Return every id, as text, in any order."""
        ...


def judge(
    found: Found,
    snapshot: HoldsMemories,
    settings: CorpusSettings,
    injections: Path,
    until_s: float,
) -> LiveState:
    """Return what of a look may be searched, and what of the snapshot may not be any more.

    A row that would not be exported (sensitive, set aside, deleted) is not searched, and a snapshot
    memory of its id is hidden. A row that is what the snapshot holds changes nothing.

    Args:
        found: The look.
        snapshot: What it is compared with.
        settings: Those that the snapshot was made with.
        injections: `StorePaths.injections`, to know what recall put into prompts itself.
        until_s: `time.perf_counter` after which no further row is cut into words.
    """
    asked = [str(key) for key in (*found.rows, *found.withheld)]
    known = snapshot.content_hashes(asked)
    memories = _memories(found, snapshot, settings, injections) if found.rows else []
    same = {m.memory_id for m in memories if known.get(m.memory_id) == m.content_hash}
    hidden = {i for i in asked if i in known and i not in same} | _lost(found, snapshot)
    fresh = [m for m in memories if m.memory_id not in same]
    rows, left_out = _indexed(fresh, until_s)
    missed = [found.missed] if found.missed else []
    if left_out:
        missed.append("the time was over before all new and changed rows were read")
    faults = () if not missed else ((PARTIAL, "; ".join(missed)),)
    return LiveState(tuple(rows), tuple(sorted(hidden)), faults)


def _memories(
    found: Found, snapshot: HoldsMemories, settings: CorpusSettings, injections: Path
) -> list[MemoryRecord]:
    from noctuary.corpus.sift import Tally, sift
    from noctuary.corpus.source import RawRow
    from noctuary.injection.recogniser import EchoGuard
    from noctuary.injection.wording import hash_exact

    held = snapshot.contents([str(key) for key in found.rows])
    guard = EchoGuard(
        _known_injections(injections, identify(injections)),
        {memory_id: hash_exact(content) for memory_id, content in held.items()},
    )
    rows = (RawRow(f"id {key}", key, fields) for key, fields in sorted(found.rows.items()))
    return list(
        sift(
            rows,
            now_us=time.time_ns() // 1000,
            settings=settings,
            tally=Tally(),
            quarantine=lambda _: None,
            guard=guard,
        )
    )


@lru_cache(maxsize=4)
def _known_injections(path: Path, _identity: FileIdentity | None) -> KnownInjections:
    from noctuary.injection.known import read_injections

    return read_injections(path)


def _lost(found: Found, snapshot: HoldsMemories) -> set[str]:
    """Return ids of the snapshot that the store has no more.

    Turns of agents' transcripts have negative ids and were never in it.
    """
    if found.ids is None:
        return set()
    return {i for i in snapshot.all_memory_ids() if not i.startswith("-") and i not in found.ids}


def _indexed(memories: Sequence[MemoryRecord], until_s: float) -> tuple[list[LiveRow], int]:
    """Return the rows by id, the newest ones where the time does not suffice, and the rest's count.

    The first is always read: a look that is always too slow must still see what is newest.
    """
    rows: list[LiveRow] = []
    for memory in reversed(memories):
        if rows and time.perf_counter() > until_s:
            break
        rows.append(LiveRow.of(memory, _tokens(*(getattr(memory, name) for name in _INDEXED))))
    rows.reverse()
    return rows, len(memories) - len(rows)


_INDEXED = ("content", "tags", "expanded_keywords", "category")


@lru_cache(maxsize=KEPT_TOKENS)
def _tokens(content: str, tags: str, keywords: str, category: str) -> tuple[str, ...]:
    from noctuary.lexical.fields import document_tokens

    return tuple(document_tokens(content, tags, keywords, category))


def corpus_settings(kept: Mapping[str, Any]) -> CorpusSettings:
    """Return the corpus settings of a manifest, so that rows are judged as that night judged."""
    plain = CorpusSettings()
    categories = kept.get("turn_categories", plain.turn_categories)
    largest = kept.get("max_content_bytes", plain.max_content_bytes)
    return CorpusSettings(tuple(categories), int(largest))
