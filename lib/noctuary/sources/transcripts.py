"""Common types and helpers for the transcripts of all agents."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, BinaryIO, Literal, NamedTuple, cast

from noctuary.core.foreign_json import parse_json
from noctuary.core.types import to_micros
from noctuary.sources.injected import cut_blocks, is_tool_answer
from noctuary.sources.projects import project_of
from noctuary.text.secrets import find_text_sensitivity


class Skip(StrEnum):
    """Reasons to skip a line; the first one that applies is counted."""

    BAD_JSON = "bad_json"  # Not a JSON object
    TOO_LONG = "too_long"  # Over the line limit even without encoded images
    OTHER_TYPE = "other_type"  # Bookkeeping of the agent
    UNKNOWN_TYPE = "unknown_type"  # A type of line that no known version writes
    META = "meta"  # Written by the agent, or another agent, in the user's role
    COMPACT_SUMMARY = "compact_summary"  # The agent's summary of earlier turns, which are kept
    COMPACT_BOUNDARY = "compact_boundary"  # Where the agent compacted its context
    SIDECHAIN = "sidechain"  # A message to or from a subagent
    SYNTHETIC = "synthetic"  # An API error in place of an answer
    NO_CONTENT = "no_content"  # Only wrappers, injected memories, reasoning or images
    ORPHAN = "orphan"  # The result of a tool call that was not kept
    COPIED = "copied"  # A prompt of the session that this one was forked from
    BROKEN_CHAIN = "broken_chain"  # A message's predecessor is missing from the chat


@dataclass(slots=True)
class IngestReport:
    """Counts of one ingest, without any text of the turns."""

    files: int = 0  # Files found
    unchanged: int = 0  # Of these, files with nothing new
    restarted: int = 0  # Files read from the beginning again: truncated, replaced or rewritten
    bytes_read: int = 0  # Bytes of the lines read
    lines: int = 0  # Lines read
    turns: int = 0  # New turns
    parts: int = 0  # New or changed texts, tool calls and results
    sensitive: int = 0  # Turns found to hold a secret: only the id is kept
    withheld: int = 0  # Tool calls and results whose text was dropped because of a secret
    cut: int = 0  # Texts cut because they were too long
    skipped: Counter[str] = field(default_factory=Counter[str])  # Lines without a turn, by `Skip`
    faults: list[str] = field(default_factory=list[str])  # One sentence per unreadable file
    is_complete: bool = True  # False if a deadline or a fault ended it early

    def fail(self, sentence: str) -> None:
        """Record that something could not be read."""
        self.faults.append(sentence)
        self.is_complete = False

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON values, reasons sorted."""
        skipped = {str(reason): n for reason, n in sorted(self.skipped.items())}
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "skipped": skipped}


# Reading the lines of a growing file from a byte offset.

MAX_READ_BYTES = 64 * 2**20  # read into memory at most: prompts with several images have some 30 MB
MAX_LINE_BYTES = 4 * 2**20  # parsed at most: hostile JSON takes some twenty times its length
_CHUNK_BYTES = 1 << 20
# No human text has so many of these characters in a row.
_ENCODED = re.compile(rb'"[A-Za-z0-9+/]{4096,}={0,2}"')
_ENCODED_FROM_BYTES = 64 * 2**10
_BLANK = b" \t\r\n\x00"


class Line(NamedTuple):
    """One line, or the length of a line that is too long."""

    end: int  # Byte offset after it, line end included
    size_bytes: int  # Its length, line end included
    data: bytes | None  # Without line end and encoded images; None if it is too long
    is_ended: bool  # False for a last line that has no line end yet


def read_lines(handle: BinaryIO, start: int, stop: int) -> Iterator[Line]:
    """Yield the lines between two offsets of a file, blank ones included."""
    end = handle.seek(start)
    while data := handle.readline(min(MAX_READ_BYTES, stop - end)):
        size, text = len(data), data.strip(_BLANK)
        is_whole = data.endswith(b"\n")
        # Of a line that is too long to hold, only the length is needed.
        while not is_whole and (rest := handle.readline(min(_CHUNK_BYTES, stop - end - size))):
            size, text, is_whole = size + len(rest), b"", rest.endswith(b"\n")
        end += size
        if len(text) > _ENCODED_FROM_BYTES:
            text = _ENCODED.sub(b'""', text)
        is_held = size <= MAX_READ_BYTES and len(text) <= MAX_LINE_BYTES
        yield Line(end, size, text if is_held else None, is_whole)


