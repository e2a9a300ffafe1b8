from __future__ import annotations

import copy
import fcntl
import json
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents import state as counters
from noctuary.agents import state as sessions
from noctuary.agents.state import (
    BUCKETS_MS,
    HOOKS,
    JOURNAL,
    KEPT_DAYS,
    MAX_INJECTED,
    SESSIONS,
    TOLD_AFTER_TIMEOUTS,
    Counters,
    EventCounters,
    Injected,
    JournalEntry,
    SessionState,
    Spent,
    append_entry,
    note_call,
    prune_sessions,
    read_counters,
    read_journal,
    read_session,
    read_spending,
    session_file,
    transcripts_in,
    write_session,
)
from tests.support.hook_worlds import memory

KEY = memory(17, "The spare key hangs in the pantry.", 0.9)
DOG = memory("d3", "The dog is called Pixel.", 0.4)


@pytest.mark.usefixtures("open_umask")
def test_a_session_is_read_back_is_its_owners_alone_and_holds_no_text(tmp_path: Path) -> None:
    state = SessionState().with_injected([KEY, DOG]).compacted().with_injected([DOG])
    path = session_file(tmp_path / "home" / "sessions", "claude", "secret-session")
    assert write_session(path, state)
    assert read_session(path) == state
    assert [i.memory_id for i in state.injected] == ["17", "d3"]
    assert [i.in_context for i in state.injected] == [False, True]
    assert state.compactions == 1
    assert [p.stat().st_mode & 0o777 for p in path.parents[:2]] == [0o700, 0o700]
    assert path.stat().st_mode & 0o777 == 0o600
    stored = path.name + path.read_text()
    assert not [word for word in ("pantry", "Pixel", "spare", "secret") if word in stored]


def test_tokens_are_told_per_day_and_per_session_and_named_by_the_journal(tmp_path: Path) -> None:
    sessions = tmp_path / SESSIONS
    (tmp_path / HOOKS).mkdir()
    days = {"mine": {"2026-03-01": 40, "2026-03-02": 60}, "runs": {"2026-03-02": 7}, "none": {}}
    for name, spent in days.items():
        state = SessionState(spent=tuple(Spent(*row) for row in spent.items()))
        assert write_session(session_file(sessions, "claude", name), state)
    damaged = {
        "version": 1,
        "spent": [["2026-03-02", -1], ["2026-03-03"], "x", [2, 2], ["d", 1e400]],
    }
    (sessions / "x.json").write_text(json.dumps(damaged))
    (sessions / "y.json").write_bytes(b"\xff")
    entry = JournalEntry(0, "claude", "Stop", "mine", cwd="/srv/mill")
    assert append_entry(tmp_path / JOURNAL, entry) is None
    named = {"agent": "claude", "session_id": "mine", "cwd": "/srv/mill"}
    assert read_spending(tmp_path) == {
        "days": [
            {"day": "2026-03-02", "tokens": 67, "sessions": 2},
            {"day": "2026-03-01", "tokens": 40, "sessions": 1},
        ],
        "sessions": [
            {"last_day": "2026-03-02", "tokens": 100, **named},
            {"last_day": "2026-03-02", "tokens": 7, **dict.fromkeys(named)},
        ],
    }
    assert read_spending(tmp_path / "nowhere") == {"days": [], "sessions": []}


def test_two_sessions_and_two_agents_have_files_of_their_own(tmp_path: Path) -> None:
    names = {
        session_file(tmp_path, agent, session).name
        for agent in ("claude", "codex")
        for session in ("s", "../s", "s\0", "")
    }
    assert len(names) == 8
    assert all("/" not in name and len(name) < 50 for name in names)


def test_what_is_injected_again_counts_once_with_its_best_score() -> None:
    state = SessionState().with_injected([KEY]).with_injected([DOG, {**KEY, "final_score": 0.2}])
    assert [(i.memory_id, i.score) for i in state.injected] == [("d3", 0.4), ("17", 0.9)]
    assert [i.memory_id for i in state.best_first()] == ["17", "d3"]
    equal = SessionState().with_injected([memory(i, f"m{i}", 0.5) for i in range(4)])
    assert [i.memory_id for i in equal.best_first()] == ["3", "2", "1", "0"], "the later first"
    for score in (None, "0.5", float("nan"), float("inf")):
        (found,) = SessionState().with_injected([{**KEY, "final_score": score}]).injected
        assert found.score == 0.0


