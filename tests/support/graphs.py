"""Graphs of a few memories, made by the project's own code from nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from noctuary.core.types import MemoryRecord
from noctuary.graph.build import Built, build_graph
from noctuary.graph.extract import Extraction, extract
from noctuary.graph.state import GraphState
from noctuary.graph.tables import GraphTables
from tests.support.graph_objects import Graph, to_graph


def extract_all(records: Sequence[MemoryRecord]) -> list[Extraction]:
    """Return the extraction of every memory."""
    return [extract(r.content, r.tags, r.expanded_keywords, is_turn=r.is_turn) for r in records]


def synced_keys(records: Sequence[MemoryRecord]) -> list[str]:
    """Return an extraction key for every memory: all that `extract` reads."""
    return [repr((r.content, r.tags, r.expanded_keywords, r.is_turn)) for r in records]


def graph_built(records: Sequence[MemoryRecord]) -> Built:
    """Return what a first night builds, without vectors."""
    extractions = extract_all(records)
    with (
        tempfile.TemporaryDirectory() as directory,
        GraphState.open(Path(directory) / "graph.duckdb") as state,
    ):
        state.sync(records, synced_keys(records), lambda chosen: [extractions[p] for p in chosen])
        return build_graph(state, records)


def graph_tables(records: Sequence[MemoryRecord]) -> GraphTables:
    """Return the tables of the graph of some memories."""
    return graph_built(records).tables


def graph_of(records: Sequence[MemoryRecord]) -> Graph:
    """Return the graph of some memories as objects."""
    return to_graph(graph_tables(records))
