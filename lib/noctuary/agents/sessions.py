"""What was injected into a session: ids, hashes and scores, in one small file per session.

What belongs here: the state and its file. What does not: what is injected (`handling`). No text of
a memory or of a prompt has a place in it. Two hooks of one session that end at the same moment keep
the state of the later one; what that loses is injected once more.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.agents.small_files import make_private, read_json, replace_json

VERSION = 1

MAX_INJECTED = 500
"""Memories remembered per session; what was injected first is forgotten first, and may then be
injected again. More makes the file that every prompt reads longer (some 60 bytes each)."""

KEPT_DAYS = 30
"""How long a session's file is kept after its last injection; agents keep transcripts as long."""

MAX_FILES = 2_000
"""Sessions kept at most; the ones that were quiet for longest go first."""

_MAX_BYTES = 1_000_000
_HASH_CHARS = 16
_NAME_CHARS = 32
_DAY_S = 86_400


class Injected(NamedTuple):
    """One memory that was injected.

    Attributes:
        memory_id: As text.
        text_hash: Of its content: an edited memory is another one.
        score: Its final score when it was injected, in [0, 1].
        in_context: Whether the model still has it before it; a compaction takes it away.
    """

    memory_id: str
    text_hash: str
    score: float
    in_context: bool = True


class SessionState(NamedTuple):
    """A session, as far as hooks remember it.

    Attributes:
        injected: In order of injection, at most `MAX_INJECTED`.
        compactions: How often the agent has compacted its context.
    """

    injected: tuple[Injected, ...] = ()
    compactions: int = 0

    def knows(self, memory: Mapping[str, Any]) -> bool:
        """Tell whether a memory of an answer is before the model already."""
        key = (str(memory.get("id")), hash_content(memory))
        return any(i.in_context and (i.memory_id, i.text_hash) == key for i in self.injected)

    def with_injected(self, memories: Sequence[Mapping[str, Any]]) -> SessionState:
        """Return the state after some memories of an answer were injected."""
        new = [_injected(memory) for memory in memories]
        best = {(i.memory_id, i.text_hash): i.score for i in self.injected}
        keys = {(i.memory_id, i.text_hash) for i in new}
        kept = [i for i in self.injected if (i.memory_id, i.text_hash) not in keys]
        added = [
            i._replace(score=max(i.score, best.get((i.memory_id, i.text_hash), 0.0))) for i in new
        ]
        return self._replace(injected=(*kept, *added)[-MAX_INJECTED:])

    def compacted(self) -> SessionState:
        """Return the state after the agent has compacted: nothing injected is before it any more.

        What PreCompact and SessionStart both tell of is counted once, by SessionStart.
        """
        gone = tuple(i._replace(in_context=False) for i in self.injected)
        return SessionState(gone, self.compactions + 1)

    def best_first(self) -> tuple[Injected, ...]:
        """Return what was injected, by falling score; of equal ones the later first."""
        return tuple(sorted(reversed(self.injected), key=lambda i: -i.score))


def hash_content(memory: Mapping[str, Any]) -> str:
    """Return a hash of the content of a memory of an answer."""
    raw = str(memory.get("content", "")).encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).hexdigest()[:_HASH_CHARS]


def session_file(directory: Path, agent: str, session_id: str) -> Path:
    """Return the file of a session; its name tells nothing about it."""
    raw = f"{agent}\0{session_id}".encode("utf-8", "surrogatepass")
    return directory / f"{hashlib.sha256(raw).hexdigest()[:_NAME_CHARS]}.json"


def read_session(path: Path) -> SessionState:
    """Return what is remembered of a session; nothing where the file is missing or damaged."""
    found, fault = read_json(path, _MAX_BYTES)
    if fault is not None or not isinstance(found, dict):
        return SessionState()
    raw = cast("dict[str, Any]", found)
    rows, compactions = raw.get("injected"), raw.get("compactions")
    if raw.get("version") != VERSION or not isinstance(rows, list):
        return SessionState()
    parsed = (_parse(row) for row in cast("list[Any]", rows)[-MAX_INJECTED:])
    count = compactions if isinstance(compactions, int) and compactions >= 0 else 0
    return SessionState(tuple(i for i in parsed if i is not None), count)


def write_session(path: Path, state: SessionState) -> bool:
    """Replace the file of a session; tell whether that worked."""
    rows = [[i.memory_id, i.text_hash, i.score, i.in_context] for i in state.injected]
    value = {"version": VERSION, "compactions": state.compactions, "injected": rows}
    return make_private(path.parent) and replace_json(path, value)


def prune_sessions(directory: Path, *, now_s: float | None = None) -> int:
    """Delete files of sessions that were quiet for long; return how many. Never raises."""
    now_s = time.time() if now_s is None else now_s
    deleted = 0
    with suppress(OSError):
        found: list[tuple[float, Path]] = []
        for path in directory.iterdir():
            with suppress(OSError):
                found.append((path.lstat().st_mtime, path))
        found.sort(reverse=True)
        for place, (changed_s, path) in enumerate(found):
            if place >= MAX_FILES or changed_s < now_s - KEPT_DAYS * _DAY_S:
                with suppress(OSError):
                    path.unlink()
                    deleted += 1
    return deleted


def _injected(memory: Mapping[str, Any]) -> Injected:
    score = memory.get("final_score")
    is_number = isinstance(score, int | float) and math.isfinite(score)
    return Injected(
        str(memory.get("id")),
        hash_content(memory),
        round(float(cast("float", score)), 6) if is_number else 0.0,
    )


def _parse(row: Any) -> Injected | None:
    if not isinstance(row, list) or len(cast("list[Any]", row)) != 4:
        return None
    memory_id, text_hash, score, in_context = cast("list[Any]", row)
    if not isinstance(memory_id, str) or not isinstance(text_hash, str):
        return None
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        return None
    return Injected(memory_id, text_hash, float(score), in_context is True)
