"""What goes into a prompt and how it is written: turns, parts, sections, constants, counting."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from itertools import accumulate, takewhile
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from noctuary.context.documents import Node
from noctuary.context.render import Line, render_block
from noctuary.core.errors import LineFault, SessionFileError
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import to_micros
from noctuary.embed.lean import WordPiece, split_words
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

    code: str  # "hard_over_reserve", "hard_over_budget" or "tail_base_over_budget"
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
    hard_fraction: float = 0.0  # alpha1 of 7.8, share of the budget for hard nodes; 0: no limit
    soft_fraction: float = 0.3  # alpha2 of 7.8, share of the budget for soft nodes
    tail_target_tokens: int = 128  # recent turns to aim at; more leaves less for memories
    min_tail_turns: int = 4  # m, the last turns that are always there; they win over the target

    def __post_init__(self) -> None:
        if faults := _faults(self):
            raise ValueError("; ".join(faults))

    def retrieval(self) -> RetrievalProfile:
        """Return the ranking of memories by the same two passes: everything else is off."""
        return _retrieval(self)


_SHARED = ("coarse_depth", "coarse_threshold", "authority_floor")
"""The constants that a recall has as well: by the same names, in the same ranges."""


def _faults(p: ContextProfile) -> list[str]:
    """Return what is wrong with the values, a sentence each: one by one, then together."""
    faults = value_faults({name: getattr(p, name) for name in _SHARED})
    for name, least in {"final_depth": 1, "tail_target_tokens": 0, "min_tail_turns": 0}.items():
        value = getattr(p, name)
        if type(value) is not int or value < least:
            faults.append(f"{name} must be a whole number >= {least}, found {value!r}")
    for name in ("hop_threshold", "hop_decay", "hard_fraction", "soft_fraction"):
        value = getattr(p, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            faults.append(f"{name} must be a number from 0 to 1, found {value!r}")
    return faults or [sentence for sentence, holds in _rules(p) if not holds]


def _rules(p: ContextProfile) -> Iterator[tuple[str, bool]]:
    told = f"hop_decay must lie between 0 and 1, found {p.hop_decay!r}"
    yield told, 0.0 < p.hop_decay < 1.0
    told = f"final_depth must be at most coarse_depth, found {p.final_depth} and {p.coarse_depth}"
    yield told, p.final_depth <= p.coarse_depth
    shares = f"{p.hard_fraction:g} and {p.soft_fraction:g}"
    told = f"hard_fraction and soft_fraction must sum to at most 1, found {shares}"
    yield told, p.hard_fraction + p.soft_fraction <= 1.0


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
    fault = ""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SESSION_BYTES + 1)
    except OSError as error:
        fault, raw = f"cannot be read: {error.strerror or error}", b""
    if len(raw) > MAX_SESSION_BYTES:
        fault = f"has more than {MAX_SESSION_BYTES:,} bytes: give its last turns"
    if fault:
        raise SessionFileError(path, [LineFault(0, "file", fault)])
    turns: list[Turn] = []
    faults: list[LineFault] = []
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            turns += [_turn(line)] if line.strip() else []
        except ValueError as error:
            faults.append(LineFault(number, "turn", str(error)))
    if faults:
        raise SessionFileError(path, faults)
    return tuple(turns)


def _turn(line: bytes) -> Turn:
    """Return the turn of a line; a `ValueError` says what is wrong with it."""
    try:
        row: Any = parse_json(line.decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError(f"expected a JSON object, found {type(row).__name__}")  # noqa: TRY004 (one kind of fault)
    row = cast("dict[str, Any]", row)
    for name in ("role", "text", "id", "at", "bundle"):
        value = row.get(name)
        if value is None and name in ("role", "text"):
            raise ValueError(f"{name} is missing: a turn has role and text")
        if value is not None and not isinstance(value, str):
            raise ValueError(f"{name} must be a text, found {type(value).__name__}")
    at = row.get("at")
    try:
        at_us = None if at is None else to_micros(aware(datetime.fromisoformat(at)))
    except (ValueError, OverflowError):
        raise ValueError(f"at must be an ISO-8601 date or time, found {at!r}") from None
    return Turn(row["role"], row["text"], row.get("id"), at_us, row.get("bundle"))


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
# What the query found stands in the block of `sources.injected`, so that no part of it is stored
# again. Pieces end with a line break, and the text is all of them one after the other: what a part
# costs does not depend on its neighbours. Only our own tags are escaped in documents and turns,
# and a turn's further lines are indented, so that no text can close a section or speak for
# somebody else.

RULES, LATEST, GUIDANCE, EARLIER = "rules", "latest turns", "guidance", "earlier turns"
"""Names of the sections of hard nodes, of T_base, of soft nodes and of the tail's extension."""

