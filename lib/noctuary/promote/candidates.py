"""Which turns of a corpus the gate hears, and which memories each of them is compared with.

What belongs here: users. A turn of a named user is compared with turns of that user, and with
memories of that user or of nobody, as a recall for that user would see them; a turn of nobody with
what is nobody's. Wings are no walls: what is said again in another project is said again. What does
not: reading the corpus from disk, comparing (`walk`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from noctuary.progress import SILENT, Progress
from noctuary.promote.neighbours import Floats, Ints
from noctuary.promote.signals import Signals, read_signals
from noctuary.promote.speakers import read_statement
from noctuary.promote.walk import Judged, walk
from noctuary.types import MemoryRecord

_TOLD_EVERY = 1_024
"""Turns between two reports of progress."""


class Heard(NamedTuple):
    """A turn that a person said: what the table knows of it. No text.

    Attributes:
        position: Its row.
        memory_id: The source's id.
        user: Whose it is, or None.
        wing: Its wing, or None.
        session_id: Its conversation, or None.
        created_at_us: Microseconds since the epoch, UNDATED_US where unknown.
        content_hash: Of the record, so that a listing can tell whether it is still the same.
        signals: What its words say.
    """

    position: int
    memory_id: str
    user: str | None
    wing: str | None
    session_id: str | None
    created_at_us: int
    content_hash: str
    signals: Signals


@dataclass(slots=True)
class Candidates:
    """What of a corpus takes part.

    Attributes:
        heard: The turns that people said, by user.
        memories: Positions of durable memories, by user.
        unheard: Turns that no person is known to have said.
    """

    heard: dict[str | None, list[Heard]] = field(
        default_factory=lambda: defaultdict[str | None, list[Heard]](list)
    )
    memories: dict[str | None, list[int]] = field(
        default_factory=lambda: defaultdict[str | None, list[int]](list)
    )
    unheard: int = 0

    def seen_by(self, user: str | None) -> Ints:
        """Return the positions of the durable memories that a user may see, ascending."""
        whose = {user, None}
        found = sorted(p for owner in whose for p in self.memories.get(owner, ()))
        return np.asarray(found, dtype=np.int64)


def find_candidates(records: Iterable[MemoryRecord]) -> Candidates:
    """Return the turns that count and the memories that they are compared with.

    A memory that its owner marked as superseded is durable too: what was known and replaced is no
    news.

    Args:
        records: The export, in any order; read once.
    """
    found = Candidates()
    for record in records:
        if not record.is_turn:
            found.memories[record.user].append(record.position)
            continue
        statement = read_statement(record.content)
        if statement is None:
            found.unheard += 1
        else:
            found.heard[record.user].append(_heard(record, statement))
    for turns in found.heard.values():
        turns.sort(key=lambda turn: (turn.created_at_us, turn.position))
    return found


def judge_turns(
    candidates: Candidates,
    vectors: Floats,
    threshold: float,
    progress: Progress = SILENT,
) -> Iterator[tuple[Heard, Judged]]:
    """Yield every heard turn with its judgement: by user, nobody first, then by time.

    Args:
        candidates: What takes part.
        vectors: Unit rows by position, shape (n, d).
        threshold: Least G of a proposal, in [0, 1].
        progress: Told how many turns are judged.
    """
    total = sum(len(turns) for turns in candidates.heard.values())
    done = 0
    for user in sorted(candidates.heard, key=lambda user: (user is not None, user or "")):
        turns = candidates.heard[user]
        judged = walk(
            np.asarray([turn.position for turn in turns], dtype=np.int64),
            [turn.signals for turn in turns],
            candidates.seen_by(user),
            vectors,
            threshold,
        )
        for pair in zip(turns, judged, strict=True):
            yield pair
            done += 1
            if done % _TOLD_EVERY == 0 or done == total:
                progress.update("judging turns", done, total)


def _heard(record: MemoryRecord, statement: str) -> Heard:
    return Heard(
        record.position,
        record.memory_id,
        record.user,
        record.wing,
        record.session_id,
        record.created_at_us,
        record.content_hash,
        read_signals(statement),
    )
