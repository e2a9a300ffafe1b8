from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.capture.replica_source import ReplicaSource, open_captured
from noctuary.corpus.changes import ChangeFeed
from noctuary.corpus.evidence import (
    HasEvidence,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    Share,
)
from noctuary.errors import SourceError, StoreError
from tests.support.feed_store import FeedSource, FeedStore

LINK = MemoryLink("1", "2", "supersedes", 5, None)
CONCEPT = KnownConcept("lamp", ("light",), "thing")
MENTION = KnownMention("1", "lamp", "about")
EDGE = KnownEdge("lamp", "shelf", "stands on", 1, ("1",))
SHARE = Share("1", "ben")


class TellingSource(FeedSource):
    """A store that says more about its rows."""

    def links(self) -> Iterator[MemoryLink]:
        yield LINK

    def concepts(self) -> Iterator[KnownConcept]:
        yield CONCEPT

    def mentions(self) -> Iterator[KnownMention]:
        yield MENTION

    def edges(self) -> Iterator[KnownEdge]:
        yield EDGE

    def shares(self) -> Iterator[Share]:
        yield SHARE


def test_it_is_the_store_with_rows_of_the_file(store: FeedStore, replica: Path) -> None:
    with store.open() as fresh, open_captured(store.open(), replica) as source:
        assert source.identity() == fresh.identity()
        assert source.count() == fresh.count() == 4
        assert list(source.batches(3)) == list(fresh.batches(3))
        assert source.report.rows == 4


def test_it_is_pinned_like_the_store(store: FeedStore, replica: Path) -> None:
    with open_captured(store.open(), replica) as source:
        store.insert("Too late.")
        assert source.identity().marker["rows"] == source.count() == 4
        assert sum(map(len, source.batches())) == 4


def test_what_the_store_says_about_its_rows_is_asked_of_it(store: FeedStore, replica: Path) -> None:
    with open_captured(TellingSource(store), replica) as source:
        assert isinstance(source, HasEvidence)
        assert list(source.links()) == [LINK]
        assert list(source.concepts()) == [CONCEPT]
        assert list(source.mentions()) == [MENTION]
        assert list(source.edges()) == [EDGE]
        assert list(source.shares()) == [SHARE]


def test_a_store_that_says_nothing_has_nothing(store: FeedStore, replica: Path) -> None:
    with open_captured(store.open(), replica) as source:
        said = (source.links, source.concepts, source.mentions, source.edges, source.shares)
        assert [list(one()) for one in said] == [[], [], [], [], []]


def test_the_store_of_the_tests_tells_what_changed(store: FeedStore) -> None:
    with store.open() as source:
        assert isinstance(source, ChangeFeed)


def test_a_huge_row_ends_its_batch(
    store: FeedStore, replica: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noctuary.corpus.source.BATCH_CHARS", 16 * 2**10)
    for _ in range(3):
        store.insert("x" * 9 * 2**10)
    with open_captured(store.open(), replica) as source:
        assert [len(batch) for batch in source.batches()] == [6, 1]


def test_it_closes_the_store_too(store: FeedStore, replica: Path) -> None:
    live = store.open()
    source = open_captured(live, replica)
    source.close()
    source.close()
    with pytest.raises(sqlite3.ProgrammingError):
        live.count()


def test_a_failed_capture_closes_the_store(store: FeedStore, replica: Path) -> None:
    class Broken(FeedSource):
        def now_us(self) -> int:
            raise SourceError("gone")

    live = Broken(store)
    with pytest.raises(SourceError, match="gone"):
        open_captured(live, replica)
    with pytest.raises(sqlite3.ProgrammingError):
        live.count()


def test_a_line_that_is_no_row_is_said_without_its_text(store: FeedStore, replica: Path) -> None:
    with open_captured(store.open(), replica) as source:
        report = source.report
    with closing(sqlite3.connect(replica)) as db, db:
        db.execute("UPDATE rows SET line = '[\"canary\"]' WHERE key = 2")
    with (
        ReplicaSource(replica, store.open(), report) as damaged,
        pytest.raises(StoreError, match="holds a line that is no row") as caught,
    ):
        list(damaged.batches())
    assert "canary" not in str(caught.value)
