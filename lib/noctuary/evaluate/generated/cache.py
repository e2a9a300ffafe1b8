"""What has been answered before, so that a night asks only for what is new.

What belongs here: the protocol that the caller implements, and the keys. What does not: storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from noctuary.evaluate.generated.prompts import PROMPT_VERSION, Prompt
from noctuary.hashing import hash_text
from noctuary.types import MemoryRecord


class Cache(Protocol):
    """A durable map; `put` is called after every batch, so that a killed night loses one at most.

    Values hold queries that models wrote about memories: they are to be deleted with these
    (`Generated.keys` names the ones still in use).
    """

    def get(self, key: str) -> bytes | None:
        """Return a value, or None where there is none."""
        ...

    def put(self, key: str, value: bytes) -> None:
        """Store a value durably."""
        ...


def written_key(prompt: Prompt, records: Sequence[MemoryRecord], generator_model: str) -> str:
    """Return the key of a query: prompt, generator and what is known of the memories.

    The judge is no part of it: another judge grades the same queries again.
    """
    return hash_text(
        "written", PROMPT_VERSION, prompt.name, generator_model, *map(_hash_memory, records)
    )


def grade_key(query: str, record: MemoryRecord, generator_model: str, judge_model: str) -> str:
    """Return the key of a grade: both models, the query and what is known of the memory."""
    return hash_text(
        "grade", PROMPT_VERSION, generator_model, judge_model, query, _hash_memory(record)
    )


def _hash_memory(record: MemoryRecord) -> str:
    """Hash what a prompt and the overlap depend on: a changed importance asks nothing anew."""
    return hash_text(record.content, record.expanded_keywords)
