"""Read exports of other tools: the reference MCP server's graph, mem0's JSON, CSV.

Each file is read once and held in memory. `memory.jsonl`: modelcontextprotocol/servers,
src/memory/index.ts. mem0: mem0ai/mem0, mem0/memory/main.py and docs/openapi.json.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, cast

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.files import hash_text
from noctuary.core.foreign_json import parse_json
from noctuary.sources.jsonl import FileLine, parse_line
from noctuary.sources.source import (
    UNREAD_DATE,
    HeldSource,
    KnownConcept,
    KnownEdge,
    KnownMention,
    QuarantineReason,
    RawRow,
    Source,
    true_names,
)
from noctuary.sources.sqlite import UNREADABLE_TABLES
from noctuary.sources.transcripts import as_list, as_name, as_object
from noctuary.text.flags import find_mark
from noctuary.text.stamps import read_stamp

MAX_FILE_BYTES = 256 * 2**20  # of a file held in memory; parsed it takes several times as much
ID_HASH_CHARS = 12  # 48 bits are enough for the texts of one entity
_UTF8_BOM = b"\xef\xbb\xbf"


def read_whole(path: Path) -> tuple[bytes, str]:
    """Return the bytes of a file and their digest; SourceError if too large or unreadable."""
    try:
        with path.open("rb") as handle:
            data = handle.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise SourceFormatError(
            f"{path} has {path.stat().st_size} bytes, at most {MAX_FILE_BYTES} are read of such a "
            f"file. Split it, or turn it into JSON lines."
        )
    return data.removeprefix(_UTF8_BOM), sha256(data).hexdigest()


# The graph of the reference MCP server: one memory per observation; entities without one are not.
# Forks add dates (`createdAt`, `lastModified`), observations as objects, a header line.

GRAPH_KIND = "mcp-memory"
_MOST_EVIDENCE = 20  # observations kept as evidence of a relation
_LOOKED_AT_BYTES = 4 * 2**20
_LOOKED_AT_LINES = 40
# For a record longer than the prefix read; quotes inside a text follow a backslash.
_TYPE = re.compile(rb'"type"\s*:\s*"(?:entity|relation)"')
_SHAPE = re.compile(rb'"(?:entityType|observations|relationType)"\s*:')
_BRACKETS = re.compile(rb'\\.|["{}]', re.DOTALL)
_FORK_HEADER = "_aim"  # type of the header line that mcp-knowledge-graph writes
_CREATED = ("createdAt", "created_at", "timestamp")
_UPDATED = ("updatedAt", "updated_at", "lastModified")


def is_memory_graph(path: Path) -> bool:
    """Return whether one of the first lines of a file is an entity or a relation."""
    left = _LOOKED_AT_BYTES
    with path.open("rb") as handle:
        while left > 0 and (line := handle.readline(left)):
            left -= max(len(line), _LOOKED_AT_BYTES // _LOOKED_AT_LINES)
            for record in _split_records(line.removeprefix(_UTF8_BOM)):
                with suppress(ValueError):
                    found = as_object(parse_json(record))
                    if _kind_of(found):
                        return True
                    if "id" in found and "content" in found:
                        return False
            if not line.endswith(b"\n") and all(shape.search(line) for shape in (_TYPE, _SHAPE)):
                return left <= 0  # cut off, so it does not parse
    return False


def _kind_of(fields: Mapping[str, object]) -> str:
    """Return "entity" or "relation", or "" for anything else."""
    kind = fields.get("type")
    is_entity = kind == "entity" and ("observations" in fields or "entityType" in fields)
    is_relation = kind == "relation" and "from" in fields and "to" in fields
    return str(kind) if is_entity or is_relation else ""


def _split_records(line: bytes) -> Iterator[bytes]:
    """Yield the JSON objects of a line, and any text between them."""
    depth = begin = 0
    in_text = False
    for found in _BRACKETS.finditer(line):
        mark = found[0]
        if mark == b'"':
            in_text = not in_text
        elif in_text or mark not in b"{}":
            continue
        elif mark == b"{":
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield line[begin : found.end()].lstrip(b" \t\r,[")
                begin = found.end()
    if line[begin:].strip(b" \t\r,]"):
        yield line[begin:]


class MemoryGraphSource(HeldSource):
    """A memory.jsonl of the reference MCP server or a fork, or the answer of `read_graph`."""

    def __init__(self, path: Path, graph: Mapping[str, object] | None = None) -> None:
        data, digest = read_whole(path)
        if graph is not None:
            kinds = (("entity", "entities"), ("relation", "relations"))
            items = (
                {**as_object(item), "type": kind}
                for kind, name in kinds
                for item in as_list(graph.get(name))
            )
            data = b"\n".join(json.dumps(item).encode() for item in items)
        self._edges: list[tuple[str, str, str]] = []
        self._entities: dict[str, str] = {}
        self._memories: defaultdict[str, dict[str, None]] = defaultdict(dict)
        rows = list[RawRow]()
        lines = data.split(b"\n")
        for number, line in enumerate(lines, start=1):
            for record in _split_records(line):
                rows += self._parse_rows(FileLine(number, record, len(record), number < len(lines)))
        super().__init__(GRAPH_KIND, path, rows, sha256=digest)

    def _said(self) -> Iterator[KnownConcept | KnownMention | KnownEdge]:
        """Yield entities as concepts, mentions of them in memories, and relations."""
        for name, kind in self._entities.items():
            yield KnownConcept(name, (), kind)
            yield from (KnownMention(key, name, "about") for key in self._memories[name])
        for source, target, relation in self._edges:
            behind = self._memories[source] or self._memories[target]
            yield KnownEdge(source, target, relation, 1, tuple(islice(behind, _MOST_EVIDENCE)))

    def _parse_rows(self, line: FileLine) -> Iterator[RawRow]:
        row = parse_line(line)
        fields = row.fields
        names = {key: as_name(fields.get(key)) for key in ("name", "from", "to", "relationType")}
        if fields.get("type") == "relation" and names["from"] and names["to"]:
            self._edges.append((names["from"], names["to"], names["relationType"]))
        elif fields.get("type") == "entity" and (name := names["name"]):
            kind, said = as_name(fields.get("entityType")), fields.get("observations")
            self._entities.setdefault(name, kind)
            if not isinstance(said, list):
                detail = f"observations: {type(said).__name__}"
                yield RawRow(row.locator, None, fields, QuarantineReason.BAD_FIELD, detail)
            for observation in as_list(said):
                made = _observation_row(row, name, kind, observation)
                self._memories[name][str(made.key)] = None
                yield made
        elif fields.get("type") != _FORK_HEADER:
            why = row.problem or QuarantineReason.BAD_FIELD
            yield replace(row, key=None, problem=why)


def _observation_row(row: RawRow, name: str, kind: str, observation: object) -> RawRow:
    """Return an observation as a row; its own date wins over its entity's."""
    fields, own = row.fields, as_object(observation)
    text = own["content"] if isinstance(own.get("content"), str) else observation
    created, updated = _first_of(own, _CREATED), _first_of(own, _UPDATED)
    if created is None and updated is None:
        created, updated = _first_of(fields, _CREATED), _first_of(fields, _UPDATED)
    key = f"{name}#{hash_text(ascii(text))[:ID_HASH_CHARS]}"
    held: dict[str, object] = {
        "id": key,
        "content": f"{name}: {text}" if isinstance(text, str) else text,
        "category": kind,
        "tags": [tag for tag in as_list(fields.get("tags")) if isinstance(tag, str)],
        "created_at": read_stamp(created),
        "updated_at": read_stamp(updated) or updated,
        "entity": fields["name"],
        "said": observation,
    }
    mark = find_mark(own) or find_mark(fields)
    is_unread = created is not None and held["created_at"] is None
    warnings = (UNREAD_DATE,) if is_unread else ()
    return RawRow(row.locator, key, {} if mark else held, withheld=mark, warnings=warnings)


