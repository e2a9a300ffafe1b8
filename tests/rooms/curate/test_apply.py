"""Applying to and undoing in a real claude-memory cache."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from noctuary import remember
from noctuary.core.errors import ConfigError, CurationRefusedError, SourceError, StoreError
from noctuary.core.settings import CorpusSettings
from noctuary.core.store import name_source, names_postgres
from noctuary.curate.apply import AppliedProposals as Applied
from noctuary.curate.apply import (
    ProposalTable,
    Where,
    apply_proposals,
    chosen,
    read_proposals,
    replacement_text,
    undo,
    write_proposals,
)
from noctuary.curate.proposals import Evidence, Piece, Proposal, Span, Target, named
from noctuary.curate.stores import TABLE, SqliteStore, open_writable
from noctuary.sources.postgres import read_address
from tests.rooms.curate.conftest import MakeSqlite
from tests.support.claude_memory import (
    Row,
    found_by_words,
    make_sqlite,
    proposals_for,
    records_of,
    table_of,
)


def proposal(number: int = 0, **fields: Any) -> Proposal:
    values: dict[str, Any] = {
        "action": "ADD",
        "kind": "fragments",
        "confidence": 0.8,
        "user": None,
        "wing": "harbour",
        "targets": (
            Target(f"b{number}", 2, "superseded", "h2", "t2"),
            Target(f"a{number}", 1, "superseded", "h1", "t1"),
        ),
        "evidence": Evidence("Because.", (Span(f"a{number}", 0, 4),), 0.5, None),
        "pieces": (Piece("", f"a{number}", 0, 4), Piece("\n", f"b{number}", 1, 3)),
        **fields,
    }
    return named(Proposal(**values))


def test_a_table_is_read_as_it_was_written_and_equal_ones_have_equal_bytes(tmp_path: Path) -> None:
    table = ProposalTable((proposal(), proposal(1, action="NOOP", pieces=())), True, "digest")
    for name in ("one", "two"):
        write_proposals(tmp_path / name, table)
    assert read_proposals(tmp_path / "one") == table
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert table.proposals[0].memory_ids == ("a0", "b0"), "in order of position"
    write_proposals(tmp_path / "t", ProposalTable((), False, ""))
    assert read_proposals(tmp_path / "t") == ProposalTable((), False, "")


def test_a_table_that_is_missing_or_damaged_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"set curation\.enabled"):
        read_proposals(tmp_path / "none")
    (tmp_path / "bad").write_bytes(b"PAR1 no")
    with pytest.raises(StoreError, match="run the night again"):
        read_proposals(tmp_path / "bad")


@pytest.mark.parametrize(
    ("field", "value", "same"),
    [
        ("confidence", 0.1, True),
        ("evidence", Evidence("Otherwise."), True),
        ("action", "NOOP", False),
        ("kind", "superseded", False),
        ("fields", ("tags",), False),
        ("pieces", (), False),
        ("targets", (Target("a0", 1, "superseded", "h1", "t1"),), False),
    ],
)
def test_an_id_is_of_what_would_be_done(field: str, value: Any, same: bool) -> None:
    assert (proposal(**{field: value}).proposal_id == proposal().proposal_id) is same


def test_a_replacement_is_composed_of_the_texts_at_hand() -> None:
    assert replacement_text(proposal(), {"a0": "tides", "b0": "high"}) == "tide\nig"
    assert replacement_text(proposal(), {"a0": "tides"}) is None
    assert replacement_text(proposal(action="NOOP", pieces=()), {}) is None


def test_proposals_are_chosen_by_the_start_of_their_id() -> None:
    found = [proposal(n) for n in range(3)] + [proposal(3, action="NOOP", pieces=())]
    first = found[0]
    assert chosen(found, (first.proposal_id[:6],), 0.0) == [first]
    assert chosen(found, (first.proposal_id, first.proposal_id), 0.99) == [first]
    assert chosen(found, (found[3].proposal_id,), 0.0) == [found[3]]
    assert chosen(found, (), 0.0) == found[:3]
    assert chosen(found, (), 0.81) == []
    for wrong in ("", "xyz"):
        with pytest.raises(CurationRefusedError, match="expected one"):
            chosen(found, (wrong,), 0.0)
    for least in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="expected 0 to 1"):
            chosen(found, (), least)


def test_an_address_comes_from_a_variable_and_shows_no_password() -> None:
    dsn = "postgresql://ann:s3cret@db.local:5433/memory"
    address = read_address("env:MEMORY_DSN", {"MEMORY_DSN": f" {dsn}\n"})
    assert address.conninfo == dsn
    assert address.display == "postgresql://ann@db.local:5433/memory"
    assert "s3cret" not in repr(address)
    assert "s3cret" not in repr(name_source(dsn)) + str(name_source(dsn))
    assert address.cleaned(f"no: s3cret\n at {dsn}") == "no: *** at ***"


@pytest.mark.parametrize(
    ("source", "environ"),
    [
        ("env:MISSING", {}),
        ("env:OTHER", {"OTHER": "s3cret"}),
        ("postgresql://ann:s3cret@[::1", {}),
        ("postgresql://h/d?s3cret=1", {}),
    ],
)
def test_a_wrong_address_is_not_repeated(source: str, environ: dict[str, str]) -> None:
    assert names_postgres(source)
    with pytest.raises(ConfigError) as caught:
        read_address(source, environ)
    assert "s3cret" not in str(caught.value)
    assert not any(names_postgres(s) for s in ("memory.db", "./env", "https://h"))


TEXT = "The harbour master answers on channel 12."
PARTS = ("Tides (part 1 of 2): high at six.", "Tides (part 2 of 2): low at noon.")
ROWS: tuple[Row, ...] = (
    {"content": TEXT, "tags": "radio", "importance": 0.7},
    {"content": TEXT, "tags": "harbour,boats", "expanded_keywords": "vhf", "importance": 0.6},
    {"content": PARTS[0], "importance": 0.1},
    {"content": PARTS[1], "importance": None},
    {"content": "The ferry leaves at nine.", "importance": 0.8},
)

T = TypeVar("T")

KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from noctuary.curate import apply as applying
from noctuary.curate.apply import Where
from noctuary.curate.stores import open_writable
from noctuary.core.settings import CorpusSettings
from tests.support.claude_memory import proposals_for, records_of

source, corpus, moment = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
records = records_of(source, corpus)
where = Where(True, {r.memory_id: r.content for r in records})
proposals = [p for p in proposals_for(records) if p.action != "NOOP"]
store = open_writable(str(source), CorpusSettings())
seen = 0

def watch(statement):
    global seen
    if statement == "COMMIT":
        print("survived", seen, flush=True)
        if moment == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    if statement.startswith("INSERT INTO noctuary_curation_journal"):
        seen += 1
        if seen == moment:
            os.kill(os.getpid(), signal.SIGKILL)

store._db.set_trace_callback(watch)
applying.apply_proposals(store, proposals, where)
"""


