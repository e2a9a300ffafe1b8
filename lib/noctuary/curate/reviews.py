"""Memories of the own store that nobody has checked for long, and those that soon end."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from noctuary.core.sqlite import open_foreign
from noctuary.core.types import UNDATED_US, from_micros, to_micros
from noctuary.sources.own_store import WAIT_S, change_rows
from noctuary.text.stamps import read_moment_us

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
_SYSTEM_WORDS = frozenset(
    """
    api app backup branch bucket build bug cache ci cli cluster config container cron database deploy
    deployment docker endpoint env file firewall git host image index install key kubernetes library
    log migration node package password pipeline port postgres process proxy queue redis release repo
    repository schema script secret server service setting sql ssh staging table test token url
    version vm vpn webhook
    """.split()
)


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


def about(content: str) -> About:
    """Return whether a text is about a system: it holds an identifier, or a word for one."""
    words = set(re.findall(r"[a-z]+", content.lower()))
    is_system = bool(words & _SYSTEM_WORDS) or _SYSTEM.search(content) is not None
    return "system" if is_system else "person"


def list_aged(
    path: Path, *, now: datetime, recalled_us: Mapping[int, int], user: str | None = None
) -> list[Aged]:
    """Return the memories of the own store to look at, longest unchecked first.

    Args:
        path: The own store; a missing one has none.
        now: The moment that ages count from.
        recalled_us: When a memory was last recalled, by id, in microseconds.
        user: Whose memories besides unowned ones.

    Raises:
        sqlite3.Error: The file cannot be read.
    """
    if not path.is_file():
        return []
    found = [_aged(row, now, recalled_us) for row in _read(path, user)]
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
        return [dict(zip((*_COLUMNS, "again"), row, strict=True)) for row in db.execute(sql, [user])]


def _aged(row: Mapping[str, Any], now: datetime, recalled_us: Mapping[int, int]) -> Aged | None:
    moments = {
        "written": max(map(_micros, (row["created_at"], row["updated_at"], row["again"]))),
        "confirmed": _micros(row["confirmed_at"]),
        "recalled": recalled_us.get(row["id"], UNDATED_US),
    }
    by = max(moments, key=lambda name: moments[name])
    now_us = to_micros(now)
    idle_days = 0 if moments[by] == UNDATED_US else max(now_us - moments[by], 0) // 86_400_000_000
    kind = about(row["content"])
    ends_us = _micros(row["valid_until"])
    if ends_us != UNDATED_US and ends_us <= now_us:
        return None  # it has ended
    soon = ends_us != UNDATED_US and ends_us - now_us <= SOON_DAYS * 86_400_000_000
    if not soon and idle_days < (SYSTEM_DAYS if kind == "system" else PERSON_DAYS):
        return None
    at = from_micros(moments[by])
    return Aged(
        row["id"], row["content"], kind, at, by, int(idle_days), row["valid_until"], row["wing"]
    )


def _micros(text: str | None) -> int:
    return UNDATED_US if text is None else read_moment_us(text)


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

    return change_rows(path, change)


def today() -> datetime:
    """Return the present moment in UTC."""
    return datetime.now(UTC)
