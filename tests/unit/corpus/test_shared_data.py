from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.source import open_source

SHARED = Path(os.environ.get("NOCTUARY_SHARED", Path(__file__).parents[4] / "shared")) / "data"


def sets() -> list[str]:
    if not (SHARED / "MANIFEST.json").is_file():
        return []
    return sorted(json.loads((SHARED / "MANIFEST.json").read_text()))


@pytest.mark.slow
@pytest.mark.skipif(not sets(), reason=f"no evaluation data at {SHARED} (set NOCTUARY_SHARED)")
@pytest.mark.parametrize("name", sets())
def test_every_row_of_every_set_is_exported(name: str, tmp_path: Path) -> None:
    expected = json.loads((SHARED / "MANIFEST.json").read_text())[name]["corpus.jsonl.gz"]
    with open_source(SHARED / name) as source:
        report = export_corpus(source, tmp_path)
    assert report.identity.marker["sha256"] == expected["sha256"]
    assert report.exported == report.source_rows == expected["lines"]
    records = read_records(tmp_path)
    ids = [int(record.memory_id) for record in records]
    assert ids == sorted(ids)
    assert report.turns == (len(records) if name == "locomo" else 0)
    if name == "locomo":
        assert None not in pq.read_table(tmp_path / "turns.parquet").column("speaker").to_pylist()
