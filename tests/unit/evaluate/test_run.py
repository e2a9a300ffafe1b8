from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import RetrievalError, Run, RunPlan, run_retriever


def query(number: int, *relevant: str, stratum: str = "a") -> Query:
    return Query(f"q{number}", f"text {number}", stratum, relevant)


QUERIES = [query(n, "a") for n in (1, 2, 3)]


class TickingClock:
    """A clock that only moves when the retriever under test moves it."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Recorder:
    """Answers from a table of (text, k), remembers every call, and takes a given time for each."""

    def __init__(self, clock: TickingClock, took_ms: Mapping[int, Sequence[int]]) -> None:
        self.calls: list[tuple[str, int]] = []
        self._clock = clock
        self._took_ms = {k: iter(times) for k, times in took_ms.items()}

    def retrieve(self, query: str, k: int) -> list[str]:
        self.calls.append((query, k))
        self._clock.now_ns += next(self._took_ms[k]) * 10**6
        return [f"m{rank}" for rank in range(k)]


def test_only_the_call_at_k_is_timed_and_the_warm_up_is_not() -> None:
    clock = TickingClock()
    recorder = Recorder(clock, {2: [900, 900, 1, 2, 3], 4: [5000, 5000, 5000]})
    run = run_retriever(recorder, QUERIES, RunPlan(k=2, depth=4, warm_up=2), clock=clock)
    assert recorder.calls[:2] == [("text 1", 2), ("text 2", 2)]
    assert recorder.calls[2:] == [(f"text {n}", k) for n in (1, 2, 3) for k in (2, 4)]
    assert run.latency_ms == (1.0, 2.0, 3.0)
    assert run.query_ids == ("q1", "q2", "q3")
    assert run.rankings == (("m0", "m1", "m2", "m3"),) * 3
    assert (run.name, run.k, run.depth) == ("Recorder", 2, 4)
    assert (run.build_ms, run.index_bytes, run.unstable_prefixes) == (None, None, 0)
    assert run.top_scores == (None, None, None)


def test_without_a_deeper_list_there_is_one_call_per_query() -> None:
    clock = TickingClock()
    recorder = Recorder(clock, {3: [1, 1, 1]})
    run_retriever(recorder, QUERIES, RunPlan(k=3, depth=3, warm_up=0), clock=clock)
    assert recorder.calls == [(f"text {n}", 3) for n in (1, 2, 3)]


def test_an_untimed_run_asks_once_at_depth_and_says_so() -> None:
    clock = TickingClock()
    recorder = Recorder(clock, {4: [1, 1, 1]})
    plan = RunPlan(k=2, depth=4, warm_up=2, timed=False)
    run = run_retriever(recorder, QUERIES, plan, clock=clock)
    assert recorder.calls == [(f"text {n}", 4) for n in (1, 2, 3)]
    assert run.latency_ms is None
    assert (run.k, run.depth) == (4, 4)


def from_lists(lists: Mapping[int, Sequence[int | str]]) -> Run:
    """Ask one query; the answer depends on the depth alone."""
    return run_retriever(lambda text, k: lists[k], QUERIES[:1], RunPlan(k=2, depth=5, warm_up=0))


def test_the_first_k_are_those_of_the_list_at_k_continued_by_what_it_lacks() -> None:
    run = from_lists({2: ["a", "b"], 5: ["c", "a", "d", "b", "e"]})
    assert run.rankings == (("a", "b", "c", "d", "e"),)
    assert run.unstable_prefixes == 1


def test_a_stable_deeper_list_is_taken_as_it_is_repeats_and_all() -> None:
    run = from_lists({2: ["a", "b"], 5: ["a", "b", "a", "c", "c"]})
    assert run.rankings == (("a", "b", "a", "c", "c"),)
    assert run.unstable_prefixes == 0


def test_a_list_shorter_than_k_is_not_continued_into_ranks_that_its_user_never_saw() -> None:
    run = from_lists({2: ["a"], 5: ["b", "a", "c"]})
    assert run.rankings == (("a",),)
    assert run.unstable_prefixes == 1


def test_results_beyond_the_depth_are_ignored() -> None:
    run = from_lists({2: ["a", "b", "x"], 5: list("abcdefgh")})
    assert run.rankings == (("a", "b", "c", "d", "e"),)
    assert run.unstable_prefixes == 0


def test_ids_become_text() -> None:
    run = from_lists({2: [1, "2"], 5: [1, 2, 3]})
    assert run.rankings == (("1", "2", "3"),)


class Index:
    """Everything optional: a name, an index with a size, hits with scores."""

    name = "index"

    def __init__(self, clock: TickingClock) -> None:
        self._clock = clock
        self._rows: list[Mapping[str, Any]] = []

    def build_index(self, corpus: Sequence[Mapping[str, Any]]) -> None:
        self._clock.now_ns += 40 * 10**6
        self._rows = list(corpus)

    def index_size_bytes(self) -> int:
        return 100 * len(self._rows)

    def retrieve(self, query: str, k: int) -> list[str]:
        raise AssertionError("retrieve_hits comes first")

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[int, float]]:
        self._clock.now_ns += 10**6
        wing = [row for row in self._rows if row["wing"] == query.wing]
        return [(row["id"], 1.0 / rank) for rank, row in enumerate(wing, 2)][:k]


CORPUS = [{"id": 1, "wing": "home"}, {"id": 2, "wing": "work"}, {"id": 3, "wing": "home"}]


def test_the_index_is_built_once_timed_apart_and_its_size_is_read_afterwards() -> None:
    clock = TickingClock()
    asked = [replace(query(1), wing="home"), replace(query(2), wing="away")]
    plan = RunPlan(k=2, depth=2)
    run = run_retriever(Index(clock), asked, plan, corpus=CORPUS, clock=clock)
    assert run.name == "index"
    assert (run.build_ms, run.index_bytes) == (40.0, 300)
    assert run.latency_ms == (1.0, 1.0)
    assert run.rankings == (("1", "3"), ())
    assert run.top_scores == (0.5, None)


def test_without_a_corpus_no_index_is_built() -> None:
    clock = TickingClock()
    run = run_retriever(Index(clock), QUERIES, RunPlan(), clock=clock, name="renamed")
    assert (run.name, run.build_ms, run.index_bytes) == ("renamed", None, 0)


def test_progress_hears_of_every_query() -> None:
    heard: list[tuple[str, int, int]] = []

    class Listener:
        def update(self, task: str, done: int, total: int) -> None:
            heard.append((task, done, total))

    run_retriever(lambda text, k: ["a"], QUERIES, progress=Listener())
    assert heard == [("evaluate", n, 3) for n in (1, 2, 3)]


def test_a_retriever_that_raises_is_named_with_the_query_id_and_never_its_text() -> None:
    def fails(text: str, k: int) -> list[str]:
        if text == "text 2":
            raise KeyError(text)
        return []

    with pytest.raises(RetrievalError) as caught:
        run_retriever(fails, QUERIES, RunPlan(k=5, warm_up=0))
    assert str(caught.value) == "retriever 'fails' failed on query 'q2' at k=5: KeyError"
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_index_that_cannot_be_built_is_named() -> None:
    class Broken(Index):
        def build_index(self, corpus: Sequence[Mapping[str, Any]]) -> None:
            raise OSError("disk full")

    with pytest.raises(RetrievalError, match="'index' failed to build its index: OSError"):
        run_retriever(Broken(TickingClock()), QUERIES, corpus=CORPUS)


def test_a_wrong_answer_names_the_retriever() -> None:
    none: Any = None
    with pytest.raises(TypeError, match="'bad arm' returned None"):
        run_retriever(lambda text, k: none, QUERIES, name="bad arm")


def test_no_query_and_repeated_ids_are_errors() -> None:
    with pytest.raises(ValueError, match="there is no query to ask"):
        run_retriever(lambda text, k: [], [])
    repeated = [query(n) for n in range(12)] * 2
    with pytest.raises(ValueError, match="12 query ids repeat") as caught:
        run_retriever(lambda text, k: [], repeated)
    assert "'q9'" in str(caught.value)
    assert "'q10'" not in str(caught.value)


@pytest.mark.parametrize(("k", "depth", "warm_up"), [(0, 5, 0), (6, 5, 0), (1, 1, -1)])
def test_a_plan_checks_its_numbers(k: int, depth: int, warm_up: int) -> None:
    with pytest.raises(ValueError, match=r"1 <= k <= depth|starts at 0"):
        RunPlan(k=k, depth=depth, warm_up=warm_up)


finite = st.floats(allow_nan=False, allow_infinity=False)
ids = st.text(max_size=8)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    query_ids = draw(st.lists(ids, max_size=5, unique=True))
    n = len(query_ids)

    def each(values: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(st.lists(values, min_size=n, max_size=n)))

    return Run(
        name=draw(ids),
        k=draw(st.integers(1, 50)),
        depth=draw(st.integers(1, 50)),
        query_ids=tuple(query_ids),
        rankings=each(st.lists(ids, max_size=4).map(tuple)),
        top_scores=each(st.none() | finite),
        latency_ms=each(finite) if draw(st.booleans()) else None,
        build_ms=draw(st.none() | finite),
        index_bytes=draw(st.none() | st.integers(0, 2**60)),
        unstable_prefixes=draw(st.integers(0, 5)),
    )


@given(run=runs())
def test_a_run_survives_json(run: Run) -> None:
    text = json.dumps(run.to_json(), allow_nan=False)
    assert Run.from_json(json.loads(text)) == run


WHOLE = Run("r", 1, 2, ("q1", "q2"), (("a", "b"), ()), (0.5, None), (1.0, 2.0), 3.0, 4, 1)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", None, "name of a run must be str"),
        ("k", "1", "k of a run must be int"),
        ("k", True, "k of a run must be int"),
        ("query_ids", None, "query_ids of a run must hold"),
        ("query_ids", ["q1", 2], "query_ids of a run must hold"),
        ("query_ids", ["q1", "q1"], "1 query ids repeat"),
        ("rankings", [["a"]], "2 queries, 1 rankings"),
        ("rankings", ["ab", "c"], "rankings of a run must hold"),
        ("top_scores", [0.5], "1 top scores"),
        ("top_scores", [0.5, "0.5"], "top_scores of a run must hold finite numbers"),
        ("top_scores", [0.5, float("nan")], "top_scores of a run must hold finite numbers"),
        ("latency_ms", [1.0], "1 times"),
        ("latency_ms", [1.0, None], "latency_ms of a run must hold a number"),
        ("build_ms", "1", "build_ms of a run must hold finite numbers"),
        ("index_bytes", 1.5, "index_bytes of a run must be int"),
        ("unstable_prefixes", None, "unstable_prefixes of a run must be int"),
    ],
)
def test_a_damaged_run_is_refused_with_the_key(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Run.from_json({**WHOLE.to_json(), key: value})


def test_what_is_no_object_is_no_run() -> None:
    with pytest.raises(ValueError, match="a run is a JSON object, found list"):
        Run.from_json([])
