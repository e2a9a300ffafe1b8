from __future__ import annotations

import math
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.errors import StoreError
from noctuary.core.types import UNDATED_US, register_hook
from noctuary.usage import statistics
from noctuary.usage.reader import (
    UsageReader,
    decayed,
    idle_days,
    last_accessed,
    ltp_multiplier,
    ltp_score,
)
from noctuary.usage.statistics import ScanReport, ScoringRules, refresh_scores
from tests.support.usage_file import DAY_US, NOW_US, Use, rows, write

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
    every = (recent, days, last_us, reader.co_retrieved(["1"]))
    assert {array.dtype for array in every} == {np.dtype(np.int64)}
    assert (reader.window_days, reader.as_of_us, reader.digest) == (30, NOW_US, digest)
    assert (reader.warning, reader.is_missing, reader.not_scanned) == (None, False, 0)
    assert [array.size for array in reader.counts([])] == [0, 0, 0]
    # The digest names the answers and not the moment.
    assert write(path, USE, PAIRS, as_of_us=NOW_US + 5) == digest
    assert write(path, USE, PAIRS[:2]) != digest
    assert write(path, {**USE, "1": (9, 4, 4, 50)}, PAIRS) != digest
    reader.close()
    reader.close()
    assert reader.counts(["1"])[0].tolist() == [0], "a closed reader knows nothing"
    assert reader.co_retrieved(["1", "2"]).tolist() == [0, 0]


def test_the_most_used_of_the_window_come_first_and_the_latest_of_equals(path: Path) -> None:
    write(path, USE)
    found = [UsageReader(path).most_used(count) for count in (10, 1, 0, -3)]
    assert found == [["2", "4", "1"], ["2"], [], []]


def changed_by(path: Path, sql: str) -> None:
    write(path, USE)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(sql)


HARMS: dict[str, Callable[[Path], object]] = {
    "is missing": lambda path: None,
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"x" * 5000),
    "only a head": lambda path: path.write_bytes(b"SQLite format 3\x00" + b"\x00" * 4080),
    "a directory": lambda path: path.mkdir(),
    "another format": lambda path: changed_by(path, "PRAGMA user_version = 2"),
    "without its meta": lambda path: changed_by(path, "DELETE FROM meta"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_is_none_is_a_warning_and_no_answer(path: Path, harm: str) -> None:
    HARMS[harm](path)
    reader = UsageReader(path)
    assert reader.is_missing is (harm == "is missing")
    assert reader.warning is not None
    assert path.name in reader.warning
    assert_knows_nothing(reader)
    assert path.exists() is not reader.is_missing


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


ONE_DAY_US = 86_400_000_000
COUNTS = st.lists(st.integers(0, 2**62), min_size=1, max_size=30)
MAX = st.floats(1.01, 50.0)
DAYS = st.floats(0.0, 1e6)
LAMBDA = st.floats(0.0, 10.0)


@pytest.mark.parametrize(
    ("n", "expected"),
    [(0, 1.0), (1, 1.20794), (2, 1.32958), (5, 1.53753), (9, 1.69078), (26, 1.98875),
     (27, 1.99966), (28, 2.0), (1000, 2.0)],
)  # fmt: skip
def test_the_reference_s_multiplier(n: int, expected: float) -> None:
    """MemPalace #441: clamp(1 + 0.3 ln(1 + n), 1, 2), about 2 at 27 retrievals."""
    assert ltp_multiplier(np.array([n]), 2.0)[0] == pytest.approx(expected, abs=5e-6)
    for most in (2.0, 3.0):
        score = ltp_score(np.array([expected]), most)[0]
        assert score == pytest.approx((expected - 1) / (most - 1)), "it starts at nothing"


def test_decay_is_the_rfc_s() -> None:
    faded = decayed(np.array([0.18, 0.18, 0.5]), np.array([0.0, 47.0, 100.0]), 0.01)
    assert faded == pytest.approx([0.18, 0.18 * math.exp(-0.47), 0.5 / math.e])
    assert decayed(np.array([0.7]), np.array([1e9]), 0.0)[0] == 0.7


def test_a_memory_never_recalled_was_last_of_use_when_it_was_made() -> None:
    last_us = np.array([5 * ONE_DAY_US, UNDATED_US, UNDATED_US])
    created_us = np.array([1 * ONE_DAY_US, 2 * ONE_DAY_US, UNDATED_US])
    accessed = last_accessed(last_us, created_us)
    assert accessed.tolist() == [5 * ONE_DAY_US, 2 * ONE_DAY_US, UNDATED_US]
    assert idle_days(accessed, 10 * ONE_DAY_US).tolist() == [5.0, 8.0, 0.0]
    assert idle_days(np.array([11 * ONE_DAY_US]), 10 * ONE_DAY_US).tolist() == [0.0]


@given(COUNTS, MAX)
def test_multiplier_and_score_keep_their_ranges_and_rise_with_use(
    counts: list[int], max_boost: float
) -> None:
    multiplier = ltp_multiplier(np.array(sorted(counts), dtype=np.int64), max_boost)
    score = ltp_score(multiplier, max_boost)
    assert np.all((multiplier >= 1.0) & (multiplier <= max_boost))
    assert np.all((score >= 0.0) & (score <= 1.0))
    assert np.all(np.diff(multiplier) >= 0.0)
    assert np.all(np.diff(score) >= 0.0)


@given(st.floats(0.0, 1.0), st.lists(DAYS, min_size=1, max_size=20), LAMBDA)
def test_decay_keeps_the_range_and_falls_with_time(
    score: float, days: list[float], decay_lambda: float
) -> None:
    faded = decayed(np.full(len(days), score), np.array(sorted(days)), decay_lambda)
    assert np.all((faded >= 0.0) & (faded <= score))
    assert np.all(np.diff(faded) <= 0.0)


@given(st.lists(st.integers(-(2**63), 2**62), min_size=1, max_size=20), st.integers(0, 2**62))
def test_idle_days_are_finite_and_never_negative(moments: list[int], now_us: int) -> None:
    days = idle_days(np.array(moments, dtype=np.int64), now_us)
    assert np.all(np.isfinite(days))
    assert np.all(days >= 0.0)


RULES = ScoringRules(max_scan_depth=0, decay_lambda=0.0)
LTP = "SELECT * FROM ltp ORDER BY memory_id"


@pytest.fixture(autouse=True)
def three_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "BATCH_ROWS", 3)


