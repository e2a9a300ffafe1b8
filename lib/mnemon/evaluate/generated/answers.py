"""From a model's text to one value per item, and what was wrong with the rest.

What belongs here: finding the JSON, checking every item. What does not: HTTP (chat.py), whether a
value is good (overlap.py, the judge).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mnemon.evaluate.generated.endpoint import AnswerFault

MAX_QUERY_CHARS = 400
"""Longer ones are no queries but copied memories or a model's thoughts."""
MAX_GRADE = 3

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)

Value = str | int
ReadValue = Callable[[object], Value | None]
"""Returns the value of an item, or None where it is not usable."""


@dataclass(frozen=True, slots=True)
class Answers:
    """What a batch's answer holds.

    Attributes:
        values: By place in the batch, from 0; only usable ones.
        faults: How often each fault occurred.
    """

    values: dict[int, Value] = field(default_factory=dict[int, Value])
    faults: Counter[AnswerFault] = field(default_factory=Counter[AnswerFault])


def read_query(value: object) -> str | None:
    """Return a written query with single spaces; None if it is blank, too long or no text."""
    if not isinstance(value, str):
        return None
    query = " ".join(value.split())
    storable = query.encode("utf-8", "ignore").decode("utf-8") == query
    return query if storable and 0 < len(query) <= MAX_QUERY_CHARS else None


def read_grade(value: object) -> int | None:
    """Return a grade; None unless it is an integer from 0 to 3."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_GRADE else None


def parse_answers(content: str, n_items: int, value_key: str, read: ReadValue) -> Answers:
    """Read the answer to a batch whose items had the ids "1" to "n_items".

    Args:
        content: The model's text: JSON, possibly inside of a code fence or after other words.
        n_items: Items asked about.
        value_key: The key of every item's value.
        read: Checks one value.

    Returns:
        Every usable value, the first one where an id stands twice; never an error.
    """
    rows = _rows(content)
    if isinstance(rows, AnswerFault):
        return Answers(faults=Counter({rows: 1}))
    found = Answers()
    for row in rows:
        place, value = _read_row(row, n_items, value_key, read)
        fault = place if isinstance(place, AnswerFault) else None
        if fault is None and place in found.values:
            fault = AnswerFault.DUPLICATE_ID
        if fault is not None:
            found.faults[fault] += 1
        elif value is not None and not isinstance(place, AnswerFault):
            found.values[place] = value
    unusable = found.faults[AnswerFault.WRONG_TYPE]
    if missing := max(n_items - len(found.values) - unusable, 0):
        found.faults[AnswerFault.MISSING_ID] += missing
    return found


def _rows(content: str) -> list[Any] | AnswerFault:
    parsed = _parse(_THOUGHT.sub("", content))
    if parsed is None:
        return AnswerFault.NOT_JSON
    rows: Any = parsed.get("items") if isinstance(parsed, dict) else parsed
    return rows if isinstance(rows, list) else AnswerFault.WRONG_SHAPE


def _parse(content: str) -> Any:
    """Return the JSON in a text, None without any."""
    spans = [content.strip()]
    spans += [
        content[content.find(first) : content.rfind(last) + 1]
        for first, last in ("{}", "[]")
        if 0 <= content.find(first) < content.rfind(last)
    ]
    for span in spans:
        try:
            return json.loads(span)
        except (ValueError, RecursionError):
            continue
    return None


def _read_row(
    row: object, n_items: int, value_key: str, read: ReadValue
) -> tuple[int | AnswerFault, Value | None]:
    """Return the place that a row answers and its value, or what is wrong with it."""
    if not isinstance(row, dict):
        return AnswerFault.WRONG_TYPE, None
    given: Any = row.get("id")
    if isinstance(given, bool) or not isinstance(given, str | int):
        return AnswerFault.WRONG_TYPE, None
    name = str(given).strip()
    if name not in {str(number) for number in range(1, n_items + 1)}:
        return AnswerFault.UNKNOWN_ID, None
    value = read(row.get(value_key))
    if value is None:
        return AnswerFault.WRONG_TYPE, None
    return int(name) - 1, value
