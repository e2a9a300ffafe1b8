"""Searching many texts: in this process, in shards, and against the dictionary one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.types import SilentProgress
from noctuary.graph.contributions import (
    RunnerSearch,
    SearchTexts,
    pack_tables,
    search_here,
    unpack_tables,
    word_code,
    write_dictionary,
)
from noctuary.graph.extract import Tokens, find_matches, index_dictionary
from noctuary.work.runner import LocalRunner

NAMES = {"blue ridge": False, "redis": True, "ridge": False, "公司": False}
TEXTS = (
    "we saw Blue Ridge and redis",
    "Redis on the ridge",
    "我的公司 and 公司",
    "nothing here",
    "",
)
OWN = (["ridge"], ["redis"], [], [], [])
ROWS = 23


def _batches(rows: int, size: int) -> Iterator[Any]:
    mids = list(range(100, 100 + rows))
    for start in range(0, rows, size):
        some = mids[start : start + size]
        yield pa.record_batch(
            {
                "mid": pa.array(some, pa.int64()),
                "content": pa.array([TEXTS[m % len(TEXTS)] for m in some], pa.string()),
                "own": pa.array([OWN[m % len(TEXTS)] for m in some], pa.list_(pa.string())),
            }
        )


def _rows(found: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    tables = [unpack_tables(batch) for batch in found]
    return {name: [r for t in tables for r in t[name].to_pylist()] for name in tables[0]}


def _one_by_one(rows: int, *, words: bool) -> dict[str, list[dict[str, Any]]]:
    dictionary = index_dictionary(NAMES, {})
    out: dict[str, list[dict[str, Any]]] = {"word": [], "matched": [], "declined": []}
    for mid in range(100, 100 + rows):
        text = TEXTS[mid % len(TEXTS)]
        found = find_matches(text, dictionary, OWN[mid % len(TEXTS)])
        out["matched"] += [
            {"mid": mid, "name": m.name, "start": m.start, "stop": m.end,
             "surface": text[m.start : m.end]}
            for m in found.found
        ]  # fmt: skip
        out["declined"] += [
            {"mid": mid, "script": script, "runs": runs} for script, runs in found.declined.items()
        ]
        if words:
            codes = sorted({word_code(word) for word in Tokens(text).folded})
            out["word"] += [{"mid": mid, "word": code} for code in codes]
    return out


@pytest.mark.parametrize("words", [True, False])
def test_batches_give_what_each_text_gives(words: bool) -> None:
    found = _rows(list(search_here(NAMES, _batches(ROWS, 4), ROWS, words=words)))
    assert found == _one_by_one(ROWS, words=words)
    assert bool(found["word"]) == words
    assert found["matched"]
    assert found["declined"]


class Listener(SilentProgress):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def update(self, task: str, done: int, total: int) -> None:
        self.told.append((task, done))


def test_a_nights_shards_give_the_same_and_leave_nothing(tmp_path: Path) -> None:
    listener = Listener()
    search = RunnerSearch(LocalRunner(1), tmp_path / "search", listener, shard_rows=5)
    found = _rows(list(search(NAMES, _batches(ROWS, 4), ROWS, words=True)))
    assert found == _one_by_one(ROWS, words=True)
    assert [done for task, done in listener.told if task == "search_texts"][-1] == ROWS
    assert not (tmp_path / "search").exists()


def test_what_a_killed_night_left_is_removed_first(tmp_path: Path) -> None:
    place = tmp_path / "search"
    left = place / "texts" / "half.rows.arrow"
    left.parent.mkdir(parents=True)
    left.write_text("Zanzibar Quartz")
    by_runner = RunnerSearch(LocalRunner(1), place, shard_rows=5)
    search = iter(by_runner(NAMES, _batches(ROWS, 4), ROWS, words=True))
    assert next(search).num_rows
    assert not left.exists()
    assert len(list(search)) >= 4


def test_few_texts_are_searched_without_a_file(tmp_path: Path) -> None:
    search = RunnerSearch(LocalRunner(1), tmp_path / "search", shard_rows=ROWS)
    found = _rows(list(search(NAMES, _batches(ROWS, 4), ROWS, words=True)))
    assert found == _one_by_one(ROWS, words=True)
    assert not list(tmp_path.iterdir())


def test_a_search_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    by_runner = RunnerSearch(LocalRunner(1), tmp_path / "search", shard_rows=5)
    search = iter(by_runner(NAMES, _batches(ROWS, 4), ROWS, words=True))
    next(search)
    assert (tmp_path / "search").exists()
    search.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert not (tmp_path / "search").exists()


def test_the_task_reads_its_dictionary_from_the_file(tmp_path: Path) -> None:
    write_dictionary(NAMES, tmp_path / "names.json")
    again = tmp_path / "again.json"
    write_dictionary(dict(reversed(NAMES.items())), again)
    assert again.read_bytes() == (tmp_path / "names.json").read_bytes()
    search = SearchTexts(again, words=True).open(1)
    assert _rows([search(b) for b in _batches(ROWS, 9)]) == _one_by_one(ROWS, words=True)


_TABLES = st.lists(st.tuples(st.integers(0, 9), st.text(max_size=3)), max_size=4)


@given(st.lists(_TABLES, min_size=1, max_size=3))
def test_packed_tables_come_back(parts: list[list[tuple[int, str]]]) -> None:
    def table(rows: list[tuple[int, str]]) -> Any:
        mids, names = [r[0] for r in rows], [r[1] for r in rows]
        return pa.table({"mid": pa.array(mids, pa.int64()), "name": pa.array(names, pa.string())})

    packed = pa.Table.from_batches([pack_tables({"t": table(rows)}) for rows in parts])
    (batch,) = packed.combine_chunks().to_batches()
    assert unpack_tables(batch)["t"].equals(table([row for rows in parts for row in rows]))
