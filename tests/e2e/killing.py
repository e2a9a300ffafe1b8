"""Kills a running night from outside, the moment something appears in its store."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from noctuary.work.shards import open_table
from tests.e2e.driver import NIGHT_TIMEOUT_S, kill, start_night
from tests.e2e.stores import Bench

POLL_S = 0.002
"""How soon after its appearance a boundary is noticed."""

Watch = Callable[[Path], object]
"""What to look at in a store; the night dies when it has changed and is not empty."""

STAGES = (
    "corpus_export",
    "access_statistics",
    "ltp_scores",
    "concept_graph",
    "curation_proposals",
    "promotion_proposals",
    "lexical_index",
    "query_encoder",
    "memory_vectors",
    "turn_clusters",
    "vector_tiers",
    "summaries",
    "serving_pack",
    "recall_evaluation",
    "fusion_decision",
    "abstention_calibration",
    "snapshot_candidate",
    "recall_comparison",
    "evaluation_report",
)


def stamp_of(stage: str) -> Watch:
    """Watch the stamp that a stage writes when its outputs are complete."""
    return lambda store: _identities(store / "work" / "stamps", f"{stage}.json")


def entries_of(directory: str, pattern: str = "[!.]*") -> Watch:
    """Watch what is in a directory of the store, staging directories left out."""
    return lambda store: _identities(store / directory, pattern)


def pointer(store: Path) -> object:
    """Watch the pointer to the serving snapshot."""
    return _identities(store, "CURRENT")


BOUNDARIES: dict[str, Watch] = {
    **{stage: stamp_of(stage) for stage in STAGES},
    "candidate": entries_of("candidates"),
    "verdict": entries_of("verdicts", "*.json"),
    "installed": entries_of("snapshots"),
    "pointer": pointer,
    "compaction_plan": stamp_of("compaction_plan"),
}

AFTER_THE_SWAP = frozenset({"pointer", "compaction_plan"})
"""Boundaries at which the new snapshot already serves."""


def vectors_kept(store: Path) -> int:
    """Count the vectors that a night has stored so far, whether they are in a manifest or not."""
    rows = 0
    for path in (store / "work" / "content").glob("*/[!.]*.arrow"):
        table = open_table(path)
        if pa.types.is_fixed_size_list(table.schema.field("value").type):
            rows += table.num_rows
    return rows


def kill_when(
    bench: Bench,
    has_come: Callable[[], bool],
    *,
    poll_s: float = POLL_S,
    how: signal.Signals = signal.SIGKILL,
) -> bool:
    """Run a night and end it as soon as something holds; False if it ended before."""
    process = start_night(bench.source, bench.store)
    deadline = time.monotonic() + NIGHT_TIMEOUT_S
    try:
        while not has_come():
            if process.poll() is not None:
                return False
            assert time.monotonic() < deadline, "the night hangs"
            if poll_s:
                time.sleep(poll_s)
        return process.poll() is None
    finally:
        kill(process, how)


def kill_at(bench: Bench, boundary: str) -> bool:
    """Run a night and kill it at a boundary; False if it ended before."""
    watch = BOUNDARIES[boundary]
    before = watch(bench.store)
    return kill_when(bench, lambda: bool(now := watch(bench.store)) and now != before)


def _identities(directory: Path, pattern: str) -> frozenset[tuple[str, int, int]]:
    found: set[tuple[str, int, int]] = set()
    for path in directory.glob(pattern):
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.add((path.name, stat.st_mtime_ns, stat.st_ino))
    return frozenset(found)
