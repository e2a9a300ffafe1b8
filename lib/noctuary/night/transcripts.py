"""What agents' transcripts add to a night: ingested first, then joined to the source.

What belongs here: the order of the two and what a night says about them. What does not: reading
transcripts (`noctuary.transcripts`), exporting (`night.corpus`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noctuary.agents.capturing import capture_journalled
from noctuary.corpus.combined_source import CombinedSource, negative_ids
from noctuary.corpus.report import read_report
from noctuary.corpus.source import Source, holds_store, open_source
from noctuary.errors import StoreError
from noctuary.locate import expand_user, find_home
from noctuary.night.context import MEMORIES, Night
from noctuary.source_name import DatabaseName, SourceName
from noctuary.transcripts.discovery import is_transcripts
from noctuary.transcripts.ingest import WAIT_S, forget_sensitive, ingest_transcripts
from noctuary.transcripts.turns_file import TurnsFile
from noctuary.transcripts.turns_source import KIND, TranscriptSource, holds_turns


def ingest_new_turns(night: Night) -> dict[str, Any]:
    """Keep what is new in the configured transcripts and in a source that is made of them.

    A path that cannot be read is no reason to stop a night: what was kept before is exported.

    Returns:
        Notes about tonight: the account of the ingest under "transcripts", of what hooks named
        under "journalled" (`noctuary.agents.capturing.capture_journalled`), how many turns the
        rules of this version took the text of under "turns_forgotten"; empty where there is none.

    Raises:
        StoreError: turns.sqlite cannot be used.
    """
    notes: dict[str, Any] = {}
    settings = night.settings.transcripts
    roots = [expand_user(settings.path)] if settings.path else []
    folder = _transcripts_of(night.source)
    if folder is not None and folder.resolve() not in map(Path.resolve, roots):
        roots.insert(0, folder)
    if roots:
        reports = [
            ingest_transcripts(root, night.paths.turns, settings, night.progress).to_json()
            for root in roots
        ]
        notes["transcripts"] = reports
    if night.settings.hook.capture:
        journalled = capture_journalled(find_home(), night.paths.root, settings)
        if journalled["transcripts"]:
            notes["journalled"] = journalled
    if forgotten := forget_sensitive(night.paths.turns):
        notes["turns_forgotten"] = forgotten
    return notes


def open_night_source(night: Night) -> Source:
    """Open what a night exports: its source, with the kept turns joined where there are any.

    Raises:
        SourceError: The source is missing or cannot be read.
        StoreError: turns.sqlite cannot be read.
    """
    sidechains, turns = night.settings.transcripts.include_sidechains, night.paths.turns
    if (folder := _read_transcripts(night)) is not None:
        if not turns.is_file():
            TurnsFile(turns, wait_s=WAIT_S).close()
        return TranscriptSource(turns, include_sidechains=sidechains, location=folder)
    source = open_source(night.source, night.settings.source)
    try:
        if not holds_turns(turns):
            return source
        id_kind = source.identity().id_kind
        joined = TranscriptSource(
            turns,
            id_kind=id_kind,
            include_sidechains=sidechains,
            taken=negative_ids(source) if id_kind == "int" else frozenset(),
        )
        return CombinedSource(source, joined)
    except BaseException:
        source.close()
        raise


def last_source_rows(night: Night) -> int | None:
    """Return how many rows of its own the source had at the last export; None if unknown."""
    try:
        rows = read_report(night.work(MEMORIES).parent).identity.marker.get("rows")
    except StoreError:
        return None
    return rows if isinstance(rows, int) else None


def _transcripts_of(source: SourceName) -> Path | None:
    """Return the path of a source that is transcripts of an agent and no memory store."""
    if isinstance(source, DatabaseName) or holds_store(source) or not is_transcripts(source):
        return None
    return source


def _read_transcripts(night: Night) -> Path | None:
    """Return the path of a source that is transcripts, or a folder whose are all deleted."""
    if (folder := _transcripts_of(night.source)) is not None:
        return folder
    source = night.source
    if isinstance(source, DatabaseName) or not source.is_dir() or holds_store(source):
        return None
    try:
        return source if read_report(night.work(MEMORIES).parent).identity.kind == KIND else None
    except StoreError:
        return None
