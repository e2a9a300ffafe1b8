"""What a recall ranks with: the layers of the settings, of a store and of a call."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from noctuary.core.errors import ConfigError, StoreError
from noctuary.core.settings import (
    CONFIG_FILE_NAME,
    ENV_PREFIX,
    RecallSettings,
    Settings,
    nearest_hint,
    nearest_names,
)
from noctuary.core.store import find_home
from noctuary.recall.profile import (
    DEFAULT,
    DESCRIPTION,
    FIELD_NAMES,
    FIELD_TYPES,
    INHERITS,
    SHIPPED,
    RetrievalProfile,
    value_faults,
)
from noctuary.recall.result import RecallWarning

# Reading `<store>/profiles.toml`: tables by name, whatever state the file is in.


MAX_FILE_BYTES = 1 << 20
"""Some thousand profiles. A larger file is not read: every fresh process would parse it."""
_FILES_KEPT = 16

Tables = Mapping[str, Mapping[str, Any]]


class StoredProfiles(NamedTuple):
    """What a store says about profiles.

    Attributes:
        tables: Tables by name, unchecked.
        warnings: One "bad_profile" per thing that could not be read.
    """

    tables: Tables
    warnings: tuple[RecallWarning, ...]


NOTHING_STORED = StoredProfiles({}, ())


def read_store_profiles(path: Path) -> StoredProfiles:
    """Return the profiles of a store; a file that is missing holds none.

    The file is parsed again only after its time, size or inode has changed. Never raises.

    Args:
        path: `StorePaths.profiles`.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return NOTHING_STORED
    except (OSError, ValueError) as error:
        return _unreadable(path, error)
    if not stat.S_ISREG(found.st_mode):
        return _unreadable(path, "it is no regular file")
    if found.st_size > MAX_FILE_BYTES:
        return _unreadable(path, f"it has {found.st_size:,} bytes, more than {MAX_FILE_BYTES:,}")
    try:
        return _read(path, (found.st_mtime_ns, found.st_size, found.st_ino))
    except OSError as error:  # not kept: permissions change without a new stamp
        return _unreadable(path, error)


@lru_cache(maxsize=_FILES_KEPT)
def _read(path: Path, stamp: tuple[int, int, int]) -> StoredProfiles:
    del stamp  # part of the key only
    try:
        import tomllib  # most stores have no such file

        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        return _unreadable(path, error)
    tables = {name: table for name, table in raw.items() if isinstance(table, dict)}
    warnings = [
        _warning(f"{name} in {path} must be a table, found {type(value).__name__}; left out")
        for name, value in raw.items()
        if name not in tables
    ]
    return StoredProfiles(cast(Tables, tables), tuple(warnings))


def _unreadable(path: Path, reason: object) -> StoredProfiles:
    return StoredProfiles({}, (_warning(f"cannot read {path}, left out: {reason}"),))


def _warning(message: str) -> RecallWarning:
    return RecallWarning("bad_profile", message)


# Merging a profile from its layers, every value with where it came from.
#
# Order, later wins: built-in, config ([recall] and its variables, then [profiles.default]), store
# (what its evaluation adopted, then [default] of its profiles.toml), the named profile (shipped,
# then config, then store; before all three those of its parent), this call.


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


# What a recall ranks with: the layers of the settings and a store, merged once and kept.


GIVEN = "given"
"""`ResolvedProfile.used` where the call brought a whole RetrievalProfile."""

PROFILES_KEPT = 64
"""Merged profiles kept: a process asks with a handful, and a merge costs some 0.2 ms."""

RECALL_FLAGS = tuple(f.name for f in fields(RecallSettings) if f.name in FIELD_TYPES)
"""Keys of [recall] that are flags."""

_ALL_OF_THIS_CALL: Mapping[str, str] = MappingProxyType(dict.fromkeys(FIELD_NAMES, THIS_CALL))


def layers_of(settings: Settings, adopted: Mapping[str, Any], store_tables: Tables) -> Layers:
    """Return everything below a call.

    Args:
        settings: The settings in force.
        adopted: `SnapshotReader.adopted`.
        store_tables: `read_store_profiles(...).tables`.
    """
    built_in = RecallSettings()
    recall: list[Layer] = []
    for flag in RECALL_FLAGS:
        value = getattr(settings.recall, flag)
        origin = settings.origins.get(f"recall.{flag}")
        # Settings made in code have no origins: what differs from the default was set.
        if origin is not None or value != getattr(built_in, flag):
            recall.append(Layer({flag: value}, _recall_source(origin)))
    return Layers(tuple(recall), settings.profiles, adopted, store_tables, settings.recall.profile)


