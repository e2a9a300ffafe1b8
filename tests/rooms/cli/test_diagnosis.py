"""What doctor, status and snapshots say of a store: which faults they find."""

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

import pytest
from click.testing import CliRunner

from noctuary.agents.client import Refusal
from noctuary.agents.install import find_place as find_settings
from noctuary.agents.install import install_hooks
from noctuary.agents.server import Place, Server, answer_request, find_place
from noctuary.agents.state import COUNTERS, HOOKS, TOLD_AFTER_TIMEOUTS, note_call
from noctuary.cli import main as cli
from noctuary.cli.doctor import (
    Finding,
    are_hooked,
    check_abstention,
    check_hooks,
    check_server,
    check_transcripts,
    examine,
)
from noctuary.cli.main import main
from noctuary.cli.store import age_hours, describe_snapshots, find_source_fault, read_status
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError, SnapshotOutdatedError
from noctuary.core.files import remove_tree, tree_bytes
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.store import ABSTENTION_FILE
from noctuary.embed.lean import HEADER_FILE, WEIGHTS_FILE
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


def test_a_good_store_has_nothing_but_good_findings_and_looking_changes_nothing(
    dense_store: Store,
) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = [p for p in dense_store.root.rglob("*") if p.is_file()]
        return {str(p): (p.stat().st_size, p.stat().st_mtime_ns) for p in files}

    before = state()
    found = findings(dense_store)
    assert state() == before
    assert {f.level for f in found.values()} == {"ok"}
    assert {
        "settings", "pointer", "snapshot", "age", "encoder", "source", "abstention",
        "gate", "transcripts", "access_log", "server", "hooks", "mcp",
        "profiles",
    } <= set(found)  # fmt: skip
    assert "word-axes, 8 dimensions" in found["encoder"].message
    assert "22 checks" in found["gate"].message
    assert found["access_log"].message == "nothing has been recalled yet"
    returned = len(recall("spare key").memories)
    assert findings(dense_store)["access_log"].message == f"{returned:,} retrievals"


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def flipped(name: str) -> Callable[[Store], None]:
    return lambda store: flip(serving(store) / name)


def written(name: str, content: str | bytes) -> Callable[[Store], None]:
    """Return what puts a file into a store."""

    def change(store: Store) -> None:
        path = store.root / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return change


def encoder_of(store: Store) -> Path:
    (directory,) = store.paths.encoders.iterdir()
    return directory


def another_encoder(store: Store) -> None:
    directory = encoder_of(store)
    remove_tree(directory)
    other = write_encoder(store.paths.encoders, scale=2.0)
    (store.paths.encoders / other.fingerprint.digest).rename(directory)


def another_digest(store: Store) -> None:
    """The snapshot is whole, but not what the pointer says."""
    value = json.loads(store.paths.current.read_text())
    store.paths.current.write_text(json.dumps({**value, "digest": "0" * 64}))


def night_before(store: Store, hours: float = 100) -> None:
    moment = time.time() - hours * 3600
    os.utime(store.paths.last_night, (moment, moment))


def refuse_a_candidate(store: Store) -> None:
    failed = CheckResult("no_sensitive_row_is_anywhere", False, {"memories": 1})
    store_verdict(store.paths, "f" * 64, [failed])


def log_without_table(store: Store) -> None:
    with closing(sqlite3.connect(store.paths.access_log)) as log, log:
        log.execute("CREATE TABLE other (a)")


def set_verdict(content: str) -> Callable[[Store], None]:
    def change(store: Store) -> None:
        (verdict,) = store.paths.verdicts.iterdir()
        verdict.write_text(content)

    return change


