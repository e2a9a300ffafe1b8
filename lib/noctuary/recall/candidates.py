"""What every phase takes and gives: candidates, events, drops, and the order of the phases."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US, dataclass
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import RecallRun
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import MemoryId, RecallWarning

# Age of memories at the moment of a recall. Arithmetic only: not what age is worth.


US_PER_SECOND = 1_000_000
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86_400.0


def is_dated(created_at_us: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which memories have a date, shape as given."""
    return created_at_us != UNDATED_US


def ages_s(created_at_us: NDArray[np.int64], now_us: int) -> NDArray[np.float64]:
    """Return ages in seconds, >= 0 and finite, shape as given.

    A memory without a date, or of a date after `now_us` (a clock ahead of ours), has age 0.

    Args:
        created_at_us: Microseconds since the epoch; UNDATED_US where unknown.
        now_us: The moment of the recall, in the same unit.
    """
    # Floats, because the difference of two int64 may not fit one.
    ages = (float(now_us) - created_at_us.astype(np.float64)) / US_PER_SECOND
    return np.where(is_dated(created_at_us), np.maximum(ages, 0.0), 0.0)


# What every phase takes and gives: candidates, events, drops, and what it may look up.
#
# Most are named tuples: every fresh process makes these classes anew, and a frozen dataclass costs
# it seven times as much.
#
# A phase is a pure function (Candidates, PhaseContext) -> PhaseOutcome. Whatever it wants to know
# beyond the candidates it asks of the context's `Lookups`; whatever that answers is the same in a
# replay, so the same candidates and lookups give the same outcome to the last bit.


Positions = NDArray[np.int64]
Scores = NDArray[np.float64]

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Candidates(NamedTuple):
    """Memories under consideration, best first; arrays of one length m.

    Attributes:
        positions: int64, distinct. Below the snapshot's count: a memory. From the count on:
            summary number (position - count), see `Lookups.summary_of`.
        scores: float64 >= 0, the ranking key so far, descending; equal scores keep the order that
            they have here. In [0, 1], except between a boost and the phase "scale", which brings
            what exceeds 1 back.
        expanded: bool, found by a further question of query expansion only.
        relevance: Scores as they were before "mmr", for "cross_wing_balancing", which selects anew
            from them; None before the one and after the other.
    """

    positions: Positions
    scores: Scores
    expanded: NDArray[np.bool_]
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


class ScoreEvent(NamedTuple):
    """One phase changed one memory's score.

    Attributes:
        phase: Name of the phase, a key of `BREAKDOWN_KEYS`.
        position: The memory.
        delta: Score after minus score before; a memory's deltas sum to its final score.
        reason: Why, in words for a person.
    """

    phase: str
    position: int
    delta: float
    reason: str


class Dropped(NamedTuple):
    """One phase removed one memory.

    Attributes:
        phase: Name of the phase.
        position: The memory.
        reason: Why, in words for a person; other memories are named by their position as {123},
            which whoever prints it replaces by their ids.
        score: Its score when it was dropped.
        facts: Further fields of the RFC's shape, for example {"wing_saturation": 0.8}.
    """

    phase: str
    position: int
    reason: str
    score: float
    facts: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True)
