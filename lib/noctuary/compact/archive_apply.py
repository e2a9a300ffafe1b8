"""Applying and undoing plans of a store, one writer at a time.

Nothing is ever removed from archive.sqlite but the text of a summary whose source has changed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.compact.archive import (
    DIGEST,
    FORMAT,
    SCHEMA,
    Application,
    ArchiveReader,
    ContentHashes,
    Entry,
)
from noctuary.compact.archive_plan import ArchiveRules, Plan, plan_store
from noctuary.compact.clusters import with_tuples
from noctuary.compact.gate import FactReport, GateReport
from noctuary.compact.summaries import Summary
from noctuary.core.errors import NoctuaryError, StoreError
from noctuary.core.files import remove_temporary_files, replacement
from noctuary.core.formats import UPDATE
from noctuary.core.sqlite import connect_immutable, filling, open_log
from noctuary.core.store import StorePaths
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.usage.access_log import ACCESS_LOG
from noctuary.work.lock import hold_lock

_IDS_SHOWN = 5  # of the memories that a refusal names


class PlanRefusedError(NoctuaryError):
    """The plan that was named is not the one that the store gives now, or cannot be undone."""


class Applied(NamedTuple):
    """A plan that was applied."""

    plan: Plan
    applied_at_us: int | None  # from when it holds; None where there was nothing to archive


def apply_in_store(
    paths: StorePaths,
    rules: ArchiveRules,
    plan_id: str | None,
    *,
    now_us: int,
    progress: Progress = SILENT,
) -> Applied:
    """Compute the store's plan again under its lock, and apply it if it is the requested one.

    If its id differs from the requested one (None accepts any), its reasons changed and nothing
    is applied. Moments of the ledger never go back: if the clock was set back, they count on from
    the last one. Raises PlanRefusedError for another plan or if one of its memories was recalled
    since the night, StoreLockedError while a night or another command runs, StoreError if a file of
    the store is missing or damaged.
    """
    with _writing(paths) as reader:
        if plan_id is not None and plan_id in reader.applied_plans_at(None):
            undo = f"`noctuary proposals compact --undo {plan_id}` ends it"
            raise PlanRefusedError(f"plan {plan_id} is already in force: {undo}")
        plan = plan_store(paths, rules, progress)
        if plan_id is not None and plan_id != plan.plan_id:
            count = len(plan.archived)
            now = f"plan {plan.plan_id}, {count} memories" if count else "nothing"
            reason = f" ({plan.warning})" if plan.warning else ""
            raise PlanRefusedError(
                f"plan {plan_id} no longer fits: the snapshot, the use of memories, the profile or "
                f"the archive changed since, and the plan is now {now}{reason}. Nothing was "
                "archived; look at `noctuary proposals compact` again"
            )
        if not plan.archived:
            return Applied(plan, None)
        recalled = _recalled_since(paths.access_log, plan.as_of_us)
        if ids := sorted(recalled & {candidate.memory_id for _, candidate in plan.archived}):
            more = f" and {len(ids) - _IDS_SHOWN} more" if len(ids) > _IDS_SHOWN else ""
            raise PlanRefusedError(
                f"plan {plan.plan_id} no longer fits: {', '.join(ids[:_IDS_SHOWN])}{more} were "
                "recalled since the night counted. Nothing was archived; the plan after the next "
                "night leaves them out"
            )
        return Applied(plan, _put_into_force(reader, plan, now_us))


def undo_in_store(paths: StorePaths, plan_id: str, *, now_us: int) -> int:
    """End a plan and return from when: its memories are found again, its entries stay.

    Raises PlanRefusedError if it is not in force, StoreLockedError while another command or a night
    runs, StoreError if the ledger is damaged.
    """
    with _writing(paths) as reader:
        at_us = _next_moment(reader, now_us)
        if plan_id not in reader.applied_plans_at(None):
            known = any(a.plan_id == plan_id for a in reader.applications)
            found = "was undone already" if known else "was never applied"
            listed = "`noctuary proposals compact --list` names them"
            raise PlanRefusedError(f"plan {plan_id} {found}: {listed}")
        sql = "UPDATE applications SET undone_at_us = ? WHERE plan_id = ? AND undone_at_us IS NULL"
        _rewrite(paths.archive, lambda db: db.execute(sql, [at_us, plan_id]))
        return at_us


@contextmanager
def _writing(paths: StorePaths) -> Generator[ArchiveReader]:
    """Hold the store's lock and yield a reader of its ledger."""
    with hold_lock(paths.lock):
        remove_temporary_files(paths.root, below=False)
        yield ArchiveReader(paths.archive)


def _next_moment(reader: ArchiveReader, now_us: int) -> int:
    """Return the moment of the next change; StoreError rather than overwrite a damaged ledger."""
    if reader.warning is not None:
        remedy = "Put back a copy of it, or move it away: without it nothing is archived"
        if UPDATE in reader.warning:
            remedy = UPDATE.capitalize()
        raise StoreError(
            f"{reader.path} cannot be read, so nothing is written to it ({reader.warning}). "
            f"{remedy}"
        )
    moments = (m for _, *both in reader.applications for m in both if m is not None)
    return max([now_us, *(moment + 1 for moment in moments)])


