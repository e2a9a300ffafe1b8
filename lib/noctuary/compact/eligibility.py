"""Which turns of a session may be compacted: all but its recent tail and what cannot be judged.

What belongs here: the protected tail, bundles of question and answer, turns from the future, giant
turns. What does not: how the eligible ones are grouped. Pure functions over one session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

PROTECTED_TAIL_TURNS = 4
"""The newest turns of each session stay raw: they are what the conversation still refers to. Larger
protects more context and compacts less. The reference excludes the last 4."""

MAX_BUNDLE_TURNS = 8
"""Most turns by which the tail is extended to reach the question of its first answer. Larger keeps
longer exchanges whole; the bound is what keeps a tail from swallowing its session."""

GIANT_TURN_CHARS = 20_000
"""A longer turn (some 5,000 tokens) stays raw. Encoders read its beginning only, so the gate could
not tell whether a summary preserves the rest; larger compacts more and vouches for less."""

_REQUESTERS = frozenset({"user", "human", "customer", "client"})
_RESPONDERS = frozenset({"assistant", "ai", "agent", "bot", "chatbot", "model"})


class SessionTurn(NamedTuple):
    """What clustering needs of a turn: not its text.

    Attributes:
        position: Corpus position.
        memory_id: The source's id.
        content_hash: Changes with every edit of the memory.
        created_at_us: Microseconds since the epoch, UNDATED_US where unknown.
        session_id: The conversation.
        user: Whose turn it is, or None.
        wing: Its wing, or None.
        speaker: Who says it (`noctuary.corpus.speaker`), or None.
        asks: True where the text ends in a question mark (`noctuary.text.sentences`).
        chars: Length of the text in code points.
    """

    position: int
    memory_id: str
    content_hash: str
    created_at_us: int
    session_id: str
    user: str | None
    wing: str | None
    speaker: str | None
    asks: bool
    chars: int


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The turns of one session, each in exactly one of four places.

    Attributes:
        eligible: May be compacted, chronological.
        protected: How many stay raw as the recent tail, the extension included.
        bundled: How many of these the tail was extended by to reach a question.
        ahead: How many stay raw because they are dated after now.
        giant: How many stay raw because they are too long to be judged.
    """

    eligible: list[SessionTurn]
    protected: int
    bundled: int
    ahead: int
    giant: int


def split_session(turns: Sequence[SessionTurn], *, protected_tail: int, now_us: int) -> Eligibility:
    """Say which turns of a session may be compacted.

    A turn dated after now is set aside first: its clock is wrong, so its place in the order is
    unknown, and it must not push the real newest turns out of the tail. It is an ordinary turn once
    its moment has passed. Undated turns are the oldest, in the source's order. The tail is the last
    `protected_tail` of what is left, extended backwards to the question of its first answer. A
    giant turn outside the tail stays raw.

    Args:
        turns: All turns of one session and user, chronological.
        protected_tail: How many of the newest stay raw; negative counts as 0.
        now_us: The present, microseconds since the epoch.
    """
    present = [turn for turn in turns if turn.created_at_us <= now_us]
    tail = min(max(protected_tail, 0), len(present))
    start = bundle_start(present, len(present) - tail)
    eligible = [turn for turn in present[:start] if turn.chars <= GIANT_TURN_CHARS]
    return Eligibility(
        eligible=eligible,
        protected=len(present) - start,
        bundled=len(present) - start - tail,
        ahead=len(turns) - len(present),
        giant=start - len(eligible),
    )


def bundle_start(turns: Sequence[SessionTurn], start: int) -> int:
    """Return where a tail must begin so that its first answer keeps its question.

    Only a request is coupled to its response, never a response to the next request, so that an
    alternating chat is not one long bundle (research/peers.md 1.4). Consecutive turns of one
    speaker count as one utterance. Where the question is not within MAX_BUNDLE_TURNS before the
    tail, the tail stays as it is.

    Args:
        turns: A session, chronological.
        start: Index of the tail's first turn; len(turns) for no tail.

    Returns:
        An index in [start - MAX_BUNDLE_TURNS, start].
    """
    if not 0 < start < len(turns):
        return start
    floor = max(start - MAX_BUNDLE_TURNS, 0)
    answer = _utterance_start(turns, start, floor)
    if answer <= floor or not is_request(turns[answer - 1], turns[answer]):
        return start
    question = _utterance_start(turns, answer - 1, floor)
    if question > 0 and _same_speaker(turns[question - 1], turns[question]):
        return start
    return question


def is_request(turn: SessionTurn, following: SessionTurn) -> bool:
    """Return whether a turn asks for the turn that follows it.

    Between named roles ("User", "Assistant") the role decides. Between people it is a turn that
    ends in a question mark and is followed by another speaker's, or by anything where no turn
    names its speaker.
    """
    roles = _role(turn), _role(following)
    if None not in roles:
        return roles == ("request", "response")
    differs = turn.speaker != following.speaker or turn.speaker is None
    return turn.asks and differs


def _utterance_start(turns: Sequence[SessionTurn], index: int, floor: int) -> int:
    while index > floor and _same_speaker(turns[index - 1], turns[index]):
        index -= 1
    return index


def _same_speaker(one: SessionTurn, other: SessionTurn) -> bool:
    return one.speaker is not None and one.speaker == other.speaker


def _role(turn: SessionTurn) -> str | None:
    name = (turn.speaker or "").casefold()
    if name in _REQUESTERS:
        return "request"
    return "response" if name in _RESPONDERS else None
