"""Is a row sensitive: the marks that its owner or its store set, then every text of it.

What belongs here: the verdict on the fields of one row, wherever they were read; standard library
only, because both sides judge by it. What does not: the same marks as SQL
(`noctuary.text.sensitivity_sql`), patterns (`noctuary.text.secret_rules`), what becomes of the row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from noctuary.text.sensitivity import find_text_sensitivity

FLAGGED = "flagged"
VAULTED = "vaulted"

FLAG_FIELDS = ("is_sensitive", "sensitive")
VAULT_FIELDS = ("vault_path", "encrypted_content")
"""Where the server keeps the text of a row that it redacted (claude-memory, migration 002)."""

FALSE_WORDS = frozenset({"", "0", "0.0", "false", "no", "f", "n", "none", "null"})
"""Texts that say plainly that a row is not sensitive, in lower case and without spaces around."""

_MAX_NESTING = 8


def find_fields_sensitivity(fields: Mapping[str, object]) -> str | None:
    """Return why a row with these fields must not leave its store, or None.

    Every text of the row is scanned, also of fields that would not be exported.

    Args:
        fields: Column or key to value, of any type.

    Returns:
        `FLAGGED`, `VAULTED`, or what `find_text_sensitivity` says; never a part of the row.
    """
    return find_mark(fields) or find_text_sensitivity("\n".join(_texts(tuple(fields.values()))))


def find_mark(fields: Mapping[str, object]) -> str | None:
    """Return `FLAGGED` or `VAULTED` where a mark is set; no text is looked at."""
    if any(is_flag_set(fields.get(name)) for name in FLAG_FIELDS):
        return FLAGGED
    if any(fields.get(name) for name in VAULT_FIELDS):
        return VAULTED
    return None


def is_flag_set(value: object) -> bool:
    """Tell whether a sensitivity mark is set; whatever is not plainly false counts as set."""
    if value is None:
        return False
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.strip().lower() not in FALSE_WORDS
    return value not in (0, False)


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
