"""Why a memory did, or did not, come back where the store itself decides: new, changed, gone.

What belongs here: what is said of memories that a look into the store knows better than the
snapshot. What does not: memories of the snapshot (`why`), the look (noctuary.live).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from noctuary.live.state import LiveState
from noctuary.recall.overlay import see
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.scope import Mask, Scope


class LiveStanding(NamedTuple):
    """What the store says of one memory.

    Attributes:
        is_row: It is searched as the store has it now.
        sentences: What to say first.
        facts: For machines.
    """

    is_row: bool
    sentences: Sequence[str]
    facts: dict[str, Any]


def find_standing(
    reader: SnapshotReader, state: LiveState | None, scope: Scope, mask: Mask | None, memory_id: str
) -> LiveStanding | None:
    """Return what the store says of a memory; None where the snapshot is right about it.

    Args:
        reader: The snapshot.
        state: The look into the store; None where it found nothing.
        scope: What the recall may see.
        mask: What that allows of the snapshot.
        memory_id: As text.
    """
    if state is None:
        return None
    seen = see(state, reader, scope, mask)
    place = reader.positions_of([memory_id]).get(memory_id)
    was_seen = place is not None and (mask is None or bool(mask[place]))
    if any(row.memory.memory_id == memory_id for row in seen.rows):
        how = "changed" if was_seen else "new"
        said = f"[{memory_id}] is {how} since the snapshot and was read from the store itself."
        return LiveStanding(True, (said,), {"live": how})
    if place is not None and was_seen and seen.mask is not None and not seen.mask[np.intp(place)]:
        said = (
            f"[{memory_id}] is in the snapshot, but the store removed it since, or marked it "
            "sensitive, or gave it to somebody else: it is not searched any more."
        )
        return LiveStanding(False, (said,), {"live": "gone"})
    return None
