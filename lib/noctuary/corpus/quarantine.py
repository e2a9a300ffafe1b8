"""Why a row was set aside. What belongs here: the reasons and the shape of a quarantine row.

A quarantine row says where the row is and what is wrong with it, never what it says: details are
made of field names, types, sizes and line numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class QuarantineReason(StrEnum):
    """The one reason for which a row is not a memory; the first that applies."""

    INVALID_JSON = "invalid_json"
    HALF_WRITTEN_LINE = "half_written_line"
    NOT_UTF8 = "not_utf8"
    NOT_AN_OBJECT = "not_an_object"
    LINE_TOO_LONG = "line_too_long"
    BAD_ID = "bad_id"
    DUPLICATE_ID = "duplicate_id"
    DELETED = "deleted"
    MISSING_CONTENT = "missing_content"
    CONTENT_NOT_TEXT = "content_not_text"
    EMPTY_CONTENT = "empty_content"
    CONTENT_TOO_LARGE = "content_too_large"
    BAD_FIELD = "bad_field"
    FIELD_TOO_LARGE = "field_too_large"
    NUL_BYTES = "nul_bytes"
    BAD_UNICODE = "bad_unicode"
    BAD_DATE = "bad_date"
    DATE_OUT_OF_RANGE = "date_out_of_range"
    BAD_IMPORTANCE = "bad_importance"
    INJECTED_BLOCK = "injected_block"
    INJECTED_LINES = "injected_lines"
    BOOKKEEPING = "bookkeeping"


@dataclass(frozen=True, slots=True)
class QuarantineRow:
    """One row that was set aside.

    Attributes:
        locator: Where it is in its source ("id 17", "line 42").
        reason: Why it is not a memory.
        detail: Field names, types and sizes; free of any text of the row.
    """

    locator: str
    reason: QuarantineReason
    detail: str
