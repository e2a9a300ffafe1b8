from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.feedback.days import NEW_MEMORIES_A_DAY, Row, hold_out
from bench.feedback.measure import count_near
from bench.feedback.nights import guarded
from bench.feedback.repeats import count_repeats
from bench.feedback.simulate import Plan, simulate
from noctuary.core.store import StorePaths
from noctuary.sources.corpus import read_records
from noctuary.sources.injected import words_of
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night

NIGHTS = 3
LOOKUPS = (0, 2, 2, 4)
"""Prompts that only asked, after each night: their turns are no memories."""
SUBJECTS = ("boiler", "tram", "garden", "router", "passport", "bicycle", "oven", "roof")
FACTS = [
    f"The {subject} was looked at by {who} on the {day}th and will need a new {part} by autumn."
    for day, subject in enumerate(SUBJECTS, start=4)
    for who, part in (("Mira", "filter"), ("Tomas", "cable"))
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE memories (id INTEGER PRIMARY KEY AUTOINCREMENT, content TEXT NOT NULL, "
            "category TEXT, tags TEXT, expanded_keywords TEXT, importance REAL DEFAULT 0.5, "
            "is_sensitive INTEGER DEFAULT 0, created_at TEXT, updated_at TEXT, server_id INTEGER)"
        )
        db.execute("PRAGMA user_version = 2")
        date = "2026-01-05T08:00:00+00:00"
        db.executemany(
            "INSERT INTO memories (content, category, tags, created_at, updated_at) "
            f"VALUES (?, 'facts', '', '{date}', '{date}')",
            [(fact,) for fact in FACTS],
        )
    return path


def ask(store: Path, question: str) -> dict[str, Any]:
    """Stand in for recall: the memories of last night's corpus that share most words."""
    asked = set(words_of(question))
    records = read_records(store / "work" / "corpus")
    best = sorted(records, key=lambda r: (-len(asked & set(words_of(r.content))), r.memory_id))
    found = [
        {
            "id": int(r.memory_id), "content": r.content, "created_at": None, "user": r.user,
            "session_id": r.session_id,
        }
        for r in best[:3]
    ]  # fmt: skip
    return {"query": question, "store": str(store), "memories": found}


def run(source: Path, store: Path, *, on: bool) -> list[dict[str, Any]]:
    """Export stages alone, which is where the guard is."""
    store.mkdir()
    new = hold_out(source, NIGHTS * NEW_MEMORIES_A_DAY)
    night = Night(StorePaths(store), source)

    def pass_night() -> str:
        export_memories(night)
        return "exported"

    plan = Plan(
        source=source,
        work=store / "work",
        questions=[
            "who looked at the boiler, and when was that?",
            "what will the tram need by autumn?",
        ],
        new=new,
        ask=partial(ask, store),
        pass_night=pass_night,
        with_vectors=False,
    )
    with guarded(on):
        return simulate(plan, NIGHTS, told=lambda _: None)


def test_with_the_guard_nothing_comes_back_and_nothing_of_its_own_is_lost(
    source: Path, tmp_path: Path
) -> None:
    nights = run(source, tmp_path / "store", on=True)
    assert len(nights) == NIGHTS + 1
    for night in nights:
        kept = ("rows_not_own", "own_rows_lost", "chars_not_own", "exact_duplicates")
        assert {name: night[name] for name in kept} == dict.fromkeys(kept, 0)
    assert sum(nights[-1]["set_aside"].values()) == NIGHTS * 4 + LOOKUPS[-1]
    assert nights[-1]["cut"]["injected_block_cut"] == NIGHTS * 4 - LOOKUPS[-1]
    assert nights[-1]["echoes_among_injected"] == 0


def test_without_the_guard_the_same_month_grows(source: Path, tmp_path: Path) -> None:
    """The test above would not notice a month in which nothing is saved."""
    nights = run(source, tmp_path / "store", on=False)
    repeated = [night["rows_not_own"] - n for night, n in zip(nights, LOOKUPS, strict=True)]
    assert repeated == [0, 4, 8, 12]
    assert nights[-1]["chars_not_own"] > 3000
    assert nights[-1]["exact_duplicates"] > 0.05
    assert nights[-1]["set_aside"] == {}


def test_held_out_memories_leave_the_source(source: Path) -> None:
    new = hold_out(source, 5)
    with closing(sqlite3.connect(source)) as db:
        left = {row[0] for row in db.execute("SELECT content FROM memories")}
    assert len(new) == 5
    assert not left & {row.content for row in new}
    assert left | {row.content for row in new} == set(FACTS)
    assert all(isinstance(row, Row) and row.own == row.content for row in new)


def test_near_duplicates_are_those_with_an_earlier_one_nearby() -> None:
    vectors = np.array([[1, 0], [0, 1], [1, 0], [0.8, 0.6], [0, 1]], dtype=np.float32)
    assert count_near(vectors, 0.95) == 2
    assert count_near(vectors, 0.75) == 3
    many = np.eye(600, dtype=np.float32)[[*range(600), 3, 599]]
    assert count_near(many, 0.95) == 2


def test_copies_are_known_and_originals_are_not_taken_for_them() -> None:
    rows = [{"id": i, "content": fact} for i, fact in enumerate([*FACTS, FACTS[0], "Yes."])]
    found = count_repeats(rows)
    assert found.pop("us_per_row") > 0
    assert found == {
        "rows": 18, "originals_set_aside": 0, "copies_set_aside": 17, "recurring": 1
    }  # fmt: skip
