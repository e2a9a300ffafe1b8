"""Which prompts are worth a recall, and what is asked of the store for one.

What belongs here: skipping and shortening. What does not: the recall (`handling`). Standard
library only.
"""

from __future__ import annotations

import re

MIN_SIGNS = 4
"""Letters and digits of the shortest prompt that is looked up; one of a script without spaces
between words counts twice. Lower looks up "ok" and "yes", higher leaves out short questions."""

MAX_QUERY_CHARS = 4_000
"""Characters of a query: the beginning and the end of a longer prompt, where people put what they
want. More costs time with every pasted log."""

MAX_PROMPT_CHARS = 200_000
"""Characters of a prompt that are looked at at all."""

MACHINE_SOURCES = frozenset({"system", "poll_event"})
"""Claude's names of prompts that no person wrote: messages of tasks and channels. Prompts of /loop
and of schedules were written by one, and are looked up."""

_COMMAND = re.compile(r"/[\w:.-]+(?:\s|\Z)")
_FIRST_WIDE = "\u2e80"


def query_of(prompt: str, source: str = "") -> str | None:
    """Return what to ask the store for a prompt; None where it is not worth asking.

    Args:
        prompt: As it was submitted.
        source: Who submitted it, as Claude names it; "" where that is not said.

    Returns:
        Up to `MAX_QUERY_CHARS` characters, or None for a machine's message, a slash command, and a
        prompt of fewer than `MIN_SIGNS` signs. Blocks that noctuary injected earlier are not asked.
    """
    # Here, as a compaction is journalled without what only prompts need.
    from noctuary.injection.block import cut_blocks

    if source in MACHINE_SOURCES:
        return None
    text = cut_blocks(prompt[:MAX_PROMPT_CHARS]).text.strip()
    if _COMMAND.match(text) or _signs(text) < MIN_SIGNS:
        return None
    if len(text) <= MAX_QUERY_CHARS:
        return text
    half = (MAX_QUERY_CHARS - 1) // 2
    return f"{text[:half]}\n{text[-half:]}"


def _signs(text: str) -> int:
    found = 0
    for char in text:
        if char.isalnum():
            found += 2 if char >= _FIRST_WIDE else 1
            if found >= MIN_SIGNS:
                break
    return found
