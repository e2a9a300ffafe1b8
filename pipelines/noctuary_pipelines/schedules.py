"""The job of a night, and when it runs once its schedule is switched on."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import dagster as dg
from dagster._utils.schedules import get_smallest_cron_interval, schedule_execution_time_iterator

from noctuary.core.errors import NoctuaryError
from noctuary.core.settings import ScheduleSettings
from noctuary_pipelines.quiet import look, report_looks
from noctuary_pipelines.site import Site, resolve_site

OWNER = "team:noctuary"  # of every asset of a night: in a project of others the job selects these

NIGHTLY_JOB = dg.define_asset_job(
    "nightly",
    selection=dg.AssetSelection.owner(OWNER).materializable(),
    # A step of its own would hold the store against the next one.
    executor_def=dg.in_process_executor,
    description="The whole night: export, embed, index, connect, compact, evaluate, publish.",
)


def nightly_schedule(
    settings: ScheduleSettings, resolve: Callable[[], Site] = resolve_site
) -> dg.ScheduleDefinition:
    """Return the nightly schedule; it is off until somebody switches it on in the UI."""

    @dg.schedule(
        name="nightly_schedule",
        job=NIGHTLY_JOB,
        cron_schedule=settings.cron,
        execution_timezone=settings.timezone or local_timezone(),
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Every night at 03:00 local time, or as configured; off until switched on.",
    )
    def ask(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        with suppress(NoctuaryError, OSError):  # the run itself says what is wrong
            site = resolve()
            if look(site):
                report_looks(context.instance, site)
                return dg.SkipReason("nothing changed since the last night")
        return dg.RunRequest()

    return ask


def nightly_freshness(settings: ScheduleSettings) -> dg.FreshnessPolicy:
    """Return when the snapshot is late: where the schedule's next time comes and it is older."""
    # A night takes as long as it takes, so a missed one shows when the next is due.
    return dg.FreshnessPolicy.cron(
        deadline_cron=settings.cron,
        lower_bound_delta=get_smallest_cron_interval(settings.cron),
        timezone=settings.timezone or local_timezone(),
    )


def last_tick(settings: ScheduleSettings, now_s: float) -> datetime:
    """Return when the schedule was due last."""
    zone = settings.timezone or local_timezone()
    return next(schedule_execution_time_iterator(now_s, settings.cron, zone, ascending=False))


def local_timezone() -> str:
    """Return the machine's IANA zone, or UTC where it cannot be told."""
    for name in (os.environ.get("TZ", ""), _linked_zone(), "UTC"):
        if name:
            try:
                ZoneInfo(name)
            except (ZoneInfoNotFoundError, ValueError, OSError):
                continue
            return name
    return "UTC"


def _linked_zone() -> str:
    parts = Path("/etc/localtime").resolve().parts
    return "/".join(parts[parts.index("zoneinfo") + 1 :]) if "zoneinfo" in parts else ""
