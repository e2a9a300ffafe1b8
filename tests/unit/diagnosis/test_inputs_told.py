"""What doctor says of the source, the transcripts, the calibration, the rows and the MCP extra."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lancedb.index import BTree

from noctuary.cli import main as cli
from noctuary.cli.store import (
    Finding,
    examine,
    look_at_abstention,
    look_at_index,
    look_at_source,
    look_at_transcripts,
    look_at_vectors,
)
from noctuary.core.manifest import Manifest, read_manifest, read_pointer
from noctuary.core.store import ABSTENTION_FILE, VECTORS_FILE, StorePaths
from noctuary.embed.tiers import connect
from tests.support.calibration import MEASURE
from tests.support.store import Store


def serving(store: Store) -> Path:
    return store.snapshot(read_pointer(store.paths).snapshot_id)


def find(store: Store, name: str) -> Finding:
    (found,) = (f for f in examine(store.paths) if f.name == name)
    return found


def manifest_of(store: Store, location: Path) -> Manifest:
    manifest = read_manifest(serving(store))
    return manifest._replace(source={**manifest.source, "location": str(location)})


def test_a_source_that_can_be_read(dense_store: Store, tmp_path: Path) -> None:
    (tmp_path / "memory.db").write_bytes(b"x")
    for location in (tmp_path / "memory.db", tmp_path):
        assert look_at_source(manifest_of(dense_store, location)).level == "ok"


def test_a_source_that_cannot(dense_store: Store, tmp_path: Path) -> None:
    gone = look_at_source(manifest_of(dense_store, tmp_path / "none.db"))
    assert (gone.level, gone.message) == ("warn", f"{tmp_path / 'none.db'} is gone")
    assert "source.path" in gone.remedy
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert look_at_source(manifest_of(dense_store, tmp_path / "loop")).level == "warn"


def test_a_source_that_may_not_be_read(
    dense_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may read everything: the refusal is the system's, put in its place."""
    (tmp_path / "memory.db").write_bytes(b"x")
    manifest = manifest_of(dense_store, tmp_path / "memory.db")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    found = look_at_source(manifest)
    assert (found.level, found.message.split(" ", 1)[1]) == (
        "warn",
        "cannot be read: Permission denied",
    )


def test_transcripts(tmp_path: Path) -> None:
    assert look_at_transcripts("").level == "ok"
    assert look_at_transcripts(str(tmp_path / "none")).level == "warn"
    empty = look_at_transcripts(str(tmp_path))
    assert (empty.level, "no transcript" in empty.message) == ("warn", True)
    line = {"type": "user", "uuid": "u", "message": {"role": "user", "content": "hello"}}
    (tmp_path / "s.jsonl").write_text(json.dumps(line) + "\n")
    for path in (tmp_path, tmp_path / "s.jsonl"):
        assert look_at_transcripts(str(path)).level == "ok"
    nobody = look_at_transcripts("~nobody-of-this-name/x")
    assert (nobody.level, "no home directory" in nobody.message) == ("warn", True)


def test_transcripts_of_the_settings(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find(dense_store, "transcripts").level == "ok"
    monkeypatch.setenv("NOCTUARY_TRANSCRIPTS_PATH", str(tmp_path / "none"))
    assert find(dense_store, "transcripts").level == "warn"


def test_abstention(tmp_path: Path) -> None:
    assert look_at_abstention(tmp_path, wants=False).level == "ok"
    wanted = look_at_abstention(tmp_path, wants=True)
    assert (wanted.level, "noctuary nightly" in wanted.remedy) == ("warn", True)
    file = tmp_path / ABSTENTION_FILE
    # Of a snapshot of before: its scores had another scale.
    file.write_text('{"signals": {"words": {"threshold": 0.25}}}')
    assert look_at_abstention(tmp_path, wants=True).message.startswith("not calibrated")
    words = {"threshold": 0.25, "measure": MEASURE.to_json()}
    file.write_text(json.dumps({"signals": {"words": words}}))
    told = look_at_abstention(tmp_path, wants=True)
    assert (told.level, told.message) == ("ok", "calibrated: words below 0.25")
    file.write_text("{")
    assert look_at_abstention(tmp_path, wants=False).level == "warn"


def test_abstention_is_wanted_where_hooks_are_installed(
    dense_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(dense_store, "abstention").level == "ok"
    (tmp_path / "claude").mkdir()
    (tmp_path / "claude" / "settings.json").write_text('{"enabledPlugins": {"noctuary@x": true}}')
    assert find(dense_store, "abstention").level == "warn"
    monkeypatch.setenv("NOCTUARY_HOOK_ABSTAIN", "false")
    assert find(dense_store, "abstention").level == "ok"


def test_vectors(dense_store: Store) -> None:
    snapshot = serving(dense_store)
    manifest = read_manifest(snapshot)
    whole = look_at_vectors(snapshot, manifest)
    assert (whole.level, whole.message) == ("ok", "each of 14 memories has one")
    path = snapshot / VECTORS_FILE
    vectors = np.load(path)[:-2]
    path.chmod(0o600)
    np.save(path, vectors)
    short = look_at_vectors(snapshot, manifest)
    assert (short.level, short.message) == ("fail", "14 memories have 12 vectors")


def test_rows_that_no_index_covers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = StorePaths(tmp_path)
    assert "no LanceDB tables" in look_at_index(paths).message
    database = connect(paths.lance)
    table = database.create_table("memory_vectors_64", pa.table({"id": list(range(300))}))
    assert "scans are exact" in look_at_index(paths).message
    table.create_index("id", config=BTree())
    assert look_at_index(paths).message == "the indexes of 1 LanceDB tables cover every row"
    table.add(pa.table({"id": [300, 301]}))
    found = look_at_index(paths)
    assert found.level == "warn"
    assert "2 rows of memory_vectors_64 are in no index" in found.message
    assert "noctuary nightly" in found.remedy
    table.optimize()
    assert look_at_index(paths).level == "ok"

    def is_installed(_: str) -> bool:
        return False

    monkeypatch.setattr(cli, "is_installed", is_installed)
    assert "not installed here" in look_at_index(paths).message


def test_the_mcp_extra(dense_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(dense_store, "mcp").message == "the MCP server can run"
    fault = "the MCP server needs the package mcp, which is not installed: pip install it"
    monkeypatch.setattr(cli, "find_sdk_fault", lambda: fault)
    unused = find(dense_store, "mcp")
    assert (unused.level, "pip install" in unused.message) == ("ok", True)
    (tmp_path / "claude").mkdir()
    (tmp_path / "claude" / "settings.json").write_text('{"enabledPlugins": {"noctuary@x": true}}')
    used = find(dense_store, "mcp")
    assert (used.level, used.remedy) == ("warn", "pip install it")
    assert "plugin" in used.message
