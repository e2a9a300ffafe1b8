"""Which turns of a session stay as they are: the recent tail.

What belongs here: the mandatory last turns, what may not be told apart, and how far back the tail
reaches. What does not: rendering, counting, the rest of the budget.

A suffix is bundle-safe if it starts no answer without its question: neither inside a bundle (turns
that share a bundle id) nor at an assistant's turn right after a user's. Only request to response is
coupled. The reference's code couples response to request as well, and its tail then swallows every
alternating conversation whole (research/peers.md 1.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noctuary.context.values import Turn

USER, ASSISTANT = "user", "assistant"
"""The roles of a request and of its response."""


def base_start(turns: Sequence[Turn], min_turns: int) -> int:
    """Return where T_base begins: at the last `min_turns` turns, or where their bundle begins.

    Args:
        turns: The session, oldest first.
        min_turns: m, >= 0; 0 gives an empty base.

    Returns:
        An index in [0, len(turns)].

    Source: libravdb mathematics 7.8; research/peers.md 1.4.
    """
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

    Args:
        turns: The session, oldest first.
        base: Where T_base begins.
        cost_of: What the turn at an index costs, >= 0; asked only as far back as there is room.
        room_tokens: What the turns before T_base may cost together.

    Returns:
        An index in [0, base]; `base` itself where nothing more fits.

    Source: libravdb mathematics 7.8.
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
    earliest = len(turns)
    starts = [0] * len(turns)
    for index in range(len(turns) - 1, -1, -1):
        bundle = turns[index].bundle
        if bundle:
            earliest = min(earliest, seen[bundle])
        starts[index] = earliest
    return starts


def _is_safe(turns: Sequence[Turn], firsts: Sequence[int], start: int) -> bool:
    if start == 0 or start >= len(turns):
        return True
    before, after = turns[start - 1].role.casefold(), turns[start].role.casefold()
    return firsts[start] >= start and not (before == USER and after == ASSISTANT)
