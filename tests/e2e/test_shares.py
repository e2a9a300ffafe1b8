"""Whole nights over a server that several users write to: who sees what, until it is revoked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from noctuary.core import store as layout
from noctuary.core.files import group_arrays, read_arrays
from tests.conftest import MakeDatabase
from tests.e2e.driver import DONE, Ran, run_night
from tests.e2e.stores import Bench
from tests.support.claude_memory import insert_rows

ROWS: tuple[dict[str, Any], ...] = (
    {"id": 1, "user_id": "ana", "content": "The boiler key of Ana is in the red tin."},
    {"id": 2, "user_id": "ben", "content": "The boiler key of Ben hangs in the shed."},
    {"id": 3, "user_id": "ben", "content": "The boiler code is under the mat.", "tags": "house"},
    {"id": 4, "user_id": "ben", "content": "The boiler bill was paid by Ben in May."},
)


def night(bench: Bench, address: str) -> Ran:
    ran = run_night(Path("env:SHARED_STORE"), bench.store, extra={"SHARED_STORE": address})
    assert ran.code == DONE, ran.says
    return ran


def seen(bench: Bench, user: str | None) -> set[int | str]:
    return {memory.id for memory in bench.ask("boiler key", user=user).memories}


@pytest.mark.slow
def test_a_share_of_the_server_opens_a_memory_until_it_is_revoked(
    tmp_path: Path, database: MakeDatabase
) -> None:
    address = database(ROWS)
    shared = {"owner_id": "ben", "shared_with": "ana"}
    insert_rows(address, "memory_shares", [{**shared, "memory_id": 2}])
    insert_rows(address, "tag_shares", [{**shared, "tag": "house"}])
    bench = Bench(tmp_path / "server", tmp_path / "store")
    night(bench, address)
    assert bench.manifest.counts["shares"] == 2
    assert seen(bench, "ana") == {1, 2, 3}
    assert seen(bench, "ben") == {2, 3, 4}
    assert seen(bench, "eva") == seen(bench, None) == set()

    first = bench.serving
    with psycopg.connect(address) as db:
        db.execute("DELETE FROM memory_shares")
        db.execute("DELETE FROM tag_shares")
    night(bench, address)
    assert bench.serving != first, "a share alone makes another snapshot"
    assert seen(bench, "ana") == {1}
    arrays = read_arrays(bench.paths.snapshots / bench.serving / layout.ARRAYS_FILE)
    assert group_arrays(arrays, "shares") == {}
