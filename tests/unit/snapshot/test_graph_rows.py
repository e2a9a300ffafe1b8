from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from noctuary.core import store as layout
from noctuary.core.files import read_arrays
from noctuary.core.types import MemoryRecord
from noctuary.graph.build import build_sessions
from noctuary.snapshot.pack import graph_rows
from tests.support.graph_objects import Concept, Graph, NameLink, to_graph, to_tables
from tests.support.store import Store, household, memory, pack_inputs, renumber, turns

IDS = ("a" * 16, "b" * 16)


def rows(directory: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(directory / layout.ROWS_FILE)) as db:
        return db.execute(sql).fetchall()


def of_links(*links: NameLink) -> dict[str, list[tuple[object, ...]]]:
    concepts = tuple(Concept(concept, f"C {concept}", "title", (), 1) for concept in IDS)
    graph = to_tables(Graph(concepts, (), (), links=links))
    return {table: list(batch) for table, batch in graph_rows(graph)}


def test_a_link_is_a_row_with_its_concepts_ordinal() -> None:
    packed = of_links(NameLink("ana", IDS[1], 0.0, cased=False), NameLink("bo", IDS[0], 0.5, True))
    assert packed["links"] == [("ana", 1, 0.0, 0), ("bo", 0, 0.5, 1)]


def test_a_first_word_holds_the_length_of_its_longest_name() -> None:
    names = (
        "boot hill",
        "boot",
        "boot hill railway",
        "boot zone",
        "blue ridge",
        "zoë",
        "railway boot",
    )
    packed = of_links(*(NameLink(name, IDS[0], 0.5, cased=False) for name in sorted(names)))
    assert packed["link_starts"] == [("blue", 2), ("boot", 3), ("railway", 2), ("zoë", 1)]


def test_without_links_there_are_no_first_words() -> None:
    packed = of_links()
    assert (packed["links"], packed["link_starts"]) == ([], [])


def test_a_snapshot_holds_the_links_of_its_graph(empty_store: Store) -> None:
    records = [*household(), memory("Atlas\nA plan."), memory("we like Atlas")]
    records = renumber(records)
    graph = to_graph(pack_inputs(records).graph)
    ids = [concept.concept_id for concept in graph.concepts]
    directory = empty_store.candidate(records)
    stored = rows(directory, "SELECT * FROM links ORDER BY name")
    assert stored == [(x.name, ids.index(x.concept_id), x.weight, x.cased) for x in graph.links]
    assert {row[0] for row in stored} >= {"ana", "atlas", "atlas migration"}
    assert ("atlas", 2) in rows(directory, "SELECT word, words FROM link_starts")


def two_conversations() -> list[MemoryRecord]:
    first = turns("s1", "Ana: hi.", "Bo: hello, Ana.", "Ana: where is it?")
    second = turns("s1", "Cy: yes.", "Cy: no.", wing="work")
    return renumber([*second, memory("Ana\nA sailor.", session_id="s1"), *reversed(first)])


@pytest.mark.parametrize("records", [household(), two_conversations(), []])
def test_a_snapshot_holds_the_sessions_of_its_memories(
    empty_store: Store, records: list[MemoryRecord]
) -> None:
    graph = to_graph(pack_inputs(records).graph)
    ordinals = {concept.concept_id: i for i, concept in enumerate(graph.concepts)}
    speakers = {m.position: ordinals[m.concept_id] for m in graph.mentions if m.role == "speaker"}
    assert len(speakers) == sum(record.is_turn for record in records)
    expected = build_sessions(records, speakers)
    directory = empty_store.candidate(records)
    for name, wanted in expected._asdict().items():
        stored = read_arrays(directory / layout.ARRAYS_FILE)[f"sessions.{name}"]
        assert stored.dtype == wanted.dtype
        assert np.array_equal(stored, wanted)
