"""Claude Code, driven with `-p` and on a terminal of tmux."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.agents.home import Home

_EVENTS = (
    "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop",
    "PreCompact", "SessionEnd",
)  # fmt: skip
_KEY = "sk-ant-" + "rig" * 10
_SHOWN_S = 40.0


class ClaudeCode(Home):
    """One empty home of Claude Code."""

    def __init__(
        self,
        root: Path,
        command: Path,
        url: str,
        *,
        allowed: Sequence[str] = ("Bash", "Read"),
        is_hooked: bool = True,
    ) -> None:
        quiet = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        given = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": _KEY}
        super().__init__(root, command, {**quiet, **given})
        (self.path / ".claude").mkdir()
        self.settings = self.path / ".claude" / "settings.json"
        self._is_hooked = is_hooked
        self.allow(*allowed)
        (self.project / "CLAUDE.md").write_text("INSTRUCTIONSWORD be brief.\n", encoding="utf-8")
        # No dialog: everything that a first start asks is answered here.
        asked = {
            "hasCompletedOnboarding": True, "theme": "dark", "numStartups": 5,
            "customApiKeyResponses": {"approved": [_KEY[-20:]], "rejected": []},
            "projects": {
                str(self.project): {
                    "hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True,
                    "projectOnboardingSeenCount": 9, "allowedTools": [],
                }
            },
        }  # fmt: skip
        (self.path / ".claude.json").write_text(json.dumps(asked), encoding="utf-8")

    def allow(self, *tools: str) -> None:
        """Set which tools are run without a question."""
        settings: dict[str, Any] = {"permissions": {"allow": list(tools), "defaultMode": "default"}}
        if self._is_hooked:
            settings["hooks"] = self.hooks_of(*_EVENTS)
        self.settings.write_text(json.dumps(settings), encoding="utf-8")

    def say(self, *words: str) -> str:
        """Run `claude -p` with options and a prompt; return its answer."""
        return self.run("-p", *words).stdout

    @property
    def transcripts(self) -> list[Path]:
        """The folders that hold transcripts."""
        return [self.path / ".claude" / "projects"]

    @property
    def first_session(self) -> str:
        """The id of the session that was begun first."""
        found = self.transcripts[0].glob("*/*.jsonl")
        return min(found, key=lambda path: path.stat().st_ctime).stem

    def stream(self) -> Stream:
        """Return a `claude -p` that is fed one message after the other, for a `with` block."""
        return Stream(self)

    def screen(self, *words: str) -> Screen:
        """Return an interactive session, for a `with` block."""
        return Screen(self, words)


class Stream:
    """`claude -p --input-format stream-json`: what programs talk to."""

    def __init__(self, claude: ClaudeCode) -> None:
        self._claude = claude

    def __enter__(self) -> Self:
        words = ("-p", "--input-format", "stream-json", "--output-format", "stream-json")
        self._process = subprocess.Popen(
            [str(self._claude.command), *words, "--verbose"], cwd=self._claude.project,
            env=self._claude.environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        return self

    def say(self, *blocks: Any) -> None:
        """Send a message of texts and other blocks."""
        content = [{"type": "text", "text": b} if isinstance(b, str) else b for b in blocks]
        message = {"type": "user", "message": {"role": "user", "content": content}}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_SHOWN_S)


class Screen:
    """An interactive session in a window of tmux, on a server of its own."""

    def __init__(self, claude: ClaudeCode, words: Sequence[str]) -> None:
        self._claude, self._words = claude, words
        self._socket = f"rig-{uuid.uuid4().hex[:8]}"

    def __enter__(self) -> Self:
        environ = [f"{name}={value}" for name, value in self._claude.environ.items()]
        words = ["env", "-i", *environ, str(self._claude.command), *self._words]
        where = ("-c", str(self._claude.project), "-x", "160", "-y", "50")
        self._tmux("new-session", "-d", *where, shlex.join(words))
        self.wait("❯")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.press("C-c", "C-c")
        end = time.monotonic() + 8
        while time.monotonic() < end and self._tmux("list-sessions"):
            time.sleep(0.1)
        self._tmux("kill-server")

    @property
    def shown(self) -> str:
        """What stands on the screen."""
        return self._tmux("capture-pane", "-p")

    def wait(self, text: str) -> None:
        """Wait until a text stands on the screen, and a moment longer."""
        end = time.monotonic() + _SHOWN_S
        while text not in self.shown:
            assert time.monotonic() < end, f"no {text!r} on\n{self.shown}"
            time.sleep(0.1)
        time.sleep(0.6)

    def press(self, *keys: str) -> None:
        """Press keys by their names in tmux."""
        for key in keys:
            self._tmux("send-keys", key)
            time.sleep(0.3)

    def type(self, text: str) -> None:
        """Type a text and send it."""
        self._tmux("send-keys", "-l", text)
        time.sleep(0.5)
        self.press("Enter")

    def choose(self, label: str) -> None:
        """Move to the choice of a dialog that begins so."""
        for _ in range(8):
            if re.search(rf"❯ *\d\. {label}", self.shown):
                return
            self.press("Down")
        raise AssertionError(f"no choice {label!r} on\n{self.shown}")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", "-L", self._socket, *words], capture_output=True, text=True, check=False
        )
        return done.stdout
