"""Runs that still count as running although their processes are gone.

What belongs here: closing them in Dagster's history. What does not: runs that wait (`waiting`).
"""

from __future__ import annotations

import dagster as dg

from noctuary.errors import NoctuaryError
from noctuary.work.lock import hold_lock
from pipelines.site import Site
from pipelines.waiting import is_waiting

_MESSAGE = "its process ended without a word (killed, or the machine went down)"

_IN_QUEUE = (
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
"""What the queue counts as running, so that nothing else starts."""


def close_dead_runs(instance: dg.DagsterInstance, run_id: str) -> None:
    """Mark runs of this store that still count as running: their processes held the lock once.

    Not those that wait for it.

    Args:
        instance: The store's.
        run_id: Of the run that holds the lock now.
    """
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        if run.run_id != run_id and not is_waiting(run):
            instance.report_run_failed(run, _MESSAGE)


def free_queue(site: Site) -> None:
    """Close what a dead machine left in the queue of runs; nothing where a run has the store."""
    try:
        with (
            hold_lock(site.paths.lock),
            dg.DagsterInstance.from_config(str(site.paths.dagster_home)) as instance,
        ):
            for run in instance.get_runs(dg.RunsFilter(statuses=list(_IN_QUEUE))):
                if not is_waiting(run):
                    instance.report_run_failed(run, _MESSAGE)
    except NoctuaryError:
        return
