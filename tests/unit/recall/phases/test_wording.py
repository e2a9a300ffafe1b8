from __future__ import annotations

import pytest

from noctuary.recall.selection import ordinal, quoted


@pytest.mark.parametrize(
    ("number", "said"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"),
     (21, "21st"), (37, "37th"), (112, "112th"), (1003, "1003rd")],
)  # fmt: skip
def test_ranks_as_words_have_them(number: int, said: str) -> None:
    assert ordinal(number) == said


def test_a_name_cannot_pass_for_a_memory() -> None:
    assert quoted("wing {12}") == "'wing (12)'"
    assert quoted(None) == "(none)"
