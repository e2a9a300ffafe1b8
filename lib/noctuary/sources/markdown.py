"""Reading a folder of Markdown notes: an Obsidian vault, basic-memory, an agent's auto memory.

Obsidian's properties and links (publish.obsidian.md/help), basic-memory's NOTE-FORMAT.md, Claude
Code's `~/.claude/projects/<project>/memory/*.md` and what `noctuary export --markdown` writes.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.files import hash_text
from noctuary.core.types import UNDATED_US
from noctuary.sources.histories import project_in
from noctuary.sources.jsonl import usable_id
from noctuary.sources.projects import project_of
from noctuary.sources.source import (
    SEE_ALSO,
    HeldSource,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    QuarantineReason,
    RawRow,
)
from noctuary.sources.transcripts import MAX_NAME_CHARS, as_name, parse_moment
from noctuary.text.flags import MARKS, find_mark
from noctuary.text.front_matter import read_yaml, split_front_matter
from noctuary.text.secrets import find_text_sensitivity

KIND = "markdown"
SUFFIX = ".md"
MAX_NOTE_BYTES = 16 * 2**20  # of one note; a larger one is a dump
MAX_FRONT_CHARS = 262_144  # of its front matter: tags and keywords may have 64 KiB each
MAX_SECTIONS = 10_000  # of one note; what follows is part of the last one
MAX_FOLDER_BYTES = 512 * 2**20  # of all: they are held while the source is open
# What agents put into every prompt whole: `context.documents` reads them. One that is named itself
# is read as a note.
AGENT_DOCUMENTS = frozenset({"AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"})

# Which files are notes.


def find_notes(path: Path) -> Iterator[Path]:
    """Yield the notes at or below a path, in order; hidden ones and links are left."""
    if not path.is_dir():
        yield path
        return
    for folder, below, names in os.walk(path, onerror=_refuse):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(set(names) - AGENT_DOCUMENTS):
            file = Path(folder, name)
            if name.endswith(SUFFIX) and not name.startswith(".") and _is_regular(file):
                yield file


def _refuse(error: OSError) -> NoReturn:
    # Left out, its memories would vanish from the next snapshot.
    raise SourceError(
        f"{error.filename} cannot be read ({error.strerror}). Check its permissions, or move it "
        f"away."
    ) from None


def _is_regular(file: Path) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISREG(file.lstat().st_mode)
    return False


def _read_note(path: Path) -> bytes | int | None:
    """Return the bytes of a note, its size where it is too large, None where it is gone."""
    try:
        # A link or a pipe that was put into its place meanwhile is not followed and does not block.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _refuse(error)
    with os.fdopen(fd, "rb") as handle:
        data = handle.read(MAX_NOTE_BYTES + 1)
        return data if len(data) <= MAX_NOTE_BYTES else os.fstat(fd).st_size


# A note: its front matter, and its text by headings.


class Section(NamedTuple):
    """The text below one heading, up to the next one."""

    key: str  # The id of its memory: path#anchor, the path alone before the first heading
    trail: tuple[str, ...]  # The note's title, and the headings that it stands under
    text: str  # As written, without blank lines around it
    prose: str  # The same without fenced code


class Note(NamedTuple):
    """One file, parsed."""

    path: str  # Below the folder, with "/"
    title: str
    aliases: tuple[str, ...]
    fields: Mapping[str, object]  # Of every memory in it
    withheld: str | None  # Why none of it may leave: what its front matter holds
    sections: tuple[Section, ...]


_ANCHOR_CHARS = 80
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(?=\S)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TAG = re.compile(r"(?:^|(?<=\s))#((?![0-9]+(?:\s|$))[\w/-]{1,100})", re.MULTILINE)
_CREATED = ("created", "created_at", "date", "date created")
_UPDATED = ("updated", "updated_at", "modified", "date modified")
# Of notes that noctuary wrote: elsewhere a key "user" may mean anything.
_OWN_FIELDS = (
    "wing", "room", "user", "session_id", "category", "expanded_keywords", "created_at",
    "updated_at",
)  # fmt: skip
MEMORY_NOTE, CONCEPT_NOTE = "memory", "concept"  # values of the key "noctuary" in these


def parse_note(path: str, text: str, wing: str) -> Note | None:
    """Return a note; None for one about a concept, which noctuary wrote."""
    said, front, body = _read_front(text.removeprefix("\ufeff"))
    if said.get("noctuary") == CONCEPT_NOTE:
        return None
    shared: dict[str, object] = {name: said[name] for name in MARKS if name in said}
    withheld = find_mark(shared) or find_text_sensitivity(front or "")
    shared["importance"] = _number(said.get("importance"))
    if said.get("noctuary") == MEMORY_NOTE and (key := usable_id(said.get("id"))):
        own = {name: _plain(said.get(name)) for name in _OWN_FIELDS}
        tags = ",".join(_texts(said.get("tags")))
        memory = (Section(str(key), (), body, body),)
        return Note(path, str(key), (), {**shared, **own, "tags": tags}, withheld, memory)
    stem = as_name(_stem(path))
    top = body.lstrip().partition("\n")[0]
    title = _text(said, "title") or _text(said, "name")
    title = as_name(title or (top[2:].strip() if top.startswith("# ") else "")) or stem
    aliases = tuple(filter(None, map(as_name, _texts(said.get("aliases")))))
    about = dict.fromkeys((stem, *aliases, _text(said, "description")))
    shared |= {
        "wing": _text(said, "wing") or as_name(wing) or None,
        "room": _text(said, "room") or None,
        "category": _text(said, "type") or "note",
        "expanded_keywords": " ".join(filter(None, about)),
        "created_at": _date(said, _CREATED) or _date({"": stem[:10]}, ("",)),
        "updated_at": _date(said, _UPDATED),
        "tags": [tag for text in _texts(said.get("tags")) for tag in text.lstrip("#").split()],
    }
    sections = (
        s._replace(trail=(title, *(h for h in s.trail if h != title)))
        for s in _split(_name_of(path), body)
        if s.text
    )
    return Note(path, title, aliases, shared, withheld, tuple(sections))


def _read_front(text: str) -> tuple[dict[str, Any], str | None, str]:
    """Return what the front matter says, its text, and the rest; broken one is part of the rest."""
    front, body = split_front_matter(text)
    if front is None and "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        front, body = split_front_matter(text)
    try:
        said = read_yaml(front or "", MAX_FRONT_CHARS)
    except ValueError:
        return {}, None, text
    return {key.lower(): value for key, value in said.items()}, front, body


def _split(name: str, body: str) -> Iterator[Section]:
    """Yield the sections of a text, also those without one, their trail without the title."""
    trail: list[tuple[int, str]] = []
    lines, prose = list[str](), list[str]()
    key, fence, used = name, "", Counter[str]()
    for line in body.split("\n"):
        mark = _FENCE.match(line)
        if mark is not None and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        is_heading = not fence and mark is None and len(line) <= MAX_NAME_CHARS
        found = _HEADING.match(line) if is_heading and len(used) < MAX_SECTIONS else None
        if found is None:
            lines.append(line)
            prose += [] if fence or mark is not None else [line]
            continue
        yield _section(key, trail, lines, prose)
        heading = line[found.end() :].strip().rstrip("#").rstrip()
        trail = [*(h for h in trail if h[0] < len(found[1])), (len(found[1]), heading)]
        key, lines, prose = f"{name}#{_anchor(heading, used)}", [], []
    yield _section(key, trail, lines, prose)


def _section(
    key: str, trail: Sequence[tuple[int, str]], lines: Sequence[str], prose: Sequence[str]
) -> Section:
    text = "\n".join(lines).strip("\n").rstrip()
    return Section(key, tuple(heading for _, heading in trail), text, "\n".join(prose))


def _anchor(heading: str, used: Counter[str] | None = None) -> str:
    """Return a heading as the end of an id, another one each time where the used ones are given."""
    plain = re.sub(r"\W+", "-", heading.casefold())[:_ANCHOR_CHARS].strip("-")
    if used is None:
        return plain
    anchor = plain
    while used[anchor]:
        anchor, used[plain] = f"{plain}-{used[plain]}", used[plain] + 1
    used[anchor] += 1
    return anchor


def _stem(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(SUFFIX)


def _name_of(path: str) -> str:
    """Return a path as an id: printable, and short enough to have an anchor behind it."""
    if path.isprintable() and len(path) <= MAX_NAME_CHARS:
        return path
    return f"{as_name(path)}~{hash_text(os.fsencode(path).hex())[:16]}"


def _plain(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _text(said: Mapping[str, Any], key: str) -> str:
    return (_plain(said.get(key)) or "").strip()


def _texts(value: Any) -> list[str]:
    """Return the texts of a list, or of one text that has commas between them."""
    if isinstance(value, str):
        return [text for part in value.split(",") if (text := part.strip())]
    values = cast("list[object]", value) if isinstance(value, list) else []
    return [text for text in values if isinstance(text, str)]


def _number(value: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return number if math.isfinite(number := float(value)) else None
    return None


def _date(said: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the first date that can be read; a note says "soon" as well."""
    found = (_text(said, key).strip("[]") for key in keys)
    return next((text for text in found if parse_moment(text) is not None), None)


