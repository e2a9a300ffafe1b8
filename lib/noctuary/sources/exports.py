"""Files that other memories write: the reference MCP server's graph, mem0's JSON, CSV.

Each is read once and held. `memory.jsonl`: modelcontextprotocol/servers, src/memory/index.ts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.files import hash_text
from noctuary.sources.jsonl import FileLine, parse_line
from noctuary.sources.source import (
    HeldSource,
    KnownConcept,
    KnownEdge,
    KnownMention,
    QuarantineReason,
    RawRow,
    Told,
)
from noctuary.sources.transcripts import as_list, as_name

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

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield entities, which of them a memory is about, and relations."""
        for said in self._said():
            if isinstance(said, noun):
                yield said

    def _said(self) -> Iterator[KnownConcept | KnownMention | KnownEdge]:
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