_OWN_TAG = re.compile(r"<(?=\s*/?\s*noctuary-)", re.IGNORECASE)
_MICROS_PER_SECOND = 1_000_000

Frame = tuple[str, str]  # around the pieces of a section: an opening and a closing one


def frame_of(section: str) -> Frame:
    """Return the tags around a section of documents or turns."""
    return f'<noctuary-context part="{section}">\n', "</noctuary-context>\n"


def frame_of_found(lines: Sequence[Line]) -> Frame:
    """Return what stands around the lines of what was found: it depends on all of them."""
    block = render_block(lines)
    opening, closing = block.partition("\n- [")[0], block.rpartition("\n")[2]
    return f"{opening}\n", f"{closing}\n"


def node_piece(node: Node) -> str:
    """Return a hard or soft node as Markdown of its kind; its words are not changed."""
    return f"{_OWN_TAG.sub('&lt;', _markdown(node))}\n"


def turn_piece(turn: Turn) -> str:
    """Return a turn as `Role: text`, its further lines indented."""
    return f"{_OWN_TAG.sub('&lt;', _said(turn))}\n"


def line_of_node(node: Node) -> Line:
    """Return a found node as a line of the block; documents have no date."""
    return Line(node.id, "undated", _indented(_markdown(node)), "authored")


def line_of_turn(turn_id: str, turn: Turn) -> Line:
    """Return a found turn as a line of the block, undated without a day that a calendar has."""
    day = "undated"
    if turn.at_us is not None:
        with suppress(OverflowError, OSError, ValueError):
            day = datetime.fromtimestamp(turn.at_us / _MICROS_PER_SECOND, UTC).date().isoformat()
    return Line(turn_id, day, _said(turn), "this session")


def _said(turn: Turn) -> str:
    """Return `Role: text` with the further lines indented; the text alone without a role."""
    role = " ".join(turn.role.split())
    before = f"{role[:1].upper()}{role[1:]}: " if role else ""
    return _indented(f"{before}{turn.text.strip()}")


def _markdown(node: Node) -> str:
    if node.kind == "item":
        return f"- {node.text}"
    if node.kind == "quote":
        return "\n".join(f"> {line}" for line in node.text.split("\n"))
    if node.kind == "front_matter":
        return f"---\n{node.text}\n---"
    if node.kind == "code":
        # Longer than any fence inside, or the code would end early.
        inside = max((len(run) for run in re.findall("`{3,}", node.text)), default=2)
        fence = "`" * (inside + 1)
        return f"{fence}\n{node.text}\n{fence}"
    return f"## {node.text}" if node.kind == "heading" else node.text


def _indented(text: str) -> str:
    return "\n  ".join(text.splitlines())


# Fitting a section into a budget: the longest prefix, at the price of exactly what is written.
#
# Source: libravdb mathematics section 3 (the ranking is fixed, so that a prefix is optimal), 7.8.


