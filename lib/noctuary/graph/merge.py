"""The union of two findings of one memory. No checking happens here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from noctuary.graph.extraction import Extraction, Found, Stated
from noctuary.graph.model import NO_SPAN

Item = TypeVar("Item", Found, Stated)


def merge_extractions(base: Extraction, extra: Extraction) -> Extraction:
    """Return both findings in canonical order, nothing of the rules changed.

    What the second found at a place where the rules found the same stays theirs, kind and span
    included. A name that the memory is about, or that speaks, is not also mentioned by it.

    Args:
        base: What the rules found.
        extra: What the store told, or a language model read.
    """
    own = {item.name for item in base.found if item.role in ("about", "speaker")}
    new = [item for item in extra.found if item.role == "about" or item.name not in own]
    found = [*base.found, *_not_held(new, base.found)]
    stated = [*base.stated, *_not_held(extra.stated, base.stated)]
    aliases = tuple(sorted({*base.aliases, *extra.aliases}))
    return Extraction(tuple(sorted(set(found), key=found_order)), sort_stated(stated), aliases)


def found_order(item: Found) -> tuple[int, int, str, str, str, str]:
    """Return the sort key of findings in an `Extraction`."""
    return (item.start, item.end, item.role, item.kind, item.name, item.surface)


def sort_stated(items: Iterable[Stated]) -> tuple[Stated, ...]:
    """Return statements in the order of an `Extraction`, without repeats."""
    return tuple(
        sorted(
            set(items),
            key=lambda s: (s.start, s.end, s.relation, s.subject, s.object, s[5], s[6]),
        )
    )


def _not_held(extra: Iterable[Item], base: Sequence[Item]) -> list[Item]:
    """Return the items that say something else, or elsewhere, than every item of the base."""
    held: defaultdict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for item in base:
        held[_said(item)].append((item.start, item.end))
    return [item for item in extra if not _overlaps(item, held.get(_said(item), []))]


def _said(item: Found | Stated) -> Hashable:
    if isinstance(item, Found):
        return item.name
    return item.subject, item.relation, item.object


def _overlaps(item: Found | Stated, spans: Sequence[tuple[int, int]]) -> bool:
    return any(start != NO_SPAN and item.start < end and start < item.end for start, end in spans)
