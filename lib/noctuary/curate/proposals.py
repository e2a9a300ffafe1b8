"""A proposal to change some memories of a source, and why. Holds no text of them."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from noctuary.core.errors import StoreError
from noctuary.core.files import hash_json, hash_text
from noctuary.core.types import MemoryRecord
from noctuary.text.marks import content_tags, is_tombstone
from noctuary.text.tokens import NEGATED_SUFFIX, fold, is_stop_word, normalize, stem

# ADD: a new row, made of the targets' own words; UPDATE: fields of a row that stays; SUPERSEDE:
# tombstones alone; NOOP: looked at and left alone. ADD and UPDATE supersede other targets as well.
Action = Literal["ADD", "UPDATE", "SUPERSEDE", "NOOP"]
Kind = Literal["exact_duplicate", "fragments", "superseded", "near_duplicate", "contradiction"]
# The change to a target: a tombstone; other fields; none (but it must be there, and
# unchanged, when the others are written); none at all.
Role = Literal["superseded", "updated", "kept", "looked_at"]

KINDS: tuple[str, ...] = get_args(Kind)
ID_CHARS = 16
_VERSION = "curation/1"


@dataclass(frozen=True, slots=True)
class Target:
    """One memory that a proposal is about."""

    memory_id: str  # the source's id, as text
    position: int  # in the corpus of that night
    role: Role
    content_hash: str  # of every field of the memory, at the time of the proposal
    text_hash: str  # of its content alone: another copy of the source must have the same


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of one memory's content, for a text that is joined from several."""

    before: str  # separator that goes before it: punctuation and spaces, no text
    memory_id: str
    start: int  # first character
    end: int  # one past the last one


@dataclass(frozen=True, slots=True)
class Span:
    """Evidence in a memory's text: characters [start, end); -1 where unknown."""

    memory_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why."""

    reason: str  # one sentence for people, without any text of a memory
    spans: tuple[Span, ...] = ()  # of the text with the evidence
    cosine: float | None = None  # of the two memories' vectors, in [-1, 1], or None
    shingles: float | None = None  # Jaccard of their character trigrams, in [0, 1], or None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change to some memories, or why there is none."""

    action: Action
    kind: Kind  # the relation of the targets
    confidence: float  # in [0, 1]: how certain that relation is
    user: str | None  # the owner of all of them, or None
    wing: str | None  # the wing of all of them, or None
    targets: tuple[Target, ...]  # in order of position
    evidence: Evidence
    pieces: tuple[Piece, ...] = ()  # the joined text of an ADD, in order
    fields: tuple[str, ...] = ()  # of `updated` that an UPDATE fills up from the superseded ones
    proposal_id: str = ""  # hash of the fields that decide what is written; set by `named`

    @property
    def memory_ids(self) -> tuple[str, ...]:
        """Return the ids of all targets."""
        return tuple(target.memory_id for target in self.targets)

    def having(self, *roles: Role) -> tuple[Target, ...]:
        """Return the targets with one of some roles."""
        return tuple(target for target in self.targets if target.role in roles)

    def to_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self)


def target_of(record: MemoryRecord, role: Role) -> Target:
    """Return a memory in its role."""
    text_hash = hash_text(record.content)
    return Target(record.memory_id, record.position, role, record.content_hash, text_hash)


def named(proposal: Proposal) -> Proposal:
    """Return the proposal with ordered targets and its id, a hash of its action and contents."""
    ordered = sorted(proposal.targets, key=lambda target: target.position)
    identity = {
        "version": _VERSION,
        "action": proposal.action,
        "kind": proposal.kind,
        "targets": sorted([t.memory_id, t.role, t.content_hash] for t in ordered),
        "pieces": [asdict(piece) for piece in proposal.pieces],
        "fields": list(proposal.fields),
    }
    return replace(proposal, targets=tuple(ordered), proposal_id=hash_json(identity)[:ID_CHARS])


# Tables of a night's proposals, with its notes on them.

NOTES = b"noctuary"  # where a table's schema holds the notes, as JSON


