"""A nightly store as a component of somebody else's Dagster project."""

from __future__ import annotations

import dagster as dg
from pydantic import Field

from noctuary.core.settings import ScheduleSettings, Settings
from noctuary.core.store import find_home
from noctuary_pipelines.definitions import build_definitions
from noctuary_pipelines.resources import NightResource
from noctuary_pipelines.schedules import nightly_schedule
from noctuary_pipelines.sensors import failure_sensor, missed_sensor, source_sensor
from noctuary_pipelines.site import Site, resolve_site


class NightlyStore(dg.Component, dg.Model, dg.Resolvable):
    """A memory store that is exported, indexed, judged and published every night.

    Its assets, checks, the job `nightly`, its schedule and the sensor of changes join the project;
    runs are recorded in the project's instance. `noctuary recall` reads what the job publishes.
    """

    source: str | None = Field(
        default=None,
        description="The memory store to read: a path, or env:NAME of a variable that holds "
        "postgresql://... Without it the configured one, else the own store, else the "
        "bundled sample.",
        examples=["/srv/notes/memory.db"],
    )
    store: str | None = Field(
        default=None,
        description="Directory to write, or its name below noctuary's home; by default derived "
        "from the source.",
    )
    cron: str | None = Field(
        default=None,
        description="When the schedule asks for a night once it is switched on: five fields. By "
        "default schedule.cron of noctuary.toml, 03:00.",
        examples=["0 3 * * *"],
    )
    timezone: str | None = Field(
        default=None, description="IANA zone of cron; by default the configured or the machine's."
    )

    def resolve_site(self) -> Site:
        """Return where a run takes place; asked when it starts."""
        return resolve_site(self.source, self.store)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return everything of the code location but its executor, which is the project's."""
        settings = Settings.load(home=find_home())
        schedule = ScheduleSettings(
            cron=self.cron or settings.schedule.cron,
            timezone=self.timezone or settings.schedule.timezone,
        )
        night = NightResource(source=self.source or "", store=self.store or "")
        whole = build_definitions({"night": night})
        return dg.Definitions(
            assets=whole.assets,
            asset_checks=whole.asset_checks,
            jobs=whole.jobs,
            schedules=[nightly_schedule(schedule, self.resolve_site)],
            sensors=[
                source_sensor(settings.sensor, self.resolve_site),
                failure_sensor(settings.notify, self.resolve_site),
                missed_sensor(settings.notify, self.resolve_site),
            ],
            resources=whole.resources,
        )
