"""`recall` as hooks and agents call it: arguments, faults, logs, results."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import noctuary
from noctuary.core import store as layout
from noctuary.core.manifest import read_pointer
from noctuary.core.sqlite import WAIT_AT_MOST_S
from noctuary.core.tombstones import read_tombstones, write_tombstones
from noctuary.recall import api
from noctuary.recall.api import recall
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import SORT_ORDERS
from noctuary.recall.result import GraphHit, LegHit, RecalledMemory, RecallResult, RecallWarning
from noctuary.snapshot.publish import rollback
from noctuary.text import secrets as sensitivity
from tests.support.damage import change_array
from tests.support.store import Store, household, memory, new_store, renumber
from tests.support.views import codes, said


def ids(result: RecallResult) -> list[int | str]:
    return [m.id for m in result.memories]


def logged(store: Store) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(store.paths.access_log)) as log:
        return log.execute(
            "SELECT memory_id, rank, snapshot_id FROM retrievals ORDER BY position"
        ).fetchall()


def files_below(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(p.relative_to(root)): (p.stat().st_size, p.stat().st_mtime_ns)
        for p in root.rglob("*")
        if p.is_file()
    }


def test_a_store_is_named_by_path_or_name_or_the_only_one(dense_store: Store) -> None:
    for store in (None, dense_store.root, str(dense_store.root), "house"):
        result = recall("spare key", store=store)
        assert ids(result)[0] == 101
        assert result.store == str(dense_store.root)
        assert codes(result) == ["user_required"]


def test_every_argument_is_honoured(dense_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(recall("door", 1).memories) == 1
    assert {m.wing for m in recall("door flight", wing="home").memories} == {"home"}
    assert {m.room for m in recall("key", room="hall").memories} == {"hall"}
    assert {m.category for m in recall("flight", category="turn").memories} == {"turn"}
    assert 106 in ids(recall("door code", user="ana"))
    assert 106 not in ids(recall("door code", user="ben"))
    assert ids(recall("door", sort_by="recency", user="ben", deadline_ms=0.0))[0] == 107
    early = datetime(2026, 1, 3, tzinfo=UTC)
    assert 104 not in ids(recall("Nina", as_of=early))
    assert ids(recall("cat", profile=RetrievalProfile(dense_weight=0.0))) == []
    assert "deadline_dense" in codes(recall("cat", deadline_ms=0.0))
    monkeypatch.setenv("NOCTUARY_RECALL_FUSION", "rrf")
    assert recall("key").profile["fusion"] == "rrf"
    assert recall("key", profile=RetrievalProfile(fusion="cc")).profile["fusion"] == "cc"
    assert recall("key", profile={"rrf_k": 10}).profile["fusion"] == "rrf"


@pytest.mark.parametrize(("argument", "value"), [("k", -1), ("sort_by", "date")])
def test_arguments_that_no_store_could_honour_are_errors_without_a_store_too(
    home: Path, argument: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=argument):
        recall("key", **{argument: value})
    new_store(home / "house").publish(household())
    with pytest.raises(ValueError, match=argument):
        recall("key", **{argument: value})


def test_nothing_is_written_where_nobody_asks_for_it(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_below(dense_store.root)
    assert recall("spare key", dry_run=True).memories
    recall("spare key", wing="elsewhere")
    recall("")
    monkeypatch.setenv("NOCTUARY_RECALL_LOG_RETRIEVALS", "no")
    assert recall("spare key").memories
    assert files_below(dense_store.root) == before


def test_what_was_recalled_is_logged_in_order_and_nothing_else(dense_store: Store) -> None:
    before = set(files_below(dense_store.root))
    result = recall("spare key flight", 3)
    expected = [
        (str(m.id), rank, result.snapshot_id) for rank, m in enumerate(result.memories, start=1)
    ]
    assert logged(dense_store) == expected
    new = set(files_below(dense_store.root)) - before
    assert {path.split("-")[0] for path in new} == {"access.sqlite"}


def test_a_snapshot_published_meanwhile_and_a_rollback_are_picked_up(dense_store: Store) -> None:
    first = recall("spare key").snapshot_id
    new = dense_store.publish(renumber([memory("The spare key is at the neighbour's.")], 500))
    second = recall("spare key")
    assert (second.snapshot_id, ids(second)) == (new, [500])
    rollback(dense_store.paths)
    result = recall("spare key")
    assert (result.snapshot_id, ids(result)[0]) == (first, 101)


def test_several_stores_are_a_warning_and_the_last_published_answers(
    home: Path, dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_store(home / "other")
    other.publish(renumber([memory("The spare key is under the mat.")], 900))
    os.utime(dense_store.paths.current, ns=(1, 1))
    result = recall("spare key")
    assert ids(result) == [900]
    assert "other" in said(result, "store_guessed")
    assert "store_guessed" not in codes(recall("spare key", store="other"))
    monkeypatch.setenv("NOCTUARY_STORE", "house")
    result = recall("spare key")
    assert ids(result)[0] == 101
    assert "store_guessed" not in codes(result)


def test_package_function_and_attribute_are_all_callable(dense_store: Store) -> None:
    package: Any = importlib.import_module("noctuary.recall")
    assert package.api is api
    for one in (noctuary.recall, package):
        assert ids(one("spare key")) == ids(recall("spare key"))
    with pytest.raises(AttributeError, match="recollect"):
        _ = noctuary.recollect  # pyright: ignore[reportAttributeAccessIssue]
    assert set(noctuary.__all__) == {
        "Context", "Expansion", "RecallResult", "RecallWarning", "RecalledMemory",
        "Remembered", "RetrievalProfile", "__version__",
        "assemble", "expand", "inject", "recall", "register_hook", "remember",
    }  # fmt: skip
    assert noctuary.RecallResult is RecallResult


def test_a_question_is_scanned_once_and_only_where_it_would_be_kept(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[str] = []
    monkeypatch.setattr(sensitivity, "find_text_sensitivity", scanned.append)
    kept = {"replay_log": True, "query_expansion_enabled": True}
    for flags, dry_run, scans in (({}, False, 0), (kept, True, 0), (kept, False, 1)):
        assert recall("spare key", profile=flags, dry_run=dry_run).memories
        assert scanned == ["spare key"] * scans


QUERIES = ("spare key", "Nina leads", "flight", "door code")


def serving(store: Store) -> Path:
    return store.snapshot(read_pointer(store.paths).snapshot_id)


def test_an_empty_home_says_what_to_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = recall("key")
    assert result.memories == ()
    assert codes(result) == ["no_snapshot"]
    assert "noctuary nightly" in said(result, "no_snapshot")
    assert result.phase_timing_ms["total"] >= 0
    monkeypatch.setenv("NOCTUARY_HOME", str(home / "nowhere"))
    assert codes(recall("key")) == ["no_snapshot"]
    assert not (home / "nowhere").exists()


@pytest.mark.parametrize("value", ["~nobody-of-that-name/x", "relative/home", "/dev/null", "/"])
def test_any_home_is_answered(home: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("NOCTUARY_HOME", value)
    result = recall("key")
    assert result.memories == ()
    assert codes(result)[-1] in {"no_snapshot", "store_unreadable"}


@pytest.mark.parametrize(
    "name", ["nowhere", "/no/such/store", "../x", "", ".", "/dev/null", "house"]
)
def test_a_store_that_is_not_there_is_answered(empty_store: Store, name: str) -> None:
    result = recall("key", store=name)
    assert result.memories == ()
    assert codes(result)[-1] in {"no_snapshot", "store_unreadable"}
    assert codes(recall("key", store=empty_store.root)) == ["no_snapshot"]


def test_a_corrupt_pointer_falls_back_to_what_is_published(dense_store: Store) -> None:
    pointer = dense_store.paths.current
    numbered = pointer.read_bytes().replace(b'"publish"', b"7")
    for content in (b"", b"{", b"[]", b"\x00" * 64, b"\xff", b'{"snapshot_id": 5}', numbered):
        pointer.write_bytes(content)
        result = recall("spare key")
        assert result.memories[0].id == 101
        assert "snapshot_fallback" in codes(result)
    pointer.unlink()
    pointer.mkdir()
    assert recall("spare key", store=dense_store.root).memories[0].id == 101


@pytest.mark.parametrize("damage", ["empty", "gone", "all gone"])
def test_with_everything_damaged_the_answer_is_a_warning(dense_store: Store, damage: str) -> None:
    dense_store.publish(renumber([memory("Another spare key.")], 900))
    for directory in dense_store.paths.snapshots.iterdir():
        if damage == "gone":
            (directory / layout.MANIFEST_FILE).unlink()
            continue
        shutil.rmtree(directory)
        if damage == "empty":
            directory.mkdir()
    result = recall("spare key")
    assert result.memories == ()
    assert codes(result) == ["store_unreadable"]
    assert "noctuary" in said(result, "store_unreadable")


def recalls_with_flipped_bytes(
    store: Store, target: Path, offsets: Iterable[int]
) -> Iterator[RecallResult]:
    """Sizes stay, so the quick check sees nothing; what opens must still answer or warn."""
    original, stamp = target.read_bytes(), target.stat().st_mtime_ns
    target.chmod(0o644)
    for number, offset in enumerate(offsets, start=1):
        content = bytearray(original)
        content[offset] ^= 0x55
        target.write_bytes(content)
        # Another stamp of the pointer, so that the snapshot is opened afresh.
        os.utime(store.paths.current, ns=(number, number))
        for query in QUERIES:
            yield recall(query, user="ana", dry_run=True)
        target.write_bytes(original)
    os.utime(target, ns=(stamp, stamp))


@pytest.mark.parametrize("file", [layout.ROWS_FILE, layout.MANIFEST_FILE, "CURRENT"])
def test_flipped_bytes_anywhere_in_a_file_never_reach_the_caller_as_an_exception(
    dense_store: Store, file: str
) -> None:
    target = dense_store.paths.current if file == "CURRENT" else serving(dense_store) / file
    size = target.stat().st_size
    results = list(recalls_with_flipped_bytes(dense_store, target, range(0, size, size // 60 or 1)))
    assert any(result.memories for result in results)


def _places(content: bytes, name: str) -> list[int]:
    """Return where to flip: in a header (lengths, types that do not fit), or in the values."""
    if name == layout.VECTORS_FILE:
        return [*range(0, 128, 8), *range(128, len(content), max((len(content) - 128) // 20, 1))]
    begin = 8 + int.from_bytes(content[:8], "little")
    if name == "header":
        return [*range(8), *range(8, begin, begin // 60)]
    start, end = json.loads(content[8:begin])[name]["data_offsets"]
    return [*range(begin + start, begin + end, max((end - start) // 20, 1))]


@pytest.mark.parametrize(
    "name",
    [
        layout.VECTORS_FILE, "header", "posting.positions", "posting.scores", "created_at_us",
        "importance", "facet.user", "graph.indptr", "graph.targets", "graph.relations",
        "graph.concepts",
    ],
)  # fmt: skip
def test_flipped_bytes_in_an_array_never_reach_the_caller_as_an_exception(
    dense_store: Store, name: str
) -> None:
    target = serving(dense_store) / (name if name == layout.VECTORS_FILE else layout.ARRAYS_FILE)
    places = _places(target.read_bytes(), name)
    for result in recalls_with_flipped_bytes(dense_store, target, places):
        assert all(0.0 <= m.final_score <= 1.0 for m in result.memories)


def _with_odd_numbers(values: NDArray[Any]) -> NDArray[Any]:
    values.reshape(-1)[:5] = [np.nan, np.inf, -np.inf, -3.0, 1e30]
    return values


def test_scores_stay_in_range_whatever_the_arrays_hold(dense_store: Store) -> None:
    directory = serving(dense_store)
    for name in ("importance", "posting.scores", layout.VECTORS_FILE):
        change_array(directory, name, _with_odd_numbers)
    os.utime(dense_store.paths.current, ns=(1, 1))
    with np.errstate(all="ignore"):
        for query, sort_by in itertools.product(QUERIES, SORT_ORDERS):
            result = recall(query, 14, sort_by=sort_by, user="ana", dry_run=True)
            assert all(0.0 <= m.final_score <= 1.0 for m in result.memories)
            assert all(0.0 <= m.relevance <= 1.0 for m in result.memories)


def test_damage_below_the_quick_check_names_the_snapshot(dense_store: Store) -> None:
    path = serving(dense_store) / layout.ROWS_FILE
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.execute("UPDATE memories SET memory_id = 'not a number' WHERE position = 0")
    result = recall("spare key", wing="home")
    assert result.memories == ()
    assert serving(dense_store).name in said(result, "snapshot_damaged")


def test_bad_settings_leave_the_defaults_in_force(
    home: Path, dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for content in ("[recall", "recall = 1", "[recal]\nfusion = 'cc'", "\x00"):
        (home / "noctuary.toml").write_text(content)
        result = recall("spare key")
        assert result.memories[0].id == 101
        assert "bad_settings" in codes(result)
    (home / "noctuary.toml").unlink()
    for path in (home / "nothing.toml", home):
        monkeypatch.setenv("NOCTUARY_CONFIG", str(path))
        assert "bad_settings" in codes(recall("spare key"))
    monkeypatch.delenv("NOCTUARY_CONFIG")
    monkeypatch.setenv("NOCTUARY_RECALL_FUSION", "sum")
    result = recall("spare key")
    assert (result.memories[0].id, result.profile["fusion"]) == (101, "cc")
    assert "recall.fusion" in said(result, "bad_settings")


def test_a_warning_of_the_build_is_not_lost(plain_store: Store) -> None:
    assert "dense_unavailable" in codes(recall("spare key", store=plain_store.root))


NOBODY = 65534


def fault(result: RecallResult) -> str:
    assert result.memories[0].id == 101
    (warning,) = (w for w in result.warnings if w.code == "access_log")
    return warning.message


def test_a_locked_log_is_a_warning_and_does_not_stall(plain_store: Store) -> None:
    recall("spare key")
    with closing(sqlite3.connect(plain_store.paths.access_log)) as other:
        other.execute("BEGIN IMMEDIATE")
        started = time.perf_counter()
        assert "locked" in fault(recall("spare key"))
        assert time.perf_counter() - started < WAIT_AT_MOST_S + 1.0
        other.rollback()
    result = recall("spare key")
    assert "access_log" not in [w.code for w in result.warnings]
    with closing(sqlite3.connect(plain_store.paths.access_log)) as log:
        ranks = [row[0] for row in log.execute("SELECT rank FROM retrievals ORDER BY position")]
    # What the lock kept out has landed with the next.
    assert ranks == [*range(1, len(result.memories) + 1)] * 3


def test_a_locked_new_log_is_a_warning(plain_store: Store) -> None:
    with closing(sqlite3.connect(plain_store.paths.access_log)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "locked" in fault(recall("spare key"))
        other.rollback()


def test_a_damaged_log_is_a_warning(plain_store: Store) -> None:
    log = plain_store.paths.access_log
    recall("spare key")
    with closing(sqlite3.connect(log)) as other, other:
        other.execute("DROP TABLE retrievals")
    assert "no such table" in fault(recall("spare key"))
    log.write_bytes(b"this is no database, however long it is" * 100)
    assert "not a database" in fault(recall("spare key"))
    log.unlink()
    log.mkdir()
    assert "unable to open" in fault(recall("spare key"))


@pytest.fixture
def shared_home() -> Iterator[Path]:
    """A home that another user may read: pytest's own directories are closed to others."""
    home = Path(tempfile.mkdtemp(prefix="noctuary-home-"))
    home.chmod(0o755)
    new_store(home / "house").publish(household())
    for path in home.rglob("*"):
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
    yield home
    shutil.rmtree(home)


