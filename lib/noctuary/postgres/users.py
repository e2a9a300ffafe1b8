"""Whose a row of a claude-memory database is, and who else may read it.

What belongs here: the rule, as SQL. What does not: reading rows (`noctuary.postgres.rows`), who
sees what in a recall (`noctuary.recall.scope`).
"""

from __future__ import annotations

from typing import NamedTuple

from noctuary.postgres.connecting import Pinned
from noctuary.postgres.schema import MEMORIES, NOTE_UNREADABLE, DatabaseSchema

DEFAULT_USER = "default"
"""Whom the server names where it has a single key (claude-memory, migration 002)."""


class Reader(NamedTuple):
    """What is read of one database, by whom.

    Attributes:
        schema: Its shape.
        user: Whose rows, and those shared with them; None reads everyone's.
        has_users: Whether the store knows several users: then every row is somebody's. Otherwise
            the server's one user is nobody in particular.
    """

    schema: DatabaseSchema
    user: str | None
    has_users: bool

    @property
    def scope_name(self) -> str:
        """Return by which rule rows are given to users; rows differ when it does."""
        if self.user is not None:
            return f"user:{self.user}"
        return "several" if self.has_users else "single"


def make_reader(pinned: Pinned, schema: DatabaseSchema, user: str) -> Reader:
    """Return what is read for a user; "" reads everyone's rows."""
    return Reader(schema, user or None, bool(user) or _knows_users(pinned, schema))


def user_sql(reader: Reader, table: str = "m") -> str:
    """Return an expression for whose a row of `memories` is; NULL where it is nobody's."""
    if not reader.has_users or "user_id" not in reader.schema.columns:
        return "NULL::text"
    # A row without a name is the server's own user's: never everyone's.
    return f"coalesce(nullif(btrim({table}.user_id), ''), '{DEFAULT_USER}')"


def visible_sql(reader: Reader, table: str = "m") -> str:
    """Return a condition on a row of `memories`: the reader's user may read it.

    It needs the value `user`. The rules are the server's own: a row of theirs, a share of the row,
    or one of a tag that its owner set, either for reading or for writing (claude-memory,
    api/permissions.py). Each row is judged by itself: a page of ids costs no more than its rows.
    """
    if reader.user is None:
        return "true"
    if "user_id" not in reader.schema.columns:
        return f"%(user)s = '{DEFAULT_USER}'"
    found = [f"{user_sql(reader, table)} = %(user)s"]
    for share, condition in _share_conditions(reader, table).items():
        found.append(
            f"EXISTS (SELECT 1 FROM {share} s WHERE s.shared_with = %(user)s AND {condition})"
        )
    return f"({' OR '.join(found)})"


def shares_sql(reader: Reader) -> str | None:
    """Return a query for who may read which row besides its owner: memory_id, shared_with.

    It needs the value `user`: with one, only what concerns that user. None where the store knows
    no shares.
    """
    condition = "true" if reader.user is None else "s.shared_with = %(user)s"
    found = [
        f"SELECT m.id AS memory_id, s.shared_with FROM {share} s JOIN {MEMORIES} m ON {rule} "
        f"WHERE {condition}"
        for share, rule in _share_conditions(reader, "m").items()
    ]
    return " UNION ".join(found) if found else None


def _share_conditions(reader: Reader, table: str) -> dict[str, str]:
    """Return by table of shares, as `s`, when one is about a row."""
    may_read = "s.permission IN ('read', 'write')"
    tags = f"unnest(string_to_array({table}.tags::text, ','))"
    rules = {
        "memory_shares": f"s.memory_id = {table}.id AND {may_read}",
        "tag_shares": (
            f"s.owner_id = {user_sql(reader, table)} AND {may_read} "
            f"AND EXISTS (SELECT 1 FROM {tags} t WHERE btrim(t) = s.tag)"
        ),
    }
    has_owners = "user_id" in reader.schema.columns
    return {
        name: rule for name, rule in rules.items() if has_owners and name in reader.schema.tables
    }


def _knows_users(pinned: Pinned, schema: DatabaseSchema) -> bool:
    """Say whether several people use the store: somebody is named, or something is shared."""
    if "user_id" not in schema.columns:
        return False
    tables = [name for name in ("memory_shares", "tag_shares") if name in schema.tables]
    # A table of shares that cannot be read may hold one.
    if NOTE_UNREADABLE in schema.notes:
        return True
    # The index on user_id has its ends; only where they differ are rows looked at.
    alone = f"SELECT min(user_id) = '{DEFAULT_USER}' AND max(user_id) = '{DEFAULT_USER}'"
    named = f"SELECT 1 FROM {MEMORIES} WHERE btrim(user_id) NOT IN ('', '{DEFAULT_USER}')"
    if pinned.one(f"{alone} FROM {MEMORIES}"):
        named = "SELECT 1 WHERE false"
    looks = [named, *(f"SELECT 1 FROM {name}" for name in tables)]
    return bool(pinned.one("SELECT " + " OR ".join(f"EXISTS ({look})" for look in looks)))
