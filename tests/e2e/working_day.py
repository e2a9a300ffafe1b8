"""A simulated working day with an agent: real hook processes, a real transcript, a real night.

Run it to see what it is like:

    python -m tests.e2e.working_day

It takes the bundled sample, runs a night on it, starts a warm server, asks thirty prompts through
`noctuary hook` as Claude Code would (one process per event, its transcript growing beside),
compacts the context once, ends the session, runs the next night, and asks on the new day for what
was only said yesterday. It prints what every prompt got and what that cost in milliseconds and
tokens.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from noctuary_pipelines.sample import QUERIES
from tests.e2e.agent_session import Entry, Prompt, Session
from tests.e2e.driver import DONE, environment, run_night
from tests.e2e.stores import Bench, build_full_source

SECRET = "AKIA" + "Q7ZV3M5RT2XW9KDB"
"""Pasted into one prompt: shaped like a cloud key, in two parts so that no scanner stops at it."""

NEWS = "For the record: the ladder for the gutters is now kept at Odalys Ferrer's workshop."
"""Said on the first day only, in no memory of the sample."""

NEWS_QUESTION = "Where is the ladder for the gutters kept?"

CHARS_LIMIT = 8_000
"""Agents cut longer contexts, or replace them by a preview."""

_HOOK_TIMEOUT_S = 30


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
    for line in QUERIES.read_text(encoding="utf-8").splitlines():
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


def first_night(directory: Path, say: Callable[[str], None]) -> Bench:
    """Return the sample after a night, in a directory."""
    bench = Bench(build_full_source(directory), directory / "store")
    say(_night_line(_run_night(bench, directory)))
    return bench


def live_the_day(
    bench: Bench,
    say: Callable[[str], None] = lambda _: None,
    settings: Mapping[str, str] | None = None,
) -> Day:
    """Live two days on a store, in the directory that it is in.

    Args:
        bench: The sample after its first night; it is changed.
        say: Hears a line for everything that happens.
        settings: Variables of the hooks and the server.
    """
    directory = bench.store.parent
    runtime = directory / "run"
    runtime.mkdir(mode=0o700)
    told = environment(directory, {"XDG_RUNTIME_DIR": str(runtime), **(settings or {})})
    transcripts = directory / "projects"
    project = directory / "household"
    project.mkdir()
    ask = _asker(bench, told, say)
    morning = datetime.now(UTC) - timedelta(hours=9)
    with _server(bench, told):
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
    ran = run_night(bench.source, bench.store, extra={"NOCTUARY_HOME": str(home)})
    assert ran.code == DONE, ran.says
    return ran.report


def _asker(
    bench: Bench, told: Mapping[str, str], say: Callable[[str], None]
) -> Callable[[Mapping[str, Any], Prompt | None], Entry]:
    words = [str(_executable()), "hook", "--agent", "claude", "--store", str(bench.store)]

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
    return Path(sys.executable).with_name("noctuary")


@contextmanager
def _server(bench: Bench, told: Mapping[str, str]) -> Generator[None]:
    """Keep a warm server while the day lasts."""
    process = subprocess.Popen(
        [str(_executable()), "serve", "--store", str(bench.store)],
        env=told,
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


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def main() -> int:
    """Live the day in a temporary directory and print it."""
    directory = Path(tempfile.mkdtemp(prefix="noctuary-day-"))
    try:
        bench = first_night(directory, _print)
        day = live_the_day(bench, _print)
        print("\n".join(account(day)))  # noqa: T201
    finally:
        shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
