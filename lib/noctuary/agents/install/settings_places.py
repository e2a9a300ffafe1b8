"""Where each agent reads hooks from.

What belongs here: paths and their precedence. No file contents.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from noctuary.agents.events import AGENTS
from noctuary.agents.install.errors import HookInstallError
from noctuary.agents.install.events import CLAUDE
from noctuary.errors import StoreError
from noctuary.locate import expand_user

USER = "user"
PROJECT = "project"
SCOPES = (USER, PROJECT)
"""Whose sessions a file is for: all of the user's, or those in one folder."""


class SettingsPlace(NamedTuple):
    """One settings file of an agent.

    Attributes:
        agent: One of `noctuary.agents.events.AGENTS`.
        scope: One of `SCOPES`.
        path: The file, absolute; need not exist.
    """

    agent: str
    scope: str
    path: Path


def find_place(
    agent: str, scope: str, folder: Path, environ: Mapping[str, str] | None = None
) -> SettingsPlace:
    """Return the file that hooks of an agent and a scope stand in.

    Args:
        agent: One of `noctuary.agents.events.AGENTS`.
        scope: One of `SCOPES`.
        folder: The project's folder, for "project".
        environ: Environment variables; CLAUDE_CONFIG_DIR and CODEX_HOME move the user's files.

    Raises:
        HookInstallError: The user's home directory is unknown.
        ValueError: The agent or the scope is unknown.
    """
    if agent not in AGENTS or scope not in SCOPES:
        raise ValueError(f"agent {agent!r}, scope {scope!r}: want one of {AGENTS}, of {SCOPES}")
    name = "settings.json" if agent == CLAUDE else "hooks.json"
    if scope == PROJECT:
        return SettingsPlace(agent, scope, folder.absolute() / f".{agent}" / name)
    env = os.environ if environ is None else environ
    moved = env.get("CLAUDE_CONFIG_DIR" if agent == CLAUDE else "CODEX_HOME", "").strip()
    try:
        directory = expand_user(moved or f"~/.{agent}")
    except StoreError as error:
        raise HookInstallError(str(error)) from error
    return SettingsPlace(agent, scope, directory.absolute() / name)
