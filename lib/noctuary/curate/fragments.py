"""Fragments: "part N of M" memories that are one text, joined again where all parts are there.

What belongs here: which parts belong together, and what the joined row would say. What does not:
reading the mark (`fragment_marks`), writing the row (`apply`).

Rules, written down:
- Parts of one text have the same user, wing, room, category, number of parts and title (case and
  spaces apart). Parts with a title lie at most FRAGMENT_DAYS apart, one after the other; parts
  without one are neighbours among the memories of their scope, in rising order.
- A number that comes again begins another text.
- Complete: ADD the bodies in the order of their numbers, under the title once, marks left out, and
  SUPERSEDE the parts. Incomplete, longer than the store's server takes, or like a secret once it is
  joined: NOOP that says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from noctuary.curate.compose import joined_text
from noctuary.curate.fragment_marks import FragmentMark, read_mark
from noctuary.curate.model import Evidence, Piece, Proposal, Span, named, target_of
from noctuary.curate.scopes import Claims, age_key, by_scope
from noctuary.text.sensitivity import find_text_sensitivity
from noctuary.types import UNDATED_US, MemoryRecord

JOINED_MAX_CHARS = 1_400
"""Longest content that the store's server takes (research/peers.md 2.3): a longer row could never
be synchronised or edited there."""

FRAGMENT_DAYS = 1
"""Most days between two parts of a titled text. Longer joins texts of one title that were written
again; shorter misses one written over midnight."""

TITLED = 0.95
"""Confidence of a complete set under one title."""

UNTITLED = 0.8
"""Confidence of a complete set that only its order holds together."""

INCOMPLETE = 0.5
"""Confidence that parts belong together where others are missing."""

_DAY_US = 86_400_000_000
_AFTER_TITLE = ": "
_BETWEEN = "\n"


class _Part(NamedTuple):
    record: MemoryRecord
    mark: FragmentMark
    place: int


_Key = tuple[str, str, int, str]


def fragment_sets(records: Iterable[MemoryRecord], claims: Claims) -> Iterator[Proposal]:
    """Yield one proposal per set of parts.

    Args:
        records: Open ones (`scopes.is_open`).
        claims: Takes note of parts that are superseded.
    """
    for scope in by_scope(claims.free(records)):
        groups: defaultdict[_Key, list[_Part]] = defaultdict(list)
        for place, record in enumerate(scope):
            mark = read_mark(record.content)
            if mark is not None:
                title = " ".join(mark.title.casefold().split())
                key = record.room or "", record.category, mark.of, title
                groups[key].append(_Part(record, mark, place))
        for key in sorted(groups):
            for parts in _runs(groups[key]):
                # One "(1/2)" alone is a fraction or a date.
                if len(parts) > 1 or parts[0].mark.is_worded:
                    yield _proposal(parts, claims)


def _runs(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Cut parts of one title where a number comes again or the next is too far away."""
    run: list[_Part] = []
    for part in sorted(parts, key=lambda p: age_key(p.record)):
        if run and not _goes_on(run, part):
            yield run
            run = []
        run.append(part)
    if run:
        yield run


def _goes_on(run: Sequence[_Part], part: _Part) -> bool:
    last = run[-1]
    if not part.mark.title:
        return part.place == last.place + 1 and part.mark.number == last.mark.number + 1
    if any(part.mark.number == other.mark.number for other in run):
        return False
    ours, theirs = part.record.created_at_us, last.record.created_at_us
    if UNDATED_US in (ours, theirs):
        return ours == theirs
    return ours - theirs <= FRAGMENT_DAYS * _DAY_US


def _proposal(run: Sequence[_Part], claims: Claims) -> Proposal:
    parts = sorted(run, key=lambda part: part.mark.number)
    pieces = _pieces(parts)
    refusal = _refusal(parts, pieces)
    if refusal is None:
        claims.superseded.update(part.record.position for part in parts)
    of, has_title = parts[0].mark.of, bool(parts[0].mark.title)
    last = max((part.record for part in parts), key=age_key)
    spans = (Span(p.record.memory_id, p.mark.start, p.mark.end) for p in parts)
    reason = f"All {of} parts of one text are there, in one scope." if refusal is None else refusal
    complete = TITLED if has_title else UNTITLED
    role = "superseded" if refusal is None else "looked_at"
    return named(
        Proposal(
            action="ADD" if refusal is None else "NOOP",
            kind="fragments",
            confidence=complete if len(parts) == of else INCOMPLETE,
            user=last.user,
            wing=last.wing,
            targets=tuple(target_of(part.record, role) for part in parts),
            evidence=Evidence(reason, tuple(spans)),
            pieces=tuple(pieces) if refusal is None else (),
        )
    )


def _pieces(parts: Sequence[_Part]) -> list[Piece]:
    first = parts[0]
    pieces: list[Piece] = []
    if first.mark.title:
        pieces.append(Piece("", first.record.memory_id, 0, first.mark.title_end))
    for part in parts:
        if part.mark.start < part.mark.end:
            before = _BETWEEN if len(pieces) > bool(first.mark.title) else _AFTER_TITLE
            pieces.append(
                Piece(
                    before if pieces else "", part.record.memory_id, part.mark.start, part.mark.end
                )
            )
    return pieces


def _refusal(parts: Sequence[_Part], pieces: Sequence[Piece]) -> str | None:
    of = parts[0].mark.of
    missing = sorted(set(range(1, of + 1)) - {part.mark.number for part in parts})
    if missing:
        return f"Of {of} parts, {', '.join(map(str, missing))} cannot be found in this scope."
    text = joined_text(pieces, {part.record.memory_id: part.record.content for part in parts})
    if len(text) > JOINED_MAX_CHARS:
        return f"Joined they are {len(text)} characters; the store takes {JOINED_MAX_CHARS}."
    secret = find_text_sensitivity(text)
    if secret is not None:
        return f"Joined they read like {secret}."
    return None if text.strip() else "The parts hold nothing but their marks."
