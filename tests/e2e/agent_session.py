"""An agent's session as hooks see it: prompts, a growing transcript, one hook process per event."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from noctuary.text.marks import estimate_tokens

_IDS = re.compile(r"^- \[([^\]]+)\] ", re.MULTILINE)


@dataclass(frozen=True)
class Prompt:
    """One thing that the user types.

    Attributes:
        text: As typed.
        kind: "question", "unanswerable", "small talk", "command", "news", "again", "secret" or
            "subagent".
        relevant: Ids of the memories that answer it.
    """

    text: str
    kind: str = "question"
    relevant: tuple[str, ...] = ()


@dataclass(frozen=True)
class Entry:
    """What one event came to.

    Attributes:
        event: The hook's event.
        prompt: What was typed; None for events without.
        code: Exit code of the process.
        out: Its stdout.
        wall_ms: From start to end of the process.
    """

    event: str
    prompt: Prompt | None
    code: int
    out: str
    wall_ms: float

    @property
    def context(self) -> str:
        """What was injected."""
        if not self.out.strip():
            return ""
        specific = json.loads(self.out).get("hookSpecificOutput", {})
        return specific.get("additionalContext", "")

    @property
    def ids(self) -> list[str]:
        """The ids of the injected memories, best first."""
        return _IDS.findall(self.context)

    @property
    def tokens(self) -> int:
        """Its size, estimated."""
        return estimate_tokens(self.context)


@dataclass
class Session:
    """One session of the agent: its transcript and its hooks.

    Attributes:
        project: The folder that the agent works in.
        transcripts: The folder of transcripts.
        ask: Runs one hook process: event to entry.
        now: The clock of the transcript's lines.
    """

    project: Path
    transcripts: Path
    ask: Callable[[Mapping[str, Any], Prompt | None], Entry]
    now: datetime
    session_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    entries: list[Entry] = field(default_factory=list[Entry])
    _parent: str | None = None

    @property
    def transcript(self) -> Path:
        """The session's file."""
        folder = re.sub(r"[^A-Za-z0-9]", "-", str(self.project))
        return self.transcripts / folder / f"{self.session_id}.jsonl"

    def start(self, source: str) -> Entry:
        """Begin, or go on after a compaction."""
        return self.fire("SessionStart", source=source)

    def say(self, prompt: Prompt, answer: str = "Noted.", **extra: Any) -> Entry:
        """Type a prompt: hook first, then the lines of the transcript, then Stop."""
        if prompt.kind == "subagent":
            who = {"agent_id": "a1", "agent_type": "explorer"}
            return self.fire("UserPromptSubmit", prompt, prompt=prompt.text, **who)
        entry = self.fire("UserPromptSubmit", prompt, prompt=prompt.text, **extra)
        self._write("user", {"role": "user", "content": prompt.text})
        self._write(
            "assistant",
            {
                "id": f"msg_{uuid.uuid4().hex}",
                "role": "assistant",
                "model": "some-model",
                "content": [{"type": "text", "text": answer}],
            },
            requestId=f"req_{uuid.uuid4().hex}",
        )
        self.fire("Stop", stop_hook_active=False, last_assistant_message=answer)
        return entry

    def compact(self) -> Entry:
        """Let the agent compact its context; return what was restored."""
        self.fire("PreCompact", trigger="auto", custom_instructions=None)
        summary = "This session is continued: we spoke about the household and the platform."
        self._write("user", {"role": "user", "content": summary}, isCompactSummary=True)
        self.fire("PostCompact", trigger="auto", compact_summary=summary)
        return self.start("compact")

    def end(self) -> Entry:
        """Leave."""
        return self.fire("SessionEnd", reason="prompt_input_exit")

    def fire(self, event: str, said: Prompt | None = None, **fields: Any) -> Entry:
        """Run the hook of one event."""
        base = {
            "session_id": self.session_id,
            "transcript_path": str(self.transcript),
            "cwd": str(self.project),
            "hook_event_name": event,
        }
        entry = self.ask({**base, **fields}, said)
        self.entries.append(entry)
        return entry

    def _write(self, kind: str, message: Mapping[str, Any], **extra: Any) -> None:
        line_id = str(uuid.uuid4())
        self.now += timedelta(seconds=40)
        line = {
            "parentUuid": self._parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": str(self.project),
            "sessionId": self.session_id,
            "version": "2.1.329",
            "type": kind,
            "message": message,
            "uuid": line_id,
            "timestamp": self.now.isoformat().replace("+00:00", "Z"),
            **extra,
        }
        self.transcript.parent.mkdir(parents=True, exist_ok=True)
        with self.transcript.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")
        self._parent = line_id
