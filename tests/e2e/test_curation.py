"""A real night proposes, the real command writes and takes back, the next night agrees."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from tests.e2e.driver import DONE, ROOT, run, run_night
from tests.e2e.stores import Bench, editing
from tests.support.claude_memory import found_by_words, table_of

TEXT = "The gauge of the old harbour crane reads twelve tonnes."
PARTS = ("Crane log (part 1 of 2): greased.", "Crane log (part 2 of 2): lifted the mast.")
ON = {"NOCTUARY_CURATION_ENABLED": "true"}

pytestmark = pytest.mark.slow


def curate(bench: Bench, *arguments: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "noctuary.cli.main", "proposals", "curate", *arguments, "--json"]
    done = run([*words, "--store", str(bench.store)], bench.store.parent, cwd=ROOT)
    assert done.code == 0, done.says
    return json.loads(done.out)


def ids_of(bench: Bench, content: str) -> list[int]:
    with editing(bench.source) as db:
        sql = "SELECT id FROM memories WHERE content = ? ORDER BY id"
        return [row[0] for row in db.execute(sql, (content,))]


def test_proposed_applied_and_undone(small: Bench) -> None:
    with editing(small.source) as db:
        for day, content in enumerate((TEXT, TEXT, *PARTS), 1):
            date = f"2026-02-{day:02}T00:00:00+00:00"
            db.execute(
                "INSERT INTO memories(content, created_at, updated_at) VALUES (?, ?, ?)",
                (content, date, date),
            )
    first = run_night(small.source, small.store, extra=ON)
    assert first.code == DONE, first.says
    assert first.stage("curation_proposals")["facts"]["by_action"]["ADD"] == 1
    before = table_of(small.source)
    older, newer = ids_of(small, TEXT)
    wanted = [
        p["proposal_id"]
        for p in curate(small)["proposals"]
        if {t["memory_id"] for t in p["targets"]} & {str(older), str(newer + 1)}
    ]
    assert len(wanted) == 2
    applied = curate(small, "--apply", *wanted)
    assert applied["tombstones"] == [older, newer + 1, newer + 2]
    assert found_by_words(small.source, "superseded") == applied["tombstones"]

    second = run_night(small.source, small.store, extra=ON)
    assert second.code == DONE, second.says
    (added,) = applied["added"]
    found = {m.id: m for m in small.ask("Crane log greased mast", k=10).memories}
    assert found[added].content == "Crane log: greased.\nlifted the mast."
    assert all(p["proposal_id"] not in wanted for p in curate(small)["proposals"])
    ranks = [m.id for m in small.ask("gauge of the old harbour crane", k=10).memories]
    assert ranks.index(newer) < ranks.index(older)

    assert curate(small, "--undo", str(applied["journal_id"]))["taken_back"] == [added]
    assert table_of(small.source) == before
