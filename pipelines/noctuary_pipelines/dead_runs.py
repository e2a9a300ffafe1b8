"""Runs that still count as running although their processes are gone."""

from __future__ import annotations

import dagster as dg

_MESSAGE = "its process ended without a word (killed, or the machine went down)"


def close_dead_runs(instance: dg.DagsterInstance, run_id: str) -> None:
    """Mark runs of this store that still count as running: their processes held the lock once.

    Args:
        instance: The store's.
        run_id: Of the run that holds the lock now.
    """
    for run in instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])):
        if run.run_id != run_id:
            instance.report_run_failed(run, _MESSAGE)
