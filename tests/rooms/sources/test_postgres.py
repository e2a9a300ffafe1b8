"""A database of the memory server as a source: every migration, odd rows, who may read what."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.settings import CorpusSettings
from noctuary.core.types import UNDATED_US
from noctuary.sources import postgres as postgres_rows
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.normalize import find_sensitivity
from noctuary.sources.open import open_source
from noctuary.sources.postgres import KIND, Limits
from noctuary.sources.source import KnownConcept, KnownEdge, KnownMention, MemoryLink, Share
from noctuary.text.flags import find_mark
from tests.support.claude_memory import MIGRATIONS, Row, insert_rows, migrations
from tests.support.cutting_proxy import cutting_proxy
from tests.support.databases import MakeDatabase, name_database, open_database, rows_of, run_sql
from tests.support.postgres import PASSWORD, Cluster

DATE = "2026-03-01 12:00:00+00"
CANARY = "the canary sings at seven"
NOUNS: tuple[Any, ...] = (MemoryLink, Share, KnownEdge, KnownConcept, KnownMention)


@pytest.mark.parametrize(
    ("version", "vectors"),
    [*((v, "") for v in MIGRATIONS), ("005", "stand-in"), ("006", "stand-in")],
)
def test_every_migration_is_read_with_and_without_vectors(
    database: MakeDatabase, version: str, vectors: str
) -> None:
    row = {"content": "One.", "tags": "a,wing:b", "importance": 0.7, "created_at": DATE}
    dsn = database([row, {"content": "Two."}], schema=migrations(version, vectors=vectors))
    with open_source(name_database(dsn)) as source:
        identity = source.identity()
        assert (identity.kind, identity.schema_version, identity.id_kind) == (KIND, version, "int")
        assert identity.notes == (("no_sensitivity_marks",) if version == "001" else ())
        assert source.count() == identity.marker["rows"] == identity.marker["last_id"] == 2
        first, second = list(source.rows())
        assert (first.key, first.locator, first.withheld, first.problem) == (1, "id 1", None, None)
        # A four-byte float is shown as written: 0.7 and not 0.699999988.
        told = {key: first.fields[key] for key in row}
        assert told == {**row, "created_at": "2026-03-01T12:00:00+00:00"}
        assert second.fields["content"] == "Two."
        assert not [said for noun in NOUNS for said in source.told(noun)]


def test_the_real_vector_type_is_read_where_its_package_is(database: MakeDatabase) -> None:
    dsn = database()
    with psycopg.connect(dsn) as db:
        has = db.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchone()
    if has is None:
        pytest.skip("no package of pgvector on this machine")
    dsn = database([{"content": "One."}], schema=migrations(vectors="extension"))
    run_sql(dsn, "UPDATE memories SET embedding = %s", str([0.5] * 1024))
    assert [row.fields["content"] for row in rows_of(dsn)] == ["One."]


def test_a_newer_migration_is_read_and_noted(database: MakeDatabase) -> None:
    dsn = database([{"content": "One."}])
    run_sql(dsn, "CREATE TABLE alembic_version (version_num VARCHAR(32))")
    run_sql(dsn, "INSERT INTO alembic_version VALUES ('007')")
    with open_database(dsn) as source:
        identity = source.identity()
    assert (identity.schema_version, identity.notes) == ("007", ("newer_schema_version",))


def test_over_tcp_with_a_password_and_never_showing_it(
    server: Cluster, database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database([{"content": "One."}])
    monkeypatch.setenv("TIDES", server.tcp_dsn("postgres"))
    source = open_database("env:TIDES")
    with source:
        assert source.count() == 1
        assert PASSWORD not in repr(source.identity())
    with pytest.raises(SourceError, match="cannot be reached") as refused:
        open_database(server.tcp_dsn("postgres", password="harbour-and-tide"))
    assert "harbour-and-tide" not in str(refused.value)
    with pytest.raises(SourceError, match="cannot be reached"):
        open_database(server.tcp_dsn("postgres", port=1))


@pytest.mark.parametrize(
    ("mark", "reason"),
    [
        ({"is_sensitive": True}, "flagged"),
        ({"vault_path": "secret/7"}, "vaulted"),
        ({"encrypted_content": b"\x01"}, "vaulted"),
        ({"is_sensitive": True, "vault_path": "x"}, "flagged"),
        ({"is_sensitive": True, "deleted_at": DATE}, "flagged"),
    ],
)
def test_the_text_of_a_marked_row_never_leaves_the_server(
    database: MakeDatabase, monkeypatch: pytest.MonkeyPatch, mark: Row, reason: str
) -> None:
    marked = {**dict.fromkeys(("content", "tags", "expanded_keywords"), CANARY), **mark}
    unset = [{"is_sensitive": False}, {"is_sensitive": None}, {"vault_path": ""}]
    dsn = database([marked, *({"content": "Two.", **other} for other in unset)])
    received: list[Any] = []
    read, fetch = psycopg.Copy.rows, psycopg.Cursor[Any].fetchall

    def listen(copy: psycopg.Copy) -> Iterator[tuple[Any, ...]]:
        for row in read(copy):
            received.append(row)
            yield row

    def hear(cursor: psycopg.Cursor[Any]) -> list[Any]:
        received.extend(rows := fetch(cursor))
        return rows

    monkeypatch.setattr(psycopg.Copy, "rows", listen)
    monkeypatch.setattr(psycopg.Cursor, "fetchall", hear)
    with open_database(dsn) as source:
        first, *others = list(source.rows())
        assert first in list(source.changed_since(0))
        identity = source.identity()
    assert (first.key, first.withheld, dict(first.fields)) == (1, reason, {})
    assert find_sensitivity(first) == reason
    assert [(row.withheld, row.fields["content"]) for row in others] == [(None, "Two.")] * 3
    assert "Two." in repr(received)  # what was heard is what was sent
    assert CANARY not in repr((received, identity))


@given(
    st.sampled_from(["is_sensitive", "vault_path"]),
    st.one_of(
        st.none(),
        st.sampled_from(["", "0", "0.0", "False", "no", "F", "n", "none", "NULL", " 0 ", "\t0"]),
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4),
    ),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_marks_of_text_are_at_least_as_strict_as_those_of_other_stores(
    server: Cluster, column: str, value: str | None
) -> None:
    columns = ("is_sensitive", "vault_path")
    values = {**dict.fromkeys(columns), column: value}
    sql: Any = f"SELECT {postgres_rows.mark_sql(columns)} FROM (SELECT %s::text AS is_sensitive, "
    with psycopg.connect(server.dsn("postgres")) as db:
        row = db.execute(sql + "%s::text AS vault_path) AS m", (*values.values(),)).fetchone()
    assert row is not None
    if find_mark(values) is not None:
        assert row[0] == find_mark(values)


def test_numbers_and_moments_that_are_none(database: MakeDatabase, tmp_path: Path) -> None:
    dsn = database(
        [
            {"content": "a", "importance": float("nan")},
            {"content": "b", "importance": float("inf")},
            {"content": "c", "importance": 2.5},
            {"content": "d", "importance": None, "category": None, "tags": None},
            {"content": "e", "created_at": "infinity"},
            {"content": "f", "updated_at": "infinity", "created_at": DATE},
            {"content": "g", "created_at": "0044-03-15 BC"},
            {"content": "h", "created_at": "12026-03-15"},
            {"content": "i", "created_at": "2026-03-01 12:00:00.123456-03:30"},
            {"content": "j", "deleted_at": DATE},
            {"content": "k", "deleted_at": "-infinity"},
            {"content": " \n"},
        ]
    )
    with open_database(dsn) as source:
        # Infinity is no moment of a clock.
        assert int(source.identity().marker["last_updated_us"]) < 4 * 10**15
        report = export_corpus(source, tmp_path, CorpusSettings())
    assert report.quarantined == {
        "bad_date": 3,
        "bad_importance": 2,
        "deleted": 2,
        "empty_content": 1,
    }
    records = {r.content: r for r in read_records(tmp_path)}
    assert sorted(records) == ["c", "d", "f", "i"]
    assert (records["c"].importance, records["d"].importance) == (1.0, 0.5)
    assert records["i"].created_at_us == 1772379000123456
    assert report.warnings["importance_clamped"] == report.warnings["updated_at_unusable"] == 1


def test_changed_types_of_columns(database: MakeDatabase) -> None:
    dsn = database([{"content": "One.", "tags": "a"}])
    run_sql(dsn, "ALTER TABLE memories DROP COLUMN search_vector")
    run_sql(dsn, "ALTER TABLE memories ALTER tags DROP DEFAULT")
    run_sql(dsn, "ALTER TABLE memories ALTER tags TYPE TEXT[] USING ARRAY[tags, 'b']")
    run_sql(dsn, "ALTER TABLE memories ALTER importance TYPE NUMERIC(4, 2)")
    run_sql(dsn, "ALTER TABLE memories ALTER is_sensitive DROP DEFAULT")
    run_sql(dsn, "ALTER TABLE memories ALTER is_sensitive TYPE INTEGER USING 0")
    run_sql(dsn, "ALTER TABLE memories ALTER id TYPE BIGINT")
    run_sql(dsn, "INSERT INTO memories (id, content, is_sensitive) VALUES (9876543210, 'Two.', 1)")
    first, second = rows_of(dsn)
    assert (first.fields["tags"], first.fields["importance"]) == (["a", "b"], 0.5)
    assert (second.key, second.withheld) == (9876543210, "flagged")


def made(server: Cluster, encoding: str) -> str:
    """Make a database of an encoding; its address."""
    name = encoding.lower()
    run_sql(server.dsn("postgres"), f"DROP DATABASE IF EXISTS {name}")
    kind = f"TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'"
    run_sql(server.dsn("postgres"), f"CREATE DATABASE {name} {kind}")
    run_sql(server.dsn(name), migrations())
    return server.dsn(name)


def test_a_database_without_an_encoding(server: Cluster, tmp_path: Path) -> None:
    dsn = made(server, "SQL_ASCII")
    insert_rows(dsn, "memories", [{"content": "Grüße.", "user_id": "zoë"}])
    run_sql(dsn, r"INSERT INTO memories (content, user_id) VALUES (E'Gr\xfc\xdfe.', E'zo\xc3\xab')")
    run_sql(dsn, "INSERT INTO memories (content, is_sensitive) VALUES ('Hidden.', true)")
    with open_database(dsn) as source:
        first, second, third = list(source.rows())
        assert (first.fields["content"], first.fields["user_id"]) == ("Grüße.", "zoë")
        assert second.fields["content"] == b"Gr\xfc\xdfe."
        assert third.withheld == "flagged"
        report = export_corpus(source, tmp_path)
    assert (report.exported, report.quarantined) == (1, {"content_not_text": 1})
    assert [row.key for row in rows_of(dsn, "zoë")] == [1, 2]


def test_a_latin_database_is_converted_by_the_server(server: Cluster) -> None:
    dsn = made(server, "LATIN1")
    insert_rows(dsn, "memories", [{"content": "Grüße."}])
    assert rows_of(dsn)[0].fields["content"] == "Grüße."


def test_what_is_no_memory_server_is_refused(database: MakeDatabase) -> None:
    older = (
        "CREATE TABLE memories (id INT PRIMARY KEY, content TEXT, category TEXT, tags TEXT, "
        "expanded_keywords TEXT, importance REAL, created_at TIMESTAMPTZ)"
    )
    for schema, said in (("SELECT 1", "no such table"), (older, "no column updated_at in it")):
        with pytest.raises(SourceFormatError, match=said):
            open_database(database(schema=schema))
    for keys in ("ALTER id TYPE UUID USING gen_random_uuid()", "DROP CONSTRAINT memories_pkey"):
        dsn = database()
        run_sql(dsn, "DROP TABLE memory_shares, memory_concepts, memory_links")
        run_sql(dsn, "ALTER TABLE memories ALTER id DROP DEFAULT")
        run_sql(dsn, f"ALTER TABLE memories {keys}")
        with pytest.raises(SourceFormatError, match="whole number 'id' as its primary key"):
            open_database(dsn)


def test_a_role_that_may_not_read_everything(server: Cluster, database: MakeDatabase) -> None:
    dsn = database([{"content": "One.", "user_id": "default"}])
    run_sql(dsn, "DROP ROLE IF EXISTS reader")
    run_sql(dsn, "CREATE ROLE reader LOGIN")
    own = dsn.replace("tester@", "reader@")
    plain = "id, content, category, tags, expanded_keywords, importance, created_at, updated_at"
    shown = f"SELECT ({plain}, user_id, is_sensitive, deleted_at) ON memories"
    for error, said, grant in (
        (SourceFormatError, "no such table", "USAGE ON SCHEMA public"),  # it is not theirs to see
        (SourceError, "may not read", shown),
        (SourceError, "may not read encrypted_content, vault_path", "SELECT ON memories"),
    ):
        with pytest.raises(error, match=said):
            open_database(own)
        run_sql(dsn, f"GRANT {grant} TO reader")
    with open_database(own) as source:
        assert source.identity().notes == ("tables_not_readable",)
        assert not [said for noun in NOUNS for said in source.told(noun)]
        # Somebody may be sharing: every row is somebody's.
        assert [row.fields["user_id"] for row in source.rows()] == ["default"]
    run_sql(dsn, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    with open_database(own) as source:
        assert source.identity().notes == ()
        assert [row.fields["user_id"] for row in source.rows()] == [None]
    run_sql(dsn, "DROP OWNED BY reader")
    run_sql(dsn, "DROP ROLE reader")


def test_ids_below_zero(database: MakeDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_rows, "BATCH_ROWS", 3)
    dsn = database([{"id": i, "content": f"Row {i}."} for i in (-2, 0, 5, 7)])
    assert [row.key for row in rows_of(dsn)] == [-2, 0, 5, 7]
    with open_database(dsn) as source:
        assert next(source.rows()).key == -2
        # Whoever stops reading leaves the state as it was.
        assert [row.fields["content"] for row in source.rows_of("5")] == ["Row 5."]
        assert not list(source.rows_of("6"))
        assert source.count() == 4


def test_a_huge_row_is_never_fetched(
    database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_rows, "MAX_ROW_BYTES", 100)
    rows = rows_of(database([{"content": "x" * size, "category": None} for size in (60, 500, 10)]))
    assert [row.problem_detail for row in rows] == ["", "row: 500 bytes of text, not fetched", ""]
    assert not rows[1].fields


def test_one_state_is_read_whole(database: MakeDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_rows, "BATCH_ROWS", 2)
    dsn = database([{"content": f"Row {i}."} for i in range(1, 5)])
    with open_database(dsn) as source:
        rows = source.rows()
        seen = [next(rows), next(rows)]
        run_sql(dsn, "DELETE FROM memories WHERE id = 3")
        run_sql(dsn, "UPDATE memories SET content = 'New.' WHERE id = 4")
        run_sql(dsn, "INSERT INTO memories (content) VALUES ('Five.')")
        seen += rows
        assert [row.fields["content"] for row in seen] == [f"Row {i}." for i in range(1, 5)]
        assert source.count() == 4
        with pytest.raises(SourceError, match="refused a statement"):
            source._pinned.rows("DELETE FROM memories RETURNING id")  # pyright: ignore[reportPrivateUsage]
    assert [row.key for row in rows_of(dsn)] == [1, 2, 4, 5]


def test_a_terminated_connection_is_a_sentence_without_rows(
    database: MakeDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_rows, "BATCH_ROWS", 2)
    dsn = database([{"content": CANARY * 9_000} for _ in range(50)])
    with open_database(dsn) as source:
        rows = source.rows()
        next(rows)
        run_sql(
            dsn,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'noctuary'",
        )
        with pytest.raises(SourceError, match=r"was lost .*Nothing was published") as lost:
            list(rows)
    assert CANARY not in str(lost.value)


def test_a_connection_that_is_cut_keeps_the_last_export(
    server: Cluster, database: MakeDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_rows, "BATCH_ROWS", 20)
    dsn = database([{"content": f"Row {i}: {'x' * 900}"} for i in range(300)])
    with open_database(dsn) as source:
        export_corpus(source, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    run_sql(dsn, "UPDATE memories SET content = 'new ' || content")
    with (
        cutting_proxy(server.port, after_bytes=150_000) as proxy,
        open_database(server.tcp_dsn("postgres", port=proxy.port)) as source,
        pytest.raises(SourceError, match="was lost"),
    ):
        export_corpus(source, tmp_path)
    assert proxy.passed > 150_000 - 65_536  # the proxy reads up to 64 KiB, and stops before them
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    with open_database(dsn) as source:
        assert export_corpus(source, tmp_path).exported == 300
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} != before


def test_a_server_that_falls_silent_is_given_up(server: Cluster, database: MakeDatabase) -> None:
    database([{"content": f"Row {i}: {'x' * 900}"} for i in range(300)])
    limits = Limits(statement_ms=200)
    with (
        cutting_proxy(server.port, after_bytes=200_000, freeze=True) as proxy,
        open_database(server.tcp_dsn("postgres", port=proxy.port), limits=limits) as source,
        pytest.raises(SourceError, match=r"took longer than 0\.2 s"),
    ):
        list(source.rows())
    assert proxy.passed > 100_000


def test_a_lock_is_waited_for_as_long_as_a_statement_may_take(database: MakeDatabase) -> None:
    dsn = database([{"content": "One."}])
    with psycopg.connect(dsn) as db:
        db.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SourceError, match=r"took longer than 0\.2 s .*55P03"):
            open_database(dsn, limits=Limits(statement_ms=200))


def test_what_changed_since_is_found_by_the_index(database: MakeDatabase) -> None:
    dsn = database()
    run_sql(
        dsn,
        "INSERT INTO memories (content, updated_at) SELECT 'Row ' || i, "
        "'2026-01-01Z'::timestamptz + i * interval '1 minute' FROM generate_series(1, 20000) AS i",
    )
    run_sql(dsn, "INSERT INTO memories (content, updated_at) VALUES ('Late.', 'infinity')")
    run_sql(dsn, "ANALYZE memories")
    since_us = 1767225600_000_000 + 19_995 * 60_000_000
    with open_database(dsn) as source:
        assert [row.key for row in source.changed_since(since_us)] == [*range(19995, 20002)]
        assert next(source.changed_since(since_us + 1)).key == 19996
        with psycopg.connect(dsn) as db:
            moment = "'epoch'::timestamptz + %s * interval '1 microsecond'"
            plan = db.execute(
                f"EXPLAIN SELECT m.id FROM memories m WHERE true AND m.updated_at >= {moment} "
                "ORDER BY m.id",
                (since_us,),
            ).fetchall()
    assert "idx_memories_updated" in str(plan)
    assert "Seq Scan" not in str(plan)


DATE_US = 1772366400_000_000


def users_of(dsn: str, user: str = "") -> dict[object, object]:
    return {row.key: row.fields.get("user_id") for row in rows_of(dsn, user)}


def test_the_only_user_is_nobody_in_particular(database: MakeDatabase) -> None:
    dsn = database([{"content": "One."}, {"content": "Two.", "user_id": " "}])
    assert users_of(dsn) == {1: None, 2: None}
    with open_database(dsn) as source:
        assert source.identity().marker["users"] == "single"
    # Asked for by name, the rows are theirs.
    assert users_of(dsn, "default") == {1: "default", 2: "default"}
    assert users_of(dsn, "zoe") == {}


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("memories", {"content": "x", "user_id": "zoe", "deleted_at": DATE}),
        ("memory_shares", {"memory_id": 1, "owner_id": "default", "shared_with": "zoe"}),
        ("tag_shares", {"owner_id": "default", "tag": "a", "shared_with": "zoe"}),
    ],
)
def test_with_a_second_person_rows_are_owned(database: MakeDatabase, table: str, row: Row) -> None:
    dsn = database([{"content": "One."}, {"content": "Two.", "user_id": ""}])
    insert_rows(dsn, table, [row])
    found = users_of(dsn)
    assert (found[1], found[2]) == ("default", "default")
    with open_database(dsn) as source:
        assert source.identity().marker["users"] == "several"


def shared(database: MakeDatabase) -> str:
    """Rows 1 to 3 are anna's, 4 and 5 ben's, 6 carl's; some are shared with others."""
    dsn = database(
        [
            {"content": "One.", "user_id": "anna", "tags": "boat"},
            {"content": "Two.", "user_id": "anna", "tags": "boat, tide"},
            {"content": "Three.", "user_id": "anna", "tags": "tides,TIDE,a tide"},
            {"content": "Four.", "user_id": "ben", "tags": "tide"},
            {"content": "Five.", "user_id": "ben", "tags": "boat"},
            {"content": "Six.", "user_id": "carl", "tags": None},
        ]
    )
    read: Row = {"owner_id": "anna", "shared_with": "ben"}
    singly = [
        {**read, "memory_id": 1},
        {"owner_id": "ben", "memory_id": 5, "shared_with": "anna", "permission": "write"},
        {"owner_id": "carl", "memory_id": 6, "shared_with": "anna", "permission": "none"},
    ]
    insert_rows(dsn, "memory_shares", singly)
    by_tag = [{**read, "tag": "tide"}, {"owner_id": "anna", "tag": "boat", "shared_with": "carl"}]
    insert_rows(dsn, "tag_shares", by_tag)
    return dsn


