"""What of a message may be kept, as it will be kept.

What belongs here: cleaning, the secret scan and the bounds, in that order: a text is scanned whole,
before it is cut, or half a credential would pass. What does not: the rules of the scan
(`noctuary.text.sensitivity`). Standard library only.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from noctuary.injection.tool_answer import is_tool_answer
from noctuary.text.sensitivity import find_text_sensitivity
from noctuary.transcripts.messages import Part, PartKind
from noctuary.transcripts.tools import render_call, render_result
from noctuary.transcripts.wrappers import strip_wrappers

MAX_TEXT_CHARS = 100_000
"""Characters kept of one text; more keeps pasted files whole, which encoders do not read anyway."""

# NUL ends a text in C, and a lone surrogate cannot be written.
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


class Vetted(NamedTuple):
    """A part that may be kept.

    Attributes:
        key: As of the part.
        kind: As of the part.
        label: As of the part.
        text: As it is kept; never empty, but for a result of which nothing is shown.
        withheld: Its text held a secret and is not in `text`.
        is_secret: It held a secret and was somebody's words: the whole turn must go.
        was_cut: It was longer than `MAX_TEXT_CHARS`.
    """

    key: str
    kind: PartKind
    label: str
    text: str
    withheld: bool = False
    is_secret: bool = False
    was_cut: bool = False


def vet_part(part: Part, tool_chars: int) -> Vetted | None:
    """Return a part as it may be kept, or None where nothing of it is anybody's own.

    Args:
        part: As read.
        tool_chars: Characters kept of a tool call and of a result, >= 0; 0 keeps a call's name and
            nothing of a result.
    """
    texts = tuple(t for t in map(clean_text, part.texts) if t)
    if part.kind == "result":
        # What the MCP server answered is stored already, and would come back as a new memory.
        texts = tuple(t for t in texts if not is_tool_answer(t))
    if part.kind == "text":
        said = "\n".join(texts)
        if not said:
            return None
        if find_text_sensitivity(said) is not None:
            return Vetted(part.key, part.kind, part.label, "", is_secret=True)
        return Vetted(
            part.key,
            part.kind,
            part.label,
            said[:MAX_TEXT_CHARS],
            was_cut=len(said) > MAX_TEXT_CHARS,
        )
    withheld = find_text_sensitivity("\n".join((part.label, *texts))) is not None
    label = "tool" if withheld and find_text_sensitivity(part.label) else part.label
    shown = () if withheld else texts
    if part.kind == "call":
        text = render_call(label, shown, tool_chars)
    else:
        text = render_result(label, shown, tool_chars, is_error=part.is_error)
    return Vetted(part.key, part.kind, label, text, withheld=withheld)


def clean_text(text: str) -> str:
    """Return a text without wrappers, NUL and lone surrogates, stripped; "" if nothing is left."""
    return strip_wrappers(_UNWRITABLE.sub("\ufffd", text) if _UNWRITABLE.search(text) else text)