class Section(NamedTuple):
    """Pieces between their tags, each counted by itself; an empty one costs nothing."""

    frame: Frame = ("", "")
    pieces: tuple[str, ...] = ()
    costs: tuple[int, ...] = ()
    frame_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The price of the whole."""
        return self.frame_tokens + sum(self.costs)

    @property
    def text(self) -> str:
        """The section as it is written."""
        opening, closing = self.frame
        return "".join((opening, *self.pieces, closing))


def price_section(name: str, pieces: Sequence[str], counter: TokenCounter) -> Section:
    """Return a section of documents or turns with its prices."""
    return _priced(frame_of(name), pieces, counter) if pieces else Section()


def _priced(frame: Frame, pieces: Sequence[str], counter: TokenCounter) -> Section:
    costs = tuple(map(counter.count, pieces))
    return Section(frame, tuple(pieces), costs, price_frame(frame, counter))


def price_frame(frame: Frame, counter: TokenCounter) -> int:
    """Return what the tags cost."""
    return sum(map(counter.count, frame))


def fit_prefix(
    name: str, pieces: Sequence[str], counter: TokenCounter, room_tokens: int
) -> Section:
    """Return the section of the longest prefix that fits: pieces are neither skipped nor cut."""
    tags = price_frame(frame_of(name), counter)
    fitting = takewhile(room_tokens.__ge__, accumulate(map(counter.count, pieces), initial=tags))
    return price_section(name, pieces[: max(len(list(fitting)) - 1, 0)], counter)


def fit_found(lines: Sequence[Line], counter: TokenCounter, room_tokens: int) -> Section:
    """Return the block of the longest prefix of lines that fits.

    The block's id depends on its lines and so may what its tags cost: all is priced anew.
    """
    best, pieces = Section(), [f"{line.rendered()}\n" for line in lines]
    for count in range(1, len(lines) + 1):
        priced = _priced(frame_of_found(lines[:count]), pieces[:count], counter)
        if priced.tokens > room_tokens:
            break
        best = priced
    return best


# Which turns of a session stay as they are: the recent tail.
#
# A suffix is bundle-safe if it starts neither inside a bundle (turns that share a bundle id) nor at
# an assistant's turn right after a user's. The reference's code couples response to request as
# well, and its tail then swallows every alternating conversation whole (research/peers.md 1.4).


def base_start(turns: Sequence[Turn], min_turns: int) -> int:
    """Return where T_base begins: at the last `min_turns` turns, or where their bundle begins."""
    if min_turns <= 0:
        return len(turns)
    firsts = _bundle_starts(turns)
    start = max(len(turns) - min_turns, 0)
    while start > 0 and not _is_safe(turns, firsts, start):
        start -= 1
    return start


def extended_start(
    turns: Sequence[Turn], base: int, cost_of: Callable[[int], int], room_tokens: int
) -> int:
    """Return where the longest bundle-safe suffix begins whose turns before T_base fit.

    `cost_of` is asked only as far back as there is room; `base` itself where nothing more fits.
    """
    firsts = _bundle_starts(turns)
    best, used = base, 0
    for start in range(base - 1, -1, -1):
        used += cost_of(start)
        if used > room_tokens:
            break
        if _is_safe(turns, firsts, start):
            best = start
    return best


def _bundle_starts(turns: Sequence[Turn]) -> list[int]:
    """Return, per index, the first index of any bundle that has a turn there or later."""
    seen: dict[str, int] = {}
    for index, turn in enumerate(turns):
        if turn.bundle:
            seen.setdefault(turn.bundle, index)
    firsts = [seen[turn.bundle] if turn.bundle else len(turns) for turn in reversed(turns)]
    return list(accumulate(firsts, min))[::-1]


def _is_safe(turns: Sequence[Turn], firsts: Sequence[int], start: int) -> bool:
    if start == 0 or start >= len(turns):
        return True
    roles = turns[start - 1].role.casefold(), turns[start].role.casefold()
    return firsts[start] >= start and roles != ("user", "assistant")
