"""Dagster's own daemon with the sensor switched on: a change of the source starts one night."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from noctuary_pipelines.resources import SOURCE_TAG, STORE_TAG
from noctuary_pipelines.sensors import MARKER_TAG
from noctuary_pipelines.site import prepare_instance
from noctuary_pipelines.source_versions import read_completed_marker, read_known_marker
from noctuary_pipelines.ui import WORKSPACE
from tests.e2e.conftest import FirstNight
from tests.e2e.stores import Bench, add_memory

_PATIENCE_S = 400


def wait_for(what: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not what():
        assert process.poll() is None, "the daemon ended"
        assert time.monotonic() < end, "nothing happened"
        time.sleep(1)


def runs_of(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    return [run for run in instance.get_runs() if MARKER_TAG in run.tags]


def test_a_night_by_hand_needs_no_daemon(small_night: FirstNight) -> None:
    """The store's instance has never seen one, and the night noted what it read."""
    paths = small_night.bench.paths
    with dg.DagsterInstance.from_config(str(paths.dagster_home)) as instance:
        assert instance.get_daemon_heartbeats() == {}
        assert instance.all_instigator_state() == []
        (run,) = instance.get_runs()
        assert run.tags[SOURCE_TAG] == str(small_night.bench.source)
        assert run.tags[STORE_TAG] == str(paths.root)
        assert read_completed_marker(instance) == read_known_marker(instance) is not None


@pytest.mark.slow
def test_the_daemon_starts_one_night_per_change(small: Bench, tmp_path: Path) -> None:
    prepare_instance(small.paths)
    environment = {
        **os.environ,
        "NOCTUARY_HOME": str(tmp_path / "home"),
        "NOCTUARY_SOURCE_PATH": str(small.source),
        "NOCTUARY_STORE": str(small.store),
        "NOCTUARY_SENSOR_POLL_SECONDS": "2",
        "NOCTUARY_SENSOR_MINIMUM_MINUTES": "0",
        "DAGSTER_HOME": str(small.paths.dagster_home),
    }
    words = [sys.executable, "-m", "dagster"]
    where = ["-w", str(WORKSPACE)]
    quiet = subprocess.DEVNULL
    subprocess.run(
        [*words, "sensor", "start", "source_changed", *where],
        env=environment, cwd=small.store, stdout=quiet, stderr=quiet, timeout=240, check=True,
    )  # fmt: skip
    before = small.serving
    daemon = subprocess.Popen(
        [str(Path(sys.executable).with_name("dagster-daemon")), "run", *where],
        env=environment, cwd=small.store, stdout=quiet, stderr=quiet, start_new_session=True,
    )  # fmt: skip
    try:
        with dg.DagsterInstance.from_config(str(small.paths.dagster_home)) as instance:
            # The copy of the bench is another file: the first look asks for a night.
            wait_for(lambda: any(r.is_finished for r in runs_of(instance)), daemon)
            add_memory(small.source, "The spare key moved to the shed.")
            wait_for(lambda: small.serving != before, daemon)
            wait_for(lambda: all(r.is_finished for r in runs_of(instance)), daemon)
            time.sleep(10)
            runs = runs_of(instance)
            assert len(runs) == 2
            assert {run.status for run in runs} == {dg.DagsterRunStatus.SUCCESS}
            assert len({run.tags[MARKER_TAG] for run in runs}) == 2
        assert any("shed" in m.content for m in small.ask("where is the spare key").memories)
    finally:
        os.killpg(daemon.pid, signal.SIGTERM)
        daemon.wait(60)
