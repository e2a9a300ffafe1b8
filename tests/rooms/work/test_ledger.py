"""What the ledger takes for damage after nights that ended, were killed, or failed."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.core.store import StorePaths
from noctuary.work import ledger
from noctuary.work.ledger import begin_night, end_night, find_faults, heal_dagster, record_dagster
from noctuary.work.stage import Stage, StageOutput, hash_settled, run_stage

LETTERS = Stage("letters", "1", ("corpus/letters.txt",))


@pytest.fixture
def paths(tmp_path: Path) -> StorePaths:
    """A store after one night: a stage's output, what it keeps beside, a table of two files."""
    paths = StorePaths(tmp_path)
    begin_night(paths)
    run_stage(paths.work, LETTERS, {}, lambda: write_letters(paths))
    for name in ("data/rows.lance", "_versions/1.manifest"):
        file = paths.lance / "table.lance" / name
        file.parent.mkdir(parents=True)
        file.write_text("rows")
    end_night(paths, finished=True)
    return paths


def write_letters(paths: StorePaths) -> StageOutput:
    for name in ("corpus/letters.txt", "corpus/kept/beside.txt"):
        file = paths.work / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("abc")
    return StageOutput(3, {})


def rot(path: Path, text: str = "abd") -> None:
    """Change a file without its size or time."""
    was = path.stat()
    path.write_text(text)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def names(paths: StorePaths) -> set[str]:
    return {fault.name for fault in find_faults(paths)}


@pytest.mark.parametrize("name", ["corpus/letters.txt", "corpus/kept/beside.txt"])
def test_what_a_stage_wrote_goes_with_its_stamp(paths: StorePaths, name: str) -> None:
    rot(paths.work / name)
    assert names(paths) == {f"work/{name}"}
    faults, stages = begin_night(paths)
    assert [fault.what for fault in faults] == ["other bytes than were left"]
    assert stages == ["letters"]
    assert not (paths.work / name).exists()
    assert not run_stage(paths.work, LETTERS, {}, lambda: write_letters(paths)).reused


def test_a_table_goes_whole(paths: StorePaths) -> None:
    rot(paths.lance / "table.lance" / "_versions" / "1.manifest", "sworn")
    begin_night(paths)
    assert not (paths.lance / "table.lance").exists()


@pytest.mark.parametrize("copy", ["ledger.json", "work/ledger.json"])
def test_damage_to_one_copy_of_the_ledger_condemns_it_alone(paths: StorePaths, copy: str) -> None:
    text = (paths.root / copy).read_text()
    (paths.root / copy).write_text(text.replace("closed", "cloned"))
    assert names(paths) == {copy}
    begin_night(paths)
    assert (paths.work / "corpus" / "letters.txt").exists()
    assert names(paths) == set()


def test_without_a_readable_ledger_nothing_is_trusted(paths: StorePaths) -> None:
    for copy in (paths.root, paths.work):
        (copy / "ledger.json").write_text("")
    begin_night(paths)
    assert not [*paths.work.rglob("*.txt"), *paths.lance.rglob("*.lance/*")]


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_what_a_first_night_computed_is_kept_however_it_ends(tmp_path: Path, ends: str) -> None:
    paths = StorePaths(tmp_path)
    assert begin_night(paths) == ([], [])
    run_stage(paths.work, LETTERS, {}, lambda: write_letters(paths))
    if ends == "stopped":
        end_night(paths, finished=False)
    assert begin_night(paths) == ([], [])
    assert run_stage(paths.work, LETTERS, {}, lambda: write_letters(paths)).reused


def test_damage_of_a_killed_first_night_goes_when_the_next_fails_on_it(tmp_path: Path) -> None:
    paths = StorePaths(tmp_path)
    begin_night(paths)
    run_stage(paths.work, LETTERS, {}, lambda: write_letters(paths))
    (paths.work / "torn.parquet").write_text("a power cut")
    begin_night(paths)
    end_night(paths, finished=False)
    assert "work/torn.parquet" in names(paths)
    begin_night(paths)
    assert not (paths.work / "torn.parquet").exists()
    run_stage(paths.work, LETTERS, {}, lambda: write_letters(paths))
    end_night(paths, finished=False)
    assert begin_night(paths) == ([], []), "what was made anew since is vouched for"


