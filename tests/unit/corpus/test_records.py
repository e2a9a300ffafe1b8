from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from noctuary.core.errors import StoreError
from noctuary.sources.corpus import iter_records, read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.source import open_source

Make = Callable[..., Path]


def test_batches_cover_all_records_in_order(make_store: Make, tmp_path: Path) -> None:
    with open_source(make_store([{"content": f"{i}"} for i in range(10)])) as source:
        export_corpus(source, tmp_path)
    batches = list(iter_records(tmp_path, 4))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    records = [record for batch in batches for record in batch]
    assert [record.position for record in records] == list(range(10))
    assert records == read_records(tmp_path / "memories.parquet")


def test_a_missing_corpus(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is missing or not a readable table"):
        read_records(tmp_path)


def test_a_file_that_is_no_corpus(tmp_path: Path) -> None:
    (tmp_path / "memories.parquet").write_bytes(b"canary")
    with pytest.raises(StoreError, match="is missing or not a readable table") as caught:
        read_records(tmp_path)
    assert "canary" not in str(caught.value)
