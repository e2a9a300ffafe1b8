"""Writing archive.sqlite: plans are applied and undone, and nothing is ever taken out.

What belongs here: the file as a whole, replaced atomically: a writer that is killed leaves the old
one or the new one. What does not: what is in a plan (`plan`), whether it still fits (`applying`).
The caller holds the store's lock.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from noctuary.archive.ledger_file import DIGEST, FORMAT, SCHEMA
from noctuary.archive.plan import Plan
from noctuary.archive.reading import ArchiveReader, ContentHashes, Entry
from noctuary.archive.summary_row import body_of
from noctuary.errors import StoreError
from noctuary.files import replace_with
from noctuary.immutable import connect_immutable

Change = Callable[[sqlite3.Connection], None]

_APPLICATIONS = "SELECT * FROM applications ORDER BY plan_id, applied_at_us"
_ENTRIES = f"SELECT {', '.join(Entry._fields)} FROM entries ORDER BY plan_id, memory_id"


def apply_plan(path: Path, plan: Plan, *, now_us: int) -> int:
    """Put a plan into force from now on.

    Args:
        path: archive.sqlite; made if it is missing.
        plan: At least one memory would be archived.
        now_us: The clock. Moments never go back: a clock that was set back counts on from the last
            one.

    Returns:
        The moment from which it holds.

    Raises:
        StoreError: The ledger is damaged, or the plan is in force already.
    """
    reader = _readable(path)
    if plan.plan_id in reader.applied_plans_at(None):
        raise StoreError(f"plan {plan.plan_id} is in force already")
    at_us = _next_moment(reader, now_us)

    def change(db: sqlite3.Connection) -> None:
        rules = json.dumps(plan.rules.to_json(), sort_keys=True)
        row = (plan.plan_id, plan.snapshot_id, plan.as_of_us, rules)
        db.execute("INSERT OR REPLACE INTO plans VALUES (?, ?, ?, ?)", row)
        # A plan that was undone before has the same entries under the same id.
        entries = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)"
        db.executemany(entries, _entries(plan))
        texts = [(plan.plan_id, s.summary_id, s.text, body_of(s)) for s in plan.summaries]
        db.executemany("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?)", texts)
        db.execute("INSERT INTO applications VALUES (?, ?, NULL)", [plan.plan_id, at_us])

    _rewrite(path, change)
    return at_us


def undo_plan(path: Path, plan_id: str, *, now_us: int) -> int:
    """End a plan now; what it archived is found again, its entries stay in the ledger.

    Returns:
        The moment from which it no longer holds.

    Raises:
        StoreError: The ledger is damaged, or the plan is not in force.
    """
    reader = _readable(path)
    if plan_id not in reader.applied_plans_at(None):
        raise StoreError(
            f"plan {plan_id} is not in force: `noctuary compact --list` names the plans"
        )
    at_us = _next_moment(reader, now_us)

    def change(db: sqlite3.Connection) -> None:
        db.execute(
            "UPDATE applications SET undone_at_us = ? WHERE plan_id = ? AND undone_at_us IS NULL",
            [at_us, plan_id],
        )

    _rewrite(path, change)
    return at_us


def purge_texts(path: Path, content_hashes: ContentHashes) -> int:
    """Forget the summaries of which a source has changed, was deleted or turned sensitive.

    The ids stay, so that what happened can still be told. A ledger that is missing or damaged is
    left alone: of a damaged one nothing is served either.

    Args:
        path: archive.sqlite.
        content_hashes: Of those memories that exist now, for some ids; not asked without a ledger.

    Returns:
        How many texts were forgotten; the file is only written when there are some.
    """
    reader = ArchiveReader.open(path)
    if reader.is_missing or reader.warning is not None:
        return 0
    summarized = {
        (plan_id, entry.summary_id, entry.memory_id, entry.content_hash)
        for plan_id in {a.plan_id for a in reader.applications}
        for entry in reader.entries_of(plan_id)
        if entry.summary_id
    }
    now = content_hashes(sorted({memory_id for _, _, memory_id, _ in summarized}))
    stale = {
        (plan_id, summary_id)
        for plan_id, summary_id, memory_id, content_hash in summarized
        if now.get(memory_id) != content_hash
    }
    wanted = sorted(stale & _held_texts(path))

    def change(db: sqlite3.Connection) -> None:
        sql = "UPDATE summaries SET text = NULL WHERE plan_id = ? AND summary_id = ?"
        db.executemany(sql, wanted)

    if wanted:
        # Rewritten, so that the old text is in no free page of the file.
        _rewrite(path, change, vacuum=True)
    return len(wanted)


def _held_texts(path: Path) -> set[tuple[str, str]]:
    with closing(connect_immutable(path)) as db:
        return set(db.execute("SELECT plan_id, summary_id FROM summaries WHERE text IS NOT NULL"))


def _readable(path: Path) -> ArchiveReader:
    reader = ArchiveReader.open(path)
    if reader.warning is not None:
        raise StoreError(
            f"{path} cannot be read, so nothing is written to it ({reader.warning}). Put back a "
            "copy of it, or move it away: without it nothing is archived"
        )
    return reader


def _next_moment(reader: ArchiveReader, now_us: int) -> int:
    moments = [a.applied_at_us for a in reader.applications]
    moments += [a.undone_at_us for a in reader.applications if a.undone_at_us is not None]
    return max([now_us, *(moment + 1 for moment in moments)])


def _entries(plan: Plan) -> list[tuple[str, str, str, str, str, str | None, str]]:
    return [
        (
            plan.plan_id, c.memory_id, c.content_hash, c.successor_id, c.successor_hash,
            group.summary_id, json.dumps(c.trace(plan.rules, group.summary_id), sort_keys=True),
        )
        for group, c in plan.archived
    ]  # fmt: skip


def _rewrite(path: Path, change: Change, *, vacuum: bool = False) -> None:
    """Change a copy of the ledger, then put it in its place."""

    def write(tmp: Path) -> None:
        is_new = not path.exists()
        if not is_new:
            shutil.copyfile(path, tmp)
        with closing(sqlite3.connect(tmp, isolation_level=None)) as db:
            # Nobody knows this file yet: no journal, and whoever puts it in place flushes it.
            db.execute("PRAGMA journal_mode=OFF")
            db.execute("PRAGMA synchronous=OFF")
            if is_new:
                db.executescript(SCHEMA)
            db.execute("BEGIN")
            change(db)
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [DIGEST, _digest(db)])
            db.execute("COMMIT")
            if vacuum:
                db.execute("VACUUM")
            _require_sound(db, path)

    replace_with(path, write)


def _digest(db: sqlite3.Connection) -> str:
    hashed = hashlib.sha256(repr(FORMAT).encode())
    for sql in (_APPLICATIONS, _ENTRIES):
        for row in db.execute(sql):
            hashed.update(repr(row).encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def _require_sound(db: sqlite3.Connection, path: Path) -> None:
    found = db.execute("PRAGMA quick_check").fetchall()
    if found != [("ok",)]:
        raise StoreError(f"{path} is damaged ({found[0][0]}): put back a copy of it")
