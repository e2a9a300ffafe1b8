"""Shards from the UI: a backfill of all, one of them again, and a night that finds them done."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noctuary.files import remove_tree
from noctuary.lexical.tokenizing import TOKENS_KIND
from noctuary.night.context import FRAGMENTS
from noctuary.shards.files import open_table
from noctuary.shards.fragment_store import KEY, VALUE, FragmentStore
from tests.e2e.browser import find_chromium, read_dom, take_screenshot
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, LOCKED, ROOT, environment, kill, run_night
from tests.e2e.stores import Bench, add_memory
from tests.e2e.ui import (
    LOCATION,
    PICTURES,
    Ui,
    materialized,
    require_picture,
    start_ui,
    text_of,
    wait_until_ready,
)

pytestmark = pytest.mark.slow

ASSETS = ("shard_vectors", "shard_tokens", "shard_extractions")
SHARDS = ("shard-000", "shard-001", "shard-002")
EXPORT = ("memories", "turns", "quarantine")
TEXT = "The bakery on Alder Street closes at two on Mondays."

RUN_ONE = """
import sys
import dagster as dg
from pipelines.definitions import build_definitions
job = build_definitions().resolve_job_def("shards")
with dg.DagsterInstance.get() as instance:
    assert job.execute_in_process(
        instance=instance, partition_key=sys.argv[1], asset_selection=[dg.AssetKey("shard_tokens")],
        run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    ).success
