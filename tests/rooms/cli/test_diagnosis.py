"""What status, doctor and snapshots say of the archive and of another version's snapshot."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from lancedb.index import BTree

from noctuary.agents import client
from noctuary.agents.client import Refusal
from noctuary.agents.install import find_place as find_settings
from noctuary.agents.install import install_hooks
from noctuary.agents.server import Place, Server, answer_request, find_place
from noctuary.agents.state import COUNTERS, HOOKS, TOLD_AFTER_TIMEOUTS, note_call
from noctuary.cli import main as cli
from noctuary.cli.main import main
from noctuary.cli.store import (
    Finding,
    age_hours,
    are_hooked,
    describe_snapshots,
    examine,
    look_at_abstention,
    look_at_hooks,
    look_at_index,
    look_at_server,
    look_at_source,
    look_at_transcripts,
    look_at_vectors,
    read_status,
)
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError, SnapshotOutdatedError
from noctuary.core.files import remove_tree, tree_bytes
from noctuary.core.manifest import Manifest, read_manifest, read_pointer
from noctuary.core.store import ABSTENTION_FILE, VECTORS_FILE, StorePaths
from noctuary.embed.lean import HEADER_FILE, WEIGHTS_FILE
from noctuary.embed.tiers import connect
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller
from noctuary.snapshot.publish import CheckResult, store_verdict
from tests.support.archive_file import write_archive
from tests.support.calibration import MEASURE
from tests.support.lean import write_encoder
from tests.support.store import Store, household, memory, renumber


def findings(store: Store) -> dict[str, Finding]:
    return {f.name: f for f in examine(store.paths)}


def serving(store: Store) -> Path:
    return store.snapshot(read_pointer(store.paths).snapshot_id)


def assert_only(store: Store, name: str, level: str) -> Finding:
    """Exactly this finding is not ok; it says what to do."""
    found = findings(store)
    assert {n for n, f in found.items() if f.level != "ok"} == {name}, found
    assert found[name].level == level
    return found[name]


def test_a_good_store_has_nothing_but_good_findings(dense_store: Store) -> None:
    found = findings(dense_store)
    assert {f.level for f in found.values()} == {"ok"}
    assert {
        "settings", "pointer", "snapshot", "age", "encoder", "vectors", "source", "abstention",
        "schedule", "gate", "index", "transcripts", "access_log", "server", "hooks", "mcp",
    } <= set(found)  # fmt: skip
    assert "word-axes, 8 dimensions" in found["encoder"].message
    assert "22 checks" in found["gate"].message
    assert found["access_log"].message == "nothing has been recalled yet"


def test_every_finding_that_is_not_ok_says_what_to_do_or_why_it_is_so(dense_store: Store) -> None:
    remove_tree(dense_store.paths.snapshots)
    for finding in examine(dense_store.paths):
        assert finding.level in {"ok", "warn", "fail"}
        assert finding.message
        if finding.level == "fail":
            assert finding.remedy
        assert set(finding._asdict()) == {"name", "level", "message", "remedy"}


def test_bad_settings(dense_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOCTUARY_RECALL_FUSOIN", "cc")
    finding = assert_only(dense_store, "settings", "fail")
    assert "NOCTUARY_RECALL_FUSION" in finding.message


def test_a_store_that_never_published(empty_store: Store) -> None:
    found = findings(empty_store)
    assert found["pointer"].level == "fail"
    assert "noctuary nightly" in found["pointer"].remedy
    assert found["gate"].level == "warn"


def test_a_damaged_pointer(dense_store: Store) -> None:
    dense_store.paths.current.write_text("{")
    assert "rollback" in assert_only(dense_store, "pointer", "fail").remedy


def _flip(path: Path) -> None:
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.mark.parametrize("name", [layout.ROWS_FILE, layout.VECTORS_FILE, layout.MANIFEST_FILE])
def test_a_single_flipped_bit_anywhere_in_the_snapshot(dense_store: Store, name: str) -> None:
    _flip(serving(dense_store) / name)
    finding = assert_only(dense_store, "snapshot", "fail")
    assert finding.remedy


def test_a_missing_file(dense_store: Store) -> None:
    (serving(dense_store) / layout.ARRAYS_FILE).unlink()
    assert layout.ARRAYS_FILE in assert_only(dense_store, "snapshot", "fail").message


def test_another_snapshot_under_the_serving_name(dense_store: Store) -> None:
    """Whole, but not what the pointer's digest says."""
    pointer = dense_store.paths.current
    value = json.loads(pointer.read_text())
    pointer.write_text(json.dumps({**value, "digest": "0" * 64}))
    assert findings(dense_store)["pointer"].level == "fail"


