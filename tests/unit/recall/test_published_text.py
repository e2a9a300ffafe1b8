"""A text that does not match its content hash reaches nobody, on any path."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from noctuary.agents.hooks import fetch_memories
from noctuary.core import store as layout
from noctuary.core.manifest import read_pointer
from noctuary.core.types import DAMAGED_TEXT
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import expand_from
from noctuary.recall.profile import RetrievalProfile
from tests.support.store import Store

EXPLAINED = RetrievalProfile(explain=True)


def edit_rows(store: Store, sql: str, *values: object) -> None:
    """Change the rows of the serving snapshot as a disk or an intruder would: no size changes."""
    path = store.snapshot(read_pointer(store.paths).snapshot_id) / layout.ROWS_FILE
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as db:
        db.execute(sql, values)
        db.commit()


def test_a_memory_whose_text_is_not_the_published_one_is_left_out_and_the_next_takes_its_place(
    dense_store: Store,
) -> None:
    before = Recaller.open(dense_store.root).recall("spare key door", 3).memories
    assert before[0].id == 101
    edit_rows(dense_store, "UPDATE memories SET content = replace(content, 'blue', 'grey')")
    result = Recaller.open(dense_store.root).recall("spare key door", 3, profile=EXPLAINED)
    assert len(result.memories) == 3
    assert [m.id for m in result.memories][:2] == [m.id for m in before[1:]]
    (warning,) = [w for w in result.warnings if w.code == "snapshot_damaged"]
    assert "101" in warning.message
    assert "noctuary doctor" in warning.message
    for memory in result.memories:
        assert memory.score_breakdown is not None
        assert memory.score_breakdown["final_score"] == pytest.approx(memory.final_score)
    assert b"grey door" not in repr(result).encode()


@pytest.mark.parametrize(
    "change",
    ["content = X'00ff'", "tags = 'x'", "user = 'eve'", "importance = 0.75", "content_hash = ''"],
)
def test_no_field_of_a_memory_can_change_unnoticed(dense_store: Store, change: str) -> None:
    edit_rows(dense_store, f"UPDATE memories SET {change} WHERE memory_id = '101'")
    found = Recaller.open(dense_store.root).recall("spare key door")
    assert 101 not in {m.id for m in found.memories}
    assert "snapshot_damaged" in {w.code for w in found.warnings}


def test_every_path_that_shows_a_text_shows_none_that_was_not_published(
    dense_store: Store,
) -> None:
    reader = Recaller.open(dense_store.root).reader
    text = reader.describe([reader.count])[reader.count]["content"]
    summary = reader.summaries.ids[0]
    assert text != DAMAGED_TEXT
    edit_rows(dense_store, "UPDATE memories SET content = substr(content, 2)")
    edit_rows(dense_store, "UPDATE summaries SET text = substr(text, 2)")
    recaller = Recaller.open(dense_store.root)
    whole = expand_from(recaller.reader, recaller.snapshot_id, summary, None)
    shown = [whole.text, *(source.content for source in whole.sources)]
    shown += [row["content"] for row in fetch_memories(recaller.reader, ["101", summary], None)]
    assert set(shown) == {DAMAGED_TEXT}
    assert recaller.recall("spare key door flight").memories == ()
