from __future__ import annotations

import gzip
import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import SourceFormatError, SourceMissingError
from noctuary.evaluate import run as manifest
from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import (
    RetrievalError,
    Run,
    RunPlan,
    asker_of,
    describe_code,
    describe_run,
    index_bytes_of,
    library_versions,
    read_answer,
    read_run,
    retriever_name,
    run_retriever,
    write_run,
)


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


def test_an_untimed_run_asks_once_at_depth_and_says_so() -> None:
    clock = TickingClock()
    recorder = Recorder(clock, {4: [1, 1, 1]})
    plan = RunPlan(k=2, depth=4, warm_up=2, timed=False)
    run = run_retriever(recorder, QUERIES, plan, clock=clock)
    assert recorder.calls == [(f"text {n}", 4) for n in (1, 2, 3)]
    assert run.latency_ms is None
    assert (run.k, run.depth) == (4, 4)
    alone = Recorder(clock, {3: [1, 1, 1]})
    run_retriever(alone, QUERIES, RunPlan(k=3, depth=3, warm_up=0), clock=clock)
    assert alone.calls == [(f"text {n}", 3) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("at_k", "deeper", "ranking", "unstable"),
    [
        # The first k are those of the list at k, continued by what it lacks.
        ("ab", "cadbe", "abcde", 1),
        # A stable deeper list is taken as it is, repeats and all.
        ("ab", "abacc", "abacc", 0),
        # A shorter list is not continued into ranks that its user never saw.
        ("a", "bac", "a", 1),
        # Results beyond the depth are ignored.
        ("abx", "abcdefgh", "abcde", 0),
        # Ids become text.
        ([1, "2"], [1, 2, 3], "123", 0),
    ],
)
def test_the_list_at_k_comes_first(
    at_k: Sequence[int | str], deeper: Sequence[int | str], ranking: str, unstable: int
) -> None:
    lists = {2: list(at_k), 5: list(deeper)}
    plan = RunPlan(k=2, depth=5, warm_up=0)
    run = run_retriever(lambda text, k: lists[k], QUERIES[:1], plan)
    assert (run.rankings, run.unstable_prefixes) == ((tuple(ranking),), unstable)


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
    bare = run_retriever(Index(clock), QUERIES, RunPlan(), clock=clock, name="renamed")
    assert (bare.name, bare.build_ms, bare.index_bytes) == ("renamed", None, 0)


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


