"""Promises 1, 2, 4 and 5 of docs/promises.md: what a power cut may leave of the files is sound.

Each program runs once under a recorder. Of the trees that a file system may leave at any moment of
it, each must answer as before or as after, and hold whatever the program had said was kept.
"""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from pyarrow import ArrowInvalid

from noctuary import remember
from noctuary.cli.backup import back_up, choose_files, list_backups, restore_files
from noctuary.cli.doctor import examine
from noctuary.cli.exchange import export_snapshot
from noctuary.compact.archive import ArchiveReader
from noctuary.core.settings import CorpusSettings
from noctuary.core.sqlite import close_logs
from noctuary.core.store import StorePaths
from noctuary.core.tombstones import read_tombstones
from noctuary.curate.apply import undo
from noctuary.curate.stores import SqliteStore
from noctuary.recall.api import recall
from noctuary.snapshot.forget import apply_forget
from noctuary.snapshot.forget_plan import plan_forget
from noctuary.snapshot.publish import list_snapshots, read_intact
from noctuary.sources.export import previous_export
from noctuary.sources.ingest import ingest_transcripts
from noctuary.sources.own_store import OWN_FILE
from noctuary.usage.access_log import append_retrievals
from noctuary_assets.housekeeping import forget_retracted
from tests.e2e.byte_scan import find_texts, pieces
from tests.e2e.driver import DONE, ROOT, environment, night_words, run_night
from tests.e2e.power_cut_programs import (
    PROGRAMS,
    RETRACTED,
    edition,
    own_store_of,
    publish_own,
    store_of,
)
from tests.e2e.stores import Bench, add_memory, editing, leftovers
from tests.support.claude_memory import table_of
from tests.support.crash_states import STRACE, Recording, State, crash_states, record
from tests.support.injections import INJECTED_US
from tests.support.transcripts import kept_contents

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

STATES, PROMISED, LAST = 20, 12, 5
"""Of each program in the default run, more right after a promise, and all those after its last
system calls; the slow run tries all."""
HEALED_EVERY = 8
"""One state in so many is gone on from."""
QUERIES = ("where is the spare key", "boiler before winter")

Answers = tuple[object, ...]


@dataclass(frozen=True)
class Watched:
    """What a program did, and the directory that it left."""

    name: str
    recording: Recording
    place: Path  # where it ran; some files name it
    after: Path

    @cached_property
    def answers(self) -> tuple[Answers, Answers]:
        """What a recall answers before it and after it."""
        return answers(self.recording.before), answers(self.after)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Watched]:
    """Every program after one run of all in one process."""
    directory = tmp_path_factory.mktemp("watched")
    root = directory / "root"
    for name, (prepare, _) in PROGRAMS.items():
        (root / name).mkdir(parents=True)
        prepare(root / name)
    close_logs()
    script = str(ROOT / "tests" / "e2e" / "power_cut_programs.py")
    words, env = (
        [sys.executable, script, str(root), *PROGRAMS],
        {**os.environ, "PYTHONPATH": str(ROOT)},
    )
    found = record(words, root, directory / "before", env=env, cwd=ROOT)
    assert found.code == 0
    after = shutil.copytree(root, directory / "after")
    return {n: Watched(n, found.below(n), root / n, after / n) for n in PROGRAMS}


def answers(root: Path, store: Path | None = None) -> Answers:
    """Return the digest of what serves and what it answers; nothing is written."""
    store = store or store_of(root).root
    found = [recall(query, store=store, dry_run=True) for query in QUERIES]
    ranked = (tuple((m.id, m.final_score) for m in result.memories) for result in found)
    # An id also says when it was published: a repeated publication has another.
    return (found[0].snapshot_id or "").rpartition("-")[2], *ranked


def snapshot_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """Recall answers as before or as after; once it was said to be published, as after."""
    (before, after), found = watched.answers, answers(tree)
    if found not in ((after,) if state.said else (before, after)):
        yield f"recall answers {found[0]} instead of {before[0]} or {after[0]}"
    yield from doctor_faults(store_of(tree).root)


