from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.claude_memory import table_of
from tests.support.curation import TEXT, Nights
from tests.unit.cli.conftest import Run

RunJson = Callable[..., Any]


@pytest.fixture
def nights(tmp_path: Path, home: Path) -> Nights:
    return Nights(tmp_path)


@pytest.fixture
def store(nights: Nights) -> str:
    nights.run()
    return str(nights.paths.root)


def test_the_list_shows_who_stays_and_who_goes(run: Run, store: str) -> None:
    shown = run("proposals", "curate", "--list", "--store", store)
    assert shown.exit_code == 0
    assert f"updated    [2] {TEXT}" in shown.stdout
    assert "new row    Tides: high at six. low at noon." in shown.stdout
    assert "contradiction" not in shown.stdout
    assert "3 of 4 proposals" in shown.stdout
    assert "contradiction" in run("proposals", "curate", "--all", "--store", store).stdout


def test_the_list_as_json(run_json: RunJson, store: str, nights: Nights) -> None:
    found = run_json("proposals", "curate", "--store", store, "--all")
    assert found["enabled"] is True
    assert found["source"] == str(nights.source)
    assert found["counts"]["fragments ADD"] == 1
    added = [p["replacement_text"] for p in found["proposals"] if p["action"] == "ADD"]
    assert added == ["Tides: high at six.\nlow at noon."]
    (one,) = run_json(
        "proposals", "curate", found["proposals"][0]["proposal_id"][:8], "--store", store
    )["proposals"]
    assert one["kind"] == "exact_duplicate"


def test_apply_journal_and_undo(run: Run, run_json: RunJson, store: str, nights: Nights) -> None:
    before = table_of(nights.source)
    assert (
        "nothing was ever applied"
        in run("proposals", "curate", "--journal", "--store", store).stdout
    )
    assert table_of(nights.source) == before
    done = run("proposals", "curate", "--apply", "--store", store)
    assert "3 proposals written" in done.stdout
    assert "4 rows marked, 1 filled up, 1 added" in done.stdout
    assert (
        "holds already (journal 1)"
        in run("proposals", "curate", "--apply", "--store", store).stdout
    )
    (entry,) = run_json("proposals", "curate", "--journal", "--store", store)["journal"]
    assert (entry["journal_id"], entry["rows"], entry["undoable"]) == (1, 6, True)
    assert run_json("proposals", "curate", "--undo", "1", "--store", store)["taken_back"] == [9]
    assert table_of(nights.source) == before
    assert "undone" in run("proposals", "curate", "--journal", "--store", store).stdout


def test_one_proposal_is_applied_by_the_start_of_its_id(
    run_json: RunJson, store: str, nights: Nights
) -> None:
    found = run_json("proposals", "curate", "--store", store)["proposals"]
    (joined,) = [p["proposal_id"] for p in found if p["action"] == "ADD"]
    applied = run_json("proposals", "curate", "--apply", joined[:6], "--store", store)
    assert (applied["written"], applied["tombstones"]) == ([joined], [3, 4])
    with closing(sqlite3.connect(nights.source)) as db:
        sql = "SELECT count(*) FROM memories WHERE content LIKE '[SUPERSEDED]%'"
        assert db.execute(sql).fetchone() == (2,)


def test_a_least_confidence_leaves_the_rest(run_json: RunJson, store: str) -> None:
    applied = run_json(
        "proposals", "curate", "--apply", "--min-confidence", "0.99", "--store", store
    )
    assert (applied["tombstones"], applied["updated"]) == ([1], [2])


def test_a_changed_source_is_refused_with_exit_code_1(
    run_json: RunJson, store: str, nights: Nights
) -> None:
    nights.edit("UPDATE memories SET content = 'Edited.' WHERE id = 4")
    before = table_of(nights.source)
    refused = run_json("proposals", "curate", "--apply", "--store", store, code=1)
    assert refused["error"] == "CurationRefusedError"
    assert table_of(nights.source) == before


def test_another_source_may_be_named(
    run_json: RunJson, store: str, nights: Nights, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(nights.source)) as old, closing(sqlite3.connect(copy)) as new:
        old.backup(new)
    applied = run_json("proposals", "curate", "--apply", "--source", str(copy), "--store", store)
    assert applied["source"] == str(copy)
    assert run_json("proposals", "curate", "--journal", "--store", store)["journal"] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--apply", "--source", "env:NO_SUCH"), "NO_SUCH"),
        (("--apply", "--source", "missing.db"), "no memory store"),
        (("--apply", "zzz"), "names 0 proposals"),
        (("--apply", "--min-confidence", "2"), "expected 0 to 1"),
        (("--undo", "5"), "no application 5"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    run: Run, store: str, arguments: tuple[str, ...], says: str
) -> None:
    result = run("proposals", "curate", *arguments, "--store", store)
    assert result.exit_code == 1
    assert says in result.stderr


def test_json_lines_are_read_only(run: Run, store: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"id": 1, "content": TEXT}) + "\n")
    result = run("proposals", "curate", "--apply", "--source", str(path), "--store", store)
    assert (result.exit_code, "only reads" in result.stderr) == (1, True)


def test_two_wishes_at_once_are_a_usage_error(run: Run, store: str) -> None:
    assert run("proposals", "curate", "--apply", "--journal", "--store", store).exit_code == 2


def test_switched_off_it_says_how_to_switch_it_on(run: Run, nights: Nights) -> None:
    nights.run(enabled=False)
    shown = run("proposals", "curate", "--store", str(nights.paths.root))
    assert (shown.exit_code, "set curation.enabled" in shown.stdout) == (0, True)


def test_before_the_first_night_it_says_what_to_do(run: Run, nights: Nights) -> None:
    nights.paths.work.mkdir(parents=True)
    shown = run("proposals", "curate", "--store", str(nights.paths.root))
    assert (shown.exit_code, "run the night" in shown.stderr) == (1, True)
