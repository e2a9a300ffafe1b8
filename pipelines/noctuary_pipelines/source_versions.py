"""What Dagster knows of the source: which state it was seen in, and of which the memories are.

The state is a data version of the external asset `memory_store`, so that the UI shows memories as
stale where the source has changed, and the sensor compares with what the last night read. It is
reported as a materialization: of an external asset Dagster compares nothing else.
"""

from __future__ import annotations

import dagster as dg

from noctuary.core.errors import NoctuaryError
from noctuary.sources.open import read_marker
from noctuary_assets.ingest import memories, memory_store
from noctuary_assets.publish import snapshot
from noctuary_pipelines.site import Site

_VERSION_TAG = "dagster/data_version"
_READ_TAG = f"dagster/input_data_version/{memory_store.key.to_user_string()}"


def describe_change(
    instance: dg.DagsterInstance, site: Site, marker: str
) -> list[dg.AssetMaterialization]:
    """Return the event that says "the source is in this state", none where that is known."""
    if marker == read_known_marker(instance):
        return []
    tags, metadata = {_VERSION_TAG: marker}, {"source": str(site.source)}
    return [dg.AssetMaterialization(memory_store.key, tags=tags, metadata=metadata)]


def note_source(instance: dg.DagsterInstance, site: Site) -> None:
    """Note the state of the source before anything of it is read."""
    # What changes meanwhile belongs to the next night; what cannot be read is left to this one.
    try:
        marker = read_marker(site.source, site.settings)
    except (NoctuaryError, OSError):
        return
    for event in describe_change(instance, site, marker):
        instance.report_runless_asset_event(event)


def read_known_marker(instance: dg.DagsterInstance) -> str | None:
    """Return the state in which the source was seen last; None where nobody looked."""
    event = instance.get_latest_materialization_event(memory_store.key)
    return _tag_of(event, _VERSION_TAG)


def read_completed_marker(instance: dg.DagsterInstance) -> str | None:
    """Return the state of the source that the last night read, if that night went through."""
    # A night that went through has published, or found what it made serving already.
    read = instance.get_latest_materialization_event(memories.key)
    published = instance.get_latest_materialization_event(snapshot.key)
    if read is None or published is None or published.timestamp < read.timestamp:
        return None
    return _tag_of(read, _READ_TAG)


def _tag_of(entry: dg.EventLogEntry | None, name: str) -> str | None:
    event = entry.asset_materialization if entry else None
    return (event.tags or {}).get(name) if event else None
