"""commits.md: this commit beside an older one, from commits.json."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.measure.commits import EMBEDDING, SYNTHETIC
from bench.results import read_results
from bench.tables.markdown import Row, commits, number, pair, table

_ASKED = """## Question

What do a night, a prompt and an installation take, beside commit {against}? Both commits were
cloned and took turns on one machine ({machine}). Cells hold *older / this commit* (medians of
{runs} runs), columns with an x the ratio of both. CPU counts all processes, peak is memory of the
largest (at least some 60 MB, those of the bench), disk the store or what pip installed. `nights`
read a set without its questions; a `synthetic` set has made-up memories, and a model of one thin
layer embeds them."""

_STAGES = """## Stages

CPU seconds of the stages that take at least {least} s. The rest is Dagster, imports and the
ledger. The last row divides a first night by its embedding alone (`{embedding}`)."""

_HOOKS = """## Hooks

Milliseconds of whole processes, p50 / p95, and how many times those of `python -c pass`."""

_LEAST_S = 0.5

_SIDES = ("before", "now")


def write_commits(directory: Path) -> Iterator[str]:
    """Yield the blocks for the commits file of a directory."""
    for found in read_results(directory, "commits"):
        parts: Mapping[str, Any] = found["parts"]
        manifests = [part["manifest"] for part in parts.values()]
        against = dict.fromkeys(manifest["against"][:12] for manifest in manifests)
        runs = dict.fromkeys(str(manifest["runs"]) for manifest in manifests)
        yield _ASKED.format(
            against=", ".join(against), runs=", ".join(runs), machine=manifests[0]["machine"]
        )
        takers = _takers(parts)
        yield table(_whole(name, sides) for name, sides in takers.items())
        if told := [of["how"] for of in parts.get("install", {}).values() if "how" in of]:
            yield f"Installing was `{told[0]}` and `{told[-1]}`, pip itself not counted."
        staged = {name: sides for name, sides in takers.items() if "stages" in sides[0]}
        nights = {name: s for name, s in staged.items() if not name.startswith(SYNTHETIC)}
        if nights:
            yield _STAGES.format(least=_LEAST_S, embedding=EMBEDDING)
            yield table(_stages(nights))
        hooks = {name: part for name, part in parts.items() if name.endswith(": hooks")}
        if hooks:
            yield _HOOKS
            yield table(row for name, part in hooks.items() for row in _hooks(name, part))
        yield commits(parts.values())


def _takers(parts: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what took CPU on both sides, by name; the nights of one part each by its own."""
    found: dict[str, tuple[Any, Any]] = {}
    for name, part in parts.items():
        before, now = (part[side] for side in _SIDES)
        if "cpu_s" in before:
            found[name] = before, now
        elif not name.endswith(": hooks"):
            found |= {f"{name}, {night}": (before[night], now[night]) for night in before}
    return found


def _whole(name: str, sides: tuple[Any, Any]) -> Row:
    row = {"what": name}
    disk = "store_bytes" if "store_bytes" in sides[0] else "installed_bytes"
    for said, key, unit in (
        ("CPU s", "cpu_s", 1),
        ("wall s", "wall_s", 1),
        ("peak MB", "peak_rss_bytes", 1e6),
        ("disk MB", disk, 1e6),
    ):
        before, now = (side.get(key, 0.0) / unit for side in sides)
        row[said] = _both((before, now), 1 if unit == 1 else 0) if before else ""
        row[f"x {said.split()[0]}"] = number(now / before, 2) if before else ""
    return row


def _stages(nights: Mapping[str, tuple[Any, Any]]) -> Iterator[Row]:
    names = dict.fromkeys(s for sides in nights.values() for side in sides for s in side["stages"])
    for stage in (*names, ""):
        rows = {night: [_cpu(side, stage) for side in sides] for night, sides in nights.items()}
        if max(value for values in rows.values() for value in values) >= _LEAST_S:
            shown = {night: _both(values, 1) for night, values in rows.items()}
            yield {"stage": stage or "the rest", **shown}
    times = {
        night: _both([side["cpu_s"] / _cpu(side, EMBEDDING) for side in sides], 2)
        if all(EMBEDDING in side["stages"] for side in sides) and " new" not in night
        else ""
        for night, sides in nights.items()
    }
    yield {"stage": "night / embedding", **times}


def _cpu(night: Mapping[str, Any], stage: str) -> float:
    stages = night["stages"]
    if stage:
        return stages.get(stage, {}).get("cpu_s", 0.0)
    return night["cpu_s"] - sum(of["cpu_s"] for of in stages.values())


def _hooks(name: str, part: Mapping[str, Any]) -> Iterator[Row]:
    for kind in part["now"]:
        row = {"process": f"{name}, {kind}"}
        for side in _SIDES:
            of, bare = part[side][kind], part[side]["bare"]
            times = {key: of[key] / bare[key] for key in ("p50_ms", "p95_ms")}
            row |= {f"{side}, ms": pair(of), f"{side}, x bare": pair(times)}
        yield row


def _both(values: Iterable[float], digits: int) -> str:
    return " / ".join(number(value, digits) for value in values)
