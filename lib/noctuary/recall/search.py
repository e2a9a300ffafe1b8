"""The data of one recall while it runs: candidates, ledger, clock, and what phases may ask."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import NOTHING, UNDATED_US, fire, has_hooks, to_micros
from noctuary.graph.fold import Link
from noctuary.recall.inputs import GuardResult, Inputs, T, look_down
from noctuary.recall.legs import GraphRanking, Leg, SnapshotGraph
from noctuary.recall.query import Mask, Positions, Query, Scores, aware
from noctuary.recall.reader import SnapshotReader, SummaryView
from noctuary.recall.result import MemoryId, RecallWarning
from noctuary.recall.rows import Rows, Successor, through_hidden

if TYPE_CHECKING:
    from noctuary.graph.successors import SupersessionRow
    from noctuary.usage.reader import Usage


ReasonOf = Callable[[int], str]

Row = Mapping[str, Any]


class Candidates(NamedTuple):
    """The candidates of a recall, best first; arrays of length m.

    Scores lie in [0, 1], except between a boost and the phase "scale", which brings what exceeds 1
    back; equal ones keep the order that they have here.
    """

    positions: Positions  # distinct
    scores: Scores  # >= 0, the ranking key so far, descending
    expanded: NDArray[np.bool_]  # found by a further question of query expansion only
    # Scores before "mmr", for "cross_wing_balancing", which selects from them again;
    # None before the one and after the other.
    relevance: Scores | None = None

    @property
    def size(self) -> int:
        """The number of candidates."""
        return int(self.positions.size)

    def rescored(self, scores: Scores) -> Candidates:
        """Return the same memories sorted by new scores; ties keep their order."""
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
        """Return the row of a position."""
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
    """The result of a phase."""

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
    """An earlier query, its cosine to this one, and its results that are still there."""

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
    """Return public ids of positions and of those in texts, and a function that inserts them."""
    wanted = {*positions, *map(int, _IN_BRACES.findall(repr(list(told))))}
    # A wing may be called "{7}": only known positions are replaced.
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
    "own_wing": "own_wing",
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
    """The steps of one recall in order: the scores after each, why, and what it dropped."""

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
        """Record the scores after a step."""
        self.entries.append((phase, positions, scores, why))

    def take(self, phase: str, before: Candidates, outcome: PhaseOutcome) -> None:
        """Record the result of a phase."""
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


def elapsed_ms(since_s: float) -> float:
    """Return the milliseconds since a moment of `time.perf_counter`."""
    return (time.perf_counter() - since_s) * 1000


class RecallRun:
    """The clock, the deadline, the timings and the warnings of one recall."""

    def __init__(self, deadline_ms: float | None = None) -> None:
        self.started_s = time.perf_counter()
        self.deadline_ms = deadline_ms
        self.warnings: list[RecallWarning] = []
        self.phase_timing_ms: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        """Time one step; a step that runs twice is summed."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            before = self.phase_timing_ms.get(name, 0.0)
            self.phase_timing_ms[name] = round(before + elapsed_ms(begin), 3)

    def finish(self) -> None:
        """Note the time of the whole recall."""
        self.phase_timing_ms["total"] = round(elapsed_ms(self.started_s), 3)

    def left_ms(self) -> float:
        """Return the time left until the deadline; infinite without one, below 0 after it."""
        limit_ms = math.inf if self.deadline_ms is None else self.deadline_ms
        return limit_ms - elapsed_ms(self.started_s)

    def late(self) -> bool:
        """Say whether the deadline has passed."""
        return self.left_ms() < 0

    def warn(self, code: str, message: str) -> None:
        """Record a degradation, once."""
        self.extend([RecallWarning(code, message)])

    def extend(self, warnings: Iterable[RecallWarning]) -> None:
        """Record degradations; the same one twice is one."""
        self.warnings.extend(w for w in warnings if w not in self.warnings)

    def fire(self, name: str, context: dict[str, object]) -> None:
        """Call the hooks of a name; one that raises is a warning."""
        if has_hooks(name):
            for fault in fire(name, context):
                self.warn("hook_failed", fault)


