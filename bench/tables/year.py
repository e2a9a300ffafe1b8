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
    "forgotten.json": "a digest of each forgotten memory",
    "receipts": "one per forgetting",
    "hooks": "a journal of 8 MB at most",
    "turns.sqlite": "ids of forgotten turns",
    "write-ahead logs": "4 MB each at most",
}
"""Of parts of the home that grow: why."""

_ASKED = """## Question

{memories} memories stay {memories} all year: every day two are new, two go, one is edited. An
agent has a session a day; somebody recalls, remembers, and forgets every two weeks what is four
weeks old. On day {altered_on} a column joins the table. What grows anyway?

This run covers {nights} of 365 nights, with {forgettings} forgettings, on a clock that jumps a day
at a time. One process asks 20 questions a day, one warm server answers hooks. Nights are forks of a
process with the libraries, without evaluation, with a tiny random encoder: read the growth, not
the times.

Nothing was stopped or fixed on the way. Earlier runs found six faults, fixed since: Dagster kept
every run; forgettings could not finish, for three reasons (names in Dagster's events, copies of
moved rows, parts of joined words); a warm server held removed files open; nights kept sums and read
positions of what was gone."""

_SLOPES = """## Growth per year

Theil and Sen's slope from day {warm_up_days}, when every retention is full, to day {last_day}, as
a share of the median, with its 95 % interval. A series creeps if the interval's lower end is above
5 %."""

_NOTES = """By that measure neither night, recall nor any process creeps. What does is what a
forgetting leaves for good, and logs that have not reached their bound yet. The home grows with
them."""

_REBUILDS = """## Against a rebuild

On {count} random days ({days}) we also built a home from nothing but the sources, the own
store, the kept turns and what was injected and forgotten: {equal} of {count} snapshots had the
same digest."""


def write_year(directory: Path) -> Iterator[str]:
    """Yield the blocks for the year's file of a directory."""
    for found in read_results(directory, "year"):
        told = {**found, "published": found["statuses"].get("published", 0)}
        yield _ASKED.format_map(told)
        yield _SLOPES.format_map(found)
        yield table(_row(name, of) for name, of in found["series"].items() if _is_shown(of))
        yield _NOTES
        yield _rebuilds(found["rebuilds"])
        yield commits([found])


def _is_shown(of: Mapping[str, Any]) -> bool:
    """Tell whether a series has anything to say: some never change."""
    return of["growth"] != 0 or of["low"] != of["high"]


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
