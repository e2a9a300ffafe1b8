"""From a model's text to one value per item of a batch, and what was wrong with the rest.

What belongs here: finding the JSON, matching ids. What does not: HTTP (chat.py), what a value is
(the caller's reader), whether it is good.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from noctuary.foreign_json import parse_json
from noctuary.hosted.endpoint import AnswerFault

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)

V = TypeVar("V")
ReadRow = Callable[[Mapping[str, Any]], V | None]
"""Returns the value of an item's object, or None where it is not usable; never raises."""


@dataclass(frozen=True, slots=True)
class Answers(Generic[V]):
    """What a batch's answer holds.

    Attributes:
        values: By place in the batch, from 0; only usable ones.
        faults: How often each fault occurred.
    """

    values: dict[int, V]
    faults: Counter[AnswerFault]


def parse_batch(content: str, ids: Sequence[str], read: ReadRow[V]) -> Answers[V]:
    """Read the answer to a batch.

    Args:
        content: The model's text: JSON, possibly inside of a code fence or after other words.
        ids: The distinct ids of the items, in their order.
        read: Reads one item.

    Returns:
        Every usable value, the first one where an id stands twice; never an error.
    """
    rows = _rows(content)
    if isinstance(rows, AnswerFault):
        return Answers({}, Counter({rows: 1}))
    places = {name: place for place, name in enumerate(ids)}
    found: Answers[V] = Answers({}, Counter())
    for row in rows:
        fault = _take_row(row, places, read, found.values)
        if fault is not None:
            found.faults[fault] += 1
    unusable = found.faults[AnswerFault.WRONG_TYPE]
    if missing := max(len(ids) - len(found.values) - unusable, 0):
        found.faults[AnswerFault.MISSING_ID] += missing
    return found


def _take_row(
    row: object, places: Mapping[str, int], read: ReadRow[V], values: dict[int, V]
) -> AnswerFault | None:
    """Put the value of a row into its place, or return what is wrong with it."""
    if not isinstance(row, dict):
        return AnswerFault.WRONG_TYPE
    given: Any = row.get("id")
    if isinstance(given, bool) or not isinstance(given, str | int):
        return AnswerFault.WRONG_TYPE
    place = places.get(str(given).strip())
    if place is None:
        return AnswerFault.UNKNOWN_ID
    value = read(row)
    if value is None:
        return AnswerFault.WRONG_TYPE
    if place in values:
        return AnswerFault.DUPLICATE_ID
    values[place] = value
    return None


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
            return parse_json(span)
        except ValueError:
            continue
    return None