"""


def cut_store(small_night: FirstNight, directory: Path) -> Bench:
    """A copy of the small bench whose home says that the store is cut in three."""
    bench = small_night.bench.twin(directory)
    home = bench.store.parent
    (home / "noctuary.toml").write_text("[shards]\ncount = 3\n", encoding="utf-8")
    return bench


@pytest.fixture(scope="module")
def ui(small_night: FirstNight, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    bench = cut_store(small_night, tmp_path_factory.mktemp("shards"))
    process, found = start_ui(bench)
    try:
        wait_until_ready(found, process)
        yield found
    finally:
        kill(process)


def rows_of(bench: Bench) -> dict[str, dict[bytes, Any]]:
    """Every kind of fragments with its rows; no key twice."""
    found: dict[str, dict[bytes, Any]] = {}
    for directory in sorted((bench.paths.work / FRAGMENTS).iterdir()):
        kind = json.loads((directory / "MANIFEST.json").read_text("utf-8"))["kind"]
        rows: dict[bytes, Any] = {}
        for fragment in FragmentStore(bench.paths.work / FRAGMENTS, kind).fragments:
            table = open_table(fragment.path)
            keys = table[KEY].to_pylist()
            assert not rows.keys() & set(keys), kind
            rows.update(zip(keys, table[VALUE].to_pylist(), strict=True))
        found[kind] = rows
    return found


def numbers(run: dict[str, Any], asset: str) -> dict[str, int]:
    (made,) = [m for m in run["assetMaterializations"] if m["assetKey"]["path"] == [asset]]
    return {e["label"]: e["intValue"] for e in made["metadataEntries"] if "intValue" in e}


def test_a_backfill_prepares_what_the_night_then_finds(ui: Ui) -> None:
    expected = rows_of(ui.bench)
    remove_tree(ui.bench.paths.work / FRAGMENTS)
    add_memory(ui.bench.source, TEXT)
    assert ui.wait(ui.launch(EXPORT))["status"] == "SUCCESS"
    runs = [ui.wait(run) for run in ui.backfill(ASSETS, SHARDS)]
    assert [run["status"] for run in runs] == ["SUCCESS"] * len(SHARDS)
    assert all(materialized(run) == set(ASSETS) for run in runs)
    for asset in ASSETS:
        found = [numbers(run, asset) for run in runs]
        assert (
            sum(n["dagster/row_count"] for n in found) == ui.bench.manifest.counts["memories"] + 1
        )
        assert all(n["forgotten"] == 0 for n in found)
    prepared = rows_of(ui.bench)
    for kind, rows in prepared.items():
        known = {key: value for key, value in expected[kind].items() if key in rows}
        assert len(known) == len(rows) - 1, f"all but the new memory: {kind}"
        assert known == {key: rows[key] for key in known}, "the same values, bit for bit"
    assert not (ui.bench.paths.work / "shards").exists() or not list(
        (ui.bench.paths.work / "shards").rglob("*.*")
    )
    ran = run_night(ui.bench.source, ui.bench.store)
    assert ran.code == DONE, ran.says
    assert ran.note("memory_vectors", "texts_embedded") == 0
    assert ran.note("lexical_index", "texts_tokenized") == 0
    assert ui.bench.ask("bakery on Mondays").memories[0].content == TEXT


def test_a_backfill_again_computes_nothing(ui: Ui) -> None:
    before = rows_of(ui.bench)
    for run in map(ui.wait, ui.backfill(ASSETS, SHARDS)):
        for asset in ASSETS:
            assert numbers(run, asset)["computed"] == 0
            assert numbers(run, asset)["reused"] > 0
    assert rows_of(ui.bench) == before


def test_one_shard_again_is_computed_again_and_no_other(ui: Ui) -> None:
    before = rows_of(ui.bench)
    run = ui.wait(ui.launch(ASSETS, "shard-001"))
    assert run["status"] == "SUCCESS"
    for asset in ASSETS:
        found = numbers(run, asset)
        assert 0 < found["forgotten"] == found["computed"] <= found["dagster/row_count"]
        assert found["reused"] == 0
        assert found["dagster/row_count"] < ui.bench.manifest.counts["memories"] * 2 / 3
    assert rows_of(ui.bench) == before, "the same keys and values as before"


def test_the_night_from_the_ui_is_still_the_whole_one(ui: Ui) -> None:
    run = ui.wait(ui.launch())
    assert run["status"] == "SUCCESS"
    assert len(materialized(run)) == 29
    assert not materialized(run) & set(ASSETS)


@pytest.mark.skipif(find_chromium() is None, reason="needs chromium (Debian package)")
def test_the_group_and_a_partitioned_asset_are_shown(ui: Ui) -> None:
    ui.backfill(ASSETS, SHARDS)
    url = f"{ui.url}/locations/{LOCATION}/asset-groups/shards"
    page = text_of(read_dom(url))
    assert [name for name in ASSETS if name not in page] == []
    assert "Failed" not in page
    require_picture(take_screenshot(url, PICTURES / "group-shards.png"))
    url = f"{ui.url}/assets/shard_tokens?view=partitions"
    page = text_of(read_dom(url))
    assert [name for name in SHARDS if name not in page] == []
    require_picture(take_screenshot(url, PICTURES / "asset-shard_tokens.png"))


def test_two_shards_and_a_night_at_once_spoil_nothing(
    small_night: FirstNight, tmp_path: Path
) -> None:
    """Without a queue between them: whoever comes second waits, and a night leaves."""
    bench = cut_store(small_night, tmp_path / "cut")
    expected = rows_of(bench)[TOKENS_KIND]
    remove_tree(bench.paths.work / FRAGMENTS)
    told = environment(
        bench.store.parent,
        {
            "NOCTUARY_STORE": str(bench.store),
            "NOCTUARY_SOURCE_PATH": str(bench.source),
            "DAGSTER_HOME": str(bench.paths.dagster_home),
        },
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-c", RUN_ONE, shard], env=told, cwd=ROOT, stderr=subprocess.PIPE
        )
        for shard in SHARDS
    ]
    codes: list[int] = []
    nights = threading.Thread(
        target=lambda: codes.append(run_night(bench.source, bench.store).code)
    )
    nights.start()
    said = [process.communicate()[1].decode() for process in running]
    nights.join()
    assert [process.returncode for process in running] == [0, 0, 0], said
    assert codes[0] in (DONE, LOCKED)
    assert rows_of(bench)[TOKENS_KIND] == expected
    after = run_night(bench.source, bench.store)
    assert after.code == DONE, after.says
    assert after.report["status"] == "unchanged"
