"""What can be asked: one request, and the refusal of what no store could honour."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, NamedTuple

from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.scope import Scope

SORT_ORDERS = ("relevance", "importance", "recency")


class Request(NamedTuple):
    """One recall as it was asked.

    Attributes:
        query: Any text.
        k: How many memories at most, >= 0.
        profile: How to rank.
        profile_used: What that is called.
        scope: What may be seen.
        sort_by: One of SORT_ORDERS.
        session_id: The active conversation, or None.
        dry_run: Nothing is to be written; with `explain`, every candidate is described.
    """

    query: str
    k: int
    profile: RetrievalProfile
    profile_used: str
    scope: Scope
    sort_by: str
    session_id: str | None
    dry_run: bool

    def depth(self, count: int) -> int:
        """Return the candidates to take per leg from a store of `count` memories."""
        wanted = max(self.k, self.profile.depth * self.profile.candidate_pool_multiplier)
        if self.profile.scorer == "two_pass":
            wanted = max(wanted, self.profile.coarse_depth)
        return min(wanted, count)


def check_arguments(
    query: Any, k: Any, sort_by: Any, scope: Scope, deadline_ms: Any, session_id: Any = None
) -> None:
    """Refuse what no store could honour.

    Raises:
        ValueError: Listing every fault: wrong types, a negative k, an unknown sort_by.
    """
    faults: list[str] = []
    if not isinstance(query, str):
        faults.append(f"query must be a text, found {type(query).__name__}")
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        faults.append(f"k must be a whole number >= 0, found {k!r}")
    if sort_by not in SORT_ORDERS:
        faults.append(f"sort_by must be one of {', '.join(SORT_ORDERS)}, found {sort_by!r}")
    for name in Scope._fields:
        value = getattr(scope, name)
        kind = datetime if name == "as_of" else str
        if value is not None and not isinstance(value, kind):
            faults.append(f"{name} must be {kind.__name__}, found {type(value).__name__}")
    if session_id is not None and not isinstance(session_id, str):
        faults.append(f"session_id must be str, found {type(session_id).__name__}")
    if deadline_ms is not None and not _is_time(deadline_ms):
        faults.append(f"deadline_ms must be a number, found {deadline_ms!r}")
    if faults:
        raise ValueError("; ".join(faults))


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
