"""Which source, which store, which settings: resolved once per run, never at import."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from noctuary.core.errors import ConfigError, StoreLockedError
from noctuary.core.files import make_directory, write_text
from noctuary.core.settings import Settings
from noctuary.core.store import (
    DatabaseName,
    SourceName,
    StorePaths,
    find_home,
    name_source,
    require_moved,
    store_for_source,
)
from noctuary.snapshot.publish import serving_manifest
from noctuary.sources.own_store import find_night_source
from noctuary.work.ledger import Fault, heal_dagster, name_faults
from noctuary.work.lock import hold_lock
from noctuary_pipelines.sample import place_sample

_DAGSTER_YAML = Path(__file__).with_name("dagster.yaml")  # what a store's Dagster home begins with

_SET_ASIDE = (
    "what is left of it lies beside as *.damaged; if the schedule was on, switch it on again in "
    "`noctuary ui`"
)


@dataclass(frozen=True, slots=True)
class Site:
    """Everything a run needs to know about where it is."""

    home: Path
    source: SourceName
    paths: StorePaths
    settings: Settings


def resolve_site(
    source: str | None = None, store: str | None = None, environ: Mapping[str, str] | None = None
) -> Site:
    """Resolve source and store: argument, environment, configuration, own store, bundled sample."""
    env = os.environ if environ is None else environ
    home = find_home(env)
    require_moved(home, env)
    settings = Settings.load(home=home, environ=env)
    named = source or settings.source.path
    path = _named(named, env) if named else _find_source(home, settings)
    chosen = store or env.get("NOCTUARY_STORE", "").strip()
    if source and not store and chosen:
        _refuse_foreign_store(Path(chosen), path)
    directory = Path(chosen).expanduser() if chosen else store_for_source(home, path)
    if chosen and len(directory.parts) == 1:
        directory = home / directory
    return Site(home, path, StorePaths(directory.absolute()), settings)


def _named(named: str, environ: Mapping[str, str]) -> SourceName:
    source = name_source(named, environ)
    return source if isinstance(source, DatabaseName) else source.expanduser().absolute()


def _find_source(home: Path, settings: Settings) -> Path:
    """Return the sources of the configuration, else the own store, else the bundled sample."""
    found = find_night_source(home, settings)
    return found if found.is_file() else place_sample(home / "sample")


def _refuse_foreign_store(store: Path, source: SourceName) -> None:
    """Keep a forgotten NOCTUARY_STORE from being overwritten with another source."""
    manifest = serving_manifest(StorePaths(store.expanduser().absolute()))
    built_from = manifest.source.get("location") if manifest else None
    if built_from and str(source) not in (built_from, str(Path(built_from).parent)):
        raise ConfigError(
            f"NOCTUARY_STORE names {store}, which was built from {built_from}, not from {source}: "
            "unset it, or pass --store to say which store to write"
        )


def prepare_instance(paths: StorePaths, *, say: Callable[[str], None] | None = None) -> Path:
    """Create the store's Dagster home if it is not there; what is damaged of it is set aside."""
    make_directory(paths.dagster_home)
    faults: list[Fault] = []
    # A night that runs is writing them, and healed what it found.
    with suppress(StoreLockedError), hold_lock(paths.lock):
        faults = heal_dagster(paths)
    if faults and say is not None:
        say(f"damaged or missing, so Dagster starts afresh: {name_faults(faults)}; {_SET_ASIDE}")
    config, begun = paths.dagster_home / "dagster.yaml", _DAGSTER_YAML.read_text(encoding="utf-8")
    found = config.read_text(encoding="utf-8", errors="replace") if config.exists() else ""
    # A mere beginning is nobody's edit: the rest was lost.
    if found != begun and begun.startswith(found):
        write_text(config, begun)
    return paths.dagster_home


def export_environment(site: Site) -> dict[str, str]:
    """Return the variables with which another process resolves the same site."""
    return {
        "NOCTUARY_HOME": str(site.home),
        "NOCTUARY_SOURCE_PATH": site.source.spec
        if isinstance(site.source, DatabaseName)
        else str(site.source),
        "NOCTUARY_STORE": str(site.paths.root),
        "DAGSTER_HOME": str(site.paths.dagster_home),
    }
