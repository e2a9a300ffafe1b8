from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import (
    CorpusFileError,
    DuplicateQueryError,
    EmptyQuerySetError,
    FileFaultsError,
    QrelsFileError,
    QueryFileError,
    SourceFormatError,
    SourceMissingError,
    UnknownLabelError,
)
from noctuary.evaluate.labels import load_labelled_set, read_corpus_rows

CHECKOUT = Path(__file__).resolve().parents[4]
SHARED_SETS = {
    # Memories, labelled queries, unanswerable ones: as ../shared/data/README.md states them.
    "2wikimultihopqa": (6119, 432, 0),
    "cisi": (1460, 41, 0),
    "cranfield": (1398, 112, 0),
    "hotpotqa": (4937, 266, 0),
    "locomo": (5882, 745, 223),
    "locomo_obs": (2541, 639, 0),
    "locomo_plus": (394, 193, 0),
    "memdaily_zh": (11707, 1476, 0),
    "musique_train": (1890, 100, 0),
    "npl": (11426, 54, 0),
    "precision_membench": (35, 43, 0),
    "prefeval": (988, 496, 0),
    "realmem": (5072, 713, 0),
    "scifact": (5183, 571, 0),
}


def shared_data() -> Path:
    configured = os.environ.get("NOCTUARY_SHARED", "").strip()
    return (Path(configured) if configured else CHECKOUT.parent / "shared") / "data"


def lines(*rows: dict[str, Any] | str) -> str:
    return "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)


