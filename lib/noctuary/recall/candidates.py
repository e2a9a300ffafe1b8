"""Candidates of a recall, and the ledger of what each step did to them."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import NOTHING, UNDATED_US
from noctuary.recall.query import Positions, Scores
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import MemoryId, RecallWarning

ReasonOf = Callable[[int], str]

Row = Mapping[str, Any]


class Candidates(NamedTuple):
    """What is under consideration, best first; arrays of one length m.

    Scores lie in [0, 1], except between a boost and the phase "scale", which brings what exceeds 1
    back; equal ones keep the order that they have here.
    """

    positions: Positions  # distinct
    scores: Scores  # >= 0, the ranking key so far, descending
    expanded: NDArray[np.bool_]  # found by a further question of query expansion only
    # Scores as they were before "mmr", for "cross_wing_balancing", which selects anew from them;
    # None before the one and after the other.
    relevance: Scores | None = None

    @property
    def size(self) -> int:
        """How many there are."""
        return int(self.positions.size)

    def rescored(self, scores: Scores) -> Candidates:
        """Return the same memories in the order of new scores; ties keep today's order."""
        order = np.argsort(-scores, kind="stable")
        return self.at(order)._replace(scores=scores[order])

    def keep(self, kept: NDArray[np.bool_]) -> Candidates:
        """Return those where `kept` is true, in the same order."""
        return self.at(np.flatnonzero(kept))

    def at(self, places: NDArray[np.int64]) -> Candidates:
        """Return those at the places, in the order of the places."""
        return Candidates(
            self.positions[places],
            self.scores[places],
            self.expanded[places],
            None if self.relevance is None else self.relevance[places],
        )

    def row_of(self, position: int) -> int:
        """Return where a position stands."""
        return int(np.flatnonzero(self.positions == position)[0])

    def first(self, k: int) -> Candidates:
        """Return the best k."""
        return self.at(np.arange(min(k, self.size)))

    def score_of(self) -> dict[int, float]:
        """Return the score by position, best first."""
        return dict(zip(self.positions.tolist(), self.scores.tolist(), strict=True))


class PositionRef(NamedTuple):
    """A memory inside an annotation or a fact: shown as its public id."""

    position: int

    def __repr__(self) -> str:
        return f"{{{self.position}}}"


class ScoreEvent(NamedTuple):
    """One phase changed one memory's score; a memory's deltas sum to its final score."""

    phase: str
    position: int
    delta: float
    reason: str


class Dropped(NamedTuple):
    """One phase removed one memory; in the reason {123} names the memory at a position."""

    phase: str
    position: int
    reason: str
    score: float
    facts: Row = MappingProxyType({})


class PhaseOutcome(NamedTuple):
    """What a phase made of the candidates."""

    candidates: Candidates
    # Why the score of a position changed; None where the phase changes no score.
    reason_of: ReasonOf | None = None
    dropped: tuple[Dropped, ...] = ()
    # Of the phase as a whole, for the pipeline trace.
    notes: Mapping[str, Any] = NOTHING
    # By position, fields to show with that memory, for example {"superseded_by": PositionRef(7)}.
    annotations: Mapping[int, Row] = MappingProxyType({})
    warnings: tuple[RecallWarning, ...] = ()


class PastQuery(NamedTuple):
    """A query asked before, its cosine to today's, and what it found that is still there."""

    text: str
    asked_us: int
    similarity: float
    positions: tuple[int, ...]


US_PER_SECOND = 1_000_000
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86_400.0


