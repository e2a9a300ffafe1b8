"""What a proposal would write, made of the words that are there: pieces joined, fields united.

What belongs here: pure functions of texts and fields. What does not: choosing the pieces
(`fragments`), fields of which rows (`exact`), writing (`apply`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from noctuary.curate.model import Piece
from noctuary.text.tags import content_tags

FIELD_MAX_CHARS = 500
"""Longest tags or keywords that the store's own server takes (research/peers.md 2.3)."""


class Fields(NamedTuple):
    """What of a memory is united when another one is to stand for it."""

    tags: str
    expanded_keywords: str
    importance: float


def joined_text(pieces: Iterable[Piece], text_of: Mapping[str, str]) -> str:
    """Return the pieces in order, each after its separator.

    Args:
        pieces: What to join.
        text_of: Content by memory id.
    """
    return "".join(p.before + text_of[p.memory_id][p.start : p.end] for p in pieces)


def united(kept: Fields, others: Sequence[Fields]) -> Fields:
    """Return the fields of a memory that stands for others as well.

    Tags and keywords in the order in which they come, the kept memory's first; scope tags of others
    are left out (the scope is the same, a session is not). A union longer than FIELD_MAX_CHARS is
    not made: the kept memory's field stays. Importance is the highest.
    """
    tags = _union(_tags(kept.tags), [tag for o in others for tag in content_tags(o.tags)])
    words = _union(
        kept.expanded_keywords.split(), [w for o in others for w in o.expanded_keywords.split()]
    )
    return Fields(
        _fitting(kept.tags, tags, ","),
        _fitting(kept.expanded_keywords, words, " "),
        max([kept.importance, *(o.importance for o in others)]),
    )


def changed_fields(before: Fields, after: Fields) -> tuple[str, ...]:
    """Return the names of the fields that differ, in the order of Fields."""
    return tuple(
        name for name, one, other in zip(Fields._fields, before, after, strict=True) if one != other
    )


def _tags(tags: str) -> list[str]:
    return [stripped for tag in tags.split(",") if (stripped := tag.strip())]


def _union(first: Sequence[str], rest: Sequence[str]) -> list[str]:
    known = {word.casefold() for word in first}
    added: list[str] = []
    for word in rest:
        if word.casefold() not in known:
            known.add(word.casefold())
            added.append(word)
    # Nothing to add: the field stays as it was written, spaces and repeats included.
    return [*first, *added] if added else []


def _fitting(before: str, words: Sequence[str], joiner: str) -> str:
    after = joiner.join(words)
    return after if words and len(after) <= FIELD_MAX_CHARS else before
