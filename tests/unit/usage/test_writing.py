from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.core.sqlite import filling
from tests.support.usage_file import NOW_US, rows, write

USE = {"1": (9, 3, 4, 50), "2": (5, 5, 2, 70)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.sqlite"


def score(path: Path, *memory_ids: str) -> None:
    with filling(path) as db:
        db.executemany("INSERT INTO ltp VALUES (?, 1.5, 0.5, 0.4, 7)", [(m,) for m in memory_ids])
        db.execute("INSERT INTO meta VALUES ('ltp_resume_at', 12)")


def test_only_memories_that_exist_are_written(path: Path) -> None:
    write(path, USE, [("1", "2", 3)], known=["2"])
    assert rows(path, "SELECT * FROM access") == [("2", 5, 5, 2, 70)]
    assert rows(path, "SELECT * FROM co_retrieval") == []


def test_a_memory_that_is_gone_leaves_every_table_and_every_byte(path: Path) -> None:
    secret = "turned-sensitive-77"
    write(path, {**USE, secret: (2, 2, 1, 5)}, [("1", secret, 3)])
    score(path, "1", secret)
    assert secret.encode() in path.read_bytes()
    write(path, {**USE, secret: (2, 2, 1, 5)}, [("1", secret, 3)], known=USE)
    assert secret.encode() not in path.read_bytes()
    assert rows(path, "SELECT memory_id FROM ltp") == [("1",)]


def test_scores_and_the_place_of_the_scan_are_carried_on(path: Path) -> None:
    write(path, USE)
    score(path, "1", "2")
    write(path, {"1": (10, 4, 5, 60)}, known=USE, as_of_us=NOW_US + 9)
    assert rows(path, "SELECT * FROM ltp") == [(m, 1.5, 0.5, 0.4, 7) for m in ("1", "2")]
    meta = dict(rows(path, "SELECT * FROM meta"))
    assert (meta["ltp_resume_at"], meta["as_of_us"]) == (12, NOW_US + 9)


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\x00" + b"\x00" * 4080])
def test_a_damaged_file_is_replaced(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    write(path, USE)
    assert rows(path, "SELECT memory_id FROM access") == [("1",), ("2",)]
    assert rows(path, "SELECT * FROM ltp") == []


def test_a_file_with_a_damaged_table_gives_what_can_be_read(path: Path) -> None:
    write(path, USE)
    score(path, "1", "2")
    [(page,)] = rows(path, "SELECT rootpage FROM sqlite_master WHERE name = 'ltp'")
    content = bytearray(path.read_bytes())
    content[(page - 1) * 4096 : page * 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    write(path, USE)
    assert rows(path, "SELECT * FROM ltp") == []
    assert len(rows(path, "SELECT * FROM access")) == 2


def test_equal_counts_give_equal_bytes_and_nothing_lies_beside(path: Path) -> None:
    write(path, USE, [("1", "2", 3)])
    before = path.read_bytes()
    write(path, USE, [("1", "2", 3)])
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
