"""Read a folder of Markdown notes: an Obsidian vault, basic-memory, an agent's auto memory.

Sources: Obsidian's properties and links (publish.obsidian.md/help), basic-memory's NOTE-FORMAT.md,
Claude Code's `~/.claude/projects/<project>/memory/*.md`, and `noctuary export --markdown`.
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
from noctuary.core.types import UNDATED_US, Origin
from noctuary.sources.histories import project_in
from noctuary.sources.jsonl import usable_id
from noctuary.sources.projects import project_of
from noctuary.sources.source import (
    SEE_ALSO,
    UNREAD_DATE,
    HeldSource,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    QuarantineReason,
    RawRow,
)
from noctuary.sources.transcripts import MAX_NAME_CHARS, as_name, as_object
from noctuary.text.flags import MARKS, find_mark
from noctuary.text.front_matter import read_yaml, split_front_matter
from noctuary.text.secrets import find_text_sensitivity
from noctuary.text.stamps import read_stamp

KIND = "markdown"
SUFFIX = ".md"
MAX_NOTE_BYTES = 16 * 2**20  # of one note; anything larger is a dump
MAX_FRONT_CHARS = 262_144  # of its front matter: tags and keywords may have 64 KiB each
MAX_SECTIONS = 10_000  # of one note; the rest becomes part of the last one
MAX_FOLDER_BYTES = 512 * 2**20  # of all notes, which are held while the source is open
# Agents load these into every prompt, so `context.documents` reads them; given as the path itself,
# such a file is read as a note.
AGENT_DOCUMENTS = frozenset({"AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"})

# Which files are notes.


def find_notes(path: Path) -> Iterator[Path]:
    """Yield the notes at or below a path, sorted; hidden files and links are skipped."""
    if not path.is_dir():
        yield path
        return
    for folder, below, names in os.walk(path, onerror=_raise_unreadable):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(set(names) - AGENT_DOCUMENTS):
            file = Path(folder, name)
            if name.endswith(SUFFIX) and not name.startswith(".") and _is_regular(file):
                yield file


def _raise_unreadable(error: OSError) -> NoReturn:
    # If it were skipped, its memories would vanish from the next snapshot.
    raise SourceError(
        f"{error.filename} cannot be read ({error.strerror}). Check its permissions, or move it "
        f"away."
    ) from None


def _is_regular(file: Path) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISREG(file.lstat().st_mode)
    return False


def _read_note(path: Path) -> bytes | int | None:
    """Return the bytes of a note, its size if it is too large, or None if it is gone."""
    try:
        # Does not follow a link or block on a pipe that has replaced the file meanwhile.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _raise_unreadable(error)
    with os.fdopen(fd, "rb") as handle:
        data = handle.read(MAX_NOTE_BYTES + 1)
        return data if len(data) <= MAX_NOTE_BYTES else os.fstat(fd).st_size


# A note: its front matter, and its text split at headings.


class Section(NamedTuple):
    """The text below one heading of a note."""

    key: str  # Id of its memory: path#anchor, or the path before the first heading
    trail: tuple[str, ...]  # The note's title and the enclosing headings
    text: str  # Verbatim, without surrounding blank lines
    prose: str  # The text without fenced code


class Note(NamedTuple):
    """One parsed note file: metadata of its front matter, and its sections."""

    path: str  # Relative to the folder, with "/"
    title: str
    aliases: tuple[str, ...]
    fields: Mapping[str, object]  # Shared by every memory in it
    withheld: str | None  # Why the note is sensitive, or None
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()  # Names of front matter problems
    is_template: bool = False  # Whether it has placeholders to be filled in


_ANCHOR_CHARS = 80
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(?=\S)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_TAG = re.compile(r"(?:^|(?<=\s))#((?![0-9]+(?:\s|$))[\w/-]{1,100})", re.MULTILINE)
# Keys of dates, without spaces, hyphens and underscores; the first that parses
# counts.
_CREATED = (
    "created", "createdat", "createdon", "createdtime", "createddate", "creationdate",
    "creationtime", "datecreated", "date", "dateadded", "published", "publishdate", "erstellt",
    "datum", "fecha",
)  # fmt: skip
_UPDATED = (
    "updated", "updatedat", "updatedon", "updatedtime", "updateddate", "dateupdated", "modified",
    "modifiedat", "modifiedtime", "modifieddate", "modificationdate", "datemodified",
    "lastmodified", "lastmod", "lastupdated", "lastupdate", "lastedited", "lasteditedtime",
    "geändert",
)  # fmt: skip
_DAY_IN_NAME = re.compile(r"\d{4}([-_.])\d\d\1\d\d(?!\d)")
# Only in notes written by noctuary: elsewhere a key "user" may mean anything.
_OWN_FIELDS = (
    "wing", "room", "user", "session_id", "category", "expanded_keywords", "created_at",
    "updated_at",
)  # fmt: skip
MEMORY_NOTE, CONCEPT_NOTE = "memory", "concept"  # values of the key "noctuary" in such notes


def parse_note(path: str, text: str, wing: str) -> Note | None:
    """Parse a note into sections; None if noctuary itself wrote it about a concept."""
    blocks, front, body = _read_front(text.removeprefix("\ufeff"))
    said = _merged(blocks)
    if said.get("noctuary") == CONCEPT_NOTE:
        return None
    marks = filter(None, map(find_mark, (*blocks, *map(_nested, blocks))))
    withheld = next(marks, None) or find_text_sensitivity(front)
    shared: dict[str, object] = {"importance": _number(said.get("importance"))}
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
    created, updated = _date(said, _CREATED), _date(said, _UPDATED)
    day = _DAY_IN_NAME.match(stem)
    shared |= {
        "wing": _text(said, "wing") or as_name(wing) or None,
        "room": _text(said, "room") or None,
        "category": _text(said, "type") or "note",
        "expanded_keywords": " ".join(filter(None, about)),
        "created_at": read_stamp(created) or (day and read_stamp(day.group())),
        "updated_at": read_stamp(updated) or updated,
        "tags": [tag for text in _texts(said.get("tags")) for tag in text.lstrip("#").split()],
    }
    sections = list(_split(_name_of(path), body))
    is_template = _is_template(path, text, front, sections)
    told = [section for section in sections if section.text]
    if not told and (listed := _list_properties(blocks)):
        told = [Section(_name_of(path), (), listed, listed)]
    titled = (s._replace(trail=(title, *(h for h in s.trail if h != title))) for s in told)
    warnings = (UNREAD_DATE,) if created and read_stamp(created) is None else ()
    return Note(
        path, title, aliases, shared, withheld, tuple(titled), warnings, is_template=is_template
    )


# Tools that ignore a note's front matter prepend their own: basic-memory's has a permalink.
_MOST_BLOCKS = 4
_NOTE_KEYS = frozenset({"title", "type", "permalink", "tags"})


def _read_front(text: str) -> tuple[list[dict[str, Any]], str, str]:
    """Split a note into its front matter blocks (parsed), their text, and the body."""
    blocks, fronts = list[dict[str, Any]](), list[str]()
    if "\r" in text and split_front_matter(text)[0] is None:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    while len(blocks) < _MOST_BLOCKS:
        front, body = split_front_matter(text.lstrip("\n") if blocks else text)
        try:
            said = None if front is None else read_yaml(front, MAX_FRONT_CHARS, nested=True)
        except ValueError:
            break
        # After a first block, two rules with a line between them belong to the note's text.
        if said is None or (blocks and not _NOTE_KEYS & said.keys()):
            break
        blocks.append({key.lower(): value for key, value in said.items()})
        fronts.append(front or "")
        text = body
    return blocks, "\n".join(fronts), text


def _nested(block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields below `metadata`, where Claude Code puts type and dates."""
    said = as_object(block.get("metadata"))
    return {key.lower(): value for key, value in said.items()}


