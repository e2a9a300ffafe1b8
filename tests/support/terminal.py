"""Commands on a pseudo-terminal, as a person runs them: `python -m tests.support.terminal`.

One process that has the library and no threads forks once for every command line that it is told.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
H = "key\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x7f\u202eyek\u2066\u200f\u2028\ufeff\U000e0041"
"""Sets a title, clears the screen, colours by C1, turns words round, hides a tag."""
STEERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e007f]|\r(?!\r*\n|\\w+: [\\d,]+ of )"
)
"""A carriage return before a line's end is the terminal's, before progress it is ours."""

_TIMEOUT_S = 280


def on_terminals(
    commands: Sequence[Sequence[str]], *, cwd: Path, environ: Mapping[str, str], stdin: str = ""
) -> list[str]:
    """Return what `noctuary` with each list of arguments shows on a terminal of its own.

    Args:
        commands: Arguments; lone surrogates stand for bytes that are no UTF-8.
        cwd: Where they run.
        environ: Their environment.
        stdin: What each of them reads; it is no terminal.
    """
    (cwd / "stdin").write_text(stdin, encoding="utf-8")
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.terminal", str(cwd)],
        input=json.dumps(commands).encode(), stdout=subprocess.PIPE, cwd=root,
        env=dict(environ), timeout=_TIMEOUT_S, check=True,
    )  # fmt: skip
    return [bytes.fromhex(shown).decode("utf-8") for shown in json.loads(done.stdout)]


def _show(arguments: Sequence[str]) -> bytes:
    pid, terminal = pty.fork()
    if pid == 0:
        _run(arguments)
    parts: list[bytes] = []
    try:
        while part := os.read(terminal, 1 << 16):
            parts.append(part)
    except OSError:
        pass  # the other end is closed
    os.close(terminal)
    os.waitpid(pid, 0)
    return b"".join(parts)


def _run(arguments: Sequence[str]) -> None:
    from noctuary.cli.entry import main

    os.dup2(os.open("stdin", os.O_RDONLY), 0)
    sys.argv = ["noctuary", *arguments]
    sys.stdin = sys.__stdin__ = os.fdopen(0)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w")
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w")
    try:
        main()
    except SystemExit:
        pass
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    import_module("noctuary.cli.main")  # every fork has it

    asked = json.load(sys.stdin)
    os.chdir(sys.argv[1])
    json.dump([_show(arguments).hex() for arguments in asked], sys.stdout)
