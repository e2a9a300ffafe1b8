"""Runs that still count as running although their processes are gone."""

from __future__ import annotations

from contextlib import suppress

import dagster as dg

from noctuary.core.errors import StoreLockedError
from noctuary.core.store import StorePaths
from noctuary.work.lock import hold_lock

_MESSAGE = "its process ended without a word (killed, or the machine went down)"


def close_dead_runs(instance: dg.DagsterInstance, run_id: str = "") -> None:
    """Mark runs of this store that still count as running: their processes held the lock once."""
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        if run.run_id != run_id:
            instance.report_run_failed(run, _MESSAGE)


def close_left_runs(paths: StorePaths) -> None:
    """Mark the dead runs of a store on which nobody works now."""
    with (
        suppress(StoreLockedError),
        hold_lock(paths.lock),
        dg.DagsterInstance.from_config(str(paths.dagster_home)) as instance,
    ):
        close_dead_runs(instance)
