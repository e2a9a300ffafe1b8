"""The stage of the graph: what it reads, what it takes over from last night, what it drops."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from noctuary.core.errors import ConfigError
from noctuary.core.files import write_array
from noctuary.core.store import StorePaths
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.work.stage import StageOutput, StageResult
from noctuary_assets.graph import connect_memories, linked_pairs, load_tables
from noctuary_assets.index import MEMORY_VECTORS
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import GRAPH_STATE, VECTORS, Night
from tests.support.graph_objects import to_graph

DIM = 8
ENCODER = EncoderFingerprint("m", "0" * 64, DIM, "mean", True, "", "", 64)
TEXTS = (
    "Blue Ridge\nA line of hills.",
    "we saw Blue Ridge in the fog",
    "Dana Whitfield works at Globex.",
    "Dana Whitfield works at Initech.",
    "Kubernetes\nRuns the pods.",
    "K8s: the cluster",
)


class Source:
    """A store, its source, and nights on them."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self._file = root / "memories.jsonl"
        self.paths = StorePaths(root / "store")

    def night(self, texts: Sequence[str]) -> tuple[Night, StageResult]:
        """Export, embed and connect."""
        rows = [
            {"id": n, "content": text, "created_at": f"2026-01-{n + 1:02}T00:00:00Z"}
            for n, text in enumerate(texts)
        ]
        self._file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        night = Night(self.paths, self._file)
        night.encoder.fingerprint = ENCODER
        export_memories(night)
        _embed(night, texts)
        return night, connect_memories(night)


def _embed(night: Night, texts: Sequence[str]) -> None:
    def body() -> StageOutput:
        # Nothing is near anything else.
        write_array(night.work(VECTORS), np.eye(len(texts), DIM, dtype=np.float32))
        return StageOutput(len(texts), {})

    night.run(MEMORY_VECTORS, {"texts": list(texts)}, body)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def test_the_second_night_takes_everything_over(source: Source) -> None:
    _, first = source.night(TEXTS)
    state = source.paths.work / GRAPH_STATE
    written = state.stat().st_mtime_ns
    _, second = source.night(TEXTS)
    assert (first.reused, second.reused) == (False, True)
    assert first.notes["memories_extracted"] == len(TEXTS)
    assert second.notes == {}
    assert state.stat().st_mtime_ns == written
    assert (second.digest, second.facts) == (first.digest, first.facts)


def test_a_night_after_an_edit_reads_one_memory_and_gives_the_graph_of_a_first_night(
    source: Source, tmp_path: Path
) -> None:
    source.night(TEXTS)
    edited = (*TEXTS[:1], "we saw Kubernetes there", *TEXTS[2:])
    night, result = source.night(edited)
    assert (result.notes["memories_extracted"], result.notes["memories_touched"]) == (1, 1)
    rebuilt, other = Source(tmp_path / "other").night(edited)
    assert to_graph(load_tables(night)) == to_graph(load_tables(rebuilt))
    assert result.digest == other.digest
    assert (1, 4) in linked_pairs(night)


def test_a_newer_value_ends_the_older_one(source: Source) -> None:
    night, result = source.night(TEXTS)
    graph = to_graph(load_tables(night))
    assert [(s.older_position, s.head_position) for s in graph.supersessions] == [(2, 3)]
    ends = {e.evidence[0].position: e.valid_to_us is None for e in graph.concept_edges}
    assert (ends[2], ends[3]) == (False, True)
    assert result.facts["closed_concept_edges"] == 1
    assert result.facts["supersessions_by_reason"] == {"newer_value": 1}


def test_a_rule_file_makes_one_concept_of_two_and_is_read_again_when_it_changes(
    source: Source,
) -> None:
    _, first = source.night(TEXTS)
    source.paths.merges.write_text('same = [["K8s", "Kubernetes"]]\n')
    night, second = source.night(TEXTS)
    assert (second.reused, second.facts["merges_by_reason"]["rule"]) == (False, 1)
    assert second.notes["memories_touched"] == 0
    concepts = to_graph(load_tables(night)).concepts
    assert {"K8s", "Kubernetes"} in [{c.canonical_name, *c.aliases} for c in concepts]
    source.paths.merges.unlink()
    assert source.night(TEXTS)[1].digest == first.digest


def test_a_rule_file_that_cannot_be_read_stops_the_night_by_name(source: Source) -> None:
    source.paths.root.mkdir(parents=True, exist_ok=True)
    source.paths.merges.write_text("same = 3\n")
    with pytest.raises(ConfigError, match=r"merges\.toml"):
        source.night(TEXTS)


def test_a_lost_state_is_only_a_slower_night(source: Source) -> None:
    _, first = source.night(TEXTS)
    (source.paths.work / GRAPH_STATE).unlink()
    assert source.night(TEXTS)[1].reused
    _, again = source.night((*TEXTS, "one more"))
    assert again.notes["memories_touched"] == len(TEXTS) + 1
    assert again.notes["memories_extracted"] == 1
    assert first.rows == again.rows
