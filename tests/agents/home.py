"""The empty home that an agent is driven in, with a hook that keeps what it is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.agents.scenario import INJECTED

PROJECT = "harbour"
NOTES = "# Notes\nThe buoy of the harbour is B12.\n"
_RUN_S = 120
_HOOK = """\
import json, sys
given = json.load(sys.stdin)
with open({log!r}, "a") as log:
    log.write(json.dumps(given) + "\\n")
event = given.get("hook_event_name")
if event in ("SessionStart", "UserPromptSubmit"):
    said = {{"hookEventName": event, "additionalContext": {word!r} + " by " + event}}
    print(json.dumps({{"hookSpecificOutput": said}}))
"""


class Home:
    """A home directory with a project in it, and the processes that run there."""

    def __init__(self, root: Path, command: Path, environ: Mapping[str, str]) -> None:
        self.path = root / "home"
        self.project = self.path / "src" / PROJECT
        self.project.mkdir(parents=True)
        (self.project / "notes.md").write_text(NOTES, encoding="utf-8")
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True)
        self.command = command
        self.environ = {
            "PATH": os.environ["PATH"], "HOME": str(self.path), "LANG": "C.UTF-8",
            "TERM": "xterm-256color", "SHELL": "/bin/bash", **environ,
        }  # fmt: skip
        self._log = root / "hooks.jsonl"
        self._hook = root / "hook.py"
        hook = _HOOK.format(log=str(self._log), word=INJECTED)
        self._hook.write_text(hook, encoding="utf-8")

    def hooks_of(self, *events: str) -> dict[str, Any]:
        """Return the configuration that calls the rig's hook at events."""
        command = {"type": "command", "command": f"{sys.executable} {self._hook}", "timeout": 20}
        return {event: [{"hooks": [command]}] for event in events}

    @property
    def hooked(self) -> list[dict[str, Any]]:
        """What the hook was given, in order."""
        if not self._log.exists():
            return []
        return [json.loads(line) for line in self._log.read_text("utf-8").splitlines()]

    def run(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the agent in the project to its end."""
        return subprocess.run(
            [str(self.command), *words], cwd=self.project, env=self.environ, input=stdin,
            capture_output=True, text=True, timeout=_RUN_S, check=True,
        )  # fmt: skip
