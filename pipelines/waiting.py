"""Runs that wait for the store: a tag by which nobody takes them for dead meanwhile.

What belongs here: setting and reading the tag. What does not: the waiting itself
(`noctuary.work.waiting`).
"""

from __future__ import annotations

import os

import dagster as dg

WAITING_TAG = "noctuary/waiting"
"""Of a run: the process in which it waits, empty once it has its turn."""


def note_waiting(instance: dg.DagsterInstance | None, run: dg.DagsterRun | None) -> None:
    """Say that a run waits, in this process."""
    _tag(instance, run, str(os.getpid()))


def note_turn(instance: dg.DagsterInstance | None, run: dg.DagsterRun | None) -> None:
    """Say that a run has its turn; nothing where it never waited."""
    known = instance.get_run_by_id(run.run_id) if instance and run else None
    if known is not None and known.tags.get(WAITING_TAG):
        _tag(instance, known, "")


def is_waiting(run: dg.DagsterRun) -> bool:
    """Tell whether a run said that it waits, and the process in which it does is alive."""
    process = run.tags.get(WAITING_TAG, "")
    if not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _tag(instance: dg.DagsterInstance | None, run: dg.DagsterRun | None, process: str) -> None:
    if instance is not None and run is not None:
        instance.add_run_tags(run.run_id, {WAITING_TAG: process})