def _first_of(fields: Mapping[str, object], names: Iterable[str]) -> object:
    """Return the first field that is set, or None."""
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)


# mem0: the answer of `get_all()` as JSON. Exports of its platform have a schema set by the caller,
# its local Qdrant is pickled, and its history.db does not record the owner of a memory.

MEM0_KIND = "mem0-json"
GET_ALL_DEFAULT = 20  # memories that get_all() of mem0 2.x returns without `top_k`
NOTE_DEFAULT = "mem0_get_all_default"
NOTE_PAGE = "mem0_one_page"
UNREAD_EXPIRY = "expiration_date_unusable"
_HEAD_BYTES = 64 * 2**10  # enough to recognise a file of mem0
_EXPIRES = re.compile(rb'"expiration_date"\s*:\s*"(\d{4}-\d\d-\d\d)')


def count_expired(path: Path) -> int:
    """Count the expired memories of a mem0 file, a number that grows without a write."""
    try:
        with path.open("rb") as handle:
            if path.suffix != ".json" or b'"memory"' not in handle.read(_HEAD_BYTES):
                return 0
        data, _ = read_whole(path)
    except (OSError, SourceError):
        return 0
    today = _today().encode()
    return sum(day < today for day in _EXPIRES.findall(data))


def _today() -> str:
    return datetime.now(UTC).date().isoformat()  # mem0 compares UTC dates as well


