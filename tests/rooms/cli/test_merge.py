"""A merge of two homes that were lived in, and of homes that mean no good."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary import remember
from noctuary.cli.backup import MANIFESTS, OBJECTS, back_up
from noctuary.cli.merge import merge_home
from noctuary.compact.archive import ArchiveReader
from noctuary.core.store import store_for_source
from noctuary.evaluate.labels import read_queries
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller
from noctuary.snapshot.forget import finish_left
from noctuary.sources.ingest import forget_turns, ingest_transcripts
from noctuary.sources.own_store import OWN_FILE
from noctuary.work.lock import hold_lock
from tests.e2e.byte_scan import find_texts
from tests.properties.test_merge import kept_turns
from tests.rooms.cli.conftest import Run
from tests.rooms.snapshot.test_forget import KEPT, PARTS, SECRET, House
from tests.support.archive_file import write_archive
from tests.support.transcripts import working_session, write_session

PAINT = ("The garage paint is 4471 this season.", "The garage paint is 9032 now.")
INVOICE = "The invoice of Acme goes out on Mondays."
LABELS = (
    {"query_id": "q1", "text": "which paint?", "relevant_ids": ["5"], "grades": {"5": 2}},
    {"query_id": "q2", "text": "who is on the moon?", "relevant_ids": []},
)
MINE = '{"query_id": "q1",  "text": "when do invoices go out?", "relevant_ids": [4]}\n'


BESIDE = (".lock", "-shm", "-wal")


def contents(root: Path) -> dict[str, bytes]:
    found = (path for path in root.rglob("*") if path.is_file() and not path.name.endswith(BESIDE))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def own_texts(home: Path) -> dict[int, str]:
    with closing(sqlite3.connect(home / OWN_FILE)) as db:
        return dict(db.execute("SELECT id, content FROM memories ORDER BY id").fetchall())


def at(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NOCTUARY_HOME", str(home))
    return home


def live_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[House, House]:
    """Return two homes that began as one, and have lived since.

    The laptop has an archived memory, labels and turns, and forgot the secret that both knew. The
    desktop, which is the configured home then, gave one of its numbers to another memory.
    """
    house = House.new(at(tmp_path / "laptop", monkeypatch))
    shutil.copytree(house.home, tmp_path / "desktop")
    remember(PAINT[0], wing="home")
    remember(PAINT[1], wing="home", supersedes=4)
    house.night()
    reader = Recaller.open(house.paths.root).reader
    write_archive(house.paths.archive, reader, {"plan": {"4": "5"}}, {"plan": [(1, None)]})
    (house.home / "queries.jsonl").write_text("\n".join(map(json.dumps, LABELS)) + "\n")
    session = write_session(tmp_path / "shop/one.jsonl", working_session(1, 3).lines)
    ingest_transcripts(session, house.paths.turns)
    house.apply(1)
    home = at(tmp_path / "desktop", monkeypatch)
    (store,) = (path.parent for path in home.glob("*/CURRENT"))
    store.rename(store_for_source(home, home / OWN_FILE))
    remember(INVOICE, wing="work")
    (home / "queries.jsonl").write_text(MINE)
    other = House.again(home)
    other.night()
    return house, other


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[House, House]:
    """The laptop and the desktop."""
    return live_apart(tmp_path, monkeypatch)


@pytest.fixture
def laptop(both: tuple[House, House]) -> House:
    return both[0]


@pytest.fixture
def desktop(both: tuple[House, House]) -> House:
    return both[1]


@pytest.mark.parametrize("is_backup", [True, False], ids=["backup", "home"])
def test_what_the_other_home_knows_holds_here(
    laptop: House, desktop: House, tmp_path: Path, run: Run, is_backup: bool
) -> None:
    other, home = tmp_path / "disk", desktop.home
    if is_backup:
        back_up(laptop.home, [laptop.paths.root], other)
    else:
        shutil.copytree(laptop.home, other)
    assert recall("Zanzibarova Oxenholme ledger").memories[0].content == SECRET
    before = contents(home)
    planned = merge_home(home, other, dry_run=True)
    assert contents(home) == before, "a plan changes nothing"
    done = merge_home(home, other)
    assert planned.rows._replace(same={}) == done.rows._replace(same={})
    assert (planned.turns, planned.labels) == (done.turns, done.labels)
    assert own_texts(home) == {2: KEPT[0], 3: KEPT[1], 4: INVOICE, 5: PAINT[1], 6: PAINT[0]}
    shown = [memory.content for memory in recall("Zanzibarova Oxenholme ledger").memories]
    assert SECRET not in shown, "hidden at once"
    assert any("next night" in message for message in done.forgetting)

    desktop.night()
    assert finish_left(desktop.paths) is not None
    assert find_texts(home, PARTS) == []
    hidden = ArchiveReader(desktop.paths.archive).hidden_in(
        Recaller.open(desktop.paths.root).reader.content_hashes
    )
    assert (done.archived, dict(hidden)) == (1, {"6": "5"})
    assert kept_turns(desktop.paths.turns) == kept_turns(laptop.paths.turns) != {}
    labels = read_queries(home / "queries.jsonl")
    assert (home / "queries.jsonl").read_text().startswith(MINE)
    assert [(q.text, q.gains) for q in labels.ranked] == [
        ("when do invoices go out?", {"4": 1}), ("which paint?", {"5": 2})
    ]  # fmt: skip
    assert [query.query_id for query in labels.unanswerable] == ["q2"]

    before = contents(home)
    again = run("merge", str(other))
    assert (again.exit_code, "nothing that is not here already" in again.output) == (0, True)
    assert contents(home) == before, "a second time changes no byte"


def test_turns_that_were_forgotten_there_are_forgotten_here(laptop: House, desktop: House) -> None:
    merge_home(desktop.home, laptop.home)
    turn_id = sorted(kept_turns(laptop.paths.turns))[0]
    forget_turns(laptop.paths.turns, [turn_id])
    assert merge_home(desktop.home, laptop.home).turns.gone == 1
    assert kept_turns(desktop.paths.turns)[turn_id][3] == []


def test_where_memories_came_from_and_both_texts_of_an_edit_are_told(
    laptop: House, desktop: House, run_json: Callable[..., Any]
) -> None:
    for home, text, day in ((laptop.home, "At noon.", 1), (desktop.home, "At one.", 2)):
        with closing(sqlite3.connect(home / OWN_FILE)) as db, db:
            sql = "UPDATE memories SET content = ?, updated_at = ? WHERE id = 3"
            db.execute(sql, (text, f"2030-01-0{day}T00:00:00+00:00"))
    found = run_json("merge", str(laptop.home))
    assert found["new"] == {"4": 6, "5": 5}
    assert (found["gone"], found["changed"]) == ([1], {})
    assert found["conflicts"] == [{"id": 3, "kept": "here", "here": "At one.", "there": "At noon."}]
    with closing(sqlite3.connect(desktop.home / OWN_FILE)) as db:
        known = db.execute("SELECT id, home, number FROM came_from ORDER BY id").fetchall()
    assert known == [(6, found["home"], 4)], "the other one kept its number"


def test_a_merge_waits_for_nobody(laptop: House, desktop: House, run: Run) -> None:
    before = contents(desktop.home)
    for lock in (desktop.home / "merge.lock", desktop.paths.lock):
        with hold_lock(lock):
            assert run("merge", str(laptop.home)).exit_code == 4
    assert contents(desktop.home) == before
    assert run("merge", str(desktop.home)).exit_code == 1
    assert run("merge", str(desktop.home.parent / "nothing")).exit_code == 1
    assert run("merge", str(laptop.home), "--backup", "2026").exit_code == 1


# The other home is a stranger's.


def _sql(*statements: str) -> Callable[[House], object]:
    def act(house: House) -> None:
        with closing(sqlite3.connect(house.home / OWN_FILE)) as db:
            db.executescript(";".join(statements))

    return act


def _link(name: str) -> Callable[[House], object]:
    def act(house: House) -> None:
        path = house.home / name
        path.touch()
        path.rename(house.home.parent / "elsewhere")
        path.symlink_to(house.home.parent / "elsewhere")

    return act


def _write(name: str, text: str) -> Callable[[House], object]:
    return lambda house: (house.paths.root / name).write_text(text)


def _pipe(house: House) -> None:
    house.paths.current.unlink()
    os.mkfifo(house.paths.current)
    (house.home / OWN_FILE).write_bytes(b"nothing")


def _tear(house: House) -> None:
    path = house.home / OWN_FILE
    path.write_bytes(path.read_bytes()[:9_000])


ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x FROM n) SELECT x AS id FROM n"
HOSTILE: dict[str, Callable[[House], object]] = {
    "an endless view": _sql("DROP TABLE memory_links", f"CREATE VIEW memory_links AS {ENDLESS}"),
    "a column that computes": _sql(
        "ALTER TABLE memories ADD COLUMN deleted_at AS (hex(zeroblob(500000000)))"
    ),
    "a virtual table": _sql("DROP TABLE gone", "CREATE VIRTUAL TABLE gone USING fts5(number)"),
    "a newer format": _sql("PRAGMA user_version=99"),
    "another program's": _sql("PRAGMA application_id=1"),
    "a torn file": _tear,
    "a link": _link(OWN_FILE),
    "a link beside it": _link(f"{OWN_FILE}-shm"),
    "tombstones of nobody": _write("forgotten.json", '{"format": 2, "rows": 7}'),
    "deep tombstones": _write("forgotten.json", "[" * 100_000),
    "a pipe": lambda house: os.mkfifo(house.home / "adversarial.jsonl"),
    "a pipe and no store": _pipe,
    "an archive of nobody": _write("archive.sqlite", "nothing"),
}  # fmt: skip


def test_a_hostile_home_is_refused_and_changes_nothing(
    laptop: House, desktop: House, tmp_path: Path, run: Run
) -> None:
    before = contents(desktop.home)
    shutil.copytree(laptop.home, tmp_path / "saved")
    for kind, act in HOSTILE.items():
        shutil.rmtree(laptop.home)
        shutil.copytree(tmp_path / "saved", laptop.home)
        act(laptop)
        done = run("merge", str(laptop.home))
        assert done.exit_code == 1, kind
        assert any(word in done.output for word in ("nothing was merged", "refused", "cannot")), (
            kind
        )
        assert contents(desktop.home) == before, kind
        assert [path for path in desktop.home.iterdir() if path.name.startswith(".")] == [], kind
        (laptop.home.parent / "elsewhere").unlink(missing_ok=True)


def test_hostile_rows_stay_out_and_hurt_nobody(laptop: House, desktop: House) -> None:
    key = "sk-ant-api03-" + "Zq7" * 31
    with closing(sqlite3.connect(laptop.home / OWN_FILE)) as db, db:
        row = "INSERT INTO memories (id, content, created_at, updated_at, user) VALUES "
        moment = "'2026-05-01T08:00:00.000001+00:00'"
        for number, text, user in (
            (9_000_000_000_000_000_000, "The last number there is.", "NULL"),
            (70, f"The key is {key}", "NULL"),
            (71, "x" * 3_000_000, "NULL"),
            (72, "It replaces what is Ana's.", "'ben'"),
            (73, "What is Ana's.", "'ana'"),
        ):
            db.execute(f"{row} (?, ?, {moment}, {moment}, {user})", (number, text))
        db.execute(f"{row} (74, x'ff00', {moment}, {moment}, NULL)")
        db.execute(
            "INSERT INTO memory_links (user_id, src_id, dst_id, link_type, created_at) "
            "VALUES ('ben', 72, 73, 'supersedes', '')"
        )
        db.execute("INSERT INTO gone VALUES (9223372036854775807, 'never')")
        db.execute("UPDATE home SET name = '../../etc'")
    with closing(sqlite3.connect(laptop.paths.turns)) as db, db:
        db.execute("INSERT INTO turns VALUES (-5, 'turn-0', 'claude', 7, 's', 'w', 'x', 0, 0)")
        taken = "SELECT key FROM parts LIMIT 1"
        db.execute("INSERT INTO turns VALUES (-6, 'turn-1', 'claude', 'user', 's', 'w', 1, 0, 0)")
        db.execute(f"INSERT INTO parts VALUES (99, -6, 'k', 'text', '', 'The key is {key}')")
        assert db.execute(taken).fetchone()
    done = merge_home(desktop.home, laptop.home)
    texts = own_texts(desktop.home)
    assert (done.refused, done.turns.refused) == (3, 1)
    assert {"The last number there is.", "What is Ana's."} <= set(texts.values())
    assert max(texts) < 1_000_000
    assert key.encode() not in b"".join(contents(desktop.home).values())
    assert "turn-0" not in kept_turns(desktop.paths.turns)
    with closing(sqlite3.connect(desktop.home / OWN_FILE)) as db:
        ana = db.execute("SELECT id FROM memories WHERE user = 'ana'").fetchone()
        assert db.execute("SELECT 1 FROM memory_links WHERE dst_id = ?", ana).fetchall() == []
    assert remember("One more fits.").id == max(texts) + 1
    assert done.home == ""


def test_a_backup_that_was_tampered_with_is_refused(
    laptop: House, desktop: House, tmp_path: Path, run: Run
) -> None:
    disk = tmp_path / "disk"
    back_up(laptop.home, [laptop.paths.root], disk)
    before = contents(desktop.home)
    (manifest,) = (disk / MANIFESTS).iterdir()
    held = json.loads(manifest.read_text())["backup"]["files"][OWN_FILE]["sha256"]
    kept = (disk / OBJECTS / held).read_bytes()
    (disk / OBJECTS / held).write_bytes(kept[:-1] + b"x")
    assert "damaged" in run("merge", str(disk)).output
    (disk / OBJECTS / held).write_bytes(kept)
    manifest.write_text(manifest.read_text().replace(OWN_FILE, "../../x.sqlite"))
    assert run("merge", str(disk)).exit_code == 1
    assert contents(desktop.home) == before


OLDER = _sql(
    "DROP TRIGGER memories_gone", "DROP TABLE home", "DROP TABLE came_from", "DROP TABLE gone",
    *(f"ALTER TABLE memories DROP COLUMN {name}"
      for name in ("origin", "valid_until", "confirmed_at")),
    "DROP TABLE memory_links", "PRAGMA user_version=1",
)  # fmt: skip


@pytest.mark.parametrize("side", ["here", "there"])
def test_a_home_of_an_older_noctuary_merges(laptop: House, desktop: House, side: str) -> None:
    OLDER(laptop if side == "there" else desktop)
    assert merge_home(desktop.home, laptop.home).rows.new == (4, 5)
    assert set(own_texts(desktop.home).values()) == {*KEPT, *PAINT, INVOICE}
    assert merge_home(desktop.home, laptop.home).rows.is_idle
