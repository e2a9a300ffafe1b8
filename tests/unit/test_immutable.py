from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.core.sqlite import connect_immutable, identify


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