def parse_object(data: bytes | str) -> dict[str, object] | None:
    """Return the JSON object of a line, or None; invalid UTF-8 bytes are replaced."""
    try:
        value = parse_json(data if isinstance(data, str) else data.decode("utf-8", "replace"))
    except ValueError:
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


# A stamp that is earlier than the previous line's by at most this much is a corrected clock, and
# its turn is placed after that line; wider misplaces more turns of a copied history.
MAX_SKEW_US = 3_600_000_000


def from_millis(value: object) -> int | None:
    """Convert milliseconds since the epoch to microseconds; None outside 1970 to 2200."""
    return value * 1000 if isinstance(value, int) and 0 <= value < _LAST_MS else None


_LAST_MS = 7_258_118_400_000  # the year 2200


def parse_moment(value: object) -> int | None:
    """Return microseconds of an ISO 8601 stamp (UTC without an offset) of 1970 to 2200, or None."""
    if not isinstance(value, str) or not 10 <= len(value) <= 40:
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    micros = to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    return micros if micros >= 0 and 1970 <= moment.year <= 2200 else None


def place_after(stamp_us: int | None, last_us: int | None) -> int | None:
    """Return the time of a turn that follows one at `last_us`: its stamp, or just after."""
    if last_us is None:
        return stamp_us
    if stamp_us is None or last_us - MAX_SKEW_US <= stamp_us <= last_us:
        return last_us + 1
    return stamp_us


# Cutting a message down to its author's text, without wrappers of the agent and noctuary; linear.

_NAMES = (
    r"system-reminder|local-command-[a-z-]{1,40}|command-(?:name|message|contents)"
    r"|bash-(?:input|stdout|stderr|exit-code)|ide_[a-z_]{1,40}|task-notification"
    r"|user-prompt-submit-hook|session-start-hook|environment_context|user_instructions"
    r"|turn_aborted|tick|goal|tools-used-before-summary"
)
_OPENING = re.compile(rf"<({_NAMES})>")
# The words after a slash command are the user's; the tags around them are not.
_ARGUMENTS = re.compile(r"</?command-args>")
_INTERRUPTED = re.compile(r"\[Request interrupted by user[^\]\n]{0,40}\]")


def strip_wrappers(text: str) -> str:
    """Return a text, stripped, without the agent's tagged insertions and injected memories.

    A tag that is never closed stays unless it begins the text: the author is quoting it.
    """
    if "<" in text:
        text = _without_tagged(cut_blocks(text).text)
        text = _ARGUMENTS.sub("", text)
    if "[Request" in text:
        text = _INTERRUPTED.sub("", text)
    return text.strip()


def _without_tagged(text: str) -> str:
    kept: list[str] = []
    place = searched = 0
    unclosed: set[str] = set()
    begin = len(text) - len(text.lstrip())
    while (found := _OPENING.search(text, searched)) is not None:
        name = found[1]
        end = -1 if name in unclosed else text.find(f"</{name}>", found.end())
        if end < 0:
            unclosed.add(name)
            if found.start() == begin:
                return ""
            searched = found.end()
            continue
        kept.append(text[place : found.start()])
        place = searched = end + len(name) + len("</>")
    return "".join([*kept, text[place:]])


# The turns and parts that lines are read into, for every agent.

Role = Literal["user", "assistant"]
PartKind = Literal["text", "call", "result"]

# Longest id, session or tool name; longer ones are misplaced text and are cut.
MAX_NAME_CHARS = 200


class Part(NamedTuple):
    """A piece of a message, before it is checked for secrets."""

    key: str  # The same for this piece in all files; ends in the agent's call id
    kind: PartKind  # A message text, a tool call or its result
    label: str  # The tool's name; "" for a text and a result
    texts: tuple[str, ...]  # For a text and a result, consecutive texts
    is_error: bool = False  # For a result: the tool failed


def text_part(native: str, text: str, index: int = 0) -> Part:
    """Return a text part; `index` is its place among the blocks of its line."""
    return Part(f"{native}:{index}", "text", "", (text,))


