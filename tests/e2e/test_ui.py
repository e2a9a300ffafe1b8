"""The Dagster UI on a store: the lineage, and a run started there that does what the shell does."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noctuary.snapshot.publish import list_snapshots
from tests.e2e.browser import find_chromium, read_dom, take_screenshot
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import kill
from tests.e2e.stores import add_memory, checksums
from tests.e2e.ui import (
    LOCATION,
    PICTURES,
    READY_S,
    RUN_S,
    Ui,
    materialized,
    require_picture,
    start_ui,
    text_of,
    wait_until_ready,
)

pytestmark = pytest.mark.slow

GROUPS = {
    "ingest": ["memories", "turns", "quarantine"],
    "index": [
        "query_encoder",
        "memory_vectors",
        "vector_tiers",
        "lexical_index",
        "access_statistics",
        "ltp_scores",
    ],
    "graph": ["concepts", "memory_concepts", "concept_edges", "edges", "supersessions"],
    "compact": ["turn_clusters", "summaries"],
    "evaluate": [
        "recall_evaluation",
        "fusion_decision",
        "abstention_calibration",
        "evaluation_report",
    ],
    "publish": [
        "serving_pack",
        "snapshot_candidate",
        "recall_comparison",
        "gate_verdict",
        "release",
        "snapshot",
    ],
    "proposals": ["compaction_plan", "curation_proposals", "promotion_proposals"],
}
_SCHEDULES = """query($selector: RepositorySelector!) {
  schedulesOrError(repositorySelector: $selector) { ... on Schedules {
    results { name cronSchedule pipelineName executionTimezone scheduleState { status } }
} } }"""

_START_SENSOR = """mutation($selector: SensorSelector!) {
  startSensor(sensorSelector: $selector) { __typename ... on PythonError { message } }
}"""


@pytest.fixture(scope="module")
def ui(small_night: FirstNight, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    bench = small_night.bench.twin(tmp_path_factory.mktemp("ui"))
    process, found = start_ui(bench)
    try:
        wait_until_ready(found, process)
        yield found
    finally:
        kill(process)


def test_the_schedule_is_there_and_off(ui: Ui) -> None:
    (schedule,) = ui.ask(_SCHEDULES, selector=ui.repository)["schedulesOrError"]["results"]
    assert schedule["pipelineName"] == "nightly"
    assert schedule["cronSchedule"] == "0 3 * * *"
    assert schedule["executionTimezone"]
    assert schedule["scheduleState"]["status"] == "STOPPED"


@pytest.mark.parametrize("how", ["by-a-service-manager", "in-the-background-of-a-script"])
def test_ending_the_command_ends_everything_it_started(
    small_night: FirstNight, tmp_path: Path, how: str
) -> None:
    """A service manager signals one process; a webserver that stays behind would hold the port."""
    bench = small_night.bench.twin(tmp_path)
    known = signal.getsignal(signal.SIGINT)
    if how == "in-the-background-of-a-script":
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what a script's shell does to its jobs
    try:
        process, found = start_ui(bench)
    finally:
        signal.signal(signal.SIGINT, known)
    try:
        wait_until_ready(found, process)
        assert len(_processes_of_session(process.pid)) >= 3
        process.terminate()
        process.wait(timeout=READY_S)
        deadline = time.monotonic() + READY_S
        while left := _processes_of_session(process.pid):
            assert time.monotonic() < deadline, left
            time.sleep(0.2)
    finally:
        kill(process)


def test_a_run_from_the_ui_without_changes_publishes_nothing(ui: Ui) -> None:
    before, serving = checksums(ui.bench.paths.snapshots), ui.bench.serving
    run = ui.wait(ui.launch())
    assert run["status"] == "SUCCESS"
    assert materialized(run) == {name for names in GROUPS.values() for name in names}
    assert _said(run, "snapshot", "said") == "nothing changed, nothing was published"
    assert ui.bench.serving == serving
    assert checksums(ui.bench.paths.snapshots) == before


def test_a_run_from_the_ui_with_changes_publishes(ui: Ui) -> None:
    before = ui.bench.serving
    text = "The bakery on Alder Street closes at two on Mondays."
    add_memory(ui.bench.source, text)
    run = ui.wait(ui.launch())
    assert run["status"] == "SUCCESS"
    assert _said(run, "snapshot", "said") == "published"
    assert _said(run, "snapshot", "snapshot_id") == ui.bench.serving != before
    assert len(list_snapshots(ui.bench.paths)) == 2
    assert ui.bench.ask("bakery on Mondays").memories[0].content == text


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
@pytest.mark.parametrize("group", GROUPS)
def test_a_group_page_shows_its_assets_green(group: str, ui: Ui) -> None:
    url = f"{ui.url}/locations/{LOCATION}/asset-groups/{group}"
    page = text_of(read_dom(url))
    assert [name for name in GROUPS[group] if name not in page] == []
    assert "Never materialized" not in page
    assert "Failed" not in page
    require_picture(take_screenshot(url, PICTURES / f"group-{group}.png"))


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
def test_the_global_lineage_shows_every_group(ui: Ui) -> None:
    url = f"{ui.url}/asset-groups"
    page = text_of(read_dom(url))
    assert [group for group in GROUPS if group not in page] == []
    require_picture(take_screenshot(url, PICTURES / "lineage.png"))


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
def test_the_automation_page_shows_schedule_and_sensor(ui: Ui) -> None:
    url = f"{ui.url}/automation"
    page = text_of(read_dom(url))
    assert "nightly_schedule" in page
    assert "source_changed" in page
    require_picture(take_screenshot(url, PICTURES / "automation.png"))


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
def test_a_green_run_is_shown(ui: Ui) -> None:
    run_id = ui.launch()
    assert ui.wait(run_id)["status"] == "SUCCESS"
    url = f"{ui.url}/runs/{run_id}"
    page = text_of(read_dom(url))
    assert "Success" in page
    assert "snapshot_candidate" in page
    require_picture(take_screenshot(url, PICTURES / "run.png"))


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
@pytest.mark.parametrize("asset", ["memories", "gate_verdict", "snapshot"])
def test_an_asset_page_shows_what_the_night_reported(asset: str, ui: Ui) -> None:
    url = f"{ui.url}/assets/{asset}"
    page = text_of(read_dom(url))
    assert asset in page
    expected = {"memories": "corpus_digest", "gate_verdict": "outcome", "snapshot": "snapshot_id"}
    assert expected[asset] in page
    require_picture(take_screenshot(url, PICTURES / f"asset-{asset}.png"))


def test_the_store_is_what_the_memories_were_made_of(ui: Ui) -> None:
    """A change makes them stale at the sensor's next look, and the next night fresh again."""
    # The last of the file: from here on the sensor starts nights of its own.
    assert ui.wait(ui.launch())["status"] == "SUCCESS"
    assert set(_staleness(ui).values()) == {"FRESH"}
    add_memory(ui.bench.source, "The spare key moved to the shed.")
    selector = {**ui.repository, "sensorName": "source_changed"}
    assert "errors" not in ui.ask(_START_SENSOR, selector=selector)
    deadline = time.monotonic() + RUN_S
    while _staleness(ui)["memories"] != "STALE":
        assert time.monotonic() < deadline
        time.sleep(0.5)
    while "STALE" in _staleness(ui).values():
        assert time.monotonic() < deadline
        time.sleep(2)


def _processes_of_session(session: int) -> list[str]:
    """Return the command lines of the processes that live in a session."""
    found: list[str] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(") ")[2].split()
            words = stat.with_name("cmdline").read_text()
        except OSError:
            continue
        if fields[0] != "Z" and int(fields[3]) == session:
            found.append(words.replace("\0", " ")[:100])
    return found


def _staleness(ui: Ui) -> dict[str, str]:
    nodes = ui.ask("{ assetNodes { assetKey { path } staleStatus } }")["assetNodes"]
    return {node["assetKey"]["path"][-1]: node["staleStatus"] for node in nodes}


def _said(run: dict[str, Any], asset: str, label: str) -> str:
    (found,) = [m for m in run["assetMaterializations"] if m["assetKey"]["path"] == [asset]]
    return next(e["text"] for e in found["metadataEntries"] if e["label"] == label)
