"""Render recalled memories as the block of a prompt, those that are worth a place in it.

Read side: standard library only. `sources.injected` recognises the block again.
"""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, cast

from noctuary.core.types import INJECTED_ORIGINS, Origin
from noctuary.sources.injected import CLOSING, ID_CHARS, NOTE, TAG, hash_words, words_of
from noctuary.text.marks import visible
from noctuary.text.orders import reads_like_order

# Characters of one memory, cut at a space: a pasted file must not displace all others.
MAX_MEMORY_CHARS = 1_500
# Characters of wing and room together; a longer one is cut. It is paid for with every memory.
MAX_PLACE_CHARS = 80
# Characters of a block besides its memories' lines and their line breaks, at most.
COUNT_CHARS = 6
FRAME_CHARS = len(f'<{TAG} id="" memories="">\n{NOTE}\n{CLOSING}') + ID_CHARS + COUNT_CHARS


def worth_injecting(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the memories that clear their bar: none where it abstains, all if not judged."""
    memories = list(cast("list[Mapping[str, Any]]", result.get("memories") or ()))
    judged = result.get("answerability")
    if not isinstance(judged, Mapping):
        return memories
    answerability = cast("Mapping[str, Any]", judged)
    if answerability.get("abstain") is True:
        return []
    bar = answerability.get("bar", 0.0)
    return [memory for memory in memories if memory.get("support", bar) >= bar]


def held_back(memory: Mapping[str, Any], origins: Collection[str] = INJECTED_ORIGINS) -> str | None:
    """Return why a memory may not go into a prompt, or None.

    Its origin is none of those given, or it reads like an order to the agent and its user did not
    type it.
    """
    origin = memory.get("origin", Origin.IMPORT)
    if origin not in origins:
        return f"its origin is {origin}"
    is_order = origin != Origin.USER and reads_like_order(str(memory.get("content", "")))
    return "it reads like an order to the agent" if is_order else None


class Line(NamedTuple):
    """One memory of a block."""

    memory_id: str  # As text
    day: str  # "2026-03-01" or "undated"
    text: str  # The content as `one_line` gives it, not escaped
    place: str = ""  # Where it belongs, as `place_of` gives it, not escaped; "" for nowhere

    def rendered(self) -> str:
        """Return the line as it stands in the block."""
        shown = _escape(visible(" ".join(self.memory_id.split()))).replace("]", "&#93;")
        place = _escape(self.place).replace("(", "&#40;").replace(")", "&#41;")
        return f"- [{shown}] {self.day}{f' ({place})' if place else ''}: {_escape(self.text)}"


def one_line(content: str) -> str:
    """Return a content on one line, hidden characters marked, at most `MAX_MEMORY_CHARS` long."""
    text = visible(" ".join(content.split()))
    if len(text) <= MAX_MEMORY_CHARS:
        return text
    kept, _, _ = text[: MAX_MEMORY_CHARS - len(" ...") + 1].rpartition(" ")
    return f"{kept or text[: MAX_MEMORY_CHARS - len(' ...')]} ..."


def place_of(wing: str | None, room: str | None) -> str:
    """Return where a memory belongs, "wing/room", on one line of at most `MAX_PLACE_CHARS`."""
    named = [" ".join(name.split()) for name in (wing, room) if name]
    return visible("/".join(name for name in named if name))[:MAX_PLACE_CHARS].strip()


def render_block(lines: Sequence[Line]) -> str:
    """Return the block of some memories, best first; "" for none."""
    return frame([line.rendered() for line in lines])


def frame(rendered: Sequence[str]) -> str:
    """Return the block of some rendered lines; "" for none."""
    if not rendered:
        return ""
    block_id = hash_words(words_of("\n".join(rendered))).hex()[:ID_CHARS]
    opening = f'<{TAG} id="{block_id}" memories="{len(rendered)}">'
    return "\n".join([opening, NOTE, *rendered, CLOSING])


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
