"""The table of a recall: what is asked, searched and found, and what phases made of it."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import NOTHING, UNDATED_US, fire, has_hooks, to_micros
from noctuary.recall.profile import SUMMARIES, RetrievalProfile
from noctuary.recall.result import MemoryId, RecallWarning
from noctuary.snapshot.arrays import OF_TURNS

if TYPE_CHECKING:
    from noctuary.recall.engine import Search
    from noctuary.recall.inputs import ArchiveState
    from noctuary.recall.reader import SnapshotReader

Mask = NDArray[np.bool_]  # over positions, made before any leg ranks

_NO_CODE = -2  # code of a value that no memory has; -1 is that of having none


class Scope(NamedTuple):
    """The filters of one recall; None is no restriction, except for `user` (see `build_mask`)."""

    wing: str | None = None
    room: str | None = None
    category: str | None = None
    user: str | None = None
    as_of: datetime | None = None


class Facet(NamedTuple):
    """One scope column: its values and, per memory, the code of its value (-1 = none)."""

    values: tuple[str, ...]  # distinct, sorted
    codes: NDArray[np.int32]  # (n,)
    # Of the owners only: positions of what others share with a user, by that user's name, which
    # need not be among the values. None where nobody shares.
    shared: Mapping[str, NDArray[np.int32]] | None = None
    # Of the owners only: positions of what was forgotten, which nobody sees any more.
    forgotten: NDArray[np.int64] | None = None

    def code_of(self, value: str | None) -> int:
        """Return the code of a value; one that no memory has where it is unknown or None."""
        return self.values.index(value) if value in self.values else _NO_CODE


def aware(moment: datetime) -> datetime:
    """Return the moment with a zone; a naive one is UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def build_mask(
    scope: Scope, facets: Mapping[str, Facet], created_at_us: NDArray[np.int64]
) -> tuple[Mask | None, tuple[RecallWarning, ...]]:
    """Return the memories that the scope allows (None: all), a warning per value that none has.

    Users are denied by default: memories that belong to a named user are only seen by a recall for
    that user, or for one whom that user shares them with; memories that belong to nobody are seen
    by all. `as_of` keeps what existed then; undated memories are kept. What only others have is
    unknown, and no name of theirs is suggested.
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
        masks.append(mask)
    if own is not None:
        masks.append(own)
        if scope.user is None and _has_owners(facets["user"], own):
            message = "this store holds memories of named users: pass user=..."
            warnings.append(RecallWarning("user_required", message))
    if scope.as_of is not None:
        until_us = to_micros(aware(scope.as_of))
        masks.append((created_at_us == UNDATED_US) | (created_at_us <= until_us))
    return np.logical_and.reduce(masks) if masks else None, tuple(warnings)


def private_mask(owners: Facet, user: str | None) -> Mask | None:
    """Return which memories (n,) nobody but this user may see; None where all belong to nobody."""
    if not owners.values:
        return None
    private: Mask = owners.codes == owners.code_of(user)
    for positions in (owners.shared or {}).values():
        private[positions] = False
    return private


def _own_mask(owners: Facet, user: str | None) -> Mask | None:
    """Return which memories a user may see; None where all belong to nobody, none forgotten."""
    if owners.forgotten is None:
        return _owned(owners, user) if owners.values else None
    own = _owned(owners, user)
    own[owners.forgotten] = False
    return own


def _has_owners(owners: Facet, own: Mask) -> bool:
    """Say whether some memories belong to named users; `own` are those that nobody's may see."""
    return not (own if owners.forgotten is None else _owned(owners, None)).all()


def _owned(owners: Facet, user: str | None) -> Mask:
    own: Mask = (owners.codes == -1) | (owners.codes == owners.code_of(user))
    if user is not None and owners.shared is not None and user in owners.shared:
        own[owners.shared[user]] = True
    return own


