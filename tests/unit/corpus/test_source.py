from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from noctuary.core.errors import SourceFormatError, SourceMissingError
from noctuary.sources.source import open_source

Make = Callable[..., Path]
ROW = {"id": 1, "content": "a"}


def kind_of(path: Path) -> str:
    with open_source(path) as source:
        return source.identity().kind


def test_a_missing_path_says_where_it_looked_and_what_it_expected(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match=r"no memory store at .*nowhere\.db.*memory\.db"):
        open_source(tmp_path / "nowhere.db")


def test_a_folder_without_a_store_names_what_it_expected(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match=r"corpus\.jsonl\.gz, corpus\.jsonl, memory\.db"):
        open_source(tmp_path)


@pytest.mark.parametrize("name", ["memory.db", "memory/memory.db"])
def test_a_folder_of_a_store_is_read(make_store: Make, tmp_path: Path, name: str) -> None:
    make_store(path=tmp_path / "home" / name)
    assert kind_of(tmp_path / "home") == "claude-memory-sqlite"


@pytest.mark.parametrize(
    ("name", "kind"), [("corpus.jsonl", "jsonl"), ("corpus.jsonl.gz", "jsonl.gz")]
)
def test_a_data_set_folder_is_read(make_jsonl: Make, name: str, kind: str) -> None:
    assert kind_of(make_jsonl([ROW], f"set/{name}").parent) == kind


def test_a_folder_of_two_stores_is_ambiguous(make_jsonl: Make) -> None:
    make_jsonl([ROW], "set/corpus.jsonl.gz")
    folder = make_jsonl([ROW], "set/corpus.jsonl").parent
    with pytest.raises(
        SourceFormatError, match=r"several stores \(corpus\.jsonl\.gz, corpus\.jsonl\)"
    ):
        open_source(folder)


def test_a_database_is_known_by_its_first_bytes_not_by_its_name(
    make_store: Make, tmp_path: Path
) -> None:
    assert kind_of(make_store(path=tmp_path / "notes.bak")) == "claude-memory-sqlite"


@pytest.mark.parametrize("data", [b"", b"not a database, only some text about one"])
def test_what_is_not_a_database_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "memory.db"
    path.write_bytes(data)
    with pytest.raises(SourceFormatError, match=r"not a database.*SQLite format 3.*decrypted"):
        open_source(path)


def test_a_plain_file_named_gz_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(b'{"id": 1, "content": "a"}\n')
    with pytest.raises(SourceFormatError, match=r"named \.gz but is not a gzip archive"):
        open_source(path)


def test_an_empty_gz_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.touch()
    with pytest.raises(SourceFormatError, match="0 bytes"):
        open_source(path)


def test_a_device_is_refused() -> None:
    with pytest.raises(SourceFormatError, match="neither a file nor a folder"):
        open_source(Path("/dev/null"))
