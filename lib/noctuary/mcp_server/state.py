"""What serves, as far as a view goes: for an agent that wants to know whether to trust answers.

What belongs here: identity, age and counts of what may be seen. What does not: diagnosis with
remedies (`noctuary doctor`), counts of the whole store (`noctuary status`).
"""

from __future__ import annotations

import numpy as np

from noctuary import __version__
from noctuary.errors import NoctuaryError
from noctuary.mcp_server.schemas import StatusAnswer, Warned
from noctuary.mcp_server.view import Seen, View
from noctuary.recall.current_settings import current_settings
from noctuary.recall.result import RecallWarning
from noctuary.recall.serving import staleness
from noctuary.snapshot.nights import last_night_hours


def read_state(view: View) -> StatusAnswer:
    """Return the state of the store; what is wrong with it is a warning."""
    try:
        with view.open() as seen:
            return _state(view, seen)
    except (NoctuaryError, OSError) as error:
        return StatusAnswer(
            version=__version__,
            user=view.user,
            wing=view.wing,
            counts={},
            wings={},
            warnings=[Warned(code="no_snapshot", message=str(error))],
        )


def _state(view: View, seen: Seen) -> StatusAnswer:
    reader, paths = seen.recaller.reader, seen.recaller.paths
    settings, bad_settings = current_settings()
    stale = staleness(paths, settings.recall.stale_after_hours)
    encoder = reader.manifest.encoder
    hours = last_night_hours(paths)
    return StatusAnswer(
        version=__version__,
        store=str(paths.root),
        snapshot_id=seen.recaller.snapshot_id,
        built_at=reader.manifest.built_at,
        last_night_hours=None if hours is None else round(hours, 2),
        user=view.user,
        wing=view.wing,
        counts=_counts(seen),
        wings=_wings(seen),
        encoder=None if encoder is None else str(encoder["model"]),
        warnings=_warned((*seen.warnings, *bad_settings, *stale, *_empty(view, seen))),
    )


def _counts(seen: Seen) -> dict[str, int]:
    """Return how many memories, turns, summaries and concepts may be seen."""
    reader, allowed = seen.recaller.reader, seen.allowed
    held = reader.mentions
    starts, visible = held.indptr[:-1], allowed[held.positions].astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(visible)])
    concepts = int(np.count_nonzero(sums[held.indptr[1:]] - sums[starts]))
    return {
        "memories": int(np.count_nonzero(allowed)),
        "turns": int(np.count_nonzero(reader.sessions.turns[allowed])),
        "summaries": int(np.count_nonzero(reader.summaries.arrays.where_all(allowed))),
        "concepts": concepts,
    }


def _wings(seen: Seen) -> dict[str, int]:
    """Return the memories of every wing that may be seen, most first."""
    facet = seen.recaller.reader.facets["wing"]
    codes = facet.codes[seen.allowed]
    counts = np.bincount(codes[codes >= 0], minlength=len(facet.values)).tolist()
    found = [(wing, n) for wing, n in zip(facet.values, counts, strict=True) if n]
    return dict(sorted(found, key=lambda pair: (-pair[1], pair[0])))


def _empty(view: View, seen: Seen) -> list[RecallWarning]:
    if bool(seen.allowed.any()):
        return []
    named = [f"{name} {value!r}" for name, value in view.scope._asdict().items() if value]
    message = f"this server may see no memory at all ({', '.join(named) or 'no user named'})"
    return [RecallWarning("nothing_visible", message)]


def _warned(warnings: tuple[RecallWarning, ...]) -> list[Warned]:
    return [Warned(code=w.code, message=w.message) for w in warnings]
