"""hooks.md: how long an agent waits for `noctuary hook`, from hooks.json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.results import read_results
from bench.tables.markdown import commits, number, table

_ASKED = """## Question

How long does an agent wait for `noctuary hook`? We timed whole processes in turns with
a bare `python -c pass`, which any hook in Python costs at least. Every prompt opens a session of
its own. CPU time is the hook's own, without the server's, and hardly moves with the load of the
machine."""


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