def test_an_edited_memory_is_another_one() -> None:
    state = SessionState().with_injected([KEY])
    assert state.knows(KEY)
    assert not state.knows({**KEY, "content": "The spare key is lost."})
    assert not state.knows({**DOG, "id": 17})
    assert not state.compacted().knows(KEY)


def test_the_oldest_are_forgotten_first() -> None:
    state = SessionState()
    for i in range(MAX_INJECTED + 30):
        state = state.with_injected([memory(i, f"memory {i}")])
    assert len(state.injected) == MAX_INJECTED
    assert state.injected[0].memory_id == "30"


def test_a_damaged_file_is_a_session_without_memories(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    for content in ("", "{", "[]", "null", '{"version": 1}', '{"version": 2, "injected": []}',
                    '{"version": 1, "injected": {}}', "[" * 50_000):  # fmt: skip
        path.write_text(content)
        assert read_session(path) == SessionState()


def test_damaged_rows_are_left_out(tmp_path: Path) -> None:
    rows = [["1", "h", 0.5, True], [1, "h", 0.5, True], ["1"], None, ["1", "h", True, True],
            ["1", 2, 0.1, True], ["2", "h", 1, "yes"]]  # fmt: skip
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"version": 1, "compactions": -3, "injected": rows}))
    found = read_session(path)
    assert found.injected == (Injected("1", "h", 0.5),)
    assert found.compactions == 0


def test_old_sessions_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1_790_000_000.0
    for days in (0, 1, KEPT_DAYS - 1, KEPT_DAYS + 1, 400):
        path = tmp_path / f"{days}.json"
        path.write_text("{}")
        changed_s = now_s - days * 86_400
        os.utime(path, (changed_s, changed_s))
    assert prune_sessions(tmp_path, now_s=now_s) == 2
    assert {p.stem for p in tmp_path.iterdir()} == {"0", "1", str(KEPT_DAYS - 1)}
    monkeypatch.setattr(sessions, "MAX_FILES", 2)
    assert prune_sessions(tmp_path, now_s=now_s) == 1
    assert {p.stem for p in tmp_path.iterdir()} == {"0", "1"}
    assert prune_sessions(tmp_path / "none") == 0


def test_a_directory_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not write_session(tmp_path / "file" / "s.json", SessionState())
    assert read_session(tmp_path / "file" / "s.json") == SessionState()


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
    assert not note(path, "no_snapshot", may_tell=False), "an event without a message leaves it"
    assert only(path).told == ()
    assert note(path, "no_snapshot"), "a new outage"


def test_a_busy_moment_is_not_told_and_a_lasting_one_is(path: Path) -> None:
    told = [note(path, "timeout") for _ in range(TOLD_AFTER_TIMEOUTS + 2)]
    assert told == [False] * (TOLD_AFTER_TIMEOUTS - 1) + [True, False, False]
    assert only(path).timeouts == TOLD_AFTER_TIMEOUTS + 2


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


def test_a_damaged_file_is_a_fault_and_starts_anew(path: Path) -> None:
    assert read_counters(path) == Counters(), "nothing there is no fault"
    assert EventCounters("claude", "Stop").percentile_ms(0.95) is None
    for content in (b"", b"{", b"[]", b"\xff", b'{"version": 2, "events": []}', b"[" * 100_000,
                    b"1" * 1_000_001):  # fmt: skip
        path.write_bytes(content)
        assert read_counters(path).fault is not None
        note(path, "no_snapshot")
        assert only(path).failures == 1
    path.unlink()
    os.mkfifo(path)
    before = time.monotonic()
    assert read_counters(path).fault is not None
    assert time.monotonic() - before < 5, "nobody ever writes into it"


def test_a_damaged_row_starts_anew_and_the_others_stay(path: Path) -> None:
    damage: list[tuple[str, Any]] = [
        ("calls", -1), ("calls", True), ("failures", "1"), ("told", None), ("max_ms", "fast"),
        ("histogram", [0]), ("histogram", ["a"] * 24), ("last_call_at_s", "now"),
        ("outage_code", 3), ("outage_since_s", -1.0), ("max_ms", float("inf")),
    ]  # fmt: skip
    note(path, event="Stop")
    note(path)
    whole = json.loads(path.read_text())
    for field, value in damage:
        stored = copy.deepcopy(whole)
        row = next(r for r in stored["events"] if r["event"] == "UserPromptSubmit")
        row[field] = value
        path.write_text(json.dumps({**stored, "events": [*stored["events"], 7]}))
        assert [e.event for e in read_counters(path).events] == ["Stop"]
        note(path)
        calls = {e.event: e.calls for e in read_counters(path).events}
        assert calls == {"Stop": 1, "UserPromptSubmit": 1}


