"""Exact duplicates: memories of one user, wing and room whose normalised contents are equal.

What belongs here: grouping by hash, linear in the memories. The newest stays, as for the night's
successors (of one moment, the one with the most lines: a layout is worth keeping); it takes over
the tags, keywords and importance of the others (UPDATE), or has them already (SUPERSEDE).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from noctuary.curate.compose import Fields, changed_fields, united
from noctuary.curate.model import Evidence, Proposal, named, target_of
from noctuary.curate.scopes import Claims, by_scope
from noctuary.hashing import hash_text
from noctuary.text.fold import normalize
from noctuary.types import MemoryRecord

VERBATIM = 1.0
"""Confidence where the contents are equal to the character."""

NORMALISED = 0.97
"""Confidence where they differ in spaces, Unicode form or invisible characters: a layout may matter
(a table, indented code)."""


def normalised(content: str) -> str:
    """Return a content in NFKC, without invisible characters, each run of spaces as one.

    Case counts: names, paths and codes differ by it.
    """
    return " ".join(normalize(content).split())


def fields_of(record: MemoryRecord) -> Fields:
    """Return what of a memory its duplicate would take over."""
    return Fields(record.tags, record.expanded_keywords, record.importance)


def exact_duplicates(records: Iterable[MemoryRecord], claims: Claims) -> Iterator[Proposal]:
    """Yield one proposal per group of equal memories; the newest of each stays.

    Args:
        records: Open ones (`scopes.is_open`).
        claims: Takes note of what is superseded and updated.
    """
    for scope in by_scope(claims.free(records)):
        groups: defaultdict[tuple[str, str], list[MemoryRecord]] = defaultdict(list)
        for record in scope:
            groups[record.room or "", hash_text(normalised(record.content))].append(record)
        for group in groups.values():
            if len(group) > 1:
                yield _proposal(sorted(group, key=_worth), claims)


def _worth(record: MemoryRecord) -> tuple[int, int, int]:
    """Return what is kept: the newest; of one moment, the one whose lines were not run together."""
    return record.created_at_us, record.content.count("\n"), record.position


def _proposal(group: Sequence[MemoryRecord], claims: Claims) -> Proposal:
    *older, newest = group
    before = fields_of(newest)
    fields = changed_fields(before, united(before, [fields_of(r) for r in older]))
    claims.superseded.update(record.position for record in older)
    if fields:
        claims.updated.add(newest.position)
    is_verbatim = len({record.content for record in group}) == 1
    equal = "the same text" if is_verbatim else "the same text but for spaces and Unicode form"
    kept = f"the newest stays and takes over {', '.join(fields)}" if fields else "the newest stays"
    return named(
        Proposal(
            action="UPDATE" if fields else "SUPERSEDE",
            kind="exact_duplicate",
            confidence=VERBATIM if is_verbatim else NORMALISED,
            user=newest.user,
            wing=newest.wing,
            targets=(
                *(target_of(record, "superseded") for record in older),
                target_of(newest, "updated" if fields else "kept"),
            ),
            evidence=Evidence(f"{len(group)} memories hold {equal}; {kept}."),
            fields=fields,
        )
    )
