from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from noctuary.core.errors import StoreError
from noctuary.sources.export import CorpusDiff, diff_corpora, export_corpus
from noctuary.sources.source import open_source

Export = Callable[[str, Mapping[int, str]], Path]


@pytest.fixture
def export(make_jsonl: Callable[..., Path], tmp_path: Path) -> Export:
    def run(name: str, contents: Mapping[int, str]) -> Path:
        lines = [{"id": i, "content": text} for i, text in contents.items()]
        with open_source(make_jsonl(lines, f"{name}.jsonl")) as source:
            export_corpus(source, tmp_path / name)
        return tmp_path / name

    return run


def test_added_edited_deleted(export: Export) -> None:
    old = export("old", {1: "a", 2: "b", 3: "c", 4: "d"})
    new = export("new", {2: "b", 3: "C", 5: "e", 6: "f", 7: "g"})
    assert diff_corpora(old, new) == CorpusDiff(added=3, edited=1, deleted=2, unchanged=1)
    assert diff_corpora(new / "memories.parquet", old) == CorpusDiff(2, 1, 3, 1)


def test_a_moved_position_is_no_edit(export: Export) -> None:
    diff = diff_corpora(export("old", {1: "a", 2: "b"}), export("new", {2: "b"}))
    assert diff == CorpusDiff(added=0, edited=0, deleted=1, unchanged=1)


def test_equal_exports(export: Export) -> None:
    old, new = export("old", {1: "a"}), export("new", {1: "a"})
    assert diff_corpora(old, new) == CorpusDiff(0, 0, 0, 1)


def test_the_first_night_adds_everything(export: Export) -> None:
    assert diff_corpora(None, export("new", {1: "a", 2: "b"})) == CorpusDiff(2, 0, 0, 0)


def test_empty_exports(export: Export) -> None:
    assert diff_corpora(export("old", {}), export("new", {1: "a"})) == CorpusDiff(1, 0, 0, 0)


def test_a_missing_export(export: Export, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no corpus at"):
        diff_corpora(tmp_path / "nowhere", export("new", {1: "a"}))