def test_an_index_or_a_retriever_that_is_none_is_named() -> None:
    class Broken(Index):
        def build_index(self, corpus: Sequence[Mapping[str, Any]]) -> None:
            raise OSError("disk full")

    nothing: Any = object()
    with pytest.raises(RetrievalError, match="'index' failed to build its index: OSError"):
        run_retriever(Broken(TickingClock()), QUERIES, corpus=CORPUS)
    with pytest.raises(TypeError, match=r"'broken' is a object; expected an object with retrieve"):
        asker_of(nothing, "broken")


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
        ("*", [], "a run is a JSON object, found list"),
    ],
)
def test_a_damaged_run_is_refused_with_the_key(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Run.from_json(value if key == "*" else {**WHOLE.to_json(), key: value})


RUN = Run("arm", 1, 2, ("q1", "q2"), (("a", "ü"), ()), (0.1, None), (1.5, 2.5), 3.0, 4, 1)
MANIFEST = {"commit": "abc", "seed": 7, "libraries": {"python": "3.11"}}


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_a_run_and_its_manifest_survive_a_file(tmp_path: Path, name: str) -> None:
    write_run(tmp_path / name, RUN, MANIFEST)
    assert read_run(tmp_path / name) == (RUN, MANIFEST)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    whole = (tmp_path / name).read_bytes()
    found = json.loads(gzip.decompress(whole) if name.endswith("gz") else whole)
    said = {"kind": "run", "schema_version": 1, "manifest": MANIFEST}
    assert found == {**said, "run": json.loads(json.dumps(RUN.to_json()))}


@pytest.mark.parametrize("name", ["run.json", "run.json.gz"])
def test_equal_content_gives_equal_bytes_whatever_the_name_the_time_or_the_order(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / name, RUN, MANIFEST)
    monkeypatch.setattr("time.time", lambda: 2e9)
    other = tmp_path / f"other-{name}"
    write_run(other, RUN, dict(reversed(MANIFEST.items())))
    assert other.read_bytes() == (tmp_path / name).read_bytes()
    write_run(other, replace(RUN, name="another"), MANIFEST)
    assert other.read_bytes() != (tmp_path / name).read_bytes()


def test_every_cut_of_a_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match=r"no run file at .*absent\.json"):
        read_run(tmp_path / "absent.json")
    for name in ("run.json", "run.json.gz"):
        path = tmp_path / name
        write_run(path, RUN, MANIFEST)
        whole = path.read_bytes()
        for size in range(len(whole)):
            path.write_bytes(whole[:size])
            with pytest.raises(SourceFormatError, match=name):
                read_run(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "expected a JSON object, found list"),
        ("\udcff", "x.json holds no run"),
        ('{"kind": "report", "schema_version": 1}', "found 'report' of 1"),
        ('{"kind": "run", "schema_version": 2}', "found 'run' of 2"),
        ('{"kind": "run", "schema_version": 1}', "expected a manifest object, found NoneType"),
        ('{"kind": "run", "schema_version": 1, "manifest": {}}', "a run is a JSON object"),
    ],
)
def test_another_kind_of_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(SourceFormatError, match=message):
        read_run(path)


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    settings = (*identity, "-c", "commit.gpgsign=false")
    done = subprocess.run(
        ["git", "-C", str(directory), *settings, *arguments],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A tracked file in a repository of its own."""
    path = tmp_path / "module.py"
    path.write_text("x = 1\n", encoding="utf-8")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "module.py")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    return path


def test_the_commit_is_that_of_the_checkout_and_a_change_makes_it_dirty(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git(module.parent, "rev-parse", "HEAD")
    assert describe_code(module) == {"commit": commit, "dirty": False}
    module.write_text("x = 2\n", encoding="utf-8")
    assert describe_code(module) == {"commit": commit, "dirty": True}
    # A copy that is installed inside of a foreign repository has no commit.
    installed = module.parent / "venv" / "module.py"
    installed.parent.mkdir()
    installed.write_text("", encoding="utf-8")
    assert describe_code(installed) == {"commit": None, "dirty": None}
    monkeypatch.setenv("PATH", "")
    assert describe_code(module) == {"commit": None, "dirty": None}


def test_versions_are_those_installed_and_absent_libraries_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manifest, "_LIBRARIES", ("numpy", "no-such-library"))
    found = library_versions()
    assert found["numpy"] == np.__version__
    assert found["python"] == platform.python_version()
    assert "no-such-library" not in found


def test_a_manifest_holds_seed_digests_moment_and_further_facts_as_plain_json() -> None:
    found = describe_run(7, "c0", None, queries_digest="d1")
    assert json.loads(json.dumps(found)) == found
    assert (found["seed"], found["corpus_digest"], found["encoder_digest"]) == (7, "c0", None)
    assert found["queries_digest"] == "d1"
    # Every key is listed: none of them holds a path, a host or a user.
    assert set(found) == {
        *("commit", "dirty", "seed", "corpus_digest", "encoder_digest", "measured_at"),
        *("machine", "libraries", "queries_digest"),
    }


QUERY = Query("q1", "what did we eat", "a", ("m1",), wing="home")


class Plain:
    def retrieve(self, query: str, k: int) -> list[str]:
        return [query] * k


class Scored(Plain):
    name = "with scores"

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[str, float]]:
        return [(str(query.wing), 2.5)][:k]


def bare(query: str, k: int) -> list[str]:
    return [query, str(k)]


def test_a_name_is_the_attribute_then_the_function_then_the_class() -> None:
    assert retriever_name(Scored()) == "with scores"
    assert retriever_name(bare) == "bare"
    assert retriever_name(Plain()) == "Plain"


def test_a_retriever_gets_the_text_and_retrieve_hits_gets_the_whole_query() -> None:
    assert asker_of(Plain(), "x")(QUERY, 2) == [QUERY.text, QUERY.text]
    assert asker_of(bare, "x")(QUERY, 7) == [QUERY.text, "7"]
    assert asker_of(Scored(), "x")(QUERY, 2) == [("home", 2.5)]


@pytest.mark.parametrize(
    ("answer", "ids", "score"),
    [
        ([], (), None),
        (["a", 7, np.int64(8)], ("a", "7", "8"), None),
        (("a", "a", "b"), ("a", "a", "b"), None),
        (["a", "b", "c", "beyond k"], ("a", "b", "c"), None),
        ([(7, np.float32(0.5)), ("b", 0)], ("7", "b"), 0.5),
    ],
)
def test_integer_and_text_ids_become_text_and_repeats_stay(
    answer: Sequence[object], ids: tuple[str, ...], score: float | None
) -> None:
    assert read_answer(answer, 3, "x", scored=score is not None) == (ids, score)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "'arm' returned None; expected a list of ids"),
        ("m1", "'arm' returned a value of type str; expected a list of ids"),
        (b"m1", "'arm' returned a value of type bytes"),
        ({"m1": 1.0}, "'arm' returned a value of type dict"),
        (iter(["m1"]), "'arm' returned a value of type list_iterator"),
        (["m1", None], "'arm' returned None as the id at rank 2"),
        (["m1", True], "'arm' returned a value of type bool as the id at rank 2"),
        ([{"text": "a secret"}], "'arm' returned a value of type dict as the id at rank 1"),
        ([1.0], "'arm' returned a value of type float as the id at rank 1"),
    ],
)
def test_an_answer_of_the_wrong_kind_is_named_without_its_content(
    answer: object, message: str
) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        read_answer(answer, 10, "arm", scored=False)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "answer", [["m1"], [("m1",)], [("m1", "0.5")], [("m1", float("nan"))], [("m1", None)]]
)
def test_hits_that_are_no_pairs_of_id_and_finite_score_are_refused(answer: object) -> None:
    with pytest.raises(TypeError, match=r"'arm' returned .* at rank 1; retrieve_hits must return"):
        read_answer(answer, 10, "arm", scored=True)
    with pytest.raises(TypeError, match=r"returned None; expected a list of \(id, score\) pairs"):
        read_answer(None, 10, "arm", scored=True)


class Sized:
    def __init__(self, index_size_bytes: object) -> None:
        self.index_size_bytes = index_size_bytes


def test_the_index_size_is_a_number_or_a_function() -> None:
    assert index_bytes_of(Sized(12), "x") == 12
    assert index_bytes_of(Sized(lambda: 34), "x") == 34
    assert index_bytes_of(Sized(None), "x") is None
    assert index_bytes_of(object(), "x") is None
    for wrong in ("12", 1.5, True):
        with pytest.raises(TypeError, match="index_size_bytes of retriever 'x' is a value of type"):
            index_bytes_of(Sized(wrong), "x")
