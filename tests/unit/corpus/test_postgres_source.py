"""A database of the memory server as a source: every migration, odd rows, who may read what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.settings import CorpusSettings
from noctuary.sources import postgres as postgres_rows
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.normalize import find_sensitivity
from noctuary.sources.postgres import KIND
from noctuary.sources.source import (
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    Share,
    open_source,
)
from noctuary.text.flags import find_mark
from tests.support.claude_memory import MIGRATIONS, Row, insert_rows, migrations
from tests.support.databases import (
    MakeDatabase,
    name_database,
    open_database,
    rows_of,
    run_sql,
)
from tests.support.postgres import PASSWORD, Cluster

DATE = "2026-03-01 12:00:00+00"
CANARY = "the canary sings at seven"


@pytest.mark.parametrize("version", [*MIGRATIONS])
@pytest.mark.parametrize("vectors", ["", "stand-in"])
def test_every_migration_is_read_with_and_without_vectors(
    database: MakeDatabase, version: str, vectors: str
) -> None:
    if vectors and version < "005":
        pytest.skip("vectors came with migration 005")
    row = {"content": "One.", "tags": "a,wing:b", "importance": 0.7, "created_at": DATE}
    dsn = database([row, {"content": "Two."}], schema=migrations(version, vectors=vectors))
    with open_source(name_database(dsn)) as source:
        identity = source.identity()
        assert (identity.kind, identity.schema_version, identity.id_kind) == (KIND, version, "int")
        assert identity.notes == (("no_sensitivity_marks",) if version == "001" else ())
        assert source.count() == identity.marker["rows"] == identity.marker["last_id"] == 2
        first, second = list(source.rows())
        assert (first.key, first.locator, first.withheld, first.problem) == (1, "id 1", None, None)
        told = {key: first.fields[key] for key in ("content", "tags", "importance", "created_at")}
        assert told == {**row, "created_at": "2026-03-01T12:00:00+00:00"}
        assert second.fields["content"] == "Two."
        assert not [*source.told(MemoryLink), *source.told(Share), *source.told(KnownEdge)]
        assert not [*source.told(KnownConcept), *source.told(KnownMention)]


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
    marked = {"content": CANARY, "tags": CANARY, "expanded_keywords": CANARY, **mark}
    dsn = database([marked, {"content": "Two."}])
    received: list[Any] = []

    def listen(self: psycopg.Cursor[Any]) -> list[Any]:
        rows = fetchall(self)
        received.extend(rows)
        return rows

    fetchall = psycopg.Cursor.fetchall
    monkeypatch.setattr(psycopg.Cursor, "fetchall", listen)
    with open_database(dsn) as source:
        first, second = list(source.rows())
        assert first in list(source.changed_since(0))
        identity = source.identity()
    assert (first.key, first.withheld, dict(first.fields)) == (1, reason, {})
    assert find_sensitivity(first) == reason
    assert find_sensitivity(second) is None
    assert "Two." in repr(received)  # what was heard is what was sent
    assert CANARY not in repr((received, identity))


@pytest.mark.parametrize(
    "mark", [{"is_sensitive": False}, {"is_sensitive": None}, {"vault_path": ""}]
)
def test_an_unset_mark_withholds_nothing(database: MakeDatabase, mark: Row) -> None:
    (row,) = rows_of(database([{"content": "One.", **mark}]))
    assert (row.withheld, row.fields["content"]) == (None, "One.")


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


def test_importance_is_the_number_that_was_written(database: MakeDatabase) -> None:
    """A four-byte float is shown as written: 0.7 and not 0.699999988."""
    (row,) = rows_of(database([{"content": "One.", "importance": 0.7}]))
    assert row.fields["importance"] == 0.7


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


def test_a_database_without_an_encoding(server: Cluster, tmp_path: Path) -> None:
    run_sql(server.dsn("postgres"), "DROP DATABASE IF EXISTS ascii")
    run_sql(
        server.dsn("postgres"),
        "CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'",
    )
    dsn = server.dsn("ascii")
    run_sql(dsn, migrations())
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
    run_sql(server.dsn("postgres"), "DROP DATABASE IF EXISTS latin")
    run_sql(
        server.dsn("postgres"),
        "CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'",
    )
    run_sql(server.dsn("latin"), migrations())
    insert_rows(server.dsn("latin"), "memories", [{"content": "Grüße."}])
    assert rows_of(server.dsn("latin"))[0].fields["content"] == "Grüße."


def test_what_is_no_memory_server_is_refused(database: MakeDatabase) -> None:
    with pytest.raises(SourceFormatError, match="no such table"):
        open_database(database(schema="SELECT 1"))
    older = (
        "CREATE TABLE memories (id INT PRIMARY KEY, content TEXT, category TEXT, tags TEXT, "
        "expanded_keywords TEXT, importance REAL, created_at TIMESTAMPTZ)"
    )
    with pytest.raises(SourceFormatError, match="no column updated_at in it"):
        open_database(database(schema=older))
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
    with pytest.raises(SourceFormatError, match="no such table"):
        open_database(own)  # the schema is not theirs to look into
    run_sql(dsn, "GRANT USAGE ON SCHEMA public TO reader")
    with pytest.raises(SourceError, match="may not read"):
        open_database(own)
    plain = "id, content, category, tags, expanded_keywords, importance, created_at, updated_at"
    run_sql(dsn, f"GRANT SELECT ({plain}, user_id, is_sensitive, deleted_at) ON memories TO reader")
    with pytest.raises(SourceError, match="may not read encrypted_content, vault_path"):
        open_database(own)
    run_sql(dsn, "GRANT SELECT ON memories TO reader")
    with open_database(own) as source:
        assert source.identity().notes == ("tables_not_readable",)
        assert not [*source.told(MemoryLink), *source.told(Share)]
        assert not list(source.told(KnownConcept))
        # Somebody may be sharing: every row is somebody's.
        assert [row.fields["user_id"] for row in source.rows()] == ["default"]
    run_sql(dsn, "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    with open_database(own) as source:
        assert source.identity().notes == ()
        assert [row.fields["user_id"] for row in source.rows()] == [None]
    run_sql(dsn, "DROP OWNED BY reader")
    run_sql(dsn, "DROP ROLE reader")
