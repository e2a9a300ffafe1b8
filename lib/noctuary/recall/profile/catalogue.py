"""Every profile that can be asked for, with where it is defined and what is wrong with it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from noctuary.recall.profile.layers import Layers, definitions, known_profiles, table_faults
from noctuary.recall.profile.named import DESCRIPTION, INHERITS, SHIPPED


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
