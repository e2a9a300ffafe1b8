"""Find memory stores on this machine, in the usual places of each tool; read-only."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from noctuary.core.errors import NoctuaryError
from noctuary.core.foreign_json import parse_json
from noctuary.core.settings import Settings
from noctuary.core.store import expand_user, path_of
from noctuary.core.types import SILENT, Progress
from noctuary.sources.export import REPORTED_ROWS, Tally, sift
from noctuary.sources.histories import find_transcripts
from noctuary.sources.ingest import ingest_transcripts
from noctuary.sources.open import find_files, open_source
from noctuary.sources.several import EVERY, OWN, TRANSCRIPTS, expand_member
from noctuary.sources.source import RawRow, Source
from noctuary.sources.transcripts import as_object

# The tools and where each keeps memories: adding one is a line. `open_source` detects the kind of
# store, or raises if noctuary cannot read it.


class Finder(NamedTuple):
    """A usual place of one tool: a path below a folder from a variable or a default folder."""

    name: str  # Of the source, in [sources]
    what: str  # Display name of the tool
    variable: str  # Environment variable with the folder, or ""
    folder: str  # Default folder, or "" if only the variable sets one
    below: str = ""
    begins: str = ""  # Prefix of the line in [sources]: TRANSCRIPTS or ""


_CLAUDE, _CODEX = ("CLAUDE_CONFIG_DIR", "~/.claude"), ("CODEX_HOME", "~/.codex")
_MEMORIES, _CHROMA, _XDG = "memory/memory.db", "chroma.sqlite3", "XDG_CONFIG_HOME"
_DATA, _QWEN = ("XDG_DATA_HOME", "~/.local/share"), ("QWEN_HOME", "~/.qwen")
_QWEN_RUNS, _PI = ("QWEN_RUNTIME_DIR", ""), ("PI_CODING_AGENT_DIR", "~/.pi/agent")

FINDERS = (
    # https://code.claude.com/docs/en/memory
    Finder("claude", "Claude Code sessions", *_CLAUDE, "projects", TRANSCRIPTS),
    Finder("auto-memory", "Claude Code's notes", *_CLAUDE, f"projects/{EVERY}/memory"),
    Finder("claude-md", "your CLAUDE.md", *_CLAUDE, "CLAUDE.md"),
    # https://developers.openai.com/codex/memories
    Finder("codex", "Codex sessions", *_CODEX, "sessions", TRANSCRIPTS),
    Finder("codex-archive", "archived Codex sessions", *_CODEX, "archived_sessions", TRANSCRIPTS),
    Finder("codex-notes", "Codex's notes", *_CODEX, "memories"),
    # https://opencode.ai/docs/troubleshooting; it follows the XDG base directories on every system
    Finder("opencode", "OpenCode sessions", *_DATA, "opencode", TRANSCRIPTS),
    Finder("opencode-2", "OpenCode sessions, OPENCODE_DB", "OPENCODE_DB", "", "", TRANSCRIPTS),
    # https://geminicli.com/docs/cli/session-management
    Finder("gemini", "Gemini CLI sessions", "GEMINI_CLI_HOME", "~", ".gemini/tmp", TRANSCRIPTS),
    # https://qwenlm.github.io/qwen-code-docs/en/users/configuration/settings
    Finder("qwen", "Qwen Code sessions", *_QWEN, "projects", TRANSCRIPTS),
    Finder("qwen-2", "Qwen Code sessions, other place", *_QWEN_RUNS, "projects", TRANSCRIPTS),
    Finder("qwen-old", "early Qwen Code sessions", *_QWEN, "tmp", TRANSCRIPTS),
    # docs/settings.md of @mariozechner/pi-coding-agent
    Finder("pi", "pi sessions", *_PI, "sessions", TRANSCRIPTS),
    Finder("pi-2", "pi sessions, other place", "PI_CODING_AGENT_SESSION_DIR", "", "", TRANSCRIPTS),
    Finder("claude-mem", "claude-mem", "CLAUDE_MEM_DATA_DIR", "~/.claude-mem", "claude-mem.db"),
    Finder("claude-memory", "claude-memory", "MEMORY_HOME", "~/.claude/claude-memory", _MEMORIES),
    Finder("claude-memory-2", "claude-memory, MEMORY_DB", "MEMORY_DB", ""),
    Finder("claude-memory-3", "claude-memory, old place", "", "~/.claude/metaclaw", _MEMORIES),
    # The leaf is the usual place; a palace created one folder higher is found only there.
    Finder("palace", "MemPalace", "MEMPALACE_PALACE_PATH", "~/.mempalace/palace", _CHROMA),
    Finder("palace-2", "MemPalace, one folder up", "", "~/.mempalace", _CHROMA),
    # Since 3.10 a new palace lies where the XDG Base Directory Specification puts settings.
    Finder("palace-4", "MemPalace", _XDG, "~/.config", f"mempalace/palace/{_CHROMA}"),
    Finder("palace-5", "MemPalace", "MEMPALACE_CONFIG_DIR", "", f"palace/{_CHROMA}"),
    # Deprecated names of MEMPALACE_PALACE_PATH.
    Finder("palace-6", "MemPalace", "MEMPALACE_PALACE", "", _CHROMA),
    Finder("palace-7", "MemPalace", "MEMPAL_PALACE_PATH", "", _CHROMA),
)


_MOST_BYTES = 1_000_000  # of MemPalace's settings file, which has a few lines


@dataclass(slots=True)
class Found:
    """A place found on disk, with the counts of its memories; holds no text."""

    name: str
    what: str
    said: str  # Its line for [sources], with an absolute path
    files: int = 0
    size_bytes: int = 0
    memories: int = 0  # Rows that a night would export
    secrets: int = 0  # Marked, or found by the secret scan
    set_aside: int = 0  # Quarantined: deleted, empty, damaged
    fault: str = ""  # Why it cannot be used


def find_places(environ: Mapping[str, str], markdown: Sequence[Path]) -> Iterator[Found]:
    """Yield each existing place once; `markdown` are note folders that the user named."""
    home, known = Path(os.path.realpath(Path.home())), set[tuple[str, str]]()
    for name, what, begins, path, is_named in (*_usual_places(environ), *_named_places(markdown)):
        parts = path.parts
        at = parts.index(EVERY) if EVERY in parts else len(parts)
        top, rest = Path(*parts[:at]), Path(*parts[at:])
        real = Path(os.path.realpath(top))
        place = (f"{begins}{real}", str(rest))
        if place in known or not os.path.exists(real):  # noqa: PTH110 (it never raises)
            continue
        known.add(place)
        found = Found(name, what, f"{begins}{path}")
        if not is_named and home not in real.parents:
            found.fault = f"a link leads out of your home directory, to {real}"
        yield found


_Place = tuple[str, str, str, Path, bool]
"""Name, display name, line prefix, path, and whether the user set the path."""


def _usual_places(environ: Mapping[str, str]) -> Iterator[_Place]:
    for name, what, variable, folder, below, begins in FINDERS:
        said = _read_variable(environ, variable)
        if base := said or folder:
            yield name, what, begins, expand_user(base).absolute() / below, bool(said)
        if name == "palace" and not said and (base := _configured_palace(environ)):
            yield "palace-3", what, begins, expand_user(base).absolute() / below, True


def _read_variable(environ: Mapping[str, str], variable: str) -> str:
    """Return an environment variable, or ""; a relative XDG folder is ignored, per the XDG spec."""
    said = environ.get(variable, "").strip() if variable else ""
    return "" if variable == _XDG and not os.path.isabs(said) else said  # noqa: PTH117


def _configured_palace(environ: Mapping[str, str]) -> str:
    """Return the palace folder set in MemPalace's own config.json, or ""."""
    xdg = _read_variable(environ, _XDG) or "~/.config"
    said_folder = _read_variable(environ, "MEMPALACE_CONFIG_DIR")
    folders = (said_folder,) if said_folder else ("~/.mempalace", f"{xdg}/mempalace")
    files = (expand_user(f"{folder}/config.json") for folder in folders)
    return next(filter(None, map(_palace_path, files)), "")


