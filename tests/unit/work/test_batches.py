from __future__ import annotations

from noctuary.work.stage import BatchTimings, TimedProgress


def timings(*batches: tuple[int, int, float]) -> BatchTimings:
    found = BatchTimings()
    for offset, rows, ms in batches:
        found.add(offset, rows, ms)
    return found


def test_the_report_names_the_slowest_batch_and_where_it_began() -> None:
    assert timings((0, 10, 12.0), (10, 10, 47.0), (20, 5, 1.0)).report() == {
        "total_ms": 60.0,
        "batches": 3,
        "batch_timings_ms": [12.0, 47.0, 1.0],
        "avg_batch_ms": 20.0,
        "slowest_batch": {"index": 1, "ms": 47.0, "offset": 10},
    }


def test_of_equally_slow_batches_the_first_is_named() -> None:
    assert timings((0, 1, 5.0), (1, 1, 5.0)).report()["slowest_batch"]["index"] == 0


def test_the_summary_counts_rows_per_second_instead_of_listing() -> None:
    summary = timings((0, 100, 50.0), (100, 50, 25.0)).summary()
    assert "batch_timings_ms" not in summary
    assert (summary["batches"], summary["rows_per_s"]) == (2, 2000)


def test_nothing_done_is_no_division_by_zero() -> None:
    assert BatchTimings().report()["avg_batch_ms"] == 0.0
    assert BatchTimings().report()["slowest_batch"] is None
    assert BatchTimings().summary()["rows_per_s"] is None


class Seen:
    def __init__(self) -> None:
        self.reports: list[tuple[str, int, int]] = []

    def update(self, task: str, done: int, total: int) -> None:
        self.reports.append((task, done, total))


def test_a_timed_progress_notes_its_task_and_passes_everything_on() -> None:
    seen = Seen()
    progress = TimedProgress("export", seen)
    progress.update("export", 10, 25)
    progress.update("other", 3, 3)
    progress.update("export", 25, 25)
    assert seen.reports == [("export", 10, 25), ("other", 3, 3), ("export", 25, 25)]
    assert (progress.timings.offsets, progress.timings.rows) == ([0, 10], [10, 15])
    assert all(ms >= 0 for ms in progress.timings.ms)
