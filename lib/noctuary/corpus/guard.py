"""What the export asks about a row that is a memory otherwise: is any of it injected text?

What belongs here: the question and the shape of its answer. What does not: the rules
(`noctuary.injection.recogniser`) and what is done about the answer (`sift`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from noctuary.types import MemoryRecord


class Verdict(NamedTuple):
    """What becomes of a row.

    Attributes:
        text: The content to go on with; None where nothing of the row is its own.
        blocks: How many tagged blocks were in it.
        lines: How many injected lines were found and not let stand, blocks aside.
    """

    text: str | None
    blocks: int = 0
    lines: int = 0


class Guard(Protocol):
    """Knows what recall put into prompts."""

    def judge(self, record: MemoryRecord) -> Verdict:
        """Return what becomes of a row that is a memory otherwise."""
        ...
