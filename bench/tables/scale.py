"""scale.md: nights and recalls from ten thousand memories to a million, from scale*.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.measure.growth import (
    CORE_HOUR_USD,
    CORES_IN_USE,
    GPU_HOUR_USD,
    GPU_ROWS_PER_S,
    LEAST_SECONDS,
    MACHINE_CORES,
    MACHINES,
    PLANNED,
    gpu_hours,
    plan_stages,
    totals,
)
from bench.results import read_results
from bench.tables.markdown import Row, commits, number, pair, table

MB, GB = 2**20, 2**30

_ASKED = """## Question

How do time, memory and disk grow with the store? We ran nights on synthetic memories with the words
and lengths of realmem and locomo, 2 workers, under {held}. The encoder was {model}, the bundled
model cut to one thin layer. CPU counts all processes; memory counts shared pages once.
[scale.md](../scale.md) explains the figures.

## Whole nights"""

_STAGES = """## Stages

Stages of a second or more at {largest} memories; CPU, memory and bytes are of that size. With the
bundled model `memory_vectors` took {cpu:.0f} CPU s for {memories:,} memories ({each:.1f} ms each):
a million would take {hours:.1f} core hours (extrapolated)."""

_READING = """## Recall on these stores

We asked the snapshots of these nights {questions} questions ({question}). One warm process answered
at k = 10, with one BLAS thread and the one-step graph walk. *Own* memory is not mapped from files.
A fresh process starts, recalls once and ends."""

_PLAN = f"""## Past it, on paper

Extrapolated, nothing of it was run. Each cost starts at the largest measured size and grows as it
did between the two largest nights, at least in proportion. Stages that work row by row are divided
over {MACHINE_CORES}-core machines at {CORES_IN_USE:.0%} use; the others keep the wall time of the
two measured cores. `memory_vectors` is planned with the bundled model. A core hour costs
${CORE_HOUR_USD:.2f}; a GPU embeds {GPU_ROWS_PER_S:,.0f} rows/s at ${GPU_HOUR_USD:.2f} an hour."""

_LIMITS = """## Limits

- The corpus is synthetic; real names and links may grow otherwise.
- `json/scale.json` has short stages and exponents, `json/scale-reading.json` the steps of a recall;
  its dense engines side by side were measured with `bench/scale` of commit 49628725.
- `bench/measure/growth.py` computes the planned stages."""


def write_scale(directory: Path) -> Iterator[str]:
    """Yield the blocks for the scale files of a directory."""
    for found in read_results(directory, "scale"):
        readings = read_results(directory, "scale-reading")
        yield from _measured(found)
        for reading in readings:
            yield _READING.format(**reading["stores"][-1])
            yield table(map(_recall, reading["stores"]))
        yield _PLAN
        yield table(_plan(found, size) for size in PLANNED)
        yield _LIMITS
        yield commits([found, *readings])


def _measured(found: Mapping[str, Any]) -> Iterator[str]:
    nights: Sequence[Mapping[str, Any]] = found["nights"]
    largest, bundled = nights[-1], found["bundled_model"]
    limit = largest["first"]["limit_bytes"]
    held = f"a control group of {limit / GB:.0f} GB (page cache included)" if limit else "no limit"
    yield _ASKED.format(held=held, model=found["model"])
    yield table(map(_night, nights))
    each = bundled["cpu_s"] / bundled["memories"]
    yield _STAGES.format(
        largest=f"{largest['memories']:,}", cpu=bundled["cpu_s"], memories=bundled["memories"],
        each=1000 * each, hours=each * 1e6 / 3600,
    )  # fmt: skip
    stages = sorted(largest["first"]["stages"], key=lambda stage: -stage["wall_s"])
    yield table(_stage(stage, found) for stage in stages if stage["wall_s"] >= LEAST_SECONDS)


def _night(night: Mapping[str, Any]) -> Row:
    first = night["first"]
    sizes = {
        "peak memory, GB": first["peak_pss_bytes"],
        "of it no mapped file": first["peak_anonymous_bytes"],
        "group's peak, GB": first["group_peak_bytes"],
        "source, GB": night["source_bytes"],
        "store, GB": first["store_bytes"],
    }
    return {
        "memories": f"{night['memories']:,}",
        "first night, min": number(first["wall_s"] / 60, 1),
        "nothing new, min": number(night["nothing_new"]["wall_s"] / 60, 1),
        **{said: "" if size is None else number(size / GB, 2) for said, size in sizes.items()},
    }


def _stage(stage: Mapping[str, Any], found: Mapping[str, Any]) -> Row:
    name, memory = stage["name"], stage.get("peak_pss_bytes")
    walls = {
        f"{night['memories']:,}: wall s": number(s["wall_s"], 1)
        for night in found["nights"]
        for s in night["first"]["stages"]
        if s["name"] == name
    }
    return {
        "stage": name,
        **walls,
        "CPU s": number(stage["cpu_s"], 1),
        "memory, GB": "" if memory is None else number(memory / GB, 2),
        "bytes left, MB": number(stage["bytes_on_disk"] / MB),
        "exponent of CPU": number(found["slopes"][name]["cpu_s"], 2),
    }


def _recall(store: Mapping[str, Any]) -> Row:
    warm = store["warm"]["walk"]
    return {
        "memories": f"{store['memories']:,}",
        "p50 / p95 ms": pair(warm["recall"]),
        "CPU p50, ms": number(warm["recall_cpu"]["p50_ms"], 1),
        "resident, MB": number(warm["memory_mb"]["Rss"]),
        "own, MB": number(warm["memory_mb"]["Pss_Anon"]),
        "fresh process, ms": number(store["fresh"]["cached"]["median_ms"]),
    }


def _plan(found: Mapping[str, Any], size: int) -> Row:
    stages = plan_stages(found, size)
    night = totals(stages)
    return {
        "memories": f"{size:,}",
        "machines": str(MACHINES[size]),
        "core hours": number(night.core_hours, 1),
        "hours": number(night.hours, 1),
        "GB left": number(night.bytes_on_disk / GB, 1),
        "USD": number(night.usd, 2),
        "longest stage": "".join(f"{s.name}, {s.hours:,.1f} h" for s in stages[:1]),
        "GPU hours to embed instead": number(gpu_hours(size), 1),
        "USD for that": number(gpu_hours(size) * GPU_HOUR_USD),
    }
