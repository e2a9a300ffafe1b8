"""The archive as recall reads it: archive.sqlite, by the standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.core import formats
from noctuary.core.sqlite import READ_FAULTS, ReplacedFile, connect_immutable

# The file archive.sqlite. A writer never changes a file that readers have open, but replaces it.

FORMAT = formats.ARCHIVE.version  # `user_version` of the file

SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE plans (
    plan_id TEXT PRIMARY KEY, snapshot_id TEXT NOT NULL, as_of_us INTEGER NOT NULL,
    rules TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE applications (
    plan_id TEXT NOT NULL, applied_at_us INTEGER NOT NULL, undone_at_us INTEGER,
    PRIMARY KEY (plan_id, applied_at_us)) WITHOUT ROWID;
CREATE TABLE entries (
    plan_id TEXT NOT NULL, memory_id TEXT NOT NULL, content_hash TEXT NOT NULL,
    successor_id TEXT NOT NULL, successor_hash TEXT NOT NULL, summary_id TEXT, trace TEXT NOT NULL,
    PRIMARY KEY (plan_id, memory_id)) WITHOUT ROWID;
CREATE TABLE summaries (
    plan_id TEXT NOT NULL, summary_id TEXT NOT NULL, text TEXT, body TEXT NOT NULL,
    PRIMARY KEY (plan_id, summary_id)) WITHOUT ROWID;
PRAGMA user_version = {FORMAT};
"""
"""A plan never changes. An application is a period in which it holds: from `applied_at_us` until
`undone_at_us` (NULL: still). A plan that is applied again has another application.
`entries.trace` is the candidate's justification as JSON, without any text of a memory.
`summaries.text` becomes NULL when a source has changed or gone; `body` holds ids and numbers."""

DIGEST = "digest"  # key in `meta`: SHA-256 of applications and entries: equal ones hide alike

# An archived memory is hidden only where its reason still holds: it has the content hash that it
# had when it was archived, its successor is there with the hash it had then, and the recall may see
# the successor. A recall of another scope, or as of a moment before the successor existed, still
# finds the memory. Without a readable file nothing is archived: a fault of the ledger may show too
# much, and must not hide anything or fail a recall.

ContentHashes = Callable[[Sequence[str]], Mapping[str, str]]
"""Memory ids to the content hashes of those that a snapshot holds."""


class Entry(NamedTuple):
    """One memory of one plan; hashes are of when the plan was applied."""

    plan_id: str
    memory_id: str
    content_hash: str
    successor_id: str  # the memory that replaces it
    successor_hash: str
    summary_id: str | None  # of its group, or None if only the successor replaces it


class Application(NamedTuple):
    """A time in which a plan holds, in microseconds since the epoch."""

    plan_id: str
    applied_at_us: int
    undone_at_us: int | None  # exclusive; None: it still holds

    def holds_at(self, moment_us: int | None) -> bool:
        """Return whether the plan holds at a moment; None: now, regardless of the clock."""
        ends = self.undone_at_us
        if moment_us is None:
            return ends is None
        return self.applied_at_us <= moment_us and (ends is None or moment_us < ends)


class ArchiveReader(ReplacedFile):
    """One archive.sqlite, read whole when it is opened; safe to share between threads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # Every time in which a plan held or holds, sorted.
        self.applications: tuple[Application, ...] = ()
        self._entries: dict[str, tuple[Entry, ...]] = {}
        if not self.is_missing:
            try:
                self._read()
            except READ_FAULTS as error:
                self._give_up(error)

    def applied_plans_at(self, moment_us: int | None) -> frozenset[str]:
        """Return the plans that hold at a moment; None: now."""
        return frozenset(a.plan_id for a in self.applications if a.holds_at(moment_us))

    def entries_of(self, plan_id: str) -> tuple[Entry, ...]:
        """Return the entries of a plan, sorted by memory id; empty for an unknown plan."""
        return self._entries.get(plan_id, ())

    def entries_at(self, moment_us: int | None) -> Mapping[str, str]:
        """Return the archived memories of a moment (None: now) with their content hash then."""
        return {entry.memory_id: entry.content_hash for entry in self._in_force(moment_us)}

    def hidden_in(
        self, content_hashes: ContentHashes, moment_us: int | None = None
    ) -> Mapping[str, str]:
        """Return the archived memories whose reason holds in a snapshot, each with its successor.

        Sorted by memory id; of a moment, None: now. Hide one only from recalls that may see its
        successor.
        """
        entries = self._in_force(moment_us)
        wanted = sorted({e.memory_id for e in entries} | {e.successor_id for e in entries})
        found = content_hashes(wanted) if wanted else {}
        return {
            entry.memory_id: entry.successor_id
            for entry in entries
            if found.get(entry.memory_id) == entry.content_hash
            and found.get(entry.successor_id) == entry.successor_hash
        }

    def list_plans(self) -> list[dict[str, Any]]:
        """Return every plan as JSON, by first application: when it held, and its entries."""
        held: dict[str, list[Application]] = {}
        for application in sorted(self.applications, key=lambda a: a.applied_at_us):
            held.setdefault(application.plan_id, []).append(application)
        return [
            {
                "plan_id": plan_id,
                "in_force": any(a.holds_at(None) for a in times),
                "applications": [
                    {"applied_at_us": a.applied_at_us, "undone_at_us": a.undone_at_us}
                    for a in times
                ],
                "memory_ids": [entry.memory_id for entry in self.entries_of(plan_id)],
            }
            for plan_id, times in held.items()
        ]

    def _in_force(self, moment_us: int | None) -> list[Entry]:
        """Return the entries of a moment, sorted by memory id; of two plans the later one."""
        latest: dict[str, Entry] = {}
        for application in sorted(self.applications, key=lambda a: a.applied_at_us):
            if application.holds_at(moment_us):
                latest.update({e.memory_id: e for e in self.entries_of(application.plan_id)})
        return [latest[memory_id] for memory_id in sorted(latest)]

    def _read(self) -> None:
        with closing(connect_immutable(self.path)) as db:
            self.digest = str(self._read_meta(db, FORMAT)[DIGEST])
            rows = db.execute("SELECT * FROM applications ORDER BY plan_id, applied_at_us")
            self.applications = tuple(Application(*row) for row in rows)
            sql = f"SELECT {', '.join(Entry._fields)} FROM entries ORDER BY plan_id, memory_id"
            by_plan: dict[str, list[Entry]] = {}
            for row in db.execute(sql):
                by_plan.setdefault(row[0], []).append(Entry(*row))
            self._entries = {plan_id: tuple(entries) for plan_id, entries in by_plan.items()}

    def _give_up(self, error: Exception) -> None:
        self.digest, self.applications, self._entries = "", (), {}
        self.warning = (
            f"{self.path.name} cannot be read ({error}): archived memories are shown again until "
            "you restore or remove it"
        )
