"""Files of other memories: the reference MCP server's graph, mem0's JSON, CSV."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from noctuary.core.errors import SourceFormatError
from noctuary.core.types import MemoryRecord
from noctuary.sources import exports
from noctuary.sources.evidence import read_evidence
from noctuary.sources.export import ExportReport
from noctuary.sources.source import KnownConcept, KnownEdge, KnownMention, open_source
from tests.support.transcripts import JSON_VALUES

Exported = Callable[[Path], tuple[ExportReport, Mapping[str, MemoryRecord]]]


def entity(name: object, kind: object, *observations: object) -> dict[str, object]:
    return {
        "type": "entity", "name": name, "entityType": kind, "observations": list(observations),
    }  # fmt: skip


def relation(source: str, target: str, kind: str) -> dict[str, object]:
    return {"type": "relation", "from": source, "to": target, "relationType": kind}


def write_graph(path: Path, *items: object, end: str = "") -> Path:
    """As saveGraph writes it: compact lines, no line end behind the last."""
    lines = [i if isinstance(i, str) else json.dumps(i, separators=(",", ":")) for i in items]
    path.write_text("\n".join(lines) + end, encoding="utf-8")
    return path


NINA = entity("Nina_Roth", "person", "Speaks fluent Spanish", "Graduated in 2019")
GLOBEX = entity("Globex", "organization", "Makes rockets")
WORKS = relation("Nina_Roth", "Globex", "works_at")


@pytest.mark.parametrize("name", ["memory.jsonl", "memory.json", "graph"])
def test_observations_are_memories_relations_are_evidence(
    tmp_path: Path, exported: Exported, name: str
) -> None:
    path = write_graph(tmp_path / name, NINA, GLOBEX, entity("Empty", "thing"), WORKS)
    before = path.read_bytes()
    report, found = exported(path)
    assert path.read_bytes() == before
    assert report.identity.kind == "mcp-memory"
    assert {record.content: record.category for record in found.values()} == {
        "Nina_Roth: Speaks fluent Spanish": "person",
        "Nina_Roth: Graduated in 2019": "person",
        "Globex: Makes rockets": "organization",
    }
    concepts = read_evidence(tmp_path / "out", KnownConcept)
    assert {(c.name, c.category) for c in concepts} == {
        ("Nina_Roth", "person"), ("Globex", "organization"),
    }  # fmt: skip
    (edge,) = read_evidence(tmp_path / "out", KnownEdge)
    assert edge[:3] == ("Nina_Roth", "Globex", "works_at")
    ninas = {key for key, record in found.items() if record.content.startswith("Nina")}
    assert set(edge.evidence) == ninas
    assert len(read_evidence(tmp_path / "out", KnownMention)) == 3


def test_an_observation_keeps_its_id_when_others_go(tmp_path: Path, exported: Exported) -> None:
    path = write_graph(tmp_path / "memory.jsonl", NINA, GLOBEX)
    _, before = exported(path)
    write_graph(path, GLOBEX, entity("Nina_Roth", "person", "Graduated in 2019"))
    _, after = exported(path)
    assert (
        after.items()
        <= {
            key: record._replace(position=after[key].position)
            for key, record in before.items()
            if key in after
        }.items()
    )
    assert len(after) == 2


@pytest.mark.parametrize(
    ("items", "quarantined", "sensitive"),
    [
        ([entity("A", "t", "x", 7, None)], {"content_not_text": 1, "missing_content": 1}, {}),
        ([{**entity("A", "t"), "observations": "x"}], {"bad_field": 1}, {}),
        ([entity(7, "t", "x")], {"bad_id": 1}, {}),
        ([entity("A", "t", "x"), '{"type":"entity","name":"B","obs'], {"half_written_line": 1}, {}),
        ([entity("A", "t", "x"), "[1]", "{", "7"], {"not_an_object": 2, "invalid_json": 1}, {}),
        ([entity("A", "t", "x", "x")], {"duplicate_id": 1}, {}),
        ([entity("A", "t", "a\0b")], {"nul_bytes": 1}, {}),
        ([entity("A", "t", "\ud800")], {"bad_unicode": 1}, {}),
        ([entity("\ud800", "\ud800", "x"), relation("\ud800", "A", "\ud800")], {"bad_id": 2}, {}),
        ([entity("A", "t", "ghp_" + "a1B2" * 9)], {}, {"secret:github_token": 1}),
        ([entity("A" * 300 + " ghp_" + "a1B2" * 9, "t", "x")], {}, {"secret:github_token": 1}),
        ([NINA, {"type": "else", "id": 7}], {"bad_field": 1}, {}),
        ([entity("A", "t", "x" * 2_000_000)], {"content_too_large": 1}, {}),
        ([NINA, '{"type":"entity","name":' + "[" * 100_000], {"half_written_line": 1}, {}),
    ],
)  # fmt: skip
def test_lines_that_are_no_graph_are_counted(
    tmp_path: Path,
    exported: Exported,
    items: list[object],
    quarantined: Mapping[str, int],
    sensitive: Mapping[str, int],
) -> None:
    report, _ = exported(write_graph(tmp_path / "memory.jsonl", *items))
    assert (report.quarantined, report.sensitive) == (quarantined, sensitive)


@pytest.mark.timeout(30)
def test_relations_without_end_take_no_more_than_their_number(tmp_path: Path) -> None:
    many = entity("A", "t", *map(str, range(20_000)))
    path = write_graph(tmp_path / "memory.jsonl", many, *[relation("A", "A", "is")] * 20_000)
    with open_source(path) as source:
        edges = list(source.told(KnownEdge))
    assert sum(len(edge.evidence) for edge in edges) <= 20 * 20_000


@given(st.lists(JSON_VALUES, max_size=5), JSON_VALUES, JSON_VALUES)
@hypothesis_settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_json_is_counted_and_never_raises(
    tmp_path: Path, exported: Exported, observations: list[Any], name: Any, kind: Any
) -> None:
    made = {**entity(name, kind), "observations": observations}
    report, _ = exported(
        write_graph(tmp_path / "memory.jsonl", NINA, made, relation("a", "b", "c"))
    )
    assert report.exported >= 2


def test_a_file_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_graph(tmp_path / "memory.jsonl", NINA)
    monkeypatch.setattr(exports, "MAX_FILE_BYTES", 20)
    with pytest.raises(SourceFormatError, match=r"has \d+ bytes, at most 20"):
        open_source(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest()
