"""The overlay over a real PostgreSQL server."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from noctuary.core.settings import SourceSettings
from noctuary.core.store import name_source
from noctuary.recall.api import recall
from noctuary.recall.result import RecallResult
from noctuary.sources import live as looking
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.source import open_source
from tests.support.store import Store, new_store

MakeDatabase = Callable[..., str]


@pytest.fixture
def address(database: MakeDatabase, monkeypatch: pytest.MonkeyPatch) -> str:
    made = database()
    with psycopg.connect(made, autocommit=True) as db:
        for content in ("The spare key hangs behind the blue door.", "The boiler needs a valve."):
            db.execute(
                "INSERT INTO memories(content, updated_at) VALUES (%s, '2026-01-05')", [content]
            )
    monkeypatch.setattr(looking, "ASK_AGAIN_S", 0.0)
    return made


@pytest.fixture
def served_database(address: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    store = new_store(home / "house")
    read_us = time.time_ns() // 1000
    with open_source(name_source(address), SourceSettings()) as source:
        report = export_corpus(source, store.paths.work / "corpus")
    identity = report.identity
    store.publish(
        read_records(store.paths.work / "corpus"),
        source={"kind": identity.kind, "location": identity.location, "read_us": read_us},
    )
    monkeypatch.setenv("NOCTUARY_SOURCE_PATH", address)
    # A first connection on a busy machine takes longer than a prompt would wait.
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "20000")
    return store


def write(address: str, sql: str) -> None:
    with psycopg.connect(address, autocommit=True) as db:
        db.execute(sql.encode())


def codes(result: RecallResult) -> list[str]:
    return [w.code for w in result.warnings]


def by_id(result: RecallResult) -> dict[Any, Any]:
    return {m.id: m for m in result.memories}


def test_new_changed_and_tombstoned_rows_are_seen(served_database: Store, address: str) -> None:
    assert "live_overlay" not in codes(recall("spare key"))
    write(address, "INSERT INTO memories(content) VALUES ('The spare key is with Nina.')")
    write(address, "UPDATE memories SET deleted_at = now(), updated_at = now() WHERE id = 2")
    found = recall("spare key boiler valve")
    assert by_id(found)[3].live
    assert 2 not in by_id(found)
    (told,) = [w.message for w in found.warnings if w.code == "live_overlay"]
    assert "1 new, 0 changed, 1 gone" in told


def test_a_marked_row_never_comes(served_database: Store, address: str) -> None:
    write(
        address,
        "INSERT INTO memories(content, is_sensitive) VALUES ('spare key CANARY-9', true)",
    )
    write(address, "UPDATE memories SET is_sensitive = true, updated_at = now() WHERE id = 1")
    found = recall("spare key canary", explain=True, candidate_trace=True)
    assert not found.memories
    assert "CANARY" not in str(found.to_json())


def test_a_database_that_is_none_any_more_costs_nothing_but_a_warning(
    served_database: Store, address: str
) -> None:
    before = [m.id for m in recall("spare key").memories]
    write(address, "ALTER TABLE memories RENAME TO elsewhere")
    found = recall("spare key")
    assert [m.id for m in found.memories] == before
    assert "live_unreachable" in codes(found)
    assert address not in str(found.to_json())


def test_a_server_that_hangs_is_left_at_the_deadline(
    served_database: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "100")
    with psycopg.connect(address) as db:
        db.execute("LOCK TABLE memories IN ACCESS EXCLUSIVE MODE")
        started = time.perf_counter()
        found = recall("spare key")
        assert time.perf_counter() - started < 5.0
    assert "live_unreachable" in codes(found)
    assert found.memories


def test_without_its_address_the_snapshot_answers(
    served_database: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_SOURCE_PATH", "")
    found = recall("spare key")
    assert found.memories
    (told,) = [w.message for w in found.warnings if w.code == "live_unreachable"]
    assert "source.path" in told


def test_an_answer_is_used_again_for_a_moment(
    served_database: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "ASK_AGAIN_S", 60.0)
    recall("spare key")
    write(address, "INSERT INTO memories(content) VALUES ('The spare key is with Nina.')")
    assert "live_overlay" not in codes(recall("spare key"))
