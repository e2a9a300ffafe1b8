"""Which memories, and which moments, a look at the graph may see. Arrays only, no files."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.arrays import OPEN_END_US
from noctuary.types import UNDATED_US

Mask = NDArray[np.bool_]


class Sight(NamedTuple):
    """What may be seen.

    Attributes:
        allowed: (n,) True where the scope allows the memory and the store had written it by
            `known_at_us`; what other memories say does not exist.
        seen: (n,) True where it is allowed and existed at `as_of_us`.
        as_of_us: The moment of valid time that is looked at, or None for now.
        known_at_us: The moment of transaction time, or None for now.
    """

    allowed: Mask
    seen: Mask
    as_of_us: int | None = None
    known_at_us: int | None = None

    @property
    def hides(self) -> bool:
        """Say whether there is a memory that must not show in any name."""
        return not bool(self.allowed.all())

    def is_known(self, recorded_at_us: NDArray[np.int64]) -> Mask:
        """Tell what the store had recorded by the moment of knowing, shape as given."""
        if self.known_at_us is None:
            return np.ones(recorded_at_us.shape, dtype=np.bool_)
        return recorded_at_us <= self.known_at_us

    def effective_ends(
        self, valid_to_us: NDArray[np.int64], retracted_at_us: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the ends as known then: what was ended later was still open."""
        if self.known_at_us is None:
            return valid_to_us
        return np.where(retracted_at_us <= self.known_at_us, valid_to_us, OPEN_END_US)

    def holds(self, valid_from_us: NDArray[np.int64], ends_us: NDArray[np.int64]) -> Mask:
        """Tell what holds at the moment looked at; now: what has no end."""
        if self.as_of_us is None:
            return ends_us == OPEN_END_US
        return (valid_from_us <= self.as_of_us) & (self.as_of_us < ends_us)


def make_sight(
    allowed: Mask,
    created_at_us: NDArray[np.int64],
    *,
    updated_at_us: NDArray[np.int64] | None = None,
    as_of_us: int | None = None,
    known_at_us: int | None = None,
) -> Sight:
    """Return what may be seen; undated memories have always existed.

    Args:
        allowed: (n,) True where the scope allows the memory.
        created_at_us: (n,) when each came about, UNDATED_US where unknown.
        updated_at_us: (n,) when the store last wrote each; needed with `known_at_us`.
        as_of_us: Moment of valid time, or None.
        known_at_us: Moment of transaction time, or None.
    """
    if known_at_us is not None and updated_at_us is not None:
        allowed = allowed & ((updated_at_us == UNDATED_US) | (updated_at_us <= known_at_us))
    seen = allowed
    if as_of_us is not None:
        seen = allowed & ((created_at_us == UNDATED_US) | (created_at_us <= as_of_us))
    return Sight(allowed, seen, as_of_us, known_at_us)
