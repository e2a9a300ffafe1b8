"""The project that a folder belongs to, as the wing of its turns and of a hook's recall.

What belongs here: the name, from the text of a path alone: the folder may be gone when it is
asked. What does not: deciding whether a recall is limited to it (`noctuary.agents`). Standard
library only.
"""

from __future__ import annotations

import re
import unicodedata

MAX_PROJECT_CHARS = 120
"""Longest name; a longer one is cut. More costs a longer line per memory in a prompt."""

_WINDOWS = re.compile(r"[A-Za-z]:[\\/]|\\\\")
_WORKTREES = (".claude", "worktrees")


def project_of(folder: str) -> str:
    """Return the name of the project at a path, "" where there is none (the root, "", "~").

    It is the name of the last folder, whether or not the path exists: "/home/me/shop" is "shop".
    A worktree that Claude Code made inside a repository belongs to that repository. Two folders of
    one name are one project.

    Args:
        folder: A working directory of any system, or the name of a folder that Claude Code keeps
            transcripts in ("-home-me-shop"): separators cannot be told from dashes in it, so all
            of it but the leading dash is the name.

    Returns:
        At most `MAX_PROJECT_CHARS` characters, NFC, without control characters; never raises.
    """
    text = unicodedata.normalize("NFC", folder)
    separators = r"[\\/]+" if _WINDOWS.match(text) else "/+"
    parts = [p for p in re.split(separators, text) if p.strip() not in ("", ".", "~")]
    if parts and _WINDOWS.match(text) and parts[0].endswith(":"):
        parts = parts[1:]
    name = _without_worktree(parts)[-1] if _without_worktree(parts) else ""
    if not re.search(separators, text):
        name = name.lstrip("-")
    shown = "".join(" " if unicodedata.category(c)[0] == "C" else c for c in name)
    return " ".join(shown.split())[:MAX_PROJECT_CHARS].strip()


def _without_worktree(parts: list[str]) -> list[str]:
    """Return the folders up to the repository that a worktree was made in."""
    for i in range(1, len(parts) - 1):
        if tuple(parts[i : i + 2]) == _WORKTREES:
            return parts[:i]
    return parts