def test_no_vectors(plain_store: Store) -> None:
    finding = assert_only(plain_store, "encoder", "warn")
    assert "lexical and graph only" in finding.message


@pytest.mark.parametrize("damage", ["gone", "header", "weights", "other"])
def test_a_query_encoder_that_cannot_be_used(dense_store: Store, damage: str) -> None:
    (directory,) = dense_store.paths.encoders.iterdir()
    if damage == "gone":
        remove_tree(directory)
    elif damage == "header":
        (directory / HEADER_FILE).write_text("{}")
    elif damage == "weights":
        _flip(directory / WEIGHTS_FILE)
    else:
        remove_tree(directory)
        other = write_encoder(dense_store.paths.encoders, scale=2.0)
        (dense_store.paths.encoders / other.fingerprint.digest).rename(directory)
    assert "noctuary nightly" in assert_only(dense_store, "encoder", "fail").remedy


def test_a_source_that_is_gone(empty_store: Store) -> None:
    empty_store.publish(household(), source={"kind": "sqlite", "location": "/no/such/memory.db"})
    finding = findings(empty_store)["source"]
    assert finding.level == "warn"
    assert "/no/such/memory.db" in finding.message


def test_a_night_that_did_not_come(dense_store: Store) -> None:
    long_ago = time.time() - 100 * 3600
    os.utime(dense_store.paths.last_night, (long_ago, long_ago))
    finding = assert_only(dense_store, "age", "warn")
    assert "100 h" in finding.message
    assert "schedule" in finding.remedy


def test_the_limit_of_staleness_is_the_one_that_recall_uses(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for configured, hours_ago, level in (("10", 11, "warn"), ("50", 49, "ok"), ("0", 999, "ok")):
        monkeypatch.setenv("NOCTUARY_RECALL_STALE_AFTER_HOURS", configured)
        moment = time.time() - hours_ago * 3600
        os.utime(dense_store.paths.last_night, (moment, moment))
        assert findings(dense_store)["age"].level == level


def test_no_night_ever(dense_store: Store) -> None:
    dense_store.paths.last_night.unlink()
    assert "ever" in assert_only(dense_store, "age", "warn").message


def test_a_refused_candidate_is_named_with_its_checks(dense_store: Store) -> None:
    failed = CheckResult("no_sensitive_row_is_anywhere", False, {"memories": 1})
    store_verdict(dense_store.paths, "f" * 64, [failed])
    finding = assert_only(dense_store, "gate", "fail")
    assert "no_sensitive_row_is_anywhere" in finding.message
    assert f"{'f' * 64}.json" in finding.remedy


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "{}"])
def test_a_damaged_verdict(dense_store: Store, content: str) -> None:
    (verdict,) = dense_store.paths.verdicts.iterdir()
    verdict.write_text(content)
    found = examine(dense_store.paths)
    assert [f.level for f in found if f.level != "ok"] == ["fail"]


def test_a_candidate_left_behind(dense_store: Store) -> None:
    dense_store.candidate(household()[:3])
    assert "1 candidate(s)" in assert_only(dense_store, "candidates", "warn").message


def test_retrievals_are_counted(dense_store: Store) -> None:
    found = len(recall("spare key").memories)
    assert findings(dense_store)["access_log"].message == f"{found:,} retrievals"


def _garbage(path: Path) -> None:
    path.write_bytes(b"x" * 5000)


def _without_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as log, log:
        log.execute("CREATE TABLE other (a)")


def _directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("damage", [_garbage, _without_table, _directory])
def test_a_damaged_access_log(dense_store: Store, damage: Callable[[Path], None]) -> None:
    damage(dense_store.paths.access_log)
    assert_only(dense_store, "access_log", "fail")


