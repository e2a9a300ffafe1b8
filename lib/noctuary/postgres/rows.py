"""Rows of `memories` as they may be read: in pages, the text of marked ones left out.

What belongs here: the statements, and values as the rest of noctuary knows them from other stores.
What does not: connections (`noctuary.postgres.connecting`), what a night makes of the rows
(`noctuary.corpus.postgres_source`), whose they are (`noctuary.postgres.users`).

Every expression is made of this module's constants and of names of columns that
`noctuary.postgres.schema` knows; values are always sent apart from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from noctuary.postgres.connecting import Pinned
from noctuary.postgres.schema import MEMORIES, DatabaseSchema
from noctuary.postgres.users import Reader, user_sql, visible_sql
from noctuary.text.sensitivity_marks import (
    FALSE_WORDS,
    FLAG_FIELDS,
    FLAGGED,
    VAULT_FIELDS,
    VAULTED,
)

MAX_ROW_BYTES = 16 * 2**20
"""A row with more text than this is not fetched: the store's own limit is 1,400 characters. Larger
keeps stranger rows in, smaller saves memory."""

PAGE_BYTES = 32 * 2**20
"""A page ends early once its texts reach this: larger saves statements, smaller memory."""

_TEXTS = ("content", "category", "tags", "expanded_keywords")
_MOMENTS = ("created_at", "updated_at", "deleted_at")


class Row(NamedTuple):
    """One row.

    Attributes:
        key: Its id.
        fields: Column to value: text, float, None, bytes where text is not in any encoding;
            moments as ISO 8601 text with an offset, `infinity` as it is. Empty where the row was
            withheld or too large.
        withheld: `FLAGGED` or `VAULTED` where the server kept the text back, else None.
        too_large: Bytes of its texts, where they are more than MAX_ROW_BYTES, else 0.
    """

    key: int
    fields: Mapping[str, object]
    withheld: str | None
    too_large: int


def mark_sql(schema: DatabaseSchema, table: str = "m") -> str:
    """Return an expression that is `FLAGGED`, `VAULTED` or NULL.

    At least as strict as `noctuary.text.sensitivity_marks.find_mark` for every type of column.
    """
    words = ", ".join(f"'{word}'" for word in sorted(FALSE_WORDS))
    flags = [
        f"lower(btrim({table}.{name}::text)) NOT IN ({words})"
        for name in FLAG_FIELDS
        if name in schema.columns
    ]
    # Empty bytes are `\x` as text.
    vaults = [
        rf"{table}.{name}::text NOT IN ('', '\x')"
        for name in VAULT_FIELDS
        if name in schema.columns
    ]
    cases = [
        f"WHEN {' OR '.join(found)} THEN '{reason}'"
        for reason, found in ((FLAGGED, flags), (VAULTED, vaults))
        if found
    ]
    return f"CASE {' '.join(cases)} END" if cases else "NULL::text"


def field_names(schema: DatabaseSchema) -> tuple[str, ...]:
    """Return the columns whose values a row has, in order; those of marks are never among them."""
    moments = [name for name in _MOMENTS if name in schema.columns]
    return ("id", *_TEXTS, "importance", *moments, "user_id")


def count_rows(pinned: Pinned, reader: Reader) -> int:
    """Return how many rows the reader may see."""
    sql = f"SELECT count(*) FROM {MEMORIES} m WHERE {visible_sql(reader)}"
    return int(pinned.one(sql, {"user": reader.user}))


def read_pages(
    pinned: Pinned, reader: Reader, size: int, keys: Sequence[int] | None = None
) -> Iterator[list[Row]]:
    """Yield rows by ascending id, at most `size` and about PAGE_BYTES at once.

    Each page is one statement that starts after the last id (no offset): the primary key's index
    finds it. A row's length is known to the server without reading it, so that one that is too
    large is never fetched.

    Args:
        pinned: The transaction.
        reader: What is read.
        size: Rows.
        keys: Only these ids, distinct and at most `size`; None reads all.
    """
    sql = _page_sql(reader, by_key=keys is not None)
    names = field_names(reader.schema)
    values: dict[str, object] = {"user": reader.user, "size": size, "keys": keys, "after": None}
    while found := pinned.rows(sql, values):
        yield [_row(names, row) for row in found]
        values["after"] = found[-1][0]


def read_keys_since(
    pinned: Pinned, reader: Reader, size: int, since_us: int
) -> Iterator[list[int]]:
    """Yield the ids of rows that changed since a moment, ascending.

    Args:
        pinned: The transaction.
        reader: What is read.
        size: Ids at once.
        since_us: Only rows with updated_at at or after this, microseconds since the epoch; the
            index on updated_at finds them. A column that holds no moments excludes no row.
    """
    since = ""
    if reader.schema.columns["updated_at"].startswith("timestamp"):
        since = " AND m.updated_at >= 'epoch'::timestamptz + %(since)s * interval '1 microsecond'"
    sql = f"SELECT m.id FROM {MEMORIES} m WHERE {visible_sql(reader)}{since} ORDER BY m.id"
    values = {"user": reader.user, "since": since_us}
    for page in pinned.stream(sql, values, size=size):
        yield [int(key) for (key,) in page]


def _page_sql(reader: Reader, *, by_key: bool) -> str:
    names = field_names(reader.schema)
    lengths = " + ".join(f"coalesce(octet_length(m.{name}::text), 0)" for name in _TEXTS)
    where = ["(%(after)s::bigint IS NULL OR m.id > %(after)s)", visible_sql(reader)]
    where += ["m.id = ANY(%(keys)s::bigint[])"] if by_key else []
    shown = ", ".join(_shown(name, reader) for name in names[1:])
    is_sent = f"mark IS NULL AND bytes <= {MAX_ROW_BYTES}"
    return (
        f"WITH page AS MATERIALIZED (SELECT m.id, {mark_sql(reader.schema)} AS mark, "
        f"{lengths} AS bytes FROM {MEMORIES} m WHERE {' AND '.join(where)} "
        "ORDER BY m.id LIMIT %(size)s), "
        f"sized AS (SELECT *, CASE WHEN {is_sent} THEN bytes ELSE 0 END AS sent FROM page), "
        # Never falls: what is left out of a page is all that comes after a row.
        "placed AS (SELECT *, sum(sent) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - sent "
        "AS before FROM sized) "
        f"SELECT p.id, p.mark, p.bytes, {shown} FROM placed p LEFT JOIN {MEMORIES} m "
        f"ON m.id = p.id AND p.mark IS NULL AND p.bytes <= {MAX_ROW_BYTES} "
        f"WHERE p.before < {PAGE_BYTES} ORDER BY p.id"
    )


def _shown(name: str, reader: Reader) -> str:
    if name == "user_id":
        return user_sql(reader)
    return f"m.{name}::text" if name in _MOMENTS else f"m.{name}"


def _row(names: Sequence[str], values: Sequence[Any]) -> Row:
    key, mark, size, *rest = values
    key = int(key)
    too_large = int(size) if mark is None and size > MAX_ROW_BYTES else 0
    if mark is not None or too_large:
        return Row(key, {}, None if mark is None else _plain(mark), too_large)
    fields = {name: _value(name, value) for name, value in zip(names[1:], rest, strict=True)}
    return Row(key, {"id": key, **fields}, None, 0)


def _value(name: str, value: Any) -> object:
    if isinstance(value, bytes):
        value = _decode(value)
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, str) and name in _MOMENTS and value.endswith("+00"):
        return f"{value[:10]}T{value[11:]}:00"
    return value


def _decode(value: bytes) -> str | bytes:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def _plain(value: str | bytes) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else value