class Mem0Source(HeldSource):
    """The memories of a mem0 JSON file: a list, or an object with `results`."""

    def __init__(self, path: Path, value: object, digest: str) -> None:
        pages, today = _pages_of(value), _today()
        page = pages[0] if len(pages) == 1 else {}
        total = pages[0].get("count")
        items = [item for one in pages for item in as_list(one.get("results"))]
        found = enumerate(items, start=1)
        rows = (_mem0_row(f"item {n}", as_object(item), today) for n, item in found)
        is_page = any(page.get(name) for name in ("next", "previous"))
        is_page |= isinstance(total, int) and total > len(items)
        is_default = len(items) == GET_ALL_DEFAULT and not is_page and total is None
        notes = true_names({NOTE_PAGE: is_page, NOTE_DEFAULT: is_default})
        marks: dict[str, int | str] = {"sha256": digest, "expired": count_expired(path)}
        super().__init__(MEM0_KIND, path, rows, notes, **marks)


def _pages_of(value: object) -> list[Mapping[str, object]]:
    """Return the pages of one answer of `get_all()`, or of a list of answers."""
    listed = as_list(value)
    if any("results" in as_object(item) for item in listed):
        return [as_object(item) for item in listed]
    return [{"results": listed}] if listed else [as_object(value)]


def _mem0_row(locator: str, item: Mapping[str, object], today: str) -> RawRow:
    key, metadata = as_name(item.get("id")), as_object(item.get("metadata"))
    mark = find_mark(item) or find_mark(metadata)
    if mark is not None:
        return RawRow(locator, key or None, {}, withheld=mark)
    fields: dict[str, object] = {
        "id": key,
        "content": item.get("memory"),
        "category": as_name(metadata.get("category")) or "fact",
        "tags": [tag for tag in as_list(item.get("categories")) if isinstance(tag, str)],
        "created_at": item.get("created_at"),
        "updated_at": item.get("updated_at"),
        "session_id": item.get("run_id"),
        "user": item.get("user_id"),
        "wing": item.get("app_id") or as_name(metadata.get("app_id")) or item.get("agent_id"),
        "item": item,
    }
    if not key:
        return RawRow(locator, None, fields, QuarantineReason.BAD_ID, "id is no text")
    ends = _first_of(item, ("expiration_date",)) or _first_of(metadata, ("expiration_date",))
    last = read_stamp(ends)
    if last is not None and last[:10] < today:
        return RawRow(locator, key, fields, QuarantineReason.EXPIRED, "expiration_date has passed")
    warnings = (UNREAD_EXPIRY,) if ends is not None and last is None else ()
    return RawRow(locator, key, fields, warnings=warnings)


# Other JSON files.


