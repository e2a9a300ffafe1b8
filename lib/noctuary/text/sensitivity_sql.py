"""The marks of `noctuary.text.sensitivity_marks` as SQL for SQLite: marked texts stay in the file.

What belongs here: one expression, at least as strict as the same rule in Python, whatever the
columns hold (SQLite types values, not columns). What does not: which rows are read, other databases
(there a flag is a boolean).
"""

from __future__ import annotations

from collections.abc import Collection

from noctuary.text.sensitivity_marks import (
    FALSE_WORDS,
    FLAG_FIELDS,
    FLAGGED,
    VAULT_FIELDS,
    VAULTED,
)

_SPACES = "char(9, 10, 11, 12, 13, 32)"
"""Fewer than Python strips: a flag of "0" and a no-break space is set here and not there."""


def mark_sql(columns: Collection[str], table: str = "") -> str:
    """Return an expression that is 'flagged', 'vaulted' or NULL for a row of SQLite.

    Args:
        columns: Those that the table has; a mark that it lacks is no part of the expression.
        table: Name or alias of the table, where the columns need one.

    Returns:
        SQL made of constants and the given alias alone. Wherever `find_mark` finds a mark in the
        values, this one does as well; it is stricter where a flag is a blob or has odd spaces.
    """
    prefix = f"{table}." if table else ""
    flags = [_flag_sql(prefix + name) for name in FLAG_FIELDS if name in columns]
    vaults = [_vault_sql(prefix + name) for name in VAULT_FIELDS if name in columns]
    cases = [
        f"WHEN {' OR '.join(found)} THEN '{reason}'"
        for reason, found in ((FLAGGED, flags), (VAULTED, vaults))
        if found
    ]
    return f"(CASE {' '.join(cases)} END)" if cases else "NULL"


def _flag_sql(column: str) -> str:
    words = ", ".join(f"'{word}'" for word in sorted(FALSE_WORDS))
    # A blob is compared as it is: as text it would be read in the encoding of the database.
    blobs = ", ".join(f"x'{word.encode().hex()}'" for word in sorted(FALSE_WORDS))
    return (
        f"(CASE typeof({column}) WHEN 'null' THEN 0"
        f" WHEN 'text' THEN lower(trim({column}, {_SPACES})) NOT IN ({words})"
        f" WHEN 'blob' THEN {column} NOT IN ({blobs})"
        f" ELSE {column} <> 0 END)"
    )


def _vault_sql(column: str) -> str:
    # The length of a text ends at a NUL, that of its bytes does not.
    return (
        f"(CASE typeof({column}) WHEN 'null' THEN 0"
        f" WHEN 'text' THEN length(CAST({column} AS BLOB)) > 0"
        f" WHEN 'blob' THEN length({column}) > 0"
        f" ELSE {column} <> 0 END)"
    )
