from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.core import store as layout
from noctuary.core.files import make_private, open_to_others, remove_tree
from noctuary.core.manifest import read_pointer
from tests.support.store import Store, memory, new_store, renumber

Run = Callable[..., Result]
RunJson = Callable[..., Any]


@pytest.fixture
def two(dense_store: Store) -> tuple[Store, list[str]]:
    """A store that published twice; ids oldest first."""
    first = read_pointer(dense_store.paths).snapshot_id
    second = dense_store.publish(renumber([memory("Another spare key.")], 900))
    return dense_store, [first, second]


def damage(store: Store, snapshot_id: str) -> None:
    (store.snapshot(snapshot_id) / layout.ARRAYS_FILE).unlink()


def test_status_shows_what_serves_and_doctor_is_content(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    result = run("status")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[1] == f"store      {dense_store.root}"
    assert read_pointer(dense_store.paths).snapshot_id in lines[2]
    assert "encoder    word-axes, 8 dimensions" in lines
    assert "14 memories" in result.stdout
    value = run_json("status")
    assert value["counts"]["memories"] == 14
    assert value["wings"] == {"home": 9, "(none)": 3, "work": 2}
    assert value["snapshot_bytes"] > 0
    well = run("doctor")
    assert well.exit_code == 0
    assert "FAIL" not in well.stdout
    assert "every checksum holds" in well.stdout
    assert {f["level"] for f in run_json("doctor")["findings"]} == {"ok"}
    assert any(line.split() == ["2", "work"] for line in lines)


@pytest.mark.parametrize("command", ["status", "rollback"])
def test_a_damaged_snapshot_is_a_sentence(
    run: Run, run_json: RunJson, dense_store: Store, command: str
) -> None:
    damage(dense_store, read_pointer(dense_store.paths).snapshot_id)
    result = run(command)
    assert result.exit_code == 1
    assert result.stderr.startswith("noctuary: ")
    value = run_json(command, code=1)
    assert set(value) == {"error", "message"}


def test_snapshots_are_listed_oldest_first_with_the_serving_one_marked(
    run: Run, run_json: RunJson, two: tuple[Store, list[str]]
) -> None:
    store, names = two
    lines = run("snapshots").stdout.splitlines()
    assert [line[0] for line in lines] == [" ", "*"]
    assert [line[2 : 2 + len(names[0])] for line in lines] == names
    listed = run_json("snapshots")["snapshots"]
    assert [row["snapshot_id"] for row in listed] == names
    assert [row["serving"] for row in listed] == [False, True]
    assert [row["memories"] for row in listed] == [14, 1]
    damage(store, names[0])
    first, second = run("snapshots").stdout.splitlines()
    assert ("DAMAGED" in first, "DAMAGED" in second) == (True, False)


def test_without_an_encoder_status_says_so_and_doctor_warns(run: Run, plain_store: Store) -> None:
    assert "none: lexical and graph only" in run("status").stdout
    result = run("doctor")
    assert result.exit_code == 0
    assert "WARN  encoder: " in result.stdout


def test_without_a_snapshot_the_lists_say_so(run: Run, home: Path, empty_store: Store) -> None:
    result = run("snapshots", "--store", str(empty_store.root))
    assert result.exit_code == 0
    assert "nothing has been published yet" in result.stdout
    assert "noctuary nightly" in run("stores").output


def test_rollback_to_nowhere_or_to_a_damaged_one_is_refused(
    run: Run, two: tuple[Store, list[str]]
) -> None:
    store, names = two
    assert "no snapshot 'x'" in run("rollback", "x").stderr
    damage(store, names[0])
    assert run("rollback").exit_code == 1
    assert read_pointer(store.paths).snapshot_id == names[1]
    remove_tree(store.snapshot(names[0]))
    nowhere = run("rollback")
    assert nowhere.exit_code == 1
    assert "no snapshot older" in nowhere.stderr


def test_rollback_serves_the_older_one(
    run: Run, run_json: RunJson, two: tuple[Store, list[str]]
) -> None:
    store, names = two
    result = run("rollback")
    assert result.exit_code == 0
    assert f"serving {names[0]} (before: {names[1]})" in result.stdout
    assert read_pointer(store.paths).snapshot_id == names[0]
    value = run_json("rollback", names[1])
    assert (value["snapshot_id"], value["reason"]) == (names[1], "rollback")


def test_doctor_fails_with_exit_code_1_and_a_remedy(
    run: Run, run_json: RunJson, dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(dense_store, read_pointer(dense_store.paths).snapshot_id)
    script = Path(sys.executable).with_name("noctuary")
    monkeypatch.setenv("PATH", "")
    assert f"      -> run `{script} rollback`" in run("doctor").stdout
    monkeypatch.setenv("PATH", str(script.parent))
    result = run("doctor")
    assert result.exit_code == 1
    assert "FAIL  snapshot: " in result.stdout
    assert "      -> run `noctuary rollback`" in result.stdout
    findings = run_json("doctor", code=1)["findings"]
    assert [f["name"] for f in findings if f["level"] == "fail"] == ["snapshot"]


@pytest.mark.parametrize("command", ["status", "doctor", "snapshots", "rollback", "recall key"])
def test_a_guessed_store_is_said(
    run: Run, home: Path, two: tuple[Store, list[str]], command: str
) -> None:
    """Rolling back the wrong store in silence would be worse than not rolling back."""
    other = new_store(home / "other")
    other.publish(renumber([memory("first")]))
    other.publish(renumber([memory("second")]))
    result = run(*command.split())
    assert "store_guessed" in result.stderr
    assert "other" in result.stderr
    assert "store_guessed" not in run(*command.split(), "--store", "house").stderr


def test_doctor_names_and_mends_what_others_may_read(
    run: Run, run_json: Callable[..., Any], dense_store: Store
) -> None:
    make_private(dense_store.root)  # this process has the umask of whoever runs the tests
    for path in (dense_store.root, dense_store.paths.current, dense_store.paths.snapshots):
        path.chmod(path.stat().st_mode | 0o055)
    (found,) = [f for f in run_json("doctor")["findings"] if f["name"] == "privacy"]
    assert found["level"] == "warn"
    assert "3 files and directories" in found["message"]
    assert found["remedy"] == "run `noctuary doctor --fix`"
    assert "fixed the permissions of 3 files and directories" in run("doctor", "--fix").stdout
    assert open_to_others(dense_store.root) == []


def test_stores_lists_what_is_there_what_is_wrong_and_marks_the_default(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    home = dense_store.root.parent
    (home / "half" / "work").mkdir(parents=True)
    broken = dense_store.root.parent / "broken"
    broken.mkdir()
    (broken / "CURRENT").write_text("{}", encoding="utf-8")
    lines = run("stores").stdout.splitlines()
    assert [line[:8] for line in lines if line[:4] != "    "] == [
        f"home  {home}"[:8], "* broken", "  half  ", "  house "
    ]  # fmt: skip
    assert "cannot be read" in lines[2]
    assert "nothing has been published" in lines[4]
    assert "14 memories" in lines[5]
    (broken / "CURRENT").unlink()
    told = run_json("stores")
    assert told["home"] == str(home)
    half, house = told["stores"]
    assert (half["default"], half["memories"], half["snapshot_id"]) == (False, None, None)
    assert (house["name"], house["default"], house["memories"]) == ("house", True, 14)
    assert house["snapshot_id"] == read_pointer(dense_store.paths).snapshot_id
    assert house["bytes"] > 0
    assert house["age_hours"] < 1
    assert house["fault"] is None
    dense_store.paths.last_night.unlink()
    assert "no night went through" in run_json("stores")["stores"][1]["fault"]
    assert run("status", "--store", "hou").stdout == run("status").stdout


@pytest.mark.parametrize("command", ["status", "doctor", "stores"])
def test_a_command_that_looks_at_stores_says_where_home_is(
    run: Run, run_json: RunJson, dense_store: Store, command: str
) -> None:
    home = str(dense_store.root.parent)
    assert home in run(command).stdout.splitlines()[0]
    assert run_json(command)["home"] == home