def updated(report: ScanReport) -> list[int]:
    """Rows written, per batch."""
    return [batch["ltp_updated"] for batch in report.batches]


def scan(
    path: Path, created: Sequence[tuple[str, int]], rules: ScoringRules = RULES, now: int = NOW_US
) -> ScanReport:
    ids = pa.array([m for m, _ in created], pa.string())
    dates = np.array([at for _, at in created], dtype=np.int64)
    return refresh_scores(path, ids, dates, rules, as_of_us=now)


def rules(**changes: Any) -> ScoringRules:
    return RULES._replace(**changes)


def memories(count: int) -> list[tuple[str, int]]:
    return [(str(n), NOW_US - n * DAY_US) for n in range(count)]


def test_every_memory_gets_a_row_and_its_last_access_or_creation(path: Path) -> None:
    write(path, {"1": (9, 27, 4, NOW_US - 2 * DAY_US), "2": (5, 0, 2, NOW_US - 80 * DAY_US)})
    created = [("0", 11), ("1", 12), ("2", 13), ("3", UNDATED_US)]
    report = scan(path, created, rules(decay_lambda=0.1))
    boost = 0.3 * np.log(28)
    assert [row[:3] for row in rows(path, LTP)] == [
        ("0", 1.0, 0.0),
        ("1", pytest.approx(1 + boost), pytest.approx(boost)),
        ("2", 1.0, 0.0),
        ("3", 1.0, 0.0),
    ]
    assert [row[3] for row in rows(path, LTP)] == [0, pytest.approx(boost * np.exp(-0.2)), 0, 0]
    assert [row[4] for row in rows(path, LTP)] == [
        11, NOW_US - 2 * DAY_US, NOW_US - 80 * DAY_US, UNDATED_US,
    ]  # fmt: skip
    assert (report.total, report.scanned, report.in_use, updated(report)) == (4, 4, 1, [3, 1])


def test_what_did_not_change_is_skipped_and_what_did_is_found_wherever_it_is(path: Path) -> None:
    """The RFC looks at filed_at alone and misses an old memory that was recalled."""
    created = memories(8)
    write(path, {"1": (1, 1, 1, 50)})
    assert updated(scan(path, created)) == [3, 3, 2]
    assert updated(scan(path, created)) == [0, 0, 0]
    write(path, {"1": (2, 2, 1, 60), "7": (1, 1, 1, 60)}, known=[m for m, _ in created])
    assert updated(scan(path, created)) == [1, 0, 1]
    # Its retrievals left the window, and nothing was filed or recalled.
    write(path, {"1": (2, 0, 1, 60), "7": (1, 1, 1, 60)}, known=[m for m, _ in created])
    assert updated(scan(path, created)) == [1, 0, 0]
    created[4] = ("4", 77)
    created.append(("8", 78))
    assert updated(scan(path, created)) == [0, 1, 1]


def test_the_report_has_the_rfc_s_shape(path: Path) -> None:
    write(path, {})
    report = scan(path, memories(8))
    shape = report.timings.report()
    assert set(shape) == {
        "total_ms", "batches", "batch_timings_ms", "avg_batch_ms", "slowest_batch",
    }  # fmt: skip
    assert shape["batches"] == len(shape["batch_timings_ms"]) == 3
    slowest = shape["slowest_batch"]
    assert slowest["ms"] == max(shape["batch_timings_ms"])
    assert slowest["offset"] == 3 * slowest["index"]
    assert report.pagination_state() == {
        "total": 8, "batches_processed": 3, "last_offset": 8, "scan_depth_reached": False,
    }  # fmt: skip
    assert report.batches[2] == {
        "batch_index": 2, "offset": 6, "memories_in_batch": 2, "ltp_updated": 2,
        "ltp_skipped_unchanged": 0,
    }  # fmt: skip
    assert report.warning is None


