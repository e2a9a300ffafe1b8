"""Merging a profile from its layers, every value with where it came from.

Order, later wins: built-in, config ([recall] and its variables, then [profiles.default]), store
(what its evaluation adopted, then [default] of its profiles.toml), the named profile (shipped, then
config, then store; before all three those of its parent), this call.

What belongs here: merging and its faults. What does not: files (`stored`), what a recall asks for
(`configured`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from noctuary.recall.profile.fields import FIELD_NAMES, FIELD_TYPES, RetrievalProfile
from noctuary.recall.profile.named import DEFAULT, DESCRIPTION, INHERITS, SHIPPED
from noctuary.recall.profile.rules import value_faults
from noctuary.recall.profile.stored import Tables
from noctuary.recall.result import RecallWarning
from noctuary.settings.suggest import nearest_hint, nearest_names

BUILT_IN = "built-in"
CONFIG_DEFAULT = f"config [profiles.{DEFAULT}]"
ADOPTED = "store: adopted by its evaluation"
STORE_DEFAULT = f"store profiles.toml [{DEFAULT}]"
THIS_CALL = "this call"

NEAREST_SHOWN = 3
"""Known names shown for an unknown one: enough to find a slip of the finger."""


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Layer(NamedTuple):
    """Some values and where they come from."""

    values: Mapping[str, Any]
    source: str


class Layers(NamedTuple):
    """Everything below the call.

    Attributes:
        recall: Explicitly set [recall] values, each with its own source.
        config: The tables [profiles.NAME] of the configuration.
        adopted: Flags that the snapshot's evaluation adopted.
        stored: The tables [NAME] of the store's profiles.toml.
        chosen: The profile that answers when a call names none.
    """

    recall: tuple[Layer, ...] = ()
    config: Tables = _NOTHING
    adopted: Mapping[str, Any] = _NOTHING
    stored: Tables = _NOTHING
    chosen: str = DEFAULT


class ResolvedProfile(NamedTuple):
    """A profile and its provenance.

    Attributes:
        profile: The merged values.
        requested: The name that the call asked for, or None.
        used: The name whose values are in force.
        sources: Where each flag's value came from, for every flag.
        warnings: "unknown_profile" and "bad_profile"; what they name was left out.
    """

    profile: RetrievalProfile
    requested: str | None
    used: str
    sources: Mapping[str, str]
    warnings: tuple[RecallWarning, ...] = ()


class Definition(NamedTuple):
    """One table that defines a named profile.

    Attributes:
        place: "shipped", "config" or "store".
        table: Its values, unchecked.
    """

    place: str
    table: Mapping[str, Any]


def resolve(
    name: str | None, layers: Layers, overrides: Mapping[str, Any] | None = None
) -> ResolvedProfile:
    """Merge a profile.

    A layer with faults is left out as a whole, with one warning that lists them all.

    Args:
        name: The profile asked for; None means `layers.chosen`.
        layers: Everything below the call.
        overrides: Flags of this call; None as a value means not given.

    Raises:
        ValueError: Listing every fault of `overrides` at once.
    """
    asked = call_values(overrides)
    warnings: list[RecallWarning] = []
    used, named = _named_layers(layers.chosen if name is None else name, layers, warnings)
    stack = [*_default_layers(layers, warnings), *named, Layer(asked, THIS_CALL)]
    values = RetrievalProfile().to_json()
    sources = dict.fromkeys(FIELD_NAMES, BUILT_IN)
    for layer in stack:
        values.update({flag: _typed(flag, value) for flag, value in layer.values.items()})
        sources.update(dict.fromkeys(layer.values, layer.source))
    return ResolvedProfile(
        RetrievalProfile(**values), name, used, MappingProxyType(sources), tuple(warnings)
    )


def call_values(overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the flags of a call that are given.

    Raises:
        ValueError: Listing every fault at once.
    """
    asked = {flag: value for flag, value in (overrides or {}).items() if value is not None}
    faults = flag_faults(asked)
    if faults:
        raise ValueError("; ".join(faults))
    return asked


def flag_faults(values: Mapping[str, Any]) -> list[str]:
    """Return one sentence per flag that is unknown, of the wrong type or out of range."""
    unknown = [
        f"unknown flag {flag!r}{nearest_hint(str(flag), FIELD_NAMES)}"
        for flag in values
        if flag not in FIELD_TYPES
    ]
    known = {flag: value for flag, value in values.items() if flag in FIELD_TYPES}
    return [*unknown, *value_faults(known, FIELD_TYPES)]


