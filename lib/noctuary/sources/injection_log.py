"""The record of what was injected: hashes and times in `injected.sqlite`, written by readers.

No text of a memory or of a question has a place in it. Appending never raises and waits a bounded
time (`noctuary.core.sqlite`). One row per wording, origin and user, however often it was injected:
the file grows with what there is to inject, not with the number of prompts.

Apart from the block itself, because a hook that renders one need not load SQLite.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from noctuary.core.sqlite import LogFormat, append_rows
from noctuary.sources.injected import InjectedWording

RECORD = LogFormat(
    noun="the record of injections",
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


def append_injection(path: Path, wordings: Sequence[InjectedWording], *, now_us: int) -> str | None:
    """Record some wordings as injected at a moment, in one transaction.

    Returns:
        None on success, else what went wrong; the rows then wait in memory for the next append.
    """
    return append_rows(path, RECORD, [(*wording, now_us, now_us) for wording in wordings])