@pytest.fixture
def path(source: MakeSqlite) -> Path:
    return source(*ROWS)


@pytest.fixture
def proposed(path: Path, tmp_path: Path) -> tuple[list[Proposal], Where]:
    return propose(path, tmp_path)


def propose(path: Path, tmp_path: Path) -> tuple[list[Proposal], Where]:
    records = records_of(path, tmp_path / "corpus")
    where = Where(is_own=True, text_of={r.memory_id: r.content for r in records})
    return [p for p in proposals_for(records) if p.action != "NOOP"], where


def with_store(path: Path, do: Callable[[SqliteStore], T], timeout_ms: int = 2_000) -> T:
    with closing(SqliteStore(path, CorpusSettings(), busy_timeout_ms=timeout_ms)) as store:
        return do(store)


def apply(path: Path, proposed: tuple[list[Proposal], Where]) -> Applied:
    return with_store(path, lambda store: apply_proposals(store, *proposed))


def edit(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


def contents(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT id, content, tags, importance FROM memories").fetchall()


def test_what_is_written_and_undone(
    path: Path, proposed: tuple[list[Proposal], Where], tmp_path: Path
) -> None:
    edit(path, "UPDATE memories SET content = 'The ferry leaves at ten.' WHERE id = 5")
    before = table_of(path)
    applied = apply(path, proposed)
    assert (applied.tombstones, applied.updated, applied.added) == ((1, 3, 4), (2,), (6,))
    assert contents(path) == [
        (1, f"[SUPERSEDED] {TEXT}", "radio", 0.3),
        (2, TEXT, "harbour,boats,radio", 0.7),
        (3, f"[SUPERSEDED] {PARTS[0]}", "", 0.1),  # never raised
        (4, f"[SUPERSEDED] {PARTS[1]}", "", 0.3),
        (5, "The ferry leaves at ten.", "", 0.8),  # no proposal is about it: it may change
        (6, "Tides: high at six.\nlow at noon.", "", 0.5),
    ]
    assert proposals_for(records_of(path, tmp_path / "corpus")) == [], "the next night has no more"
    written = table_of(path), table_of(path, TABLE)
    again = apply(path, proposed)
    assert (again.journal_id, again.held) == (None, {p.proposal_id: 1 for p in proposed[0]})
    assert (table_of(path), table_of(path, TABLE)) == written, "twice writes once"
    undone = with_store(path, lambda store: undo(store, 1))
    assert (undone.restored, undone.taken_back) == ((2, 1, 3, 4), (6,))
    assert table_of(path) == before


def test_the_stores_own_search_and_queue_go_on(
    path: Path, proposed: tuple[list[Proposal], Where]
) -> None:
    edit(path, "INSERT INTO pending_ops(op_type, payload) VALUES ('store', '{}')")
    before = table_of(path, "pending_ops")
    apply(path, proposed)
    assert found_by_words(path, "superseded") == [1, 3, 4]
    assert found_by_words(path, "noon") == [4, 6]
    assert found_by_words(path, "radio") == [1, 2]
    assert table_of(path, "pending_ops") == before
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    with_store(path, lambda store: undo(store, 1))
    assert found_by_words(path, "superseded") == []
    assert found_by_words(path, "noon") == [4]


def test_columns_that_noctuary_does_not_know_are_carried_and_restored(
    source: MakeSqlite, tmp_path: Path
) -> None:
    columns = ("shelf BLOB", "user_id TEXT", '"odd name" TEXT')
    rows = [{**row, "shelf": b"\x00\xff", "user_id": "mia", '"odd name"': "x"} for row in ROWS]
    path = source(*rows, extra_columns=columns)
    before = table_of(path)
    apply(path, propose(path, tmp_path))
    with closing(sqlite3.connect(path)) as db:
        sql = 'SELECT shelf, user_id, "odd name", server_id FROM memories WHERE id = 6'
        assert db.execute(sql).fetchone() == (b"\x00\xff", "mia", "x", None)
    with_store(path, lambda store: undo(store, 1))
    assert table_of(path) == before


def test_what_was_undone_can_be_applied_and_undone_again(
    path: Path, proposed: tuple[list[Proposal], Where]
) -> None:
    before = table_of(path)
    apply(path, proposed)
    with_store(path, lambda store: undo(store, 1))
    assert apply(path, proposed).journal_id == 2
    with pytest.raises(CurationRefusedError, match="1 was undone at"):
        with_store(path, lambda store: undo(store, 1))
    with_store(path, lambda store: undo(store, 2))
    assert table_of(path) == before
    found = with_store(path, lambda store: store.applications())
    assert [(a["journal_id"], a["rows"], bool(a["undone_at"])) for a in found] == [
        (1, 5, True),
        (2, 5, True),
    ]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memories SET content = 'Edited.' WHERE id = 1",
        "UPDATE memories SET importance = 0.71 WHERE id = 1",
        "UPDATE memories SET tags = 'radio,sea' WHERE id = 2",
        "UPDATE memories SET updated_at = '2026-03-02' WHERE id = 3",
        "UPDATE memories SET is_sensitive = 1 WHERE id = 4",
        "UPDATE memories SET content = '[REDACTED: x]' WHERE id = 4",
        "DELETE FROM memories WHERE id = 2",
    ],
)
def test_a_source_that_changed_since_refuses_everything(
    path: Path, proposed: tuple[list[Proposal], Where], change: str
) -> None:
    edit(path, change)
    before = table_of(path)
    with pytest.raises(CurationRefusedError, match=r"Nothing was written\. Run the night"):
        apply(path, proposed)
    assert table_of(path) == before
    assert not with_store(path, lambda store: store.applications())


