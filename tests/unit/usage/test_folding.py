from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.sqlite import close_logs
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.statistics import (
    RETENTION_DAYS,
    Folded,
    Mark,
    fold_access_log,
    fold_on,
    prune_access_log,
    read_folded,
)

DAY_US = 86_400_000_000
NOW_US = 200 * DAY_US
INSERT = "INSERT INTO retrievals (memory_id, rank, snapshot_id, retrieved_at_us) VALUES (?,?,?,?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access.sqlite"


def write(path: Path, *rows: tuple[str, int]) -> None:
    """Append retrievals at given times; the log is made as recall makes it."""
    assert append_retrievals(path, snapshot_id="s", memory_ids=[]) is None
    with closing(sqlite3.connect(path)) as log, log:
        log.executemany(INSERT, [(m, 1, "s", at) for m, at in rows])


def test_only_what_was_appended_since_is_read(path: Path) -> None:
    write(path, ("1", 50), ("2", 60))
    first, read = fold_on(Folded(), path)
    assert read == 2
    write(path, ("1", 40))
    second, read = fold_on(first, path)
    assert read == 1
    assert second.by_memory == {"1": (2, 50), "2": (1, 60)}
    assert (second.mark.position, second.mark.at_us) == (3, 60)
    assert fold_on(second, path) == (second, 0)


def test_the_sums_come_back_from_their_file(path: Path) -> None:
    write(path, ("1", 50), ("ü", 60))
    folded, _ = fold_on(Folded(), path)
    kept = path.with_name("folded.json")
    kept.write_text(folded.to_json(), encoding="utf-8")
    assert read_folded(kept) == folded


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{}", '{"format": 2}',
             '{"format": 3, "mark": [1, 2, 3], "by_memory": {}}',
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
    write(path, ("1", 50), ("1", 60))
    folded, _ = fold_on(Folded(), path)
    path.unlink()
    assert fold_on(folded, path) == (folded, 0)
    write(path, ("1", 70), ("2", 71), ("2", 72))
    assert fold_on(folded, path)[0].by_memory == {"1": (3, 70), "2": (2, 72)}


@pytest.mark.parametrize("more", [1, 2, 3])
def test_a_log_put_back_from_a_backup_counts_nothing_twice(path: Path, more: int) -> None:
    """The positions after the backup are given again, to other retrievals."""
    write(path, ("1", 50))
    backup = path.with_name("backup")
    with closing(sqlite3.connect(path)) as log, closing(sqlite3.connect(backup)) as copy:
        log.backup(copy)
    write(path, ("2", 60), ("2", 61))
    folded, _ = fold_on(Folded(), path)
    append_retrievals(path, snapshot_id="s", memory_ids=[])
    backup.replace(path)
    write(path, *[("3", 70 + n) for n in range(more)])
    after, read = fold_on(folded, path)
    assert read == more
    assert after.by_memory == {"1": (1, 50), "2": (2, 61), "3": (more, 69 + more)}
    write(path, ("3", 90))
    assert fold_on(after, path)[0].by_memory["3"] == (more + 1, 90)


def test_a_log_of_the_version_before_has_no_id_and_is_folded_on(path: Path) -> None:
    write(path, ("1", 50))
    with closing(sqlite3.connect(path)) as log:
        log.execute("PRAGMA application_id=0")
    folded, _ = fold_on(Folded(), path)
    assert folded == Folded({"1": (1, 50)}, Mark(0, 1, 50), {"1": (1, 0)})
    write(path, ("1", 60))
    assert fold_on(folded, path)[0].by_memory == {"1": (2, 60)}


def test_distinct_days_are_counted_on_over_the_nights(path: Path) -> None:
    write(path, ("1", 5), ("1", DAY_US - 1), ("1", DAY_US), ("2", 3 * DAY_US))
    first, _ = fold_on(Folded(), path)
    assert first.days == {"1": (2, 1), "2": (1, 3)}
    write(path, ("1", DAY_US + 9), ("1", 4 * DAY_US), ("1", 6 * DAY_US), ("2", 3 * DAY_US + 1))
    second, _ = fold_on(first, path)
    assert second.days == {"1": (4, 6), "2": (1, 3)}
    # A writer that was held up: its row belongs to a day that has been counted past.
    write(path, ("1", 5 * DAY_US))
    assert fold_on(second, path)[0].days == second.days


def test_a_damaged_log_leaves_the_sums_and_is_reported(path: Path) -> None:
    write(path, ("1", 50))
    folded, _ = fold_on(Folded(), path)
    close_logs()
    path.write_bytes(b"x" * 5000)
    fold = fold_access_log(folded, path, {"1"})
    assert fold.folded == folded
    assert fold.by_memory == {"1": (1, 50)}
    assert fold.fault is not None


def test_old_rows_go_when_they_are_folded_and_their_sums_stay(path: Path) -> None:
    old, young = NOW_US - (RETENTION_DAYS + 1) * DAY_US, NOW_US - (RETENTION_DAYS - 1) * DAY_US
    write(path, ("old", old), ("young", young), ("old", old + 1))
    folded, _ = fold_on(Folded(), path)
    write(path, ("unfolded", old))
    assert prune_access_log(path, folded=folded.mark, now_us=NOW_US) == (2, None)
    assert set(fold_access_log(Folded(), path, {"young", "unfolded"}).by_memory) == {
        "young",
        "unfolded",
    }
    after, read = fold_on(folded, path)
    assert read == 1
    assert after.by_memory == {"old": (2, old + 1), "young": (1, young), "unfolded": (1, old)}


def test_positions_go_on_after_everything_was_deleted(path: Path) -> None:
    write(path, ("1", 1), ("1", 2))
    folded, _ = fold_on(Folded(), path)
    assert prune_access_log(path, folded=folded.mark, now_us=NOW_US) == (2, None)
    assert fold_on(folded, path) == (folded, 0)
    write(path, ("1", NOW_US))
    assert fold_on(folded, path)[0].by_memory == {"1": (3, NOW_US)}


def test_many_old_rows_go_in_several_transactions(path: Path) -> None:
    write(path, *[("1", n) for n in range(12_000)])
    mark = fold_on(Folded(), path)[0].mark
    assert mark.position == 12_000
    but_one = mark._replace(position=11_999)
    assert prune_access_log(path, folded=but_one, now_us=NOW_US) == (11_999, None)
    assert fold_access_log(Folded(), path, {"1"}).by_memory == {"1": (1, 11_999)}


def test_another_log_than_the_folded_one_keeps_its_rows(path: Path) -> None:
    write(path, ("1", 1))
    folded, _ = fold_on(Folded(), path)
    path.unlink()
    write(path, ("1", 2))
    assert prune_access_log(path, folded=folded.mark, now_us=NOW_US) == (0, None)
    assert fold_on(folded, path)[0].by_memory == {"1": (2, 2)}


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
                write(path, *rows)
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
