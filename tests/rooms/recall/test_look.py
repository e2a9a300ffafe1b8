"""What a store has beyond its snapshot, told without reading it whole."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noctuary.core import sqlite as foreign_file
from noctuary.core.settings import SourceSettings
from noctuary.core.store import name_source
from noctuary.recall.api import recall
from noctuary.recall.result import RecallResult
from noctuary.sources import live as looking
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.live import Limits, Since, stamp_of
from noctuary.sources.live import look_into_sqlite as look
from noctuary.sources.open import open_source
from tests.support.live import LONG_AGO, ROWS, Cache, make_cache
from tests.support.store import Store, new_store
from tests.support.views import codes, said


def since(cache: Cache) -> Since:
    with closing(sqlite3.connect(cache.path)) as db:
        rows, last = db.execute("SELECT count(*), max(id) FROM memories").fetchone()
    return Since(last, rows, time.time_ns() // 1000)


def limits(rows: int = 100, seconds: float = 10.0) -> Limits:
    return Limits(rows, time.perf_counter() + seconds)


@pytest.fixture(params=[True, False], ids=["wal", "journal"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Cache:
    return make_cache(tmp_path / "memory.db", wal=request.param)


def test_new_changed_and_lost_rows_are_found(store: Cache) -> None:
    then = since(store)
    found = look(store.path, then, limits())
    assert (found.rows, found.withheld, found.ids, found.missed) == ({}, (), None, "")
    # The limit of looking by stamp: nothing tells such a row from the others.
    store.edit(3, content="Changed behind the stamp.", updated_at=LONG_AGO)
    assert look(store.path, then, limits()).rows == {}
    new = store.add("A new one.")
    store.edit(2, content="The feline eats three times a day.")
    store.delete(5)
    before = store.path.read_bytes()
    found = look(store.path, then, limits())
    assert store.path.read_bytes() == before
    assert set(found.rows) == {2, new}
    assert found.rows[2]["content"] == "The feline eats three times a day."
    assert found.ids == {str(key) for key in range(1, new + 1)} - {"5"}
    assert found.missed == ""


def test_a_marked_row_leaves_its_id_only_whatever_its_stamp_says(
    store: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text is not even fetched."""
    fetched: list[bytes] = []
    decode = foreign_file.decode_text

    def spy(raw: bytes) -> str | bytes:
        fetched.append(raw)
        return decode(raw)

    monkeypatch.setattr(foreign_file, "decode_text", spy)
    then = since(store)
    secret = store.add("CANARY of a new row", is_sensitive=1, tags="CANARY")
    worded = store.add("CANARY-8Q", is_sensitive="yes")
    public = store.add("a public row")
    store.edit(1, content="CANARY of a changed row", is_sensitive=1)
    store.run("UPDATE memories SET is_sensitive = 1 WHERE id = 3")
    found = look(store.path, then, limits())
    assert sorted(found.withheld) == [1, 3, secret, worded]
    assert set(found.rows) == {public}
    assert "CANARY" not in repr(found)
    assert b"a public row" in fetched, "the spy sees what is fetched"
    assert not [raw for raw in fetched if b"CANARY" in raw]


def test_the_newest_rows_are_taken_where_there_are_too_many(store: Cache) -> None:
    then = since(store)
    keys = [store.add(f"Number {i}.") for i in range(5)]
    found = look(store.path, then, limits(rows=2))
    assert sorted(found.rows) == keys[-2:]
    assert "newest 2" in found.missed
    for key in (1, 2, 3):
        store.edit(key, content=f"Changed {key}.")
    found = look(store.path, then, limits(rows=7))
    assert len(found.rows) == 7, "changed rows share the bound"
    assert {*keys} < {*found.rows}
    assert "live.max_rows" in found.missed


def test_a_row_stamped_shortly_before_the_reading_is_compared(store: Cache) -> None:
    """It may have been committed after the night had looked."""
    then = since(store)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(then.read_us / 1e6 - 60))
    store.edit(4, updated_at=moment)
    store.edit(3, updated_at=moment.replace("T", " "))
    store.edit(2, updated_at=LONG_AGO)
    assert set(look(store.path, then, limits()).rows) == {3, 4}


def test_a_store_that_was_all_rewritten_counts_its_losses(store: Cache) -> None:
    then = since(store)
    uncounted = look(store.path, then._replace(rows=None), limits())
    assert uncounted.ids == {str(key) for key in range(1, len(ROWS) + 1)}
    store.run("DELETE FROM memories")
    new = store.add("The only one.")
    found = look(store.path, then, limits())
    assert (found.ids, set(found.rows)) == ({str(new)}, {new})