def query(query_id: str, *relevant_ids: int, **extra: object) -> dict[str, Any]:
    return {"query_id": query_id, "text": "Who?", "relevant_ids": list(relevant_ids), **extra}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A set of three memories, two queries and an unanswerable one."""
    directory = tmp_path / "tiny"
    directory.mkdir()
    rows = [{"id": i, "content": f"Memory {i}."} for i in (1, 2, 3)]
    (directory / "corpus.jsonl.gz").write_bytes(gzip.compress(lines(*rows).encode()))
    (directory / "queries.jsonl").write_text(lines(query("q1", 1), query("q2", 2, 3), query("q3")))
    return directory


def test_a_set_is_loaded_whole(folder: Path) -> None:
    found = load_labelled_set(folder)
    assert found.name == "tiny"
    assert found.corpus_ids == {"1", "2", "3"}
    assert [q.query_id for q in found.queries.ranked] == ["q1", "q2"]
    assert [q.query_id for q in found.unanswerable] == ["q3"]
    assert (found.adversarial, found.qrels) == ((), {})


def test_side_files_are_read_where_they_are(folder: Path) -> None:
    (folder / "adversarial.jsonl").write_text(lines(query("a1", near_miss_ids=[1])))
    (folder / "qrels.jsonl").write_text("q1 0 2 0\na1 0 1 0\n")
    found = load_labelled_set(folder)
    assert [q.query_id for q in found.adversarial] == ["a1"]
    assert [q.query_id for q in found.unanswerable] == ["q3", "a1"]
    assert found.adversarial[0].extras == {"near_miss_ids": [1]}
    assert found.qrels == {"q1": {"2": 0}, "a1": {"1": 0}}


def test_a_plain_corpus_will_do_but_not_two(folder: Path) -> None:
    packed = (folder / "corpus.jsonl.gz").read_bytes()
    (folder / "corpus.jsonl").write_bytes(gzip.decompress(packed))
    with pytest.raises(SourceFormatError, match="keep one of them"):
        load_labelled_set(folder)
    (folder / "corpus.jsonl.gz").unlink()
    assert len(load_labelled_set(folder).corpus_ids) == 3


def test_rows_keep_every_key_and_their_order(folder: Path) -> None:
    assert list(read_corpus_rows(folder)) == [
        {"id": i, "content": f"Memory {i}."} for i in (1, 2, 3)
    ]


def test_what_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="is not a folder"):
        load_labelled_set(tmp_path / "gone")
    (folder / "queries.jsonl").unlink()
    with pytest.raises(SourceMissingError, match=r"no query file at .*queries\.jsonl"):
        load_labelled_set(folder)
    (folder / "corpus.jsonl.gz").unlink()
    with pytest.raises(SourceMissingError, match=r"lacks corpus\.jsonl\.gz"):
        load_labelled_set(folder)


def test_every_fault_of_a_corpus_has_its_line_and_kind(folder: Path) -> None:
    rows = lines(
        {"id": 1, "content": "One."},
        "{",
        {"content": "No id."},
        {"id": True, "content": "Bad id."},
        {"id": "1", "content": "The same id as a text."},
        {"id": 2},
        "",
        {"id": 3, "content": "Three."},
    )
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(rows.encode()))
    with pytest.raises(CorpusFileError) as caught:
        load_labelled_set(folder)
    assert [(f.line, f.kind) for f in caught.value.faults] == [
        (2, "half_written_line"),
        (3, "missing_field"),
        (4, "wrong_type"),
        (5, "duplicate_memory_id"),
        (6, "wrong_type"),
    ]
    assert "corpus.jsonl.gz has 5 faults" in str(caught.value)
    assert "(first on line 1)" in str(caught.value)


def test_an_empty_corpus_and_a_cut_one_are_faults(folder: Path) -> None:
    corpus = folder / "corpus.jsonl.gz"
    packed = corpus.read_bytes()
    corpus.write_bytes(packed[:-10])
    with pytest.raises(CorpusFileError, match="line 3: the archive is cut off"):
        load_labelled_set(folder)
    corpus.write_bytes(b"not gzip")
    with pytest.raises(CorpusFileError, match="line 1: the archive is cut off or damaged"):
        load_labelled_set(folder)
    corpus.write_bytes(gzip.compress(b"\n"))
    with pytest.raises(CorpusFileError, match="holds no memory"):
        load_labelled_set(folder)


def test_labels_outside_the_corpus_are_named_with_file_and_line(folder: Path) -> None:
    (folder / "queries.jsonl").write_text(lines(query("q1", 1), query("q2", 9)))
    with pytest.raises(UnknownLabelError, match=r"queries\.jsonl has 1 fault:\n  line 2: .*'9'"):
        load_labelled_set(folder)


def test_adversarial_queries_have_ids_of_their_own_and_no_labels(folder: Path) -> None:
    side = folder / "adversarial.jsonl"
    side.write_text(lines(query("a1"), query("q2")))
    with pytest.raises(
        DuplicateQueryError, match=r"line 2: query_id 'q2' is one of queries\.jsonl"
    ):
        load_labelled_set(folder)
    side.write_text(lines(query("a1", 1)))
    with pytest.raises(QueryFileError, match="line 1: query 'a1' has labels") as caught:
        load_labelled_set(folder)
    assert [fault.kind for fault in caught.value.faults] == ["labelled_adversarial"]
    side.write_text("")
    with pytest.raises(EmptyQuerySetError, match=r"adversarial\.jsonl"):
        load_labelled_set(folder)


def test_judgements_must_be_of_the_set(folder: Path) -> None:
    (folder / "qrels.jsonl").write_text("q1 0 9 1\nq9 0 1 1\n")
    with pytest.raises(QrelsFileError) as caught:
        load_labelled_set(folder)
    assert [fault.kind for fault in caught.value.faults] == ["unknown_label", "unknown_query"]


@pytest.mark.parametrize("name", sorted(SHARED_SETS))
def test_every_shared_set_loads_with_the_numbers_of_its_readme(name: str) -> None:
    directory = shared_data() / name
    if not directory.is_dir():
        pytest.skip(f"no labelled set at {directory}; NOCTUARY_SHARED names the folder")
    found = load_labelled_set(directory)
    counts = (len(found.corpus_ids), len(found.queries.ranked), len(found.unanswerable))
    assert counts == SHARED_SETS[name]


def test_no_shared_set_is_left_out() -> None:
    if not shared_data().is_dir():
        pytest.skip(f"no labelled sets at {shared_data()}; NOCTUARY_SHARED names the folder")
    folders = {path.parent.name for path in shared_data().glob("*/queries.jsonl")}
    assert folders == SHARED_SETS.keys()


def test_a_broken_copy_of_a_real_set_is_reported_with_its_line(tmp_path: Path) -> None:
    source = shared_data() / "precision_membench"
    if not source.is_dir():
        pytest.skip(f"no labelled set at {source}; NOCTUARY_SHARED names the folder")
    for file in ("corpus.jsonl.gz", "queries.jsonl"):
        (tmp_path / file).write_bytes((source / file).read_bytes())
    text = (tmp_path / "queries.jsonl").read_bytes()
    (tmp_path / "queries.jsonl").write_bytes(text.rstrip()[:-20])
    with pytest.raises(FileFaultsError) as caught:
        load_labelled_set(tmp_path)
    assert [(f.line, f.kind) for f in caught.value.faults] == [(43, "half_written_line")]
