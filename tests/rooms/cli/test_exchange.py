"""Export and import of real snapshots: the same bytes, the same answers, or a refusal."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.cli import exchange as export_format
from noctuary.cli.exchange import KIND, ExportFormatError, export_snapshot, import_snapshot
from noctuary.core.errors import NoctuaryError, SnapshotCorruptError, SourceMissingError, StoreError
from noctuary.core.files import hash_file
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import CorpusSettings, Settings
from noctuary.core.store import ARRAYS_FILE, RANKING_FILE, VECTORS_FILE, StorePaths
from noctuary.core.types import MemoryRecord
from noctuary.embed.hosted import HOSTED_FILE
from noctuary.embed.lean import HEADER_FILE
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
    serving = dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id)
    files = {name: data for name, data in digests(serving).items() if name != "manifest.json"}
    assert digests(exported / "snapshot") == files
    assert exported.stat().st_mode & 0o077 == 0
    # It has no source that a recall could look into.
    assert read_manifest(copy.snapshots / found.snapshot_id).source["kind"] == KIND
    again = export_snapshot(copy, tmp_path / "again")
    assert digests(exported) == digests(tmp_path / "again")
    assert (again.memories, again.files) == (14, len(digests(exported)))
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


def lines_of(export: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (export / name).read_text(encoding="utf-8").splitlines()]


def test_its_memories_are_a_source_and_the_graph_s_edges_lead_to_its_nodes(
    exported: Path, tmp_path: Path
) -> None:
    with open_source(exported / export_format.MEMORIES) as source:
        assert source.identity().id_kind == "int"
        export_corpus(source, tmp_path / "corpus", CorpusSettings())
    read = [(r.memory_id, r.content) for r in read_records(tmp_path / "corpus")]
    lines = lines_of(exported, export_format.MEMORIES)
    assert read == [(str(line["id"]), line["content"]) for line in lines]
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
    with pytest.raises(SourceMissingError, match="no export at"):
        import_snapshot(tmp_path / "nowhere", StorePaths(tmp_path / "copy"))
    (tmp_path / "empty").mkdir()
    import_snapshot(exported, StorePaths(tmp_path / "empty"))


def manifest_of(export: Path) -> dict[str, Any]:
    return json.loads((export / export_format.MANIFEST).read_text())


def sign(export: Path, body: dict[str, Any], *, relist: bool = True) -> None:
    """Write a manifest whose every checksum is right."""
    if relist:
        body["files"] = {
            p.relative_to(export).as_posix(): {"bytes": p.stat().st_size, "sha256": hash_file(p)}
            for p in sorted(export.rglob("*"))
            if p != export / export_format.MANIFEST and p.is_file()
        }
    digest = export_format._digest  # pyright: ignore[reportPrivateUsage]
    body["digest"] = digest(body["files"], body["snapshot"])
    (export / export_format.MANIFEST).write_text(json.dumps(body))


def says(**changes: Any) -> Callable[[Path], None]:
    """Return what changes the snapshot's part of a manifest."""

    def change(export: Path) -> None:
        body = manifest_of(export)
        body["snapshot"].update(changes)
        sign(export, body)

    return change


def holds(name: str, content: Any) -> Callable[[Path], None]:
    """Return what puts a file into an export."""

    def change(export: Path) -> None:
        (export / name).parent.mkdir(exist_ok=True)
        (export / name).write_text(content if isinstance(content, str) else json.dumps(content))
        sign(export, manifest_of(export))

    return change


def lists(name: str) -> Callable[[Path], None]:
    """Return what lists a file by a name that leads elsewhere."""

    def change(export: Path) -> None:
        body = manifest_of(export)
        body["files"][name] = body["files"][export_format.MEMORIES]
        sign(export, body, relist=False)

    return change


def links(name: str, target: str) -> Callable[[Path], None]:
    def change(export: Path) -> None:
        path = export / name
        if path.is_dir():
            shutil.move(path, export.parent / "elsewhere")
            path.symlink_to(export.parent / "elsewhere")
        else:
            path.unlink()
            path.symlink_to(target)

    return change


def runs(*statements: str) -> Callable[[Path], None]:
    """Return what changes the export's database with SQL."""

    def change(export: Path) -> None:
        with closing(sqlite3.connect(export / "snapshot" / "rows.sqlite")) as db:
            for statement in statements:
                db.execute(statement)
            db.commit()
        sign(export, manifest_of(export))

    return change


