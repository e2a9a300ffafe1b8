"""kill -9 at every boundary, while embedding, while publishing: recall answers, a night heals.

Healing is strict: the next night's snapshot has the digest of a night that nobody disturbed, and
nothing is left lying about.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from noctuary.core.errors import SnapshotMissingError
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.snapshot.publish import list_snapshots
from tests.e2e.byte_scan import find_texts
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, ROOT, STOPPED, Ran, kill, run, run_night, start_night
from tests.e2e.killing import (
    AFTER_THE_SWAP,
    BOUNDARIES,
    POLL_S,
    kill_at,
    kill_when,
    vectors_kept,
)
from tests.e2e.stores import Bench, add_memory, answers, editing, leftovers

QUERIES = ["boiler error", "duplicate captures of invoices", "bakery on Mondays"]
ADDED = "The bakery on Alder Street closes at two on Mondays."

# What no change to the source makes a second night do again (curation is off).
_ONLY_ON_FIRST_NIGHTS = {"query_encoder", "curation_proposals"}
PUBLISH_TRIES = 6
"""Attempts to hit the few milliseconds between installed snapshot and pointer from outside."""


@dataclass(frozen=True)
class Changed:
    """A bench whose source has changed since yesterday's snapshot."""

    bench: Bench
    yesterday: str
    answered: list[list[tuple[int | str, float]]]


def _change(source: Path) -> None:
    """Add, edit and delete, memories and turns alike, so that every stage has something to do."""
    add_memory(source, ADDED)
    with editing(source) as db:
        for category in ("!= 'turn'", "= 'turn'"):
            ids = [
                i
                for (i,) in db.execute(
                    f"SELECT id FROM memories WHERE is_sensitive = 0 AND category {category}"
                )
            ]
            db.execute("UPDATE memories SET content = content || ' Indeed.' WHERE id = ?", [ids[3]])
            db.execute("DELETE FROM memories WHERE id = ?", [ids[5]])


@pytest.fixture
def changed(small: Bench) -> Changed:
    found = Changed(small, small.serving, answers(small, QUERIES))
    _change(small.source)
    return found