def doctor_faults(store: Path) -> Iterator[str]:
    """Doctor finds the snapshot missing or damaged where recall does, and nothing else wrong."""
    result = recall(QUERIES[0], store=store, dry_run=True)
    codes = {warning.code for warning in result.warnings}
    troubles = codes & {"no_snapshot", "store_unreadable", "snapshot_damaged", "snapshot_fallback"}
    told = {f.name: f for f in examine(StorePaths(store)) if f.level == "fail"}
    if bool(troubles) != bool({"pointer", "snapshot"} & told.keys()):
        yield f"doctor says {told}, recall {troubles}"
    paths = StorePaths(store)
    for name in list_snapshots(paths):
        if read_intact(paths.snapshots / name) is None:
            yield f"{name} is listed and not whole"
    if unexpected := told.keys() - {"pointer", "snapshot"}:
        yield f"doctor finds {[told[name].message for name in unexpected]}"


def publish_again(tree: Path, watched: Watched) -> None:
    store_of(tree).paths.root.mkdir(parents=True, exist_ok=True)
    store_of(tree).publish(edition(3))
    _, *found = answers(tree)
    assert len(found) == len(QUERIES)
    assert any(
        "spare key has number 3" in m.content
        for m in recall(QUERIES[0], store=store_of(tree).root, dry_run=True).memories
    )


def forgetting_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """Once the mark is gone that asks for it, no byte of what is to be forgotten is left."""
    held = [path.name for path in tree.rglob("*") if path.is_file()
            and RETRACTED.encode() in path.read_bytes()]  # fmt: skip
    if held and not store_of(tree).paths.purge_pending.exists():
        yield f"{held} hold a text that nobody will look for again"
    yield from snapshot_faults(tree, state, watched)


def forget_again(tree: Path, watched: Watched) -> None:
    if store_of(tree).paths.purge_pending.exists():
        forget_retracted(store_of(tree).paths)
    assert [*forgetting_faults(tree, State(0, "", "forgotten", {}), watched)] == []


def gone_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """What is forgotten is there as before, or hidden and on the list, or gone from every byte."""
    paths = own_store_of(tree).paths
    # Only what an export writes that leaves it out already; the next one removes that.
    staged = [paths.work / "corpus" / ".export.tmp"]
    try:
        found = find_texts(tree / "home", pieces(RETRACTED, 24), skip=staged)
        held = {file for file, _, _ in found}
    except (ArrowInvalid, sqlite3.DatabaseError):  # not whole: nobody knows what it holds
        held = {"a damaged table"}
    shown = [m.content for query in QUERIES for m in recall(query, store=paths.root).memories]
    is_pending = read_tombstones(paths.root).is_pending
    if held and (state.said or not (is_pending or (1, RETRACTED) in kept_memories(tree))):
        yield f"{held} hold it, and nothing says so (pending: {is_pending})"
    if RETRACTED in shown and (is_pending or not held):
        yield "it is recalled"
    if not {text for _, text in _kept_by(watched)[1:]} <= {text for _, text in kept_memories(tree)}:
        yield f"other memories are lost: {kept_memories(tree)}"
    told = {f.name: f.level for f in examine(paths)}
    if is_pending and told["forgetting"] == "ok":
        yield f"doctor does not say that it is pending: {told}"
    yield from doctor_faults(paths.root)


def forget_for_good_again(tree: Path, watched: Watched) -> None:
    if read_tombstones(own_store_of(tree).root).is_pending or (1, RETRACTED) in kept_memories(tree):
        is_there = (1, RETRACTED) in kept_memories(tree)
        plan = plan_forget(ids=[1] if is_there else None)
        assert apply_forget(plan, night=lambda: publish_own(tree)).is_gone
    assert [*gone_faults(tree, State(0, "", "gone", {}), watched)] == []


def _kept_by(watched: Watched) -> list[tuple[object, ...]]:
    return kept_memories(watched.recording.before)


def comparison_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """What tells which rows turned sensitive is there until they were told, and then gone."""
    held = [path.name for path in tree.iterdir() if RETRACTED.encode() in path.read_bytes()]
    if bool(held) is not {"": True, "compared": bool(held), "compared, done": False}[state.said]:
        yield f"{held} hold the export of before"


def compare_again(tree: Path, watched: Watched) -> None:
    with previous_export(tree / "memories.parquet") as previous:
        assert previous is not None
    assert sorted(path.name for path in tree.iterdir() if path.suffix != ".tmp") == [
        "memories.parquet"
    ]


