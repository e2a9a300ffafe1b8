"""The change marker on real files: every commit moves it, looking never does."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from noctuary.core.errors import SourceMissingError
from noctuary.core.settings import Settings, SourceSettings, TranscriptSettings
from noctuary.sources.source import MARKER_CHARS, read_marker

SETTINGS = Settings()
ANY_TIME = (1_800_000_000_000_000_000, 1_800_000_000_000_000_000)


def marker(path: Path) -> str:
    return read_marker(path, SETTINGS)


@pytest.fixture(params=["DELETE", "TRUNCATE", "WAL"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A store in every journal mode, held open by its owner."""
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {request.param}")
        db.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, content TEXT)")
        db.execute("INSERT INTO memories VALUES (1, 'the key')")
        yield db


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO memories VALUES (2, 'the door')",
        "UPDATE memories SET content = 'the kee'",
        "DELETE FROM memories",
    ],
)
def test_every_commit_moves_it(store: sqlite3.Connection, tmp_path: Path, change: str) -> None:
    path = tmp_path / "memory.db"
    before = marker(path)
    assert marker(path) == before
    store.execute(change)
    assert marker(path) != before


def test_reading_the_store_does_not_move_it(store: sqlite3.Connection, tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    before = marker(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        assert reader.execute("SELECT count(*) FROM memories").fetchone() == (1,)
        assert marker(path) == before
    assert marker(path) == before


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_commits_within_one_step_of_the_clock_are_told_apart(tmp_path: Path, mode: str) -> None:
    """Same size, same time: the change counter, or the log's length, is what is left."""
    path = tmp_path / "memory.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, content TEXT)")
        db.execute("INSERT INTO memories VALUES (1, 'a')")
        seen: set[str] = set()
        for letter in "bcde":
            db.execute("UPDATE memories SET content = ?", (letter,))
            for file in tmp_path.iterdir():
                os.utime(file, ns=ANY_TIME)
            seen.add(marker(path))
    assert len(seen) == 4


def test_a_log_that_begins_anew_moves_it(tmp_path: Path) -> None:
    """After a checkpoint the log is written from its start again: same size, other salts."""
    path, log = tmp_path / "memory.db", tmp_path / "memory.db-wal"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, content TEXT)")
        db.execute("PRAGMA wal_checkpoint(RESTART)")
        found: set[str] = set()
        for letter in "ab":
            db.execute("INSERT INTO memories (content) VALUES (?)", (letter,))
            db.execute("PRAGMA wal_checkpoint(RESTART)")
            os.utime(log, ns=ANY_TIME)
            size = log.stat().st_size
            found.add(f"{size} {marker(path)}")
    assert len(found) == 2


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=6))
@hypothesis_settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lines_that_are_appended_move_it(tmp_path: Path, lines: list[str]) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("{}\n")
    seen = [marker(path)]
    for line in lines:
        with path.open("a", encoding="utf-8") as handle:
            handle.write(f"{line}\n")
        seen.append(marker(path))
    assert len(set(seen)) == len(seen)
    assert marker(path) == seen[-1]


@pytest.mark.parametrize("name", ["memory.db", "corpus.jsonl", "memory/memory.db"])
def test_the_store_in_a_folder_is_what_counts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("{}\n")
    before = marker(tmp_path)
    (tmp_path / "notes.txt").write_text("not read")
    assert marker(tmp_path) == before
    path.write_text("{}\n{}\n")
    assert marker(tmp_path) != before


def test_a_folder_of_transcripts_is_looked_at_below(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "a"
    folder.mkdir(parents=True)
    (folder / "one.jsonl").write_text("{}\n")
    seen = [marker(tmp_path)]
    with (folder / "one.jsonl").open("a") as handle:
        handle.write("{}\n")
    seen.append(marker(tmp_path))
    (folder / "two.jsonl").write_text("")
    seen.append(marker(tmp_path))
    (folder / "two.jsonl").rename(folder / "three.jsonl")
    seen.append(marker(tmp_path))
    (folder / "three.jsonl").unlink()
    assert marker(tmp_path) == seen[1]
    assert len(set(seen)) == 4


def test_configured_transcripts_are_looked_at_beside_the_store(tmp_path: Path) -> None:
    store, folder = tmp_path / "corpus.jsonl", tmp_path / "transcripts"
    store.write_text("{}\n")
    folder.mkdir()
    settings = SETTINGS._replace(transcripts=TranscriptSettings(path=str(folder)))
    before = read_marker(store, settings)
    assert before != marker(store)
    (folder / "one.jsonl").write_text("{}\n")
    assert read_marker(store, settings) != before


def test_another_user_s_rows_are_another_source(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text("{}\n")
    assert read_marker(path, SETTINGS._replace(source=SourceSettings(user="ana"))) != marker(path)


def test_a_file_that_was_replaced_is_another_state(tmp_path: Path) -> None:
    """A restored backup may have the old one's size and time."""
    path, other = tmp_path / "corpus.jsonl", tmp_path / "backup"
    path.write_text('{"id": 1}\n')
    other.write_text('{"id": 2}\n')
    for file in (path, other):
        os.utime(file, ns=ANY_TIME)
    before = marker(path)
    other.replace(path)
    assert marker(path) != before


def test_no_text_of_the_store_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": 1, "content": "CANARY"}\n')
    found = marker(path)
    assert len(found) == MARKER_CHARS
    int(found, 16)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="no memory store at"):
        marker(tmp_path / "nowhere.db")
