"""Which words make a name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from noctuary.graph.fold import words
from noctuary.graph.names import RUNS_MAX, find_runs


def _runs(content: str, taken: Sequence[tuple[int, int]] = ()) -> list[str]:
    return [content[start:end] for start, end in find_runs(content, words(content), taken)]


@pytest.mark.parametrize(
    ("content", "runs"),
    [
        ("the retry queue is slow", ["retry queue"]),
        ("a queue, limit", []),
        ("retry-queue limit of it", ["retry-queue limit"]),
        ("big slow retry queue", ["slow retry queue"]),
        ("Dana's retry queue", ["retry queue"]),
        ("queue 7 limit", []),
        ("retry queue\nlimit price", ["retry queue", "limit price"]),
        ("the api depends on cache nodes", ["cache nodes"]),
        ("before\n```\nretry queue\n```\nlimit price", ["limit price"]),
    ],
)
def test_a_run_ends_at_stop_words_marks_and_owners(content: str, runs: list[str]) -> None:
    assert _runs(content) == runs


def test_the_words_of_a_name_end_a_run() -> None:
    content = "retry queue Dana Whitfield limit price"
    assert _runs(content, [(12, 26)]) == ["retry queue", "limit price"]
    assert _runs(content, [(0, 40)]) == []


def test_nested_names_hide_what_lies_in_any_of_them() -> None:
    assert _runs("aa bb cc dd ee ff", [(0, 11), (3, 5)]) == ["ee ff"]


def test_the_number_of_runs_is_bounded() -> None:
    assert len(_runs("retry queue, " * (RUNS_MAX + 5))) == RUNS_MAX


@pytest.mark.parametrize(
    "content", ["очередь повторов", "ουρά επανάληψης", "재시도 대기열", "תור ניסיונות"]
)
def test_a_script_without_a_list_of_stop_words_has_no_runs(content: str) -> None:
    assert _runs(content) == []
