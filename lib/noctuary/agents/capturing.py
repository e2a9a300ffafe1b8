"""Keeping a session's turns after the agent stopped, in a process that nobody waits for.

A transcript of a store that is not there yet is left to the night, which finds it in the
journal.
"""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from noctuary.agents.hooks import Failure, environment_home, start_detached
from noctuary.agents.state import HookPlaces, make_private, note_call, transcripts_in

if TYPE_CHECKING:
    from noctuary.core.settings import TranscriptSettings


CAPTURE = "Capture"
"""Under which name it is counted: beside the events, as it ends long after its Stop hook did."""


def start_capture(transcript_path: str, *, agent: str, store: str | None) -> Failure | None:
    """Start keeping what is new in a transcript; return why that is not possible.

    Nothing is started for what is no file: there is nothing to keep.
    """
    try:
        if not stat.S_ISREG(Path(transcript_path).stat().st_mode):
            return None
    except (OSError, ValueError):
        return None
    arguments = [agent, str(Path(transcript_path).absolute()), *([store] if store else [])]
    if start_detached("noctuary.agents.capturing", arguments):
        return None
    return Failure("capture", "no process could be started to keep the session's turns")


def capture(agent: str, transcript_path: str, store: str | None) -> str | None:
    """Keep what is new in a transcript; return what went wrong, or None. Never raises.

    Args:
        agent: Whose session it is.
        transcript_path: The transcript.
        store: As `noctuary.recall` takes it.
    """
    started_s = time.monotonic()
    home = environment_home()
    if home is None:
        return "noctuary's home leads nowhere"
    try:
        fault = _capture(transcript_path, store, home)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    if make_private(HookPlaces(home).directory):
        took_ms = (time.monotonic() - started_s) * 1000
        note_call(
            HookPlaces(home).counters,
            agent,
            CAPTURE,
            code=None if fault is None else "capture",
            took_ms=took_ms,
            now_s=time.time(),
            may_tell=False,
        )
    return fault


def _capture(transcript_path: str, store: str | None, home: Path) -> str | None:
    from noctuary.core.errors import SnapshotMissingError
    from noctuary.core.settings import Settings
    from noctuary.core.store import StorePaths, find_store
    from noctuary.sources.ingest import capture_session

    settings = Settings.load(home=home)
    try:
        directory, _ = find_store(store, home=home)
    except SnapshotMissingError:
        return None
    if not directory.is_dir():
        return None
    turns = StorePaths(directory).turns
    report = capture_session(transcript_path, turns, settings.transcripts)
    return "; ".join(report.faults) or None


def capture_journalled(home: Path, store: Path, settings: TranscriptSettings) -> dict[str, int]:
    """Keep what is new in the transcripts that hooks named for a store. Build side: the night's.

    What a Stop hook could not keep: a session that was compacted and never stopped, one whose store
    was locked. A transcript that is read already costs a look at its size.

    Args:
        home: Noctuary's home.
        store: The store directory.
        settings: What is kept of a turn.

    Returns:
        How many transcripts were named and are still there ("transcripts"), turns that were added
        ("turns"), and transcripts with a fault ("faults").
    """
    from noctuary.core.store import StorePaths
    from noctuary.sources.ingest import capture_session

    notes = {"transcripts": 0, "turns": 0, "faults": 0}
    for name in transcripts_in(HookPlaces(home).journal, store):
        if Path(name).is_file():
            report = capture_session(name, StorePaths(store).turns, settings)
            notes["transcripts"] += 1
            notes["turns"] += report.turns
            notes["faults"] += bool(report.faults)
    return notes


def main(arguments: Sequence[str]) -> None:
    """Capture as `start_capture` asks."""
    agent, transcript_path, *rest = arguments
    capture(agent, transcript_path, rest[0] if rest else None)


if __name__ == "__main__":
    main(sys.argv[1:])
