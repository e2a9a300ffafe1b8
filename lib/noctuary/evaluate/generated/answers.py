"""What a written query and a grade look like, read from a batch's answer.

What belongs here: checking one value. What does not: finding the JSON (noctuary.hosted.answers),
whether a value is good (overlap.py, the judge).
"""

from __future__ import annotations

from collections.abc import Callable

from noctuary.hosted.answers import Answers, parse_batch
from noctuary.hosted.batches import numbered

MAX_QUERY_CHARS = 400
"""Longer ones are no queries but copied memories or a model's thoughts."""
MAX_GRADE = 3

Value = str | int
ReadValue = Callable[[object], Value | None]
"""Returns the value of an item, or None where it is not usable."""


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


def parse_answers(content: str, n_items: int, value_key: str, read: ReadValue) -> Answers[Value]:
    """Read the answer to a batch whose items had the ids "1" to "n_items".

    Args:
        content: The model's text: JSON, possibly inside of a code fence or after other words.
        n_items: Items asked about.
        value_key: The key of every item's value.
        read: Checks one value.

    Returns:
        Every usable value, the first one where an id stands twice; never an error.
    """
    return parse_batch(content, numbered(n_items), lambda row: read(row.get(value_key)))
