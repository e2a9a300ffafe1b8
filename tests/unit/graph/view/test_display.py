from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US
from noctuary.graph.view import LINE_CHARACTERS, evidence_line
from noctuary.text.marks import clean, cut, day, iso, pad, width
from tests.support.store import day_us

ANY_TEXT = st.text(st.characters())  # lone surrogates included


@given(ANY_TEXT)
def test_a_clean_text_is_one_line_that_steers_nothing(text: str) -> None:
    shown = clean(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in shown)
    assert not set(shown) & set("\u202e\u2066\n\r\x1b")
    assert clean(shown) == shown
    shown.encode("utf-8")


@given(ANY_TEXT.map(clean), st.integers(1, 30))
def test_a_cut_text_fits(text: str, columns: int) -> None:
    assert width(cut(text, columns)) <= columns
    assert (cut(text, columns) == text) == (width(text) <= columns)
    assert width(pad(cut(text, columns), columns)) == columns


def test_wide_letters_take_two_columns_and_marks_none() -> None:
    assert (width("東京"), width("Москва"), width("e\u0301")) == (4, 6, 1)
    assert cut("東京オフィス", 5) == "東京…"


def test_dates() -> None:
    assert (day(day_us(2)), day(day_us(2) + 90_000_000)) == ("2026-01-02", "2026-01-02 00:01")
    assert (day(UNDATED_US), iso(UNDATED_US)) == ("undated", None)
    assert (day(2**62), iso(2**62), iso(None)) == ("undated", None, None)
    assert iso(day_us(2)) == "2026-01-02T00:00:00+00:00"


@given(ANY_TEXT, st.integers(-1, 300), st.integers(-1, 300))
def test_the_evidence_stands_where_the_line_says(content: str, start: int, end: int) -> None:
    line, span = evidence_line(content, start, end)
    if 0 <= start < end <= len(content):
        assert span is not None
        assert line[slice(*span)] == clean(content[start:end])
    else:
        assert span is None
        assert len(line) <= LINE_CHARACTERS + 1


def test_a_long_line_keeps_what_is_around_the_evidence() -> None:
    content = "first line\n" + "before " * 40 + "HERE" + " after" * 40 + "\nlast line"
    at = content.index("HERE")
    line, span = evidence_line(content, at, at + 4)
    assert span is not None
    assert line[slice(*span)] == "HERE"
    assert line.startswith("…")
    assert line.endswith("…")
    assert "first" not in line
    assert len(line) <= LINE_CHARACTERS + 2
    assert evidence_line("\n  \n# Title\nbody", -1, -1) == ("# Title", None)
