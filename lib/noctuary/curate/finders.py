"""Find duplicates, fragments, replaced facts and contradictions."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_text
from noctuary.core.types import DAY_US, UNDATED_US, MemoryRecord
from noctuary.curate.proposals import (
    KINDS,
    Action,
    Evidence,
    Fields,
    Kind,
    Piece,
    Proposal,
    Role,
    Scope,
    Span,
    age_key,
    by_scope,
    changed_fields,
    is_open,
    joined_text,
    named,
    scope_of,
    target_of,
    united,
    why_not_held,
)
from noctuary.graph.canonical import candidates, jaccard, may_compare, signatures
from noctuary.graph.duplicates import Memories, exact_cosine, is_dated, line_up
from noctuary.graph.extract import Extraction
from noctuary.graph.successors import differ
from noctuary.graph.supersession import STATE, VALUES_MAX, Statement, restates, statements_of
from noctuary.graph.tables import Supersession
from noctuary.text.secrets import find_text_sensitivity
from noctuary.text.tokens import normalize

Taken = Collection[int]
"""Positions of memories that earlier finders would change: later finders skip them."""

_Roles = Sequence[tuple[MemoryRecord, Role]]


def _propose(
    action: Action, kind: Kind, confidence: float, targets: _Roles, evidence: Evidence,
    pieces: tuple[Piece, ...] = (), fields: tuple[str, ...] = (),
) -> Proposal:  # fmt: skip
    """Return a proposal about memories that are all of one user and wing."""
    first = targets[0][0]
    found = tuple(target_of(record, role) for record, role in targets)
    return named(
        Proposal(action, kind, confidence, first.user, first.wing, found, evidence, pieces, fields)
    )


def _replace(
    kind: Kind, confidence: float, older: MemoryRecord, newer: MemoryRecord, evidence: Evidence
) -> Proposal:
    """Return a proposal to mark the older as superseded."""
    ends: _Roles = [(older, "superseded"), (newer, "kept")]
    return _propose("SUPERSEDE", kind, confidence, ends, evidence)


def _leave(
    kind: Kind, confidence: float, records: Sequence[MemoryRecord], evidence: Evidence
) -> Proposal:
    """Return a NOOP about some memories."""
    return _propose("NOOP", kind, confidence, [(r, "looked_at") for r in records], evidence)


# Exact duplicates: memories of one user, wing and room whose normalised contents are equal. The
# newest stays; it takes over the tags, keywords and importance of the others (UPDATE), or has them
# already (SUPERSEDE).

VERBATIM = 1.0  # confidence where the contents are equal to the character
NORMALISED = 0.97  # where spaces or Unicode form differ: a layout may matter (a table, code)


def normalised(content: str) -> str:
    """Return a content in NFKC, case as it is, no invisible characters, runs of spaces as one."""
    return " ".join(normalize(content).split())


def fields_of(record: MemoryRecord) -> Fields:
    """Return the fields that a duplicate takes over."""
    return Fields(record.tags, record.expanded_keywords, record.importance)


def exact_duplicates(records: Iterable[MemoryRecord], taken: Taken) -> Iterator[Proposal]:
    """Yield one proposal per group of equal memories; the newest of each stays."""
    for scope in by_scope(records, taken):
        groups: defaultdict[tuple[str, str], list[MemoryRecord]] = defaultdict(list)
        for record in scope:
            groups[record.room or "", hash_text(normalised(record.content))].append(record)
        for group in groups.values():
            if len(group) > 1:
                yield _merge_equal(sorted(group, key=_worth))


def _worth(record: MemoryRecord) -> tuple[int, int, int]:
    """Sort key of the memory to keep: the newest; of one moment, the one with most lines."""
    return record.created_at_us, record.content.count("\n"), record.position


def _merge_equal(group: Sequence[MemoryRecord]) -> Proposal:
    *older, newest = group
    before = fields_of(newest)
    fields = changed_fields(before, united(before, [fields_of(r) for r in older]))
    is_verbatim = len({record.content for record in group}) == 1
    equal = "the same text" if is_verbatim else "the same text but for spaces and Unicode form"
    kept = f"the newest stays and takes over {', '.join(fields)}" if fields else "the newest stays"
    stays: tuple[Action, Role] = ("UPDATE", "updated") if fields else ("SUPERSEDE", "kept")
    targets: _Roles = [*((record, "superseded") for record in older), (newest, stays[1])]
    evidence = Evidence(f"{len(group)} memories hold {equal}; {kept}.")
    confidence = VERBATIM if is_verbatim else NORMALISED
    return _propose(stays[0], "exact_duplicate", confidence, targets, evidence, fields=fields)


# Reading "part 2 of 5" where it marks a memory as a piece of a longer text: in English, or bare
# numbers ("[2/5]").

MAX_PARTS = 99  # of one text; more is a page number or a score
TITLE_MAX_CHARS = 120  # before a mark; a mark further inside a text is part of a sentence

_NUMBERS = r"(\d{1,3})\s{0,2}(?:of|/)\s{0,2}(\d{1,3})"
_WORDED = re.compile(
    rf"(?P<open>[\[(]\s{{0,2}})?\b(?:part|chunk|piece|section|fragment)\s{{1,2}}#?{_NUMBERS}\b"
    r"(?(open)\s{0,2}[\])])",
    re.IGNORECASE,
)
_BARE = re.compile(rf"[\[(]\s{{0,2}}{_NUMBERS}\s{{0,2}}[\])]")
# Must follow a mark without a closing bracket: otherwise it belongs to a sentence ("part 2 of 3
# was better than the first").
_END = re.compile(r"\s*(?:[:.\-–—|]|\n|\Z)")
_SEPARATORS = " \t\r\n:.-–—|,;"


class FragmentMark(NamedTuple):
    """A mark for a part of a text: its number, their count, and its place in the content."""

    number: int  # from 1
    of: int  # how many parts there are, 2 to MAX_PARTS
    title: str  # text before the mark, as span [0, title_end); empty if title_end is 0
    title_end: int
    start: int  # first character of the part's own text
    end: int  # one past its last character; start where there is none
    is_worded: bool  # it has the word "part", not numbers alone, which may be a date or a fraction


def read_mark(content: str) -> FragmentMark | None:
    """Return the mark at the start (after a title at most) or at the very end of a content."""
    marks = chain(_WORDED.finditer(content), _BARE.finditer(content))
    return next(filter(None, (_judge(content, match) for match in marks)), None)


def _judge(content: str, match: re.Match[str]) -> FragmentMark | None:
    number, of = (int(group) for group in match.groups()[-2:])
    if not 1 <= number <= of or not 2 <= of <= MAX_PARTS:
        return None
    is_worded = match.re is _WORDED
    before, after = content[: match.start()], content[match.end() :]
    if not after.strip(_SEPARATORS) and before.strip(_SEPARATORS):
        return FragmentMark(number, of, "", 0, *_body(content, 0, match.start()), is_worded)
    if len(before) > TITLE_MAX_CHARS or "\n" in before.strip():
        return None
    is_closed = content[match.end() - 1] in ")]"
    if before.strip() and not is_closed and _END.match(after) is None:
        return None
    title_end = len(before.rstrip(_SEPARATORS))
    span = _body(content, match.end(), len(content))
    return FragmentMark(number, of, before[:title_end].strip(), title_end, *span, is_worded)


def _body(content: str, start: int, end: int) -> tuple[int, int]:
    """Return a stretch without outer space and the separators that belonged to the mark."""
    text = content[start:end]
    start += len(text) - len(text.lstrip(_SEPARATORS if start else None))
    return start, max(start, len(content[:end].rstrip()))


# Fragments: "part N of M" memories that are one text, joined again where all parts are there.
#
# - Parts of one text have the same user, wing, room, category, number of parts and title (case and
#   spaces apart). Parts with a title lie at most FRAGMENT_DAYS apart, one after the other; parts
#   without one are neighbours among the memories of their scope, in rising order.
# - A repeated number begins another text.
# - Complete: ADD the bodies in the order of their numbers, under the title once, marks left out,
#   and SUPERSEDE the parts. Incomplete, longer than the store's server takes, or like a secret
#   once it is joined: NOOP with that reason.

JOINED_MAX_CHARS = 1_400  # of a content that the store's server takes (research/peers.md 2.3)
FRAGMENT_DAYS = 1  # longer joins texts of one title that were written again
TITLED, UNTITLED = 0.95, 0.8  # confidence of a complete set under one title; of one in order only
INCOMPLETE = 0.5  # confidence that parts belong together where others are missing


class _Part(NamedTuple):
    record: MemoryRecord
    mark: FragmentMark
    place: int


def fragment_sets(records: Iterable[MemoryRecord], taken: Taken) -> Iterator[Proposal]:
    """Yield one proposal per set of parts."""
    for scope in by_scope(records, taken):
        groups: defaultdict[tuple[str, str, int, str], list[_Part]] = defaultdict(list)
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
                    yield _join(parts)


def _runs(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Cut parts of one title where a number comes again or the next is too far away."""
    runs: list[list[_Part]] = []
    for part in sorted(parts, key=lambda p: age_key(p.record)):
        if runs and _goes_on(runs[-1], part):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs


def _goes_on(run: Sequence[_Part], part: _Part) -> bool:
    last = run[-1]
    if not part.mark.title:
        return part.place == last.place + 1 and part.mark.number == last.mark.number + 1
    if any(part.mark.number == other.mark.number for other in run):
        return False
    ours, theirs = part.record.created_at_us, last.record.created_at_us
    if UNDATED_US in (ours, theirs):
        return ours == theirs
    return ours - theirs <= FRAGMENT_DAYS * DAY_US


def _join(run: Sequence[_Part]) -> Proposal:
    parts = sorted(run, key=lambda part: part.mark.number)
    records, of = [part.record for part in parts], parts[0].mark.of
    spans = tuple(Span(p.record.memory_id, p.mark.start, p.mark.end) for p in parts)
    complete = TITLED if parts[0].mark.title else UNTITLED
    confidence = complete if len(parts) == of else INCOMPLETE
    pieces = _pieces(parts)
    refusal = _refusal(parts, pieces)
    if refusal is not None:
        return _leave("fragments", confidence, records, Evidence(refusal, spans))
    found = Evidence(f"All {of} parts of one text are there, in one scope.", spans)
    gone: _Roles = [(record, "superseded") for record in records]
    return _propose("ADD", "fragments", confidence, gone, found, tuple(pieces))


