"""A plug-in's findings against the text: what stands there is kept, with its true places.

What a language model says about a memory may be invented, or dictated by the memory itself. So
nothing is believed that cannot be pointed at: every name must stand in the content (folded), and
every finding gets the span of the place where it does. The rest is dropped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from noctuary.graph.extraction import Extraction, Found, Stated
from noctuary.graph.fold import fold_name
from noctuary.graph.plugins.merge import found_order, sort_stated
from noctuary.graph.plugins.places import Places, Span
from noctuary.text.stopwords import is_stop_word

VERIFY_VERSION = 1
"""Raised whenever the same proposal may be judged otherwise."""

MAX_NAME_WORDS = 8
"""Of a name; longer ones are sentences. Higher lets through descriptions that occur once."""


class Verified(NamedTuple):
    """What is left of a proposal.

    Attributes:
        extraction: The findings that stand in the text, in canonical order.
        dropped: How many proposals were not kept, by reason: "not_in_text", "not_a_name" (no
            letter, or function words only), "too_long", "same_name" and "overlapping" (the two
            names of a statement are one, or stand in one place only).
    """

    extraction: Extraction
    dropped: Mapping[str, int]


def verify_extraction(content: str, proposed: Extraction) -> Verified:
    """Keep what stands in the content, at every place where it stands.

    Only the surfaces of the proposal count: names are folded anew, spans are looked up anew. A span
    that touches a place of its name keeps the finding to this place. Roles other than "about"
    become "mentions": author fields and speakers are not a plug-in's to name.

    Args:
        content: The memory's text.
        proposed: What the plug-in returned.
    """
    places = Places(content)
    dropped: Counter[str] = Counter()
    found: set[Found] = set()
    stated: set[Stated] = set()
    for item in proposed.found:
        located = list(_locate(item, content, places))
        found.update(located)
        if not located:
            dropped[_fault(item.surface) or "not_in_text"] += 1
    for statement in proposed.stated:
        result = _locate_statement(statement, content, places)
        if isinstance(result, str):
            dropped[result] += 1
        else:
            stated.add(result)
    kept = Extraction(tuple(sorted(found, key=found_order)), sort_stated(stated))
    return Verified(kept, dict(sorted(dropped.items())))


def _fault(surface: str) -> str | None:
    """Return why a text is no name, or None."""
    folded = fold_name(surface)
    parts = folded.split()
    if not any(character.isalpha() for character in folded) or all(map(is_stop_word, parts)):
        return "not_a_name"
    return "too_long" if len(parts) > MAX_NAME_WORDS else None


def _locate(item: Found, content: str, places: Places) -> Iterator[Found]:
    if _fault(item.surface) is not None:
        return
    spans = places.find(item.surface)
    # A word's span holds its possessive, a plug-in's may not: touching is enough.
    pointed_at = [span for span in spans if item.start < span[1] and span[0] < item.end]
    role = "about" if item.role == "about" else "mentions"
    for start, end in pointed_at or spans:
        surface = content[start:end]
        yield Found(role, item.kind, fold_name(surface), start, end, surface)


def _locate_statement(item: Stated, content: str, places: Places) -> Stated | str:
    """Return the statement with its evidence, or why there is none."""
    surfaces = (item.subject_surface, item.object_surface)
    for surface in surfaces:
        if (fault := _fault(surface)) is not None:
            return fault
    subjects, objects = (places.find(surface) for surface in surfaces)
    if not subjects or not objects:
        return "not_in_text"
    if fold_name(surfaces[0]) == fold_name(surfaces[1]):
        return "same_name"
    pair = _closest(subjects, objects)
    if pair is None:
        return "overlapping"
    subject, thing = (content[start:end] for start, end in pair)
    start, end = min(span[0] for span in pair), max(span[1] for span in pair)
    return Stated(fold_name(subject), item.relation, fold_name(thing), start, end, subject, thing)


def _closest(left: list[Span], right: list[Span]) -> tuple[Span, Span] | None:
    """Return the two places with the least text around both, the first ones of equals."""
    pairs = [(a, b) for a in left for b in right if a[1] <= b[0] or b[1] <= a[0]]
    return min(
        pairs,
        key=lambda pair: (
            max(pair[0][1], pair[1][1]) - min(pair[0][0], pair[1][0]),
            pair,
        ),
        default=None,
    )
