"""May a row leave its store: the owner's mark, what was already redacted, the secret scan.

Judged before anything else about a row. The answer is a reason to count, never a part of the row;
a sensitive row is written nowhere, not even into the quarantine. In doubt a row is sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mnemon.corpus.source import RawRow
from mnemon.text.sensitivity import find_text_sensitivity

FLAGGED = "flagged"
VAULTED = "vaulted"
SHARES_ID = "shares_id_with_sensitive"
"""The row itself is clean, but another row of the same id is sensitive: it may be an older text."""

_FLAG_FIELDS = ("is_sensitive", "sensitive")
# Where the server keeps the text of a row that it redacted (claude-memory, migration 002).
_VAULT_FIELDS = ("vault_path", "encrypted_content")
_FALSE_WORDS = frozenset({"", "0", "0.0", "false", "no", "f", "n", "none", "null"})
# The look-ahead holds the spaces too: outside it they would be given back until it succeeds.
_FLAG_IN_TEXT = re.compile(
    r'"(?:is_)?sensitive"\s{0,20}:(?!\s{0,20}(?:0[\s,}.]|false|null|""|"0"|"false"))', re.IGNORECASE
)
_MAX_NESTING = 8


def find_sensitivity(row: RawRow) -> str | None:
    """Return why a row must not leave its store, or None.

    Every text of the row is scanned, also of fields that would not be exported.
    """
    if row.withheld is not None:
        return row.withheld
    if row.problem is not None and row.unread_text:
        return _judge_unread(row.unread_text)
    if any(is_flag_set(row.fields.get(name)) for name in _FLAG_FIELDS):
        return FLAGGED
    if any(row.fields.get(name) for name in _VAULT_FIELDS):
        return VAULTED
    return find_text_sensitivity("\n".join(_texts(tuple(row.fields.values()))))


def is_flag_set(value: object) -> bool:
    """Tell whether a sensitivity mark is set; whatever is not plainly false counts as set."""
    if value is None:
        return False
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.strip().lower() not in _FALSE_WORDS
    return value not in (0, False)


def _judge_unread(text: str) -> str | None:
    if _FLAG_IN_TEXT.search(text):
        return FLAGGED
    return find_text_sensitivity(text)


def _texts(value: object, depth: int = 0) -> Iterator[str]:
    """Yield every text inside a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif depth < _MAX_NESTING:
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from _texts(key, depth + 1)
                yield from _texts(item, depth + 1)
        elif isinstance(value, list | tuple):
            for item in value:
                yield from _texts(item, depth + 1)
