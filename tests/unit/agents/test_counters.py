from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents import state as counters
from noctuary.agents.state import (
    BUCKETS_MS,
    TOLD_AFTER_TIMEOUTS,
    Counters,
    EventCounters,
    note_call,
    read_counters,
)

NOW_S = 1_790_000_000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "counters.json"


def note(path: Path, code: str | None = None, **fields: Any) -> bool:
    call: dict[str, Any] = {"agent": "claude", "event": "UserPromptSubmit"}
    call |= {"took_ms": 80.0, "now_s": NOW_S, **fields}
    return note_call(path, code=code, **call)


def only(path: Path) -> EventCounters:
    (event,) = read_counters(path).events
    return event


def test_calls_are_counted_by_agent_and_event(path: Path) -> None:
    for agent, event in [("codex", "Stop"), ("claude", "Stop"), ("claude", "PreCompact")] * 2:
        assert not note(path, agent=agent, event=event)
    found = read_counters(path)
    assert [(e.agent, e.event, e.calls, e.failures) for e in found.events] == [
        ("claude", "PreCompact", 2, 0), ("claude", "Stop", 2, 0), ("codex", "Stop", 2, 0),
    ]  # fmt: skip
    assert found.fault is None
    assert [event for event in found.events if event.outage_code is not None] == []
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(p.name for p in path.parent.iterdir()) == ["counters.json", "counters.lock"]


def test_an_outage_lasts_from_its_first_failure_to_the_next_success(path: Path) -> None:
    note(path, now_s=NOW_S)
    note(path, "no_snapshot", now_s=NOW_S + 1)
    note(path, "no_snapshot", now_s=NOW_S + 2)
    event = only(path)
    assert (event.calls, event.failures, event.outage_calls) == (3, 2, 2)
    assert (event.outage_code, event.outage_since_s) == ("no_snapshot", NOW_S + 1)
    assert (event.last_error_code, event.last_error_at_s) == ("no_snapshot", NOW_S + 2)
    note(path, now_s=NOW_S + 3)
    event = only(path)
    assert (event.outage_code, event.outage_since_s, event.outage_calls) == (None, None, 0)
    assert event.last_error_code == "no_snapshot"
    assert event.last_call_at_s == NOW_S + 3


def test_the_user_is_told_once_per_outage_and_kind(path: Path) -> None:
    assert note(path, "no_snapshot")
    assert not note(path, "no_snapshot")
    assert note(path, "store_unreadable"), "another kind is news"
    assert not note(path, "no_snapshot"), "the first one was told already"
    assert only(path).told == ("no_snapshot", "store_unreadable")
    note(path)
    assert only(path).told == ()
    assert note(path, "no_snapshot"), "a new outage"


def test_a_busy_moment_is_not_told_and_a_lasting_one_is(path: Path) -> None:
    told = [note(path, "timeout") for _ in range(TOLD_AFTER_TIMEOUTS + 2)]
    assert told == [False] * (TOLD_AFTER_TIMEOUTS - 1) + [True, False, False]
    assert only(path).timeouts == TOLD_AFTER_TIMEOUTS + 2


def test_an_event_without_a_message_leaves_telling_to_another(path: Path) -> None:
    assert not note(path, "journal", may_tell=False)
    assert only(path).told == ()
    assert note(path, "journal")


@pytest.mark.parametrize("how", ["locked", "unwritable", "missing directory"])
def test_who_cannot_write_tells_nobody_and_does_not_wait(tmp_path: Path, how: str) -> None:
    path = tmp_path / "counters.json"
    with (tmp_path / "counters.lock").open("w") as lock:
        if how == "locked":
            fcntl.flock(lock, fcntl.LOCK_EX)
        elif how == "unwritable":
            path.mkdir()
        else:
            path = tmp_path / "no" / "counters.json"
        before = time.monotonic()
        assert not note(path, "no_snapshot")
        assert time.monotonic() - before < 5, "the lock is never let go"
    assert not path.is_file()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"version": 2, "events": []}', b"[" * 100_000, b"1" * 1_000_001],
)
def test_a_damaged_file_is_a_fault_and_starts_anew(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    assert read_counters(path).fault is not None
    note(path, "no_snapshot")
    assert only(path).failures == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("calls", -1), ("calls", True), ("failures", "1"), ("told", None), ("max_ms", "fast"),
        ("histogram", [0]), ("histogram", ["a"] * 24), ("last_call_at_s", "now"),
        ("outage_code", 3), ("outage_since_s", -1.0), ("max_ms", float("inf")),
    ],
)  # fmt: skip
def test_a_damaged_row_starts_anew_and_the_others_stay(path: Path, field: str, value: Any) -> None:
    note(path, event="Stop")
    note(path)
    stored = json.loads(path.read_text())
    row = next(r for r in stored["events"] if r["event"] == "UserPromptSubmit")
    row[field] = value
    path.write_text(json.dumps({**stored, "events": [*stored["events"], 7]}))
    assert [e.event for e in read_counters(path).events] == ["Stop"]
    note(path)
    assert {e.event: e.calls for e in read_counters(path).events} == {
        "Stop": 1, "UserPromptSubmit": 1,
    }  # fmt: skip


def test_nothing_there_is_no_fault(path: Path) -> None:
    assert read_counters(path) == Counters()
    assert EventCounters("claude", "Stop").percentile_ms(0.95) is None


def test_a_pipe_in_its_place_does_not_stop_a_prompt(path: Path) -> None:
    os.mkfifo(path)
    before = time.monotonic()
    assert read_counters(path).fault is not None
    assert time.monotonic() - before < 5, "nobody ever writes into it"


@given(st.lists(st.floats(0, 10_000), min_size=1, max_size=60), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_percentile_is_an_upper_bound_and_no_looser_than_its_bucket(
    times: list[float], share: float
) -> None:
    """Against the percentile of the times themselves."""
    from noctuary.agents.state import _with_time  # pyright: ignore[reportPrivateUsage]

    histogram = (0,) * (len(BUCKETS_MS) + 1)
    for took_ms in times:
        histogram = _with_time(histogram, took_ms)
    event = EventCounters("claude", "Stop", max_ms=max(times), histogram=histogram)
    exact = sorted(times)[max(0, -(-len(times) * round(share * 100) // 100) - 1)]
    found = event.percentile_ms(share)
    assert found is not None
    assert exact <= found
    bounds = [b for b in BUCKETS_MS if b >= exact]
    assert found <= (min(bounds[0], max(times)) if bounds else max(times))


def test_the_histogram_follows_a_change(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "RECENT_CALLS", 60)
    for _ in range(60):
        note(path, took_ms=2_500)
    assert only(path).percentile_ms(0.5) == 2_500
    for _ in range(60):
        note(path, took_ms=40)
    event = only(path)
    assert event.percentile_ms(0.5) == 50
    assert event.calls == 120
    assert sum(event.histogram) <= 60
    for odd in (float("nan"), float("inf"), -5.0):
        note(path, took_ms=odd)
    assert only(path).max_ms == 2_500