def test_a_user_reads_what_is_theirs_and_what_is_shared_with_them(database: MakeDatabase) -> None:
    dsn = shared(database)
    anna, ben = {1: "anna", 2: "anna", 3: "anna"}, {4: "ben", 5: "ben"}
    carls = {Share("1", "carl"), Share("2", "carl")}
    bens, annas = {Share("1", "ben"), Share("2", "ben")}, {Share("5", "anna")}
    expected: dict[str, tuple[dict[int, str], set[Share]]] = {
        "": ({**anna, **ben, 6: "carl"}, carls | bens | annas),
        "anna": ({**anna, 5: "ben"}, annas),
        "ben": ({1: "anna", 2: "anna", **ben}, bens),
        "carl": ({1: "anna", 2: "anna", 6: "carl"}, carls),
        "default": ({}, set()),
    }
    for user, (owners, shares) in expected.items():
        assert users_of(dsn, user) == owners
        with open_database(dsn, user) as source:
            found = list(source.told(Share))
            assert sorted(found) == sorted(shares)
            assert [row.key for row in source.changed_since(0)] == sorted(owners)
            marker = source.identity().marker
            assert source.count() == marker["rows"] == len(owners)
            assert marker["last_id"] == max(owners, default=0)
            assert marker["users"] == (f"user:{user}" if user else "several")
    run_sql(dsn, "DELETE FROM tag_shares WHERE shared_with = 'ben'")
    with open_database(dsn) as source:
        assert set(source.told(Share)) == carls | {Share("1", "ben")} | annas