def _pieces(parts: Sequence[_Part]) -> list[Piece]:
    first = parts[0]
    pieces: list[Piece] = []
    if first.mark.title:
        pieces.append(Piece("", first.record.memory_id, 0, first.mark.title_end))
    before = ": " if pieces else ""
    for part in parts:
        if part.mark.start < part.mark.end:
            pieces.append(Piece(before, part.record.memory_id, part.mark.start, part.mark.end))
            before = "\n"
    return pieces


def _refusal(parts: Sequence[_Part], pieces: Sequence[Piece]) -> str | None:
    of = parts[0].mark.of
    missing = sorted(set(range(1, of + 1)) - {part.mark.number for part in parts})
    if missing:
        return f"Of {of} parts, {', '.join(map(str, missing))} cannot be found in this scope."
    text = joined_text(pieces, {part.record.memory_id: part.record.content for part in parts})
    if len(text) > JOINED_MAX_CHARS:
        return f"Joined they are {len(text)} characters; the store takes {JOINED_MAX_CHARS}."
    if (secret := find_text_sensitivity(text)) is not None:
        return f"Joined they read like {secret}."
    return None if text.strip() else "The parts hold nothing but their marks."


# Superseded facts, from the night's graph.

NEAR = "near_duplicate"  # reason of rows that are alike, without a replacement stated
CONFIDENCE = (0.4, 0.75, 0.9)  # of the table's low, medium and high
LEAST_GRADE = 1  # for a tombstone: at low confidence, often only a part of the older was replaced

_SAID = {
    "explicit": "The newer says that it replaces the older.",
    "is_now": "The newer says what the same subject is now.",
    "newer_value": "The newer gives another value for the same subject and attribute.",
}


def superseded_facts(
    records: Iterable[MemoryRecord], supersessions: Iterable[Supersession], taken: Taken
) -> Iterator[Proposal]:
    """Yield one proposal per superseded memory whose successor is of the same user and wing."""
    free = {r.position: r for r in records if r.position not in taken}
    for found in sorted(supersessions, key=lambda s: s.older_position):
        older, newer = free.get(found.older_position), free.get(found.newer_position)
        if found.reason == NEAR or older is None or newer is None:
            continue
        if scope_of(older) != scope_of(newer):
            continue
        said_by = newer if found.evidence.position == newer.position else older
        spans = (Span(said_by.memory_id, found.evidence.start, found.evidence.end),)
        confidence, reason = CONFIDENCE[found.confidence], _SAID[found.reason]
        if found.confidence >= LEAST_GRADE:
            evidence = Evidence(reason, spans, found.similarity)
            yield _replace("superseded", confidence, older, newer, evidence)
        else:
            reason += " Not sure enough: it says more than that, or is guessed."
            evidence = Evidence(reason, spans, found.similarity)
            yield _leave("superseded", confidence, (older, newer), evidence)


