"""Forgetting: hidden at once, taken out, proven; whatever a kill leaves is said and completed."""

from __future__ import annotations

import gzip
import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from noctuary import remember
from noctuary.agents.mcp_view import View
from noctuary.cli.backup import back_up, choose_files, restore_files
from noctuary.cli.doctor import examine
from noctuary.cli.main import main
from noctuary.core.errors import SourceEmptyError, StoreError, StoreLockedError
from noctuary.core.files import remove_tree
from noctuary.core.settings import CorpusSettings
from noctuary.core.store import StorePaths, store_for_source
from noctuary.core.tombstones import (
    NOTHING_FORGOTTEN,
    bury,
    read_tombstones,
    row_digests,
    write_tombstones,
)
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.recall.api import recall
from noctuary.recall.replay import list_packets, replay
from noctuary.snapshot import forget, scan
from noctuary.snapshot.forget import Forgetting, apply_forget
from noctuary.snapshot.forget_plan import Plan, plan_forget
from noctuary.snapshot.publish import list_snapshots, rollback
from noctuary.sources import own_store
from noctuary.sources.corpus import read_records
from noctuary.sources.export import Tally, refuse_emptied, sift
from noctuary.sources.ingest import ingest_transcripts
from noctuary.sources.open import open_source
from tests.e2e.byte_scan import find_texts, pieces
from tests.rooms.sources.test_several import publish as publish_list
from tests.support import lean
from tests.support.live import ROWS, Cache, age, make_cache, publish_from
from tests.support.store import Store, day_us, memory, new_store
from tests.support.transcripts import ClaudeSession, call, write_session

SECRET = "Zanzibarova keeps the Oxenholme ledger beneath the third floorboard."
KEPT = ("The spare key hangs behind the blue door.", "Lunch is at noon in the canteen.")
PARTS = (SECRET, *pieces(SECRET, 24), "zanzibarova", "oxenholm", "floorboard")


class House:
    """A home whose own store serves: memory 1 is about to be forgotten."""

    def __init__(self, home: Path, store: Store) -> None:
        self.home, self.store = home, store
        self.cache = Cache(home / own_store.OWN_FILE)

    @staticmethod
    def new(home: Path) -> House:
        """Fill a home and publish what it holds."""
        for text, wing in ((SECRET, "vault"), (KEPT[0], "home"), (KEPT[1], "work")):
            remember(text, wing=wing)
        house = House(home, new_store(store_for_source(home, home / own_store.OWN_FILE)))
        house.night()
        return house

    @staticmethod
    def again(home: Path) -> House:
        """Return one that is there."""
        paths = StorePaths(store_for_source(home, home / own_store.OWN_FILE))
        return House(home, Store(paths))

    @property
    def paths(self) -> StorePaths:
        return self.store.paths

    def night(self) -> str | None:
        """Publish what the own store holds, as a night's export takes it."""
        publish_from(self.cache, self.store)
        return None

    def apply(self, *ids: int, **how: Any) -> Forgetting:
        """Forget some memories; with a night unless told otherwise."""
        how = {"night": self.night, **how}
        return apply_forget(plan_forget(ids=ids or None), **how)

    def traces(self) -> list[Any]:
        """Return where a byte of memory 1 is, in any file of the home."""
        return find_texts(self.home, PARTS)

    def forgetting(self) -> str:
        """Return the level of what doctor says of it."""
        return next(f.level for f in examine(self.paths) if f.name == "forgetting")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home of noctuary's."""
    monkeypatch.setenv("NOCTUARY_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "20000")
    return tmp_path / "home"


@pytest.fixture
def house(home: Path) -> House:
    """A home whose own store serves."""
    return House.new(home)


def found(question: str = "Zanzibarova Oxenholme ledger", **how: Any) -> set[int | str]:
    return {memory.id for memory in recall(question, **how).memories}


# The plan.


def is_home(record: MemoryRecord) -> bool:
    return record.wing == "home"


def ids_of(plan: Plan) -> list[str]:
    return [memory.record.memory_id for memory in plan.memories]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({"ids": [1, "3", 99]}, ["1", "3"]),
        ({"wing": "home"}, ["2"]),
        ({"pattern": "(?i)zanzi|CANTEEN"}, ["1", "3"]),
        ({"pattern": "noon", "wing": "home"}, []),
        ({"after": datetime(2020, 1, 1, tzinfo=UTC)}, ["1", "2", "3"]),
        ({"before": datetime(2020, 1, 1, tzinfo=UTC)}, []),
        ({"user": "ana"}, []),
        ({"ids": [1, 2], "may_forget": is_home}, ["2"]),
    ],
)
def test_a_plan_shows_what_is_selected_and_changes_nothing(
    house: House, how: dict[str, Any], expected: list[str]
) -> None:
    before = house.cache.path.read_bytes()
    plan = plan_forget(**how)
    assert ids_of(plan) == expected
    assert plan.unknown == tuple(str(i) for i in how.get("ids", ()) if str(i) not in expected)
    if "1" in expected:
        assert plan.memories[0].places == ("own store", house.store.paths.snapshots.name) or (
            plan.memories[0].places == ("own store", *list_snapshots(house.paths))
        )
        assert plan.to_json()["memories"][0]["content"] == SECRET
    assert house.cache.path.read_bytes() == before
    assert not read_tombstones(house.paths.root).rows
    assert found() >= {1}