def test_of_many_refusals_a_few_are_told(path: Path, tmp_path: Path) -> None:
    for n in range(7):
        for _ in range(2):
            edit(path, f"INSERT INTO memories(content, created_at, updated_at) VALUES ('pair {n}', "
                 "'2026-01-01', '2026-01-01')")  # fmt: skip
    proposed = propose(path, tmp_path)
    edit(path, "UPDATE memories SET category = 'moved'")
    with pytest.raises(CurationRefusedError, match="; and 4 more"):
        apply(path, proposed)


def test_undo_refuses_what_changed_since(
    path: Path, proposed: tuple[list[Proposal], Where]
) -> None:
    apply(path, proposed)
    edit(path, "UPDATE memories SET tags = 'mine' WHERE id IN (1, 6)")
    before = table_of(path)
    for journal_id, refusal in ((1, "rows 1, 6 were changed since"), (7, "no application 7")):
        with pytest.raises(CurationRefusedError, match=refusal):
            with_store(path, lambda store, n=journal_id: undo(store, n))
    assert table_of(path) == before


def test_a_noop_is_not_applied(path: Path, proposed: tuple[list[Proposal], Where]) -> None:
    edit(path, "DELETE FROM memories WHERE id = 4")
    found = proposals_for(records_of(path, path.parent / "parts"))
    (part,) = [p for p in found if p.action == "NOOP"]
    with pytest.raises(CurationRefusedError, match="would change nothing"):
        apply(path, ([part], proposed[1]))


