"""The command `noctuary proposals compact`: what it prints, what it writes, how it leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noctuary.compact.archive import ArchiveReader
from noctuary.work.lock import hold_lock
from tests.support.archive import copy_archive_store, new_archive_store
from tests.support.lean import write_encoder
from tests.support.store import Store
from tests.unit.cli.conftest import Run

Json = Callable[..., Any]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("compact") / "house"
    return new_archive_store(root, write_encoder(root / "encoders"))


@pytest.fixture
def store(template: Store, tmp_path: Path, home: Path) -> Store:
    return copy_archive_store(template, tmp_path / "house")


def tree(root: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(p.relative_to(root)): (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino)
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def test_the_plan_is_the_default_and_writes_nothing(run: Run, store: Store, home: Path) -> None:
    before, around = tree(store.root), sorted(home.rglob("*"))
    shown = [
        run("proposals", "compact", "--store", str(store.root)),
        run("proposals", "compact", "--plan", "--texts", "--store", str(store.root)),
        run("proposals", "compact", "--plan", "--json", "--store", str(store.root)),
        run("proposals", "compact", "--list", "--store", str(store.root)),
    ]
    assert [r.exit_code for r in shown] == [0, 0, 0, 0]
    assert tree(store.root) == before
    assert sorted(home.rglob("*")) == around
    assert "4 memories would be archived, 1 summaries created" in shown[0].stdout
    assert "superseded_by=106 (explicit, high), never recalled, created=397 days ago" in (
        shown[0].stdout
    )
    assert "hangs in the hall" not in shown[0].stdout
    assert "The spare key hangs in the hall." in shown[1].stdout
    assert "no plan was applied yet" in shown[3].stdout


def test_the_plan_as_json_has_the_rfcs_names(run_json: Json, store: Store) -> None:
    plan = run_json("proposals", "compact", "--store", str(store.root))
    assert (plan["would_archive"], plan["would_create_summaries"], plan["summary_count"]) == (
        4, 1, 1,
    )  # fmt: skip
    times = plan["phase_timing_ms"]["adaptive_compaction"]
    assert times.keys() == {
        "ltp_scan_ms", "supersede_check_ms", "consolidation_plan_ms", "total_ms",
    }  # fmt: skip
    assert all(ms >= 0 for ms in times.values())
    assert sum(times.values()) - times["total_ms"] <= times["total_ms"] + 0.1
    into = {c["memory_id"]: c["consolidated_into"] for c in plan["candidates"]}
    (summary,) = plan["summaries"]
    assert {m for m, s in into.items() if s == summary["summary_id"]} == {"101", "102", "103"}
    assert into["105"] is None
    assert "text" not in summary
    (told,) = run_json("proposals", "compact", "--texts", "--store", str(store.root))["summaries"]
    assert told["text"]


def test_apply_list_and_undo(run: Run, run_json: Json, store: Store) -> None:
    place = ("--store", str(store.root))
    plan_id = run_json("proposals", "compact", *place)["plan_id"]
    done = run("proposals", "compact", "--apply", plan_id, *place)
    assert done.exit_code == 0
    assert f"plan {plan_id} archived 4 memories; nothing was deleted" in done.stdout
    assert sorted(ArchiveReader(store.paths.archive).entries_at(None)) == [
        "101", "102", "103", "105",
    ]  # fmt: skip
    (told,) = run_json("proposals", "compact", "--list", *place)["plans"]
    assert (told["plan_id"], told["in_force"]) == (plan_id, True)
    assert len(told["compaction_candidates"]) == 4
    listed = run("proposals", "compact", "--list", *place).stdout
    assert f"plan {plan_id}  in force, 4 memories, 1 summaries" in listed
    assert (
        "nothing to archive; nothing was written"
        in run("proposals", "compact", "--apply", *place).stdout
    )
    assert run_json("proposals", "compact", "--undo", plan_id, *place)["plan_id"] == plan_id
    assert ArchiveReader(store.paths.archive).entries_at(None) == {}
    assert "undone, 4 memories" in run("proposals", "compact", "--list", *place).stdout


@pytest.mark.parametrize("words", [("--apply", "0123456789abcdef"), ("--undo", "nonsense")])
def test_a_plan_that_does_not_fit_is_exit_code_3(
    run: Run, run_json: Json, store: Store, words: tuple[str, ...]
) -> None:
    place = ("--store", str(store.root))
    failed = run("proposals", "compact", *words, *place)
    assert (failed.exit_code, failed.stdout) == (3, "")
    assert words[1] in failed.stderr
    assert run_json("proposals", "compact", *words, *place, code=3)["error"] == "PlanRefusedError"
    assert not store.paths.archive.exists()


def test_a_running_night_is_exit_code_4(run: Run, store: Store) -> None:
    with hold_lock(store.paths.lock):
        assert run("proposals", "compact", "--apply", "--store", str(store.root)).exit_code == 4
        assert run("proposals", "compact", "--store", str(store.root)).exit_code == 0
    assert not store.paths.archive.exists()


def test_no_store_is_exit_code_1(run: Run, tmp_path: Path, home: Path) -> None:
    assert run("proposals", "compact", "--store", str(tmp_path / "nowhere")).exit_code == 1


@pytest.mark.parametrize(
    "words", [("--plan", "--list"), ("--apply", "x", "--undo", "y"), ("--list", "--undo", "y")]
)
def test_one_thing_at_a_time(run: Run, store: Store, words: tuple[str, ...]) -> None:
    assert run("proposals", "compact", *words, "--store", str(store.root)).exit_code == 2


def test_the_profile_decides(run: Run, run_json: Json, store: Store) -> None:
    store.paths.profiles.write_text(
        "[default]\ncompaction_age_days = 370\n[eager]\ncompaction_age_days = 0\n"
        "decay_enabled = true\n"
    )
    place = ("--store", str(store.root))
    plan = run_json("proposals", "compact", *place)
    assert [c["memory_id"] for c in plan["candidates"]] == ["101", "105"]
    assert plan["rules"]["decay_lambda"] == 0
    eager = run_json("proposals", "compact", "--profile", "eager", *place)
    assert eager["would_archive"] == 4
    assert eager["rules"]["decay_lambda"] == 0.01
    unknown = run("proposals", "compact", "--profile", "nobody", *place)
    assert unknown.exit_code == 0
    assert "! unknown_profile" in unknown.stderr


def test_only_so_many_are_shown(run: Run, store: Store) -> None:
    shown = run("proposals", "compact", "--limit", "1", "--store", str(store.root)).stdout
    assert "... and 3 more; --json shows all" in shown
    assert "superseded_by=106" not in shown


def test_a_damaged_ledger_is_told(run: Run, store: Store) -> None:
    store.paths.archive.write_bytes(b"x" * 4096)
    assert (
        "archive.sqlite cannot be read"
        in run("proposals", "compact", "--store", str(store.root)).stdout
    )
    for words in (("--apply",), ("--undo", "x"), ("--list",)):
        failed = run("proposals", "compact", *words, "--store", str(store.root))
        assert failed.exit_code == 1, words
        assert "archive.sqlite" in failed.stderr
