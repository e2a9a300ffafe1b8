"""Documents that people write for their agents: nodes in authored order, with tiers."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from noctuary.core.errors import AuthoredBudgetError, AuthoredFormatError, AuthoredMissingError
from noctuary.core.files import hash_text
from noctuary.text.front_matter import read_yaml, split_front_matter

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token


VARIANT: Final = 0  # found by a query and scored, like a memory (V)
HARD: Final = 1  # in every prompt, whole (I1)
SOFT: Final = 2  # in every prompt as far as the soft budget goes, from the first on (I2)

Tier = Literal[0, 1, 2]
Kind = Literal["item", "front_matter", "quote", "paragraph", "heading", "code", "html"]
Mark = Literal["obligation", "permitted", "forbidden"]


class Node(NamedTuple):
    """One block of an authored document.

    The outermost mark of the block is left out of `text` ("- ", "> ", "## ", fences: `kind` says
    it); marks further inside stay, on lines of their own. Runs of white space are one space, except
    in code and HTML, which are only trimmed.
    """

    id: str  # "<source>#<ordinal>", the ordinal with at least six digits: "AGENTS.md#000017"
    source: str
    ordinal: int  # from 0 without gaps, in the order of the text
    kind: Kind
    tier: Tier  # hard: items, front matter; soft: quotes, paragraphs with a mark; else variant
    text: str  # never blank
    marks: frozenset[Mark]  # what a paragraph demands of a "you"
    authority: float  # a(d) of the document, in [0, 1]
    hop_targets: tuple[str, ...]  # of a variant: ids of nodes, which need not exist


# Text of Markdown blocks: white space, tables, and one text of a block with blocks inside.

_LEADING_BLANK_LINES: Final = re.compile(r"\A(?:[^\S\n]*\n)+")
_CELL: Final = r"[ \t]*:?-+:?[ \t]*"
_TABLE_RULE: Final = re.compile(rf"\|?{_CELL}(?:\|{_CELL})*\|?\Z")


def collapse(text: str) -> str:
    """Return a text with every run of white space as one space, none at the ends."""
    return " ".join(text.split())


def trim(text: str) -> str:
    """Return a text without blank lines at its ends; the first line keeps its indentation."""
    return _LEADING_BLANK_LINES.sub("", text).rstrip()


def paragraph_lines(content: str) -> list[str]:
    """Return a paragraph as one line, or line by line where it holds a table; no blank ones."""
    lines = content.split("\n")
    # A line of dashes, with pipes or colons, follows another line.
    has_table = any(_TABLE_RULE.match(line.strip()) is not None for line in lines[1:])
    return [line for line in map(collapse, lines if has_table else [content]) if line]


def flatten(tokens: Sequence[Token], *, indent: str = "") -> str:
    """Return the blocks inside an item or a quote as one text, each on lines of its own.

    Items, quotes, headings and code inside keep their marks; `indent` stands before every line but
    the first. Depth does not matter: nothing here calls itself.
    """
    lines: list[str] = []
    # What stands before the next line of each open block, and before the lines after it.
    around: list[list[str]] = [["", indent]]
    for token in tokens:
        if token.type == "list_item_open":
            mark = f"{token.info}{token.markup} "
            around.append([mark, " " * len(mark)])
        elif token.type == "blockquote_open":
            around.append(["> ", "> "])
        elif token.type == "heading_open":
            around.append([f"{'#' * int(token.tag[1:])} ", ""])
        elif token.type in ("list_item_close", "blockquote_close", "heading_close"):
            around.pop()
        else:
            for line in _leaf_lines(token):
                before = "".join(block[0] for block in around)
                lines.append(f"{before}{line}" if line else before.rstrip())
                for block in around:
                    block[0] = block[1]
    return "\n".join(lines)


def _leaf_lines(token: Token) -> list[str]:
    """Return the lines of a token that holds text; none for any other."""
    match token.type:
        case "inline":
            return paragraph_lines(token.content)
        case "fence":
            inside = trim(token.content)
            fence = [f"{token.markup}{collapse(token.info)}", inside, token.markup]
            return "\n".join(fence).split("\n") if inside else []
        case "code_block":
            return [f"    {line}".rstrip() for line in trim(token.content).split("\n")]
        case "html_block":
            return [line.rstrip() for line in token.content.strip().split("\n")]
        case _:
            return []


# What a paragraph demands of a "you". Words decide, not grammar: "Never reveal it", which names no
# "you", demands nothing.

REACH_WORDS: Final = 3  # looked at after a "you": more finds demands that belong to others

_MARK_OF: Final[Mapping[str, Mark]] = {
    "must": "obligation", "shall": "obligation", "required": "obligation", "should": "obligation",
    "may": "permitted", "never": "forbidden", "cannot": "forbidden",
}  # fmt: skip
_TURNED_BY_NOT: Final = frozenset({"must", "shall", "required", "may", "can"})

# What follows an apostrophe belongs to its word and is no word of its own: "you're" is a "you" and
# "mustn't" no "must".
_WORD: Final = re.compile("([A-Za-z0-9_]+)(?:['\u2019][A-Za-z]+)*")


def find_marks(text: str) -> frozenset[Mark]:
    """Return what a text demands of a "you", as words say it; empty if nothing.

    Looked at are the `REACH_WORDS` words after each "you": must, shall, required are an obligation,
    or forbidden where the next word is "not"; should is an obligation; may is permitted, "may not"
    forbidden; never, cannot and "can not" are forbidden. Source: research/peers.md 1.3.
    """
    words = [found[1].lower() for found in _WORD.finditer(text)]
    marks: set[Mark] = set()
    for place, word in enumerate(words):
        reached = words[place + 1 : place + 2 + REACH_WORDS] if word == "you" else []
        for at, said in enumerate(reached[:REACH_WORDS]):
            if said in _TURNED_BY_NOT and reached[at + 1 : at + 2] == ["not"]:
                marks.add("forbidden")
            elif said in _MARK_OF:
                marks.add(_MARK_OF[said])
    return frozenset(marks)


# Front matter: the three keys of it that count here.

_SWITCHES: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), 1.0),
    **dict.fromkeys(("false", "no", "off", "0"), 0.0),
}
_REMEDY: Final = 'Fix it, or put an empty line before the first "---" if it is not front matter.'


class FrontMatter(NamedTuple):
    """What front matter says: ids of nodes, each once, and an authority in [0, 1]."""

    hop_targets: tuple[str, ...] = ()
    authority: float = 0.0


NO_FRONT_MATTER: Final = FrontMatter()


def read_front_matter(text: str, source: str) -> FrontMatter:
    """Return what front matter (YAML without the fences) says, or an `AuthoredFormatError`."""
    try:
        values = read_yaml(text)
        return FrontMatter(_read_targets(values.get("hop_targets")), _read_authority(values))
    except ValueError as error:
        message = f"the front matter of {source} is wrong: {error}. {_REMEDY}"
        raise AuthoredFormatError(message) from error


def _read_targets(value: Any) -> tuple[str, ...]:
    """Return the ids of a list or of one scalar, without empty ones, each once."""
    entries: list[Any] = value if isinstance(value, list) else [value]
    if ... in entries:
        raise ValueError('"hop_targets" must be an id or a list of ids')
    # An escape may give half a character, which could not be printed.
    texts = [entry.encode("utf-8", "replace").decode() for entry in entries if entry is not None]
    return tuple(dict.fromkeys(filter(None, map(collapse, texts))))


def _read_authority(values: dict[str, Any]) -> float:
    given, authored = values.get("authority"), values.get("authored")
    if given is not None:
        authority = -1.0
        with suppress(ValueError, TypeError):
            authority = float(given)
        if not 0.0 <= authority <= 1.0:
            raise ValueError(f'"authority" must be a number from 0 to 1, not {_shown(given)}')
        return authority
    switch = _SWITCHES.get(authored.lower()) if isinstance(authored, str) else None
    if switch is None and authored is not None:
        raise ValueError(f'"authored" must be true or false, not {_shown(authored)}')
    return switch or 0.0


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else "a list or mapping"


# The top-level blocks of Markdown: what kind each is, and its text.
#
# Link reference definitions are not set apart: `[guide]: docs/guide.md` is a paragraph, so that
# what an item refers to is in a node as well. Tables are paragraphs whose lines are kept.

# Levels of nesting that are parsed, two for a list and one for a quote; what is nested deeper is a
# plain text of its block. The parser calls itself for every level.
MAX_LEVELS: Final = 64

# Longest paragraph whose links and emphasis are resolved before marks are looked for: that takes up
# to a second for 100,000 brackets. Longer ones, which nobody writes by hand, are searched as is.
MAX_SAID_CHARS: Final = 20_000

_MAY_DEMAND: Final = re.compile(
    "(?=.*you).*(?:must|shall|required|should|may|never|not)", re.IGNORECASE | re.DOTALL
)


class Block(NamedTuple):
    """A top-level block, or an item of a top-level list; not blank."""

    kind: Kind
    text: str
    said: str = ""  # what a reader sees of a paragraph that may hold a mark


def read_blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of CommonMark that are not blank, in order, without thematic breaks."""
    # Without a line break at the end the parser may look beyond it (markdown-it-py 4.3).
    for tokens in _top_level(_block_parser().parse(text + "\n")):
        block = _block(tokens)
        if block is not None and block.text:
            yield block


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


