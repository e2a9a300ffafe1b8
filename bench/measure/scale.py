"""Whole nights on 10,000, 100,000 and 1,000,000 memories, and how their costs grow.

`python -m bench.measure scale [--stores DIR] [--sizes 10000 ...] [--limit-gb 6] [--keep]`

Every size is a night of its own on a store of synthetic memories (`corpus`), with the bundled model
cut to one layer (`cut_model`) under a limit of memory that the kernel holds, and then a night with
nothing new. What the bundled model costs is measured at the smallest size. An interrupted
measurement continues: sizes that have a result are kept, and a night takes up its own work.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.datasets import CHECKOUT
from bench.manifest import describe_run
from bench.measure.corpus import write_store
from bench.measure.cut_model import INTERMEDIATE, LAYERS, write_cut_model
from bench.measure.growth import exponent
from bench.measure.night import run_night
from bench.results import RESULTS_DIR, read_result, write_result
from noctuary.core.errors import SourceFormatError

SIZES = (10_000, 100_000, 1_000_000)
LIMIT_GB = 6.0
TOLD = {"OPENBLAS_NUM_THREADS": "1", "NOCTUARY_RUNNER_WORKERS": "0"}
STORES = CHECKOUT / "artifacts" / "scale"
RESULT = "scale.json"
MODEL_NAME = f"minilm-{LAYERS}-layer-{INTERMEDIATE}"

FITTED = ("wall_s", "cpu_s", "bytes_on_disk")
"""What of a stage is fitted over the sizes."""


def measure_size(size: int, root: Path, limit_bytes: int | None, *, keep: bool) -> dict[str, Any]:
    """Return what a first night, and one with nothing new, cost on so many memories."""
    source, store = root / str(size) / "memory.db", root / str(size) / "store"
    if not source.is_file():
        write_store(source, size)
    if not keep:
        shutil.rmtree(store, ignore_errors=True)
    model = root / MODEL_NAME
    if not model.is_dir():
        write_cut_model(model)
    told = {**TOLD, "NOCTUARY_ENCODER_MODEL": str(model)}
    first = run_night(source, store, told, limit_bytes=limit_bytes)
    second = run_night(source, store, told, limit_bytes=limit_bytes)
    return {"memories": size, "source_bytes": source.stat().st_size, "first": first,
            "nothing_new": second}  # fmt: skip


def measure_bundled(root: Path, limit_bytes: int | None) -> dict[str, Any]:
    """Return what embedding costs with the bundled model, whole, on the smallest size."""
    size = SIZES[0]
    source, store = root / str(size) / "memory.db", root / f"{size}-bundled"
    if not source.is_file():
        write_store(source, size)
    shutil.rmtree(store, ignore_errors=True)
    night = run_night(source, store, TOLD, limit_bytes=limit_bytes)
    return {"memories": size, **_stage({"first": night}, "memory_vectors")}


def fit_slopes(nights: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Return the exponent of every fitted cost of every stage, and of the whole night."""
    sizes = [night["memories"] for night in nights]
    found: dict[str, dict[str, float | None]] = {}
    names = [stage["name"] for stage in nights[-1]["first"]["stages"]]
    for name in names:
        stages = [_stage(night, name) for night in nights]
        found[name] = {
            field: _rounded(exponent(sizes, [stage.get(field, 0.0) for stage in stages]))
            for field in FITTED
        }
    whole = ("wall_s", "peak_pss_bytes", "peak_anonymous_bytes", "store_bytes")
    found["whole night"] = {
        field: _rounded(exponent(sizes, [night["first"][field] for night in nights]))
        for field in whole
    }
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every size that has no result yet and write scale.json; 1 means a night failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure scale", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--stores", type=Path, default=STORES, help="keeps sources and stores")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR)
    parser.add_argument("--limit-gb", type=float, default=LIMIT_GB, help="0: none")
    parser.add_argument("--keep", action="store_true", help="go on in stores that are there")
    options = parser.parse_args(arguments)
    path = options.out / RESULT
    known = _known(path)
    nights = {night["memories"]: night for night in known.get("nights", [])}
    root, limit = options.stores.absolute(), round(options.limit_gb * 2**30) or None
    try:
        bundled = known.get("bundled_model") or measure_bundled(root, limit)
        for size in options.sizes:
            nights[size] = measure_size(size, root, limit, keep=options.keep)
            _write(path, [nights[n] for n in sorted(nights)], bundled)
            print(f"{size:,} memories in {nights[size]['first']['wall_s']:,} s")
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _write(path: Path, nights: Sequence[dict[str, Any]], bundled: dict[str, Any]) -> None:
    document = {
        "kind": "scale",
        "manifest": describe_run(),
        "model": MODEL_NAME,
        "slopes": fit_slopes(nights),
        "bundled_model": bundled,
        "nights": list(nights),
    }
    write_result(path, document)


def _known(path: Path) -> dict[str, Any]:
    try:
        return read_result(path)
    except SourceFormatError:
        return {}


def _stage(night: dict[str, Any], name: str) -> dict[str, Any]:
    return next((s for s in night["first"]["stages"] if s["name"] == name), {})


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
