"""One prompt's context under one token budget: who gets which part, in order of precedence."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.context.documents import Authored, Node
from noctuary.context.inject import line_of
from noctuary.context.profile import (
    Context,
    ContextProfile,
    Degradation,
    Part,
    PartKind,
    PartSource,
    Turn,
)
from noctuary.context.sections import (
    EARLIER,
    GUIDANCE,
    LATEST,
    RULES,
    Section,
    TokenCounter,
    base_start,
    extended_start,
    fit_found,
    fit_prefix,
    frame_of,
    line_of_node,
    line_of_turn,
    node_piece,
    price_frame,
    price_section,
    turn_piece,
)
from noctuary.core.types import UNDATED_US, to_micros
from noctuary.recall.phases import keyword_coverage, score_two_pass, unit_of
from noctuary.recall.result import RecallWarning
from noctuary.sources.injected import Line
from noctuary.text.marks import split_speaker
from noctuary.text.tokens import tokenize

# Vectors of nodes and turns, kept while a process lives: a document is read once.
#
# Nothing of it is written to a disk: turns may hold what must not be stored.


Key = tuple[str, str]
"""Digest of an encoder and a text."""


class TextVectors:
    """Vectors by encoder and text, the last ones made; safe to share between threads."""

    def __init__(self, limit: int) -> None:
        """Take how many vectors are kept, >= 1."""
        self._limit = limit
        self._lock = threading.Lock()
        self._known: dict[Key, NDArray[np.float32]] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._known)

    def get(self, key: Key) -> NDArray[np.float32] | None:
        """Return the vector of a text, or None where it is not kept."""
        return self._known.get(key)

    def keep(self, key: Key, vector: NDArray[np.float32]) -> None:
        """Keep a vector; the oldest one goes where there are too many."""
        with self._lock:
            self._known.pop(key, None)
            while len(self._known) >= self._limit:
                del self._known[next(iter(self._known))]
            self._known[key] = vector


# What an assembly asks of a store: memories, how similar texts are, tokens, the time.


class FoundMemory(NamedTuple):
    """A recalled memory; its numbers are None where keywords take their place."""

    memory: Mapping[str, Any]
    similarity: float | None
    score: float | None


class Found(NamedTuple):
    """The memories of a query, at most k1, and what was missing on the way."""

    memories: tuple[FoundMemory, ...] = ()
    warnings: tuple[RecallWarning, ...] = ()


class Search(Protocol):
    """A store as an assembly sees it; nothing here raises for the state of a store."""

    @property
    def counter(self) -> TokenCounter:
        """The one counter of this context."""
        ...

    @property
    def knows_cosines(self) -> bool:
        """Whether texts can be compared by meaning; else the share of keywords is all there is."""
        ...

    def now_us(self) -> int:
        """Return the moment that ages are taken at, microseconds since the epoch."""
        ...

    def find_memories(self, query: str, profile: ContextProfile) -> Found:
        """Return the memories of the first pass, in any order; none where recall abstains."""
        ...

    def similarities(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of each text to the query; None where there was no time to read it."""
        ...


# V_rest of one query: variant nodes, turns before the tail and memories, made comparable.


MAX_COMPARED = 64
"""Nodes and turns compared by meaning, those with most of the query's words first: four for each
place of the first pass. Each costs 10 to 60 ms when a process reads it for the first time; more
miss fewer that share no word with the query."""

MAX_EARLIER_TURNS = 2_000
"""Turns before the tail that are looked at, the newest ones; the night keeps older ones."""


class Candidate(NamedTuple):
    """A text that competes for a place: a node, a turn or a memory."""

    id: str
    source: PartSource
    text: str
    line: Line
    created_at_us: int = UNDATED_US
    authored: float = 0.0
    hop_targets: tuple[str, ...] = ()
    similarity: float = 0.0
    coverage: float = 0.0
    score: float | None = None
    memory: Mapping[str, Any] | None = None


class Gathered(NamedTuple):
    """All candidates, nodes first, then turns, then memories, and what was left out."""

    candidates: tuple[Candidate, ...]
    warnings: tuple[RecallWarning, ...]


def of_node(node: Node) -> Candidate:
    """Return a node as a candidate that was compared to nothing yet."""
    return Candidate(
        node.id, "authored", node.text, line_of_node(node), authored=node.authority,
        hop_targets=node.hop_targets,
    )  # fmt: skip


