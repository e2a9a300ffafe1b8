"""Files that other memories write: the reference MCP server's graph, mem0's JSON, CSV.

Each is read once and held. `memory.jsonl`: modelcontextprotocol/servers, src/memory/index.ts. mem0:
mem0ai/mem0, mem0/memory/main.py and docs/openapi.json.
"""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.files import hash_text
from noctuary.core.foreign_json import parse_json
from noctuary.sources.jsonl import FileLine, parse_line
from noctuary.sources.source import (
    HeldSource,
    KnownConcept,
    KnownEdge,
    KnownMention,
    QuarantineReason,
    RawRow,
)
from noctuary.sources.sqlite import UNREADABLE_TABLES
from noctuary.sources.transcripts import as_list, as_name, as_object

MAX_FILE_BYTES = 256 * 2**20  # of one that is held; parsed it takes several times as much
ID_HASH_CHARS = 12  # 48 bits tell the texts of one entity apart


def read_whole(path: Path) -> tuple[bytes, str]:
    """Return the bytes of a file, and their digest; SourceError where it is too large or closed."""
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
    return data.removeprefix(b"\xef\xbb\xbf"), sha256(data).hexdigest()


# The graph of the reference MCP server: a memory per observation. Entities without one are none.

GRAPH_KIND = "mcp-memory"
_GRAPH_LINE = re.compile(rb'\s*\{\s*"type"\s*:\s*"(?:entity|relation)"')
_MOST_EVIDENCE = 20  # observations that stand behind a relation, which none of them states


def is_memory_graph(head: bytes) -> bool:
    """Say whether a file begins as the server writes it: type first."""
    return _GRAPH_LINE.match(head) is not None


class MemoryGraphSource(HeldSource):
    """A memory.jsonl of the reference MCP server."""

    def __init__(self, path: Path) -> None:
        data, digest = read_whole(path)
        self._edges: list[tuple[str, str, str]] = []
        self._entities: dict[str, str] = {}
        self._memories: defaultdict[str, list[str]] = defaultdict(list)
        rows = list[RawRow]()
        lines = data.split(b"\n")
        for number, line in enumerate(lines, start=1):
            if line.strip():
                rows += self._take(FileLine(number, line, len(line), number < len(lines)))
        super().__init__(GRAPH_KIND, path, rows, sha256=digest)

    def _said(self) -> Iterator[KnownConcept | KnownMention | KnownEdge]:
        """Yield entities, which of them a memory is about, and relations."""
        for name, kind in self._entities.items():
            yield KnownConcept(name, (), kind)
            yield from (KnownMention(key, name, "about") for key in self._memories[name])
        for source, target, relation in self._edges:
            behind = self._memories[source] or self._memories[target]
            yield KnownEdge(source, target, relation, 1, tuple(behind[:_MOST_EVIDENCE]))

    def _take(self, line: FileLine) -> Iterator[RawRow]:
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
            for text in as_list(said):
                key = f"{name}#{hash_text(ascii(text))[:ID_HASH_CHARS]}"
                self._memories[name].append(key)
                content = f"{name}: {text}" if isinstance(text, str) else text
                held = {"id": key, "content": content, "category": kind, "entity": fields["name"]}
                yield RawRow(row.locator, key, held)
        else:
            why = row.problem or QuarantineReason.BAD_FIELD
            yield replace(row, key=None, problem=why)


# mem0: what `get_all()` returns, as JSON. Its platform's exports have a schema of their caller's,
# its local Qdrant is pickled, and its history.db does not say whose a memory is.

MEM0_KIND = "mem0-json"


class Mem0Source(HeldSource):
    """A JSON file with the memories of mem0: a list, or an object with `results`."""

    def __init__(self, path: Path) -> None:
        data, digest = read_whole(path)
        try:
            value: object = parse_json(data.decode("utf-8"))
        except ValueError:
            raise SourceFormatError(
                f"{path} is not whole JSON in UTF-8 ({len(data)} bytes). Export it again."
            ) from None
        items = as_list(value) or as_list(as_object(value).get("results"))
        if not any({"id", "memory"} <= as_object(item).keys() for item in items):
            raise SourceFormatError(
                f"{path} is JSON, but no export that noctuary knows: expected what mem0's "
                f"get_all() returns (objects with 'id' and 'memory'), the reference MCP server's "
                f"memory, or the conversations.json of ChatGPT or Claude, which a night reads."
            )
        rows = (_mem0_row(f"item {n}", as_object(item)) for n, item in enumerate(items, start=1))
        super().__init__(MEM0_KIND, path, rows, sha256=digest)


