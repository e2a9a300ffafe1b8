"""The gate's sentence about sessions. Pure reading, by other code than what built them."""

from __future__ import annotations

from array import array
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.arrays import ROLES
from noctuary.graph.sessions import MIN_MEMBERS, SessionArrays
from noctuary.snapshot import layout
from noctuary.snapshot.graph_checks import judged
from noctuary.snapshot.verdict import CheckResult

if TYPE_CHECKING:
    from noctuary.snapshot.checks import Candidate, GateContext

_NAME = "every_session_holds_its_memories_in_order"
_FIELDS = tuple(field.name for field in fields(SessionArrays))
_NO_KEY = -1
_MEMORIES = """SELECT ifnull("user", ''), ifnull(wing, ''), ifnull(session_id, ''), created_at_us,
is_turn FROM memories ORDER BY position"""


class _Memories(NamedTuple):
    """What the memories say themselves, by position, shape (n,).

    Attributes:
        keys: One number per owner, wing and session id; _NO_KEY without a session id.
        created_at_us: When they were written.
        turns: 1 for a turn of a conversation, 0 for any other.
    """

    keys: NDArray[np.int64]
    created_at_us: NDArray[np.int64]
    turns: NDArray[np.int64]


def every_session_holds_its_memories_in_order(c: Candidate, x: GateContext) -> CheckResult:
    """Each session is all memories of one owner, wing and session id, by time, then by position.

    Each memory knows its session, its place there, whether it is a turn, and a concept that speaks
    in it, where one does.
    """
    sessions = SessionArrays(**{name: c.array(layout.session_file(name)) for name in _FIELDS})
    memories = _read_memories(c)
    found: dict[str, int | float | str] = {"sessions": int(sessions.indptr.size) - 1}
    if not _is_aligned(sessions, len(memories.keys)):
        return CheckResult(_NAME, False, {**found, "fault": "arrays differ"})
    of_member = np.repeat(np.arange(sessions.indptr.size - 1), np.diff(sessions.indptr))
    found["too_small"] = int((np.diff(sessions.indptr) < MIN_MEMBERS).sum())
    found["misplaced"] = _misplaced(sessions, of_member)
    found["of_another_session"] = _of_another_session(sessions, of_member, memories.keys)
    found["left_out"] = _left_out(sessions, memories.keys)
    found["out_of_order"] = _out_of_order(sessions, of_member, memories.created_at_us)
    found["wrong_turns"] = int((sessions.turns != memories.turns).sum())
    found["wrong_speakers"] = _wrong_speakers(c, sessions.speakers)
    return judged(_NAME, found, "sessions")


def _read_memories(c: Candidate) -> _Memories:
    codes: dict[tuple[str, str, str], int] = {}
    keys, created, turns = array("q"), array("q"), array("q")
    for owner, wing, session, created_at_us, is_turn in c.rows.execute(_MEMORIES):
        key = (owner, wing, session)
        keys.append(codes.setdefault(key, len(codes)) if session.strip() else _NO_KEY)
        created.append(created_at_us)
        turns.append(is_turn)
    return _Memories(np.array(keys), np.array(created), np.array(turns))


def _is_aligned(sessions: SessionArrays, count: int) -> bool:
    """Say whether shapes line up and every member is a memory; the rest relies on it."""
    indptr, order = sessions.indptr, sessions.order
    by_memory = (sessions.codes, sessions.places, sessions.turns, sessions.speakers)
    return (
        all(array.shape == (count,) for array in by_memory)
        and indptr.ndim == 1
        and indptr.size > 0
        and int(indptr[0]) == 0
        and not bool((np.diff(indptr) < 0).any())
        and order.shape == (int(indptr[-1]),)
        and bool(((order >= 0) & (order < count)).all())
    )


def _misplaced(sessions: SessionArrays, of_member: NDArray[Any]) -> int:
    """Count the memories whose session or place is not where the members say."""
    codes = np.full(sessions.codes.size, -1, dtype=np.int64)
    places = np.full(sessions.codes.size, -1, dtype=np.int64)
    codes[sessions.order] = of_member
    places[sessions.order] = np.arange(sessions.order.size)
    # A member that is listed twice has but one place.
    repeated = sessions.order.size - np.unique(sessions.order).size
    return repeated + int(((sessions.codes != codes) | (sessions.places != places)).sum())


def _of_another_session(
    sessions: SessionArrays, of_member: NDArray[Any], keys: NDArray[np.int64]
) -> int:
    """Count the members that are of no session or of another one than the session's first."""
    own = keys[sessions.order]
    if not own.size:
        return 0
    first = own[sessions.indptr[of_member]]
    return int(((own == _NO_KEY) | (own != first)).sum())


def _left_out(sessions: SessionArrays, keys: NDArray[np.int64]) -> int:
    """Count the memories that share a session with others and are not in the session of these."""
    held = np.flatnonzero(keys != _NO_KEY)
    _, first, which, sizes = np.unique(
        keys[held], return_index=True, return_inverse=True, return_counts=True
    )
    shared = sizes[which] >= MIN_MEMBERS
    codes = sessions.codes[held]
    return int((shared & ((codes < 0) | (codes != codes[first][which]))).sum())


def _out_of_order(
    sessions: SessionArrays, of_member: NDArray[Any], created_at_us: NDArray[np.int64]
) -> int:
    """Count the members that stand after a later one of their session."""
    times, positions = created_at_us[sessions.order], sessions.order
    earlier = times[1:] < times[:-1]
    tied = (times[1:] == times[:-1]) & (positions[1:] <= positions[:-1])
    return int(((of_member[1:] == of_member[:-1]) & (earlier | tied)).sum())


def _wrong_speakers(c: Candidate, speakers: NDArray[np.int32]) -> int:
    """Count the memories whose speaker does not speak there, or that have one and name none."""
    indptr, roles, positions = (
        c.array(layout.mention_file(name)) for name in ("indptr", "roles", "positions")
    )
    owners = np.repeat(np.arange(indptr.size - 1), np.diff(indptr))
    speaking = roles == ROLES.index("speaker")
    silent = np.ones(speakers.size, dtype=np.bool_)
    silent[positions[speaking]] = False
    named = np.flatnonzero(speakers != -1)
    # One number per pair: a concept's ordinal is below the number of concepts, or it is no pair.
    concepts = max(indptr.size - 1, 1)
    spoken = positions[speaking].astype(np.int64) * concepts + owners[speaking]
    said = named * concepts + speakers[named]
    known = (speakers[named] >= 0) & (speakers[named] < concepts)
    unheard = int((~(known & np.isin(said, spoken))).sum())
    return unheard + int((~silent & (speakers == -1)).sum())
