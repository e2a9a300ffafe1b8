from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.summarizers import (
    BLOB_PLACEHOLDER,
    CODE_PLACEHOLDER,
    DATA_URI_PLACEHOLDER,
    sanitize,
)


def fence(*lines: str, mark: str = "```") -> str:
    return "\n".join([f"{mark}python", *lines, mark])


@pytest.mark.parametrize(
    ("block", "is_long"),
    [
        (fence("x = 1"), False),
        (fence(*["x"] * 7), False),
        (fence(*["x"] * 8), True),
        (fence("x = 1; y = 2 " * 18), True),
        (fence("x = 1; y = 2 " * 17), False),
        (fence(*["x"] * 8, mark="~~~"), True),
        ("```\n" + "x\n" * 9, True),
    ],
)
def test_long_fenced_blocks_give_way(block: str, is_long: bool) -> None:
    text = f"Look:\n{block}\ndone"
    assert (CODE_PLACEHOLDER in sanitize(text)) == is_long
    if not is_long:
        assert sanitize(text) == text


def test_what_stands_around_a_block_stays() -> None:
    text = f"before\n{fence(*['x'] * 9)}\nbetween\n{fence('y')}\nbehind"
    assert sanitize(text) == f"before\n{CODE_PLACEHOLDER}\nbetween\n{fence('y')}\nbehind"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("see data:image/png;base64," + "A" * 60, DATA_URI_PLACEHOLDER),
        ("data: 5 rows", "data: 5 rows"),
        ("key " + base64.b64encode(bytes(range(99))).decode(), BLOB_PLACEHOLDER),
        ("sum " + "0f" * 32 + " of the archive which is kept in the vault", BLOB_PLACEHOLDER),
        ("0f" * 32, "0f" * 32),
        ("a plain sentence " * 12, "a plain sentence " * 12),
    ],
)
def test_lines_of_encoded_data_give_way(line: str, shown: str) -> None:
    assert sanitize(f"first\n{line}\nlast") == f"first\n{shown}\nlast"


def test_runs_of_blank_lines_become_one() -> None:
    assert sanitize("a\n\n\n \n\nb\n\nc") == "a\n\nb\n\nc"


PARTS = ["```", "~~~", "x", "data:" + "a" * 70, "0f" * 50, "", " ", "word " * 30]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=20), max_size=14).map("\n".join))
def test_sanitising_twice_changes_nothing_more(text: str) -> None:
    once = sanitize(text)
    assert sanitize(once) == once
