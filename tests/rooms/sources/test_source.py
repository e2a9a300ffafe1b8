"""Two sources as one, in key order."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from noctuary.core.errors import SourceError, SourceFormatError, SourceMissingError
from noctuary.core.settings import Settings, SourceSettings, TranscriptSettings
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.open import MARKER_CHARS, open_source, read_marker
from noctuary.sources.turns import CombinedSource
from tests.support.databases import MakeDatabase, name_database, rows_of, run_sql

Make = Callable[..., Path]
ROW = {"id": 1, "content": "a"}
NO_DATABASE = "not a database.*SQLite format 3.*decrypted"


def kind_of(path: Path) -> str:
    with open_source(path) as source:
        return source.identity().kind


@pytest.mark.parametrize(
    ("name", "data", "error", "said"),
    [
        ("nowhere.db", None, SourceMissingError, r"no memory store at .*nowhere\.db.*memory\.db"),
        (".", None, SourceMissingError, r"corpus\.jsonl\.gz, corpus\.jsonl, memory\.db"),
        ("/dev/null", None, SourceFormatError, "neither a file nor a folder"),
        ("memory.db", b"", SourceFormatError, NO_DATABASE),
        ("memory.db", b"not a database, only some text", SourceFormatError, NO_DATABASE),
        ("corpus.jsonl.gz", b'{"id": 1}\n', SourceFormatError, r"named \.gz but is not a gzip"),
    ],
)
def test_what_is_no_store_is_refused_with_what_was_expected(
    tmp_path: Path, name: str, data: bytes | None, error: type[Exception], said: str
) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=said):
        open_source(tmp_path / name)


@pytest.mark.parametrize("name", ["home/memory.db", "home/memory/memory.db", "notes.bak"])
def test_a_store_is_found_in_its_folder_and_known_by_its_first_bytes(
    make_store: Make, tmp_path: Path, name: str
) -> None:
    path = make_store(path=tmp_path / name)
    assert kind_of(tmp_path / "home" if "home" in name else path) == "claude-memory-sqlite"


def test_a_data_set_folder_is_read_one_of_two_stores_is_ambiguous(make_jsonl: Make) -> None:
    folder = make_jsonl([ROW], "set/corpus.jsonl.gz").parent
    assert kind_of(folder) == "jsonl.gz"
    make_jsonl([ROW], "set/corpus.jsonl")
    with pytest.raises(SourceFormatError, match=r"stores \(corpus\.jsonl\.gz, corpus\.jsonl\)"):
        open_source(folder)
    (folder / "corpus.jsonl.gz").unlink()
    assert kind_of(folder) == "jsonl"


def combined(one: Path, other: Path) -> CombinedSource:
    return CombinedSource(open_source(one), open_source(other))


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ([2, 5, 9], [-7, -3, 6], [-7, -3, 2, 5, 6, 9]),
        (["a", "z"], ["turn-1", "turn-2"], ["a", "turn-1", "turn-2", "z"]),
        ([1, None, 4], [2], [1, None, 2, 4]),
        ([], [3], [3]),
        ([3], [], [3]),
    ],
)
def test_rows_of_both_come_in_key_order(
    make_jsonl: Make, one: list[object], other: list[object], together: list[object]
) -> None:
    """Rows without an id stay behind their neighbour."""
    parts = [
        make_jsonl([{"content": "a", **({} if i is None else {"id": i})} for i in ids], name)
        for ids, name in ((one, "a.jsonl"), (other, "b.jsonl"))
    ]
    with combined(*parts) as source:
        assert [row.key for row in source.rows()] == together
        assert source.count() == len(together)


def test_of_one_id_the_stores_row_is_the_memory(make_jsonl: Make, tmp_path: Path) -> None:
    one = make_jsonl([{"id": "x", "content": "the store's"}], "a.jsonl")
    other = make_jsonl([{"id": "x", "content": "the other"}], "b.jsonl")
    with combined(one, other) as source:
        report = export_corpus(source, tmp_path / "out")
    assert report.quarantined == {"duplicate_id": 1}
    assert [r.content for r in read_records(tmp_path / "out")] == ["the store's"]


def test_it_is_named_as_the_store_with_both_states(make_jsonl: Make, make_store: Make) -> None:
    store, rows = make_store([{}]), make_jsonl([{"id": 3, "content": "a"}], "a.jsonl")
    parts = [open_source(store), open_source(rows)]
    with CombinedSource(*parts) as source:
        identity = source.identity()
    assert (identity.kind, identity.location) == ("claude-memory-sqlite", str(store))
    assert (identity.marker["rows"], identity.marker["jsonl_rows"]) == (1, 1)
    with pytest.raises(SourceError):
        parts[0].count()
    with pytest.raises(ValueError, match="closed file"):
        list(parts[1].rows())


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
def test_commits_move_it_reads_do_not(
    store: sqlite3.Connection, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "memory.db"
    before = marker(path)
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as reader:
        assert reader.execute("SELECT count(*) FROM memories").fetchone() == (1,)
        assert marker(path) == before
    assert marker(path) == before
    store.execute(change)
    assert marker(path) != before


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


def test_another_user_s_rows_and_configured_transcripts_are_another_source(tmp_path: Path) -> None:
    path, folder = tmp_path / "corpus.jsonl", tmp_path / "transcripts"
    path.write_text('{"id": 1, "content": "CANARY"}\n')
    folder.mkdir()
    anas = SETTINGS._replace(source=SourceSettings(user="ana"))
    talking = SETTINGS._replace(transcripts=TranscriptSettings(path=str(folder)))
    found = [read_marker(path, settings) for settings in (SETTINGS, anas, talking)]
    (folder / "one.jsonl").write_text("{}\n")
    found.append(read_marker(path, talking))
    assert len(set(found)) == 4
    # No text of the store is in it.
    assert {len(one) for one in found} == {MARKER_CHARS}
    assert all(int(one, 16) for one in found)


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


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="no memory store at"):
        marker(tmp_path / "nowhere.db")


SHARE = (
    "INSERT INTO memory_shares (memory_id, owner_id, shared_with) SELECT id, 'a', 'b' FROM memories"
)

WAIT_S = 15.0
"""PostgreSQL tells its counters some time after a commit."""


def moved_from(dsn: str, before: str) -> bool:
    """Say whether the marker becomes another one within the time that counters take."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        if read_marker(name_database(dsn), Settings()) != before:
            return True
        time.sleep(0.1)
    return False


def settled(dsn: str) -> str:
    """Return the marker once it stays the same."""
    last = ""
    while (found := read_marker(name_database(dsn), Settings())) != last:
        last = found
        time.sleep(0.3)
    return last


@pytest.mark.parametrize(
    "change",
    [
        "SELECT count(*) FROM memories",
        "INSERT INTO memories (content) VALUES ('the door')",
        "UPDATE memories SET content = 'the kee', updated_at = now() + interval '1 s'",
        "UPDATE memories SET deleted_at = now(), updated_at = now() + interval '1 s'",
        "DELETE FROM memories",
        SHARE,
    ],
)
def test_every_change_of_a_database_moves_it_reading_does_not(
    database: MakeDatabase, change: str
) -> None:
    dsn = database()
    run_sql(dsn, "INSERT INTO memories (content) VALUES ('the key')")
    before = settled(dsn)
    run_sql(dsn, change)
    if change.startswith("SELECT"):
        assert len(rows_of(dsn)) == 1
        assert settled(dsn) == before
    else:
        assert moved_from(dsn, before)
