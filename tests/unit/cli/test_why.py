from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.core import store as layout
from noctuary.core.manifest import read_pointer
from tests.support.store import Store

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def test_a_memory_below_k_is_printed_beside_the_last_returned_one(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    result = run("why", "Nina key", "103", "-k", "2")
    steps = {s["phase"]: s for s in run_json("why", "Nina key", "103", "-k", "2")["steps"]}
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "[103] was found, at place 3 of 12; 2 were asked for."
    assert lines[2].split() == ["[103]", "[104]"]
    assert lines[3].split() == ["lexical", "+0.000", "+0.385"]
    gain, others = (steps["graph"][name] for name in ("delta", "delta_of_last_returned"))
    assert gain > 0.0 == others
    assert max(steps["graph_scale"][n] for n in ("delta", "delta_of_last_returned")) < 0.0
    assert lines[5].split()[:3] == ["graph", f"{gain:+.3f}", f"{others:+.3f}"]
    assert lines[5].endswith("reached over the graph from [104] by mentions_subject")
    assert "! user_required" in result.stderr


def test_a_returned_memory_is_printed_with_its_running_sum(run: Run, dense_store: Store) -> None:
    lines = run("why", "Nina key", "101").stdout.splitlines()
    assert lines[0].startswith("[101] came back at place 1 of 10")
    assert lines[1].split() == ["score", "change", "step", "why"]
    assert lines[2].split()[:3] == ["0.500", "+0.500", "lexical"]
    assert lines[-1].split()[:3] == ["0.485", "-0.015", "importance"]


def test_filters_profiles_and_flags_are_those_of_recall(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    assert "Its wing is 'home'" in run("why", "key", "101", "--wing", "work").stdout
    assert "It was created 2026-01-02" in run("why", "key", "101", "--as-of", "2026-01-01").stdout
    stage = run_json("why", "door code", "107")["stage"]
    assert stage == "unknown"
    assert run_json("why", "door code", "107", "--user", "ben")["stage"] == "returned"
    recency = run_json("why", "key", "101", "-k", "1", "--sort-by", "recency")
    assert recency["steps"][-1]["phase"] == "sort_by"
    off = run_json("why", "Nina", "103", "--profile", "off", "--set", "dense_weight=0")
    assert off["stage"] == "not_found"
    assert off["sentences"][2] == "dense: off (dense_weight 0)."
    assert off["sentences"][3] == "graph: off (graph_weight 0)."
    aged = run_json("why", "key", "101", "--profile", "synapse")
    assert {"time_decay"} <= {step["phase"] for step in aged["steps"]}
    assert "unknown_profile" in run("why", "key", "101", "--profile", "nope").stderr


def test_json_is_the_whole_answer(run_json: RunJson, dense_store: Store) -> None:
    found = run_json("why", "Nina key", "103", "-k", "2")
    assert set(found) == {"memory_id", "stage", "sentences", "facts", "steps", "warnings"}
    assert found["warnings"][0]["code"] == "user_required"
    assert found["facts"]["place"] == 3


def test_nothing_is_logged(run: Run, dense_store: Store) -> None:
    for memory_id in ("101", "103"):
        assert run("why", "Nina key", memory_id, "--set", "replay_log=true").exit_code == 0
    assert not dense_store.paths.access_log.exists()
    assert not dense_store.paths.replays.exists()
    assert not dense_store.paths.queries.exists()


@pytest.mark.parametrize("arguments", [["--set", "depth"], ["--set", "depht=3"], ["--as-of", "x"]])
def test_arguments_that_mean_nothing_are_exit_code_2(
    run: Run, dense_store: Store, arguments: list[str]
) -> None:
    assert run("why", "key", "101", *arguments).exit_code == 2


def test_no_store_is_exit_code_1(run: Run, run_json: RunJson, home: Path) -> None:
    assert run("why", "key", "101").exit_code == 1
    assert run_json("why", "key", "101", code=1)["error"] == "SnapshotMissingError"


def test_a_snapshot_that_is_damaged_inside_is_a_sentence(run: Run, dense_store: Store) -> None:
    rows = dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id) / layout.ROWS_FILE
    content = bytearray(rows.read_bytes())
    content[8192:] = bytes(len(content) - 8192)
    rows.write_bytes(content)
    result = run("why", "key", "101")
    assert result.exit_code == 1
    assert result.stderr.startswith("noctuary: ")
    assert "noctuary doctor" in result.stderr


def test_any_bytes_on_the_command_line_are_a_question(dense_store: Store) -> None:
    command = [
        os.fsencode(sys.executable),
        b"-m",
        b"noctuary.cli.main",
        b"why",
        b"key \xff",
        b"\xfe",
    ]
    for options in ([], [b"--json"]):
        done = subprocess.run([*command, *options], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
