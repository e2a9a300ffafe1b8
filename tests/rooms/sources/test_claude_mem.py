"""claude-mem's database: what of it is a memory, and what stays where it is."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import SourceFormatError
from noctuary.core.types import MemoryRecord
from noctuary.sources.export import ExportReport
from noctuary.sources.open import open_source

Exported = Callable[[Path], tuple[ExportReport, Mapping[str, MemoryRecord]]]
MakeMem = Callable[..., Path]

# As its schema 49 is, without keys and indexes; earlier ones lack the columns of EXTRA.
EXTRA = "merged_into_project TEXT, metadata TEXT, content_hash TEXT"
TABLES = f"""
CREATE TABLE schema_versions (id INTEGER PRIMARY KEY, version INTEGER UNIQUE, applied_at TEXT);
CREATE TABLE sdk_sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, content_session_id TEXT, memory_session_id TEXT UNIQUE,
    project TEXT, user_prompt TEXT, started_at TEXT, started_at_epoch INTEGER, status TEXT);
CREATE TABLE observations (
    id INTEGER PRIMARY KEY AUTOINCREMENT, memory_session_id TEXT NOT NULL, project TEXT NOT NULL,
    text TEXT, type TEXT NOT NULL, title TEXT, subtitle TEXT, facts TEXT, narrative TEXT,
    concepts TEXT, files_read TEXT, files_modified TEXT, prompt_number INTEGER,
    discovery_tokens INTEGER DEFAULT 0, created_at TEXT NOT NULL, created_at_epoch INTEGER NOT NULL,
    {EXTRA});
CREATE TABLE session_summaries (
    id INTEGER PRIMARY KEY AUTOINCREMENT, memory_session_id TEXT NOT NULL, project TEXT NOT NULL,
    request TEXT, investigated TEXT, learned TEXT, completed TEXT, next_steps TEXT, files_read TEXT,
    files_edited TEXT, notes TEXT, prompt_number INTEGER, created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL, merged_into_project TEXT);
CREATE TABLE user_prompts (
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_db_id INTEGER, content_session_id TEXT NOT NULL,
    prompt_number INTEGER NOT NULL, prompt_text TEXT NOT NULL, created_at TEXT NOT NULL,
    created_at_epoch INTEGER NOT NULL);
