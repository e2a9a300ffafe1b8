"""Find transcripts of agents, and dispatch their lines to the agent's reader."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from noctuary.sources.claude_code import finish_claude, read_claude
from noctuary.sources.codex import finish_codex, is_codex, read_codex
from noctuary.sources.conversations import (
    is_conversation,
    read_conversation,
    read_conversations,
)
from noctuary.sources.gemini import (
    GEMINI,
    QWEN,
    is_gemini,
    is_qwen,
    read_gemini,
    read_qwen,
)
from noctuary.sources.opencode import (
    COPIES,
    DATABASE_SUFFIX,
    DATABASES,
    STORAGE,
    holds_conversations,
    is_opencode,
    is_session,
    read_database,
    read_opencode,
    read_session,
)
from noctuary.sources.pi import is_pi, read_pi
from noctuary.sources.projects import project_of
from noctuary.sources.transcripts import (
    FileContext,
    Line,
    Reading,
    as_name,
    parse_object,
    read_lines,
)

SUFFIX = ".jsonl"
COMPRESSED_SUFFIX = ".jsonl.zst"  # rollouts that Codex compressed after a while
CHATS_SUFFIX = ".json"
# Exports of ChatGPT and Claude (conversations.json, -000.json and so on), chats of Gemini CLI, and
# sessions of OpenCode.
_CHATS_NAME = re.compile(r"conversations?\b.*\.json|session-.*\.json|ses_\w+\.json")
_CHAT = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*\[?\s*\{.*?"(?:mapping"\s*:\s*\{|chat_messages"\s*:\s*\[|projectHash"\s*:\s*")',
    re.DOTALL,
)
_SQLITE = b"SQLite format 3\0"
_LOOKED_AT_BYTES = 256 * 2**10
_LOOKED_AT_LINES = 40
_LOOKED_AT_FILES = 40  # files of a folder to inspect for a transcript
_CLAUDE_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})


def find_transcripts(root: Path) -> Iterator[Path]:
    """Yield every *.jsonl and chat export at or below a path, in order; no linked folders."""
    if not root.is_dir():
        root.stat()
        yield root
        return
    os.scandir(root).close()
    databases = sorted(path for path in root.glob(DATABASES) if path.is_file())
    yield from databases
    for folder, below, names in os.walk(root):
        below.sort()
        if databases and Path(folder) == root:
            below[:] = [name for name in below if name not in COPIES]
        if Path(folder).name == STORAGE:
            below[:] = [name for name in below if name == "session"]
        paths = (Path(folder, n) for n in sorted(names) if _is_history(folder, n, names))
        yield from (p for p in paths if not p.name.startswith("ses_") or is_session(p))


def _is_history(folder: str, name: str, names: Collection[str]) -> bool:
    if name.endswith(COMPRESSED_SUFFIX):
        return name.removesuffix(".zst") not in names  # the same session, as long as both exist
    # Some exports have a folder of this name, with one file per conversation.
    is_chat = name.endswith(CHATS_SUFFIX) and Path(folder).name == "conversations"
    return is_chat or name.endswith(SUFFIX) or _CHATS_NAME.fullmatch(name) is not None


def is_transcripts(path: Path) -> bool:
    """Return whether a file, or a file below a folder, is a transcript; never raises."""
    try:
        if path.is_dir():
            return any(map(_holds_transcript, islice(find_transcripts(path), _LOOKED_AT_FILES)))
        suffixes = (SUFFIX, CHATS_SUFFIX, DATABASE_SUFFIX, COMPRESSED_SUFFIX)
        return path.name.endswith(suffixes) and _holds_transcript(path)
    except (OSError, sqlite3.Error):
        return False


def _holds_transcript(path: Path) -> bool:
    if not path.is_file():
        return False
    if is_session(path) or path.name.endswith(COMPRESSED_SUFFIX):
        return True
    with path.open("rb") as handle:
        if handle.read(len(_SQLITE)) == _SQLITE:
            return holds_conversations(path)
        handle.seek(0)
        if path.suffix == CHATS_SUFFIX:
            return _CHAT.match(handle.read(_LOOKED_AT_BYTES)) is not None
        for line in islice(read_lines(handle, 0, _LOOKED_AT_BYTES), _LOOKED_AT_LINES):
            value = parse_object(line.data or b"") or {}
            if is_codex(value) or any(is_line(value) for is_line, _ in _AGENTS):
                return True
            if value.get("type") in _CLAUDE_TYPES and "message" in value:
                return True
            if "id" in value and "content" in value:
                return False
    return False


_AGENTS = (
    (is_qwen, read_qwen),
    (is_gemini, read_gemini),
    (is_pi, read_pi),
    (is_opencode, read_opencode),
)
"""Recognizer and reader of each agent's lines; Codex and Claude Code are handled below."""


