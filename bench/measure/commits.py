"""This commit and an older one by turns: nights by stage, hooks, and what installing takes.

`python -m bench.measure commits --against COMMIT [--only PART ...] [--sets locomo] [--out FILE]`

Both are cloned, so only what is committed is measured, and run with the libraries of this
environment (--libraries-of for others that the older commit needs). The parts `install` and `clone`
run only when named: pip fills their own environments, and a first round that warms its cache does
not count. A part that is measured again replaces its result in the file; the others stay. The set
`synthetic-100000` has so many made-up memories and no labels, and a model of one thin layer: take
it with --only nights.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.children import wait_for
from bench.datasets import CHECKOUT, Dataset, find_shared, open_dataset
from bench.manifest import describe_run
from bench.measure.corpus import write_store
from bench.measure.cut_model import write_cut_model
from bench.measure.hooks import ROUNDS, measure_hooks
from bench.measure.night import run_night
from bench.results import RESULTS_DIR, read_result, write_result
from noctuary.core.files import tree_bytes
from noctuary.evaluate.labels import read_queries

EMBEDDING = "memory_vectors"
NEW = 50
"""Memories of a day that come between two nights."""
SYNTHETIC = "synthetic-"
FIELDS = ("id", "content", "category", "tags", "importance", "created_at")
MODEL = "model"


@dataclass(frozen=True, slots=True)
class Side:
    """A commit, cloned into a folder of its own, and what runs it.

    Attributes:
        name: "before" or "now".
        commit: Its full id.
        folder: Holds the clone and all that the commit writes.
        needs: What its README has pip install before it.
    """

    name: str
    commit: str
    folder: Path
    needs: Sequence[str] = ()

    @property
    def checkout(self) -> Path:
        """The clone."""
        return self.folder / "checkout"

    @property
    def python(self) -> str:
        """Its interpreter; the program `noctuary` lies beside it."""
        return str(self.folder / "venv" / "bin" / "python")


# The parts: each measures one side once.


def measure_sample(side: Side, _: Path) -> dict[str, Any]:
    """Return what a first night on the sample takes."""
    return _night(side, None, _empty(side.folder / "sample"))


def measure_nights(side: Side, source: Path) -> dict[str, Any]:
    """Return what nights without labels take: a first one, one with new memories, one without."""
    home = _empty(side.folder / source.name)
    lines = gzip.decompress((source / "corpus.jsonl.gz").read_bytes()).splitlines(keepends=True)
    own, found = home / "corpus.jsonl.gz", dict[str, Any]()
    for name, shown in (("first", lines[:-NEW]), (f"{NEW} new", lines), ("nothing new", lines)):
        if name != "nothing new":
            own.write_bytes(gzip.compress(b"".join(shown)))
        found[name] = _night(side, own, home, source / MODEL)
    return found


def measure_labels(side: Side, source: Path) -> dict[str, Any]:
    """Return what a first night with labels takes."""
    return _night(side, source, _empty(side.folder / "labels"))


def measure_install(side: Side, _: Path) -> dict[str, Any]:
    """Return what pip takes for the wheel with [pipelines] in an empty environment."""
    wheels, environment = _empty(side.folder / "wheel"), _empty(side.folder / "installed")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    _call(build, side.checkout)
    _call([sys.executable, "-m", "venv", "--without-pip", str(environment)])
    (wheel,), empty = wheels.iterdir(), tree_bytes(environment)
    python = str(environment / "bin" / "python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    asked = [*([list(side.needs)] if side.needs else []), [f"{wheel}[pipelines]"]]
    return {
        **_spend([[*pip, *words] for words in asked], side.folder, {}),
        "installed_bytes": tree_bytes(environment) - empty,
        "how": "; ".join(f"pip install {Path(' '.join(words)).name}" for words in asked),
    }


def measure_clone(side: Side, _: Path) -> dict[str, Any]:
    """Return what `make nightly` takes in a fresh clone."""
    fresh, home = _empty(side.folder / "clone"), _empty(side.folder / "home")
    _clone(side.commit, fresh)
    base = f"BASE_PYTHON={Path(sys.base_prefix) / 'bin' / 'python3'}"
    taken = _spend([["make", "nightly", base]], fresh, {"NOCTUARY_HOME": str(home)})
    sizes = {"installed_bytes": tree_bytes(fresh / ".venv"), "home_bytes": tree_bytes(home)}
    return {**taken, **sizes}


def compare_hooks(sides: Sequence[Side], source: Path, rounds: int) -> dict[str, Any]:
    """Return by side the waits for hooks over its store of a set."""
    stores = {side.name: (side.python, side.folder / source.name / "store") for side in sides}
    for side in sides:
        if not stores[side.name][1].is_dir():  # the part `nights` was not asked for
            _night(side, source / "corpus.jsonl.gz", _empty(side.folder / source.name))
    prompts = [query.text for query in read_queries(source / "queries.jsonl").ranked]
    return measure_hooks(stores, prompts, rounds)


def _night(
    side: Side, source: Path | None, home: Path, model: Path | None = None
) -> dict[str, Any]:
    """Return what a night takes, whole and by stage that had something to do."""
    told = {"NOCTUARY_HOME": str(home)}
    if model is not None and model.is_dir():
        told["NOCTUARY_ENCODER_MODEL"] = str(model)
    night = run_night(source, home / "store", told, python=side.python)
    kept = ("cpu_s", "wall_s", "peak_rss_bytes", "peak_pss_bytes", "store_bytes")
    stages = {
        stage["name"]: {
            "cpu_s": stage["cpu_s"],
            "wall_s": stage["wall_s"],
            "peak_rss_bytes": stage["driver_peak_rss_bytes"],
            "rows": stage["rows"],
        }
        for stage in night["stages"]
        if not stage["reused"]
    }
    return {**{name: night[name] for name in kept}, "stages": stages}


def _spend(commands: Sequence[Sequence[str]], cwd: Path, told: Mapping[str, str]) -> dict[str, Any]:
    environ = {n: v for n, v in os.environ.items() if n not in ("MAKEFLAGS", "VIRTUAL_ENV")}
    cpu_s, started = 0.0, time.perf_counter()
    for words in commands:
        child = subprocess.Popen(words, cwd=cwd, env={**environ, **told}, stdout=subprocess.DEVNULL)
        cpu_s += wait_for(child)["cpu_s"]
        if child.returncode:
            raise RuntimeError(f"{' '.join(words)} ended with {child.returncode}")
    return {"cpu_s": round(cpu_s, 2), "wall_s": round(time.perf_counter() - started, 1)}


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _call(words: Sequence[str], cwd: Path = CHECKOUT) -> str:
    return subprocess.run(words, cwd=cwd, check=True, stdout=subprocess.PIPE, text=True).stdout


def _clone(commit: str, into: Path) -> None:
    _call(["git", "clone", "--quiet", "--no-checkout", str(CHECKOUT), str(into)])
    _call(["git", "checkout", "--quiet", "--detach", commit], into)


# By turns.


Part = Callable[[Side, Path], dict[str, Any]]

OF_A_SET = ("nights", "hooks", "labels")
BY_PIP = ("install", "clone")
PARTS = ("sample", *OF_A_SET, *BY_PIP)


def take_turns(sides: Sequence[Side], measure: Part, source: Path, runs: range) -> dict[str, Any]:
    """Return by side the medians of its runs; a run below 0 warms up and does not count."""
    found: dict[str, list[dict[str, Any]]] = {side.name: [] for side in sides}
    for run in runs:
        for side in sides:
            one = measure(side, source)
            if run >= 0:
                found[side.name].append(one)
    return {name: middle(each) for name, each in found.items()}


def middle(found: Sequence[Any]) -> Any:
    """Return the medians of numbers at equal places of some objects; of the rest the first."""
    first = found[0]
    if isinstance(first, dict):
        return {key: middle([each[key] for each in found if key in each]) for key in first}
    return round(statistics.median(found), 3) if isinstance(first, (int, float)) else first


def prepare(side: Side, libraries_of: str) -> Side:
    """Clone the commit and make an environment that has it, and the libraries of another Python."""
    _clone(side.commit, side.checkout)
    environment = side.folder / "venv"
    _call([libraries_of, "-m", "venv", "--without-pip", str(environment)])
    told = "import sys; print(*[p for p in sys.path if p.endswith('-packages')], sep='\\n')"
    own = [str(side.checkout / room) for room in ("lib", "assets", "pipelines", ".")]
    (site,) = environment.glob("lib/python*/site-packages")
    libraries = _call([libraries_of, "-c", told])
    (site / "noctuary.pth").write_text("\n".join([*own, libraries]), encoding="utf-8")
    program = Path(side.python).with_name("noctuary")
    calls = "import sys\nfrom noctuary.cli.entry import main\n\nsys.exit(main())\n"
    program.write_text(f"#!{side.python}\n{calls}", encoding="utf-8")
    program.chmod(0o755)
    _call([side.python, "-m", "compileall", "-q", *own[:3]])
    return side


def write_source(dataset: Dataset, folder: Path, rows: int | None) -> Path:
    """Write the first rows of a set, and the queries that they answer; return the folder."""
    lines = gzip.decompress(dataset.corpus.read_bytes()).splitlines(True)[:rows]
    known = {json.loads(line)["id"] for line in lines}
    queries = dataset.queries.read_text(encoding="utf-8").splitlines(True)
    kept = [line for line in queries if known.issuperset(json.loads(line)["relevant_ids"])]
    folder.mkdir(parents=True)
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(b"".join(lines)))
    (folder / "queries.jsonl").write_text("".join(kept), encoding="utf-8")
    return folder


def write_synthetic(size: int, folder: Path) -> Path:
    """Write so many made-up memories, and the model that embeds them; return the folder."""
    write_store(folder / "memory.db", size)
    write_cut_model(folder / MODEL)
    with closing(sqlite3.connect(folder / "memory.db")) as db:
        db.row_factory = sqlite3.Row
        rows = db.execute(f"SELECT {', '.join(FIELDS)} FROM memories ORDER BY id")
        lines = "".join(json.dumps(dict(row)) + "\n" for row in rows)
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the parts and write each when it is done; 2 means that the sets are not there."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure commits", description=__doc__)
    parser.add_argument("--against", required=True, metavar="COMMIT", help="the older one")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:-2], metavar="PART",
                        help=f"{', '.join(PARTS)}; default: all but the last two")  # fmt: skip
    parser.add_argument("--sets", nargs="+", default=["locomo"])
    parser.add_argument("--rows", type=int, help="of a set; default: all")
    parser.add_argument("--runs", type=int, default=2, help="of each side")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="hook processes of each kind")
    parser.add_argument("--libraries-of", default=sys.executable, metavar="PYTHON",
                        help="what the older one runs with; default: this Python")  # fmt: skip
    parser.add_argument("--needs", nargs="+", default=[], metavar="REQUIREMENT",
                        help="what pip installs before the older one")  # fmt: skip
    parser.add_argument("--out", type=Path, default=RESULTS_DIR / "commits.json")
    options = parser.parse_args(arguments)
    shared = find_shared() or Path()
    sets = options.sets if {*OF_A_SET} & {*options.only} else []
    if sets and shared == Path():
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    # An installed package is compiled, and no path comes before the clones.
    for variable in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
        os.environ.pop(variable, None)
    parts = read_result(options.out)["parts"] if options.out.is_file() else {}
    with tempfile.TemporaryDirectory(prefix="noctuary-commits-") as temporary:
        root = Path(temporary)
        before, now = (
            _call(["git", "rev-parse", f"{commit}^{{commit}}"]).strip()
            for commit in (options.against, "HEAD")
        )
        sides = (
            prepare(Side("before", before, root / "before", options.needs), options.libraries_of),
            prepare(Side("now", now, root / "now"), sys.executable),
        )
        sources = [
            write_synthetic(int(name.removeprefix(SYNTHETIC)), root / name)
            if name.startswith(SYNTHETIC)
            else write_source(open_dataset(shared / "data" / name), root / name, options.rows)
            for name in sets
        ]
        for part in (part for part in PARTS if part in options.only):
            for source in sources if part in OF_A_SET else [root]:
                name = f"{source.name}: {part}" if part in OF_A_SET else part
                manifest = {**describe_run(), "commit": now, "dirty": False, "against": before}
                started = time.monotonic()
                found = _compare(part, sides, source, options)
                parts[name] = {"manifest": {**manifest, "runs": options.runs}, **found}
                write_result(options.out, {"kind": "commits", "parts": parts})
                print(f"{name}: {time.monotonic() - started:.0f} s", flush=True)
    return 0


def _compare(
    part: str, sides: Sequence[Side], source: Path, options: argparse.Namespace
) -> dict[str, Any]:
    if part == "hooks":
        return compare_hooks(sides, source, options.rounds)
    measure: Part = globals()[f"measure_{part}"]
    return take_turns(sides, measure, source, range(-(part in BY_PIP), options.runs))
