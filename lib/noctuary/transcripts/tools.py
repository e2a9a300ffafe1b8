"""Tool calls and their results as short text.

What belongs here: the wording and the bound. What does not: whether a text may be kept at all
(`vetting`). Standard library only.

    [Bash: git log -3]
    [Bash result: 4f2a fix the tax rounding ... ]
"""

from __future__ import annotations

import json

from noctuary.foreign_json import parse_json
from noctuary.transcripts.messages import as_object

_GAP = " ... "
_TAIL_SHARE = 3
"""One part in so many of a text that is cut comes from its end: errors stand there."""


def call_texts(arguments: object) -> tuple[str, ...]:
    """Return what a tool was called with, one text per argument, "name=" before all but a sole one.

    Arguments are taken in their order. A text is read as JSON where it is an object (Codex).
    """
    if isinstance(arguments, str):
        try:
            parsed: object = parse_json(arguments)
        except ValueError:
            return (arguments,)
        if not isinstance(parsed, dict):
            return (arguments,)
        arguments = parsed
    pairs = [(name, _shown(value)) for name, value in as_object(arguments).items()]
    if len(pairs) == 1:
        return (pairs[0][1],)
    return tuple(f"{name}={text}" for name, text in pairs)


def render_call(name: str, texts: tuple[str, ...], chars: int) -> str:
    """Return a call on one line; with `chars` 0 its name only."""
    return _bracketed(name or "tool", shorten("; ".join(texts), chars))


def render_result(name: str, texts: tuple[str, ...], chars: int, *, is_error: bool) -> str:
    """Return a result on one line; "" where nothing of it is shown."""
    shown = shorten("\n".join(texts), chars)
    return _bracketed(f"{name or 'tool'} {'failed' if is_error else 'result'}", shown, "")


def shorten(text: str, chars: int) -> str:
    """Return a text on one line with at most `chars` characters: its beginning and its end."""
    if chars <= 0:
        return ""
    # White space rarely makes up three quarters: bounds the work on outputs of megabytes.
    reach = chars * 4
    if len(text) > 2 * reach:
        head, tail = " ".join(text[:reach].split()), " ".join(text[-reach:].split())
    else:
        head = tail = " ".join(text.split())
        if len(head) <= chars:
            return head
    if chars <= len(_GAP) * _TAIL_SHARE:
        return head[:chars]
    at_end = (chars - len(_GAP)) // _TAIL_SHARE
    at_start = chars - len(_GAP) - at_end
    return f"{head[:at_start]}{_GAP}{tail[-at_end:]}"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def _bracketed(head: str, text: str, empty: str | None = None) -> str:
    if text:
        return f"[{head}: {text}]"
    return f"[{head}]" if empty is None else empty
