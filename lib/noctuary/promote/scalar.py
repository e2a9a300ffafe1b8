"""The gating scalar G: how much a turn deserves to be remembered for good.

What belongs here: the formula and its weights. What does not: where its signals come from. Pure
functions of numbers in [0, 1]. Source: libravdb's gate, research/peers.md 1.2.
"""

from __future__ import annotations

from typing import NamedTuple

from noctuary.promote.signals import Signals

NOVELTY_WEIGHT = 0.35
REPETITION_WEIGHT = 0.40
CONVERSATION_WEIGHT = 0.25
"""Of the conversational branch: H, R and D. A novel turn with nothing else reaches .35."""

SPECIFICITY_WEIGHT = 0.40
ACTION_WEIGHT = 0.35
STRUCTURE_WEIGHT = 0.25
"""Of the technical branch: P, A and Dt."""

REPEATED_COSINE = 0.80
REPEATED_HITS = 10
REPEATED_CAP = 5
"""F: earlier turns this much alike, of so many nearest; so many of them are all that counts."""

SATURATED_COSINE = 0.85
DURABLE_HITS = 5
SATURATED_CAP = 3
"""S: durable memories this much alike, of so many nearest; so many of them veto repetition."""

_DIGITS = 6


class Gate(NamedTuple):
    """G of one turn and its two branches, in [0, 1]."""

    g: float
    gconv: float
    gtech: float


def novelty(durable_cosines: list[float]) -> float:
    """Return H: 1 without durable neighbours, else 1 - the mean of their cosines, negatives as 0.

    Args:
        durable_cosines: In [-1, 1], of the `DURABLE_HITS` nearest durable memories.
    """
    if not durable_cosines:
        return 1.0
    return 1.0 - sum(min(max(c, 0.0), 1.0) for c in durable_cosines) / len(durable_cosines)


def repetition(turn_cosines: list[float], durable_cosines: list[float]) -> float:
    """Return R = F (1 - S): what is said again and again, unless it is kept already.

    Args:
        turn_cosines: In [-1, 1], of the `REPEATED_HITS` nearest earlier turns.
        durable_cosines: In [-1, 1], of the `DURABLE_HITS` nearest durable memories.
    """
    said = sum(c >= REPEATED_COSINE for c in turn_cosines)
    kept = sum(c >= SATURATED_COSINE for c in durable_cosines)
    return min(said / REPEATED_CAP, 1.0) * (1.0 - min(kept / SATURATED_CAP, 1.0))


def gate(signals: Signals, h: float, r: float) -> Gate:
    """Return G = (1 - T) Gconv + T Gtech with both branches, to 6 digits.

    Args:
        signals: T, D, P, A and Dt of the text.
        h: Novelty.
        r: Repetition.
    """
    gconv = NOVELTY_WEIGHT * h + REPETITION_WEIGHT * r + CONVERSATION_WEIGHT * signals.d
    gtech = (
        SPECIFICITY_WEIGHT * signals.p
        + ACTION_WEIGHT * signals.a
        + STRUCTURE_WEIGHT * signals.dtech
    )
    gconv, gtech = round(gconv, _DIGITS), round(gtech, _DIGITS)
    mixed = (1.0 - signals.t) * gconv + signals.t * gtech
    # Rounding must not lead out of the interval of the branches.
    low, high = sorted((gconv, gtech))
    return Gate(min(max(round(mixed, _DIGITS), low), high), gconv, gtech)


def said_something(signals: Signals) -> bool:
    """Say whether the words alone speak for a turn, in the branch that counts.

    Novelty and repetition cannot: in an empty store everything is new, and what is said most often
    is "thanks".
    """
    gtech = gate(signals, 0.0, 0.0).gtech
    return (1.0 - signals.t) * signals.d > 0.0 or signals.t * gtech > 0.0
