"""The stage corpus_export over a database, night after night."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.core.store import DatabaseName, StorePaths
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night
from tests.support.edit_scripts import PostgresStore
from tests.support.postgres import Cluster

MakeNight = Callable[..., Night]
LONG_AGO_US = 30 * 3_600_000_000


@pytest.fixture
def make_night(server: Cluster, tmp_path: Path) -> MakeNight:
    """A night over the server's database, into a store of some name."""

    def make(store: str = "store") -> Night:
        (tmp_path / store).mkdir(exist_ok=True)
        dsn = server.dsn("postgres")
        source = DatabaseName(dsn, dsn, "postgresql://tester@test/postgres")
        return Night(StorePaths(tmp_path / store), source)

    return make


def tables(night: Night) -> dict[str, bytes]:
    folder = night.paths.work / "corpus"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix == ".parquet"}


def test_a_second_night_finds_what_changed_and_makes_the_same_corpus(
    server: Cluster, make_night: MakeNight
) -> None:
    with closing(PostgresStore(server.dsn("postgres"))) as store:
        for number in range(6):
            store.insert(f"The lamp number {number} is lit.", age_us=LONG_AGO_US)
        store.update(6, {"is_sensitive": True}, age_us=LONG_AGO_US)
        night = make_night()
        first = export_memories(night)
        assert first.facts["sensitive"] == 1

        store.update(2, {"content": "The lamp number 1 is out."})
        store.update(3, {"is_sensitive": True})
        store.delete(1)
        store.insert("The candle is new.")
        second = export_memories(night)
        assert second.notes["turned_sensitive"] == 1
        assert (second.notes["edited"], second.notes["added"]) == (1, 1)

        fresh = make_night("fresh")
        assert export_memories(fresh).digest == second.digest
        assert tables(night) == tables(fresh)
