"""A night without changes does nothing, says so, and touches nothing that serves."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest

from noctuary.core.settings import EncoderSettings, EvaluationSettings, ScheduleSettings, Settings
from noctuary.core.store import record_night
from noctuary.recall.api import recall
from noctuary.work.ledger import end_night
from noctuary.work.stage import FULL_LOOK_S
from noctuary_assets.publish import snapshot
from noctuary_pipelines.quiet import keep_state, look, read_inputs
from noctuary_pipelines.schedules import nightly_schedule
from noctuary_pipelines.site import Site, resolve_site
from tests.e2e.driver import DONE, environment, run_night
from tests.e2e.stores import CANARIES, Bench, copy_store, fingerprint_tree, leftovers


def test_nothing_is_computed_and_nothing_is_published(small: Bench) -> None:
    # Yesterday's recalls change the statistics, not the snapshot.
    assert recall("heating", store=small.store).memories
    before, pointer = fingerprint_tree(small.paths.snapshots), small.paths.current.stat()
    exits = (small.paths.work / "stamps" / "exit_thresholds.json").stat()
    ran = run_night(small.source, small.store)
    assert ran.code == DONE, ran.says
    assert ran.report["status"] == "unchanged"
    assert "nothing was published" in ran.report["message"]
    computing = ("memory_vectors", "lexical_index", "concept_graph", "summaries", "vector_tiers")
    assert [ran.stage(name)["notes"] for name in computing] == [{}] * len(computing)
    assert ran.stage("access_statistics")["facts"]["retrievals"] == 10
    recomputed = {s["name"] for s in ran.report["stages"] if not s["reused"]}
    # Days pass and plans are undone, so the plan is made anew each night; it touches nothing else.
    assert recomputed == {"access_statistics", "ltp_scores", "compaction_plan"}
    assert ran.note("ltp_scores", "ltp_updated") == 10
    assert fingerprint_tree(small.paths.snapshots) == before
    # A stamp is replaced when its stage runs.
    assert (small.paths.work / "stamps" / "exit_thresholds.json").stat().st_ino == exits.st_ino
    after = small.paths.current.stat()
    assert (after.st_mtime_ns, after.st_ino) == (pointer.st_mtime_ns, pointer.st_ino)
    assert leftovers(small.store) == []


def test_a_person_reads_it_even_where_the_store_was_moved(small: Bench) -> None:
    """Nothing in a store depends on where it lies; what a killed night left is swept on the way."""
    moved = copy_store(small.store, small.store.parent / "moved")
    scraps = [moved / ".CURRENT.{}.tmp", moved / "work" / "stamps" / ".summaries.json.{}.tmp"]
    for scrap in scraps:
        for pid in (_dead_process(), os.getpid()):
            Path(str(scrap).format(pid)).write_text("half a fi")
    ran = run_night(small.source, moved, "--")
    assert sorted(moved.rglob("*.tmp")) == sorted(Path(str(s).format(os.getpid())) for s in scraps)
    assert ran.code == DONE, ran.says
    assert f"nothing changed: snapshot {small.serving} keeps serving" in ran.out
    assert "nothing was published" in ran.out
    assert ran.err == ""
    assert all(canary not in ran.says for canary in CANARIES)


def test_where_nothing_is_new_dagster_is_not_even_loaded(small: Bench) -> None:
    """The next process that loads Dagster tells it that a night looked."""
    whole = run_night(small.source, small.store)  # a copied store is looked at whole
    assert whole.report["status"] == "unchanged"
    listing = {"PYTHONPROFILEIMPORTTIME": "1"}  # to standard error
    small.paths.last_night.unlink()
    before = fingerprint_tree(small.paths.snapshots)
    for _ in range(2):
        quiet = run_night(small.source, small.store, extra=listing, fresh=True)
        assert quiet.code == DONE, quiet.says
        assert "noctuary_pipelines" in quiet.err
        assert "dagster" not in quiet.err
        assert (quiet.report["status"], quiet.report["stages"]) == ("unchanged", [])
        assert quiet.report["message"] == whole.report["message"]
    assert small.paths.last_night.is_file(), "it counts as a night"
    assert fingerprint_tree(small.paths.snapshots) == before

    small.paths.merges.write_text("", encoding="utf-8")
    again = run_night(small.source, small.store).report
    assert (again["status"], len(again["stages"])) == ("unchanged", len(whole.report["stages"]))
    home = str(small.paths.dagster_home)
    with dg.DagsterInstance.from_config(home) as instance:
        events = instance.fetch_materializations(snapshot.key, limit=10).records
    told = [e.asset_materialization for e in events if e.asset_materialization]
    looks = [m for m in told if "looked_at" in m.metadata]
    assert len(looks) == 2
    # Else the UI calls the snapshot unsynced: "has a new dependency on release".
    before = next(m for m in told[told.index(looks[0]) :] if m not in looks)
    assert all(m.tags == before.tags for m in looks)


def test_whatever_changed_asks_for_a_whole_night(
    small: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(small.store.parent).items():
        monkeypatch.setenv(name, value)
    site = resolve_site(str(small.source), str(small.store))

    def settle() -> None:
        """Take what is there for what a night left."""
        record_night(small.paths)
        end_night(small.paths, finished=True)
        keep_state(site, read_inputs(site), [])

    settle()
    assert look(site)
    schedule = nightly_schedule(ScheduleSettings(), lambda: site)
    home = str(small.paths.dagster_home)
    with dg.DagsterInstance.from_config(home) as db, dg.build_schedule_context(db) as context:
        assert (
            schedule.evaluate_tick(context).skip_message == "nothing changed since the last night"
        )
        (told,) = db.fetch_materializations(snapshot.key, limit=1).records
        assert told.asset_materialization is not None
        assert "looked_at" in told.asset_materialization.metadata
    changed = Settings(evaluation=EvaluationSettings(exact_queries=9))
    assert not look(Site(site.home, site.source, site.paths, changed))
    model = small.store.parent / "model" / "1_Pooling" / "config.json"
    model.parent.mkdir(parents=True)
    other = Settings(encoder=EncoderSettings(model=str(model.parents[1])))
    model.write_text("{}")
    before = read_inputs(Site(site.home, site.source, site.paths, other))
    model.write_text("{ }")
    assert before is not None
    assert before != read_inputs(Site(site.home, site.source, site.paths, other))
    kept = json.loads(small.paths.quiet.read_text(encoding="utf-8"))
    small.paths.quiet.write_text(json.dumps({**kept, "whole_s": time.time() - FULL_LOOK_S}))
    assert not look(site), "everything is read once in a while"
    for name, change in _CHANGES.items():
        settle()
        assert look(site), f"after {name}"
        change(small)
        assert not look(site), name
    with dg.DagsterInstance.from_config(home) as db, dg.build_schedule_context(db) as context:
        assert schedule.evaluate_tick(context).run_requests


def _edit_source(bench: Bench) -> None:
    with closing(sqlite3.connect(bench.source)) as db, db:
        db.execute("UPDATE memories SET importance = 0.9 WHERE rowid = 1")


def _damage(path: Path) -> None:
    """Flip a bit, and leave name, size and time of writing as they were."""
    times, raw = path.stat(), bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


_CHANGES: dict[str, Callable[[Bench], object]] = {
    "a row of the source": _edit_source,
    "labels beside it": lambda b: (b.source.parent / "queries.jsonl").write_text(""),
    "names that are merged": lambda b: b.paths.merges.write_text(""),
    "a recall that was logged": lambda b: recall("heating", store=b.store),
    "a damaged artifact": lambda b: _damage(b.paths.work / "corpus" / "memories.parquet"),
    "a ledger that is gone": lambda b: b.paths.root.joinpath("ledger.json").unlink(),
    "a damaged snapshot": lambda b: _damage(next(b.snapshot.glob("*.sqlite"))),
}


def _dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