def _recalled_since(access_log: Path, since_us: int) -> set[str]:
    """Return which memories were recalled after a moment.

    The last check before a plan is applied. Making a plan cannot do it: to read a log that recall
    is writing leaves files next to it. StoreError if it cannot be read.
    """
    sql = "SELECT DISTINCT memory_id FROM retrievals WHERE retrieved_at_us > ?"
    try:
        with closing(open_log(access_log, ACCESS_LOG, or_empty=True)) as log:
            return {memory_id for (memory_id,) in log.execute(sql, [since_us])}
    except sqlite3.Error as error:
        raise StoreError(
            f"{access_log.name} cannot be read ({error}), so recalls since the night "
            "are unknown: run the night, then try again"
        ) from error


# Writing archive.sqlite: a copy of it is changed and put in its place.


def _put_into_force(reader: ArchiveReader, plan: Plan, now_us: int) -> int:
    """Write a plan with a new application; return the moment it starts."""
    at_us = _next_moment(reader, now_us)

    def change(db: sqlite3.Connection) -> None:
        rules = json.dumps(asdict(plan.rules), sort_keys=True)
        row = (plan.plan_id, plan.snapshot_id, plan.as_of_us, rules)
        db.execute("INSERT OR REPLACE INTO plans VALUES (?, ?, ?, ?)", row)
        # A plan that was undone before has the same entries under the same id.
        entries = "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)"
        for group, c in plan.archived:
            trace = json.dumps(c.trace(plan.rules, group.summary_id), sort_keys=True)
            hashes = c.content_hash, c.successor_id, c.successor_hash
            db.execute(entries, (plan.plan_id, c.memory_id, *hashes, group.summary_id, trace))
        texts = [(plan.plan_id, s.summary_id, s.text, _body_of(s)) for s in plan.summaries]
        db.executemany("INSERT OR REPLACE INTO summaries VALUES (?, ?, ?, ?)", texts)
        db.execute("INSERT INTO applications VALUES (?, ?, NULL)", [plan.plan_id, at_us])

    _rewrite(reader.path, change)
    return at_us


def take_plans(
    paths: StorePaths,
    other: Path,
    counterpart: Callable[[str, str], tuple[str, str] | None],
    *,
    dry_run: bool,
) -> int:
    """Add what another ledger archived, in force or not; return how many entries were missing.

    `counterpart` returns id and content hash here for those there, None where they do not hold.
    A plan that either ledger ended has ended. Summaries stay behind: the successor stands in.
    Raises StoreError for a damaged ledger, StoreLockedError while a night runs.
    """
    theirs = ArchiveReader(other)
    if theirs.warning is not None:
        raise StoreError(f"the other home's {theirs.warning}")
    if theirs.is_missing or dry_run:
        return len(_find_missing(ArchiveReader(paths.archive), theirs, counterpart)[1])
    with _writing(paths) as mine:
        _next_moment(mine, 0)  # refuses a damaged one
        applications, entries = _find_missing(mine, theirs, counterpart)
        if applications or entries:

            def change(db: sqlite3.Connection) -> None:
                plans = [(one.plan_id,) for one in applications]
                db.executemany("INSERT OR IGNORE INTO plans VALUES (?, 'merged', 0, '{}')", plans)
                db.executemany("INSERT OR REPLACE INTO applications VALUES (?, ?, ?)", applications)
                rows = [(*entry[:-1], None, "{}") for entry in entries]
                db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

            _rewrite(paths.archive, change)
    return len(entries)


_LAST_US = 2**53  # of a moment; a later one would leave no room for the next


def _find_missing(
    mine: ArchiveReader,
    theirs: ArchiveReader,
    counterpart: Callable[[str, str], tuple[str, str] | None],
) -> tuple[list[Application], list[Entry]]:
    known = {one[:2]: one for one in mine.applications}
    applications, entries = list[Application](), dict[tuple[str, str], Entry]()
    for one in theirs.applications:
        moments: list[Any] = [m for m in one[1:] if m is not None]
        if not all(isinstance(m, int) and 0 <= m < _LAST_US for m in moments):
            continue
        found = dict[tuple[str, str], Entry]()
        for entry in theirs.entries_of(one.plan_id):
            archived = counterpart(entry.memory_id, entry.content_hash)
            successor = counterpart(entry.successor_id, entry.successor_hash)
            if archived is not None and successor is not None:
                made = Entry(one.plan_id, *archived, *successor, None)
                found[made.plan_id, made.memory_id] = made
        had = known.get(one[:2])
        ends = [o.undone_at_us for o in (one, had) if o and o.undone_at_us is not None]
        both = one._replace(undone_at_us=min(ends, default=None))
        if found and both != had:
            applications.append(both)
        kept = {(entry.plan_id, entry.memory_id) for entry in mine.entries_of(one.plan_id)}
        entries |= {key: entry for key, entry in found.items() if key not in kept}
    return applications, list(entries.values())


