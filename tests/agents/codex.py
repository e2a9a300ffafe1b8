"""Codex, driven by its command line and as an app server over JSON-RPC."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.agents.home import Home

_EVENTS = (
    "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "PreCompact",
    "SubagentStart", "SubagentStop", "SessionEnd",
)  # fmt: skip
_CONFIG = """\
model = "gpt-5"
model_provider = "scripted"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
[projects."{project}"]
trust_level = "trusted"
{more}
"""
_TRUST = "--dangerously-bypass-hook-trust"
_ANSWER_S = 40.0


class Codex(Home):
    """One empty home of Codex."""

    def __init__(
        self, root: Path, command: Path, url: str, *, more: str = "", is_hooked: bool = True
    ) -> None:
        super().__init__(root, command, {"SCRIPTED_KEY": "x"})
        self.version = command.parents[2].name.partition("-")[2]
        self.home = self.path / ".codex"
        self.home.mkdir()
        self.environ["CODEX_HOME"] = str(self.home)
        self._config = self.home / "config.toml"
        self._config.write_text(_CONFIG.format(url=url, project=self.project, more=more), "utf-8")
        (self.project / "AGENTS.md").write_text("INSTRUCTIONSWORD be brief.\n", encoding="utf-8")
        if is_hooked:
            hooks = json.dumps({"hooks": self.hooks_of(*_EVENTS)})
            (self.home / "hooks.json").write_text(hooks, encoding="utf-8")

    def configure(self, more: str) -> None:
        """Add lines to the configuration."""
        with self._config.open("a", encoding="utf-8") as file:
            file.write(more)

    def exec(self, *words: str) -> None:
        """Run `codex exec`."""
        self.run("exec", "--skip-git-repo-check", _TRUST, *words)

    @property
    def transcripts(self) -> list[Path]:
        """The folders that hold rollouts."""
        return [self.home / "sessions", self.home / "archived_sessions"]

    @property
    def first_session(self) -> str:
        """The id of the session that was begun first."""
        first = min((self.home / "sessions").rglob("rollout-*.jsonl"), key=lambda p: p.name)
        with first.open(encoding="utf-8") as file:
            return json.loads(file.readline())["payload"]["id"]

    def app(self) -> AppServer:
        """Return an app server of this home, to be used in a `with` block."""
        return AppServer(self)


class AppServer:
    """`codex app-server`: what editors talk to.

    Attributes:
        on_request: Answers what the server asks of its client.
    """

    def __init__(self, codex: Codex) -> None:
        self._codex = codex
        self.on_request: Callable[[str, Any], Any] = lambda method, given: {}
        self._answers: dict[int, Any] = {}
        self._notes: list[Any] = []
        self._calls = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [str(self._codex.command), _TRUST, "app-server"], cwd=self._codex.project,
            env=self._codex.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        about = {"clientInfo": {"name": "rig", "title": "rig", "version": "1"}}
        self.call("initialize", {**about, "capabilities": {"experimentalApi": True}})
        self._send({"method": "initialized"})
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join(_ANSWER_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def call(self, method: str, params: Any) -> Any:
        """Return the answer to a request."""
        self._calls += 1
        number = self._calls
        self._send({"id": number, "method": method, "params": params})
        self._until(lambda: number in self._answers, method)
        answer = self._answers[number]
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def begin(self, **more: Any) -> str:
        """Return the id of a new thread."""
        return self.call("thread/start", {"cwd": str(self._codex.project), **more})["thread"]["id"]

    def say(self, thread: str, text: str, *, waits: bool = True, **more: Any) -> str:
        """Send a prompt, and wait for the end of its turn; return the turn's id."""
        ended = self.ended
        given = {"threadId": thread, "input": words(text), **more}
        turn: str = self.call("turn/start", given)["turn"]["id"]
        if waits:
            self.wait_for_end(ended + 1)
        return turn

    @property
    def ended(self) -> int:
        """How many turns came to an end."""
        return sum(note["method"] == "turn/completed" for note in self._notes)

    def wait_for_end(self, count: int) -> None:
        """Wait until so many turns came to an end."""
        self._until(lambda: self.ended >= count, "turn/completed")

    def wait_for_item(self, kind: str) -> None:
        """Wait until an item of a kind was begun."""
        self._until(
            lambda: any(
                note["method"] == "item/started" and note["params"]["item"]["type"] == kind
                for note in self._notes
            ),
            kind,
        )

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _ANSWER_S
        while not is_so():
            assert time.monotonic() < end, f"no {what}; last {self._notes[-3:]}"
            time.sleep(0.02)

    def _send(self, message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "method" not in message:
                self._answers[message["id"]] = message
            elif "id" in message:
                answer = self.on_request(message["method"], message["params"])
                self._send({"id": message["id"], "result": answer})
            else:
                self._notes.append(message)


def words(text: str) -> list[Any]:
    """Return a prompt as the app server takes it."""
    return [{"type": "text", "text": text, "text_elements": []}]
