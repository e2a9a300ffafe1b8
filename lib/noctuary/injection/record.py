"""The record of what was injected: hashes and times in `injected.sqlite`, written by readers.

What belongs here: the file's format and appending to it. What does not: making rows of a recall
(`injecting`), reading (`known`) and pruning (`retention`), which are the night's. No text of a
memory or of a question has a place in it. Appending never raises and waits a bounded time
(`noctuary.usage.log_writer`). Standard library only.

One row per wording, origin and user, however often it was injected: the file grows with what there
is to inject, not with the number of prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from noctuary.usage.log_writer import LogFormat, append_rows

NOBODY = b""
"""In the place of a user's hash: the memory belongs to nobody; of a memory's: no single origin."""

LINE = "line"
"""Kind of a row: the wording of one memory as it was rendered."""

SHORT = "short"
"""Kind of a row: the same of a memory so short that it counts beside a longer one only."""

BLOCK = "block"
"""Kind of a row: the wording of all memories of a block, one after the other."""

ASKED = "asked"
"""Kind of a row: the wording of a question. What somebody typed is no echo of its own answer."""

LOOKUP = "lookup"
"""Kind of a row: the wording of a prompt that only asks memory, and so is none itself."""

RECORD = LogFormat(
    noun="record of injections",
    event="this injection",
    version=1,
    schema="""
CREATE TABLE IF NOT EXISTS injected (
    kind TEXT NOT NULL,
    text_hash BLOB NOT NULL,
    memory_hash BLOB NOT NULL,
    user_hash BLOB NOT NULL,
    anchor BLOB NOT NULL,
    words INTEGER NOT NULL,
    first_us INTEGER NOT NULL,
    last_us INTEGER NOT NULL,
    PRIMARY KEY (kind, text_hash, memory_hash, user_hash)
) WITHOUT ROWID
""",
    insert="""
INSERT INTO injected VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (kind, text_hash, memory_hash, user_hash) DO UPDATE SET
    first_us = min(first_us, excluded.first_us), last_us = max(last_us, excluded.last_us)
""",
)


class InjectedWording(NamedTuple):
    """What the record keeps of one wording.

    Attributes:
        kind: `LINE`, `SHORT`, `BLOCK`, `ASKED` or `LOOKUP`.
        text_hash: Of its words (`hash_words`).
        memory_hash: Of the id of the memory that it came from, or `NOBODY`.
        user_hash: Of the user that the memory belongs to, or `NOBODY`.
        anchor: Of its first words (`hash_anchor`), for looking it up.
        words: How many words it has, > 0.
    """

    kind: str
    text_hash: bytes
    memory_hash: bytes
    user_hash: bytes
    anchor: bytes
    words: int


def append_injection(path: Path, wordings: Sequence[InjectedWording], *, now_us: int) -> str | None:
    """Record some wordings as injected at a moment, in one transaction.

    Args:
        path: The record; made if it is missing, in a directory that exists.
        wordings: What was injected.
        now_us: When, microseconds since the epoch.

    Returns:
        None on success, else what went wrong; the rows then wait in memory for the next append or
        for the end of the process.
    """
    return append_rows(path, RECORD, [(*wording, now_us, now_us) for wording in wordings])
