r"""What a terminal obeys and nobody sees, shown as marks.

What belongs here: which characters, their mark, and the streams that show them. Standard library
only. A memory may come from anybody: its escape sequences must not set a title or the clipboard,
its bidirectional controls must not show words in another order, and its tag characters must not
tell an agent what no person can read.

A mark is the character as JSON writes it, `\u001b`: marked JSON still holds the same text.
"""

from __future__ import annotations

import re
import sys
from typing import Any

# C0 but newline and tab, DEL and C1; signs that set a direction, separate lines or show nothing;
# lone surrogates; tags. Joiners and a single variation selector stay: emoji, Persian and Indic
# scripts need them. So does the zero-width space, where Khmer and Thai may break a line.
_SELECTORS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_HIDDEN = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u180e\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
    rf"|\r(?!\n)|(?<=[{_SELECTORS}])[{_SELECTORS}]"
)
_SELECTOR = re.compile(f"[{_SELECTORS}]")
_MARK = re.compile(r"\\u([0-9a-f]{4})")
_LAYOUT = re.compile(r"[\t\n\r]")


def visible(text: str) -> str:
    """Return a text whose hidden characters are marks; newlines and tabs stay."""
    # Most of what is printed: told in a tenth of the time.
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return _HIDDEN.sub(_mark, text)


def visible_line(text: str) -> str:
    """Return a text on one line: newlines and tabs are marks as well."""
    return visible(_LAYOUT.sub(_mark, text))


def unmarked(text: str) -> str:
    """Return a text with its marks read as the characters that they stand for."""
    if "\\u" not in text:
        return text
    read = _MARK.sub(lambda m: _hidden(chr(int(m[1], 16))) or m[0], text)
    return read.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def show_hidden() -> None:
    """Let this process's standard output and error show every hidden character as a mark.

    Bytes pass as they are: whoever writes those means them.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            continue
        if hasattr(stream, "reconfigure"):
            # As ASCII, click would take the stream apart and write past the marks.
            is_ascii = (stream.encoding or "").lower() in ("ascii", "us-ascii")
            stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")
        setattr(sys, name, _VisibleStream(stream))


class _VisibleStream:
    """A text stream in front of another one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


def _hidden(character: str) -> str:
    return character if _HIDDEN.match(character) or _SELECTOR.match(character) else ""


def _mark(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