def of_turn(turn_id: str, turn: Turn) -> Candidate:
    """Return a turn of the session as a candidate that was compared to nothing yet."""
    at_us = UNDATED_US if turn.at_us is None else turn.at_us
    return Candidate(turn_id, "session", turn.text, line_of_turn(turn_id, turn), at_us)


def of_memory(found: FoundMemory) -> Candidate:
    """Return a recalled memory as a candidate with the store's own numbers."""
    memory = found.memory
    return Candidate(
        str(memory.get("id")),
        "memory",
        str(memory.get("content", "")),
        line_of(memory),
        _moment_us(memory.get("created_at")),
        float(memory.get("importance") or 0.0),
        similarity=found.similarity or 0.0,
        score=found.score,
        memory=memory,
    )


def gather(
    query: str,
    own: Sequence[Candidate],
    found: Found,
    search: Search,
    present: frozenset[str],
) -> Gathered:
    """Return what competes, each wording once, with similarity and coverage.

    At most `MAX_COMPARED` of `own` (nodes in authored order, then turns, newest first) are
    compared; more, and those that could not be read, are a warning. What the prompt says already
    (`present`, as `wording`) is left out.
    """
    warnings = list(found.warnings)
    own = _distinct(own, present)
    known = present | {wording(c.text) for c in own}
    memories = _distinct([of_memory(m) for m in found.memories], known)
    tokens = tokenize(query)
    own = _with_coverage(own, tokens)
    compared = _most_promising(own)
    if len(compared) < len(own):
        warnings.append(
            RecallWarning(
                "variants_not_compared",
                f"{len(own) - len(compared)} nodes and turns share fewest words with the query and "
                f"were left out: {MAX_COMPARED} are compared. Shorten the documents or the session",
            )
        )
    if not search.knows_cosines:
        everyone = [*compared, *_with_coverage(memories, tokens)]
        alike = tuple(c._replace(similarity=c.coverage, score=None) for c in everyone)
        return Gathered(alike, tuple(warnings))
    cosines = search.similarities(query, [c.text for c in compared])
    read = [
        c._replace(similarity=cosine)
        for c, cosine in zip(compared, cosines, strict=True)
        if cosine is not None
    ]
    if len(read) < len(compared):
        message = (
            f"{len(compared) - len(read)} nodes and turns were not compared: the deadline passed, "
            "or the encoder failed"
        )
        warnings.append(RecallWarning("variants_unread", message))
    return Gathered((*read, *_with_coverage(memories, tokens)), tuple(warnings))


def wording(text: str) -> str:
    """Return what two texts share that say the same in the same words."""
    return " ".join(text.split()).casefold()


