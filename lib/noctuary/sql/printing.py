"""An answer as text, CSV or JSON: row by row, so that a large one needs no memory.

What belongs here: values and lines. What does not: running a query.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time
from typing import Any, cast

from noctuary.sql.database import Answer
from noctuary.text.visible import visible_line

CELL_CHARS = 60
"""Of a value in text output: a memory's beginning, so that a row stays readable."""

Row = tuple[Any, ...]


class Printed:
    """The rows of an answer up to a limit, and whether there were more.

    Attributes:
        count: Rows given out so far.
        is_cut: True once the limit left something out.
    """

    def __init__(self, answer: Answer, limit: int | None) -> None:
        """Take an answer; a limit of None means every row."""
        self.count = 0
        self.is_cut = False
        self._answer = answer
        self._limit = limit

    def batches(self) -> Iterator[Sequence[Row]]:
        """Yield the rows in batches, never an empty one."""
        for batch in self._answer.batches:
            left = None if self._limit is None else self._limit - self.count
            kept = batch if left is None else batch[:left]
            self.is_cut = len(kept) < len(batch)
            self.count += len(kept)
            if kept:
                yield kept
            if self.is_cut:
                return


def text_lines(answer: Answer, printed: Printed) -> Iterator[str]:
    """Yield a table: names, a rule, one line per row; widths are those of the first batch."""
    widths: list[int] | None = None
    for batch in printed.batches():
        cells = [[_cell(value) for value in row] for row in batch]
        if widths is None:
            widths = [
                max(len(name), *(len(row[i]) for row in cells))
                for i, name in enumerate(answer.columns)
            ]
            yield _line(answer.columns, widths)
            yield _line(["-" * width for width in widths], widths)
        for row in cells:
            yield _line(row, widths)
    if widths is None:
        yield _line(answer.columns, [len(name) for name in answer.columns])


def csv_lines(answer: Answer, printed: Printed) -> Iterator[str]:
    """Yield a header and one record per row (RFC 4180, but for LF); null is an empty field."""
    yield _record(answer.columns)
    for batch in printed.batches():
        for row in batch:
            yield _record(["" if value is None else _plain(value) for value in row])


def json_pieces(answer: Answer, printed: Printed) -> Iterator[str]:
    """Yield one JSON object in pieces: columns, types, rows, row_count, is_cut."""
    yield f'{{"columns": {_dump(answer.columns)},\n "types": {_dump(answer.types)},\n "rows": ['
    separator = "\n  "
    for batch in printed.batches():
        for row in batch:
            yield separator + _dump([to_json(value) for value in row])
            separator = ",\n  "
    yield f'],\n "row_count": {printed.count},\n "is_cut": {_dump(printed.is_cut)}}}\n'


def to_json(value: Any) -> Any:
    """Return a value of DuckDB as JSON has it; moments as ISO 8601, what JSON lacks as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {str(key): to_json(item) for key, item in items}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in cast("Sequence[Any]", value)]
    return str(value)


def _cell(value: Any) -> str:
    text = "" if value is None else _plain(value)
    head = visible_line(" ".join(text[: CELL_CHARS + 1].expandtabs(1).splitlines()))
    return head if len(head) <= CELL_CHARS else f"{head[: CELL_CHARS - 3]}..."


def _plain(value: Any) -> str:
    shown = to_json(value)
    if isinstance(shown, str):
        return shown
    return json.dumps(shown, ensure_ascii=False)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True)).rstrip()


def _record(values: Sequence[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
