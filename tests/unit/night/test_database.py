"""The stage corpus_export over a database, night after night."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from noctuary.night.context import Night
from noctuary.night.corpus import export_memories
from noctuary.night.questions import gather_questions
from noctuary.settings import Settings
from noctuary.settings.source_sections import CaptureSettings
from noctuary.snapshot.layout import StorePaths
from noctuary.source_name import DatabaseName
from tests.support.claude_memory import make_sqlite
from tests.support.edit_scripts import PostgresStore
from tests.support.postgres import Cluster

MakeNight = Callable[..., Night]
LONG_AGO_US = 30 * 3_600_000_000


@pytest.fixture
def make_night(server: Cluster, tmp_path: Path) -> MakeNight:
    """A night over the server's database, into a store of some name."""

    def make(store: str = "store", **capture: object) -> Night:
        (tmp_path / store).mkdir(exist_ok=True)
        dsn = server.dsn("postgres")
        settings = replace(Settings(), capture=CaptureSettings(**capture))  # pyright: ignore[reportArgumentType]
        source = DatabaseName(dsn, dsn, "postgresql://tester@test/postgres")
        return Night(StorePaths(tmp_path / store), source, settings)

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


def test_labels_beside_the_local_cache_speak_in_its_ids(
    server: Cluster, make_night: MakeNight, tmp_path: Path
) -> None:
    with closing(PostgresStore(server.dsn("postgres"))) as store:
        for text in ("The kettle whistles.", "The clock is slow.", "The door creaks."):
            store.insert(text)
    cached = [
        {"id": 3, "content": "The kettle whistles."},
        {"id": 1, "content": "The clock, before it was mended.", "server_id": 2},
        {"id": 2, "content": "Never sent."},
    ]
    (tmp_path / "cache").mkdir()
    cache = make_sqlite(tmp_path / "cache" / "memory.db", cached)
    labels = [
        {"query_id": "q1", "text": "noise in the kitchen", "relevant_ids": [3]},
        {"query_id": "q2", "text": "what time", "relevant_ids": [1], "grades": {"1": 2}},
        {"query_id": "q3", "text": "nothing", "relevant_ids": [2]},
    ]
    lines = "\n".join(json.dumps(label) for label in labels)
    (cache.parent / "queries.jsonl").write_text(lines + "\n", encoding="utf-8")
    night = make_night(local_cache=str(cache))
    assert export_memories(night).notes["bridge"] == {"local_rows": 3, "bridged": 2}
    questions = gather_questions(night)
    asked = {query.query_id: query for query in questions.groups["labelled"]}
    assert asked["q1"].relevant_ids == ("1",)
    assert (asked["q2"].relevant_ids, asked["q2"].grades) == (("2",), {"2": 2})
    assert "q3" not in asked, "server row 2 is not local row 2"

    elsewhere = replace(night.settings.evaluation, queries=str(tmp_path / "labels.jsonl"))
    (tmp_path / "labels.jsonl").write_text(lines + "\n", encoding="utf-8")
    night = replace(night, settings=replace(night.settings, evaluation=elsewhere))
    asked = {query.query_id: query for query in gather_questions(night).groups["labelled"]}
    assert asked["q1"].relevant_ids == ("3",), "ids of the server"


def test_a_cache_that_is_gone_is_a_note_and_bridges_nothing(
    server: Cluster, make_night: MakeNight, tmp_path: Path
) -> None:
    with closing(PostgresStore(server.dsn("postgres"))) as store:
        store.insert("The kettle whistles.")
    cache = make_sqlite(tmp_path / "memory.db", [{"content": "The kettle whistles."}])
    night = make_night(local_cache=str(cache))
    export_memories(night)
    bridge = night.paths.work / "corpus" / "bridge.parquet"
    assert bridge.is_file()
    cache.unlink()
    assert "There is no local cache" in export_memories(night).notes["bridge"]["fault"]
    assert not bridge.exists()
