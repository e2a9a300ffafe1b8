"""The one code location: every asset, check, job, schedule and sensor."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import dagster as dg

from noctuary.core.settings import Settings
from noctuary.core.store import find_home
from noctuary_assets import (
    compact,
    evaluate,
    graph,
    index,
    ingest,
    pack,
    proposals,
    publish,
    report,
)
from noctuary_assets.reporting import STAGE_ASSETS
from noctuary_pipelines.resources import NightResource, workers
from noctuary_pipelines.schedules import NIGHTLY_JOB, OWNER, nightly_freshness, nightly_schedule
from noctuary_pipelines.sensors import failure_sensor, missed_sensor, source_sensor

GROUPS = {
    "ingest": [ingest],
    "index": [index],
    "graph": [graph],
    "compact": [compact],
    "evaluate": [evaluate, report],
    "publish": [pack, publish],
    "proposals": [proposals],
}
"""Asset groups and their modules, in the order in which a night goes through them."""


def _into(group: str, spec: dg.AssetSpec) -> dg.AssetSpec:
    return spec.replace_attributes(group_name=group)


def build_definitions(resources: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Return fresh definitions; `resources` replaces the default ones by name."""
    settings = Settings.load(home=find_home())
    modules = [module for group in GROUPS.values() for module in group]
    fresh = nightly_freshness(settings.schedule)

    def complete(spec: dg.AssetSpec) -> dg.AssetSpec:
        spec = spec.replace_attributes(owners=[OWNER])
        if spec.key != publish.snapshot.key:
            return spec
        return spec.replace_attributes(freshness_policy=fresh)

    assets: list[Any] = []
    for group, parts in GROUPS.items():
        declared = [asset for part in parts for asset in STAGE_ASSETS[part.__name__]]
        assets += dg.map_asset_specs(partial(_into, group), declared)
        assets += dg.load_assets_from_modules(parts, group_name=group)
    assets = [asset for asset in assets if isinstance(asset, dg.AssetsDefinition)]
    store = ingest.memory_store.replace_attributes(group_name="ingest")
    return dg.Definitions(
        assets=dg.map_asset_specs(complete, [store, *assets]),
        asset_checks=dg.load_asset_checks_from_modules(modules),
        jobs=[NIGHTLY_JOB],
        schedules=[nightly_schedule(settings.schedule)],
        sensors=[
            source_sensor(settings.sensor),
            failure_sensor(settings.notify),
            missed_sensor(settings.notify),
        ],
        resources={
            "night": NightResource.from_environment(),
            "workers": workers,
            **(resources or {}),
        },
        # One process: a step of its own would import everything again.
        executor=dg.in_process_executor,
    )


@dg.definitions
def defs() -> dg.Definitions:
    """Load the code location."""
    return build_definitions()
