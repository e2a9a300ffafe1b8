"""Positions inside texts and facts, replaced by the public ids of the memories. Nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from noctuary.recall.phases.base import PositionRef
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import MemoryId

_IN_BRACES = re.compile(r"\{(\d+)\}")


class Names(NamedTuple):
    """Public ids of whatever an explanation may name."""

    ids: Mapping[int, MemoryId]

    @staticmethod
    def look_up(reader: SnapshotReader, positions: Iterable[int], told: Iterable[Any]) -> Names:
        """Look up positions, and all that texts and facts refer to."""
        wanted = set(positions)
        for value in told:
            wanted |= _references(value)
        # A wing may be called "{7}": what is no position stays as it is.
        return Names(reader.public_ids(sorted(p for p in wanted if p < reader.end)))

    def of(self, position: int) -> MemoryId:
        """Return the public id of a position."""
        return self.ids[position]

    def text(self, text: str) -> str:
        """Replace every position in braces by the memory's id in brackets."""
        return _IN_BRACES.sub(self._name, text)

    def _name(self, found: re.Match[str]) -> str:
        memory_id = self.ids.get(int(found[1]))
        return found[0] if memory_id is None else f"[{memory_id}]"

    def plain(self, value: Any) -> Any:
        """Replace every reference inside a value, at any depth."""
        if isinstance(value, PositionRef):
            return self.ids[value.position]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            fields = cast("Mapping[str, Any]", value)
            return {key: self.plain(item) for key, item in fields.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item) for item in cast("list[Any]", value)]
        return value


def _references(value: Any) -> set[int]:
    if isinstance(value, PositionRef):
        return {value.position}
    if isinstance(value, str):
        return {int(found) for found in _IN_BRACES.findall(value)}
    parts: list[Any] = []
    if isinstance(value, Mapping):
        parts = list(cast("Mapping[str, Any]", value).values())
    elif isinstance(value, list | tuple):
        parts = list(cast("list[Any]", value))
    return {position for part in parts for position in _references(part)}
