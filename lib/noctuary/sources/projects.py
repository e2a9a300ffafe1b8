"""Which project a folder belongs to: the wing of its turns and of a hook's recall."""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from operator import methodcaller
from pathlib import Path, PurePath

MAX_PROJECT_CHARS = 120  # of a name; more costs a longer line per memory in a prompt
_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_WORKTREES = (".claude", "worktrees")


def project_of(folder: str, wings: Sequence[str] = ()) -> str:
    """Return the name of the project at a path, "" where there is none.

    It is the wing of its turns and of a hook's recall: what `wings` (FOLDER=WING) says of the
    nearest folder, else the name of the git repository, else the last folder's. The path need not
    exist; a worktree belongs to its repository.
    """
    named = ((_expanded(place), wing.strip()) for place, _, wing in map(_CUT, wings))
    above = [pair for pair in named if f"{folder}/".startswith(f"{pair[0]}/")]
    if above:
        return max(above)[1]
    folder = _repository_of(folder) or folder
    text = unicodedata.normalize("NFC", folder)
    is_windows = _WINDOWS.match(text) is not None
    separators = r"[\\/]+" if is_windows else "/+"
    parts = [p for p in re.split(separators, text) if p.strip() not in ("", ".", "~")]
    if is_windows and parts and parts[0].endswith(":"):
        parts = parts[1:]
    for i in range(1, len(parts) - 1):
        if tuple(parts[i : i + 2]) == _WORKTREES:
            parts = parts[:i]
            break
    name = parts[-1] if parts else ""
    if not re.search(separators, text):
        name = name.lstrip("-")
    shown = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in name)
    return " ".join(shown.split())[:MAX_PROJECT_CHARS].strip()


_CUT = methodcaller("rpartition", "=")
_GIT_LEVELS = 40  # folders above a session that are looked at
_GIT_LINK = re.compile(r"gitdir: ([^\n]+)")


def _expanded(place: str) -> str:
    with suppress(RuntimeError):  # nobody has that home
        return str(Path(place).expanduser())
    return place


def _repository_of(folder: str) -> str:
    """Return the root of the git repository that a folder is in, "" where it is in none."""
    start, home = Path(folder), Path(_expanded("~"))
    for place in (start, *start.parents)[:_GIT_LEVELS] if start.is_absolute() else ():
        # Many keep their settings in a repository that is their home: other folders are not of it.
        if place == home != start:
            break
        git = place / ".git"
        with suppress(OSError, ValueError):
            mode = git.stat().st_mode
            if stat.S_ISDIR(mode):
                return str(place)
            if stat.S_ISREG(mode):
                return _main_repository(git) or str(place)
    return ""


def _main_repository(git: Path) -> str:
    """Return the repository of a worktree, by its file `.git`; "" for a submodule's."""
    with git.open("rb") as handle:
        found = _GIT_LINK.match(handle.read(4_096).decode("utf-8", "replace"))
    link = PurePath(os.path.normpath(git.parent / found[1].strip())) if found else PurePath()
    if link.parent.name != "worktrees":
        return ""
    common = link.parent.parent
    return str(common.parent if common.name == ".git" else common.with_suffix(""))
