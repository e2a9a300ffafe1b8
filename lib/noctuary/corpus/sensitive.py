"""May a row leave its store: the owner's mark, what was already redacted, the secret scan.

Judged before anything else about a row. The answer is a reason to count, never a part of the row;
a sensitive row is written nowhere, not even into the quarantine. In doubt a row is sensitive.

What belongs here: the verdict on a row as a source gave it. What does not: the verdict on fields
(`noctuary.text.sensitivity_marks`), which the read side shares.
"""

from __future__ import annotations

import re

from noctuary.corpus.source import RawRow
from noctuary.text.sensitivity import find_text_sensitivity
from noctuary.text.sensitivity_marks import FLAGGED, VAULTED, find_fields_sensitivity, is_flag_set

__all__ = ["FLAGGED", "SHARES_ID", "VAULTED", "find_sensitivity", "is_flag_set"]

SHARES_ID = "shares_id_with_sensitive"
"""The row itself is clean, but another row of the same id is sensitive: it may be an older text."""

# The look-ahead holds the spaces too: outside it they would be given back until it succeeds.
_FLAG_IN_TEXT = re.compile(
    r'"(?:is_)?sensitive"\s{0,20}:(?!\s{0,20}(?:0[\s,}.]|false|null|""|"0"|"false"))', re.IGNORECASE
)


def find_sensitivity(row: RawRow) -> str | None:
    """Return why a row must not leave its store, or None.

    Every text of the row is scanned, also of fields that would not be exported.
    """
    if row.withheld is not None:
        return row.withheld
    if row.problem is not None and row.unread_text:
        return _judge_unread(row.unread_text)
    return find_fields_sensitivity(row.fields)


def _judge_unread(text: str) -> str | None:
    if _FLAG_IN_TEXT.search(text):
        return FLAGGED
    return find_text_sensitivity(text)
