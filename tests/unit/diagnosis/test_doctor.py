from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.cli.store import Finding, examine
from noctuary.core import store as layout
from noctuary.core.files import remove_tree
from noctuary.core.manifest import read_pointer
from noctuary.embed.lean import HEADER_FILE, WEIGHTS_FILE
from noctuary.recall.api import recall
from noctuary.snapshot.publish import CheckResult, store_verdict
from tests.support.lean import write_encoder
from tests.support.store import Store, household


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


def test_every_finding_that_is_not_ok_says_what_to_do_or_why_it_is_so(
    dense_store: Store,
) -> None:
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
