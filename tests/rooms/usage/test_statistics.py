from __future__ import annotations

import sqlite3
import tempfile
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import dataclass, field
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
    RETENTION_DAYS,
    Fold,
    Folded,
    Mark,
    Window,
    count_window,
    fold_access_log,
    fold_on,
    fold_usage,
    prune_access_log,
    read_folded,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.sqlite"


def test_no_log_is_an_empty_one(path: Path) -> None:
    assert fold_access_log(Folded(), path, {"1"}) == Fold(Folded(), 0, {}, 0, None)
    assert not path.exists()


def test_the_log_may_be_written_meanwhile(path: Path) -> None:
    log_days(path, ("1", 1))
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute(INSERT, ("1", 1, "s", 9))
        assert fold_access_log(Folded(), path, {"1"}).by_memory == {"1": (1, 1)}
        other.commit()
        assert fold_access_log(Folded(), path, {"1"}).by_memory == {"1": (2, 9)}


def cut_in_the_middle(path: Path) -> None:
    ids = [str(n) for n in range(2000)]
    assert append_retrievals(path, snapshot_id="s", memory_ids=ids) is None
    with closing(sqlite3.connect(path)) as log:
        log.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 6] = b"\xa5" * 4096 * 3
    path.write_bytes(content)


@pytest.mark.parametrize(
    "content", [b"", b"x" * 5000, b"SQLite format 3\x00" + b"\x00" * 4080, None]
)
def test_a_damaged_log_counts_nothing_and_is_reported(path: Path, content: bytes | None) -> None:
    if content is None:
        cut_in_the_middle(path)
    else:
        path.write_bytes(content)
    before = path.read_bytes()
    statistics = fold_access_log(Folded(), path, {"1"})
    assert statistics[:4] == (Folded(), 0, {}, 0)
    assert statistics.fault is not None
    assert path.name in statistics.fault
    assert path.read_bytes() == before


DAY_US = 86_400_000_000
NOW_US = 200 * DAY_US
INSERT = "INSERT INTO retrievals (memory_id, rank, snapshot_id, retrieved_at_us) VALUES (?,?,?,?)"


def log_days(path: Path, *rows: tuple[str, int]) -> None:
    """Append retrievals at given times; the log is made as recall makes it."""
    assert append_retrievals(path, snapshot_id="s", memory_ids=[]) is None
    with closing(sqlite3.connect(path)) as log, log:
        log.executemany(INSERT, [(m, 1, "s", at) for m, at in rows])


def test_only_what_was_appended_since_is_read(path: Path) -> None:
    log_days(path, ("1", 50), ("2", 60))
    first, read = fold_on(Folded(), path)
    assert read == 2
    log_days(path, ("1", 40))
    second, read = fold_on(first, path)
    assert read == 1
    assert second.by_memory == {"1": (2, 50), "2": (1, 60)}
    assert (second.mark.position, second.mark.at_us) == (3, 60)
    assert fold_on(second, path) == (second, 0)


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", '{"format": 2}',
             '{"format": 2, "mark": [1, 2, 3], "by_memory": {}}',
             '{"format": 2, "mark": [1, 2, 3], "by_memory": {"1": [1, 5]}, "days": {}}',
             '{"format": 1, "mark": [1], "by_memory": {}}',
             '{"format": 1, "mark": [1, 2, 3], "by_memory": [1]}', '{"format": 1, "mark": [1, 2']
)  # fmt: skip
def test_a_damaged_file_of_sums_is_no_file(path: Path, text: str) -> None:
    kept = path.with_name("folded.json")
    kept.write_text(text, encoding="utf-8")
    assert read_folded(kept) == Folded()
    kept.write_bytes(b"\xff\xfe")
    assert read_folded(kept) == Folded()
    assert read_folded(path.with_name("absent.json")) == Folded()


def test_a_new_log_in_the_old_one_s_place_is_added_as_a_whole(path: Path) -> None:
    log_days(path, ("1", 50), ("1", 60))
    folded, _ = fold_on(Folded(), path)
    path.unlink()
    assert fold_on(folded, path) == (folded, 0)
    log_days(path, ("1", 70), ("2", 71), ("2", 72))
    assert fold_on(folded, path)[0].by_memory == {"1": (3, 70), "2": (2, 72)}