DAMAGE: dict[str, tuple[Callable[[Store], Any], str, str, str]] = {
    "pointer": (written("CURRENT", "{"), "pointer", "fail", "rollback"),
    "rows": (flipped(layout.ROWS_FILE), "snapshot", "fail", "rollback"),
    "vectors": (flipped(layout.VECTORS_FILE), "snapshot", "fail", "rollback"),
    "manifest": (flipped(layout.MANIFEST_FILE), "snapshot", "fail", "rollback"),
    "no arrays": (
        lambda s: (serving(s) / layout.ARRAYS_FILE).unlink(), "snapshot", "fail", layout.ARRAYS_FILE
    ),
    "no encoder": (lambda s: remove_tree(encoder_of(s)), "encoder", "fail", "noctuary nightly"),
    "header": (
        lambda s: (encoder_of(s) / HEADER_FILE).write_text("{}"), "encoder", "fail",
        "noctuary nightly",
    ),
    "weights": (
        lambda s: flip(encoder_of(s) / WEIGHTS_FILE), "encoder", "fail", "noctuary nightly"
    ),
    "another encoder": (another_encoder, "encoder", "fail", "noctuary nightly"),
    "an old night": (night_before, "age", "warn", "100 h"),
    "an old night's remedy": (night_before, "age", "warn", "schedule"),
    "no night": (lambda s: s.paths.last_night.unlink(), "age", "warn", "ever"),
    "a refusal": (refuse_a_candidate, "gate", "fail", "no_sensitive_row_is_anywhere"),
    "a refusal's remedy": (refuse_a_candidate, "gate", "fail", f"{'f' * 64}.json"),
    "log of noise": (written("access.sqlite", b"x" * 5000), "access_log", "fail", ""),
    "log of others": (log_without_table, "access_log", "fail", ""),
    "log that is a folder": (lambda s: s.paths.access_log.mkdir(), "access_log", "fail", ""),
    "injections": (
        written("injected.sqlite", b"x" * 5000), "injections", "warn", "move injected.sqlite away"
    ),
    "archive": (written("archive.sqlite", b"no database"), "archive", "warn", "archive"),
    **{
        f"verdict {content!r}": (set_verdict(content), "last_verdict", "fail", "")
        for content in ("", "{", "[]", "null", "{}")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_a_fault_is_the_only_finding_and_says_what_to_do(dense_store: Store, name: str) -> None:
    damage, finding, level, says = DAMAGE[name]
    damage(dense_store)
    wrong = {f.name: f for f in examine(dense_store.paths) if f.level != "ok"}
    assert set(wrong) == {finding}
    assert wrong[finding].level == level
    assert wrong[finding].remedy or finding in ("access_log", "last_verdict")
    assert says in f"{wrong[finding].message} {wrong[finding].remedy}"


def test_a_source_that_is_gone_and_a_store_that_never_published(empty_store: Store) -> None:
    found = findings(empty_store)
    assert (found["pointer"].level, found["gate"].level) == ("fail", "ok")
    assert "noctuary nightly" in found["pointer"].remedy
    empty_store.publish(household(), source={"kind": "sqlite", "location": "/no/such/memory.db"})
    assert findings(empty_store)["source"].level == "warn"


def test_no_vectors_are_a_warning(plain_store: Store) -> None:
    (wrong,) = (f for f in examine(plain_store.paths) if f.level != "ok")
    assert (wrong.name, wrong.level) == ("encoder", "warn")
    assert "lexical and graph only" in wrong.message


def test_settings_and_pointers_that_are_wrong(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_digest(dense_store)
    assert findings(dense_store)["pointer"].level == "fail"
    monkeypatch.setenv("NOCTUARY_RECALL_FUSOIN", "cc")
    finding = findings(dense_store)["settings"]
    assert finding.level == "fail"
    assert "NOCTUARY_RECALL_FUSION" in finding.message


@pytest.mark.parametrize(
    ("configured", "hours", "level"), [("10", 11, "warn"), ("50", 49, "ok"), ("0", 999, "ok")]
)
def test_the_limit_of_staleness_is_the_one_that_recall_uses(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch, configured: str, hours: int, level: str
) -> None:
    monkeypatch.setenv("NOCTUARY_RECALL_STALE_AFTER_HOURS", configured)
    night_before(dense_store, hours)
    assert findings(dense_store)["age"].level == level


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


@pytest.mark.parametrize("name", [layout.ROWS_FILE, layout.MANIFEST_FILE, "zeros"])
def test_a_damaged_snapshot_has_no_status(dense_store: Store, name: str) -> None:
    if name == "zeros":
        path = serving(dense_store) / layout.ROWS_FILE
        path.chmod(0o600)
        path.write_bytes(bytes(path.stat().st_size))
    else:
        (serving(dense_store) / name).unlink()
    with pytest.raises(SnapshotCorruptError, match=r"noctuary doctor|missing|no manifest"):
        read_status(dense_store.paths)


def test_snapshots_are_described_oldest_first_and_damaged_ones_as_such(plain_store: Store) -> None:
    first = read_pointer(plain_store.paths).snapshot_id
    second = plain_store.publish(renumber([memory("boat")]))
    older, newer = describe_snapshots(plain_store.paths)
    assert (older["snapshot_id"], older["serving"], older["memories"]) == (first, False, 14)
    assert (newer["snapshot_id"], newer["serving"], newer["memories"]) == (second, True, 1)
    assert older["intact"]
    assert older["bytes"] > newer["bytes"] > 0
    (plain_store.snapshot(second) / layout.ARRAYS_FILE).unlink()
    _, damaged = describe_snapshots(plain_store.paths)
    assert (damaged["serving"], damaged["intact"]) == (True, False)
    assert layout.ARRAYS_FILE in damaged["fault"]
    plain_store.paths.current.write_text("{")
    assert not any(row["serving"] for row in describe_snapshots(plain_store.paths))


def test_age_is_in_hours_and_never_negative() -> None:
    now = datetime.now(UTC)
    assert age_hours((now - timedelta(hours=3)).isoformat()) == pytest.approx(3.0, abs=0.01)
    assert age_hours((now + timedelta(hours=3)).isoformat()) == 0.0


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


def write_note(place: Place, seconds_ago: float) -> None:
    note = vars(Refusal("busy", "every thread is taken"))
    place.fallback.write_text(json.dumps({**note, "at_s": time.time() - seconds_ago}))


def test_a_server_that_runs_is_named_and_a_fallback_from_it_is_a_warning(
    plain_store: Store, running: Server
) -> None:
    state = check_server(plain_store.root)
    assert state.level == "ok"
    assert state.message.startswith(f"process {os.getpid()} answered ")
    write_note(running.place, 60)  # before its start: that is over
    assert check_server(plain_store.root).level == "ok"
    write_note(running.place, 0)
    state = check_server(plain_store.root)
    assert state.level == "warn"
    assert "(busy): every thread is taken" in state.message
    assert state.remedy


def test_a_fallback_from_a_server_that_is_gone_is_over(plain_store: Store, place: Place) -> None:
    write_note(place, 120)
    none = Finding("server", "ok", "none runs: recall answers in its own process")
    assert check_server(plain_store.root) == none


def test_a_dead_socket_and_an_open_directory_are_warnings(plain_store: Store, place: Place) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place.socket))
    state = check_server(plain_store.root)
    assert (state.level, state.remedy) == ("warn", "start `noctuary serve` again")
    assert state.message.startswith("dead: ")
    place.directory.chmod(0o755)
    state = check_server(plain_store.root)
    assert state.level == "warn"
    assert "open to others" in state.message


def told_by(command: str, store: Store) -> str:
    return CliRunner().invoke(main, [command, "--store", str(store.root)]).output


def test_status_and_doctor_count_what_is_archived_now(plain_store: Store) -> None:
    reader = Recaller.open(plain_store.root).reader
    path = plain_store.paths.archive
    assert read_status(plain_store.paths)["archived"] == 0
    write_archive(path, reader, {"p1": {"101": "108", "103": "104"}}, {"p1": [(1, None)]})
    assert read_status(plain_store.paths)["archived"] == 2
    assert "archived   2 of them, out of default recall" in told_by("status", plain_store)
    write_archive(path, reader, {"p1": {"101": "108"}}, {"p1": [(1, 2)]})
    assert read_status(plain_store.paths)["archived"] == 0
    plans = {"p1": {"101": "108"}, "p2": {"103": "104"}}
    write_archive(path, reader, plans, {"p1": [(1, None)], "p2": [(1, None)]})
    assert read_status(plain_store.paths)["archived"] == 2
    path.write_bytes(b"no database")
    assert read_status(plain_store.paths)["archived"] is None
    assert "archived   unknown" in told_by("status", plain_store)


@pytest.mark.parametrize(
    ("found", "who", "remedy"),
    [
        (2, "an older noctuary", "run `noctuary nightly`"),
        (99, "a newer noctuary", "update noctuary: a newer one made this"),
    ],
)
def test_another_versions_snapshot_is_outdated_and_not_damaged(
    plain_store: Store, found: int, who: str, remedy: str
) -> None:
    path = serving(plain_store) / layout.MANIFEST_FILE
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.chmod(0o600)
    path.write_text(json.dumps({**manifest, "format_version": found}), encoding="utf-8")
    with pytest.raises(SnapshotOutdatedError, match=who):
        read_manifest(path.parent)
    (row,) = describe_snapshots(plain_store.paths)
    assert (row["intact"], row["outdated"]) == (False, True)
    said = told_by("snapshots", plain_store)
    assert "DAMAGED" not in said
    assert "another version of noctuary" in said
    (warning,) = recall("key", store=str(plain_store.root)).warnings
    assert warning.code == "store_unreadable"
    assert who in warning.message
    assert "run the night" in warning.message
    assert findings(plain_store)["snapshot"].remedy == remedy


RUNS = (sys.executable, "-m", "noctuary")
PLUGIN = '{"enabledPlugins": {"noctuary@local": true}}'


@pytest.fixture
def claude(home: Path, tmp_path: Path) -> Path:
    """Claude is used on this machine; its settings."""
    (tmp_path / "claude").mkdir()
    return tmp_path / "claude" / "settings.json"


def install(home: Path, folder: Path, program: tuple[str, ...] = RUNS) -> None:
    install_hooks(find_settings("claude", "user", folder), program, home=home)


def look(home: Path, folder: Path) -> Finding:
    (finding,) = check_hooks(home, folder)
    return finding


def count(home: Path, code: str | None, times: int = 1, event: str = "UserPromptSubmit") -> None:
    (home / HOOKS).mkdir(exist_ok=True)
    two_hours_ago = time.time() - 7200
    for _ in range(times):
        note_call(home / COUNTERS, "claude", event, code=code, took_ms=120, now_s=two_hours_ago)


def test_without_an_agent_there_is_nothing_to_say(home: Path, tmp_path: Path) -> None:
    message = "no agent keeps settings here: nothing to install them into"
    assert look(home, tmp_path) == Finding("hooks", "ok", message)
    assert not are_hooked(home, tmp_path)


def test_installed_and_well(home: Path, claude: Path, tmp_path: Path) -> None:
    install(home, tmp_path)
    assert are_hooked(home, tmp_path)
    assert look(home, tmp_path).level == "ok"
    assert "never called yet" in look(home, tmp_path).message
    count(home, "timeout")
    count(home, None, 3)
    found = look(home, tmp_path)
    assert (found.level, "never" in found.message) == ("ok", False)


@pytest.mark.parametrize(
    ("code", "level", "remedy"),
    [
        ("timeout", "warn", "noctuary serve"),
        ("journal", "fail", "free disk space"),
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


def nothing(home: Path, claude: Path, folder: Path) -> None:
    """Leave the agent as it is."""


def installed(home: Path, claude: Path, folder: Path) -> None:
    install(home, folder)


def plugged_in(home: Path, claude: Path, folder: Path) -> None:
    claude.write_text(PLUGIN)


def no_json(home: Path, claude: Path, folder: Path) -> None:
    claude.write_text("{")


def switched_off(home: Path, claude: Path, folder: Path) -> None:
    install(home, folder)
    claude.write_text(json.dumps({**json.loads(claude.read_bytes()), "disableAllHooks": True}))


def outdated(home: Path, claude: Path, folder: Path) -> None:
    install(home, folder)
    claude.write_text(claude.read_text().replace('"timeout": 10', '"timeout": 60'))


def twice(home: Path, claude: Path, folder: Path) -> None:
    claude.write_text(PLUGIN)
    install(home, folder)


def program_gone(home: Path, claude: Path, folder: Path) -> None:
    install(home, folder, (str(folder / "noctuary"),))


@pytest.mark.parametrize(
    ("prepare", "level", "message", "remedy", "hooked"),
    [
        (nothing, "warn", "not installed", "`noctuary hooks install --agent claude`", False),
        (installed, "ok", "", "", True),
        (plugged_in, "ok", "", "", True),
        (twice, "warn", "installed twice", "uninstall", True),
        (program_gone, "fail", "cannot be started", "hooks install --agent claude --user", False),
        (no_json, "warn", "not valid JSON", "", False),
        (switched_off, "warn", "disableAllHooks", "remove that line", None),
        (outdated, "warn", "", "hooks install", True),
    ],
    ids=["none", "ours", "plugin", "twice", "program-gone", "no-JSON", "switched-off", "outdated"],
)  # fmt: skip
def test_hooks_of_an_agent(
    home: Path, claude: Path, tmp_path: Path, prepare: Callable[[Path, Path, Path], Any],
    level: str, message: str, remedy: str, hooked: bool | None,
) -> None:  # fmt: skip
    prepare(home, claude, tmp_path)
    found = look(home, tmp_path)
    assert (found.name, found.level) == ("hooks", level)
    assert message in found.message
    assert remedy in found.remedy
    if hooked is not None:
        assert are_hooked(home, tmp_path) is hooked


def test_a_source_can_be_read_or_its_fault_is_told(
    dense_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = read_manifest(serving(dense_store))

    def fault_of(location: Path) -> str | None:
        source = {**manifest.source, "location": location}
        return find_source_fault(manifest._replace(source=source))

    there, loop = tmp_path / "memory.db", tmp_path / "loop"
    there.write_bytes(b"x")
    assert (fault_of(there), fault_of(tmp_path)) == (None, None)
    assert fault_of(tmp_path / "none.db") == f"{tmp_path / 'none.db'} is gone"
    loop.symlink_to(loop)
    assert fault_of(loop)

    listed = {"own": {"location": str(tmp_path / "own"), "rows": 0},
              "house": {"location": "postgresql://x/y", "rows": 3},
              "palace": {"location": str(tmp_path / "palace"), "rows": 3}}  # fmt: skip
    several = manifest._replace(source={"location": str(there), "members": listed})
    assert find_source_fault(several) == f"{tmp_path / 'palace'} is gone"

    def refuse(*_: object) -> None:
        """Root may read everything, so the refusal is simulated."""
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert fault_of(there) == f"{there} cannot be read: Permission denied"


def test_transcripts(dense_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "talk"
    folder.mkdir()
    line = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "hello"}}
    for place, level, says in [
        ("", "ok", ""), (str(tmp_path / "none"), "warn", ""),
        (str(folder), "warn", "no transcript"),
        ("~nobody-of-this-name/x", "warn", "no home directory"),
    ]:  # fmt: skip
        found = check_transcripts(place)
        assert (found.level, says in found.message) == (level, True), place
    listed = {"claude": f"transcripts:{folder}", "notes": str(folder)}
    assert check_transcripts("", listed).message == "every night reads those of claude"
    (folder / "s.jsonl").write_text(json.dumps(line) + "\n")
    for path in (folder, folder / "s.jsonl"):
        assert check_transcripts(str(path)).level == "ok"
    monkeypatch.setenv("NOCTUARY_TRANSCRIPTS_PATH", str(tmp_path / "none"))
    assert findings(dense_store)["transcripts"].level == "warn"


def test_abstention(tmp_path: Path) -> None:
    assert check_abstention(tmp_path, wants=False).level == "ok"
    wanted = check_abstention(tmp_path, wants=True)
    assert (wanted.level, "noctuary nightly" in wanted.remedy) == ("warn", True)
    file = tmp_path / ABSTENTION_FILE
    # Of a snapshot of before: its scores had another scale.
    file.write_text('{"signals": {"words": {"threshold": 0.25}}}')
    assert check_abstention(tmp_path, wants=True).message.startswith("not calibrated")
    words = {"threshold": 0.25, "measure": MEASURE.to_json()}
    file.write_text(json.dumps({"signals": {"words": words}}))
    told = check_abstention(tmp_path, wants=True)
    assert (told.level, told.message) == ("ok", "calibrated")
    file.write_text("{")
    assert check_abstention(tmp_path, wants=False).level == "warn"


def test_abstention_and_the_mcp_extra_are_wanted_where_hooks_are_installed(
    dense_store: Store, claude: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = findings(dense_store)
    assert found["mcp"].message == "the MCP server can run"
    fault = "the MCP server needs the package mcp, which is not installed: pip install it"
    monkeypatch.setattr(cli, "find_sdk_fault", lambda: fault)
    unused = findings(dense_store)["mcp"]
    assert (unused.level, "pip install" in unused.message) == ("ok", True)
    claude.write_text(PLUGIN)
    found = findings(dense_store)
    assert (found["mcp"].level, found["mcp"].remedy) == ("warn", "pip install it")
    assert "plugin" in found["mcp"].message
    assert found["abstention"].level == "warn"
    monkeypatch.setenv("NOCTUARY_HOOK_ABSTAIN", "false")
    assert findings(dense_store)["abstention"].level == "ok"
