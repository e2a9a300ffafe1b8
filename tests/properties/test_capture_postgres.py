"""The same of a real PostgreSQL database: whatever happens between two nights is found."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from noctuary.capture.capturing import CaptureReport, capture
from tests.support.edit_scripts import NIGHTS, NightOfEdits, PostgresStore
from tests.support.postgres import Cluster
from tests.support.replicas import COMPLETE, NIGHTLY, Look, export, judge, require_equal_nights


def run_scripts(server: Cluster, nights: Sequence[NightOfEdits], look: Look) -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        closing(PostgresStore(server.dsn("postgres"))) as store,
    ):
        require_equal_nights(store, nights, Path(name), look)


# The server itself is shared by the examples on purpose.
_SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=4, deadline=None, suppress_health_check=_SHARED)
@given(nights=NIGHTS)
def test_a_replica_follows_a_database(server: Cluster, nights: list[NightOfEdits]) -> None:
    run_scripts(server, nights, judge)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=_SHARED)
@given(nights=NIGHTS)
def test_a_replica_follows_many_databases(server: Cluster, nights: list[NightOfEdits]) -> None:
    run_scripts(server, nights, judge)


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=_SHARED)
@given(nights=NIGHTS)
def test_many_exports_of_replicas_are_those_of_the_databases(
    server: Cluster, nights: list[NightOfEdits]
) -> None:
    run_scripts(server, nights, export)


def test_a_transaction_that_commits_late_is_found(server: Cluster, tmp_path: Path) -> None:
    """It began before the first look and ends after it: its rows have the older time."""
    import psycopg

    dsn, replica = server.dsn("postgres"), tmp_path / "replica.sqlite"

    def follow(overlap_minutes: float) -> CaptureReport:
        with store.open() as source:
            return capture(source, replica, replace(NIGHTLY, overlap_minutes=overlap_minutes))

    with closing(PostgresStore(dsn)) as store:
        for text in ("The first.", "The second."):
            store.insert(text, age_us=7_200_000_000)
        with psycopg.connect(dsn) as late:
            late.execute("UPDATE memories SET content = 'Late.', updated_at = now() WHERE id = 1")
            late.execute("INSERT INTO memories (content) VALUES ('Late, too.')")
            assert follow(60).rows == 2, "what is not committed is not there"
        without = follow(0)
        assert (without.added, without.edited) == (1, 0), "a watermark alone loses the edit"
        assert follow(60).edited == 1
        with store.open() as source:
            assert capture(source, replica, COMPLETE).edited == 0
