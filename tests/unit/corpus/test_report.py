from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from noctuary.core.errors import StoreError
from noctuary.sources.export import ExportReport, export_corpus, read_report
from noctuary.sources.source import open_source

Make = Callable[..., Path]


def export(path: Path, out: Path) -> ExportReport:
    with open_source(path) as source:
        return export_corpus(source, out)


def test_a_report_is_read_as_it_was_written(make_store: Make, tmp_path: Path) -> None:
    report = export(make_store([{}, {"content": ""}], user_version=3), tmp_path / "out")
    assert read_report(tmp_path / "out") == report
    assert report.identity.notes == ("newer_schema_version",)


def test_a_source_path_that_is_no_text(make_jsonl: Make, tmp_path: Path) -> None:
    path = make_jsonl([{"id": 1, "content": "a"}])
    odd = path.rename(path.with_name("odd-\udcff.jsonl"))
    report = export(odd, tmp_path / "out")
    assert read_report(tmp_path / "out") == report


def test_without_an_export(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no export at"):
        read_report(tmp_path)


@pytest.mark.parametrize("name", ["memories.parquet", "turns.parquet", "quarantine.parquet"])
def test_a_table_of_another_export_is_noticed(make_store: Make, tmp_path: Path, name: str) -> None:
    rows = [{"category": "turn", "tags": "session:s"}, {"content": ""}]
    export(make_store(rows), tmp_path / "a")
    export(make_store(path=tmp_path / "other.db"), tmp_path / "b")
    (tmp_path / "b" / name).replace(tmp_path / "a" / name)
    with pytest.raises(StoreError, match=rf"{name} is missing or not the one"):
        read_report(tmp_path / "a")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}'])
def test_another_format_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(StoreError, match="Run the export again"):
        read_report(tmp_path)
