from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.generated import (
    GRADE,
    MAX_QUERY_CHARS,
    PARAPHRASE,
    parse_answers,
    read_grade,
    read_query,
)
from noctuary.work.http import AnswerFault

GOOD = json.dumps({"items": [{"id": "1", "grade": 3}, {"id": "2", "grade": 0}]})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["id", "items", "grade", "1"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        f"```json\n{GOOD}\n```",
        f"Here you are:\n{GOOD}\nAnything else?",
        f"<think>is it {{3}} or [0]?</think>{GOOD}",
        '[{"id": 1, "grade": 3}, {"id": 2, "grade": 0}]',
        'Sure: [{"id": "1", "grade": 3}, {"id": " 2 ", "grade": 0, "why": "x"}]',
    ],
)
def test_the_usual_wrappings_are_read(content: str) -> None:
    found = parse_answers(content, 2, GRADE)
    assert found.values == {0: 3, 1: 0}
    assert not +found.faults


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", AnswerFault.NOT_JSON),
        ("I cannot help with that.", AnswerFault.NOT_JSON),
        ("<html>{</html>", AnswerFault.NOT_JSON),
        (GOOD[:-8], AnswerFault.NOT_JSON),
        ("{" * 50_000 + "}" * 50_000, AnswerFault.NOT_JSON),
        ("7", AnswerFault.WRONG_SHAPE),
        ('"text"', AnswerFault.WRONG_SHAPE),
        ('{"items": {"1": 3}}', AnswerFault.WRONG_SHAPE),
        ('{"grades": []}', AnswerFault.WRONG_SHAPE),
    ],
)
def test_what_is_no_list_of_items_is_one_fault(content: str, fault: AnswerFault) -> None:
    found = parse_answers(content, 2, GRADE)
    assert found.values == {}
    assert dict(+found.faults) == {fault: 1}


def test_the_good_items_of_a_bad_answer_are_kept_and_the_others_counted() -> None:
    rows = [
        {"id": "1", "grade": 2},
        {"id": "1", "grade": 0},  # twice: the first one stands
        {"id": "2", "grade": "3"},  # a text
        {"id": "9", "grade": 3},  # not asked
        {"id": "3", "grade": 4},  # out of range
        "4",
        {"grade": 1},
    ]
    found = parse_answers(json.dumps(rows), 6, GRADE)
    assert found.values == {0: 2}
    assert found.faults == {
        AnswerFault.DUPLICATE_ID: 1,
        AnswerFault.WRONG_TYPE: 4,
        AnswerFault.UNKNOWN_ID: 1,
        AnswerFault.MISSING_ID: 1,
    }


def test_an_empty_list_misses_every_item() -> None:
    found = parse_answers('{"items": []}', 3, GRADE)
    assert dict(+found.faults) == {AnswerFault.MISSING_ID: 3}


@pytest.mark.parametrize("value", [None, True, "2", 2.0, -1, 4, [2], {"grade": 2}])
def test_only_an_integer_from_0_to_3_is_a_grade(value: object) -> None:
    assert read_grade(value) is None
    assert [read_grade(grade) for grade in range(4)] == [0, 1, 2, 3]


def test_a_query_is_one_bounded_line_that_can_be_stored() -> None:
    assert read_query(" where\n is  it? ") == "where is it?"
    for value in ("", " \n", None, 3, ["where?"], "x" * (MAX_QUERY_CHARS + 1), "where \ud800?"):
        assert read_query(value) is None


@given(JSON, st.integers(1, 4))
def test_no_json_raises_and_no_value_is_out_of_range(value: object, n: int) -> None:
    found = parse_answers(json.dumps(value), n, GRADE)
    assert set(found.values) <= set(range(n))
    assert set(found.values.values()) <= {0, 1, 2, 3}
    assert found.values or found.faults.total()


@given(st.text(), st.integers(1, 4))
def test_no_text_raises(content: str, n: int) -> None:
    found = parse_answers(content, n, PARAPHRASE)
    assert found.faults.total() >= 1
