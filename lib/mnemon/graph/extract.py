"""One memory in, its findings out: pure, deterministic, no model, cacheable by content.

Belongs here: which findings a memory has and in which role. Does not belong here: anything that
needs a second memory (`dictionary`, `build`).
"""

from __future__ import annotations

from collections.abc import Iterator

from mnemon.graph import names, subjects
from mnemon.graph.extraction import EXTRACTOR_VERSION, KINDS, Extraction, Found
from mnemon.graph.fold import Word, fold_name, words
from mnemon.graph.model import NO_SPAN, Role
from mnemon.text.tags import content_tags

__all__ = ["EXTRACTOR_VERSION", "KINDS", "Extraction", "Found", "extract"]


def extract(
    content: str,
    category: str = "",
    tags: str = "",
    expanded_keywords: str = "",
    *,
    is_turn: bool = False,
) -> Extraction:
    """Return what one memory is about, names and is tagged with.

    Args:
        content: The text.
        category: Reserved for rules by category; every category reads alike in this version.
        tags: Comma-separated; scope tags are left out.
        expanded_keywords: Space-separated.
        is_turn: A turn of a conversation: `Name: text` names the speaker and not the subject.
    """
    del category
    tokens = words(content)
    found: set[Found] = set(_author_fields(tags, expanded_keywords))
    speaker = subjects.speaker_prefix(content, is_turn=is_turn)
    if speaker is not None:
        found.update(_located(content, "speaker", "speaker", *speaker))
    for subject in subjects.find_subjects(content, tokens, is_turn=is_turn):
        found.update(_located(content, "about", subject.kind, subject.start, subject.end))
    found.update(_mentions(content, tokens, _own_names(found)))
    return Extraction(tuple(sorted(found, key=_canonical_order)))


def _mentions(content: str, tokens: list[Word], own: set[str]) -> Iterator[Found]:
    finders = (
        ("identifier", names.identifiers(content)),
        ("quoted", names.quoted_strings(content)),
        ("name", names.capitalised_runs(content, tokens)),
    )
    for kind, spans in finders:
        for start, end in spans:
            for item in _located(content, "mentions", kind, start, end):
                if item.name not in own:
                    yield item


def _own_names(found: set[Found]) -> set[str]:
    return {item.name for item in found if item.role in ("about", "speaker")}


def _located(content: str, role: Role, kind: str, start: int, end: int) -> Iterator[Found]:
    surface = content[start:end]
    name = fold_name(surface)
    if name:
        yield Found(role, kind, name, start, end, surface)


def _author_fields(tags: str, expanded_keywords: str) -> Iterator[Found]:
    fields = [("tag", tag) for tag in content_tags(tags)]
    fields += [("keyword", keyword) for keyword in expanded_keywords.split()]
    for kind, surface in fields:
        name = fold_name(surface)
        if name:
            yield Found("author", kind, name, NO_SPAN, NO_SPAN, surface)


def _canonical_order(item: Found) -> tuple[int, int, str, str, str, str]:
    return (item.start, item.end, item.role, item.kind, item.name, item.surface)