def test_a_record_of_injections_that_cannot_be_read(dense_store: Store) -> None:
    assert findings(dense_store)["injections"].message == "0 injected texts are on record"
    _garbage(dense_store.paths.injections)
    found = assert_only(dense_store, "injections", "warn")
    assert "move injected.sqlite away" in found.remedy


def test_looking_changes_nothing(dense_store: Store) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = [p for p in dense_store.root.rglob("*") if p.is_file()]
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in files}

    before = state()
    examine(dense_store.paths)
    assert state() == before


def test_a_profile_with_a_fault_is_named_with_it(dense_store: Store) -> None:
    assert findings(dense_store)["profiles"].level == "ok"
    dense_store.paths.profiles.write_text("[mine]\nmmr_lambda = 3\n", encoding="utf-8")
    found = findings(dense_store)["profiles"]
    assert found.level == "warn"
    assert "mine" in found.message
    assert "mmr_lambda" in found.message


def test_status_is_what_the_pointer_and_the_manifest_say(dense_store: Store) -> None:
    pointer = read_pointer(dense_store.paths)
    status = read_status(dense_store.paths)
    directory = dense_store.snapshot(pointer.snapshot_id)
    assert status["store"] == str(dense_store.root)
    assert (status["snapshot_id"], status["digest"]) == (pointer.snapshot_id, pointer.digest)
    assert (status["reason"], status["published_at"]) == ("publish", pointer.published_at)
    assert status["counts"]["memories"] == 14
    assert status["encoder"]["model"] == "word-axes"
    assert status["source"]["kind"] == "jsonl"
    assert list(status["wings"].items()) == [("home", 9), ("(none)", 3), ("work", 2)]
    manifest_bytes = (directory / layout.MANIFEST_FILE).stat().st_size
    assert status["snapshot_bytes"] == tree_bytes(directory) - manifest_bytes
    assert status["store_bytes"] == tree_bytes(dense_store.root)


def test_a_store_without_a_snapshot_has_no_status(empty_store: Store) -> None:
    with pytest.raises(SnapshotMissingError):
        read_status(empty_store.paths)
    assert describe_snapshots(empty_store.paths) == []


@pytest.mark.parametrize("name", [layout.ROWS_FILE, layout.MANIFEST_FILE])
def test_a_damaged_snapshot_has_no_status(dense_store: Store, name: str) -> None:
    (dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id) / name).unlink()
    with pytest.raises(SnapshotCorruptError):
        read_status(dense_store.paths)


def test_rows_that_cannot_be_read_are_typed(dense_store: Store) -> None:
    path = dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id) / layout.ROWS_FILE
    path.chmod(0o600)
    path.write_bytes(b"\x00" * path.stat().st_size)
    with pytest.raises(SnapshotCorruptError, match="noctuary doctor"):
        read_status(dense_store.paths)


def test_snapshots_are_described_oldest_first(plain_store: Store) -> None:
    first = read_pointer(plain_store.paths).snapshot_id
    second = plain_store.publish(renumber([memory("boat")]))
    older, newer = describe_snapshots(plain_store.paths)
    assert (older["snapshot_id"], older["serving"], older["memories"]) == (first, False, 14)
    assert (newer["snapshot_id"], newer["serving"], newer["memories"]) == (second, True, 1)
    assert older["intact"]
    assert older["bytes"] > newer["bytes"] > 0


def test_a_damaged_snapshot_is_described_as_such(plain_store: Store) -> None:
    name = read_pointer(plain_store.paths).snapshot_id
    (plain_store.snapshot(name) / layout.ARRAYS_FILE).unlink()
    (row,) = describe_snapshots(plain_store.paths)
    assert (row["snapshot_id"], row["serving"], row["intact"]) == (name, True, False)
    assert layout.ARRAYS_FILE in row["fault"]


def test_without_a_readable_pointer_nothing_serves(plain_store: Store) -> None:
    plain_store.paths.current.write_text("{")
    (row,) = describe_snapshots(plain_store.paths)
    assert not row["serving"]
    assert row["intact"]


def test_age_is_in_hours_and_never_negative() -> None:
    now = datetime.now(UTC)
    assert age_hours((now - timedelta(hours=3)).isoformat()) == pytest.approx(3.0, abs=0.01)
    assert age_hours((now + timedelta(hours=3)).isoformat()) == 0.0


DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime directory of the test's own; pytest's is too deep for a socket."""
    directory = Path(tempfile.mkdtemp(prefix="mn-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def place(plain_store: Store) -> Place:
    """The store's place, as a server would have left it."""
    found = find_place(plain_store.root)
    found.directory.mkdir(mode=0o700)
    return found


@pytest.fixture
def running(plain_store: Store) -> Iterator[Server]:
    """A server that answers."""
    server, ready = Server(plain_store.root, answer_request), threading.Event()
    thread = threading.Thread(target=server.run, args=(ready.set,))
    thread.start()
    assert ready.wait(10)
    yield server
    server.stop()
    thread.join(10)


def write_note(place: Place, at_s: float) -> None:
    note = Refusal("busy", "every thread is taken")._asdict()
    place.fallback.write_text(json.dumps({**note, "at_s": at_s}))


def test_no_server_is_the_ordinary_case(plain_store: Store) -> None:
    state = look_at_server(plain_store.root)
    assert state == Finding("server", "ok", "none runs: recall answers in its own process")


def test_a_server_that_runs_is_named(plain_store: Store, running: Server) -> None:
    state = look_at_server(plain_store.root)
    assert state.level == "ok"
    assert state.message.startswith(f"process {os.getpid()} answers since ")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("", "; encodes with ONNX Runtime"),
        ("no export", "; encodes with the lean encoder: no export"),
        (None, " recalls"),
    ],
)
def test_a_server_tells_why_it_encodes_as_it_does(
    plain_store: Store, monkeypatch: pytest.MonkeyPatch, reason: str | None, told: str
) -> None:
    said = {} if reason is None else {"lean_reason": reason}

    def directory_fault(_: Path) -> None:
        return None

    def ping(_: Path) -> dict[str, Any]:
        return {"pid": 1, "started_s": 0.0, "answered": 0, **said}

    monkeypatch.setattr(client, "directory_fault", directory_fault)
    monkeypatch.setattr(client, "ping", ping)
    state = look_at_server(plain_store.root)
    assert state.level == "ok"
    assert state.message.endswith(told)


def test_a_fallback_from_the_running_server_is_a_warning(
    plain_store: Store, running: Server
) -> None:
    write_note(running.place, time.time())
    state = look_at_server(plain_store.root)
    assert state.level == "warn"
    assert "(busy): every thread is taken" in state.message
    assert state.remedy


def test_a_fallback_before_the_server_s_start_is_over(plain_store: Store, running: Server) -> None:
    write_note(running.place, time.time() - 60)
    assert look_at_server(plain_store.root).level == "ok"


def test_a_recent_fallback_is_told_even_without_a_server(plain_store: Store, place: Place) -> None:
    write_note(place, time.time() - 120)
    assert "2 min ago a client fell back (busy)" in look_at_server(plain_store.root).message
    write_note(place, time.time() - 2 * DAY_S)
    assert look_at_server(plain_store.root).message.startswith("none runs: ")


def test_a_killed_server_s_socket_is_a_warning(plain_store: Store, place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place.socket))
    state = look_at_server(plain_store.root)
    assert (state.level, state.remedy) == ("warn", "start `noctuary serve` again")
    assert state.message.startswith("dead: ")


def test_a_directory_that_is_open_to_others_is_a_warning(plain_store: Store, place: Place) -> None:
    place.directory.chmod(0o755)
    state = look_at_server(plain_store.root)
    assert state.level == "warn"
    assert "open to others" in state.message


def test_status_counts_what_is_archived_now(plain_store: Store) -> None:
    reader = Recaller.open(plain_store.root).reader
    assert read_status(plain_store.paths)["archived"] == 0
    path = plain_store.paths.archive
    write_archive(path, reader, {"p1": {"101": "108", "103": "104"}}, {"p1": [(1, None)]})
    assert read_status(plain_store.paths)["archived"] == 2
    said = CliRunner().invoke(main, ["status", "--store", str(plain_store.root)]).output
    assert "archived   2 of them, out of default recall" in said
    write_archive(path, reader, {"p1": {"101": "108"}}, {"p1": [(1, 2)]})
    assert read_status(plain_store.paths)["archived"] == 0


