"""All transcripts at a path into the file of turns, as a night does it.

What belongs here: many files and what holds for all of them. What does not: one file (`reading`),
the corpus (`noctuary.corpus.transcript_source`). Standard library only.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from noctuary.errors import StoreError
from noctuary.hashing import hash_text
from noctuary.progress import SILENT, Progress
from noctuary.settings import TranscriptSettings
from noctuary.text.sensitivity import find_text_sensitivity, read_rules
from noctuary.transcripts.discovery import find_transcripts
from noctuary.transcripts.reading import read_transcript
from noctuary.transcripts.report import IngestReport
from noctuary.transcripts.turns_file import TurnsFile

TASK = "transcripts"

WAIT_S = 30.0
"""How long a night waits for a hook that writes; a batch takes a fraction of a second."""

_SETTINGS_FACT = "settings"
_RULES_FACT = "secret_rules"
_JUDGED_AT_ONCE = 1_000


def ingest_transcripts(
    root: Path,
    turns_path: Path,
    settings: TranscriptSettings | None = None,
    progress: Progress = SILENT,
) -> IngestReport:
    """Keep what is new in every transcript at a path.

    Files that are gone keep their turns. After a change of the settings every file is read again.

    Args:
        root: A folder, searched to any depth for *.jsonl, or one file.
        turns_path: `StorePaths.turns`; made if it is missing.
        settings: Sidechains and tool text; None means the defaults.
        progress: Told after each file.

    Returns:
        The account; a file that cannot be read is a fault in it.

    Raises:
        StoreError: The file of turns cannot be read or written.
    """
    settings = settings or TranscriptSettings()
    report = IngestReport()
    try:
        with closing(TurnsFile(turns_path, wait_s=WAIT_S)) as turns:
            _apply_settings(turns, settings)
            _ingest_files(root, turns, settings, report, progress)
    except sqlite3.Error as error:
        raise damaged(turns_path, error) from None
    return report


def forget_sensitive(turns_path: Path) -> int:
    """Take the texts of turns out that the secret scan of this version objects to.

    Costs a scan of all turns after a change of the rules, and nothing else.

    Returns:
        How many turns were marked.

    Raises:
        StoreError: The file cannot be read or written.
    """
    if not turns_path.is_file():
        return 0
    rules = _rules_digest()
    try:
        with closing(TurnsFile(turns_path, wait_s=WAIT_S)) as turns:
            if turns.fact(_RULES_FACT) == rules:
                return 0
            marked = _judge_all(turns)
            turns.keep_fact(_RULES_FACT, rules)
            return marked
    except sqlite3.Error as error:
        raise damaged(turns_path, error) from None


def damaged(turns_path: Path, error: sqlite3.Error) -> StoreError:
    """Return what to say of a file of turns that SQLite cannot use; its own text may quote rows."""
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreError(
            f"{turns_path} stayed locked by another process for {WAIT_S:.0f} s ({name}). Run again "
            f"when it has finished."
        )
    return StoreError(
        f"{turns_path} cannot be used ({name}). It holds turns whose transcripts may be deleted by "
        f"now: restore it from a backup, or move it away to ingest the transcripts that are still "
        f"there again."
    )


def _ingest_files(
    root: Path,
    turns: TurnsFile,
    settings: TranscriptSettings,
    report: IngestReport,
    progress: Progress,
) -> None:
    try:
        paths = list(find_transcripts(root))
    except OSError as error:
        report.fail(f"{root} cannot be read: {error.strerror or type(error).__name__}")
        return
    for done, path in enumerate(paths, start=1):
        try:
            read_transcript(path, turns, settings, report)
        except OSError as error:
            report.fail(f"{path} cannot be read: {error.strerror or type(error).__name__}")
        progress.update(TASK, done, len(paths))


def _apply_settings(turns: TurnsFile, settings: TranscriptSettings) -> None:
    wanted = f"{settings.include_sidechains} {settings.tool_chars}"
    known = turns.fact(_SETTINGS_FACT)
    if known != wanted:
        with turns.transaction():
            if known:
                turns.forget_states()
            turns.keep_fact(_SETTINGS_FACT, wanted)


def _judge_all(turns: TurnsFile) -> int:
    marked, last = 0, None
    while numbers := turns.numbers(last, _JUDGED_AT_ONCE):
        last = numbers[-1]
        with turns.transaction():
            for number in numbers:
                if find_text_sensitivity("\n".join(turns.texts_of(number))) is not None:
                    turns.mark_sensitive(number)
                    marked += 1
    return marked


def _rules_digest() -> str:
    """Return a digest of the modules that the rules stand in."""
    return hash_text(*read_rules())
