"""Export and import of real snapshots: the same bytes, the same answers, or a refusal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.cli import exchange as export_format
from noctuary.cli.exchange import KIND, ExportFormatError, export_snapshot, import_snapshot
from noctuary.core.errors import SnapshotCorruptError, SourceMissingError, StoreError
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import CorpusSettings
from noctuary.core.store import StorePaths
from noctuary.core.types import MemoryRecord
from noctuary.recall.engine import Recaller
from noctuary.snapshot.publish import CheckResult, publish_candidate, read_verdict, store_verdict
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.source import open_source
from tests.support.damage import change_array
from tests.support.store import Store, memory, new_store, renumber

QUESTIONS = ("where is the spare key", "Atlas migration", "flight to Lisbon", "door", "zzz")


def digests(directory: Path) -> dict[str, bytes]:
    return {
        p.relative_to(directory).as_posix(): p.read_bytes()
        for p in sorted(directory.rglob("*"))
        if p.is_file()
    }


def answers(store: Path) -> list[Any]:
    recaller = Recaller.open(store)
    found = [recaller.recall(question) for question in QUESTIONS]
    return [[(m.id, m.final_score, m.content) for m in result.memories] for result in found]


@pytest.fixture
def exported(dense_store: Store, tmp_path: Path) -> Path:
    export_snapshot(dense_store.paths, tmp_path / "export")
    return tmp_path / "export"


def test_a_store_comes_back_with_the_same_snapshot_and_the_same_answers(
    dense_store: Store, exported: Path, tmp_path: Path
) -> None:
    found = import_snapshot(exported, StorePaths(tmp_path / "copy"))
    copy = StorePaths(found.store)
    assert read_pointer(copy).digest == read_pointer(dense_store.paths).digest
    assert found.memories == 14
    assert found.has_encoder
    assert answers(found.store) == answers(dense_store.root)
    assert any(answers(found.store))
    verdict = read_verdict(copy, read_pointer(copy).digest)
    assert verdict is not None
    assert "no_sensitive_row_is_anywhere" in {check.name for check in verdict.checks}


def test_an_export_of_the_import_is_the_same_byte_for_byte(exported: Path, tmp_path: Path) -> None:
    found = import_snapshot(exported, StorePaths(tmp_path / "copy"))
    again = export_snapshot(StorePaths(found.store), tmp_path / "again")
    assert digests(exported) == digests(tmp_path / "again")
    assert again.memories == 14
    assert again.files == len(digests(exported))
    assert again.bytes == sum(map(len, digests(exported).values()))


words = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=30)
names = st.none() | st.sampled_from(["ana", "ben", "home", "ä/ü"])
memories = st.builds(
    memory,
    words.map(lambda text: f"Note {text}."),
    category=st.sampled_from(["fact", "decision", ""]),
    tags=words,
    importance=st.floats(0, 1),
    created_at_us=st.integers(0, 7_000_000_000_000_000) | st.just(-(2**63)),
    wing=names,
    room=names,
    user=names,
)


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(memories, min_size=1, max_size=6))
def test_whatever_is_in_it_an_export_comes_back_byte_for_byte(
    home: Path, records: list[MemoryRecord]
) -> None:
    for name in ("house", "one", "two", "copy"):
        shutil.rmtree(home / name, ignore_errors=True)
    store = new_store(home / "house")
    store.publish(renumber(records))
    export_snapshot(store.paths, home / "one")
    import_snapshot(home / "one", StorePaths(home / "copy"))
    export_snapshot(StorePaths(home / "copy"), home / "two")
    assert digests(home / "one") == digests(home / "two")
    assert read_pointer(StorePaths(home / "copy")).digest == read_pointer(store.paths).digest


def test_its_memories_are_a_source_of_the_same_memories(exported: Path, tmp_path: Path) -> None:
    with open_source(exported / export_format.MEMORIES) as source:
        assert source.identity().id_kind == "int"
        export_corpus(source, tmp_path / "corpus", CorpusSettings())
    read = read_records(tmp_path / "corpus")
    assert [(r.memory_id, r.content) for r in read] == [
        (str(line["id"]), line["content"]) for line in lines_of(exported, export_format.MEMORIES)
    ]
    assert sum(r.is_turn for r in read) == 6
    assert {r.user for r in read} == {None, "ana", "ben"}


def lines_of(export: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (export / name).read_text(encoding="utf-8").splitlines()]


def test_the_graph_s_edges_lead_to_its_nodes(exported: Path) -> None:
    nodes, edges = lines_of(exported, export_format.NODES), lines_of(exported, export_format.EDGES)
    memory_ids = {str(line["id"]) for line in lines_of(exported, export_format.MEMORIES)}
    concept_ids = {node["concept_id"] for node in nodes}
    assert {edge["kind"] for edge in edges} >= {"mention", "edge", "summary_source"}
    for edge in edges:
        for name, value in edge.items():
            if name in ("memory_id", "source_id", "target_id", "older_id", "newer_id"):
                assert value in memory_ids
            elif name.endswith("concept_id") and value is not None:
                assert value in concept_ids


def test_without_an_encoder_recalls_go_by_words(dense_store: Store, tmp_path: Path) -> None:
    found = export_snapshot(dense_store.paths, tmp_path / "export", with_encoder=False)
    assert not found.has_encoder
    made = import_snapshot(tmp_path / "export", StorePaths(tmp_path / "copy"))
    assert not made.has_encoder
    result = Recaller.open(made.store).recall("spare key")
    assert result.memories
    assert "dense_unavailable" in {warning.code for warning in result.warnings}


def test_nothing_of_this_machine_travels(dense_store: Store, exported: Path) -> None:
    serving = dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id)
    manifest = read_manifest(serving)
    everything = b"".join(digests(exported).values())
    assert str(manifest.source["location"]).encode() not in everything
    assert str(dense_store.root).encode() not in everything


def test_its_snapshot_is_the_serving_one_file_by_file(dense_store: Store, exported: Path) -> None:
    serving = dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id)
    files = {name: data for name, data in digests(serving).items() if name != "manifest.json"}
    assert digests(exported / "snapshot") == files


def test_an_import_has_no_source_that_a_recall_could_look_into(
    exported: Path, tmp_path: Path
) -> None:
    found = import_snapshot(exported, StorePaths(tmp_path / "copy"))
    manifest = read_manifest(StorePaths(found.store).snapshots / found.snapshot_id)
    assert manifest.source["kind"] == KIND


def edit_manifest(export: Path, **changes: Any) -> None:
    path = export / export_format.MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def append(name: str) -> Callable[[Path], None]:
    def change(export: Path) -> None:
        with (export / name).open("ab") as handle:
            handle.write(b" ")

    return change


def flip(name: str) -> Callable[[Path], None]:
    def change(export: Path) -> None:
        data = bytearray((export / name).read_bytes())
        data[len(data) // 2] ^= 1
        (export / name).write_bytes(data)

    return change


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a byte more": (append("memories.jsonl"), "memories.jsonl was changed"),
    "a bit": (flip("snapshot/vectors_full.npy"), "vectors_full.npy was changed"),
    "a file less": (lambda e: (e / "snapshot/rows.sqlite").unlink(), "rows.sqlite is missing"),
    "a file more": (lambda e: (e / "snapshot/x").touch(), "snapshot/x does not belong to it"),
    "no manifest": (lambda e: (e / "manifest.json").unlink(), "no readable manifest.json"),
    "half a manifest": (lambda e: (e / "manifest.json").write_text("{"), "no readable manifest"),
    "another manifest": (lambda e: edit_manifest(e, digest="0"), "manifest.json was changed"),
    "no files": (lambda e: edit_manifest(e, files=None), "is damaged"),
    "another program": (lambda e: edit_manifest(e, format="x"), "its format is 'x'"),
    "an older version": (lambda e: edit_manifest(e, format_version=2), "of version 2; this noct"),
    "a newer version": (lambda e: edit_manifest(e, format_version=4), "of version 4; this noct"),
    "a way out": (
        lambda e: edit_manifest(e, files={"../x": {"bytes": 0, "sha256": ""}}),
        "not the name of a file in an export",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_foreign_or_newer_export_is_refused_and_leaves_nothing(
    exported: Path, tmp_path: Path, damage: str
) -> None:
    change, says = DAMAGE[damage]
    change(exported)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ExportFormatError, match=says):
        import_snapshot(exported, StorePaths(tmp_path / "copy"))
    assert sorted(tmp_path.rglob("*")) == before


def resign(export: Path) -> None:
    """Make the manifest fit what the files say now, as a forger would."""
    snapshot = json.loads((export / export_format.MANIFEST).read_text())["snapshot"]
    (export / export_format.MANIFEST).unlink()
    export_format.write_export_manifest(export, snapshot)


def test_lines_that_say_something_else_than_the_tables_are_refused(
    exported: Path, tmp_path: Path
) -> None:
    path = exported / export_format.MEMORIES
    path.write_text(path.read_text().replace("blue door", "red door"))
    resign(exported)
    with pytest.raises(ExportFormatError, match="say different things"):
        import_snapshot(exported, StorePaths(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_tables_that_do_not_fit_each_other_do_not_serve(exported: Path, tmp_path: Path) -> None:
    change_array(exported / "snapshot", "mentions.ends", lambda ends: ends[:-1])
    resign(exported)
    with pytest.raises((StoreError, ExportFormatError, SnapshotCorruptError)):
        import_snapshot(exported, StorePaths(tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


def test_a_text_that_looks_sensitive_today_is_not_exported(home: Path, tmp_path: Path) -> None:
    """A rule may be newer than the snapshot."""
    store = new_store(home / "house")
    candidate = store.candidate(renumber([memory("The token is ghp_" + "a1B2" * 9)]))
    digest = read_manifest(candidate).digest
    store_verdict(store.paths, digest, [CheckResult("an_older_rule_saw_nothing", True, {})])
    publish_candidate(store.paths, digest, keep=1)
    with pytest.raises(StoreError, match=r"memories:101.* look sensitive"):
        export_snapshot(store.paths, tmp_path / "export")
    assert not list(tmp_path.glob("*export*"))


def test_neither_replaces_what_is_there(exported: Path, dense_store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is not an empty directory"):
        export_snapshot(dense_store.paths, exported)
    with pytest.raises(StoreError, match="import makes a new store"):
        import_snapshot(exported, dense_store.paths)
    (tmp_path / "empty").mkdir()
    import_snapshot(exported, StorePaths(tmp_path / "empty"))


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="no export at"):
        import_snapshot(tmp_path / "nowhere", StorePaths(tmp_path / "copy"))


def test_an_export_is_readable_by_its_owner_only(exported: Path) -> None:
    assert exported.stat().st_mode & 0o077 == 0