def _palace_path(file: Path) -> str:
    said: object = None
    with suppress(OSError, ValueError):
        if file.is_file() and file.stat().st_size < _MOST_BYTES:
            said = as_object(parse_json(file.read_bytes())).get("palace_path")
    return said if isinstance(said, str) and said.isprintable() else ""


def _named_places(markdown: Sequence[Path]) -> Iterator[_Place]:
    taken = {OWN, "palace-3", *(finder.name for finder in FINDERS)}
    for path in markdown:
        plain = re.sub(r"[^a-z0-9]+", "-", path.absolute().name.lower())[:40].strip("-") or "notes"
        names = (plain, *(f"{plain}-{number}" for number in range(2, len(markdown) + 20)))
        name = next(name for name in names if name not in taken)
        taken.add(name)
        yield name, "Markdown", "", path.absolute(), True


# Count the memories of a place as a night would export them.


def look_into(found: Found, turns: Path, settings: Settings, progress: Progress = SILENT) -> None:
    """Count the memories of a place; turns are ingested into `turns`. Errors become `fault`."""
    try:
        for _, member in expand_member(found.name, found.said, Path("/")):
            path = path_of(member.source)
            if member.is_transcripts:
                _count_turns(found, path, turns, settings, progress)
            else:
                with open_source(path) as source:
                    _count_rows(found, path, source, settings, progress)
    except (NoctuaryError, OSError) as error:
        found.fault = str(error)
    except Exception as error:  # do not hide the other places; its text may quote a memory
        name = type(error).__name__
        found.fault = f"it cannot be read, and noctuary does not know why ({name}); please report"
    if not found.fault and not found.memories:
        found.fault = "it holds no memory yet"


def _count_turns(
    found: Found, root: Path, turns: Path, settings: Settings, progress: Progress
) -> None:
    report = ingest_transcripts(root, turns, settings.transcripts, progress)
    found.files += report.files
    for file in find_transcripts(root):
        with suppress(OSError):  # a link to nothing
            found.size_bytes += file.stat().st_size
    found.memories += report.turns
    found.secrets += report.sensitive + report.withheld


def _count_rows(
    found: Found, path: Path, source: Source, settings: Settings, progress: Progress
) -> None:
    tally, total = Tally(), source.count()

    def rows() -> Iterator[RawRow]:
        for done, row in enumerate(source.rows(), start=1):
            yield row
            if done % REPORTED_ROWS == 0 or done == total:
                progress.update(found.name, done, total)

    for _ in sift(rows(), tally, now_us=time.time_ns() // 1000, settings=settings.corpus):
        pass
    found.memories += tally.exported
    found.secrets += tally.sensitive.total()
    found.set_aside += tally.quarantined.total()
    for file in find_files(path):
        found.files += 1
        found.size_bytes += file.stat().st_size