def _block(tokens: Sequence[Token]) -> Block | None:
    """Return the block of some tokens; None for a thematic break."""
    first = tokens[0]
    match first.type:
        case "list_item_open":
            # Its second line is set in, so that "- " before the text gives the item again.
            return Block("item", flatten(tokens[1:-1], indent="  "))
        case "blockquote_open":
            return Block("quote", flatten(tokens[1:-1]))
        case "heading_open":
            return Block("heading", collapse(tokens[1].content))
        case "fence" | "code_block":
            return Block("code", trim(first.content))
        case "html_block":
            return Block("html", first.content.strip())
        case "paragraph_open":
            content = tokens[1].content
            return Block("paragraph", "\n".join(paragraph_lines(content)), _said(content))
        case _:
            return None


def _said(content: str) -> str:
    if len(content) > MAX_SAID_CHARS:
        return content
    if _MAY_DEMAND.match(content) is None:
        return ""
    found: list[Token] = []
    parser = _inline_parser()
    parser.inline.parse(content, parser, {}, found)
    return "".join(_seen(token) for token in found)


def _seen(token: Token) -> str:
    """Return what a reader sees of an inline token; a space for what only separates."""
    if token.type in ("text", "text_special", "code_inline", "image"):
        return token.content
    # Emphasis may begin inside a word; line breaks and HTML do not.
    return " " if token.type in ("softbreak", "hardbreak", "html_inline") else ""


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


