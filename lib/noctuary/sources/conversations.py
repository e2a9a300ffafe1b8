"""Read `conversations.json` of ChatGPT's and Claude's data exports.

Both formats are undocumented. ChatGPT's: a tree of messages, in which the path to
`current_node` was the conversation (mitkury/chatgpt-export-parser, docs). Claude's: a list of
messages (TomzxCode/llm-conversations-viewer, docs/formats.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import BinaryIO, NamedTuple

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

MAX_CONVERSATION_BYTES = 16 * 2**20  # parsed at most: hostile JSON takes some twenty times as much
_CHUNK_BYTES = 1 << 20
_MARKS = re.compile(rb'\\.|["\[\]{}]', re.DOTALL)
_KINDS = {b"[": (True, False), b"{": (True, True), b"]": (False, False), b"}": (False, True)}
_ROLES: Mapping[object, Role] = {"human": "user", "assistant": "assistant"}
_LAST_S = 7_258_118_400  # the year 2200


def read_conversations(handle: BinaryIO, start: int, stop: int) -> Iterator[Line]:
    """Yield the objects of a JSON array that end between two offsets, or a file's single object.

    If the file ends inside the last object, that one is marked as not ended.
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
    """Yield place of each bracket outside strings, whether it opens, and whether of an object."""
    handle.seek(0)
    place, in_text = 0, False
    while chunk := handle.read(min(_CHUNK_BYTES, stop - place)):
        if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:
            chunk += handle.read(1)  # keep an escaped character with its backslash
        for found in _MARKS.finditer(chunk):
            mark = found[0]
            if mark == b'"':
                in_text = not in_text
            elif not in_text and mark in _KINDS:
                yield place + found.start(), *_KINDS[mark]
        place += len(chunk)


def find_unread(root: Path) -> list[str]:
    """Return the names of a Claude export's other files at a path, whose texts are not read."""
    folder = root if root.is_dir() else root.parent
    names = (name for name in _BESIDE if (folder / name).exists())
    return sorted(names) if any(folder.glob("conversations*.json")) else []


_BESIDE = ("memories.json", "memories", "projects.json", "projects")


def is_conversation(value: Mapping[str, object]) -> bool:
    """Return whether an object is a conversation of an export, or a list of them."""
    return _is_one(value) or isinstance(value.get("conversations"), list)


def _is_one(value: Mapping[str, object]) -> bool:
    return isinstance(value.get("mapping"), dict) or isinstance(value.get("chat_messages"), list)


def read_conversation(value: Mapping[str, object]) -> list[Reading]:
    """Return a conversation's turns in order, or reasons to skip its messages."""
    if not _is_one(value):
        held = [as_object(one) for one in as_list(value.get("conversations"))]
        readings = (read_conversation(o) if _is_one(o) else [Skip.OTHER_TYPE] for o in held)
        return list(chain.from_iterable(readings))
    is_chatgpt = isinstance(value.get("mapping"), dict)
    agent = "chatgpt" if is_chatgpt else "claude-ai"
    names = ("conversation_id", "id") if is_chatgpt else ("uuid",)
    session = next(filter(None, (as_name(value.get(name)) for name in names)), "")
    project = as_name(as_object(value.get("project")).get("name")) or agent
    found, last_us = list[Reading](), None
    for reading in (_chatgpt if is_chatgpt else _claude)(value):
        if isinstance(reading, Skip):
            found.append(reading)
            continue
        native, role, at_us, texts = reading
        last_us = place_after(at_us, last_us)
        part = Part(f"{native}:0", "text", "", texts)
        found.append(Message(native, role, agent, session, project, last_us, False, (part,)))
    return found


_Said = tuple[str, Role, int | None, tuple[str, ...]]
"""A message's id, role, time and texts."""


# The visible branch: from the last message back, by parent ids.


class _Step(NamedTuple):
    """A message's place in a conversation tree."""

    before: str  # The parent's id; "" for a first message
    at: tuple[float, int]  # Its time, then its place in the file