def recall_elsewhere(home: Path, first: str) -> dict[str, Any]:
    """Recall in a process of its own after running `first` there; the result as JSON values.

    The snapshot is opened before: another user may not be able to import anything.
    """
    code = f"""
import json, os, resource
from noctuary import recall
recall("spare key", dry_run=True)
{first}
result = recall("spare key")
print(json.dumps(result.to_json()))
"""
    environ = {**os.environ, "NOCTUARY_HOME": str(home)}
    return json.loads(
        subprocess.check_output([sys.executable, "-c", code], env=environ, text=True, cwd="/")
    )


def logged_fault(result: dict[str, Any]) -> str:
    assert result["memories"][0]["id"] == 101
    (text,) = (w["message"] for w in result["warnings"] if w["code"] == "access_log")
    return text


def test_a_full_disk_is_a_warning(shared_home: Path) -> None:
    """No file of that process may grow beyond a kilobyte: less than SQLite's first page."""
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))"
    assert "not logged" in logged_fault(recall_elsewhere(shared_home, limit))


@pytest.mark.parametrize("exists", [True, False])
def test_a_read_only_store_is_a_warning(shared_home: Path, exists: bool) -> None:
    log = shared_home / "house" / "access.sqlite"
    if exists:
        recall_elsewhere(shared_home, "")
        log.chmod(0o444)
    directories = (shared_home, shared_home / "house")
    for directory in directories:
        directory.chmod(0o555)
    become = f"os.setuid({NOBODY}) if os.geteuid() == 0 else None"
    try:
        assert "not logged" in logged_fault(recall_elsewhere(shared_home, become))
    finally:  # else no one but root can remove them
        for directory in directories:
            directory.chmod(0o755)


