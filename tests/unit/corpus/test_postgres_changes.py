"""What a database tells of its changes: the clock, what changed since, digests."""

from __future__ import annotations

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.claude_memory import migrations
from tests.support.databases import (
    MakeDatabase,
    digests_of,
    flat,
    open_database,
    rows_of,
    run_sql,
)

DATE = "2026-03-01 12:00:00+00"
CANARY = "the canary sings at seven"


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
        assert [row.key for row in flat(source.changed_since(since_us, 4))] == [
            *range(19995, 20002)
        ]
        assert flat(source.changed_since(since_us + 1))[0].key == 19996
        with psycopg.connect(dsn) as db:
            moment = "'epoch'::timestamptz + %s * interval '1 microsecond'"
            plan = db.execute(
                f"EXPLAIN SELECT m.id FROM memories m WHERE true AND m.updated_at >= {moment} "
                "ORDER BY m.id",
                (since_us,),
            ).fetchall()
    assert "idx_memories_updated" in str(plan)
    assert "Seq Scan" not in str(plan)


def test_the_clock_is_the_servers_and_before_the_state(database: MakeDatabase) -> None:
    dsn = database()
    with open_database(dsn) as source:
        run_sql(dsn, "INSERT INTO memories (content) VALUES ('One.')")
        with psycopg.connect(dsn) as db:
            (later_us,) = db.execute(
                "SELECT (extract(epoch FROM updated_at) * 1000000)::bigint FROM memories"
            ).fetchone() or (0,)
        assert 0 <= int(later_us) - source.now_us() < 60_000_000


@pytest.mark.parametrize(
    "change",
    [
        "content = 'One!'", "category = 'b'", "category = NULL", "category = ''", "tags = NULL",
        "tags = 'a,b'", "expanded_keywords = 'k'", "importance = 0.51", "importance = NULL",
        "created_at = created_at + interval '1 microsecond'", "updated_at = 'infinity'",
        "deleted_at = now()", "user_id = 'zoe'", "is_sensitive = true", "vault_path = 'x'",
    ],
)  # fmt: skip
def test_a_digest_differs_wherever_a_row_does(database: MakeDatabase, change: str) -> None:
    dsn = database([{"content": "One.", "tags": "a"}, {"content": "Two."}])
    before, rows = digests_of(dsn), rows_of(dsn)
    run_sql(dsn, f"UPDATE memories SET {change} WHERE id = 1")
    after = digests_of(dsn)
    assert rows_of(dsn) != rows
    assert after[1] != before[1]
    # A second user makes every row somebody's.
    assert (after[2] == before[2]) == ("user_id" not in change)


def test_a_digest_does_not_differ_for_what_is_not_read(database: MakeDatabase) -> None:
    row = {"content": "One.", "is_sensitive": True}
    dsn = database([row, {"content": "Two."}], schema=migrations(vectors="stand-in"))
    before, rows = digests_of(dsn), rows_of(dsn)
    run_sql(dsn, "UPDATE memories SET embedding = array_fill(0.5, ARRAY[1024]) WHERE id = 2")
    run_sql(dsn, "UPDATE memories SET content = 'Still hidden.' WHERE id = 1")
    run_sql(dsn, "UPDATE memories SET is_sensitive = NULL WHERE id = 2")
    assert (digests_of(dsn), rows_of(dsn)) == (before, rows)


_FIELD = st.one_of(st.none(), st.text("a,()\"' \\", max_size=4))


@given(st.lists(st.tuples(_FIELD, _FIELD, _FIELD), min_size=2, max_size=4))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_digests_are_equal_only_of_equal_rows(
    database: MakeDatabase, fields: list[tuple[str | None, str | None, str | None]]
) -> None:
    fixed = {"content": "c", "created_at": DATE, "updated_at": DATE}
    names = ("category", "tags", "expanded_keywords")
    rows = [{**fixed, **dict(zip(names, each, strict=True))} for each in fields]
    dsn = database(rows, schema=migrations("003"))
    digest_of: dict[str, tuple[str | None, ...]] = {}
    for key, given_fields in enumerate(fields, 1):
        # A digest covers the id as well: compared is under one id.
        run_sql(dsn, "UPDATE memories SET id = 100 WHERE id = %s", key)
        digest = digests_of(dsn)[100]
        assert digest_of.setdefault(digest, given_fields) == given_fields
        run_sql(dsn, "DELETE FROM memories WHERE id = 100")
    assert len(digest_of) == len(set(fields))
