from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.results import SCHEMA_VERSION, dump, read_results, write_result
from noctuary.core.errors import SourceFormatError


def test_flat_lists_stand_on_one_line_and_the_rest_on_their_own() -> None:
    document = {"a": [[1.0, 0.5], [0.0, 1.0]], "names": ["x, y", "z [w]"], "b": {"c": []}}
    text = dump(document)
    assert json.loads(text) == document
    assert "[1.0, 0.5]" in text
    assert text.count("\n") > 8


def test_results_are_read_back_by_kind_in_the_order_of_their_names(tmp_path: Path) -> None:
    write_result(tmp_path / "b.json", {"kind": "cost", "dataset": "second"})
    write_result(tmp_path / "a.json", {"kind": "cost", "dataset": "first"})
    write_result(tmp_path / "c.json", {"kind": "quality", "dataset": "third"})
    found = read_results(tmp_path, "cost")
    assert [document["dataset"] for document in found] == ["first", "second"]
    assert found[0]["schema_version"] == SCHEMA_VERSION


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "not JSON"), ("[]", "schema version None"), ('{"schema_version": 99}', "version 99")],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    with pytest.raises(SourceFormatError, match=message):
        read_results(tmp_path, "cost")
