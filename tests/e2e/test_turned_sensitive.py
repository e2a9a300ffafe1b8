"""A row that was published and has turned sensitive leaves everything, older snapshots included."""

from __future__ import annotations

from mnemon.snapshot.publish import list_snapshots
from tests.e2e.byte_scan import find_texts
from tests.e2e.driver import DONE, run_night
from tests.e2e.stores import Bench, add_memory, editing

SECRET = "The zibbleforth vault opens with the marmalade phrase."


def test_a_row_that_turns_sensitive_is_dropped_from_older_snapshots_too(small: Bench) -> None:
    row = add_memory(small.source, SECRET)
    assert run_night(small.source, small.store).code == DONE
    assert small.ask("zibbleforth vault").memories[0].content == SECRET
    with editing(small.source) as db:
        db.execute("UPDATE memories SET is_sensitive = 1 WHERE id = ?", (row,))
    ran = run_night(small.source, small.store)
    assert ran.code == DONE
    assert list_snapshots(small.paths) == [small.serving]
    assert not small.paths.purge_pending.exists()
    assert SECRET not in [m.content for m in small.ask("zibbleforth vault").memories]
    assert find_texts(small.store, ["zibbleforth", "marmalade phrase"]) == []