def resolve_for_recall(
    settings: Settings,
    adopted: Mapping[str, Any],
    store_tables: Tables,
    profile: RetrievalProfile | str | Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> ResolvedProfile:
    """Return what a recall ranks with; the same question is answered from memory.

    Args:
        settings: The settings in force.
        adopted: `SnapshotReader.adopted`.
        store_tables: `read_store_profiles(...).tables`.
        profile: A name, flags on top of the configured profile, or a whole profile, which is taken
            as it is; None means the configured one.
        overrides: Further flags of this call, on top of any of these; None as a value means not
            given.

    Raises:
        ValueError: Listing every fault of the call's own flags at once.
    """
    if isinstance(profile, RetrievalProfile):
        asked = call_values(overrides)
        given = replace(profile, **asked) if asked else profile
        return ResolvedProfile(given, None, GIVEN, _ALL_OF_THIS_CALL)
    name = profile if isinstance(profile, str) else None
    asked = overrides or {}
    if isinstance(profile, Mapping):
        asked = {**profile, **{f: v for f, v in asked.items() if v is not None}}
    # Texts and not the mappings: 1, 1.0 and True are equal, but only one of them is of a flag's
    # type.
    content = repr((settings.origins, settings.profiles, adopted, store_tables, name, asked))
    layers = (settings, adopted, store_tables)
    return _resolve(_Question((settings.recall, content), layers, name, asked))


def configured_profile(
    settings: Settings,
    adopted: Mapping[str, Any] | None = None,
    store_tables: Tables | None = None,
) -> RetrievalProfile:
    """Return the profile that answers a call which asks for nothing special.

    Args:
        settings: The settings in force.
        adopted: What a snapshot's evaluation adopted; None for nothing.
        store_tables: The store's own profiles; None for none.
    """
    return resolve_for_recall(settings, adopted or {}, store_tables or {}).profile


class _Question:
    """What was asked, compared by its content alone."""

    __slots__ = ("content", "layers", "name", "overrides")

    def __init__(
        self,
        content: tuple[RecallSettings, str],
        layers: tuple[Settings, Mapping[str, Any], Tables],
        name: str | None,
        overrides: Mapping[str, Any],
    ) -> None:
        self.content = content
        self.layers = layers
        self.name = name
        self.overrides = overrides

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and self.content == other.content

    def __hash__(self) -> int:
        return hash(self.content)


@lru_cache(maxsize=PROFILES_KEPT)
def _resolve(question: _Question) -> ResolvedProfile:
    return resolve(question.name, layers_of(*question.layers), question.overrides)


def _recall_source(origin: str | None) -> str:
    """Name the source of a [recall] value: a variable as it is, a file with its section."""
    if origin is None:
        return "config [recall]"
    return origin if origin.startswith("environment ") else f"config [recall] {origin}"


# How a recall ranks: the profile, its rules, its names and the layers that it is merged from.


# Every profile that can be asked for, with where it is defined and what is wrong with it.


@dataclass(frozen=True, slots=True)
class ProfileEntry:
    """One named profile.

    Attributes:
        name: What a call passes.
        description: One line, or "".
        defined: Of "shipped", "config" and "store", where it is defined; later wins.
        inherits: Its parent, or None.
        faults: What is wrong with its tables; a table with a fault is left out.
    """

    name: str
    description: str
    defined: tuple[str, ...]
    inherits: str | None
    faults: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def list_profiles(layers: Layers) -> list[ProfileEntry]:
    """Return every profile, the shipped ones first."""
    return [_entry(name, layers) for name in known_profiles(layers)]


def _entry(name: str, layers: Layers) -> ProfileEntry:
    found = definitions(name, layers)
    faults = [f"{d.place}: {fault}" for d in found for fault in table_faults(name, d.table, layers)]
    said = [d.table[DESCRIPTION] for d in found if DESCRIPTION in d.table]
    shipped = SHIPPED[name].description if name in SHIPPED else ""
    parents = [d.table[INHERITS] for d in found if INHERITS in d.table]
    return ProfileEntry(
        name=name,
        description=str(said[-1]) if said else shipped,
        defined=tuple(d.place for d in found),
        inherits=str(parents[-1]) if parents else None,
        faults=tuple(faults),
    )


# The settings in force at this moment, read again only when something they come from changed.


_KEPT = 8
"""Settings kept parsed: a process has one home and one configuration, tests have some."""

Stamp = tuple[int, int, int]


def current_settings() -> tuple[Settings, tuple[RecallWarning, ...]]:
    """Return the settings, and a warning where they are bad: the defaults are in force then."""
    try:
        home = find_home()
        # Names first: reading every value of the environment costs a tenth of a recall.
        names = [name for name in os.environ if name.startswith(ENV_PREFIX)]
        environ = tuple(sorted((name, os.environ[name]) for name in names))
        named = os.environ.get("NOCTUARY_CONFIG", "").strip()
        stamp = _stamp(Path(named) if named else home / CONFIG_FILE_NAME)
        return _load(home, environ, stamp), ()
    except (ConfigError, StoreError, OSError) as error:
        return Settings(), (RecallWarning("bad_settings", f"defaults are in force: {error}"),)


@lru_cache(maxsize=_KEPT)
def _load(home: Path, environ: tuple[tuple[str, str], ...], _stamp: Stamp | None) -> Settings:
    return Settings.load(home=home, environ=dict(environ))


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.expanduser().stat()
    except (OSError, RuntimeError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
