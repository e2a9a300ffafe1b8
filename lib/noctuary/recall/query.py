"""What a recall asks, and which memories its scope lets it see."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US, to_micros
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallWarning
from noctuary.text.tokens import tokenize

Mask = NDArray[np.bool_]  # over positions, made before any leg ranks

_NO_CODE = -2  # code of a value that no memory has; -1 is that of having none


class Scope(NamedTuple):
    """The filters of one recall; None is no restriction, except for `user` (see `build_mask`)."""

    wing: str | None = None
    room: str | None = None
    category: str | None = None
    user: str | None = None
    as_of: datetime | None = None
    person: bool = False  # with a wing: also what holds for the person in every project


class Facet(NamedTuple):
    """One scope column: its values and, per memory, the code of its value (-1 = none)."""

    values: tuple[str, ...]  # distinct, sorted
    codes: NDArray[np.int32]  # (n,)
    # Of the owners only: positions of what others share with a user, by that user's name, which
    # need not be among the values. None if no memory is shared.
    shared: Mapping[str, NDArray[np.int32]] | None = None
    # Of the owners only: positions of forgotten memories, hidden from everyone.
    forgotten: NDArray[np.int64] | None = None
    # Of the owners only: position and moment (us) of each memory that ends, (e, 2).
    ends: NDArray[np.int64] | None = None
    # Of the wings only: memories that reach every project.
    everywhere: Mask | None = None

    def code_of(self, value: str | None) -> int:
        """Return the code of a value; one that no memory has where it is unknown or None."""
        return self.values.index(value) if value in self.values else _NO_CODE


@lru_cache(maxsize=16)
def query_tokens(text: str) -> tuple[str, ...]:
    """Return the tokens of a question; every step of one recall shares them."""
    return tuple(tokenize(text))


def aware(moment: datetime) -> datetime:
    """Return the moment with a zone; a naive one is UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def build_mask(
    scope: Scope, facets: Mapping[str, Facet], created_at_us: NDArray[np.int64]
) -> tuple[Mask | None, tuple[RecallWarning, ...]]:
    """Return the memories that the scope allows (None: all), a warning per value that none has.

    Users are denied by default: memories that belong to a named user are only seen by a recall for
    that user, or for one whom that user shares them with; memories without an owner are visible to
    all. `as_of` keeps memories that existed then, and undated ones; what had ended by then, or by
    now, is left out. Values that only others have count as unknown, and are never suggested.
    `person` adds to a wing what reaches every project, but nothing that somebody else shares: it
    holds for its owner.
    """
    masks: list[Mask] = []
    warnings: list[RecallWarning] = []
    own = _own_mask(facets["user"], scope.user)
    for name in ("wing", "room", "category"):
        wanted = getattr(scope, name)
        if wanted is None:
            continue
        mask = facets[name].codes == facets[name].code_of(wanted)
        if not (mask if own is None else mask & own).any():
            warnings.append(_unknown(name, wanted, facets[name], own))
        if name == "wing" and scope.person and facets[name].everywhere is not None:
            owners = facets["user"]
            of_person = (owners.codes == -1) | (owners.codes == owners.code_of(scope.user))
            mask |= facets[name].everywhere & of_person
        masks.append(mask)
    if own is not None:
        masks.append(own)
        if scope.user is None and _has_owners(facets["user"], own):
            message = "this store holds memories of named users: pass user=..."
            warnings.append(RecallWarning("user_required", message))
    if scope.as_of is not None:
        until_us = to_micros(aware(scope.as_of))
        masks.append((created_at_us == UNDATED_US) | (created_at_us <= until_us))
    if (ends := facets["user"].ends) is not None:
        holds = np.ones(created_at_us.size, dtype=np.bool_)
        holds[ends[ends[:, 1] <= moment_of(scope), 0]] = False
        masks.append(holds)
    return np.logical_and.reduce(masks) if masks else None, tuple(warnings)


def moment_of(scope: Scope) -> int:
    """Return the moment that a recall asks about, in microseconds: now, without `as_of`."""
    return time.time_ns() // 1000 if scope.as_of is None else to_micros(aware(scope.as_of))