"""
WHEN = {"created_at": "2026-03-01T08:00:00.000Z", "created_at_epoch": 1_772_352_000_000}
SESSION = {"memory_session_id": "s1", "project": "shop", **WHEN}
FIX = {
    "type": "bugfix",
    "title": "Rounding of VAT fixed",
    "subtitle": "Half cents are rounded to even",
    "narrative": "Invoices differed from the ledger by a cent.",
    "facts": json.dumps(["decimal.ROUND_HALF_EVEN is used", "12 tests were added"]),
    "concepts": json.dumps(["problem-solution", "gotcha"]),
    "files_read": json.dumps(["/home/me/shop/src/ledger.py"]),
    "files_modified": json.dumps(["/home/me/shop/src/vat.py"]),
}


@pytest.fixture
def make_mem(tmp_path: Path) -> MakeMem:
    """Make a claude-mem.db as its worker leaves it, in WAL mode."""

    def make(
        observations: Sequence[dict[str, Any]],
        summaries: Sequence[dict[str, Any]] = (),
        sql: str = TABLES,
    ) -> Path:
        path = tmp_path / "claude-mem.db"
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(sql)
            db.execute("INSERT INTO schema_versions (version, applied_at) VALUES (49, '')")
            for table, rows in (("observations", observations), ("session_summaries", summaries)):
                for row in rows:
                    full = {**SESSION, **row}
                    names, marks = ", ".join(full), ", ".join("?" * len(full))
                    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", [*full.values()])
            db.execute(
                "INSERT INTO user_prompts (content_session_id, prompt_number, prompt_text, "
                "created_at, created_at_epoch) VALUES ('c1', 1, 'fix the VAT', '', 0)"
            )
            db.commit()
        return path

    return make


def test_observations_and_summaries_are_memories_prompts_are_not(
    make_mem: MakeMem, exported: Exported
) -> None:
    path = make_mem(
        [{**FIX}, {"type": "discovery", "text": "An early one, all in one text."}],
        [{"request": "Fix the VAT", "learned": "Cents", "next_steps": "Release", "notes": None}],
    )
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    report, found = exported(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before
    assert (report.identity.kind, report.identity.schema_version) == ("claude-mem-sqlite", "49")
    assert found.keys() == {"observation-1", "observation-2", "summary-1"}
    fix = found["observation-1"]
    assert fix.content == (
        "Rounding of VAT fixed\nHalf cents are rounded to even\n"
        "Invoices differed from the ledger by a cent.\n"
        "- decimal.ROUND_HALF_EVEN is used\n- 12 tests were added"
    )
    assert (fix.category, fix.tags) == ("bugfix", "problem-solution,gotcha")
    assert (fix.wing, fix.session_id, fix.is_turn) == ("shop", "s1", False)
    assert fix.expanded_keywords == "vat.py ledger.py"
    assert fix.created_at_us == 1_772_352_000_000_000
    assert found["observation-2"].content == "An early one, all in one text."
    summary = found["summary-1"]
    assert summary.content == "Request: Fix the VAT\nLearned: Cents\nNext steps: Release"
    assert summary.category == "session_summary"


@pytest.mark.parametrize(
    ("row", "quarantined", "sensitive"),
    [
        ({"type": "sensitive", "text": "CANARY"}, {}, {"flagged": 1}),
        ({"type": " Sensitive ", "text": "CANARY"}, {}, {"flagged": 1}),
        ({"type": "change", "metadata": '{"is": "ghp_' + "a1B2" * 9 + '"}', "text": "a"}, {}, {
            "secret:github_token": 1
        }),
        ({"type": "change"}, {"missing_content": 1}, {}),
        ({"type": "change", "facts": "[]", "title": " "}, {"missing_content": 1}, {}),
        ({"type": "change", "text": b"\xff"}, {"not_utf8": 1}, {}),
        ({"type": "change", "text": "a\0b"}, {"nul_bytes": 1}, {}),
        ({"type": "change", "text": "a" * 2_000_000}, {"content_too_large": 1}, {}),
        ({"type": "change", "text": "a", "created_at": "soon"}, {"bad_date": 1}, {}),
        ({"type": "change", "text": "a", "project": 7}, {}, {}),
        ({"type": "change", "text": "[" * 100_000}, {}, {}),
        ({"type": "change", "text": "a", "facts": '["unended'}, {}, {}),
    ],
)  # fmt: skip
def test_what_must_not_leave_or_is_damaged_is_counted(
    make_mem: MakeMem,
    exported: Exported,
    row: dict[str, Any],
    quarantined: Mapping[str, int],
    sensitive: Mapping[str, int],
) -> None:
    report, _ = exported(make_mem([row, FIX]))
    assert (report.quarantined, report.sensitive) == (quarantined, sensitive)
    assert report.source_rows == 2


@pytest.mark.parametrize(
    ("values", "wing"),
    [
        ({"project": "shop/feature-vat"}, "shop"),  # a worktree
        ({"project": "vat", "merged_into_project": "shop"}, "shop"),
        ({"project": "shop"}, "shop"),
    ],
)
def test_a_worktree_belongs_to_its_repository(
    make_mem: MakeMem, exported: Exported, values: Mapping[str, str], wing: str
) -> None:
    _, found = exported(make_mem([{**FIX, **values}]))
    assert found["observation-1"].wing == wing


def test_early_schemas_are_read_too(make_mem: MakeMem, exported: Exported) -> None:
    sql = TABLES.replace(f",\n    {EXTRA}", "").replace("facts TEXT, narrative TEXT,", "")
    row = {"type": "change", "text": "whole"}
    assert exported(make_mem([row], sql=sql))[1]["observation-1"].content == "whole"


def test_hundreds_of_rows_come_in_the_order_of_their_ids(make_mem: MakeMem) -> None:
    rows = [{"type": "sensitive" if n % 7 == 0 else "change", "text": f"{n}"} for n in range(450)]
    with open_source(make_mem(rows, [{"request": "a"}] * 12)) as source:
        keys = [str(row.key) for row in source.rows()]
        assert keys == sorted(keys)
        assert source.count() == len(set(keys)) == 462


def test_it_is_pinned_beside_its_worker(make_mem: MakeMem) -> None:
    path = make_mem([FIX])
    with open_source(path) as source, closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE observations SET title = 'changed'")
        db.execute("DELETE FROM session_summaries")
        db.commit()
        assert "Rounding" in str([row.fields["content"] for row in source.rows()])


def test_a_table_without_its_columns_is_refused(make_mem: MakeMem, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript("CREATE TABLE sdk_sessions (id); CREATE TABLE observations (id)")
    with pytest.raises(SourceFormatError, match=r"claude-mem.*memory_session_id.*missing.*Open it"):
        open_source(path)


# As forks and other tools have them: no type that SQLite would enforce.
_LOOSE = re.sub(r"(?<=\w) (?:INTEGER|TEXT)[^,)]*", "", TABLES)


@pytest.mark.parametrize(
    ("row", "quarantined"),
    [
        ({"id": "9f2c", "text": "kept"}, {}),
        ({"id": None, "text": "a"}, {"bad_id": 1}),
        ({"id": b"\x01", "text": "a"}, {"not_utf8": 0, "bad_id": 1}),
        ({"id": 1.5, "text": "a"}, {"bad_id": 1}),
        ({"id": "a\nb", "text": "a"}, {"bad_id": 1}),
        ({"id": 1, "text": "kept", "title": 7, "facts": 2.5}, {}),
        ({"id": 1, "text": "kept", "created_at": 1_772_352_000}, {}),
        ({"id": 1, "text": "kept", "created_at": None, "created_at_epoch": 1_772_352_000_000}, {}),
        ({"id": 1, "text": "a", "created_at": 7}, {"bad_date": 1}),
        ({"id": 1, "text": "a", "created_at": b"2026"}, {"not_utf8": 1}),
        ({"id": 1, "text": "a", "type": 7}, {"bad_field": 1}),
        ({"id": 1, "text": "kept", "type": None, "project": None, "memory_session_id": 8}, {}),
    ],
)  # fmt: skip
def test_values_of_any_type_are_read_or_counted(
    make_mem: MakeMem, exported: Exported, row: dict[str, Any], quarantined: Mapping[str, int]
) -> None:
    path = make_mem([{"id": 3, **FIX}, row], [{"id": "x", "request": 5}], sql=_LOOSE)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE schema_versions SET version = 'forty'")
        db.commit()
    report, found = exported(path)
    assert report.quarantined == {why: count for why, count in quarantined.items() if count}
    assert "observation-3" in found
    assert found["summary-x"].content == "Request: 5"
    kept = [record for record in found.values() if "kept" in record.content]
    assert len(kept) == (row["text"] == "kept")
    assert all(record.created_at_us == 1_772_352_000_000_000 for record in kept)