def _rewrite(
    path: Path, change: Callable[[sqlite3.Connection], object], *, vacuum: bool = False
) -> None:
    """Change a copy of the ledger, then put it in its place."""
    with replacement(path) as tmp:
        is_new = not path.exists()
        if not is_new:
            shutil.copyfile(path, tmp)
        with filling(tmp, SCHEMA if is_new else "") as db:
            change(db)
            db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [DIGEST, _digest(db)])
            db.execute("COMMIT")
            if vacuum:
                db.execute("VACUUM")
            found = db.execute("PRAGMA quick_check").fetchall()
            if found != [("ok",)]:
                raise StoreError(f"{path} is damaged ({found[0][0]}): restore a copy of it")


def _digest(db: sqlite3.Connection) -> str:
    hashed = hashlib.sha256(repr(FORMAT).encode())
    for sql in (
        "SELECT * FROM applications ORDER BY plan_id, applied_at_us",
        f"SELECT {', '.join(Entry._fields)} FROM entries ORDER BY plan_id, memory_id",
    ):
        for row in db.execute(sql):
            hashed.update(repr(row).encode("utf-8", "surrogatepass"))
    return hashed.hexdigest()


def purge_texts(path: Path, content_hashes: ContentHashes) -> int:
    """Delete the text of summaries whose source has changed, was deleted or turned sensitive.

    Their ids stay. A damaged ledger is left alone.
    `content_hashes` are of those memories that exist now. Returns how many texts were forgotten.
    """
    reader = ArchiveReader(path)
    if reader.is_missing or reader.warning is not None:
        return 0
    plans = {application.plan_id for application in reader.applications}
    summarized = [e for plan_id in plans for e in reader.entries_of(plan_id) if e.summary_id]
    now = content_hashes(sorted({entry.memory_id for entry in summarized}))
    changed = (e for e in summarized if now.get(e.memory_id) != e.content_hash)
    stale = {(entry.plan_id, entry.summary_id) for entry in changed}
    with closing(connect_immutable(path)) as db:
        held = db.execute("SELECT plan_id, summary_id FROM summaries WHERE text IS NOT NULL")
        wanted = sorted(stale.intersection(held))
    if wanted:
        sql = "UPDATE summaries SET text = NULL WHERE plan_id = ? AND summary_id = ?"
        # Rewritten, so that the old text is in no free page of the file.
        _rewrite(path, lambda db: db.executemany(sql, wanted), vacuum=True)
    return len(wanted)


# The summaries of archived groups, as the night packs them into a snapshot. The text
# has its own column, because it alone must be forgotten when a source turns sensitive.


class AppliedSummary(NamedTuple):
    """A summary with today's positions of its sources, and the plan in force that created it."""

    plan_id: str
    summary: Summary


def applied_summaries(path: Path, records: Iterable[MemoryRecord]) -> list[AppliedSummary]:
    """Return the summaries of plans in force of which every source is still archived, by id.

    A summary is left out as soon as one source or its successor has changed or gone: that source
    is found again, and must not be found twice. Without a readable ledger there are none.
    """
    reader = ArchiveReader(path)
    plans = reader.applied_plans_at(None)
    if not plans:
        return []
    known: dict[str, MemoryRecord] = {}

    def hashes(ids: Sequence[str]) -> dict[str, str]:
        wanted = frozenset(ids)
        known.update((r.memory_id, r) for r in records if r.memory_id in wanted)
        return {memory_id: record.content_hash for memory_id, record in known.items()}

    hidden = reader.hidden_in(hashes)
    found: dict[str, AppliedSummary] = {}
    sql = "SELECT plan_id, text, body FROM summaries WHERE text IS NOT NULL ORDER BY 1, 2"
    with suppress(sqlite3.Error), closing(connect_immutable(path)) as db:
        for plan_id, text, body in db.execute(sql):
            # One that an older noctuary wrote is left out.
            with suppress(ValueError, KeyError, TypeError):
                summary = _summary_of(text, body)
                if plan_id in plans and hidden.keys() >= set(summary.source_ids):
                    positions = tuple(known[source].position for source in summary.source_ids)
                    bound = replace(summary, source_positions=positions)
                    found[summary.summary_id] = AppliedSummary(plan_id, bound)
    return [found[summary_id] for summary_id in sorted(found)]


def _body_of(summary: Summary) -> str:
    """Return everything of a summary but its text; an accepted one has no faults to name."""
    body = asdict(summary)
    del body["text"]
    if summary.facts is not None:
        body["facts"] = {"kept": summary.facts.kept, "total": summary.facts.total}
    return json.dumps(body, sort_keys=True, ensure_ascii=False)


def _summary_of(text: str, body: str) -> Summary:
    """Return the summary of a text and a body; ValueError, KeyError or TypeError if it is none."""
    kept = ((n, v) for n, v in json.loads(body).items() if n in Summary.__slots__)
    values = with_tuples(dict(kept))
    report, facts = values.pop("report"), values.pop("facts")
    report = None if report is None else GateReport(**with_tuples(report))
    facts = None if facts is None else FactReport(facts["kept"], facts["total"])
    return Summary(text=text, report=report, facts=facts, **values)
