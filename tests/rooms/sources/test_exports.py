"""Files of other memories: the reference MCP server's graph, mem0's JSON, CSV."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from noctuary.core.errors import SourceFormatError, SourceMissingError
from noctuary.core.settings import Settings
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.sources import exports
from noctuary.sources.evidence import read_evidence
from noctuary.sources.export import ExportReport
from noctuary.sources.open import open_source, read_marker
from noctuary.sources.source import KnownConcept, KnownEdge, KnownMention
from noctuary.sources.turns import hash_bytes
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


def dated(made: dict[str, object], **more: object) -> dict[str, object]:
    """As forks of the server write it: their own keys first, type anywhere."""
    return {**more, **dict(sorted(made.items(), reverse=True))}


OLDER, NEWER = entity("Kiosk", "place", "Opens at six"), entity("Kiosk", "place", "Opens at eight")
DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("items", "expected", "warnings"),
    [
        ([dated(OLDER), dated(WORKS)], {"Opens at six": (None, None)}, {}),
        ([dated(OLDER, createdAt="1970-01-02T00:00:00.000Z", version=1),
          dated(NEWER, createdAt="1970-01-03T00:00:00Z", version=2)],
         {"Opens at six": (1, None), "Opens at eight": (2, None)}, {}),
        ([dated(OLDER, createdAt="1970-01-02", lastModified="1970-01-04")],
         {"Opens at six": (1, 3)}, {}),
        ([dated(OLDER, createdAt=864_000_000_000, updatedAt=950_400_000_000)],
         {"Opens at six": (10_000, 11_000)}, {}),
        ([dated(OLDER, createdAt="soon", updatedAt="later")],
         {"Opens at six": (None, None)}, {"bad_date": 1, "updated_at_unusable": 1}),
        ([dated(entity("Kiosk", "place", {"content": "Opens at six", "durability": "long-term",
                                          "timestamp": "1970-01-02T00:00:00Z"}, "Sells nails"),
                createdAt="1970-01-05")],
         {"Opens at six": (1, None), "Sells nails": (4, None)}, {}),
        ([{"type": "_aim", "source": "mcp-knowledge-graph"}, OLDER],
         {"Opens at six": (None, None)}, {}),
        ([json.dumps(OLDER) + json.dumps(NEWER) + " " + json.dumps(WORKS)],
         {"Opens at six": (None, None), "Opens at eight": (None, None)}, {}),
        ([json.dumps([OLDER, NEWER])],
         {"Opens at six": (None, None), "Opens at eight": (None, None)}, {}),
        (["\ufeff" + json.dumps(dated(OLDER)), "", ""], {"Opens at six": (None, None)}, {}),
        ([dated(OLDER, big=["x" * 400_000])], {"Opens at six": (None, None)}, {}),
    ],
    ids=range(11),
)  # fmt: skip
def test_what_forks_of_the_server_write_is_read_and_dated(
    tmp_path: Path,
    exported: Exported,
    items: list[object],
    expected: Mapping[str, tuple[int | None, int | None]],
    warnings: Mapping[str, int],
) -> None:
    report, found = exported(write_graph(tmp_path / "memory.jsonl", *items))
    days = {
        record.content.removeprefix("Kiosk: "): tuple(
            None if at_us == UNDATED_US else at_us // DAY_US
            for at_us in (record.created_at_us, record.updated_at_us)
        )
        for record in found.values()
    }
    assert days == expected
    assert (report.quarantined, report.warnings) == ({}, warnings)


def test_what_the_server_answers_is_read_too(tmp_path: Path, exported: Exported) -> None:
    untyped = [{k: v for k, v in item.items() if k != "type"} for item in (NINA, GLOBEX, WORKS)]
    graph = {"entities": untyped[:2], "relations": untyped[2:]}
    (tmp_path / "graph.json").write_text(json.dumps(graph, indent=2))
    _, found = exported(tmp_path / "graph.json")
    assert len(found) == 3
    assert len(read_evidence(tmp_path / "out", KnownEdge)) == 1


def test_the_servers_own_twins_are_one_entity_each_text_once(
    tmp_path: Path, exported: Exported
) -> None:
    twin = entity("Globex", "town", "Lies at the sea", "Makes rockets")
    report, found = exported(write_graph(tmp_path / "memory.jsonl", GLOBEX, twin, WORKS))
    assert {record.content for record in found.values()} == {
        "Globex: Makes rockets", "Globex: Lies at the sea",
    }  # fmt: skip
    assert report.quarantined == {"duplicate_id": 1}
    mentions = [m.memory_id for m in read_evidence(tmp_path / "out", KnownMention)]
    assert sorted(mentions) == sorted(found)


@pytest.mark.parametrize(
    "line", ['{"id": 1, "content": "a", "said": {"type": "entity", "observations": []}}', "{}", ""]
)
def test_other_json_lines_are_no_graph(tmp_path: Path, line: str) -> None:
    path = tmp_path / "memory.jsonl"
    path.write_text(line)
    assert not exports.is_memory_graph(path)


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


def mem0(**fields: object) -> dict[str, object]:
    """Return a memory as get_all() returns it (MemoryItem and its promoted keys)."""
    return {
        "id": "892db2ae-06d9-49e5-8b3e-585ef9b85b8e",
        "memory": "Dev works at TechCorp as a senior engineer",
        "hash": "b1a2",
        "metadata": None,
        "created_at": "2026-03-01T00:00:00.000000-08:00",
        "updated_at": None,
        "user_id": "dev",
        **fields,
    }


@pytest.mark.parametrize("shape", ["list", "results", "pages"])
def test_mem0s_memories_are_read(tmp_path: Path, exported: Exported, shape: str) -> None:
    items = [
        mem0(run_id="r1", agent_id="coder", categories=["work"], metadata={"category": "job"}),
        mem0(id="b", user_id=None, memory="Shared"),
    ]
    shapes = {
        "list": items,
        "results": {"results": items, "relations": []},
        "pages": {"count": 2, "next": None, "previous": None, "results": items},
    }
    path = tmp_path / "mem0.json"
    path.write_text(json.dumps(shapes[shape]))
    report, found = exported(path)
    assert report.identity.kind == "mem0-json"
    dev = found["892db2ae-06d9-49e5-8b3e-585ef9b85b8e"]
    assert (dev.user, dev.session_id, dev.wing) == ("dev", "r1", "coder")
    assert (dev.tags, dev.category, dev.created_at_us) == ("work", "job", 1_772_352_000_000_000)
    assert (found["b"].user, found["b"].category) == (None, "fact")


@pytest.mark.parametrize(
    ("item", "quarantined", "sensitive"),
    [
        (mem0(id=None), {"bad_id": 1}, {}),
        (mem0(memory=None), {"missing_content": 1}, {}),
        (mem0(memory={"a": 1}), {"content_not_text": 1}, {}),
        (mem0(created_at=7), {"bad_date": 1}, {}),
        (mem0(user_id={"a": 1}), {"bad_field": 1}, {}),
        (mem0(metadata={"deep": [{"token": "ghp_" + "a1B2" * 9}]}), {}, {"secret:github_token": 1}),
        (7, {"bad_id": 1}, {}),
    ],
    ids=range(7),
)
def test_mem0_items_that_are_no_memories_are_counted(
    tmp_path: Path,
    exported: Exported,
    item: object,
    quarantined: Mapping[str, int],
    sensitive: Mapping[str, int],
) -> None:
    (tmp_path / "m.json").write_text(json.dumps([mem0(id="whole"), item]))
    report, _ = exported(tmp_path / "m.json")
    assert (report.quarantined, report.sensitive) == (quarantined, sensitive)


@pytest.mark.parametrize(
    ("fields", "quarantined", "sensitive", "warnings"),
    [
        ({"expiration_date": "2020-01-01"}, {"expired": 1}, {}, {}),
        ({"expiration_date": "2020-01-01T10:00:00Z"}, {"expired": 1}, {}, {}),
        ({"metadata": {"expiration_date": "2020-01-01"}}, {"expired": 1}, {}, {}),
        ({"expiration_date": "2199-01-01"}, {}, {}, {}),
        ({"expiration_date": None}, {}, {}, {}),
        ({"expiration_date": "soon"}, {}, {}, {"expiration_date_unusable": 1}),
        ({"metadata": {"is_sensitive": True}}, {}, {"flagged": 1}, {}),
        ({"metadata": {"is_sensitive": "true"}}, {}, {"flagged": 1}, {}),
        ({"metadata": {"sensitive": 1}}, {}, {"flagged": 1}, {}),
        ({"is_sensitive": "yes"}, {}, {"flagged": 1}, {}),
        ({"is_sensitive": 1, "expiration_date": "2020-01-01"}, {}, {"flagged": 1}, {}),
        ({"is_sensitive": False, "metadata": {"is_sensitive": "false"}}, {}, {}, {}),
        ({"metadata": ["odd"]}, {}, {}, {}),
    ],
    ids=range(13),
)
def test_mem0s_memories_that_are_over_or_marked_do_not_come_back(
    tmp_path: Path,
    exported: Exported,
    fields: dict[str, object],
    quarantined: Mapping[str, int],
    sensitive: Mapping[str, int],
    warnings: Mapping[str, int],
) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps({"results": [mem0(id="a", **fields), mem0(id="whole")]}))
    report, found = exported(path)
    assert (report.quarantined, report.sensitive) == (quarantined, sensitive)
    assert report.warnings == warnings
    assert ("a" in found) == (not quarantined and not sensitive)


def test_the_day_on_which_a_memory_is_over_is_another_state_of_its_file(
    tmp_path: Path, exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps([mem0(id="a", expiration_date="2026-02-10"), mem0(id="b")]))
    seen = list[tuple[object, ...]]()
    for today in ("2026-02-09", "2026-02-10", "2026-02-11", "2026-02-12"):
        monkeypatch.setattr(exports, "_today", lambda today=today: today)
        _, found = exported(path)
        seen.append((read_marker(path, Settings()), hash_bytes(path, tmp_path), "a" in found))
    assert seen[0] == seen[1], "the last day counts whole, as in mem0"
    assert seen[2] == seen[3]
    assert not set(seen[1]) & set(seen[2])


@pytest.mark.parametrize(
    ("count", "around", "warnings"),
    [
        (20, None, {"mem0_get_all_default"}),
        (20, {"results": ...}, {"mem0_get_all_default"}),
        (20, {"results": ..., "count": 20, "next": None}, set[str]()),
        (20, {"results": ..., "count": 25, "next": None}, {"mem0_one_page"}),
        (2, {"results": ..., "count": 25}, {"mem0_one_page"}),
        (2, {"results": ..., "next": "https://api.example.org/?page=2"}, {"mem0_one_page"}),
        (2, {"results": ..., "previous": "https://api.example.org/?page=1"}, {"mem0_one_page"}),
        (2, {"results": ..., "count": "many"}, set[str]()),
        (2, {"results": ..., "relations": []}, set[str]()),
        (19, None, set[str]()),
        (21, None, set[str]()),
    ],
)
def test_an_export_of_mem0_that_may_be_a_part_says_so(
    tmp_path: Path,
    exported: Exported,
    count: int,
    around: dict[str, object] | None,
    warnings: set[str],
) -> None:
    items = [mem0(id=f"m{n}", memory=f"fact {n}") for n in range(count)]
    value = items if around is None else {**around, "results": items}
    (tmp_path / "m.json").write_text(json.dumps(value))
    report, found = exported(tmp_path / "m.json")
    assert (len(found), report.warnings.keys()) == (count, warnings)


def test_all_pages_of_mem0_in_one_list_are_the_whole(tmp_path: Path, exported: Exported) -> None:
    pages = [
        {"count": 3, "next": "page 2", "previous": None, "results": [mem0(id="a"), mem0(id="b")]},
        {"count": 3, "next": None, "previous": "page 1", "results": [mem0(id="c")]},
    ]
    (tmp_path / "m.json").write_text(json.dumps(pages))
    report, found = exported(tmp_path / "m.json")
    assert (found.keys(), report.warnings) == ({"a", "b", "c"}, {})
    (tmp_path / "m.json").write_text(json.dumps([pages[0], {**pages[1], "results": []}]))
    report, _ = exported(tmp_path / "m.json")
    assert report.warnings == {"mem0_one_page": 1}


GERMAN = 'Nr;Titel;Text;Am;Thema\n7;Heizung;"Der Kessel;\nist neu.";03.02.2026;haus\n'
MAPPING = """
id = "Nr"
content = ["Titel", "Text"]
created_at = "Am"
tags = "Thema"
delimiter = ";"
date_format = "%d.%m.%Y"
"""


@pytest.mark.parametrize(
    ("name", "data", "mapping", "expected"),
    [
        (
            "a.csv",
            "id,content,importance,wing,extra\nk,Spare key,0.9,house,x\n",
            None,
            {"k": {"content": "Spare key", "importance": 0.9, "wing": "house"}},
        ),
        (
            "a.csv",
            GERMAN,
            MAPPING,
            {
                "7": {
                    "content": "Heizung\nDer Kessel;\nist neu.",
                    "created_at_us": 1_770_076_800_000_000,
                    "tags": "haus",
                }
            },
        ),
        ("a.tsv", "content\troom\nSpare key\tpantry\n", None, {"": {"room": "pantry"}}),
        ("a.csv", "\ufeffcontent,id\r\nSpare key,k\r\n", None, {"k": {"importance": 0.5}}),
    ],
)
def test_csv_is_read_by_its_header_or_by_a_mapping(
    tmp_path: Path,
    exported: Exported,
    name: str,
    data: str,
    mapping: str | None,
    expected: Mapping[str, dict[str, Any]],
) -> None:
    (tmp_path / name).write_bytes(data.encode())
    if mapping is not None:
        (tmp_path / f"{name}.toml").write_text(mapping)
    report, found = exported(tmp_path / name)
    assert report.identity.kind == "csv"
    for key, values in expected.items():
        record = found[key or next(iter(found))]
        assert {n: getattr(record, n) for n in values} == values


@pytest.mark.parametrize(
    ("data", "quarantined", "sensitive"),
    [
        (b"id,content\n1,a\n1,b\n", {"duplicate_id": 1}, {}),
        (b"id,content\n1\n2,\n3,a,b,c\n", {"missing_content": 2}, {}),
        (b"id,content\n1,half \xc3\n", {"bad_unicode": 1}, {}),
        (b"id,content\n1,a\0b\n", {"nul_bytes": 1}, {}),
        (b"id,content,created_at\n1,a,soon\n", {"bad_date": 1}, {}),
        (b"id,content,importance\n1,a,high\n2,a,nan\n3,a,\n", {"bad_importance": 2}, {}),
        (b"id,content,x\n1,a,ghp_" + b"a1B2" * 9 + b"\n", {}, {"secret:github_token": 1}),
        (b"id,content\n1," + b"a" * 2_000_000 + b"\n", {"content_too_large": 1}, {}),
        (b"id,content\n", {}, {}),
    ],
    ids=range(9),
)
def test_csv_rows_that_are_no_memories_are_counted(
    tmp_path: Path,
    exported: Exported,
    data: bytes,
    quarantined: Mapping[str, int],
    sensitive: Mapping[str, int],
) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    report, _ = exported(tmp_path / "a.csv")
    assert (report.quarantined, report.sensitive) == (quarantined, sensitive)


def test_another_mapping_is_another_state(tmp_path: Path) -> None:
    path, beside = tmp_path / "a.csv", tmp_path / "a.csv.toml"
    path.write_text("content,id\nx,1\n")
    seen = {(read_marker(path, Settings()), hash_bytes(path, tmp_path))}
    for text in ('content = "id"', 'content = "content"'):
        beside.write_text(text)
        seen.add((read_marker(path, Settings()), hash_bytes(path, tmp_path)))
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.csv", b"Title,Text\na,b\n", r"a column for the text; found Title, Text.*a\.csv\.toml"),
        ("a.csv", b"", "a column for the text; found none"),
        ("a.csv", b'content\n"never ended\nx\n', "cannot be read as CSV.*quotes"),
        ("a.csv+content = 7", b"content\nx\n", "does not have the column '7'"),
        ("a.csv+Content = 'x'", b"content\nx\n", "names Content; known are id, content"),
        ("a.csv+content", b"content\nx\n", "is not valid TOML"),
        ("a.csv+delimiter = ';;'", b"content\nx\n", "cannot be read as CSV.*delimiter"),
        ("a.csv+date_format = '%Q'", b"content\nx\n", r"a\.csv\.toml: date_format '%Q' cannot"),
        ("a.csv+date_format = '%'", b"content\nx\n", "date_format '%' cannot be used"),
        ("a.csv+date_format = '%Y-%m-%d %Y'", b"content\nx\n", "cannot be used"),
        ("a.csv+date_format = '%d.%m.'", b"content\nx\n", "must contain year, month and day"),
        ("a.csv+date_format = 7", b"content\nx\n", "date_format 7 cannot.*strptime"),
        ("a.csv+date_format = ['%Y']", b"content\nx\n", "cannot be used"),
        ("a.json", b'[{"conversations_memory": "x"}]', "what Claude remembered.*as Markdown"),
        ("a.json", b'[{"uuid": "p", "prompt_template": "x", "docs": []}]', "projects of a Claude"),
        ("a.json", b"{", "not whole JSON"),
        ("a.json", b'{"full_name": "Dev"}', r"not an export that noctuary knows.*get_all\(\)"),
        ("a.json", b"[" * 5_000, "not whole JSON"),
        ("mail.mbox", b"From x", "looks like a mailbox"),
        ("notion.zip", b"PK\x03\x04", "looks like a ZIP archive: unpack it"),
        ("notes.enex", b"<x>", "looks like an Evernote export"),
        ("notes.bin", b"\x00\x01", "not a database and not JSON lines"),
    ],
)
def test_what_is_refused_says_what_would_read_it(
    tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    name, _, mapping = name.partition("+")
    (tmp_path / name).write_bytes(data)
    if mapping:
        (tmp_path / f"{name}.toml").write_text(mapping)
    with pytest.raises(SourceFormatError, match=said):
        open_source(tmp_path / name)


@pytest.mark.parametrize(
    ("table", "said"), [("history", "mem0's history"), ("points", "local Qdrant collection")]
)
def test_databases_of_mem0_are_refused(tmp_path: Path, table: str, said: str) -> None:
    with closing(sqlite3.connect(tmp_path / "x.db")) as db:
        db.execute(f"CREATE TABLE {table} (id TEXT)")
    with pytest.raises(SourceFormatError, match=said):
        open_source(tmp_path / "x.db")
    (tmp_path / "qdrant/collection").mkdir(parents=True)
    (tmp_path / "qdrant/meta.json").write_text("{}")
    with pytest.raises(SourceMissingError, match="local Qdrant collection"):
        open_source(tmp_path / "qdrant")