class PhaseOutcome:
    """What a phase made of the candidates.

    Attributes:
        candidates: What goes on to the next phase.
        reason_of: Position -> why its score changed; asked only for positions whose score did, and
            only if somebody wants to know. None where the phase changes no score.
        dropped: What it removed; always complete, phases drop few.
        notes: Facts of the phase as a whole for the pipeline trace, JSON values only.
        annotations: Position -> fields to show with that memory, for example {"superseded_by": 7};
            values that are positions are given as `PositionRef`.
        warnings: Degradations on the way.
    """

    candidates: Candidates
    reason_of: Callable[[int], str] | None = None
    dropped: tuple[Dropped, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    annotations: Mapping[int, Mapping[str, Any]] = field(
        default_factory=dict[int, Mapping[str, Any]]
    )
    warnings: tuple[RecallWarning, ...] = ()


class PositionRef(NamedTuple):
    """A memory inside an annotation or a fact: shown as its public id."""

    position: int


class Usage(NamedTuple):
    """How often memories were recalled; arrays of one length, aligned with what was asked.

    Attributes:
        recent: int64, retrievals inside the LTP window; 0 for a memory never recalled.
        days: int64, distinct days on which it was recalled, over all time.
        last_us: int64, last retrieval in microseconds; UNDATED_US for none.
    """

    recent: NDArray[np.int64]
    days: NDArray[np.int64]
    last_us: NDArray[np.int64]


class SummaryView(NamedTuple):
    """An accepted summary.

    Attributes:
        position: Its place among the candidates, from the snapshot's count on.
        sources: Positions of the turns that it was made of.
        confidence: In [0, 1].
    """

    position: int
    sources: tuple[int, ...]
    confidence: float


class Successor(NamedTuple):
    """What the night found to replace a memory.

    Attributes:
        newer: Position of the direct successor, which may have one itself.
        reason: "explicit", "is_now", "newer_value" or "near_duplicate".
        confidence: 0 low, 1 medium, 2 high.
        similarity: Cosine of the two, or None where none was needed.
        age_gap_days: Whole days between the two, 0 where a date is missing.
        evidence: Position of the memory that says so.
    """

    newer: int
    reason: str
    confidence: int
    similarity: float | None
    age_gap_days: int
    evidence: int


class PastQuery(NamedTuple):
    """A query asked before.

    Attributes:
        text: What was asked.
        asked_us: When.
        similarity: Cosine to today's query, in [-1, 1].
        positions: What it found, best first; memories that are gone are left out.
    """

    text: str
    asked_us: int
    similarity: float
    positions: tuple[int, ...]


class Lookups(Protocol):
    """Everything that a phase may ask beyond the candidates.

    The snapshot's part never changes; usage and past queries are recorded for a replay. Positions
    may be those of summaries unless it says otherwise.
    """

    @property
    def count(self) -> int:
        """Memories in the snapshot; summaries have positions from here on."""
        ...

    def created_at_us(self, positions: Positions) -> NDArray[np.int64]:
        """Return creation times, UNDATED_US where unknown; a summary has its latest turn's."""
        ...

    def wings_of(self, positions: Positions) -> list[str | None]:
        """Return wings; a summary has its first turn's."""
        ...

    def wing_counts(self) -> Mapping[str, int]:
        """Return the memories per wing that the recall's scope allows."""
        ...

    def vectors_of(self, positions: Positions) -> NDArray[np.float32] | None:
        """Return unit rows (m, d), or None without vectors; a summary has its own."""
        ...

    def rows_of(self, positions: Sequence[int]) -> Mapping[int, Mapping[str, Any]]:
        """Return the rows by position, as mappings.

        Keys: memory_id, content, category, tags (tuple), wing, room, user, session_id, is_turn. A
        summary has its id, its text as content, and no tags.
        """
        ...

    def usage_of(self, positions: Positions) -> Usage:
        """Return usage inside the profile's window; zeros where nothing is known."""
        ...

    def most_used(self, limit: int) -> Positions:
        """Return the most often recalled memories of the window, most first."""
        ...

    def co_retrievals(self, positions: Positions) -> NDArray[np.int64]:
        """Return, per position, how often it was recalled together with any of the others."""
        ...

    def summaries_of(self, positions: Positions) -> Mapping[int, SummaryView]:
        """Return the accepted summary of each memory that is a source of one, by position."""
        ...

    def successors_of(self, positions: Positions) -> Mapping[int, Successor]:
        """Return what replaces the positions, and these successors in turn, by older position.

        A successor that the recall may not see, or that came after its `as_of`, replaces nothing.
        """
        ...

    def past_queries(self, *, since_us: int, limit: int) -> Sequence[PastQuery]:
        """Return logged queries of other wording with their similarity, most similar first."""
        ...

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        """Return the profile's cross-encoder's scores of the positions, or why there are none."""
        ...

    def search(self, text: str, depth: int) -> tuple[Positions, Scores]:
        """Ask the base ranking (legs, fusion, graph, prior) another question in the same scope."""
        ...


class PhaseContext(NamedTuple):
    """One recall as its phases see it.

    Attributes:
        query: As asked.
        k: How many memories were asked for.
        profile: How to rank.
        now_us: The moment of the recall: `as_of`, else the clock.
        user: Whose recall it is, or None.
        session_id: The active conversation, or None.
        lookups: What may be looked up.
    """

    query: str
    k: int
    profile: RetrievalProfile
    now_us: int
    user: str | None
    session_id: str | None
    lookups: Lookups


Phase = Callable[[Candidates, PhaseContext], PhaseOutcome]

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


def unchanged(candidates: Candidates) -> PhaseOutcome:
    """Return the outcome of a phase that had nothing to do."""
    return PhaseOutcome(candidates)


# Positions inside texts and facts, replaced by the public ids of the memories. Nothing else.


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


# What every step did to every candidate: kept as arrays, told only to who asks.
#
# Keeping the ledger changes nothing: it only holds on to arrays that exist anyway.


ReasonOf = Callable[[int], str]

_SAME = 1e-15
"""A change of a score below this is float64 rounding, not an event."""


class Entry(NamedTuple):
    """One step: the scores that it left behind, and why.

    Attributes:
        phase: Its name.
        positions: Whom it left, shape (m,).
        scores: Their scores after it, shape (m,).
        reason_of: Why the score of a position changed.
    """

    phase: str
    positions: Positions
    scores: Scores
    reason_of: ReasonOf


@dataclass(slots=True)
class Ledger:
    """The steps of one recall in order, and what they dropped."""

    entries: list[Entry] = field(default_factory=list[Entry])
    dropped: list[Dropped] = field(default_factory=list[Dropped])

    def record(self, phase: str, positions: Positions, scores: Scores, why: ReasonOf) -> None:
        """Note the scores after a step."""
        self.entries.append(Entry(phase, positions, scores, why))

    def events(self, reasoned: Container[int] | None = None) -> dict[int, list[ScoreEvent]]:
        """Return every memory's events in order; their deltas sum to its last score.

        A memory that a step left alone has no event there; one that came in late starts from 0.

        Args:
            reasoned: Memories whose events get their reasons, the others' are "": a reason may cost
                more than the step that it explains. None gives every event its reason.
        """
        found: dict[int, list[ScoreEvent]] = {}
        last: dict[int, float] = {}
        for entry in self.entries:
            for position, score in _pairs(entry):
                before = last.get(position, 0.0)
                last[position] = score
                if abs(score - before) > _SAME:
                    told = reasoned is None or position in reasoned
                    reason = entry.reason_of(position) if told else ""
                    event = ScoreEvent(entry.phase, position, score - before, reason)
                    found.setdefault(position, []).append(event)
        return found


def _pairs(entry: Entry) -> Iterator[tuple[int, float]]:
    return zip(entry.positions.tolist(), np.asarray(entry.scores).tolist(), strict=True)


# The one order in which phases run, and running them.


class Step(NamedTuple):
    """One phase in the order.

    Attributes:
        name: As in timings, events and traces; also the function that does it.
        all_of: Flags that must all be on (a number: above 0, a text: not empty).
        any_of: Flags of which one must be on.
        reorders: Whether it only shapes the order by relevance: another sort order skips it.
        is_slow: Whether it takes as long as a leg: a recall past its deadline skips it. The others
            take well under a millisecond, and without some of them an answer would be wrong.
    """

    name: str
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    reorders: bool = False
    is_slow: bool = False

    def is_on(self, profile: RetrievalProfile) -> bool:
        """Say whether a profile wants it."""
        wanted = all(getattr(profile, flag) for flag in self.all_of)
        return wanted and (not self.any_of or any(getattr(profile, f) for f in self.any_of))

    @property
    def phase(self) -> Phase:
        """The function `name`, from its module, which a fresh process loads only if it is on."""
        module = _MODULES.get(self.name, "phases")
        phase: Phase = getattr(import_module(f"noctuary.recall.{module}"), self.name)
        return phase


_MODULES = {
    **dict.fromkeys(("mmr", "cross_wing_balancing"), "selection"),
    **dict.fromkeys(("supersede", "consolidation"), "replacement"),
}
"""Phases that do not only move scores, and so stand in a file of their own."""


_BOOSTS = ("ltp_enabled", "tagging_enabled", "association_enabled")
PHASES: tuple[Step, ...] = (
    Step("rerank", ("reranker",), reorders=True, is_slow=True),
    Step("ltp", ("ltp_enabled",)),
    Step("time_decay", ("time_decay_enabled",)),
    Step("tagging", ("tagging_enabled",)),
    Step("association", ("association_enabled",)),
    Step("scale", any_of=_BOOSTS),
    Step("query_expansion", ("query_expansion_enabled",), is_slow=True),
    Step("supersede", ("supersede_filter_enabled",)),
    Step("consolidation", ("consolidation_enabled",)),
    Step("pinned", ("pinned_memory_enabled",)),
    Step("mmr", ("mmr_enabled",), reorders=True),
    Step("cross_wing_balancing", ("mmr_enabled", "wing_diversity_weight"), reorders=True),
)
"""The order of DESIGN section 4; the cross-encoder reads the fused list, so it comes first."""


@dataclass(slots=True)
class Pipeline:
    """What the phases of one recall did as a whole.

    Attributes:
        applied: Phases that ran, in order.
        skipped: Phases that were off, late or out of place, in order.
        notes: Facts of every phase that has some.
        annotations: Position -> fields to show with the memory.
        balanced: Candidates before and after "cross_wing_balancing", where it ran.
    """

    applied: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    notes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    annotations: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    balanced: tuple[Candidates, Candidates] | None = None


def run_phases(
    candidates: Candidates, context: PhaseContext, run: RecallRun, ledger: Ledger, sort_by: str
) -> tuple[Candidates, Pipeline]:
    """Run every phase that the profile wants, in order.

    A phase that fails is a warning and leaves the candidates as they were: a recall never raises.
    """
    pipeline = Pipeline()
    for step in PHASES:
        why_not = _why_not(step, context.profile, run, sort_by)
        if why_not is not None:
            pipeline.skipped.append(step.name)
            if why_not:
                pipeline.notes[step.name] = {"skipped": why_not}
            continue
        with run.step(step.name):
            outcome = _attempt(step, candidates, context, run)
        pipeline.applied.append(step.name)
        _note(step.name, outcome, candidates, pipeline, ledger)
        run.extend(outcome.warnings)
        candidates = outcome.candidates
    return candidates, pipeline


def _why_not(step: Step, profile: RetrievalProfile, run: RecallRun, sort_by: str) -> str | None:
    """Return why a phase is left out ("" where nobody wants it), or None where it runs."""
    if not step.is_on(profile):
        return ""
    if step.reorders and sort_by != "relevance":
        return f"because the answer is ordered by {sort_by}"
    if step.is_slow and run.late():
        run.warn(f"deadline_{step.name}", f"the deadline passed before {step.name}; skipped")
        return "because the deadline passed"
    return None


def _attempt(
    step: Step, candidates: Candidates, context: PhaseContext, run: RecallRun
) -> PhaseOutcome:
    try:
        return step.phase(candidates, context)
    except Exception as error:
        run.warn("phase_failed", f"{step.name} was left out: {type(error).__name__}: {error}")
        return PhaseOutcome(candidates)


def _note(
    name: str, outcome: PhaseOutcome, before: Candidates, pipeline: Pipeline, ledger: Ledger
) -> None:
    after = outcome.candidates
    if name == "cross_wing_balancing":
        pipeline.balanced = (before, after)
    if outcome.notes:
        pipeline.notes[name] = dict(outcome.notes)
    for position, fields in outcome.annotations.items():
        pipeline.annotations.setdefault(position, {}).update(fields)
    ledger.dropped.extend(outcome.dropped)
    changed = after is not before and not (
        np.array_equal(after.positions, before.positions)
        and np.array_equal(after.scores, before.scores)
    )
    if changed:
        ledger.record(name, after.positions, after.scores, outcome.reason_of or _unexplained)


def _unexplained(position: int) -> str:
    return f"{{{position}}} was moved"
