"""Stages: run a body only when its inputs, its code or its outputs differ from what its stamp says.

Dagster records versions but runs everything it is asked to; skipping is done here, by content. A
stamp is written after its outputs, so a night killed anywhere leaves either a valid stamp or a
stage that runs again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from noctuary.files import tree_bytes, write_text
from noctuary.hashing import hash_json
from noctuary.work.cost import measure
from noctuary.work.settled import hash_settled

_STAMP_TYPES = {"key": str, "outputs": dict, "rows": int, "facts": dict, "left": list}


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage is called, which version of its algorithm this is, and what it writes.

    Attributes:
        name: Also the asset's name.
        version: Bumped with every change that may change its output.
        outputs: Paths relative to the work directory.
    """

    name: str
    version: str
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage did tonight.

    Attributes:
        digest: Digest of its outputs (and of its facts, where it has no output file): the input of
            what follows.
        reused: True when nothing had to be done.
        facts: Counts and notes for the asset's metadata, JSON values only.
        rows: Rows in the artifact.
        cost: wall_ms, cpu_ms, peak_rss_bytes of tonight; bytes_on_disk of the artifact.
        notes: What is only true of tonight's run; never part of a digest.
    """

    name: str
    digest: str
    reused: bool
    rows: int
    facts: dict[str, Any] = field(default_factory=dict)
    cost: dict[str, float] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)

    def with_notes(self, **notes: Any) -> StageResult:
        """Return the result with what only tonight's run knows (how much was computed.

        How much re-used).
        """
        return replace(self, notes={**self.notes, **notes})


Body = Callable[[], tuple[int, dict[str, Any]]]
"""Does the work and returns the row count and facts.

Everything in the facts must be stable for equal inputs.
"""


def run_stage(
    work: Path, stage: Stage, inputs: Mapping[str, Any], body: Body, *, always: bool = False
) -> StageResult:
    """Run `body` unless the stage's stamp shows that its outputs come from exactly these inputs.

    Args:
        work: The work directory.
        stage: The stage.
        inputs: Digests and settings that the outputs depend on, JSON values.
        body: The work.
        always: Run even if the stamp holds, for work that is its own comparison with the outside
            world; `reused` then says whether the outputs and facts came out as they were.

    Returns:
        The result, with `reused` set when the stamp held.
    """
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
        rows, facts = body()
    fresh = {"key": key, "outputs": _hash_outputs(work, stage), "rows": rows, "facts": facts}
    after, known = _seen(work), {} if stamp is None else stamp
    wrote = {name for name, seen in after.items() if before.get(name) != seen}
    # Whatever of these is damaged one day, this stage made it (noctuary.night.ledger).
    left = sorted(wrote | (set(known.pop("left", ())) & set(after)))
    told = {**fresh, "left": left}
    write_text(stamp_path, json.dumps(told, indent=1, sort_keys=True) + "\n")
    return _result(work, stage, fresh, reused=held and fresh == stamp, cost=cost.to_json())


def load_result(work: Path, stage: Stage) -> StageResult | None:
    """Return what a stage left on disk.

    Or None if it has not run or its outputs were changed since.
    """
    stamp = _read_stamp(work / "stamps" / f"{stage.name}.json")
    if stamp is None or stamp["outputs"] != _hash_outputs(work, stage):
        return None
    return _result(work, stage, stamp, reused=True, cost={})


def forget_result(work: Path, stage: Stage) -> None:
    """Make the stage run again.

    For example because something outside the work directory was lost.
    """
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