def _mem0_row(locator: str, item: Mapping[str, object]) -> RawRow:
    key = as_name(item.get("id"))
    fields: dict[str, object] = {
        "id": key,
        "content": item.get("memory"),
        "category": as_name(as_object(item.get("metadata")).get("category")) or "fact",
        "tags": [tag for tag in as_list(item.get("categories")) if isinstance(tag, str)],
        "created_at": item.get("created_at"),
        "updated_at": item.get("updated_at"),
        "session_id": item.get("run_id"),
        "user": item.get("user_id"),
        "wing": item.get("app_id") or item.get("agent_id"),
        "item": item,
    }
    why = None if key else QuarantineReason.BAD_ID
    return RawRow(locator, key or None, fields, why, "" if key else "id is no text")


# CSV: a header of noctuary's own field names, or a table beside it that says which column is what.

CSV_KIND = "csv"
CSV_SUFFIXES = (".csv", ".tsv")
_FIELDS = (
    "id", "content", "category", "tags", "expanded_keywords", "importance", "created_at",
    "updated_at", "session_id", "wing", "room", "user",
)  # fmt: skip
_HOW = ("delimiter", "date_format")


def mapping_of(path: Path) -> Path:
    """Return the file beside a CSV file that names its columns."""
    return path.with_name(f"{path.name}.toml")


class CsvSource(HeldSource):
    """A CSV or TSV file in UTF-8 with a header."""

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
            date_format = str(named.get("date_format", ""))
            for row in reader:
                rows.append(_csv_row(f"line {reader.line_num}", row, columns, date_format))
        except (csv.Error, TypeError) as error:
            raise SourceFormatError(
                f"{path} cannot be read as CSV ({error}). Check its quotes and the delimiter."
            ) from None
        super().__init__(CSV_KIND, path, rows, sha256=digest, mapping=mapped)


def _read_mapping(path: Path) -> tuple[Mapping[str, object], str]:
    """Return what a mapping says and its digest; nothing where there is none."""
    if not path.is_file():
        return {}, ""
    data, digest = read_whole(path)
    try:
        named = tomllib.loads(data.decode("utf-8"))
    except ValueError as error:
        raise SourceFormatError(f"{path} is no TOML: {error}.") from None
    if unknown := sorted(named.keys() - {*_FIELDS, *_HOW}):
        raise SourceFormatError(
            f"{path} names {', '.join(unknown)}; known are {', '.join((*_FIELDS, *_HOW))}."
        )
    return named, digest


def _columns(
    path: Path, named: Mapping[str, object], header: Sequence[str]
) -> Mapping[str, list[str]]:
    """Return the columns of each field; SourceFormatError where there is none for the text."""
    own = {name: [name] for name in _FIELDS if name in header}
    said = {name: as_list(named[name]) or [named[name]] for name in _FIELDS if name in named}
    columns = {**own, **{name: list(map(str, found)) for name, found in said.items()}}
    missing = [name for found in columns.values() for name in found if name not in header]
    if missing or "content" not in columns:
        what = f"the column {missing[0]!r}" if missing else "a column for the text"
        raise SourceFormatError(
            f"{path} has not {what}; found {', '.join(map(as_name, header)) or 'none'}. Name its "
            f'columns in {mapping_of(path).name}, for example content = "Text".'
        )
    return columns


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
    # Without an id, the same text is the same memory.
    key = key or f"row-{hash_text(str(fields['content']))[:ID_HASH_CHARS]}"
    return RawRow(locator, key, fields)


# What else people point noctuary at, and what would read it.

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
    """Return what a path looks like that is no source, and what would read it; "" if unknown."""
    if path.is_dir():
        is_qdrant = (path / "collection").is_dir() and (path / "meta.json").is_file()
        return f"It looks like {UNREADABLE_TABLES['points']}." if is_qdrant else ""
    said = _UNREADABLE.get(path.suffix.lower(), "")
    return f"It looks like {said}." if said else ""
