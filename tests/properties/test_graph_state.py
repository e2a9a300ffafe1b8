from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.types import MemoryRecord
from noctuary.graph import state as hub_limits
from noctuary.graph.canonical import canonicalise, keep_runs
from noctuary.graph.state import GraphState, SyncReport
from tests.support.graph_objects import Graph, to_graph, to_tables
from tests.support.graphs import extract_all, synced_keys
from tests.support.naive_graph import naive_graph
from tests.support.store import memory

# Shadowing ("Blue Ridge Railway" and "Blue Ridge"), case ("Redis" and "redis"), statements, an
# alias, an unsegmented script, a character that folds to two words: what makes memories depend on
# one another.
_TEXTS = (
    "Blue Ridge\nA line of hills.",
    "Blue Ridge Railway\nIt runs below Blue Ridge.",
    "We rode the Blue Ridge Railway to Boot Hill.",
    "we saw blue ridge and redis",
    "Redis: a cache for Boot Hill",
    "redis: fast",
    "Redis and REDIS beside Boot Hill's redis",
    "Boot Hill is part of Blue Ridge.",
    "Boot Hill is now closed.",
    "Dana Whitfield (DW) works at Boot Hill.",
    "Dana Whitfield\nDana lives in 我的公司. See ½ Boot Hill.",
    "Dana: hello from Boot Hill",
    "the deploy window moved; the deploy window is short",
    "Bank of the Ridge\nIt pays for Redis.",
    "we like the Bank of the Ridge and the bank of the ridge",
    # Towns: with and without their state, beside a memory about the plain name, and under one name.
    "Boot Hill, Iowa\nA town.",
    "Ridge, Ohio\nA town.",
    "Ridge, Iowa\nAnother.",
    "we saw Ridge and Boot Hill in Iowa",
    "nothing here",
)
_HUBS = ((hub_limits.HUB_MENTION_MIN, hub_limits.HUB_SUBJECT_LIMIT), (1, 2), (2, 1))
"""Most memories that may mention a concept and be about it; a small corpus has no other hubs."""
_EDITS = ("add", "text", "delete", "restore", "session", "tags", "dates", "turn")


class _Store:
    """A source that is edited, with everything that was ever deleted."""

    def __init__(self) -> None:
        self.rows: list[MemoryRecord] = []
        self._deleted: list[MemoryRecord] = []
        self._made = 0

    @property
    def records(self) -> list[MemoryRecord]:
        return [row._replace(position=i) for i, row in enumerate(self.rows)]

    def edit(self, data: st.DataObject) -> None:
        action = data.draw(st.sampled_from(_EDITS))
        if action == "add" or not self.rows:
            self._add(data.draw(st.sampled_from(_TEXTS)))
            return
        if action == "restore":
            self.rows += self._deleted[-1:]
            del self._deleted[-1:]
            return
        place = data.draw(st.integers(0, len(self.rows) - 1))
        if action == "delete":
            self._deleted.append(self.rows.pop(place))
            return
        self.rows[place] = self._changed(self.rows[place], action, data)

    def _add(self, text: str) -> None:
        self._made += 1
        self.rows.append(memory(text, memory_id=f"m{self._made}"))

    def _changed(self, row: MemoryRecord, action: str, data: st.DataObject) -> MemoryRecord:
        if action == "text":
            return row._replace(content=data.draw(st.sampled_from(_TEXTS)))
        if action == "session":
            return row._replace(is_turn=True, session_id=data.draw(st.sampled_from("ab")))
        if action == "tags":
            return row._replace(tags=data.draw(st.sampled_from(["", "redis", "Boot Hill, redis"])))
        if action == "dates":
            when = data.draw(st.integers(0, 9))
            return row._replace(created_at_us=when, updated_at_us=10 - when)
        return row._replace(is_turn=not row.is_turn)


class _Night(NamedTuple):
    graph: Graph
    report: SyncReport
    kept_runs: tuple[str, ...]
    canonical_of: Mapping[str, str]


# A night takes some tenths of a second, of which little depends on its size.
@settings(max_examples=10)
@given(st.data(), st.sampled_from(_HUBS))
def test_nights_over_edits_give_the_graph_of_a_first_night_and_of_a_plain_loop(
    data: st.DataObject, hubs: tuple[int, int]
) -> None:
    _assert_nights_add_up(data, hubs)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.data(), st.sampled_from(_HUBS))
def test_many_nights_over_edits_give_the_graph_of_a_first_night_and_of_a_plain_loop(
    data: st.DataObject, hubs: tuple[int, int]
) -> None:
    _assert_nights_add_up(data, hubs)


def _assert_nights_add_up(data: st.DataObject, hubs: tuple[int, int]) -> None:
    source = _Store()
    source.edit(data)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(hub_limits, "HUB_MENTION_MIN", hubs[0])
        patch.setattr(hub_limits, "HUB_SUBJECT_LIMIT", hubs[1])
        path = Path(directory) / "graph.duckdb"
        for edits in data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)):
            for _ in range(3 * edits):
                source.edit(data)
            _assert_plain(source.records, _night(path, source.records))
        again = _night(path, source.records)
        first = _night(Path(directory) / "other.duckdb", source.records)
        assert again.report.touched == 0
        assert first.graph == again.graph
        assert to_graph(to_tables(first.graph)) == first.graph


def _assert_plain(records: Sequence[MemoryRecord], built: _Night) -> None:
    found = extract_all(records)
    merges = built.graph.merges
    assert built.graph == naive_graph(records, found, built.canonical_of, merges, built.kept_runs)


def _night(path: Path, records: Sequence[MemoryRecord]) -> _Night:
    extractions = extract_all(records)
    with GraphState.open(path) as state:
        report = state.sync(
            records, synced_keys(records), lambda chosen: [extractions[p] for p in chosen]
        )
        kept = keep_runs(state.runs(), len(records))
        state.place(kept)
        merged = canonicalise(list(state.names()), state.aliases())
        graph = to_graph(state.fold(merged.canonical_of, merged.merges))
    return _Night(graph, report, kept, merged.canonical_of)
