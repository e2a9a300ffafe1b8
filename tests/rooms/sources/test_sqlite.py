from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.core import sqlite as foreign_file
from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.sources import sqlite as pinned_file
from noctuary.sources.export import export_corpus
from noctuary.sources.open import open_source
from noctuary.sources.source import KnownConcept, MemoryLink, RawRow
from noctuary.sources.sqlite import SqliteSource
from tests.support.claude_memory import make_sqlite

Make = Callable[..., Path]

# Inserts groups of seven rows, one transaction each, until its parent closes the pipe.
_WRITER = """
import sqlite3, sys, select
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
db.execute("PRAGMA journal_mode = WAL")
print("ready", flush=True)
n = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    db.execute("BEGIN IMMEDIATE")
    for i in range(7):
        db.execute("INSERT INTO memories(content, created_at, updated_at) "
                   "VALUES (?, '2025-01-01', '2025-01-01')", (f"group {n} row {i}",))
    db.execute("COMMIT")
    n += 1
db.close()
print(n, flush=True)
"""

_READ_AS_NOBODY = """
import os, sys
from pathlib import Path
# All of it now: that user may not look into the checkout.
import noctuary.sources.claude_mem, noctuary.sources.exports, noctuary.sources.jsonl
import noctuary.sources.markdown, noctuary.sources.palace, noctuary.sources.sqlite
from noctuary.sources.open import open_source
os.setuid(65534)
with open_source(Path(sys.argv[1])) as source:
    print(sum(1 for _ in source.rows()))
"""


def rows_of(path: Path) -> list[RawRow]:
    with open_source(path) as source:
        return [row for row in source.rows()]


@pytest.mark.parametrize(
    ("user_version", "schema", "notes"),
    [(0, "1", ()), (1, "1", ()), (2, "2", ()), (7, "2", ("newer_schema_version",))],
)
def test_every_schema_version_is_read(
    make_store: Make, user_version: int, schema: str, notes: tuple[str, ...]
) -> None:
    path = make_store([{"content": "a"}, {"content": "b"}], user_version=user_version)
    with open_source(path) as source:
        identity = source.identity()
        assert (source.count(), identity.schema_version) == (2, schema)
        assert identity.marker["user_version"] == user_version
        assert (identity.id_kind, identity.notes) == ("int", notes)
    assert [row.fields["content"] for row in rows_of(path)] == ["a", "b"]


def test_rows_are_by_key_over_gaps_and_negative_ids(make_store: Make) -> None:
    ids = [-(2**63), -5, 0, 1, 2, 900, 2**63 - 1]
    path = make_store([{"id": i} for i in reversed(ids)])
    with open_source(path) as source:
        rows = list(source.rows())
    assert [row.key for row in rows] == ids
    assert rows[0].locator == f"id {ids[0]}"


@pytest.mark.parametrize(
    "name", ["with space.db", "wohin?#%20.db", "память 记忆 ü.db", "a&b=c;d.db"]
)
def test_any_file_name_is_read(make_store: Make, tmp_path: Path, name: str) -> None:
    path = make_store([{"content": "found"}], path=tmp_path / "dir ? # é" / name)
    before = sorted(p.name for p in path.parent.iterdir())
    assert [row.fields["content"] for row in rows_of(path)] == ["found"]
    left = {p.name for p in path.parent.iterdir()} - set(before)
    assert left <= {f"{name}-wal", f"{name}-shm"}


def test_nothing_is_written(make_store: Make) -> None:
    path = make_store([{}] * 3, wal=False)
    before = path.read_bytes()
    with open_source(path) as source:
        assert isinstance(source, SqliteSource)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            source._db.execute("DELETE FROM memories")  # pyright: ignore[reportPrivateUsage]
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_a_crashed_writer_left_in_the_wal_is_read(make_store: Make, tmp_path: Path) -> None:
    path, crashed = make_store([{"content": "a"}]), tmp_path / "crashed"
    crashed.mkdir()
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("UPDATE memories SET content = 'from the wal'")
        writer.commit()
        before = {n: (tmp_path / n).read_bytes() for n in ("memory.db", "memory.db-wal")}
    for name, data in before.items():
        (crashed / name).write_bytes(data)
    assert [row.fields["content"] for row in rows_of(crashed)] == ["from the wal"]
    assert {name: (crashed / name).read_bytes() for name in before} == before


def test_one_snapshot_from_open_to_close(make_store: Make) -> None:
    path = make_store([{"content": f"{i}"} for i in range(5)])
    with open_source(path) as source:
        with closing(sqlite3.connect(path)) as writer, writer:
            writer.execute("DELETE FROM memories WHERE id <= 2")
            writer.execute("UPDATE memories SET content = 'edited'")
        assert source.count() == 5
        assert [row.fields["content"] for row in source.rows()] == ["0", "1", "2", "3", "4"]
    assert len(rows_of(path)) == 3


def test_exporting_beside_a_live_wal_writer(make_store: Make, tmp_path: Path) -> None:
    path = make_store([{"content": "first"}] * 7)
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    seen: list[int] = []
    try:
        for attempt in range(4):
            with open_source(path) as source:
                report = export_corpus(source, tmp_path / f"out{attempt}")
            assert report.exported == report.source_rows
            # Every transaction adds seven rows: any other remainder is a torn view.
            assert report.source_rows % 7 == 0
            seen.append(report.source_rows)
    finally:
        out, _ = writer.communicate("stop\n", timeout=60)
    assert writer.returncode == 0
    assert seen == sorted(seen)
    assert 7 < seen[-1] <= 7 + 7 * int(out)
    assert len(rows_of(path)) == 7 + 7 * int(out)


