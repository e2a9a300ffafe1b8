"""The committed sample store: counts, schema, oddities, labels and determinism."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary_pipelines import sample

CANARY = "CANARY-7f3a9c-DO-NOT-EXPORT"
SCAN_CANARY = "CANARY-SCAN-51d2"
COLUMNS = ["id", "content", "category", "tags", "expanded_keywords", "importance", "is_sensitive",
           "created_at", "updated_at", "server_id"]  # fmt: skip
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


def _regexp(pattern: str, text: object) -> bool:
    return re.search(pattern, str(text)) is not None


@pytest.fixture(scope="module")
def store(built: Path) -> Iterator[sqlite3.Connection]:
    """Open the built store, with a REGEXP."""
    with closing(sqlite3.connect(built)) as db:
        db.row_factory = sqlite3.Row
        db.create_function("regexp", 2, _regexp)
        yield db


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


TEXT = "content || tags || expanded_keywords || category"
STAMP = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$"
SHAPES: list[tuple[str, int]] = [
    ("1", 678),
    ("category = 'turn'", 366),
    ("category = 'turn' AND NOT content REGEXP '^(Mira|Jun|Assistant): '", 0),
    *[
        (f"tags REGEXP '(^|,)wing:{wing}'", n)
        for wing, n in (
            ("platform", 150),
            ("household", 51),
            ("family", 44),
            ("health", 27),
            ("garden", 26),
            ("flights", 5),
            ("", 303),
        )
    ],
    *[
        (f"category = 'turn' AND tags REGEXP 'session:{session}(,|$)'", n)
        for session, n in (("inc-481", 60), ("kitchen-2026", 113), ("isobar-migration", 193))
    ],
    ("is_sensitive", 8),
    ("is_sensitive AND category = 'turn'", 2),
    (f"is_sensitive AND instr(content, '{CANARY}')", 8),
    (f"instr(tags, '{CANARY}')", 1),
    (f"instr(expanded_keywords, '{CANARY}')", 1),
    (f"NOT is_sensitive AND instr({TEXT}, '{CANARY}')", 0),
    (f"NOT is_sensitive AND instr(content, '{SCAN_CANARY}')", 2),
    (f"instr(content, '{SCAN_CANARY}') AND content REGEXP '\\bAKIA[A-Z0-9]{{16}}\\b'", 1),
    (f"instr(content, '{SCAN_CANARY}') AND instr(content, '-----BEGIN PRIVATE KEY-----')", 1),
    ("NOT is_sensitive AND content REGEXP '\\[(REDACTED|SENSITIVE)\\b'", 3),
    ("length(content) > 1400 OR content = ''", 0),
    ("length(content) = 1400", 1),
    ("content LIKE '%' || char(9) || '%' AND content LIKE '%' || char(13, 10) || '%'", 1),
    ("content REGEXP '[\u0590-\u05ff]'", 1),
    ("content REGEXP '[\U0001f300-\U0001faff]'", 1),
    ("content REGEXP '^\\w+$'", 1),
    ("tags = ''", 3),
    ("category != 'turn' AND expanded_keywords = ''", 4),
    ("importance IN (0.0, 1.0)", 4),
    ("category REGEXP '^[A-Z]+$'", 1),
    (f"NOT (created_at REGEXP '{STAMP}' AND updated_at REGEXP '{STAMP}')", 0),
    ("updated_at < created_at", 0),
    ("updated_at > created_at", 32),
    ("created_at < '2024-05-01' OR created_at >= '2026-11-16'", 0),
    ("server_id IS NOT NULL", 65),
]


@pytest.mark.parametrize(("where", "count"), SHAPES)
def test_the_store_holds_its_oddities(store: sqlite3.Connection, where: str, count: int) -> None:
    assert store.execute(f"SELECT count(*) FROM memories WHERE {where}").fetchone()[0] == count


def test_rows_are_told_apart_and_in_order(rows: list[sqlite3.Row]) -> None:
    assert len({row["content"] for row in rows}) == len(rows)
    created = [row["created_at"] for row in rows]
    assert created == sorted(created)
    turns = [(_tag(row, "session"), row["created_at"]) for row in rows if row["category"] == "turn"]
    assert len(set(turns)) == len(turns), "no two of a session have one moment"


def test_schema(store: sqlite3.Connection) -> None:
    assert store.execute("PRAGMA user_version").fetchone()[0] == 2
    assert store.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    info = list(store.execute("PRAGMA table_info(memories)"))
    assert [column["name"] for column in info] == COLUMNS
    names = {row["name"] for row in store.execute("SELECT name FROM sqlite_master")}
    assert names >= {"memories_fts", "memories_ai", "memories_ad", "memories_au", "pending_ops"}
    indexes = list(store.execute("PRAGMA index_list(memories)"))
    assert [(i["name"], i["unique"]) for i in indexes] == [("idx_memories_server_id", 1)]


def test_fts_follows_the_table(tmp_path: Path) -> None:
    sample.build(tmp_path / "memory.db")
    match = "SELECT rowid FROM memories_fts WHERE memories_fts MATCH ?"
    with closing(sqlite3.connect(tmp_path / "memory.db")) as db:
        (row_id,) = db.execute(match, ("sluice AND maintained",)).fetchone()
        db.execute("UPDATE memories SET content = 'quokkas' WHERE id = ?", (row_id,))
        assert db.execute(match, ("quokkas",)).fetchall() == [(row_id,)]
        db.execute("DELETE FROM memories WHERE id = ?", (row_id,))
        assert db.execute(match, ("quokkas",)).fetchall() == []
        db.execute("INSERT INTO memories_fts(memories_fts) VALUES ('integrity-check')")


def test_two_builds_are_equal(built: Path, tmp_path: Path) -> None:
    other = tmp_path / "deeper" / "again.db"
    sample.build(other)
    sample.build(other)  # rebuilding over an old file works
    dumps: list[object] = []
    for path in (built, other):
        with closing(sqlite3.connect(path)) as db:
            dumps.append(db.execute("SELECT * FROM memories ORDER BY id").fetchall())
    assert dumps[0] == dumps[1]


def test_groups_and_languages(rows: list[sqlite3.Row], notes: dict[str, list[int]]) -> None:
    def found(prefix: str) -> list[list[int]]:
        return [ids for note, ids in notes.items() if re.fullmatch(prefix, note)]

    assert [len(found(prefix)) for prefix in ("dup:.+", "sup:.+:old", "chain:.+")] == [18, 17, 13]
    assert all(len(ids) == 2 for ids in found("dup:.+"))
    assert all(len(ids) >= 2 for ids in found("chain:.+"))
    # Ids follow created_at, so the newer fact has the greater id.
    for note, ids in notes.items():
        if note.startswith("sup:") and note.endswith(":old"):
            assert ids[0] < notes[f"{note.removesuffix(':old')}:new"][0]
    text = {row["id"]: str(row["content"]) for row in rows}
    assert [len(notes[language]) for language in ("zh", "ru", "es")] == [12, 9, 12]
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


def test_queries_name_duplicates_and_the_newer_of_two_facts(notes: dict[str, list[int]]) -> None:
    pairs = [set(ids) for note, ids in notes.items() if note.startswith("dup:")]
    old, new = (
        {ids[0] for note, ids in notes.items() if re.fullmatch(f"sup:.+:{age}", note)}
        for age in ("old", "new")
    )
    asked = {q["text"]: set(q["relevant_ids"]) for q in _queries()}
    assert all(not pair & ids or pair <= ids for ids in asked.values() for pair in pairs)
    history = {text: ids for text, ids in asked.items() if ids & old}
    assert [*history] == ["How has our internet provider at home changed over time?"]
    assert all(ids & new for ids in history.values())


def test_a_sample_is_placed_once_and_whole(tmp_path: Path) -> None:
    placed = sample.place_sample(tmp_path / "sample")
    assert sorted(p.name for p in placed.parent.iterdir()) == ["memory.db", "queries.jsonl"]
    (placed.parent / "memory.db.begun").touch()  # a build that was stopped
    before = placed.stat().st_ino
    assert sample.place_sample(placed.parent).stat().st_ino == before
    placed.unlink()
    with closing(sqlite3.connect(sample.place_sample(placed.parent))) as db:
        assert db.execute("SELECT COUNT(*) FROM memories").fetchone() == (len(sample.load_rows()),)


def test_a_home_in_the_data_of_the_checkout_keeps_the_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = tmp_path / "data" / "sample" / "queries.jsonl"
    labels.parent.mkdir(parents=True)
    labels.write_text("one\n")
    monkeypatch.setattr(sample, "QUERIES", labels)
    assert sample.place_sample(labels.parent).is_file()
    assert labels.read_text() == "one\n"


def test_git_keeps_the_sample_and_no_store() -> None:
    stores = ["data/a-memory-1f0c/CURRENT", "data/noctuary.toml", "data/sample/memory.db-wal"]
    kept = ["data/sample/README.md", "data/sample/texts/new.jsonl"]
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", *stores, *kept],
        cwd=sample.TOP, capture_output=True, encoding="utf-8", check=False,
    )  # fmt: skip
    if done.returncode == 128:
        pytest.skip("not a git checkout")
    assert done.stdout.split() == stores
