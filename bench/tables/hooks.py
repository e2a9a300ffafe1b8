"""hooks.md: how long an agent waits for `noctuary hook`, from hooks.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.results import read_results
from bench.tables.markdown import commits, number, pair, share, table

_ASKED = """## Question

How long does an agent wait for `noctuary hook`? We timed whole processes in turns with
a bare `python -c pass`, which any hook in Python costs at least. Every prompt opens a session of
its own. CPU time is the hook's own, without the server's, and hardly moves with the load of the
machine."""


_LOADED = """## Two hundred clients

How long does one client wait while 200 are connected? A hundred ask `noctuary serve` or
`noctuary mcp --http` at random moments, {rate:.0f} times a second together. A hundred send
nothing, a byte a second or half a request, or never read their answer. The last kind asks `serve`
for 500 memories at a time, and everybody waits for that work. "Alone", one client asks as often as
the hundred. "Before" is the commit before connections had limits. All servers take turns. A request
that was refused counts with its time until then. To measure again:
`python -m bench.measure load --store STORE --queries FILE --before CHECKOUT --keep`."""


def write_hooks(directory: Path) -> Iterator[str]:
    """Yield the blocks for the hooks file of a directory."""
    for found in read_results(directory, "hooks"):
        yield _ASKED
        yield table(
            {
                "process": name,
                "p50 ms": number(of["p50_ms"]),
                "p95 ms": number(of["p95_ms"]),
                "max ms": number(of["max_ms"]),
                "CPU ms": number(of["cpu_ms"]),
                "n": str(of["processes"]),
                "with memories": str(of["answered"]),
            }
            for name, of in found["processes"].items()
        )
        yield commits([found])
    for found in read_results(directory, "load"):
        yield _LOADED.format(rate=found["clients"] / 2 / found["pace_s"])
        yield table(
            {
                "server": f"{kind}, {side}",
                "alone p50 / p95 ms": pair(of["lone"]),
                "loaded p50 / p95 ms": pair(of["loaded"]),
                "p99 ms": number(of["loaded"]["p99_ms"], 1),
                "max ms": number(of["loaded"]["max_ms"], 1),
                "p95 ratio": number(_ratio(of), 2),
                "n": str(sum(of["loaded"]["outcomes"].values())),
                "answered": share(of["loaded"]["answered"]),
                "MB before / loaded": _pair_of(of["process"], "rss_mb"),
                "descriptors": _pair_of(of["process"], "descriptors"),
            }
            for kind, sides in found["servers"].items()
            for side, of in sides.items()
        )
        yield commits([found])


def _ratio(of: Mapping[str, Any]) -> float | None:
    """Return loaded / alone; none where many were refused, which is quick."""
    is_answered = min(of["lone"]["answered"], of["loaded"]["answered"]) >= 0.95
    return of["loaded"]["p95_ms"] / of["lone"]["p95_ms"] if is_answered else None


def _pair_of(process: Mapping[str, Mapping[str, int]], what: str) -> str:
    return f"{process['before'][what]} / {process['loaded'][what]}"