# Near duplicates: a newer memory that is much like an older one and has all of its content.
# Likeness only chooses pairs: of 20 pairs of cosine .86 and more on realmem, 4 were lookalikes
# (docs/decisions/0016). A tombstone asks for `why_not_held` to find nothing missing.

# Least Jaccard of the trigrams of two texts; a pair at .8 is found with odds of .99, one at .7 of
# .86 (`noctuary.graph.canonical`).
LEAST_SHINGLES = 0.8
LEFT_ALONE = 0.3  # confidence that a pair is one memory twice where the newer lacks something
NEAR_MAX_CHARS = 20_000  # of a text compared by shingles: longer ones are documents

Pair = tuple[int, int]
"""Positions of the older and the newer."""


def near_duplicates(
    records: Iterable[MemoryRecord],
    cosine_pairs: Iterable[Pair],
    vectors: NDArray[np.float32] | None,
    taken: Taken,
) -> Iterator[Proposal]:
    """Yield one proposal per older memory that is superseded, and a NOOP per other pair.

    Of open memories. The night found the pairs by their vectors; those of other scopes, of turns
    and of taken memories are left out. Vectors, unit rows by position, give the evidence a cosine.
    """
    free = {r.position: r for r in records if r.position not in taken}
    pairs = {
        (older.position, newer.position)
        for older, newer in (map(free.get, pair) for pair in cosine_pairs)
        if older and newer and scope_of(older) == scope_of(newer)
        if age_key(older) < age_key(newer)
    }
    for scope in by_scope(free.values()):
        pairs.update(shingle_pairs(scope))
    # The newest first among those that may replace an older one.
    for pair in sorted(pairs, key=lambda p: (p[0], [-k for k in age_key(free[p[1]])])):
        if pair[0] not in taken:
            yield _compare(free[pair[0]], free[pair[1]], vectors)


def shingle_pairs(records: Sequence[MemoryRecord]) -> list[Pair]:
    """Return the pairs of one scope that share LEAST_SHINGLES of their trigrams, sorted."""
    shingled = ((record, _shingled(record)) for record in sorted(records, key=lambda r: r.position))
    chosen = [(record, text) for record, text in shingled if text is not None]
    texts = [text for _, text in chosen]
    found: list[Pair] = []
    # Of hundreds of texts that are all alike, each is compared with the first 64.
    crowded: Counter[str] = Counter()
    for one, other in candidates(texts, signatures(texts), crowded):
        if jaccard(texts[one], texts[other]) >= LEAST_SHINGLES:
            older, newer = sorted((chosen[one][0], chosen[other][0]), key=age_key)
            found.append((older.position, newer.position))
    return sorted(found)


def _shingled(record: MemoryRecord) -> str | None:
    if len(record.content) > NEAR_MAX_CHARS:
        return None
    text = normalised(record.content).casefold()
    return text if may_compare(text) else None


def _compare(
    older: MemoryRecord, newer: MemoryRecord, vectors: NDArray[np.float32] | None
) -> Proposal:
    one, other = _shingled(older), _shingled(newer)
    shingles = None if one is None or other is None else round(jaccard(one, other), 6)
    cosine = None
    if vectors is not None:
        cosine = exact_cosine(vectors[older.position], vectors[newer.position])
    missing = why_not_held(older.content, newer.content)
    if missing is None and differ(older.content, newer.content):
        missing = "They differ in a number, an identifier, a date, a name or a kind of thing."
    if missing is None and (older.room or "") != (newer.room or ""):
        missing = "They are of different rooms."
    if missing is not None:
        found = Evidence(missing, (), cosine, shingles)
        return _leave("near_duplicate", LEFT_ALONE, (older, newer), found)
    reason = "The newer holds every word of the older in its order, and more like it."
    # A cosine may leave [0, 1] by rounding, and an exact text is not asked here.
    highest = max((score for score in (shingles, cosine) if score is not None), default=0.0)
    confidence = min(max(highest, LEFT_ALONE), 0.99)
    found = Evidence(reason, (), cosine, shingles)
    return _replace("near_duplicate", confidence, older, newer, found)


# Contradictions: two live memories give one subject different values, and no date settles it.
# Always a NOOP: the texts do not show which of the two is true, and no text is generated.

STATED = 0.7  # confidence where a subject has one value at a time
VAGUE = 0.4  # where the attribute was guessed, or a value is a remark
GROUP_MAX = 64  # statements of one subject compared in pairs: more are a list (a schedule)


