"""`noctuary profile`: how recalls rank, and which layer says so."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import (
    EXIT_FAILED,
    fail,
    limit_threads,
    open_paths,
    print_json,
    store_options,
)
from noctuary.errors import NoctuaryError, SnapshotMissingError
from noctuary.locate import find_home
from noctuary.snapshot.layout import StorePaths

if TYPE_CHECKING:
    from noctuary.recall.profile import Layers, ResolvedProfile
    from noctuary.recall.result import RecallWarning

CHANGED = "*"
"""Marks a value that is not the built-in one."""


@dataclass(frozen=True, slots=True)
class _Found:
    """The layers in force and what went wrong on the way to them."""

    layers: Layers
    warnings: tuple[RecallWarning, ...]


@click.group()
def profile() -> None:
    """Show the profiles that a recall can rank with. Flags and layers: docs/profiles.md."""


@profile.command("show")
@click.argument("name", required=False)
@store_options
def show(name: str | None, store: str | None, as_json: bool) -> None:
    """Show every value of the profile NAME and where it comes from [default: the configured one].

    Exit code 1 when there is no such profile; what a recall would then use is shown.
    """
    found = _find_layers(store, as_json)
    from noctuary.recall.profile import resolve

    resolved = resolve(name, found.layers)
    warnings = (*found.warnings, *resolved.warnings)
    if as_json:
        print_json({**_as_json(resolved), "warnings": [w.to_json() for w in warnings]})
    else:
        _print_warnings(warnings)
        _print_profile(resolved)
    if any(w.code == "unknown_profile" for w in resolved.warnings):
        sys.exit(EXIT_FAILED)


@profile.command("list")
@store_options
def list_(store: str | None, as_json: bool) -> None:
    """List every profile, where it is defined, and what is wrong with it."""
    found = _find_layers(store, as_json)
    from noctuary.recall.profile.catalogue import list_profiles

    entries = list_profiles(found.layers)
    if as_json:
        warnings = [w.to_json() for w in found.warnings]
        print_json({"profiles": [e.to_json() for e in entries], "warnings": warnings})
        return
    _print_warnings(found.warnings)
    width = max(len(entry.name) for entry in entries)
    for entry in entries:
        parent = f", inherits {entry.inherits}" if entry.inherits else ""
        where = f"({', '.join(entry.defined)}{parent})"
        mark = CHANGED if entry.name == found.layers.chosen else " "
        click.echo(f"{mark} {entry.name:<{width}}  {entry.description}  {where}".rstrip())
        for fault in entry.faults:
            click.echo(f"! bad_profile: {entry.name}, {fault}", err=True)


def _find_layers(store: str | None, as_json: bool) -> _Found:
    """Return the layers of the settings and of the store, as far as there is one."""
    limit_threads()
    from noctuary.recall.profile import layers_of, read_store_profiles
    from noctuary.recall.result import RecallWarning
    from noctuary.settings import Settings

    try:
        settings = Settings.load(home=find_home())
        try:
            paths = open_paths(store)
        except SnapshotMissingError as error:
            warning = RecallWarning("no_snapshot", f"without the layers of a store: {error}")
            return _Found(layers_of(settings, {}, {}), (warning,))
        stored = read_store_profiles(paths.profiles)
        try:
            adopted, warnings = _read_adopted(paths), stored.warnings
        except SnapshotMissingError as error:
            if store is not None and not paths.root.is_dir():
                raise
            warning = RecallWarning("no_snapshot", f"nothing can be adopted yet: {error}")
            adopted, warnings = {}, (*stored.warnings, warning)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    return _Found(layers_of(settings, adopted, stored.tables), warnings)


def _read_adopted(paths: StorePaths) -> Mapping[str, Any]:
    from noctuary.recall.opening import open_serving

    reader = open_serving(paths).reader
    try:
        return reader.adopted
    finally:
        reader.close()


def _as_json(resolved: ResolvedProfile) -> dict[str, Any]:
    from noctuary.recall.profile import RetrievalProfile

    built_in = RetrievalProfile().to_json()
    return {
        "requested": resolved.requested,
        "used": resolved.used,
        "flags": {
            flag: {"value": value, "built_in": built_in[flag], "source": resolved.sources[flag]}
            for flag, value in resolved.profile.to_json().items()
        },
    }


def _print_profile(resolved: ResolvedProfile) -> None:
    from noctuary.recall.profile.groups import GROUPS

    flags = _as_json(resolved)["flags"]
    name_width = max(len(flag) for flag in flags)
    value_width = max(len(_shown(row["value"])) for row in flags.values())
    click.echo(f"profile {resolved.used}; {CHANGED} is not the built-in value")
    for heading, names in GROUPS.items():
        click.echo(f"\n{heading}")
        for flag in names:
            row = flags[flag]
            mark = CHANGED if row["value"] != row["built_in"] else " "
            value = f"{_shown(row['value']):<{value_width}}"
            click.echo(f"{mark} {flag:<{name_width}}  {value}  {row['source']}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value != "" else "(none)"


def _print_warnings(warnings: tuple[RecallWarning, ...]) -> None:
    for warning in warnings:
        click.echo(f"! {warning.code}: {warning.message}", err=True)