def test_passes_end_at_the_deadline_and_what_was_found_before_counts(tmp_path: Path) -> None:
    """The pass begins at the newest rows; some of these looks end on the way down."""
    store = make_cache(tmp_path / "memory.db", [])
    with closing(sqlite3.connect(store.path)) as db, db:
        rows = [(f"Row {i} {'x' * 200}", LONG_AGO, LONG_AGO) for i in range(60_000)]
        db.executemany("INSERT INTO memories(content, created_at, updated_at) VALUES(?,?,?)", rows)
    then = since(store)
    new = store.add("A new one.")
    started = time.perf_counter()
    found = look(store.path, then, limits(seconds=0.004))
    assert time.perf_counter() - started < 1.0
    assert set(found.rows) == {new}
    assert "the time was over" in found.missed
    store.edit(59_999, content="Changed lately.")
    store.edit(1, content="Changed at the other end.")
    assert set(look(store.path, then, limits()).rows) == {1, 59_999, new}
    parts = [set(look(store.path, then, limits(seconds=s / 1000)).rows) for s in range(1, 20)]
    assert all(rows - {new} in (set(), {59_999}, {1, 59_999}) for rows in parts)


def test_a_locked_store_is_not_waited_for_longer_than_allowed(tmp_path: Path) -> None:
    store = make_cache(tmp_path / "memory.db", wal=False)
    then = since(store)
    with closing(sqlite3.connect(store.path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        started = time.perf_counter()
        with pytest.raises(sqlite3.OperationalError):
            look(store.path, then, limits(seconds=0.05))
        assert time.perf_counter() - started < 2.0


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE memories(id INTEGER PRIMARY KEY, content TEXT)")
    with pytest.raises(ValueError, match="is_sensitive, updated_at"):
        look(path, Since(0, 0, 0), limits())


def test_the_stamp_sees_the_write_ahead_log(tmp_path: Path) -> None:
    store = make_cache(tmp_path / "memory.db")
    with closing(sqlite3.connect(store.path)) as reader:
        reader.execute("SELECT count(*) FROM memories").fetchone()
        before = stamp_of(store.path)
        store.add("Stays in the log while another client is connected.")
        after = stamp_of(store.path)
    assert before != after
    assert before[0] == after[0], "the file itself was not written"
    with pytest.raises(FileNotFoundError):
        stamp_of(tmp_path / "none.db")


MakeDatabase = Callable[..., str]


@pytest.fixture
def address(database: MakeDatabase, monkeypatch: pytest.MonkeyPatch) -> str:
    made = database()
    for content in ("The spare key hangs behind the blue door.", "The boiler needs a valve."):
        write(made, f"INSERT INTO memories(content, updated_at) VALUES ('{content}', '2026-01-05')")
    monkeypatch.setattr(looking, "ASK_AGAIN_S", 0.0)
    return made


@pytest.fixture
def served_notes(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of notes that a snapshot was made of; writing into it is what a recall sees."""
    folder = tmp_path / "vault"
    (folder / "sub").mkdir(parents=True)
    (folder / "key.md").write_text("The spare key hangs in the pantry.")
    (folder / "sub" / "boiler.md").write_text("# Valve\nThe boiler valve sticks.\n# Dog\nFed.")
    store = new_store(home / "house")
    read_us = time.time_ns() // 1000
    with open_source(folder) as source:
        identity = export_corpus(source, store.paths.work / "corpus").identity
    told = {"kind": identity.kind, "location": identity.location, "read_us": read_us}
    store.publish(read_records(store.paths.work / "corpus"), source=told, id_kind="str")
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "20000")
    return folder


def test_notes_that_were_written_edited_marked_or_deleted_are_seen(served_notes: Path) -> None:
    assert "live_overlay" not in codes(recall("spare key"))
    (served_notes / "new.md").write_text("Nina has the spare key.")
    found = recall("spare key", k=9)
    assert by_id(found)["new.md"].live
    assert not by_id(found)["key.md"].live
    (served_notes / "key.md").write_text("The spare key is lost.")
    (served_notes / "sub" / "boiler.md").write_text("# Dog\nFed.")
    found = by_id(recall("spare key boiler valve", k=9))
    assert found["key.md"].content == "key\nThe spare key is lost."
    assert "sub/boiler.md#valve" not in found
    (served_notes / "key.md").write_text("---\nsensitive: true\n---\nThe spare key is lost.")
    (served_notes / "new.md").unlink()
    assert not {"key.md", "new.md"} & by_id(recall("spare key boiler", k=9)).keys()


def test_notes_that_stayed_as_they_were_are_found_when_time_is_over(
    served_notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "0.001")
    found = recall("spare key boiler valve", k=9)
    assert {"key.md", "sub/boiler.md#valve"} <= by_id(found).keys()
    assert not {"live_overlay", "live_partial"} & set(codes(found))
    (served_notes / "key.md").write_text("The spare key is lost.")
    found = recall("spare key boiler valve", k=9)
    assert "sub/boiler.md#valve" in by_id(found)
    assert "The spare key hangs" not in str(by_id(found).get("key.md"))
    assert "live_partial" in codes(found)


def test_a_note_that_was_marked_since_goes_even_when_time_is_over(
    served_notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "0.001")
    for note in sorted(served_notes.rglob("*.md")):  # whichever is the first and judged
        note.write_text(f"---\nsensitive: true\n---\n{note.read_text()}")
        assert not any(i.startswith(str(note.relative_to(served_notes))) for i in by_id(_ask()))
    assert not by_id(_ask())


def _ask() -> RecallResult:
    return recall("spare key boiler valve dog", k=9)


def test_notes_that_are_too_many_or_too_large_are_left_to_the_night(
    served_notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (served_notes / "new.md").write_text("Nina has the spare key." * 9_000)
    found = recall("spare key")
    assert "new.md" not in by_id(found)
    assert "live_partial" in codes(found)
    monkeypatch.setattr(looking, "MAX_HELD_FILES", 2)
    (served_notes / "new.md").write_text("Nina has the spare key.")
    found = recall("spare key")
    assert "new.md" not in by_id(found)
    assert "live_overlay" not in codes(found)


@pytest.fixture
def served_database(address: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = new_store(home / "house")
    read_us = time.time_ns() // 1000
    with open_source(name_source(address), SourceSettings()) as source:
        identity = export_corpus(source, store.paths.work / "corpus").identity
    told = {"kind": identity.kind, "location": identity.location, "read_us": read_us}
    store.publish(read_records(store.paths.work / "corpus"), source=told)
    monkeypatch.setenv("NOCTUARY_SOURCE_PATH", address)
    # A first connection on a busy machine takes longer than a prompt would wait.
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "20000")
    return store


def write(address: str, sql: str) -> None:
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(sql.encode())


def by_id(result: RecallResult) -> dict[Any, Any]:
    return {m.id: m for m in result.memories}


def test_new_changed_and_tombstoned_rows_are_seen(served_database: Store, address: str) -> None:
    assert "live_overlay" not in codes(recall("spare key"))
    write(address, "INSERT INTO memories(content) VALUES ('The spare key is with Nina.')")
    write(address, "UPDATE memories SET deleted_at = now(), updated_at = now() WHERE id = 2")
    found = recall("spare key boiler valve")
    assert by_id(found)[3].live
    assert 2 not in by_id(found)
    told = said(found, "live_overlay")
    assert "1 new, 0 changed, 1 gone" in told


def test_a_marked_row_never_comes(served_database: Store, address: str) -> None:
    write(
        address, "INSERT INTO memories(content, is_sensitive) VALUES ('spare key CANARY-9', true)"
    )
    write(address, "UPDATE memories SET is_sensitive = true, updated_at = now() WHERE id = 1")
    found = recall("spare key canary", explain=True, candidate_trace=True)
    assert not found.memories
    assert "CANARY" not in str(found.to_json())


def test_a_database_that_is_none_any_more_costs_nothing_but_a_warning(
    served_database: Store, address: str
) -> None:
    before = [m.id for m in recall("spare key").memories]
    write(address, "ALTER TABLE memories RENAME TO elsewhere")
    found = recall("spare key")
    assert [m.id for m in found.memories] == before
    assert "live_unreachable" in codes(found)
    assert address not in str(found.to_json())


def test_a_server_that_hangs_is_left_at_the_deadline(
    served_database: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "100")
    with psycopg.connect(address) as db:
        db.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
        started = time.perf_counter()
        found = recall("spare key")
        assert time.perf_counter() - started < 5.0
    assert "live_unreachable" in codes(found)
    assert found.memories


def test_without_an_address_the_snapshot_answers_and_an_answer_is_used_again_for_a_moment(
    served_database: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_SOURCE_PATH", "")
    found = recall("spare key")
    assert found.memories
    told = said(found, "live_unreachable")
    assert "source.path" in told
    monkeypatch.setenv("NOCTUARY_SOURCE_PATH", address)
    monkeypatch.setattr(looking, "ASK_AGAIN_S", 60.0)
    recall("spare key")
    write(address, "INSERT INTO memories(content) VALUES ('The spare key is with Nina.')")
    assert "live_overlay" not in codes(recall("spare key"))
