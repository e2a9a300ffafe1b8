"""From the marks of a real palace to the graph of a night, and back when they are taken off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noctuary.core.files import write_array
from noctuary.core.store import StorePaths
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.sources.evidence import EVIDENCE_FILES
from noctuary.work.stage import StageOutput, StageResult
from noctuary_assets.graph import connect_memories, load_tables
from noctuary_assets.index import MEMORY_VECTORS
from noctuary_assets.ingest import export_memories, told_inputs
from noctuary_assets.night import GRAPH, VECTORS, Night
from tests.support.graph_objects import Graph, to_graph
from tests.support.palaces import drawer, make_palace, update_drawers

DIM = 8
ENCODER = EncoderFingerprint("m", "0" * 64, DIM, "mean", True, "", "", 64)
DRAWERS = (
    drawer("a_old", "We deploy with Jenkins."),
    drawer("b_new", "Deployments go through the runners.", filed_at="2026-05-01T00:00:00"),
    drawer("c_part", "Lunch is at noon."),
    drawer("d_sum", "What the week was like."),
)
MARKS = {
    "a_old": {"superseded_by": "b_new"},
    "c_part": {"status": "consolidated", "consolidated_into": "d_sum"},
}


def night(root: Path) -> tuple[Night, StageResult]:
    """Export, embed so that nothing is near anything, and connect."""
    night = Night(StorePaths(root / "store"), root / "palace")
    night.encoder.fingerprint = ENCODER
    export_memories(night)

    def body() -> StageOutput:
        write_array(night.work(VECTORS), np.eye(len(DRAWERS), DIM, dtype=np.float32))
        return StageOutput(len(DRAWERS), {})

    night.run(MEMORY_VECTORS, {}, body)
    return night, connect_memories(night)


def graph_files(night: Night) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in night.work(GRAPH).iterdir()}


def graph_of(night: Night) -> Graph:
    return to_graph(load_tables(night))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_palace(tmp_path / "palace", DRAWERS)
    return tmp_path


def test_a_mark_reaches_the_graph_and_leaves_it_with_the_next_night(root: Path) -> None:
    plain, first = night(root)
    unmarked = graph_files(plain)
    assert told_inputs(plain) == {}
    assert not [name for name in EVIDENCE_FILES if (plain.work("corpus") / name).exists()]
    update_drawers(root / "palace", MARKS)
    told, marked = night(root)
    graph = graph_of(told)
    assert [(s.older_position, s.newer_position) for s in graph.supersessions] == [(0, 1)]
    assert [(e.src_position, e.relation, e.dst_position) for e in graph.edges] == [
        (2, "part_of", 3)
    ]
    assert not marked.reused
    assert marked.notes["memories_extracted"] == 0, "no text was read for it"
    assert marked.notes["memories_touched"] == 2
    assert night(root)[1].reused
    none = {name: dict.fromkeys(marks) for name, marks in MARKS.items()}
    update_drawers(root / "palace", none)
    cleared, last = night(root)
    assert graph_files(cleared) == unmarked
    assert (last.digest, last.facts) == (first.digest, first.facts)


def test_nights_with_changing_marks_end_as_a_first_night(root: Path, tmp_path: Path) -> None:
    night(root)
    update_drawers(root / "palace", {**MARKS, "b_new": {"superseded_by": "d_sum"}})
    night(root)
    update_drawers(root / "palace", {"b_new": {"superseded_by": None, "supersedes": "d_sum"}})
    kept, _ = night(root)
    fresh = Path(tmp_path / "fresh")
    fresh.mkdir()
    (fresh / "palace").symlink_to(root / "palace")
    anew, _ = night(fresh)
    assert graph_files(kept) == graph_files(anew)
    assert len(graph_of(kept).supersessions) == 2