def test_the_plan_of_an_id_reads_its_row_and_loads_nothing_that_carries_it_out(
    house: House,
) -> None:
    program = (
        "import json, sys\n"
        "from noctuary.snapshot.forget_plan import plan_forget\n"
        "from noctuary.sources import sqlite\n"
        "sqlite.SqliteSource.rows = None  # reading every row would fail\n"
        "texts = [m.record.content for m in plan_forget(ids=[1]).memories]\n"
        "print(json.dumps([texts, sorted(sys.modules)]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    texts, loaded = json.loads(ran.stdout)
    assert texts == [SECRET]
    rooms = {name.split(".")[1] for name in loaded if name.startswith("noctuary.")}
    assert rooms <= {"core", "sources", "snapshot", "text", "work"}


def test_a_copy_of_one_moment_is_in_the_plan_of_the_other(house: House) -> None:
    with closing(sqlite3.connect(house.cache.path)) as db, db:
        columns = "content, category, importance, created_at, updated_at, tags, wing, room"
        db.execute(f"INSERT INTO memories ({columns}) SELECT {columns} FROM memories WHERE id = 1")
    house.night()
    assert ids_of(plan_forget(ids=[1])) == ["1", "4"]


def test_nothing_or_nonsense_selects_nothing(house: House) -> None:
    with pytest.raises(StoreError, match="nothing says what to forget"):
        plan_forget()
    with pytest.raises(StoreError, match="no regular expression"):
        plan_forget(pattern="(")
    with pytest.raises(StoreError, match="no memory is in the plan"):
        apply_forget(plan_forget(ids=[99]))
    other = new_store(house.home / "other")
    other.publish(read_records(house.paths.work / "corpus"))
    with pytest.raises(StoreError, match="several stores"):
        plan_forget(ids=[1])
    assert ids_of(plan_forget(house.paths.root, ids=[1])) == ["1"]


# Hidden, at once and everywhere.


def test_a_hidden_memory_is_gone_from_every_running_reader(house: House) -> None:
    """Without a night; this process had the snapshot open before."""
    assert found(profile={"replay_log": True}) >= {1}
    view = View(house.paths.root)
    with view.open() as seen:
        assert seen.position_of("1") is not None
    stale = plan_forget(ids=[1])
    done = house.apply(1, night=None)
    assert not done.is_gone
    assert "hidden from every recall" in done.message
    assert 1 not in found(k=100)
    assert found(KEPT[0]) >= {2}
    with view.open() as seen:
        assert seen.position_of("1") is None
        assert seen.position_of("2") is not None
    (packet,) = list_packets(house.paths.replays, 9).packets
    assert "1" in " ".join(replay(house.paths, packet).differences), "no replay finds it"
    house.night()
    rollback(house.paths)
    assert 1 not in found(k=100), "older snapshots hide it as well"
    assert SECRET not in (house.paths.root / "forgotten.json").read_text()
    # The row came back (a backup of the own store): no live row, and no night's.
    row = stale.memories[0].record
    moment = datetime.fromtimestamp(row.created_at_us / 1e6, UTC).isoformat()
    house.cache.add(SECRET, created_at=moment)
    other = house.cache.add("Zanzibarova plays chess.")
    assert found(k=100) == {other}


def test_users_are_told_of_named_users_only_where_there_are_some(house: House) -> None:
    house.apply(1, night=None)
    assert "user_required" not in {w.code for w in recall("key").warnings}


def test_a_damaged_tombstone_shows_nothing_and_says_so(house: House) -> None:
    house.apply(1, night=None)
    (house.paths.root / "forgotten.json").write_text("{}")
    answer = recall("Zanzibarova key")
    assert not answer.memories
    assert any("forgotten.json" in w.message for w in answer.warnings)


def test_tombstones_that_cannot_be_looked_for_show_nothing(house: House) -> None:
    """No file is one thing; a disk that does not say whether there is one is another."""
    house.apply(1, night=None)
    path = house.paths.root / "forgotten.json"
    kept = path.rename(path.with_name("kept.json"))
    path.symlink_to(path)  # a loop: the system refuses to look at it
    answer = recall("Zanzibarova key")
    assert not answer.memories
    assert any("forgotten.json cannot be read" in w.message for w in answer.warnings)
    kept.rename(path)
    assert found(KEPT[0]) >= {2}
    assert 1 not in found(k=100)


# Gone, and proven.


def test_forgetting_leaves_no_byte_and_a_signed_receipt(house: House) -> None:
    recall("Zanzibarova", profile={"replay_log": True})
    with closing(sqlite3.connect(house.cache.path)) as db:
        db.execute("SELECT * FROM memories").fetchone()  # keeps the log from going with the last
        remember(f"{SECRET} Again.")
        house.cache.delete(4)  # what a log and a full-text index keep of a deleted row
        assert {name.partition("/")[0] for name, *_ in house.traces()} == {
            "memories.sqlite", "memories.sqlite-wal", house.paths.root.name,
        }  # fmt: skip
        done = house.apply(1)
        assert (done.is_gone, done.left, done.removed) == (True, (), {"own store": 1})
        assert house.traces() == []
    assert found(KEPT[0]) >= {2}
    assert list_snapshots(house.paths) == [recall("key").snapshot_id]
    assert house.forgetting() == "ok"
    assert done.receipt is not None
    told = json.loads(done.receipt.read_text())
    searched = told["searched_for"]
    assert (told["memories"], told["ids"], searched["texts_unknown"]) == (1, ["1"], 0)
    assert searched["pieces"] >= 4
    assert searched["rare_words"] >= 3
    read = {name: how for name, _, how, *_ in told["files"]}
    assert read["home/memories.sqlite"] == "raw+sqlite"
    assert read["work/corpus/memories.parquet"] == "raw+parquet"
    (serving,) = list_snapshots(house.paths)
    assert read[f"snapshots/{serving}/rows.sqlite"] == "raw+sqlite"
    with pytest.raises(StoreError, match="no memory is in the plan"):
        house.apply(1)


def test_receipts_are_chained(house: House) -> None:
    first, second = house.apply(1), house.apply(2)
    assert forget.find_forged(house.paths) is None
    assert first.receipt is not None
    assert second.receipt is not None
    told = json.loads(first.receipt.read_text())
    assert json.loads(second.receipt.read_text())["previous"] == told["digest"]
    first.receipt.write_text(json.dumps({**told, "memories": 0}))
    assert forget.find_forged(house.paths) == first.receipt.name
    assert house.forgetting() == "warn"


def test_receipts_that_somebody_took_away_stop_no_night(house: House) -> None:
    house.apply(1, night=None)
    house.night()
    # A kill came after the search.
    write_tombstones(house.paths.root, read_tombstones(house.paths.root)._replace(is_scanned=True))
    (house.paths.root / "receipts").mkdir()
    (house.paths.root / "receipts" / "unfinished.json").write_text("[1]")
    receipt = forget.finish_left(house.paths)
    assert receipt is not None
    assert json.loads(receipt.read_text())["searched_for"]["texts_unknown"] == 0
    assert house.traces() == []
    assert house.forgetting() == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_what_cannot_be_searched_is_named_and_links_to_files_are_searched(
    house: House, tmp_path: Path
) -> None:
    away = tmp_path / "away"
    away.mkdir()
    note = away / "note.txt"
    note.write_text(SECRET)
    (house.paths.root / "notes").symlink_to(away)
    (house.paths.root / "note.txt").symlink_to(note)
    (house.paths.root / "unreadable").symlink_to("/proc/self/mem")
    # A piece begins in one block of what is unpacked and ends in the next.
    with gzip.open(house.paths.root / "notes.gz", "wb") as file:
        file.write(b" " * (scan.BLOCK_BYTES - 14) + SECRET[12:36].encode())
    assert house.apply(1).left == ("note.txt", "notes.gz", "unreadable")
    for name in ("note.txt", "notes.gz", "unreadable"):
        (house.paths.root / name).unlink()
    done = house.apply()
    assert done.receipt is not None, done
    files = json.loads(done.receipt.read_text())["files"]
    assert ["notes", 0, "", "not decoded: a link to a directory"] in files


def test_files_that_cannot_be_decoded_are_counted_and_named(house: House) -> None:
    root = house.paths.root
    (root / "broken.json").write_bytes(b"{" + b" " * (scan.BLOCK_BYTES - 20) + SECRET.encode())
    assert house.apply(1).left == ("broken.json",), "a piece lies across two blocks"
    (root / "broken.json").write_text("{")
    (root / "away").symlink_to(house.home)
    done = house.apply()
    assert done.receipt is not None, done
    told = json.loads(done.receipt.read_text())
    assert (told["raw_only"], told["not_searched"]) == (["broken.json"], ["away"])
    assert done.warnings == (
        "1 file was searched as raw bytes only, not decoded: broken.json",
        "1 file was not searched: away",
    )


def test_what_survivors_say_too_is_no_trace_and_is_counted(house: House) -> None:
    quoting = remember(f"Ana said: {SECRET[:40]}, or so I think.")
    house.night()
    done = house.apply(1)
    assert done.is_gone
    assert done.receipt is not None
    assert json.loads(done.receipt.read_text())["searched_for"]["shared_with_what_stays"] > 0
    assert found() >= {quoting.id}


def test_a_word_that_a_survivor_joins_to_another_is_no_trace() -> None:
    """A graph knows the parts of such a word."""
    gone = memory("The parsonage for March is lost.")
    assert "parsonage" in scan.cut_needles([gone], [], [], []).words
    assert "parsonage" not in scan.cut_needles([gone], ["key = parsonage_id"], [], []).words


def test_a_vector_of_a_text_that_stays_is_no_trace(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two memories of one text have one vector."""
    faint, *known = lean.SYNONYMS
    monkeypatch.setattr(lean, "DIMENSION", 32)
    monkeypatch.setattr(lean, "SYNONYMS", (faint, *((f"w{n}",) for n in range(9)), *known))
    cache = make_cache(tmp_path / "memory.db", [*ROWS, {**ROWS[0], "created_at": "2026-02-01"}])
    age(cache.path)
    store = new_store(home / "house", encoder=lean.write_encoder(home / "house" / "encoders"))

    def night() -> None:
        publish_from(cache, store)

    night()
    done = apply_forget(plan_forget(ids=[1]), night=night)
    assert done.is_gone, done
    assert found(ROWS[0]["content"]) >= {9}
    done = apply_forget(plan_forget(ids=[2]), night=night)
    assert done.receipt is not None, done
    assert json.loads(done.receipt.read_text())["searched_for"]["vectors"] == 1, "of its own"


def test_a_file_that_still_holds_it_is_named_until_it_is_gone(house: House) -> None:
    note = house.paths.root / "notes.txt"
    note.write_text(SECRET.upper() + SECRET)
    done = house.apply(1)
    assert (done.is_gone, done.left) == (False, ("notes.txt",))
    assert house.forgetting() == "warn"
    assert len(list_snapshots(house.paths)) == 2, "the text to look for is still known"
    assert 1 not in found(k=100)
    note.unlink()
    assert house.apply().is_gone
    assert house.traces() == []


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["1"], 0),
        (["99"], 1),
        (["1", "99"], 1),
        (["--wing", "nowhere"], 1),
        (["99", "--apply", "--yes"], 1),
        (["2", "99", "--apply", "--yes"], 1),
        (["2", "--apply"], 1),  # nobody answers the question
    ],
)
def test_the_command_fails_where_not_all_of_it_was_done(
    house: House, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    def night(_: Plan) -> Any:
        return house.night

    monkeypatch.setattr("noctuary.cli.forget.night_for", night)
    store = ["--store", str(house.paths.root)]
    done = CliRunner().invoke(main, ["forget", *words, *store])
    assert done.exit_code == code, done.output
    assert ("no memory has the id 99" in done.output) is ("99" in words and len(words) != 3)


def test_what_a_restore_moved_aside_is_searched_and_named(house: House, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    back_up(house.home, [house.paths.root], disk)
    chosen = choose_files(disk, house.home, None, None)
    aside = restore_files(disk, house.home, chosen, may_replace=True).replaced
    assert aside is not None
    done = house.apply(1)
    assert not done.is_gone
    assert {name.split("/")[1] for name in done.left} == {Path(aside).name}
    assert f"remove {aside}" in done.message
    remove_tree(Path(aside))
    assert house.apply().is_gone
    assert house.traces() == []


def test_what_is_the_owner_s_or_another_store_s_is_named_with_what_to_do(house: House) -> None:
    questions = house.home / "queries.jsonl"
    questions.write_text(json.dumps({"query": "why the Oxenholme ledger?", "relevant_ids": [2]}))
    other = new_store(house.home / "other")
    publish_from(house.cache, other)
    done = apply_forget(plan_forget(house.paths.root, ids=[1]), night=house.night)
    assert done.is_gone, done
    assert "no byte is left in this store" in done.message
    told = "\n".join(done.warnings)
    assert "home/queries.jsonl still holds something of it" in told
    assert f"noctuary forget --store {other.root}" in told


def test_a_memory_of_before_the_first_night_is_forgotten(home: Path) -> None:
    remember(SECRET)
    remember(KEPT[0])
    assert apply_forget(plan_forget(ids=[1])).is_gone
    assert find_texts(home, PARTS) == []


def test_the_call_that_had_a_memory_remembered_is_forgotten_with_it(
    house: House, tmp_path: Path
) -> None:
    session = ClaudeSession()
    session.user("Keep what I said of the ledger, and of the canteen nothing.")
    session.assistant(call("mcp__store__remember", "c1", text=SECRET, wing="vault"))
    session.result("c1", "kept")
    session.assistant(call("mcp__store__remember", "c2", text=KEPT[0]))
    path = write_session(tmp_path / "session.jsonl", session.lines)
    assert ingest_transcripts(path, house.paths.turns).turns == 3
    plan = plan_forget(ids=[1])
    assert [(SECRET in m.record.content, m.places) for m in plan.memories][1:] == [
        (True, (forget.TURNS,))
    ]


# A source of somebody else.


@pytest.fixture
def foreign(home: Path, tmp_path: Path) -> tuple[Cache, Store]:
    """A claude-memory store that serves; its first memory is about to be forgotten."""
    cache = make_cache(tmp_path / "memory.db", [{"content": SECRET}, *ROWS[1:]])
    age(cache.path)
    store = new_store(home / "house")
    publish_from(cache, store)
    return cache, store


def test_a_foreign_source_keeps_its_row_and_no_night_takes_it_again(
    foreign: tuple[Cache, Store], home: Path
) -> None:
    cache, store = foreign
    before = cache.path.read_bytes()
    done = apply_forget(plan_forget(ids=[1]), night=lambda: publish_from(cache, store) and None)
    assert done.is_gone, done
    assert "1 rows stay in" in done.warnings[0]
    assert cache.path.read_bytes() == before
    assert find_texts(home, PARTS) == []
    assert done.receipt is not None
    assert json.loads(done.receipt.read_text())["still_in_source"] == 1
    cache.edit(1, content=f"{SECRET} Edited.")
    cache.add("A new one about Oxenholme.")
    assert found("Oxenholme", k=100) == {9}, "as a live row"
    publish_from(cache, store)
    assert find_texts(home, [SECRET]) == [], "nor by a later night"


def test_its_owner_may_allow_the_deletion_which_the_journal_notes(
    foreign: tuple[Cache, Store], home: Path
) -> None:
    cache, store = foreign
    done = apply_forget(
        plan_forget(ids=[1]), from_source=True, night=lambda: publish_from(cache, store) and None
    )
    assert (done.is_gone, done.removed) == (True, {"source": 1})
    assert find_texts(cache.path.parent, PARTS, skip=[home]) == []
    with closing(sqlite3.connect(cache.path)) as db:
        entries = db.execute(
            "SELECT change, row_id, before_image FROM noctuary_curation_journal"
        ).fetchall()
    assert entries == [("forget", 1, None)]


def test_several_sources_forget_in_the_own_store_and_keep_out_the_others(
    home: Path, tmp_path: Path
) -> None:
    """Ids begin with the name of a source; only the own store is written."""
    cache = make_cache(tmp_path / "memory.db")
    age(cache.path)
    for text in (SECRET, KEPT[1]):
        remember(text)
    listed = home / "noctuary.toml"
    listed.write_text(f"[sources]\ncache = '{cache.path}'\n")
    store = new_store(store_for_source(home, listed))
    publish_list(listed, store)
    boiler, before = ROWS[4]["content"], cache.path.read_bytes()
    assert found(k=100) >= {"own:1"}
    assert found(boiler) >= {"cache:5"}
    done = apply_forget(plan_forget(ids=["own:1"]))
    assert (done.is_gone, done.removed) == (False, {"own store": 1})
    assert "own:1" not in found(k=100), "at once"
    assert find_texts(home, PARTS, skip=[store.root]) == []
    publish_list(listed, store)
    assert forget.finish_left(store.paths) is not None
    assert find_texts(home, PARTS) == []
    done = apply_forget(
        plan_forget(ids=["cache:5"]), from_source=True, night=lambda: publish_list(listed, store)
    )
    assert (done.is_gone, done.removed) == (True, {})
    (warning,) = done.warnings
    assert warning.startswith(f"1 rows stay in {listed}: ")
    assert warning.endswith("delete them yourself in cache")
    assert cache.path.read_bytes() == before
    publish_list(listed, store)
    assert "cache:5" not in found(boiler, k=100)
    assert found("Lunch at noon") >= {"own:2"}
    assert find_texts(home, pieces(boiler, 24)) == [], "nor after the next night"


# Killed at every step: still there and said so, or gone; repeating completes it.

STEPS = (
    ("forget.hide", "after"), ("forget.remove", "before"), ("own_store._empty_log", "before"),
    ("forget.remove", "after"), ("House.night", "before"), ("House.night", "after"),
    ("forget.prove", "after"), ("forget.purge", "before"), ("forget.remove_snapshots", "after"),
    ("forget.seal", "before"), ("forget.seal", "after"), ("forget.finish_forget", "after"),
)  # fmt: skip

# In a process that starts anew: a fork would share locks of libraries with this one.
DYING = """
import os, signal, sys
from pathlib import Path
from tests.rooms.snapshot import test_forget as here

owner, _, step = sys.argv[1].partition(".")
function = getattr(getattr(here, owner), step)

def deadly(*args, **how):
    if sys.argv[2] == "after":
        function(*args, **how)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(getattr(here, owner), step, deadly)
here.House.again(Path(sys.argv[3])).apply(1)
"""


@pytest.mark.parametrize(("step", "when"), STEPS)
def test_a_kill_is_told_and_completed(house: House, step: str, when: str) -> None:
    words = [sys.executable, "-c", DYING, step, when, str(house.home)]
    died = subprocess.run(words, capture_output=True, check=False, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert 1 not in found(k=100), "hidden before anything else"
    pending = read_tombstones(house.paths.root).is_pending
    if house.traces():
        assert house.forgetting() == "warn", "still there, and said so"
    if not pending:
        assert house.traces() == []
        assert step == "forget.finish_forget"
        return
    if when == "before":
        house.night()
        assert forget.finish_left(house.paths) is not None
    else:
        assert house.apply().is_gone
    assert house.traces() == []
    assert house.forgetting() == "ok"
    assert forget.find_forged(house.paths) is None
    (receipt,) = forget.read_receipts(house.paths)
    assert receipt[1]["searched_for"]["texts_unknown"] == 0, "it knew what to look for"
    assert found(KEPT[0]) >= {2}


def test_a_night_beside_a_running_forgetting_leaves_the_proof_to_it(house: House) -> None:
    house.apply(1, night=None)
    house.night()
    with forget.hold_lock(house.paths.root / forget.FORGET_LOCK):
        assert forget.finish_left(house.paths) is None
    assert forget.finish_left(house.paths) is not None


def test_a_store_that_lost_its_rows_stops_the_night_unless_all_are_forgotten(
    foreign: tuple[Cache, Store],
) -> None:
    """The night would purge every snapshot that has the others."""
    cache, store = foreign

    def look() -> None:
        with open_source(cache.path) as source:
            gone = read_tombstones(store.root)
            refuse_emptied(source, store.paths.work / "corpus", store.paths, gone)

    apply_forget(plan_forget(ids=range(1, 8)))
    look()
    cache.run("DELETE FROM memories")
    with pytest.raises(SourceEmptyError, match="holds 8 memories: it keeps serving"):
        look()
    apply_forget(plan_forget(ids=[8]))
    look()


def test_a_forgetting_beside_a_night_that_finishes_another_loses_nothing(
    foreign: tuple[Cache, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, store = foreign
    apply_forget(plan_forget(ids=[1]))
    publish_from(cache, store)
    search = forget.prove

    def search_while_somebody_forgets(*args: Any) -> dict[str, Any]:
        with pytest.raises(StoreLockedError, match="is forgetting memories of this store"):
            apply_forget(plan_forget(ids=[2]))
        return search(*args)

    monkeypatch.setattr(forget, "prove", search_while_somebody_forgets)
    assert forget.finish_left(store.paths) is not None
    apply_forget(plan_forget(ids=[2]))
    assert 2 not in found("feline", k=100)


def test_a_snapshot_of_a_reused_id_does_not_keep_it_unfinished(
    foreign: tuple[Cache, Store],
) -> None:
    cache, store = foreign

    def night() -> None:
        cache.delete(1)
        cache.run(
            "INSERT INTO memories(id, content, created_at, updated_at) "
            "VALUES (1, 'Another one.', '2026-03-01', '2026-03-01')"
        )
        publish_from(cache, store)

    assert apply_forget(plan_forget(ids=[1]), night=night).is_gone
    assert found("another one") >= {1}


ALPHA = "Alpha: the skipper's lamp hangs below the third stair. Nobody lights it before dusk."
BRAVO = "Bravo: the winch was oiled by the yard."
LOG = "log.md#entry"


DAY = day_us(1)
Place = tuple[Any, ...]  # id, text, date and user


def placed(
    memory_id: str, text: str, at_us: int | None = None, user: str | None = None
) -> MemoryRecord:
    moment = UNDATED_US if at_us is None else at_us
    return memory(text, memory_id=memory_id, created_at_us=moment, user=user)


def texts_of(store: Store) -> set[str]:
    rows = read_records(store.paths.work / "corpus")
    return {name for r in rows for name in ("Alpha", "Bravo", "Delta") if f"{name}:" in r.content}


@pytest.mark.parametrize(
    ("buried", "row", "is_held"),
    [
        ((LOG, ALPHA), (LOG, ALPHA), True),
        ((LOG, ALPHA), ("log.md#entry-2", ALPHA), True),
        ((LOG, ALPHA), ("old/log.md#entry", f"Old entries\n{ALPHA.upper()}", DAY), True),
        ((LOG, ALPHA), (LOG, f"{ALPHA} Edited."), True),
        ((LOG, ALPHA), (LOG, ALPHA.replace(" Nobody", " Everybody")), True),
        ((LOG, ALPHA), ("log.md#entry-2", ALPHA.replace(" Nobody", " Everybody")), False),
        ((LOG, ALPHA), (LOG, BRAVO), False),
        ((LOG, ALPHA, DAY), (LOG, "Nobody lights it.", DAY), False),
        ((LOG, "Lamp"), ("log.md#entry-2", "lamp\n"), True),
        ((LOG, ALPHA), ("other.md#entry", ALPHA, None, "ben"), False),
        (("7", ALPHA, DAY), ("7", BRAVO, DAY), False),
        (("7", ALPHA, DAY), ("9", ALPHA, DAY), True),
        (("7", ALPHA, DAY), ("7", ALPHA, 2 * DAY), True),
        (("7", ALPHA, DAY), ("9", ALPHA, 2 * DAY), False),
        (("cache:7", ALPHA, DAY), ("own:7", ALPHA, 3 * DAY), False),
        (("own:7", ALPHA, DAY), ("own:7", BRAVO, DAY), True),
        (("own:7", ALPHA, DAY), ("own:9", ALPHA, 2 * DAY), False),
    ],
)  # fmt: skip
def test_a_tombstone_holds_a_text_and_what_is_noctuarys_own_by_its_place(
    buried: Place, row: Place, is_held: bool, tmp_path: Path
) -> None:
    gone = bury(
        NOTHING_FORGOTTEN, [placed(*buried)], "now", lambda r: r.memory_id.startswith("own:")
    )
    write_tombstones(tmp_path, gone)
    kept = read_tombstones(tmp_path)
    assert kept.holds(placed(*row)) is is_held
    told = json.loads((tmp_path / "forgotten.json").read_text())
    assert told["format"] == 2
    assert "lamp" not in json.dumps(told).casefold()


def test_tombstones_of_format_1_still_hold_a_place(tmp_path: Path) -> None:
    rows = [*row_digests(placed(LOG, ALPHA))]
    told: dict[str, Any] = {"format": 1, "rows": rows, "pending": None}
    (tmp_path / "forgotten.json").write_text(json.dumps(told))
    former = read_tombstones(tmp_path)
    assert former.holds(placed(LOG, BRAVO))
    assert former.holds(placed("log.md#entry-2", ALPHA))
    write_tombstones(tmp_path, former)
    assert read_tombstones(tmp_path).rows == former.rows


def test_a_new_section_under_a_forgotten_heading_is_a_memory_and_the_text_stays_away(
    home: Path, tmp_path: Path
) -> None:
    note = tmp_path / "notes" / "log.md"
    note.parent.mkdir()
    store = new_store(store_for_source(home, note.parent))

    def night(*entries: str) -> None:
        note.write_text("".join(f"# Log\n\n## Entry\n\n{text}\n\n" for text in entries))
        publish_list(note.parent, store)

    night(ALPHA, BRAVO)
    assert apply_forget(
        plan_forget(ids=["log.md#entry"]), night=lambda: night(ALPHA, BRAVO)
    ).is_gone
    night("Delta: a second compass came from the yard.", ALPHA, BRAVO)
    assert texts_of(store) == {"Delta", "Bravo"}
    with open_source(note.parent) as source:
        tally, gone = Tally(), read_tombstones(store.root)
        known = {"log.md#entry", "log.md#entry-1", "log.md#entry-2"}
        how: dict[str, Any] = {"now_us": 10**15, "settings": CorpusSettings()}
        assert len([*sift(source.rows(), tally, **how, previous_ids=known, forgotten=gone)]) == 2
    assert (tally.sensitive["forgotten"], tally.retracted) == (1, 0)
    night(BRAVO, "Alpha: nobody is skipper any more.", ALPHA)
    assert texts_of(store) == {"Bravo", "Alpha"}
    assert find_texts(home, [ALPHA]) == []


def test_writing_tombstones_keeps_those_that_are_there(house: House) -> None:
    house.apply(1)
    rows = read_tombstones(house.paths.root).rows
    house.apply(2)
    kept = read_tombstones(house.paths.root)
    assert rows < kept.rows
    write_tombstones(house.paths.root, kept)
    assert read_tombstones(house.paths.root)._replace(stamp=(0, 0)) == kept._replace(stamp=(0, 0))
