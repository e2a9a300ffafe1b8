"""One transcript from where it was left into the file of turns.

What belongs here: the loop from bytes to kept parts, batch by batch. What does not: which files
there are (`ingest`, `capture`). Standard library only.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from noctuary.settings import TranscriptSettings
from noctuary.text.sensitivity import find_text_sensitivity
from noctuary.transcripts.claude import read_claude
from noctuary.transcripts.codex import is_codex, read_codex
from noctuary.transcripts.lines import Line, parse_object, read_lines
from noctuary.transcripts.messages import FileContext, Message, Part, Reading
from noctuary.transcripts.projects import project_of
from noctuary.transcripts.report import IngestReport, Skip
from noctuary.transcripts.tracking import FileState, digest_before, is_unchanged, may_continue
from noctuary.transcripts.turns_file import TurnsFile
from noctuary.transcripts.vetting import vet_part

BATCH_BYTES = 4 * 2**20
"""Line bytes of one transaction. Larger costs memory, smaller more commits; another writer waits
for one."""


@dataclass(slots=True)
class _Batch:
    """Messages that are not kept yet.

    Attributes:
        end: Up to where the file is read when they are.
        size_bytes: Line bytes that they came from.
        messages: In the order of the file.
        touched: Turns that parts were kept of.
    """

    end: int
    size_bytes: int = 0
    messages: list[Message] = field(default_factory=list[Message])
    touched: set[int] = field(default_factory=set[int])


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
        """Keep a batch and the new offset in one transaction.

        Args:
            batch: What was read.
            is_partial: Reading may stop before the end: the file must not look unchanged.
        """
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