@pytest.mark.parametrize("mark", ["is_sensitive = 1", "is_sensitive = 'yes'", "vault_path = 'v'"])
def test_the_journal_forgets_what_turned_sensitive_or_is_gone(
    path: Path, proposed: tuple[list[Proposal], Where], mark: str
) -> None:
    apply(path, proposed)
    if mark.startswith("vault_path"):
        edit(path, "ALTER TABLE memories ADD COLUMN vault_path TEXT")
    edit(path, f"UPDATE memories SET {mark} WHERE id = 1")
    edit(path, "DELETE FROM memories WHERE id = 3")
    apply(path, proposed)
    with closing(sqlite3.connect(path)) as db:
        sql = f"SELECT row_id FROM {TABLE} WHERE before_image IS NULL AND change <> 'add'"
        assert db.execute(sql).fetchall() == [(1,), (3,)]
    with pytest.raises(CurationRefusedError, match="rows 1, 3 are sensitive or deleted"):
        with_store(path, lambda store: undo(store, 1))
    (found,) = with_store(path, lambda store: store.applications())
    assert not found["undoable"]


def test_undo_that_a_trigger_would_spoil_is_rolled_back(
    path: Path, proposed: tuple[list[Proposal], Where]
) -> None:
    apply(path, proposed)
    edit(path, "CREATE TRIGGER stamp AFTER UPDATE OF content ON memories BEGIN "
         "UPDATE memories SET category = 'touched' WHERE id = new.id; END")  # fmt: skip
    before = table_of(path)
    with pytest.raises(CurationRefusedError, match="did not come back"):
        with_store(path, lambda store: undo(store, 1))
    assert table_of(path) == before


