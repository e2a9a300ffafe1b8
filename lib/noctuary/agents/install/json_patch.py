"""Changing a JSON text to a new value and leaving every byte that need not change.

What belongs here: `patch_json` and the walk over spans. What does not: which value is wanted
(`merging`), reading and writing files (`settings_file`). Where old and new value agree, the text
stays as its owner wrote it: order of keys, spaces, escapes, line ends. What is new is written with
the indentation that the text uses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from json.decoder import JSONDecoder
from typing import Any, NamedTuple, cast

DEFAULT_INDENT = "  "
"""For texts that show none: what both agents write."""

_SPACE = re.compile(r"[ \t\r\n]*")
_FIRST_INDENT = re.compile(r"[\[{][ \t]*\r?\n([ \t]+)")
_DECODER = JSONDecoder()


class _Part(NamedTuple):
    """A member of an object or an element of an array: where it stands and what it holds."""

    key: str | None
    start: int
    value_start: int
    end: int
    value: Any


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class _Style(NamedTuple):
    indent: str
    newline: str

    def render(self, value: Any, margin: str) -> str:
        text = json.dumps(value, indent=self.indent, ensure_ascii=False)
        return text.replace("\n", self.newline + margin)


def patch_json(text: str, value: Any) -> str:
    """Return a JSON text that reads as `value` and differs from `text` as little as it can.

    Args:
        text: Valid JSON without repeated keys; spaces around it are kept.
        value: What the result reads as: plain JSON values.

    Returns:
        The text itself where it reads as `value` already.
    """
    first = _FIRST_INDENT.search(text)
    style = _Style(first[1] if first else DEFAULT_INDENT, "\r\n" if "\r\n" in text else "\n")
    start = _skip(text, 0)
    edits = list(_changes(text, start, value, "", style))
    pieces: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda e: (e.start, e.end)):
        pieces += [text[done : edit.start], edit.text]
        done = edit.end
    return "".join([*pieces, text[done:]])


def is_same_json(one: Any, other: Any) -> bool:
    """Tell whether two values are the same JSON: 1, 1.0 and true differ, the order of keys not."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _changes(text: str, start: int, new: Any, margin: str, style: _Style) -> Iterator[_Edit]:
    """Yield what must change in the value that starts at `start`; `margin` is its indentation."""
    old, end = _DECODER.raw_decode(text, start)
    if is_same_json(old, new):
        return
    parts: list[_Part]
    if isinstance(old, dict) and isinstance(new, dict):
        parts = list(_members(text, start))
        kept, added = _match_members(parts, cast("dict[str, Any]", new))
    elif isinstance(old, list) and isinstance(new, list):
        parts = list(_elements(text, start))
        kept, added = _match_elements(parts, cast("list[Any]", new))
    else:
        yield _Edit(start, end, style.render(new, margin))
        return
    if not kept:
        yield _Edit(start, end, style.render(new, margin))
        return
    inner = _margin_of(text, parts[0].start)
    for index, value in kept.items():
        below = margin if inner is None else inner
        yield from _changes(text, parts[index].value_start, value, below, style)
    yield from _removals(parts, kept)
    yield from _additions(parts[max(kept)].end, added, inner, margin, style)


def _match_members(
    parts: Sequence[_Part], new: Mapping[str, Any]
) -> tuple[dict[int, Any], list[tuple[str | None, Any]]]:
    kept = {i: new[p.key] for i, p in enumerate(parts) if p.key is not None and p.key in new}
    known = {p.key for p in parts}
    return kept, [(key, value) for key, value in new.items() if key not in known]


def _match_elements(
    parts: Sequence[_Part], new: Sequence[Any]
) -> tuple[dict[int, Any], list[tuple[str | None, Any]]]:
    """Keep equal elements in their order; one that changed is kept where its neighbours are."""
    kept: dict[int, Any] = {}
    for index, part in enumerate(parts):
        wanted = new[len(kept) :]
        if wanted and (is_same_json(part.value, wanted[0]) or len(parts) - index <= len(wanted)):
            kept[index] = wanted[0]
    return kept, [(None, value) for value in new[len(kept) :]]


def _removals(parts: Sequence[_Part], kept: Mapping[int, Any]) -> Iterator[_Edit]:
    """Yield the cuts: with the comma before them, and at the beginning the one behind them."""
    first = min(kept)
    if first:
        yield _Edit(parts[0].start, parts[first].start, "")
    for index in range(first + 1, len(parts)):
        if index not in kept:
            yield _Edit(parts[index - 1].end, parts[index].end, "")


def _additions(
    at: int, added: Sequence[tuple[str | None, Any]], inner: str | None, margin: str, style: _Style
) -> Iterator[_Edit]:
    lead = ", " if inner is None else f",{style.newline}{inner}"
    below = margin if inner is None else inner
    text = ""
    for key, value in added:
        name = "" if key is None else f"{json.dumps(key, ensure_ascii=False)}: "
        text += lead + name + style.render(value, below)
    if text:
        yield _Edit(at, at, text)


def _margin_of(text: str, at: int) -> str | None:
    """Return the indentation of what starts at `at`, None where it does not begin its line."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    begins = at - len(line) > 0 and not line.strip(" \t")
    return line if begins else None


def _members(text: str, start: int) -> Iterator[_Part]:
    def read(at: int) -> tuple[_Part, int]:
        key, behind = _DECODER.raw_decode(text, at)
        value_start = _skip(text, _skip(text, behind) + 1)
        value, end = _DECODER.raw_decode(text, value_start)
        return _Part(key, at, value_start, end, value), end

    yield from _listed(text, start, "}", read)


def _elements(text: str, start: int) -> Iterator[_Part]:
    def read(at: int) -> tuple[_Part, int]:
        value, end = _DECODER.raw_decode(text, at)
        return _Part(None, at, at, end, value), end

    yield from _listed(text, start, "]", read)


def _listed(
    text: str, start: int, close: str, read: Callable[[int], tuple[_Part, int]]
) -> Iterator[_Part]:
    at = _skip(text, start + 1)
    while text[at] != close:
        part, end = read(at)
        yield part
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