def rewrites(name: str, edit: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Return what changes the bytes of a file of the snapshot."""

    def change(export: Path) -> None:
        path = export / "snapshot" / name
        data = edit(path.read_bytes())
        assert data != path.read_bytes()
        path.write_bytes(data)
        sign(export, manifest_of(export))

    return change


def pipe(export: Path) -> None:
    (export / export_format.MANIFEST).unlink()
    os.mkfifo(export / export_format.MANIFEST)


def edited_encoder(export: Path) -> None:
    path = export / "encoder" / HEADER_FILE
    holds(f"encoder/{HEADER_FILE}", {**json.loads(path.read_text()), "url": "x"})(export)


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "an absolute encoder": (says(encoder_digest="/tmp/x"), "under encoder_digest"),
    "an encoder above": (says(encoder_digest="../../x"), "under encoder_digest"),
    "another encoder's name": (says(encoder_digest="0" * 16), "under encoder_digest"),
    "ids of another kind": (says(id_kind="float"), "under id_kind"),
    "no ids": (says(id_kind=None), "under id_kind"),
    "a number less": (says(counts={"memories": 13}), "its manifest says|cannot be made"),
    "a number that is none": (says(counts={"memories": True}), "under counts"),
    "another corpus": (says(corpus_digest="0" * 64), "do not match the manifest"),
    "an unknown word": (says(url="http://127.0.0.1"), "says url, which this noctuary"),
    "an unknown setting": (says(settings={"encoder": {"hook": "x"}}), "under settings"),
    "a setting of another type": (says(settings={"encoder": {"url": 5}}), "under settings"),
    "no moment": (says(built_at="yesterday"), "under built_at"),
    "a warning that is none": (says(warnings=["x"]), "under warnings"),
    "a flag": (
        holds(f"snapshot/{RANKING_FILE}", {"adopted": {"reranker": "/tmp/model"}}),
        "ranking.json of the export sets reranker",
    ),
    "an unknown field": (
        holds(f"snapshot/{RANKING_FILE}", {"adopted": {}, "hook": "x"}), "sets hook, which no night"
    ),
    "an unknown signal": (
        holds("snapshot/abstention.json", {"signals": {"x": {"threshold": 0.5}}}), "sets x, which"
    ),
    "depth": (holds("snapshot/abstention.json", "[" * 100_000), "cannot be made a snapshot"),
    "an encoder that says more": (edited_encoder, "is not the one that its manifest names"),
    "an encoder without weights": (holds("encoder/weights.bin", ""), "encoder in .* is damaged"),
    "no database": (holds("snapshot/rows.sqlite", "x" * 9999), "cannot be made a snapshot"),
    "a trigger": (
        runs("CREATE TRIGGER x AFTER INSERT ON meta BEGIN DELETE FROM meta; END"),
        "tables of the export are not this",
    ),
    "a view": (
        runs("ALTER TABLE links RENAME TO l", "CREATE VIEW links AS SELECT * FROM l"),
        "tables of the export are not this",
    ),
    "another table": (runs("CREATE TABLE x (y)"), "tables of the export are not this"),
    "a number of bytes": (
        runs("UPDATE memories SET importance = x'00'"), r"snapshot of \(TypeError"
    ),
    "text that is none": (
        runs("UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE key = 'relations'"),
        "cannot be made a snapshot",
    ),
    "a database cut short": (
        rewrites("rows.sqlite", lambda data: data[: 4096 * 3]), "cannot be made a snapshot"
    ),
    "a schema that lies": (
        runs(
            "PRAGMA writable_schema = 1",
            "UPDATE sqlite_master SET rootpage = 2 WHERE name = 'clusters'",
        ),
        "cannot be made a snapshot",
    ),
    "an array of objects": (
        rewrites(VECTORS_FILE, lambda data: data.replace(b"'<f4'", b"'|O' ")),
        r"snapshot of \(TypeError",
    ),
    "vectors cut short": (rewrites(VECTORS_FILE, lambda data: data[:-4]), r"of \(TypeError"),
    "vectors and more": (rewrites(VECTORS_FILE, lambda data: data + b"x"), r"of \(TypeError"),
    "arrays of another type": (
        rewrites(ARRAYS_FILE, lambda data: data.replace(b'"F32"', b'"BF1"')), r"of \(KeyError"
    ),
    "arrays cut short": (rewrites(ARRAYS_FILE, lambda data: data[:-4]), r"of \(ValueError"),
    "arrays and more": (rewrites(ARRAYS_FILE, lambda data: data + b"x"), r"of \(ValueError"),
    "a header without end": (
        rewrites(ARRAYS_FILE, lambda data: b"\xff" * 8 + data[8:]), r"of \(ValueError"
    ),
    "no arrays": (rewrites(ARRAYS_FILE, lambda _: b"x"), "cannot be made a snapshot"),
    "an array in its own file": (holds("snapshot/importance.npy", "x"), "not the name of a file"),
    "a provider": (holds(f"encoder/{HOSTED_FILE}", {"model": {}}), "not the name of a file"),
    "a journal": (holds("snapshot/rows.sqlite-journal", "x"), "not the name of a file"),
    "a manifest": (holds("snapshot/manifest.json", "{}"), "not the name of a file"),
    "a way up": (lists("encoder/../../../x"), "not the name of a file"),
    "a root": (lists("/etc/passwd"), "not the name of a file"),
    "a dot": (lists("encoder/."), "not the name of a file"),
    "a linked file": (links("memories.jsonl", "/etc/hostname"), "memories.jsonl is missing"),
    "a linked folder": (links("snapshot", ""), "snapshot/.* is missing"),
    "a linked manifest": (links("manifest.json", "/etc/hostname"), "no readable manifest"),
    "a pipe": (pipe, "no readable manifest"),
}  # fmt: skip


def tree(root: Path) -> dict[str, Any]:
    return {
        str(p.relative_to(root)): (
            p.lstat().st_mode, p.read_bytes() if p.is_file() and not p.is_symlink() else None
        )
        for p in sorted(root.rglob("*"))
    }  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_export_is_refused_in_a_sentence_and_leaves_nothing(
    exported: Path, tmp_path: Path, name: str
) -> None:
    change, sentence = HOSTILE[name]
    change(exported)
    before = tree(tmp_path)
    with pytest.raises((ExportFormatError, StoreError), match=sentence) as raised:
        import_snapshot(exported, StorePaths(tmp_path / "new" / "deep" / "copy"))
    assert "\n" not in str(raised.value)
    assert tree(tmp_path) == before


TRAVELS = {
    "compaction.llm_model", "compaction.summarizer", "encoder.model", "encoder.provider",
    "evaluation.on_drop", "graph.extractor", "graph.llm_model",
    "hook.scope", "recall.fusion", "recall.profile", "runner.kind",
    "schedule.cron", "schedule.timezone",
}  # fmt: skip
"""What says how, not where and who. Any other text stays home: add to this after some thought."""


@pytest.mark.parametrize("said", ["some text", "/srv/models/mine", "~/model", "./model"])
def test_of_settings_that_are_texts_only_known_ones_travel_and_no_place(said: str) -> None:
    texts = {
        section: {key: said for key, default in values.items() if isinstance(default, str)}
        for section, values in Settings().to_json().items()
    }
    kept = {
        f"{section}.{key}"
        for section, values in export_format.without_places(texts).items()
        for key, value in values.items()
        if value
    }
    assert kept == (TRAVELS if said == "some text" else set())


def test_nobody_else_may_enter_what_an_import_is_building(exported: Path, tmp_path: Path) -> None:
    modes: list[int] = []

    class Looks:
        def update(self, task: str, done: int, total: int) -> None:
            modes.extend(p.stat().st_mode & 0o77 for p in tmp_path.glob(".copy.building-*"))

    before = os.umask(0)
    try:
        import_snapshot(exported, StorePaths(tmp_path / "copy"), Looks())
    finally:
        os.umask(before)
    assert modes
    assert not any(modes)


def test_an_imported_store_names_no_address_and_no_variable(exported: Path, tmp_path: Path) -> None:
    """A made-up export may still say where somebody's provider is asked."""
    body = manifest_of(exported)
    body["snapshot"]["settings"] = {
        "encoder": {"url": "http://127.0.0.1:9", "api_key_variable": "PATH", "model": "m"},
        "compaction": {"llm_url": "http://127.0.0.1:9"},
        "transcripts": {"path": "/elsewhere/x"},
    }
    shutil.rmtree(exported / "encoder")
    sign(exported, body)
    found = import_snapshot(exported, StorePaths(tmp_path / "copy"))
    assert not found.has_encoder
    everything = b"".join(p.read_bytes() for p in found.store.rglob("*") if p.is_file())
    assert b"127.0.0.1" not in everything
    assert not list(found.store.rglob(HOSTED_FILE))
    manifest = read_manifest(StorePaths(found.store).snapshots / found.snapshot_id)
    assert manifest.settings["encoder"] == {"url": "", "api_key_variable": "", "model": "m"}
    assert manifest.settings["transcripts"] == {"path": ""}


paths = st.sampled_from(
    ["/tmp/x", "..", "../x", "a/../../x", "~", "", ".", "x" * 300, "a\0b", "\ud800", "C:\\x", "é"]
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | paths,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(paths, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside a JSON value."""
    keys: Any = ()
    if isinstance(value, dict | list):
        keys = list(value) if isinstance(value, dict) else range(len(value))
    return [at] * bool(at) + [p for key in keys for p in places(value[key], (*at, key))]


def put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = new


def mutate(export: Path, outside: Path, data: st.DataObject) -> None:
    body = manifest_of(export)
    files = sorted(p for p in export.rglob("*") if p.is_file() and p.name != "manifest.json")
    for _ in range(data.draw(st.integers(1, 3))):
        what = data.draw(
            st.sampled_from(["say", "bytes", "name", "link", "folder", "swap", "more"])
        )
        path = data.draw(st.sampled_from(files))
        if what == "say":
            put(body, data.draw(st.sampled_from(places({"snapshot": body["snapshot"]}))),
                data.draw(junk))  # fmt: skip
            if not isinstance(body["snapshot"], dict):
                break
        elif what == "bytes" and path.is_file():
            raw = bytearray(path.read_bytes())
            start = data.draw(st.integers(0, len(raw)))
            raw[start : start + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
            path.write_bytes(raw)
        elif what == "name":
            body["files"][data.draw(paths)] = body["files"]["memories.jsonl"]
        elif what == "link":
            path.unlink(missing_ok=True)
            path.symlink_to(outside / data.draw(st.sampled_from(["canary", "nothing", "."])))
        elif what == "folder" and path.is_file():
            path.unlink()
            path.mkdir()
        elif what == "swap" and path.is_file():
            path.write_bytes(
                data.draw(st.sampled_from(files)).read_bytes() if path.exists() else b""
            )
        elif what == "more":
            new = export / data.draw(st.sampled_from(["encoder", "snapshot", "graph"]))
            new.mkdir(exist_ok=True)
            (new / data.draw(st.sampled_from(["x.npy", HOSTED_FILE, "rows.sqlite"]))).touch()
    sign(export, body, relist=data.draw(st.booleans()))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_made_up_export_changes_anything_outside_its_store(
    home: Path, exported: Path, data: st.DataObject
) -> None:
    for name in ("hostile", "world"):
        shutil.rmtree(home / name, ignore_errors=True)
    outside = home / "world" / "outside"
    outside.mkdir(parents=True)
    (outside / "canary").write_text("canary")
    shutil.copytree(exported, home / "hostile")
    try:
        mutate(home / "hostile", outside, data)
    except (OSError, UnicodeError, ValueError):
        return  # not even a forger can write that
    before = tree(home / "world")
    target = home / "world" / "new" / "copy"
    said, found = "", None
    try:
        found = import_snapshot(home / "hostile", StorePaths(target))
    except NoctuaryError as error:
        said = str(error)
    if found is None:
        assert said
        assert "\n" not in said
        assert tree(home / "world") == before
        return
    after = tree(home / "world")
    assert {name for name in after if not name.startswith("new")} == set(before)
    assert all(after[name] == before[name] for name in before)
    assert [p.name for p in target.parent.iterdir()] == ["copy"]
    assert not [p for p in target.rglob("*") if p.is_symlink() or p.name == HOSTED_FILE]
    Recaller.open(found.store).recall("where is the spare key")
