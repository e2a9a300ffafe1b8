"""Whatever a labelled file holds, its reader returns labels or a named error."""

from __future__ import annotations

import gzip
import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import (
    CorpusFileError,
    FileFaultsError,
    LineFault,
    QueryFileError,
    SourceFormatError,
    SourceMissingError,
)
from noctuary.evaluate.labels import (
    load_labelled_set,
    read_corpus_rows,
    read_queries,
)


def row(query_id: object = "q1", **changes: object) -> dict[str, Any]:
    base = {"query_id": query_id, "text": "Who?", "stratum": "exact", "relevant_ids": [1]}
    return {**base, **changes}


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in rows]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "queries.jsonl"


def test_every_field_arrives_with_its_type(file: Path) -> None:
    write(
        file,
        row(
            relevant_ids=[7, "b", 7],
            wing="home",
            as_of="2026-01-04T02:00:00+02:00",
            hops=2,
        ),
    )
    (query,) = read_queries(file).ranked
    assert query.query_id == "q1"
    assert query.text == "Who?"
    assert query.stratum == "exact"
    assert query.relevant_ids == ("7", "b")
    assert query.wing == "home"
    assert query.as_of == datetime(2026, 1, 4, tzinfo=UTC)
    assert query.extras == {"hops": 2}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"query_id": "q1", "text": "Wh', "line 1: half-written or not JSON"),
        ("[1]", "expected a JSON object, found list"),
        (json.dumps({"query_id": "q1", "text": "Who?"}), "has no labels"),
        (json.dumps(row(relevant_ids="12")), "relevant_ids must be a list"),
        (json.dumps(row(relevant_ids=[1.5, True])), r"integers or strings, found \[1.5, True\]"),
        (json.dumps(row(text=" ")), "text must be a non-blank string"),
        (json.dumps(row(query_id=3)), "query_id must be a non-blank string, found 3"),
        (json.dumps(row(as_of="yesterday")), "ISO 8601 moment, found 'yesterday'"),
        (json.dumps(row(as_of="0001-01-01T00:00:00+14:00")), "ISO 8601 moment, found '0001"),
        (json.dumps(row(text="\ud800")), "text holds half a character"),
        (json.dumps(row(relevant_ids=[""])), "integers or strings, found"),
        (json.dumps(row(grades=[1])), "grades must be an object of id: grade"),
        (json.dumps(row(grades={"1": 0})), r"integers >= 1 of ids, found \['1: 0'\]"),
        (json.dumps(row(grades={"1": 1.5})), r"integers >= 1 of ids, found \['1: 1.5'\]"),
        (json.dumps(row(grades={"1": True})), r"integers >= 1 of ids, found \['1: True'\]"),
        (json.dumps(row(grades={"7": 2})), r"grades of ids that are not in relevant_ids: \['7'\]"),
        ("[" * 100_000, "JSON that cannot be read"),
        ('{"query_id": ' + "9" * 5_000 + "}", "JSON that cannot be read"),
    ],
)
def test_a_bad_line_is_named(file: Path, line: str, message: str) -> None:
    write(file, line)
    with pytest.raises(QueryFileError, match=message):
        read_queries(file)


def test_the_message_lists_ten_faults_and_counts_the_rest(file: Path) -> None:
    write(file, *("{" for _ in range(13)))
    with pytest.raises(QueryFileError) as caught:
        read_queries(file)
    assert len(caught.value.faults) == 13
    text = str(caught.value)
    assert "has 13 faults" in text
    assert "line 10:" in text
    assert "line 11:" not in text
    assert "... and 3 more" in text


def test_lines_are_json_objects_whatever_ends_them(file: Path) -> None:
    first = row(text="one\u2028two", as_of="2026-01-04T00:00:00")
    lines = [json.dumps(one, ensure_ascii=False) for one in (first, row("q2", wing=None))]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(lines).encode())
    one, two = read_queries(file).ranked
    assert (one.text, one.as_of) == ("one\u2028two", datetime(2026, 1, 4, tzinfo=UTC))
    assert (two.wing, two.as_of) == (None, None)


def test_a_missing_an_empty_and_a_binary_file_have_their_own_errors(file: Path) -> None:
    with pytest.raises(SourceMissingError, match="no query file"):
        read_queries(file)
    file.write_bytes(b"\n")
    with pytest.raises(QueryFileError, match="holds no query"):
        read_queries(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SourceFormatError, match="line 1: not UTF-8"):
        read_queries(file)


def test_grades_belong_to_labels_and_fill_up_with_one(file: Path) -> None:
    write(
        file,
        row("q1", relevant_ids=[7, 8], grades={"7": 3}),
        {"query_id": "q2", "text": "Where?", "grades": {"a": 2, "b": 1}},
        row("q3", relevant_ids=[7], grades={}),
        row("q4", relevant_ids=[7], grades=None),
    )
    found = {q.query_id: q for q in read_queries(file).ranked}
    assert found["q1"].grades == {"7": 3, "8": 1}
    assert (found["q2"].relevant_ids, found["q2"].grades) == (("a", "b"), {"a": 2, "b": 1})
    assert found["q3"].grades == found["q4"].grades == {}
    assert all("grades" not in q.extras for q in found.values())