def call_part(call: str, tool: str, arguments: object) -> Part:
    """Return the part of a tool call."""
    return Part(f"call:{call}", "call", tool, call_texts(arguments))


def result_part(call: str, texts: tuple[str, ...], *, is_error: bool = False) -> Part:
    """Return the part of a tool call's result."""
    return Part(f"result:{call}", "result", "", texts, is_error)


class Message(NamedTuple):
    """The addition of one line to one turn."""

    native_id: str  # The agent's id of the turn; "" for results, which join their call
    role: Role  # The author
    agent: str  # "claude", "codex", "chatgpt" or "claude-ai"
    session: str = ""  # The conversation
    project: str = ""  # The wing; "" if unknown
    at_us: int | None = None  # Microseconds since the epoch, or None
    is_sidechain: bool = False  # To or from a subagent
    parts: tuple[Part, ...] = ()  # In order; if empty, the turn is withdrawn
    copied_from: str = ""  # Session that may already hold this turn: this file repeats its lines
    folder: str = ""  # Its folder, if one file holds the sessions of several folders


def withdraw(agent: str, *native_ids: str) -> list[Message]:
    """Return messages that withdraw turns kept wrongly from earlier lines or by old versions."""
    return [Message(native_id, "user", agent) for native_id in native_ids]


class Waiting(NamedTuple):
    """A message whose line may appear again in another form."""

    role: str  # "user", "assistant"; "queued" and "taken" for prompts in the agent's queue
    text: str
    stamp: str  # As written in its line
    native: str  # The id of its turn, if no other line gives one
    is_read: bool  # Its turn has been read: the other form adds nothing


