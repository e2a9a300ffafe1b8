from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.types import MemoryRecord
from noctuary.graph.extract import Extraction, Found, Stated, extract
from noctuary.graph.fold import fold_name
from noctuary.graph.successors import DAY_US
from noctuary.graph.supersession import Supersessions, find_supersessions
from noctuary.graph.tables import StatedRelation
from tests.support.supersession import corpus_of

Says = tuple[str, StatedRelation, str]
Vectors = NDArray[np.float32]


class Note:
    """A memory of a test: its text, its day, and what an extractor reads in it."""

    def __init__(
        self,
        content: str,
        day: int | None = 0,
        *,
        says: Sequence[Says] = (),
        about: Sequence[str] = (),
        memory_id: str = "",
        **fields: object,
    ) -> None:
        self.content, self.day, self.says, self.about = content, day, says, about
        self.memory_id, self.fields = memory_id, fields

    def record(self, position: int) -> MemoryRecord:
        created = -(2**63) if self.day is None else self.day * DAY_US
        values: dict[str, object] = {
            "position": position,
            "memory_id": self.memory_id or f"m{position}",
            "content": self.content,
            "category": "",
            "tags": "",
            "expanded_keywords": "",
            "importance": 0.5,
            "created_at_us": created,
            "updated_at_us": created if self.day is None else created + 1,
            "session_id": None,
            "wing": None,
            "room": None,
            "user": None,
            "is_turn": False,
            "content_hash": hashlib.sha256(self.content.encode()).hexdigest(),
        }
        return MemoryRecord(**{**values, **self.fields})  # pyright: ignore[reportArgumentType]

    def extraction(self, record: MemoryRecord) -> Extraction:
        """What the extractor finds, or what the test says instead of its statements."""
        read = extract(record.content, record.tags, is_turn=record.is_turn)
        found = (*read.found, *(self._about(name) for name in self.about))
        return Extraction(found, tuple(self._stated(*said) for said in self.says))

    def _about(self, name: str) -> Found:
        return Found("about", "leading", fold_name(name), 0, len(name), name)

    def _stated(self, subject: str, relation: StatedRelation, thing: str) -> Stated:
        folded = thing if thing.startswith("#") else fold_name(thing)
        end = self.content.find(thing) + len(thing) if thing in self.content else len(self.content)
        return Stated(fold_name(subject), relation, folded, 0, end, subject, thing)


Find = Callable[..., Supersessions]


@pytest.fixture
def find() -> Find:
    """Find the supersessions of notes; positions are their order."""

    def of(*notes: Note, vectors: Vectors | None = None, **canonical_of: str) -> Supersessions:
        records = [note.record(position) for position, note in enumerate(notes)]
        extractions = [n.extraction(r) for n, r in zip(notes, records, strict=True)]
        return find_supersessions(corpus_of(records, extractions), canonical_of, vectors)

    return of


def pairs(result: Supersessions) -> list[tuple[int, int]]:
    return [(s.older_position, s.newer_position) for s in result.found]


def at_angles(*cosines_to_first: float) -> Vectors:
    """Unit rows in a plane: the first is the axis, the others have these cosines to it."""
    cosines = np.array([1.0, *cosines_to_first])
    return np.stack([cosines, np.sqrt(1.0 - cosines**2)], axis=1).astype(np.float32)