def _merged(blocks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge front matter blocks: later blocks win, fields nested in `metadata` lose.

    Keys of dates are also added without separators.
    """
    said: dict[str, Any] = {}
    for block in (*map(_nested, blocks), *blocks):
        said |= {key: value for key, value in block.items() if value is not None}
    dates = {re.sub(r"[\s_-]", "", key): value for key, value in said.items()}
    return {**{key: dates[key] for key in (*_CREATED, *_UPDATED) if key in dates}, **said}


# A note without text gets its remaining properties as text.
_STRUCTURE = frozenset({
    "title", "name", "aliases", "alias", "tags", "tag", "type", "wing", "room", "importance",
    "permalink", "noctuary", "id", "cssclass", "cssclasses", "publish", *MARKS, *_CREATED,
    *_UPDATED,
})  # fmt: skip


def _list_properties(blocks: Sequence[Mapping[str, Any]]) -> str:
    """Return the properties of a note as lines "name: value", without structural ones."""
    said: dict[str, Any] = {key: value for block in blocks for key, value in block.items()}
    lines = list[str]()
    for key, value in said.items():
        if re.sub(r"[\s_-]", "", key) in _STRUCTURE:
            continue
        inner = value.items() if isinstance(value, dict) else [(key, value)]
        for name, held in cast("Iterable[tuple[str, Any]]", inner):
            shown = ", ".join(_texts(held)) if isinstance(held, list) else _plain(held)
            if shown and name not in _STRUCTURE:
                lines.append(shown if key == "description" else f"{name}: {shown}")
    return "\n".join(lines)


# A template has placeholders: `{{title}}`, `{{date:YYYY-MM-DD}}`, Templater's `<% tp.`.

_PLACEHOLDER = re.compile(
    r"(?<!\$)\{\{\s{0,9}([A-Za-z_][\w.-]{0,40})(?::(?!:)[^{}\n]{0,60})?\s{0,9}\}\}"
    r"|<%[-_*]?\s{0,9}(tp)\."
)
_CORE = frozenset({"title", "date", "time", "tp"})  # of the two tools that fill them in
_PROSE_KEYS = ("description", "summary", "abstract")
_CODE_SPAN = re.compile(r"(`{1,2})(?!`)[^`\n]{1,400}\1(?!`)")
_TEMPLATE_NAME = re.compile(r"(?:^|[^a-z])(?:templates?|vorlagen?)(?:[^a-z]|$)", re.IGNORECASE)
_WORDS_PER_PLACEHOLDER = 10  # with more words, the note is about placeholders


def _is_template(path: str, text: str, front: str, sections: Sequence[Section]) -> bool:
    if "{{" not in text and "<%" not in text:
        return False
    # Also in broken YAML: `title: {{title}} notes` does not parse.
    head = front or split_front_matter(text)[0] or ""
    stated = (line for line in head.split("\n") if not line.lower().startswith(_PROSE_KEYS))
    headings = (heading for section in sections for heading in section.trail)
    if any(map(_PLACEHOLDER.search, (*stated, *headings))):
        return True
    prose = _CODE_SPAN.sub("", "\n".join(section.prose for section in sections))
    found = [name or templater for name, templater in _PLACEHOLDER.findall(prose)]
    if found and _TEMPLATE_NAME.search(path):
        return True
    is_likely = len(set(found)) > 1 or not _CORE.isdisjoint(found)
    return is_likely and len(prose.split()) <= _WORDS_PER_PLACEHOLDER * len(found)


def _split(name: str, body: str) -> Iterator[Section]:
    """Split a body into sections at its headings, empty ones too; trails lack the title."""
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
    """Return the anchor of a heading; with `used`, numbered if it was used before."""
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
    """Return a path as a printable id, short enough for an anchor to follow."""
    if path.isprintable() and len(path) <= MAX_NAME_CHARS:
        return path
    return f"{as_name(path)}~{hash_text(os.fsencode(path).hex())[:16]}"


def _plain(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _text(said: Mapping[str, Any], key: str) -> str:
    return (_plain(said.get(key)) or "").strip()


def _texts(value: Any) -> list[str]:
    """Return the texts of a list, or the parts of a comma-separated text."""
    if isinstance(value, str):
        return [text for part in value.split(",") if (text := part.strip())]
    values = cast("list[object]", value) if isinstance(value, list) else []
    return [text for text in values if isinstance(text, str)]


def _number(value: Any) -> float | None:
    with suppress(TypeError, ValueError):
        return number if math.isfinite(number := float(value)) else None
    return None


def _date(said: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    """Return the first date that parses, else the first non-blank value, else None."""
    values = (said[key] for key in keys if key in said)
    found = [v if isinstance(v, str) else " ".join(_texts(v)) or type(v).__name__ for v in values]
    return next(filter(read_stamp, found), next(filter(str.strip, found), None))


# Links between notes, as evidence for the graph.

_WIKI = re.compile(
    r"\[\[(?=\S)([^\[\]|#\n]{1,200})(?:#([^\[\]|\n]{0,200}))?(?:\|[^\[\]\n]{0,200})?\]\]"
)
_RELATIVE = re.compile(r"\]\(<?([^()<>\s:]{1,300}\.md)(?:#([^()\s]{0,200}))?>?\)")
# basic-memory, by the rules of its own parser (src/basic_memory/markdown/plugins.py): a list item
# that is only `implements [[Search]]` or `"part of" [[Search]] (a context)` is a relation,
# `[decision] Text #tag#other (a context)` an observation, but not a task box or a clock time.
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+")
_CONTEXT = re.compile(r"\((?:[^()]|\([^()]*\))*\)")
_OBSERVATION = re.compile(r"\[([^\[\]()]+)\]\s+(.+)")
_NO_CATEGORY = re.compile(r"[xX\W_]?|\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d{1,3})?(?:\s+-\s.*)?")
_MAX_LABEL_CHARS = 60


def _find_relations(prose: str) -> Iterator[tuple[str, str]]:
    """Yield the type and target of each basic-memory relation in a section."""
    for line in prose.split("\n"):
        item = _ITEM.match(line) if "[[" in line else None
        content = line[item.end() :].strip() if item is not None else ""
        # Code keeps its length but loses its brackets.
        plain = _CODE_SPAN.sub(lambda code: re.sub(r"[\[\]]", " ", code[0]), content)
        if "[[" not in plain:
            continue
        label, start = plain.partition("[[")[0].strip().rstrip(":"), plain.index("[[") + 2
        end = plain.find("]]", start)
        behind = plain[end + 2 :].strip()
        if end < 0 or (behind and not _CONTEXT.fullmatch(behind)):
            continue
        if len(label) > 1 and label[0] in "\"'" and label[-1] == label[0]:
            label = label[1:-1].strip()
        elif len(label.split()) > 1 or label.startswith("["):
            continue
        target = re.split(r"[|#\[\]]", content[start:end])[0].strip()
        if label and target and len(label) <= _MAX_LABEL_CHARS and len(target) <= MAX_NAME_CHARS:
            yield label, target


def _find_tags(prose: str) -> Iterator[str]:
    """Yield the hashtags of a section; of a basic-memory observation those of its text."""
    for line in prose.split("\n"):
        if "#" not in line:
            continue
        item = _ITEM.match(line)
        found = _OBSERVATION.match(line[item.end() :].strip()) if item else None
        if found is None or _NO_CATEGORY.fullmatch(found[1].strip()):
            yield from _TAG.findall(line)
            continue
        text = found[2][: found[2].rfind("(")] if found[2].endswith(")") else found[2]
        for word in text.split():
            if word.startswith("#"):
                parts = map(_TAG_TEXT.match, word.split("#"))
                yield from (part.group() for part in parts if part is not None)


_TAG_TEXT = re.compile(r"[\w/+.-]*[\w/+-]")


class _Links:
    """Resolves links between the notes of a folder by path, name, title and alias."""

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
        """Yield mentions, links and edges of all notes, then each concept once."""
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
                for relation, label in dict.fromkeys(_find_relations(section.prose)):
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
        """Yield (label, heading) of each wiki or relative link in a section."""
        for label, heading in dict.fromkeys(_WIKI.findall(_CODE_SPAN.sub("", section.prose))):
            yield as_name(label).removesuffix(SUFFIX), heading
        folder = note.path.rpartition("/")[0]
        for path, heading in dict.fromkeys(_RELATIVE.findall(section.prose)):
            target = self._named.get(posixpath.normpath(posixpath.join(folder, path)).casefold())
            if target is not None:
                yield target.title, heading

    def _link(self, section: Section, target: Note, heading: str) -> Iterator[MemoryLink]:
        """Yield the link to the section under a heading of the target, or to its first section."""
        first = target.sections[0].key if target.sections else section.key
        key = self._keys.get((target.path, _anchor(heading)), first) if heading else first
        if key != section.key:
            yield MemoryLink(section.key, key, SEE_ALSO, UNDATED_US, None)


# The folder of notes as a source.


class MarkdownSource(HeldSource):
    """The notes at a path: one row per section with text, and per unreadable note."""

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
            rows += self._parse_rows(name, data, top if is_memory or folder == name else folder)
        super().__init__(KIND, path, rows, files=files, sha256=digest.hexdigest())

    def _said(self) -> Iterable[object]:
        return _Links(self._notes).said()

    def _parse_rows(self, name: str, data: bytes | int, wing: str) -> Iterator[RawRow]:
        why, text, size = QuarantineReason.CONTENT_TOO_LARGE, "", data
        if isinstance(data, bytes):
            try:
                note = parse_note(name, data.decode("utf-8"), wing)
            except UnicodeDecodeError:
                why, text = QuarantineReason.NOT_UTF8, data.decode("utf-8", "replace")
                size = len(data)
            else:
                if note is None:
                    return
                if not note.is_template:
                    self._notes.append(note)
                    yield from (_row(note, section) for section in note.sections)
                    return
                why, text = QuarantineReason.TEMPLATE, data.decode("utf-8")
                size = len(data)
        key = _name_of(name)
        yield RawRow(f"note {key}", key, {}, why, f"{size} bytes", text)


def _row(note: Note, section: Section) -> RawRow:
    if note.withheld is not None:
        return RawRow(f"note {_name_of(note.path)}", section.key, {}, withheld=note.withheld)
    fields, content = dict(note.fields), section.text
    if section.trail:
        # The title gets a line of its own, where the graph looks for the subject.
        trail = (section.trail[0], " > ".join(section.trail[1:]), content)
        content = "\n".join(filter(None, trail))
        tags = [*cast("list[str]", fields["tags"]), *_find_tags(section.prose)]
        fields["tags"] = list(dict.fromkeys(tags))
    fields |= {"id": section.key, "content": content, "origin": Origin.FILE}
    return RawRow(f"note {_name_of(note.path)}", section.key, fields, warnings=note.warnings)


def _wing_of(root: Path) -> tuple[str, bool]:
    """Return the wing of notes in the top folder, and whether subfolders share it."""
    if root.name == "memory" and root.parent.parent.name == "projects":
        return project_in(root.parent), True  # Claude Code's auto memory
    return ("" if root.name.startswith(".") else project_of(str(root))), False
