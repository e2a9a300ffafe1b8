"""Headless Chromium: pages that need a while to draw, and a tab that is typed into."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


# A tab: spoken to over a pipe, in the protocol of Chromium's developer tools.

_QUIET = tuple(flag for flag in _FLAGS if not flag.startswith(("--window", "--virtual")))
_KEYS = {"ArrowDown": 40, "ArrowUp": 38, "Enter": 13, "Escape": 27, "Tab": 9, "/": 191}
_PATIENCE_S = 20.0


class Tab:
    """One tab; what goes wrong in its page is kept in `faults`."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._read, self._last = to, back, b"", 0
        self._session: dict[str, str] = {}
        self.faults: list[str] = []
        """Uncaught exceptions, and what the console was told: a refusal of the policy, too."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": found["sessionId"]}
        for domain in ("Runtime", "Page", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **told: Any) -> dict[str, Any]:
        """Call one method and return its result; events in between are looked at."""
        self._last += 1
        asked = {"id": self._last, "method": method, "params": told, **self._session}
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._last:
                assert "error" not in heard, heard
                return heard["result"]

    def _hear(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            piece = os.read(self._back, 1 << 16)
            assert piece, "the browser has gone"
            self._read += piece
        line, _, self._read = self._read.partition(b"\0")
        heard = json.loads(line)
        told = heard.get("params", {})
        if heard.get("method") == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(told["exceptionDetails"]))
        elif heard.get("method") == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.faults.append(told["entry"]["text"])
        elif heard.get("method") == "Page.javascriptDialogOpening":
            self.faults.append(f"a dialog: {told['message']}")
        return heard

    def run(self, script: str) -> Any:
        """Return the value of an expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, script: str, patience_s: float = _PATIENCE_S) -> None:
        """Wait until an expression is true, as JavaScript has it."""
        until = time.monotonic() + patience_s
        while not self.run(f"!!({script})"):
            assert time.monotonic() < until, (
                f"never true: {script}\n{self.run('document.body.innerText')}"
            )
            time.sleep(0.05)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)

    def look(self, width: int, height: int, *, dark: bool = False) -> None:
        """Give the page a size and a colour scheme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def press(self, key: str, *, ctrl: bool = False) -> None:
        code = _KEYS[key] if key in _KEYS else ord(key.upper())
        told = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 2 * ctrl}
        written = "\r" if key == "Enter" else key if len(key) == 1 else None
        self.call(
            "Input.dispatchKeyEvent",
            type="keyDown",
            **told,
            **({"text": written} if written else {}),
        )
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def picture(self, to: Path) -> None:
        found = self.call("Page.captureScreenshot")
        to.write_bytes(base64.b64decode(found["data"]))


@contextmanager
def open_tab() -> Generator[Tab]:
    """Start a browser with a profile of its own and one tab; it ends with the block."""
    browser = find_chromium()
    assert browser is not None
    (its_end, to), (back, its_other) = os.pipe(), os.pipe()
    # It hears on descriptor 3 and answers on 4: out of the way of both.
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (its_end, its_other)]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        words = [browser, *_QUIET, "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{ends[0]} 4>&{ends[1]}', "bash", *words],
            pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for end in (its_end, its_other, *ends):
            os.close(end)
        try:
            yield Tab(to, back)
        finally:
            os.close(to)
            os.close(back)
            process.terminate()
            process.wait(20)
