from __future__ import annotations

from noctuary.graph.canonical import Memo
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.core.errors import StoreError
from noctuary.work.content import ContentStore

CANARY = b"canary-5f1c-the-text-that-must-go"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work" / "memo.sqlite"


def bytes_below(directory: Path) -> bytes:
    return b"".join(p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file())


def test_what_was_put_is_found_under_its_kind_only(path: Path) -> None:
    with Memo.open(path) as memo:
        memo.put_many("a", {"k1": b"one", "k2": b""})
        memo.put_many("b", {"k1": b"other"})
    with Memo.open(path) as memo:
        assert memo.get_many("a", ["k2", "k1", "k3", "k1"]) == {"k1": b"one", "k2": b""}
        assert memo.get_many("b", ["k1"]) == {"k1": b"other"}
        assert memo.get_many("c", ["k1"]) == {}
        assert memo.get_many("a", []) == {}


def test_a_later_value_replaces_the_earlier(path: Path) -> None:
    with Memo.open(path) as memo:
        memo.put_many("a", {"k": b"one"})
        memo.put_many("a", {"k": b"two"})
        memo.put_many("a", {})
        assert memo.get_many("a", ["k"]) == {"k": b"two"}


def test_more_keys_than_sqlite_takes_variables(path: Path) -> None:
    values = {f"k{n}": str(n).encode() for n in range(1203)}
    with Memo.open(path) as memo:
        memo.put_many("a", values)
        assert memo.get_many("a", values) == values
        assert memo.prune({"a": list(values)[:1001]}) == 202


def test_prune_keeps_what_is_live_and_counts_the_rest(path: Path) -> None:
    with Memo.open(path) as memo:
        memo.put_many("a", {"k1": b"1", "k2": b"2"})
        memo.put_many("old", {"k1": b"1"})
        assert memo.prune({"a": ["k1", "k1", "unknown"], "empty": []}) == 2
        assert memo.get_many("a", ["k1", "k2"]) == {"k1": b"1"}
        assert memo.get_many("old", ["k1"]) == {}
        assert memo.prune({"a": ["k1"]}) == 0
        assert memo.prune({}) == 1


@pytest.mark.parametrize("repeat", [1, 400], ids=["inside a page", "over many pages"])
def test_pruned_bytes_are_in_no_file_any_more(path: Path, repeat: int) -> None:
    secret = CANARY * repeat
    with Memo.open(path) as memo:
        memo.put_many("a", {f"k{n}": b"kept" * 50 for n in range(100)})
        memo.put_many("a", {CANARY.decode(): b"x", "long": secret})
        assert CANARY in bytes_below(path.parent)
        memo.prune({"a": [f"k{n}" for n in range(100)]})
        # Still open: neither the file nor its write-ahead log may hold it.
        assert CANARY not in bytes_below(path.parent)
    assert CANARY not in bytes_below(path.parent)
    with Memo.open(path) as memo:
        assert len(memo.get_many("a", [f"k{n}" for n in range(100)])) == 100


def test_replaced_bytes_are_in_no_file_after_closing(path: Path) -> None:
    with Memo.open(path) as memo:
        memo.put_many("a", {"k": CANARY * 300})
        memo.put_many("a", {"k": b"clean"})
    assert CANARY not in bytes_below(path.parent)


def test_a_writer_that_was_killed_leaves_what_it_committed(path: Path) -> None:
    """Half of the batches were durable; the log of the killed process is read on the next open."""
    code = f"""
import os, signal
from pathlib import Path
from noctuary.work.stage import Memo
with Memo.open(Path({str(path)!r})) as memo:
    memo.put_many("a", {{"k1": b"one"}})
    memo.put_many("a", {{"k2": {CANARY!r}}})
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], check=False)
    assert done.returncode == -9
    with Memo.open(path) as memo:
        assert memo.get_many("a", ["k1", "k2"]) == {"k1": b"one", "k2": CANARY}
        memo.prune({"a": ["k1"]})
        assert CANARY not in bytes_below(path.parent)


def test_a_pruning_that_removes_nothing_still_clears_replaced_values(path: Path) -> None:
    with Memo.open(path) as memo:
        memo.put_many("a", {"k": CANARY})
        memo.put_many("a", {"k": b"clean"})
        memo.prune({"a": ["k"]})
        assert CANARY not in bytes_below(path.parent)


def _garbage(path: Path) -> None:
    path.write_bytes(b"no database at all, and long enough to be looked at" * 200)


def _overwritten_pages(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def _empty_header(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + b"\x00" * 4080)


@pytest.mark.parametrize("damage", [_garbage, _overwritten_pages, _truncated, _empty_header])
def test_a_damaged_file_is_dropped_and_rebuilt(path: Path, damage: Callable[[Path], None]) -> None:
    with Memo.open(path) as memo:
        memo.put_many("a", {f"k{n}": b"value" * 100 for n in range(200)})
    damage(path)
    with Memo.open(path) as memo:
        assert memo.get_many("a", ["k1"]) == {}
        memo.put_many("a", {"k1": b"again"})
    with Memo.open(path) as memo:
        assert memo.get_many("a", ["k1"]) == {"k1": b"again"}


def test_an_empty_file_is_an_empty_memo(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with Memo.open(path) as memo:
        assert memo.get_many("a", ["k1"]) == {}


def test_another_program_s_table_is_dropped_too(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE memo (something TEXT)")
    with Memo.open(path) as memo:
        memo.put_many("a", {"k": b"v"})
        assert memo.get_many("a", ["k"]) == {"k": b"v"}


def test_a_memo_that_is_only_locked_is_not_dropped(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Memo.open(path) as memo:
        memo.put_many("a", {"k": b"v"})
    connect = sqlite3.connect

    def connect_impatiently(file: Path) -> sqlite3.Connection:
        return connect(file, timeout=0.05)

    with closing(connect(path)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("INSERT INTO memo VALUES ('a', 'uncommitted', x'00')")
        monkeypatch.setattr(sqlite3, "connect", connect_impatiently)
        with pytest.raises(StoreError, match="locked"), Memo.open(path):
            pass
        other.rollback()
    with Memo.open(path) as memo:
        assert memo.get_many("a", ["k", "uncommitted"]) == {"k": b"v"}


def test_a_directory_in_its_place_is_an_error_and_stays(path: Path) -> None:
    (path / "somebody's").mkdir(parents=True)
    with pytest.raises(StoreError, match="check the disk"), Memo.open(path):
        pass
    assert (path / "somebody's").is_dir()


def test_a_parent_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"), Memo.open(tmp_path / "file" / "memo.sqlite"):
        pass
