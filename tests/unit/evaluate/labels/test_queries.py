from __future__ import annotations

import gzip
import json
import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import (
    DuplicateQueryError,
    EmptyQuerySetError,
    LineFault,
    QueryFileError,
    SourceEmptyError,
    SourceFormatError,
    SourceMissingError,
    UnknownLabelError,
    UnlabelledQueryError,
)
from noctuary.evaluate.labels import read_queries


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
            as_of_seq=17,
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
    assert query.as_of_seq == 17
    assert query.extras == {"hops": 2}


def test_a_naive_moment_is_utc_and_absent_fields_are_none(file: Path) -> None:
    write(file, row(as_of="2026-01-04T00:00:00"), row("q2", wing=None))
    first, second = read_queries(file).ranked
    assert first.as_of == datetime(2026, 1, 4, tzinfo=UTC)
    assert (second.wing, second.as_of, second.as_of_seq) == (None, None, None)


def test_unanswerable_queries_are_kept_apart(file: Path) -> None:
    write(file, row("q1"), row("q2", relevant_ids=[]), row("q3"))
    found = read_queries(file)
    assert [q.query_id for q in found.ranked] == ["q1", "q3"]
    assert [q.query_id for q in found.unanswerable] == ["q2"]


def test_line_separators_inside_a_text_do_not_split_the_line(file: Path) -> None:
    write(file, row(text="one\u2028two"), "")
    assert read_queries(file).ranked[0].text == "one\u2028two"


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
        (json.dumps(row(as_of_seq="9")), "as_of_seq must be an integer, found '9'"),
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


def test_duplicate_query_ids_name_both_lines(file: Path) -> None:
    write(file, row("q1"), row("q2"), row("q1"))
    with pytest.raises(
        QueryFileError, match=r"line 3: duplicate query_id 'q1' \(first on line 1\)"
    ):
        read_queries(file)


def test_labels_outside_the_corpus_are_faults_only_if_the_corpus_is_given(file: Path) -> None:
    write(file, row("q1", relevant_ids=[1, 99]))
    assert read_queries(file).ranked[0].relevant_ids == ("1", "99")
    with pytest.raises(QueryFileError, match=r"'q1' names ids that the corpus lacks: \['99'\]"):
        read_queries(file, corpus_ids=["1", "2"])


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


def test_a_missing_an_empty_and_a_binary_file_have_their_own_errors(file: Path) -> None:
    with pytest.raises(SourceMissingError, match="no query file"):
        read_queries(file)
    file.write_bytes(b"\n")
    with pytest.raises(SourceEmptyError, match="holds no query"):
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


@pytest.mark.parametrize(
    ("rows", "error", "line"),
    [
        ([row("q1"), {"query_id": "q2", "text": "?"}], UnlabelledQueryError, 2),
        ([row("q1"), row("q2", relevant_ids=[9])], UnknownLabelError, 2),
        ([row("q1"), row("q2"), row("q1")], DuplicateQueryError, 3),
        ([""], EmptyQuerySetError, 0),
    ],
)
def test_faults_of_one_kind_have_their_named_error(
    file: Path, rows: list[dict[str, Any] | str], error: type[QueryFileError], line: int
) -> None:
    write(file, *rows)
    with pytest.raises(QueryFileError) as caught:
        read_queries(file, ["1"])
    assert type(caught.value) is error
    assert [fault.line for fault in caught.value.faults] == [line]
    assert caught.value.path == file


def test_an_empty_set_is_an_empty_source_as_well(file: Path) -> None:
    write(file, "")
    with pytest.raises(SourceEmptyError):
        read_queries(file)


def test_many_unknown_labels_of_one_query_are_cut_to_ten(file: Path) -> None:
    write(file, row("q1", relevant_ids=list(range(100, 112))))
    with pytest.raises(UnknownLabelError, match=r"'109'\] and 2 more") as caught:
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


def test_a_byte_order_mark_and_windows_line_ends_are_read_over(file: Path) -> None:
    lines = [json.dumps(row("q1")), "", json.dumps(row("q2"))]
    file.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode())
    assert [q.query_id for q in read_queries(file).ranked] == ["q1", "q2"]


def test_a_compressed_file_is_read_and_a_cut_one_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl.gz"
    packed = gzip.compress(write(tmp_path / "plain", row("q1"), row("q2")).read_bytes())
    file.write_bytes(packed)
    assert len(read_queries(file).ranked) == 2
    file.write_bytes(packed[:-9])
    with pytest.raises(QueryFileError, match="line 3: the archive is cut off or damaged"):
        read_queries(file)