def is_dated(created_at_us: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which memories have a date, shape as given."""
    return created_at_us != UNDATED_US


def ages_s(created_at_us: NDArray[np.int64], now_us: int) -> NDArray[np.float64]:
    """Return ages in seconds, >= 0 and finite; 0 without a date or with one after `now_us`."""
    # Floats, because the difference of two int64 may not fit one.
    ages = (float(now_us) - created_at_us.astype(np.float64)) / US_PER_SECOND
    return np.where(is_dated(created_at_us), np.maximum(ages, 0.0), 0.0)


_IN_BRACES = re.compile(r"\{(\d+)\}")  # a position inside a text


def name_positions(
    reader: SnapshotReader, positions: Iterable[int], told: Iterable[Any]
) -> tuple[Mapping[int, MemoryId], Callable[[Any], Any]]:
    """Return public ids of positions and of all that is told, and what puts them in their place."""
    wanted = {*positions, *map(int, _IN_BRACES.findall(repr(list(told))))}
    # A wing may be called "{7}": what is no position stays as it is.
    ids = reader.public_ids(sorted(p for p in wanted if p < reader.end))

    def named(value: Any) -> Any:
        if isinstance(value, PositionRef):
            return ids[value.position]
        if isinstance(value, str):
            return _IN_BRACES.sub(
                lambda m: f"[{ids[int(m[1])]}]" if int(m[1]) in ids else m[0], value
            )
        if isinstance(value, Mapping):
            return {key: named(item) for key, item in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [named(item) for item in cast("list[Any]", value)]
        return value

    return ids, named


_SAME = 1e-15  # a change of a score below this is float64 rounding, not an event

BREAKDOWN_KEYS: Mapping[str, str] = {
    "lexical": "lexical_match",
    "dense": "cosine_similarity",
    "scorer": "scorer",
    "graph": "graph_arrival",
    "graph_scale": "graph_scale",
    "exact_match": "exact_match_bonus",
    "exact_match_scale": "exact_match_scale",
    "summary_quality": "summary_quality",
    "importance": "importance_prior",
    "rerank": "rerank",
    "dates": "date_boost",
    "ltp": "ltp_boost",
    "time_decay": "time_decay",
    "tagging": "tagging_boost",
    "association": "association_boost",
    "query_expansion": "query_expansion",
    "supersede": "supersede_penalty",
    "consolidation": "consolidation",
    "pinned": "pinned_boost",
    "scale": "scale",
    "mmr": "mmr_penalty",
    "cross_wing_balancing": "wing_diversity_penalty",
    "sort_by": "sort_by",
}
"""What each phase's sum is called in a score breakdown (the RFC's names where it has one)."""


class Ledger:
    """What the steps of one recall did, in order: whom each left and why, and what it dropped."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Positions, Scores, ReasonOf]] = []
        self.dropped: list[Dropped] = []
        self.applied: list[str] = []
        self.skipped: list[str] = []  # off, late or out of place
        self.notes: dict[str, dict[str, Any]] = {}  # by phase
        self.annotations: dict[int, dict[str, Any]] = {}  # by position, to show with the memory
        # Candidates before and after "cross_wing_balancing", where it ran.
        self.balanced: tuple[Candidates, Candidates] | None = None

    def record(self, phase: str, positions: Positions, scores: Scores, why: ReasonOf) -> None:
        """Note the scores after a step."""
        self.entries.append((phase, positions, scores, why))

    def take(self, phase: str, before: Candidates, outcome: PhaseOutcome) -> None:
        """Note what a phase came to."""
        after = outcome.candidates
        self.applied.append(phase)
        if phase == "cross_wing_balancing":
            self.balanced = (before, after)
        if outcome.notes:
            self.notes[phase] = dict(outcome.notes)
        for position, shown in outcome.annotations.items():
            self.annotations.setdefault(position, {}).update(shown)
        self.dropped.extend(outcome.dropped)
        if after is not before and not (
            np.array_equal(after.positions, before.positions)
            and np.array_equal(after.scores, before.scores)
        ):
            why = outcome.reason_of or "{{{}}} was moved".format
            self.record(phase, after.positions, after.scores, why)

    def events(self, reasoned: Container[int] | None = None) -> dict[int, list[ScoreEvent]]:
        """Return every memory's events in order; their deltas sum to its last score.

        A memory that a step left alone has no event there; one that came in late starts from 0.
        Only those in `reasoned` (None: all) get reasons, which may cost more than the step itself.
        """
        found: dict[int, list[ScoreEvent]] = {}
        last: dict[int, float] = {}
        for phase, positions, scores, why in self.entries:
            for position, score in zip(positions.tolist(), scores.tolist(), strict=True):
                before = last.get(position, 0.0)
                last[position] = score
                if abs(score - before) > _SAME:
                    reason = why(position) if reasoned is None or position in reasoned else ""
                    event = ScoreEvent(phase, position, score - before, reason)
                    found.setdefault(position, []).append(event)
        return found