QueryVector = Callable[[str], NDArray[np.float32]]
"""Encodes a query; raises EncoderError, OSError or ValueError where it cannot."""


class BaseRanking(NamedTuple):
    """Candidates with their scores after every step before the phases; arrays have length m."""

    positions: Positions  # ascending, distinct
    fused: Scores  # after fusion (or the alternative scorer), in [0, 1]
    with_graph: Scores  # after what the graph added
    matched: Scores  # after the exact-match bonus
    relevance: Scores  # times the quality of summaries; what sort_by="relevance" starts from
    final: Scores  # after the importance prior, and after "own_wing"
    lexical: Leg
    dense: Leg
    graph: GraphRanking | None = None  # None where it abstained
    # Concepts that the query names among all that the scope shows; None where the graph leg did not
    # look, or saw less.
    links: tuple[Link, ...] | None = None
    exact: Mask | None = None  # which hold every word of the query; None without a bonus for it
    # Summaries of turns that were hit, ascending; their turns are candidates in their place.
    opened: Positions | None = None
    # After the prior alone, where memories of other wings than the one asked for lose after it.
    anywhere: Scores | None = None

    @property
    def order(self) -> NDArray[np.int64]:
        """Places from best to worst: by final score, then relevance, then position."""
        return np.lexsort((-self.relevance, -self.final))  # stable: positions ascend

    def relevance_of(self, candidates: Candidates) -> Scores:
        """Return the relevance before prior and phases; a late-comer's own score."""
        places = np.searchsorted(self.positions, candidates.positions)
        inside = places < self.positions.size
        known = np.zeros(candidates.size, dtype=np.bool_)
        known[inside] = self.positions[places[inside]] == candidates.positions[inside]
        relevance = candidates.scores.copy()
        relevance[known] = self.relevance[places[known]]
        return relevance