def test_another_writer_is_waited_for_and_then_named(
    path: Path, proposed: tuple[list[Proposal], Where]
) -> None:
    before = table_of(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(SourceError, match=r"stayed locked by another writer for 0\.05 s"):
            with_store(path, lambda store: apply_proposals(store, *proposed), 50)
        writer.execute("ROLLBACK")
    assert table_of(path) == before


def test_a_reader_goes_on_and_sees_the_old_state_until_it_looks_again(
    path: Path, proposed: tuple[list[Proposal], Where]
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        count = "SELECT count(*) FROM memories WHERE content LIKE '[SUPERSEDED]%'"
        assert reader.execute(count).fetchone() == (0,)
        apply(path, proposed)
        assert reader.execute(count).fetchone() == (0,)
        reader.execute("COMMIT")
        assert reader.execute(count).fetchone() == (3,)


def test_the_owner_of_a_cache_is_told(source: MakeSqlite) -> None:
    path = source({"server_id": 7}, {})
    edit(path, "INSERT INTO pending_ops(op_type, payload) VALUES ('store', '{}')")
    copies, waiting = with_store(path, lambda store: store.notes)
    assert copies.startswith("1 rows are copies of a server's")
    assert waiting.startswith("1 operations wait")
    assert with_store(source({}, name="own.db"), lambda store: store.notes) == ()


def test_json_lines_are_read_only(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": 1, "content": "x"}\n', encoding="utf-8")
    with pytest.raises(SourceError, match="JSON lines, which noctuary only reads"):
        open_writable(str(path), CorpusSettings())


def test_several_stores_are_written_to_one_at_a_time(home: Path) -> None:
    remember("The spare key hangs behind the blue door.")
    listed = home / "noctuary.toml"
    listed.write_text("[sources]\n", encoding="utf-8")
    with pytest.raises(SourceError, match=r"several stores \(own\).*--source"):
        open_writable(str(listed), CorpusSettings())


@pytest.mark.parametrize("moment", [1, 5, 0])
def test_killed_in_the_middle_nothing_is_written(path: Path, tmp_path: Path, moment: int) -> None:
    """Five rows are written, a note after each; 0 is the moment before the commit itself."""
    before = table_of(path)
    done = kill_at(path, tmp_path, moment)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert table_of(path) == before
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (TABLE,)).fetchone() is None
    assert apply(path, propose(path, tmp_path)).journal_id == 1


def test_the_kills_above_are_aimed_at_all_there_is(path: Path, tmp_path: Path) -> None:
    done = kill_at(path, tmp_path, 6)
    assert (done.returncode, done.stdout.split()) == (0, ["survived", "5"]), done.stderr
    assert len(contents(path)) == len(ROWS) + 1


def kill_at(path: Path, tmp_path: Path, moment: int) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).resolve().parents[3]
    arguments = [sys.executable, "-c", KILLED, str(path), str(tmp_path / "killed"), str(moment)]
    return subprocess.run(
        arguments, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip


SHIFT: Row = {"content": "Shifts ids."}


def apply_to_another(tmp_path: Path, here: Sequence[Row], there: Sequence[Row]) -> Applied:
    proposals, where = propose(make_sqlite(tmp_path / "here.db", here), tmp_path)
    other = make_sqlite(tmp_path / "there.db", [SHIFT, *there])
    return apply(other, (proposals, where._replace(is_own=False)))


def test_a_cache_of_another_id_space_is_matched_by_content(tmp_path: Path) -> None:
    applied = apply_to_another(tmp_path, ROWS, ROWS)
    assert (applied.tombstones, applied.updated, applied.added) == ((2, 4, 5), (3,), (7,))


@pytest.mark.parametrize(
    ("here", "there"),
    [
        # A third copy there makes it unclear which is meant.
        (ROWS[:2], [*ROWS[:2], {"content": TEXT}]),
        (ROWS[2:4], [{**row, "tags": "wing:boat"} for row in ROWS[2:4]]),
    ],
    ids=["third-copy", "another-wing"],
)
def test_what_is_not_there_exactly_once_is_not_matched(
    tmp_path: Path, here: Sequence[Row], there: Sequence[Row]
) -> None:
    with pytest.raises(CurationRefusedError, match="not there, or not exactly once"):
        apply_to_another(tmp_path, here, there)
