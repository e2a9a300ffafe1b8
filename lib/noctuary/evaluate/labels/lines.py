"""JSON lines and the typed fields of one line.

What belongs here: reading, with a named fault for everything that can be wrong. No format of its
own: which fields there are is known to queries, qrels and dataset.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard, cast

from noctuary.errors import FAULTS_SHOWN, FileFaultsError, LineFault, SourceMissingError
from noctuary.evaluate.labels.faults import FaultKind, LineError
from noctuary.foreign_json import parse_json

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path: Path, kind: str, error: type[FileFaultsError]) -> Iterator[tuple[int, bytes]]:
    r"""Yield the non-blank lines of a file with their numbers, from 1.

    Lines end at \n only: U+2028 inside a JSON string is text. A byte order mark is skipped.

    Args:
        path: Plain, or gzip where the name ends in .gz.
        kind: What the file is, for messages: "query file".
        error: The class for an archive that is cut off or damaged.

    Raises:
        SourceMissingError: If there is no such file.
        FileFaultsError: If the archive is damaged; the fault names the first line that is lost.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as handle:
            for number, line in enumerate(handle, start=1):
                text = line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line
                if text.strip():
                    yield number, text
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as missing:
        raise SourceMissingError(f"no {kind} at {path}") from missing
    except (EOFError, gzip.BadGzipFile, zlib.error) as damage:
        message = f"the archive is cut off or damaged from here on ({damage})"
        fault = LineFault(number + 1, FaultKind.DAMAGED_ARCHIVE, message)
        raise error(path, [fault]) from damage


def parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of one line.

    Raises:
        LineError: If the line is not UTF-8, not JSON or not an object.
    """
    try:
        parsed: object = parse_json(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise LineError(FaultKind.NOT_UTF8, f"not UTF-8 text ({error.reason})") from error
    except json.JSONDecodeError as error:
        message = f"half-written or not JSON ({error.msg} at column {error.colno})"
        raise LineError(FaultKind.HALF_WRITTEN_LINE, message) from error
    except ValueError as error:
        # Python's own limits: numbers of thousands of digits, nesting of thousands of levels.
        message = f"JSON that cannot be read: {error}"
        raise LineError(FaultKind.WRONG_TYPE, message) from error
    if not isinstance(parsed, dict):
        found = type(parsed).__name__
        raise LineError(FaultKind.WRONG_TYPE, f"expected a JSON object, found {found}")
    return cast("dict[str, Any]", parsed)


def read_text(row: Mapping[str, Any], key: str) -> str:
    """Return a field that must be a non-blank text.

    Raises:
        LineError: If it is missing, of another type, blank, or holds half a character.
    """
    if key not in row:
        message = f"{key} must be a non-blank string, found no such field"
        raise LineError(FaultKind.MISSING_FIELD, message)
    value = row[key]
    if not isinstance(value, str) or not value.strip():
        message = f"{key} must be a non-blank string, found {value!r}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    return _require_unicode(value, key)


def read_optional_text(row: Mapping[str, Any], key: str) -> str | None:
    """Return a field that is a non-blank text, null or absent; LineError for anything else."""
    return None if row.get(key) is None else read_text(row, key)


def read_id(value: object) -> str | None:
    """Return an id as text, or None if the value is neither an integer nor a non-blank text."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    return str(value) if str(value).strip() else None


def read_ids(values: object, where: str) -> tuple[str, ...]:
    """Return a list of ids as text, each once, in order.

    Raises:
        LineError: If it is no list, or holds something that is no id.
    """
    if not isinstance(values, list):
        raise LineError(FaultKind.WRONG_TYPE, f"{where} must be a list, found {values!r}")
    ids = [(value, read_id(value)) for value in cast("list[object]", values)]
    bad = [value for value, memory_id in ids if memory_id is None]
    if bad:
        message = f"{where}: ids must be integers or strings, found {shorten(bad)}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    found = dict.fromkeys(memory_id for _, memory_id in ids if memory_id is not None)
    return tuple(_require_unicode(memory_id, where) for memory_id in found)


def read_grades(values: object, lowest: int, where: str) -> dict[str, int]:
    """Return a mapping of ids to grades.

    Args:
        values: What the line holds.
        lowest: The smallest grade allowed.
        where: What carries the grades, for messages.

    Raises:
        LineError: If it is no object, or a grade is no integer of at least `lowest`.
    """
    if not isinstance(values, dict):
        message = f"{where}: grades must be an object of id: grade, found {values!r}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    grades = cast("dict[str, object]", values)
    bad = [
        f"{memory_id}: {grade!r}"
        for memory_id, grade in grades.items()
        if not memory_id.strip() or not _is_int(grade) or grade < lowest
    ]
    if bad:
        message = f"{where}: grades must be integers >= {lowest} of ids, found {shorten(bad)}"
        raise LineError(FaultKind.BAD_GRADE, message)
    return {_require_unicode(i, where): grade for i, grade in grades.items() if _is_int(grade)}


def read_moment(row: Mapping[str, Any], key: str) -> datetime | None:
    """Return a field that is an ISO 8601 moment, as UTC; without an offset it is read as UTC.

    Raises:
        LineError: If it is anything else, null and absent excepted.
    """
    text = read_optional_text(row, key)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        message = f"{key} must be an ISO 8601 moment, found {text!r}"
        raise LineError(FaultKind.WRONG_TYPE, message) from error


def read_optional_int(row: Mapping[str, Any], key: str) -> int | None:
    """Return a field that is an integer, null or absent; LineError for anything else."""
    value = row.get(key)
    if value is not None and not _is_int(value):
        message = f"{key} must be an integer, found {value!r}"
        raise LineError(FaultKind.WRONG_TYPE, message)
    return value


def shorten(values: Iterable[str] | Sequence[object]) -> str:
    """Return a list for a message: the first ten, and how many more there are."""
    items = list(values)
    rest = len(items) - FAULTS_SHOWN
    return f"{items[:FAULTS_SHOWN]}{f' and {rest} more' if rest > 0 else ''}"


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _require_unicode(text: str, where: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"{where} holds half a character (a lone surrogate): {text!r}"
        raise LineError(FaultKind.BAD_UNICODE, message) from error
    return text
