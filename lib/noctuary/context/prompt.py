"""What goes into a prompt and how it is written: turns, parts, sections, constants, counting."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from noctuary.context.documents import Node
from noctuary.core.errors import LineFault, SessionFileError
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import to_micros
from noctuary.embed.wordpiece import WordPiece, split_words
from noctuary.recall.profile import RetrievalProfile, value_faults
from noctuary.recall.query import aware
from noctuary.recall.result import RecallWarning
from noctuary.text.marks import estimate_tokens

PartKind = Literal["I1", "I2", "tail", "variant"]
PartSource = Literal["authored", "session", "memory"]


class Turn(NamedTuple):
    """One turn of the session that a prompt continues; a blank one is left out."""

    role: str  # "user", "assistant", or any other name
    text: str
    id: str | None = None  # unique in the session; None gives "turn-" and its place
    at_us: int | None = None  # microseconds since the epoch
    bundle: str | None = None  # what belongs together, for example a tool call and its result


class Part(NamedTuple):
    """One piece of the prompt."""

    kind: PartKind  # "I1" hard, "I2" soft, "tail" recent turns, "variant" what the query found
    source: PartSource
    id: str  # of the node, the turn or the memory
    text: str  # the content as it was given
    rendered: str  # the piece of `Context.text`, with its line break
    tokens: int  # of `rendered`
    score: float | None  # sigma of libravdb 7.8, in [0, 1]; None for what is there unfound
    why: Mapping[str, Any]  # the rule that put it here (`rule`) and its numbers

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        names = ("kind", "source", "id", "text", "tokens", "score")
        return {**{name: getattr(self, name) for name in names}, "why": dict(self.why)}


class Degradation(NamedTuple):
    """Why no legal assembly exists, so that only hard nodes and the last turns are there, uncut."""

    code: str  # "hard_over_budget" or "tail_base_over_budget"
    needed_tokens: int
    allowed_tokens: int
    message: str  # both in a sentence, with what to do


class Context(NamedTuple):
    """An assembled prompt."""

    query: str
    text: str  # the whole, rendered; "" where there is nothing to say
    parts: tuple[Part, ...]  # in the order of the text
    tokens: int  # of the whole text: those of the parts and of the tags around them
    frame_tokens: int  # of the tags alone
    budget_tokens: int
    token_counter: str  # "tokenizer:<name>" or "estimate"
    profile: str
    degraded: tuple[Degradation, ...] = ()  # why `tokens` may exceed the budget
    warnings: tuple[RecallWarning, ...] = ()  # what was missing on the way
    snapshot_id: str | None = None  # where memories came from
    store: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            **self._asdict(),
            "parts": [part.to_json() for part in self.parts],
            "degraded": [reason._asdict() for reason in self.degraded],
            "warnings": [warning.to_json() for warning in self.warnings],
        }


# ContextProfile: every constant of an assembly with its default, and the profiles with a name.


@dataclass(frozen=True, slots=True)
class ContextProfile:
    """How one context is assembled; sections are those of the libravdb mathematics."""

    name: str = "default"
    coarse_depth: int = 16  # k1 of 7.4, candidates of the first pass, >= 1
    coarse_threshold: float = 0.2  # theta1 of 7.4, its least similarity, in [-1, 1]
    final_depth: int = 8  # k2 of 7.5, what the second pass keeps, in [1, coarse_depth]
    hop_decay: float = 0.5  # eta_hop of 7.7, in (0, 1): a hop target's share of its parent's score
    hop_threshold: float = 0.15  # theta_hop of 7.7, in [0, 1]: least score of a hop target
    # Least factor that authority multiplies with, in [0, 1]. 0 is the reference: a memory that
    # nobody recalls or wrote by hand keeps 0.1 % of its score after a week.
    authority_floor: float = 0.5
    hard_fraction: float = 0.0  # alpha1 of 7.8, most of the budget for hard nodes; 0 sets no limit
    soft_fraction: float = 0.3  # alpha2 of 7.8, share of the budget for soft nodes
    tail_target_tokens: int = 128  # recent turns to aim at; more leaves less for memories
    min_tail_turns: int = 4  # m, the last turns that are always there; they win over the target

    def __post_init__(self) -> None:
        whole = (self.final_depth, self.tail_target_tokens, self.min_tail_turns)
        ranges = {
            "final_depth must lie in [1, coarse_depth]": 1 <= self.final_depth <= self.coarse_depth,
            "hop_decay must lie between 0 and 1": 0.0 < self.hop_decay < 1.0,
            "hop_threshold must lie in [0, 1]": 0.0 <= self.hop_threshold <= 1.0,
            "hard_fraction must lie in [0, 1]": 0.0 <= self.hard_fraction <= 1.0,
            "soft_fraction must lie in [0, 1 - hard_fraction]": (
                0.0 <= self.soft_fraction <= 1.0 - self.hard_fraction
            ),
            "tail_target_tokens must be >= 0": self.tail_target_tokens >= 0,
            "min_tail_turns must be >= 0": self.min_tail_turns >= 0,
            "depths, turns and tokens must be whole numbers": all(type(n) is int for n in whole),
        }
        faults = [rule for rule, holds in ranges.items() if not holds]
        faults += value_faults({name: getattr(self, name) for name in _SHARED})
        if faults:
            raise ValueError(f"the profile {self.name}: {'; '.join(faults)}")

    def retrieval(self) -> RetrievalProfile:
        """Return the ranking of memories by the same two passes: everything else is off."""
        return _retrieval(self)


_SHARED = ("coarse_depth", "coarse_threshold", "authority_floor")
"""The constants that a recall has as well: by the same names, in the same ranges."""


@lru_cache(maxsize=8)  # checking sixty flags costs half a millisecond of every assembly
def _retrieval(profile: ContextProfile) -> RetrievalProfile:
    shared = {name: getattr(profile, name) for name in _SHARED}
    return RetrievalProfile.off().replaced(scorer="two_pass", model_guard=True, **shared)


PROFILES: Mapping[str, ContextProfile] = {
    "default": ContextProfile(),
    "reference": ContextProfile(name="reference", authority_floor=0.0),
}
"""Shipped profiles by name. "reference" has libravdb 1.3.12's defaults to the letter; without the
floor whatever is older than days scores 0 (research/peers.md 1.5)."""


def profile_named(profile: str | ContextProfile) -> ContextProfile:
    """Return a profile by its name, or the one given; a `ValueError` where none has that name."""
    known = profile if isinstance(profile, ContextProfile) else PROFILES.get(profile)
    if known is None:
        names = ", ".join(PROFILES)
        raise ValueError(f"profile must be one of {names} or a ContextProfile, found {profile!r}")
    return known


# Turns from a file of JSON lines, one per line, oldest first (docs/context.md).

MAX_SESSION_BYTES = 64_000_000  # a file is read whole; a working day has a hundredth of this


def read_session(path: Path) -> tuple[Turn, ...]:
    """Return the turns of a file, or a `SessionFileError` that lists every fault.

    Lines end at LF only; blank ones are skipped. Of a line `role` and `text` are needed; `id`,
    `at` (ISO-8601, without a zone UTC) and `bundle` are optional, and other keys are ignored.
    """
    turns: list[Turn] = []
    faults: list[LineFault] = []
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SESSION_BYTES + 1)
    except OSError as error:
        raise SessionFileError(path, [LineFault(0, "file", f"cannot be read: {error}")]) from error
    if len(raw) > MAX_SESSION_BYTES:
        fault = f"has more than {MAX_SESSION_BYTES:,} bytes: give its last turns"
        raise SessionFileError(path, [LineFault(0, "file", fault)])
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            turns += [_turn(line)] if line.strip() else []
        except (ValueError, OverflowError) as error:
            faults.append(LineFault(number, "turn", str(error)))
    if faults:
        raise SessionFileError(path, faults)
    return tuple(turns)


def _turn(line: bytes) -> Turn:
    row: Any = parse_json(line.decode("utf-8"))
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, found {type(row).__name__}")  # noqa: TRY004 (one kind of fault)
    names = ("role", "text", "id", "at", "bundle")
    role, text, own, at, bundle = map(cast("dict[str, Any]", row).get, names)
    if not (isinstance(role, str) and isinstance(text, str)):
        raise ValueError("a turn has role and text, and both are texts")  # noqa: TRY004
    if not all(value is None or isinstance(value, str) for value in (own, at, bundle)):
        raise ValueError("id, at and bundle must be texts")
    at_us = None if at is None else to_micros(aware(datetime.fromisoformat(at)))
    return Turn(role, text, own, at_us, bundle)


# How many tokens a piece of a prompt costs. One context uses one counter.

_ENOUGH_IDS = 1 << 20  # more ids than any single word has: the count is never cut off


@dataclass(frozen=True, slots=True)
class TokenCounter:
    """What counts the tokens of one context: its label, and a function of a text, >= 0."""

    label: str
    count: Callable[[str], int]


ESTIMATE = TokenCounter("estimate", estimate_tokens)  # libravdb section 3: without a tokenizer


def vocabulary_counter(name: str, tokenizer: WordPiece) -> TokenCounter:
    """Count pieces of a model's own WordPiece vocabulary, without the two control tokens.

    A word that the vocabulary cannot spell costs one token per character: as the single unknown
    token that it is to the encoder, a pasted key of thousands of characters would cost nothing.
    """

    @cache
    def count_word(word: str) -> int:
        ids = tokenizer.encode(word, _ENOUGH_IDS)[1:-1]
        return len(word) if tokenizer.unknown_id in ids else len(ids)

    def count(text: str) -> int:
        return sum(map(count_word, split_words(text)))

    return TokenCounter(f"tokenizer:{name}", count)


# How a context is written: sections between tags, one piece of text per part (docs/context.md).
#
# Pieces end with a line break, and the text is all of them one after the other: what a part costs
# does not depend on its neighbours. Only our own tags are escaped in documents and turns, and a
# turn's further lines are indented, so that no text can close a section or speak for somebody else.

RULES, LATEST, GUIDANCE, EARLIER = "rules", "latest turns", "guidance", "earlier turns"
"""Names of the sections of hard nodes, of T_base, of soft nodes and of the tail's extension."""

