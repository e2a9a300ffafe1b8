from __future__ import annotations

import ast
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noctuary import __version__
from noctuary.agents import server
from noctuary.agents.client import (
    MAX_REQUEST_BYTES,
    PROTOCOL,
    Refusal,
    as_json,
    ask,
    ask_hook,
    decode,
    encode,
    note_fallback,
    peer_uid,
    read_line,
    settings_in_force,
)
from noctuary.agents.hooks import HookProcess, answer
from noctuary.agents.server import Server, answer_request, find_place, read_fallback
from noctuary.agents.state import COUNTERS, SESSIONS, read_counters
from noctuary.recall.api import recall
from tests.rooms.agents.conftest import wait_until
from tests.support.store import Store, household, new_store

StartServer = Callable[..., Server]


def without_times(result: dict[str, Any] | None) -> dict[str, Any]:
    """A result as plain values, without what no two recalls have in common."""
    assert result is not None
    return {**result, "phase_timing_ms": sorted(result["phase_timing_ms"])}


CALLS: list[dict[str, Any]] = [
    {},
    {"k": 0},
    {"k": 3, "wing": "home"},
    {"wing": "attic"},
    {"room": "hall", "category": "fact"},
    {"user": "ana", "sort_by": "recency"},
    {"sort_by": "importance", "dry_run": True},
    {"as_of": datetime(2026, 1, 5, tzinfo=UTC)},
    {"as_of": datetime(2026, 1, 5)},  # noqa: DTZ001 (naive on purpose)
    {"profile": {"fusion": "rrf"}},
    {"profile": "off", "explain": True, "candidate_trace": True, "dry_run": True, "k": 2},
    {"profile": "nope", "candidate_trace": True, "session_id": "s1"},
]


@pytest.mark.parametrize("arguments", CALLS)
def test_an_answer_is_the_one_of_this_process(
    dense_store: Store, start: StartServer, arguments: dict[str, Any]
) -> None:
    start(dense_store.root)
    for query in ("spare key", "Atlas migration", "", "🔑\udcff\x00 AND *"):
        for store in (dense_store.root, "house", None):
            mine = recall(query, store=store, **arguments).to_json()
            assert without_times(ask(query, store=store, **arguments)) == without_times(mine)


def test_a_guessed_store_is_said_here_too_and_another_name_is_kept(
    home: Path, plain_store: Store, start: StartServer
) -> None:
    start(plain_store.root)
    other = new_store(home / "other")
    other.publish(household())
    start(other.root)
    mine = recall("key").to_json()
    assert "store_guessed" in {w["code"] for w in mine["warnings"]}
    assert without_times(ask("key")) == without_times(mine)
    (home / "alias").symlink_to(plain_store.root)
    found = ask("key", store=home / "alias")
    assert found is not None
    assert found["store"] == str(home / "alias")


def test_what_recall_refuses_is_left_to_recall(plain_store: Store, start: StartServer) -> None:
    server = start(plain_store.root)
    refused: list[dict[str, Any]] = [
        {"k": -1}, {"k": True}, {"k": "3"}, {"sort_by": "size"}, {"wing": 7},
        {"profile": {"fusion": "sum"}}, {"profile": {"flavour": "x"}}, {"dry_run": "no"},
    ]  # fmt: skip
    for arguments in refused:
        assert ask("key", store=plain_store.root, **arguments) is None
        assert read_fallback(server.place) is None, "no fault of the server"


def test_without_a_server_or_a_store_nobody_answers_and_nothing_is_noted(
    home: Path, plain_store: Store
) -> None:
    (home / "circle").symlink_to(home / "circle")
    assert ask("key", store=home / "circle") is None
    for store in ("nowhere", "~nobody-of-this-name/x", "a\0b", "x" * 5000, ""):
        assert ask("key", store=store) is None
    assert ask("key", store=plain_store.root) is None
    assert not find_place(plain_store.root).directory.exists()


