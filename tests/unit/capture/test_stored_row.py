from __future__ import annotations

from decimal import Decimal

import pytest

from noctuary.capture.stored_row import decode_row, encode_row
from noctuary.corpus.quarantine import QuarantineReason
from noctuary.corpus.source import RawRow
from noctuary.errors import SourceFormatError


def test_a_sensitive_row_is_a_place_and_a_reason() -> None:
    row = RawRow("id 7", 7, {"content": "canary", "is_sensitive": True, "tags": "canary"})
    line = encode_row(row)
    assert line == '["id 7", {}, null, "", "flagged"]'
    assert decode_row(7, line) == RawRow("id 7", 7, {}, withheld="flagged")


def test_what_the_store_withheld_stays_withheld() -> None:
    row = RawRow("id 7", 7, {}, withheld="vaulted")
    assert decode_row(7, encode_row(row)) == row


def test_a_row_with_a_problem_keeps_it_without_its_text() -> None:
    row = RawRow(
        "id 7",
        7,
        {},
        problem=QuarantineReason.CONTENT_TOO_LARGE,
        problem_detail="row: 9 bytes",
        unread_text="some text",
    )
    line = encode_row(row)
    assert "some text" not in line
    found = decode_row(7, line)
    assert (found.problem, found.problem_detail) == (row.problem, row.problem_detail)


def test_an_unreadable_row_is_judged_by_what_could_be_read() -> None:
    row = RawRow(
        "id 7",
        7,
        {},
        problem=QuarantineReason.NOT_UTF8,
        problem_detail="row: bytes",
        unread_text='"is_sensitive": 1',
    )
    assert decode_row(7, encode_row(row)) == RawRow("id 7", 7, {}, withheld="flagged")


def test_a_type_that_no_source_gives_is_named_without_its_value() -> None:
    with pytest.raises(SourceFormatError, match="id 7: importance is of type Decimal") as caught:
        encode_row(RawRow("id 7", 7, {"importance": Decimal("0.25")}))
    assert "0.25" not in str(caught.value)


@pytest.mark.parametrize("line", ["", "[]", "{}", '["id 7", {}, "no such reason", "", null]', "7"])
def test_what_is_no_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_row(7, line)


@pytest.mark.parametrize("value", [{"\0bytes": "x"}, {"\0pairs": []}, {7: "x", "7": "y"}])
def test_a_mapping_whose_keys_mean_something_here_comes_back(value: object) -> None:
    row = RawRow("id 7", 7, {"content": [value, b"\0"]})
    assert decode_row(7, encode_row(row)) == row
