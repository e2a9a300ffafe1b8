"""OpenCode, Gemini CLI, Qwen Code and pi, driven by their command lines and protocols."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.agents.chat_dialects import SPOKEN
from tests.agents.home import Home
from tests.agents.model_server import DIALECTS

DIALECTS.update(SPOKEN)
_ANSWER_S = 60.0
_INSTRUCTIONS = "INSTRUCTIONSWORD be brief.\n"


class OpenCode(Home):
    """One empty home of OpenCode, as a server of its own."""

    def __init__(self, root: Path, command: Path, url: str) -> None:
        quiet = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD")
        super().__init__(root, command, {f"OPENCODE_DISABLE_{name}": "1" for name in quiet})
        self.is_early = command.parents[2].name.endswith("-1.1.65")
        (self.project / "AGENTS.md").write_text(_INSTRUCTIONS, encoding="utf-8")
        limits = {"limit": {"context": 100_000, "output": 8_000}, "attachment": True}
        provider = {
            "npm": "@ai-sdk/openai-compatible", "name": "Scripted",
            "options": {"baseURL": f"{url}/v1", "apiKey": "x"}, "models": {"m1": limits},
        }  # fmt: skip
        config = {
            "autoupdate": False, "share": "disabled", "model": "scripted/m1",
            "small_model": "scripted/m1", "provider": {"scripted": provider},
            "permission": {"bash": {"*": "allow", "rm *": "ask"}},
        }  # fmt: skip
        folder = self.path / ".config" / "opencode"
        folder.mkdir(parents=True)
        (folder / "opencode.json").write_text(json.dumps(config), encoding="utf-8")

    @property
    def transcripts(self) -> list[Path]:
        """The folder that holds its database, or its small files."""
        return [self.path / ".local" / "share" / "opencode"]

    def serve(self) -> OpenCodeServer:
        """Return a running server, for a `with` block."""
        return OpenCodeServer(self)


class OpenCodeServer:
    """`opencode serve`, and what its own screens ask of it."""

    def __init__(self, opencode: OpenCode) -> None:
        self._opencode = opencode

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [str(self._opencode.command), "serve", "--port", "0"], cwd=self._opencode.project,
            env=self._opencode.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        line = next(line for line in self._process.stdout if "http://" in line)
        self._url = "http://" + line.rpartition("http://")[2].strip()
        self.session = self.ask("POST", "/session", {})["id"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Its command may be a script around the server; neither ends by itself while asked.
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_ANSWER_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer to a request."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            return json.loads(answer.read() or b"null")

    def say(self, text: str, *, session: str = "", is_waiting: bool = True) -> None:
        """Send a prompt, and wait for its answer."""
        where = f"/session/{session or self.session}/"
        message = {"parts": [{"type": "text", "text": text}]}
        self.ask("POST", where + ("message" if is_waiting else "prompt_async"), message)

    def wait_for(self, path: str) -> dict[str, Any]:
        """Return the first question, or permission, that waits for an answer."""
        end = time.monotonic() + _ANSWER_S
        while not (found := self.ask("GET", path)):
            assert time.monotonic() < end, f"nothing at {path}"
            time.sleep(0.2)
        return found[0]


class GeminiCli(Home):
    """One empty home of Gemini CLI."""

    def __init__(self, root: Path, command: Path, url: str) -> None:
        given = {"GOOGLE_GEMINI_BASE_URL": url, "GEMINI_API_KEY": "x"}
        super().__init__(root, command, {**given, "GEMINI_CLI_TRUST_WORKSPACE": "true"})
        self.is_early = command.parents[2].name.endswith("-0.24.0")
        (self.project / "GEMINI.md").write_text(_INSTRUCTIONS, encoding="utf-8")
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
            "model": {"name": "gemini-2.5-flash"},
        }  # fmt: skip
        (self.path / ".gemini").mkdir()
        (self.path / ".gemini" / "settings.json").write_text(json.dumps(settings), "utf-8")

    def say(self, *words: str) -> None:
        """Run `gemini -p` with options and a prompt."""
        self.run("-y", *words[:-1], "-p", words[-1])

    @property
    def transcripts(self) -> list[Path]:
        """The folder that holds its chats."""
        return [self.path / ".gemini" / "tmp"]

    @property
    def wing(self) -> str:
        """Its project; early versions name its folder by a digest."""
        return "gemini" if self.is_early else super().wing


class QwenCode(Home):
    """One empty home of Qwen Code."""

    def __init__(self, root: Path, command: Path, url: str) -> None:
        given = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "x", "OPENAI_MODEL": "m1"}
        super().__init__(root, command, given)
        self.is_early = command.parents[2].name.endswith("-0.1.4")
        (self.project / "QWEN.md").write_text(_INSTRUCTIONS, encoding="utf-8")
        settings = {
            "security": {"auth": {"selectedType": "openai"}}, "model": {"name": "m1"},
            "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
            "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
        }  # fmt: skip
        (self.path / ".qwen").mkdir()
        (self.path / ".qwen" / "settings.json").write_text(json.dumps(settings), "utf-8")

    def say(self, *words: str) -> None:
        """Run `qwen -p` with options and a prompt."""
        self.run("-y", *words[:-1], "-p", words[-1])

    @property
    def transcripts(self) -> list[Path]:
        """The folders that hold its chats."""
        return [self.path / ".qwen" / "projects", self.path / ".qwen" / "tmp"]

    @property
    def first_session(self) -> str:
        """The id of the session that was begun first."""
        found = self.transcripts[0].glob("*/chats/*.jsonl")
        return min(found, key=lambda path: path.stat().st_ctime).stem

    @property
    def wing(self) -> str:
        """Its project; early versions name its folder by a digest."""
        return "qwen" if self.is_early else super().wing


class Pi(Home):
    """One empty home of pi."""

    def __init__(self, root: Path, command: Path, url: str) -> None:
        super().__init__(root, command, {"PI_OFFLINE": "1"})
        (self.project / "AGENTS.md").write_text(_INSTRUCTIONS, encoding="utf-8")
        model = {"id": "m1", "name": "M1", "input": ["text"], "contextWindow": 100_000}
        provider = {"baseUrl": f"{url}/v1", "apiKey": "x", "api": "openai-completions"}
        providers = {"scripted": {**provider, "models": [{**model, "maxTokens": 4_000}]}}
        folder = self.path / ".pi" / "agent"
        folder.mkdir(parents=True)
        (folder / "models.json").write_text(json.dumps({"providers": providers}), "utf-8")
        kept = {"keepRecentTokens": 20, "reserveTokens": 100}
        settings = {"defaultProvider": "scripted", "defaultModel": "m1", "compaction": kept}
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")

    def say(self, *words: str) -> None:
        """Run `pi -p` with options and a prompt."""
        self.run("-p", *words)

    @property
    def transcripts(self) -> list[Path]:
        """The folder that holds its sessions."""
        return [self.path / ".pi" / "agent" / "sessions"]

    def talk(self) -> PiTalk:
        """Return a session over its protocol, for a `with` block."""
        return PiTalk(self)


class PiTalk:
    """`pi --mode rpc`: what its screen can do, line by line."""

    def __init__(self, pi: Pi) -> None:
        self._pi = pi

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [str(self._pi.command), "--mode", "rpc"], cwd=self._pi.project, env=self._pi.environ,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.terminate()
        self._process.wait(_ANSWER_S)
        self._process.stdout.close()

    def send(self, kind: str, **fields: object) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"type": kind, **fields}) + "\n")
        self._process.stdin.flush()

    def until(self, kind: str) -> dict[str, Any]:
        """Return the next event, or response to a command, of a kind."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event: dict[str, Any] = json.loads(line)
            if kind in (event.get("type"), event.get("command")):
                return event
        raise AssertionError(f"pi ended before {kind!r}")


OTHERS = {"opencode": OpenCode, "gemini": GeminiCli, "qwen": QwenCode, "pi": Pi}
