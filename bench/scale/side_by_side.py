"""Nights of a small store before and after a change, by turns, on one machine."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench.children import ONE_THREAD
from bench.datasets import CHECKOUT
from bench.results import write_result
from bench.scale.corpus import write_store
from noctuary.evaluate.statistics import mean_interval

SIDES = ("before", "now")
NIGHTS = ("first", "unchanged")
_WARM_ROWS = 100
"""Memories of a night that is not counted: it leaves the libraries compiled and in the page
cache."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one night took: its process and every process that it waited for.

    Attributes:
        wall_s: From its start to its end.
        cpu_s: User and system time.
        snapshot: Start of the digest of what serves afterwards.
    """

    wall_s: float
    cpu_s: float
    snapshot: str


def run_night(checkout: Path, source: Path, store: Path, model: str | None) -> Cost:
    """Run a night of a checkout in a process of its own.

    Raises:
        RuntimeError: It failed, or ran another checkout's code.
    """
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("NOCTUARY_", "DAGSTER"))
    }
    paths = [str(checkout / name) for name in ("lib", "assets", "pipelines", "")]
    # Compiled modules are kept, as they are wherever noctuary is installed.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment |= {**ONE_THREAD, "PYTHONPATH": os.pathsep.join(paths)}
    environment["NOCTUARY_HOME"] = str(store.parent)
    if model is not None:
        environment["NOCTUARY_ENCODER_MODEL"] = model
    command = [
        sys.executable,
        "-m",
        "noctuary.cli.entry",
        "nightly",
        str(source),
        "--store",
        str(store),
    ]
    before, started = _children_s(), time.perf_counter()
    done = subprocess.run(
        [*command, "--json"], cwd=checkout, env=environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    wall_s, cpu_s = time.perf_counter() - started, _children_s() - before
    if done.returncode != 0:
        said = f"{done.stdout[-1000:]}{done.stderr[-1000:]}"
        raise RuntimeError(f"a night of {checkout} ended with {done.returncode}: {said}")
    return Cost(
        round(wall_s, 2), round(cpu_s, 2), json.loads(done.stdout)["snapshot_id"].rpartition("-")[2]
    )


def code_of(checkout: Path) -> Path:
    """Return where a checkout's night takes noctuary from."""
    path = f"{checkout / 'lib'}{os.pathsep}{checkout}"
    words = [sys.executable, "-c", "import noctuary; print(noctuary.__file__)"]
    environment = {**os.environ, "PYTHONPATH": path}
    said = subprocess.check_output(words, env=environment, cwd=checkout, text=True)
    return Path(said.strip()).parent


def measure(
    checkouts: dict[str, Path], source: Path, rounds: int, model: str | None, directory: Path
) -> dict[str, dict[str, list[Cost]]]:
    """Return the costs by side and night; who goes first changes with every round."""
    found = {side: {night: list[Cost]() for night in NIGHTS} for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 == 0 else SIDES[::-1]:
            store = directory / f"{side}-{number}" / "store"
            store.parent.mkdir()
            for night in NIGHTS:
                cost = run_night(checkouts[side], source, store, model)
                found[side][night].append(cost)
                click.echo(f"{number} {side:<6} {night:<9} {cost.wall_s:8.2f} s  {cost.cpu_s:.2f}")
    return found


def compare(found: dict[str, dict[str, list[Cost]]]) -> dict[str, dict[str, Any]]:
    """Return medians of each side and the ratio now / before, by night; CPU and wall.

    A ratio is the geometric mean of those of the rounds, whose nights lay next to each other; its
    interval is the paired bootstrap over rounds, None for fewer than two.
    """
    compared: dict[str, dict[str, Any]] = {}
    for night in NIGHTS:
        row: dict[str, Any] = {}
        for unit in ("cpu_s", "wall_s"):
            sides = {
                side: np.array([getattr(c, unit) for c in found[side][night]]) for side in SIDES
            }
            row |= {f"{s}_{unit}": round(float(np.median(v)), 2) for s, v in sides.items()}
            logs = np.log(sides["now"] / sides["before"])
            interval = mean_interval(logs)
            kind = unit[:-2]
            row[f"{kind}_ratio"] = _ratio(float(logs.mean()))
            row[f"{kind}_ratio_low"] = interval and _ratio(interval.low)
            row[f"{kind}_ratio_high"] = interval and _ratio(interval.high)
        compared[night] = row
    return compared


def _ratio(log: float) -> float:
    return round(math.exp(log), 3)


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@click.command()
@click.option("--before", required=True, type=click.Path(path_type=Path), help="Checkout before.")
@click.option("--size", default=5_000, show_default=True, help="Memories.")
@click.option("--rounds", default=3, show_default=True, help="First nights of each side.")
@click.option("--model", help="The encoder's directory [default: the configured one].")
@click.option("--to", required=True, type=click.Path(path_type=Path), help="JSON file to write.")
def main(before: Path, size: int, rounds: int, model: str | None, to: Path) -> None:
    """Run nights of this checkout and of BEFORE by turns and compare what they cost."""
    checkouts = {"before": before.absolute(), "now": CHECKOUT}
    for checkout in checkouts.values():
        if not code_of(checkout).is_relative_to(checkout):
            raise click.ClickException(f"{checkout} does not run its own code")
    with tempfile.TemporaryDirectory(prefix="noctuary-side-") as name:
        directory = Path(name)
        source, warm = directory / "memory.db", directory / "warm.db"
        write_store(source, size)
        write_store(warm, _WARM_ROWS)
        for side, checkout in checkouts.items():
            (directory / f"warm-{side}").mkdir()
            run_night(checkout, warm, directory / f"warm-{side}" / "store", model)
        found = measure(checkouts, source, rounds, model, directory)
    result: dict[str, Any] = {
        "kind": "side_by_side",
        "memories": size,
        "rounds": rounds,
        "model": Path(model).name if model else "default",
        "same_snapshot": len({c.snapshot for s in SIDES for c in found[s]["first"]}) == 1,
        "compared": compare(found),
        "nights": {
            side: {night: [asdict(c) for c in costs] for night, costs in by_night.items()}
            for side, by_night in found.items()
        },
    }
    write_result(to, result)
    click.echo(json.dumps(result["compared"], indent=1))


if __name__ == "__main__":
    main()
