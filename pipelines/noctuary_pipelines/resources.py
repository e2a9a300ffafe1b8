"""The resources: `night`, one store that is held while a run lasts, and `workers`, its Ray."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field
from sqlalchemy.exc import SQLAlchemyError

from noctuary.core.errors import ConfigError, NoctuaryError, StoreLockedError
from noctuary.core.files import private_umask
from noctuary.core.settings import RunnerSettings, Settings
from noctuary.core.sqlite import WAIT_S
from noctuary.core.store import find_home
from noctuary.snapshot.forget import finish_left
from noctuary.work.ledger import begin_night, describe_healing, end_night, vouches_for
from noctuary.work.lock import hold_lock
from noctuary.work.stage import StageResult
from noctuary_assets.housekeeping import sweep
from noctuary_assets.night import Night
from noctuary_pipelines.progress import choose_progress
from noctuary_pipelines.quiet import keep_state, read_inputs, report_looks
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
        "settings say, else the own store, else the bundled sample.",
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
    log, instance, run = context.log, context.instance, context.run
    with hold_store(site) as (healed, tables_hold):
        inputs = read_inputs(site)
        if instance is not None and run is not None:
            _introduce(instance, run, site)
        site.paths.quiet.unlink(missing_ok=True)

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
    if instance is not None and run is not None and _is_through(instance, run):
        keep_state(site, inputs, night.results)


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
            is_through = _last_night(site) != through
            end_night(paths, finished=is_through)
            if is_through:
                # What it leaves undone stays pending, and doctor says so: the night is through.
                with suppress(NoctuaryError, OSError, sqlite3.Error):
                    finish_left(paths)


def _introduce(instance: dg.DagsterInstance, run: dg.DagsterRun, site: Site) -> None:
    """Tag a run with what it is about, note what it will read; a whole night tidies older runs."""
    tags = {SOURCE_TAG: str(site.source), STORE_TAG: str(site.paths.root)}
    instance.add_run_tags(run.run_id, tags)
    # In the instance of somebody else's project other runs are not ours to judge.
    is_own = instance.root_directory == str(site.paths.dagster_home)
    if is_own and run.job_name == NIGHTLY_JOB.name:
        close_dead_runs(instance, run.run_id)
        with suppress(SQLAlchemyError, sqlite3.Error, OSError):
            drop_old_runs(instance)  # what stays, the next night drops
    report_looks(instance, site)
    note_source(instance, site)


def _is_through(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Say whether the run is a whole night of which no step failed."""
    whole = run.job_name == NIGHTLY_JOB.name and not run.asset_selection
    return whole and not instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)


def _last_night(site: Site) -> int | None:
    path = site.paths.last_night
    return path.stat().st_mtime_ns if path.exists() else None


def describe(result: StageResult, *, counters: bool = True) -> str:
    """Return one line about a finished stage."""
    wall_s, cpu_s = (result.cost.get(name, 0.0) / 1000 for name in ("wall_ms", "cpu_ms"))
    state = "unchanged" if result.reused else f"{wall_s:7.1f} s {cpu_s:7.1f} s CPU"
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


# Runs that still count as running although their processes are gone, and runs of long ago.

KEPT_RUNS = 30  # finished ones, 0.9 to 1.4 MB each: every night reads all of Dagster's files

_FINISHED = [
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
]
_DROP_RUNLESS = """
DELETE FROM event_logs WHERE run_id = '' AND id NOT IN (
    SELECT id FROM event_logs WHERE run_id = '' ORDER BY id DESC LIMIT ?
)
"""
_MESSAGE = "its process ended without a word (killed, or the machine went down)"


def close_dead_runs(instance: dg.DagsterInstance, run_id: str = "") -> None:
    """Mark runs of this store that still count as running: their processes held the lock once."""
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        if run.run_id != run_id:
            instance.report_run_failed(run, _MESSAGE)


def drop_old_runs(instance: dg.DagsterInstance, keep: int = KEPT_RUNS) -> None:
    """Forget finished runs but the newest; Dagster itself keeps them for good."""
    for run in instance.get_runs(dg.RunsFilter(statuses=_FINISHED))[keep:]:
        instance.delete_run(run.run_id)
    # What that leaves: rows of two tables, the file of a run's events, empty, and the events that
    # belong to no run (`note_source`), which have a file without a name. The files go last, so that
    # the next night finds what a kill leaves. They are listed before the runs are: the file of a
    # run that begins meanwhile stays.
    runs = Path(instance.root_directory) / "history" / "runs"
    files = [(path.name.partition(".")[0], path) for path in runs.glob("*.db*")]
    known = {"", "index", *(run.run_id for run in instance.get_runs())}
    gone = [(run_id, path) for run_id, path in files if run_id not in known]
    of_runs = [(run_id,) for run_id, _ in gone]
    for path, sql, values in (
        (runs.with_suffix(".db"), "DELETE FROM run_tags WHERE run_id = ?", of_runs),
        (runs / "index.db", "DELETE FROM asset_check_executions WHERE run_id = ?", of_runs),
        (runs / "index.db", _DROP_RUNLESS, [(keep,)]),
        (runs / ".db", _DROP_RUNLESS, [(keep,)]),
    ):
        if path.exists():
            with closing(sqlite3.connect(path, timeout=WAIT_S)) as db, db:
                db.executemany(sql, values)
    for _, path in gone:
        path.unlink(missing_ok=True)


def close_left_runs(site: Site) -> None:
    """Mark the dead runs of a store on which nobody works now, and tell of nights that looked."""
    with (
        suppress(StoreLockedError),
        hold_lock(site.paths.lock),
        dg.DagsterInstance.from_config(str(site.paths.dagster_home)) as instance,
    ):
        close_dead_runs(instance)
        report_looks(instance, site)


# The resource `workers`: a Ray for the assets that ask for it, where the settings say so.

RAY = "ray"


@dg.resource(description="Who runs the heavy steps: processes of this machine, or Ray.")
def workers(context: dg.InitResourceContext) -> Iterator[Any]:
    """None where `runner.kind` is "local": the night starts processes when it has work for them.

    Where it is "ray", dagster-ray's resource, up for the runs whose assets ask for it and down with
    them.
    """
    settings = Settings.load(home=find_home()).runner
    if settings.kind != RAY:
        yield None
        return
    with open_ray(settings).yield_for_execution(context) as ray:
        yield ray


def open_ray(settings: RunnerSettings) -> Any:
    """Return a `dagster_ray.RayResource` that connects as noctuary's own runner does."""
    if importlib.util.find_spec("dagster_ray") is None:
        raise ConfigError(
            'runner.kind is "ray" and dagster_ray is not installed: '
            "pip install 'noctuary[ray]', or set runner.kind to \"local\""
        )
    from noctuary.work.ray import RayCluster

    cluster = RayCluster(settings)
    library: Any = importlib.import_module("dagster_ray")

    class NightRay(library.RayResource):
        """A Ray of this machine, or one that is there; both exist as soon as they answer."""

        @property
        def host(self) -> str:
            return settings.address or "127.0.0.1"

        @property
        def ray_address(self) -> str:
            return settings.address or "local"

        @property
        def name(self) -> str:
            return f"Ray at {settings.address}" if settings.address else "Ray of this machine"

        @property
        def created(self) -> bool:
            return True

        @property
        def ready(self) -> bool:
            return True

        def connect(self, context: Any) -> None:
            cluster.connect()

        def on_connect(self, context: Any) -> None:
            context.log.info(f"{self.name}: {cluster.workers()} workers")

        def delete(self, context: Any) -> None:
            cluster.close()

    return NightRay()
