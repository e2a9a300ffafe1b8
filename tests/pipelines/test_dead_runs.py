"""Runs of a store that still count as running although their processes are gone."""

from __future__ import annotations

import dagster as dg

from noctuary_pipelines.resources import close_dead_runs


def test_a_night_closes_dead_runs_but_not_itself() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        own, dead = _run(instance), _run(instance)
        close_dead_runs(instance, own.run_id)
        found = [_again(instance, run).status.value for run in (own, dead)]
        assert found == ["STARTED", "FAILURE"]


def _run(instance: dg.DagsterInstance) -> dg.DagsterRun:
    @dg.job
    def nothing() -> None:
        pass

    return instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED)


def _again(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found
