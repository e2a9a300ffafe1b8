"""What was injected, on record as hashes and times; and which prompts only ask memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from noctuary.core.sqlite import LogFormat, append_rows
from noctuary.sources.injected import words_of
from noctuary.text.marks import SENTENCE_END, ends_as_question

# Whether a prompt only asks memory, and so says nothing that could be remembered.


def is_lookup(prompt: str, recalled: Iterable[str]) -> bool:
    """Return whether every sentence of a prompt asks, or is made of words that were recalled.

    A question that is kept as a memory ranks above its own answers when it is asked again. One that
    tells something beside what it asks is no lookup; a question that tells something inside ("did
    you know that ...?") counts as one.
    """
    sentences = [s for s in SENTENCE_END.split(prompt) if words_of(s)]
    told = [set(words_of(s)) for s in sentences if not ends_as_question(s)]
    known = {word for text in recalled for word in words_of(text)} if told else set[str]()
    return bool(sentences) and all(words <= known for words in told)


# The record of what was injected: hashes and times in `injected.sqlite`, written by readers.
#
# No text of a memory or of a question has a place in it. Appending never raises and waits a
# bounded time (`noctuary.core.sqlite`).
#
# One row per wording, origin and user, however often it was injected: the file grows with what
# there is to inject, not with the number of prompts.


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


class InjectedWording(NamedTuple):
    """What the record keeps of one wording."""

    kind: str  # `LINE`, `SHORT`, `BLOCK`, `ASKED` or `LOOKUP`
    text_hash: bytes  # Of its words (`hash_words`)
    memory_hash: bytes  # Of the id of the memory that it came from, or `NOBODY`
    user_hash: bytes  # Of the user that the memory belongs to, or `NOBODY`
    anchor: bytes  # Of its first words (`hash_anchor`), for looking it up
    words: int  # How many words it has, > 0


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
