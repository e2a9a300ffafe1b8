"""Backups of real homes: what comes back, from which moment, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary import remember
from noctuary.cli import backup as backups
from noctuary.cli.backup import MANIFESTS, OBJECTS, back_up, choose_files, restore_files
from noctuary.core.errors import StoreError, StoreLockedError
from noctuary.core.files import hash_json
from noctuary.core.manifest import full_check, read_manifest, read_pointer
from noctuary.core.store import StorePaths, store_for_source
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.forget import finish_left
from noctuary.sources.own_store import OWN_FILE
from noctuary.work.lock import hold_lock
from tests.e2e.byte_scan import find_texts
from tests.rooms.snapshot.test_forget import PARTS, SECRET, House
from tests.support.archive_file import write_archive
from tests.support.store import Store, household, memory, renumber
from tests.support.usage import count_retrievals

QUESTIONS = ("where is the spare key", "Atlas migration", "flight to Lisbon", "door")


class At:
    """A progress that does something when the n-th file of a task is done."""

    def __init__(self, task: str, done: int, act: Callable[[], object]) -> None:
        self.when, self.act = (task, done), act

    def update(self, task: str, done: int, total: int) -> None:
        """Act at most once."""
        if (task, done) == self.when:
            self.when = ("", 0)
            self.act()


def answers(store: Path) -> list[Any]:
    recaller = Recaller.open(store)
    found = [recaller.recall(question) for question in QUESTIONS]
    assert {w.code for result in found for w in result.warnings} <= {"user_required"}
    return [[(m.id, m.final_score, m.content) for m in result.memories] for result in found]


def contents(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def own_rows(home: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(home / OWN_FILE)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return db.execute("SELECT id, content FROM memories ORDER BY id").fetchall()


def restored(directory: Path, home: Path, **how: Any) -> backups.Restored:
    return restore_files(directory, home, choose_files(directory, home, None, None), **how)


@pytest.fixture
def lived(dense_store: Store, home: Path) -> Store:
    """A home with something of everything that no night makes again, and with what one does."""
    remember("The ladder is lent to Odalys.")
    count_retrievals(dense_store, [["101", "102"], ["101"]])
    serving = dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id)
    with closing(SnapshotReader.open(serving)) as reader:
        write_archive(
            dense_store.paths.archive, reader, {"p": {"102": "101"}}, {"p": [(1_000, None)]}
        )
    kept = {
        "noctuary.toml": "[recall]\nfusion = 'rrf'\n", "queries.jsonl": "{}\n",
        "house/forgotten.json": '{"format": 1, "rows": ["a"], "pending": null}',
        "house/merges.toml": "", "house/verdicts/ab.json": "{}", "house/receipts/r.json": "{}",
        "house/work/usage/folded.json": '{"read": 3}',
    }  # fmt: skip
    rebuilt = {
        "house/work/stamps/a.json": "{}", "house/dagster/dagster.yaml": "", "house/ledger.json": "",
        "house/reports/a.html": "", "house/.removing-x/a": "", "hooks/counters.json": "{}",
        "house/encoders/older/weights.bin": "", "house/snapshots/older/rows.sqlite": "",
    }  # fmt: skip
    for name, text in (kept | rebuilt).items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text, encoding="utf-8")
    return dense_store


def test_a_lost_home_comes_back_and_answers_alike(
    lived: Store, home: Path, tmp_path: Path, run_json: Callable[..., Any]
) -> None:
    place, before, rows = tmp_path / "disk", answers(lived.root), own_rows(home)
    assert not [m for found in before for m in found if m[0] == 102], "it is archived"
    files = contents(home)
    current_ns = lived.paths.current.stat().st_mtime_ns
    made = run_json("backup", str(place))
    again = run_json("backup", str(place))
    assert (made["stores"], made["new_files"] > 15) == (["house"], True)
    assert (again["new_files"], again["files"], again["warnings"]) == (0, made["files"], [])
    shutil.rmtree(home)
    assert run_json("restore", str(place), "--dry-run")["files"] == made["files"]
    assert not home.exists()
    assert run_json("restore", str(place))["stores"] == ["house"]
    assert answers(lived.root) == before
    assert own_rows(home) == rows
    assert lived.paths.current.stat().st_mtime_ns == current_ns
    back = contents(home)
    gone = {name for name in files.keys() - back.keys() if not name.endswith(("-wal", "-shm"))}
    assert {name.split("/")[-1] for name in gone} == {
        "a.json", "dagster.yaml", "ledger.json", "a.html", "a", "counters.json", "weights.bin",
        "rows.sqlite",
    }  # fmt: skip
    assert {n for n in back if "sqlite" not in n and back[n] != files[n]} == set()
    loose = [p for root in (home, place) for p in root.rglob("*") if p.stat().st_mode & 0o077]
    assert loose == []


def test_every_moment_of_a_busy_home_is_a_whole_one(
    lived: Store, home: Path, tmp_path: Path
) -> None:
    """Writers write, and nights publish and remove what the backup has begun to copy."""
    words = "import sys\nfrom noctuary import remember\nn = 0\nwhile True:\n    n += 1\n"
    words += "    print(remember(f'Note {n} of the writer.').id, flush=True)\n"
    writer = subprocess.Popen(
        [sys.executable, "-c", words], stdout=subprocess.PIPE, encoding="utf-8"
    )
    assert writer.stdout is not None
    try:
        for number in range(3):
            acknowledged = int(writer.stdout.readline())
            news = (renumber([*household(), memory(f"News {number}, {n}.")]) for n in range(3))

            def publish(news: Any = news) -> None:
                for records in news:
                    Store(lived.paths, lived.encoder, keep=2).publish(records)

            made = back_up(home, [lived.root], tmp_path / "disk", progress=At("backup", 1, publish))
            assert made.warnings == []
            target = tmp_path / f"back{number}"
            restored(tmp_path / "disk", target)
            assert {key for key, _ in own_rows(target)} >= set(range(1, acknowledged + 1))
            paths = StorePaths(target / "house")
            pointer = read_pointer(paths)
            assert [path.name for path in paths.snapshots.iterdir()] == [pointer.snapshot_id]
            snapshot = paths.snapshots / pointer.snapshot_id
            full_check(snapshot, read_manifest(snapshot))
    finally:
        writer.kill()
        writer.communicate()


def test_an_interrupted_backup_leaves_the_former_one(
    lived: Store, home: Path, tmp_path: Path
) -> None:
    place = tmp_path / "disk"
    total = back_up(home, [lived.root], place).files
    first = contents(place)
    lived.publish(renumber([*household(), memory("The bakery closes at two.")]))

    def stop() -> None:
        raise KeyboardInterrupt

    for done in range(1, total + 2, 3):
        with pytest.raises(KeyboardInterrupt):
            back_up(home, [lived.root], place, progress=At("backup", min(done, total), stop))
        assert len(backups.list_backups(place)) == 1
        assert {n: d for n, d in contents(place).items() if n in first} == first
    code = (
        "import os, sys; from pathlib import Path; from noctuary.cli import backup as b\n"
        "class Die:\n    def update(self, task, done, total):\n"
        "        os.kill(os.getpid(), 9) if done == 9 else None\n"
        "home, root, place = map(Path, sys.argv[1:])\nb.back_up(home, [root], place, None, Die())"
    )
    words = [sys.executable, "-c", code, str(home), str(lived.root), str(place)]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert list(place.glob(".copy-*")) != []
    restored(place, tmp_path / "back")
    assert len(answers(tmp_path / "back/house")) == len(QUESTIONS)
    back_up(home, [lived.root], place)
    assert list(place.glob(".copy-*")) == []
    restored(place, tmp_path / "newer")
    assert answers(tmp_path / "newer/house") == answers(lived.root)


def test_keep_removes_the_oldest_and_what_only_they_hold(
    lived: Store, home: Path, tmp_path: Path
) -> None:
    place, other = tmp_path / "disk", tmp_path / "other"
    remembered = OWN_FILE, "queries.jsonl"
    other.mkdir()
    (other / "queries.jsonl").write_text("of another home")
    alien = back_up(other, [], place).backup
    names: list[str] = []
    for number in range(4):
        (home / "queries.jsonl").write_text(f"version {number}")
        made = back_up(home, [lived.root], place, keep=2)
        names.append(made.backup)
        assert made.removed == names[:-2][-1:]
    assert backups.list_backups(place) == [alien, *names[2:]]
    held = [backups.read_backup(place, name) for name in backups.list_backups(place)]
    assert remembered[1] in held[0].files
    needed = {entry.sha256 for one in held for entry in one.files.values()}
    assert {path.name for path in (place / OBJECTS).iterdir()} == needed
    older = choose_files(place, tmp_path / "back", names[2], None)
    restore_files(place, tmp_path / "back", older)
    assert (tmp_path / "back/queries.jsonl").read_text() == "version 2"
    # Whatever is damaged now, an older backup may have it whole.
    raw = bytearray(lived.paths.archive.read_bytes())
    raw[100:] = os.urandom(len(raw) - 100)
    lived.paths.archive.write_bytes(raw)
    made = back_up(home, [lived.root], place, keep=1)
    assert [("archive.sqlite" in w, "no older" in w) for w in made.warnings] == [
        (True, False), (False, True)
    ]  # fmt: skip
    assert made.removed == []
    restored(place, tmp_path / "damaged")
    assert (tmp_path / "damaged/house/archive.sqlite").read_bytes() == bytes(raw)
    (place / MANIFESTS / f"{alien}.json").write_text("{}")
    lived.paths.archive.unlink()
    made = back_up(home, [lived.root], place, keep=1)
    assert made.removed == []
    assert alien in made.warnings[0]


def test_an_object_that_rotted_is_written_again(lived: Store, home: Path, tmp_path: Path) -> None:
    place = tmp_path / "disk"
    back_up(home, [lived.root], place)
    largest = max((place / OBJECTS).iterdir(), key=lambda path: path.stat().st_size)
    raw = bytearray(largest.read_bytes())
    raw[len(raw) // 2] ^= 1
    largest.write_bytes(raw)
    with pytest.raises(StoreError, match="1 files missing or damaged, so nothing was restored"):
        restored(place, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    assert back_up(home, [lived.root], place).new_files == 1
    restored(place, tmp_path / "back")


def test_a_damaged_snapshot_is_left_out_and_said(
    lived: Store, home: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    serving = lived.snapshot(read_pointer(lived.paths).snapshot_id)
    file = serving / "arrays.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.chmod(0o600)
    file.write_bytes(raw)
    done = run("backup", str(tmp_path / "disk"))
    assert done.exit_code == 1
    assert "no snapshot of house is backed up" in done.output
    restored(tmp_path / "disk", tmp_path / "back")
    assert not (tmp_path / "back/house/CURRENT").exists()
    assert not (tmp_path / "back/house/snapshots").exists()
    assert own_rows(tmp_path / "back") == own_rows(home)
    file.unlink()
    lived.paths.usage.write_bytes(bytes(16) + lived.paths.usage.read_bytes()[16:])
    done = run("backup", str(tmp_path / "disk"))
    assert (done.exit_code, "arrays.safetensors is missing" in done.output) == (1, True)
    assert "house/usage.sqlite is damaged (SQLITE_NOTADB) and backed up as it is" in done.output


def test_nothing_is_overwritten_and_replace_moves_it_aside(
    lived: Store, home: Path, tmp_path: Path, run: Callable[..., Any], run_json: Callable[..., Any]
) -> None:
    place, rows = tmp_path / "disk", own_rows(home)
    back_up(home, [lived.root], place)
    remember("Only the newer file knows this.")
    stray = home / f"{OWN_FILE}-wal"
    stray.write_bytes(b"of the newer file")
    before = contents(home)
    done = run("restore", str(place))
    assert done.exit_code == 1
    assert f"house, {OWN_FILE}, noctuary.toml, queries.jsonl already" in done.output
    with hold_lock(lived.paths.lock):
        assert run("restore", str(place), "--replace").exit_code == 4
    lived.paths.lock.unlink()
    assert contents(home) == before
    told = run_json("restore", str(place), "--replace")
    assert not stray.exists()
    assert own_rows(home) == rows
    aside = contents(Path(told["replaced"]))
    del aside["house/nightly.lock"], aside["house/forget.lock"]
    assert aside == {n: d for n, d in before.items() if not n.startswith("hooks/")}
    assert answers(lived.root)
    lived.paths.merges.write_text("mine")
    shutil.move(lived.root, tmp_path / "away")
    assert run_json("restore", str(place), "--store", "hou")["files"] < len(before)
    assert lived.paths.merges.read_text() == ""


@pytest.mark.parametrize("with_store", [True, False])
def test_what_was_forgotten_since_the_backup_stays_forgotten(
    home: Path, tmp_path: Path, run_json: Callable[..., Any], with_store: bool
) -> None:
    """In the snapshot or not yet; where the store is restored, and where only its memories are."""
    house, place, new = House.new(home), tmp_path / "disk", tmp_path / "new"
    remember(f"{SECRET} Ask Odalys.")
    back_up(home, [house.paths.root] if with_store else [], place)
    assert house.apply(1, 4).is_gone
    assert house.traces() == []
    told = run_json("restore", str(place), "--replace")
    assert "2 stay hidden, and the next night" in told["warnings"][0]
    assert [key for key, _ in own_rows(home)] == [1, 2, 3, 4], "it is an older file"
    found = {memory.id for memory in recall("Zanzibarova spare key", k=100).memories}
    assert {2} <= found <= {2, 3}
    assert house.forgetting() == "warn"
    house.night()
    assert finish_left(house.paths) is not None
    assert [key for key, _ in own_rows(home)] == [2, 3]
    assert find_texts(home, PARTS, skip=[Path(told["replaced"])]) == []
    assert house.forgetting() == "ok"
    # Where nothing was forgotten, everything comes back.
    assert run_json("restore", str(place), "--home", str(new))["warnings"] == []
    assert [key for key, _ in own_rows(new)] == [1, 2, 3, 4]


def test_a_damaged_record_of_what_was_forgotten_is_named(
    lived: Store, home: Path, tmp_path: Path, run_json: Callable[..., Any]
) -> None:
    back_up(home, [lived.root], tmp_path / "disk")
    (lived.root / "forgotten.json").write_text("{}")
    (warning,) = run_json("restore", str(tmp_path / "disk"), "--replace")["warnings"]
    assert "what house forgot since the backup may be back" in warning
    assert answers(lived.root)


def test_the_store_of_the_own_store_keeps_its_memories_in_a_new_home(
    lived: Store, home: Path, tmp_path: Path
) -> None:
    root = store_for_source(home, home / OWN_FILE)
    shutil.move(lived.root, root)
    back_up(home, [root], tmp_path / "disk")
    new = tmp_path / "new"
    restored(tmp_path / "disk", new)
    moved = store_for_source(new, new / OWN_FILE)
    assert moved.name != root.name
    assert answers(moved) == answers(root)


def test_a_clock_that_was_set_back_makes_a_later_name(
    lived: Store, home: Path, tmp_path: Path
) -> None:
    made = back_up(home, [lived.root], tmp_path / "disk").backup
    future = "29991231T235959999998"
    manifests = tmp_path / "disk" / MANIFESTS
    (manifests / f"{made}.json").rename(manifests / f"{future}.json")
    assert back_up(home, [lived.root], tmp_path / "disk").backup == "29991231T235959999999"


@pytest.mark.parametrize("where", ["home/below", "home/house/below", "home", "full"])
def test_a_place_that_would_not_survive_is_refused(
    lived: Store, home: Path, tmp_path: Path, where: str
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(StoreError, match=r"lies in|something else in it"):
        back_up(home, [lived.root], tmp_path / where)
    assert contents(tmp_path) == before


def test_two_backups_take_turns_and_an_empty_home_has_none(
    lived: Store, home: Path, tmp_path: Path, run: Callable[..., Any]
) -> None:
    place = tmp_path / "disk"
    back_up(home, [lived.root], place)
    with hold_lock(place / "backup.lock"):
        done = run("backup", str(place))
    assert (done.exit_code, "another backup" in done.output) == (4, True)
    with pytest.raises(StoreError, match="nothing to back up"):
        back_up(tmp_path / "nobody", [], tmp_path / "other")
    assert run("backup", str(place), "--store", "no-such").exit_code == 1
    lived.root.rename(home / ".house")
    with pytest.raises(StoreError, match="rename it"):
        back_up(home, [home / ".house"], place)
    assert run("restore", str(tmp_path / "other")).exit_code == 1
    assert run("restore", str(place), "--backup", "1999", "--dry-run").exit_code == 1


Body = dict[str, Any]


def _rename(name: str) -> Callable[[Body], None]:
    def edit(body: Body) -> None:
        body["files"][name] = body["files"].pop("queries.jsonl")

    return edit


def _set(key: str, value: Any) -> Callable[[Body], None]:
    return lambda body: body["files"]["queries.jsonl"].update({key: value})


HOSTILE: dict[str, Callable[[Body], None]] = {
    **{
        name: _rename(name)
        for name in (
            "../out.toml", "/tmp/out.toml", "house/../../out.toml", "house/./a", "house//a",
            "house/", ".bashrc", "house/.git/config", "run.sh", "hooks/installs.json", "a\x1b.toml",
            "house/dagster/dagster.yaml", "house/work/stamps/a.json", "house/nightly.lock",
            "house/turns.sqlite-wal", "house\0/a", "", "..", "house/a\n",
        )
    },
    "outside": _set("sha256", "../../secret"),
    "larger": _set("bytes", 10**15),
    "smaller": _set("bytes", 1),
    "negative": _set("bytes", -1),
    "text": _set("bytes", "3"),
    "true": _set("bytes", True),
    "time": _set("mtime_ns", 2**70),
    "key": _set("mode", 0o777),
    "list": lambda body: body.update(files=[]),
    "deep": lambda body: body.update(home=json.loads("[" * 200 + "]" * 200)),
}  # fmt: skip


@pytest.mark.parametrize("how", HOSTILE)
def test_a_manifest_that_no_backup_writes_is_refused(
    lived: Store, home: Path, tmp_path: Path, how: str
) -> None:
    place = tmp_path / "disk"
    made = back_up(home, [lived.root], place)
    assert restored(place, tmp_path / "back", dry_run=True).files == made.files
    path = place / MANIFESTS / f"{made.backup}.json"
    raw = json.loads(path.read_text())
    HOSTILE[how](raw["backup"])
    raw["digest"] = hash_json(raw["backup"])
    path.write_text(json.dumps(raw))
    before = contents(tmp_path)
    with pytest.raises(StoreError):
        restored(place, tmp_path / "back")
    assert contents(tmp_path) == before


def _link_object(place: Path) -> None:
    path = max((place / OBJECTS).iterdir(), key=lambda path: path.stat().st_size)
    path.rename(place.parent / "elsewhere")
    path.symlink_to(place.parent / "elsewhere")


def _pipe(place: Path) -> None:
    path = next((place / OBJECTS).iterdir())
    path.unlink()
    os.mkfifo(path)


def _edit(place: Path, old: str, new: str) -> None:
    (path,) = (place / MANIFESTS).iterdir()
    path.write_text(path.read_text().replace(old, new))


DAMAGED: dict[str, Callable[[Path], None]] = {
    "a link in place of an object": _link_object,
    "a pipe in place of an object": _pipe,
    "another digest": lambda place: _edit(place, '"queries.jsonl"', '"labels.jsonl"'),
    "a newer version": lambda place: _edit(place, '"format_version": 1', '"format_version": 2'),
    "another format": lambda place: _edit(place, "noctuary-backup", "noctuary-export"),
    "half a manifest": lambda place: _edit(place, '"backup"', '"back'),
    "no objects": lambda place: shutil.rmtree(place / OBJECTS),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_backup_restores_nothing(
    lived: Store, home: Path, tmp_path: Path, how: str
) -> None:
    place = tmp_path / "disk"
    back_up(home, [lived.root], place)
    assert restored(place, tmp_path / "back", dry_run=True).files
    DAMAGED[how](place)
    with pytest.raises(StoreError):
        restored(place, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_backup_that_changes_during_a_restore_restores_nothing(
    lived: Store, home: Path, tmp_path: Path
) -> None:
    place, back = tmp_path / "disk", tmp_path / "back"
    back_up(home, [lived.root], place)

    def swap() -> None:
        for path in (place / OBJECTS).iterdir():
            path.write_bytes(b"x" * path.stat().st_size)

    with pytest.raises(StoreError, match="changed meanwhile, so nothing was restored"):
        restored(place, back, progress=At("restore", 3, swap))
    assert list(back.iterdir()) == []


def test_a_restore_waits_for_no_writer(lived: Store, home: Path, tmp_path: Path) -> None:
    from noctuary.core.sqlite import directory_lock

    back_up(home, [lived.root], tmp_path / "disk")
    (tmp_path / "back").mkdir()
    with directory_lock(tmp_path / "back"), pytest.raises(StoreLockedError, match="try again"):
        restored(tmp_path / "disk", tmp_path / "back")


def test_settings_that_run_something_are_named(
    lived: Store, home: Path, tmp_path: Path, run_json: Callable[..., Any]
) -> None:
    (home / "noctuary.toml").write_text("[notify]\ncommand = 'mail me'\n")
    back_up(home, [lived.root], tmp_path / "disk")
    told = run_json("restore", str(tmp_path / "disk"), "--home", str(tmp_path / "back"))
    (warning,) = told["warnings"]
    assert "notify.command to 'mail me'" in warning
