"""Which program an entry starts, and whether an entry is one of noctuary's.

What belongs here: the words of a command. What does not: the entries around them (`events`).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.agents.install.errors import HookInstallError

_MODULES = ("noctuary", "noctuary.cli.entry", "noctuary.cli.main")
_PYTHON = re.compile(r"python[\d.]*")


class HookCommand(NamedTuple):
    """The command of one of noctuary's entries.

    Attributes:
        program: The words that start noctuary: its executable, or Python, "-P", "-m" and a module.
        arguments: What follows "hook".
    """

    program: tuple[str, ...]
    arguments: tuple[str, ...]

    @property
    def store(self) -> str | None:
        """What --store names, or None."""
        for index, word in enumerate(self.arguments):
            if word == "--store" and index + 1 < len(self.arguments):
                return self.arguments[index + 1]
            if word.startswith("--store="):
                return word.removeprefix("--store=")
        return None

    @property
    def is_there(self) -> bool:
        """Whether the program can be started from here."""
        return shutil.which(self.program[0]) is not None


def find_program() -> tuple[str, ...]:
    """Return the words that start this noctuary from any directory.

    The executable beside the running Python comes first: it stays the same when the user enters
    another environment. Agents that a desktop starts know nothing of a shell's PATH, so the path
    is absolute.

    Raises:
        HookInstallError: The path is no UTF-8, so no JSON file can hold it.
    """
    beside = Path(sys.executable).absolute().with_name("noctuary")
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("noctuary")
    # -P: an agent runs it in any project, whose numpy.py or noctuary/ must not be imported.
    module = (sys.executable, "-P", "-m", "noctuary.cli.entry")
    words = (os.path.abspath(found),) if found else module  # noqa: PTH100 (symlinks must stay)
    for word in words:
        require_utf8(word)
    return words


def require_utf8(word: str) -> None:
    """Refuse a word that JSON in UTF-8 cannot hold.

    Raises:
        HookInstallError: It holds bytes that are no UTF-8.
    """
    try:
        word.encode("utf-8")
    except UnicodeEncodeError:
        raise HookInstallError(
            f"{word!r} is no UTF-8 and cannot stand in an agent's settings: move it to another path"
        ) from None


def read_command(entry: object) -> HookCommand | None:
    """Return the command of an entry that runs `noctuary hook`, None for any other entry.

    Both forms count, so that entries of other versions are found: `command` with `args`, and one
    line for a shell. A command that wraps noctuary's in something else is its owner's.
    """
    words = _words(entry)
    for length in (1, 3, 4):
        if words[length : length + 1] == ["hook"] and _starts_noctuary(words[:length]):
            return HookCommand(tuple(words[:length]), tuple(words[length + 1 :]))
    return None


def _words(entry: object) -> list[str]:
    if not isinstance(entry, dict):
        return []
    fields = cast("dict[str, Any]", entry)
    command, arguments = fields.get("command"), fields.get("args")
    if fields.get("type") != "command" or not isinstance(command, str):
        return []
    if isinstance(arguments, list):
        words = [command, *cast("list[Any]", arguments)]
        return [w for w in words if isinstance(w, str)] if _all_text(words) else []
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _all_text(words: Sequence[object]) -> bool:
    return all(isinstance(word, str) for word in words)


def _starts_noctuary(words: Sequence[str]) -> bool:
    name = re.split(r"[/\\]", words[0])[-1].removesuffix(".exe")
    if len(words) == 1:
        return name == "noctuary"
    options, module = [*words[1:-1]], words[-1]
    is_module = options in (["-m"], ["-P", "-m"]) and module in _MODULES
    return _PYTHON.fullmatch(name) is not None and is_module
