"""All transcripts at a path into the file of turns, as a night and a hook do it."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from noctuary.core.errors import NoctuaryError, StoreError
from noctuary.core.files import hash_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.settings import TranscriptSettings
from noctuary.core.sqlite import name_fault
from noctuary.core.types import SILENT, Progress
from noctuary.sources.transcripts import (
    FileContext,
    IngestReport,
    Message,
    Part,
    Reading,
    Skip,
    is_codex,
    project_of,
    read_claude,
    read_codex,
    vet_part,
)
from noctuary.sources.turns import (
    FileState,
    TurnsFile,
    digest_before,
    is_unchanged,
    may_continue,
)
from noctuary.text.secrets import find_text_sensitivity, read_rules

# The lines of a growing file from a byte offset on.

MAX_READ_BYTES = 64 * 2**20
"""Longest line that is held at all. Prompts with several images have some 30 MB."""

MAX_LINE_BYTES = 4 * 2**20
"""Longest line that is parsed, encoded images aside. Parsed, hostile JSON takes some twenty times
its length; agents bound what tools give back far below."""

_CHUNK_BYTES = 1 << 20

# Nothing that anybody said has so many of these characters in a row.
_ENCODED = re.compile(rb'"[A-Za-z0-9+/]{4096,}={0,2}"')
_ENCODED_FROM_BYTES = 64 * 2**10
_BLANK = b" \t\r\n\x00"


class Line(NamedTuple):
    """One line, or the length of one that is too long."""

    end: int  # Byte offset behind it, its line end included
    size_bytes: int  # Its length, line end included
    # Its bytes without the line end and without encoded images; None where it is longer than is
    # read or parsed
    data: bytes | None
    is_ended: bool  # False for the last line of a file that has no line end yet


def read_lines(handle: BinaryIO, start: int, stop: int) -> Iterator[Line]:
    """Yield the lines between two offsets of a file, blank ones included."""
    handle.seek(start)
    place = start
    while place < stop:
        data = handle.readline(min(MAX_READ_BYTES, stop - place))
        if not data:
            return
        size = len(data)
        kept: bytes | None = data
        while not data.endswith(b"\n") and place + size < stop:
            # Longer than is held: only its length is wanted.
            kept = None
            data = handle.readline(min(_CHUNK_BYTES, stop - place - size))
            if not data:
                break
            size += len(data)
        place += size
        yield Line(place, size, _bounded(kept), data.endswith(b"\n"))


def parse_object(data: bytes) -> dict[str, object] | None:
    """Return the JSON object of a line, or None where it is none.

    Bytes that are no UTF-8 are replaced.
    """
    try:
        value: object = parse_json(data.decode("utf-8", "replace"))
    except ValueError:
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _bounded(data: bytes | None) -> bytes | None:
    if data is None:
        return None
    data = data.strip(_BLANK)
    if len(data) > _ENCODED_FROM_BYTES:
        data = _ENCODED.sub(b'""', data)
    return data if len(data) <= MAX_LINE_BYTES else None


# Which files are transcripts.

SUFFIX = ".jsonl"

_LOOKED_AT_BYTES = 256 * 2**10
_LOOKED_AT_LINES = 40
_LOOKED_AT_FILES = 40
"""Files of a folder that are looked at to tell what it holds; more finds a transcript among more
files of other kinds."""

_CLAUDE_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})


def find_transcripts(root: Path) -> Iterator[Path]:
    """Yield every *.jsonl file at or below a path, in order; links to folders are left."""
    if not root.is_dir():
        root.stat()
        yield root
        return
    os.scandir(root).close()
    for folder, below, names in os.walk(root):
        below.sort()
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(SUFFIX))


def is_transcripts(path: Path) -> bool:
    """Say whether a file, or a file below a folder, holds lines of a transcript; never raises."""
    try:
        if path.is_dir():
            found = islice(find_transcripts(path), _LOOKED_AT_FILES)
            return any(map(_holds_transcript, found))
        return path.suffix == SUFFIX and _holds_transcript(path)
    except OSError:
        return False


def _holds_transcript(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as handle:
        lines = islice(read_lines(handle, 0, _LOOKED_AT_BYTES), _LOOKED_AT_LINES)
        for line in lines:
            value = parse_object(line.data) if line.data else None
            if value is None:
                continue
            if is_codex(value) or (value.get("type") in _CLAUDE_TYPES and "message" in value):
                return True
            if "id" in value and "content" in value:
                return False
    return False


# One transcript from where it was left into the file of turns.

BATCH_BYTES = 4 * 2**20
"""Line bytes of one transaction. Larger costs memory, smaller more commits; another writer waits
for one."""


@dataclass(slots=True)
class _Batch:
    """Messages that are not kept yet."""

    end: int  # Up to where the file is read when they are
    size_bytes: int = 0  # Line bytes that they came from
    messages: list[Message] = field(default_factory=list[Message])  # In the order of the file
    touched: set[int] = field(default_factory=set[int])  # Turns that parts were kept of


def read_transcript(
    path: Path,
    turns: TurnsFile,
    settings: TranscriptSettings,
    report: IngestReport,
    *,
    until_s: float | None = None,
) -> None:
    """Keep what is new in a file, and how far it was read.

    Args:
        path: The file; what is no regular file is passed over.
        turns: Where turns are kept.
        settings: Sidechains and tool text.
        report: Is counted up.
        until_s: `time.monotonic()` at which it stops, with what was read by then kept.

    Raises:
        OSError: The file cannot be read.
        sqlite3.Error: The turns cannot be written.
    """
    report.files += 1
    found = path.stat()
    key = os.fspath(path.absolute())
    state = turns.state_of(key)
    if not stat.S_ISREG(found.st_mode) or (state is not None and is_unchanged(state, found)):
        report.unchanged += 1
        return
    with path.open("rb") as handle:
        found = os.fstat(handle.fileno())
        state = state or turns.moved_state(found.st_dev, found.st_ino)
        start, context = 0, FileContext()
        if state is not None:
            if may_continue(state, handle.fileno()):
                start, context = state.offset, FileContext.from_json(state.context)
            else:
                report.restarted += 1
        run = _Run(path, key, turns, settings, report, context, handle.fileno(), found)
        batch = _Batch(start)
        for line in read_lines(handle, start, found.st_size):
            if not run.take(line, batch):
                break
            is_late = until_s is not None and time.monotonic() >= until_s
            if is_late or batch.size_bytes >= BATCH_BYTES:
                run.keep(batch, is_partial=is_late)
                batch = _Batch(line.end)
            if is_late:
                report.is_complete = report.is_complete and line.end >= found.st_size
                return
        run.keep(batch)


@dataclass(slots=True)
class _Run:
    """One reading of one file."""

    path: Path
    key: str
    turns: TurnsFile
    settings: TranscriptSettings
    report: IngestReport
    context: FileContext
    fd: int
    found: os.stat_result

    def take(self, line: Line, batch: _Batch) -> bool:
        """Read a line into a batch; False for a last one that is not whole yet."""
        value = parse_object(line.data) if line.data else None
        # The beginning of an object is never one: what parses without a line end is whole.
        if not line.is_ended and value is None:
            return False
        batch.end = line.end
        batch.size_bytes += line.size_bytes
        self.report.bytes_read += line.size_bytes
        self.report.lines += 1
        if value is not None:
            for reading in self._read(value):
                self._sort(reading, batch)
        elif line.data != b"":
            self.report.skipped[Skip.TOO_LONG if line.data is None else Skip.BAD_JSON] += 1
        return True

    def keep(self, batch: _Batch, *, is_partial: bool = False) -> None:
        """Keep a batch and the new offset in one transaction."""
        with self.turns.transaction():
            for message in batch.messages:
                self._keep_message(message, batch)
            for number in sorted(batch.touched):
                self._judge_whole(number)
            size = -1 if is_partial else self.found.st_size
            state = FileState(
                self.found.st_dev,
                self.found.st_ino,
                size,
                self.found.st_mtime_ns,
                batch.end,
                digest_before(self.fd, batch.end),
                self.context.to_json(),
            )
            self.turns.keep_state(self.key, state)

    def _read(self, value: Mapping[str, object]) -> list[Reading]:
        read = read_codex if is_codex(value) else read_claude
        found = read(value, self.context)
        return [m if isinstance(m, Skip) else self._placed(m) for m in found]

    def _placed(self, message: Message) -> Message:
        """Give a message what only its file tells: session and project of lines without either."""
        return message._replace(
            session=message.session or self.path.stem,
            project=message.project or project_of(self.path.parent.name),
        )

    def _sort(self, reading: Reading, batch: _Batch) -> None:
        if isinstance(reading, Skip):
            self.report.skipped[reading] += 1
        elif reading.is_sidechain and not self.settings.include_sidechains:
            self.report.skipped[Skip.SIDECHAIN] += 1
        else:
            batch.messages.append(reading)

    def _keep_message(self, message: Message, batch: _Batch) -> None:
        kept = [self._keep_part(message, part, batch) for part in message.parts]
        if not any(kept):
            is_orphan = not message.native_id
            self.report.skipped[Skip.ORPHAN if is_orphan else Skip.NO_CONTENT] += 1

    def _keep_part(self, message: Message, part: Part, batch: _Batch) -> bool:
        """Keep a part in its turn; False where nothing of it is kept."""
        number: int | None = None
        if part.kind == "result":
            call = self.turns.call(message.agent, part.key.replace("result:", "call:", 1))
            if call is None:
                return False
            number, part = call.number, part._replace(label=call.label)
        vetted = vet_part(part, self.settings.tool_chars)
        if vetted is None:
            return False
        if number is None:
            number, is_new = self.turns.turn(message)
            self.report.turns += is_new and not vetted.is_secret
        if self.turns.is_sensitive(number):
            return True
        if vetted.is_secret:
            self.turns.mark_sensitive(number)
            self.report.sensitive += 1
            return True
        self.report.withheld += vetted.withheld
        if self.turns.keep_part(message.agent, number, vetted):
            self.report.parts += 1
            self.report.cut += vetted.was_cut
            batch.touched.add(number)
        return True

    def _judge_whole(self, number: int) -> None:
        """Mark a turn whose parts hold a secret together that none of them holds alone."""
        texts = self.turns.texts_of(number)
        if len(texts) > 1 and find_text_sensitivity("\n".join(texts)) is not None:
            self.turns.mark_sensitive(number)
            self.report.sensitive += 1


# All transcripts at a path into the file of turns, as a night does it.

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
    fault, name = name_fault(error)
    if fault == "locked":
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


# Keeping the turns of one session when its agent stops: what the Stop hook calls.

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
        report.fail(f"{turns_path} cannot be written: {name_fault(error)[1]}")
    except NoctuaryError as error:
        report.fail(str(error))
    except Exception as error:  # a hook must never see one
        report.fail(f"{path} cannot be captured: {type(error).__name__}")
    return report