@contextmanager
def open_noted(path: Path, missing: str, kind: str) -> Generator[tuple[Any, dict[str, Any]]]:
    """Open a table as a `pyarrow.parquet.ParquetFile`, with its notes; StoreError if it is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file, json.loads((file.schema_arrow.metadata or {})[NOTES])
    except FileNotFoundError:
        raise StoreError(missing) from None
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError):
        unreadable = f"{path} cannot be read as a table of {kind}: run the night again."
        raise StoreError(unreadable) from None


# Which memories may be compared: of one user and one wing, no turns, no tombstones.
#
# Stricter than recall and the graph, where a memory without a wing matches any wing: writing to a
# source must not rest on a guess.

Scope = tuple[str | None, str | None]  # user and wing


def scope_of(record: MemoryRecord) -> Scope:
    """Return whose it is and where it lives."""
    return record.user, record.wing


def age_key(record: MemoryRecord) -> tuple[int, int]:
    """Return a sort key by age: by date, undated first; at one moment, by position."""
    return record.created_at_us, record.position


def is_open(record: MemoryRecord) -> bool:
    """Return whether a memory may be proposed for anything: no turn, no tombstone."""
    return not record.is_turn and not is_tombstone(record.content)


def by_scope(
    records: Iterable[MemoryRecord], taken: Collection[int] = ()
) -> list[list[MemoryRecord]]:
    """Return the memories of each user and wing that are not taken, in order of position."""
    groups: defaultdict[Scope, list[MemoryRecord]] = defaultdict(list)
    for record in records:
        if record.position not in taken:
            groups[scope_of(record)].append(record)
    order = sorted(groups, key=lambda s: (s[0] or "", s[1] or "", s[0] is None, s[1] is None))
    return [sorted(groups[scope], key=lambda record: record.position) for scope in order]


# Does one text have all words of another: in their order, with numbers and denials.
# Stricter than any similarity: "port 8080" and "port 8081" are alike, but differ in content.

# Words that negate others or move them into the past, and words for how certain
# something holds: both texts must have the same ones.
DENIALS = frozenset(
    {
        "not", "no", "never", "none", "nor", "neither", "without", "cannot", "hardly", "except",
        "unless", "stopped", "longer", "former", "formerly", "previously", "instead", "against",
    }
)  # fmt: skip
MODALS = frozenset(
    {"may", "might", "could", "should", "would", "must", "will", "if", "maybe", "perhaps", "only"}
)

_POSSESSIVE = "'s"
_WORD = re.compile(r"[^\W_]+(?:['’.,:/_@+-]+[^\W_]+)*[%+#]*")


class Words(NamedTuple):
    """The words of a text that count."""

    content: tuple[str, ...]  # stems of the words that are no function words, in order
    numbers: tuple[str, ...]  # words with a digit, in order
    turns: tuple[str, ...]  # denials and modals, sorted


def words_of(text: str) -> Words:
    """Return the words of a text that count."""
    content: list[str] = []
    numbers: list[str] = []
    turns: list[str] = []
    for raw in _WORD.findall(normalize(text)):
        word = fold(raw.replace("’", "'"))
        if word in DENIALS or word in MODALS or word.endswith(NEGATED_SUFFIX):
            turns.append(word)
        elif any(char.isdigit() for char in word):
            numbers.append(word)
            content.append(word)
        elif not is_stop_word(word.removesuffix(_POSSESSIVE)):
            # "user's brother likes tea" does not hold "user likes tea".
            owner = word.endswith(_POSSESSIVE)
            content.append(stem(word.removesuffix(_POSSESSIVE)) + _POSSESSIVE * owner)
    return Words(tuple(content), tuple(numbers), tuple(sorted(turns)))


def why_not_held(older: str, newer: str) -> str | None:
    """Return why the newer text lacks content of the older one, or None if it lacks nothing."""
    ours, theirs = words_of(older), words_of(newer)
    if not ours.content:
        return "The older has no words to compare."
    if ours.numbers != theirs.numbers:
        return "They differ in numbers."
    if ours.turns != theirs.turns:
        return "They differ in denials or in how surely they speak."
    lost = (Counter(ours.content) - Counter(theirs.content)).total()
    if lost:
        return f"The newer lacks {lost} of the older's {len(ours.content)} words."
    rest = iter(theirs.content)
    # Membership of an iterator goes on from where the last word was found.
    if not all(word in rest for word in ours.content):
        return "The newer says the older's words in another order."
    return None


# Text and fields that a proposal would write, from existing words: pieces joined, fields united.

FIELD_MAX_CHARS = (
    500  # of tags or keywords, as the store's own server takes (research/peers.md 2.3)
)


class Fields(NamedTuple):
    """Fields that a memory takes over from those it replaces."""

    tags: str
    expanded_keywords: str
    importance: float


def joined_text(pieces: Iterable[Piece], text_of: Mapping[str, str]) -> str:
    """Return the pieces in order, each after its separator."""
    return "".join(p.before + text_of[p.memory_id][p.start : p.end] for p in pieces)


def united(kept: Fields, others: Sequence[Fields]) -> Fields:
    """Return the fields of a memory that replaces others.

    Tags and keywords in the order in which they come, the kept memory's first; scope tags of others
    are left out. A union longer than FIELD_MAX_CHARS is not made. Importance is the highest.
    """
    own_tags = [stripped for tag in kept.tags.split(",") if (stripped := tag.strip())]
    tags = _union(kept.tags, own_tags, [t for o in others for t in content_tags(o.tags)], ",")
    words, more = kept.expanded_keywords.split(), [o.expanded_keywords.split() for o in others]
    keywords = _union(kept.expanded_keywords, words, [word for some in more for word in some], " ")
    return Fields(tags, keywords, max([kept.importance, *(o.importance for o in others)]))


def _union(before: str, own: Sequence[str], rest: Sequence[str], joiner: str) -> str:
    known = {word.casefold() for word in own}
    added: dict[str, str] = {}
    for word in rest:
        if word.casefold() not in known:
            added.setdefault(word.casefold(), word)
    after = joiner.join([*own, *added.values()])
    # Nothing to add: the field stays as it was written, spaces and repeats included.
    return after if added and len(after) <= FIELD_MAX_CHARS else before


def changed_fields(before: Fields, after: Fields) -> tuple[str, ...]:
    """Return the names of the fields that differ, in the order of Fields."""
    pairs = zip(Fields._fields, before, after, strict=True)
    return tuple(name for name, one, other in pairs if one != other)
