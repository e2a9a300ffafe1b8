"""A second night without changes does nothing, says so, and touches nothing that serves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from noctuary.recall.api import recall
from tests.e2e.driver import DONE, run_night
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


def _dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid
