"""The committed sample store: counts, schema, oddities, labels and determinism."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from noctuary_pipelines import sample

CANARY = "CANARY-7f3a9c-DO-NOT-EXPORT"
SCAN_CANARY = "CANARY-SCAN-51d2"
COLUMNS = [
    "id",
    "content",
    "category",
    "tags",
    "expanded_keywords",
    "importance",
    "is_sensitive",
    "created_at",
    "updated_at",
    "server_id",
]
WINGS = {
    "platform": 150,
    "household": 51,
    "family": 44,
    "health": 27,
    "garden": 26,
    "flights": 5,
}
SESSIONS = {"inc-481": 60, "kitchen-2026": 113, "isobar-migration": 193}
STRATA = {"exact", "paraphrase", "multihop", "small-wing", "non-english", "unanswerable"}


def _queries() -> list[dict[str, Any]]:
    """Read the labelled queries."""
    text = sample.QUERIES.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def _tag(row: sqlite3.Row, prefix: str) -> str | None:
    """Return the value of the first ``prefix:value`` tag of a row."""
    for tag in str(row["tags"]).split(","):
        if tag.startswith(prefix + ":"):
            return tag.removeprefix(prefix + ":")
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the store once for this module."""
    out = tmp_path_factory.mktemp("sample") / "memory.db"
    sample.build(out)
    return out


@pytest.fixture(scope="module")
def store(built: Path) -> Iterator[sqlite3.Connection]:
    """Open the built store."""
    conn = sqlite3.connect(built)
    conn.row_factory = sqlite3.Row
    yield conn
    conn.close()


@pytest.fixture(scope="module")
def rows(store: sqlite3.Connection) -> list[sqlite3.Row]:
    """Return every row in id order."""
    return list(store.execute("SELECT * FROM memories ORDER BY id"))


