"""What `noctuary doctor` says about the schedule: whether a next night will run by itself.

What belongs here: judging by the files of the store's Dagster instance, which are SQLite databases
of a known form, read without importing Dagster. What does not: how old the last night is
(`serving`). Where Dagster keeps its state elsewhere, or there is none, only that age can tell.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from noctuary.diagnosis.finding import Finding
from noctuary.snapshot.layout import StorePaths

JOB = "nightly"
"""Name of the job whose runs are nights (pipelines/jobs.py)."""

_HEARTBEAT_S = 300.0
"""Dagster's daemon says every 30 s that it lives, and counts as dead after this."""

_DAYS = 3
_LEAST_DAYS = 2
"""Nights on two of the last three days are somebody else's schedule: cron, or a habit."""

_DAY_S = 86_400.0
_WAIT_S = 0.5


def look_at_schedule(paths: StorePaths, now_s: float | None = None) -> Finding:
    """Return whether nights run by themselves.

    Args:
        paths: The store.
        now_s: Seconds since the epoch; None means now.
    """
    now_s = time.time() if now_s is None else now_s
    schedules = paths.dagster_home / "schedules" / "schedules.db"
    runs = paths.dagster_home / "history" / "runs.db"
    if not schedules.is_file():
        return Finding(
            "schedule",
            "ok",
            "there is no Dagster instance to look into: age tells",
        )
    try:
        running = _is_running(schedules)
        heartbeat_s = _heartbeat_s(runs)
        days = _night_days(runs, now_s)
    except sqlite3.Error as error:
        return Finding(
            "schedule", "warn", f"the Dagster instance cannot be read: {error}",
            f"see age; move {paths.dagster_home} away and the next night makes a new one",
        )  # fmt: skip
    if running:
        return _judge_daemon(heartbeat_s, now_s)
    if days >= _LEAST_DAYS:
        return Finding(
            "schedule", "ok",
            f"off in Dagster, and nights ran on {days} of the last {_DAYS} days all the same",
        )  # fmt: skip
    return Finding(
        "schedule", "warn", "off in Dagster, so no night will run by itself",
        "switch nightly_schedule on in `make ui` under Automation, or let cron run `make nightly`",
    )  # fmt: skip


def _judge_daemon(heartbeat_s: float | None, now_s: float) -> Finding:
    if heartbeat_s is not None and now_s - heartbeat_s <= _HEARTBEAT_S:
        return Finding("schedule", "ok", "on, and Dagster's daemon is alive")
    since = "never" if heartbeat_s is None else f"{(now_s - heartbeat_s) / 3600:.1f} h ago"
    return Finding(
        "schedule", "warn", f"on, but Dagster's daemon was last alive {since}: nothing ticks",
        "keep `make ui` running, or let cron run `make nightly`",
    )  # fmt: skip


def _is_running(database: Path) -> bool:
    query = "SELECT COUNT(*) FROM instigators WHERE instigator_type='SCHEDULE' AND status='RUNNING'"
    return bool(_ask(database, query))


def _heartbeat_s(database: Path) -> float | None:
    if not database.is_file():
        return None
    # Dagster writes naive UTC.
    query = (
        "SELECT MAX(CAST(strftime('%s', timestamp) AS INTEGER)) FROM daemon_heartbeats "
        "WHERE daemon_type='SCHEDULER'"
    )
    found = _ask(database, query)
    return None if found is None else float(found)


def _night_days(database: Path, now_s: float) -> int:
    """Return on how many of the last days, 24 h each and counted back from now, a night ran."""
    if not database.is_file():
        return 0
    query = (
        "SELECT COUNT(DISTINCT CAST((? - end_time) / ? AS INTEGER)) FROM runs WHERE "
        "pipeline_name=? AND status='SUCCESS' AND end_time > ? AND end_time <= ?"
    )
    arguments = (now_s, _DAY_S, JOB, now_s - _DAYS * _DAY_S, now_s)
    return int(_ask(database, query, arguments) or 0)


def _ask(database: Path, query: str, arguments: tuple[object, ...] = ()) -> float | None:
    address = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=_WAIT_S)) as connection:
        (found,) = connection.execute(query, arguments).fetchone()
    return found