@pytest.mark.parametrize("more", [1, 2, 3])
def test_a_log_put_back_from_a_backup_counts_nothing_twice(path: Path, more: int) -> None:
    """The positions after the backup are given again, to other retrievals."""
    log_days(path, ("1", 50))
    backup = path.with_name("backup")
    with closing(sqlite3.connect(path)) as log, closing(sqlite3.connect(backup)) as copy:
        log.backup(copy)
    log_days(path, ("2", 60), ("2", 61))
    folded, _ = fold_on(Folded(), path)
    append_retrievals(path, snapshot_id="s", memory_ids=[])
    backup.replace(path)
    log_days(path, *[("3", 70 + n) for n in range(more)])
    after, read = fold_on(folded, path)
    assert read == more
    assert after.by_memory == {"1": (1, 50), "2": (2, 61), "3": (more, 69 + more)}
    log_days(path, ("3", 90))
    assert fold_on(after, path)[0].by_memory["3"] == (more + 1, 90)


def test_a_log_of_the_version_before_has_no_id_and_is_folded_on(path: Path) -> None:
    log_days(path, ("1", 50))
    with closing(sqlite3.connect(path)) as log:
        log.execute("PRAGMA application_id=0")
    folded, _ = fold_on(Folded(), path)
    assert folded == Folded({"1": (1, 50)}, Mark(0, 1, 50), {"1": (1, 0)})
    log_days(path, ("1", 60))
    assert fold_on(folded, path)[0].by_memory == {"1": (2, 60)}


def test_distinct_days_are_counted_on_over_the_nights(path: Path) -> None:
    log_days(path, ("1", 5), ("1", DAY_US - 1), ("1", DAY_US), ("2", 3 * DAY_US))
    first, _ = fold_on(Folded(), path)
    assert first.days == {"1": (2, 1), "2": (1, 3)}
    log_days(path, ("1", DAY_US + 9), ("1", 4 * DAY_US), ("1", 6 * DAY_US), ("2", 3 * DAY_US + 1))
    second, _ = fold_on(first, path)
    assert second.days == {"1": (4, 6), "2": (1, 3)}
    # A writer that was held up: its row belongs to a day that has been counted past.
    log_days(path, ("1", 5 * DAY_US))
    assert fold_on(second, path)[0].days == second.days


def test_a_damaged_log_leaves_the_sums_and_is_reported(path: Path) -> None:
    log_days(path, ("1", 50))
    folded, _ = fold_on(Folded(), path)
    close_logs()
    path.write_bytes(b"x" * 5000)
    fold = fold_access_log(folded, path, {"1"})
    assert fold.folded == folded
    assert fold.by_memory == {"1": (1, 50)}
    assert fold.fault is not None


def test_old_rows_go_when_they_are_folded_and_their_sums_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noctuary.core.sqlite._ROWS_PER_DELETION", 1)
    old, young = NOW_US - (RETENTION_DAYS + 1) * DAY_US, NOW_US - (RETENTION_DAYS - 1) * DAY_US
    log_days(path, ("old", old), ("young", young), ("old", old + 1))
    folded, _ = fold_on(Folded(), path)
    log_days(path, ("unfolded", old))
    assert prune_access_log(path, folded=folded.mark, now_us=NOW_US) == (2, None)
    left = fold_access_log(Folded(), path, {"young", "unfolded"})
    assert set(left.by_memory) == {"young", "unfolded"}
    after, read = fold_on(folded, path)
    assert read == 1
    assert after.by_memory == {"old": (2, old + 1), "young": (1, young), "unfolded": (1, old)}
    path.unlink()
    log_days(path, ("1", 2))
    assert prune_access_log(path, folded=after.mark, now_us=NOW_US) == (0, None), "another log"


def test_sums_of_what_is_gone_go_with_its_last_row(path: Path, tmp_path: Path) -> None:
    old, young = NOW_US - (RETENTION_DAYS + 1) * DAY_US, NOW_US - (RETENTION_DAYS - 1) * DAY_US
    log_days(path, ("kept", old), ("gone", old), ("gone lately", young))
    folded, usage = tmp_path / "folded.json", tmp_path / "usage.sqlite"
    for _ in range(2):
        fold_usage(folded, path, usage, {"kept"}, 30, NOW_US)
        assert read_folded(folded).by_memory == {"kept": (1, old), "gone lately": (1, young)}
        assert read_folded(folded).days.keys() == {"kept", "gone lately"}