@pytest.fixture(scope="module")
def notes() -> dict[str, list[int]]:
    """Map each note of the text files to the ids that carry it."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for row in sample.load_rows():
        for note in row.notes:
            found[note].append(row.id)
    return dict(found)


def test_counts(rows: list[sqlite3.Row]) -> None:
    assert len(rows) == 678
    assert sum(row["category"] == "turn" for row in rows) == 366
    assert sum(row["is_sensitive"] for row in rows) == 8
    assert all(row["content"] and row["updated_at"] >= row["created_at"] for row in rows)
    assert max(len(row["content"]) for row in rows) <= 1_400


def test_wings_carried_by_tags(rows: list[sqlite3.Row]) -> None:
    found = Counter(_tag(row, "wing") for row in rows)
    unfiled = found.pop(None)
    assert found == WINGS
    assert unfiled == 9 + sum(SESSIONS.values())


def test_schema(store: sqlite3.Connection) -> None:
    assert store.execute("PRAGMA user_version").fetchone()[0] == 2
    assert store.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    info = list(store.execute("PRAGMA table_info(memories)"))
    assert [column["name"] for column in info] == COLUMNS
    names = {row["name"] for row in store.execute("SELECT name FROM sqlite_master")}
    assert names >= {
        "memories_fts",
        "memories_ai",
        "memories_ad",
        "memories_au",
        "idx_memories_server_id",
        "pending_ops",
    }
    indexes = list(store.execute("PRAGMA index_list(memories)"))
    assert [(i["name"], i["unique"]) for i in indexes] == [("idx_memories_server_id", 1)]


def test_fts_follows_the_table(tmp_path: Path) -> None:
    out = tmp_path / "memory.db"
    sample.build(out)
    conn = sqlite3.connect(out)
    match = "SELECT rowid FROM memories_fts WHERE memories_fts MATCH ?"
    (row_id,) = conn.execute(match, ("sluice AND maintained",)).fetchone()
    conn.execute("UPDATE memories SET content = 'quokkas' WHERE id = ?", (row_id,))
    assert conn.execute(match, ("quokkas",)).fetchall() == [(row_id,)]
    conn.execute("DELETE FROM memories WHERE id = ?", (row_id,))
    assert conn.execute(match, ("quokkas",)).fetchall() == []
    conn.execute("INSERT INTO memories_fts(memories_fts) VALUES ('integrity-check')")
    conn.close()


def test_two_builds_are_equal(built: Path, tmp_path: Path) -> None:
    other = tmp_path / "deeper" / "again.db"
    sample.build(other)
    sample.build(other)  # rebuilding over an old file works
    dumps = []
    for path in (built, other):
        conn = sqlite3.connect(path)
        dumps.append(conn.execute("SELECT * FROM memories ORDER BY id").fetchall())
        conn.close()
    assert dumps[0] == dumps[1]


def test_sessions(rows: list[sqlite3.Row]) -> None:
    turns = [row for row in rows if row["category"] == "turn"]
    assert Counter(_tag(row, "session") for row in turns) == SESSIONS
    for session in SESSIONS:
        own = [row for row in turns if _tag(row, "session") == session]
        times = [row["created_at"] for row in own]
        assert all(a < b for a, b in pairwise(times))
    for row in turns:
        speaker = str(row["content"]).split(": ", 1)[0]
        assert speaker in {"Mira", "Jun", "Assistant"}


def test_sensitive_rows_and_canaries(rows: list[sqlite3.Row]) -> None:
    sensitive = [row for row in rows if row["is_sensitive"]]
    assert all(CANARY in row["content"] for row in sensitive)
    assert sum(row["category"] == "turn" for row in sensitive) == 2
    assert any(CANARY in row["tags"] for row in sensitive)
    assert any(CANARY in row["expanded_keywords"] for row in sensitive)
    for row in rows:
        if not row["is_sensitive"]:
            assert not any(CANARY in str(row[column]) for column in COLUMNS)
    scan = [row for row in rows if SCAN_CANARY in row["content"]]
    assert len(scan) == 2
    assert not any(row["is_sensitive"] for row in scan)
    assert sum(bool(re.search(r"\bAKIA[A-Z0-9]{16}\b", row["content"])) for row in scan) == 1
    assert sum("-----BEGIN PRIVATE KEY-----" in row["content"] for row in scan) == 1
    redacted = [r for r in rows if re.search(r"\[(REDACTED|SENSITIVE)\b", r["content"])]
    assert len(redacted) == 3
    assert not any(row["is_sensitive"] for row in redacted)


def test_shapes(rows: list[sqlite3.Row]) -> None:
    lengths = Counter(len(row["content"]) for row in rows)
    assert max(lengths) == 1_400
    assert lengths[1_400] == 1
    contents = [str(row["content"]) for row in rows]
    assert len(set(contents)) == len(contents)
    assert any("\t" in text and "\r\n" in text for text in contents)
    assert any(re.search(r"[\u0590-\u05ff]", text) for text in contents)
    assert any(re.search(r"[\U0001f300-\U0001faff]", text) for text in contents)
    assert any(re.fullmatch(r"\w+", text) for text in contents)
    assert any(row["tags"] == "" for row in rows)
    memories = [row for row in rows if row["category"] != "turn"]
    assert any(row["expanded_keywords"] == "" for row in memories)
    assert {0.0, 1.0} <= {row["importance"] for row in memories}
    assert any(str(row["category"]).isupper() for row in memories)


def test_times_and_server_ids(rows: list[sqlite3.Row]) -> None:
    stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")
    for row in rows:
        assert stamp.fullmatch(row["created_at"])
        assert stamp.fullmatch(row["updated_at"])
        assert row["updated_at"] >= row["created_at"]
    created = [row["created_at"] for row in rows]
    assert created == sorted(created)
    assert created[0].startswith("2024-05-")
    assert created[-1].startswith("2026-11-15")
    assert sum(row["updated_at"] > row["created_at"] for row in rows) >= 20
    share = sum(row["server_id"] is not None for row in rows) / len(rows)
    assert 0.07 <= share <= 0.13


def test_groups(notes: dict[str, list[int]]) -> None:
    pairs = [note for note in notes if note.startswith("dup:")]
    assert len(pairs) >= 15
    assert all(len(notes[note]) == 2 for note in pairs)
    old = {n.removesuffix(":old") for n in notes if n.startswith("sup:") and n.endswith(":old")}
    assert len(old) >= 12
    for name in old:  # ids follow created_at, so the newer fact has the greater id
        assert notes[f"{name}:old"][0] < notes[f"{name}:new"][0]
    chains = [note for note in notes if note.startswith("chain:")]
    assert len(chains) >= 12
    assert all(len(notes[note]) >= 2 for note in chains)


def test_languages(rows: list[sqlite3.Row], notes: dict[str, list[int]]) -> None:
    text = {row["id"]: str(row["content"]) for row in rows}
    assert len(notes["zh"]) >= 10
    assert len(notes["ru"]) >= 8
    assert len(notes["es"]) >= 10
    assert all(re.search(r"[\u4e00-\u9fff]", text[i]) for i in notes["zh"])
    assert all(re.search(r"[\u0400-\u04ff]", text[i]) for i in notes["ru"])


def test_queries(rows: list[sqlite3.Row]) -> None:
    by_id = {row["id"]: row for row in rows}
    queries = _queries()
    assert len(queries) >= 30
    assert len({q["query_id"] for q in queries}) == len(queries)
    assert len({q["text"] for q in queries}) == len(queries)
    strata = Counter(q["stratum"] for q in queries)
    assert set(strata) == STRATA
    assert min(strata.values()) >= 5
    for query in queries:
        ids = query["relevant_ids"]
        assert len(set(ids)) == len(ids)
        assert bool(ids) == (query["stratum"] != "unanswerable")
        assert all(i in by_id and not by_id[i]["is_sensitive"] for i in ids)
        wings = {_tag(by_id[i], "wing") for i in ids}
        if "wing" in query:
            assert wings == {query["wing"]}
        if query["stratum"] == "small-wing":
            assert wings == {"flights"}
            assert "wing" not in query
        if query["stratum"] == "multihop":
            assert len(ids) >= 2
        if query["stratum"] == "non-english":
            notes_of = {i for i in ids if {"es", "zh", "ru"} & set(by_id[i]["tags"].split(","))}
            assert notes_of == set(ids)


def test_queries_name_both_duplicates(notes: dict[str, list[int]]) -> None:
    pairs = [set(ids) for note, ids in notes.items() if note.startswith("dup:")]
    for query in _queries():
        ids = set(query["relevant_ids"])
        assert all(not pair & ids or pair <= ids for pair in pairs)


def test_superseded_answers_are_the_new_ones(notes: dict[str, list[int]]) -> None:
    old = {ids[0] for note, ids in notes.items() if re.fullmatch("sup:.+:old", note)}
    new = {ids[0] for note, ids in notes.items() if re.fullmatch("sup:.+:new", note)}
    history = [q for q in _queries() if set(q["relevant_ids"]) & old]
    assert [q["text"] for q in history] == [
        "How has our internet provider at home changed over time?"
    ]
    assert all(set(q["relevant_ids"]) & new for q in history)


def test_a_sample_is_placed_once_and_whole(tmp_path: Path) -> None:
    placed = sample.place_sample(tmp_path / "sample")
    assert sorted(p.name for p in placed.parent.iterdir()) == ["memory.db", "queries.jsonl"]
    (placed.parent / "memory.db.begun").touch()  # a build that was stopped
    before = placed.stat().st_ino
    assert sample.place_sample(placed.parent).stat().st_ino == before
    placed.unlink()
    with closing(sqlite3.connect(sample.place_sample(placed.parent))) as db:
        assert db.execute("SELECT COUNT(*) FROM memories").fetchone() == (len(sample.load_rows()),)