def export_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """An export is whole, or not there; nothing of it changes the store."""
    found, expected = (_bytes_below(place / "export") for place in (tree, watched.after))
    if found not in ((expected,) if state.said else ({}, expected)):
        yield f"the export holds {sorted(found)}"
    if answers(tree) != watched.answers[0]:
        yield "the store has changed"


def _bytes_below(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def export_again(tree: Path, watched: Watched) -> None:
    shutil.rmtree(tree / "export", ignore_errors=True)
    export_snapshot(store_of(tree).paths, tree / "export")
    assert [*export_faults(tree, State(0, "", "exported", {}), watched)] == []


def backup_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """There is a backup that is whole, the new one once it was said to be made."""
    disk, newest = tree / "disk", list_backups(tree / "disk")[-1]
    if state.said and newest != state.said:
        yield f"the newest is {newest}"
    chosen = choose_files(disk, tree / "lost", None, None)
    restore_files(disk, tree / "lost", chosen)
    rows, kept = _memories_in(tree / "lost"), _kept_by(watched)
    is_old = newest in list_backups(watched.recording.before / "disk")
    if rows != (kept[:-1] if is_old else kept):
        yield f"{newest} holds {rows}"
    (store,) = (path.parent for path in (tree / "lost").glob("*/CURRENT"))
    if answers(tree, store)[1:] != answers(tree, own_store_of(watched.place).root)[1:]:
        yield f"{newest} answers something else"


def back_up_again(tree: Path, watched: Watched) -> None:
    made = back_up(tree / "home", [own_store_of(tree).root], tree / "disk", keep=1)
    shutil.rmtree(tree / "lost")
    (kept,) = list_backups(tree / "disk")
    assert [*backup_faults(tree, State(0, "", kept, {}), watched)] == []
    assert kept == made.backup


def restore_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """What was said to be restored is there whole, and the backup is as it was."""
    store = own_store_of(tree).root
    if state.said and kept_memories(tree) != kept_memories(watched.after):
        yield f"{kept_memories(tree)} were restored"
    if (
        state.said
        and answers(tree, store)[1:] != answers(tree, watched.after / "home" / store.name)[1:]
    ):
        yield "what was restored answers something else"
    restore_files(
        tree / "disk", tree / "lost", choose_files(tree / "disk", tree / "lost", None, None)
    )
    if _memories_in(tree / "lost") != kept_memories(watched.after):
        yield "the backup is damaged"
    shutil.rmtree(tree / "lost")


def restore_again(tree: Path, watched: Watched) -> None:
    home = tree / "home"
    restore_files(tree / "disk", home, choose_files(tree / "disk", home, None, None), True)
    assert [*restore_faults(tree, State(0, "", "restored", {}), watched)] == []


def curation_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """Proposals that were said to be applied, or undone, are; the journal says which."""
    with closing(SqliteStore(tree / "memory.db", CorpusSettings())) as store:
        applied = store.applications()
    found = "".join("applied" if one["undone_at"] is None else "applied, undone" for one in applied)
    if found not in _THEN[state.said]:
        yield f"the journal says {found!r} after {state.said!r}"
    before, now = (table_of(root / "memory.db") for root in (watched.recording.before, tree))
    if (now == before) is (found == "applied"):
        yield f"the source holds {now} where its journal says {found!r}"


_THEN = {
    "": {"", "applied"},
    "applied": {"applied", "applied, undone"},
    "applied, undone": {"applied, undone"},
}


def curate_again(tree: Path, watched: Watched) -> None:
    with closing(SqliteStore(tree / "memory.db", CorpusSettings())) as store:
        for one in [one for one in store.applications() if one["undone_at"] is None]:
            undo(store, one["journal_id"])
    shutil.rmtree(tree / "corpus", ignore_errors=True)
    PROGRAMS["curation"][1](tree, lambda _: None)
    assert table_of(tree / "memory.db") == table_of(watched.recording.before / "memory.db")


def memory_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """What `remember` returned is there, in a file that SQLite calls sound."""
    rows, kept = kept_memories(tree), kept_memories(watched.recording.before)
    for line in state.said.splitlines():
        key, _, text = line.partition(" ")
        if (int(key), text) not in rows:
            yield f"memory {key} is lost"
    if rows[: len(kept)] != kept:
        yield f"memories of before are lost: {rows}"


def kept_memories(tree: Path) -> list[tuple[object, ...]]:
    """Return the memories of the own store below a directory."""
    return _memories_in(tree / "home")


def _memories_in(home: Path) -> list[tuple[object, ...]]:
    return _rows(home / OWN_FILE, "SELECT id, content FROM memories ORDER BY id")


def remember_again(tree: Path, watched: Watched) -> None:
    found = remember("A memory after the power cut.")
    assert (found.id, found.path) == (
        len(_rows(found.path, "SELECT 1 FROM memories")), tree / "home" / "memories.sqlite"
    )  # fmt: skip


def archive_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """A plan that was said to hold, or to be undone, does or is."""
    reader = ArchiveReader(store_of(tree).paths.archive)
    if reader.warning is not None:
        yield reader.warning
    found = "".join(
        "archived" if a.undone_at_us is None else "archived, undone" for a in reader.applications
    )
    if found.replace("archived", "applied") not in _THEN[state.said.replace("archived", "applied")]:
        yield f"the ledger says {found!r} after {state.said!r}"
    if answers(tree)[0] != watched.answers[0][0]:
        yield "another snapshot serves"
    yield from doctor_faults(store_of(tree).root)


def turn_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """Turns that were said to be kept are, although their transcripts may be gone."""
    sql = "SELECT text FROM parts ORDER BY part"
    found = _rows(store_of(tree).paths.turns, sql)
    said = sum(map(int, state.said.split()))
    if len(found) < said or found != _rows(store_of(watched.after).paths.turns, sql)[: len(found)]:
        yield f"{len(found)} turns, {said} were acknowledged"


def ingest_again(tree: Path, watched: Watched) -> None:
    turns = store_of(tree).paths.turns
    assert ingest_transcripts(watched.after / "agent", turns).faults == []
    assert kept_contents(turns) == kept_contents(store_of(watched.after).paths.turns)


def log_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """A log is sound and holds what was written first; the latest rows may be lost."""
    paths = StorePaths(tree)
    for path, sql in (
        (paths.access_log, "SELECT DISTINCT snapshot_id FROM retrievals ORDER BY position"),
        (paths.queries, "SELECT text FROM queries ORDER BY number"),
        (paths.replays, "SELECT replay_id FROM packets ORDER BY number"),
        (
            paths.injections,
            f"SELECT DISTINCT 's' || (first_us - {INJECTED_US}) FROM injected ORDER BY first_us",
        ),
    ):
        found = [name for (name,) in _rows(path, sql)]
        if found != ["s0", "s1", "s2", "s3"][: len(found)]:
            yield f"{path.name} holds {found}"


def log_again(tree: Path, watched: Watched) -> None:
    path = StorePaths(tree).access_log
    assert append_retrievals(path, snapshot_id="s4", memory_ids=["1"]) is None
    close_logs()
    assert _rows(path, "SELECT snapshot_id FROM retrievals")[-1] == ("s4",)


def _rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Return rows of a file, none where it is not there or not made yet; an error if damaged."""
    if not path.is_file():
        return []
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        is_made = db.execute("SELECT 1 FROM sqlite_master").fetchone()
        return db.execute(sql).fetchall() if is_made else []


Look = Callable[[Path, State, Watched], Iterator[str]]
GoOn = Callable[[Path, Watched], None]
CHECKS: dict[str, tuple[Look, GoOn]] = {
    "first publication": (snapshot_faults, publish_again),
    "publication": (snapshot_faults, publish_again),
    "publication after a kill": (snapshot_faults, publish_again),
    "rollback": (snapshot_faults, publish_again),
    "forgetting": (forgetting_faults, forget_again),
    "forgetting for good": (gone_faults, forget_for_good_again),
    "comparison of exports": (comparison_faults, compare_again),
    "export": (export_faults, export_again),
    "backup": (backup_faults, back_up_again),
    "restore": (restore_faults, restore_again),
    "curation": (curation_faults, curate_again),
    "first memory": (memory_faults, remember_again),
    "memory": (memory_faults, remember_again),
    "archive": (archive_faults, publish_again),
    "turns": (turn_faults, ingest_again),
    "logs": (log_faults, log_again),
}
assert CHECKS.keys() == PROGRAMS.keys()


def find_faults(
    watched: Watched, states: list[State], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Return what is wrong with any of the states, with where it comes from."""
    look, go_on = CHECKS[watched.name]
    faults: list[str] = []
    for number, state in enumerate(states):
        shutil.rmtree(watched.place, ignore_errors=True)
        tree = state.write(watched.place)
        monkeypatch.setenv("NOCTUARY_HOME", str(tree / "home"))
        # Both sides of a comparison see all live rows, however busy the machine is.
        monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "60000")
        try:
            found = [*look(tree, state, watched)]
            if number % HEALED_EVERY == 0:
                go_on(tree, watched)
        except Exception as error:
            found = [repr(error)]
        close_logs()
        at = watched.recording.events[state.at - 1] if state.at else None
        where = f"after event {state.at} {at and at[:3]}, {state.what}"
        faults += [f"{fault} ({where}; it had said {state.said!r})" for fault in found]
    return faults


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_power_cut_leaves_the_old_or_the_new_and_all_that_was_acknowledged(
    name: str, watched: dict[str, Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    events, states = watched[name].recording.events, list(crash_states(watched[name].recording))
    sample = random.Random(26).sample(states, min(STATES, len(states)))
    # What may be left at the moment of a promise: the faults that matter most.
    sample += [state for state in states if events[state.at - 1].kind == "say"][:PROMISED]
    # What is said to be done must be on the disk by then.
    sample += [state for state in states if state.at > len(events) - LAST]
    assert find_faults(watched[name], sample, monkeypatch) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_state_that_one_deviation_leaves(
    watched: dict[str, Watched], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, faults = Counter[str](), list[str]()
    for name, one in watched.items():
        states = list(crash_states(one.recording))
        tried[name] = len(states)
        faults += find_faults(one, states, monkeypatch)
    assert faults == []
    assert tried.total() >= 2_000, tried


NIGHT_STATES, NIGHTS_HEALED = 120, 4


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_power_cut_in_a_night(small: Bench, undisturbed: Bench, tmp_path: Path) -> None:
    """SQLite, DuckDB, LanceDB and Dagster included; the next night makes what nobody disturbed."""
    words = night_words(small.source, small.store, "--json")
    env = environment(tmp_path)
    found = record(words, small.store, tmp_path / "before", env=env, cwd=tmp_path)
    assert found.code == DONE
    before, after = (_night_answers(store) for store in (tmp_path / "before", small.store))
    assert before != after == _night_answers(undisturbed.store)
    # Three quarters of all writes are Dagster's log of events.
    ours = [n for n, event in enumerate(found.events, 1) if not event.path.startswith("dagster/")]
    chooser = random.Random(26)
    moments = [*chooser.sample(ours, NIGHT_STATES), *chooser.sample(range(len(found.events)), 30)]
    states = list(crash_states(found, [*moments, *[len(found.events)] * 10], seed=26))
    healed = {*chooser.sample(range(len(states)), NIGHTS_HEALED)}
    for number, state in enumerate(states):
        tree = state.write(tmp_path / "tree")
        where = f"{state.at}: {found.events[state.at - 1][:3]}, {state.what}"
        expected = (after,) if '"published"' in state.said else (before, after)
        assert _night_answers(tree) in expected, where
        assert [f for f in examine(StorePaths(tree)) if f.level == "fail"] == [], where
        if number in healed:
            ran = run_night(small.source, tree)
            assert ran.code == DONE, (where, ran.says)
            assert Bench(small.source, tree).manifest.digest == undisturbed.manifest.digest, where
            assert leftovers(tree) == [], where
        shutil.rmtree(tree)


@pytest.fixture
def undisturbed(small: Bench, tmp_path: Path) -> Bench:
    """A store after the night that nobody disturbs, on the source that has changed since."""
    add_memory(small.source, "The bakery on Alder Street closes at two on Mondays.")
    with editing(small.source) as db:
        (row_id,) = db.execute("SELECT min(id) FROM memories WHERE is_sensitive = 0").fetchone()
        db.execute("UPDATE memories SET is_sensitive = 1 WHERE id = ?", [row_id])
    twin = small.twin(tmp_path / "twin")
    assert run_night(twin.source, twin.store).code == DONE
    return twin


def _night_answers(store: Path) -> list[list[tuple[int | str, float]]]:
    found = [recall(query, store=store, dry_run=True) for query in ("boiler error", "bakery")]
    return [[(m.id, round(m.final_score, 9)) for m in result.memories] for result in found]
