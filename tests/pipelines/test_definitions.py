"""The code location as Dagster sees it.

That its metadata holds no memory text is tested in tests/e2e/test_nothing_leaks.py.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import dagster as dg
import pytest
from dagster._core.definitions.freshness import CronFreshnessPolicy

from noctuary.core.settings import ScheduleSettings
from noctuary_pipelines.definitions import build_definitions
from noctuary_pipelines.schedules import local_timezone, nightly_freshness, nightly_schedule
from tests.pipelines.lineage import describe_lineage

LINEAGE = Path(__file__).with_name("lineage.txt")


@pytest.fixture
def definitions(home: Path) -> dg.Definitions:
    return build_definitions()


def test_everything_loads_as_reviewed_needs_no_store_and_makes_none(
    definitions: dg.Definitions, home: Path
) -> None:
    """After a deliberate change write the lineage anew: see tests/pipelines/lineage.py."""
    dg.Definitions.validate_loadable(definitions)
    assert describe_lineage(definitions) == LINEAGE.read_text(encoding="utf-8")
    assert list(home.iterdir()) == []


def test_settings_change_nothing_of_its_shape(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "RUNNER_KIND": "ray", "NOTIFY_COMMAND": "true", "SCHEDULE_CRON": "1 1 1 1 1",
        "EVALUATION_EXACT_QUERIES": "0", "PROMOTION_ENABLED": "false", "SENSOR_POLL_SECONDS": "9",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"NOCTUARY_{name}", value)
    definitions = build_definitions()
    assert describe_lineage(definitions) == LINEAGE.read_text(encoding="utf-8")
    sensors = {sensor.name for sensor in definitions.sensors or ()}
    assert sensors == {"source_changed", "night_failed", "night_missed"}


def test_everything_leads_from_the_export_to_the_snapshot(definitions: dg.Definitions) -> None:
    """No asset is a side track: each is made from the export and reaches what is published."""
    graph = definitions.resolve_asset_graph()
    everything = graph.get_all_asset_keys()
    roots = {key for key in everything if not graph.get(key).parent_keys}
    assert roots == {dg.AssetKey("memory_store")}
    # What serves, the page about it (a refused night has one as well), and what a person may apply.
    proposals = ("compaction_plan", "curation_proposals", "promotion_proposals")
    ends = dg.AssetSelection.assets("snapshot", "evaluation_report", *proposals)
    assert ends.upstream().resolve(graph) == everything - roots
    job = definitions.resolve_job_def("nightly")
    assert job.executor_def is dg.in_process_executor
    assert job.asset_layer.executable_asset_keys == everything - roots
    assert job.asset_layer.asset_graph.asset_check_keys == graph.asset_check_keys


def test_every_asset_and_check_says_what_it_is(definitions: dg.Definitions) -> None:
    graph = definitions.resolve_asset_graph()
    assert len(graph.get_all_asset_keys()) == 30
    for node in graph.asset_nodes:
        name = node.key.to_user_string()
        assert list(node.owners) == ["team:noctuary"], name
        assert node.kinds, name
        assert node.code_version or node.is_external, name
        assert node.group_name != "default", name
        assert (node.description or "").strip().endswith("."), name
    specs = [graph.get_check_spec(key) for key in graph.asset_check_keys]
    assert len(specs) == 33
    for spec in specs:
        assert len(spec.name.split("_")) >= 4, spec.name
        assert (spec.description or "").strip().endswith("."), spec.name
    # The verdict comes before the page about a refused night; proposals wait for a person.
    unblocking = {spec.asset_key.to_user_string() for spec in specs if not spec.blocking}
    assert unblocking == {"gate_verdict", "compaction_plan"}
    # A misspelt dependency would be an asset of somebody else.
    strangers = {node.key.to_user_string() for node in graph.asset_nodes if node.is_external}
    assert strangers == {"memory_store"}
    late = {n.key.to_user_string() for n in graph.asset_nodes if n.freshness_policy}
    assert late == {"snapshot"}, "only what serves can be late"


def test_the_schedule_waits_and_follows_the_settings(definitions: dg.Definitions) -> None:
    schedule = definitions.resolve_schedule_def("nightly_schedule")
    assert (schedule.cron_schedule, schedule.job_name) == ("0 3 * * *", "nightly")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert schedule.execution_timezone == local_timezone()
    settings = ScheduleSettings(cron="30 2 * * 1", timezone="Asia/Tokyo")
    schedule, fresh = nightly_schedule(settings), nightly_freshness(settings)
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 2 * * 1", "Asia/Tokyo")
    assert isinstance(fresh, CronFreshnessPolicy)
    assert (fresh.deadline_cron, fresh.timezone) == ("30 2 * * 1", "Asia/Tokyo")
    assert fresh.lower_bound_delta == timedelta(days=7)


@pytest.mark.parametrize(
    ("variable", "expected"), [("Europe/Madrid", "Europe/Madrid"), ("No/Where", None), ("", None)]
)
def test_local_time_is_the_machines(
    variable: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", variable)
    found = local_timezone()
    assert expected is None or found == expected
    assert ZoneInfo(found)


def test_a_bad_setting_is_said_on_loading(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOCTUARY_SCHEDULE_CRON", "at night")
    with pytest.raises(ValueError, match=r"schedule\.cron needs five fields"):
        build_definitions()
