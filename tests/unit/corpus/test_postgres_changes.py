"""What a database tells of its changes."""

from __future__ import annotations

import psycopg

from tests.support.databases import MakeDatabase, open_database, run_sql


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
