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

from noctuary import remember
from noctuary.cli.exchange import import_snapshot
from noctuary.cli.store import examine
from noctuary.compact.archive import ArchiveReader
from noctuary.core.sqlite import close_logs
from noctuary.core.store import StorePaths
from noctuary.recall.api import recall
from noctuary.snapshot.publish import list_snapshots, read_intact
from noctuary.sources.export import previous_export
from noctuary.sources.ingest import ingest_transcripts
from noctuary.usage.access_log import append_retrievals
from noctuary_assets.housekeeping import forget_retracted
from tests.e2e.driver import DONE, ROOT, environment, night_words, run_night
from tests.e2e.power_cut_programs import PROGRAMS, RETRACTED, edition, store_of
from tests.e2e.stores import Bench, add_memory, editing, leftovers
from tests.support.crash_states import STRACE, Recording, State, crash_states, record
from tests.support.transcripts import kept_contents

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

STATES, PROMISED = 20, 12
"""Of each program in the default run, and more right after a promise; the slow run tries all."""
HEALED_EVERY = 8
"""One state in so many is gone on from."""
QUERIES = ("where is the spare key", "boiler before winter")

Answers = tuple[object, ...]


@dataclass(frozen=True)
class Watched:
    """What a program did, and the directory that it left."""

    name: str
    recording: Recording
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
    return {name: Watched(name, found.below(name), root / name) for name in PROGRAMS}


def answers(root: Path) -> Answers:
    """Return the digest of what serves and what it answers; nothing is written."""
    store = store_of(root).root
    found = [recall(query, store=store, dry_run=True) for query in QUERIES]
    ranked = (tuple((m.id, m.final_score) for m in result.memories) for result in found)
    # An id also says when it was published: a repeated publication has another.
    return (found[0].snapshot_id or "").rpartition("-")[2], *ranked


def snapshot_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """Recall answers as before or as after; once it was said to be published, as after."""
    (before, after), found = watched.answers, answers(tree)
    if found not in ((after,) if state.said else (before, after)):
        yield f"recall answers {found[0]} instead of {before[0]} or {after[0]}"
    yield from doctor_faults(tree)


def doctor_faults(tree: Path) -> Iterator[str]:
    """Doctor finds the snapshot missing or damaged where recall does, and nothing else wrong."""
    store = store_of(tree).root
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
    if unexpected := told.keys() - {"pointer", "snapshot", "schedule"}:
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


def import_again(tree: Path, watched: Watched) -> None:
    store = store_of(tree)
    if answers(tree) != watched.answers[1]:
        shutil.rmtree(store.root, ignore_errors=True)
        import_snapshot(watched.after / "export", store.paths)
        assert answers(tree)[1:] == watched.answers[1][1:]


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
    sql = "SELECT id, content FROM memories ORDER BY id"
    return _rows(tree / "home" / "memories.sqlite", sql)


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
    after = {"": {"", "archived"}, "archived": {"archived", "archived, undone"},
             "archived, undone": {"archived, undone"}}  # fmt: skip
    if found not in after[state.said]:
        yield f"the ledger says {found!r} after {state.said!r}"
    if answers(tree)[0] != watched.answers[0][0]:
        yield "another snapshot serves"
    yield from doctor_faults(tree)


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
    "comparison of exports": (comparison_faults, compare_again),
    "import": (snapshot_faults, import_again),
    "first memory": (memory_faults, remember_again),
    "memory": (memory_faults, remember_again),
    "archive": (archive_faults, publish_again),
    "turns": (turn_faults, ingest_again),
    "logs": (log_faults, log_again),
}
assert CHECKS.keys() == PROGRAMS.keys()


def find_faults(
    watched: Watched, states: list[State], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Return what is wrong with any of the states, with where it comes from."""
    look, go_on = CHECKS[watched.name]
    faults: list[str] = []
    for number, state in enumerate(states):
        tree = state.write(directory / str(number))
        monkeypatch.setenv("NOCTUARY_HOME", str(tree / "home"))
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
        shutil.rmtree(tree)
    return faults


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_power_cut_leaves_the_old_or_the_new_and_all_that_was_acknowledged(
    name: str, watched: dict[str, Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, states = watched[name].recording.events, list(crash_states(watched[name].recording))
    sample = random.Random(26).sample(states, min(STATES, len(states)))
    # What may be left at the moment of a promise: the faults that matter most.
    sample += [state for state in states if events[state.at - 1].kind == "say"][:PROMISED]
    assert find_faults(watched[name], sample, tmp_path, monkeypatch) == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_state_that_one_deviation_leaves(
    watched: dict[str, Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, faults = Counter[str](), list[str]()
    for name, one in watched.items():
        states = list(crash_states(one.recording))
        tried[name] = len(states)
        faults += find_faults(one, states, tmp_path / name, monkeypatch)
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
