"""`python -m bench.measure NAME [OPTION...]`: one measurement of time, memory or bytes.

`python -m bench.measure NAME --help` lists the options of one.
"""

from __future__ import annotations

import importlib
import sys

NAMES = {
    "commits": "this commit and an older one by turns: nights, hooks, what installing takes",
    "encoding": "documents per second of the bulk encoders",
    "engines": "nearest-neighbour engines side by side",
    "hooks": "how long an agent waits for a hook",
    "latency": "recall against FTS5 and `import numpy`, warm and cold",
    "live": "the live overlay against the next night",
    "load": "one client's wait while 200 are connected",
    "reading": "recall over stores of any size",
    "scale": "whole nights of up to a million memories",
    "speed": "the promises of the read path",
}
"""Each is a module of this package with a `main(arguments)`."""


def main(arguments: list[str]) -> int:
    """Run one measurement and return its exit code; 2 without a name that is known."""
    name, *rest = arguments or [""]
    if name not in NAMES:
        print(__doc__, *(f"  {known:<9} {told}" for known, told in NAMES.items()), sep="\n")
        return 0 if name in ("-h", "--help") else 2
    return int(importlib.import_module(f"bench.measure.{name}").main(rest) or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
