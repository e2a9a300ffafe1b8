"""Where a sentence ends and whether it asks, for what cuts texts and what recognises them again.

What belongs here: the patterns. What does not: what is done with a sentence. Standard library
only.
"""

from __future__ import annotations

import re

SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+")
"""What stands between two sentences; an abbreviation's full stop cuts as well."""

QUESTION_MARKS = "?？؟"
CLOSING_CHARS = " \t\r\n\"'”’»)*_"
"""What may stand behind a question mark: quotes, brackets, emphasis."""


def ends_as_question(text: str) -> bool:
    """Return whether a text ends in a question mark, closing quotes and brackets aside."""
    last = text.rstrip(CLOSING_CHARS)[-1:]
    return bool(last) and last in QUESTION_MARKS
