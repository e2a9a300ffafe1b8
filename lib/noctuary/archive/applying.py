"""Carrying out and undoing plans of a store, one writer at a time.

What belongs here: the lock, the checks before a plan is carried out, and what is left of one that
was killed. What does not: making plans (`planning`), the file (`writing`).
"""

from __future__ import annotations

from typing import NamedTuple

from noctuary.archive.last_look import recalled_since
from noctuary.archive.plan import Plan
from noctuary.archive.planning import plan_store
from noctuary.archive.reading import ArchiveReader
from noctuary.archive.rules import ArchiveRules
from noctuary.archive.writing import apply_plan, undo_plan
from noctuary.errors import NoctuaryError
from noctuary.files import remove_temporary_files
from noctuary.progress import SILENT, Progress
from noctuary.snapshot.layout import StorePaths
from noctuary.work.lock import hold_lock

_IDS_SHOWN = 5


class PlanRefusedError(NoctuaryError):
    """The plan that was named is not the one that the store gives now, or cannot be undone."""


class Applied(NamedTuple):
    """What became of a plan.

    Attributes:
        plan: The plan.
        applied_at_us: The moment from which it holds; None where there was nothing to archive.
    """

    plan: Plan
    applied_at_us: int | None


def apply_in_store(
    paths: StorePaths,
    rules: ArchiveRules,
    plan_id: str | None,
    *,
    now_us: int,
    progress: Progress = SILENT,
) -> Applied:
    """Make the store's plan again under its lock, and carry it out if it is the one asked for.

    A plan is made of what the snapshot, the counts of use and the ledger say now: one that comes
    out with another id has lost its reason somewhere, and nothing of it is carried out.

    Args:
        paths: The store.
        rules: What decides; those that the plan was looked at with.
        plan_id: The plan that was looked at; None for whatever comes out.
        now_us: The clock.
        progress: Told while superseded memories are looked at.

    Raises:
        PlanRefusedError: Another plan came out, or a memory of it was recalled since the night.
        StoreLockedError: A night, or another command, is at work on the store.
        StoreError: A file of the store is missing or damaged.
    """
    with hold_lock(paths.lock):
        remove_temporary_files(paths.root, below=False)
        _require_not_in_force(paths, plan_id)
        plan = plan_store(paths, rules, progress)
        if plan_id is not None and plan_id != plan.plan_id:
            raise PlanRefusedError(_changed(plan_id, plan))
        if not plan.archived:
            return Applied(plan, None)
        ids = [candidate.memory_id for _, candidate in plan.archived]
        recalled = recalled_since(paths.access_log, ids, plan.as_of_us)
        if recalled:
            raise PlanRefusedError(_recalled(plan, recalled))
        return Applied(plan, apply_plan(paths.archive, plan, now_us=now_us))


def undo_in_store(paths: StorePaths, plan_id: str, *, now_us: int) -> int:
    """End a plan; return the moment from which it no longer holds.

    Raises:
        PlanRefusedError: It is not in force.
        StoreLockedError: A night, or another command, is at work on the store.
        StoreError: The ledger is damaged.
    """
    with hold_lock(paths.lock):
        remove_temporary_files(paths.root, below=False)
        reader = ArchiveReader.open(paths.archive)
        if reader.warning is None and plan_id not in reader.applied_plans_at(None):
            known = any(a.plan_id == plan_id for a in reader.applications)
            found = "was undone already" if known else "was never applied"
            raise PlanRefusedError(f"plan {plan_id} {found}: `noctuary compact --list` names them")
        return undo_plan(paths.archive, plan_id, now_us=now_us)


def _require_not_in_force(paths: StorePaths, plan_id: str | None) -> None:
    reader = ArchiveReader.open(paths.archive)
    if plan_id is not None and plan_id in reader.applied_plans_at(None):
        raise PlanRefusedError(
            f"plan {plan_id} is in force already: `noctuary compact --undo {plan_id}` ends it"
        )


def _changed(plan_id: str, plan: Plan) -> str:
    now = f"plan {plan.plan_id}, {len(plan.archived)} memories" if plan.archived else "nothing"
    reason = f" ({plan.warning})" if plan.warning else ""
    return (
        f"plan {plan_id} no longer fits: the snapshot, the use of memories, the profile or the "
        f"archive changed since, and what would be archived now is {now}{reason}. Nothing was "
        "archived; look at `noctuary compact` again"
    )


def _recalled(plan: Plan, recalled: list[str]) -> str:
    shown = ", ".join(recalled[:_IDS_SHOWN])
    more = f" and {len(recalled) - _IDS_SHOWN} more" if len(recalled) > _IDS_SHOWN else ""
    return (
        f"plan {plan.plan_id} no longer fits: {shown}{more} were recalled since the night counted. "
        "Nothing was archived; the plan after the next night leaves them out"
    )
