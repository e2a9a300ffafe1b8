"""The one code location: every asset, check, job, schedule and sensor.

`build_definitions` lets tests swap resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets import (
    archive,
    compaction,
    corpus,
    curation,
    evaluation,
    graph,
    lexical,
    promotion,
    serving,
    usage,
    vectors,
)
from noctuary.core.settings import Settings
from noctuary.core.store import find_home
from pipelines.jobs import NIGHTLY_JOB
from pipelines.resources import make_night_resource
from pipelines.schedules import nightly_schedule
from pipelines.sensors import source_sensor
from pipelines.workers import make_workers_resource

ASSET_MODULES = (
    archive,
    corpus,
    vectors,
    lexical,
    graph,
    compaction,
    curation,
    promotion,
    usage,
    evaluation,
    serving,
)


def build_definitions(resources: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Return fresh definitions; `resources` replaces the default ones by name."""
    settings = Settings.load(home=find_home())
    return dg.Definitions(
        assets=dg.load_assets_from_modules(list(ASSET_MODULES)),
        asset_checks=dg.load_asset_checks_from_modules(list(ASSET_MODULES)),
        jobs=[NIGHTLY_JOB],
        schedules=[nightly_schedule(settings.schedule)],
        sensors=[source_sensor(settings.sensor)],
        resources={
            "night": make_night_resource(),
            "workers": make_workers_resource(),
            **(resources or {}),
        },
        # One process: a step of its own would import everything again, and the work is in
        # vectorised libraries anyway.
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Load the code location."""
    return build_definitions()
