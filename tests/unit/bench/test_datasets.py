from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bench.datasets import find_shared, open_dataset, read_baseline, read_corpus
from noctuary.core.errors import SourceFormatError, SourceMissingError

README = """# tiny
| search | stratum | queries | R@5 | R@10 | nDCG@10 | MRR | all@10 |
|---|---|---|---|---|---|---|---|
| all wings | ALL | 3 | 0.1 | 0.200 | 0.300 | 0.400 | 0.5 |
| own wing, seq <= as_of_seq | ALL | 3 | 0.9 | 0.9 | 0.9 | 0.9 | 0.9 |
| own wing | ALL | 3 | 0.6 | 0.7 | 0.8 | 0.9 | 1.0 |
| own wing | multi-hop | 1 | 0.0 | 0.1 | 0.2 | 0.3 | 0.4 |
"""


def make_set(directory: Path, corpus: bytes = b'{"id": 1, "content": "x"}\n') -> Path:
    directory.mkdir()
    (directory / "corpus.jsonl.gz").write_bytes(gzip.compress(corpus))
    (directory / "queries.jsonl").write_text("", encoding="utf-8")
    return directory


def test_the_baseline_is_read_from_the_row_of_the_search_asked_for(tmp_path: Path) -> None:
    dataset = open_dataset(make_set(tmp_path / "tiny"))
    assert read_baseline(dataset, "all wings") == {}
    (dataset.directory / "README.md").write_text(README, encoding="utf-8")
    assert read_baseline(dataset, "all wings") == {
        "ALL": {"n": 3, "recall@5": 0.1, "recall@10": 0.2, "ndcg@10": 0.3, "mrr@100": 0.4}
    }
    own = read_baseline(dataset, "own wing")
    assert list(own) == ["ALL", "multi-hop"]
    assert own["ALL"]["recall@5"] == 0.6


def test_a_corpus_is_read_in_file_order(tmp_path: Path) -> None:
    lines = b'{"id": 2, "content": "a\xe2\x80\xa8b"}\n\n{"id": 1, "content": "c"}\n'
    dataset = open_dataset(make_set(tmp_path / "tiny", lines))
    assert dataset.name == "tiny"
    assert [row["id"] for row in read_corpus(dataset)] == [2, 1]


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    dataset = open_dataset(make_set(tmp_path / "tiny", b'{"id": 1}\n' * 1000))
    dataset.corpus.write_bytes(dataset.corpus.read_bytes()[:-12])
    with pytest.raises(SourceFormatError, match="cannot be read"):
        read_corpus(dataset)


def test_a_folder_that_is_no_set_says_what_it_lacks(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match=r"lacks corpus.jsonl.gz and queries.jsonl"):
        open_dataset(tmp_path)


def test_the_shared_folder_follows_the_variable(tmp_path: Path) -> None:
    assert find_shared({"NOCTUARY_SHARED": str(tmp_path)}) is None
    (tmp_path / "data").mkdir()
    assert find_shared({"NOCTUARY_SHARED": str(tmp_path)}) == tmp_path