# Links: what a note says of others, as evidence for the graph.

_WIKI = re.compile(
    r"\[\[(?=\S)([^\[\]|#\n]{1,200})(?:#([^\[\]|\n]{0,200}))?(?:\|[^\[\]\n]{0,200})?\]\]"
)
_RELATIVE = re.compile(r"\]\(<?([^()<>\s:]{1,300}\.md)(?:#([^()\s]{0,200}))?>?\)")
# basic-memory: "- implements [[Search Design]]".
_TYPED = re.compile(r"^[ \t]{0,8}[-*+] ([A-Za-z][\w -]{0,60}?) ?\[\[([^\[\]|#\n]{1,200})", re.M)


class _Links:
    """The notes of a folder by all their names, and what they say of each other."""

    def __init__(self, notes: Sequence[Note]) -> None:
        self._notes = notes
        self._named: dict[str, Note] = {}
        # The shortest path wins, as in Obsidian; a name wins over an alias.
        ordered = sorted(notes, key=lambda note: (note.path.count("/"), note.path))
        files = ((n, (n.path, n.path.removesuffix(SUFFIX), _stem(n.path))) for n in ordered)
        for note, names in (*files, *((n, (n.title, *n.aliases)) for n in ordered)):
            for name in names:
                self._named.setdefault(name.casefold(), note)
        self._keys = {
            (note.path, section.key.rpartition("#")[2]): section.key
            for note in notes
            for section in note.sections
        }

    def said(self) -> Iterator[MemoryLink | KnownConcept | KnownMention | KnownEdge]:
        """Yield what links say, each concept once, after all that names it."""
        names: defaultdict[str, set[str]] = defaultdict(set)
        linked: set[str] = set()
        for note in self._notes:
            for section in note.sections:
                for label, heading in self._labels(note, section):
                    target = self._named.get(label.casefold())
                    concept = label if target is None else target.title
                    names[concept].add(label)
                    yield KnownMention(section.key, concept, "links-to")
                    if target is not None:
                        linked.add(target.path)
                        yield from self._link(section, target, heading)
                for relation, label in dict.fromkeys(_TYPED.findall(section.prose)):
                    label = as_name(label)
                    target = self._named.get(label.casefold())
                    concept = label if target is None else target.title
                    names[note.title].add(note.title)
                    yield KnownEdge(note.title, concept, relation, 1, (section.key,))
        for note in self._notes:
            if note.path in linked or note.aliases:
                names[note.title] |= {*note.aliases, note.title}
                for section in note.sections:
                    yield KnownMention(section.key, note.title, "about")
        for name, others in sorted(names.items()):
            yield KnownConcept(name, tuple(sorted(others - {name})), "")

    def _labels(self, note: Note, section: Section) -> Iterator[tuple[str, str]]:
        """Yield the notes that a section links to, as it names them, and the headings in them."""
        for label, heading in dict.fromkeys(_WIKI.findall(section.prose)):
            yield as_name(label).removesuffix(SUFFIX), heading
        folder = note.path.rpartition("/")[0]
        for path, heading in dict.fromkeys(_RELATIVE.findall(section.prose)):
            target = self._named.get(posixpath.normpath(posixpath.join(folder, path)).casefold())
            if target is not None:
                yield target.title, heading

    def _link(self, section: Section, target: Note, heading: str) -> Iterator[MemoryLink]:
        """Yield the link to the memory of a heading, or to the first of the note."""
        first = target.sections[0].key if target.sections else section.key
        key = self._keys.get((target.path, _anchor(heading)), first) if heading else first
        if key != section.key:
            yield MemoryLink(section.key, key, SEE_ALSO, UNDATED_US, None)


