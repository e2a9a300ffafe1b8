"""The assembly: who gets which part of the budget, in order of precedence.

What belongs here: the order, and when there is no legal assembly. What does not: prices
(`packing`), what the query finds (`candidates`, `scoring`), stores (`searching`). Pure: equal
inputs and equal answers of the search give equal bytes.

    1. hard nodes, whole              4. the tail's extension, whole turns
    2. T_base, the last turns, whole  5. what the query found, best first,
    3. soft nodes, longest prefix        until the first that does not fit

They are written in that order too. If 1 and 2 do not fit, they are all there is, uncut, and the
context says why. Source: libravdb mathematics 7.8; research/peers.md 1.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from noctuary.authored.documents import Authored
from noctuary.context.candidates import (
    MAX_EARLIER_TURNS,
    Candidate,
    gather,
    of_node,
    of_turn,
    wording,
)
from noctuary.context.packing import Section, fit_found, fit_prefix, price_frame, price_section
from noctuary.context.profile import ContextProfile
from noctuary.context.rendering import (
    EARLIER,
    GUIDANCE,
    LATEST,
    RULES,
    frame_of,
    node_piece,
    turn_piece,
)
from noctuary.context.scoring import Scored, rank
from noctuary.context.searching import Search
from noctuary.context.tail import base_start, extended_start
from noctuary.context.values import Context, Degradation, Part, PartKind, PartSource, Turn
from noctuary.recall.result import RecallWarning

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
    """Return the context of one prompt.

    Args:
        query: Any text; a blank one finds nothing.
        budget_tokens: tau, >= 0.
        session: Turns, oldest first; ids that are given are distinct.
        authored: The documents' nodes.
        profile: The constants.
        search: The store.
    """
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
    """Return why hard nodes and T_base cannot be had together; empty if they can.

    Source: libravdb mathematics 7.8, the two fit requirements.
    """
    reasons: list[Degradation] = []
    reserve = _share(profile.hard_fraction, budget_tokens)
    if profile.hard_fraction > 0 and hard.tokens > reserve:
        reasons.append(
            _degradation("hard_over_reserve", hard.tokens, reserve, "hard nodes", "their reserve")
        )
    if hard.tokens > budget_tokens:
        reasons.append(
            _degradation("hard_over_budget", hard.tokens, budget_tokens, "hard nodes", "the budget")
        )
    together = hard.tokens + base.tokens
    if base.pieces and together > budget_tokens:
        what = f"hard nodes and the last {len(base.pieces)} turns"
        reasons.append(
            _degradation("tail_base_over_budget", together, budget_tokens, what, "the budget")
        )
    return tuple(reasons)


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


def _degradation(code: str, needed: int, allowed: int, what: str, whose: str) -> Degradation:
    message = (
        f"{what} need {needed:,} tokens and {whose} is {allowed:,}: they are here uncut and "
        "nothing else is. Raise the budget, or shorten them"
    )
    return Degradation(code, needed, allowed, message)
