"""Memories of the own store that nobody has checked for long, and those that soon end."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from noctuary.core.sqlite import open_foreign
from noctuary.core.types import DAY_US, UNDATED_US, from_micros, to_micros
from noctuary.sources.normalize import read_end_us
from noctuary.sources.own_store import WAIT_S, change_rows

# Facts about machines change with every release; where somebody lives does not.
SYSTEM_DAYS = 90
PERSON_DAYS = 365
SOON_DAYS = 14  # before its end, a memory is listed too

About = Literal["system", "person"]
"""What a memory is about: a system or anything else."""

# A version, a port, an address, a path, an identifier, code: people have none of these.
_SYSTEM = re.compile(
    r"\bv?\d+\.\d+(?:\.\d+)*\b(?!\s*(?:%|€|\$|km|kg|m\b))|:\d{2,5}\b|\w+://|(?<!\w)[~.]?/[\w.-]+/|`[^`]+`"
    r"|\b\w+_\w+\b|\b\w+\(\)|(?<!\w)--?[a-z][\w-]+"
)
# Words that only notes about systems use: a key or a table may stand in a kitchen.
_SYSTEM_WORDS = frozenset(
    {
        "api", "app", "backend", "branch", "ci", "cli", "cluster", "config", "cron", "database",
        "deploy", "deployment", "docker", "endpoint", "firewall", "frontend", "git", "kubernetes",
        "linux", "migration", "npm", "pip", "postgres", "proxy", "redis", "repo", "repository",
        "schema", "server", "sql", "ssh", "staging", "url", "vm", "vpn", "webhook",
    }
)  # fmt: skip


class Aged(NamedTuple):
    """A memory to look at again."""

    id: int
    content: str
    about: About
    checked_at: datetime | None  # last written, said again, confirmed, or recalled
    checked_by: str  # "written", "confirmed" or "recalled"
    idle_days: int  # since then; 0 for an unknown moment
    valid_until: str | None  # as its row has it
    wing: str | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        at = self.checked_at
        return {**self._asdict(), "checked_at": None if at is None else at.isoformat()}


LastRecalls = Callable[[Sequence[int]], Sequence[int]]
"""Ids -> the moment of each one's last recall in microseconds, UNDATED_US for none."""


def about(content: str) -> About:
    """Return whether a text is about a system: it holds an identifier, or a word for one."""
    words = set(re.findall(r"[a-z]+", content.lower()))
    is_system = bool(words & _SYSTEM_WORDS) or _SYSTEM.search(content) is not None
    return "system" if is_system else "person"


def list_aged(
    path: Path, *, now: datetime, last_recalls: LastRecalls, user: str | None = None
) -> list[Aged]:
    """Return the memories of the own store to look at, longest unchecked first.

    Args:
        path: The own store; a missing one has none.
        now: The moment that ages count from.
        last_recalls: When memories were last recalled.
        user: Whose memories besides unowned ones.

    Raises:
        sqlite3.Error: The file cannot be read.
    """
    if not path.is_file():
        return []
    rows = _read(path, user)
    recalled_us = last_recalls([row["id"] for row in rows])
    found = [_aged(row, now, at_us) for row, at_us in zip(rows, recalled_us, strict=True)]
    return sorted(filter(None, found), key=lambda one: (-one.idle_days, one.id))


_COLUMNS = ("id", "content", "created_at", "updated_at", "confirmed_at", "valid_until", "wing")


def _read(path: Path, user: str | None) -> list[dict[str, Any]]:
    with closing(open_foreign(path, WAIT_S)[0]) as db:
        known = {str(row[1]) for row in db.execute("PRAGMA table_info(memories)")}
        shown = ", ".join(name if name in known else f"NULL AS {name}" for name in _COLUMNS)
        # Equal texts are the same memory said again: the newest tells when.
        again = "(SELECT max(created_at) FROM memories b WHERE b.text_key = a.text_key)"
        replaced = (
            "id IN (SELECT dst_id FROM memory_links WHERE link_type = 'supersedes')"
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'memory_links'").fetchone()
            else "0"
        )
        sql = (
            f"SELECT {shown}, {again} FROM memories a WHERE NOT {replaced} AND NOT is_sensitive "
            "AND (user IS NULL OR user IS ?)"
        )
        return [
            dict(zip((*_COLUMNS, "again"), row, strict=True)) for row in db.execute(sql, [user])
        ]


def _aged(row: Mapping[str, Any], now: datetime, recalled_us: int) -> Aged | None:
    moments = {
        "written": max(map(_micros, (row["created_at"], row["updated_at"], row["again"]))),
        "confirmed": _micros(row["confirmed_at"]),
        "recalled": recalled_us,
    }
    by = max(moments, key=lambda name: moments[name])
    now_us = to_micros(now)
    idle_days = 0 if moments[by] == UNDATED_US else max(now_us - moments[by], 0) // DAY_US
    kind = about(row["content"])
    ends_us, _ = read_end_us(row["valid_until"])
    if ends_us is not None and ends_us <= now_us:
        return None  # it has ended
    is_ending = ends_us is not None and ends_us - now_us <= SOON_DAYS * DAY_US
    if not is_ending and idle_days < (SYSTEM_DAYS if kind == "system" else PERSON_DAYS):
        return None
    at = from_micros(moments[by])
    return Aged(
        row["id"], row["content"], kind, at, by, int(idle_days), row["valid_until"], row["wing"]
    )


def _micros(text: str | None) -> int:
    moment_us, _ = read_end_us(text)
    return UNDATED_US if moment_us is None else moment_us


# What their owner says about them.


def confirm(path: Path, ids: Sequence[int], now: datetime) -> int:
    """Note that memories still hold; return how many there were."""
    return _set(path, "confirmed_at = ?", [now.isoformat()], ids)


def end(path: Path, ids: Sequence[int], until: date | datetime, now: datetime) -> int:
    """Let memories end after a day, or at a moment; return how many there were."""
    values = [until.isoformat(), now.isoformat()]
    return _set(path, "valid_until = ?, updated_at = ?", values, ids)


def _set(path: Path, columns: str, values: Iterable[str], ids: Sequence[int]) -> int:
    sql = f"UPDATE memories SET {columns} WHERE id IN (SELECT value FROM json_each(?))"

    def change(db: sqlite3.Connection) -> int:
        return db.execute(sql, [*values, json.dumps(list(ids))]).rowcount

    return change_rows(path, change, WAIT_S) if path.is_file() else 0
