"""Partitions: there when the store is cut, and without a trace when it is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml

from noctuary.work.lock import hold_lock
from pipelines.dead_runs import close_dead_runs, free_queue
from pipelines.definitions import build_definitions
from pipelines.resources import make_shard_resource
from pipelines.site import prepare_instance, resolve_site
from pipelines.waiting import WAITING_TAG, is_waiting, note_turn, note_waiting
from tests.pipelines.lineage import describe_lineage

LINEAGE = Path(__file__).with_name("lineage.txt")
SHARD_ASSETS = {"shard_vectors", "shard_tokens", "shard_extractions"}
UNCUT_ASSETS = 29


@pytest.fixture
def cut(home: Path, monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    monkeypatch.setenv("NOCTUARY_SHARDS_COUNT", "3")
    return build_definitions()


@pytest.mark.parametrize("count", ["0", "1"])
def test_a_store_that_is_not_cut_shows_nothing_of_it(
    count: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_SHARDS_COUNT", count)
    definitions = build_definitions()
    assert describe_lineage(definitions) == LINEAGE.read_text(encoding="utf-8")
    nodes = list(definitions.resolve_asset_graph().asset_nodes)
    assert len(nodes) == UNCUT_ASSETS
    assert [node.key for node in nodes if node.partitions_def is not None] == []
    assert {job.name for job in definitions.resolve_all_job_defs()} == {"nightly", "__ASSET_JOB"}
    assert "shard_night" not in (definitions.resources or {})


def test_a_cut_store_has_a_partitioned_asset_per_heavy_step(cut: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(cut)
    graph = cut.resolve_asset_graph()
    shards = [node for node in graph.asset_nodes if node.group_name == "shards"]
    assert {node.key.to_user_string() for node in shards} == SHARD_ASSETS
    for node in shards:
        assert node.partitions_def is not None
        assert node.partitions_def.get_partition_keys() == ["shard-000", "shard-001", "shard-002"]
        assert {key.to_user_string() for key in node.parent_keys} == {"memories"}
        assert list(node.owners) == ["team:noctuary"]
        assert node.kinds
        assert node.code_version
        assert (node.description or "").endswith(".")


def test_the_night_of_a_cut_store_is_the_whole_one_and_no_more(cut: dg.Definitions) -> None:
    keys = cut.resolve_job_def("nightly").asset_layer.executable_asset_keys
    assert len(set(keys)) == UNCUT_ASSETS
    assert not {key.to_user_string() for key in keys} & SHARD_ASSETS
    assert cut.resolve_job_def("nightly").partitions_def is None


def test_the_job_of_shards_is_what_a_backfill_runs(cut: dg.Definitions) -> None:
    job = cut.resolve_job_def("shards")
    assert {k.to_user_string() for k in job.asset_layer.executable_asset_keys} == SHARD_ASSETS
    assert job.partitions_def is not None
    assert len(job.partitions_def.get_partition_keys()) == 3


def test_loading_a_cut_store_imports_neither_ray_nor_a_heavy_library(home: Path) -> None:
    code = """
import sys
from noctuary.work.lock import hold_lock
from pipelines.dead_runs import close_dead_runs, free_queue
from pipelines.definitions import build_definitions
assert len(list(build_definitions().resolve_asset_graph().asset_nodes)) == 32
print([n for n in ("ray", "lance_ray", "dagster_ray", "torch", "lancedb") if n in sys.modules])
"""
    environment = {**os.environ, "NOCTUARY_SHARDS_COUNT": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_runs_of_a_cut_store_are_queued_and_a_configuration_that_was_edited_stays(
    home: Path,
) -> None:
    paths = resolve_site(str(home / "memory.db"), environ={"NOCTUARY_HOME": str(home)}).paths
    config = prepare_instance(paths) / "dagster.yaml"
    at_once = config.read_text("utf-8")
    assert yaml.safe_load(at_once)["run_coordinator"]["class"] == "DefaultRunCoordinator"
    prepare_instance(paths, queued=True)
    queued = yaml.safe_load(config.read_text("utf-8"))
    assert queued["run_coordinator"]["class"] == "QueuedRunCoordinator"
    assert queued["run_coordinator"]["config"]["max_concurrent_runs"] == 1
    with dg.DagsterInstance.from_config(str(paths.dagster_home)) as instance:
        assert type(instance.run_coordinator).__name__ == "QueuedRunCoordinator"
    prepare_instance(paths)
    assert config.read_text("utf-8") == at_once
    config.write_text(at_once + "# mine\n", encoding="utf-8")
    prepare_instance(paths, queued=True)
    assert config.read_text("utf-8") == at_once + "# mine\n"


def test_a_run_that_waits_is_not_taken_for_dead() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run = _run(instance)
        assert not is_waiting(run)
        note_waiting(instance, run)
        assert is_waiting(_again(instance, run))
        assert _again(instance, run).tags[WAITING_TAG] == str(os.getpid())
        note_turn(instance, run)
        assert not is_waiting(_again(instance, run))


def test_a_run_whose_process_ended_while_it_waited_is_dead() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with dg.DagsterInstance.ephemeral() as instance:
        run = _run(instance)
        instance.add_run_tags(run.run_id, {WAITING_TAG: str(ended.pid)})
        assert not is_waiting(_again(instance, run))
        assert WAITING_TAG not in _run(instance).tags


def test_a_run_that_never_waited_gets_no_tag() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        run = _run(instance)
        note_turn(instance, run)
        assert WAITING_TAG not in _again(instance, run).tags


def test_the_queue_is_freed_of_dead_runs_unless_somebody_has_the_store(
    home: Path, tmp_path: Path
) -> None:
    """A run that a power cut left open would keep every other one in the queue for ever."""
    site = resolve_site(str(tmp_path / "memory.db"), environ={"NOCTUARY_HOME": str(home)})
    prepare_instance(site.paths, queued=True)
    with dg.DagsterInstance.from_config(str(site.paths.dagster_home)) as instance:
        dead, waiting = _run(instance), _run(instance)
        note_waiting(instance, waiting)
        with hold_lock(site.paths.lock):
            free_queue(site)
        assert _again(instance, dead).status == dg.DagsterRunStatus.STARTED
        free_queue(site)
        assert _again(instance, dead).status == dg.DagsterRunStatus.FAILURE
        assert _again(instance, waiting).status == dg.DagsterRunStatus.STARTED


def test_a_night_closes_dead_runs_but_not_itself_and_none_that_waits() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        own, dead, waiting = _run(instance), _run(instance), _run(instance)
        note_waiting(instance, waiting)
        close_dead_runs(instance, own.run_id)
        found = [_again(instance, run).status.value for run in (own, dead, waiting)]
        assert found == ["STARTED", "FAILURE", "STARTED"]


def test_a_run_of_shards_marks_no_source(home: Path, tmp_path: Path) -> None:
    """The mark says what a night read: the sensor would miss a change that no night has seen."""
    site = resolve_site(str(tmp_path / "memory.db"), environ={"NOCTUARY_HOME": str(home)})
    with dg.build_resources({"shard_night": make_shard_resource(lambda: site)}) as resources:
        assert resources.shard_night.paths == site.paths
        assert site.paths.lock.exists()
        assert not site.paths.source_marker.exists()


def _run(instance: dg.DagsterInstance) -> dg.DagsterRun:
    @dg.job
    def nothing() -> None:
        pass

    return instance.create_run_for_job(nothing, status=dg.DagsterRunStatus.STARTED)


def _again(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    found = instance.get_run_by_id(run.run_id)
    assert found is not None
    return found
