"""The `noctuary` command's first step: hooks are answered before click is loaded, which is slow."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time

TYPE_CHECKING = False  # as in `noctuary`: without `typing`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

USAGE = "usage: noctuary hook --agent claude|codex [--store STORE] < event.json"


def main() -> None:
    """Run the command line; `noctuary hook` never returns, and its exit code is always 0."""
    started_s = time.monotonic()
    os.umask(0o077)  # whatever a command writes holds memories
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"] and not {"-h", "--help"}.intersection(arguments):
        run_hook(arguments[1:], started_s)
    if arguments[:1] in (["recall"], ["nightly"]):
        # Else the collector looks at every object thrice before the process may end: 20 ms.
        atexit.register(gc.freeze)
    if arguments[:1] == ["nightly"]:
        # A night makes a million objects that stay: looking for cycles among them took 1.5 s.
        gc.set_threshold(100_000, 50, 100)
    from noctuary.cli.main import main as run_command
    from noctuary.text.marks import show_hidden

    show_hidden()
    run_command()


def run_hook(arguments: Sequence[str], started_s: float) -> NoReturn:
    """Answer the event on stdin and end the process, which began at `started_s`, with code 0."""
    try:
        gc.disable()  # the process ends before it would pay
        from noctuary.agents import client

        client.keep_standard_handles()
        options = client.parse_options(arguments)
        if options is None:
            os.write(2, f"{USAGE}\n".encode())
        else:
            raw = client.read_event(0, started_s + client.LIFETIME_S)
            line = client.ask_hook(*options, raw, started_s)
            if line is None:
                from noctuary.agents.hooks import answer_in_time

                answer_in_time(*options, raw, started_s, _print_line)
            else:
                _print_line(line)
    except BaseException:
        pass  # also an interrupt: whatever it is, the agent must go on
    # Not `sys.exit`: a recall that was left behind, and SQLite's handlers, would be waited for.
    os._exit(0)


def _print_line(line: bytes) -> None:
    """Print a line in one piece, as far as the system lets us."""
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    main()