@given(st.lists(st.floats(0, 10_000), min_size=1, max_size=60), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_percentile_is_an_upper_bound_within_its_bucket(times: list[float], share: float) -> None:
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


ENTRY = JournalEntry(
    1_790_000_000_000_000, "claude", "PreCompact", "s", "/t.jsonl", 42, "/p", "auto"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def append_many(log: Path, agent: str, count: int) -> None:
    for i in range(count):
        append_entry(log, ENTRY._replace(agent=agent, at_us=i))


def test_entries_are_read_back_in_order(log: Path) -> None:
    append_entry(log, ENTRY)
    assert json.loads(log.read_text()) == {
        "at_us": 1_790_000_000_000_000, "agent": "claude", "event": "PreCompact",
        "session_id": "s", "transcript_path": "/t.jsonl", "offset_bytes": 42, "cwd": "/p",
        "detail": "auto", "store": "",
    }  # fmt: skip
    others = [ENTRY._replace(event="Stop", offset_bytes=None), ENTRY._replace(session_id='é\n"')]
    for entry in others:
        assert append_entry(log, entry) is None
    assert read_journal(log) == (ENTRY, *others)
    assert len(log.read_text().splitlines()) == 3
    assert log.stat().st_mode & 0o777 == 0o600


def test_damaged_lines_are_left_out_and_take_no_other_with_them(log: Path) -> None:
    assert read_journal(log.with_name("none")) == ()
    append_entry(log, ENTRY)
    whole = log.read_bytes()
    lines = [b"{", b"[]", b"\xff\xfe", b'{"at_us": "x"}', b'{"at_us": 1, "agent": 3}', b"[" * 9_999]
    log.write_bytes(b"\n".join([*lines, whole]) + whole[:30])  # the last line was cut off
    append_entry(log, ENTRY._replace(event="Stop"))
    assert [e.event for e in read_journal(log)] == ["PreCompact", "Stop"]


def test_two_processes_write_whole_lines(log: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=append_many, args=(log, a, 200)) for a in ("claude", "codex")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = read_journal(log)
    for agent in ("claude", "codex"):
        assert [e.at_us for e in found if e.agent == agent] == list(range(200))


def test_a_full_journal_is_put_aside(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_BYTES", 2_000)
    for i in range(40):
        append_entry(log, ENTRY._replace(at_us=i))
    found = [e.at_us for e in read_journal(log)]
    assert found == list(range(found[0], 40)), "the newest ones, none missing between"
    assert 10 < len(found) < 40
    assert {p.name for p in log.parent.iterdir()} == {"journal.jsonl", "journal.1.jsonl"}
    assert all(p.stat().st_size < 2_500 for p in log.parent.iterdir())


@pytest.mark.parametrize("what", ["directory", "fifo", "link", "no directory"])
def test_what_cannot_be_written_is_said_at_once(log: Path, what: str) -> None:
    if what == "directory":
        log.mkdir()
    elif what == "fifo":
        os.mkfifo(log)
    elif what == "link":
        log.symlink_to(log.with_name("elsewhere"))
    else:
        log = log.parent / "none" / "journal.jsonl"
    before = time.monotonic()
    fault = append_entry(log, ENTRY)
    assert time.monotonic() - before < 5, "nobody ever reads from it"
    assert fault is None if what == "fifo" else fault is not None
    assert not log.with_name("elsewhere").exists()


def test_transcripts_are_named_once_in_order_of_their_last_entry(log: Path) -> None:
    for name in ("/a", "/b", "", "/a", "/c"):
        append_entry(log, ENTRY._replace(transcript_path=name, store="/s"))
    append_entry(log, ENTRY._replace(transcript_path="/of another store", store="/t"))
    append_entry(log, ENTRY._replace(transcript_path="/of none"))
    assert transcripts_in(log, Path("/s")) == ("/b", "/a", "/c")
