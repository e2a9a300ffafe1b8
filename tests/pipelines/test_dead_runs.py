"""Runs of a store that still count as running although their processes are gone."""

from __future__ import annotations

import dagster as dg

from noctuary_pipelines.resources import close_dead_runs


def test_a_night_closes_dead_runs_but_not_itself() -> None:
    @dg.job
    def nothing() -> None:
        pass

    with dg.DagsterInstance.ephemeral() as instance:
        started = dg.DagsterRunStatus.STARTED
        own, dead = (instance.create_run_for_job(nothing, status=started) for _ in range(2))
        close_dead_runs(instance, own.run_id)
        found = [instance.get_run_by_id(run.run_id) for run in (own, dead)]
        assert [run.status.value for run in found if run] == ["STARTED", "FAILURE"]
