"""The traps of following a store (research/peers.md 2.3), each by its name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from noctuary.capture.capturing import (
    CLOCK_WENT_BACK,
    DUE,
    FIRST,
    IDS_WENT_BACK,
    CaptureReport,
    capture,
)
from noctuary.capture.replica_source import ReplicaSource
from noctuary.corpus.source import SourceIdentity
from noctuary.settings import CaptureSettings
from tests.support.feed_store import HOUR_US, MINUTE_US, FeedSource, FeedStore

SETTINGS = CaptureSettings(overlap_minutes=60, full_diff_hours=1_000)


def follow(
    store: FeedStore, replica: Path, settings: CaptureSettings = SETTINGS, user: str = ""
) -> CaptureReport:
    with store.open() as source:
        return capture(source, replica, settings, user=user, batch_rows=2)


def contents(store: FeedStore, replica: Path) -> dict[int | str | None, object]:
    """Capture, and return what is kept: the content of a row, or why there is none."""
    source = store.open()
    report = capture(source, replica, SETTINGS, batch_rows=2)
    with ReplicaSource(replica, source, report) as kept:
        rows = [row for batch in kept.batches() for row in batch]
    return {row.key: row.withheld or row.fields["content"] for row in rows}


def held(replica: Path) -> dict[int, str]:
    """Return what is kept now, by a connection of its own."""
    with closing(sqlite3.connect(replica)) as db:
        return dict(db.execute("SELECT key, line FROM rows"))


def test_a_first_capture_reads_everything(store: FeedStore, replica: Path) -> None:
    report = follow(store, replica)
    assert report == CaptureReport(True, FIRST, read=4, added=4, edited=0, removed=0, rows=4)
    assert report.to_json()["why"] == FIRST


def test_a_capture_of_nothing_new_reads_the_overlap(store: FeedStore, replica: Path) -> None:
    store.insert("A new one.")
    follow(store, replica)
    store.wait(MINUTE_US)
    for _ in range(2):
        report = follow(store, replica)
        assert report == CaptureReport(False, "", read=1, added=0, edited=0, removed=0, rows=5)
        store.wait(HOUR_US)
    assert follow(store, replica).read == 0


def test_a_late_commit_inside_the_overlap_is_found_by_the_window(
    store: FeedStore, replica: Path
) -> None:
    follow(store, replica)
    store.wait(MINUTE_US)
    store.update(2, {"content": "The late one."}, age_us=50 * MINUTE_US)
    report = follow(store, replica)
    assert (report.is_full, report.edited) == (False, 1)
    assert contents(store, replica)[2] == "The late one."


def test_a_late_commit_outside_the_overlap_is_found_by_the_full_diff(
    store: FeedStore, replica: Path
) -> None:
    follow(store, replica)
    store.wait(2 * HOUR_US)
    store.update(2, {"content": "The late one."}, age_us=4 * HOUR_US)
    assert follow(store, replica).edited == 0, "no window shows it"
    report = follow(store, replica, replace(SETTINGS, full_diff_hours=0))
    assert (report.why, report.read, report.edited) == (DUE, 1, 1), "and only it is read"


def test_the_overlap_reaches_exactly_so_far(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    watermark_us = store.now_us()
    store.wait(3 * HOUR_US)
    since_us = watermark_us - HOUR_US
    store.update(1, {"content": "On the edge.", "updated_us": since_us})
    store.update(2, {"content": "Behind it.", "updated_us": since_us - 1})
    report = follow(store, replica)
    assert (report.read, report.edited) == (1, 1)


def test_a_late_insert_is_found_whatever_its_date(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    store.wait(HOUR_US)
    store.insert("From long ago.", age_us=900 * HOUR_US)
    report = follow(store, replica)
    assert (report.is_full, report.added, report.read) == (False, 1, 1)


def test_a_hard_delete_leaves(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    store.wait(2 * HOUR_US)
    store.delete(2)
    report = follow(store, replica)
    assert (report.is_full, report.removed, report.rows) == (False, 1, 3)
    assert set(held(replica)) == {1, 3, 4}


def test_deleting_the_last_or_every_row_leaves_none_behind(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    store.delete(4)
    assert follow(store, replica).removed == 1
    for key in (1, 2, 3):
        store.delete(key)
    report = follow(store, replica)
    assert (report.removed, report.rows, held(replica)) == (3, 0, {})
    assert follow(store, replica).rows == 0


def test_a_soft_delete_hidden_from_a_first_pull_comes_as_a_tombstone(
    store: FeedStore, replica: Path
) -> None:
    store.update(2, {"deleted_us": store.now_us()}, age_us=500 * HOUR_US)
    follow(store, replica)
    source = store.open()
    with ReplicaSource(replica, source, follow(store, replica)) as kept:
        rows = {row.key: row.fields for batch in kept.batches() for row in batch}
    assert kept.count() == 4
    assert rows[2]["deleted_at"]
    assert rows[1]["deleted_at"] is None


def test_a_flag_flips_both_ways_and_leaves_no_text(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    assert b"lamp number 1" in replica.read_bytes()
    store.update(2, {"is_sensitive": True})
    assert contents(store, replica)[2] == "flagged"
    assert b"lamp number 1" not in replica.read_bytes(), "not in a free page either"
    store.update(2, {"is_sensitive": False})
    assert contents(store, replica)[2] == "The lamp number 1 stands on the shelf."


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[REDACTED:token]", "placeholder"),
        ("[SENSITIVE] see the vault, canary-77", "placeholder"),
        ("the key is AKIAQ7XZ2MPL4RTWN6BD canary-77", "secret"),
    ],
)
def test_a_text_that_must_not_be_kept_is_not(
    content: str, reason: str, store: FeedStore, replica: Path
) -> None:
    store.insert(content)
    assert str(contents(store, replica)[5]).startswith(reason)
    assert content.encode() not in replica.read_bytes()
    assert b"canary-77" not in replica.read_bytes()
    store.update(5, {"content": "Clean again."})
    assert contents(store, replica)[5] == "Clean again."


def test_an_id_that_is_used_again_is_another_row(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    store.delete(3)
    store.insert("Somebody else's.", key=3)
    assert contents(store, replica)[3] == "Somebody else's."


def test_ids_that_go_back_are_a_restored_store(store: FeedStore, replica: Path) -> None:
    store.update(1, {"content": "Edited before the backup was put back."})
    follow(store, replica)
    store.wait(9 * HOUR_US)
    store.update(1, {"content": "As it was."}, age_us=90 * HOUR_US)
    store.delete(4)
    report = follow(store, replica)
    assert (report.why, report.edited, report.removed) == (IDS_WENT_BACK, 1, 1)


def test_a_clock_that_goes_back_compares_everything(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    store.wait(-40 * HOUR_US)
    store.update(1, {"content": "By the wrong clock."})
    report = follow(store, replica)
    assert (report.why, report.edited) == (CLOCK_WENT_BACK, 1)
    store.update(2, {"content": "By the wrong clock, too."})
    assert follow(store, replica).edited == 1, "the watermark followed the clock"


def test_a_row_without_or_with_a_future_date_is_followed(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    store.update(1, {"content": "Undated.", "updated_us": None})
    store.update(2, {"content": "Tomorrow.", "updated_us": store.now_us() + 24 * HOUR_US})
    store.wait(2 * HOUR_US)
    report = follow(store, replica)
    assert report.edited == 1, "the one that is undated waits for a full diff"
    assert follow(store, replica, replace(SETTINGS, full_diff_hours=0)).edited == 1
    again = follow(store, replica)
    assert (again.read, again.edited) == (1, 0), "it is read again until its day has come"


def test_the_full_diff_is_due_by_the_clock_of_the_store(store: FeedStore, replica: Path) -> None:
    daily = replace(SETTINGS, full_diff_hours=20)
    assert follow(store, replica, daily).why == FIRST
    store.wait(20 * HOUR_US - 1)
    assert follow(store, replica, daily).why == ""
    store.wait(1)
    assert follow(store, replica, daily).why == DUE
    store.wait(HOUR_US)
    assert follow(store, replica, daily).why == "", "counted from the last one"


def test_a_full_diff_reads_what_differs_alone(store: FeedStore, replica: Path) -> None:
    always = replace(SETTINGS, full_diff_hours=0)
    follow(store, replica, always)
    assert follow(store, replica, always).read == 0
    store.update(2, {"tags": "wing:kitchen"}, age_us=50 * HOUR_US)
    report = follow(store, replica, always)
    assert (report.read, report.edited) == (1, 1)
    assert follow(store, replica, always).read == 0, "its digest was kept"


def test_an_edit_that_is_taken_back_without_a_trace_is_found(
    store: FeedStore, replica: Path
) -> None:
    """As a backup does it: the row is again the one that the last full diff saw."""
    original, written_us = store.content_of(2), store.now_us() - 2 * HOUR_US
    follow(store, replica)
    store.update(2, {"content": "Edited."})
    assert follow(store, replica).edited == 1
    store.update(2, {"content": original, "updated_us": written_us})
    report = follow(store, replica, replace(SETTINGS, full_diff_hours=0))
    assert report.edited == 1, "the digest of the older state went with it"


def test_a_window_of_any_length_is_a_number(store: FeedStore, replica: Path) -> None:
    endless = CaptureSettings(overlap_minutes=float("inf"), full_diff_hours=float("inf"))
    follow(store, replica, endless)
    store.wait(HOUR_US)
    report = follow(store, replica, endless)
    assert (report.is_full, report.read) == (False, 4)


@pytest.mark.parametrize("user", ["", "ana"])
def test_another_user_finds_nothing(user: str, store: FeedStore, replica: Path) -> None:
    follow(store, replica, user="ben")
    assert follow(store, replica, user=user).why == FIRST
    assert follow(store, replica, user=user).why == ""


def test_another_store_finds_nothing(store: FeedStore, replica: Path, tmp_path: Path) -> None:
    follow(store, replica)
    other = FeedStore(tmp_path / "other.db", location="feed://other")
    other.insert("Another's.")
    report = follow(other, replica)
    assert (report.why, report.rows) == (FIRST, 1)
    assert b"lamp" not in replica.read_bytes()


def test_another_rule_of_users_finds_nothing(store: FeedStore, replica: Path) -> None:
    class Ruled(FeedSource):
        def identity(self) -> SourceIdentity:
            found = super().identity()
            return replace(found, marker={**found.marker, "users": "several"})

    follow(store, replica)
    with Ruled(store) as source:
        assert capture(source, replica, SETTINGS).why == FIRST


def test_other_code_that_reads_rows_reads_all_of_them(
    store: FeedStore, replica: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    follow(store, replica)
    package = tmp_path / "upgraded"
    (package / "corpus").mkdir(parents=True)
    (package / "corpus" / "sensitive.py").write_text("stricter = True", encoding="utf-8")
    monkeypatch.setattr("noctuary.__file__", str(package / "__init__.py"))
    assert follow(store, replica).why == FIRST
