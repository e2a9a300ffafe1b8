"""Palaces that the real chromadb made, read without it."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import SourceError, SourceFormatError, SourceMissingError
from noctuary.core.settings import CorpusSettings
from noctuary.core.types import UNDATED_US, to_micros
from noctuary.sources.corpus import read_records
from noctuary.sources.evidence import read_evidence, write_evidence
from noctuary.sources.export import export_corpus
from noctuary.sources.normalize import Accepted, normalize
from noctuary.sources.open import open_source
from noctuary.sources.palace import (
    CHROMA_FILE,
    DOCUMENT_KEY,
    DRAWERS,
    FETCHED_ROWS,
    KIND,
    KNOWN_MIGRATIONS,
    MARKS,
    PalaceSource,
    drawer_links,
    drawer_row,
)
from noctuary.sources.source import (
    LINK_TYPES,
    PART_OF,
    SUPERSEDES,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    QuarantineReason,
    RawRow,
    Share,
    SourceIdentity,
)
from noctuary.text.flags import find_mark
from tests.support.palaces import (
    Drawer,
    add_drawers,
    drawer,
    editing_palace,
    file_queue,
    make_palace,
    update_drawers,
)

SECRET = "CANARY-palace-51d2"

FILED = (
    drawer("drawer_b", "Redis runs on port 6379.", source_file="/notes/caches/redis.md",
           topic="caching", entities="Redis;Ana", hall="technical"),
    drawer("drawer_a", "The cache was Memcached.", superseded_by="drawer_b",
           consolidated_into="consolidated_1"),
    drawer("drawer_ü", "Größe zählt.", wing="Straße"),
    drawer("consolidated_1", "Both caches in one line.", status="consolidated_summary",
           source_drawers='["drawer_a", "drawer_b"]', filed_at="2026-04-01T00:00:00+02:00"),
    drawer("_reg_1", "[registry] /notes/empty.txt", room="_registry", ingest_mode="registry"),
    Drawer("bare", "No metadata at all.", {}),
    drawer("flagged", f"{SECRET} flag", is_sensitive=True),
    drawer("vaulted", f"{SECRET} vault", vault_path="secret/ana"),
    drawer("redacted", "[REDACTED: an address]"),
    drawer("undocumented", None),
)  # fmt: skip
CLOSETS = (drawer("closet_1", "caches|redis→drawer_b"),)


@pytest.fixture(scope="session")
def filed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A palace that nobody changes."""
    folder = tmp_path_factory.mktemp("palace")
    make_palace(folder, FILED, {"mempalace_closets": CLOSETS})
    return folder


