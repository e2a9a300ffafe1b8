"""Which files are histories of agents, and which reader each has."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from noctuary.sources.claude_code import finish_claude, read_claude
from noctuary.sources.codex import finish_codex, is_codex, read_codex
from noctuary.sources.conversations import is_conversation, read_conversation
from noctuary.sources.projects import project_of
from noctuary.sources.transcripts import FileContext, Reading, as_name, parse_object, read_lines

SUFFIX = ".jsonl"
COMPRESSED_SUFFIX = ".jsonl.zst"  # rollouts that Codex has not touched for a while
CHATS_SUFFIX = ".json"  # of ChatGPT's and Claude's exports: conversations.json, -000.json and so on
_CHATS_NAME = re.compile(r"conversations?\b.*\.json")
_CHAT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\[?\s*\{.*?"(?:mapping"\s*:\s*\{|chat_messages"\s*:\s*\[)', re.DOTALL
)
_LOOKED_AT_BYTES = 256 * 2**10
_LOOKED_AT_LINES = 40
_LOOKED_AT_FILES = 40  # files of a folder that are looked at to tell what it holds
_CLAUDE_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})


def find_transcripts(root: Path) -> Iterator[Path]:
    """Yield every *.jsonl and chat export at or below a path, in order; no linked folders."""
    if not root.is_dir():
        root.stat()
        yield root
        return
    os.scandir(root).close()
    for folder, below, names in os.walk(root):
        below.sort()
        yield from (Path(folder, n) for n in sorted(names) if _is_history(folder, n, names))


def _is_history(folder: str, name: str, names: Collection[str]) -> bool:
    if name.endswith(COMPRESSED_SUFFIX):
        return name.removesuffix(".zst") not in names  # one session, while both are there
    # Some exports have a folder of this name, with a file for each conversation.
    is_chat = name.endswith(CHATS_SUFFIX) and Path(folder).name == "conversations"
    return is_chat or name.endswith(SUFFIX) or _CHATS_NAME.fullmatch(name) is not None


def is_transcripts(path: Path) -> bool:
    """Say whether a file, or a file below a folder, holds lines of a transcript; never raises."""
    try:
        if path.is_dir():
            return any(map(_holds_transcript, islice(find_transcripts(path), _LOOKED_AT_FILES)))
        is_named = path.suffix in (SUFFIX, CHATS_SUFFIX) or path.name.endswith(COMPRESSED_SUFFIX)
        return is_named and _holds_transcript(path)
    except OSError:
        return False


def _holds_transcript(path: Path) -> bool:
    if not path.is_file():
        return False
    if path.name.endswith(COMPRESSED_SUFFIX):
        return True  # no other tool writes such
    with path.open("rb") as handle:
        if path.suffix == CHATS_SUFFIX:
            return _CHAT.match(handle.read(_LOOKED_AT_BYTES)) is not None
        for line in islice(read_lines(handle, 0, _LOOKED_AT_BYTES), _LOOKED_AT_LINES):
            value = parse_object(line.data or b"") or {}
            if is_codex(value) or (value.get("type") in _CLAUDE_TYPES and "message" in value):
                return True
            if "id" in value and "content" in value:
                return False
    return False


def read_line(value: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a line adds to turns, whichever agent wrote it."""
    if is_conversation(value):
        return read_conversation(value)
    is_rollout = is_codex(value) or (context.has_meta and "payload" in value)
    found = (read_codex if is_rollout else read_claude)(value, context)
    context.lines += 1
    for reading in found:
        context.count(reading)
    return found


def finish_lines(context: FileContext, *, is_idle: bool) -> list[Reading]:
    """Return what waited for a line that has not come, where a file ends for now.

    A file is idle when its agent has not written to it for a while.
    """
    found = finish_codex(context) if context.has_meta else finish_claude(context, is_idle=is_idle)
    for reading in found:
        context.count(reading)
    return found


def project_in(folder: Path) -> str:
    """Return the project of a folder of transcripts: what they say, else the folder's name."""
    with suppress(OSError):
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            with path.open("rb") as handle:
                for line in islice(read_lines(handle, 0, _LOOKED_AT_BYTES), _LOOKED_AT_LINES):
                    if cwd := as_name((parse_object(line.data or b"") or {}).get("cwd")):
                        return project_of(cwd)
    return project_of(folder.name)