def contradictions(
    memories: Memories, canonical_of: Mapping[str, str], taken: Taken
) -> Iterator[Proposal]:
    """Yield one proposal per pair of memories that contradict each other."""
    groups: defaultdict[tuple[Scope, str, str], list[Statement]] = defaultdict(list)
    for position, memory in memories.items():
        if not is_open(memory.record) or position in taken:
            continue
        for statement in statements_of(memory, canonical_of, Counter[str]()):
            # A subject can have several `is_a` and `has` at a time, but only one `is_now`.
            if statement.slot != STATE or statement.relation == "is_now":
                key = scope_of(memory.record), statement.subject, statement.slot
                groups[key].append(statement)
    seen: set[Pair] = set()
    for key in sorted(groups, key=str):
        for one, other in _conflicts(groups[key], memories):
            pair = one.position, other.position
            if pair not in seen:
                seen.add(pair)
                yield _contradiction(one, other, memories)


def _conflicts(
    statements: Sequence[Statement], memories: Memories
) -> Iterator[tuple[Statement, Statement]]:
    values = {statement.value for statement in statements}
    if not 2 <= len(values) <= VALUES_MAX or len(statements) > GROUP_MAX:
        return
    said: defaultdict[int, set[str]] = defaultdict(set)
    for statement in statements:
        said[statement.position].add(statement.value)
    for one, other in combinations(sorted(statements, key=lambda s: s.position), 2):
        if one.position == other.position:
            continue
        # One value may be the other's in other words.
        pairs = product(said[one.position], said[other.position])
        times = {memories[s.position].record.created_at_us for s in (one, other)}
        # If both are dated, the newer one is known.
        is_settled = len(times) == 2 and UNDATED_US not in times
        if not is_settled and not any(restates(*pair) for pair in pairs):
            yield one, other


def _contradiction(one: Statement, other: Statement, memories: Memories) -> Proposal:
    records = [memories[s.position].record for s in (one, other)]
    spans = tuple(
        Span(record.memory_id, s.evidence.start, s.evidence.end)
        for record, s in zip(records, (one, other), strict=True)
    )
    dates = "of one moment" if all(is_dated(r) for r in records) else "not both dated"
    reason = (
        "They give different values for one subject and attribute, and are "
        f"{dates}: only you can say which is right."
    )
    confidence = VAGUE if one.is_vague or other.is_vague else STATED
    return _leave("contradiction", confidence, records, Evidence(reason, spans))


# All proposals of a night: the finders one after the other, each on what the earlier ones left.
#
# Exact duplicates come first (they settle the most with the most certainty), then fragments (their
# parts look alike and must not be taken for duplicates), then superseded memories, near
# duplicates and contradictions. So no memory becomes a tombstone twice.


class Materials(NamedTuple):
    """The night's memories with their extractions, supersessions and vectors."""

    # Memories, with positions; turns are never proposed for anything
    records: Sequence[MemoryRecord]
    extractions: Sequence[Extraction]  # findings of each, in the same order
    supersessions: Sequence[Supersession]  # the night's table
    canonical_of: Mapping[str, str]  # folded names that were merged away, to their replacement
    vectors: NDArray[np.float32] | None  # unit rows by position, shape (n, d), or None


def propose(materials: Materials) -> list[Proposal]:
    """Return every proposal, in the order of KINDS and positions; a pure function of its input."""
    memories = line_up(materials.records, materials.extractions)
    opened = [r for r in materials.records if is_open(r)]
    # Parts look alike: whole or not, they are no near duplicates.
    whole = [r for r in opened if read_mark(r.content) is None]
    supersessions = materials.supersessions
    near = [(s.older_position, s.newer_position) for s in supersessions if s.reason == NEAR]
    taken, found = set[int](), list[Proposal]()
    # Each finder starts when the one before it has ended.
    for proposal in chain(
        exact_duplicates(opened, taken),
        fragment_sets(opened, taken),
        superseded_facts(opened, supersessions, taken),
        near_duplicates(whole, near, materials.vectors, taken),
        contradictions(memories, materials.canonical_of, taken),
    ):
        taken.update(target.position for target in proposal.having("superseded", "updated"))
        found.append(proposal)
    places = {p.proposal_id: [target.position for target in p.targets] for p in found}
    return sorted(found, key=lambda p: (KINDS.index(p.kind), places[p.proposal_id], p.proposal_id))
