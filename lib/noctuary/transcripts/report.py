"""What an ingest did, as counts: nothing of what was said.

What belongs here: the report and the names of its counts. What does not: doing it. Standard
library only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Skip(StrEnum):
    """Why a line gave no turn; the first reason that applies."""

    BAD_JSON = "bad_json"
    """Not JSON, or no object."""
    TOO_LONG = "too_long"
    """Longer than a line that is read, encoded images aside."""
    OTHER_TYPE = "other_type"
    """Bookkeeping of the agent, or a kind of line that this version does not know."""
    META = "meta"
    """Written by the agent in its user's place."""
    COMPACT_SUMMARY = "compact_summary"
    """What the agent made of earlier turns: derived, and those are kept themselves."""
    COMPACT_BOUNDARY = "compact_boundary"
    """Where the agent compacted its context."""
    SIDECHAIN = "sidechain"
    """Said by or to a subagent."""
    SYNTHETIC = "synthetic"
    """An error of the interface in an answer's place."""
    NO_CONTENT = "no_content"
    """Nothing of anybody's own in it: wrappers, injected memories, reasoning, images."""
    ORPHAN = "orphan"
    """The result of a tool call that is not kept."""


@dataclass(slots=True)
class IngestReport:
    """The account of one ingest.

    Attributes:
        files: Files that were looked at.
        unchanged: Those of them that nothing was read of.
        restarted: Those that were read from their beginning again: truncated, replaced, rewritten.
        bytes_read: Bytes of the lines that were read.
        lines: Lines that were read.
        turns: Turns that were new.
        parts: Texts, tool calls and results that were new or changed.
        sensitive: Turns that turned out to hold a secret: of them only the id is kept.
        withheld: Tool calls and results whose text was not kept because of a secret.
        cut: Texts that were too long and were cut.
        skipped: Why lines gave no turn (`Skip`) to how many.
        faults: A sentence for each file or folder that could not be read.
        is_complete: False where a deadline or a fault came before the end.
    """

    files: int = 0
    unchanged: int = 0
    restarted: int = 0
    bytes_read: int = 0
    lines: int = 0
    turns: int = 0
    parts: int = 0
    sensitive: int = 0
    withheld: int = 0
    cut: int = 0
    skipped: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])
    is_complete: bool = True

    def fail(self, sentence: str) -> None:
        """Note that something could not be read."""
        self.faults.append(sentence)
        self.is_complete = False

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values, reasons sorted."""
        names = (
            "files", "unchanged", "restarted", "bytes_read", "lines", "turns", "parts",
            "sensitive", "withheld", "cut", "is_complete",
        )  # fmt: skip
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        return {
            **found,
            "skipped": {str(reason): n for reason, n in sorted(self.skipped.items())},
            "faults": list(self.faults),
        }