def test_an_unreadable_archive_is_told(plain_store: Store) -> None:
    plain_store.paths.archive.write_bytes(b"no database")
    assert read_status(plain_store.paths)["archived"] is None
    (finding,) = (f for f in examine(plain_store.paths) if f.name == "archive")
    assert finding.level == "warn"
    assert finding.remedy
    said = CliRunner().invoke(main, ["status", "--store", str(plain_store.root)]).output
    assert "archived   unknown" in said


def test_doctor_counts_plans(plain_store: Store) -> None:
    reader = Recaller.open(plain_store.root).reader
    plans = {"p1": {"101": "108"}, "p2": {"103": "104"}}
    write_archive(plain_store.paths.archive, reader, plans, {"p1": [(1, None)], "p2": [(1, None)]})
    (finding,) = (f for f in examine(plain_store.paths) if f.name == "archive")
    assert finding.message == "2 memories are archived by 2 plan(s)"


@pytest.mark.parametrize(("found", "who"), [(2, "an older noctuary"), (99, "a newer noctuary")])
def test_another_versions_snapshot_is_outdated_and_not_damaged(
    plain_store: Store, found: int, who: str
) -> None:
    snapshot_id = Recaller.open(plain_store.root).snapshot_id
    path = plain_store.snapshot(snapshot_id) / layout.MANIFEST_FILE
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.chmod(0o600)
    path.write_text(json.dumps({**manifest, "format_version": found}), encoding="utf-8")
    with pytest.raises(SnapshotOutdatedError, match=who):
        read_manifest(path.parent)
    (row,) = describe_snapshots(plain_store.paths)
    assert (row["intact"], row["outdated"]) == (False, True)
    said = CliRunner().invoke(main, ["snapshots", "--store", str(plain_store.root)]).output
    assert "DAMAGED" not in said
    assert "another version of noctuary" in said
    (warning,) = recall("key", store=str(plain_store.root)).warnings
    assert warning.code == "store_unreadable"
    assert who in warning.message
    assert "run the night" in warning.message


RUNS = (sys.executable, "-m", "noctuary")


@pytest.fixture
def claude(home: Path, tmp_path: Path) -> Path:
    """Claude is used on this machine; its settings."""
    (tmp_path / "claude").mkdir()
    return tmp_path / "claude" / "settings.json"


def install(home: Path, folder: Path, program: tuple[str, ...] = RUNS) -> None:
    install_hooks(find_settings("claude", "user", folder), program, home=home)


def look(home: Path, folder: Path) -> Finding:
    (finding,) = look_at_hooks(home, folder)
    return finding


def count(home: Path, code: str | None, times: int = 1, event: str = "UserPromptSubmit") -> None:
    (home / HOOKS).mkdir(exist_ok=True)
    for _ in range(times):
        note_call(
            home / COUNTERS, "claude", event, code=code, took_ms=120, now_s=time.time() - 7200
        )


def test_without_an_agent_there_is_nothing_to_say(home: Path, tmp_path: Path) -> None:
    assert look(home, tmp_path) == Finding(
        "hooks", "ok", "no agent keeps settings here: nothing to install them into"
    )
    assert not are_hooked(home, tmp_path)


def test_an_agent_without_hooks_is_told(home: Path, claude: Path, tmp_path: Path) -> None:
    found = look(home, tmp_path)
    assert (found.name, found.level) == ("hooks", "warn")
    assert "not installed" in found.message
    assert found.remedy == "`noctuary hooks install --agent claude`"


