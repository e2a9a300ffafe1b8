"""The plugin folder: noctuary's hooks and its MCP server as one plugin of both agents.

What belongs here: the files of the folder, made from the table of events, and writing them. What
does not: installing into settings (`installing`). The folder is a marketplace of one plugin below
it: Codex takes no plugin from a marketplace's own root. Codex reads `hooks/hooks.json` unless its
manifest names another file, so its hooks have a file of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from noctuary import __version__
from noctuary.agents.install.errors import HookInstallError
from noctuary.agents.install.events import CLAUDE, CODEX, hook_groups
from noctuary.agents.install.status import PLUGIN_NAME
from noctuary.files import write_text
from noctuary.foreign_json import parse_json

MARKETPLACE_NAME = "noctuary-local"
CLAUDE_MANIFEST = f"{PLUGIN_NAME}/.claude-plugin/plugin.json"
CODEX_MANIFEST = f"{PLUGIN_NAME}/.codex-plugin/plugin.json"

_AUTHOR = {"name": "noctuary"}
_DESCRIPTION = "Recalls memories of earlier sessions into prompts, from a nightly built snapshot."
_LICENSE = "Apache-2.0"
_KEYWORDS = ["memory", "recall", "context"]


def plugin_files(program: Sequence[str], store: str | None = None) -> dict[str, str]:
    """Return the files of the plugin folder: text by path below the folder, sorted.

    Args:
        program: The words that start noctuary: an absolute path for one machine, `["noctuary"]` for
            every machine that has it on its PATH.
        store: Passed to hooks and server as --store.
    """
    base = {"name": PLUGIN_NAME, "version": __version__, "description": _DESCRIPTION}
    manifest = {**base, "author": _AUTHOR, "license": _LICENSE, "keywords": _KEYWORDS}
    server = [*program, "mcp", *(["--store", store] if store else [])]
    listed = {**base, "source": f"./{PLUGIN_NAME}"}
    values: dict[str, Any] = {
        ".claude-plugin/marketplace.json": {
            "name": MARKETPLACE_NAME,
            "description": _DESCRIPTION,
            "owner": _AUTHOR,
            "plugins": [{**listed, "author": _AUTHOR, "category": "productivity"}],
        },
        ".agents/plugins/marketplace.json": {
            "name": MARKETPLACE_NAME,
            "plugins": [
                {
                    "name": PLUGIN_NAME,
                    "source": {"source": "local", "path": f"./{PLUGIN_NAME}"},
                    "policy": {"installation": "AVAILABLE", "authentication": "ON_INSTALL"},
                    "category": "Productivity",
                }
            ],
        },
        CLAUDE_MANIFEST: manifest,
        CODEX_MANIFEST: {**manifest, "hooks": "./hooks/codex.json", "mcpServers": "./.mcp.json"},
        f"{PLUGIN_NAME}/hooks/hooks.json": {
            "description": _DESCRIPTION, "hooks": _hook_lists(CLAUDE, program, store),
        },
        f"{PLUGIN_NAME}/hooks/codex.json": {"hooks": _hook_lists(CODEX, program, store)},
        f"{PLUGIN_NAME}/.mcp.json": {
            "mcpServers": {PLUGIN_NAME: {"command": server[0], "args": server[1:]}}
        },
    }  # fmt: skip
    return {
        path: json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        for path, value in sorted(values.items())
    }


def write_plugin(folder: Path, files: dict[str, str]) -> tuple[Path, ...]:
    """Write the files below a folder; equal files are left alone.

    Args:
        folder: A new or empty folder, or one that this wrote before.
        files: `plugin_files`.

    Returns:
        The paths that were written.

    Raises:
        HookInstallError: The folder holds something else.
        OSError: It cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise HookInstallError(f"{folder} is no folder: name a new or an empty one")
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder):
        raise HookInstallError(
            f"{folder} holds other things than noctuary's plugin: name a new or an empty folder"
        )
    written: list[Path] = []
    for name, text in files.items():
        path = folder / name
        if not path.is_file() or path.read_bytes() != text.encode("utf-8"):
            write_text(path, text)
            written.append(path)
    return tuple(written)


def _is_ours(folder: Path) -> bool:
    try:
        found: Any = parse_json((folder / CLAUDE_MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and cast("dict[str, Any]", found).get("name") == PLUGIN_NAME


def _hook_lists(agent: str, program: Sequence[str], store: str | None) -> dict[str, Any]:
    return {event: [group] for event, group in hook_groups(agent, program, store).items()}
