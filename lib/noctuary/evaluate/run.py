"""Ask a retriever every query of a set and keep what it found.

What belongs here: the calls, their timing, the run that comes of them. What does not: scores
(scores.py), how an answer is checked (retriever.py), files (run_file.py).
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from noctuary.errors import FAULTS_SHOWN
from noctuary.evaluate.labels.queries import Query
from noctuary.evaluate.retriever import (
    Hits,
    RetrievalError,
    RetrieveFunction,
    Retriever,
    asker_of,
    index_builder_of,
    index_bytes_of,
    read_answer,
    retriever_name,
)
from noctuary.hashing import JsonValue
from noctuary.progress import SILENT, Progress

Clock = Callable[[], int]
"""Nanoseconds from an arbitrary origin, never going back."""

WARM_UP_QUERIES = 5
"""Untimed calls before the first timed one: they fault in mapped files and fill caches."""

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How a retriever is asked.

    Attributes:
        k: Results asked for in the timed call.
        depth: Results wanted in all, at least k. Above k it costs a second, untimed call per query:
            asking once at this depth and cutting would score a list that no user of k gets, because
            candidate pools may grow with k.
        warm_up: Queries asked once before timing starts, answers discarded.
        timed: False asks each query once, at `depth`, untimed and without warm-up: half the calls,
            for sweeps whose latency nobody reads.
    """

    k: int = 10
    depth: int = 50
    warm_up: int = WARM_UP_QUERIES
    timed: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.depth:
            raise ValueError(f"a run needs 1 <= k <= depth, got k={self.k}, depth={self.depth}")
        if self.warm_up < 0:
            raise ValueError(f"warm_up counts queries and starts at 0, got {self.warm_up}")


@dataclass(frozen=True, slots=True)
class Run:
    """What a retriever found: everything that scores are computed from.

    Attributes:
        name: The retriever's.
        k: Results asked for in the call that the first k ids come from (`depth` if not timed).
        depth: Longest ranking.
        query_ids: The queries in the order asked, each once.
        rankings: Per query, ids as text, best first, repeats kept, at most `depth`: the list asked
            at k, continued by the deeper list's other ids. A list shorter than k is not continued,
            or ids that a user of k never saw would move up into the first k.
        top_scores: Per query, the score of the first result; None where it is unknown or nothing
            was found.
        latency_ms: Per query, the wall time around the call at k alone; None if not timed.
        build_ms: Wall time of `build_index`; None if it was not called.
        index_bytes: Size of the index; None where the retriever does not say.
        unstable_prefixes: Queries whose deeper list does not begin with the list asked at k.
    """

    name: str
    k: int
    depth: int
    query_ids: tuple[str, ...]
    rankings: tuple[tuple[str, ...], ...]
    top_scores: tuple[float | None, ...]
    latency_ms: tuple[float, ...] | None
    build_ms: float | None
    index_bytes: int | None
    unstable_prefixes: int

    def __post_init__(self) -> None:
        n = len(self.query_ids)
        timed = n if self.latency_ms is None else len(self.latency_ms)
        if not n == len(self.rankings) == len(self.top_scores) == timed:
            raise ValueError(
                f"run {self.name!r} has {n} queries, {len(self.rankings)} rankings, "
                f"{len(self.top_scores)} top scores and {timed} times; expected as many of each"
            )
        _refuse_repeats(self.query_ids)

    def to_json(self) -> dict[str, JsonValue]:
        """Return the run as plain values, one list per attribute, numbers as they are."""
        return {
            "name": self.name,
            "k": self.k,
            "depth": self.depth,
            "query_ids": list(self.query_ids),
            "rankings": [list(ranking) for ranking in self.rankings],
            "top_scores": list(self.top_scores),
            "latency_ms": None if self.latency_ms is None else list(self.latency_ms),
            "build_ms": self.build_ms,
            "index_bytes": self.index_bytes,
            "unstable_prefixes": self.unstable_prefixes,
        }

    @staticmethod
    def from_json(raw: object) -> Run:
        """Read back what `to_json` returned.

        Raises:
            ValueError: If a key is missing or a value has the wrong type or length.
        """
        if not isinstance(raw, Mapping):
            raise ValueError(f"a run is a JSON object, found {type(raw).__name__}")  # noqa: TRY004
        row = cast("Mapping[str, Any]", raw)
        latency = row.get("latency_ms")
        return Run(
            name=_plain(row, "name", str),
            k=_plain(row, "k", int),
            depth=_plain(row, "depth", int),
            query_ids=_texts(row.get("query_ids"), "query_ids"),
            rankings=tuple(_texts(ids, "rankings") for ids in _items(row, "rankings")),
            top_scores=tuple(_number(v, "top_scores") for v in _items(row, "top_scores")),
            latency_ms=None if latency is None else _times(_items(row, "latency_ms")),
            build_ms=_number(row.get("build_ms"), "build_ms"),
            index_bytes=None if row.get("index_bytes") is None else _plain(row, "index_bytes", int),
            unstable_prefixes=_plain(row, "unstable_prefixes", int),
        )


