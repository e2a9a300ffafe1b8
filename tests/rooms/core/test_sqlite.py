from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from noctuary.core.sqlite import (
    FormatError,
    LogFormat,
    connect_immutable,
    delete_rows,
    identify,
    open_log,
)
from noctuary.sources.ingest import TURNS
from noctuary.sources.injected import record_format
from noctuary.usage.access_log import ACCESS_LOG
from noctuary.usage.query_log import QUERY_LOG

Mode = Literal["ro", "rw", "rwc"]

every_log = pytest.mark.parametrize("kind", [ACCESS_LOG, record_format(), TURNS, QUERY_LOG])
every_mode = pytest.mark.parametrize("mode", ["ro", "rw", "rwc"])


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    path = tmp_path / "a file? 100%#.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE t (x INTEGER)")
        db.execute("INSERT INTO t VALUES (7)")
    return path


def test_a_file_is_read_and_nothing_is_left_beside_it(file: Path) -> None:
    with closing(connect_immutable(file)) as db:
        assert db.execute("SELECT x FROM t").fetchall() == [(7,)]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            db.execute("INSERT INTO t VALUES (8)")
    assert list(file.parent.iterdir()) == [file]


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error):
        connect_immutable(tmp_path / "none.sqlite").execute("SELECT 1")
    assert not list(tmp_path.iterdir())


def test_a_connection_may_be_opened_for_several_threads(file: Path) -> None:
    found: list[object] = []
    with closing(connect_immutable(file, check_same_thread=False)) as db:
        thread = threading.Thread(target=lambda: found.extend(db.execute("SELECT x FROM t")))
        thread.start()
        thread.join()
    assert found == [(7,)]


def test_a_replaced_file_is_another_one(file: Path, tmp_path: Path) -> None:
    before = identify(file)
    assert before is not None
    assert identify(file) == before
    other = tmp_path / "other"
    other.write_bytes(file.read_bytes())
    other.replace(file)
    assert identify(file) not in {before, None}
    assert identify(tmp_path / "none") is None


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    return tmp_path / "log? 100%#.sqlite"


def told_by(log: sqlite3.Connection, *names: str) -> list[object]:
    return [log.execute(f"PRAGMA {name}").fetchone()[0] for name in names]


@every_log
@pytest.mark.usefixtures("open_umask")
def test_a_log_is_made_for_its_owner_and_gone_on_with(path: Path, kind: LogFormat) -> None:
    asked = ("user_version", "journal_mode", "synchronous", "secure_delete", "application_id")
    with closing(open_log(path, kind, "rwc")) as log:
        *settings, identity = told_by(log, *asked)
        assert settings == [kind.version, "wal", 2 if kind.is_flushed else 1, 1]
        assert identity != 0
        files = list(path.parent.iterdir())
        assert len(files) == 3
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    for mode in ("ro", "rw", "rwc"):
        with closing(open_log(path, kind, mode)) as log:
            assert told_by(log, "application_id") == [identity]


@every_log
@every_mode
@pytest.mark.parametrize("or_empty", [False, True])
def test_another_format_is_refused_and_left_alone(
    path: Path, kind: LogFormat, mode: Mode, or_empty: bool
) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")
    before = path.read_bytes()
    with pytest.raises(FormatError, match=f"{kind.noun} has format 99, expected 1: update"):
        open_log(path, kind, mode, or_empty=or_empty)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@every_mode
@pytest.mark.parametrize("content", [b"SQLite format 3\0" + b"\xff" * 4096, b"no database" * 500])
def test_a_damaged_log_is_neither_empty_nor_made_again(
    path: Path, mode: Mode, content: bytes
) -> None:
    path.write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError):
        open_log(path, ACCESS_LOG, mode, or_empty=True)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


@every_log
@pytest.mark.parametrize("mode", ["ro", "rw"])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_log_that_is_not_made_yet_is_empty_where_that_is_wanted(
    path: Path, kind: LogFormat, mode: Mode, is_there: bool
) -> None:
    if is_there:
        path.touch()
    with pytest.raises(sqlite3.Error):
        open_log(path, kind, mode)
    with closing(open_log(path, kind, mode, or_empty=True)) as log:
        tables = log.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            assert log.execute(f"SELECT * FROM {table}").fetchall() == []
        assert tables
    assert [file.stat().st_size for file in path.parent.iterdir()] == [0] * is_there


def test_rows_are_deleted_in_several_transactions(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noctuary.core.sqlite._ROWS_PER_DELETION", 3)
    with closing(open_log(path, ACCESS_LOG, "rwc")) as log:
        log.executemany(ACCESS_LOG.insert, [(str(n), 1, "s", n) for n in range(20)])
    where = "retrieved_at_us >= ? AND retrieved_at_us < ?"
    assert delete_rows(path, ACCESS_LOG, "retrievals", "position", where, (5, 15)) == (10, None)
    with closing(open_log(path, ACCESS_LOG)) as log:
        left = log.execute("SELECT retrieved_at_us FROM retrievals ORDER BY position").fetchall()
    assert [at for (at,) in left] == [*range(5), *range(15, 20)]
