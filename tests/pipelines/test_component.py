"""`NightlyStore` in somebody else's Dagster project, as its YAML says."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from noctuary.recall.api import recall
from noctuary_pipelines import NightlyStore
from noctuary_pipelines.definitions import build_definitions
from tests.e2e.stores import build_small_source

# Dagster's own loader of components uses what is in beta: code references, owners of sensors. That
# we use nothing of that kind is what the tests beside this one see.
pytestmark = pytest.mark.filterwarnings("ignore::dagster_shared.utils.warnings.BetaWarning")

EVERY_HOUR = "0 * * * *"


def load(source: Path, store: Path) -> dg.Definitions:
    """Return what Dagster makes of the component's YAML in a project."""
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(
            component_cls=NightlyStore,
            defs_path="memories",
            defs_yaml_contents={
                "type": "noctuary_pipelines.NightlyStore",
                "attributes": {"source": str(source), "store": str(store), "cron": EVERY_HOUR},
            },
        )
        with sandbox.load_component_and_build_defs(defs_path=folder) as (component, defs):
            assert isinstance(component, NightlyStore)
            return defs


@dg.asset
def anothers() -> None:
    """An asset of the project that is not ours."""


def test_a_project_gets_assets_job_schedule_and_sensor(home: Path, tmp_path: Path) -> None:
    defs = dg.Definitions.merge(load(tmp_path / "a.db", tmp_path), dg.Definitions([anothers]))
    dg.Definitions.validate_loadable(defs)
    ours = build_definitions().resolve_asset_graph()
    graph = defs.resolve_asset_graph()
    assert graph.get_all_asset_keys() == ours.get_all_asset_keys() | {anothers.key}
    assert graph.asset_check_keys == ours.asset_check_keys
    schedule = defs.resolve_schedule_def("nightly_schedule")
    assert (schedule.cron_schedule, schedule.job_name) == (EVERY_HOUR, "nightly")
    assert defs.resolve_sensor_def("source_changed").job_name == "nightly"
    job = defs.resolve_job_def("nightly")
    assert job.executor_def is dg.in_process_executor, "a step in its own process would be locked"
    chosen = job.asset_layer.executable_asset_keys
    assert chosen == ours.get_all_asset_keys() - {dg.AssetKey("memory_store")}
    assert not list(home.iterdir()), "loading makes nothing"


def test_the_registry_of_dg_finds_it() -> None:
    (found,) = [
        point.load()
        for point in entry_points(group="dagster_dg_cli.registry_modules")
        if point.name == "noctuary_pipelines"
    ]
    assert "NightlyStore" in dir(found)
    assert found.NightlyStore is NightlyStore


def test_a_mistake_in_the_yaml_is_said(home: Path, tmp_path: Path) -> None:
    with pytest.raises(dg.DagsterInvalidDefinitionError, match="invalid cron schedule 'at night'"):
        NightlyStore(cron="at night").build_defs(dg.ComponentTree.for_test().load_context)


@pytest.mark.slow
def test_its_job_publishes_into_its_store_and_judges_no_other_run(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_EVALUATION_ENABLED", "false")
    source, store = build_small_source(tmp_path), tmp_path / "store"
    job = load(source, store).resolve_job_def("nightly")
    with dg.DagsterInstance.ephemeral() as instance:

        @dg.job
        def others() -> None:
            pass

        going = instance.create_run_for_job(others, status=dg.DagsterRunStatus.STARTED)
        assert job.execute_in_process(instance=instance).success
        kept = instance.get_run_by_id(going.run_id)
        assert kept is not None
        assert kept.status is dg.DagsterRunStatus.STARTED
    assert recall("spare key", store=store, dry_run=True).memories
