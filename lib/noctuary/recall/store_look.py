"""The look into the store behind a snapshot, as the world of a recall asks for it.

What belongs here: handing the snapshot to `noctuary.live` in the shape that it compares with. What
does not: the look and its rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from noctuary.recall.reader import SnapshotReader
from noctuary.recall.world import LiveWorld, Overlaying, World
from noctuary.snapshot.manifest import Manifest

if TYPE_CHECKING:
    from noctuary.live.state import LiveState
    from noctuary.recall.engine import Recaller
    from noctuary.settings import Settings


class ComparedSnapshot:
    """A snapshot as `noctuary.live` asks it."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader

    @property
    def manifest(self) -> Manifest:
        """What it is and what it was made from."""
        return self._reader.manifest

    def content_hashes(self, memory_ids: Iterable[str]) -> dict[str, str]:
        """Return the content hash of every known id (as text)."""
        return self._reader.content_hashes(memory_ids)

    def contents(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the text of every known id (as text)."""
        found = self._reader.look_up("memories", "memory_id", "memory_id, content", memory_ids)
        return {str(memory_id): str(content) for memory_id, content in found}

    def all_memory_ids(self) -> list[str]:
        """Return every id, as text, in any order."""
        # A condition that all rows meet: the ids are read off their index, in no order.
        return [str(i) for (i,) in self._reader.look_up("memories", "'all'", "memory_id", ["all"])]


def world_with_store(recaller: Recaller, settings: Settings, user: str | None) -> World:
    """Return the world of a recall that people ask for: with the store itself in it.

    What must be reproducible (an evaluation, a replay) does without it.
    """
    world = recaller.live_world(user)
    if not settings.live.enabled or not isinstance(world, LiveWorld):
        return world
    return world._replace(overlaying=overlay_from(recaller, settings))


def overlay_from(recaller: Recaller, settings: Settings) -> Overlaying:
    """Return how a recall looks into the store that its snapshot was made of.

    Args:
        recaller: The pinned snapshot.
        settings: `live` says what the look may take, `source` where a database is.
    """

    def look() -> LiveState | None:
        from noctuary.live.looking import look_now

        snapshot = ComparedSnapshot(recaller.reader)
        return look_now(recaller.paths, snapshot, settings.live, settings.source)

    return Overlaying(look, settings.live.deadline_ms / 1000)
