"""`patch_json`: the new value exactly, and otherwise the old bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents.settings_files import is_same_json, patch_json
from tests.support.agent_settings import json_layouts, json_values, settings_values

either = json_values | settings_values


@given(either, either, json_layouts)
def test_the_result_reads_as_the_new_value(old: Any, new: Any, layout: dict[str, Any]) -> None:
    text = json.dumps(old, **layout)
    assert is_same_json(json.loads(patch_json(text, new)), new)


@given(either, json_layouts, st.sampled_from(["", " \n", "\r\n"]))
def test_the_same_value_leaves_every_byte(old: Any, layout: dict[str, Any], around: str) -> None:
    text = f"{around}{json.dumps(old, **layout)}{around}"
    assert patch_json(text, old) == text


@given(
    st.dictionaries(st.text(max_size=4), json_values, min_size=1, max_size=4),
    json_values,
    json_layouts,
)
def test_a_member_that_comes_and_goes_leaves_no_trace(
    old: dict[str, Any], value: Any, layout: dict[str, Any]
) -> None:
    text = json.dumps(old, **layout)
    with_it = patch_json(text, {**old, "a key that is new": value})
    assert patch_json(with_it, old) == text


@given(st.lists(json_values, min_size=1, max_size=4), json_values, json_layouts)
def test_an_element_that_comes_and_goes_leaves_no_trace(
    old: list[Any], value: Any, layout: dict[str, Any]
) -> None:
    text = json.dumps(old, **layout)
    assert patch_json(patch_json(text, [*old, value]), old) == text


OWN = '{ "a" : 1.50,\n   "b":["x" ,"y"], "e": "\\u00e9",\r\n\t"c": {"d":\n null} }\n'


@pytest.mark.parametrize(
    ("new", "text"),
    [
        ({"a": 1.5, "b": ["x"], "e": "é", "c": {"d": None}}, OWN.replace(' ,"y"', "")),
        ({"a": 1.5, "b": ["y"], "e": "é", "c": {"d": None}}, OWN.replace('"x" ,', "")),
        ({"a": 1.5, "b": ["x", "z"], "e": "é", "c": {"d": None}}, OWN.replace("y", "z")),
        ({"b": ["x", "y"], "e": "é", "c": {"d": None}}, OWN.replace('"a" : 1.50,\n   ', "")),
        ({"a": 1.5, "b": ["x", "y"], "c": {"d": None}}, OWN.replace(', "e": "\\u00e9"', "")),
        ({"c": {"d": None}}, '{ "c": {"d":\n null} }\n'),
        ({"a": 1.5}, '{ "a" : 1.50 }\n'),
        ({}, "{}\n"),
    ],
)
def test_only_what_changes_is_touched(new: Any, text: str) -> None:
    assert patch_json(OWN, new) == text


@pytest.mark.parametrize(
    ("text", "new", "expected"),
    [
        ("{}", {"a": 1}, '{\n  "a": 1\n}'),
        ('{"a":1}', {"a": 1, "b": []}, '{"a":1, "b": []}'),
        ('{\n\t"a": 1\n}', {"a": 1, "b": [2]}, '{\n\t"a": 1,\n\t"b": [\n\t\t2\n\t]\n}'),
        (
            '{\r\n    "a": {\r\n        "b": 1\r\n    }\r\n}\r\n',
            {"a": {"b": 1, "c": {"d": 2}}},
            '{\r\n    "a": {\r\n        "b": 1,\r\n        "c": {\r\n            "d": 2\r\n        }\r\n    }\r\n}\r\n',  # noqa: E501
        ),
        ('{\n  "a": [1]\n}', {"a": [1, 2]}, '{\n  "a": [1, 2]\n}'),
    ],
)
def test_what_is_new_is_written_as_the_rest_is(text: str, new: Any, expected: str) -> None:
    assert patch_json(text, new) == expected


def test_numbers_and_truth_values_are_told_apart() -> None:
    assert not is_same_json(1, True)
    assert not is_same_json(1, 1.0)
    assert not is_same_json({"a": 0}, {"a": False})
    assert is_same_json({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert json.loads(patch_json('{"a": 1}', {"a": True})) == {"a": True}