def test_every_fault_has_its_line_and_kind(file: Path) -> None:
    write(
        file,
        "{",
        "[1]",
        {"query_id": "q1", "text": "Who?"},
        row("q1", relevant_ids=[1]),
        row("q1", relevant_ids=[9]),
        {"query_id": "q2", "relevant_ids": [1]},
        row("q3", grades={"1": 0}),
        json.dumps(row("q4", text="\udfff")),
    )
    with pytest.raises(QueryFileError) as caught:
        read_queries(file, ["1"])
    assert type(caught.value) is QueryFileError
    assert [(f.line, f.kind) for f in caught.value.faults] == [
        (1, "half_written_line"),
        (2, "wrong_type"),
        (3, "unlabelled_query"),
        (5, "duplicate_query_id"),
        (5, "unknown_label"),
        (6, "missing_field"),
        (7, "bad_grade"),
        (8, "bad_unicode"),
    ]


def test_many_unknown_labels_of_one_query_are_cut_to_ten(file: Path) -> None:
    write(file, row("q1", relevant_ids=list(range(100, 112))))
    with pytest.raises(QueryFileError, match=r"'109'\] and 2 more") as caught:
        read_queries(file, ["1"])
    assert "'110'" not in str(caught.value)


def test_a_fault_reads_as_a_sentence_and_survives_a_pickle(file: Path) -> None:
    assert str(LineFault(3, "wrong_type", "no")) == "line 3: no"
    assert str(LineFault(0, "empty_file", "nothing")) == "nothing"
    write(file, "{")
    with pytest.raises(QueryFileError) as caught:
        read_queries(file)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (type(copy), str(copy), copy.faults) == (
        QueryFileError,
        str(caught.value),
        caught.value.faults,
    )


def test_a_compressed_file_is_read_and_a_cut_one_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl.gz"
    packed = gzip.compress(write(tmp_path / "plain", row("q1"), row("q2")).read_bytes())
    file.write_bytes(packed)
    assert len(read_queries(file).ranked) == 2
    file.write_bytes(packed[:-9])
    with pytest.raises(QueryFileError, match="line 3: the archive is cut off or damaged"):
        read_queries(file)


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
    assert found.adversarial == ()
    plain = [{"id": i, "content": f"Memory {i}."} for i in (1, 2, 3)]
    assert list(read_corpus_rows(folder)) == plain
    packed = folder / "corpus.jsonl.gz"
    (folder / "corpus.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    with pytest.raises(SourceFormatError, match="keep one of them"):
        load_labelled_set(folder)
    packed.unlink()
    assert len(load_labelled_set(folder).corpus_ids) == 3


def test_unanswerable_queries_may_have_a_file_of_their_own(folder: Path) -> None:
    (folder / "adversarial.jsonl").write_text(lines(query("a1", near_miss_ids=[1])))
    found = load_labelled_set(folder)
    assert [q.query_id for q in found.adversarial] == ["a1"]
    assert [q.query_id for q in found.unanswerable] == ["q3", "a1"]
    assert found.adversarial[0].extras == {"near_miss_ids": [1]}


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


def test_adversarial_queries_have_ids_of_their_own_and_no_labels(folder: Path) -> None:
    side = folder / "adversarial.jsonl"
    side.write_text(lines(query("a1"), query("q2")))
    with pytest.raises(QueryFileError, match=r"line 2: query_id 'q2' is one of queries\.jsonl"):
        load_labelled_set(folder)
    side.write_text(lines(query("a1", 1)))
    with pytest.raises(QueryFileError, match="line 1: query 'a1' has labels") as caught:
        load_labelled_set(folder)
    assert [fault.kind for fault in caught.value.faults] == ["labelled_adversarial"]
    side.write_text("")
    with pytest.raises(QueryFileError, match=r"adversarial\.jsonl"):
        load_labelled_set(folder)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
OTHER_KEYS = ("stratum", "relevant_ids", "grades", "wing", "as_of")
ROWS = st.fixed_dictionaries(
    {"query_id": st.sampled_from(["q1", "q2"]) | JSON, "text": st.just("Who?") | JSON},
    optional=dict.fromkeys(OTHER_KEYS, JSON),
)
LINES = st.lists(st.binary(max_size=20) | ROWS.map(lambda row: json.dumps(row).encode()))


@given(lines=LINES)
def test_any_bytes_are_labels_or_faults_with_lines(
    lines: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    content = b"\n".join(lines)
    path.write_bytes(content)
    faults: tuple[LineFault, ...] = ()
    try:
        read_queries(path)
    except FileFaultsError as error:
        faults = error.faults
    last_line = content.count(b"\n") + 1
    assert all(0 <= fault.line <= last_line for fault in faults)
