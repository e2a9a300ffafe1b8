"""Which store a recall of sensitive rows reads: the one that the serving snapshot was made of.

What belongs here: from a store directory to its source. What does not: opening it (`rows`).
"""

from __future__ import annotations

from pathlib import Path

from noctuary.errors import ConfigError
from noctuary.locate import find_home, find_store
from noctuary.settings import SourceSettings
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import read_manifest, read_pointer
from noctuary.source_name import SourceName, name_source, names_postgres
from noctuary.values import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A source and its kind, as the manifest of a snapshot names them."""

    source: SourceName
    kind: str


def find_place(store: str | Path | None, settings: SourceSettings) -> Place:
    """Return where the rows are.

    Args:
        store: As `noctuary.recall` takes it.
        settings: Where a database is: no manifest holds a password.

    Raises:
        StoreError: There is no such store, or nothing was published.
        ConfigError: The settings name another database, or none.
    """
    directory, _ = find_store(store, home=find_home())
    paths = StorePaths(directory)
    known = read_manifest(paths.snapshots / read_pointer(paths).snapshot_id).source
    location, kind = str(known["location"]), str(known["kind"])
    if not names_postgres(location):
        return Place(Path(location), kind)
    named = name_source(settings.path) if names_postgres(settings.path) else None
    if named is None or str(named) != location:
        raise ConfigError(
            f"{directory.name} was made of {location}, which the settings do not name: set "
            "source.path (or NOCTUARY_SOURCE_PATH) to its address or to env:NAME"
        )
    return Place(named, kind)