def _unknown(name: str, wanted: str, facet: Facet, own: Mask | None) -> RecallWarning:
    """Say that nothing has a value, and which near ones memories of the user or of nobody have."""
    import difflib  # most recalls name what there is

    values = facet.values
    if own is not None:  # others' names are theirs
        values = [values[code] for code in np.unique(facet.codes[own]).tolist() if code >= 0]
    near = difflib.get_close_matches(wanted, values, n=3, cutoff=0.5)
    hint = f"; near: {', '.join(near)}" if near else f"; there are {len(values)}"
    return RecallWarning(f"unknown_{name}", f"no memory has {name} {wanted!r}{hint}")


# Which rows a recall searches, of those that it may see:
#
# - An archived memory is hidden from a recall that sees the memory that stands for it.
# - A summary is searched where the recall may see every one of its sources and none of them is
#   searched itself. So a summary of turns is searched in the view "summaries", and its turns are
#   not, until a hit opens it; where one of its turns is out of scope or archived, the others are
#   searched themselves.
#   The summary of a compaction plan is searched where all that it stands for is hidden by the
#   archive.


class Rows(NamedTuple):
    """Which rows of the table one recall searches."""

    allowed: Mask | None = None  # memories that the scope allows, shape (n,); None for all
    memories: Mask | None = None  # those that may come back, shape (n,); None for all
    # All rows that are searched, shape (reader.end,); None for every memory, every live row and no
    # summary.
    searched: Mask | None = None
    hidden: NDArray[np.int64] | None = None  # positions of allowed memories that are not searched
    stands: NDArray[np.int64] | None = None  # what is searched in the place of each of these
    # All rows that may come back, shape (reader.end,): `searched` with turns in the place of their
    # summaries; None where no summary of turns is searched.
    turns: Mask | None = None

    @staticmethod
    def of(
        reader: SnapshotReader, allowed: Mask | None, memories: Mask | None,
        summaries: Mask | None = None,
    ) -> Rows:  # fmt: skip
        """Return rows that search these memories (n,), these summaries (s,) and all live rows."""
        if memories is None or reader.end == reader.count:
            return Rows(allowed, memories, memories)
        searched = np.zeros(reader.end, dtype=np.bool_)
        searched[: reader.count] = memories
        if summaries is not None:
            searched[reader.count : reader.first_live] = summaries
        searched[reader.first_live :] = True
        return Rows(allowed, searched[: reader.count], searched)

    @property
    def is_empty(self) -> bool:
        """Say whether nothing is searched."""
        return self.searched is not None and not self.searched.any()

    def are_summaries(self, positions: NDArray[np.int64]) -> Mask:
        """Tell which of the positions that are searched are summaries of turns."""
        return np.zeros(positions.shape, np.bool_) if self.turns is None else ~self.turns[positions]

    def are_behind(self, positions: NDArray[np.int64]) -> Mask:
        """Tell which of the positions that may come back are turns behind a summary."""
        if self.turns is None or self.searched is None:
            return np.zeros(positions.shape, np.bool_)
        return ~self.searched[positions]

    def opened(self, turns: NDArray[np.int64]) -> Rows:
        """Return rows that search these turns behind summaries too, and no summary of turns."""
        if self.turns is None or self.searched is None:
            return self
        searched = self.turns & self.searched
        searched[turns] = True
        count = None if self.memories is None else self.memories.size
        return self._replace(memories=searched[:count], searched=searched)

    def stands_for(self, position: int) -> int | None:
        """Return what is searched in the place of a memory; None where it is searched itself."""
        if self.hidden is None or self.stands is None:
            return None
        found = np.flatnonzero(self.hidden == position)
        return int(self.stands[found[0]]) if found.size else None


