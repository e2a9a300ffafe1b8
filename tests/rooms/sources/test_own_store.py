"""The own store: what was acknowledged is on disk, what is refused leaves nothing behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from noctuary import remember
from noctuary.core.errors import MemoryRefusedError, StoreError, StoreLockedError
from noctuary.core.sqlite import directory_lock
from noctuary.core.store import store_for_source
from noctuary.recall.api import recall
from noctuary.sources.open import open_source
from noctuary.sources.own_store import MIGRATIONS, OWN_FILE
from noctuary.sources.source import MemoryLink
from tests.support.claude_memory import found_by_words, records_of
from tests.support.live import Cache, publish_from
from tests.support.store import new_store

KEY = "The spare key hangs behind the blue door."

WRITER = """
import sys, threading
from noctuary import remember

process, threads, writes = map(int, sys.argv[1:])
say = threading.Lock()

def work(thread):
    for number in range(writes):
        text = f"entry{process}x{thread}x{number}"
        kept = remember(text)
        with say:
            print(kept.id, text, flush=True)

at_once = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
for one in at_once:
    one.start()
for one in at_once:
    one.join()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home of noctuary's."""
    path = tmp_path / "home"
    monkeypatch.setenv("NOCTUARY_HOME", str(path))
    return path


def rows(home: Path) -> dict[int, str]:
    """Return what the file holds, after SQLite's own checks of it."""
    with closing(sqlite3.connect(home / OWN_FILE)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return dict(db.execute("SELECT id, content FROM memories"))


def start_writer(*numbers: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, *map(str, numbers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def acknowledged(out: str) -> dict[int, str]:
    """Return what a writer said was kept; a last line may be cut by its death."""
    lines = [line.split(" ", 1) for line in out.split("\n")[:-1]]
    return {int(key): text for key, text in lines}


def test_a_memory_is_a_row_of_a_private_store_that_a_night_exports(
    home: Path, tmp_path: Path
) -> None:
    kept = remember(KEY, wing="home", room="hall", user="ana", tags=["keys", "door"], importance=1)
    assert (kept.id, kept.path, kept.similar, kept.is_live) == (1, home / OWN_FILE, (), False)
    assert oct(home.stat().st_mode & 0o777) == "0o700"
    assert oct(kept.path.stat().st_mode & 0o777) == "0o600"
    (record,) = records_of(kept.path, tmp_path / "corpus")
    assert (record.memory_id, record.content, record.tags) == ("1", KEY, "keys,door")
    assert (record.wing, record.room, record.user, record.importance) == ("home", "hall", "ana", 1)
    assert record.created_at_us == pytest.approx(time.time_ns() // 1000, abs=60_000_000)
    assert found_by_words(kept.path, "spare blue") == [1]
    with closing(sqlite3.connect(kept.path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        ("", {}, "empty_content"),
        (" \n\u200b", {}, "empty_content"),
        ("a\0b", {}, "nul_bytes"),
        ("half \ud83d", {}, "bad_unicode"),
        ("x" * 10_000_000, {}, "content_too_large: content: 10000000 bytes, at most 1048576"),
        (7, {}, "content_not_text"),
        ("my password is hunter2horse", {}, "reads like a secret"),
        ("fine", {"wing": "my password is hunter2horse"}, "reads like a secret"),
        ("fine", {"tags": ["a", "password: hunter2horse"]}, "reads like a secret"),
        ("[REDACTED: key]", {}, "placeholder"),
        ("fine", {"wing": "a\0b"}, "nul_bytes"),
        ("fine", {"tags": "a, User:ana"}, "begins with 'user:'"),
        ("fine", {"importance": 1.5}, "from 0 to 1, found 1.5"),
        ("fine", {"importance": float("nan")}, "from 0 to 1"),
        ("fine", {"supersedes": 2}, "no memory 2 of this user and wing"),
        ("fine", {"supersedes": 2**70}, "no memory"),
        ("fine", {"supersedes": 1, "user": "ben"}, "no memory 1 of this user"),
        ("fine", {"supersedes": 1, "wing": "work"}, "no memory 1 of this user"),
    ],
)
def test_what_is_refused_is_told_and_leaves_nothing(
    home: Path, text: Any, given: dict[str, Any], said: str
) -> None:
    remember(KEY, user="ana", wing="home")
    with pytest.raises(MemoryRefusedError, match=said) as raised:
        remember(text, **cast("Any", {"user": "ana", **given}))
    assert "nothing was kept" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert rows(home) == {1: KEY}
    assert b"hunter2" not in b"".join(p.read_bytes() for p in home.glob(f"{OWN_FILE}*"))


def test_similar_memories_are_pointed_out_in_the_same_scope_only(home: Path) -> None:
    remember(KEY)
    remember("The boiler was mended in May.")
    remember("The spare key hangs behind the blue door", user="ben")
    remember("The spare key hangs behind the blue door", wing="work")

    def similar(text: str, **given: Any) -> list[tuple[int | str, float]]:
        return [(one.id, one.similarity) for one in remember(text, **given).similar]

    assert similar("the  SPARE key hangs behind the blue door") == [(4, 1.0), (1, 1.0)]
    assert similar("The spare key is behind the blue door", wing="work") == [(4, 0.833)]
    assert (3, 1.0) in similar(KEY, user="ben")
    assert similar(KEY, wing="elsewhere") == []
    assert similar("The boiler needs a new valve in winter.") == []
    assert similar("鍵は青いドアの後ろ。") == []
    assert similar("鍵は青いドアの後ろ") == [(10, 1.0)]
    assert similar('NEAR(" OR * ) --') == []


def test_what_a_memory_replaces_is_a_link_that_a_source_tells(home: Path) -> None:
    remember(KEY, wing="home", room="hall", user="ana", tags=["key"], importance=0.9)
    kept = remember("The key hangs in the hall.", supersedes=1, user="ana")
    new = "The key hangs in the shed."
    remember(new, supersedes=2, user="ana", room="shed", tags=["door", "key"], importance=0.5)
    assert (kept.supersedes, kept.similar) == (1, ())
    with open_source(home / OWN_FILE) as source:
        assert [(link.from_id, link.to_id, link.link_type) for link in source.told(MemoryLink)] == [
            ("2", "1", "supersedes"),
            ("3", "2", "supersedes"),
        ]
        names = ("wing", "room", "tags", "importance")
        found = {row.key: tuple(row.fields[name] for name in names) for row in source.rows()}
    assert found[2] == found[1] == ("home", "hall", "key", 0.9), "taken over from what it replaces"
    assert found[3] == ("home", "shed", "door,key", 0.5), "as far as it is not given"


def test_a_live_recall_finds_it_at_once(home: Path) -> None:
    path = remember(KEY, wing="home").path
    assert recall("boiler valve").warnings[0].code == "no_snapshot"
    publish_from(Cache(path), new_store(store_for_source(home, path)))
    kept = remember("The boiler valve was changed in May.", wing="home")
    assert kept.is_live
    assert kept.store == store_for_source(home, path)
    found = recall("boiler valve", wing="home")
    assert found.memories[0].id == kept.id
    assert found.memories[0].live
    assert not recall("boiler valve", wing="work").memories


@pytest.mark.parametrize("step", range(len(MIGRATIONS)))
def test_an_older_format_is_brought_up_to_date(home: Path, step: int) -> None:
    home.mkdir()
    with closing(sqlite3.connect(home / OWN_FILE)) as db:
        if step:
            db.executescript("".join(MIGRATIONS[:step]))
            db.executescript(f"PRAGMA application_id={0x6E6F6374}; PRAGMA user_version={step}")
            db.execute("INSERT INTO memories (content, created_at, updated_at) VALUES (?, '', '')",
                       (KEY,))  # fmt: skip
            db.commit()
    kept = remember("The key hangs behind the blue door", supersedes=1 if step else None)
    assert list(rows(home).values())[:-1] == ([KEY] if step else [])
    with closing(sqlite3.connect(kept.path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
        assert db.execute("SELECT count(*) FROM memory_links").fetchone() == (bool(step),)


def of_a_newer_version(path: Path) -> None:
    remember(KEY)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version=99")


def of_somebody_else(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY)")


def no_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"These are notes, and no database." * 40)


def a_folder(path: Path) -> None:
    path.mkdir(parents=True)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (of_a_newer_version, "format 99, and this noctuary knows up to 3; .*update noctuary"),
        (of_somebody_else, "noctuary did not make"),
        (no_database, "cannot be written .*SQLITE_NOTADB.*backup"),
        (a_folder, "cannot be written .*SQLITE_CANTOPEN.*permissions"),
    ],
)
def test_a_file_that_is_no_own_store_stays_as_it_is(
    home: Path, make: Callable[[Path], None], said: str
) -> None:
    path = home / OWN_FILE
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError, match=said) as raised:
        remember("The key hangs in the hall.")
    assert "nothing was kept" in str(raised.value)
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write")
def test_a_home_that_cannot_be_written_is_told(home: Path) -> None:
    remember(KEY)
    for path in (home, *home.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    # Root may write anywhere: without that right it may not.
    drop = ["setpriv", "--bounding-set=-dac_override", "--"] if os.geteuid() == 0 else []
    script = "from noctuary import remember\ntry: remember('x')\nexcept Exception as e: print(e)"
    ran = subprocess.run([*drop, sys.executable, "-c", script], capture_output=True, text=True)
    home.chmod(0o700)
    assert "cannot be written" in ran.stdout, ran.stderr
    assert "nothing was kept" in ran.stdout
    assert rows(home) == {1: KEY}


def test_a_full_disk_loses_nothing_that_was_acknowledged(home: Path) -> None:
    script = """
import resource
from noctuary import remember
limit = 400_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    for number in range(100):
        text = f"Entry {number} " + f"word{number} " * 1_000
        print(remember(text).id, text.strip(), flush=True)
except Exception as error:
    print("0", f"{type(error).__name__}: {error}")
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    said = acknowledged(ran.stdout)
    assert said.pop(0).startswith("StoreError: ")
    assert "nothing was kept. Make room" in ran.stdout
    assert len(said) > 3
    assert {key: text.strip() for key, text in rows(home).items()} == said
    assert remember(KEY).id == max(said) + 1, "with room again it goes on"


def test_who_waits_in_vain_is_told_to_try_again(home: Path) -> None:
    remember(KEY)
    said = "others were writing .* for 0.2 s; nothing was kept. Try again"
    with directory_lock(home), pytest.raises(StoreLockedError, match=said):
        remember("One more.", wait_s=0.2)
    with closing(sqlite3.connect(home / OWN_FILE, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match=said):
            remember("One more.", wait_s=0.2)
        waiting = threading.Thread(target=remember, args=("The last.",))
        waiting.start()
        time.sleep(0.2)
        other.execute("COMMIT")
        waiting.join()
    assert rows(home) == {1: KEY, 2: "The last."}


def test_one_that_is_refused_does_not_stop_the_others_of_its_batch(home: Path) -> None:
    outcomes: list[Any] = []

    def keep(text: str, supersedes: int | None = None) -> None:
        try:
            outcomes.append(remember(text, supersedes=supersedes).id)
        except MemoryRefusedError as error:
            outcomes.append(error)

    remember(KEY)
    at_once = [
        *(threading.Thread(target=keep, args=(f"Entry {n}.",)) for n in range(4)),
        *(threading.Thread(target=keep, args=(f"Wrong {n}.", 99)) for n in range(2)),
    ]
    with directory_lock(home):
        for one in at_once:
            one.start()
        time.sleep(0.2)
    for one in at_once:
        one.join()
    assert sorted(o for o in outcomes if isinstance(o, int)) == [2, 3, 4, 5]
    assert len([o for o in outcomes if isinstance(o, MemoryRefusedError)]) == 2
    assert sorted(rows(home).values()) == sorted([KEY, *(f"Entry {n}." for n in range(4))])


@pytest.mark.parametrize(
    ("processes", "threads", "writes"),
    [(4, 4, 5), pytest.param(12, 16, 100, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_every_row_of_many_writers_lands(
    home: Path, processes: int, threads: int, writes: int
) -> None:
    started = [start_writer(number, threads, writes) for number in range(processes)]
    outs = [process.communicate() for process in started]
    assert [err for _, err in outs if err] == []
    said = {key: text for out, _ in outs for key, text in acknowledged(out).items()}
    assert len(said) == processes * threads * writes
    assert rows(home) == said
    assert len(found_by_words(home / OWN_FILE, "entry*")) == len(said)


def test_what_was_acknowledged_survives_a_kill(home: Path) -> None:
    for number in range(3):
        writers = [start_writer(number * 2 + n, 4, 10_000) for n in range(2)]
        first = [w.stdout.readline() for w in writers if w.stdout is not None]  # both are writing
        time.sleep(0.1 * number)
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
        outs = [*first, *(w.communicate()[0] for w in writers)]
        said = {k: t for out in outs for k, t in acknowledged(out).items()}
        assert len(said) >= len(writers)
        assert said.items() <= rows(home).items()
    kept = remember(KEY, wait_s=5)
    assert json.loads(json.dumps(kept.to_json()))["id"] == max(rows(home))


def test_a_fork_neither_hangs_nor_breaks_the_store(home: Path) -> None:
    script = """
import os, threading
from noctuary import remember
done = threading.Event()
def work():
    while not done.is_set():
        remember("Of the parent.")
threading.Thread(target=work).start()
for number in range(5):
    child = os.fork()
    if child == 0:
        remember(f"Of child {number}.")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
done.set()
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    found = list(rows(home).values())
    assert sorted(t for t in found if "child" in t) == [f"Of child {n}." for n in range(5)]


def test_remembering_loads_no_build_library(home: Path) -> None:
    script = """
import sys
from noctuary import remember
remember("The key hangs in the hall.")
heavy = {"numpy", "polars", "duckdb", "pyarrow", "dagster", "lancedb", "torch", "pydantic", "click"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert rows(home)