def open_json(path: Path) -> Source:
    """Open a JSON file as a mem0 export or an MCP memory graph, else raise SourceFormatError."""
    data, digest = read_whole(path)
    try:
        value: object = parse_json(data.decode("utf-8"))
    except ValueError:
        raise SourceFormatError(
            f"{path} is not whole JSON in UTF-8 ({len(data)} bytes). Export it again."
        ) from None
    items = (item for page in _pages_of(value) for item in as_list(page.get("results")))
    if any({"id", "memory"} <= as_object(item).keys() for item in items):
        return Mem0Source(path, value, digest)
    graph = as_object(value)
    if isinstance(graph.get("entities"), list) and isinstance(graph.get("relations"), list):
        return MemoryGraphSource(path, graph)
    raise SourceFormatError(
        f"{path} is JSON, but not an export that noctuary knows.{_of_claude(value)} Expected "
        f"the result of mem0's get_all() (objects with 'id' and 'memory'; call it with top_k, "
        f"otherwise it stops at {GET_ALL_DEFAULT}), the reference MCP server's memory, or the "
        f"conversations.json of ChatGPT or Claude, which a night reads."
    )


# Other files of a claude.ai export: a key in each, and its contents.
_CLAUDE_FILES = {
    "conversations_memory": "what Claude remembered about you (memories.json)",
    "project_memories": "what Claude remembered about you (memories.json)",
    "prompt_template": "projects of a Claude export (projects.json)",
    "verified_phone_number": "the account of a Claude export (users.json)",
}


def _of_claude(value: object) -> str:
    """Describe a file of a claude.ai export by its keys; "" for anything else."""
    for item in (as_object(value), *map(as_object, as_list(value))):
        for key in item.keys() & _CLAUDE_FILES.keys():
            return f" It holds {_CLAUDE_FILES[key]}: save the texts that matter as Markdown."
    return ""


# CSV: a header of noctuary's own field names, or a mapping file that assigns columns to fields.

CSV_KIND = "csv"
CSV_SUFFIXES = (".csv", ".tsv")
_FIELDS = (
    "id", "content", "category", "tags", "expanded_keywords", "importance", "created_at",
    "updated_at", "session_id", "wing", "room", "user",
)  # fmt: skip
_HOW = ("delimiter", "date_format")


def mapping_of(path: Path) -> Path:
    """Return the path of a CSV file's column mapping."""
    return path.with_name(f"{path.name}.toml")


class CsvSource(HeldSource):
    """A CSV or TSV file in UTF-8 with a header and an optional column mapping."""

    def __init__(self, path: Path) -> None:
        data, digest = read_whole(path)
        named, mapped = _read_mapping(mapping_of(path))
        csv.field_size_limit(MAX_FILE_BYTES)
        text = io.StringIO(data.decode("utf-8", "surrogateescape"), newline="")
        delimiter = str(named.get("delimiter", "\t" if path.suffix == ".tsv" else ","))
        rows = list[RawRow]()
        try:
            reader = csv.DictReader(text, restkey="", delimiter=delimiter, strict=True)
            columns = _columns(path, named, reader.fieldnames or ())
            date_format = _date_format(mapping_of(path), named)
            for row in reader:
                rows.append(_csv_row(f"line {reader.line_num}", row, columns, date_format))
        except (csv.Error, TypeError, ValueError) as error:
            raise SourceFormatError(
                f"{path} cannot be read as CSV ({error}). Check its quotes and the delimiter."
            ) from None
        super().__init__(CSV_KIND, path, rows, sha256=digest, mapping=mapped)


def _read_mapping(path: Path) -> tuple[Mapping[str, object], str]:
    """Return a column mapping and its digest; both empty if there is no file."""
    if not path.is_file():
        return {}, ""
    data, digest = read_whole(path)
    try:
        named = tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise SourceFormatError(f"{path} is not valid TOML: {error}.") from None
    if unknown := sorted(named.keys() - {*_FIELDS, *_HOW}):
        raise SourceFormatError(
            f"{path} names {', '.join(unknown)}; known are {', '.join((*_FIELDS, *_HOW))}."
        )
    return named, digest


