"""Telling somebody of a night that failed, or that did not happen."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from noctuary.core.settings import Settings
from noctuary.work.http import JsonClient, RequestError
from noctuary_pipelines.site import Site

TIMEOUT_S = 10.0
_ANSWER_BYTES = 1 << 20
_OTHERS_WRITE = 0o022

NIGHT_FAILED = "night_failed"
NIGHT_MISSED = "night_missed"


def notify(site: Site, event: str, **more: Any) -> list[str]:
    """Tell whoever the settings name, and return what went wrong with that; never raises."""
    message = {
        "event": event,
        "store": site.paths.root.name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        **more,
    }
    told = site.settings.notify
    faults: list[str | None] = []
    if told.command:
        faults.append(_run(site.settings, message))
    if told.webhook:
        faults.append(_post(told.webhook, message))
    return [f"nobody was told of {event}: {fault}" for fault in faults if fault]


def _run(settings: Settings, message: Mapping[str, Any]) -> str | None:
    if (fault := _untrusted(settings)) is not None:
        return fault
    try:
        done = subprocess.run(
            shlex.split(settings.notify.command),
            input=json.dumps(message).encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"notify.command took longer than {TIMEOUT_S:.0f} s"
    except OSError as error:
        return f"notify.command cannot be run ({error.strerror})"
    return f"notify.command ended with code {done.returncode}" if done.returncode else None


def _untrusted(settings: Settings) -> str | None:
    """Return why the file that names the command is not the owner's own; None where it is."""
    origin = settings.origins.get("notify.command", "")
    if not origin.startswith("in "):
        return None
    try:
        found = Path(origin.removeprefix("in ")).stat()
    except OSError:
        return "the settings file with notify.command is gone"
    if found.st_uid in (0, os.geteuid()) and not found.st_mode & _OTHERS_WRITE:
        return None
    return "others may write the settings file with notify.command: chmod go-w, and be its owner"


def _post(url: str, message: Mapping[str, Any]) -> str | None:
    try:
        JsonClient(url, None, _ANSWER_BYTES).post(message, TIMEOUT_S)
    except RequestError as error:
        # Accepted, or no content: an answer that its own users read would be 200.
        return None if error.status in range(200, 300) else f"notify.webhook: {error}"
    return None
