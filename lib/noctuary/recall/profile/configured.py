"""What a recall ranks with: the layers of the settings and a store, merged once and kept.

What belongs here: from settings to layers, and the cache. What does not: merging (`layers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from noctuary.recall.profile.fields import FIELD_NAMES, FIELD_TYPES, RetrievalProfile
from noctuary.recall.profile.layers import (
    THIS_CALL,
    Layer,
    Layers,
    ResolvedProfile,
    call_values,
    resolve,
)
from noctuary.recall.profile.stored import Tables
from noctuary.settings import RecallSettings, Settings

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
