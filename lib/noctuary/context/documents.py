"""Documents that people write for their agents: blocks of Markdown in order, each with a tier."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from noctuary.core.errors import AuthoredFormatError, AuthoredMissingError
from noctuary.text.front_matter import read_yaml, split_front_matter

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

VARIANT: Final = 0  # found by a query and scored, like a memory (V)
HARD: Final = 1  # in every prompt, whole (I1)
SOFT: Final = 2  # in every prompt as far as the soft budget goes, from the first on (I2)

Tier = Literal[0, 1, 2]


class Node(NamedTuple):
    """A top-level block of a document, or an item of a top-level list, as it is written."""

    id: str  # "<source>#<ordinal>", the ordinal with at least six digits: "AGENTS.md#000017"
    tier: Tier
    text: str  # never blank
    hop_targets: tuple[str, ...] = ()  # of a variant: ids of nodes, which need not exist


# Instructions have kilobytes; a megabyte of prose is parsed for two seconds, in a prompt's way.
MAX_DOCUMENT_BYTES: Final = 1_000_000


def load_documents(paths: Sequence[str | os.PathLike[str]]) -> tuple[Node, ...]:
    """Return the nodes of Markdown files in UTF-8, in the order given.

    A node's source is the path as given, with forward slashes. A file given twice, even under
    another name (CLAUDE.md is often a link to AGENTS.md), is read once, at its first place.

    Raises:
        AuthoredMissingError: Nothing is at the path.
        AuthoredFormatError: It is not Markdown in UTF-8, it is too large, or its front matter is
            wrong.
    """
    nodes: dict[str, tuple[Node, ...]] = {}
    for path in map(Path, paths):
        text, real = _read_text(path), os.path.realpath(path)
        if real not in nodes:
            # A name that is not UTF-8 becomes readable: ids are printed and stored.
            source = os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
            nodes[real] = parse_document(text, source)
    return tuple(node for document in nodes.values() for node in document)


def _read_text(path: Path) -> str:
    try:
        # Opening a named pipe would wait for its other end.
        if path.exists() and not path.is_file():
            raise AuthoredFormatError(f"{path} is no regular file; expected a Markdown file.")
        with path.open("rb") as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
        if len(raw) > MAX_DOCUMENT_BYTES:
            raise AuthoredFormatError(
                f"{path} is too large: more than {MAX_DOCUMENT_BYTES:,} bytes. "
                "Split it, or leave it out: it is not a set of instructions."
            )
        return raw.decode("utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"there is no document at {path}. Check the path, or leave it out."
        raise AuthoredMissingError(message) from error
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {error}. Expected Markdown in UTF-8."
        raise AuthoredFormatError(message) from error


def parse_document(text: str, source: str) -> tuple[Node, ...]:
    """Return the nodes of a document in the order of its text.

    Every top-level block that says something is exactly one node; of a list, every item. A thematic
    break is none.

    Args:
        text: Markdown (CommonMark), with YAML front matter or without; any line ends.
        source: The document's name, the first part of every id.

    Raises:
        AuthoredFormatError: The front matter is no YAML mapping, or its `hop_targets` no ids.
    """
    # As CommonMark has it, so that front matter and body agree on what a line is.
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    front, body = split_front_matter(text)
    blocks: list[tuple[Tier, str]] = []
    targets: tuple[str, ...] = ()
    if front is not None and front.strip():
        targets = read_hop_targets(front, source)
        blocks.append((HARD, text[: len(text) - len(body)].strip()))
    return tuple(
        Node(f"{source}#{ordinal:06d}", tier, block, () if tier else targets)
        for ordinal, (tier, block) in enumerate([*blocks, *_read_blocks(body)])
    )


_REMEDY: Final = 'Fix it, or put an empty line before the first "---" if it is not front matter.'


def read_hop_targets(front_matter: str, source: str) -> tuple[str, ...]:
    """Return the ids under `hop_targets` in YAML, a list or one scalar, each once."""
    where = f"the front matter of {source} is wrong"
    try:
        value: Any = read_yaml(front_matter).get("hop_targets")
    except ValueError as error:
        raise AuthoredFormatError(f"{where}: {error}. {_REMEDY}") from error
    entries: list[Any] = value if isinstance(value, list) else [value]
    if ... in entries:
        fault = '"hop_targets" must be an id or a list of ids'
        raise AuthoredFormatError(f"{where}: {fault}. {_REMEDY}")
    # An escape may give half a character, which could not be printed.
    texts = [str(entry or "").encode("utf-8", "replace").decode().strip() for entry in entries]
    return tuple(dict.fromkeys(filter(None, texts)))


# Blocks. Link reference definitions are not set apart: `[guide]: docs/guide.md` is a paragraph, so
# that what an item refers to is in a node as well.

_LEADING_BLANK_LINES: Final = re.compile(r"\A(?:[^\S\n]*\n)+")
# A word after a "you", or two words later: more finds demands that belong to others. What follows
# an apostrophe belongs to its word: "you're" is a "you" and "mustn't" no "must". Source:
# research/peers.md 1.3.
_DEMAND: Final = re.compile(
    r"(?<!\w)you(?:['’][a-z]+)?(?:[^\w'’]\W*[a-z0-9_]+(?:['’][a-z]+)*){0,2}[^\w'’]\W*"
    r"(?:must|shall|required|should|may|never|cannot|can\W+not)(?!['’]?\w)",
    re.IGNORECASE | re.ASCII,
)
_UNSEEN: Final = re.compile(r"\]\([^()\n]*\)|<[^<>]*>")  # a link's address, HTML


def demands(paragraph: str) -> bool:
    """Return whether a paragraph demands, allows or forbids something of a "you", in English."""
    return _DEMAND.search(_UNSEEN.sub(" ", paragraph)) is not None


def _read_blocks(body: str) -> Iterator[tuple[Tier, str]]:
    """Yield the tier and the text of each block of CommonMark that says something."""
    lines = body.split("\n")
    # Without a line break at the end the parser may look beyond it (markdown-it-py 4.3).
    for tokens in _top_level(_block_parser().parse(body + "\n")):
        if not any(token.content.strip() for token in tokens):
            continue
        first, last = tokens[0].map or (0, 0)
        text = _LEADING_BLANK_LINES.sub("", "\n".join(lines[first:last])).rstrip()
        match tokens[0].type:
            case "list_item_open":
                yield HARD, text
            case "blockquote_open":
                yield SOFT, text
            case "paragraph_open":
                yield SOFT if demands(text) else VARIANT, text
            case _:
                yield VARIANT, text


def _top_level(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the tokens of each top-level block; of a list, those of each item."""
    start = 0
    for place, token in enumerate(tokens):
        if token.level == 0 and token.type in ("bullet_list_open", "ordered_list_open"):
            start = place + 1
        elif (token.level == 0 and token.nesting <= 0) or (
            token.level == 1 and token.type == "list_item_close"
        ):
            yield tokens[start : place + 1]
            start = place + 1


# Levels of nesting that are parsed, two for a list and one for a quote; what is nested deeper is a
# plain text of its block. The parser calls itself for every level.
MAX_LEVELS: Final = 64


@cache
def _block_parser() -> MarkdownIt:
    """Return a parser of blocks alone; it keeps no state between texts."""
    from markdown_it import MarkdownIt

    # Never reached: a list opens two levels at once, the last one from the level below ours.
    parser = MarkdownIt("commonmark", {"maxNesting": MAX_LEVELS + 2})
    parser.disable("reference")
    parser.core.ruler.enableOnly(["normalize", "block"])
    parser.block.ruler.before("code", "too_deep", _keep_as_text)
    return parser


def _keep_as_text(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Take lines that are nested too deeply as one text: the parser would skip to the end."""
    if state.level < MAX_LEVELS or silent:
        return False
    line = start_line + 1
    # A line below 0 belongs to a quote without having its mark.
    while line < end_line and not 0 <= state.sCount[line] < state.blkIndent:
        line += 1
    state.line = line
    state.push("inline", "", 0).content = state.getLines(start_line, line, state.blkIndent, False)
    return True