def test_values_come_untyped_and_optional_columns_where_they_are(make_store: Make) -> None:
    more = ", wing TEXT, session_id TEXT, other TEXT"
    rows = [{"content": b"\xff\x00blob"}, {"content": "a\0b"}, {"importance": "high", "wing": "w"}]
    path = make_store(rows, extra_columns=more)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO memories(content) VALUES (CAST(x'fffe41' AS TEXT))")
    found = [row.fields for row in rows_of(path)]
    contents = [b"\xff\x00blob", "a\0b", "text", b"\xff\xfeA"]
    assert [fields["content"] for fields in found] == contents
    assert (found[2]["importance"], found[2]["wing"], found[2]["session_id"]) == ("high", "w", None)
    # Neither columns that nobody knows or that are not there, nor those of marks.
    assert not found[2].keys() & {"other", "room", "is_sensitive", "sensitive", "vault_path"}


def test_the_query_keeps_every_column_of_a_marked_row_back(
    make_store: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[bytes] = []
    decode = foreign_file.decode_text

    def spy(raw: bytes) -> str | bytes:
        fetched.append(raw)
        return decode(raw)

    monkeypatch.setattr(foreign_file, "decode_text", spy)
    secret = {name: "CANARY" for name in ("content", "tags", "category", "expanded_keywords")}
    marks = [{"is_sensitive": 1}, {"is_sensitive": "yes"}, {"sensitive": True}, {"vault_path": "v"}]
    path = make_store(
        [{**secret, **mark} for mark in (*marks, {"encrypted_content": b"\x01CANARY"})]
        + [{"content": "public", "is_sensitive": "false", "vault_path": ""}],
        extra_columns=", sensitive TEXT, vault_path TEXT, encrypted_content BLOB",
    )
    rows = rows_of(path)
    assert [row.withheld for row in rows] == [*["flagged"] * 3, *["vaulted"] * 2, None]
    assert [row.key for row in rows] == [1, 2, 3, 4, 5, 6]
    assert [dict(row.fields) for row in rows[:5]] == [{}] * 5
    assert rows[5].fields["content"] == "public"
    assert b"public" in fetched, "the spy sees what is fetched"
    assert not [raw for raw in fetched if b"CANARY" in raw]


OTHERS = ", ".join(pinned_file.REQUIRED_COLUMNS[1:])


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("notes(id INTEGER PRIMARY KEY, body TEXT)", "expanded_keywords.*found the tables notes"),
        (
            "memories(id INTEGER PRIMARY KEY, content TEXT, created_at TEXT)",
            "no column category, .*is_sensitive, updated_at",
        ),
        (
            f"memories(id TEXT PRIMARY KEY, {OTHERS})",
            r"found id TEXT\. Export the store as JSON lines",
        ),
    ],
)
def test_another_schema_is_refused_by_name(tmp_path: Path, schema: str, said: str) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"CREATE TABLE {schema}")
    with pytest.raises(SourceFormatError, match=said):
        open_source(path)


def test_a_damaged_database_is_a_format_error_without_its_text(make_store: Make) -> None:
    path = make_store([{"content": f"canary {i} " * 200} for i in range(200)], wal=False)
    data = bytearray(path.read_bytes())
    data[8192:-4096] = os.urandom(len(data) - 8192 - 4096)
    path.write_bytes(data)
    with pytest.raises(SourceFormatError, match="restore the store from a backup") as caught:
        rows_of(path)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_locked_store_says_so(make_store: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_store([{}], wal=False)
    monkeypatch.setattr(pinned_file, "BUSY_TIMEOUT_MS", 50)
    monkeypatch.setattr("noctuary.sources.sqlite.WAIT_S", 0.05)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SourceError, match=r"locked by another process.*SQLITE_BUSY"):
            open_source(path)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become a user without write access")
def test_a_wal_store_in_a_folder_that_cannot_be_written(make_store: Make) -> None:
    # Not below tmp_path: pytest keeps that folder closed to the stranger.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = make_store([{}] * 3, path=folder / "memory.db")
        folder.chmod(0o555)
        path.chmod(0o444)
        done = subprocess.run(
            [sys.executable, "-c", _READ_AS_NOBODY, str(path)],
            env={"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("3\n", "")
        assert [p.name for p in folder.iterdir()] == ["memory.db"]


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("src_id, dst_id, link_type", [("2", "1", "supersedes"), ("3", "1", "see-also")]),
        ("src_id, dst_id, kind", []),
        ("a", []),
    ],
)
def test_links_are_told_where_there_are_any(
    tmp_path: Path, table: str, told: list[tuple[str, str, str]]
) -> None:
    path = make_sqlite(tmp_path / "memory.db", [{"content": f"Memory {n}."} for n in range(3)])
    rows = [(3, 1, "see-also"), (2, 1, "supersedes"), (1, 2, "unheard-of"), ("x", 1, "part-of"),
            (2, None, "part-of"), (2, 1, b"\xff")]  # fmt: skip
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE memory_links ({table})")
        if "," in table:
            db.executemany("INSERT INTO memory_links VALUES (?, ?, ?)", rows)
    with open_source(path) as source:
        found = [(link.from_id, link.to_id, link.link_type) for link in source.told(MemoryLink)]
        assert found == told
        assert list(source.told(KnownConcept)) == []