@pytest.fixture(scope="module")
def undisturbed(small_night: FirstNight, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the snapshot that a night makes of the changed source when nobody kills it."""
    twin = small_night.bench.twin(tmp_path_factory.mktemp("undisturbed"))
    _change(twin.source)
    ran = run_night(twin.source, twin.store)
    assert ran.report["status"] == "published", ran.says
    return twin.manifest.digest


def _require_yesterday(changed: Changed) -> None:
    assert changed.bench.serving == changed.yesterday
    assert changed.bench.ask(QUERIES[0]).snapshot_id == changed.yesterday
    assert answers(changed.bench, QUERIES) == changed.answered


def _require_healed(bench: Bench, digest: str) -> Ran:
    ran = run_night(bench.source, bench.store)
    assert ran.code == DONE, ran.says
    assert bench.manifest.digest == digest
    assert bench.ask(QUERIES[0]).warnings == ()
    assert leftovers(bench.store) == []
    assert _run_statuses(bench) <= {"SUCCESS", "FAILURE"}
    return ran


def _run_statuses(bench: Bench) -> set[str]:
    """Return what Dagster says of the store's runs: a killed one must not count as running."""
    runs = bench.paths.dagster_home / "history" / "runs.db"
    with closing(sqlite3.connect(f"{runs.as_uri()}?mode=ro", uri=True)) as db:
        return {status for (status,) in db.execute("SELECT DISTINCT status FROM runs")}


def _die(bench: Bench, when: str, function: str, call: int = 1) -> Ran:
    script = str(ROOT / "tests" / "e2e" / "die_at.py")
    words = [str(bench.source), "--store", str(bench.store), "--json"]
    ran = run([sys.executable, script, when, function, str(call), *words], bench.store.parent)
    assert ran.code == -9, ran.says
    return ran


@pytest.mark.slow
def test_killed_while_embedding_it_resumes_where_it_stopped(
    small_night: FirstNight, tmp_path: Path
) -> None:
    """A first night: nothing serves yet, and what was embedded is not embedded again."""
    bench = Bench(small_night.bench.source, tmp_path / "store")
    killed = kill_when(bench, lambda: vectors_kept(bench.store) >= 10)
    assert killed
    kept = vectors_kept(bench.store)
    total = small_night.ran.note("memory_vectors", "texts_embedded")
    assert 10 <= kept < total, "the kill must fall into the embedding"
    asked = bench.ask(QUERIES[0])
    assert asked.memories == ()
    assert [w.code for w in asked.warnings] == ["no_snapshot"]
    with pytest.raises(SnapshotMissingError):
        read_pointer(bench.paths)
    ran = _require_healed(bench, small_night.bench.manifest.digest)
    assert ran.note("memory_vectors", "texts_embedded") == total - kept
    assert ran.note("memory_vectors", "texts_reused") == kept


def test_killed_between_install_and_pointer_yesterday_serves(changed: Changed) -> None:
    _die(changed.bench, "before", "noctuary.snapshot.publish.write_pointer")
    _, installed = list_snapshots(changed.bench.paths)
    _require_yesterday(changed)
    digest = read_manifest(changed.bench.paths.snapshots / installed).digest
    ran = _require_healed(changed.bench, digest)
    assert changed.bench.serving == installed
    assert ran.report["status"] == "published"
    assert len(list_snapshots(changed.bench.paths)) == 2, "the installed copy is used, not doubled"


@pytest.mark.slow
def test_stopped_by_ctrl_c_it_says_so(changed: Changed, undisturbed: str) -> None:
    watch = BOUNDARIES["corpus_export"]
    before = watch(changed.bench.store)
    night = start_night(changed.bench.source, changed.bench.store)
    try:
        while (now := watch(changed.bench.store)) == before or not now:
            assert night.poll() is None
            time.sleep(POLL_S)
        night.send_signal(signal.SIGINT)
        out, err = night.communicate(timeout=120)
    finally:
        kill(night)
    assert night.returncode == STOPPED, err
    assert "Traceback" not in out + err
    assert json.loads(out)["status"] == "stopped"
    _require_yesterday(changed)
    _require_healed(changed.bench, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("boundary", [b for b in BOUNDARIES if b not in _ONLY_ON_FIRST_NIGHTS])
def test_killed_at_a_boundary_of_a_night_with_changes(
    boundary: str, changed: Changed, undisturbed: str
) -> None:
    killed = kill_at(changed.bench, boundary)
    if boundary in AFTER_THE_SWAP:
        assert changed.bench.manifest.digest == undisturbed
    else:
        assert killed, "the night ended before it was killed"
        if boundary != "installed":  # the pointer may have moved before the signal came
            _require_yesterday(changed)
    assert changed.bench.ask(QUERIES[0]).memories
    _require_healed(changed.bench, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_killed_at_a_boundary_of_a_first_night(
    boundary: str, small_night: FirstNight, tmp_path: Path
) -> None:
    bench = Bench(small_night.bench.source, tmp_path / "store")
    killed = kill_at(bench, boundary)
    asked = bench.ask(QUERIES[0])
    if boundary == "installed" or boundary in AFTER_THE_SWAP:
        assert asked.memories
    else:
        assert killed, "the night ended before it was killed"
        assert asked.memories == ()
        assert [w.code for w in asked.warnings] == ["no_snapshot"]
    _require_healed(bench, small_night.bench.manifest.digest)


@pytest.mark.slow
def test_killed_from_outside_inside_publish(
    small_night: FirstNight, undisturbed: str, tmp_path: Path
) -> None:
    """Polled without a pause, several tries: at least one must fall between install and pointer."""
    hits = 0
    for attempt in range(PUBLISH_TRIES):
        bench = small_night.bench.twin(tmp_path / str(attempt))
        found = Changed(bench, bench.serving, answers(bench, QUERIES))
        _change(bench.source)
        kill_when(bench, lambda b=bench: len(list_snapshots(b.paths)) > 1, poll_s=0)
        if bench.serving == found.yesterday and len(list_snapshots(bench.paths)) == 2:
            hits += 1
            _require_yesterday(found)
        _require_healed(bench, undisturbed)
        if hits == 2:
            break
    assert hits, f"none of {PUBLISH_TRIES} kills fell into the window"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "function"),
    [
        ("before", "noctuary_assets.ingest.diff_corpora"),
        ("before", "noctuary_assets.compact.summarize_clusters"),
        ("before", "noctuary.compact.summaries.read_settled"),
        ("before", "noctuary.snapshot.publish.write_manifest"),
        ("before", "noctuary_assets.publish.store_verdict"),
        ("before", "noctuary.snapshot.publish.write_pointer"),
        ("after", "noctuary.snapshot.publish.write_pointer"),
        ("before", "noctuary.snapshot.publish.apply_retention"),
        ("before", "noctuary_assets.housekeeping.prune_content"),
        ("after", "noctuary_assets.housekeeping.prune_content"),
    ],
)
def test_killed_at_an_exact_place(
    when: str, function: str, changed: Changed, undisturbed: str
) -> None:
    _die(changed.bench, when, function)
    served = changed.bench.manifest.digest
    swapped = function.endswith(("apply_retention", "prune_content")) or when == "after"
    assert (served == undisturbed) is swapped
    assert changed.bench.ask(QUERIES[0]).memories
    _require_healed(changed.bench, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("call", [1, 3, 6, 10, 15, 25, 35])
def test_killed_while_a_file_is_written(call: int, changed: Changed, undisturbed: str) -> None:
    """Between a temporary file and its rename: the half-written file must not stay for ever."""
    _die(changed.bench, "before", "noctuary.core.files.fsync_file", call)
    _require_yesterday(changed)
    _require_healed(changed.bench, undisturbed)


@pytest.mark.slow
def test_killed_while_a_row_turns_sensitive_the_next_night_forgets_it(small: Bench) -> None:
    """The older snapshots must go even if the night that noticed did not live to say so."""
    with editing(small.source) as db:
        row_id, text = db.execute(
            "SELECT id, content FROM memories WHERE is_sensitive = 0 ORDER BY length(content) DESC"
        ).fetchone()
        db.execute("UPDATE memories SET is_sensitive = 1 WHERE id = ?", [row_id])
    assert find_texts(small.snapshot, [text])
    _die(small, "after", "noctuary_assets.ingest.export_corpus")
    ran = run_night(small.source, small.store)
    assert ran.report["status"] == "published", ran.says
    assert find_texts(small.store, [text], skip=[small.paths.encoders]) == []


@pytest.mark.slow
def test_killed_again_and_again_it_still_arrives(changed: Changed, undisturbed: str) -> None:
    """Each night gets one boundary further than the one before."""
    for boundary in BOUNDARIES:
        if boundary not in _ONLY_ON_FIRST_NIGHTS:
            kill_at(changed.bench, boundary)
            assert changed.bench.ask(QUERIES[0]).memories, boundary
    _require_healed(changed.bench, undisturbed)
