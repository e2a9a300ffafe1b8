"""Headless Chromium on pages that need a while to draw: their DOM, and a picture of them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

WINDOW = "2800,1800"
"""Large enough for a group and all that hangs on it: the UI draws no node outside of the window."""
VIRTUAL_TIME_MS = 25_000
"""Time on the page's own clocks before it is read: the Dagster UI polls and lays out its graph."""

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    f"--window-size={WINDOW}",
    f"--virtual-time-budget={VIRTUAL_TIME_MS}",
)


def find_chromium() -> str | None:
    """Return the browser's path, or None where it is not installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


def read_dom(url: str) -> str:
    """Return the page as HTML, scripts run."""
    return _run(["--dump-dom", url])


def take_screenshot(url: str, to: Path) -> Path:
    """Save a picture of the page."""
    to.parent.mkdir(parents=True, exist_ok=True)
    to.unlink(missing_ok=True)
    _run([f"--screenshot={to}", url])
    return to


def _run(words: list[str]) -> str:
    browser = find_chromium()
    assert browser is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        done = subprocess.run(
            [browser, *_FLAGS, f"--user-data-dir={profile}", *words],
            capture_output=True,
            encoding="utf-8",
            timeout=180,
            check=True,
        )
    return done.stdout
