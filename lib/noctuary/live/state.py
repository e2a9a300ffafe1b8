"""What a look into the store found: rows to search beside the snapshot, memories to hide from it.

What belongs here: the nouns and their form in a replay packet. What does not: looking (`looking`),
judging rows (`judging`), ranking them (noctuary.recall.overlay).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noctuary.hashing import hash_text
from noctuary.types import MemoryRecord

UNREACHABLE = "live_unreachable"
"""Warning code: the store could not be looked into, the snapshot answers alone."""

PARTIAL = "live_partial"
"""Warning code: the look did not see all that it looks for."""

_DIGEST_CHARS = 16
_NOT_KEPT = ("content", "expanded_keywords")


class LiveRow(NamedTuple):
    """One memory as the store has it now.

    Attributes:
        memory: Judged by the rules of the export; its position means nothing.
        counts: Token -> how often it stands in what would be indexed; digests in a replay.
        length: Tokens, repeats included.
    """

    memory: MemoryRecord
    counts: Mapping[str, int]
    length: int

    @staticmethod
    def of(memory: MemoryRecord, tokens: Sequence[str]) -> LiveRow:
        """Return a row that is indexed under these tokens."""
        return LiveRow(memory, Counter(tokens), len(tokens))


class LiveState(NamedTuple):
    """What differs between a snapshot and its store.

    Attributes:
        rows: New and changed memories by ascending id.
        hidden: Ids, as text, of the snapshot's memories that the store changed, lost or marked
            sensitive since.
        faults: Warnings, as (code, message); no text of a row.
        hashed: Whether `LiveRow.counts` holds `token_digest`s, as in a replay.
    """

    rows: tuple[LiveRow, ...] = ()
    hidden: tuple[str, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()
    hashed: bool = False

    @property
    def changes_nothing(self) -> bool:
        """Say whether the snapshot is all there is to search."""
        return not self.rows and not self.hidden


def token_digest(token: str) -> str:
    """Return what stands for a token in a replay packet."""
    return hash_text(token)[:_DIGEST_CHARS]


def record_state(state: LiveState) -> dict[str, Any]:
    """Return a state for a replay packet: JSON values, no text of a memory.

    Tokens are kept as digests: they are enough to rank a memory again.
    """
    return {
        "rows": [_record_row(row, hashed=state.hashed) for row in state.rows],
        "hidden": list(state.hidden),
        "faults": [list(fault) for fault in state.faults],
    }


def read_state(record: Mapping[str, Any]) -> LiveState:
    """Return the state that `record_state` kept; contents are empty.

    Raises:
        KeyError, TypeError, ValueError: If the record is damaged.
    """
    unknown = dict.fromkeys(_NOT_KEPT, "")
    rows = tuple(
        LiveRow(
            MemoryRecord(**row["memory"], **unknown),
            {str(token): int(count) for token, count in row["counts"].items()},
            int(row["length"]),
        )
        for row in record["rows"]
    )
    faults = tuple((str(code), str(message)) for code, message in record["faults"])
    return LiveState(rows, tuple(record["hidden"]), faults, hashed=True)


def _record_row(row: LiveRow, *, hashed: bool) -> dict[str, Any]:
    memory = {
        name: getattr(row.memory, name) for name in MemoryRecord.__slots__ if name not in _NOT_KEPT
    }
    counts = row.counts if hashed else {token_digest(t): n for t, n in row.counts.items()}
    return {"memory": memory, "counts": dict(counts), "length": row.length}
