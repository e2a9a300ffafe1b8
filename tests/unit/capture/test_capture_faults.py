"""What goes wrong: damaged replicas, lost connections, killed runs, sources that contradict."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from noctuary.capture import replica_file
from noctuary.capture.capturing import DAMAGED, CaptureReport, capture
from noctuary.corpus.changes import RowDigest
from noctuary.corpus.source import DEFAULT_BATCH_ROWS, RawRow
from noctuary.errors import SourceError, StoreError
from noctuary.settings import CaptureSettings
from tests.support.feed_store import HOUR_US, FeedSource, FeedStore

SETTINGS = CaptureSettings(overlap_minutes=60, full_diff_hours=1_000)


def follow(store: FeedStore, replica: Path, settings: CaptureSettings = SETTINGS) -> CaptureReport:
    with store.open() as source:
        return capture(source, replica, settings, batch_rows=2)


def held(replica: Path) -> dict[int, str]:
    """Return what is kept now, by a connection of its own."""
    with closing(sqlite3.connect(replica)) as db:
        return dict(db.execute("SELECT key, line FROM rows"))


@pytest.mark.parametrize(
    "damage",
    [
        b"this is no database at all, but it is long enough to be looked at as one" * 20,
        b"SQLite format 3\x00" + b"\xff" * 5_000,
    ],
)
def test_a_file_that_is_no_replica_is_made_anew(
    damage: bytes, store: FeedStore, replica: Path
) -> None:
    replica.parent.mkdir()
    replica.write_bytes(damage)
    report = follow(store, replica)
    assert (report.why, report.rows) == (DAMAGED, 4)
    assert follow(store, replica).why == ""


def test_a_replica_without_its_tables_is_made_anew(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    with closing(sqlite3.connect(replica)) as db:
        db.execute("DROP TABLE rows")
    assert follow(store, replica).why == DAMAGED


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE rows SET line = replace(line, 'lamp', 'bomb') WHERE key = 2",
        "UPDATE rows SET key = 99 WHERE key = 2",
        "UPDATE rows SET is_wanted = 1 WHERE key = 2",
        "UPDATE rows SET line = NULL, seal = NULL WHERE key = 2",
    ],
)
def test_a_row_that_is_not_what_was_written_is_noticed(
    damage: str, store: FeedStore, replica: Path
) -> None:
    follow(store, replica)
    before = held(replica)
    with closing(sqlite3.connect(replica)) as db, db:
        db.execute(damage)
    assert follow(store, replica).why == DAMAGED
    assert held(replica) == before


def test_a_replica_that_lost_rows_gets_them_back(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    before = held(replica)
    with closing(sqlite3.connect(replica)) as db, db:
        db.execute("DELETE FROM rows WHERE key IN (1, 3)")
    assert follow(store, replica).added == 2
    assert held(replica) == before


def test_only_its_owner_can_read_it(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    assert replica.stat().st_mode & 0o777 == 0o600
    replica.chmod(0o644)
    follow(store, replica)
    assert replica.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in replica.parent.iterdir()] == ["replica.sqlite"]


class BreakingSource(FeedSource):
    """A store whose connection is lost in the middle of the rows."""

    def rows_of(
        self, keys: Sequence[int | str], size: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Sequence[RawRow]]:
        """Yield some rows, then none."""
        if 4 in keys:
            raise SourceError("the connection was lost")
        yield from super().rows_of(keys, size)


def test_a_lost_connection_leaves_the_replica_as_it_was(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    before = held(replica)
    for key in (1, 4):
        store.update(key, {"content": "New."}, age_us=40 * HOUR_US)
    with BreakingSource(store) as source, pytest.raises(SourceError, match="lost"):
        capture(source, replica, replace(SETTINGS, full_diff_hours=0), batch_rows=1)
    assert held(replica) == before
    store.wait(HOUR_US)
    assert follow(store, replica, replace(SETTINGS, full_diff_hours=0)).edited == 2


@pytest.mark.parametrize("bad", [[3, 2, 1, 4], [1, 1, 2, 3]])
def test_ids_out_of_order_are_refused(bad: list[int], store: FeedStore, replica: Path) -> None:
    class Shuffled(FeedSource):
        def digests(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RowDigest]]:
            yield from ([RowDigest(key, "")] for key in bad)

    with Shuffled(store) as source, pytest.raises(SourceError, match="ascending"):
        capture(source, replica, SETTINGS)


def test_a_store_that_contradicts_itself_is_refused(store: FeedStore, replica: Path) -> None:
    class Boasting(FeedSource):
        def count(self) -> int:
            return 7

    with Boasting(store) as source, pytest.raises(SourceError, match="counts 7 rows but names 4"):
        capture(source, replica, SETTINGS)


def test_a_row_without_an_id_is_refused(store: FeedStore, replica: Path) -> None:
    class Nameless(FeedSource):
        def rows_of(
            self, keys: Sequence[int | str], size: int = DEFAULT_BATCH_ROWS
        ) -> Iterator[Sequence[RawRow]]:
            for batch in super().rows_of(keys, size):
                yield [replace(row, key=None) for row in batch]

    with Nameless(store) as source, pytest.raises(SourceError, match="has no id"):
        capture(source, replica, SETTINGS)


def test_a_replica_that_cannot_be_written_is_said(
    store: FeedStore, replica: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(store, replica)
    monkeypatch.setattr(replica_file, "BUSY_TIMEOUT_S", 0.05)
    with closing(sqlite3.connect(replica, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match=r"replica\.sqlite cannot be used \(SQLITE_BUSY\)"):
            follow(store, replica)
    assert follow(store, replica).why == "", "what was locked is not thrown away"


_DIES = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from noctuary.capture import capturing
from noctuary.settings import CaptureSettings
from tests.support.feed_store import FeedStore, FeedSource

store = FeedStore.__new__(FeedStore)
store.path, store.location, store.clock_us = Path(sys.argv[1]), "feed://store", int(sys.argv[3])

class Dying(FeedSource):
    def rows_of(self, keys, size=1000):
        if 4 in keys:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().rows_of(keys, size)

settings = CaptureSettings(overlap_minutes=60, full_diff_hours=0)
capturing.capture(Dying(store), Path(sys.argv[2]), settings, batch_rows=1)
"""


def test_a_capture_that_is_killed_leaves_the_one_before(store: FeedStore, replica: Path) -> None:
    follow(store, replica)
    before = held(replica)
    for key in (1, 4):
        store.update(key, {"content": "x" * 300_000}, age_us=40 * HOUR_US)
    words = [str(store.path), str(replica), str(store.now_us())]
    done = subprocess.run([sys.executable, "-c", _DIES, *words], cwd=Path.cwd(), check=False)
    assert done.returncode == -signal.SIGKILL
    store.wait(2 * HOUR_US)
    assert follow(store, replica).edited == 0, "the watermark did not move either"
    assert held(replica) == before
    assert follow(store, replica, replace(SETTINGS, full_diff_hours=0)).edited == 2
