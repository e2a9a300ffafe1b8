"""What the MCP server answers, known again by its first field in a transcript.

What belongs here: the mark and telling it. What does not: the answers (noctuary.mcp_server), the
block for a prompt (`block`). Standard library only.

    {"origin":"noctuary-recall","query":"spare key","memories":[ ...

An agent's transcript holds what its tools gave back. Read as a memory store it would bring every
recalled memory back as a new one. The texts stand there as JSON on one line, in which the hashes of
`record` find nothing.
"""

from __future__ import annotations

import re

from noctuary.injection.block import TAG

ORIGIN_FIELD = "origin"
"""First field of every answer that holds texts of memories; its value is the block's tag."""

LOOKED_AT_CHARS = 400
"""Beginning of a result in which the mark is looked for: agents wrap an answer in a list of
contents, with or without escaping it. More takes files that quote one for one."""

_BEGINS = re.compile(rf'\{{\s*\\*"{ORIGIN_FIELD}\\*"\s*:\s*\\*"{TAG}\\*"')


def is_tool_answer(text: str) -> bool:
    """Say whether a tool's result is an answer of the MCP server: it is stored already.

    Only its beginning is looked at, so one that was cut is known as well. For results only: a
    person who quotes an answer says something of their own.
    """
    return _BEGINS.search(text[:LOOKED_AT_CHARS]) is not None
