from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from click.testing import Result

from noctuary import inject, recall
from noctuary.core.sqlite import close_logs
from noctuary.recall.api import find_serving
from noctuary.recall.result import Calibration
from noctuary.sources.echo import EchoGuard, read_injections
from noctuary.sources.injected import NOTE
from tests.support.calibration import calibrated
from tests.support.injections import row
from tests.support.store import Store

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def test_the_block_and_nothing_else_is_printed_and_recorded(run: Run, dense_store: Store) -> None:
    result = run("recall", "spare key", "-k", "2", "--inject")
    assert result.exit_code == 0
    opening, note, first, second, closing_tag = result.stdout.splitlines()
    assert opening.startswith('<noctuary-recall id="')
    assert note == NOTE
    assert first == "- [101] 2026-01-02 (home/hall): The spare key hangs behind the blue door."
    assert second.startswith("- [")
    assert closing_tag == "</noctuary-recall>"
    assert "! user_required: " in result.stderr
    close_logs()
    guard = EchoGuard(read_injections(dense_store.paths.injections))
    now_us = time.time_ns() // 1000
    echo = row("The spare key hangs behind the blue door.", created_at_us=now_us)
    assert guard.judge(echo).text is None


def test_json_has_the_block_beside_the_answer(run_json: RunJson, dense_store: Store) -> None:
    found = run_json("recall", "spare key", "-k", "1", "--inject")
    assert found["injection"]["memories"] == len(found["memories"]) == 1
    assert found["injection"]["text"] == inject(found, on_record=False).text
    assert "injection" not in run_json("recall", "spare key")


def test_nothing_found_prints_nothing(run: Run, dense_store: Store) -> None:
    result = run("recall", "spare key", "--wing", "nowhere", "--inject")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "nothing is injected: nothing was found" in result.stderr


def test_who_asks_for_no_number_injects_as_many_as_a_hook(
    run_json: RunJson, dense_store: Store
) -> None:
    query = "spare key boiler door cat"
    assert len(run_json("recall", query)["memories"]) > 3
    assert run_json("recall", query, "--inject")["injection"]["memories"] == 3
    assert run_json("recall", query, "--inject", "-k", "4")["injection"]["memories"] == 4


@pytest.mark.parametrize(
    ("calibration", "said"),
    [(calibrated(1.0), "at least 1.000 is needed"), (calibrated(bar=1.0), "no memory reaches 1.0")],
)
def test_an_answer_that_is_none_is_not_injected_and_said(
    run: Run, dense_store: Store, monkeypatch: pytest.MonkeyPatch, calibration: Calibration,
    said: str,
) -> None:  # fmt: skip
    recaller, _ = find_serving(dense_store.root)
    monkeypatch.setattr(recaller, "calibration", calibration)
    result = run("recall", "spare key", "--inject")
    assert (result.exit_code, result.stdout) == (0, "")
    assert said in result.stderr
    assert "spare key hangs" in run("recall", "spare key").stdout


def test_a_dry_run_records_nothing(run: Run, dense_store: Store) -> None:
    assert NOTE in run("recall", "spare key", "--inject", "--dry-run").stdout
    assert not dense_store.paths.injections.exists()


def test_without_the_option_nothing_is_recorded(run: Run, dense_store: Store) -> None:
    run("recall", "spare key")
    assert not dense_store.paths.injections.exists()


def test_a_record_that_cannot_be_written_is_a_warning(run: Run, dense_store: Store) -> None:
    dense_store.paths.injections.mkdir()
    result = run("recall", "spare key", "--inject")
    assert result.exit_code == 0
    assert NOTE in result.stdout
    assert "! injection_log: this injection was not logged: " in result.stderr


def test_the_function_is_a_name_of_the_package(dense_store: Store) -> None:
    done = inject(recall("spare key", 1, store=dense_store.root))
    assert done.warning is None
    close_logs()
    with closing(sqlite3.connect(dense_store.paths.injections)) as record:
        kinds = {kind for (kind,) in record.execute("SELECT kind FROM injected")}
    assert kinds == {"line", "lookup"}