@cache
def _inline_parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark")


def _keep_as_text(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Take lines that are nested too deeply as one text: the parser would skip to the end."""
    if state.level < MAX_LEVELS or silent:
        return False
    line = start_line + 1
    # A line below 0 belongs to a quote without having its mark.
    while line < end_line and not 0 <= state.sCount[line] < state.blkIndent:
        line += 1
    state.line = line
    token = state.push("inline", "", 0)
    token.content = state.getLines(start_line, line, state.blkIndent, False).strip()
    token.map = [start_line, line]
    token.children = []
    return True


# Nodes of one document: the tier of every block.

CORE_AUTHORITY: Final = 1.0  # a(d) of documents that say who the agent is
_TIER_OF: Final[dict[Kind, Tier]] = {"item": HARD, "front_matter": HARD, "quote": SOFT}
_BYTE_ORDER_MARK: Final = "\ufeff"


def parse_document(text: str, source: str, *, core: bool = True) -> tuple[Node, ...]:
    """Return the nodes of a document, in the order of its text; equal texts give equal nodes.

    Every top-level block that is not blank is in exactly one node; of a list, every item. Thematic
    breaks have no text and give no node.

    Args:
        text: Markdown (CommonMark), with YAML front matter or without; any line ends.
        source: The document's name, the first part of every id; not empty.
        core: Whether its variants have authority 1. Without, the front matter decides:
            `authority`, else 1 for `authored: true`, else 0.

    Raises:
        AuthoredFormatError: The front matter is no YAML mapping, or a key has a wrong value.
        ValueError: No source.
    """
    if not source:
        raise ValueError("a document needs a source: its nodes are named after it")
    # As CommonMark has it, so that front matter and body agree on what a line is.
    lines = text.removeprefix(_BYTE_ORDER_MARK).replace("\r\n", "\n").replace("\r", "\n")
    front_text, body = split_front_matter(lines)
    blocks: list[Block] = []
    front = NO_FRONT_MATTER
    if front_text is not None and front_text.strip():
        front = read_front_matter(front_text, source)
        blocks.append(Block("front_matter", trim(front_text)))
    nodes: list[Node] = []
    for ordinal, block in enumerate([*blocks, *read_blocks(body)]):
        marks = find_marks(block.said)
        tier = SOFT if marks else _TIER_OF.get(block.kind, VARIANT)
        authority = CORE_AUTHORITY if core else front.authority
        targets = front.hop_targets if tier == VARIANT else ()
        name = f"{source}#{ordinal:06d}"
        nodes.append(
            Node(name, source, ordinal, block.kind, tier, block.text, marks, authority, targets)
        )
    return tuple(nodes)


# Documents from files: all nodes in authored order, and whether the hard ones fit.

# Instructions have kilobytes; a megabyte of prose is parsed for two seconds, in a prompt's way.
MAX_DOCUMENT_BYTES: Final = 1_000_000
LARGEST_SHOWN: Final = 3  # nodes that a message about a budget names, to shorten first


class Authored(NamedTuple):
    """The nodes of some documents in authored order, and a digest of the sources and texts."""

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
        named = {target for node in self.nodes for target in node.hop_targets}
        return tuple(sorted(named - {node.id for node in self.variants}))

    def _of(self, tier: Tier) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.tier == tier)


NO_DOCUMENTS: Final = Authored((), hash_text())  # what loading no file gives


def load_documents(paths: Sequence[str | os.PathLike[str]], *, core: bool = True) -> Authored:
    """Return the nodes of Markdown files in UTF-8, in the order given.

    A node's source is the path as given, with forward slashes. A file given twice, even under
    another name (CLAUDE.md is often a link to AGENTS.md), is read once, at its first place. `core`
    is as for `parse_document`.

    Raises:
        AuthoredMissingError: Nothing is at the path.
        AuthoredFormatError: It is not Markdown in UTF-8, it is too large, or its front matter is
            wrong.
    """
    nodes: list[Node] = []
    hashed: list[str] = []
    seen: set[str] = set()
    for path in map(Path, paths):
        text, real = _read_text(path), os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        # A name that is not UTF-8 becomes readable: ids are printed and stored.
        source = os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
        nodes.extend(parse_document(text, source, core=core))
        hashed += [source, text]
    return Authored(tuple(nodes), hash_text(*hashed))


def require_hard_fits(
    authored: Authored, count: Callable[[str], int], reserve_tokens: float
) -> int:
    """Return the tokens of all hard nodes; an `AuthoredBudgetError` if they exceed their reserve.

    Hard nodes are never cut, so what exceeds the reserve, alpha1 times the budget, would push
    everything else out of every prompt. `count` prices a node's text with whatever it is wrapped
    in. Source: libravdb 7.8.
    """
    if not reserve_tokens >= 0:
        raise ValueError(f"reserve_tokens must be at least 0, not {reserve_tokens}")
    costs = [(count(node.text), node) for node in authored.hard]
    total = sum(cost for cost, _ in costs)
    if total <= reserve_tokens:
        return total
    largest = sorted(costs, key=lambda entry: -entry[0])[:LARGEST_SHOWN]
    shown = ", ".join(f"{node.id} ({cost})" for cost, node in largest)
    raise AuthoredBudgetError(total, reserve_tokens, len(costs), shown)


def _read_text(path: Path) -> str:
    """Return the text of a file, or raise what `load_documents` raises."""
    try:
        # Looked at before it is opened: opening a named pipe would wait for its other end.
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
            raise AuthoredFormatError(f"{path} is {kind}; expected a Markdown file.")
        with path.open("rb") as file:
            raw = file.read(MAX_DOCUMENT_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        message = f"there is no document at {path}. Check the path, or leave it out."
        raise AuthoredMissingError(message) from error
    except (OSError, ValueError) as error:
        message = f"{path} cannot be read: {error}. Check its permissions, or leave it out."
        raise AuthoredFormatError(message) from error
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise AuthoredFormatError(
            f"{path} is too large: more than {MAX_DOCUMENT_BYTES:,} bytes. "
            "Split it, or leave it out: it is not a set of instructions."
        )
    if b"\0" in raw:
        fault = f"is binary: its byte {raw.index(0)} is zero. Give Markdown in UTF-8."
        raise AuthoredFormatError(f"{path} {fault}")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8: byte 0x{raw[error.start]:02x} at byte {error.start}."
        raise AuthoredFormatError(f"{path} {fault} Save it as UTF-8.") from error
