"""Dagster's own commands open the assets of a checkout, without a store and making none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from noctuary_pipelines.definitions import build_definitions
from tests.e2e.driver import ROOT, kill, start
from tests.e2e.stores import Bench
from tests.e2e.ui import Ui, free_port, wait_until_ready

WORKSPACE = ROOT / "workspace.yaml"


@pytest.mark.parametrize(
    ("words", "in_checkout"),
    [
        (["dagster-webserver", "-w", str(WORKSPACE)], False),
        pytest.param(["dagster-webserver", "-w", WORKSPACE.name], True, marks=pytest.mark.slow),
        pytest.param(["dagster", "dev"], True, marks=pytest.mark.slow),
    ],
    ids=["webserver-from-anywhere", "webserver-in-the-checkout", "dev-in-the-checkout"],
)
def test_dagster_opens_the_assets_of_the_definitions(
    words: list[str], in_checkout: bool, home: Path, tmp_path: Path
) -> None:
    dagster, elsewhere = tmp_path / "dagster", tmp_path / "elsewhere"
    dagster.mkdir()
    elsewhere.mkdir()
    (dagster / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    port = free_port()
    command = [str(Path(sys.executable).with_name(words[0])), *words[1:], "-p", str(port)]
    process = start(
        command, home, extra={"DAGSTER_HOME": str(dagster)}, cwd=ROOT if in_checkout else elsewhere
    )
    try:
        ui = Ui(Bench(home / "none.db", home / "none"), f"http://127.0.0.1:{port}")
        wait_until_ready(ui, process)
        nodes = ui.ask("{ assetNodes { assetKey { path } } }")["assetNodes"]
    finally:
        kill(process)
    found = {"/".join(node["assetKey"]["path"]) for node in nodes}
    graph = build_definitions().resolve_asset_graph()
    assert found == {key.to_user_string() for key in graph.get_all_asset_keys()}
    assert [*home.iterdir(), *elsewhere.iterdir()] == []
