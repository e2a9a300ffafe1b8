"""The real outside: stores, servers, files and processes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from noctuary.agents import hooks as recalling
from noctuary.agents import hooks as warming
from noctuary.agents.client import LIFETIME_S, Refusal, ping
from noctuary.agents.hooks import (
    CAPTURE,
    MAX_DEADLINE_S,
    TOO_SLOW,
    Failure,
    HookEvent,
    HookProcess,
    capture,
    capture_journalled,
    environment_home,
    fetch_memories,
    handle,
)
from noctuary.agents.state import COUNTERS, JOURNAL, read_counters, read_journal
from noctuary.core.settings import TranscriptSettings
from noctuary.recall.engine import Recaller
from tests.support.store import Store

ASKED = {"k": 3, "user": None, "wing": None, "session_id": None}


def soon(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Wait for what another process brings about."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def world_of(home: Path | None, store: str | None = None) -> HookProcess:
    return HookProcess("claude", store, home, time.monotonic())


class Until(HookProcess):
    """A process with a deadline of the test's own, which starts no server."""

    def __init__(self, store: str, until_s: float) -> None:
        super().__init__("claude", store, None, time.monotonic())
        self._deadline_s = until_s

    def until_s(self) -> float:
        return self._deadline_s

    def start_server(self) -> None:
        pass


def recall_in_time(query: str, *, store: str, until_s: float) -> Mapping[str, Any] | Failure:
    return Until(store, until_s).recall(query, **ASKED)


def ids(found: Mapping[str, Any] | Failure) -> list[Any]:
    assert not isinstance(found, Failure)
    return [memory["id"] for memory in found["memories"]]


def test_behind_the_deadline_the_answer_is_the_lexical_one(dense_store: Store) -> None:
    found = recall_in_time("spare key", store=str(dense_store.root), until_s=time.monotonic())
    assert not isinstance(found, Failure)
    assert "deadline_dense" in {w["code"] for w in found["warnings"]}
    assert ids(found)[0] == 101
    assert all("dense" not in m["legs"] for m in found["memories"])


def test_work_that_takes_too_long_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recalling, "COLD_GRACE_S", 0.1)

    def sleep(*_: Any, **__: Any) -> None:
        time.sleep(30)

    monkeypatch.setattr("noctuary.recall.api.recall", sleep)
    started = time.monotonic()
    found = recall_in_time("spare key", store="nowhere", until_s=started)
    assert found == TOO_SLOW
    assert time.monotonic() - started < 2


def test_work_that_fails_is_a_failure_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ImportError("numpy is broken")

    monkeypatch.setattr("noctuary.recall.api.recall", fail)
    found = recall_in_time("x", store="nowhere", until_s=time.monotonic())
    assert found == Failure("internal", "ImportError: numpy is broken")


def test_memories_by_id_are_those_of_the_user_and_of_nobody(dense_store: Store) -> None:
    reader = Recaller.open(dense_store.root).reader
    summary = reader.summaries.ids[0]
    asked = ["101", "106", "107", summary, "999", "no id"]
    for user, own in ((None, []), ("ana", [106]), ("ben", [107]), ("eve", [])):
        found = {m["id"]: m for m in fetch_memories(reader, asked, user)}
        assert set(found) == {101, summary, *own}
    by_id = {m["id"]: m for m in fetch_memories(reader, asked, "ana")}
    recalled = Recaller.open(dense_store.root).recall("spare key", 1).memories[0].to_json()
    assert by_id[101] == {name: recalled[name] for name in by_id[101]}


@pytest.mark.parametrize("code", ["no_snapshot", "store_unreadable"])
def test_what_cannot_be_fetched_is_a_failure(plain_store: Store, code: str) -> None:
    if code == "no_snapshot":
        (plain_store.root / "CURRENT").unlink()
        (plain_store.root / "snapshots").rename(plain_store.root / "elsewhere")
    else:
        for path in plain_store.root.rglob("*"):
            if path.is_file():
                path.write_bytes(b"x")
    until_s = time.monotonic() + 10
    found = Until(str(plain_store.root), until_s).fetch(["101"], user=None)
    assert isinstance(found, Failure)
    assert found.code == code


def test_without_a_home_nothing_is_counted_and_nothing_raises(plain_store: Store) -> None:
    world = HookProcess("claude", str(plain_store.root), None, time.monotonic())
    world.write_session("s", world.read_session("s"))
    world.prepare()
    assert not world.count("Stop", Failure("x", "y"))
    prompt = {"hook_event_name": "UserPromptSubmit", "prompt": "where is the spare key?"}
    output = handle(prompt, world)
    assert "spare key" in output["hookSpecificOutput"]["additionalContext"]


def test_a_home_that_leads_nowhere_is_none(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    assert environment_home() == home
    monkeypatch.setenv("NOCTUARY_HOME", "~nobody-of-that-name/x")
    assert environment_home() is None


def test_bad_settings_are_a_failure_and_a_long_deadline_gets_its_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, float] = {}
    for deadline_ms in ("100", "4000", "4e9"):
        monkeypatch.setenv("NOCTUARY_HOOK_DEADLINE_MS", deadline_ms)
        world = world_of(home)
        world.settings()
        given[deadline_ms] = world.lifetime_s
    assert given["100"] == LIFETIME_S
    assert 4 < given["4000"] < 4 + LIFETIME_S
    assert MAX_DEADLINE_S < given["4e9"] < MAX_DEADLINE_S + LIFETIME_S
    monkeypatch.setenv("NOCTUARY_HOOK_DEADLINE_MS", "soon")
    found = world_of(home).settings()
    assert isinstance(found, Failure)
    assert found.code == "bad_settings"
    assert "hook.deadline_ms" in found.message


