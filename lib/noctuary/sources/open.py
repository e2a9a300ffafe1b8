"""Open the memory store at a path or address as its kind, and compute its change marker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from noctuary.core.errors import (
    NoctuaryError,
    SourceError,
    SourceFormatError,
    SourceMissingError,
)
from noctuary.core.files import hash_json
from noctuary.core.settings import CONFIG_FILE_NAME, Settings, SourceSettings
from noctuary.core.store import DatabaseName, SourceName, path_of
from noctuary.sources import exports
from noctuary.sources.claude_mem import ClaudeMemSource, is_claude_mem
from noctuary.sources.histories import find_transcripts, look_at
from noctuary.sources.jsonl import GZIP_MAGIC, JsonlSource
from noctuary.sources.markdown import SUFFIX, MarkdownSource, find_notes
from noctuary.sources.palace import PalaceSource, is_palace
from noctuary.sources.postgres import PostgresSource, look_at_database
from noctuary.sources.several import OWN, SeveralSources, read_members
from noctuary.sources.source import Source
from noctuary.sources.sqlite import SqliteSource, tables_in

SQLITE_MAGIC = b"SQLite format 3\x00"
_STORE_NAMES = (
    "corpus.jsonl.gz", "corpus.jsonl", "memory.db", "memory/memory.db", "chroma.sqlite3",
    "palace/chroma.sqlite3", "claude-mem.db",
)  # fmt: skip


def open_source(path: SourceName, settings: SourceSettings | None = None) -> Source:
    """Open a memory store: a file, a folder with one, a folder of notes, or a database.

    A configuration file opens all stores it lists, except transcripts: a night first copies their
    turns. SourceError if nothing is found, the path is ambiguous, or the format is not supported.
    """
    if isinstance(path, DatabaseName):
        return PostgresSource(path, settings or SourceSettings())
    if is_several(path):
        return _open_several(path, settings)
    if holds_notes(path):
        return MarkdownSource(path)
    file = find_file(path)
    head = _read_head(file, _HEADER_BYTES)
    if head.startswith(SQLITE_MAGIC):
        return _open_sqlite(file)
    if exports.is_memory_graph(file):
        return exports.MemoryGraphSource(file)
    if head.startswith(GZIP_MAGIC) or file.suffix in (".jsonl", ".ndjson", ".gz"):
        return JsonlSource(file)
    if file.suffix == ".json":
        return exports.open_json(file)
    if file.suffix in exports.CSV_SUFFIXES:
        return exports.CsvSource(file)
    found = f"{len(head)} bytes" if len(head) < len(SQLITE_MAGIC) else "neither header"
    raise SourceFormatError(
        f"{file} is not a database and not JSON lines: expected a SQLite file (it starts with "
        f"'SQLite format 3'; found {found}) or a file named *.jsonl or *.jsonl.gz. Point "
        f"noctuary at a claude-memory memory.db, at a palace's chroma.sqlite3 or at an exported "
        f"corpus; an encrypted database must be decrypted first. "
        f"{exports.describe_unreadable(file)}".rstrip()
    )


def _open_sqlite(file: Path) -> Source:
    tables = tables_in(file)
    if is_claude_mem(tables):
        return ClaudeMemSource(file)
    return PalaceSource(file) if is_palace(file, tables) else SqliteSource(file)


def _open_several(file: Path, settings: SourceSettings | None) -> Source:
    """Open every store listed in a configuration file, or raise: a missing one loses memories."""
    stores: dict[str, Source | Path] = {}
    with ExitStack() as opened:
        for name, (source, is_transcripts) in read_members(file).items():
            if is_transcripts:
                continue
            if name == OWN and not path_of(source).exists():
                stores[name] = path_of(source)  # nothing has been remembered yet
                continue
            try:
                if is_several(source):
                    raise SourceError(f"{source} lists sources itself; list them here.")
                stores[name] = opened.enter_context(open_source(source, settings))
            except (NoctuaryError, OSError) as error:
                if isinstance(error, SourceMissingError) and "/" in name:
                    continue  # one of the folders that match a *
                raise SourceError(
                    f"the source {name!r} of {file.absolute()} cannot be read: {error} Nothing was "
                    f"published, and the last snapshot keeps serving. Repair it, or take its line "
                    f"out of [sources]: then the next snapshot is without its memories."
                ) from None
        return SeveralSources(file, stores, opened.pop_all())


def is_several(source: SourceName) -> bool:
    """Return whether a source is a configuration file, which lists several stores."""
    return isinstance(source, Path) and source.suffix == Path(CONFIG_FILE_NAME).suffix


def stores_in(folder: Path) -> list[Path]:
    """Return the memory stores in a folder, looked up under their usual names."""
    return [folder / name for name in _STORE_NAMES if (folder / name).is_file()]


def holds_notes(path: Path) -> bool:
    """Return whether a path is a Markdown note, or a folder with notes and no other store."""
    if path.is_dir():
        return not stores_in(path) and any(True for _ in find_notes(path))
    return path.suffix == SUFFIX and path.is_file()


def find_files(path: Path) -> list[Path]:
    """Return every file that the source at a path reads; SourceError if there is none."""
    if holds_notes(path):
        return list(find_notes(path))
    file = find_file(path)
    is_mapped = file.suffix in exports.CSV_SUFFIXES and exports.mapping_of(file).is_file()
    return [file, exports.mapping_of(file)] if is_mapped else [file]


def find_file(path: Path) -> Path:
    """Return the file of the store at a path; SourceError if there is none or more than one."""
    if not path.exists():
        raise SourceMissingError(
            f"There is no memory store at {path.absolute()}. Check the path; expected a memory.db, "
            f"a palace's chroma.sqlite3, a .jsonl or .jsonl.gz file, or a folder that holds one."
        )
    path = path.absolute()
    if path.is_file():
        return path
    if not path.is_dir():
        raise SourceFormatError(f"{path} is neither a file nor a folder; point noctuary at a file.")
    found = stores_in(path)
    if not found:
        raise SourceMissingError(
            f"The folder {path} holds no memory store: expected one of "
            f"{', '.join(_STORE_NAMES)}, Markdown notes (*.md) or transcripts of an agent "
            f"(*.jsonl). Name the store's file itself if it is called differently. "
            f"{exports.describe_unreadable(path)}".rstrip()
        )
    if len(found) > 1:
        # Picking one silently could index last month's copy.
        raise SourceFormatError(
            f"The folder {path} holds several stores "
            f"({', '.join(str(f.relative_to(path)) for f in found)}); name the one to read."
        )
    return found[0]


# The change marker of a source: a digest that differs once there may be something new to read. It
# may change without a new memory (the night then publishes nothing) but must not miss a commit.

MARKER_CHARS = 32  # of a SHA-256: 128 bits distinguish any two states of one store
_HEADER_BYTES = 100  # of a SQLite file: change counter, size in pages, schema cookie
_WAL_HEADER_BYTES = 32  # holds the salts, which change when a log is restarted


def read_marker(source: SourceName, settings: Settings) -> str:
    """Return a digest that changes with the source or with the configured transcripts."""
    states: list[Any] = [settings.source.user, _read_state(source)]
    if transcripts := settings.transcripts.path:
        states.append(_transcript_states(Path(transcripts).expanduser()))
    return hash_json(states)[:MARKER_CHARS]


def _read_state(path: SourceName) -> list[Any]:
    if isinstance(path, DatabaseName):
        return look_at_database(path)
    try:
        if is_several(path):
            return [_file_state(path), *_member_states(path)]
        if not path.exists():
            raise SourceMissingError(f"there is no memory store at {path}")
        if path.is_dir():
            stores = stores_in(path) or (find_files(path) if holds_notes(path) else [])
            states = [[str(store), *_file_state(store)] for store in stores]
            return states if stores_in(path) else [*states, *_transcript_states(path)]
        return [_file_state(file) for file in find_files(path)]
    except PermissionError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror})") from None


def _member_states(file: Path) -> Iterator[list[Any]]:
    for name, (source, is_transcripts) in read_members(file).items():
        if is_transcripts:
            yield [name, _transcript_states(path_of(source))]
        elif name != OWN or path_of(source).exists():  # nothing may have been remembered yet
            yield [name, _read_state(source)]


def _file_state(file: Path) -> list[Any]:
    """Return a file's name, inode, size and mtime; for SQLite also its header and log state."""
    stat, head = file.stat(), _read_head(file, _HEADER_BYTES)
    state: list[Any] = [file.name, stat.st_ino, stat.st_size, stat.st_mtime_ns]
    state += [exports.count_expired(file)] if file.suffix == ".json" else []
    if not head.startswith(SQLITE_MAGIC):
        return state
    state.append(head.hex())
    log = file.with_name(f"{file.name}-wal")
    with suppress(FileNotFoundError):
        stat = log.stat()
        if stat.st_size:  # any reader leaves an empty one
            state += [stat.st_size, stat.st_mtime_ns, _read_head(log, _WAL_HEADER_BYTES).hex()]
    return state


def _transcript_states(root: Path) -> list[Any]:
    """Return name, size and time of every transcript at or below a path; [] if it is gone."""
    if root.is_file():
        return [_file_state(root)]
    found: list[Any] = []
    with suppress(OSError):
        for file in find_transcripts(root):
            with suppress(OSError):  # it was deleted while the folder was listed
                found.append([os.path.relpath(file.parent, root), file.name, *look_at(file)[1:]])
    return found


def _read_head(file: Path, size: int) -> bytes:
    with file.open("rb") as handle:
        return handle.read(size)