_OWN_TAG = re.compile(r"<(?=\s*/?\s*noctuary-)", re.IGNORECASE)


class Section(NamedTuple):
    """Parts between their tags; an empty one costs nothing."""

    parts: tuple[Part, ...] = ()
    opening: str = ""
    closing: str = ""
    frame_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of the whole section."""
        return self.frame_tokens + sum(part.tokens for part in self.parts)

    @property
    def text(self) -> str:
        """The section as it is written."""
        return "".join((self.opening, *(part.rendered for part in self.parts), self.closing))


def section_of(name: str, parts: Sequence[Part], counter: TokenCounter) -> Section:
    """Return the section of some nodes or turns."""
    opening, closing = f'<noctuary-context part="{name}">\n', "</noctuary-context>\n"
    frame_tokens = counter.count(opening) + counter.count(closing)
    return Section(tuple(parts), opening, closing, frame_tokens) if parts else Section()


def fit_prefix(
    name: str, parts: Sequence[Part], counter: TokenCounter, room_tokens: int
) -> Section:
    """Return the section of the longest prefix that fits: parts are neither skipped nor cut."""
    tags = section_of(name, parts, counter).frame_tokens
    fitting = takewhile(room_tokens.__ge__, accumulate((p.tokens for p in parts), initial=tags))
    return section_of(name, parts[: max(len(list(fitting)) - 1, 0)], counter)


def part_of_node(node: Node, kind: PartKind, why: Mapping[str, Any], counter: TokenCounter) -> Part:
    """Return a hard or soft node as it is written."""
    piece = f"{_OWN_TAG.sub('&lt;', node.text)}\n"
    return Part(kind, "authored", node.id, node.text, piece, counter.count(piece), None, why)


def part_of_turn(turn: Turn, rule: str, counter: TokenCounter) -> Part:
    """Return a turn of the tail, which has an id by now."""
    piece, why = f"{_OWN_TAG.sub('&lt;', turn_text(turn))}\n", {"rule": rule}
    return Part("tail", "session", str(turn.id), turn.text, piece, counter.count(piece), None, why)


def turn_text(turn: Turn) -> str:
    """Return `Role: text` with the further lines indented; the text alone without a role."""
    role = " ".join(turn.role.split())
    before = f"{role[:1].upper()}{role[1:]}: " if role else ""
    return indented(f"{before}{turn.text.strip()}")


def indented(text: str) -> str:
    """Return a text with its further lines indented."""
    return "\n  ".join(text.splitlines())


def safe_starts(turns: Sequence[Turn]) -> list[int]:
    """Return where a tail of turns may begin, the latest place first.

    Neither inside a bundle (turns that share a bundle id), nor at an assistant's turn right after a
    user's. The reference's code couples response to request as well, and its tail then swallows
    every alternating conversation whole (research/peers.md 1.4).
    """
    first_of: dict[str, int] = {}
    for place, turn in enumerate(turns):
        if turn.bundle:
            first_of.setdefault(turn.bundle, place)
    starts, earliest = [len(turns)], len(turns)
    for place in range(len(turns) - 1, 0, -1):
        earliest = min(earliest, first_of.get(turns[place].bundle or "", earliest))
        roles = turns[place - 1].role.casefold(), turns[place].role.casefold()
        if earliest >= place and roles != ("user", "assistant"):
            starts.append(place)
    return [*starts, 0] if turns else starts
