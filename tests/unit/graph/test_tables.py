from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.core.errors import StoreError
from noctuary.graph.tables import FILES, Evidence, Merge, Supersession, read_tables, write_tables
from tests.support.graph_objects import (
    Concept,
    ConceptEdge,
    Edge,
    Graph,
    Mention,
    to_graph,
    to_tables,
)

GRAPH = Graph(
    concepts=(Concept("a" * 16, "Ann", "name", ("ANN", "ann"), 2),),
    mentions=(
        Mention(0, "a" * 16, "about", -1, -1, "Ann"),
        Mention(1, "a" * 16, "speaker", 0, 3, "Ann"),
    ),
    edges=(
        Edge(0, 1, "next_turn", 1.0, "a" * 16, 0, -1, -1, -(2**63), None, 2, None),
        Edge(1, 0, "mentions_tag", 0.25, "a" * 16, 1, 0, 3, 1, 5, 2, 6),
    ),
    concept_edges=(
        ConceptEdge(
            "a" * 16, "b" * 16, "is_a", 0.5, (Evidence(0, 0, 9), Evidence(1, -1, -1)), 1, 4, 2, 4
        ),
    ),
    merges=(Merge("annie", "ann", "rule", 1.0, "same in merges.toml"),),
    supersessions=(
        Supersession(0, 1, 1, "is_now", 2, None, 3, "", Evidence(1, 0, 4), 7, 8),
        Supersession(2, 3, 3, "near_duplicate", 1, 0.875, 9, "", Evidence(3, -1, -1), 7, 8),
    ),
)  # fmt: skip


def test_a_graph_comes_back_from_its_files_field_by_field(tmp_path: Path) -> None:
    write_tables(to_tables(GRAPH), tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == set(FILES.values())
    assert to_graph(read_tables(tmp_path)) == GRAPH


def test_equal_graphs_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tables(to_tables(GRAPH), tmp_path / name)
    for file in FILES.values():
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_an_empty_graph_has_tables_of_the_same_columns(tmp_path: Path) -> None:
    empty, full = to_tables(Graph((), (), ())), to_tables(GRAPH)
    write_tables(empty, tmp_path)
    read = read_tables(tmp_path)
    assert to_graph(read) == Graph((), (), ())
    for name in FILES:
        assert getattr(read, name).schema == getattr(full, name).schema


@pytest.mark.parametrize("file", FILES.values())
def test_a_damaged_or_missing_file_is_named(tmp_path: Path, file: str) -> None:
    write_tables(to_tables(GRAPH), tmp_path)
    (tmp_path / file).write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=file.replace(".", r"\.")):
        read_tables(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(StoreError, match="nightly job"):
        read_tables(tmp_path)


def test_tables_that_are_not_asked_for_stay_empty(tmp_path: Path) -> None:
    write_tables(to_tables(GRAPH), tmp_path)
    part = to_graph(read_tables(tmp_path, ["mentions", "concepts"]))
    assert part == Graph(GRAPH.concepts, GRAPH.mentions, ())
    assert to_graph(read_tables(tmp_path, [])) == Graph((), (), ())
