"""Columns of a corpus, batch by batch, against a walk over its records."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core import store as layout
from noctuary.core.types import MemoryRecord
from noctuary.graph.build import build_sessions
from noctuary.graph.sessions import MIN_MEMBERS, SessionArrays
from noctuary.snapshot import pack as memory_columns
from noctuary.snapshot.pack import read_columns
from noctuary.sources.corpus import column_batches
from tests.support.store import memory, renumber

names = st.sampled_from([None, "", " ", "b", "a", "Ä", "日本"])
stored = st.builds(
    partial(memory, "x"),
    wing=names,
    room=names,
    user=names,
    session_id=names,
    category=st.sampled_from(["", "note", "decision"]),
    importance=st.floats(0, 1),
    created_at_us=st.integers(-(2**63), 2**62) | st.integers(0, 3),
    is_turn=st.booleans(),
)
corpora = st.lists(stored, max_size=24).map(renumber)


@given(corpora, st.integers(1, 5))
def test_columns_are_those_of_the_records(records: list[MemoryRecord], rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory_columns, "column_batches", partial(column_batches, rows=rows))
        columns = read_columns(records)
    assert columns.created_at_us.dtype == np.int64
    assert columns.created_at_us.tolist() == [r.created_at_us for r in records]
    expected = np.array([r.importance for r in records], dtype=np.float32)
    assert columns.importance.dtype == np.float32
    assert np.array_equal(columns.importance, expected)
    assert columns.turns == sum(r.is_turn for r in records)
    assert tuple(columns.facets) == tuple(layout.FACETS)
    for name, facet in columns.facets.items():
        said = [getattr(r, name) or "" for r in records]
        assert list(facet.values) == sorted(set(said) - {""})
        assert facet.codes.dtype == np.int32
        assert [facet.values[code] if code >= 0 else "" for code in facet.codes] == said


def naive_sessions(records: list[MemoryRecord], speakers: dict[int, int]) -> SessionArrays:
    """Sessions as lists of records."""
    members: dict[tuple[str, str, str], list[MemoryRecord]] = {}
    for record in records:
        if record.session_id and record.session_id.strip():
            key = (record.user or "", record.wing or "", record.session_id)
            members.setdefault(key, []).append(record)
    kept = [members[key] for key in sorted(members) if len(members[key]) >= MIN_MEMBERS]
    codes = np.full(len(records), -1, dtype=np.int32)
    places, spoken = codes.copy(), codes.copy()
    order: list[int] = []
    for code, session in enumerate(kept):
        for record in sorted(session, key=lambda r: (r.created_at_us, r.position)):
            codes[record.position], places[record.position] = code, len(order)
            order.append(record.position)
    for position, ordinal in speakers.items():
        spoken[position] = ordinal
    return SessionArrays(
        codes=codes,
        places=places,
        order=np.array(order, dtype=np.int32),
        indptr=np.cumsum([0, *map(len, kept)], dtype=np.int64),
        turns=np.array([r.is_turn for r in records], dtype=np.int8),
        speakers=spoken,
    )


@given(corpora, st.dictionaries(st.integers(0, 23), st.integers(0, 9)))
def test_sessions_are_those_of_a_walk_over_lists(
    records: list[MemoryRecord], speakers: dict[int, int]
) -> None:
    heard = {position: o for position, o in speakers.items() if position < len(records)}
    found, expected = build_sessions(records, heard), naive_sessions(records, heard)
    for name in SessionArrays._fields:
        left, right = getattr(found, name), getattr(expected, name)
        assert left.dtype == right.dtype, name
        assert left.tolist() == right.tolist(), name


def test_a_snapshot_of_nothing_has_columns_of_nothing() -> None:
    columns = read_columns([])
    assert columns.created_at_us.shape == columns.importance.shape == (0,)
    assert all(
        facet.values == [] and facet.codes.shape == (0,) for facet in columns.facets.values()
    )
