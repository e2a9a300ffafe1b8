from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.sqlite import close_logs
from noctuary.usage import statistics as window_module
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.statistics import (
    CO_RETRIEVAL_RANKS,
    Folded,
    Mark,
    Window,
    count_window,
    fold_on,
)

INSERT = "INSERT INTO retrievals (memory_id, rank, snapshot_id, retrieved_at_us) VALUES (?,?,?,?)"
Recall = tuple[int, str, list[str]]
EVERYTHING = {"recent_since_us": 0, "pairs_since_us": 0}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.sqlite"


def write(path: Path, *recalls: Recall) -> Mark:
    """Append recalls as (time, snapshot, ids in rank order); return a mark after them."""
    assert append_retrievals(path, snapshot_id="s", memory_ids=[]) is None
    rows = [
        (memory_id, rank, snapshot, at)
        for at, snapshot, ids in recalls
        for rank, memory_id in enumerate(ids, start=1)
    ]
    with closing(sqlite3.connect(path)) as log, log:
        log.executemany(INSERT, rows)
    return fold_on(Folded(), path)[0].mark


def test_only_the_window_and_only_what_exists_counts(path: Path) -> None:
    mark = write(path, (10, "s", ["a", "b"]), (20, "s", ["a", "gone"]), (30, "s", ["b", "a"]))
    window = count_window(path, mark, {"a", "b", "c"}, recent_since_us=20, pairs_since_us=30)
    assert window == Window({"a": 2, "b": 1}, [("a", "b", 1)], 0)
    window = count_window(path, mark, {"a", "b", "c"}, recent_since_us=31, pairs_since_us=0)
    assert window == Window({}, [("a", "b", 2)], 0)


def test_what_was_appended_after_the_fold_waits_for_the_next_night(path: Path) -> None:
    mark = write(path, (10, "s", ["a", "b"]))
    write(path, (20, "s", ["a", "b"]))
    assert count_window(path, mark, {"a", "b"}, **EVERYTHING).recent == {"a": 1, "b": 1}


def test_another_log_than_was_folded_counts_nothing(path: Path) -> None:
    mark = write(path, (10, "s", ["a", "b"]))
    close_logs()
    path.unlink()
    assert count_window(path, mark, {"a"}, **EVERYTHING) == Window()
    write(path, (10, "s", ["a", "b"]))
    assert count_window(path, mark, {"a"}, **EVERYTHING) == Window()


def test_a_damaged_log_raises(path: Path) -> None:
    path.write_bytes(b"x" * 5000)
    with pytest.raises(sqlite3.Error):
        count_window(path, Mark(1, 1, 1), {"a"}, **EVERYTHING)


@pytest.mark.parametrize(
    "recalls",
    [
        [(10, "s", ["a", "b"]), (10, "t", ["b", "a"])],
        [(10, "s", ["a", "b"]), (11, "s", ["b", "a"])],
        # Two processes in one microsecond: the rank begins anew.
        [(10, "s", ["a", "b"]), (10, "s", ["b", "a"])],
    ],
)
def test_recalls_are_told_apart_by_snapshot_time_and_rank(
    path: Path, recalls: list[Recall]
) -> None:
    mark = write(path, *recalls)
    assert count_window(path, mark, {"a", "b"}, **EVERYTHING).pairs == [("a", "b", 2)]


def test_the_tail_of_a_long_list_was_not_recalled_together(path: Path) -> None:
    ids = [f"{n:02}" for n in range(CO_RETRIEVAL_RANKS + 5)]
    mark = write(path, (10, "s", ids))
    pairs = count_window(path, mark, ids, **EVERYTHING).pairs
    assert pairs == [(a, b, 1) for a, b in combinations(ids[:CO_RETRIEVAL_RANKS], 2)]


def test_beyond_the_bound_the_frequent_and_then_the_newest_pairs_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "CO_RETRIEVAL_PAIRS", 2)
    mark = write(
        path,
        (10, "s", ["a", "b"]), (20, "s", ["b", "a"]), (30, "s", ["a", "c"]), (40, "s", ["d", "c"]),
    )  # fmt: skip
    window = count_window(path, mark, set("abcd"), **EVERYTHING)
    assert window.pairs == [("a", "b", 2), ("c", "d", 1)]
    assert window.pairs_left_out == 1


RECALLS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from("st"),
        st.lists(st.sampled_from("abcdefghijklmn"), unique=True, min_size=1, max_size=14),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(RECALLS, st.sets(st.sampled_from("abcdefghijklmn")), st.integers(0, 30))
def test_it_equals_counting_in_memory(recalls: list[Recall], known: set[str], since: int) -> None:
    recent: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for at, _, ids in recalls:
        if at >= since:
            recent.update(m for m in ids if m in known)
            top = sorted(m for m in ids[:CO_RETRIEVAL_RANKS] if m in known)
            pairs.update(combinations(top, 2))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "access.sqlite"
        mark = write(path, *recalls)
        found = count_window(path, mark, known, recent_since_us=since, pairs_since_us=since)
        close_logs()
    assert found.recent == recent
    assert found.pairs == sorted((a, b, n) for (a, b), n in pairs.items())
