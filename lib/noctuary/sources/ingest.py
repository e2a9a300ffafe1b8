"""Ingest agents' transcripts into turns.sqlite, by night and from hooks."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import stat
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterable
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple

from noctuary.core import formats
from noctuary.core.errors import NoctuaryError, SourceError, StoreError
from noctuary.core.files import hash_text, make_directory
from noctuary.core.locks import read_at
from noctuary.core.settings import TranscriptSettings
from noctuary.core.sqlite import FormatError, LogFormat, name_fault, open_log, transaction
from noctuary.core.types import SILENT, Progress
from noctuary.sources.histories import (
    CHATS_SUFFIX,
    COMPRESSED_SUFFIX,
    begin_lines,
    find_transcripts,
    finish_lines,
    lines_of,
    look_at,
    read_line,
)
from noctuary.sources.injected import is_tool_answer
from noctuary.sources.projects import (
    PROJECT,
    choose_wing,
    known_projects,
    project_of,
    wing_in_settings,
)
from noctuary.sources.transcripts import (
    FileContext,
    IngestReport,
    Line,
    Message,
    Part,
    Reading,
    Skip,
    Vetted,
    parse_object,
    vet_part,
)
from noctuary.text.marks import plural
from noctuary.text.secrets import find_text_sensitivity, read_rules

# turns.sqlite: turns, their parts in the order of arrival, and the offset read of each transcript.
# Nights and hooks may write at the same time: a batch of a file and its new offset are one
# transaction. A turn with a secret keeps its row, marked and without parts, so that its id is known
# as not exportable.

WAIT_S = 30.0  # how long a night waits for a hook that writes; a batch takes a fraction of a second
# Numbers of turns are negative with this many bits: exact in every JSON reader, and two of a
# million turns share one with a chance of 1 in 9,000 before the next free one is taken.
NUMBER_BITS = 52
TURNS = LogFormat(
    noun="the file of turns",
    version=formats.TURNS.version,
    schema="""
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY,
    device INTEGER NOT NULL, inode INTEGER NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    offset INTEGER NOT NULL, digest TEXT NOT NULL, context TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turns (
    number INTEGER PRIMARY KEY,
    turn_id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL, role TEXT NOT NULL,
    session TEXT NOT NULL, wing TEXT NOT NULL,
    at_us INTEGER,
    is_sidechain INTEGER NOT NULL, is_sensitive INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS parts (
    part INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL, label TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS parts_of_turn ON parts (number, part);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
""",
    is_flushed=True,
)


class FileState(NamedTuple):
    """How far a file was read; if the digest does not match, it is read from the start."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    offset: int  # End of the lines read
    digest: str  # `digest_before` the offset
    context: str  # The reader's `FileContext` as JSON


class TurnsFile:
    """A writable turns.sqlite; use within one thread."""

    def __init__(self, path: Path, *, wait_s: float) -> None:
        self.directory = path.parent
        make_directory(path.parent)
        self.db = open_log(path, TURNS, "rwc", wait_s=wait_s)
        self._wings: dict[str, str] = {}  # by folder

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def find_state(self, path: str, found: os.stat_result | None = None) -> FileState | None:
        """Return how far a file was read, by path or else by inode; or None."""
        sql = f"SELECT {', '.join(FileState._fields)} FROM files WHERE "
        row = self.one(f"{sql} path = ?", path)
        if row is None and found is not None:
            sql += "device = ? AND inode = ? ORDER BY offset DESC LIMIT 1"
            row = self.one(sql, found.st_dev, found.st_ino)
        return None if row is None else FileState(*row)

    def keep_state(self, path: str, state: FileState) -> None:
        """Save how far a file was read."""
        marks = ", ".join("?" * (1 + len(state)))
        self.db.execute(f"INSERT OR REPLACE INTO files VALUES ({marks})", (path, *state))

    def fact(self, name: str) -> str:
        """Return a stored fact, "" if there is none."""
        row = self.one("SELECT value FROM facts WHERE name = ?", name)
        return "" if row is None else str(row[0])

    def keep_fact(self, name: str, value: str) -> None:
        """Store a fact."""
        self.db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def wing_of(self, folder: str) -> str:
        """Return the wing of a folder's project; a new project is assigned one permanently."""
        if folder not in self._wings:
            self._wings[folder], learnt = choose_wing(folder, known_projects(self.db))
            for key, wing in learnt.items():
                self.keep_fact(f"{PROJECT}{key}", wing)
        return self._wings[folder]

    def turn(self, message: Message) -> tuple[int, bool]:
        """Return the number of a message's turn, creating it if needed, and whether it is new."""
        turn_id = name_turn(message.agent, message.native_id)
        row = self.one("SELECT number FROM turns WHERE turn_id = ?", turn_id)
        if row is not None:
            return int(row[0]), False
        number = self.free_number(turn_id)
        _, role, agent, session, project, at_us, is_sidechain, *_ = message
        self.db.execute(
            "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (number, turn_id, agent, role, session, project, at_us, is_sidechain),
        )
        return number, True

    def free_number(self, turn_id: str) -> int:
        """Return the number that a new turn gets."""
        number = first_number(turn_id)
        while self.one("SELECT 1 FROM turns WHERE number = ?", number):
            number = next_number(number)
        return number

    def has_said(self, message: Message, text: str) -> bool:
        """Return whether the session that a message may be copied from has its text."""
        sql = (
            "SELECT 1 FROM turns JOIN parts USING (number) "
            "WHERE agent = ? AND session = ? AND role = ? AND text = ?"
        )
        return self.one(sql, message.agent, message.copied_from, message.role, text) is not None

    def retract(self, one: Message) -> None:
        """Delete the texts of a withdrawn turn."""
        turn_id = name_turn(one.agent, one.native_id)
        self.db.execute(
            "DELETE FROM parts WHERE number IN (SELECT number FROM turns WHERE turn_id = ?)",
            (turn_id,),
        )

    def move(self, number: int, wing: str) -> None:
        """Change the wing of a turn after the settings changed."""
        sql = "UPDATE turns SET wing = ? WHERE number = ? AND wing <> ?"
        self.db.execute(sql, (wing, number, wing))

    def mark_sensitive(self, number: int) -> None:
        """Delete the parts of a turn and mark it."""
        self.db.execute("UPDATE turns SET is_sensitive = 1 WHERE number = ?", (number,))
        self.db.execute("DELETE FROM parts WHERE number = ?", (number,))

    def keep_part(self, key: str, number: int, kind: str, part: Vetted) -> bool:
        """Store a part, or delete one without a text; return whether its turn changed."""
        if not part.text:
            sql = "DELETE FROM parts WHERE key = ? AND number = ?"
            return self.db.execute(sql, (key, number)).rowcount > 0
        sql = (
            "INSERT INTO parts (key, number, kind, label, text) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET text = excluded.text, label = excluded.label "
            "WHERE number = excluded.number AND text <> excluded.text"
        )
        values = (key, number, kind, part.label, part.text)
        return self.db.execute(sql, values).rowcount > 0

    def texts_of(self, number: int) -> list[str]:
        """Return the texts of a turn's parts in order."""
        rows = self.db.execute("SELECT text FROM parts WHERE number = ? ORDER BY part", (number,))
        return [str(text) for (text,) in rows]

    def one(self, sql: str, *values: object) -> tuple[Any, ...] | None:
        """Return the first row of a statement, or None."""
        return self.db.execute(sql, values).fetchone()


def name_turn(agent: str, native_id: str) -> str:
    """Return the id of a turn."""
    return f"turn-{hash_text(agent, native_id)[:16]}"


def first_number(turn_id: str) -> int:
    """Return the preferred number of a turn: in [-2^52, -1]."""
    return -1 - int(hash_text("number", turn_id)[:16], 16) % 2**NUMBER_BITS


def next_number(number: int) -> int:
    """Return the number to try when one is taken."""
    return number - 1 if number > -(2**NUMBER_BITS) else -1


@contextmanager
def _opened(path: Path) -> Generator[TurnsFile]:
    """Open turns.sqlite for a night; re-raise sqlite3 errors as StoreError."""
    try:
        with closing(TurnsFile(path, wait_s=WAIT_S)) as turns:
            yield turns
    except sqlite3.Error as error:
        raise unusable(path, error) from None


def unusable(turns_path: Path, error: sqlite3.Error) -> StoreError:
    """Return the error for an unusable file of turns; SQLite's own text may quote rows."""
    fault, name = name_fault(error)
    if fault == "locked":
        return StoreError(
            f"{turns_path} stayed locked by another process for {WAIT_S:.0f} s ({name}). Run again "
            f"when it has finished."
        )
    if isinstance(error, FormatError):
        return StoreError(f"{turns_path} was not changed: {error}")
    return StoreError(
        f"{turns_path} cannot be used ({name}). It may have the only copy of turns whose "
        f"transcripts are deleted: restore it from a backup, or move it away to ingest the "
        f"remaining transcripts again."
    )


# Reading one transcript from its last offset into the file of turns.

IDLE_S = 600.0  # without a new line before a queued prompt counts as never delivered
BATCH_BYTES = 4 * 2**20  # line bytes of one transaction: larger costs memory, smaller more commits
_HEAD_BYTES = 4_096
# Bytes before the offset that must be unchanged; agents do not edit the middle of a file.
_TAIL_BYTES = 1_024


def digest_before(fd: int, offset: int) -> str:
    """Return a digest of a file's first bytes and of those just before an offset."""
    digest = hashlib.sha256(str(offset).encode())
    digest.update(read_at(fd, min(_HEAD_BYTES, offset), 0))
    start = max(0, offset - _TAIL_BYTES)
    digest.update(read_at(fd, offset - start, start))
    return digest.hexdigest()[:32]


def read_transcript(
    path: Path,
    turns: TurnsFile,
    settings: TranscriptSettings,
    report: IngestReport,
    *,
    until_s: float | None = None,
) -> None:
    """Store new turns of a regular file and its new offset; adds to the counts of the report.

    At `until_s` (`time.monotonic`) it stops and keeps its results so far. Raises OSError if the
    file cannot be read, sqlite3.Error if the turns cannot be written.
    """
    report.files += 1
    found = path.stat()
    key = os.fspath(path.absolute())
    state = turns.find_state(key)
    seen = look_at(path)
    if not stat.S_ISREG(found.st_mode) or (state is not None and state[:4] == seen):
        report.unchanged += 1
        return
    with _open_lines(path, turns.directory) as handle:
        fd = handle.fileno()
        size_bytes = os.fstat(fd).st_size
        state = turns.find_state(key, found)
        run = _Run(path, fd, seen, turns, settings, report)
        if state is not None and state.digest == digest_before(fd, state.offset):
            run.end, run.context = state.offset, FileContext.from_json(state.context)
        elif state is not None:
            report.restarted += 1
        begin_lines(path, run.context)
        for line in lines_of(path, handle, range(run.end, size_bytes), run.context):
            if not run.take(line):
                if path.suffix == CHATS_SUFFIX:
                    report.fail(f"{path} ends inside a conversation: export or copy it again")
                break
            is_late = until_s is not None and time.monotonic() >= until_s
            if is_late or run.size_bytes >= BATCH_BYTES:
                run.keep(is_partial=is_late)
            if is_late:
                report.is_complete = report.is_complete and line.end >= size_bytes
                return
        is_idle = time.time() - found.st_mtime > IDLE_S
        run.sort(finish_lines(run.context, is_idle=is_idle))
        # A prompt in the agent's queue is checked again even if the file does not change.
        run.keep(is_partial=not is_idle and any(not one.is_read for one in run.context.waiting))


# Limit for an unpacked file; larger ones are not read.
MAX_UNPACKED_BYTES = 2 * 2**30


@contextmanager
def _open_lines(path: Path, directory: Path) -> Generator[BinaryIO]:
    """Open a transcript; a compressed one is unpacked into an unnamed file in a directory."""
    if not path.name.endswith(COMPRESSED_SUFFIX):
        with path.open("rb") as handle:
            yield handle
        return
    try:
        from pyarrow import ArrowException, input_stream
    except ImportError:
        raise OSError(0, "it is compressed: install noctuary[pipelines] to read it") from None
    with TemporaryFile(dir=directory) as plain:
        try:
            with input_stream(str(path), compression="zstd") as packed:
                while chunk := packed.read(BATCH_BYTES):
                    plain.write(chunk)
                    if plain.tell() > MAX_UNPACKED_BYTES:
                        raise OSError(0, f"it unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
        except ArrowException as error:
            raise OSError(0, "it is damaged, or not compressed with Zstandard") from error
        plain.flush()
        yield plain


@dataclass(slots=True)
class _Run:
    """One reading of one file, with the messages not stored yet."""

    path: Path
    fd: int
    seen: tuple[int, int, int, int]  # Device, inode, size and mtime before the reading
    turns: TurnsFile
    settings: TranscriptSettings
    report: IngestReport
    context: FileContext = field(default_factory=FileContext)
    end: int = 0  # Byte offset read so far
    size_bytes: int = 0  # Line bytes of the messages
    # In the order of the file
    messages: list[Message] = field(default_factory=list[Message])
    touched: set[int] = field(default_factory=set[int])  # Turns that got a part from them

    def take(self, line: Line) -> bool:
        """Read a line; return False for an incomplete last one."""
        value = parse_object(line.data) if line.data else None
        # No prefix of an object parses: a line that parses without a line end is complete.
        if not line.is_ended and value is None:
            return False
        self.end = line.end
        self.size_bytes += line.size_bytes
        self.report.bytes_read += line.size_bytes
        self.report.lines += 1
        if value is None and line.data != b"":
            self.report.skipped[Skip.TOO_LONG if line.data is None else Skip.BAD_JSON] += 1
        if value is not None:
            self.sort(read_line(value, self.context))
        return True

    def sort(self, readings: Iterable[Reading]) -> None:
        """Count skipped lines, and collect messages."""
        for reading in readings:
            if isinstance(reading, Skip):
                self.report.skipped[reading] += 1
            elif reading.is_sidechain and not self.settings.include_sidechains:
                self.report.skipped[Skip.SIDECHAIN] += 1
            else:
                self.messages.append(reading)

    def keep(self, *, is_partial: bool = False) -> None:
        """Store the messages and the new offset in one transaction."""
        with transaction(self.turns.db):
            for message in self.messages:
                if message.parts:
                    self._keep(message)
                else:
                    self.turns.retract(message)
            for number in sorted(self.touched):
                # Parts may hold a secret together that none of them holds alone.
                texts = self.turns.texts_of(number)
                if len(texts) > 1 and find_text_sensitivity("\n".join(texts)) is not None:
                    self.turns.mark_sensitive(number)
                    self.report.sensitive += 1
            device, inode, size, mtime_ns = self.seen
            seen = (device, inode, -1 if is_partial else size, mtime_ns)
            digest = digest_before(self.fd, self.end)
            state = FileState(*seen, self.end, digest, self.context.to_json())
            self.turns.keep_state(os.fspath(self.path.absolute()), state)
        self.messages, self.touched, self.size_bytes = [], set(), 0

    def _keep(self, message: Message) -> None:
        project = message.project or project_of(self.path.parent.name)
        folder = message.folder or self.context.folder
        if folder and (message.folder or message.project == self.context.project):
            named = wing_in_settings(folder, self.settings.wings)
            project = named or self.turns.wing_of(folder) or project
        # Fall back to the file's name.
        session = message.session or self.path.stem
        message = message._replace(session=session, project=project)
        if not any([self._keep_part(message, part) for part in message.parts]):
            is_orphan = not message.native_id
            self.report.skipped[Skip.ORPHAN if is_orphan else Skip.NO_CONTENT] += 1

    def _find_call(self, message: Message, result: Part) -> tuple[int, str] | None:
        """Return the turn and the tool of a result's call, or None if it is not stored."""
        key = f"{message.agent}:{result.key.replace('result:', 'call:', 1)}"
        found = self.turns.one("SELECT number, label FROM parts WHERE key = ?", key)
        if found is None:
            return None
        number, label = int(found[0]), str(found[1])
        if any(map(is_tool_answer, result.texts)):  # noctuary's server under another name
            self.turns.keep_part(key, number, "call", Vetted(f"[{label}]", label))
        return number, label

    def _keep_part(self, message: Message, part: Part) -> bool:
        """Store a part in its turn; return False if nothing of it is stored."""
        number: int | None = None
        if part.kind == "result":
            call = self._find_call(message, part)
            if call is None:
                return False
            number, part = call[0], part._replace(label=call[1])
        vetted = vet_part(part, self.settings.tool_chars)
        if vetted is None:
            return False
        if message.copied_from and self.turns.has_said(message, vetted.text):
            self.report.skipped[Skip.COPIED] += 1
            return True
        if number is None:
            number, is_new = self.turns.turn(message)
            self.report.turns += is_new and not vetted.is_secret
            if self.context.folder:
                self.turns.move(number, message.project)
        if self.turns.one("SELECT 1 FROM turns WHERE number = ? AND is_sensitive", number):
            return True
        if vetted.is_secret:
            self.turns.mark_sensitive(number)
            self.report.sensitive += 1
            return True
        self.report.withheld += vetted.withheld
        if self.turns.keep_part(f"{message.agent}:{part.key}", number, part.kind, vetted):
            self.report.parts += 1
            self.report.cut += vetted.was_cut
            self.touched.add(number)
        return True


# All transcripts at a path, for a night.

TASK = "transcripts"
READERS = 3  # raise it when readers or projects change their results: all files are read again
_UNMARKED = """
SELECT number FROM turns WHERE NOT is_sensitive AND number > ? ORDER BY number LIMIT 1000
"""
_NAMED = """
SELECT number FROM turns WHERE NOT is_sensitive AND (
    turn_id IN (SELECT value FROM json_each(?))
    OR CAST(number AS TEXT) IN (SELECT value FROM json_each(?))
)
"""


def ingest_transcripts(
    root: Path,
    turns_path: Path,
    settings: TranscriptSettings | None = None,
    progress: Progress = SILENT,
) -> IngestReport:
    """Store new turns of every transcript at a path; an unreadable one is a reported fault.

    Deleted files keep their turns. After a change of the settings every file is read again.
    """
    settings = settings or TranscriptSettings()
    report = IngestReport()
    chosen = (READERS, settings.include_sidechains, settings.tool_chars, *settings.wings)
    wanted = " ".join(map(str, chosen))
    with _opened(turns_path) as turns:
        known = turns.fact("settings")
        if known != wanted:
            with transaction(turns.db):
                if known:
                    turns.db.execute("DELETE FROM files")
                turns.keep_fact("settings", wanted)
        try:
            # A fork repeats lines of its parent session, which must be read first.
            paths = sorted(find_transcripts(root), key=_begun)
        except OSError as error:
            report.fail(_unreadable(root, "read", error))
            return report
        for done, path in enumerate(paths, start=1):
            try:
                read_transcript(path, turns, settings, report)
            except OSError as error:
                report.fail(_unreadable(path, "read", error))
            except SourceError as error:
                report.fail(str(error))
            progress.update(TASK, done, len(paths))
        # Agents delete their files, and every session is a file.
        known_paths = turns.db.execute("SELECT path FROM files").fetchall()
        if gone := [row for row in known_paths if _is_gone(row[0])]:
            with transaction(turns.db):
                turns.db.executemany("DELETE FROM files WHERE path = ?", gone)
    return report


def _begun(path: Path) -> tuple[float, str]:
    """Return a sort key by the start of a session, as far as the file shows it."""
    if path.name.startswith("rollout-"):  # Codex puts the start into the name
        return 0.0, path.name
    with suppress(OSError):
        return path.stat().st_mtime, path.name
    return 0.0, path.name


def _is_gone(path: str) -> bool:
    """Return whether a file was deleted; one that cannot be accessed may come back."""
    try:
        Path(path).stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False


# Sessions in a format that noctuary does not understand.

_MIN_UNKNOWN = 3  # lines of unknown types before a file counts as strange
_MAX_SHARE = 0.1  # of all lines: more, and they may hold messages
_AGENT_NAMES = {
    "claude": "Claude Code", "codex": "Codex", "gemini": "Gemini CLI", "qwen": "Qwen Code",
    "opencode": "OpenCode", "pi": "pi",
}  # fmt: skip


def find_unread_sessions(turns_path: Path) -> list[str]:
    """Return a sentence for each agent and version whose sessions are not understood."""
    silent, strange = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    try:
        with closing(open_log(turns_path, TURNS, wait_s=WAIT_S, or_empty=True)) as db:
            contexts = [text for (text,) in db.execute("SELECT context FROM files")]
    except sqlite3.Error as error:
        raise unusable(turns_path, error) from None
    for context in map(FileContext.from_json, contexts):
        version = (_AGENT_NAMES.get(context.agent, context.agent), context.version)
        is_silent = context.answers > 0 and context.prompts == 0
        most = _MAX_SHARE * context.lines
        is_strange = context.unknown >= _MIN_UNKNOWN and context.unknown > most
        silent[version] += is_silent
        strange[version] += is_strange and not is_silent
    found = list[str]()
    for name, version in sorted({*silent, *strange}):
        counts = (
            (silent[name, version], "without a prompt of yours"),
            (strange[name, version], "with many lines of unknown types"),
        )
        said = " and ".join(f"{plural(n, 'session')} {what}" for n, what in counts if n)
        if said and name:
            who = f"{name} {version}".strip()
            found.append(f"{who}: {said}; this version writes lines that noctuary cannot read")
        elif said:
            files = plural(strange[name, version], "file")
            found.append(f"{files} with lines of an unknown agent")
    return found


def forget_sensitive(turns_path: Path) -> int:
    """Delete turns in which this version's scan finds secrets, once per change; count them."""
    if not turns_path.is_file():
        return 0
    rules, marked, last = hash_text(*read_rules()), 0, -(2**63)
    with _opened(turns_path) as turns:
        if turns.fact("secret_rules") == rules:
            return 0
        while page := turns.db.execute(_UNMARKED, (last,)).fetchall():
            last = page[-1][0]
            with transaction(turns.db):
                for (number,) in page:
                    if find_text_sensitivity("\n".join(turns.texts_of(number))) is not None:
                        turns.mark_sensitive(number)
                        marked += 1
        turns.keep_fact("secret_rules", rules)
    return marked


def forget_turns(turns_path: Path, ids: Collection[str]) -> int:
    """Delete the texts of turns, named by either id; the marked turns are not read again."""
    if not turns_path.is_file():
        return 0
    asked = json.dumps(sorted(ids))
    with _opened(turns_path) as turns:
        with transaction(turns.db):
            found = turns.db.execute(_NAMED, (asked, asked)).fetchall()
            for (number,) in found:
                turns.mark_sensitive(number)
        # SQLite overwrites deleted rows, but not their earlier places in a rebalanced page.
        turns.db.execute("VACUUM")
        turns.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return len(found)


def _unreadable(path: Path, what: str, error: Exception) -> str:
    return f"{path} cannot be {what}: {getattr(error, 'strerror', None) or type(error).__name__}"


# Time limit of a capture, waiting for other writers included. The rest is read next time.
CAPTURE_DEADLINE_S = 20.0
_WAIT_SHARE = 0.25  # share of it that one wait for another writer may take


def capture_session(
    transcript_path: str | Path,
    turns_path: Path,
    settings: TranscriptSettings | None = None,
    *,
    deadline_s: float = CAPTURE_DEADLINE_S,
) -> IngestReport:
    """Store new turns of a stopped session within a deadline; never raises."""
    wait_s = max(0.0, deadline_s) * _WAIT_SHARE
    # Opening may wait once and storing the last batch once more.
    until_s = time.monotonic() + max(0.0, deadline_s) - wait_s
    report, path = IngestReport(), Path(transcript_path)
    try:
        with closing(TurnsFile(turns_path, wait_s=wait_s)) as turns:
            read_transcript(path, turns, settings or TranscriptSettings(), report, until_s=until_s)
    except sqlite3.Error as error:
        report.fail(f"{turns_path} cannot be written: {name_fault(error)[1]}")
    except NoctuaryError as error:
        report.fail(str(error))
    except Exception as error:  # a hook must never raise
        report.fail(_unreadable(path, "captured", error))
    return report