@pytest.fixture
def palace(filed: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return shutil.copytree(filed, tmp_path / "palace")


def rows_of(folder: Path) -> dict[object, RawRow]:
    with open_source(folder) as source:
        rows = [row for row in source.rows()]
        assert len(rows) == source.count()
    return {row.key: row for row in rows}


def test_every_drawer_is_read_in_order_and_nothing_written(filed: Path, tmp_path: Path) -> None:
    before = (filed / CHROMA_FILE).read_bytes()
    assert list(rows_of(filed)) == sorted(d.drawer_id for d in FILED)
    assert (filed / CHROMA_FILE).read_bytes() == before
    shutil.copy(filed / CHROMA_FILE, tmp_path / "backup.db")
    with open_source(tmp_path / "backup.db") as source:
        assert source.count() == len(FILED), "a copy by another name is a palace as well"


def test_a_drawer_says_what_it_is_as_a_memory(filed: Path, tmp_path: Path) -> None:
    with open_source(filed) as source:
        export_corpus(source, tmp_path)
    found = {r.memory_id: r for r in read_records(tmp_path / "memories.parquet")}
    redis = found["drawer_b"]
    assert redis.content == "Redis runs on port 6379."
    assert (redis.wing, redis.room, redis.user) == ("work", "general", None)
    assert (redis.category, redis.tags) == ("technical", "caching,Redis,Ana")
    assert redis.expanded_keywords == "redis.md", "the file's name, not where it lay"
    assert redis.created_at_us == 1_772_366_400_000_000
    assert found["consolidated_1"].category == "consolidated_summary"
    assert found["consolidated_1"].created_at_us == 1_774_994_400_000_000, "its zone counts"
    assert found["drawer_ü"].wing == "Straße"
    assert (found["bare"].wing, found["bare"].created_at_us) == (None, UNDATED_US)


def test_every_drawer_is_accounted_for(filed: Path, tmp_path: Path) -> None:
    with open_source(filed) as source:
        report = export_corpus(source, tmp_path)
    assert report.source_rows == len(FILED)
    assert report.exported == 5
    assert report.quarantined == {"bookkeeping": 1, "missing_content": 1}
    assert report.sensitive == {"flagged": 1, "placeholder": 1, "vaulted": 1}
    assert report.identity.kind == KIND
    assert report.identity.id_kind == "str"
    assert report.warnings == {}


def test_a_marked_drawers_text_never_leaves_the_database(filed: Path) -> None:
    rows = rows_of(filed)
    for key, mark in (("flagged", "flagged"), ("vaulted", "vaulted")):
        assert rows[key] == RawRow(rows[key].locator, key, {}, withheld=mark)
    assert SECRET not in repr(rows)


MARKED = ("is_sensitive", "sensitive", "Is_Sensitive", "vault_path")
FLAGS = (True, False, 0, 1, -1, 0.0, 0.5, "", "0", " no ", "yes", "False", "\tfalse", "ja")


def test_the_query_is_at_least_as_strict_as_the_rule(tmp_path: Path) -> None:
    cases = [(name, value) for name in MARKED for value in FLAGS]
    drawers = [drawer(f"{n:03}", "text", **{name: v}) for n, (name, v) in enumerate(cases)]
    make_palace(tmp_path, drawers)
    rows = rows_of(tmp_path)
    for n, (name, value) in enumerate(cases):
        judged = rows[f"{n:03}"].withheld
        assert judged is not None or find_mark({name.lower(): value}) is None, (name, value)
        assert judged is None or value not in (False, ""), (name, value)


def test_a_flag_that_is_a_list_is_set(tmp_path: Path) -> None:
    folder = tmp_path / "palace"
    make_palace(folder, [drawer("a", SECRET, sensitive=["no"]), drawer("b", "x", people=["Ana"])])
    rows = rows_of(folder)
    assert rows["a"].withheld == "flagged"
    assert rows["b"].fields["metadata"]["people"] == ["Ana"]  # pyright: ignore[reportIndexIssue]


def test_a_secret_in_metadata_that_is_not_exported_keeps_the_drawer_in(tmp_path: Path) -> None:
    key = "AKIA" + "IOSFODNN7EXAMPLX"
    make_palace(tmp_path / "p", [drawer("a", "a plain text", note=f"aws key {key}")])
    with open_source(tmp_path / "p") as source:
        report = export_corpus(source, tmp_path / "corpus")
    assert (report.exported, report.sensitive_rows) == (0, 1)


def test_marks_are_links_each_once(filed: Path) -> None:
    with open_source(filed) as source:
        links = [(link.from_id, link.link_type, link.to_id) for link in source.told(MemoryLink)]
        assert not [*source.told(KnownConcept), *source.told(KnownMention)]
        assert not [*source.told(KnownEdge), *source.told(Share)]
    assert sorted(links) == [
        ("drawer_a", PART_OF, "consolidated_1"),
        ("drawer_b", PART_OF, "consolidated_1"),
        ("drawer_b", SUPERSEDES, "drawer_a"),
    ]


def test_a_sensitive_drawers_marks_stay_with_it(palace: Path, tmp_path: Path) -> None:
    update_drawers(palace, {"drawer_b": {"is_sensitive": True, "consolidated_into": "bare"}})
    with PalaceSource(palace / CHROMA_FILE) as source:
        export_corpus(source, tmp_path)
        write_evidence(source, tmp_path)
        assert "bare" not in [link.to_id for link in source.told(MemoryLink)], (
            "it was not even read"
        )
    links = [(link.from_id, link.to_id) for link in read_evidence(tmp_path, MemoryLink)]
    assert links == [("drawer_a", "consolidated_1")]


@pytest.mark.parametrize("below", ["", "palace"])
def test_a_palace_is_found_in_its_folder_and_one_above(filed: Path, below: str) -> None:
    with open_source(filed) as source:
        assert source.identity().kind == KIND
    home = filed.parent / "home"
    shutil.copytree(filed, home / "palace", dirs_exist_ok=True)
    with open_source(home / below) as source:
        assert source.identity().kind == KIND


def test_what_is_filed_meanwhile_belongs_to_the_next_reading(palace: Path) -> None:
    with closing(sqlite3.connect(palace / CHROMA_FILE)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        with open_source(palace) as source:
            add_drawers(palace, DRAWERS, [drawer("aaa", "new")])
            assert "aaa" not in [row.key for row in source.rows()]
    file_queue(palace, "aaa")
    assert "aaa" in rows_of(palace)


def test_what_chroma_has_not_yet_filed_is_reported_and_comes_once_it_has(palace: Path) -> None:
    """As after a kill -9 between its two transactions (measured: every other kill)."""
    with editing_palace(palace) as db:
        segment, last = db.execute(
            "SELECT segment_id, seq_id FROM embeddings WHERE embedding_id = 'undocumented'"
        ).fetchone()
        db.execute("DELETE FROM embeddings WHERE embedding_id = 'undocumented'")
        db.execute("DELETE FROM embedding_metadata WHERE id NOT IN (SELECT id FROM embeddings)")
        db.execute("UPDATE max_seq_id SET seq_id = ? WHERE segment_id = ?", (last - 1, segment))
    with open_source(palace) as source:
        assert source.identity().notes == ("drawers_in_queue",)
    assert "undocumented" not in rows_of(palace)
    file_queue(palace, "undocumented")
    with open_source(palace) as source:
        assert source.identity().notes == ()
    assert "undocumented" in rows_of(palace)


def test_a_newer_schema_is_reported_and_the_marker_tells_every_change(palace: Path) -> None:
    def identity() -> SourceIdentity:
        with open_source(palace) as source:
            return source.identity()

    before = identity().marker
    assert identity().marker == before
    update_drawers(palace, {"drawer_a": {"room": "attic"}})
    assert int(identity().marker["last_seq"]) > int(before["last_seq"])
    later = KNOWN_MIGRATIONS["metadb"] + 1
    columns = "dir, version, filename, sql, hash"
    sql(f"INSERT INTO migrations ({columns}) VALUES ('metadb', {later}, 'x', '', 'x')")(palace)
    assert identity().notes == ("newer_schema_version",)
    assert identity().schema_version == f"embeddings_queue 2, metadb {later}, sysdb 10"


def test_an_older_schema_without_booleans_lists_and_queue_is_read(palace: Path) -> None:
    sql(
        *(f"DROP TABLE {t}" for t in ("embedding_metadata_array", "max_seq_id", "migrations")),
        "UPDATE embedding_metadata SET int_value = bool_value WHERE bool_value NOTNULL",
        "ALTER TABLE embedding_metadata DROP COLUMN bool_value",
    )(palace)
    rows = rows_of(palace)
    assert rows["flagged"].withheld == "flagged"
    assert rows["drawer_b"].fields["wing"] == "work"


def test_odd_metadata_set_one_drawer_aside_and_no_other(palace: Path, tmp_path: Path) -> None:
    update_drawers(palace, {"drawer_a": {"filed_at": "yesterday"}, "bare": {"wing": 7}})
    sql(
        "UPDATE embeddings SET embedding_id = x'ff' WHERE embedding_id = 'consolidated_1'",
        "UPDATE embedding_metadata SET string_value = CAST(x'ff' AS TEXT) WHERE key = "
        "'chroma:document' AND string_value LIKE 'Gr%'",
    )(palace)
    with open_source(palace) as source:
        report = export_corpus(source, tmp_path)
    reasons = ("bad_date", "bad_id", "bookkeeping", "content_not_text", "missing_content")
    assert report.quarantined == dict.fromkeys(reasons, 1)
    assert {r.wing for r in read_records(tmp_path / "memories.parquet")} == {"work", "7"}


def sql(*statements: str) -> Callable[[Path], None]:
    """Return a change of a palace."""

    def run(palace: Path) -> None:
        with editing_palace(palace) as db:
            for statement in statements:
                db.execute(statement)

    return run


BROKEN = sql(
    "DROP TABLE embedding_metadata_array",
    "ALTER TABLE embedding_metadata RENAME COLUMN string_value TO text_value",
)
DOUBLED = sql(
    "UPDATE collections SET name = 'notes' WHERE name = 'mempalace_drawers'",
    "INSERT INTO collections (id, name, database_id) SELECT 'x', 'more', database_id "
    "FROM collections LIMIT 1",
)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (BROKEN, "no column string_value in 'embedding_metadata'"),
        (sql("DELETE FROM segments"), "half-built"),
        (sql("DELETE FROM collections"), "expected 'mempalace_drawers', found none"),
        (DOUBLED, r"several collections that may be the drawers \(more, notes\)"),
    ],
)
def test_a_bad_palace_is_described(palace: Path, damage: Callable[[Path], None], said: str) -> None:
    damage(palace)
    with pytest.raises(SourceFormatError, match=said):
        open_source(palace)


