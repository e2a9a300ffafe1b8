"""What a recall of sensitive rows returns; it hides what it holds until it is asked to reveal it.

What belongs here: the two result types. What does not: finding rows, printing.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, NoReturn

from noctuary.values import dataclass


class _NeverStored:
    """Refuses to be pickled or copied: that is how values reach files, caches and other processes.

    Also `json.dumps` refuses it, because it is no plain value.
    """

    __slots__ = ()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is never stored or sent: call reveal() where it is shown"
        )


@dataclass(frozen=True, slots=True)
class SensitiveMemory(_NeverStored):
    """One row that matched; `repr` shows its id, why it is sensitive and its score.

    Attributes:
        memory_id: The store's own id, as text.
        reason: Why it never leaves the store (noctuary.text.sensitivity_marks).
        score: BM25 among the sensitive rows, > 0.
        content: The text as the store has it.
        category: The store's category.
        tags: Comma-separated.
        created_at: ISO 8601, or None where undated.
        user: Whose row it is, or None.
        vault_path: Where the server keeps what it took out of the text, or None.
    """

    memory_id: str
    reason: str
    score: float
    content: str = field(repr=False)
    category: str = field(repr=False)
    tags: str = field(repr=False)
    created_at: str | None = field(repr=False)
    user: str | None = field(repr=False)
    vault_path: str | None = field(repr=False)

    def reveal(self) -> dict[str, Any]:
        """Return every field as plain values, to be shown and forgotten."""
        return {
            "id": self.memory_id,
            "reason": self.reason,
            "score": self.score,
            "content": self.content,
            "category": self.category,
            "tags": self.tags,
            "created_at": self.created_at,
            "user": self.user,
            "vault_path": self.vault_path,
        }


@dataclass(frozen=True, slots=True)
class SensitiveAnswer(_NeverStored):
    """What a recall of sensitive rows found.

    Attributes:
        memories: Best first.
        source: The store that was read; no password.
        searched: Sensitive rows that this user may see, whether they matched or not.
    """

    memories: tuple[SensitiveMemory, ...]
    source: str
    searched: int

    def reveal(self) -> dict[str, Any]:
        """Return everything as plain values, to be shown and forgotten."""
        return {
            "source": self.source,
            "searched": self.searched,
            "memories": [memory.reveal() for memory in self.memories],
        }
