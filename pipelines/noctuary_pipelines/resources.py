"""The resource `night`: one store, held while a run lasts."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager

import dagster as dg
from pydantic import Field

from noctuary.core.files import private_umask
from noctuary.work.ledger import begin_night, describe_healing, end_night, vouches_for
from noctuary.work.lock import hold_lock
from noctuary.work.stage import StageResult
from noctuary_assets.housekeeping import sweep
from noctuary_assets.night import Night
from noctuary_pipelines.dead_runs import close_dead_runs
from noctuary_pipelines.progress import choose_progress
from noctuary_pipelines.schedules import NIGHTLY_JOB
from noctuary_pipelines.site import Site, resolve_site
from noctuary_pipelines.source_versions import note_source

SOURCE_TAG = "noctuary/source"
STORE_TAG = "noctuary/store"


class NightResource(dg.ConfigurableResource[Night]):
    """Tonight's run on one store; keeps other nights out while it lasts."""

    source: str = Field(
        default="",
        description="The memory store to read: a path, or env:NAME of a database. Empty: what the "
        "settings say, else the bundled sample.",
    )
    store: str = Field(
        default="",
        description="The directory to write, or its name below home. Empty: derived from source.",
    )

    @classmethod
    def from_environment(cls) -> NightResource:
        """Return the resource that reads the variables which `make ui` sets, where they are set."""
        names = {"source": "NOCTUARY_SOURCE_PATH", "store": "NOCTUARY_STORE"}
        return cls(**{k: dg.EnvVar(name) for k, name in names.items() if os.environ.get(name)})

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator[Night]:
        """Hold the store while the run lasts."""
        with open_night(resolve_site(self.source or None, self.store or None), context) as night:
            yield night


@contextmanager
def open_night(
    site: Site,
    context: dg.InitResourceContext,
    report: Callable[[StageResult], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Generator[Night]:
    """Hold the store and say to Dagster what the run is about; without `report` its log is told."""
    log = context.log
    with hold_store(site) as (healed, tables_hold):
        if context.instance is not None and context.run is not None:
            _introduce(context.instance, context.run, site)

        def tell(line: str) -> None:
            if log is not None:
                log.info(line)
            if say is not None:
                say(line)

        night = Night(
            paths=site.paths,
            source=site.source,
            settings=site.settings,
            progress=choose_progress(log.info if log is not None and report is None else None),
            report=report or (lambda result: log.info(describe(result)) if log else None),
            say=tell,
            tables_hold=tables_hold,
        )
        if healed:
            night.say(healed)
        try:
            yield night
        finally:
            night.close()


@contextmanager
def hold_store(site: Site) -> Generator[tuple[str, bool]]:
    """Keep others out of a store and its ledger true; remove what a killed night left."""
    # Yields what was healed, as a sentence, and whether the vectors' tables are unchanged.
    paths = site.paths
    with private_umask(), hold_lock(paths.lock):
        sweep(paths)
        is_known = vouches_for(paths, paths.lance) and vouches_for(paths, paths.rotations)
        faults, stages = begin_night(paths)
        through = _last_night(site)
        try:
            yield describe_healing(faults, stages), is_known and not faults
        finally:
            end_night(paths, finished=_last_night(site) != through)


def _introduce(instance: dg.DagsterInstance, run: dg.DagsterRun, site: Site) -> None:
    """Tag a run with what it is about, note what it will read; a whole night closes dead runs."""
    tags = {SOURCE_TAG: str(site.source), STORE_TAG: str(site.paths.root)}
    instance.add_run_tags(run.run_id, tags)
    # In the instance of somebody else's project other runs are not ours to judge.
    is_own = instance.root_directory == str(site.paths.dagster_home)
    if is_own and run.job_name == NIGHTLY_JOB.name:
        close_dead_runs(instance, run.run_id)
    note_source(instance, site)


def _last_night(site: Site) -> int | None:
    path = site.paths.last_night
    return path.stat().st_mtime_ns if path.exists() else None


def describe(result: StageResult, *, counters: bool = True) -> str:
    """Return one line about a finished stage."""
    seconds = result.cost.get("wall_ms", 0.0) / 1000
    state = "unchanged" if result.reused else f"{seconds:7.1f} s"
    line = (
        f"{result.name:<22} {result.rows:>9,} {'row ' if result.rows == 1 else 'rows'}  {state:>9}"
    )
    if not counters:
        return line
    notes = {**result.facts, **result.notes}
    shown = ", ".join(
        f"{name.replace('_', ' ')} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in notes.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    )
    said = "; ".join(str(notes[name]) for name in ("note", "reason") if notes.get(name))
    told = " | ".join(part for part in (shown, said) if part)
    return f"{line}  {told}".rstrip()
