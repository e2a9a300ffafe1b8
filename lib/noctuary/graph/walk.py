"""One step from the best hits along the graph's edges: additive scores, each with its path.

Read side: standard library and numpy only. Belongs here: the walk. Does not belong here: the base
ranking, its fusion with the walk, the text of an explanation.
Source: research/probes.md section 1 (directed mention -> about edges, added to the base score).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.arrays import RELATIONS, GraphArrays

SEED_COUNT = 5
"""Best hits that are walked from; more reach further and bring more chance arrivals."""

ETA = 1.0
"""Scale of all arriving scores against the base score; 0 switches the walk off."""

DAMPING_POWER = 0.25
"""(1 + in-degree) to this power divides an arrival; higher distrusts much-named memories more."""

RANK_DISCOUNT_POWER = 0.5
"""rank (from 1) to minus this power multiplies a seed's score; higher trusts first hits more."""

DEFAULT_RELATION_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "mentions_subject": 1.0, "mentions_tag": 0.5,
        "part_of": 0.5, "see_also": 0.5, "resolved_by": 0.5,
    }
)  # fmt: skip
"""How much a step of each relation carries. Turns are not walked: what stands near a turn is heard
word by word (`conversation`), which a step of one weight cannot. Links of a store weigh like a tag:
no labelled set has any, so that nothing says more of them."""


class Walk(NamedTuple):
    """What arrived, one row per target, ordered by position. All arrays have length m.

    Attributes:
        positions: int64, distinct targets.
        scores: float64, > 0; to be added to the base score of the target.
        seeds: int64, the seed from which the best arrival came.
        relations: int8, the relation it took (index into RELATIONS).
        concepts: int32, ordinal of the concept it rests on; NO_CONCEPT where it is a link's.
    """

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]
    seeds: NDArray[np.int64]
    relations: NDArray[np.int8]
    concepts: NDArray[np.int32]

    @property
    def is_empty(self) -> bool:
        """Say whether the walk abstained."""
        return self.positions.size == 0


def walk(
    seed_positions: NDArray[np.integer],
    seed_scores: NDArray[np.floating],
    arrays: GraphArrays,
    relation_weights: Mapping[str, float] = DEFAULT_RELATION_WEIGHTS,
    mask: NDArray[np.bool_] | None = None,
    *,
    as_of_us: int | None = None,
    seed_count: int = SEED_COUNT,
    eta: float = ETA,
) -> Walk:
    """Push the scores of the best seeds along their out-edges once; keep the best arrival each.

    An arrival is eta * seed score * rank**-0.5 * relation weight * edge weight /
    (1 + in-degree)**0.25. Equal arrivals: the better-ranked seed, then the smaller relation code
    and edge index win. A target may be a seed itself.

    Args:
        seed_positions: Distinct positions of candidate seeds, any order.
        seed_scores: Their base scores; only finite positive ones are walked from.
        arrays: The graph.
        relation_weights: By relation name, >= 0; a relation left out is not walked.
        mask: (n,) True where a memory may be seen; others are neither seeds nor targets.
        as_of_us: Walk only edges that held at this moment; None walks all that still hold.
        seed_count: Seeds used, after masking; the best by score, then by position.
        eta: Scale of the arrivals.

    Raises:
        ValueError: A relation is unknown, a weight or eta is negative or not finite, or the arrays
            are damaged.
    """
    by_code = _weights_by_code(relation_weights, eta)
    seeds, scores = choose_seeds(seed_positions, seed_scores, mask, seed_count)
    pushes = scores * np.arange(1, seeds.size + 1, dtype=np.float64) ** -RANK_DISCOUNT_POWER
    edges, owners = _out_edges(seeds, arrays)
    strength = eta * by_code[arrays.relations[edges]]
    usable = (strength > 0.0) & _holds(arrays, edges, as_of_us)
    if mask is not None:
        usable &= mask[arrays.targets[edges]]
    edges, owners, strength = edges[usable], owners[usable], strength[usable]
    damping = (1.0 + arrays.in_degrees[edges].astype(np.float64)) ** -DAMPING_POWER
    arrivals = pushes[owners] * strength * arrays.weights[edges].astype(np.float64) * damping
    return _best_arrivals(arrivals, edges, owners, seeds, arrays)


def _weights_by_code(relation_weights: Mapping[str, float], eta: float) -> NDArray[np.float64]:
    unknown = sorted(set(relation_weights) - set(RELATIONS))
    if unknown:
        raise ValueError(f"found unknown relations {unknown}, expected some of {list(RELATIONS)}")
    by_code = np.array([relation_weights.get(name, 0.0) for name in RELATIONS], dtype=np.float64)
    factors = np.append(by_code, eta)
    if not np.isfinite(factors).all() or bool((factors < 0.0).any()):
        raise ValueError(
            f"found relation weights {dict(relation_weights)} and eta {eta}, expected finite "
            "numbers >= 0"
        )
    return by_code


def choose_seeds(
    positions: NDArray[np.integer],
    scores: NDArray[np.floating],
    mask: NDArray[np.bool_] | None,
    seed_count: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return what is started from and its scores, best first; equal scores by position.

    Args:
        positions: Distinct positions, any order.
        scores: Their base scores; only finite positive ones are started from.
        mask: (n,) True where a memory may be seen; None for everything.
        seed_count: Seeds at most, after masking.
    """
    where = positions.astype(np.int64)
    values = scores.astype(np.float64)
    usable = np.isfinite(values) & (values > 0.0)
    if mask is not None:
        usable &= mask[where]
    where, values = where[usable], values[usable]
    best = np.lexsort((where, -values))[: max(seed_count, 0)]
    return where[best], values[best]


def _out_edges(
    seeds: NDArray[np.int64], arrays: GraphArrays
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the edge indexes of all seeds and, beside each, the index of its seed."""
    starts = arrays.indptr[seeds]
    counts = arrays.indptr[seeds + 1] - starts
    if bool(((starts < 0) | (counts < 0) | (counts > arrays.targets.size)).any()):
        # A damaged row would otherwise ask for any amount of memory.
        raise ValueError("found a row outside the graph's edges: the arrays are damaged")
    owners = np.repeat(np.arange(seeds.size, dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    edges = np.arange(owners.size, dtype=np.int64) - before[owners] + starts[owners]
    return edges, owners


def _holds(
    arrays: GraphArrays, edges: NDArray[np.int64], as_of_us: int | None
) -> NDArray[np.bool_]:
    ends = arrays.valid_to_us[edges]
    if as_of_us is None:
        return ends == np.iinfo(np.int64).max
    return (arrays.valid_from_us[edges] <= as_of_us) & (as_of_us < ends)


def _best_arrivals(
    arrivals: NDArray[np.float64],
    edges: NDArray[np.int64],
    owners: NDArray[np.int64],
    seeds: NDArray[np.int64],
    arrays: GraphArrays,
) -> Walk:
    targets = arrays.targets[edges].astype(np.int64)
    order = np.lexsort((edges, owners, -arrivals, targets))
    first = np.ones(order.size, dtype=bool)
    first[1:] = targets[order][1:] != targets[order][:-1]
    best = order[first]
    return Walk(
        positions=targets[best],
        scores=arrivals[best],
        seeds=seeds[owners[best]],
        relations=arrays.relations[edges[best]].astype(np.int8),
        concepts=arrays.concepts[edges[best]].astype(np.int32),
    )
