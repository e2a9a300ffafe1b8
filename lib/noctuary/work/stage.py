"""Stages: skip work whose inputs, code and outputs match the stored stamp."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from noctuary.core.files import hash_file, hash_json, tree_bytes, write_text
from noctuary.core.types import SILENT, Progress

SETTLED_NS = 2_000_000_000  # younger files may change without another time: some clocks tick 2 s


FULL_LOOK_S = 7 * 86_400  # so often a night reads every file: a disk may lose bytes silently

_SameFile = tuple[str, int, int, int, int, int]  # path, device, inode, size, mtime, ctime
_hashes: dict[_SameFile, str] = {}


def hash_settled(path: Path) -> str:
    """Return the SHA-256 of a file, as `hash_file`; cached while the file stays the same."""
    # The same: device, inode, size and both times, none younger than SETTLED_NS or of the future.
    # Later stages hash the outputs of earlier ones again: gigabytes, several times a night.
    found = path.stat()
    age_ns = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns)
    if age_ns < SETTLED_NS:
        return hash_file(path)
    key = _identify(path, found)
    if key not in _hashes:
        _hashes[key] = hash_file(path)
    return _hashes[key]


def _identify(path: Path, found: os.stat_result) -> _SameFile:
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return (str(path), found.st_dev, found.st_ino, found.st_size, *times)


def load_hashes(file: Path) -> None:
    """Take over what `save_hashes` kept, unless the last full look is FULL_LOOK_S ago."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = _read_hashes(file)
        if not 0 <= time.time() - kept["since_s"] < FULL_LOOK_S:
            file.unlink()  # the next ones begin with tonight's look
            return
        for path, device, inode, size, modified, changed, digest in kept["files"]:
            _hashes[path, device, inode, size, modified, changed] = digest


def save_hashes(file: Path, below: Path) -> None:
    """Keep the hashes of files below a directory for the next night, with the last full look."""
    since_s, files = time.time(), list[list[Any]]()
    with suppress(OSError, ValueError, KeyError, TypeError):
        since_s = float(_read_hashes(file)["since_s"])
    for key, digest in _hashes.items():
        with suppress(OSError):
            path = Path(key[0])
            if path.is_relative_to(below) and key == _identify(path, path.stat()):
                files.append([*key, digest])
    body = {"since_s": since_s, "files": files}
    write_text(file, json.dumps({"checksum": hash_json(body), "kept": body}) + "\n")


def _read_hashes(file: Path) -> dict[str, Any]:
    """Return what is kept; ValueError if it is damaged: a wrong hash would condemn a sound file."""
    told = json.loads(file.read_text(encoding="utf-8"))
    if told["checksum"] != hash_json(told["kept"]):
        raise ValueError(f"{file.name} is damaged")
    return told["kept"]


@dataclass
class Cost:
    """Of a block: wall time, CPU time of all threads and of workers that ended, peak memory."""

    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    peak_rss_bytes: int = 0  # of this process; outside of Linux since it started


@contextmanager
def measure() -> Generator[Cost]:
    """Measure the block; the result is filled when it ends."""
    cost = Cost()
    with suppress(OSError):  # Linux forgets the process's high-water mark
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    wall, cpu = time.perf_counter(), _cpu_seconds()
    try:
        yield cost
    finally:
        cost.wall_ms = round((time.perf_counter() - wall) * 1000, 1)
        cost.cpu_ms = round((_cpu_seconds() - cpu) * 1000, 1)
        cost.peak_rss_bytes = _peak_rss_bytes()


def _cpu_seconds() -> float:
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + workers.ru_utime + workers.ru_stime


def _peak_rss_bytes() -> int:
    with suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# Dagster records versions but runs every requested asset; skipping is done here, by content. A
# stamp is written after its outputs, so a night killed anywhere leaves either a valid stamp or a
# stage that runs again.

_STAMP_TYPES = {"key": str, "outputs": dict, "rows": int, "facts": dict, "left": list}


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage's name, the version of its algorithm, and its output files."""

    name: str  # also the asset's
    version: str  # bumped with every change that may change its output
    outputs: tuple[str, ...] = ()  # paths relative to the work directory


@dataclass(frozen=True, slots=True)
class StageResult:
    """The result of a stage tonight."""

    name: str
    # Of its outputs, and of its facts if it has no output file: the input of later stages.
    digest: str
    reused: bool  # nothing had to be done
    rows: int  # in the artifact
    facts: dict[str, Any] = field(default_factory=dict)  # for the asset's metadata, JSON values
    cost: dict[str, float] = field(default_factory=dict)  # of tonight; and the artifact's size
    # Facts about tonight's run alone, none if nothing ran; never part of a digest.
    notes: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)  # facts of the run before this one


class StageOutput(NamedTuple):
    """The result of a body."""

    rows: int
    facts: dict[str, Any]  # stable for equal inputs
    notes: Mapping[str, Any] = MappingProxyType({})  # how much was computed, how much used again


Body = Callable[[], StageOutput]


