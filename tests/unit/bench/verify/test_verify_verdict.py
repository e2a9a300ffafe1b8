from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.verify.regression import (
    Regression,
    flatten,
    nest,
    read_regression,
    regression_path,
    write_regression,
)
from bench.verify.verdict import Verdict, judge, judge_number, worst
from noctuary.core.errors import SourceFormatError, SourceMissingError

VALUES = {
    "corpus.digest": "00e1",
    "index.memories": 60,
    "index.encoder_digest": None,
    "scores.noctuary.recall@10": 0.5,
    "scores.noctuary.mrr@10": 0.25,
}


def test_a_regression_file_reads_back_what_was_written(tmp_path: Path) -> None:
    path = regression_path(tmp_path, "tiny")
    written = Regression("tiny", VALUES, tolerance=0.001)
    write_regression(path, written)
    assert read_regression(path) == written
    text = path.read_text(encoding="utf-8")
    assert "command: make bench-verify SETS=tiny" in text
    assert "    recall@10: 0.5" in text


def test_a_digest_that_looks_like_a_number_stays_text(tmp_path: Path) -> None:
    path = regression_path(tmp_path, "tiny")
    values = {"corpus.digest": "1234567890", "index.memories": 1, "scores.a.b": "12e4"}
    write_regression(path, Regression("tiny", values))
    assert read_regression(path).values == values


def test_a_missing_or_foreign_file_says_what_to_do(tmp_path: Path) -> None:
    path = regression_path(tmp_path, "tiny")
    with pytest.raises(SourceMissingError, match="--accept"):
        read_regression(path)
    path.write_text("dataset: tiny\n", encoding="utf-8")
    with pytest.raises(SourceFormatError, match="must hold exactly"):
        read_regression(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(SourceFormatError, match="not YAML"):
        read_regression(path)


@pytest.mark.parametrize(
    ("name", "expected", "found", "verdict"),
    [
        ("index.memories", 60, 60, Verdict.OK),
        ("index.memories", 60, 61, Verdict.FAIL),
        ("index.memories", 60, None, Verdict.FAIL),
        ("index.encoder_digest", None, None, Verdict.OK),
        ("corpus.digest", "a", "b", Verdict.FAIL),
        ("scores.noctuary.recall@10", 0.5, 0.5, Verdict.OK),
        ("scores.noctuary.recall@10", 0.5, 0.5004, Verdict.OKISH),
        ("scores.noctuary.recall@10", 0.5, 0.4996, Verdict.OKISH),
        ("scores.noctuary.recall@10", 0.5, 0.501, Verdict.FAIL),
        ("scores.noctuary.recall@10", None, 0.5, Verdict.FAIL),
    ],
)
def test_only_scores_have_a_tolerance(
    name: str, expected: int | None, found: int | None, verdict: Verdict
) -> None:
    assert judge_number(name, expected, found, tolerance=0.0005) is verdict


def test_a_number_that_one_side_lacks_fails() -> None:
    expected = Regression("tiny", {"index.memories": 60, "index.terms": 5})
    found = Regression("tiny", {"index.memories": 60, "index.edges": 9})
    verdicts = {one.name: one.verdict for one in judge(expected, found)}
    assert verdicts == {
        "index.memories": Verdict.OK,
        "index.terms": Verdict.FAIL,
        "index.edges": Verdict.FAIL,
    }
    assert worst(judge(expected, found)) is Verdict.FAIL
    assert worst([]) is Verdict.OK


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.1))
def test_a_score_fails_exactly_beyond_the_tolerance(
    expected: float, found: float, tolerance: float
) -> None:
    verdict = judge_number("scores.a.b", expected, found, tolerance)
    assert (verdict is Verdict.FAIL) == (abs(expected - found) > tolerance)


def test_names_nest_and_flatten() -> None:
    assert nest({"a.b": 1, "a.c.d": 2}) == {"a": {"b": 1, "c": {"d": 2}}}
    assert flatten(nest(VALUES)) == VALUES
