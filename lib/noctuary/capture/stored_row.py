"""A raw row as one line of text and back, without the text of a sensitive one.

What belongs here: the encoding, and the judgement that comes before it. What does not: the file
(`noctuary.capture.replica_file`).

JSON holds every value that a source gives but bytes; those stand as base64 under a key of their
own. Numbers, NaN and lone surrogates come back as they were.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, cast

from noctuary.corpus.quarantine import QuarantineReason
from noctuary.corpus.sensitive import find_sensitivity
from noctuary.corpus.source import RawRow
from noctuary.errors import SourceFormatError
from noctuary.foreign_json import parse_json

_BYTES = "\0bytes"
"""Key of a value that is no JSON; no column and no key of a JSON document of PostgreSQL holds NUL,
and a mapping that does all the same is written as a list of pairs."""
_PAIRS = "\0pairs"


def encode_row(row: RawRow) -> str:
    """Return what may be kept of a row, as one line of JSON; equal rows give equal lines.

    Of a sensitive row that is where it was and why it is withheld, nothing else.

    Args:
        row: As the store gave it; its `unread_text` is judged and never kept.

    Raises:
        SourceFormatError: A field is of a type that no source gives; named without its value.
    """
    reason = find_sensitivity(row)
    if reason is not None:
        return json.dumps([row.locator, {}, None, "", reason])
    fields = {name: _encode(value, row.locator, name) for name, value in row.fields.items()}
    problem = None if row.problem is None else row.problem.value
    return json.dumps([row.locator, fields, problem, row.problem_detail, None])


def decode_row(key: int | str, line: str) -> RawRow:
    """Return the row that `encode_row` made a line of.

    Raises:
        ValueError: It made no such line.
    """
    found: object = parse_json(line)
    if not isinstance(found, list) or len(cast("list[object]", found)) != 5:
        raise ValueError("not a stored row")
    locator, fields, problem, detail, withheld = cast("list[Any]", found)
    return RawRow(
        locator=locator,
        key=key,
        fields={name: _decode(value) for name, value in fields.items()},
        problem=None if problem is None else QuarantineReason(problem),
        problem_detail=detail,
        withheld=withheld,
    )


def _encode(value: object, locator: str, name: str) -> object:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BYTES: base64.b64encode(bytes(value)).decode("ascii")}
    if isinstance(value, list | tuple):
        return [_encode(item, locator, name) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        encoded = [(key, _encode(item, locator, name)) for key, item in pairs]
        if all(isinstance(key, str) and not key.startswith("\0") for key, _ in encoded):
            return dict(encoded)
        return {_PAIRS: [[_encode(key, locator, name), item] for key, item in encoded]}
    raise SourceFormatError(
        f"{locator}: {name} is of type {type(value).__name__}; expected a text, a number, bytes, "
        f"a list or a mapping. Report this: the reader of this kind of store must convert it."
    )


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    found = cast("dict[str, Any]", value)
    if _BYTES in found:
        return base64.b64decode(found[_BYTES])
    if _PAIRS in found:
        return {_decode(key): _decode(item) for key, item in found[_PAIRS]}
    return {key: _decode(item) for key, item in found.items()}
