"""`conversations.json` of ChatGPT's and Claude's data exports: its conversations, and their turns.

Neither format is published by its maker. ChatGPT's: a tree of messages, of which the path to
`current_node` was the conversation (mitkury/chatgpt-export-parser, docs). Claude's: a list of
messages (TomzxCode/llm-conversations-viewer, docs/formats.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import BinaryIO

from noctuary.sources.transcripts import (
    Line,
    Message,
    Part,
    Reading,
    Role,
    Skip,
    as_list,
    as_name,
    as_object,
    as_texts,
    parse_moment,
    place_after,
)

MAX_CONVERSATION_BYTES = 16 * 2**20  # that are parsed: hostile JSON takes some twenty times as much
_CHUNK_BYTES = 1 << 20
_MARKS = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)
_KINDS = {b"[": (True, False), b"{": (True, True), b"]": (False, False), b"}": (False, True)}
_ROLES: Mapping[object, Role] = {"human": "user", "assistant": "assistant"}
_LAST_S = 7_258_118_400  # the year 2200


def read_conversations(handle: BinaryIO, start: int, stop: int) -> Iterator[Line]:
    """Yield the objects of a JSON array that end between two offsets, or the one object of a file.

    The last one is not ended where the file ends inside it.
    """
    depth, base, begin = 0, -1, -1
    for place, is_open, is_object in _brackets(handle, stop):
        base = (0 if is_object else 1) if base < 0 else base
        if is_open:
            begin = place if is_object and depth == base else begin
        depth += 1 if is_open else -1
        end = place + 1
        if is_open or not is_object or depth != base or begin < 0:
            continue
        if end > start:
            is_read = end - begin <= MAX_CONVERSATION_BYTES
            data = os.pread(handle.fileno(), end - begin, begin) if is_read else None
            yield Line(end, end - begin, data, True)
        begin = -1
    if begin >= 0:
        yield Line(stop, stop - begin, None, False)


def _brackets(handle: BinaryIO, stop: int) -> Iterator[tuple[int, bool, bool]]:
    """Yield where brackets stand outside texts, whether they open, and whether an object."""
    handle.seek(0)
    place, in_text = 0, False
    while chunk := handle.read(min(_CHUNK_BYTES, stop - place)):
        if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:
            chunk += handle.read(1)  # what is escaped belongs to its mark
        for found in _MARKS.finditer(chunk):
            mark = found[0]
            if mark == b'"':
                in_text = not in_text
            elif not in_text and mark in _KINDS:
                yield place + found.start(), *_KINDS[mark]
        place += len(chunk)


def is_conversation(value: Mapping[str, object]) -> bool:
    """Say whether an object is one of an export's conversations."""
    return isinstance(value.get("mapping"), dict) or isinstance(value.get("chat_messages"), list)


def read_conversation(value: Mapping[str, object]) -> list[Reading]:
    """Return a conversation's turns in order, or why its messages are none."""
    is_chatgpt = isinstance(value.get("mapping"), dict)
    agent = "chatgpt" if is_chatgpt else "claude-ai"
    names = ("conversation_id", "id") if is_chatgpt else ("uuid",)
    session = next(filter(None, (as_name(value.get(name)) for name in names)), "")
    project = as_name(as_object(value.get("project")).get("name")) or agent
    found, last_us = list[Reading](), None
    said = _chatgpt(value) if is_chatgpt else map(_claude, as_list(value["chat_messages"]))
    for reading in said:
        if isinstance(reading, Skip):
            found.append(reading)
            continue
        native, role, at_us, texts = reading
        last_us = place_after(at_us, last_us)
        part = Part(f"{native}:0", "text", "", texts)
        found.append(Message(native, role, agent, session, project, last_us, False, (part,)))
    return found


_Said = tuple[str, Role, int | None, tuple[str, ...]]
"""A message's id, who says it, when, and its texts."""


def _chatgpt(value: Mapping[str, object]) -> Iterator[_Said | Skip]:
    for key, node in _path_of(as_object(value["mapping"]), value.get("current_node")):
        message = as_object(as_object(node).get("message"))
        if message:  # the root has none
            yield _chatgpt_message(key, message)


def _path_of(nodes: Mapping[str, object], last: object) -> list[tuple[str, object]]:
    """Return the nodes up to the last one; all of them where it is not known, in their order."""
    path: dict[str, object] = {}
    # A parent that was met before closes a circle.
    while isinstance(last, str) and last in nodes and last not in path:
        path[last] = nodes[last]
        last = as_object(nodes[last]).get("parent")
    return list(path.items())[::-1] or list(nodes.items())


def _chatgpt_message(key: str, message: Mapping[str, object]) -> _Said | Skip:
    role = as_object(message.get("author")).get("role")
    is_hidden = as_object(message.get("metadata")).get("is_visually_hidden_from_conversation")
    if role == "system" or is_hidden is True:
        return Skip.META
    content, to = as_object(message.get("content")), message.get("recipient")
    # Reasoning, code for a tool, its output, the user's instructions.
    is_said = content.get("content_type") in ("text", "multimodal_text")
    if role not in ("user", "assistant") or not is_said or to not in (None, "all"):
        return Skip.OTHER_TYPE
    parts = as_list(content.get("parts"))
    texts = tuple(chain.from_iterable(as_texts(p if isinstance(p, str) else [p]) for p in parts))
    if not any(text.strip() for text in texts):
        return Skip.NO_CONTENT
    at, at_us = message.get("create_time"), None
    if isinstance(at, int | float) and not isinstance(at, bool) and 0 <= at < _LAST_S:
        at_us = int(at * 1e6)
    return as_name(message.get("id")) or as_name(key), role, at_us, texts


def _claude(value: object) -> _Said | Skip:
    message = as_object(value)
    role = _ROLES.get(as_name(message.get("sender")))
    if role is None:
        return Skip.OTHER_TYPE
    blocks = [b for b in as_list(message.get("content")) if as_object(b).get("type") == "text"]
    texts = as_texts(blocks) or as_texts(message.get("text"))
    native = as_name(message.get("uuid"))
    if not native or not any(text.strip() for text in texts):
        return Skip.NO_CONTENT
    return native, role, parse_moment(message.get("created_at")), texts
