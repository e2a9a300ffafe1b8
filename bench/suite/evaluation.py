"""Asking every arm of a set: a finished run goes to its file at once, a current one is reused."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bench.arms import list_arms
from bench.arms.base import Arm, SearchScope, SetContext
from bench.suite.cache import FinishedRun, read_finished, run_path, write_finished
from bench.suite.keys import RANKING_CODE, code_digest, run_key
from bench.suite.loading import LoadedSet
from bench.suite.plan import ABSTAINING, HEADLINE, PLAN
from noctuary.core.errors import ConfigError
from noctuary.core.types import SILENT, Progress
from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import run_retriever
from noctuary.recall.engine import Recaller


@dataclass(frozen=True, slots=True)
class Part:
    """Queries that some arms are asked together.

    Attributes:
        name: "all", "wing" or "unanswerable": the scope's name in files and tables.
        search: Whether the arms search everything or the query's wing.
        queries: What is asked.
        arms: Names of the arms; None means all of them.
    """

    name: str
    search: SearchScope
    queries: Sequence[Query]
    arms: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class EvaluatedSet:
    """Everything that was found out about a set by asking.

    Attributes:
        catalogue: The arms by name.
        runs: By part, then by arm.
    """

    catalogue: Mapping[str, Arm]
    runs: Mapping[str, Mapping[str, FinishedRun]]

    @property
    def keys(self) -> dict[str, dict[str, str]]:
        """The key of every run."""
        return {
            part: {arm: finished.key for arm, finished in runs.items()}
            for part, runs in self.runs.items()
        }

    @property
    def seconds(self) -> float:
        """Wall time of all runs, whenever they were made."""
        return sum(run.seconds for part in self.runs.values() for run in part.values())


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """How a set is asked.

    Attributes:
        arms: Globs; an arm that none matches is not run, but kept where its run is current.
        reranker: Path of a cross-encoder, or None.
        progress: Told of every finished query.
        log: Gets one line per finished arm.
    """

    arms: Sequence[str] = ("*",)
    reranker: str | None = None
    progress: Progress = SILENT
    log: Callable[[str], object] = field(default=print)


def parts_of(loaded: LoadedSet) -> list[Part]:
    """Return what is asked of a set: everything, and where it has them wings and unanswerables."""
    parts = [Part("all", "all", loaded.queries)]
    if loaded.has_wings:
        parts.append(Part("wing", "wing", loaded.queries, HEADLINE))
    if loaded.unanswerable:
        parts.append(Part("unanswerable", "all", loaded.unanswerable, ABSTAINING))
    return parts


def evaluate_set(
    loaded: LoadedSet, store: Path, runs: Path, options: EvaluationOptions
) -> EvaluatedSet:
    """Ask every arm that has no current run, over the store's serving snapshot.

    Args:
        loaded: The set.
        store: A store whose snapshot was built from it.
        runs: Directory of finished runs.
        options: Which arms, and who is told.

    Raises:
        StoreError: If the store has no snapshot that opens.
        ConfigError: If the globs name no arm and no arm has a current run.
    """
    recaller = Recaller.open(store)
    context = SetContext(
        dataset=loaded.dataset,
        rows=loaded.rows,
        recaller=recaller,
        scope="all",
        reranker=options.reranker,
    )
    common = {
        "snapshot": recaller.reader.manifest.digest,
        "queries": loaded.queries_digest(),
        "code": code_digest(RANKING_CODE),
        "reranker": options.reranker,
        "depth": PLAN.depth,
    }
    found: dict[str, dict[str, FinishedRun]] = {}
    catalogue: dict[str, Arm] = {}
    for part in parts_of(loaded):
        arms = list_arms(replace(context, scope=part.search))
        if part.name == "all":
            catalogue = {arm.name: arm for arm in arms}
        chosen = [arm for arm in arms if part.arms is None or arm.name in part.arms]
        found[part.name] = _ask_part(loaded.name, part, chosen, runs, common, options)
    if not found["all"]:
        raise ConfigError(
            f"{' '.join(options.arms)} names no arm of {loaded.name}; there are "
            f"{', '.join(catalogue)}"
        )
    return EvaluatedSet(catalogue, found)


def _ask_part(
    name: str,
    part: Part,
    arms: Sequence[Arm],
    runs: Path,
    common: Mapping[str, Any],
    options: EvaluationOptions,
) -> dict[str, FinishedRun]:
    found: dict[str, FinishedRun] = {}
    for number, arm in enumerate(arms, start=1):
        key = run_key(**common, part=part.name, arm=arm.name, settings=arm.settings)
        path = run_path(runs, part.name, arm.name)
        finished = read_finished(path, key)
        if finished is None:
            if not any(fnmatch.fnmatchcase(arm.name, glob) for glob in options.arms):
                continue
            label = f"{name} {part.name} {number}/{len(arms)} {arm.name}"
            finished = ask_arm(arm, part.queries, options.progress, label, key)
            write_finished(path, finished)
            options.log(f"{label}: {finished.seconds:.1f} s")
        found[arm.name] = finished
    return found


def ask_arm(
    arm: Arm,
    queries: Sequence[Query],
    progress: Progress = SILENT,
    label: str = "evaluate",
    key: str = "",
) -> FinishedRun:
    """Make an arm and ask it every query; the time includes making it."""
    started = time.perf_counter()
    retriever = arm.make()
    run = run_retriever(
        retriever,
        queries,
        replace(PLAN, timed=arm.timed),
        name=arm.name,
        progress=_Labelled(progress, label),
    )
    warnings: Mapping[str, int] = getattr(retriever, "warnings", {})
    return FinishedRun(key, run, time.perf_counter() - started, dict(sorted(warnings.items())))


@dataclass(frozen=True, slots=True)
class _Labelled:
    """Passes progress on under the arm's own name, so that a bar says what is running."""

    to: Progress
    label: str

    def update(self, task: str, done: int, total: int) -> None:
        """Pass a report on."""
        del task
        self.to.update(self.label, done, total)
