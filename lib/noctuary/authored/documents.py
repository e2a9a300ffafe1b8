"""Documents from files: all nodes in authored order, and whether the hard ones fit.

What belongs here: reading files and the rule about their reserve. What does not: parsing (`parse`),
which files an agent has, the rest of a budget (`noctuary.context`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from noctuary.authored.node import HARD, SOFT, VARIANT, Node, Tier
from noctuary.authored.parse import parse_document
from noctuary.errors import AuthoredBudgetError, AuthoredFormatError, AuthoredMissingError
from noctuary.hashing import hash_text
from noctuary.values import dataclass

MAX_DOCUMENT_BYTES: Final = 1_000_000
"""Longest file. Instructions have kilobytes; a megabyte of prose is parsed for two seconds, one of
nothing but short items for fourteen, in a prompt's way."""

LARGEST_SHOWN: Final = 3
"""Nodes that a message about a budget names: the ones to begin shortening with."""


@dataclass(frozen=True, slots=True)
class Authored:
    """The nodes of one or more documents.

    Attributes:
        nodes: All, in authored order: documents as they were given, each in the order of its text.
        digest: SHA-256 (hex) of the sources and the texts; changes when any of them does.
    """

    nodes: tuple[Node, ...]
    digest: str

    @property
    def hard(self) -> tuple[Node, ...]:
        """I1: what is in every prompt, whole."""
        return self._of(HARD)

    @property
    def soft(self) -> tuple[Node, ...]:
        """I2: of which a prompt has the longest prefix that fits."""
        return self._of(SOFT)

    @property
    def variants(self) -> tuple[Node, ...]:
        """V: what a query has to find."""
        return self._of(VARIANT)

    @property
    def dangling_targets(self) -> tuple[str, ...]:
        """Hop targets that name no variant of these documents, sorted: typing errors, mostly."""
        known = {node.id for node in self.variants}
        named = {target for node in self.nodes for target in node.hop_targets}
        return tuple(sorted(named - known))

    def _of(self, tier: Tier) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.tier == tier)


NO_DOCUMENTS: Final = Authored((), hash_text())
"""What loading no file gives."""


def load_documents(paths: Sequence[str | os.PathLike[str]], *, core: bool = True) -> Authored:
    """Return the nodes of some files, in the order given.

    A node's source is the path as given, with forward slashes. A file that was given before, also
    under another name (CLAUDE.md is often a link to AGENTS.md), is read once, at its first place.

    Args:
        paths: Markdown files in UTF-8; none gives `NO_DOCUMENTS`.
        core: As for `parse_document`, for all of them.

    Raises:
        AuthoredMissingError: Nothing is there.
        AuthoredFormatError: A folder or no regular file, unreadable, too large, binary, not UTF-8,
            or with front matter that cannot be read.
    """
    nodes: list[Node] = []
    hashed: list[str] = []
    seen: set[Path] = set()
    for path in map(Path, paths):
        text = _read_text(path)
        real = Path(os.path.realpath(path))
        if real in seen:
            continue
        seen.add(real)
        source = _source_of(path)
        nodes.extend(parse_document(text, source, core=core))
        hashed += [source, text]
    return Authored(tuple(nodes), hash_text(*hashed))


def require_hard_fits(
    authored: Authored, count: Callable[[str], int], reserve_tokens: float
) -> int:
    """Return the tokens of all hard nodes, or refuse if they exceed their reserve.

    Called when documents are loaded, not per prompt: hard nodes are never cut, so what exceeds the
    reserve would push everything else out of every prompt.

    Args:
        authored: The documents.
        count: Tokens of a node's text, >= 0; with whatever it is wrapped in when it is rendered.
        reserve_tokens: alpha1 times the budget, >= 0.

    Raises:
        AuthoredBudgetError: With the tokens, the reserve and the largest nodes.
        ValueError: The reserve is negative or no number.

    Source: libravdb mathematics 7.8, the startup invariant.
    """
    if not reserve_tokens >= 0:
        msg = f"reserve_tokens must be at least 0, not {reserve_tokens}"
        raise ValueError(msg)
    costs = [(count(node.text), node) for node in authored.hard]
    total = sum(cost for cost, _ in costs)
    if total <= reserve_tokens:
        return total
    largest = sorted(costs, key=lambda entry: -entry[0])[:LARGEST_SHOWN]
    shown = ", ".join(f"{node.id} ({cost})" for cost, node in largest)
    raise AuthoredBudgetError(total, reserve_tokens, len(costs), shown)


def _source_of(path: Path) -> str:
    # A name that is not UTF-8 becomes readable: ids are printed and stored.
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def _read_text(path: Path) -> str:
    raw = _read_bytes(path)
    if b"\0" in raw:
        place = raw.index(b"\0")
        msg = f"{path} is binary: its byte {place} is zero. Give Markdown in UTF-8."
        raise AuthoredFormatError(msg)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        msg = (
            f"{path} is not UTF-8: byte 0x{raw[error.start]:02x} at byte {error.start}. "
            "Save it as UTF-8."
        )
        raise AuthoredFormatError(msg) from error


def _read_bytes(path: Path) -> bytes:
    try:
        # Looked at before it is opened: opening a named pipe would wait for its other end.
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            kind = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
            msg = f"{path} is {kind}; expected a Markdown file."
            raise AuthoredFormatError(msg)
        with path.open("rb") as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        msg = f"there is no document at {path}. Check the path, or leave it out."
        raise AuthoredMissingError(msg) from error
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {error}. Check its permissions, or leave it out."
        raise AuthoredFormatError(msg) from error
    if len(raw) > MAX_DOCUMENT_BYTES:
        msg = (
            f"{path} is too large: more than {MAX_DOCUMENT_BYTES:,} bytes. "
            "Split it, or leave it out: it is no set of instructions."
        )
        raise AuthoredFormatError(msg)
    return raw
