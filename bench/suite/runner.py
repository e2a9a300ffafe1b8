"""The order of the suite's work: while one set is evaluated, the next set's night runs."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.measure.night import read_costs
from bench.results import write_result
from bench.suite.evaluation import EvaluationOptions, evaluate_set
from bench.suite.kept import write_kept
from bench.suite.loading import LoadedSet
from bench.suite.night import NightRecord, build_store
from bench.suite.plan import JOBS, SuitePaths
from bench.suite.plots import write_plot
from bench.suite.result import describe_result, is_current, keep
from bench.suite.scoring import score_set
from bench.suite.seconds import Ledger
from noctuary.core.errors import NoctuaryError
from noctuary.core.files import remove_tree
from noctuary.core.store import StorePaths

_MS = 1000.0


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """One invocation of the suite.

    Attributes:
        paths: Where everything lies.
        ledger: What each step takes.
        options: Which arms, and who is told.
        jobs: 1: a night, then its evaluation; 2: the next night meanwhile.
        fresh: Throw away stores and runs of the sets first.
    """

    paths: SuitePaths
    ledger: Ledger
    options: EvaluationOptions = field(default_factory=EvaluationOptions)
    jobs: int = JOBS
    fresh: bool = False

    def work_through(self, sets: Sequence[LoadedSet]) -> dict[str, str]:
        """Build, ask and score every set; return why some could not be, by name."""
        faults: dict[str, str] = {}
        if self.fresh:
            for loaded in sets:
                self._forget(loaded.name)
        with self._nights(sets) as nights:
            for loaded, night in zip(sets, nights, strict=True):
                try:
                    self._measure(loaded, night.result())
                except NoctuaryError as error:
                    faults[loaded.name] = str(error)
        return faults

    @contextmanager
    def _nights(self, sets: Sequence[LoadedSet]) -> Generator[Iterator[Future[NightRecord]]]:
        """Yield the nights of the sets in order, each started when the one before it has ended."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            if self.jobs == 1:
                yield (pool.submit(self._night, loaded) for loaded in sets)
                return
            waiting = [pool.submit(self._night, loaded) for loaded in sets]
            try:
                yield iter(waiting)
            finally:
                # After a fault of ours or Ctrl-C no further night is begun.
                for night in waiting:
                    night.cancel()

    def _night(self, loaded: LoadedSet) -> NightRecord:
        store, log = self.paths.store(loaded.name), self.paths.log(loaded.name)
        record = build_store(loaded.dataset.directory.absolute(), store, log)
        self.options.log(f"{loaded.name}: night {record.status} in {record.seconds:.1f} s")
        return record

    def _measure(self, loaded: LoadedSet, night: NightRecord) -> None:
        name, store = loaded.name, self.paths.store(loaded.name)
        evaluated = evaluate_set(loaded, store, self.paths.runs(name), self.options)
        seconds = self._night_seconds(name, night)
        self.ledger.record(name, "evaluate", evaluated.seconds)
        if is_current(self.paths.result(name), evaluated):
            self.options.log(f"{name}: nothing to do")
            return
        started = time.perf_counter()
        kept = keep(loaded, evaluated)
        document = describe_result(loaded, store, evaluated, {**asdict(night), "seconds": seconds})
        document |= score_set(kept, loaded, document["arms"])
        write_kept(self.paths.kept(name), kept)
        write_plot(self.paths.plot(name), document)
        write_result(self.paths.result(name), document)
        self.ledger.record(name, "statistics", time.perf_counter() - started)
        self.options.log(f"{name}: {summary_of(document)}")

    def _night_seconds(self, name: str, night: NightRecord) -> float:
        """Record what the night took that built the store, whichever invocation that was."""
        if night.status == "published":
            self.ledger.record(name, "night", night.seconds)
        elif not self.ledger.has(name, "night"):
            # The store was built outside the suite: its own cost records are the next best.
            costs = read_costs(StorePaths(self.paths.store(name)).costs).values()
            self.ledger.record(name, "night", sum(c.get("wall_ms", 0.0) for c in costs) / _MS)
        return self.ledger.sets[name]["night"]

    def _forget(self, name: str) -> None:
        store = StorePaths(self.paths.store(name))
        # Only what a night has made is ever removed.
        if store.root.is_dir() and store.snapshots.is_dir():
            remove_tree(store.root)
        remove_tree(self.paths.runs(name))
        self.ledger.forget(name)


def summary_of(document: Mapping[str, Any]) -> str:
    """Return one line about a set: the headline arms' recall@10."""
    reports = document["scopes"]["all"]["reports"]
    shown = ("fts_seed", "hybrid_seed", "noctuary", "noctuary_decided")
    found = [
        f"{name} {reports[name]['overall']['recall@10']['mean']:.3f}"
        for name in shown
        if name in reports
    ]
    return f"R@10 {', '.join(found)} (load {os.getloadavg()[0]:.1f})"
