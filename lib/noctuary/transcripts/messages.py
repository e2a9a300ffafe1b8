"""What a line of a transcript comes to, whichever agent wrote it.

What belongs here: the shapes that the readers of the agents share. What does not: reading
(`claude`, `codex`), keeping (`turns_file`). Standard library only.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple, cast

from noctuary.foreign_json import parse_json
from noctuary.transcripts.report import Skip

Role = Literal["user", "assistant"]
PartKind = Literal["text", "call", "result"]

MAX_NAME_CHARS = 200
"""Longest id, session or tool name; longer ones are cut: they are text in the wrong place."""


class Part(NamedTuple):
    """A piece of a message, before it is vetted.

    Attributes:
        key: Equal for the same piece on every reading, across files. Of a call and its result it
            ends in the agent's id of the call: that id is the bundle of the two.
        kind: What was said, a tool call, or what the tool gave back.
        label: The tool's name; "" of a text and of a result.
        texts: Its texts; of a text and a result they follow each other.
        is_error: Of a result: the tool failed.
    """

    key: str
    kind: PartKind
    label: str
    texts: tuple[str, ...]
    is_error: bool = False


class Message(NamedTuple):
    """What one line adds to one turn.

    Attributes:
        native_id: The agent's id of the turn: lines that share it are one turn. "" of results,
            which join the turn of their call.
        role: Who says it.
        agent: "claude" or "codex".
        session: The conversation.
        project: The wing; "" where none is known.
        at_us: Microseconds since the epoch, or None.
        is_sidechain: Said by or to a subagent.
        parts: In order; at least one.
    """

    native_id: str
    role: Role
    agent: str
    session: str
    project: str
    at_us: int | None
    is_sidechain: bool
    parts: tuple[Part, ...]


@dataclass(slots=True)
class FileContext:
    """What a reader knows of a file from the lines before: kept between two readings.

    Attributes:
        session: The conversation; "" until a line names it.
        project: The wing of the folder that the session began in.
        last_us: When the last turn was said; None before the first dated one.
        step: Codex: native id of the answer that the next tool call belongs to.
        is_sidechain: Codex: the whole file is a subagent's.
        has_meta: Codex: the file's own session was named; a fork repeats its parent's lines.
    """

    session: str = ""
    project: str = ""
    last_us: int | None = None
    step: str = ""
    is_sidechain: bool = False
    has_meta: bool = False

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> FileContext:
        """Return what `to_json` wrote; what cannot be read is a context that knows nothing."""
        try:
            return cls(**parse_json(text))
        except (ValueError, TypeError):
            return cls()


Reading = Message | Skip
"""What a line comes to: part of a turn, or why it is none."""


def as_object(value: object) -> dict[str, object]:
    """Return a JSON object, or an empty one for anything else."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[object]:
    """Return a JSON array, or an empty one for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def as_name(value: object) -> str:
    """Return an id or a name on one line, at most `MAX_NAME_CHARS` long; "" for anything else."""
    if not isinstance(value, str):
        return ""
    if value.isprintable() and len(value) <= MAX_NAME_CHARS:
        return value.strip()
    return "".join(c if c.isprintable() else " " for c in value[:MAX_NAME_CHARS]).strip()
