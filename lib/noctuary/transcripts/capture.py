"""Keeping the turns of one session when its agent stops: what the Stop hook calls.

What belongs here: one file, a deadline, and never an exception. What does not: folders (`ingest`),
the hook itself (`noctuary.agents`). Standard library only.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from noctuary.errors import NoctuaryError
from noctuary.settings import TranscriptSettings
from noctuary.transcripts.reading import read_transcript
from noctuary.transcripts.report import IngestReport
from noctuary.transcripts.turns_file import TurnsFile

CAPTURE_DEADLINE_S = 20.0
"""Time of one capture, waiting for other writers included. What is left is read next time; longer
keeps an agent's process around, shorter needs more stops for a long session."""

_WAIT_SHARE = 0.25
"""Share of it that one wait for another writer may take."""


def capture_session(
    transcript_path: str | Path,
    turns_path: Path,
    settings: TranscriptSettings | None = None,
    *,
    deadline_s: float = CAPTURE_DEADLINE_S,
) -> IngestReport:
    """Read what is new in one transcript and keep its turns; never raises.

    Args:
        transcript_path: The agent's JSON lines; a missing file is a fault of the report.
        turns_path: `StorePaths.turns`; it and its directory are made if they are missing.
        settings: Sidechains and tool text; None means the defaults.
        deadline_s: Seconds after which it stops; whole batches that were read by then are kept.

    Returns:
        What was read and kept; `faults` says in a sentence each what went wrong, and `is_complete`
        whether everything up to the end of the file was read.
    """
    wait_s = max(0.0, deadline_s) * _WAIT_SHARE
    # Opening may wait once and keeping the last batch once more.
    until_s = time.monotonic() + max(0.0, deadline_s) - wait_s
    report = IngestReport()
    path = Path(transcript_path)
    try:
        with closing(TurnsFile(turns_path, wait_s=wait_s)) as turns:
            read_transcript(path, turns, settings or TranscriptSettings(), report, until_s=until_s)
    except OSError as error:
        report.fail(f"{path} cannot be captured: {error.strerror or type(error).__name__}")
    except sqlite3.Error as error:
        # Its text may quote a row.
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        report.fail(f"{turns_path} cannot be written: {name}")
    except NoctuaryError as error:
        report.fail(str(error))
    except Exception as error:  # a hook must never see one
        report.fail(f"{path} cannot be captured: {type(error).__name__}")
    return report