def _columns(
    path: Path, named: Mapping[str, object], header: Sequence[str]
) -> Mapping[str, list[str]]:
    """Map each field to its columns; SourceFormatError if one is missing or content has none."""
    own = {name: [name] for name in _FIELDS if name in header}
    said = {name: as_list(named[name]) or [named[name]] for name in _FIELDS if name in named}
    columns = {**own, **{name: list(map(str, found)) for name, found in said.items()}}
    missing = [name for found in columns.values() for name in found if name not in header]
    if missing or "content" not in columns:
        what = f"the column {missing[0]!r}" if missing else "a column for the text"
        raise SourceFormatError(
            f"{path} does not have {what}; found "
            f"{', '.join(map(as_name, header)) or 'none'}. Name its "
            f'columns in {mapping_of(path).name}, for example content = "Text".'
        )
    return columns


def _date_format(path: Path, named: Mapping[str, object]) -> str:
    """Return the date format of a mapping, checked by a round trip; "" if not set."""
    pattern = named.get("date_format", "")
    known = datetime(2026, 11, 28, 14, 5, 59, tzinfo=UTC)
    back = None
    # Doubled directives fail in the regular expression that Python builds from the format.
    with suppress(TypeError, ValueError, re.error, IndexError, KeyError, OverflowError):
        text, another = (known.replace(year=y).strftime(str(pattern)) for y in (2026, 2054))
        # The same day of the week in another year: Python warns of a format without a year.
        back = None if text == another else datetime.strptime(text, str(pattern))  # noqa: DTZ007
    is_whole = isinstance(pattern, str) and back is not None and back.date() == known.date()
    if pattern != "" and not is_whole:
        raise SourceFormatError(
            f"{path}: date_format {pattern!r} cannot be used: it must contain year, month and day. "
            f'Expected is a format of Python\'s strptime, for example "%d.%m.%Y".'
        )
    return str(pattern)


def _csv_row(
    locator: str, row: Mapping[str, Any], columns: Mapping[str, list[str]], date_format: str
) -> RawRow:
    fields: dict[str, object] = {"columns": dict(row)}
    for field, names in columns.items():
        fields[field] = "\n".join(filter(None, (row[name] for name in names))) or None
    with suppress(KeyError, TypeError, ValueError):
        fields["importance"] = float(cast("str", fields["importance"]))
    for name in ("created_at", "updated_at") if date_format else ():
        with suppress(KeyError, TypeError, ValueError):
            said = cast("str", fields[name])
            moment = datetime.strptime(said, date_format)  # noqa: DTZ007 (it may have a zone)
            fields[name] = moment.isoformat()
    key = as_name(fields.get("id"))
    # Without an id column, equal texts are one memory.
    key = key or f"row-{hash_text(str(fields['content']))[:ID_HASH_CHARS]}"
    return RawRow(locator, key, fields)


# Unsupported files, and how to convert them.

_MAIL = "Turn the messages that matter into JSON lines or Markdown"
_UNREADABLE = {
    ".zip": "a ZIP archive: unpack it (a Notion, ChatGPT or Claude export) and name the folder",
    ".mbox": f"a mailbox. {_MAIL}",
    ".eml": f"a mail. {_MAIL}",
    ".enex": "an Evernote export: import it into Obsidian and name the vault",
    ".html": "a web page: save it as Markdown",
    ".pdf": "a PDF: save its text as Markdown",
    ".docx": "a Word document: save it as Markdown",
    ".parquet": "a Parquet file: write its rows as JSON lines, for example with DuckDB",
    ".txt": "plain text: rename it to .md",
    ".org": "an Org file: export it as Markdown",
}


def describe_unreadable(path: Path) -> str:
    """Describe a path that is not supported, with how to convert it; "" if unknown."""
    if path.is_dir():
        is_qdrant = (path / "collection").is_dir() and (path / "meta.json").is_file()
        return f"It looks like {UNREADABLE_TABLES['points']}." if is_qdrant else ""
    said = _UNREADABLE.get(path.suffix.lower(), "")
    return f"It looks like {said}." if said else ""
