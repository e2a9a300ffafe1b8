"""Which files are transcripts.

What belongs here: finding and recognising them. What does not: reading them (`reading`). Standard
library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from noctuary.transcripts.codex import is_codex
from noctuary.transcripts.lines import parse_object, read_lines

SUFFIX = ".jsonl"

_LOOKED_AT_BYTES = 256 * 2**10
_LOOKED_AT_LINES = 40
_LOOKED_AT_FILES = 40
"""Files of a folder that are looked at to tell what it holds; more finds a transcript among more
files of other kinds."""

_CLAUDE_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})


def find_transcripts(root: Path) -> Iterator[Path]:
    """Yield every *.jsonl file at or below a path, by folder and name; links to folders are left.

    Raises:
        OSError: The path itself cannot be listed; folders below that cannot are left out.
    """
    if not root.is_dir():
        root.stat()
        yield root
        return
    os.scandir(root).close()
    for folder, below, names in os.walk(root):
        below.sort()
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(SUFFIX))


def is_transcripts(path: Path) -> bool:
    """Say whether a file, or a file below a folder, holds lines of a transcript; never raises."""
    try:
        if path.is_dir():
            found = islice(find_transcripts(path), _LOOKED_AT_FILES)
            return any(map(_holds_transcript, found))
        return path.suffix == SUFFIX and _holds_transcript(path)
    except OSError:
        return False


def _holds_transcript(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as handle:
        lines = islice(read_lines(handle, 0, _LOOKED_AT_BYTES), _LOOKED_AT_LINES)
        for line in lines:
            value = parse_object(line.data) if line.data else None
            if value is None:
                continue
            if is_codex(value) or (value.get("type") in _CLAUDE_TYPES and "message" in value):
                return True
            if "id" in value and "content" in value:
                return False
    return False