def run_stage(
    work: Path, stage: Stage, inputs: Mapping[str, Any], body: Body, *, always: bool = False
) -> StageResult:
    """Run `body` unless the stage's stamp shows that its outputs come from exactly these inputs."""
    # Inputs are JSON values. With `always` it runs even if the stamp holds, for work that looks at
    # the outside world; `reused` is then whether outputs and facts came out the same.
    started = time.perf_counter()
    key = hash_json({"stage": stage.name, "version": stage.version, "inputs": dict(inputs)})
    stamp_path = work / "stamps" / f"{stage.name}.json"
    stamp = _read_stamp(stamp_path)
    held = (
        stamp is not None and stamp["key"] == key and stamp["outputs"] == _hash_outputs(work, stage)
    )
    if stamp is not None and held and not always:
        elapsed = {"wall_ms": round((time.perf_counter() - started) * 1000, 1)}
        return _result(work, stage, stamp, reused=True, cost=elapsed)
    stamp_path.unlink(missing_ok=True)
    before = _seen(work)
    with measure() as cost:
        rows, facts, notes = body()
    fresh = {"key": key, "outputs": _hash_outputs(work, stage), "rows": rows, "facts": facts}
    after, known = _seen(work), {} if stamp is None else stamp
    wrote = {name for name, seen in after.items() if before.get(name) != seen}
    # Whatever of these is damaged one day, this stage made it (noctuary.work.ledger).
    left = sorted(wrote | (set(known.pop("left", ())) & set(after)))
    told = {**fresh, "left": left}
    write_text(stamp_path, json.dumps(told, indent=1, sort_keys=True) + "\n")
    reused = held and fresh == stamp
    result = _result(work, stage, fresh, reused=reused, cost=asdict(cost))
    return replace(result, notes=dict(notes), before=known.get("facts", {}))


def load_result(work: Path, stage: Stage) -> StageResult | None:
    """Return the stored result of a stage; None if it has not run or its outputs changed."""
    stamp = _read_stamp(work / "stamps" / f"{stage.name}.json")
    if stamp is None or stamp["outputs"] != _hash_outputs(work, stage):
        return None
    return _result(work, stage, stamp, reused=True, cost={})


def forget_result(work: Path, stage: Stage) -> None:
    """Make the stage run again, for example because something outside of `work` was lost."""
    (work / "stamps" / f"{stage.name}.json").unlink(missing_ok=True)


def _result(
    work: Path, stage: Stage, stamp: dict[str, Any], *, reused: bool, cost: dict[str, float]
) -> StageResult:
    content = stamp["outputs"] or {"key": stamp["key"], "facts": stamp["facts"]}
    size = sum(tree_bytes(work / name) for name in stage.outputs)
    return StageResult(
        name=stage.name,
        digest=hash_json(content),
        reused=reused,
        rows=int(stamp["rows"]),
        facts=stamp["facts"],
        cost={**cost, "bytes_on_disk": size},
    )


def _read_stamp(path: Path) -> dict[str, Any] | None:
    try:
        stamp = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(stamp, dict):
        return None
    well_formed = all(isinstance(stamp.get(name), kind) for name, kind in _STAMP_TYPES.items())
    return stamp if well_formed else None


def _seen(work: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of every file that stages write, by name below the work directory."""
    found = ((path, path.stat()) for path in work.rglob("*") if path.is_file())
    names = ((path.relative_to(work).as_posix(), stat) for path, stat in found)
    return {
        name: (stat.st_ino, stat.st_mtime_ns)
        for name, stat in names
        if not name.startswith(("stamps/", "shards/"))
    }


def _hash_outputs(work: Path, stage: Stage) -> dict[str, str]:
    paths = {name: work / name for name in stage.outputs}
    return {name: hash_settled(path) for name, path in paths.items() if path.is_file()}


@dataclass(slots=True)
class BatchTimings:
    """Batches of a long scan in order (RFC 914, phase 14); times go into no digest."""

    offsets: list[int] = field(default_factory=list[int])
    rows: list[int] = field(default_factory=list[int])
    ms: list[float] = field(default_factory=list[float])

    def add(self, offset: int, rows: int, ms: float) -> None:
        """Append one batch."""
        self.offsets.append(offset)
        self.rows.append(rows)
        self.ms.append(round(ms, 2))

    def report(self) -> dict[str, Any]:
        """Return the RFC's object; without a batch, averages are 0 and the slowest is None."""
        slowest = max(zip(self.ms, self.offsets, strict=True), key=itemgetter(0), default=None)
        return {
            "total_ms": round(sum(self.ms), 2),
            "batches": len(self.ms),
            "batch_timings_ms": list(self.ms),
            "avg_batch_ms": round(sum(self.ms) / len(self.ms), 2) if self.ms else 0.0,
            "slowest_batch": slowest
            and {"index": self.ms.index(slowest[0]), "ms": slowest[0], "offset": slowest[1]},
        }

    def summary(self) -> dict[str, Any]:
        """Return the same without the list of times, and with the rows per second."""
        whole = self.report()
        del whole["batch_timings_ms"]
        seconds = sum(self.ms) / 1000
        return {**whole, "rows_per_s": round(sum(self.rows) / seconds) if seconds else None}


class TimedProgress:
    """Pass progress on, and time each report of a task as one batch."""

    def __init__(self, task: str, beyond: Progress = SILENT) -> None:
        self.timings = BatchTimings()
        self._task = task
        self._beyond = beyond
        self._done = 0
        self._since_s = time.perf_counter()

    def update(self, task: str, done: int, total: int) -> None:
        """Note the time since the last report of the task, and pass the report on."""
        if task == self._task:
            now_s = time.perf_counter()
            self.timings.add(self._done, done - self._done, (now_s - self._since_s) * 1000)
            self._done, self._since_s = done, now_s
        self._beyond.update(task, done, total)


def give_back() -> None:
    """Ask the C library and pyarrow to return unused memory, where supported."""
    # They keep freed memory for later, and the next stage's workers are other processes.
    if "pyarrow" in sys.modules:
        import pyarrow as pa

        pa.default_memory_pool().release_unused()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return  # not glibc
    trim(0)