def _walk_back(last: str, steps: Mapping[str, _Step], listed: Mapping[str, str]) -> list[str]:
    """Return the ids up to the last one, with "" for each missing parent.

    There the walk continues at the message that lists the missing one as a child, else at the
    latest earlier message whose chain does not end at the same missing one (an abandoned branch).
    """
    tops = _find_tops(steps)
    earlier = sorted(steps, key=lambda key: steps[key].at)
    path: dict[str, None] = {}
    found, key = list[str](), last
    while key:
        path[key] = None
        found.append(key)
        before = steps[key].before
        # A message visited before closes a cycle.
        if not before or (before in steps and before not in path):
            key = before
            continue
        follower, key = key, listed.get(before) or listed.get(key, "")
        while (key in path or not key) and earlier:
            key = earlier.pop()
            is_later = steps[key].at >= steps[follower].at
            key = "" if is_later or steps[tops[key]].before == before else key
        key = "" if key in path else key
        found += [""] if key else []
    return found[::-1]


def _find_tops(steps: Mapping[str, _Step]) -> dict[str, str]:
    """Return for each message the first known one of its chain; for a cycle any member."""
    tops: dict[str, str] = {}
    for key in steps:
        chain_ids, at = dict[str, None](), key
        while at not in tops and at not in chain_ids:
            chain_ids[at] = None
            at = steps[at].before if steps[at].before in steps else at
        top = tops.get(at, at)
        tops.update(dict.fromkeys(chain_ids, top))
    return tops


def _chatgpt(value: Mapping[str, object]) -> Iterator[_Said | Skip]:
    nodes = {key: as_object(node) for key, node in as_object(value["mapping"]).items()}
    listed: dict[str, str] = {}
    for key, node in nodes.items():
        for child in as_list(node.get("children")):
            listed.setdefault(str(child), key)
    steps = dict[str, _Step]()
    for place, (key, node) in enumerate(nodes.items()):
        at_us = _epoch_us(as_object(node.get("message")).get("create_time"))
        before = node.get("parent") or listed.get(key)
        steps[key] = _Step(before if isinstance(before, str) else "", (at_us or 0, place))
    last = value.get("current_node")
    last = last if isinstance(last, str) else ""
    path = _walk_back(last if last in nodes else listed.get(last, ""), steps, listed)
    for key in path or nodes:  # all of them if the last one is unknown
        message = as_object(nodes[key].get("message")) if key else {}
        if not key:
            yield Skip.BROKEN_CHAIN
        elif message:  # the root has none
            yield _chatgpt_message(key, message)


def _epoch_us(at: object) -> int | None:
    if isinstance(at, bool) or not isinstance(at, int | float) or not 0 <= at < _LAST_S:
        return None
    return int(at * 1e6)


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
    native = as_name(message.get("id")) or as_name(key)
    return native, role, _epoch_us(message.get("create_time")), texts


_ROOT = "00000000-0000-"  # begins the parent id of first messages


def _claude(value: Mapping[str, object]) -> Iterator[_Said | Skip]:
    messages = [as_object(message) for message in as_list(value["chat_messages"])]
    if not any(as_name(message.get("parent_message_uuid")) for message in messages):
        yield from map(_claude_message, messages)  # exported before there were branches
        return
    named: dict[str, Mapping[str, object]] = {}
    steps, previous = dict[str, _Step](), ""
    for place, message in enumerate(messages):
        key = as_name(message.get("uuid"))
        if not key:
            yield _claude_message(message)
        if not key or key in steps:
            continue
        before = as_name(message.get("parent_message_uuid", previous))
        before = "" if before.startswith(_ROOT) else before
        steps[key] = _Step(before, (parse_moment(message.get("created_at")) or 0, place))
        named[key], previous = message, key
    last = as_name(value.get("current_leaf_message_uuid"))
    for key in _walk_back(last if last in steps else _find_latest(steps), steps, {}):
        yield _claude_message(named[key]) if key else Skip.BROKEN_CHAIN


def _find_latest(steps: Mapping[str, _Step]) -> str:
    """Return the message of the latest time, or its last descendant if clocks were wrong."""
    following: dict[str, str] = {}
    for key in sorted(steps, key=lambda key: steps[key].at):
        following[steps[key].before] = key
    found = max(steps, key=lambda key: steps[key].at, default="")
    seen: set[str] = set()
    while found in following and found not in seen:
        seen.add(found)
        found = following[found]
    return found


def _claude_message(message: Mapping[str, object]) -> _Said | Skip:
    role = _ROLES.get(as_name(message.get("sender")))
    if role is None:
        return Skip.OTHER_TYPE
    blocks = [b for b in as_list(message.get("content")) if as_object(b).get("type") == "text"]
    texts = as_texts(blocks) or as_texts(message.get("text"))
    native = as_name(message.get("uuid"))
    if not native or not any(text.strip() for text in texts):
        return Skip.NO_CONTENT
    return native, role, parse_moment(message.get("created_at")), texts