_TAG = st.sampled_from(["a", "b", " a", "A", "ab", "", "a b"])


@given(
    owners=st.lists(
        st.tuples(st.sampled_from(["anna", "ben"]), st.lists(_TAG, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    by_tag=st.sets(
        st.tuples(st.sampled_from(["anna", "ben"]), _TAG, st.sampled_from(["anna", "carl"])),
        max_size=3,
    ),
    singly=st.sets(st.tuples(st.integers(1, 4), st.sampled_from(["anna", "carl"])), max_size=3),
)
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_shares_are_those_of_the_rule_in_python(
    database: MakeDatabase,
    owners: list[tuple[str, list[str]]],
    by_tag: set[tuple[str, str, str]],
    singly: set[tuple[int, str]],
) -> None:
    rows = [{"content": "x", "user_id": user, "tags": ",".join(tags)} for user, tags in owners]
    dsn = database(rows, schema=migrations("004"))
    tagged = [{"owner_id": o, "tag": t, "shared_with": w} for o, t, w in by_tag]
    insert_rows(dsn, "tag_shares", tagged)
    known = [(key, who) for key, who in singly if key <= len(rows)]
    shared = [{"memory_id": key, "owner_id": "?", "shared_with": who} for key, who in known]
    insert_rows(dsn, "memory_shares", shared)
    expected = {Share(str(key), who) for key, who in known}
    for key, (owner, tags) in enumerate(owners, 1):
        # What the text of the column says, split as the server does.
        own = {tag.strip(" ") for tag in ",".join(tags).split(",")} if ",".join(tags) else set()
        expected |= {Share(str(key), w) for o, tag, w in by_tag if o == owner and tag in own}
    with open_database(dsn) as source:
        assert set(source.told(Share)) == expected
    carls = {int(share.memory_id) for share in expected if share.shared_with == "carl"}
    assert {row.key for row in rows_of(dsn, "carl")} == carls


def test_links_are_read_as_they_are(database: MakeDatabase) -> None:
    dsn = database([{"content": f"Row {i}.", "user_id": "anna"} for i in range(3)])
    names = ("user_id", "src_id", "dst_id", "link_type", "created_at")
    rows = [("anna", 2, 1, "supersedes", DATE), ("ben", 3, 1, "part-of", "infinity"),
            (" ", 1, 3, "see-also", None)]  # fmt: skip
    insert_rows(dsn, "memory_links", [dict(zip(names, row, strict=True)) for row in rows])
    first = MemoryLink("2", "1", "supersedes", DATE_US, "anna")
    second = MemoryLink("3", "1", "part-of", UNDATED_US, "ben")
    third = MemoryLink("1", "3", "see-also", UNDATED_US, "default")
    # ben's link is about rows that are not his to see.
    for user, links in {"": [first, second, third], "anna": [first], "ben": []}.items():
        with open_database(dsn, user) as source:
            assert list(source.told(MemoryLink)) == links
    for table in ("memories", "memory_links"):
        run_sql(dsn, f"UPDATE {table} SET user_id = 'default'")
    with open_database(dsn) as source:
        assert {link.user for link in source.told(MemoryLink)} == {None}


def graph(database: MakeDatabase) -> str:
    """Three concepts, of which two are about rows of anna's and ben's."""
    dsn = database([{"content": f"Row {i}.", "user_id": u} for i, u in enumerate(["anna", "ben"])])
    names = {"harbour": ["port", "haven"], "tide": [], "ghost": ["spook"]}
    insert_rows(dsn, "concepts", [{"canonical_name": n, "aliases": a} for n, a in names.items()])
    about = {"memory_id": 1, "concept_id": 1, "relation": "about"}
    mentions = {"memory_id": 2, "concept_id": 2, "relation": "mentions"}
    insert_rows(dsn, "memory_concepts", [about, mentions])
    edge: Row = {"src_id": 1, "dst_id": 2, "relation": "has", "weight": 3}
    lone: Row = {"src_id": 3, "dst_id": 2, "relation": "haunts", "evidence_memory_ids": [77]}
    insert_rows(dsn, "concept_edges", [{**edge, "evidence_memory_ids": [2, 1, 2, 99]}, lone])
    return dsn


def test_concepts_and_edges_are_those_of_rows_that_may_be_seen(database: MakeDatabase) -> None:
    dsn = graph(database)
    first, second = KnownMention("1", "harbour", "about"), KnownMention("2", "tide", "mentions")
    names = {"harbour": ("haven", "port"), "tide": (), "ghost": ("spook",)}
    for user, mentions in {"": [first, second], "anna": [first]}.items():
        seen = tuple(mention.memory_id for mention in mentions)
        with open_database(dsn, user) as source:
            found = list(source.told(KnownConcept))
            assert found == [KnownConcept(name, said, "concept") for name, said in names.items()]
            assert list(source.told(KnownMention)) == mentions
            assert list(source.told(KnownEdge)) == [KnownEdge("harbour", "tide", "has", 3, seen)]


@pytest.mark.parametrize("table", ["memory_links", "concepts", "memory_concepts", "concept_edges"])
def test_a_database_with_a_table_less_says_less(database: MakeDatabase, table: str) -> None:
    dsn = graph(database)
    run_sql(dsn, f"DROP TABLE {table} CASCADE")
    nouns: dict[str, Any] = {
        "concepts": KnownConcept, "memory_concepts": KnownMention, "concept_edges": KnownEdge,
    }  # fmt: skip
    with open_database(dsn) as source:
        said = {name for name, noun in nouns.items() if list(source.told(noun))}
        assert list(source.told(MemoryLink)) == []
    assert said == (set() if table == "concepts" else nouns.keys() - {table})


def test_evidence_is_of_the_pinned_state(database: MakeDatabase) -> None:
    dsn = shared(database)
    with open_database(dsn) as source:
        before = source.told(Share)
        first = next(before)
        run_sql(dsn, "DELETE FROM memory_shares")
        run_sql(dsn, "DELETE FROM tag_shares")
        assert len([first, *before]) == 5
        assert len(list(source.told(Share))) == 5


ROWS = 130_000

_FILL = (
    (
        "INSERT INTO memories (content, tags, user_id, is_sensitive, updated_at) "
        "SELECT 'Row ' || i || ': the harbour master of pier ' || i % 977 || "
        "repeat(' and so on', i % 40), 't' || i % 50, CASE WHEN i % 3 = 0 THEN 'anna' ELSE 'ben' "
        "END, i % 1000 = 0, '2026-01-01Z'::timestamptz + i * interval '1 second' "
        f"FROM generate_series(1, {ROWS}) AS i"
    ),
    (
        "INSERT INTO tag_shares (owner_id, tag, shared_with) "
        "SELECT 'anna', 't' || i, 'ben' FROM generate_series(1, 10) AS i"
    ),
    (
        "INSERT INTO memory_links (user_id, src_id, dst_id, link_type) "
        f"SELECT 'anna', i, i - 1, 'supersedes' FROM generate_series(2, {ROWS}, 10) AS i"
    ),
    "ANALYZE",
)

# In a process of its own: peak memory is that of a whole process.
_READ = """
import json, resource, sys, time
import pyarrow.parquet
from pathlib import Path
from noctuary.sources.evidence import write_evidence
from noctuary.sources.export import export_corpus
from tests.support.databases import open_database

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

dsn, out = sys.argv[1], Path(sys.argv[2])
with open_database(dsn) as source:
    next(source.rows())
    before, started = peak(), time.perf_counter()
    keys = [row.key for row in source.rows()]
    said = {"read_s": time.perf_counter() - started, "read_mb": peak() - before}
    assert keys == list(range(1, len(keys) + 1))
    report = export_corpus(source, out)
    counts = write_evidence(source, out)
    said.update(rows=len(keys), exported=report.exported, links=counts.links, shares=counts.shares)
with open_database(dsn, "ben") as source:
    started = time.perf_counter()
    said["bens"] = sum(1 for _ in source.rows())
    said["bens_s"] = time.perf_counter() - started
print(json.dumps(said))
"""


@pytest.mark.slow
def test_a_large_database_is_read_in_bounded_memory(database: MakeDatabase, tmp_path: Path) -> None:
    dsn = database(schema=migrations(vectors="stand-in"))
    for statement in _FILL:
        run_sql(dsn, statement)
    words = [sys.executable, "-c", _READ, dsn, str(tmp_path)]
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    sys.stdout.write(f"{said}\n")
    assert (said["rows"], said["exported"]) == (ROWS, ROWS - ROWS // 1000)
    annas = ROWS // 3
    by_tag = sum(1 for i in range(3, ROWS + 1, 3) if 1 <= i % 50 <= 10)
    assert said["bens"] == ROWS - annas + by_tag
    sensitive = set(range(1000, ROWS + 1, 1000))
    assert said["shares"] == by_tag - sum(1 for i in sensitive if i % 3 == 0 and 1 <= i % 50 <= 10)
    assert said["links"] == ROWS // 10 - sum(1 for i in sensitive if i % 10 in (1, 2))
    # All texts together are 40 MB; a page is one of them in a hundred.
    assert said["read_mb"] < 30
    # Thirty times what a quiet machine needs: only a scan of the table per page takes longer.
    assert said["bens_s"] < 90