def definitions(name: str, layers: Layers) -> list[Definition]:
    """Return the tables that define a named profile, in the order in which they are merged."""
    found: list[Definition] = []
    if name in SHIPPED:
        found.append(Definition("shipped", SHIPPED[name].values))
    for place, tables in (("config", layers.config), ("store", layers.stored)):
        if name in tables:
            found.append(Definition(place, tables[name]))
    return found


def known_profiles(layers: Layers) -> list[str]:
    """Return every name, the shipped ones first."""
    return list(dict.fromkeys([*SHIPPED, *layers.config, *layers.stored]))


def table_faults(name: str, table: Mapping[str, Any], layers: Layers) -> list[str]:
    """Return one sentence per fault of a profile's table."""
    faults = flag_faults(flags_of(table))
    if DESCRIPTION in table and not isinstance(table[DESCRIPTION], str):
        faults.append(f"{DESCRIPTION} must be a text, found {table[DESCRIPTION]!r}")
    if INHERITS in table:
        fault = _parent_fault(name, table[INHERITS], layers)
        faults.extend([] if fault is None else [fault])
    return faults


def flags_of(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table without the keys that are no flags."""
    return {key: value for key, value in table.items() if key not in (INHERITS, DESCRIPTION)}


def _parent_fault(name: str, parent: Any, layers: Layers) -> str | None:
    if not isinstance(parent, str):
        return f"{INHERITS} must be the name of a profile, found {parent!r}"
    if name == DEFAULT:
        return f"{DEFAULT} cannot inherit: every profile builds on it (see recall.profile)"
    if parent == name:
        return f"{name} inherits itself"
    above = definitions(parent, layers)
    if not above:
        return f"{INHERITS} names no profile: {parent!r}{_nearest(parent, layers)}"
    grandparents = [d.table[INHERITS] for d in above if INHERITS in d.table]
    if grandparents:
        return (
            f"{name} inherits {parent}, which inherits {grandparents[-1]}: inheritance has one "
            "level"
        )
    return None


def _nearest(name: str, layers: Layers) -> str:
    found = nearest_names(name, known_profiles(layers), NEAREST_SHOWN)
    return f"; the nearest known ones are {', '.join(found)}"


def _default_layers(layers: Layers, warnings: list[RecallWarning]) -> Iterator[Layer]:
    """Yield the layers that every profile builds on."""
    yield from layers.recall
    yield from _default_table("config", layers.config, CONFIG_DEFAULT, layers, warnings)
    faults = flag_faults(layers.adopted)
    if faults:
        warnings.append(_left_out("what the store's evaluation adopted", faults))
    else:
        yield Layer(layers.adopted, ADOPTED)
    yield from _default_table("store", layers.stored, STORE_DEFAULT, layers, warnings)


def _default_table(
    place: str, tables: Tables, source: str, layers: Layers, warnings: list[RecallWarning]
) -> Iterator[Layer]:
    if DEFAULT in tables:
        definition = Definition(place, tables[DEFAULT])
        if _is_sound(DEFAULT, definition, layers, warnings):
            yield Layer(flags_of(definition.table), source)


def _named_layers(
    name: str, layers: Layers, warnings: list[RecallWarning]
) -> tuple[str, list[Layer]]:
    """Return the name in force and the layers of a named profile, its parent's first."""
    if name == DEFAULT:
        return DEFAULT, []
    own = definitions(name, layers)
    if not own:
        message = f"no profile {name!r}: {DEFAULT} is in force{_nearest(name, layers)}"
        warnings.append(RecallWarning("unknown_profile", message))
        return DEFAULT, []
    own = [d for d in own if _is_sound(name, d, layers, warnings)]
    found: list[Layer] = []
    heirs = [d for d in own if INHERITS in d.table]
    if heirs and heirs[-1].table[INHERITS] != DEFAULT:
        parent = heirs[-1].table[INHERITS]
        found += [
            Layer(
                flags_of(d.table),
                f"named {name} ({heirs[-1].place}), inherits {parent} ({d.place})",
            )
            for d in definitions(parent, layers)
            if _is_sound(parent, d, layers, warnings)
        ]
    found += [Layer(flags_of(d.table), f"named {name} ({d.place})") for d in own]
    return (name if own else DEFAULT), found


def _is_sound(
    name: str, definition: Definition, layers: Layers, warnings: list[RecallWarning]
) -> bool:
    faults = table_faults(name, definition.table, layers)
    if faults:
        warnings.append(_left_out(f"profile {name} ({definition.place})", faults))
    return not faults


def _left_out(what: str, faults: list[str]) -> RecallWarning:
    return RecallWarning("bad_profile", f"{what} is left out: {'; '.join(faults)}")


def _typed(flag: str, value: Any) -> Any:
    """Return a whole number as a float where the flag is one."""
    return float(value) if FIELD_TYPES[flag] is float else value
