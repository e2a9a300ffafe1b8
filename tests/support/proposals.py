"""Memories by hand and what is proposed for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import MemoryRecord, content_hash
from noctuary.curate.finders import Materials, propose
from noctuary.curate.proposals import Proposal
from noctuary.graph.extract import extract
from noctuary.graph.tables import Evidence, Supersession


def ask(
    records: Sequence[MemoryRecord],
    supersessions: Sequence[Supersession] = (),
    vectors: NDArray[np.float32] | None = None,
) -> list[Proposal]:
    found = [extract(r.content, r.tags, r.expanded_keywords, is_turn=r.is_turn) for r in records]
    return propose(Materials(records, found, supersessions, {}, vectors))


def numbered(*records: MemoryRecord) -> list[MemoryRecord]:
    placed = [r._replace(position=n, memory_id=str(n + 1)) for n, r in enumerate(records)]
    return [r._replace(content_hash=content_hash(r)) for r in placed]


def told(proposals: Sequence[Proposal]) -> list[tuple[str, str, list[tuple[str, str]]]]:
    return [(p.action, p.kind, [(t.role, t.memory_id) for t in p.targets]) for p in proposals]


def text_of(records: Sequence[MemoryRecord]) -> dict[str, str]:
    return {r.memory_id: r.content for r in records}


def replaced(older: int, newer: int, **fields: object) -> Supersession:
    values = {
        "older_position": older, "newer_position": newer, "head_position": newer,
        "reason": "newer_value", "confidence": 2, "similarity": None, "age_gap_days": 9,
        "concept_id": "", "evidence": Evidence(newer, 0, 5), "valid_to_us": 0,
        "recorded_at_us": 0, **fields,
    }  # fmt: skip
    return Supersession(**values)  # pyright: ignore[reportArgumentType]