def test_what_a_killed_night_wrote_stays_and_bit_rot_under_it_does_not(paths: StorePaths) -> None:
    begin_night(paths)
    letters, beside = (paths.work / "corpus" / n for n in ("letters.txt", "kept/beside.txt"))
    letters.write_text("written by the night that was killed")
    (paths.work / "new.txt").write_text("so was this")
    rot(beside)
    assert names(paths) == {"work/corpus/kept/beside.txt"}
    begin_night(paths)
    assert letters.exists()
    assert (paths.work / "new.txt").exists()
    assert not beside.exists()


@pytest.mark.parametrize("begun", ["after a kill", "without a ledger"])
def test_what_nobody_vouches_for_goes_after_a_failure(paths: StorePaths, begun: str) -> None:
    """A power cut tears a file of a running night: only failing on it tells."""
    if begun == "after a kill":
        begin_night(paths)
    else:
        for copy in (paths.root, paths.work):
            (copy / "ledger.json").unlink()
    torn, kept = paths.work / "torn.parquet", paths.work / "content" / "k" / "f.arrow"
    kept.parent.mkdir(parents=True)
    kept.write_text("has a checksum of its own")
    torn.write_text("torn")
    assert begin_night(paths) == ([], [])
    end_night(paths, finished=False)
    assert "work/torn.parquet" in names(paths)
    begin_night(paths)
    assert not torn.exists()
    assert kept.exists()


def test_no_doubt_takes_content_away_that_the_ledger_knows(paths: StorePaths) -> None:
    manifest = paths.work / "content" / "k" / "MANIFEST.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("of a night that ended")
    end_night(paths, finished=True)
    begin_night(paths)
    manifest.write_text("grown by a night that was killed")
    begin_night(paths)
    end_night(paths, finished=False)
    assert names(paths) == set()
    manifest.write_text("of a night that ended")
    begin_night(paths)
    end_night(paths, finished=True)
    rot(manifest)
    assert names(paths) == {"work/content/k/MANIFEST.json"}


def test_sums_that_nothing_can_rebuild_are_set_aside(paths: StorePaths) -> None:
    sums = paths.work / "usage" / "folded.json"
    sums.parent.mkdir()
    sums.write_text("sum")
    end_night(paths, finished=True)
    rot(sums, "sun")
    begin_night(paths)
    assert sums.with_name("folded.json.damaged").read_text() == "sun"


def test_dagsters_files_may_change_between_nights_but_not_rot(paths: StorePaths) -> None:
    runs = paths.dagster_home / "history" / "runs.db"
    runs.parent.mkdir(parents=True)
    with closing(sqlite3.connect(runs)) as db, db:
        db.execute("CREATE TABLE runs (x)")
    record_dagster(paths)
    with closing(sqlite3.connect(runs)) as db, db:
        db.execute("INSERT INTO runs VALUES (1)")
    assert names(paths) == set()
    record_dagster(paths)
    was = runs.stat()
    data = bytearray(runs.read_bytes())
    data[-1] ^= 1
    runs.write_bytes(data)
    assert names(paths) == set(), "a database that is whole, at another time"
    os.utime(runs, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert names(paths) == {"dagster/history/runs.db"}
    runs.write_bytes(data[: len(data) // 2])
    assert [fault.name for fault in heal_dagster(paths)] == ["dagster/history/runs.db"]
    assert runs.with_name("runs.db.damaged").exists()
    assert not runs.exists()


def add_run(runs: Path) -> None:
    with closing(sqlite3.connect(runs)) as db, db:
        db.execute("CREATE TABLE IF NOT EXISTS runs (x)")


@pytest.mark.parametrize("does", [add_run, Path.unlink])
def test_what_dagster_writes_or_removes_while_it_is_read_is_no_damage(
    paths: StorePaths, monkeypatch: pytest.MonkeyPatch, does: Callable[[Path], None]
) -> None:
    runs = paths.dagster_home / "history" / "runs.db"
    runs.parent.mkdir(parents=True)
    runs.touch()
    record_dagster(paths)

    def hash_late(path: Path) -> str:
        if path == runs:
            does(path)
        return hash_settled(path)

    monkeypatch.setattr(ledger, "hash_settled", hash_late)
    assert names(paths) == set()
    runs.touch()
    record_dagster(paths)
    end_night(paths, finished=True)
