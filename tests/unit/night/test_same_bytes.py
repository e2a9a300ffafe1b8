"""The stage corpus_export reads a store again only where one of its bytes changed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from noctuary.core.settings import CorpusSettings
from noctuary.core.store import StorePaths
from noctuary.core.types import SILENT
from noctuary.work.stage import StageResult
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night
from tests.support.claude_memory import make_sqlite


def was_read(result: StageResult) -> bool:
    return "source_batches" in result.notes


def night_over(folder: Path, name: str) -> tuple[Night, Path]:
    (folder / "store").mkdir()
    return Night(StorePaths(folder / "store"), folder / name), folder / name


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    night, source = night_over(tmp_path, "memories.jsonl")
    row = json.dumps({"id": 1, "content": "The spare key hangs in the pantry."})
    source.write_text(f"{row}\n")
    first = export_memories(night)
    assert first.notes["source_batches"]["batches"] == 1
    again = export_memories(night)
    assert (again.reused, again.digest, was_read(again)) == (True, first.digest, False)
    source.write_text(f"{row}\n\n")
    blank = export_memories(night)
    assert (blank.reused, blank.digest, was_read(blank)) == (True, first.digest, True)
    source.write_text("{}\n".format(row.replace("pantry", "garage")))
    assert export_memories(night).notes["edited"] == 1


def test_a_commit_that_lies_in_the_log_alone_is_read(tmp_path: Path) -> None:
    night, source = night_over(tmp_path, "memory.db")
    make_sqlite(source, [{"id": 1, "content": "Bo has the spare key."}])
    with closing(sqlite3.connect(source, isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        export_memories(night)
        assert not was_read(export_memories(night))
        before = source.read_bytes()
        writer.execute("UPDATE memories SET content = 'Ana has the spare key.'")
        assert source.read_bytes() == before
        assert export_memories(night).notes["edited"] == 1
        assert not was_read(export_memories(night))


def test_what_else_an_export_depends_on_makes_it_read(tmp_path: Path) -> None:
    night, source = night_over(tmp_path, "memories.jsonl")
    source.write_text('{"id": 1, "content": "Bo has the spare key."}\n')
    export_memories(night)
    night.settings = night.settings._replace(corpus=CorpusSettings(max_content_bytes=5))
    assert export_memories(night).facts["quarantined_by_reason"] == {"content_too_large": 1}
    (night.paths.work / "corpus" / "memories.parquet").unlink()
    assert was_read(export_memories(night))


def test_a_store_that_changed_while_it_was_read_is_read_again(tmp_path: Path) -> None:
    night, source = night_over(tmp_path, "memories.jsonl")
    before = b'{"id": 1, "content": "Bo has the spare key."}\n'
    source.write_bytes(before)

    class Writer:
        def update(self, task: str, done: int, total: int) -> None:
            source.write_bytes(before + b"\n")

    night.progress = Writer()
    export_memories(night)
    source.write_bytes(before)
    night.progress = SILENT
    assert was_read(export_memories(night))
    assert not was_read(export_memories(night))