def test_other_collections_are_left_out_and_the_only_one_is_the_drawers_whatever_its_name(
    palace: Path,
) -> None:
    add_drawers(palace, "notes", [drawer("note", "of another program")])
    assert len(rows_of(palace)) == len(FILED)
    sql(
        "DELETE FROM collections WHERE name = 'notes'",
        f"UPDATE collections SET name = 'mine' WHERE name = '{DRAWERS}'",
    )(palace)
    assert len(rows_of(palace)) == len(FILED)


def test_a_damaged_file_and_an_empty_folder_are_sentences(palace: Path, tmp_path: Path) -> None:
    file = palace / CHROMA_FILE
    file.write_bytes(file.read_bytes()[:8192])
    with pytest.raises(SourceError, match=r"chroma\.sqlite3"):
        rows_of(palace)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceMissingError, match=r"palace/chroma\.sqlite3"):
        open_source(tmp_path / "empty")


def test_more_drawers_than_are_fetched_at_once(tmp_path: Path) -> None:
    drawers = [drawer(f"d{n:04}", f"text {n}", n=n) for n in range(2 * FETCHED_ROWS + 1)]
    make_palace(tmp_path, drawers)
    rows = rows_of(tmp_path)
    assert [r.fields["content"] for r in rows.values()] == [d.document for d in drawers]
    with PalaceSource(tmp_path / CHROMA_FILE) as source:
        assert source.count() == len(drawers)


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"consolidated_into": "sum"}, [("me", PART_OF, "sum")]),
        ({"source_drawers": '["a", "b", "a"]'}, [("a", PART_OF, "me"), ("b", PART_OF, "me")]),
        ({"source_drawers": ["a"]}, [("a", PART_OF, "me")]),
        ({"superseded_by": "new"}, [("new", SUPERSEDES, "me")]),
        ({"synapse_superseded_by": " new "}, [("new", SUPERSEDES, "me")]),
        ({"supersedes": '["old"]'}, [("me", SUPERSEDES, "old")]),
        ({"synapse_supersedes": "old"}, [("me", SUPERSEDES, "old")]),
        ({"superseded_by": ""}, []),
        ({"superseded_by": 7}, []),
        ({"superseded_by": True}, []),
        ({"supersedes": "[broken"}, []),
        ({"supersedes": '["a", 5, null]'}, [("me", SUPERSEDES, "a")]),
        ({"synapse_mark": "new", "status": "consolidated"}, []),
    ],
)
def test_a_mark_is_a_link(marks: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    assert [(x.from_id, x.link_type, x.to_id) for x in drawer_links("me", marks)] == expected


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text()),
    st.lists(st.text()).map(json.dumps),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*MARKS, "wing", "tags", DOCUMENT_KEY, "x"]), _VALUES))
