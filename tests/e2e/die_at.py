"""Runs a night that dies of SIGKILL at an exact place.

Usage: `python die_at.py WHEN FUNCTION CALL NIGHT-ARGUMENTS...`. WHEN is "before" or "after",
FUNCTION the dotted name of a module-level function, CALL the 1-based number of its call. Nothing
but the moment of death is changed. Arguments that begin with "forget" or "merge" run that command
instead.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
from typing import Any


def main() -> None:
    when, target, call, *arguments = sys.argv[1:]
    module_name, _, function = target.rpartition(".")
    module = importlib.import_module(module_name)
    setattr(module, function, _deadly(getattr(module, function), when, int(call)))
    from noctuary.cli.main import main as command

    command(arguments if arguments[0] in ("forget", "merge") else ["nightly", *arguments])


def _deadly(function: Any, when: str, call: int) -> Any:
    calls = 0

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if calls == call and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


if __name__ == "__main__":
    main()
