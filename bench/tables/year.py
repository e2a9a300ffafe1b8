"""year.md: what grows over a year of nights although the store does not, from year.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import commits, number, table

_UNITS = {
    "rss_bytes": ("MiB of memory", 2**-20, 1),
    "bytes": ("KiB", 2**-10, 0),
    "cpu_s": ("CPU s", 1, 2),
    "wall_s": ("wall s", 1, 2),
    "cpu_ms": ("CPU ms per recall", 1, 2),
    "wall_ms": ("wall ms", 1, 1),
}
"""By the end of a series' name: what it is called, a factor, digits."""

_WHY = {
    "forgotten.json": "by design: a digest of every memory that was forgotten, for good",
    "receipts": "by design: one for every forgetting",
    "hooks": "the journal: 8 MB at most",
    "turns.sqlite": "by design: ids of forgotten turns, so that none is read again",
    "write-ahead logs": "4 MB each at most, while a process reads",
}
"""Of parts of the home that grow: why."""

_ASKED = """## Question

The source keeps its size all year: {memories} memories, of which two are new, two go and one is
edited every day. An agent has a session a day whose transcript goes after four weeks. Somebody
recalls, remembers, and every two weeks forgets what is older than four weeks. On day {altered_on}
a column joins the table. What grows all the same?

We lived {nights} nights ({published} published) and {forgettings} forgettings, with a clock that
jumps a day at a time for every process and for the time of every file. One process asks 20
questions a day, and one warm server serves the hooks; both live all year. To save time, nights are
forks of a process that has the libraries, the evaluation is off, and the encoder is a tiny one with
random weights: how times grow is measured here, not how long they are."""

_SLOPES = """## Growth per year

Theil and Sen's slope over days {first} to {nights}, when every retention is full, as a share of the
median, with its 95 % interval. A series creeps if the interval's lower end is above 5 %."""

_REBUILDS = """## Against a rebuild

On {count} days drawn at random ({days}) we also built a home from nothing but the same sources, the
own store, the kept turns and the records of what was injected and forgotten. {equal} of {count}
snapshots had the same digest."""


def write_year(directory: Path) -> Iterator[str]:
    """Yield the blocks for the year's file of a directory."""
    for found in read_results(directory, "year"):
        told = {**found, "published": found["statuses"].get("published", 0)}
        yield _ASKED.format_map(told)
        yield _SLOPES.format(first=found["warm_up_days"] + 1, nights=found["nights"])
        yield table(_row(name, of) for name, of in found["series"].items() if _is_shown(of))
        yield _rebuilds(found["rebuilds"])
        yield commits([found])


def _is_shown(of: Mapping[str, Any]) -> bool:
    """Tell whether a series has anything to say: some files never change."""
    return of["first"] != of["last"] or of["low"] != of["high"]


def _row(name: str, of: Mapping[str, Any]) -> Mapping[str, str]:
    what, _, unit = name.rpartition(", ")
    called, factor, digits = _UNITS.get(unit, (unit, 1, 0)) if what else ("", 1, 0)
    return {
        "series": f"{what}, {called}" if what else name,
        "median": number(of["median"] * factor, digits),
        "growth per year": f"{of['growth']:+.1%} [{of['low']:+.1%}, {of['high']:+.1%}]",
        "creeps": ("yes" if of["creeps"] else "") + (f": {_WHY[what]}" if what in _WHY else ""),
    }


def _rebuilds(rebuilds: list[dict[str, Any]]) -> str:
    equal = sum(rebuild["equal"] for rebuild in rebuilds)
    days = ", ".join(str(rebuild["day"]) for rebuild in rebuilds)
    return _REBUILDS.format(count=len(rebuilds), days=days, equal=equal)
