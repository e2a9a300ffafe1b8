"""What doctor says of the schedule, read from what a real Dagster instance writes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    ScheduleInstigatorData,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.types import DaemonHeartbeat

from noctuary.cli.store import JOB, look_at_schedule
from noctuary.core.store import StorePaths
from noctuary_pipelines.schedules import NIGHTLY_JOB
from noctuary_pipelines.site import prepare_instance

_DAY_S = 86_400


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    return StorePaths(tmp_path / "store")


@pytest.fixture
def instance(paths: StorePaths) -> Iterator[dg.DagsterInstance]:
    """The instance of a store, as a night makes it."""
    with dg.DagsterInstance.from_config(str(prepare_instance(paths))) as made:
        made.schedule_storage  # noqa: B018 (made when it is first asked for)
        yield made


def switch(instance: dg.DagsterInstance, status: InstigatorStatus) -> None:
    location = ManagedGrpcPythonEnvCodeLocationOrigin(
        LoadableTargetOrigin(module_name="noctuary_pipelines.definitions"), "noctuary"
    )
    origin = RemoteInstigatorOrigin(
        RemoteRepositoryOrigin(location, "__repository__"), "nightly_schedule"
    )
    data = ScheduleInstigatorData("0 3 * * *", time.time())
    state = InstigatorState(origin, InstigatorType.SCHEDULE, status, data)
    known = instance.get_instigator_state(state.instigator_origin_id, state.selector_id)
    if known is None:
        instance.add_instigator_state(state)
    else:
        instance.update_instigator_state(state)


def beat(instance: dg.DagsterInstance, at_s: float) -> None:
    instance.add_daemon_heartbeat(DaemonHeartbeat(at_s, "SCHEDULER", None, []))


def test_a_store_without_an_instance_is_told_by_its_age(paths: StorePaths) -> None:
    found = look_at_schedule(paths)
    assert found.level == "ok"
    assert "age tells" in found.message


def test_off_is_told_on_needs_a_daemon(paths: StorePaths, instance: dg.DagsterInstance) -> None:
    found = look_at_schedule(paths)
    assert (found.level, found.message[:14]) == ("warn", "off in Dagster")
    assert "cron" in found.remedy
    switch(instance, InstigatorStatus.RUNNING)
    assert "never" in look_at_schedule(paths).message
    now_s = time.time()
    beat(instance, now_s - 7200)
    found = look_at_schedule(paths, now_s)
    assert (found.level, "2.0 h ago" in found.message) == ("warn", True)
    beat(instance, now_s - 10)
    assert look_at_schedule(paths, now_s).level == "ok"
    switch(instance, InstigatorStatus.STOPPED)
    assert look_at_schedule(paths).message.startswith("off in Dagster")
    (paths.dagster_home / "schedules" / "schedules.db").write_bytes(b"no database" * 100)
    found = look_at_schedule(paths)
    assert (found.level, "cannot be read" in found.message) == ("warn", True)
    assert found.remedy


def test_nights_that_something_else_starts(paths: StorePaths, instance: dg.DagsterInstance) -> None:
    assert NIGHTLY_JOB.name == JOB
    now_s = time.time()
    for job, days, status in (
        (JOB, 0.1, "SUCCESS"), (JOB, 0.2, "SUCCESS"), (JOB, 1.5, "FAILURE"),
        ("other", 1.5, "SUCCESS"), (JOB, 9.5, "SUCCESS"),
    ):  # fmt: skip
        add_run(paths, job, now_s - days * _DAY_S, status)
    assert look_at_schedule(paths, now_s).level == "warn"  # one day only
    add_run(paths, JOB, now_s - 1.4 * _DAY_S, "SUCCESS")
    found = look_at_schedule(paths, now_s)
    assert (found.level, "2 of the last 3 days" in found.message) == ("ok", True)


def add_run(paths: StorePaths, job: str, end_s: float, status: str) -> None:
    database = paths.dagster_home / "history" / "runs.db"
    with closing(sqlite3.connect(database)) as runs, runs:
        runs.execute(
            "INSERT INTO runs (run_id, pipeline_name, status, end_time, run_body) "
            "VALUES (?, ?, ?, ?, '{}')",
            (f"{job}-{end_s}", job, status, end_s),
        )
