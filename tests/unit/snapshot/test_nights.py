from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path

import pytest

from noctuary.core.store import StorePaths, last_night_hours, record_night

HOUR_NS = 3_600_000_000_000


def test_no_night_is_none(tmp_path: Path) -> None:
    assert last_night_hours(StorePaths(tmp_path)) is None


def test_a_night_that_just_went_through_is_now(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    record_night(paths)
    hours = last_night_hours(paths)
    assert hours is not None
    assert 0.0 <= hours < 0.1
    assert datetime.fromisoformat(paths.last_night.read_text().strip()).tzinfo is not None


@pytest.mark.parametrize(("ago", "expected"), [(50, 50.0), (0, 0.0), (-50, 0.0)])
def test_hours_are_counted_and_a_clock_set_back_is_zero(
    tmp_path: Path, ago: int, expected: float
) -> None:
    paths = StorePaths(tmp_path)
    record_night(paths)
    moment = time.time_ns() - ago * HOUR_NS
    os.utime(paths.last_night, ns=(moment, moment))
    assert last_night_hours(paths) == pytest.approx(expected, abs=0.1)
