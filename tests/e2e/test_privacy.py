"""A store is its owner's alone, whatever the umask; and a night prints no memory's escapes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.driver import environment, night_words
from tests.e2e.stores import add_memory, build_small_source
from tests.support.terminal import STEERS, H
from tests.support.transcripts import said_session, write_session

_NOCTUARY = [sys.executable, "-m", "noctuary.cli.entry"]
_RECALL = """
import os
from noctuary import inject, recall
inject(recall("spare key"))
assert os.umask(0) == 0, "a library leaves the umask of its process alone"
"""


_BAR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
"""What the progress bar itself writes; the hostile title and C1 are none of it."""


def _open_umask() -> None:
    os.umask(0)


def test_everything_below_the_home_is_its_owners_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    source = build_small_source(tmp_path)
    source.chmod(0o644)
    add_memory(source, f"Nina keeps the spare key {H} behind the pantry.", tags=f"wing:{H}")
    transcript = write_session(tmp_path / "projects" / "-shop" / "s1.jsonl", said_session().lines)
    extra = {
        "NOCTUARY_TRANSCRIPTS_PATH": str(transcript.parents[1]),
        "NOCTUARY_CURATION_ENABLED": "1",
        "NOCTUARY_HOOK_DEADLINE_MS": "2000",
    }

    shown = _night_on_a_terminal(source, home / "house", extra)
    assert "published snapshot" in shown
    assert STEERS.search(_BAR.sub("", shown)) is None

    _use(home, tmp_path, transcript, extra)
    paths = [home, *home.rglob("*")]
    open_to_others = [f"{p} {p.lstat().st_mode:o}" for p in paths if p.lstat().st_mode & 0o077]
    assert not open_to_others
    names = {p.name for p in paths}
    assert {
        "access.sqlite",
        "injected.sqlite",
        "replays.sqlite",
        "turns.sqlite",
        "lance",
        "dagster",
        "encoders",
        "reports",
        "journal.jsonl",
        "counters.json",
    } <= names
    assert source.stat().st_mode & 0o777 == 0o644, "the source is its owner's to protect"


def _use(home: Path, cwd: Path, transcript: Path, extra: dict[str, str]) -> None:
    """Recall, serve, hook, export, import and look, each in a process with an open umask."""

    def done(*words: str, stdin: str = "") -> str:
        ran = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            cwd=cwd,
            check=False,
            env=environment(home, extra),
            preexec_fn=_open_umask,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    done(sys.executable, "-c", _RECALL)
    done(*_NOCTUARY, "recall", "spare key", "--no-server", "--set", "replay_log=true")
    done(*_NOCTUARY, "serve", "--idle-minutes", "0.01")
    asked = {
        "hook_event_name": "UserPromptSubmit",
        "prompt": "where does Nina keep the spare key?",
        "session_id": "s",
        "cwd": str(cwd),
        "transcript_path": str(transcript),
    }
    told = done(*_NOCTUARY, "hook", "--agent", "claude", stdin=json.dumps(asked))
    assert STEERS.search(json.loads(told)["hookSpecificOutput"]["additionalContext"]) is None
    done(
        *_NOCTUARY,
        "hook",
        "--agent",
        "claude",
        stdin=json.dumps({**asked, "hook_event_name": "PreCompact"}),
    )
    done(*_NOCTUARY, "export", str(home / "exported"))
    findings = json.loads(done(*_NOCTUARY, "doctor", "--store", "house", "--json"))["findings"]
    assert [f["level"] for f in findings if f["name"] == "privacy"] == ["ok"]


def _night_on_a_terminal(source: Path, store: Path, extra: dict[str, str]) -> str:
    """Run a night whose standard output is a terminal; return what it shows."""
    terminal, inner = pty.openpty()
    process = subprocess.Popen(
        night_words(source, store),
        stdout=inner,
        stderr=subprocess.STDOUT,
        cwd=store.parent,
        env=environment(store.parent, extra),
        preexec_fn=_open_umask,
    )
    os.close(inner)
    parts: list[bytes] = []
    try:
        while part := os.read(terminal, 1 << 16):
            parts.append(part)
    except OSError:
        pass  # the night has ended
    os.close(terminal)
    process.wait()
    return b"".join(parts).decode("utf-8")
