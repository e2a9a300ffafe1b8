"""The Dagster UI on a store: the lineage, and a run started there that does what the shell does."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mnemon.snapshot.publish import list_snapshots
from tests.e2e.browser import find_chromium, read_dom, take_screenshot
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import ROOT, kill, start
from tests.e2e.stores import Bench, add_memory, checksums

pytestmark = pytest.mark.slow

PICTURES = ROOT / "artifacts" / "ui"
LOCATION = "mnemon"
GROUPS = {
    "corpus": ["memories", "turns", "quarantine"],
    "vectors": ["memory_vectors", "query_encoder", "vector_tiers"],
    "lexical": ["lexical_index"],
    "graph": ["concepts", "memory_concepts", "concept_edges", "edges", "supersessions"],
    "compaction": ["turn_clusters", "summaries", "compaction_plan"],
    "curation": ["curation_proposals"],
    "promotion": ["promotion_proposals"],
    "usage": ["access_statistics", "ltp_scores"],
    "evaluation": [
        "generated_queries",
        "recall_evaluation",
        "fusion_decision",
        "abstention_calibration",
        "recall_comparison",
        "evaluation_report",
    ],
    "serving": ["serving_pack", "snapshot_candidate", "gate_verdict", "snapshot"],
}
READY_S = 120
RUN_S = 600
SMALLEST_PICTURE_BYTES = 30_000
"""An empty page of this size compresses to a tenth of it."""

_LAUNCH = """mutation($selector: JobOrPipelineSelector!) {
  launchRun(executionParams: {selector: $selector, runConfigData: {}}) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}"""
_RUN = """query($id: ID!) { runOrError(runId: $id) { __typename ... on Run {
  status
  assetMaterializations {
    assetKey { path } metadataEntries { label ... on TextMetadataEntry { text } }
  }
} } }"""
_SCHEDULES = """query($selector: RepositorySelector!) {
  schedulesOrError(repositorySelector: $selector) { ... on Schedules {
    results { name cronSchedule pipelineName executionTimezone scheduleState { status } }
} } }"""
_LOCATIONS = """{ workspaceOrError { ... on Workspace {
  locationEntries { name loadStatus locationOrLoadError { __typename } }
} } }"""


@dataclass(frozen=True)
class Ui:
    """A running UI on a bench."""

    bench: Bench
    url: str

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """Send one GraphQL request and return its data."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/graphql", body, headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        assert "errors" not in answer, answer
        return answer["data"]

    def launch(self) -> str:
        """Start the nightly job and return its run id."""
        selector = {**self.repository, "pipelineName": "nightly"}
        launched = self.ask(_LAUNCH, selector=selector)["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return launched["run"]["runId"]

    def wait(self, run_id: str) -> dict[str, Any]:
        """Wait for the end of a run and return it."""
        deadline = time.monotonic() + RUN_S
        while True:
            found = self.ask(_RUN, id=run_id)["runOrError"]
            if found["status"] in ("SUCCESS", "FAILURE", "CANCELED"):
                return found
            assert time.monotonic() < deadline, found["status"]
            time.sleep(0.5)

    @property
    def repository(self) -> dict[str, str]:
        """How GraphQL names the code location."""
        return {
            "repositoryName": "__repository__",
            "repositoryLocationName": LOCATION,
        }


@pytest.fixture(scope="module")
def ui(small_night: FirstNight, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    bench = small_night.bench.twin(tmp_path_factory.mktemp("ui"))
    process, found = _start_ui(bench)
    try:
        _wait_until_ready(found, process)
        yield found
    finally:
        kill(process)


def test_the_schedule_is_there_and_off(ui: Ui) -> None:
    (schedule,) = ui.ask(_SCHEDULES, selector=ui.repository)["schedulesOrError"]["results"]
    assert schedule["pipelineName"] == "nightly"
    assert schedule["cronSchedule"] == "0 3 * * *"
    assert schedule["executionTimezone"]
    assert schedule["scheduleState"]["status"] == "STOPPED"


def test_ending_the_command_ends_everything_it_started(
    small_night: FirstNight, tmp_path: Path
) -> None:
    """A service manager signals one process; a webserver that stays behind would hold the port."""
    bench = small_night.bench.twin(tmp_path)
    process, found = _start_ui(bench)
    try:
        _wait_until_ready(found, process)
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
    assert _materialized(run) == {name for names in GROUPS.values() for name in names}
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
    page = _text_of(read_dom(url))
    assert [name for name in GROUPS[group] if name not in page] == []
    assert "Never materialized" not in page
    assert "Failed" not in page
    _require_picture(take_screenshot(url, PICTURES / f"group-{group}.png"))


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
def test_the_global_lineage_shows_every_group(ui: Ui) -> None:
    url = f"{ui.url}/asset-groups"
    page = _text_of(read_dom(url))
    assert [group for group in GROUPS if group not in page] == []
    _require_picture(take_screenshot(url, PICTURES / "lineage.png"))


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
def test_the_automation_page_shows_schedule_and_sensor(ui: Ui) -> None:
    url = f"{ui.url}/automation"
    page = _text_of(read_dom(url))
    assert "nightly_schedule" in page
    assert "source_changed" in page
    _require_picture(take_screenshot(url, PICTURES / "automation.png"))


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
def test_a_green_run_is_shown(ui: Ui) -> None:
    run_id = ui.launch()
    assert ui.wait(run_id)["status"] == "SUCCESS"
    url = f"{ui.url}/runs/{run_id}"
    page = _text_of(read_dom(url))
    assert "Success" in page
    assert "snapshot_candidate" in page
    _require_picture(take_screenshot(url, PICTURES / "run.png"))


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
@pytest.mark.parametrize("asset", ["memories", "gate_verdict", "snapshot"])
def test_an_asset_page_shows_what_the_night_reported(asset: str, ui: Ui) -> None:
    url = f"{ui.url}/assets/{asset}"
    page = _text_of(read_dom(url))
    assert asset in page
    expected = {"memories": "corpus_digest", "gate_verdict": "outcome", "snapshot": "snapshot_id"}
    assert expected[asset] in page
    _require_picture(take_screenshot(url, PICTURES / f"asset-{asset}.png"))


def _start_ui(bench: Bench) -> tuple[subprocess.Popen[str], Ui]:
    port = _free_port()
    words = ["-m", "pipelines.ui", str(bench.source), "--store", str(bench.store)]
    process = start([sys.executable, *words, "--port", str(port)], bench.store.parent)
    return process, Ui(bench, f"http://127.0.0.1:{port}")


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


def _wait_until_ready(ui: Ui, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the UI ended"
        try:
            (entry,) = ui.ask(_LOCATIONS)["workspaceOrError"]["locationEntries"]
        except OSError:
            time.sleep(0.5)
            continue
        if entry["loadStatus"] == "LOADED":
            assert entry["name"] == LOCATION
            assert entry["locationOrLoadError"]["__typename"] == "RepositoryLocation"
            return
    raise AssertionError("the UI did not come up")


def _materialized(run: dict[str, Any]) -> set[str]:
    return {"/".join(m["assetKey"]["path"]) for m in run["assetMaterializations"]}


def _said(run: dict[str, Any], asset: str, label: str) -> str:
    (found,) = [m for m in run["assetMaterializations"] if m["assetKey"]["path"] == [asset]]
    return next(e["text"] for e in found["metadataEntries"] if e["label"] == label)


def _text_of(page: str) -> str:
    """Return what a reader sees: the page without scripts, styles and tags."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", bare))


def _require_picture(path: Path) -> None:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (2800, 1800)
    assert len(data) > SMALLEST_PICTURE_BYTES


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]
