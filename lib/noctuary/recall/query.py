"""What can be asked, which rows may be seen and searched, and the run of one recall."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US, fire, has_hooks, to_micros
from noctuary.recall.profile import SUMMARIES, RetrievalProfile
from noctuary.recall.result import RecallWarning
from noctuary.snapshot.arrays import OF_TURNS

if TYPE_CHECKING:
    from noctuary.recall.candidates import Successor
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
        if scope.user is None and not own.all():
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
    """Return which memories a user may see; None where all belong to nobody."""
    if not owners.values:
        return None
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
#   not; where one of its turns is out of scope or archived, the others are searched themselves.
#   The summary of a compaction plan is searched where all that it stands for is hidden by the
#   archive.


class Rows(NamedTuple):
    """Which rows of the table one recall searches."""

    allowed: Mask | None = None  # memories that the scope allows, shape (n,); None for all
    memories: Mask | None = None  # those that are searched, shape (n,); None for all
    # All rows that are searched, shape (reader.end,); None for every memory, every live row and no
    # summary.
    searched: Mask | None = None
    hidden: NDArray[np.int64] | None = None  # positions of allowed memories that are not searched
    stands: NDArray[np.int64] | None = None  # what is searched in the place of each of these

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
    if turn_view == SUMMARIES and reader.summaries.size:
        arrays = reader.summaries.arrays
        of_turns = arrays.plans == OF_TURNS
        if memories is not None:
            of_turns = of_turns & arrays.where_all(memories)
        if of_turns.any():
            covered = arrays.covered(of_turns, reader.count)
            memories = ~covered if memories is None else memories & ~covered
            shown = of_turns if shown is None else shown | of_turns
            turns = np.flatnonzero(covered)
            hidden = np.concatenate([hidden, turns])
            summaries = reader.summaries.summary_of[turns].astype(np.int64)
            stands = np.concatenate([stands, reader.count + summaries])
    rows = Rows.of(reader, allowed, memories, shown)
    return rows._replace(hidden=hidden if hidden.size else None, stands=stands)


def through_hidden(
    links: Mapping[int, Successor], rows: Rows, reader: SnapshotReader
) -> dict[int, Successor]:
    """Return the links (a memory to its direct successor) without successors that are not searched.

    Each gives way to its own successor, as far as needed and with the least confidence on the way;
    at the end of the chain to the summary that covers it. Where nothing stands in, nothing is
    superseded: a memory never gives way to one that the recall would not show.
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
        if not rows.memories[newer]:
            summary = rows.stands_for(newer)
            if summary is None or summary < reader.count:
                continue
            newer = summary
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
