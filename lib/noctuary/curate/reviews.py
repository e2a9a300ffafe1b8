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

from noctuary.core.settings import Settings
from noctuary.core.sqlite import open_foreign
from noctuary.core.store import OWN_FILE, OWN_PREFIX, StorePaths, find_home, store_for_source
from noctuary.core.tombstones import read_tombstones
from noctuary.core.types import DAY_US, UNDATED_US, from_micros, to_micros
from noctuary.sources.normalize import read_end_us
from noctuary.sources.own_store import WAIT_S, change_rows, find_night_source
from noctuary.text.reach import TAGS
from noctuary.usage.reader import UsageReader

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


def find_reviewed() -> tuple[Path, str]:
    """Return the store of the nights that read the own store, and what begins its ids there."""
    home = find_home()
    source = find_night_source(home, Settings.load(home=home))
    return store_for_source(home, source), "" if source == home / OWN_FILE else OWN_PREFIX


def find_aged(store: Path, prefix: str, *, now: datetime, user: str | None) -> list[Aged]:
    """Return those that a store of nights does not hide; its ids begin with `prefix`."""

    def last_recalls(ids: Sequence[int]) -> Sequence[int]:
        with closing(UsageReader(StorePaths(store).usage)) as usage:
            return usage.counts([f"{prefix}{number}" for number in ids]).last_us.tolist()

    aged = list_aged(find_home() / OWN_FILE, now=now, last_recalls=last_recalls, user=user)
    gone = read_tombstones(store).ids
    return [one for one in aged if f"{prefix}{one.id}" not in gone]


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
    rows = _read(path, "replaced_by IS NULL AND (user IS NULL OR user IS ?)", user)
    recalled_us = last_recalls([row["id"] for row in rows])
    found = [_aged(row, now, at_us) for row, at_us in zip(rows, recalled_us, strict=True)]
    return sorted(filter(None, found), key=lambda one: (-one.idle_days, one.id))


def read_row(path: Path, number: int) -> dict[str, Any] | None:
    """Return what the own store holds of a memory, and by which one it is replaced; or None."""
    return next(iter(_read(path, "id = ?", number)), None) if path.is_file() else None


_COLUMNS = (
    "id", "content", "tags", "created_at", "updated_at", "confirmed_at", "valid_until", "wing",
    "user",
)  # fmt: skip


def _read(path: Path, where: str, value: object) -> list[dict[str, Any]]:
    with closing(open_foreign(path, WAIT_S)[0]) as db:
        known = {str(row[1]) for row in db.execute("PRAGMA table_info(memories)")}
        shown = ", ".join(name if name in known else f"NULL AS {name}" for name in _COLUMNS)
        # Equal texts are the same memory said again: the newest tells when.
        again = "(SELECT max(created_at) FROM memories b WHERE b.text_key = a.text_key)"
        links = "memory_links WHERE dst_id = a.id AND link_type = 'supersedes'"
        replaced_by = (
            f"(SELECT max(src_id) FROM {links})"
            if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'memory_links'").fetchone()
            else "NULL"
        )
        sql = (
            f"SELECT {shown}, {again}, {replaced_by} AS replaced_by FROM memories a "
            f"WHERE NOT is_sensitive AND {where}"
        )
        names = (*_COLUMNS, "again", "replaced_by")
        return [dict(zip(names, row, strict=True)) for row in db.execute(sql, [value])]


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


def end(path: Path, ids: Sequence[int], until: date | datetime | None, now: datetime) -> int:
    """Let memories end after a day, at a moment, or (None) never; return how many there were."""
    values = [None if until is None else until.isoformat(), now.isoformat()]
    return _set(path, "valid_until = ?, updated_at = ?", values, ids)


def set_reach(path: Path, number: int, tag: str | None, now: datetime) -> int:
    """Give a memory one of `noctuary.text.reach.TAGS` or none; return how many there were."""

    def change(db: sqlite3.Connection) -> int:
        found = db.execute("SELECT tags FROM memories WHERE id = ?", [number]).fetchone() or ("",)
        tags = [one.strip() for one in (found[0] or "").split(",")]
        kept = [one for one in (*tags, tag) if one and (one == tag or one.casefold() not in TAGS)]
        sql = "UPDATE memories SET tags = ?, updated_at = ? WHERE id = ?"
        text = ",".join(dict.fromkeys(kept))
        return db.execute(sql, [text, now.isoformat(), number]).rowcount

    return change_rows(path, change, WAIT_S)


def _set(path: Path, columns: str, values: Iterable[str | None], ids: Sequence[int]) -> int:
    sql = f"UPDATE memories SET {columns} WHERE id IN (SELECT value FROM json_each(?))"

    def change(db: sqlite3.Connection) -> int:
        return db.execute(sql, [*values, json.dumps(list(ids))]).rowcount

    return change_rows(path, change, WAIT_S) if path.is_file() else 0
