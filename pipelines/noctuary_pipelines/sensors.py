"""Sensors: when a change of the source asks for a night of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import dagster as dg

from noctuary.core.errors import NoctuaryError
from noctuary.core.settings import NotifySettings, SensorSettings
from noctuary.sources.open import read_marker
from noctuary.work.lock import find_holder
from noctuary_pipelines.notify import NIGHT_FAILED, NIGHT_MISSED, notify
from noctuary_pipelines.schedules import NIGHTLY_JOB, last_tick
from noctuary_pipelines.site import Site, resolve_site
from noctuary_pipelines.source_versions import describe_change, read_completed_marker

MAX_ATTEMPTS = 3  # on one state of the source: a busy disk passes, a broken source does not
START_PATIENCE_S = 120.0  # a requested run may take so long to reach the lock
LATE_S = 3600  # a night that has not begun an hour after it was due did not happen
MARKER_TAG = "noctuary/marker"  # tag of a requested run: which state of the source it was asked for


@dataclass(frozen=True, slots=True)
class Asked:
    """What the sensor keeps between two looks, as its cursor."""

    marker: str = ""  # the state of the source that a night was last asked for; empty before
    at_s: float = 0.0  # when, in seconds since the epoch
    attempts: int = 0  # nights asked for on that state
    # Nights asked for at all, for the run key: a source may return to an earlier state.
    total: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What one look comes to."""

    asked: Asked  # the cursor from now on
    reason: str = ""  # why no night is asked for; empty where one is
    run_key: str = ""  # names the request; equal ones start one run


def decide_run(
    asked: Asked, marker: str, completed_marker: str | None, *, now_s: float, minimum_s: float
) -> Decision:
    """Decide whether a change of the source asks for a night now."""
    # `completed_marker` is the source's when the last night began that went through, if known.
    if marker == completed_marker:
        return Decision(asked, "nothing changed in the source since the last night")
    is_same = marker == asked.marker
    waited_s = now_s - asked.at_s
    if is_same and asked.attempts >= MAX_ATTEMPTS:
        return Decision(
            asked,
            f"{asked.attempts} nights were asked for this state of the source and none went "
            "through: look at the runs. The next change, or the nightly schedule, tries again",
        )
    least_s = max(minimum_s, START_PATIENCE_S) if is_same else minimum_s
    # A clock that was set back must not silence the sensor.
    if asked.marker and 0 <= waited_s < least_s:
        return Decision(
            asked,
            f"the source changed; a night was asked for {waited_s / 60:.0f} min ago, the next may "
            f"be in {(least_s - waited_s) / 60:.1f} min",
        )
    total = asked.total + 1
    attempts = asked.attempts + 1 if is_same else 1
    return Decision(Asked(marker, now_s, attempts, total), run_key=f"{marker}-{total}")


def source_sensor(
    settings: SensorSettings,
    resolve: Callable[[], Site] = resolve_site,
    clock_s: Callable[[], float] = time.time,
) -> dg.SensorDefinition:
    """Return the sensor `source_changed`; it is off until somebody switches it on in the UI."""

    @dg.sensor(
        name="source_changed",
        job=NIGHTLY_JOB,
        minimum_interval_seconds=max(int(settings.poll_seconds), 1),
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Requests a night when the source has changed; off until switched on.",
    )
    def source_changed(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            site = resolve()
            holder = find_holder(site.paths.lock)
            if holder is not None:
                return dg.SkipReason(f"a night is running (process {holder})")
            marker = read_marker(site.source, site.settings)
        except (NoctuaryError, OSError) as error:
            return dg.SkipReason(f"the source cannot be looked at: {error}")
        decision = decide_run(
            read_asked(context.cursor),
            marker,
            read_completed_marker(context.instance),
            now_s=clock_s(),
            minimum_s=site.settings.sensor.minimum_minutes * 60,
        )
        # Whether a night is asked for or not: the UI shows what is made of an older state.
        seen = describe_change(context.instance, site, marker)
        if decision.reason:
            return dg.SensorResult(skip_reason=decision.reason, asset_events=seen)
        return dg.SensorResult(
            run_requests=[dg.RunRequest(run_key=decision.run_key, tags={MARKER_TAG: marker})],
            cursor=write_asked(decision.asked),
            asset_events=seen,
        )

    return source_changed


def failure_sensor(
    settings: NotifySettings, resolve: Callable[[], Site] = resolve_site
) -> dg.SensorDefinition:
    """Return the sensor that tells of failed nights; on where the settings name whom to tell."""
    # It hears of the runs that Dagster started. The command behind `make nightly` tells by itself.

    @dg.run_failure_sensor(
        name="night_failed",
        monitored_jobs=[NIGHTLY_JOB],
        default_status=_status(settings),
        description="Reports a failed night to notify.command and notify.webhook.",
    )
    def night_failed(context: dg.RunFailureSensorContext) -> None:
        steps = [event.step_key for event in context.get_step_failure_events()]
        run_id = context.dagster_run.run_id
        for fault in notify(resolve(), NIGHT_FAILED, status="failed", run_id=run_id, steps=steps):
            context.log.error(fault)

    return night_failed


def missed_sensor(
    settings: NotifySettings,
    resolve: Callable[[], Site] = resolve_site,
    clock_s: Callable[[], float] = time.time,
) -> dg.SensorDefinition:
    """Return the sensor that tells of nights that did not happen; on as `failure_sensor` is."""

    @dg.sensor(
        name="night_missed",
        minimum_interval_seconds=LATE_S // 12,
        default_status=_status(settings),
        description="Reports, once, a night that was due and did not begin.",
    )
    def night_missed(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        try:
            site = resolve()
        except (NoctuaryError, OSError) as error:
            return dg.SkipReason(f"the store cannot be looked at: {error}")
        due = last_tick(site.settings.schedule, clock_s() - LATE_S)
        if context.cursor == due.isoformat():
            return dg.SkipReason(f"it was told of the night of {due:%Y-%m-%d %H:%M}")
        begun = dg.RunsFilter(job_name=NIGHTLY_JOB.name, created_after=due)
        last = site.paths.last_night
        if not last.exists() or last.stat().st_mtime >= due.timestamp():
            return dg.SkipReason("the last night is as new as it should be")
        if context.instance.get_runs_count(begun) or find_holder(site.paths.lock) is not None:
            return dg.SkipReason("a night has begun since it was due")
        for fault in notify(site, NIGHT_MISSED, due=due.isoformat()):
            context.log.error(fault)
        said = f"the night of {due:%Y-%m-%d %H:%M} did not happen"
        return dg.SensorResult(skip_reason=said, cursor=due.isoformat())

    return night_missed


def _status(settings: NotifySettings) -> dg.DefaultSensorStatus:
    told = settings.command or settings.webhook
    return dg.DefaultSensorStatus.RUNNING if told else dg.DefaultSensorStatus.STOPPED


def read_asked(cursor: str | None) -> Asked:
    """Return what a cursor says; one that cannot be read says that nothing was asked for."""
    try:
        raw: Any = json.loads(cursor or "{}")
        values = {f.name: type(f.default)(raw[f.name]) for f in fields(Asked) if f.name in raw}
        return replace(Asked(), **values)
    except (ValueError, TypeError):
        return Asked()


def write_asked(asked: Asked) -> str:
    """Return the cursor that `read_asked` reads."""
    return json.dumps(asdict(asked), sort_keys=True)