def run_retriever(
    retriever: Retriever | RetrieveFunction,
    queries: Sequence[Query],
    plan: RunPlan = RunPlan(),
    *,
    name: str | None = None,
    corpus: Sequence[Mapping[str, Any]] | None = None,
    clock: Clock = time.perf_counter_ns,
    progress: Progress = SILENT,
) -> Run:
    """Ask a retriever every query and return what it found.

    Args:
        retriever: See `Retriever`; or a function of the query's text and k.
        queries: At least one, ids distinct; labels are not looked at.
        plan: Depths, warm-up, timing.
        name: What the run is called; by default the retriever's own name.
        corpus: Rows for `build_index`, which is called once, before anything else, if the retriever
            has one and a corpus is given.
        clock: Time source, for tests.
        progress: Told of every finished query.

    Returns:
        Rankings, top scores, times around the retrieval alone, build time and index size apart.

    Raises:
        ValueError: If there is no query or an id stands twice.
        TypeError: If the retriever or what it returns is of the wrong kind.
        RetrievalError: If the retriever raises; the cause is chained.
    """
    if not queries:
        raise ValueError("there is no query to ask; expected at least one")
    _refuse_repeats([query.query_id for query in queries])
    called = name or retriever_name(retriever)
    session = _Session(retriever, called, plan, clock)
    build_ms = session.build(corpus)
    session.warm_up(queries)
    for done, query in enumerate(queries, start=1):
        session.ask(query)
        progress.update("evaluate", done, len(queries))
    return Run(
        name=called,
        k=plan.k if plan.timed else plan.depth,
        depth=plan.depth,
        query_ids=tuple(query.query_id for query in queries),
        rankings=tuple(session.rankings),
        top_scores=tuple(session.top_scores),
        latency_ms=tuple(session.latency_ms) if plan.timed else None,
        build_ms=build_ms,
        index_bytes=index_bytes_of(retriever, called),
        unstable_prefixes=session.unstable,
    )


class _Session:
    """One retriever being asked: what it has answered so far."""

    def __init__(
        self, retriever: Retriever | RetrieveFunction, name: str, plan: RunPlan, clock: Clock
    ) -> None:
        self._name = name
        self._plan = plan
        self._clock = clock
        self._build = index_builder_of(retriever)
        self._ask = asker_of(retriever, name)
        self._scored = callable(getattr(retriever, "retrieve_hits", None))
        self.rankings: list[tuple[str, ...]] = []
        self.top_scores: list[float | None] = []
        self.latency_ms: list[float] = []
        self.unstable = 0

    def build(self, corpus: Sequence[Mapping[str, Any]] | None) -> float | None:
        """Build the index if there is something to build it from; return the time it took."""
        if corpus is None or self._build is None:
            return None
        started = self._clock()
        try:
            self._build(corpus)
        except Exception as error:
            raise RetrievalError(
                f"retriever {self._name!r} failed to build its index: {type(error).__name__}"
            ) from error
        return (self._clock() - started) / _NS_PER_MS

    def warm_up(self, queries: Sequence[Query]) -> None:
        """Ask the first queries once and discard the answers; nothing to warm if nobody times."""
        if self._plan.timed:
            for query in queries[: self._plan.warm_up]:
                self._call(query, self._plan.k)

    def ask(self, query: Query) -> None:
        """Ask one query as the plan says and keep what comes back."""
        plan = self._plan
        if not plan.timed:
            ranking, score = self._call(query, plan.depth)[0]
        else:
            (head, score), elapsed_ms = self._call(query, plan.k)
            self.latency_ms.append(elapsed_ms)
            ranking = self._continue(query, head) if plan.depth > plan.k else head
        self.rankings.append(ranking)
        self.top_scores.append(score)

    def _continue(self, query: Query, head: tuple[str, ...]) -> tuple[str, ...]:
        """Ask the deeper list and append what the first one lacks."""
        (deep, _), _ = self._call(query, self._plan.depth)
        if deep[: self._plan.k] == head:
            return deep
        self.unstable += 1
        if len(head) < self._plan.k:
            return head
        seen = frozenset(head)
        return (*head, *(found for found in deep if found not in seen))[: self._plan.depth]

    def _call(self, query: Query, k: int) -> tuple[Hits, float]:
        started = self._clock()
        try:
            answer = self._ask(query, k)
        except Exception as error:
            # The query's text stays out of the message: it may end in a log.
            raise RetrievalError(
                f"retriever {self._name!r} failed on query {query.query_id!r} at k={k}: "
                f"{type(error).__name__}"
            ) from error
        elapsed_ms = (self._clock() - started) / _NS_PER_MS
        return read_answer(answer, k, self._name, scored=self._scored), elapsed_ms


def _refuse_repeats(query_ids: Sequence[str]) -> None:
    repeats = [query_id for query_id, times in Counter(query_ids).items() if times > 1]
    if repeats:
        raise ValueError(
            f"{len(repeats)} query ids stand more than once, the first: {repeats[:FAULTS_SHOWN]}; "
            "expected each query once"
        )


def _plain(row: Mapping[str, Any], key: str, kind: type[Any]) -> Any:
    value = row.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{key} of a run must be {kind.__name__}, not {type(value).__name__}")  # noqa: TRY004
    return value


def _items(row: Mapping[str, Any], key: str) -> list[object]:
    return cast("list[object]", _plain(row, key, list))


def _texts(value: object, key: str) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(item, str) for item in items):
        raise ValueError(f"{key} of a run must hold lists of ids as text")
    return tuple(cast("list[str]", items))


def _number(value: object, key: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{key} of a run must hold finite numbers, found {type(value).__name__}")
    return float(value)


def _times(values: list[object]) -> tuple[float, ...]:
    times = [_number(value, "latency_ms") for value in values]
    if None in times:
        raise ValueError("latency_ms of a run must hold a number for every query")
    return tuple(cast("list[float]", times))