def stale_messages(store: Store, hours_ago: float) -> list[str]:
    moment = time.time() - hours_ago * 3600
    os.utime(store.paths.last_night, (moment, moment))
    result = recall("spare key")
    assert result.memories[0].id == 101
    return [w.message for w in result.warnings if w.code == "stale_snapshot"]


def test_a_missed_night_is_a_warning(plain_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for hours_ago, stale in ((0, False), (35, False), (37, True), (-9, False)):
        assert bool(stale_messages(plain_store, hours_ago)) is stale
    (said,) = stale_messages(plain_store, 100)
    assert "100 h" in said
    assert "noctuary doctor" in said
    for limit, hours_ago, stale in (("10", 11, True), ("10", 9, False), ("0", 1000, False)):
        monkeypatch.setenv("NOCTUARY_RECALL_STALE_AFTER_HOURS", limit)
        assert bool(stale_messages(plain_store, hours_ago)) is stale
    monkeypatch.delenv("NOCTUARY_RECALL_STALE_AFTER_HOURS")
    plain_store.paths.last_night.unlink()  # as before nights were noted
    assert "stale_snapshot" not in codes(recall("spare key"))


FOUND = RecalledMemory(
    id=7, content="钥匙", category="fact", tags=("a", "b"), importance=0.5,
    created_at=datetime(2026, 5, 1, tzinfo=UTC), wing=None, room=None, session_id=None, user=None,
    final_score=0.4, relevance=0.8, lexical=LegHit(1, 2.5),
    graph=GraphHit(
        score=0.1, seed_id="s-9", relation="next_turn", concept=None, evidence=("s-9", 4),
        shares={"next_turn": 0.075, "in_session": 0.025},
    ),
)  # fmt: skip


def test_a_result_survives_json() -> None:
    result = RecallResult(
        query="key", memories=(FOUND,), warnings=(RecallWarning("code", "text"),),
        phase_timing_ms={"total": 1.5}, snapshot_id="s", store="/x", profile={"fusion": "cc"},
    )  # fmt: skip
    value = json.loads(json.dumps(result.to_json()))
    (memory,) = value.pop("memories")
    assert value == {
        "query": "key", "warnings": [{"code": "code", "message": "text"}],
        "phase_timing_ms": {"total": 1.5}, "snapshot_id": "s", "store": "/x",
        "profile": {"fusion": "cc"}, "profile_used": "default", "pipeline": {},
    }  # fmt: skip
    assert memory["created_at"] == "2026-05-01T00:00:00+00:00"
    assert (memory["content"], memory["tags"]) == ("钥匙", ["a", "b"])
    assert memory["legs"] == {
        "lexical": {"rank": 1, "score": 2.5},
        "graph": {
            "score": 0.1, "seed_id": "s-9", "relation": "next_turn", "concept": None,
            "evidence": ["s-9", 4], "shares": {"next_turn": 0.075, "in_session": 0.025},
        },
    }  # fmt: skip


def test_an_empty_result_is_complete() -> None:
    assert RecallResult(query="x").to_json() == {
        "query": "x", "memories": [], "warnings": [], "phase_timing_ms": {}, "snapshot_id": None,
        "store": None, "profile": {}, "profile_used": "default", "pipeline": {},
    }  # fmt: skip


def test_the_short_form_tells_warnings_first_and_what_a_terminal_obeys_as_text() -> None:
    missing = RecallWarning("no_snapshot", "run `noctuary nightly` first")
    assert repr(RecallResult(query="key", warnings=(missing,))) == (
        "! no_snapshot: run `noctuary nightly` first\nRecallResult for 'key': 0 memories"
    )
    hostile = FOUND._replace(content="\x1b]0;owned\x07 " + "long " * 200)
    lines = repr(RecallResult(query="key", memories=(FOUND, hostile))).splitlines()
    assert lines[1] == "0.400 [7] '钥匙'"
    assert "\\x1b" in lines[2]
    assert max(map(len, lines)) < 120
    odd = FOUND._replace(id="a\x1b[2J\nb")
    said = RecallWarning("x", "two\nlines\u202e")
    lines = repr(RecallResult(query="key", memories=(odd,), warnings=(said,))).splitlines()
    assert lines[0] == "! x: two\\u000alines\\u202e"
    assert lines[2].startswith("0.400 [a\\u001b[2J\\u000ab] ")


def checks() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "noctuary-check"]


def test_a_process_that_keeps_asking_reads_every_byte_once(dense_store: Store) -> None:
    directory = dense_store.paths.snapshots / read_pointer(dense_store.paths).snapshot_id
    change_array(directory, "importance", lambda held: held[::-1])
    assert recall("spare key").memories, "a first answer looks at sizes alone"
    recall("spare key")
    for one in checks():
        one.join(20)
    third = recall("spare key")
    assert third.memories
    assert "another checksum" in said(third, "snapshot_altered")
    assert not checks(), "once is enough"
    write_tombstones(dense_store.root, read_tombstones(dense_store.root))
    assert "snapshot_altered" in codes(recall("spare key")), "it is not forgotten by opening again"


def test_a_sound_snapshot_has_no_warning(dense_store: Store) -> None:
    for _ in range(3):
        assert "snapshot_altered" not in codes(recall("spare key"))
        for one in checks():
            one.join(20)