def test_pruning_never_raises(path: Path) -> None:
    assert prune_access_log(path, folded=Mark(1, 9, 9), now_us=NOW_US) == (0, None)
    assert not path.exists()
    path.write_bytes(b"x" * 5000)
    deleted, fault = prune_access_log(path, folded=Mark(1, 9, 9), now_us=NOW_US)
    assert deleted == 0
    assert fault is not None
    assert "were not deleted" in fault


@dataclass
class Model:
    """What every fold must give: each retrieval that a fold has seen counts once, for ever."""

    folded: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    in_log: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    lost_any: bool = False

    def sums(self) -> dict[str, tuple[int, int]]:
        times: dict[str, list[int]] = defaultdict(list)
        for memory_id, at_us in self.folded:
            times[memory_id].append(at_us)
        return {m: (len(found), max(found)) for m, found in times.items()}


IDS = st.sampled_from("abcdef")
APPEND = st.tuples(
    st.just("append"), st.lists(st.tuples(IDS, st.integers(0, NOW_US)), min_size=1, max_size=6)
)
STEP = APPEND | st.tuples(st.sampled_from(["fold", "prune", "delete"]), st.just([]))


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=14), st.sets(IDS))
def test_folding_night_by_night_equals_folding_everything(
    steps: list[tuple[str, list[tuple[str, int]]]], known: set[str]
) -> None:
    model, folded = Model(), Folded()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "access.sqlite"
        for step, rows in [*steps, ("fold", [])]:
            if step == "append":
                log_days(path, *rows)
                model.in_log += rows
            elif step == "prune":
                deleted, fault = prune_access_log(path, folded=folded.mark, now_us=NOW_US)
                assert fault is None
                model.lost_any |= deleted > 0
            elif step == "delete":
                path.unlink(missing_ok=True)
                model.lost_any, model.in_log = True, []
            else:
                fold = fold_access_log(folded, path, known)
                model.folded, model.in_log = model.folded + model.in_log, []
                assert fold.folded.by_memory == model.sums()
                kept = Path(directory) / "folded.json"
                kept.write_text(fold.folded.to_json(), encoding="utf-8")
                folded = read_folded(kept)
                assert folded == fold.folded
                if not model.lost_any:
                    anew = fold_access_log(Folded(), path, known)
                    assert (fold.by_memory, fold.orphaned) == (anew.by_memory, anew.orphaned)


Recall = tuple[int, str, list[str]]
EVERYTHING = {"recent_since_us": 0, "pairs_since_us": 0}


def log_moments(path: Path, *recalls: Recall) -> Mark:
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


def test_what_was_appended_after_the_fold_waits_for_the_next_night(path: Path) -> None:
    mark = log_moments(path, (10, "s", ["a", "b"]))
    log_moments(path, (20, "s", ["a", "b"]))
    assert count_window(path, mark, {"a", "b"}, **EVERYTHING).recent == {"a": 1, "b": 1}


def test_another_log_than_was_folded_counts_nothing(path: Path) -> None:
    mark = log_moments(path, (10, "s", ["a", "b"]))
    close_logs()
    path.unlink()
    assert count_window(path, mark, {"a"}, **EVERYTHING) == Window()
    log_moments(path, (10, "s", ["a", "b"]))
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
    mark = log_moments(path, *recalls)
    assert count_window(path, mark, {"a", "b"}, **EVERYTHING).pairs == [("a", "b", 2)]


def test_beyond_the_bound_the_frequent_and_then_the_newest_pairs_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_module, "CO_RETRIEVAL_PAIRS", 2)
    mark = log_moments(
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
        mark = log_moments(path, *recalls)
        found = count_window(path, mark, known, recent_since_us=since, pairs_since_us=since)
        close_logs()
    assert found.recent == recent
    assert found.pairs == sorted((a, b, n) for (a, b), n in pairs.items())