class Search:
    """One recall while it runs: its query, its rows and the results of its steps.

    Phases read everything beyond the candidates here: the snapshot never changes, the inputs are
    recorded for a replay. Positions may be of any kind of row.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        graph: SnapshotGraph,
        query: Query,
        inputs: Inputs,
        *,
        rows: Rows | None = None,
        ranker: Callable[[Search, str, int], BaseRanking],
        encode: QueryVector | None = None,
        run: RecallRun | None = None,
        shared: dict[Any, Any] | None = None,
    ) -> None:
        self.reader = reader  # with the live rows that this recall may see
        self.graph, self.query, self.inputs = graph, query, inputs
        self.rows, self.run = rows or Rows(), run or RecallRun()
        self.encode = encode  # how a text becomes a vector; None where there is no dense leg
        self.ranker = ranker  # ranks another text in the same scope
        self.known_share: Callable[[str], float] = lambda _: 1.0  # how much of it that says
        self.profile, self.k = query.profile, query.k
        self.candidates = Candidates(np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_))
        self.guard: GuardResult | None = None
        self.base: BaseRanking | None = None  # the ranking before the phases
        self.ledger = Ledger()
        self.vectors: dict[str, NDArray[np.float32]] = {}  # of the texts that were asked
        self.total_in = 0
        self._ids: dict[int, str] = {}
        # What other profiles that ask the same of the same rows need as well.
        self._shared: dict[Any, Any] = {} if shared is None else shared

    @cached_property
    def now_us(self) -> int:
        """The moment of the recall: `as_of`, else the clock."""
        as_of = self.query.scope.as_of
        return self.inputs.now_us() if as_of is None else to_micros(aware(as_of))

    @property
    def wants_events(self) -> bool:
        """Say whether anybody will look at score events."""
        return self.profile.explain or self.profile.replay_log or has_hooks("post_score_event")

    def once(self, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Return what `make` returns, made once per key by all that share their results."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]

    def search(self, text: str, depth: int) -> tuple[Positions, Scores]:
        """Ask the base ranking another question in the same scope."""
        found = self.ranker(self, text, depth)
        return found.positions[found.order], found.final[found.order]

    def wings_of(self, positions: Positions) -> list[str | None]:
        """Return wings; a summary has its first turn's."""
        values = self.reader.facets["wing"].values
        codes = self.reader.codes_at("wing", positions)
        return [None if code < 0 else values[code] for code in codes]

    def usage_of(self, positions: Positions) -> Usage:
        """Return usage inside the window, zeros where none is known; a summary has none."""
        if not self.inputs.knows_usage():
            from noctuary.usage.reader import Usage

            return Usage.none(positions.size)
        return self.inputs.usage_of(self._ids_of(positions))

    def co_retrievals(self, positions: Positions) -> NDArray[np.int64]:
        """Return, per position, how often it was recalled together with any of the others."""
        if not self.inputs.knows_usage():
            return np.zeros(positions.size, dtype=np.int64)
        return self.inputs.co_retrieved(self._ids_of(positions))

    def _ids_of(self, positions: Positions) -> list[str]:
        wanted: list[int] = positions.tolist()
        missing = [p for p in wanted if p not in self._ids]
        if missing:
            self._ids.update(self.reader.memory_ids(missing))
        return [self._ids[p] for p in wanted]

    def most_used(self, limit: int) -> Positions:
        """Return the most often recalled memories that this recall may see, most first."""

        # Others' memories may fill the head of the list: they must not use up the limit.
        def visible(ids: list[str]) -> list[int]:
            return self._visible(list(self.reader.positions_of(ids).values())).tolist()

        return np.array(look_down(self.inputs.most_used, visible, limit), dtype=np.int64)

    def summaries_of(self, positions: Positions) -> Mapping[int, SummaryView]:
        """Return the accepted summary of each source of which this recall may see every turn."""
        found, mask = self.reader.summaries.of_sources(positions), self.rows.memories
        return {p: s for p, s in found.items() if mask is None or mask[list(s.sources)].all()}

    def successors_of(self, positions: Positions) -> Mapping[int, Successor]:
        """Return the successors that the night found for the positions, and theirs in turn.

        `as_of` is in the mask: a memory ends when its successor was created, or later, so a recall
        that sees both asks for a later moment. A successor that is not searched is passed through.
        """
        from noctuary.graph.successors import NO_SUCCESSOR

        index = self.reader.superseded
        rows: dict[int, SupersessionRow] = {}
        while positions.size:
            newer = index.successors(positions, visible=self.rows.allowed)
            found = map(index.row_of, positions[newer != NO_SUCCESSOR].tolist())
            fresh = {row.older: row for row in found if row is not None and row.older not in rows}
            rows.update(fresh)
            positions = np.array([row.newer for row in fresh.values()], dtype=np.int64)
        wanted = ("supersessions", "older", "older, evidence_position")
        evidence = dict(self.reader.look_up(*wanted, [str(older) for older in rows]))
        links = {
            r.older: Successor(
                r.newer, r.reason, r.confidence, r.similarity, r.age_gap_days, evidence[r.older]
            )
            for r in rows.values()
        }
        return links if self.rows.hidden is None else through_hidden(links, self.rows)

    def past_queries(self, *, since_us: int, limit: int) -> Sequence[PastQuery]:
        """Return logged queries of other wording, most similar first, with visible results."""
        logged, fault = self.inputs.past_queries(
            self.query.text, since_us=since_us, limit=limit, user=self.query.scope.user
        )
        if fault is not None:
            self.run.warn("query_log", fault)
        places = self.reader.positions_of(sorted({i for *_, found in logged for i in found}))
        seen = [self._visible([places[i] for i in found if i in places]) for *_, found in logged]
        return [
            PastQuery(*row[:3], tuple(kept.tolist()))
            for row, kept in zip(logged, seen, strict=True)
        ]

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        """Return the profile's cross-encoder's scores of the positions, or why there are none."""
        rows = self.reader.describe(positions.tolist())
        texts = [str(rows[p]["content"]) for p in positions.tolist()]
        timeout_ms = min(self.profile.rerank_timeout_ms, self.run.left_ms())
        return self.inputs.rerank(self.profile.reranker, self.query.text, texts, timeout_ms)

    def _visible(self, positions: Sequence[int]) -> Positions:
        kept, mask = np.array(positions, dtype=np.int64), self.rows.memories
        return kept if mask is None else kept[mask[kept]]
