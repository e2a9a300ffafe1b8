"""Runs a night in which one call fails with its arguments in the locals of the frame.

Usage: `python raise_at.py FUNCTION CALL NIGHT-ARGUMENTS...`. FUNCTION is the dotted name of a
module-level function, CALL the 1-based number of its call. Nothing but the failure is changed.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

SAYS = "a failure that the test planned"


def main() -> None:
    target, call, *arguments = sys.argv[1:]
    module_name, _, function = target.rpartition(".")
    module = importlib.import_module(module_name)
    setattr(module, function, _failing(getattr(module, function), int(call)))
    from noctuary.cli.main import main as command

    command(["nightly", *arguments])


def _failing(function: Any, call: int) -> Any:
    calls = 0

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            raise RuntimeError(SAYS)
        return function(*args, **kwargs)

    return wrapped


if __name__ == "__main__":
    main()
