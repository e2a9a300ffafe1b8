"""A running Dagster UI on a bench: starting it, asking it as its own pages do, looking at it."""

from __future__ import annotations

import json
import re
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.driver import ROOT, start
from tests.e2e.stores import Bench

PICTURES = ROOT / "artifacts" / "ui"
LOCATION = "noctuary"
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
    assetKey { path } metadataEntries {
      label ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue }
    }
  }
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

    def launch(self, assets: Sequence[str] = ()) -> str:
        """Start the nightly job, or only some assets; return the run's id."""
        selector: dict[str, Any] = {**self.repository, "pipelineName": "nightly"}
        if assets:
            chosen = [{"path": [name]} for name in assets]
            selector.update(pipelineName="__ASSET_JOB", assetSelection=chosen)
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


def start_ui(bench: Bench, *options: str) -> tuple[subprocess.Popen[str], Ui]:
    """Start `noctuary ui`; end it with `kill`."""
    port = free_port()
    words = [
        "-m",
        "noctuary.cli.entry",
        "ui",
        str(bench.source),
        "--store",
        str(bench.store),
        *options,
    ]
    process = start([sys.executable, *words, "--port", str(port)], bench.store.parent)
    return process, Ui(bench, f"http://127.0.0.1:{port}")


def wait_until_ready(ui: Ui, process: subprocess.Popen[str]) -> None:
    """Wait until the code location is loaded."""
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


def materialized(run: dict[str, Any]) -> set[str]:
    """Return the assets that a run made."""
    return {"/".join(m["assetKey"]["path"]) for m in run["assetMaterializations"]}


def text_of(page: str) -> str:
    """Return what a reader sees: the page without scripts, styles and tags."""
    bare = re.sub(r"<(script|style)\b.*?</\1>", " ", page, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", bare))


def require_picture(path: Path) -> None:
    """Fail unless a file is a picture of a page with something on it."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", data[16:24]) == (2800, 1800)
    assert len(data) > SMALLEST_PICTURE_BYTES


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]
