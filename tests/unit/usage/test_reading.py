from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US
from noctuary.usage.reader import UsageReader
from tests.support.usage_file import NOW_US, Use, write

USE: dict[str, Use] = {
    "1": (9, 3, 4, 50),
    "2": (5, 5, 2, 70),
    "3": (2, 0, 1, 10),
    "4": (3, 3, 3, 60),
}
PAIRS = [("1", "2", 4), ("1", "3", 2), ("2", "4", 7)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.sqlite"


def answers(reader: UsageReader, ids: list[str]) -> list[list[int]]:
    return [array.tolist() for array in (*reader.counts(ids), reader.co_retrieved(ids))]


def assert_knows_nothing(reader: UsageReader) -> None:
    assert answers(reader, ["1", "2"]) == [[0, 0], [0, 0], [UNDATED_US, UNDATED_US], [0, 0]]
    assert reader.most_used(5) == []
    assert reader.digest == ""


def test_it_answers_what_was_written_in_the_order_asked(path: Path) -> None:
    digest = write(path, USE, PAIRS)
    reader = UsageReader(path)
    recent, days, last_us = reader.counts(["4", "never", "1"])
    assert recent.tolist() == [3, 0, 3]
    assert days.tolist() == [3, 0, 4]
    assert last_us.tolist() == [60, UNDATED_US, 50]
    assert {a.dtype for a in (recent, days, last_us, reader.co_retrieved(["1"]))} == {
        np.dtype(np.int64)
    }
    assert (reader.window_days, reader.as_of_us, reader.digest) == (30, NOW_US, digest)
    assert (reader.warning, reader.is_missing, reader.not_scanned) == (None, False, 0)
    assert [array.size for array in reader.counts([])] == [0, 0, 0]


def test_the_most_used_of_the_window_come_first_and_the_latest_of_equals(path: Path) -> None:
    write(path, USE)
    reader = UsageReader(path)
    assert reader.most_used(10) == ["2", "4", "1"]
    assert reader.most_used(1) == ["2"]
    assert reader.most_used(0) == []
    assert reader.most_used(-3) == []


def test_co_retrieval_counts_only_among_those_asked_about(path: Path) -> None:
    write(path, USE, PAIRS)
    reader = UsageReader(path)
    assert reader.co_retrieved(["1", "2", "3", "4"]).tolist() == [6, 11, 2, 7]
    assert reader.co_retrieved(["4", "never", "1", "3"]).tolist() == [0, 0, 2, 2]
    assert reader.co_retrieved(["1"]).tolist() == [0]
    assert reader.co_retrieved([]).tolist() == []


def test_the_digest_names_the_answers_and_not_the_moment(path: Path) -> None:
    first = write(path, USE, PAIRS)
    assert write(path, USE, PAIRS, as_of_us=NOW_US + 5) == first
    assert write(path, USE, PAIRS[:2]) != first
    assert write(path, {**USE, "1": (9, 4, 4, 50)}, PAIRS) != first


def test_without_a_file_nothing_was_ever_used(path: Path) -> None:
    reader = UsageReader(path)
    assert reader.is_missing
    assert reader.warning is not None
    assert path.name in reader.warning
    assert_knows_nothing(reader)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"x" * 5000, b"SQLite format 3\x00" + b"\x00" * 4080])
def test_a_damaged_file_is_a_warning_and_no_answer(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    reader = UsageReader(path)
    assert not reader.is_missing
    assert reader.warning is not None
    assert "cannot be read" in reader.warning
    assert_knows_nothing(reader)


def test_a_directory_in_its_place_is_a_warning(path: Path) -> None:
    path.mkdir()
    assert UsageReader(path).warning is not None
    assert_knows_nothing(UsageReader(path))


@pytest.mark.parametrize("ask", ["counts", "co_retrieved", "most_used"])
def test_damage_found_while_reading_silences_all_of_it(path: Path, ask: str) -> None:
    """Never half an answer: what one question cannot read, no other question counts either."""
    write(path, USE, PAIRS)
    content = bytearray(path.read_bytes())
    with closing(sqlite3.connect(path)) as db:
        size = db.execute("PRAGMA page_size").fetchone()[0]
        pages = db.execute("SELECT rootpage FROM sqlite_master WHERE name <> 'meta'").fetchall()
    for (page,) in pages:
        content[(page - 1) * size : page * size] = b"\xa5" * size
    path.write_bytes(content)
    reader = UsageReader(path)
    assert reader.warning is None
    getattr(reader, ask)(3 if ask == "most_used" else ["1", "2"])
    assert reader.warning is not None
    assert_knows_nothing(reader)


@pytest.mark.parametrize("change", ["PRAGMA user_version = 2", "DELETE FROM meta"])
def test_another_format_is_not_read(path: Path, change: str) -> None:
    write(path, USE)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    reader = UsageReader(path)
    assert reader.warning is not None
    assert_knows_nothing(reader)


def test_it_answers_from_the_file_it_opened_until_it_is_asked_to_look(path: Path) -> None:
    write(path, USE)
    reader = UsageReader(path)
    assert reader.refreshed() is reader
    write(path, {"1": (99, 99, 9, 99)})
    assert reader.counts(["1"])[0].tolist() == [3]
    newer = reader.refreshed()
    assert newer.counts(["1"])[0].tolist() == [99]
    assert reader.counts(["1"])[0].tolist() == [3]
    path.unlink()
    assert newer.refreshed().is_missing
    write(path, USE)
    assert newer.refreshed().counts(["1"])[0].tolist() == [3]


def test_a_closed_reader_knows_nothing(path: Path) -> None:
    write(path, USE, PAIRS)
    reader = UsageReader(path)
    reader.close()
    reader.close()
    assert reader.counts(["1"])[0].tolist() == [0]
    assert reader.co_retrieved(["1", "2"]).tolist() == [0, 0]


def test_reading_leaves_no_file_beside_it_and_takes_no_lock(path: Path) -> None:
    write(path, USE)
    reader = UsageReader(path)
    reader.counts(["1"])
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    with closing(sqlite3.connect(path, timeout=0)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        assert UsageReader(path).counts(["1"])[0].tolist() == [3]


def test_threads_share_a_reader(path: Path) -> None:
    use: dict[str, Use] = {str(n): (n, n, 1, n) for n in range(1, 400)}
    write(path, use, [(str(n), str(n + 1), n) for n in range(10, 98)])
    reader = UsageReader(path)
    ids = list(use)
    expected = answers(reader, ids)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(answers, [reader] * 40, [ids] * 40))
    assert all(answer == expected for answer in found)


IDS = [f"m{n}" for n in range(40)]
PAIR = st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)).filter(lambda p: p[0] < p[1])


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(PAIR, st.integers(1, 100), max_size=60),
    st.lists(st.sampled_from([*IDS, *(f"x{n}" for n in range(600))]), unique=True, max_size=640),
)
def test_co_retrieval_equals_the_sum_over_all_pairs(
    counted: dict[tuple[str, str], int], asked: list[str]
) -> None:
    expected: Counter[str] = Counter()
    for (a, b), count in counted.items():
        if a in asked and b in asked:
            expected.update({a: count, b: count})
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "usage.sqlite"
        write(path, {}, [(a, b, n) for (a, b), n in counted.items()], known=IDS)
        reader = UsageReader(path)
        found = reader.co_retrieved(asked)
        reader.close()
    assert found.tolist() == [expected[m] for m in asked]