def text_coverage(query_tokens: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
    """Return `keyword_coverage` of texts that are in no index, in [0, 1], shape (len(texts),)."""
    holders: dict[str, list[int]] = {token: [] for token in sorted(set(query_tokens))}
    for place, text in enumerate(texts):
        for token in set(tokenize(text)) & holders.keys():
            holders[token].append(place)
    ranges: dict[str, tuple[int, int]] = {}
    postings: list[int] = []
    for token, places in holders.items():
        ranges[token] = (len(postings), len(postings) + len(places))
        postings += places
    return keyword_coverage(
        query_tokens,
        lambda tokens: [ranges[token] for token in tokens],
        np.array(postings, dtype=np.int32),
        np.arange(len(texts), dtype=np.int64),
    )


def _with_coverage(candidates: Sequence[Candidate], tokens: Sequence[str]) -> list[Candidate]:
    shares = text_coverage(tokens, [c.text for c in candidates]).tolist()
    return [c._replace(coverage=s) for c, s in zip(candidates, shares, strict=True)]


def _distinct(
    candidates: Sequence[Candidate], present: frozenset[str] | set[str]
) -> list[Candidate]:
    """Return the first of each wording that is not present; of a memory also what a turn says."""
    seen, kept = set(present), list[Candidate]()
    for candidate in candidates:
        said = {wording(candidate.text)}
        if candidate.memory is not None and candidate.memory.get("session_id") is not None:
            said.add(wording(split_speaker(candidate.text)[1]))
        if not said & seen:
            kept.append(candidate)
            seen |= said
    return kept


def _most_promising(own: Sequence[Candidate]) -> list[Candidate]:
    """Return at most `MAX_COMPARED`, by coverage, in the order given."""
    if len(own) <= MAX_COMPARED:
        return list(own)
    best = sorted(range(len(own)), key=lambda place: (-own[place].coverage, place))
    return [own[place] for place in sorted(best[:MAX_COMPARED])]


def _moment_us(created_at: Any) -> int:
    return UNDATED_US if not created_at else to_micros(datetime.fromisoformat(str(created_at)))


# One score for everything that the query found, and what comes along with it.
#
# Source: libravdb mathematics 7.3 to 7.8.


_SHOWN_DIGITS = 6
"""Digits of the numbers in `why`: what float32 can tell apart."""


class Scored(NamedTuple):
    """A candidate that stays, with sigma of 7.8, in [0, 1], and the rule behind it."""

    candidate: Candidate
    score: float
    why: Mapping[str, Any]


def rank(
    candidates: Sequence[Candidate],
    nodes: Mapping[str, Candidate],
    now_us: int,
    profile: ContextProfile,
) -> list[Scored]:
    """Return what the passes and the hops leave, best first; ties in the order given, hops last.

    `nodes` are all variant nodes by id, compared or not: what hops may reach.
    """
    direct = two_passes(candidates, now_us, profile)
    return sorted([*direct, *hops(direct, nodes, profile)], key=lambda found: -found.score)


def two_passes(
    candidates: Sequence[Candidate], now_us: int, profile: ContextProfile
) -> list[Scored]:
    """Return C2: the k1 most similar that reach theta1, of these the k2 of best score.

    A memory's score comes from the store, which knows its use; nodes and turns were never recalled.
    """
    if not candidates:
        return []
    given = np.array([c.similarity for c in candidates], dtype=np.float64)
    similarities = np.clip(np.where(np.isfinite(given), given, 0.0), -1.0, 1.0)
    dates = np.array([c.created_at_us for c in candidates], dtype=np.int64)
    authored = np.array([c.authored for c in candidates], dtype=np.float64)
    coverage = np.array([c.coverage for c in candidates], dtype=np.float64)
    rows, scores = score_two_pass(
        similarities, dates, now_us, np.zeros(dates.size, dtype=np.int64), 0, authored, coverage,
        profile.retrieval(), profile.final_depth,
    )  # fmt: skip
    chosen = [candidates[row].score for row in rows.tolist()]
    known = np.array([np.nan if score is None else score for score in chosen], dtype=np.float64)
    scores = np.where(np.isnan(known), scores, unit_of(known))
    best = np.lexsort((rows, -scores))[: profile.final_depth]
    kept = list(zip(rows[best].tolist(), scores[best].tolist(), strict=True))
    return [
        Scored(candidates[row], score, _why(candidates[row], float(similarities[row])))
        for row, score in kept
    ]


def hops(
    direct: Sequence[Scored], nodes: Mapping[str, Candidate], profile: ContextProfile
) -> list[Scored]:
    """Return C_hop*: nodes that a node of C2 names, at eta times their best parent's score.

    One step only, so that a circle of targets ends. Source: libravdb mathematics 7.7.
    """
    taken = {found.candidate.id for found in direct if found.candidate.source == "authored"}
    parents: dict[str, Scored] = {}
    for found in direct:
        for target in found.candidate.hop_targets:
            known = parents.get(target)
            if (
                target in nodes
                and target not in taken
                and (known is None or known.score < found.score)
            ):
                parents[target] = found
    reached = [
        Scored(
            nodes[target],
            profile.hop_decay * parent.score,
            {"rule": "hop", "parent": parent.candidate.id, "decay": profile.hop_decay},
        )
        for target, parent in parents.items()
    ]
    return [found for found in reached if found.score >= profile.hop_threshold]


def _why(candidate: Candidate, similarity: float) -> dict[str, Any]:
    return {
        "rule": "two_pass",
        "similarity": round(similarity, _SHOWN_DIGITS),
        "coverage": round(candidate.coverage, _SHOWN_DIGITS),
    }


# The assembly: who gets which part of the budget, in order of precedence.
#
# Pure: equal inputs and equal answers of the search give equal bytes.
#
#     1. hard nodes, whole              4. the tail's extension, whole turns
#     2. T_base, the last turns, whole  5. what the query found, best first,
#     3. soft nodes, longest prefix        until the first that does not fit
#
# They are written in that order too. If 1 and 2 do not fit, they are all there is, uncut, and the
# context says why. Source: libravdb mathematics 7.8; research/peers.md 1.4.


_ROUNDING = 1e-9
"""So that a share of the budget that is a whole number is not one token less by rounding."""


class Assembled(NamedTuple):
    """A context, and the memories in it as the store gave them, best first."""

    context: Context
    memories: tuple[Any, ...]


class _Inputs(NamedTuple):
    """What every step needs; `turns` without blank ones and each with its id."""

    query: str
    budget_tokens: int
    turns: tuple[tuple[str, Turn], ...]
    authored: Authored
    profile: ContextProfile
    search: Search


def assemble_from(
    query: str,
    budget_tokens: int,
    session: Sequence[Turn],
    authored: Authored,
    profile: ContextProfile,
    search: Search,
) -> Assembled:
    """Return the context of one prompt of at most `budget_tokens`, tau, >= 0."""
    turns = numbered_turns(session)
    inputs = _Inputs(query, budget_tokens, turns, authored, profile, search)
    counter = search.counter
    hard = price_section(RULES, [node_piece(node) for node in authored.hard], counter)
    start = base_start([turn for _, turn in turns], profile.min_tail_turns)
    base = price_section(LATEST, [turn_piece(turn) for _, turn in turns[start:]], counter)
    parts = [
        *_node_parts("I1", hard, authored, len(authored.hard)),
        *_turn_parts(base, turns[start:], "tail_base"),
    ]
    degraded = find_degradations(hard, base, budget_tokens, profile)
    if degraded:
        return Assembled(_context(inputs, (hard, base), parts, degraded=degraded), ())
    return _fill(inputs, hard, base, start, parts)


def _fill(
    inputs: _Inputs, hard: Section, base: Section, start: int, parts: list[Part]
) -> Assembled:
    """Return the context with everything that the mandatory parts leave room for."""
    budget, profile, counter = inputs.budget_tokens, inputs.profile, inputs.search.counter
    authored, turns = inputs.authored, inputs.turns
    left = budget - hard.tokens - base.tokens
    soft_budget = min(_share(profile.soft_fraction, budget), left)
    soft_pieces = [node_piece(node) for node in authored.soft]
    soft = fit_prefix(GUIDANCE, soft_pieces, counter, soft_budget)
    parts += _node_parts("I2", soft, authored, len(soft.pieces))
    first, tail = _extend(inputs, start, base, budget - hard.tokens - soft.tokens)
    parts += _turn_parts(tail, turns[first:start], "tail_extension")
    room = left - soft.tokens - tail.tokens
    found, warnings = _find(inputs, first, frozenset(wording(part.text) for part in parts), room)
    block = fit_found([f.candidate.line for f in found], counter, room)
    shown = found[: len(block.pieces)]
    parts += [
        Part("variant", f.candidate.source, f.candidate.id, f.candidate.text, piece, cost, f.score,
             f.why)
        for f, piece, cost in zip(shown, block.pieces, block.costs, strict=True)
    ]  # fmt: skip
    context = _context(inputs, (hard, base, soft, tail, block), parts, warnings=warnings)
    memories = [f.candidate.memory for f in shown if f.candidate.memory is not None]
    return Assembled(context, tuple(memories))


def find_degradations(
    hard: Section, base: Section, budget_tokens: int, profile: ContextProfile
) -> tuple[Degradation, ...]:
    """Return why hard nodes and T_base do not fit together; empty if they do (libravdb 7.8)."""
    reserve = _share(profile.hard_fraction, budget_tokens)
    turns = f"hard nodes and the last {len(base.pieces)} turns"
    limits = [
        ("hard_over_reserve", hard.tokens, reserve, "hard nodes", "their reserve"),
        ("hard_over_budget", hard.tokens, budget_tokens, "hard nodes", "the budget"),
        ("tail_base_over_budget", hard.tokens + base.tokens, budget_tokens, turns, "the budget"),
    ]
    return tuple(
        Degradation(
            code,
            needed,
            allowed,
            f"{what} need {needed:,} tokens and {whose} is {allowed:,}: they are here uncut and "
            "nothing else is. Raise the budget, or shorten them",
        )
        for code, needed, allowed, what, whose in limits
        if needed > allowed
        if profile.hard_fraction > 0 or code != "hard_over_reserve"  # 0 sets no limit
        if base.pieces or code != "tail_base_over_budget"
    )


def numbered_turns(session: Sequence[Turn]) -> tuple[tuple[str, Turn], ...]:
    """Return the turns that say something, oldest first, with their ids or made ones."""
    return tuple(
        (turn_id(place, turn), turn) for place, turn in enumerate(session) if turn.text.strip()
    )


def turn_id(place: int, turn: Turn) -> str:
    """Return a turn's own id, or one made of its place in the session, from 0."""
    return turn.id if turn.id is not None else f"turn-{place:06d}"


def _extend(inputs: _Inputs, start: int, base: Section, left: int) -> tuple[int, Section]:
    """Return where the tail begins and the section of its turns before T_base."""
    counter, turns = inputs.search.counter, inputs.turns
    cap = min(max(inputs.profile.tail_target_tokens, base.tokens), left)
    room = cap - base.tokens - price_frame(frame_of(EARLIER), counter)
    first = extended_start(
        [turn for _, turn in turns], start, lambda i: counter.count(turn_piece(turns[i][1])), room
    )
    pieces = [turn_piece(turn) for _, turn in turns[first:start]]
    return first, price_section(EARLIER, pieces, counter)


def _find(
    inputs: _Inputs, first: int, present: frozenset[str], room: int
) -> tuple[list[Scored], tuple[RecallWarning, ...]]:
    """Return what the query finds in V_rest, best first; nothing where there is no room at all."""
    query, profile, search = inputs.query, inputs.profile, inputs.search
    if not query.strip():
        return [], (RecallWarning("empty_query", "the query holds no text: nothing was looked up"),)
    if room <= 0:
        return [], ()
    earlier = inputs.turns[max(first - MAX_EARLIER_TURNS, 0) : first]
    nodes = [of_node(node) for node in inputs.authored.variants]
    own = [*nodes, *(of_turn(turn_id, turn) for turn_id, turn in reversed(earlier))]
    gathered = gather(query, own, search.find_memories(query, profile), search, present)
    reachable: dict[str, Candidate] = {
        node.id: node for node in nodes if wording(node.text) not in present
    }
    return rank(gathered.candidates, reachable, search.now_us(), profile), gathered.warnings


def _context(
    inputs: _Inputs,
    sections: Sequence[Section],
    parts: Sequence[Part],
    *,
    degraded: tuple[Degradation, ...] = (),
    warnings: tuple[RecallWarning, ...] = (),
) -> Context:
    return Context(
        query=inputs.query,
        text="".join(section.text for section in sections),
        parts=tuple(parts),
        tokens=sum(section.tokens for section in sections),
        frame_tokens=sum(section.frame_tokens for section in sections),
        budget_tokens=inputs.budget_tokens,
        token_counter=inputs.search.counter.label,
        profile=inputs.profile.name,
        degraded=degraded,
        warnings=warnings,
    )


def _node_parts(kind: PartKind, section: Section, authored: Authored, count: int) -> list[Part]:
    """Return the parts of the first `count` hard or soft nodes."""
    nodes = authored.hard if kind == "I1" else authored.soft
    why = {"rule": "hard"} if kind == "I1" else {"rule": "soft_prefix", "of": len(nodes)}
    source: PartSource = "authored"
    return [
        Part(kind, source, node.id, node.text, piece, cost, None, why)
        for node, piece, cost in zip(nodes[:count], section.pieces, section.costs, strict=True)
    ]


def _turn_parts(section: Section, turns: Sequence[tuple[str, Turn]], rule: str) -> list[Part]:
    return [
        Part("tail", "session", turn_id, turn.text, piece, cost, None, {"rule": rule})
        for (turn_id, turn), piece, cost in zip(turns, section.pieces, section.costs, strict=True)
    ]


def _share(fraction: float, budget_tokens: int) -> int:
    return math.floor(fraction * budget_tokens + _ROUNDING)