def test_whatever_the_metadata_hold_a_row_and_links_come_of_it(metadata: dict[str, Any]) -> None:
    row = drawer_row(3, "me", metadata)
    assert (row.key, row.locator, row.fields["metadata"]) == ("me", "row 3", metadata)
    for link in drawer_links("me", metadata):
        assert link.link_type in LINK_TYPES
        assert "me" in (link.from_id, link.to_id)
        assert link.from_id.strip()
        assert link.to_id.strip()


@pytest.mark.parametrize(
    ("drawer_id", "marks", "problem"),
    [
        *[
            (drawer_id, {"note": "text"}, QuarantineReason.BAD_ID)
            for drawer_id in (b"\xff", "", None)
        ],
        ("_reg_1", {"room": "_registry"}, QuarantineReason.BOOKKEEPING),
        ("_reg_1", {"ingest_mode": "registry"}, QuarantineReason.BOOKKEEPING),
    ],
)
def test_what_is_no_memory_is_set_aside_with_its_metadata_to_be_scanned(
    drawer_id: object, marks: dict[str, str], problem: QuarantineReason
) -> None:
    row = drawer_row(3, drawer_id, marks)
    assert (row.problem, row.fields["metadata"]) == (problem, marks)
    assert (row.key is None) == (problem is QuarantineReason.BAD_ID)


