"""Which agents the rig drives, and in which versions: moving to a new one is changing a number."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

_INSTALL_S = 600


class Package(NamedTuple):
    """One agent in its package registry (npm)."""

    name: str
    command: str
    versions: tuple[str, ...]  # Newest first


PACKAGES = {
    "claude": Package("@anthropic-ai/claude-code", "claude", ("2.1.332", "2.1.197")),
    "codex": Package("@openai/codex", "codex", ("0.171.0", "0.153.4", "0.146.0")),
}


class NotInstalledError(Exception):
    """An agent that cannot be had here, and why."""


def install(agent: str, version: str) -> Path:
    """Return an agent's command, installed into a temporary folder that later runs find again."""
    package = PACKAGES[agent]
    folder = Path(tempfile.gettempdir()) / f"noctuary-agents-{os.getuid()}" / f"{agent}-{version}"
    command = folder / "node_modules" / ".bin" / package.command
    if command.exists():
        return command
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalledError("npm is not on the path")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text('{"private": true}', encoding="utf-8")
    words = [npm, "install", "--no-audit", "--no-fund", f"{package.name}@{version}"]
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_S)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"npm took more than {_INSTALL_S} s") from None
    if done.returncode or not command.exists():
        raise NotInstalledError(f"npm could not install {package.name}@{version}: {done.stderr}")
    return command