def test_other_settings_are_not_answered_and_the_note_says_which(
    plain_store: Store, start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start(plain_store.root)
    assert ask("key", store=plain_store.root) is not None
    code = (
        "import sys; from noctuary.agents.client import ask; "
        "sys.exit(ask('key', store=sys.argv[1]) is not None)"
    )
    environ = {**os.environ, "NOCTUARY_RECALL_FUSION": "rrf"}
    subprocess.run([sys.executable, "-c", code, str(plain_store.root)], env=environ, check=True)
    note = read_fallback(server.place)
    assert note is not None
    assert note.code == "settings"
    assert "NOCTUARY_RECALL_FUSION" in note.message


def request_for(root: Path, **changes: Any) -> dict[str, Any]:
    return {
        "query": "key", "version": __version__, "store": str(root.resolve()),
        "settings": settings_in_force(), **changes,
    }  # fmt: skip


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"version": "0.0.0"}, "version"), ({"store": "/elsewhere"}, "store"),
    ({"settings": None}, "settings"), ({"settings": {}}, "settings"),
    ({"give_up_at": 0.0}, "expired"), ({"as_of": "yesterday"}, "invalid"),
    ({"query": None}, "invalid"), ({"profile": []}, "invalid"),
    ({"op": "hook", "agent": "vim", "event": "{}", "started_s": 0.0}, "malformed"),
    ({"op": "hook", "agent": [], "event": "{}", "started_s": 0.0}, "malformed"),
    ({"op": "hook", "agent": "claude", "event": "{}", "started_s": "now"}, "malformed"),
    ({"op": "hook", "agent": "claude", "event": {}, "started_s": 0.0}, "malformed"),
    *(
        ({"op": "hook", "agent": "claude", "event": event, "started_s": 0.0}, "invalid")
        for event in ("", "[", "[]", '{"hook_event_name": "Stop", "prompt": "UserPromptSubmit"}')
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "code"), REFUSED)
def test_a_request_that_would_be_answered_otherwise_elsewhere_is_refused(
    plain_store: Store, changes: dict[str, Any], code: str
) -> None:
    refusal = answer_request(plain_store.root, request_for(plain_store.root, **changes))
    assert isinstance(refusal, Refusal)
    assert refusal.code == code
    assert not plain_store.paths.access_log.exists(), "what is not answered is not logged"


def test_a_server_that_hangs_is_given_up_in_time(plain_store: Store) -> None:
    place = find_place(plain_store.root)
    place.directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.bind(str(place.socket))
        stuck.listen()
        begin = time.monotonic()
        assert ask("key", store=plain_store.root, deadline_ms=100) is None
        assert time.monotonic() - begin < 3
    note = read_fallback(place)
    assert note is not None
    assert note.code == "timeout"


@pytest.mark.parametrize(
    "reply", [b"", b"junk\n", b'{"noctuary": 2}\n', b'{"noctuary": 9}\n', b"half"]
)
def test_a_server_that_talks_nonsense_is_no_server(plain_store: Store, reply: bytes) -> None:
    place = find_place(plain_store.root)
    place.directory.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place.socket))
        listener.listen()

        def talk() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply)

        thread = threading.Thread(target=talk)
        thread.start()
        assert ask("key", store=plain_store.root) is None
        thread.join()


def loaded_by(code: str, *arguments: str) -> set[str]:
    """The modules of a fresh process after it ran some code."""
    code = f"import sys; {code}; print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, check=True, text=True
    )
    return set(ast.literal_eval(done.stdout.splitlines()[-1]))


SLOW = {
    "numpy", "click", "sqlite3", "dataclasses", "inspect", "tempfile", "logging", "subprocess",
    "typing", "pathlib", "contextlib", "hashlib", "threading", "datetime", "urllib.parse",
}  # fmt: skip
"""Each costs a fresh process a tenth of a bare interpreter or more."""


@pytest.mark.parametrize("is_named", [True, False])
def test_the_client_imports_nothing(plain_store: Store, start: StartServer, is_named: bool) -> None:
    start(plain_store.root)
    named = str(plain_store.root) if is_named else ""
    code = "from noctuary.agents.client import ask; assert ask('key', store=sys.argv[1] or None)"
    loaded = loaded_by(code, named)
    assert not loaded & SLOW
    assert {name for name in loaded if name.startswith("noctuary.")} == {
        "noctuary.agents", "noctuary.agents.client", "noctuary.core", "noctuary.core.foreign_json",
    }  # fmt: skip


def test_where_no_server_runs_no_socket_is_loaded(home: Path, plain_store: Store) -> None:
    code = (
        "from noctuary.agents.client import ask, ask_hook; assert ask('key') is None; "
        "assert ask_hook('codex', None, sys.argv[1].encode(), 1e9) is None"
    )
    assert not loaded_by(code, json.dumps(EVENT)) & {*SLOW, "socket", "_socket", "selectors"}


