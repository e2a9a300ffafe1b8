"""Whatever happens between two nights, what was captured is what the store holds."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.capture.bridge import LocalRow, ServerRow, bridge_ids
from noctuary.capture.stored_row import decode_row, encode_row
from noctuary.corpus.sensitive import find_sensitivity
from noctuary.corpus.source import RawRow
from noctuary.night.context import Night
from noctuary.night.corpus import export_memories
from noctuary.snapshot.layout import StorePaths
from tests.support.claude_memory import make_sqlite
from tests.support.edit_scripts import (
    NIGHTS,
    CacheStore,
    Editor,
    NightOfEdits,
)
from tests.support.feed_store import FeedStore
from tests.support.replicas import Look, export, judge, require_equal_nights


def run_scripts(nights: Sequence[NightOfEdits], look: Look) -> None:
    with tempfile.TemporaryDirectory() as name:
        require_equal_nights(FeedStore(Path(name) / "store.db"), nights, Path(name), look)


@settings(max_examples=20, deadline=None)
@given(NIGHTS)
def test_a_replica_follows_any_script_of_edits(nights: list[NightOfEdits]) -> None:
    run_scripts(nights, judge)


@settings(max_examples=3, deadline=None)
@given(NIGHTS)
def test_an_export_of_a_replica_is_that_of_the_store(nights: list[NightOfEdits]) -> None:
    run_scripts(nights, export)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(NIGHTS)
def test_a_replica_follows_many_scripts(nights: list[NightOfEdits]) -> None:
    run_scripts(nights, judge)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(NIGHTS)
def test_many_exports_of_replicas_are_those_of_the_stores(nights: list[NightOfEdits]) -> None:
    run_scripts(nights, export)


def dump_lines(cache: Path, path: Path) -> None:
    """Write the rows of a cache as JSON lines."""
    with closing(sqlite3.connect(cache)) as db:
        db.row_factory = sqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT * FROM memories ORDER BY id")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def export_night(directory: Path, source: Path) -> dict[str, bytes]:
    """Run the stage of a night that reads a source; return the tables that it made."""
    paths = StorePaths(directory)
    directory.mkdir(exist_ok=True)
    export_memories(Night(paths, source))
    return {f.name: f.read_bytes() for f in (paths.work / "corpus").glob("*.parquet")}


@pytest.mark.parametrize("form", ["sqlite", "jsonl"])
@settings(max_examples=3, deadline=None)
@given(nights=NIGHTS)
def test_a_store_that_is_read_as_a_whole_needs_no_replica(
    form: str, nights: list[NightOfEdits]
) -> None:
    """The full read is the diff: whatever was edited how late, the next export is complete."""
    with tempfile.TemporaryDirectory() as name:
        cache = make_sqlite(Path(name) / "memory.db", [], extra_columns=["vault_path TEXT"])
        source = cache if form == "sqlite" else Path(name) / "memories.jsonl"
        editor = Editor(CacheStore(cache))
        for number, night in enumerate([NightOfEdits([], False), *nights]):
            for edit in night.edits:
                editor.apply(edit)
            if not editor.store.ids():
                return
            if form == "jsonl":
                dump_lines(cache, source)
            grown = export_night(Path(name) / "grown", source)
            assert grown == export_night(Path(name) / f"fresh-{number}", source)
            assert set(grown) == {"memories.parquet", "turns.parquet", "quarantine.parquet"}


CELL = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=9)
    | st.sampled_from(["\0bytes", "\ud800", "a\0b"])
)  # fmt: skip
VALUE = st.recursive(
    CELL, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6
)


@given(st.integers(), st.dictionaries(st.text(max_size=5), VALUE, max_size=4))
def test_a_row_comes_back_as_it_was(key: int, fields: dict[str, object]) -> None:
    row = RawRow("id 1", key, fields)
    reason = find_sensitivity(row)
    expected = row if reason is None else RawRow("id 1", key, {}, withheld=reason)
    assert repr(decode_row(key, encode_row(row))) == repr(expected), "repr tells -0.0, nan, True"


LOCAL = st.builds(
    LocalRow,
    st.integers(0, 9),
    st.none() | st.integers(0, 9),
    st.none() | st.sampled_from(["a", "b", "c", "d"]),
)
SERVER = st.builds(ServerRow, st.integers(0, 9).map(str), st.sampled_from(["a", "b", "c", "d"]))


@given(
    st.lists(LOCAL, unique_by=lambda row: row.local_id),
    st.lists(SERVER, unique_by=lambda row: row.memory_id),
)
def test_a_bridge_has_one_end_on_each_side(local: list[LocalRow], server: list[ServerRow]) -> None:
    found = bridge_ids(local, server)
    assert list(found) == sorted(found)
    assert len(set(found.values())) == len(found)
    contents = {row.memory_id: row.content_hash for row in server}
    by_id = {row.local_id: row for row in local}
    for local_id, memory_id in found.items():
        row = by_id[local_id]
        assert str(row.server_id) == memory_id or row.content_hash == contents[memory_id]
    wanted = {str(row.server_id) for row in local if row.server_id is not None} & set(contents)
    assert wanted <= set(found.values()), "whoever names a memory's id has it"
    assert found == bridge_ids(reversed(local), reversed(server))
