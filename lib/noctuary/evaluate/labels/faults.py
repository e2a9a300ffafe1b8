"""Kinds of faults in labelled files, and the named error for a list of them.

What belongs here: names. Who finds a fault is the reader of the file's format.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from noctuary.errors import (
    DuplicateQueryError,
    LineFault,
    QueryFileError,
    UnknownLabelError,
    UnlabelledQueryError,
)


class FaultKind(StrEnum):
    """What can be wrong with a line; the value is `LineFault.kind`."""

    NOT_UTF8 = "not_utf8"
    HALF_WRITTEN_LINE = "half_written_line"
    WRONG_TYPE = "wrong_type"
    MISSING_FIELD = "missing_field"
    BAD_UNICODE = "bad_unicode"
    UNLABELLED_QUERY = "unlabelled_query"
    LABELLED_ADVERSARIAL = "labelled_adversarial"
    UNKNOWN_LABEL = "unknown_label"
    UNKNOWN_QUERY = "unknown_query"
    BAD_GRADE = "bad_grade"
    DUPLICATE_QUERY_ID = "duplicate_query_id"
    DUPLICATE_JUDGEMENT = "duplicate_judgement"
    DUPLICATE_MEMORY_ID = "duplicate_memory_id"
    EMPTY_FILE = "empty_file"
    DAMAGED_ARCHIVE = "damaged_archive"


class LineError(Exception):
    """A line cannot be read; whoever reads the file turns it into a `LineFault`."""

    def __init__(self, kind: FaultKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def at(self, line: int) -> LineFault:
        """Return the fault, placed on its line."""
        return LineFault(line, self.kind, str(self))


_QUERY_ERRORS: dict[str, type[QueryFileError]] = {
    FaultKind.UNLABELLED_QUERY: UnlabelledQueryError,
    FaultKind.UNKNOWN_LABEL: UnknownLabelError,
    FaultKind.DUPLICATE_QUERY_ID: DuplicateQueryError,
}


def query_file_error(path: Path, faults: Sequence[LineFault]) -> QueryFileError:
    """Return the error for the faults of a query file: the named one where all are of one kind.

    Args:
        path: The file.
        faults: At least one.
    """
    kinds = {fault.kind for fault in faults}
    named = _QUERY_ERRORS.get(kinds.pop()) if len(kinds) == 1 else None
    return (named or QueryFileError)(path, faults)