def test_a_bounded_scan_says_what_it_left_out_and_goes_on_there(path: Path) -> None:
    write(path, {})
    created, bounded = memories(10), rules(max_scan_depth=4)
    report = scan(path, created, bounded)
    assert report.pagination_state() == {
        "total": 10, "batches_processed": 2, "last_offset": 4, "scan_depth_reached": True,
    }  # fmt: skip
    assert report.not_scanned == 6
    assert report.warning is not None
    assert "4 of 10" in report.warning
    assert "6 were not scanned" in report.warning
    assert UsageReader(path).not_scanned == 6
    # The counting of the next night lies between.
    write(path, {}, known=[m for m, _ in created])
    assert scan(path, created, bounded).last_offset == 8
    third = scan(path, created, bounded)
    assert [b["offset"] for b in third.batches] == [8, 0]
    assert (third.scanned, third.last_offset) == (4, 2)
    assert len(rows(path, LTP)) == 10
    whole = scan(path, created)
    assert (whole.not_scanned, UsageReader(path).not_scanned) == (0, 0)
    exact = scan(path, memories(4), bounded)
    assert (exact.not_scanned, exact.pagination_state()["scan_depth_reached"]) == (0, False)
    assert scan(path, []).pagination_state() == {
        "total": 0, "batches_processed": 0, "last_offset": 0, "scan_depth_reached": False,
    }  # fmt: skip


def test_hooks_see_every_batch_and_a_failing_one_changes_nothing(path: Path) -> None:
    write(path, {"4": (1, 1, 1, 5)})
    seen: list[dict[str, Any]] = []

    def fail(_: dict[str, Any]) -> None:
        raise RuntimeError("no")

    removers = [register_hook("post_batch", seen.append), register_hook("post_batch", fail)]
    try:
        report = scan(path, memories(8))
    finally:
        for remove in removers:
            remove()
    assert seen == [
        {"batch_index": 0, "offset": 0, "batch_size": 3, "ltp_updates": 3},
        {"batch_index": 1, "offset": 3, "batch_size": 3, "ltp_updates": 3},
        {"batch_index": 2, "offset": 6, "batch_size": 2, "ltp_updates": 2},
    ]
    assert report.hook_faults == ["a post_batch hook raised RuntimeError: no"] * 3
    assert len(rows(path, LTP)) == 8


@pytest.mark.parametrize("content", [None, b"", b"x" * 5000])
def test_without_tonight_s_file_it_refuses(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError, match="access_statistics"):
        scan(path, memories(2))
    assert (path.read_bytes() if path.exists() else None) == content
    assert [p.name for p in path.parent.iterdir()] in ([], [path.name])


def test_a_scan_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    digest = write(path, {"1": (1, 1, 1, 5)})
    before = path.read_bytes()
    with pytest.raises(ValueError, match="broadcast"):
        refresh_scores(path, pa.array(list("123456")), np.zeros(5, np.int64), RULES, as_of_us=0)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    reader = UsageReader(path)
    scan(path, memories(3))
    assert reader.counts(["1"])[0].tolist() == [1], "a reader keeps its file"
    newer = reader.refreshed()
    assert newer is not reader
    assert newer.digest == digest, "scores are not among the answers of recall"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


USES = st.dictionaries(
    st.sampled_from([str(n) for n in range(12)]),
    st.tuples(
        st.integers(1, 99), st.integers(0, 60), st.integers(1, 9), st.integers(0, 2 * NOW_US)
    ),
)
NIGHT = st.tuples(USES, st.integers(0, 12), st.integers(0, 40))


@settings(max_examples=50, deadline=None)
@given(st.lists(NIGHT, min_size=1, max_size=4), st.integers(1, 5), st.sampled_from([0.0, 0.01]))
def test_night_by_night_equals_scoring_everything_anew(
    nights: list[tuple[dict[str, Use], int, int]], batch_size: int, decay_lambda: float
) -> None:
    tonight = rules(decay_lambda=decay_lambda)
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "BATCH_ROWS", batch_size)
        kept, fresh = Path(directory) / "kept.sqlite", Path(directory) / "fresh.sqlite"
        for use, count, day in nights:
            created, now = memories(count), NOW_US + day * DAY_US
            known = [m for m, _ in created]
            write(kept, use, known=known)
            report = scan(kept, created, tonight, now)
            fresh.unlink(missing_ok=True)
            write(fresh, use, known=known)
            scan(fresh, created, tonight, now)
            assert rows(kept, LTP) == rows(fresh, LTP)
            assert report.scanned == count == sum(b["memories_in_batch"] for b in report.batches)