Archived = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Positions of the archived memories of one snapshot, distinct, and of what stands for each."""


def find_archived(reader: SnapshotReader, state: ArchiveState) -> Archived:
    """Return what the archive hides in a snapshot from recalls that see the successors."""
    hidden = state.hidden_in(reader.content_hashes)
    places = reader.positions_of([*hidden, *hidden.values()])
    found = [[places[memory] for memory in ids] for ids in (hidden, hidden.values())]
    return np.array(found[0], dtype=np.int64), np.array(found[1], dtype=np.int64)


def find_rows(
    reader: SnapshotReader,
    allowed: Mask | None,
    turn_view: str,
    archived: Archived | None,
    plans: frozenset[str],
) -> Rows:
    """Apply the rules above; `archived` is None where archived memories are asked for."""
    hidden = stands = np.empty(0, dtype=np.int64)
    if archived is not None:
        hidden, stands = archived
        if allowed is not None:
            kept = allowed[hidden] & allowed[stands]
            hidden, stands = hidden[kept], stands[kept]
    memories, shown = allowed, None
    if hidden.size:
        is_hidden = np.zeros(reader.count, dtype=np.bool_)
        is_hidden[hidden] = True
        memories = ~is_hidden if allowed is None else allowed & ~is_hidden
        numbers = [n for n, plan in enumerate(reader.compaction_plans) if plan in plans]
        if numbers:
            arrays = reader.summaries.arrays
            of_plans = np.isin(arrays.plans, numbers) & arrays.where_all(is_hidden)
            shown = of_plans if of_plans.any() else None
    behind = None
    if turn_view == SUMMARIES and reader.summaries.size:
        arrays = reader.summaries.arrays
        of_turns = arrays.plans == OF_TURNS
        if memories is not None:
            of_turns = of_turns & arrays.where_all(memories)
        if of_turns.any():
            covered = arrays.covered(of_turns, reader.count)
            memories = np.ones_like(covered) if memories is None else memories
            behind = Rows.of(reader, allowed, memories, shown)
            memories = memories & ~covered
            shown = of_turns if shown is None else shown | of_turns
            turns = np.flatnonzero(covered)
            hidden = np.concatenate([hidden, turns])
            summaries = reader.summaries.summary_of[turns].astype(np.int64)
            stands = np.concatenate([stands, reader.count + summaries])
    rows = Rows.of(reader, allowed, memories, shown)
    rows = rows._replace(hidden=hidden if hidden.size else None, stands=stands)
    if behind is None:
        return rows
    return rows._replace(memories=behind.memories, turns=behind.searched)


def through_hidden(links: Mapping[int, Successor], rows: Rows) -> dict[int, Successor]:
    """Return the links (a memory to its direct successor) without successors that are hidden.

    Each gives way to its own successor, as far as needed and with the least confidence on the way.
    Where nothing stands in, nothing is superseded: a memory never gives way to one that the recall
    would not show.
    """
    if rows.memories is None:
        return dict(links)
    found: dict[int, Successor] = {}
    for older, link in links.items():
        newer, confidence = link.newer, link.confidence
        for _ in links:
            if rows.memories[newer] or newer not in links:
                break
            confidence = min(confidence, links[newer].confidence)
            newer = links[newer].newer
        if rows.memories[newer]:
            found[older] = link._replace(newer=newer, confidence=confidence)
    return found


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
        kind = datetime if name == "as_of" else str
        if value is not None and not isinstance(value, kind):
            faults.append(f"{name} must be {kind.__name__}, found {type(value).__name__}")
    if session_id is not None and not isinstance(session_id, str):
        faults.append(f"session_id must be str, found {type(session_id).__name__}")
    is_number = isinstance(deadline_ms, int | float) and not isinstance(deadline_ms, bool)
    if deadline_ms is not None and not (is_number and not math.isnan(deadline_ms)):
        faults.append(f"deadline_ms must be a number, found {deadline_ms!r}")
    if faults:
        raise ValueError("; ".join(faults))


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


# One table of candidates, whatever they are: memories stand at positions from 0 on, summaries
# behind them, then rows of the store itself. A phase is a pure function (Candidates, Search) ->
# PhaseOutcome: what it asks of the search is the same in a replay.


Positions = NDArray[np.int64]
Scores = NDArray[np.float64]

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


class SummaryView(NamedTuple):
    """An accepted summary: its position, those of what it was made of, its confidence in [0, 1]."""

    position: int
    sources: tuple[int, ...]
    confidence: float


class Successor(NamedTuple):
    """What the night found to replace a memory; all are positions but the rest."""

    newer: int  # the direct successor, which may have one itself
    reason: str  # "explicit", "is_now", "newer_value" or "near_duplicate"
    confidence: int  # 0 low, 1 medium, 2 high
    similarity: float | None  # cosine of the two, where one was needed
    age_gap_days: int  # 0 where a date is missing
    evidence: int  # the memory that says so


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


class Step(NamedTuple):
    """One phase in the order; its name is also the function that does it."""

    name: str
    wanted: tuple[str, ...]  # flags that must all be on (a number: above 0, a text: not empty)
    module: str = "phases"  # where the function stands; a fresh process loads it only if it is on
    reorders: bool = False  # it only shapes the order by relevance: another sort order skips it
    # It takes as long as a leg: a recall past its deadline skips it. The others take well under a
    # millisecond, and without some of them an answer would be wrong.
    is_slow: bool = False

    def why_not(self, search: Search) -> str | None:
        """Return why it is left out ("" where nobody wants it), or None where it runs."""
        if self.name == "scale":  # follows any of the boosts
            return None if set(self.wanted).intersection(search.ledger.applied) else ""
        if not all(getattr(search.profile, flag) for flag in self.wanted):
            return ""
        if self.name == "dates" and not any(char.isdigit() for char in search.query.text):
            return ""
        if self.reorders and search.query.sort_by != "relevance":
            return f"because the answer is ordered by {search.query.sort_by}"
        if self.is_slow and search.run.late():
            said = f"the deadline passed before {self.name}; skipped"
            search.run.warn(f"deadline_{self.name}", said)
            return "because the deadline passed"
        return None


_WINGS = ("mmr_enabled", "wing_diversity_weight")
PHASES: tuple[Step, ...] = (
    Step("rerank", ("reranker",), reorders=True, is_slow=True),
    Step("dates", ("date_boost",)),
    Step("ltp", ("ltp_enabled",)),
    Step("time_decay", ("time_decay_enabled",)),
    Step("tagging", ("tagging_enabled",)),
    Step("association", ("association_enabled",)),
    Step("scale", ("dates", "ltp", "tagging", "association")),  # phases, of which any ran
    Step("query_expansion", ("query_expansion_enabled",), is_slow=True),
    Step("supersede", ("supersede_filter_enabled",), "selection"),
    Step("consolidation", ("consolidation_enabled",), "selection"),
    Step("pinned", ("pinned_memory_enabled",)),
    Step("mmr", ("mmr_enabled",), "selection", reorders=True),
    Step("cross_wing_balancing", _WINGS, "selection", reorders=True),
)
"""The order of DESIGN section 4; the cross-encoder reads the fused list, so it comes first."""


def run_phases(candidates: Candidates, search: Search) -> Candidates:
    """Run every phase that the profile wants, in order; one that fails is a warning."""
    run, ledger = search.run, search.ledger
    for step in PHASES:
        why_not = step.why_not(search)
        if why_not is not None:
            ledger.skipped.append(step.name)
            if why_not:
                ledger.notes[step.name] = {"skipped": why_not}
            continue
        with run.step(step.name):
            try:
                phase = getattr(import_module(f"noctuary.recall.{step.module}"), step.name)
                outcome: PhaseOutcome = phase(candidates, search)
            except Exception as error:
                said = f"{step.name} was left out: {type(error).__name__}: {error}"
                run.warn("phase_failed", said)
                outcome = PhaseOutcome(candidates)
        ledger.take(step.name, candidates, outcome)
        run.extend(outcome.warnings)
        candidates = outcome.candidates
    return candidates
