from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.graph.build import build_sessions
from noctuary.graph.sessions import SessionArrays
from tests.unit.graph.conftest import RecordFactory


def _turns(record: RecordFactory, *fields: Mapping[str, object]) -> list[MemoryRecord]:
    return [
        record(position, f"turn {position}", **{"session_id": "s", "is_turn": True, **field})
        for position, field in enumerate(fields)
    ]


def _members(sessions: SessionArrays) -> list[list[int]]:
    ends = sessions.indptr.tolist()
    order = sessions.order.tolist()
    return [order[start:end] for start, end in pairwise(ends)]


def test_members_stand_by_time_and_then_by_position(record: RecordFactory) -> None:
    times = (30, 20, 10, 20)
    sessions = build_sessions(_turns(record, *({"created_at_us": time} for time in times)))
    assert _members(sessions) == [[2, 1, 3, 0]]
    assert sessions.places.tolist() == [3, 1, 0, 2]


def test_undated_members_stand_first(record: RecordFactory) -> None:
    dated = ({"created_at_us": 5}, {"created_at_us": -5}, {"created_at_us": UNDATED_US}, {})
    assert _members(build_sessions(_turns(record, *dated))) == [[2, 1, 0, 3]]


def test_an_id_is_only_unique_inside_its_owner_and_its_wing(record: RecordFactory) -> None:
    scopes = [
        {"user": "bo", "wing": "work"}, {"user": "al", "wing": "work"}, {"user": "al"},
        {"wing": "work"}, {}, {"user": "al", "wing": "home"},
    ]  # fmt: skip
    sessions = build_sessions(_turns(record, *scopes, *scopes))
    # Sorted by owner, then wing; nobody and nowhere come first.
    assert _members(sessions) == [[4, 10], [3, 9], [2, 8], [5, 11], [1, 7], [0, 6]]
    assert sessions.codes.tolist() == [5, 4, 2, 1, 0, 3] * 2


def test_sessions_of_one_and_memories_of_none_are_left_out(record: RecordFactory) -> None:
    ids = (None, "a", "", "b", "  ", "b", None)
    sessions = build_sessions(_turns(record, *({"session_id": session} for session in ids)))
    assert _members(sessions) == [[3, 5]]
    assert sessions.codes.tolist() == [-1, -1, -1, 0, -1, 0, -1]
    assert sessions.places.tolist() == [-1, -1, -1, 0, -1, 1, -1]


def test_places_invert_order_over_several_sessions(record: RecordFactory) -> None:
    ids = ("b", "a", "b", "a", "c", "b")
    sessions = build_sessions(_turns(record, *({"session_id": session} for session in ids)))
    assert _members(sessions) == [[1, 3], [0, 2, 5]]
    assert sessions.order[sessions.places[sessions.places >= 0]].tolist() == [0, 1, 2, 3, 5]


def test_turns_and_speakers_are_kept_by_position(record: RecordFactory) -> None:
    records = _turns(record, {}, {"is_turn": False}, {"session_id": None})
    sessions = build_sessions(records, {2: 7, 0: 0})
    assert sessions.turns.tolist() == [1, 0, 1]
    assert sessions.speakers.tolist() == [0, -1, 7]
    assert build_sessions(records).speakers.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("size", [0, 3])
def test_arrays_have_their_types_without_any_session(record: RecordFactory, size: int) -> None:
    sessions = build_sessions(_turns(record, *({"session_id": None} for _ in range(size))))
    for name in ("codes", "places", "speakers"):
        array = getattr(sessions, name)
        assert (array.dtype, array.tolist()) == (np.int32, [-1] * size)
    assert (sessions.turns.dtype, sessions.turns.size) == (np.int8, size)
    assert (sessions.order.dtype, sessions.order.size) == (np.int32, 0)
    assert (sessions.indptr.dtype, sessions.indptr.tolist()) == (np.int64, [0])
