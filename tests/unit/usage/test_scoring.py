from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Sequence
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
from noctuary.usage.reader import UsageReader
from noctuary.usage.statistics import ScanReport, ScoringRules, refresh_scores
from tests.support.usage_file import DAY_US, NOW_US, Use, rows, write

RULES = ScoringRules(max_scan_depth=0, decay_lambda=0.0)
LTP = "SELECT * FROM ltp ORDER BY memory_id"


@pytest.fixture(autouse=True)
def three_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "BATCH_ROWS", 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.sqlite"


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


def test_decay_goes_on_without_a_new_retrieval(path: Path) -> None:
    write(path, {"1": (5, 5, 1, NOW_US)})
    created, decaying = memories(4), rules(decay_lambda=0.01)
    scan(path, created, decaying)
    later = scan(path, created, decaying, now=NOW_US + 100 * DAY_US)
    assert updated(later) == [1, 0]
    [(score, faded)] = rows(path, "SELECT ltp_score, decayed_score FROM ltp WHERE ltp_score > 0")
    assert faded == pytest.approx(score / np.e)


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


def test_a_bound_that_does_not_bite_is_none(path: Path) -> None:
    write(path, {})
    report = scan(path, memories(6), rules(max_scan_depth=6))
    assert (report.not_scanned, report.pagination_state()["scan_depth_reached"]) == (0, False)
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


def test_a_reader_keeps_its_file_while_the_scan_replaces_it(path: Path) -> None:
    digest = write(path, {"1": (1, 1, 1, 5)})
    reader = UsageReader(path)
    scan(path, memories(3))
    assert reader.counts(["1"])[0].tolist() == [1]
    newer = reader.refreshed()
    assert newer is not reader
    assert newer.digest == digest, "scores are not among the answers of recall"


@pytest.mark.parametrize("content", [None, b"", b"x" * 5000])
def test_without_tonight_s_file_it_refuses(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StoreError, match="access_statistics"):
        scan(path, memories(2))
    assert (path.read_bytes() if path.exists() else None) == content
    assert [p.name for p in path.parent.iterdir()] in ([], [path.name])


def test_a_scan_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    write(path, {"1": (1, 1, 1, 5)})
    before = path.read_bytes()

    with pytest.raises(ValueError, match="broadcast"):
        refresh_scores(path, pa.array(list("123456")), np.zeros(5, np.int64), RULES, as_of_us=0)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


USES = st.dictionaries(
    st.sampled_from([str(n) for n in range(12)]),
    st.tuples(
        st.integers(1, 99), st.integers(0, 60), st.integers(1, 9), st.integers(0, 2 * NOW_US)
    ),
)
NIGHT = st.tuples(USES, st.integers(0, 12), st.integers(0, 40))


@settings(max_examples=50, deadline=None)
@given(
    st.lists(NIGHT, min_size=1, max_size=4),
    st.integers(1, 5),
    st.sampled_from([0.0, 0.01]),
)
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


def test_the_file_is_a_sound_database(path: Path) -> None:
    write(path, {"1": (1, 1, 1, 5)}, [("1", "2", 3)], known=["1", "2"])
    scan(path, memories(9))
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
