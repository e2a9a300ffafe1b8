"""A simulated working day with an agent: real hook processes, a real transcript, a real night.

Run it to see what it is like:

    python -m tests.e2e.working_day

It takes the bundled sample, runs a night on it, starts a warm server, asks thirty prompts through
`mnemon hook` as Claude Code would (one process per event, its transcript growing beside), compacts
the context once, ends the session, runs the next night, and asks on the new day for what was only
said yesterday. It prints what every prompt got and what that cost in milliseconds and tokens.

What belongs here: the day and its account. What does not: what must be true of it
(`test_working_day`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from mnemon.text.token_estimate import estimate_tokens
from tests.e2e.driver import DONE, environment, run_night
from tests.e2e.stores import Bench, build_full_source

SECRET = "AKIA" + "Q7ZV3M5RT2XW9KDB"
"""Pasted into one prompt: shaped like a cloud key, in two parts so that no scanner stops at it."""

NEWS = "For the record: the ladder for the gutters is now kept at Odalys Ferrer's workshop."
"""Said on the first day only, in no memory of the sample."""

NEWS_QUESTION = "Where is the ladder for the gutters kept?"

_IDS = re.compile(r"^- \[([^\]]+)\] ", re.MULTILINE)
CHARS_LIMIT = 8_000
"""Agents cut longer contexts, or replace them by a preview."""

_HOOK_TIMEOUT_S = 30


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


@dataclass
class Day:
    """What came of the whole: two sessions on two days, and the nights around them.

    Attributes:
        first: The session of the first day.
        second: That of the new day.
        asked_before: What the question for the news got before the night.
        night: What the second night reported.
    """

    bench: Bench
    first: Session
    second: Session
    asked_before: Entry
    restored: Entry
    asked_after: Entry
    night: dict[str, Any]


def prompts_of_the_day() -> list[Prompt]:
    """Return thirty prompts: what people ask, and what they say besides."""
    said: list[Prompt] = []
    sample = Path(__file__).resolve().parents[2] / "data" / "sample" / "queries.jsonl"
    for line in sample.read_text(encoding="utf-8").splitlines():
        query = json.loads(line)
        kind = "unanswerable" if query["stratum"] == "unanswerable" else "question"
        if query["stratum"] in _STRATA:
            relevant = tuple(str(i) for i in query["relevant_ids"])
            said.append(Prompt(query["text"], kind, relevant))
    questions = [p for p in said if p.kind == "question"][:20]
    nothing = [p for p in said if p.kind == "unanswerable"][:3]
    return [
        Prompt("good morning", "small talk"),
        *questions[:7],
        Prompt(NEWS, "news"),
        Prompt("ok thanks", "small talk"),
        *questions[7:14],
        nothing[0],
        Prompt(f"use {SECRET} to log in and look at the bucket", "secret"),
        Prompt("/clear the list", "command"),
        *questions[14:],
        *nothing[1:],
        Prompt(questions[0].text, "subagent"),
        Prompt(questions[3].text, "again", questions[3].relevant),
    ]


_STRATA = ("exact", "paraphrase", "small-wing", "unanswerable")


def live_the_day(directory: Path, say: Callable[[str], None] = lambda _: None) -> Day:
    """Live two days in a directory; `say` hears a line for everything that happens."""
    bench = Bench(build_full_source(directory), directory / "store")
    say(_night_line(_run_night(bench, directory)))
    transcripts = directory / "projects"
    project = directory / "household"
    project.mkdir()
    ask = _asker(bench, directory, say)
    morning = datetime.now(UTC) - timedelta(hours=9)
    with _server(bench, directory):
        first = Session(project, transcripts, ask, morning)
        first.start("startup")
        said = prompts_of_the_day()
        for prompt in said[:20]:
            first.say(prompt)
        restored = first.compact()
        for prompt in said[20:]:
            first.say(prompt)
        before = Session(project, transcripts, ask, first.now)
        asked_before = before.fire("UserPromptSubmit", Prompt(NEWS_QUESTION), prompt=NEWS_QUESTION)
        first.end()
        night = _run_night(bench, directory)
        say(_night_line(night))
        second = Session(project, transcripts, ask, first.now + timedelta(hours=10))
        second.start("startup")
        asked_after = second.say(Prompt(NEWS_QUESTION))
        second.end()
    return Day(bench, first, second, asked_before, restored, asked_after, night)


def _run_night(bench: Bench, home: Path) -> dict[str, Any]:
    ran = run_night(bench.source, bench.store, extra={"MNEMON_HOME": str(home)})
    assert ran.code == DONE, ran.says
    return ran.report


def _asker(
    bench: Bench, home: Path, say: Callable[[str], None]
) -> Callable[[Mapping[str, Any], Prompt | None], Entry]:
    words = [str(_executable()), "hook", "--agent", "claude", "--store", str(bench.store)]
    told = environment(home, {"XDG_RUNTIME_DIR": str(home / "run")})

    def ask(event: Mapping[str, Any], prompt: Prompt | None) -> Entry:
        started = time.perf_counter()
        done = subprocess.run(
            words,
            input=json.dumps(event).encode(),
            capture_output=True,
            env=told,
            timeout=_HOOK_TIMEOUT_S,
            check=False,
        )
        wall_ms = (time.perf_counter() - started) * 1000
        name = str(event["hook_event_name"])
        entry = Entry(name, prompt, done.returncode, done.stdout.decode(), wall_ms)
        say(entry_line(entry))
        return entry

    return ask


def _executable() -> Path:
    return Path(sys.executable).with_name("mnemon")


@contextmanager
def _server(bench: Bench, home: Path) -> Generator[None]:
    """Keep a warm server while the day lasts."""
    runtime = home / "run"
    runtime.mkdir(mode=0o700)
    process = subprocess.Popen(
        [str(_executable()), "serve", "--store", str(bench.store)],
        env=environment(home, {"XDG_RUNTIME_DIR": str(runtime)}),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "answers for" in process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


def entry_line(entry: Entry) -> str:
    """Return one line: cost, event, what was typed, what it got."""
    cost = f"{entry.wall_ms:6.0f} ms {entry.tokens:5d} tokens"
    what = "" if entry.prompt is None else f"{entry.prompt.kind}: {entry.prompt.text[:60]!r}"
    found = f" -> {' '.join(entry.ids)}" if entry.ids else ""
    if entry.prompt is not None and entry.prompt.kind == "secret":
        what = "secret: (a prompt with a key in it)"
    return f"{cost}  {entry.event:<17} {what}{found}".rstrip()


def _night_line(night: Mapping[str, Any]) -> str:
    return f"{'':23}the night: {night['status']} {night.get('snapshot_id', '')}"


def account(day: Day) -> list[str]:
    """Return the day's account: hits, silence, cost."""
    prompts = [e for e in day.first.entries if e.event == "UserPromptSubmit" and e.prompt]
    lines = ["", f"{len(prompts)} prompts in one session"]
    for kind in dict.fromkeys(e.prompt.kind for e in prompts if e.prompt):
        of_kind = [e for e in prompts if e.prompt and e.prompt.kind == kind]
        answered = [e for e in of_kind if e.prompt and set(e.ids) & set(e.prompt.relevant)]
        injected = [e for e in of_kind if e.ids]
        lines.append(
            f"  {kind:<13} {len(of_kind):3d} prompts, {len(injected):3d} got memories"
            + (f", {len(answered)} the right one" if kind == "question" else "")
        )
    walls = sorted(e.wall_ms for e in prompts)
    tokens = sum(e.tokens for e in prompts)
    lines.append(f"  {_at(walls, 0.5):.0f} ms p50, {_at(walls, 0.95):.0f} ms p95 per prompt")
    lines.append(f"  {tokens} tokens injected, {tokens / len(prompts):.0f} per prompt")
    lines.append(f"  restored after the compaction: {len(day.restored.ids)} memories")
    told = "found" if "ladder" in day.asked_after.context else "not found"
    lines.append(f"  on the new day, what was said yesterday: {told}")
    return lines


def _at(values: Sequence[float], share: float) -> float:
    return values[min(int(len(values) * share), len(values) - 1)]


def main() -> int:
    """Live the day in a temporary directory and print it."""
    directory = Path(tempfile.mkdtemp(prefix="mnemon-day-"))
    try:
        day = live_the_day(directory, lambda line: print(line, flush=True))  # noqa: T201
        print("\n".join(account(day)))  # noqa: T201
    finally:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
