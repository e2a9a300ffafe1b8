"""Readers recall in a loop while nights publish: no error, and never a mix of two snapshots.

Every generation of the source rewrites two marker memories in one transaction. An answer that holds
both markers of one generation, under a snapshot id that shows no other generation to anybody, comes
from one snapshot.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from noctuary.snapshot.publish import list_snapshots
from tests.e2e.driver import ROOT, kill, run, run_night, start
from tests.e2e.reader_loop import QUERY
from tests.e2e.stores import Bench, add_memory, editing

MARKER = "Beacon {name}: the beacon code that is valid now is generation-{generation:04d}."
NAMES = ("north", "south")

# The access log waits 250 ms for another process, then lets the recall go on: said, but no error.
_DEGRADATIONS = {"access_log"}


@dataclass
class Watched:
    """What was published, and what the readers say."""

    published: dict[str, str] = field(default_factory=dict[str, str])
    tallies: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    @property
    def faults(self) -> list[str]:
        return [fault for tally in self.tallies for fault in tally["faults"]]

    @property
    def calls(self) -> int:
        return sum(sum(tally["calls"].values()) for tally in self.tallies)

    @property
    def warned(self) -> set[str]:
        return {code for tally in self.tallies for code in tally["warnings"]}

    @property
    def seen(self) -> dict[str, set[str]]:
        merged: dict[str, set[str]] = {}
        for tally in self.tallies:
            for snapshot_id, generations in tally["generations"].items():
                merged.setdefault(snapshot_id, set()).update(generations)
        return merged


def _write_generation(bench: Bench, generation: int) -> None:
    with editing(bench.source) as db:
        for name in NAMES:
            changed = db.execute(
                "UPDATE memories SET content = ? WHERE content LIKE ?",
                [MARKER.format(name=name, generation=generation), f"Beacon {name}:%"],
            )
            assert changed.rowcount == 1


def _publish(bench: Bench, watched: Watched, generation: int, keep: int) -> None:
    ran = run_night(bench.source, bench.store, extra={"NOCTUARY_SNAPSHOT_KEEP": str(keep)})
    assert ran.report["status"] == "published", ran.says
    watched.published[bench.serving] = f"{generation:04d}"


def _watch(bench: Bench, *, processes: int, threads: int, nights: int, keep: int) -> Watched:
    """Publish generation after generation under the eyes of processes * threads readers."""
    watched = Watched()
    for name in NAMES:
        add_memory(bench.source, MARKER.format(name=name, generation=0), importance=0.9)
    _publish(bench, watched, 0, keep)
    stop = bench.store.parent / "stop"
    words = [sys.executable, str(ROOT / "tests" / "e2e" / "reader_loop.py"), str(bench.store)]
    readers = [
        start([*words, str(threads), str(stop)], bench.store.parent) for _ in range(processes)
    ]
    try:
        for generation in range(1, nights + 1):
            _write_generation(bench, generation)
            _publish(bench, watched, generation, keep)
        stop.touch()
        watched.tallies = [_tally_of(reader) for reader in readers]
    finally:
        for reader in readers:
            if reader.poll() is None:
                kill(reader)
    return watched


def _tally_of(reader: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = reader.communicate(timeout=120)
    assert reader.returncode == 0, err
    assert err == ""
    return json.loads(out)


def _require_consistent(watched: Watched) -> None:
    assert watched.faults == []
    assert watched.warned <= _DEGRADATIONS
    assert watched.seen.keys() <= watched.published.keys()
    assert {k: v for k, v in watched.seen.items() if v != {watched.published[k]}} == {}


def test_readers_see_whole_snapshots_while_a_night_publishes(small: Bench) -> None:
    watched = _watch(small, processes=2, threads=3, nights=1, keep=2)
    _require_consistent(watched)
    assert len(watched.seen) >= 2, "the readers saw a swap"
    assert watched.calls >= 100


@pytest.mark.slow
def test_twenty_readers_see_whole_snapshots_while_six_nights_publish(small: Bench) -> None:
    """With only two snapshots kept, those that readers still hold are deleted under them."""
    watched = _watch(small, processes=5, threads=4, nights=6, keep=2)
    _require_consistent(watched)
    assert len(watched.seen) >= 6
    assert len(list_snapshots(small.paths)) == 2
    assert watched.calls >= 1_000


@pytest.mark.slow
def test_fresh_processes_see_whole_snapshots_while_a_night_publishes(small: Bench) -> None:
    """A hook is a process of its own: each one opens whatever serves at that moment."""
    watched = Watched()
    for name in NAMES:
        add_memory(small.source, MARKER.format(name=name, generation=0), importance=0.9)
    _publish(small, watched, 0, 2)
    for generation in (1, 2):
        _write_generation(small, generation)
        words = [
            "-m",
            "noctuary.cli.entry",
            "nightly",
            str(small.source),
            "--store",
            str(small.store),
            "--json",
        ]
        night = start([sys.executable, *words], small.store.parent)
        try:
            while night.poll() is None:
                _ask_in_a_process(small, watched)
        finally:
            kill(night)
        assert night.returncode == 0
        watched.published[small.serving] = f"{generation:04d}"
        _ask_in_a_process(small, watched)
    _require_consistent(watched)
    assert len(watched.seen) == 3


def _ask_in_a_process(bench: Bench, watched: Watched) -> None:
    words = ["recall", QUERY, "-k", "5", "--store", str(bench.store), "--json"]
    ran = run([sys.executable, "-m", "noctuary.cli.main", *words], Path(bench.store.parent))
    assert ran.code == 0, ran.says
    answer = ran.report
    found = sorted(
        m["content"].split("generation-")[1][:4]
        for m in answer["memories"]
        if "generation-" in m["content"]
    )
    assert len(found) == len(NAMES), answer
    watched.tallies.append(
        {
            "calls": {"process": 1},
            "generations": {answer["snapshot_id"]: found},
            "faults": [],
            "warnings": {w["code"]: 1 for w in answer["warnings"]},
        }
    )
