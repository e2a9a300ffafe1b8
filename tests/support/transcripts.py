"""Transcripts as the agents write them: single lines, whole sessions, many megabytes.

Sources of the shapes: research/ecosystem.md 1.3 for Claude Code, codex-rs/protocol and codex-
rs/rollout of openai/codex.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from noctuary.core.settings import TranscriptSettings
from noctuary.sources.ingest import ingest_transcripts
from noctuary.sources.source import RawRow
from noctuary.sources.transcripts import IngestReport
from noctuary.sources.turns import TranscriptSource

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
_WORDS = (
    "carrier", "invoice", "rounding", "tariff", "parcel", "label", "webhook", "retry", "ledger",
    "migration", "branch", "cache", "timeout", "shipment", "customs", "pickup", "weekday",
    "depot", "scanner", "queue", "worker", "schema", "index", "backfill",
)  # fmt: skip

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
"""Any small JSON value, lone surrogates and NaN included."""


class ClaudeSession:
    """Lines of one session of Claude Code, one second apart.

    Attributes:
        lines: As written so far.
    """

    def __init__(
        self, session: str = "11111111-2222-4333-8444-555555555555", cwd: str = "/home/me/shop"
    ) -> None:
        self.session = session
        self.cwd = cwd
        self.lines: list[dict[str, Any]] = []
        self._made = 0
        self._random = random.Random(session)

    def user(self, content: object, **fields: Any) -> dict[str, Any]:
        """Add a line of the user's: a text, or blocks."""
        return self._add("user", {"role": "user", "content": content}, **fields)

    def assistant(
        self, *blocks: Mapping[str, Any], message: str | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Add one line of an answer; lines of one `message` are one answer."""
        name = message or f"msg_{self._hex(12)}"
        value = {
            "id": name,
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-4-9",
            "content": list(blocks),
            "stop_reason": None,
            "usage": {"input_tokens": 3, "output_tokens": 40},
        }
        return self._add("assistant", value, **{"requestId": f"req_{name}", **fields})

    def result(
        self, call: str, content: object, *, is_error: bool = False, **fields: Any
    ) -> dict[str, Any]:
        """Add what a tool gave back."""
        block = {
            "type": "tool_result",
            "tool_use_id": call,
            "content": content,
            "is_error": is_error,
        }
        rich = {"stdout": content, "stderr": "", "interrupted": False}
        return self.user([block], **{"toolUseResult": rich, **fields})

    def other(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Add a line of another type."""
        return self._add(kind, None, **fields)

    def boundary(self, summary: str) -> None:
        """Add what compacting the context leaves: a boundary and the agent's summary."""
        self.other(
            "system", subtype="compact_boundary", content="Conversation compacted", parentUuid=None
        )
        self.user(summary, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def _add(self, kind: str, message: object, **fields: Any) -> dict[str, Any]:
        moment = START + timedelta(seconds=len(self.lines))
        line: dict[str, Any] = {
            "parentUuid": self.lines[-1].get("uuid") if self.lines else None,
            "isSidechain": False,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.session,
            "version": "2.1.329",
            "gitBranch": "main",
            "type": kind,
            "uuid": str(uuid.UUID(int=self._random.getrandbits(128), version=4)),
            "timestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        if message is not None:
            line["message"] = message
        line.update(fields)
        self.lines.append(line)
        return line

    def _hex(self, chars: int) -> str:
        return f"{self._random.getrandbits(chars * 4):0{chars}x}"


def text(said: str) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": said}


def thinking(said: str) -> dict[str, Any]:
    """Return a block of reasoning."""
    return {"type": "thinking", "thinking": said, "signature": "c2lnbmF0dXJl"}


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """Return a tool call block."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


class CodexSession:
    """Lines of one Codex rollout, one second apart."""

    def __init__(
        self,
        session: str = "01990000-aaaa-7bbb-8ccc-dddddddddddd",
        cwd: str = "/home/me/depot",
        source: object = "cli",
        **more: object,
    ) -> None:
        self.lines: list[dict[str, Any]] = []
        meta = {
            "id": session,
            "timestamp": "2026-11-02T09:00:00.000Z",
            "cwd": cwd,
            "originator": "codex_cli_rs",
            "cli_version": "0.140.0",
            "source": source,
            "model_provider": "openai",
            "base_instructions": {"text": "You are a coding agent."},
            **more,
        }
        self.add("session_meta", meta)

    def user(self, said: str) -> dict[str, Any]:
        """Add a prompt as the rollout holds it: the model's input and the event."""
        content = [{"type": "input_text", "text": said}]
        self.add("response_item", {"type": "message", "role": "user", "content": content})
        return self.add("event_msg", {"type": "user_message", "message": said, "images": []})

    def assistant(self, said: str) -> dict[str, Any]:
        """Add an answer: the model's output and the event."""
        self.add("event_msg", {"type": "agent_message", "message": said})
        content = [{"type": "output_text", "text": said}]
        return self.add(
            "response_item", {"type": "message", "role": "assistant", "content": content}
        )

    def said_once(self, said: str, **more: object) -> dict[str, Any]:
        """Add an answer without its event."""
        content = [{"type": "output_text", "text": said}]
        message = {"type": "message", "role": "assistant", "content": content}
        return self.add("response_item", {**message, **more})

    def called(self, call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
        """Add a function call."""
        item = {
            "type": "function_call",
            "name": name,
            "arguments": json.dumps(arguments),
            "call_id": call_id,
        }
        return self.add("response_item", item)

    def returned(self, call_id: str, output: object) -> dict[str, Any]:
        """Add what it gave back."""
        item = {"type": "function_call_output", "call_id": call_id, "output": output}
        return self.add("response_item", item)

    def add(self, kind: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Add any line."""
        moment = START + timedelta(seconds=len(self.lines))
        stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line: dict[str, Any] = {"timestamp": stamp, "type": kind, "payload": dict(payload)}
        self.lines.append(line)
        return line


def dump(lines: Sequence[Mapping[str, Any]]) -> bytes:
    """Return lines as the agents write them."""
    return b"".join(
        json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        for line in lines
    )


def write_session(path: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    """Write a transcript, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dump(lines))
    return path


def kept_rows(turns: Path, **options: Any) -> list[RawRow]:
    """Return the rows of a file of turns in key order."""
    with TranscriptSource(turns, **options) as source:
        return [row for row in source.rows()]


def kept_contents(turns: Path, **options: Any) -> list[str]:
    """Return the contents of a file of turns, oldest turn first; "" for one without a text."""
    rows = sorted(kept_rows(turns, **options), key=lambda r: str(r.fields.get("created_at")))
    return [str(row.fields["content"]) for row in rows]


def working_session(seed: int, exchanges: int, cwd: str = "/home/me/shop") -> ClaudeSession:
    """Return a session like those of a working day: prompts, tool calls, results, bookkeeping."""
    rng = random.Random(seed)
    session = ClaudeSession(str(uuid.UUID(int=rng.getrandbits(128), version=4)), cwd)
    session.other("file-history-snapshot", snapshot={"trackedFileBackups": {}})
    for number in range(exchanges):
        session.user(f"{_sentence(rng, 12)}? ({seed}-{number})")
        name, tool = f"msg_{seed}_{number}", f"toolu_{seed}_{number}"
        session.assistant(thinking(_sentence(rng, 30)), message=name)
        session.assistant(text(_sentence(rng, 10)), message=name)
        session.assistant(call("Bash", tool, command=_sentence(rng, 6)), message=name)
        session.result(tool, "\n".join(_sentence(rng, 9) for _ in range(rng.randrange(2, 40))))
        session.assistant(text(_sentence(rng, 60)))
    return session


def write_megabytes(folder: Path, size_bytes: int, file_bytes: int = 8 * 2**20) -> Iterator[Path]:
    """Write sessions of about `file_bytes` each until they have `size_bytes` together."""
    written = seed = 0
    while written < size_bytes:
        path = folder / "-home-me-shop" / f"session-{seed:05}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as handle:
            while handle.tell() < min(file_bytes, size_bytes - written):
                handle.write(dump(working_session(seed, 40).lines))
                seed += 1
            written += handle.tell()
        yield path


def _sentence(rng: random.Random, words: int) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(words))


def said_session() -> ClaudeSession:
    """A prompt, an answer in three lines with a call, its result, and a last answer."""
    session = ClaudeSession()
    session.user("Which carrier delivers on Saturday?")
    session.assistant(thinking("hm"), message="msg_1")
    session.assistant(text("I look it up."), message="msg_1")
    session.assistant(call("Bash", "toolu_1", command="grep -r saturday"), message="msg_1")
    session.result("toolu_1", "carriers.py:12: SATURDAY = 'Nordpost'")
    session.assistant(text("Nordpost does."))
    return session


SAID = [
    "User: Which carrier delivers on Saturday?",
    """Assistant: I look it up.
[Bash: grep -r saturday]
[Bash result: carriers.py:12: SATURDAY = 'Nordpost']""",
    "Assistant: Nordpost does.",
]
"""The contents of `said_session`, in order."""


class Folder:
    """A folder of transcripts and the file of turns beside it."""

    def __init__(self, path: Path) -> None:
        self.root = path / "projects"
        self.file = self.root / "-home-me-shop" / "session.jsonl"
        self.turns = path / "turns.sqlite"
        self.file.parent.mkdir(parents=True)

    def ingest(self, **settings: Any) -> IngestReport:
        report = ingest_transcripts(self.root, self.turns, TranscriptSettings(**settings))
        assert report.faults == []
        assert report.is_complete
        return report

    def contents(self, **options: Any) -> list[str]:
        return kept_contents(self.turns, **options)