# The folder as a source.


class MarkdownSource(HeldSource):
    """The notes at a path; a row per section that has a text, and per note that is unreadable."""

    def __init__(self, path: Path) -> None:
        root = path if path.is_dir() else path.parent
        top, is_memory = _wing_of(root.absolute())
        digest, files, held_bytes = sha256(), 0, 0
        rows: list[RawRow] = []
        self._notes: list[Note] = []
        for file in find_notes(path):
            data = _read_note(file)
            if data is None:
                continue
            name, files = file.relative_to(root).as_posix(), files + 1
            held_bytes += len(data) if isinstance(data, bytes) else 0
            if held_bytes > MAX_FOLDER_BYTES:
                raise SourceFormatError(
                    f"{path} holds more than {MAX_FOLDER_BYTES // 2**20} MiB of notes. Point "
                    f"noctuary at one of its folders."
                )
            digest.update(os.fsencode(f"{name}\0{data if isinstance(data, int) else ''}"))
            digest.update(data if isinstance(data, bytes) else b"")
            folder = name.partition("/")[0]
            rows += self._take(name, data, top if is_memory or folder == name else folder)
        super().__init__(KIND, path, rows, files=files, sha256=digest.hexdigest())

    def _said(self) -> Iterable[object]:
        return _Links(self._notes).said()

    def _take(self, name: str, data: bytes | int, wing: str) -> Iterator[RawRow]:
        why, text, size = QuarantineReason.CONTENT_TOO_LARGE, "", data
        if isinstance(data, bytes):
            try:
                note = parse_note(name, data.decode("utf-8"), wing)
            except UnicodeDecodeError:
                why, text = QuarantineReason.NOT_UTF8, data.decode("utf-8", "replace")
                size = len(data)
            else:
                if note is not None:
                    self._notes.append(note)
                    yield from (_row(note, section) for section in note.sections)
                return
        key = _name_of(name)
        yield RawRow(f"note {key}", key, {}, why, f"{size} bytes", text)


def _row(note: Note, section: Section) -> RawRow:
    if note.withheld is not None:
        return RawRow(f"note {_name_of(note.path)}", section.key, {}, withheld=note.withheld)
    fields, content = dict(note.fields), section.text
    if section.trail:
        # The title has a line of its own: the graph finds the subject there.
        trail = (section.trail[0], " > ".join(section.trail[1:]), content)
        content = "\n".join(filter(None, trail))
        tags = [*cast("list[str]", fields["tags"]), *_TAG.findall(section.prose)]
        fields["tags"] = list(dict.fromkeys(tags))
    fields |= {"id": section.key, "content": content}
    return RawRow(f"note {_name_of(note.path)}", section.key, fields)


def _wing_of(root: Path) -> tuple[str, bool]:
    """Return the wing of the notes that lie in a folder itself, and whether it is that of all."""
    if root.name == "memory" and root.parent.parent.name == "projects":
        return project_in(root.parent), True  # Claude Code's auto memory
    return ("" if root.name.startswith(".") else project_of(str(root))), False
