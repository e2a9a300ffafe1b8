"""One memory in, its findings out: pure, deterministic, no model, cacheable by content.

Belongs here: which findings a memory has and in which role. Does not belong here: anything that
needs a second memory (`dictionary`, `build`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from noctuary.graph import names, subjects
from noctuary.graph.aliases import aliases_of
from noctuary.graph.dates import Date, find_dates
from noctuary.graph.extraction import EXTRACTOR_VERSION, KINDS, Extraction, Found, Stated
from noctuary.graph.fold import Word, fold_name, words
from noctuary.graph.identifiers import find_identifiers
from noctuary.graph.model import NO_SPAN, Role
from noctuary.graph.patterns import find_statements
from noctuary.graph.reader import Side, Statement
from noctuary.graph.runs import find_runs
from noctuary.text.tags import content_tags

_PERSONAL = frozenset({"lives_in", "prefers", "works_at"})

__all__ = ["EXTRACTOR_VERSION", "KINDS", "Extraction", "Found", "extract"]


def extract(
    content: str,
    category: str = "",
    tags: str = "",
    expanded_keywords: str = "",
    *,
    is_turn: bool = False,
) -> Extraction:
    """Return what one memory is about, names, states and is tagged with.

    Args:
        content: The text.
        category: Reserved for rules by category; every category reads alike in this version.
        tags: Comma-separated; scope tags are left out.
        expanded_keywords: Space-separated.
        is_turn: A turn of a conversation: `Name: text` names the speaker and not the subject.
    """
    del category
    tokens = words(content)
    dates = find_dates(content)
    found = list(_starts(content, tokens, is_turn=is_turn))
    own = {item.name for item in found}
    found += (item for item in _mentions(content, tokens, dates) if item.name not in own)
    taken = [(item.start, item.end) for item in found]
    runs = find_runs(content, tokens, taken)
    statements = find_statements(content, tokens, _speaker(found), _main_subject(found))
    aliases = aliases_of(content, tokens, found, dates, _people(statements))
    found += _of_statements(content, statements, {item.name for item in found})
    for start, end in runs:
        found += _located(content, "mentions", "run", start, end)
    found += _author_fields(tags, expanded_keywords)
    return Extraction(
        tuple(sorted(set(found), key=_canonical_order)), _stated(statements), tuple(aliases)
    )


def _starts(content: str, tokens: list[Word], *, is_turn: bool) -> Iterator[Found]:
    speaker = subjects.speaker_prefix(content, is_turn=is_turn)
    if speaker is not None:
        yield from _located(content, "speaker", "speaker", *speaker)
    for subject in subjects.find_subjects(content, tokens, is_turn=is_turn):
        yield from _located(content, "about", subject.kind, subject.start, subject.end)


def _mentions(content: str, tokens: list[Word], dates: Sequence[Date]) -> Iterator[Found]:
    dated = {(date.start, date.end) for date in dates}
    spans = [("date", start, end) for start, end in sorted(dated)]
    spans += [
        (kind, start, end)
        for start, end, kind in find_identifiers(content)
        if (start, end) not in dated
    ]
    spans += [("quoted", start, end) for start, end in names.quoted_strings(content)]
    spans += [("name", start, end) for start, end in names.capitalised_runs(content, tokens)]
    for kind, start, end in spans:
        yield from _located(content, "mentions", kind, start, end)


def _speaker(found: Iterable[Found]) -> str:
    return next((item.surface for item in found if item.role == "speaker"), "")


def _main_subject(found: Iterable[Found]) -> str:
    """Return the subject that comes first; of two on one spot the one without its parenthesis."""
    about = (item for item in found if item.role == "about")
    first = min(about, key=lambda item: (item.start, item.end), default=None)
    return "" if first is None else first.surface


def _people(statements: Iterable[Statement]) -> set[str]:
    sides = [item.subject for item in statements if item.relation in _PERSONAL]
    sides += [item.object for item in statements if item.relation == "has"]
    return {_folded(side) for side in sides}


def _of_statements(
    content: str, statements: Sequence[Statement], known: set[str]
) -> Iterator[Found]:
    """Yield the sides of statements that no other rule found, so that each of them is a name."""
    for side in (side for item in statements for side in (item.subject, item.object)):
        name = "" if side.is_memory else fold_name(side.surface)
        if name and name not in known:
            is_literal = content[max(side.start, 0) : max(side.end, 0)] == side.surface
            start, end = (side.start, side.end) if is_literal else (NO_SPAN, NO_SPAN)
            yield Found("mentions", "stated", name, start, end, side.surface)


def _stated(statements: Iterable[Statement]) -> tuple[Stated, ...]:
    folded = (
        Stated(
            _folded(item.subject), item.relation, _folded(item.object), item.start, item.end,
            item.subject.surface, item.object.surface,
        )
        for item in statements
    )  # fmt: skip
    whole = {item for item in folded if item.subject != item.object and item.object}
    kept = (item for item in whole if item.subject or not item.subject_surface)
    return tuple(sorted(kept, key=lambda item: (*item[3:5], item.relation, *item)))


def _folded(side: Side) -> str:
    return side.surface if side.is_memory else fold_name(side.surface)


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
