"""Runs a night whose shards are so small that a small store has many, each for another process.

Usage: `python small_shards.py ROWS NIGHT-ARGUMENTS...`. Only how the work is cut and from when
other processes are started is changed: the night decides by the size of a store that no test has.
"""

from __future__ import annotations

import sys

from noctuary.work.content import fill
from noctuary.work.runner import LocalRunner
from noctuary_assets import night as opening


def main() -> None:
    rows, *arguments = sys.argv[1:]
    defaults = fill.__kwdefaults__
    assert defaults is not None
    defaults["shard_rows"] = int(rows)

    def always_processes(workers: int) -> LocalRunner:
        return LocalRunner(workers, processes_pay_ms=0.0)

    setattr(opening, "LocalRunner", always_processes)  # noqa: B010
    from noctuary.cli.main import main as command

    command(["nightly", *arguments])


if __name__ == "__main__":
    main()
