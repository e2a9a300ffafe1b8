from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mnemon.errors import SourceEmptyError, SourceFormatError, SourceMissingError
from mnemon.evaluate.labels.queries import QueryFileError, read_queries


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
    with pytest.raises(SourceFormatError, match="not UTF-8"):
        read_queries(file)
