r"""Turns from a file of JSON lines, one per line, oldest first.

    {"role": "user", "text": "The build is red.", "id": "m1", "at": "2026-03-01T08:00:00Z"}
    {"role": "assistant", "text": "Which part?", "bundle": "b7"}

What belongs here: reading, with a named fault for each line that is wrong. What does not: agents'
own transcripts (`noctuary.transcripts`), checks of the session as a whole (`api.turn_faults`).
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, cast

from noctuary.context.values import Turn
from noctuary.errors import LineFault, SessionFileError
from noctuary.foreign_json import parse_json
from noctuary.recall.scope import aware
from noctuary.types import to_micros

MAX_SESSION_BYTES = 64_000_000
"""Longest file: it is read whole, and a session of a working day has a hundredth of this."""


def read_session(path: Path) -> tuple[Turn, ...]:
    r"""Return the turns of a file.

    Lines end at \n only; blank ones are skipped. Of a line `role` and `text` are needed; `id`,
    `at` (ISO-8601, without a zone UTC) and `bundle` are optional, and other keys are ignored.

    Raises:
        SessionFileError: Nothing readable is there, or lines are wrong; lists every fault.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SESSION_BYTES + 1)
    except OSError as error:
        raise _whole(path, f"cannot be read: {error.strerror or error}") from error
    if len(raw) > MAX_SESSION_BYTES:
        raise _whole(path, f"has more than {MAX_SESSION_BYTES:,} bytes: give its last turns")
    turns: list[Turn] = []
    faults: list[LineFault] = []
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            try:
                turns.append(_turn(line))
            except _LineError as fault:
                faults.append(LineFault(number, "turn", str(fault)))
    if faults:
        raise SessionFileError(path, faults)
    return tuple(turns)


class _LineError(Exception):
    """What is wrong with one line."""


def _turn(line: bytes) -> Turn:
    try:
        parsed: object = parse_json(line.decode("utf-8"))
    except ValueError as error:
        raise _LineError(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise _LineError(f"expected a JSON object, found {type(parsed).__name__}")
    row = cast("dict[str, Any]", parsed)
    role, text = _text(row, "role"), _text(row, "text")
    if role is None or text is None:
        missing = "role" if role is None else "text"
        raise _LineError(f"{missing} is missing: a turn has role and text")
    return Turn(role, text, _text(row, "id"), _moment(row), _text(row, "bundle"))


def _text(row: dict[str, Any], key: str) -> str | None:
    value = row.get(key)
    if value is not None and not isinstance(value, str):
        raise _LineError(f"{key} must be a text, found {type(value).__name__}")
    return value


def _moment(row: dict[str, Any]) -> int | None:
    value = _text(row, "at")
    if value is None:
        return None
    try:
        return to_micros(aware(datetime.fromisoformat(value)))
    except (ValueError, OverflowError):
        raise _LineError(f"at must be an ISO-8601 date or time, found {value!r}") from None


def _whole(path: Path, message: str) -> SessionFileError:
    return SessionFileError(path, [LineFault(0, "file", message)])