def private_mask(owners: Facet, user: str | None) -> Mask | None:
    """Return which memories (n,) only this user may see; None if no memory has an owner."""
    if not owners.values:
        return None
    private: Mask = owners.codes == owners.code_of(user)
    for positions in (owners.shared or {}).values():
        private[positions] = False
    return private


def _own_mask(owners: Facet, user: str | None) -> Mask | None:
    """Return which memories a user may see; None for all: no owners, none forgotten."""
    if owners.forgotten is None:
        return _owned(owners, user) if owners.values else None
    own = _owned(owners, user)
    own[owners.forgotten] = False
    return own


def _has_owners(owners: Facet, own: Mask) -> bool:
    """Say whether some memories belong to named users; `own` are those without an owner."""
    return not (own if owners.forgotten is None else _owned(owners, None)).all()


def _owned(owners: Facet, user: str | None) -> Mask:
    own: Mask = (owners.codes == -1) | (owners.codes == owners.code_of(user))
    if user is not None and owners.shared is not None and user in owners.shared:
        own[owners.shared[user]] = True
    return own


def _unknown(name: str, wanted: str, facet: Facet, own: Mask | None) -> RecallWarning:
    """Warn that no memory has a value, and name similar values that the user may see."""
    import difflib  # most recalls name what there is

    values = facet.values
    if own is not None:  # others' names are theirs
        values = [values[code] for code in np.unique(facet.codes[own]).tolist() if code >= 0]
    near = difflib.get_close_matches(wanted, values, n=3, cutoff=0.5)
    hint = f"; near: {', '.join(near)}" if near else f"; there are {len(values)}"
    return RecallWarning(f"unknown_{name}", f"no memory has {name} {wanted!r}{hint}")


SORT_ORDERS = ("relevance", "importance", "recency")


class Query(NamedTuple):
    """One recall as it was asked."""

    text: str
    k: int
    profile: RetrievalProfile
    profile_used: str = "default"
    scope: Scope = Scope()
    sort_by: str = "relevance"  # one of SORT_ORDERS
    session_id: str | None = None  # the active conversation
    dry_run: bool = False  # write nothing; with `explain`, every candidate is described

    def depth(self, count: int) -> int:
        """Return the candidates to take per leg from a store of `count` memories."""
        wanted = max(self.k, self.profile.depth * self.profile.candidate_pool_multiplier)
        if self.profile.scorer == "two_pass":
            wanted = max(wanted, self.profile.coarse_depth)
        return min(wanted, count)


def check_arguments(
    query: Any, k: Any, sort_by: Any, scope: Scope, deadline_ms: Any, session_id: Any = None
) -> None:
    """Refuse what no store could honour; ValueError lists every fault."""
    faults: list[str] = []
    if not isinstance(query, str):
        faults.append(f"query must be a text, found {type(query).__name__}")
    if isinstance(k, bool) or not isinstance(k, int) or k < 0:
        faults.append(f"k must be a whole number >= 0, found {k!r}")
    if sort_by not in SORT_ORDERS:
        faults.append(f"sort_by must be one of {', '.join(SORT_ORDERS)}, found {sort_by!r}")
    for name in Scope._fields:
        value = getattr(scope, name)
        kind = {"as_of": datetime, "person": bool}.get(name, str)
        if value is not None and not isinstance(value, kind):
            faults.append(f"{name} must be {kind.__name__}, found {type(value).__name__}")
    if session_id is not None and not isinstance(session_id, str):
        faults.append(f"session_id must be str, found {type(session_id).__name__}")
    is_number = isinstance(deadline_ms, int | float) and not isinstance(deadline_ms, bool)
    if deadline_ms is not None and not (is_number and not math.isnan(deadline_ms)):
        faults.append(f"deadline_ms must be a number, found {deadline_ms!r}")
    if faults:
        raise ValueError("; ".join(faults))


# One table of candidates of every kind: memories have the positions from 0 on, summaries follow,
# then live rows of the store. A phase is a pure function (Candidates, Search) -> PhaseOutcome: the
# search gives it the same data in a replay.


Positions = NDArray[np.int64]
Scores = NDArray[np.float64]
