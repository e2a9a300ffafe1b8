"""One whole night of one size in a process of its own, under a limit of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.children import wait_for
from bench.datasets import CHECKOUT
from bench.measure.memory import TreeWatch, entrance, limited_memory
from noctuary.core.files import tree_bytes

COSTS = Path("work") / "costs.json"


class _Stages:
    """How many stages of a store's night are done, told by the cost records that it writes."""

    def __init__(self, store: Path) -> None:
        self._path = store / COSTS
        self._seen = read_costs(self._path)
        self._moment = self._stamp()
        self.done: list[str] = []

    def label(self) -> str:
        """Return the number of stages done: the name under which this moment's memory counts."""
        if (moment := self._stamp()) != self._moment:
            self._moment = moment
            now = read_costs(self._path)
            fresh = [name for name, cost in now.items() if self._seen.get(name) != cost]
            self._seen = now
            self.done += [name for name in fresh if name not in self.done]
        return str(len(self.done))

    def _stamp(self) -> int:
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return 0


def run_night(
    source: Path | None,
    store: Path,
    told: Mapping[str, str],
    *,
    limit_bytes: int | None = None,
    python: str = sys.executable,
) -> dict[str, Any]:
    """Run one night and return what it cost, whole and by stage.

    Args:
        source: The memory store; None for the sample.
        store: Where it writes; kept, so that a killed measurement goes on.
        told: What its environment has beside this one.
        limit_bytes: Most memory of all processes together, page cache included; None for no limit.
        python: Whose noctuary.

    Raises:
        RuntimeError: The night failed; with its own words.
    """
    memories = [] if source is None else [str(source)]
    command = [python, "-m", "noctuary.cli.entry", "nightly", *memories, "--store", str(store)]
    stages = _Stages(store)
    started = time.perf_counter()
    with limited_memory(limit_bytes) as group, tempfile.TemporaryFile() as said:
        child = subprocess.Popen(
            [*command, "--json"], cwd=CHECKOUT, env={**os.environ, **told}, stdout=said,
            preexec_fn=entrance(group),
        )  # fmt: skip
        watch = TreeWatch(child.pid, stages.label).start()
        try:
            used = wait_for(child)
        finally:
            watch.stop()
        seconds = time.perf_counter() - started
        said.seek(0)
        text = said.read().decode("utf-8", errors="replace")
        held = None if group is None else group.peak_bytes()
    if child.returncode != 0:
        raise RuntimeError(f"the night on {source} ended with {child.returncode}: {text[-2000:]}")
    report = json.loads(text)
    return {
        "status": report["status"],
        "wall_s": round(seconds, 1),
        "cpu_s": used["cpu_s"],
        # A stage that is measured forgets the peak of those before it.
        "peak_rss_bytes": max(
            [used["peak_rss_bytes"]]
            + [stage["cost"].get("peak_rss_bytes", 0) for stage in report["stages"]]
        ),
        "limit_bytes": limit_bytes if held is not None else None,
        "group_peak_bytes": held,
        **watch.peaks["whole"].to_json(),
        "store_bytes": tree_bytes(store),
        "stages": [
            _stage(stage, _peaks_of(stage["name"], stages, watch)) for stage in report["stages"]
        ],
    }


def _peaks_of(name: str, stages: _Stages, watch: TreeWatch) -> dict[str, int]:
    """Return the memory of the time before a stage was recorded; {} where no look fell into it."""
    if name not in stages.done:
        return {}
    label = str(stages.done.index(name))
    return watch.peaks[label].to_json() if label in watch.peaks else {}


def _stage(stage: dict[str, Any], peaks: dict[str, int]) -> dict[str, Any]:
    cost = stage["cost"]
    facts = {**stage["facts"], **stage["notes"]}
    return {
        "name": stage["name"],
        "rows": stage["rows"],
        "reused": stage["reused"],
        "wall_s": round(cost.get("wall_ms", 0.0) / 1000, 2),
        "cpu_s": round(cost.get("cpu_ms", 0.0) / 1000, 2),
        "driver_peak_rss_bytes": cost.get("peak_rss_bytes", 0),
        **peaks,
        "bytes_on_disk": cost.get("bytes_on_disk", 0),
        "counts": {
            k: v for k, v in facts.items() if isinstance(v, int) and not isinstance(v, bool)
        },
    }


def read_costs(path: Path) -> dict[str, Any]:
    """Return a store's cost records by stage; {} where no night has written them."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
