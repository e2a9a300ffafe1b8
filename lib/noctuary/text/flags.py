"""Rows that their owner or their store marked as sensitive, detected without reading texts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

FLAGGED = "flagged"
VAULTED = "vaulted"

FLAG_FIELDS = ("is_sensitive", "sensitive")
VAULT_FIELDS = ("vault_path", "encrypted_content")  # of redacted texts (claude-memory, 002)
MARKS = frozenset((*FLAG_FIELDS, *VAULT_FIELDS))  # columns whose values never leave the store

FALSE_WORDS = frozenset({"", "0", "0.0", "false", "no", "f", "n", "none", "null"})
"""Values for a row that is not sensitive, in lower case and without spaces around."""


def find_mark(fields: Mapping[str, object]) -> str | None:
    """Return `FLAGGED` or `VAULTED` if a mark is set; reads no text."""
    if any(is_flag_set(fields.get(name)) for name in FLAG_FIELDS):
        return FLAGGED
    if any(fields.get(name) for name in VAULT_FIELDS):
        return VAULTED
    return None


def is_flag_set(value: object) -> bool:
    """Return whether a sensitivity mark is set; anything not plainly false counts as set."""
    if value is None:
        return False
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, str):
        return value.strip().lower() not in FALSE_WORDS
    return value not in (0, False)


# The marks as SQL for SQLite: marked texts stay in the file.

_SPACES = "char(9, 10, 11, 12, 13, 32)"  # fewer than Python strips: a no-break space sets a flag

_FALSE = ", ".join(f"'{word}'" for word in sorted(FALSE_WORDS))
_FLAGGED_TEXT = f"lower(trim({{0}}, {_SPACES})) NOT IN ({_FALSE})"
# A blob is compared as it is: as text it would be read in the encoding of the database.
_FALSE_BLOBS = ", ".join(f"x'{word.encode().hex()}'" for word in sorted(FALSE_WORDS))
_FLAGGED_BLOB = f"{{0}} NOT IN ({_FALSE_BLOBS})"


def mark_sql(columns: Collection[str], table: str = "") -> str:
    """Return an expression that is 'flagged', 'vaulted' or NULL for a row of SQLite."""
    # Wherever `find_mark` finds a mark in the values, this does as well; it is stricter where a
    # flag is a blob or has odd spaces.
    prefix = f"{table}." if table else ""
    cases = list[str]()
    for reason, names, text, blob in (
        (FLAGGED, FLAG_FIELDS, _FLAGGED_TEXT, _FLAGGED_BLOB),
        # The length of a text ends at a NUL, that of its bytes does not.
        (VAULTED, VAULT_FIELDS, "length(CAST({0} AS BLOB)) > 0", "length({0}) > 0"),
    ):
        is_set = (
            f"(CASE typeof({{0}}) WHEN 'null' THEN 0 WHEN 'text' THEN {text} "
            f"WHEN 'blob' THEN {blob} ELSE {{0}} <> 0 END)"
        )
        found = [is_set.format(prefix + name) for name in names if name in columns]
        if found:
            cases.append(f"WHEN {' OR '.join(found)} THEN '{reason}'")
    return f"(CASE {' '.join(cases)} END)" if cases else "NULL"


def rows_sql(columns: Collection[str], names: Iterable[str], which: str = "") -> str:
    """Return a query of SQLite for id, mark and, where there is none, columns of `memories`."""
    # Marks are judged first, by themselves; the join fetches the texts of the other rows alone.
    # `which` follows FROM memories.
    shown = "".join(f', m."{name}"' for name in names)
    return (
        f"SELECT row_id, mark{shown} FROM (SELECT id AS row_id, {mark_sql(columns)} AS mark"
        f" FROM memories {which}) LEFT JOIN memories m ON m.id = row_id AND mark IS NULL"
        " ORDER BY row_id"
    )