def test_a_transcript_is_measured_where_that_is_possible(tmp_path: Path, home: Path) -> None:
    (tmp_path / "t").write_bytes(b"12345")
    for path in (str(tmp_path / "t"), "/no/such/file", "a\0b", ""):
        event = HookEvent("PreCompact", transcript_path=path, trigger="auto")
        assert world_of(home).journal(event) is None
    entries = read_journal(home / JOURNAL)
    assert [entry.offset_bytes for entry in entries] == [5, None, None, None]
    assert {(entry.agent, entry.event, entry.detail) for entry in entries} == {
        ("claude", "PreCompact", "auto")
    }


def test_no_server_is_started_unless_the_settings_say_so(
    plain_store: Store, home: Path, runtime: Path
) -> None:
    world_of(home).prepare()
    assert not (home / warming.STAMP).exists()


def test_a_server_is_started_once_and_then_answers(
    plain_store: Store, home: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_HOOK_START_SERVER", "true")
    started: list[tuple[str, ...]] = []
    real = warming.start_detached

    def start(module: str, arguments: Sequence[str]) -> bool:
        started.append((module, *arguments))
        return real(module, arguments) if len(started) == 1 else True

    monkeypatch.setattr(warming, "start_detached", start)
    store = str(plain_store.root)
    world_of(home, store=store).prepare()
    world_of(home, store=store).prepare()
    assert started == [("noctuary.cli.main", "serve", "--store", store)]
    assert soon(lambda: not isinstance(ping(store), Refusal))
    found = ping(store)
    assert not isinstance(found, Refusal)
    pid = found["pid"]
    assert os.getsid(pid) == pid, "a session of its own"
    os.kill(pid, 15)
    assert soon(lambda: isinstance(ping(store), Refusal))
    stamp = home / warming.STAMP
    old = time.time() - warming.RETRY_S - 1
    os.utime(stamp, (old, old))
    world_of(home, store=store).prepare()
    assert len(started) == 2


def transcript(folder: Path, *texts: str) -> Path:
    """A small transcript in Claude's shape."""
    path = folder / "11111111-2222-3333-4444-555555555555.jsonl"
    lines = [
        {
            "type": "user", "uuid": f"u{i}", "parentUuid": None, "sessionId": path.stem,
            "timestamp": f"2026-11-20T10:0{i}:00.000Z", "cwd": "/srv/ana/atlas",
            "isSidechain": False, "message": {"role": "user", "content": text},
        }
        for i, text in enumerate(texts)
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def captured(home: Path) -> int:
    events = read_counters(home / COUNTERS).events
    return sum(e.calls for e in events if e.event == CAPTURE)


def test_a_stop_keeps_what_was_said_and_does_not_wait_for_it(
    plain_store: Store, home: Path, tmp_path: Path
) -> None:
    path = transcript(tmp_path, "My locker code changed to the blue one.")
    world = world_of(home, store=str(plain_store.root))
    stop = {"hook_event_name": "Stop", "session_id": path.stem, "transcript_path": str(path)}
    assert handle(stop, world) == {}
    assert soon(lambda: captured(home) == 1)
    (counted,) = [e for e in read_counters(home / COUNTERS).events if e.event == CAPTURE]
    assert (counted.failures, counted.last_error_code) == (0, None)
    assert b"locker code changed" in plain_store.paths.turns.read_bytes()


def test_what_cannot_be_captured_is_counted(plain_store: Store, home: Path, tmp_path: Path) -> None:
    plain_store.paths.turns.mkdir()
    path = transcript(tmp_path, "My locker code changed to the blue one.")
    assert capture("codex", str(path), str(plain_store.root)) is not None
    events = read_counters(home / COUNTERS).events
    (counted,) = [event for event in events if event.outage_code is not None]
    assert (counted.agent, counted.event, counted.outage_code) == ("codex", CAPTURE, "capture")


@pytest.mark.parametrize("store", [None, "nowhere", "/no/such/store"])
def test_without_a_store_the_night_captures_from_the_journal(
    home: Path, tmp_path: Path, store: str | None
) -> None:
    assert capture("claude", str(transcript(tmp_path, "something")), store) is None
    assert not list(home.rglob("turns.sqlite"))


def test_the_night_keeps_what_the_journal_names_for_its_store(
    plain_store: Store, home: Path, tmp_path: Path
) -> None:
    path = transcript(tmp_path, "My locker code changed to the blue one.")
    compact = {"hook_event_name": "PreCompact", "transcript_path": str(path)}
    handle(compact, world_of(home))
    (tmp_path / "other").mkdir()
    for store, turns in ((tmp_path / "other", 0), (plain_store.root, 1), (plain_store.root, 0)):
        notes = capture_journalled(home, store, TranscriptSettings())
        assert notes == {"transcripts": int(store == plain_store.root), "turns": turns, "faults": 0}
    path.unlink()
    assert capture_journalled(home, plain_store.root, TranscriptSettings())["transcripts"] == 0


@pytest.mark.parametrize("path", ["/no/such/file", "/dev/zero", "/tmp", "a\0b"])
def test_no_process_is_started_for_what_is_no_transcript(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(module: str, arguments: Any) -> bool:
        raise AssertionError(module)

    monkeypatch.setattr("noctuary.agents.hooks.start_detached", refuse)
    assert world_of(None).capture(path) is None
