"""The `noctuary` command's first step: hooks are answered before click is loaded, which is slow."""

from __future__ import annotations

import os
import sys
import time


def main() -> None:
    """Run the command line; `noctuary hook` never returns, and its exit code is always 0."""
    started_s = time.monotonic()
    os.umask(0o077)  # whatever a command writes holds memories
    arguments = sys.argv[1:]
    if arguments[:1] == ["hook"] and not {"-h", "--help"}.intersection(arguments):
        from noctuary.agents.client import run_hook

        run_hook(arguments[1:], started_s)
    from noctuary.cli.main import main as run_command
    from noctuary.text.marks import show_hidden

    show_hidden()
    run_command()


if __name__ == "__main__":
    main()