SLOWER = {*SLOW, "re", "enum", "collections", "socket", "noctuary.core.foreign_json"}
"""What a hook does without besides: a recall needs JSON, which needs most of it."""


EVENT = {
    "hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/p",
    "prompt": "where is the spare key?",
}  # fmt: skip


def ask_for(event: dict[str, Any], agent: str = "claude") -> bytes | None:
    return ask_hook(agent, None, json.dumps(event).encode(), time.monotonic())


def test_a_hook_is_answered_whole_and_imports_nothing_else(
    home: Path, dense_store: Store, start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_HOOK_DEADLINE_MS", "20000")
    start(dense_store.root)

    def nothing(*_: Any) -> None:
        """Answer by more than words, as a server does."""

    monkeypatch.setattr(HookProcess, "_recall_by_words", nothing)
    here = HookProcess("claude", None, None, time.monotonic())
    expected = json.loads(answer(json.dumps(EVENT).encode(), here))
    assert json.loads(ask_for(EVENT) or b"{}") == expected
    assert ask_for(EVENT) == b"", "the second time the model has it already"
    (counted,) = read_counters(home / COUNTERS).events
    assert (counted.event, counted.calls, counted.failures) == ("UserPromptSubmit", 2, 0)
    # On record after the answer, not to be stored again.
    assert wait_until(dense_store.paths.injections.exists)
    code = (
        "from noctuary.agents.client import ask_hook; "
        "assert ask_hook('codex', None, sys.argv[1].encode(), 1e9)"
    )
    asked = code.replace("1e9", repr(time.monotonic() + 60))
    assert not loaded_by(asked, json.dumps(EVENT)) & SLOWER


def test_what_a_compaction_took_is_restored_and_bad_settings_are_left_to_the_hook(
    home: Path, dense_store: Store, start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_HOOK_DEADLINE_MS", "20000")
    start(dense_store.root)
    assert b"spare key" in (ask_for(EVENT) or b"")
    compacted = {**EVENT, "hook_event_name": "SessionStart", "source": "compact"}
    assert b"spare key" in (ask_for(compacted) or b"")
    (home / "noctuary.toml").write_text("[hook]\nmemories = -1\n")
    assert ask_for(EVENT) is None
    (home / "noctuary.toml").unlink()
    assert ask_for(EVENT) is not None


def test_a_stuck_server_costs_a_hook_its_wait_and_is_noted(
    home: Path, plain_store: Store, start: StartServer
) -> None:
    let_go = threading.Event()

    def stuck(store: Path, request: Mapping[str, Any]) -> Refusal:
        let_go.wait(20)
        return Refusal("late", "stuck")

    place, began = start(plain_store.root, stuck).place, time.monotonic()
    assert ask_for(EVENT) is None
    assert time.monotonic() - began < 5, "the server takes 20 s"
    let_go.set()
    note = read_fallback(place)
    assert note is not None
    assert note.code == "timeout"


def test_no_other_event_is_asked_for(home: Path, plain_store: Store, start: StartServer) -> None:
    start(plain_store.root)
    others = [{**EVENT, "hook_event_name": n} for n in ("PreCompact", "Stop", "X")]
    others.append({**EVENT, "prompt": "x" * MAX_REQUEST_BYTES})
    odd = (b"", b"{", b"[]", b"{}", b"[" * 100_000, b'{"hook_event_name": ["UserPromptSubmit"]}')
    for raw in (*odd, *(json.dumps(other).encode() for other in others)):
        assert ask_hook("claude", None, raw, time.monotonic()) is None
    assert not (home / COUNTERS).exists()


def test_a_hook_that_has_been_given_up_leaves_nothing_behind(
    home: Path, plain_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process answers by then, and counts; it must not find that the model knows all."""
    request = request_for(
        plain_store.root, op="hook", agent="claude", event=json.dumps(EVENT), started_s=0.0
    )
    for given_up in (0.0, 0.2):
        until = time.monotonic() + given_up
        monkeypatch.setattr(server, "recall", answer_late)
        answer_request(plain_store.root, {**request, "give_up_at": until})
        assert not (home / COUNTERS).exists()
        assert not (home / SESSIONS).exists()


def answer_late(*_: Any, **__: Any) -> Late:
    time.sleep(0.3)
    return Late()


class Late:
    """An answer that comes when nobody waits for it any more."""

    def to_json(self) -> dict[str, Any]:
        memory = {"id": 1, "content": "The spare key.", "final_score": 0.9}
        return {"query": "", "memories": [memory], "warnings": []}


@given(code=st.text(max_size=20), message=st.text(max_size=50))
def test_a_note_comes_back_and_is_the_owner_s(
    tmp_path_factory: pytest.TempPathFactory, code: str, message: str
) -> None:
    store = tmp_path_factory.mktemp("n", numbered=True)
    place = find_place(store)
    place.directory.mkdir(mode=0o700, exist_ok=True)
    note_fallback(store, Refusal(code, message))
    if code in {"absent", "invalid"}:
        assert read_fallback(place) is None
        return
    note = read_fallback(place)
    assert note is not None
    assert (note.code, note.message) == (code, message)
    assert place.fallback.stat().st_mode & 0o077 == 0
    assert {p.suffix for p in place.directory.iterdir()} == {".fallback"}


def test_a_damaged_note_is_none(tmp_path: Path) -> None:
    place = find_place(tmp_path)._replace(fallback=tmp_path / "x.fallback")
    for content in ("", "[]", "{}", '{"code": 1, "message": 2}', "\0"):
        place.fallback.write_text(content)
        assert read_fallback(place) is None


# Surrogates alone are an example; a pair of them is one character to JSON.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(ANY_TEXT.filter(lambda name: name != "noctuary"), JSON_VALUES, max_size=5))
@example({"query": "key \udcff\ud800"})
def test_any_message_is_one_line_and_comes_back(message: dict[str, Any]) -> None:
    line = encode(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == {"noctuary": PROTOCOL, **message}


@given(st.dictionaries(ANY_TEXT, ANY_TEXT | st.floats(allow_nan=False, allow_infinity=False)))
@example({"cwd": "key \udcff\ud800", 'a "b" \\ \x00\x1f\x7f\u2028': "é\n"})
def test_what_a_hook_sends_is_the_same_json(fields: dict[str, Any]) -> None:
    line = as_json({"settings": fields, "n": 1}).encode("utf-8", "surrogatepass")
    assert b"\n" not in line
    assert json.loads(line) == {"settings": fields, "n": 1}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_refusal(line: bytes) -> None:
    assert isinstance(decode(line), dict | Refusal)


def test_what_is_no_message_is_refused_without_repeating_it() -> None:
    malformed = (b"", b"{", b"\xff\xfe", b"[1]", b"[" * 100_000,
                 b'{"noctuary":' + b"9" * 5000 + b"}")  # fmt: skip
    others = (b"1", b"true", b"1.0", b'"a secret"')
    protocol = (b"{}", *(b'{"noctuary": ' + version + b"}" for version in others))
    for lines, code in ((malformed, "malformed"), (protocol, "protocol")):
        for line in lines:
            refusal = decode(line)
            assert isinstance(refusal, Refusal)
            assert refusal.code == code
            assert "secret" not in refusal.message


@pytest.mark.parametrize(
    ("sent", "expected"),
    [(b"abc\nrest", b"abc"), (b"\n", b""), (b"x" * 10 + b"\n", b"x" * 10),
     (b"x" * 11 + b"\n", "too_large"), (b"half", "half"), (b"", "half")],
)  # fmt: skip
def test_a_line_is_read_within_its_bounds(sent: bytes, expected: bytes | str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        found = read_line(ours, 10, time.monotonic() + 5)
        assert peer_uid(ours) in (None, os.geteuid())
    assert (found.code if isinstance(found, Refusal) else found) == expected


def test_a_trickle_does_not_extend_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    done = threading.Event()

    def trickle() -> None:
        while not done.wait(0.01):
            theirs.send(b"x")

    thread = threading.Thread(target=trickle)
    with ours, theirs:
        thread.start()
        begin = time.monotonic()
        found = read_line(ours, 1000, begin + 0.2)
        done.set()
        thread.join()
    assert isinstance(found, Refusal)
    assert found.code == "timeout"
    assert time.monotonic() - begin < 5


def test_settings_are_the_variables_that_change_a_result() -> None:
    environ = {
        "NOCTUARY_HOME": "/h", "NOCTUARY_STORE": "s", "NOCTUARY_SHARED": "x", "PATH": "p",
        "NOCTUARY_RECALL_FUSION": "rrf", "HOME": "/me",
    }  # fmt: skip
    assert settings_in_force(environ) == {"NOCTUARY_HOME": "/h", "NOCTUARY_RECALL_FUSION": "rrf"}
    assert settings_in_force({"HOME": "/me"}) == {"HOME": "/me", "XDG_DATA_HOME": ""}
