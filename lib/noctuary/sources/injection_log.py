"""The record of what was injected: hashes and times in `injected.sqlite`; one row per wording.

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
    """Record some wordings at a moment; return what went wrong (they wait for the next append)."""
    return append_rows(path, RECORD, [(*wording, now_us, now_us) for wording in wordings])