def begin_lines(path: Path, context: FileContext) -> None:
    """Set project, agent and parent session from the path of a chat file of Gemini CLI or Qwen."""
    chats = path.parent
    if chats.name != "chats" and chats.parent.name == "chats":
        context.parent, chats = chats.name, chats.parent
    if chats.name != "chats" or context.project:
        return
    with suppress(OSError), (chats.parent / ".project_root").open("rb") as handle:
        context.folder = as_name(handle.read(_LOOKED_AT_BYTES).decode("utf-8", "replace"))
        context.project = project_of(context.folder)
    context.agent = context.agent or (QWEN if ".qwen" in path.parts else GEMINI)
    if not context.project:  # early versions name the folder by a digest of the project's path
        is_hashed = re.fullmatch(r"[0-9a-f]{64}", chats.parent.name) is not None
        context.project = context.agent if is_hashed else project_of(chats.parent.name)


def lines_of(path: Path, handle: BinaryIO, place: range, context: FileContext) -> Iterator[Line]:
    """Yield the lines of a history that end between two offsets, for any kind of file."""
    handle.seek(0)
    if handle.read(len(_SQLITE)) == _SQLITE:
        return read_database(path, context)
    if is_session(path):
        return read_session(path)
    read = read_conversations if path.suffix == CHATS_SUFFIX else read_lines
    return read(handle, place.start, place.stop)


def look_at(path: Path) -> tuple[int, int, int, int]:
    """Return device, inode, size and mtime of a history, its WAL or message folder included."""
    stat = path.stat()
    size, mtime_ns = stat.st_size, stat.st_mtime_ns
    beside = path.with_name(f"{path.name}-wal")
    if is_session(path):
        beside = path.parents[2] / "message" / path.stem
    if path.suffix == DATABASE_SUFFIX or is_session(path):
        with suppress(OSError):
            stat_beside = beside.stat()
            if stat_beside.st_size:  # an empty log changes nothing
                size += stat_beside.st_size
                mtime_ns = max(mtime_ns, stat_beside.st_mtime_ns)
    return stat.st_dev, stat.st_ino, size, mtime_ns


def read_line(value: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return the readings of a line by the reader of its agent."""
    if is_conversation(value):
        return read_conversation(value)
    is_rollout = is_codex(value) or (context.has_meta and "payload" in value)
    known = next((read for is_line, read in _AGENTS if is_line(value)), read_claude)
    if known is read_claude and is_gemini(value, context):
        known = read_gemini
    found = (read_codex if is_rollout else known)(value, context)
    context.lines += 1
    context.count(found)
    return found


def finish_lines(context: FileContext, *, is_idle: bool) -> list[Reading]:
    """Return messages whose expected second form has not come by the end of the file.

    A file is idle when its agent has not written to it for a while.
    """
    found = finish_codex(context) if context.has_meta else finish_claude(context, is_idle=is_idle)
    context.count(found)
    return found


def project_in(folder: Path) -> str:
    """Return the project of a folder of transcripts: from their lines, else the folder's name."""
    with suppress(OSError):
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            with path.open("rb") as handle:
                for line in islice(read_lines(handle, 0, _LOOKED_AT_BYTES), _LOOKED_AT_LINES):
                    if cwd := as_name((parse_object(line.data or b"") or {}).get("cwd")):
                        return project_of(cwd)
    return project_of(folder.name)
