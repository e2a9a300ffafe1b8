from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from noctuary.core.errors import QrelsFileError, SourceMissingError
from noctuary.evaluate.labels import read_qrels


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "qrels.jsonl"


def kinds(file: Path) -> list[tuple[int, str]]:
    with pytest.raises(QrelsFileError) as caught:
        read_qrels(file, query_ids=["q1", "q2"], corpus_ids=["1", "2", "3"])
    return [(fault.line, fault.kind) for fault in caught.value.faults]


def test_relevant_ids_are_grade_one_and_grades_keep_their_zeros(file: Path) -> None:
    file.write_text(
        '{"query_id": "q1", "relevant_ids": [1, "b", 1]}\n\n'
        '{"query_id": "q2", "grades": {"1": 0, "2": 3}, "note": "ignored"}\n',
    )
    assert read_qrels(file) == {"q1": {"1": 1, "b": 1}, "q2": {"1": 0, "2": 3}}


def test_of_relevant_ids_and_grades_the_grades_win(file: Path) -> None:
    file.write_text('{"query_id": "q1", "relevant_ids": [1, 2], "grades": {"1": 3, "9": 0}}\n')
    assert read_qrels(file) == {"q1": {"1": 3, "2": 1, "9": 0}}


def test_trec_lines_are_read_with_tabs_and_negative_grades_as_zero(file: Path) -> None:
    file.write_text("q1 0 12 1\nq1\t0\t13\t0\nq2 Q0 12 2\nq2 0 14 -2\n")
    assert read_qrels(file) == {"q1": {"12": 1, "13": 0}, "q2": {"12": 2, "14": 0}}


def test_both_forms_may_mix_and_a_query_may_take_several_lines(file: Path) -> None:
    file.write_text('q1 0 1 1\n{"query_id": "q1", "grades": {"2": 0}}\n')
    assert read_qrels(file) == {"q1": {"1": 1, "2": 0}}


def test_a_query_file_is_a_file_of_judgements(file: Path) -> None:
    file.write_text(
        '{"query_id": "q1", "text": "Who?", "stratum": "exact", "relevant_ids": [1]}\n'
        '{"query_id": "q2", "text": "What?", "relevant_ids": []}\n'
    )
    assert read_qrels(file) == {"q1": {"1": 1}, "q2": {}}


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "qrels.txt.gz"
    file.write_bytes(gzip.compress(b"q1 0 1 1\n"))
    assert read_qrels(file) == {"q1": {"1": 1}}


def test_every_fault_has_its_line_and_kind(file: Path) -> None:
    file.write_bytes(
        b"q1 0 1\n"
        b"q1 0 1 high\n"
        b"q9 0 1 1\n"
        b"q1 0 9 1\n"
        b"q1 0 2 1\n"
        b"q1 0 2 1\n"
        b'{"query_id": "q2"}\n'
        b'{"query_id": "q2", "grades": {"1": null}}\n'
        b'{"query_id": "q2", "grades": {"1": -1}}\n'
        b'{"query_id": "q2", "grades": {"1": 1\n'
        b"\xff 0 1 1\n"
        b"[]\n"
    )
    assert kinds(file) == [
        (1, "half_written_line"),
        (2, "bad_grade"),
        (3, "unknown_query"),
        (4, "unknown_label"),
        (6, "duplicate_judgement"),
        (7, "unlabelled_query"),
        (8, "bad_grade"),
        (9, "bad_grade"),
        (10, "half_written_line"),
        (11, "not_utf8"),
        (12, "wrong_type"),
    ]


def test_the_message_lists_ten_faults_and_counts_the_rest(file: Path) -> None:
    file.write_text("q1 0 1\n" * 12)
    with pytest.raises(QrelsFileError, match=r"has 12 faults") as caught:
        read_qrels(file)
    assert "line 10:" in str(caught.value)
    assert "line 11:" not in str(caught.value)
    assert "... and 2 more" in str(caught.value)


def test_nothing_is_no_judgement(file: Path) -> None:
    with pytest.raises(SourceMissingError, match="no file of judgements"):
        read_qrels(file)
    file.write_text("\n")
    assert kinds(file) == [(0, "empty_file")]