@dataclass(slots=True)
class FileContext:
    """State of a reader from earlier lines of a file; saved between two readings."""

    session: str = ""  # The conversation; "" until a line names it
    project: str = ""  # The wing of the folder in which the session began
    folder: str = ""  # That folder
    last_us: int | None = None  # Time of the last turn; None before the first dated one
    step: str = ""  # Native id of the answer that the next tool call or result belongs to
    is_sidechain: bool = False  # The lines belong to a subagent
    has_meta: bool = False  # Codex: `session_meta` was seen; a fork repeats its parent's lines
    copied_from: str = ""  # Codex: the session whose lines this file is repeating
    heard: str = ""  # Codex: the last answer with an event, squeezed
    last_answer: list[str] = field(default_factory=list[str])  # Codex: its native id and text
    waiting: list[Waiting] = field(default_factory=list[Waiting])
    asked: dict[str, str] = field(default_factory=dict[str, str])  # Questions by call id
    path: list[list[str]] = field(default_factory=list[list[str]])  # Ids of lines and turns
    parent: str = ""  # Gemini: the parent session of a subagent's file
    since_ms: int = 0  # OpenCode: only sessions changed since then are read
    agent: str = ""  # The agent that wrote the file
    version: str = ""  # The agent's version, if its lines have one
    lines: int = 0  # Lines read
    unknown: int = 0  # Of these, lines of unknown type
    prompts: int = 0  # Messages of the user, without subagents
    answers: int = 0  # Messages of the agent, without subagents

    def enter(self, folder: str) -> None:
        """Set the session's folder and project."""
        self.folder, self.project = folder, project_of(folder) or self.project

    def message(
        self, agent: str, native_id: str, role: Role, at_us: int | None, *parts: Part
    ) -> Message:
        """Return a message of the session, dated after the previous one."""
        self.last_us = place_after(at_us, self.last_us)
        where = (self.session, self.project, self.last_us, self.is_sidechain)
        return Message(native_id, role, agent, *where, parts)

    def wait(self, role: str, text: str, stamp: str, native: str, *, is_read: bool = False) -> None:
        """Remember a message until its other form comes; only the last ones are kept."""
        self.waiting = [*self.waiting, Waiting(role, text, stamp, native, is_read)][-_MOST_WAITING:]

    def release(self, is_due: Callable[[Waiting], bool], **changes: str) -> list[Waiting]:
        """Mark due unread messages as read, because no other form will come; return them."""
        due = [not one.is_read and is_due(one) for one in self.waiting]
        found = [one for one, is_one in zip(self.waiting, due, strict=True) if is_one]
        self.waiting = [
            one._replace(is_read=True, **changes) if is_one else one
            for one, is_one in zip(self.waiting, due, strict=True)
        ]
        return found

    def ask(self, call: str, questions: str) -> None:
        """Remember the questions of a call until the user answers."""
        if len(questions) <= _MOST_ASKED_CHARS:
            self.asked[call] = questions
            self.asked = dict([*self.asked.items()][-_MOST_WAITING:])

    def follow(self, line: str, native: str, parent: object = None) -> list[str]:
        """Add a line to the path of the conversation; return the turns after its parent."""
        undone = list[str]()
        if isinstance(parent, str) and self.path and self.path[-1][0] != parent:
            undone = self.cut_path(parent, is_kept=True)
        if line not in {one for one, _ in self.path[-_MOST_WAITING:]}:
            self.path = [*self.path[1 - _MOST_FOLLOWED :], [line, native]]
        return undone

    def cut_path(self, line: str, *, is_kept: bool = False) -> list[str]:
        """Cut the path at a line, which may be kept; return the turns cut off."""
        places = [at for at, (one, _) in enumerate(self.path, is_kept) if one == line]
        at = places[-1] if places else len(self.path)
        self.path, gone = self.path[:at], self.path[at:]
        return [native for _, native in gone]

    def count(self, readings: Sequence[Reading]) -> None:
        """Count the results of reading some lines."""
        self.unknown += readings.count(Skip.UNKNOWN_TYPE)
        for reading in readings:
            if isinstance(reading, Message) and reading.parts and not reading.is_sidechain:
                is_said = any(part.kind == "text" for part in reading.parts)
                self.agent = reading.agent
                self.prompts += reading.role == "user" and is_said
                self.answers += reading.role == "assistant" and is_said

    def to_json(self) -> str:
        """Return the context as one line of JSON."""
        return json.dumps({k: v for k, v in asdict(self).items() if v}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> FileContext:
        """Parse the output of `to_json`; anything else gives an empty context."""
        try:
            found = cls(**parse_json(text))
            found.waiting = [Waiting(*one) for one in found.waiting]
        except (ValueError, TypeError):
            return cls()
        return found


_MOST_WAITING = 16
_MOST_FOLLOWED = 4_000  # lines of a conversation that a later one can undo
_MOST_ASKED_CHARS = 20_000

Reading = Message | Skip
"""The result of reading a line: part of a turn, or a reason to skip it."""


def join_answers(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the user's answers to an agent's questions, each after its question."""
    given = ((asked, answer) for asked, answer in pairs if answer.strip())
    return "\n".join(f"[{asked}] {answer}" if asked else answer for asked, answer in given)


def squeeze(text: str) -> str:
    """Return a text without white space and wrappers, to compare two forms of a message."""
    return "".join(strip_wrappers(text).split())


def as_object(value: object) -> dict[str, object]:
    """Return a JSON object, or an empty one for any other value."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return a JSON array, or an empty one for any other value."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_texts(content: object) -> tuple[str, ...]:
    """Return the texts of a content: a string itself, or those of its blocks, without images."""
    if isinstance(content, str):
        return (content,)
    found = (as_object(value).get("text") for value in as_list(content))
    return tuple(text for text in found if isinstance(text, str))


def as_name(value: object) -> str:
    """Return an id or a name on one line, at most `MAX_NAME_CHARS` long; "" for anything else."""
    if not isinstance(value, str):
        return ""
    if value.isprintable() and len(value) <= MAX_NAME_CHARS:
        return value.strip()
    return "".join(c if c.isprintable() else " " for c in value[:MAX_NAME_CHARS]).strip()


# Tool calls and their results as short text: [Bash: git log -3], [Bash result: 4f2a fix the tax].

_GAP = " ... "
_TAIL_SHARE = 3  # one part in so many of a cut text comes from its end, where errors are


def call_texts(arguments: object) -> tuple[str, ...]:
    """Return a call's arguments as texts, each prefixed "name=" if there are several."""
    parsed = parse_object(arguments) if isinstance(arguments, str) else as_object(arguments)
    if parsed is None:
        return (str(arguments),)
    texts = {name: _shown(value) for name, value in parsed.items()}
    if len(texts) == 1:
        return tuple(texts.values())
    return tuple(f"{name}={text}" for name, text in texts.items())


def render_tool(part: Part, label: str, texts: tuple[str, ...], chars: int) -> str:
    """Return a call or a result on one line; "" for a result without text."""
    name, is_call = label or "tool", part.kind == "call"
    text = shorten(("; " if is_call else "\n").join(texts), chars)
    if not text:
        return f"[{name}]" if is_call else ""
    kind = "" if is_call else " failed" if part.is_error else " result"
    return f"[{name}{kind}: {text}]"


def shorten(text: str, chars: int) -> str:
    """Return a text on one line, cut in the middle to at most `chars` characters."""
    if chars <= 0:
        return ""
    # White space rarely makes up three quarters: limits the work on outputs of megabytes.
    reach = chars * 4
    if len(text) > 2 * reach:
        head, tail = " ".join(text[:reach].split()), " ".join(text[-reach:].split())
    else:
        head = tail = " ".join(text.split())
        if len(head) <= chars:
            return head
    if chars <= len(_GAP) * _TAIL_SHARE:
        return head[:chars]
    at_end = (chars - len(_GAP)) // _TAIL_SHARE
    at_start = chars - len(_GAP) - at_end
    return f"{head[:at_start]}{_GAP}{tail[-at_end:]}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# Preparing a part for storage.

MAX_TEXT_CHARS = 100_000  # of one text; more keeps pasted files, which encoders do not read anyway
# NUL ends a text in C, and a lone surrogate cannot be written.
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


class Vetted(NamedTuple):
    """The storable form of a part."""

    text: str  # The text to store; never empty, except for a result without text
    label: str = ""  # The tool's name
    withheld: bool = False  # Its text held a secret and was left out of `text`
    is_secret: bool = False  # A message text held a secret: the whole turn must go
    was_cut: bool = False  # It was longer than `MAX_TEXT_CHARS`


def vet_part(part: Part, tool_chars: int) -> Vetted | None:
    """Return a part as stored, or None; `tool_chars` 0 keeps a call's name and no result."""
    texts = tuple(t for t in map(clean_text, part.texts) if t)
    if part.kind == "text":
        said = "\n".join(texts)
        if not said:
            return None
        if find_text_sensitivity(said) is not None:
            return Vetted("", is_secret=True)
        return Vetted(said[:MAX_TEXT_CHARS], was_cut=len(said) > MAX_TEXT_CHARS)
    if part.kind == "call" and (is_own_tool(part.label) or _calls_noctuary(texts)):
        # Calls of noctuary are not memories themselves; neither are their results.
        return Vetted(f"[{part.label}]", part.label if is_own_tool(part.label) else _OWN)
    if part.kind == "result":
        # Answers of the MCP server are stored already, and would come back as new memories.
        is_own = is_own_tool(part.label)
        texts = tuple(t for t in texts if not (is_own or is_tool_answer(t)))
    withheld = find_text_sensitivity("\n".join((part.label, *texts))) is not None
    label = "tool" if withheld and find_text_sensitivity(part.label) else part.label
    shown = () if withheld else texts
    return Vetted(render_tool(part, label, shown, tool_chars), label, withheld=withheld)


_OWN = "noctuary"
_OWN_TOOL = re.compile(rf"(?:\A|[^a-z0-9]){_OWN}(?:[^a-z0-9]|\Z)", re.IGNORECASE)
_OWN_COMMAND = re.compile(
    rf"(?:\A|[;&|(=]|\s)\s*(?:[\w./~-]*/)?{_OWN}\s+(?:-\S+\s+)*"
    r"(?:recall|remember|forget|why|context|graph|sql|export|browse|proposals)\b"
)


def is_own_tool(label: str) -> bool:
    """Return whether a tool is one of noctuary's, whatever prefix an agent adds to its name."""
    return _OWN_TOOL.search(label) is not None


def _calls_noctuary(texts: tuple[str, ...]) -> bool:
    """Return whether a call runs noctuary's command."""
    return any(_OWN in text and _OWN_COMMAND.search(text[:MAX_TEXT_CHARS]) for text in texts)


def clean_text(text: str) -> str:
    """Return a text without wrappers, NUL and lone surrogates, stripped; may be empty."""
    return strip_wrappers(_UNWRITABLE.sub("\ufffd", text) if _UNWRITABLE.search(text) else text)