@pytest.mark.parametrize(
    ("metadata", "field", "expected"),
    [
        ({"source_file": "/a/b/notes.md"}, "expanded_keywords", "notes.md"),
        ({"source_file": r"C:\Users\ana\notes.md"}, "expanded_keywords", "notes.md"),
        ({"source_file": 4}, "expanded_keywords", ""),
        ({"topic": "a", "entities": "b;c; a", "keywords": ["d|e"]}, "tags", "a,b,c,d,e"),
        ({"topic": "user:eve"}, "tags", ""),
        ({"type": "diary_entry", "hall": "x"}, "category", "diary_entry"),
        ({"type": " ", "hall": "x"}, "category", "x"),
        ({"status": "consolidated", "hall": "x"}, "category", "x"),
        ({"status": "consolidated_summary", "hall": "x"}, "category", "consolidated_summary"),
        ({"importance": 5, "filed_at": "2026-01-01"}, "created_at", "2026-01-01"),
    ],
)
def test_metadata_are_fields(metadata: dict[str, Any], field: str, expected: str) -> None:
    fields = drawer_row(3, "me", metadata).fields
    assert fields[field] == expected
    assert "importance" not in fields, "MemPalace counts to five"


# As MemPalace 3.11.0 filed a project, a transcript, a swept transcript and a diary.
FILED_AT = "2026-11-28T16:45:00.098034"
MINED = {"filed_at": FILED_AT, "source_mtime": 1_795_000_000.5}  # 2026-11-18


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"timestamp": "2026-01-10T08:00:05.000Z", "ingest_mode": "sweep"}, "2026-01-10T08:00:05"),
        ({"authored_at": "2026-04-20T08:00:05.000Z", **MINED}, "2026-04-20T08:00:05"),
        ({"authored_at": FILED_AT}, FILED_AT),  # said while it was filed
        ({"authored_at": FILED_AT, **MINED}, "2026-11-18T11:06:40.5"),  # a file without times
        ({"content_date": "2026-03-04", "content_date_source": "frontmatter", **MINED},
         "2026-03-04"),
        ({"content_date": "2026-11-25", "content_date_source": "filename", **MINED}, "2026-11-25"),
        ({"content_date": "2026-11-01", "content_date_source": "body", **MINED}, "2026-11-01"),
        ({"content_date": "2031-12-31", "content_date_source": "body", **MINED},
         "2026-11-18T11:06:40.5"),
        ({"content_date": "2026-11-25", "content_date_source": "body", **MINED},
         "2026-11-18T11:06:40.5"),
        ({"content_date": "2031-12-31", "content_date_source": "body"}, FILED_AT),
        ({"content_date": "2031-12-31", "content_date_source": "filename", **MINED},
         "2026-11-18T11:06:40.5"),
        ({"content_date": "2026-11-18", "content_date_source": "mtime", **MINED},
         "2026-11-18T11:06:40.5"),
        ({"date": "2026-11-28", "type": "diary_entry"}, FILED_AT),
        ({"date": "2026-02-03", "room": "daily"}, "2026-02-03"),
        ({"content_date": 7, "authored_at": "soon", "timestamp": None}, FILED_AT),
        ({"source_mtime": "odd"}, FILED_AT),
    ],
    ids=range(16),
)  # fmt: skip
def test_a_drawers_time_is_that_of_its_text_never_a_deadline(
    metadata: dict[str, Any], expected: str
) -> None:
    row = drawer_row(3, "me", {"filed_at": FILED_AT, DOCUMENT_KEY: "text", **metadata})
    made = normalize(row, position=0, now_us=10**18, settings=CorpusSettings())
    assert isinstance(made, Accepted)
    at = datetime.fromisoformat(expected).replace(tzinfo=UTC)
    assert made.record.created_at_us == to_micros(at)
