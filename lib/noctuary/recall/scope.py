"""Which memories a recall may see at all.

Filters are masks over positions, made before any leg ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.result import RecallWarning
from noctuary.types import UNDATED_US, to_micros

Mask = NDArray[np.bool_]

_NO_CODE = -2
"""Code of a value that no memory has; -1 is that of having none."""


class Scope(NamedTuple):
    """The filters of one recall.

    None means no restriction, except for `user` (see `build_mask`).
    """

    wing: str | None = None
    room: str | None = None
    category: str | None = None
    user: str | None = None
    as_of: datetime | None = None


class Facet(NamedTuple):
    """One scope column: its values and, per memory, the code of its value (-1 = none).

    Attributes:
        values: Distinct values, sorted.
        codes: int32 (n,), the place of each memory's value in `values`.
        shared: Of the owners only: positions of the memories that others share with a user, by that
            user's name, which need not be among `values`. None where nobody shares.
    """

    values: tuple[str, ...]
    codes: NDArray[np.int32]
    shared: Mapping[str, NDArray[np.int32]] | None = None


def aware(moment: datetime) -> datetime:
    """Return the moment with a zone; a naive one is UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def build_mask(
    scope: Scope, facets: Mapping[str, Facet], created_at_us: NDArray[np.int64]
) -> tuple[Mask | None, tuple[RecallWarning, ...]]:
    """Return the memories that the scope allows, and a warning for every value that none has.

    Users are denied by default: memories that belong to a named user are only seen by a recall for
    that user, or for one whom that user shares them with; memories that belong to nobody are seen
    by all. `as_of` keeps what existed then; undated memories are kept. What only others have is
    unknown, and no name of theirs is suggested.

    Returns:
        A mask of shape (n,), or None when nothing is hidden, and warnings.
    """
    masks: list[Mask] = []
    warnings: list[RecallWarning] = []
    own = _own_mask(facets["user"], scope.user)
    for name in ("wing", "room", "category"):
        wanted = getattr(scope, name)
        if wanted is None:
            continue
        mask = facets[name].codes == _code_of(facets[name], wanted)
        if not (mask if own is None else mask & own).any():
            warnings.append(_unknown(name, wanted, _visible_values(facets[name], own)))
        masks.append(mask)
    if own is not None:
        masks.append(own)
        if scope.user is None and not own.all():
            warnings.append(
                RecallWarning(
                    "user_required", "this store holds memories of named users: pass user=..."
                )
            )
    if scope.as_of is not None:
        masks.append(_as_of_mask(scope.as_of, created_at_us))
    if not masks:
        return None, tuple(warnings)
    return np.logical_and.reduce(masks), tuple(warnings)


def _as_of_mask(as_of: datetime, created_at_us: NDArray[np.int64]) -> Mask:
    return (created_at_us == UNDATED_US) | (created_at_us <= to_micros(aware(as_of)))


def private_mask(owners: Facet, user: str | None) -> Mask | None:
    """Return which memories nobody but this user may see; None where all belong to nobody.

    None of those of nobody, and none that the user shares. A recall without a user has none.

    Args:
        owners: The facet "user".
        user: Whose, or None.

    Returns:
        A mask of shape (n,), or None.
    """
    if not owners.values:
        return None
    private: Mask = owners.codes == _code_of_user(owners, user)
    for positions in (owners.shared or {}).values():
        private[positions] = False
    return private


def _own_mask(owners: Facet, user: str | None) -> Mask | None:
    """Return which memories a user may see; None where all belong to nobody."""
    if not owners.values:
        return None
    own: Mask = (owners.codes == -1) | (owners.codes == _code_of_user(owners, user))
    if user is not None and owners.shared is not None and user in owners.shared:
        own[owners.shared[user]] = True
    return own


def _code_of_user(owners: Facet, user: str | None) -> int:
    return _NO_CODE if user is None else _code_of(owners, user)


def _visible_values(facet: Facet, own: Mask | None) -> tuple[str, ...]:
    """Return the values that memories of the user or of nobody have: others' names are theirs."""
    if own is None:
        return facet.values
    codes = np.unique(facet.codes[own])
    return tuple(facet.values[code] for code in codes.tolist() if code >= 0)


def _code_of(facet: Facet, value: str) -> int:
    try:
        return facet.values.index(value)
    except ValueError:
        return _NO_CODE


def _unknown(name: str, wanted: str, values: tuple[str, ...]) -> RecallWarning:
    import difflib  # most recalls name what there is

    near = difflib.get_close_matches(wanted, values, n=3, cutoff=0.5)
    hint = f"; near: {', '.join(near)}" if near else f"; there are {len(values)}"
    return RecallWarning(f"unknown_{name}", f"no memory has {name} {wanted!r}{hint}")