def test_installed_and_well(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    assert are_hooked(home, tmp_path)
    assert look(home, tmp_path).level == "ok"
    assert "never called yet" in look(home, tmp_path).message
    count(home, "timeout")
    count(home, None, 3)
    found = look(home, tmp_path)
    assert found.level == "ok"
    assert "4 calls, 1 failed at times, none now, a prompt takes 120 ms" in found.message


@pytest.mark.parametrize(
    ("code", "level", "remedy"),
    [
        ("timeout", "warn", "noctuary serve"),
        ("no_snapshot", "fail", "noctuary nightly"),
        ("a new one", "fail", "hooks status"),
    ],
)
def test_failing_hooks_are_told_with_what_to_do(
    home: Path, claude: Path, tmp_path: Path, code: str, level: str, remedy: str
) -> None:
    install(home, tmp_path)
    count(home, None)
    count(home, code, TOLD_AFTER_TIMEOUTS)
    found = look(home, tmp_path)
    assert found.level == level
    told = "UserPromptSubmit of claude fails since 2.0 h ago, 3 time(s) one after the other: "
    assert told + code in found.message
    assert remedy in found.remedy
    count(home, None)
    assert look(home, tmp_path).level == "ok"


def test_the_worse_of_two_failures_comes_first(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    count(home, "timeout", 9)
    count(home, "journal", 1, "PreCompact")
    found = look(home, tmp_path)
    assert found.level == "fail"
    assert "PreCompact of claude fails" in found.message
    assert "1 more event(s) fail" in found.message


def test_a_program_that_is_gone(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path, (str(tmp_path / "noctuary"),))
    found = look(home, tmp_path)
    assert found.level == "fail"
    assert "cannot be started" in found.message
    assert "hooks install --agent claude --user" in found.remedy
    assert not are_hooked(home, tmp_path)


def test_settings_that_cannot_be_read(home: Path, claude: Path, tmp_path: Path) -> None:
    claude.write_text("{")
    found = look(home, tmp_path)
    assert found.level == "warn"
    assert "not valid JSON" in found.message
    assert found.remedy


def test_switched_off_by_the_agents_setting(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    value = {**json.loads(claude.read_bytes()), "disableAllHooks": True}
    claude.write_text(json.dumps(value))
    found = look(home, tmp_path)
    assert found.level == "warn"
    assert "disableAllHooks" in found.message
    assert found.remedy == "remove that line"


def test_outdated_entries(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    claude.write_text(claude.read_text().replace('"timeout": 10', '"timeout": 60'))
    found = look(home, tmp_path)
    assert found.level == "warn"
    assert "renews them" in found.remedy
    assert are_hooked(home, tmp_path)


def test_the_plugin_counts_and_both_at_once_are_told(
    home: Path, claude: Path, tmp_path: Path
) -> None:
    claude.write_text('{"enabledPlugins": {"noctuary@local": true}}')
    assert look(home, tmp_path).level == "ok"
    assert are_hooked(home, tmp_path)
    install(home, tmp_path)
    found = look(home, tmp_path)
    assert found.level == "warn"
    assert "installed twice" in found.message
    assert "uninstall" in found.remedy


def test_damaged_counters_are_told(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    (home / COUNTERS).write_text("{")
    first, second = look_at_hooks(home, tmp_path)
    assert (first.name, first.level, second.level) == ("hooks", "warn", "ok")
    assert "counters.json" in first.remedy


def find(store: Store, name: str) -> Finding:
    (found,) = (f for f in examine(store.paths) if f.name == name)
    return found


def manifest_of(store: Store, location: Path) -> Manifest:
    manifest = read_manifest(serving(store))
    return manifest._replace(source={**manifest.source, "location": str(location)})


def test_a_source_that_can_be_read(dense_store: Store, tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"x")
    for location in (tmp_path / "memory.db", tmp_path):
        assert look_at_source(manifest_of(dense_store, location)).level == "ok"


def test_a_source_that_cannot(dense_store: Store, tmp_path: Path) -> None:
    gone = look_at_source(manifest_of(dense_store, tmp_path / "none.db"))
    assert (gone.level, gone.message) == ("warn", f"{tmp_path / 'none.db'} is gone")
    assert "source.path" in gone.remedy
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert look_at_source(manifest_of(dense_store, tmp_path / "loop")).level == "warn"


def test_a_source_that_may_not_be_read(
    dense_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything: the refusal is the system's, put in its place."""
    (tmp_path / "memory.db").write_bytes(b"x")
    manifest = manifest_of(dense_store, tmp_path / "memory.db")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    found = look_at_source(manifest)
    assert (found.level, found.message.split(" ", 1)[1]) == (
        "warn",
        "cannot be read: Permission denied",
    )


def test_transcripts(tmp_path: Path) -> None:
    assert look_at_transcripts("").level == "ok"
    assert look_at_transcripts(str(tmp_path / "none")).level == "warn"
    empty = look_at_transcripts(str(tmp_path))
    assert (empty.level, "no transcript" in empty.message) == ("warn", True)
    line = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "hello"}}
    (tmp_path / "s.jsonl").write_text(json.dumps(line) + "\n")
    for path in (tmp_path, tmp_path / "s.jsonl"):
        assert look_at_transcripts(str(path)).level == "ok"
    nobody = look_at_transcripts("~nobody-of-this-name/x")
    assert (nobody.level, "no home directory" in nobody.message) == ("warn", True)


def test_transcripts_of_the_settings(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find(dense_store, "transcripts").level == "ok"
    monkeypatch.setenv("NOCTUARY_TRANSCRIPTS_PATH", str(tmp_path / "none"))
    assert find(dense_store, "transcripts").level == "warn"


def test_abstention(tmp_path: Path) -> None:
    assert look_at_abstention(tmp_path, wants=False).level == "ok"
    wanted = look_at_abstention(tmp_path, wants=True)
    assert (wanted.level, "noctuary nightly" in wanted.remedy) == ("warn", True)
    file = tmp_path / ABSTENTION_FILE
    # Of a snapshot of before: its scores had another scale.
    file.write_text('{"signals": {"words": {"threshold": 0.25}}}')
    assert look_at_abstention(tmp_path, wants=True).message.startswith("not calibrated")
    words = {"threshold": 0.25, "measure": MEASURE.to_json()}
    file.write_text(json.dumps({"signals": {"words": words}}))
    told = look_at_abstention(tmp_path, wants=True)
    assert (told.level, told.message) == ("ok", "calibrated: words below 0.25")
    file.write_text("{")
    assert look_at_abstention(tmp_path, wants=False).level == "warn"


def test_abstention_is_wanted_where_hooks_are_installed(
    dense_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(dense_store, "abstention").level == "ok"
    (tmp_path / "claude").mkdir()
    (tmp_path / "claude" / "settings.json").write_text('{"enabledPlugins": {"noctuary@x": true}}')
    assert find(dense_store, "abstention").level == "warn"
    monkeypatch.setenv("NOCTUARY_HOOK_ABSTAIN", "false")
    assert find(dense_store, "abstention").level == "ok"


def test_vectors(dense_store: Store) -> None:
    snapshot = serving(dense_store)
    manifest = read_manifest(snapshot)
    whole = look_at_vectors(snapshot, manifest)
    assert (whole.level, whole.message) == ("ok", "each of 14 memories has one")
    path = snapshot / VECTORS_FILE
    vectors = np.load(path)[:-2]
    path.chmod(0o600)
    np.save(path, vectors)
    short = look_at_vectors(snapshot, manifest)
    assert (short.level, short.message) == ("fail", "14 memories have 12 vectors")


def test_rows_that_no_index_covers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = StorePaths(tmp_path)
    assert "no LanceDB tables" in look_at_index(paths).message
    database = connect(paths.lance)
    table = database.create_table("memory_vectors_64", pa.table({"id": list(range(300))}))
    assert "scans are exact" in look_at_index(paths).message
    table.create_index("id", config=BTree())
    assert look_at_index(paths).message == "the indexes of 1 LanceDB tables cover every row"
    table.add(pa.table({"id": [300, 301]}))
    found = look_at_index(paths)
    assert found.level == "warn"
    assert "2 rows of memory_vectors_64 are in no index" in found.message
    assert "noctuary nightly" in found.remedy
    table.optimize()
    assert look_at_index(paths).level == "ok"

    def is_installed(_: str) -> bool:
        return False

    monkeypatch.setattr(cli, "is_installed", is_installed)
    assert "not installed here" in look_at_index(paths).message


def test_the_mcp_extra(dense_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(dense_store, "mcp").message == "the MCP server can run"
    fault = "the MCP server needs the package mcp, which is not installed: pip install it"
    monkeypatch.setattr(cli, "find_sdk_fault", lambda: fault)
    unused = find(dense_store, "mcp")
    assert (unused.level, "pip install" in unused.message) == ("ok", True)
    (tmp_path / "claude").mkdir()
    (tmp_path / "claude" / "settings.json").write_text('{"enabledPlugins": {"noctuary@x": true}}')
    used = find(dense_store, "mcp")
    assert (used.level, used.remedy) == ("warn", "pip install it")
    assert "plugin" in used.message
