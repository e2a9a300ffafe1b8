"""Changing an agent's settings file and leaving every other byte as it is."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from json.decoder import JSONDecoder
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.core.errors import NoctuaryError
from noctuary.core.files import replace_with
from noctuary.core.foreign_json import parse_json

# What keeps hooks from being installed.


class HookInstallError(NoctuaryError):
    """An agent's settings cannot be read, merged or written; nothing was changed."""


# Changing a JSON text to a new value and leaving every byte that need not change.
#
# Where old and new value agree, the text stays as its owner wrote it: order of keys, spaces,
# escapes, line ends. What is new is written with the indentation that the text uses.


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


# Reading and replacing an agent's settings file without harm to what its owner wrote.
#
# A file that is not understood is refused with a sentence and stays as it is.


MAX_BYTES = 8_000_000
"""Settings are kilobytes; reading much more would be a wrong file, and takes long."""

_BOM = "\ufeff"


class SettingsText(NamedTuple):
    """A settings file as it was read.

    Attributes:
        path: The file itself, behind any links.
        raw: Its bytes; None where there is no file.
        text: Its text without a byte order mark; "{}" for a missing or an empty file.
        value: The object that the text reads as.
    """

    path: Path
    raw: bytes | None
    text: str
    value: dict[str, Any]


class Written(NamedTuple):
    """What writing did.

    Attributes:
        changed: Whether the file is another one now (or would be, in a dry run).
        text: Its new text; "" where the file goes.
        backup: Where the old bytes are, None where there was nothing to keep.
    """

    changed: bool
    text: str
    backup: Path | None


def read_settings(path: Path) -> SettingsText:
    """Read a settings file as strictly as its agent does.

    Args:
        path: The file; links are followed.

    Raises:
        HookInstallError: It is no regular file, cannot be read, is too large, or holds anything
            but one JSON object in UTF-8 without comments and repeated keys.
    """
    real = _behind_links(path)
    raw = _read(real)
    if raw is None:
        return SettingsText(real, None, "{}", {})
    try:
        text = raw.decode("utf-8").removeprefix(_BOM)
    except UnicodeDecodeError as error:
        raise HookInstallError(
            f"{path} is no UTF-8 from byte {error.start} on: save it as UTF-8; nothing was changed"
        ) from None
    if not text.strip():
        return SettingsText(real, raw, "{}", {})
    return SettingsText(real, raw, text, _parse(path, text))


def write_settings(before: SettingsText, value: dict[str, Any], *, dry_run: bool) -> Written:
    """Bring a settings file to a new value, changing as few bytes as that takes.

    The old bytes are kept beside it first, once for every content. Permissions stay; a new file is
    its user's alone.

    Args:
        before: The file as it was read.
        value: The new value.
        dry_run: Say what would be written and write nothing.

    Raises:
        HookInstallError: The file was changed in between, or the new text would not read as
            `value`; nothing was changed.
        OSError: It cannot be written.
    """
    if before.raw is not None and is_same_json(before.value, value):
        return Written(False, before.text, None)
    text = patch_json(before.text, value)
    if not is_same_json(_parse(before.path, text), value):
        raise HookInstallError(f"{before.path} would not read back as meant; nothing was changed")
    text = text if text.endswith("\n") or before.raw else f"{text}\n"
    raw = before.raw or b""
    data = (_BOM if raw.startswith(_BOM.encode()) else "").encode() + text.encode("utf-8")
    backup = None
    if not dry_run:
        _require_unchanged(before)
        backup = _keep(before)
        _replace(before.path, data)
    return Written(True, text, backup)


def remove_settings(before: SettingsText, *, with_folder: bool, dry_run: bool) -> Written:
    """Remove a settings file that noctuary made and nobody else wrote to.

    Args:
        before: The file as it was read.
        with_folder: Remove its folder as well, if nothing else is in it.
        dry_run: Remove nothing.

    Raises:
        HookInstallError: The file was changed in between.
        OSError: It cannot be removed.
    """
    if before.raw is None:
        return Written(False, "", None)
    if not dry_run:
        _require_unchanged(before)
        before.path.unlink()
        if with_folder:
            with suppress(OSError):  # something else is in it by now
                before.path.parent.rmdir()
    return Written(True, "", None)


def _behind_links(path: Path) -> Path:
    try:
        real = path.resolve()
        found = real.lstat()
    except FileNotFoundError:
        return path.resolve()
    except (OSError, RuntimeError) as error:
        raise HookInstallError(f"{path} cannot be reached: {error}; nothing was changed") from None
    if not stat.S_ISREG(found.st_mode):
        raise HookInstallError(f"{real} is no regular file; nothing was changed")
    return real


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HookInstallError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise HookInstallError(
            f"{path} has more than {MAX_BYTES:,} bytes: that is no settings file"
        )
    return raw


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        value: Any = parse_json(text, object_pairs_hook=_unique, parse_constant=_no_constant)
        json.dumps(value)
    except ValueError as error:
        comment = "//" in text or "/*" in text
        why = " (JSON has no comments)" if comment else ""
        raise HookInstallError(
            f"{path} is not valid JSON: {error}{why}. Correct it first; nothing was changed"
        ) from None
    if not isinstance(value, dict):
        raise HookInstallError(
            f"{path} holds {type(value).__name__} where a JSON object was expected; "
            "nothing was changed"
        )
    return cast("dict[str, Any]", value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} stands twice in one object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _require_unchanged(before: SettingsText) -> None:
    if _read(before.path) != before.raw:
        raise HookInstallError(
            f"{before.path} was changed by somebody else just now: run the command again"
        )


def _keep(before: SettingsText) -> Path | None:
    """Keep the old bytes beside the file; the same bytes are kept once."""
    if before.raw is None:
        return None
    path = before.path
    for kept in sorted(path.parent.glob(f"{_escaped(path.name)}.noctuary-*.bak")):
        if kept.is_file() and kept.read_bytes() == before.raw:
            return kept
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    backup = path.with_name(f"{path.name}.noctuary-{moment}.bak")
    replace_with(backup, _writer(before.raw, path.stat()))
    return backup


def _escaped(name: str) -> str:
    return name.translate({ord(c): f"[{c}]" for c in "[]*?"})


def _replace(path: Path, data: bytes) -> None:
    found = path.stat() if path.exists() else None
    replace_with(path, _writer(data, found))


def _writer(data: bytes, like: os.stat_result | None) -> Callable[[Path], None]:
    """Return a writer of a file that nobody may read before it has the other's permissions."""

    def write(target: Path) -> None:
        target.unlink(missing_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            if like is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))

    return write
