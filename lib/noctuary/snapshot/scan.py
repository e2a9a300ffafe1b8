"""Looking for forgotten texts in every byte of a store: raw, and as file formats decode them."""

from __future__ import annotations

import gzip
import json
import os
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from functools import lru_cache
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TextIO

import numpy as np

from noctuary.core.sqlite import decode_text
from noctuary.core.types import MemoryRecord
from noctuary.text.tokens import tokenize

# The needles: pieces of the texts, in each form in which a file may hold them, and their
# rare words. Text that a surviving memory shares is no trace of a forgotten one.

PIECE_CHARS = 24
"""Long enough that no two texts share one by chance. Pieces begin every 12 characters, so that
whoever holds 36 characters in a row holds a piece."""

_LEAST_CHARS = 8  # of a whole text: a shorter one occurs in any file by chance
_LEAST_WORD = 6
_WORD = re.compile(r"\w+")
_PART = re.compile(r"[^\W_]+")
_NAMES_LIKE_IDS = re.compile(r"[\W\d_a-f]*")  # a hexadecimal digest is no word


class Needles(NamedTuple):
    """The needles of a scan."""

    pieces: frozenset[str]
    words: frozenset[str]  # in lower case, whole words
    vectors: tuple[bytes, ...]  # stretches of the memories' vectors, as arrays hold them
    shared: int  # pieces and words not searched for: surviving memories hold them too
    short: int  # texts too short to search for without chance hits


def cut_needles(
    forgotten: Iterable[MemoryRecord],
    survivors: Iterable[str],
    vectors: Iterable[bytes] = (),
    known_words: Iterable[str] = (),
) -> Needles:
    """Return needles for traces of forgotten memories.

    `survivors` are the texts of all remaining memories, read once; `known_words` are words that
    files hold anyway, such as names of directories.
    """
    pieces, words, short = set[str](), set[str](), 0
    for record in forgotten:
        short += len(record.content.strip()) < _LEAST_CHARS
        for text in (record.content, record.tags, record.expanded_keywords):
            pieces.update(_pieces(text.strip()))
            words.update(w for w in (*_words(text), *tokenize(text)) if _is_rare(w))
    looked_for = len(pieces) + len(words)
    words -= own_words()
    words.difference_update(*(_words(text) for text in known_words))
    ours = looked_for - len(pieces) - len(words)
    for text in survivors:
        pieces = {piece for piece in pieces if piece not in text}
        # An index holds tokens: stems, and joined words; a graph holds the parts of such a word.
        words.difference_update(_words(text), _PART.findall(text.casefold()))
        words.difference_update(tokenize(text) if words else ())
    shared = looked_for - ours - len(pieces) - len(words)
    return Needles(frozenset(pieces), frozenset(words), tuple(vectors), shared, short)


@lru_cache(maxsize=1)  # two stores may forget in one process
def own_words() -> frozenset[str]:
    """Return the words of noctuary's own files: names of columns, keys and stages."""
    found: set[str] = set()
    package = Path(__file__).parents[1]
    places = [package, *package.parent.glob("noctuary_*")]
    # In a checkout the night's two packages are next to the library.
    places += package.parents[1].glob("*/noctuary_*")
    for path in (path for place in places for path in place.rglob("*.*")):
        if path.suffix in {".py", ".sql", ".toml", ".j2", ".css"}:
            text = path.read_text(encoding="utf-8").casefold()
            found.update(_WORD.findall(text), _PART.findall(text))
    return frozenset(found)


def _pieces(text: str) -> Iterator[str]:
    if _LEAST_CHARS <= len(text) <= PIECE_CHARS:
        yield text
    for start in range(0, max(len(text) - PIECE_CHARS, 0), PIECE_CHARS // 2):
        yield text[start : start + PIECE_CHARS]
    if len(text) > PIECE_CHARS:
        yield text[-PIECE_CHARS:]


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _is_rare(word: str) -> bool:
    return len(word) >= _LEAST_WORD and _NAMES_LIKE_IDS.fullmatch(word) is None


def _forms(piece: str) -> Iterator[bytes]:
    raw = piece.encode("utf-8", "surrogatepass")
    yield raw
    for coding in ("utf-16-le", "utf-16-be"):
        yield piece.encode(coding, "surrogatepass")
    yield json.dumps(piece)[1:-1].encode("ascii")
    yield json.dumps(piece, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")


# Finding many byte strings in one pass: by pairs of bytes, then by their first eight.

_HEAD_BYTES = 8
BLOCK_BYTES = 8 << 20


class Finder:
    """Finds needles in bytes."""

    def __init__(self, needles: Needles) -> None:
        """Prepare every form of every piece, and the vectors."""
        self.words = needles.words
        told = {form for piece in needles.pieces for form in _forms(piece)}
        self._forms = sorted({*told, *needles.vectors})
        by_head: dict[int, list[bytes]] = {}
        for form in self._forms:
            by_head.setdefault(int.from_bytes(form[:_HEAD_BYTES], "little"), []).append(form)
        self._by_head = by_head
        self._heads = np.array(sorted(by_head), dtype=np.uint64)
        self._pairs = [np.zeros(1 << 16, dtype=np.bool_) for _ in range(_HEAD_BYTES // 2)]
        for head in by_head:
            for place, pairs in enumerate(self._pairs):
                pairs[(head >> (16 * place)) & 0xFFFF] = True
        self._longest = max(map(len, self._forms), default=0)

    def count(self, data: bytes) -> int:
        """Return how many forms are in the data."""
        return self.count_in(BytesIO(data))

    def count_in(self, file: BinaryIO) -> int:
        """Return how many forms are in a file, of which a block is in memory at a time."""
        found, end = set[bytes](), b""
        while block := file.read(BLOCK_BYTES):
            block = end + block
            found |= self._in_block(block)
            end = block[-self._longest :]  # a form may begin in one block and end in the next
        return len(found)

    def count_words(self, text: str) -> int:
        """Return how many of the rare words are in a text."""
        return len(self.words & _words(text)) if self.words else 0

    def _in_block(self, data: bytes) -> set[bytes]:
        size = len(data) - _HEAD_BYTES + 1
        if size <= 0 or not self._heads.size:
            return set()
        raw = np.frombuffer(data, np.uint8)
        # Little-endian numbers of two bytes, at every place.
        doubles = raw[:-1].astype(np.uint16)
        doubles |= raw[1:].astype(np.uint16) << np.uint16(8)
        at = np.flatnonzero(self._pairs[0][doubles[:size]])
        for place, pairs in enumerate(self._pairs[1:], start=1):
            at = at[pairs[doubles[at + 2 * place]]]
        heads = raw[at[:, None] + np.arange(_HEAD_BYTES)].reshape(-1).view("<u8")
        at = at[np.isin(heads, self._heads)]
        found: set[bytes] = set()
        for place in at.tolist():
            head = int.from_bytes(data[place : place + _HEAD_BYTES], "little")
            found.update(f for f in self._by_head[head] if data.startswith(f, place))
        return found


# Scanning every file below a directory.


class Scanned(NamedTuple):
    """One file, or LanceDB table, that was looked into."""

    name: str  # below the directory
    size_bytes: int
    read_as: tuple[str, ...]  # "raw", then the formats that it was decoded as
    hits: int  # needles in it
    fault: str = ""  # why it could not be decoded; its raw bytes were read nevertheless

    def to_json(self) -> list[Any]:
        """Return the entry for a receipt."""
        told = [self.name, self.size_bytes, "+".join(self.read_as)]
        return [*told, *([f"not decoded: {self.fault}"] if self.fault else [])]


def scan_files(
    root: Path,
    finder: Finder,
    skip: Callable[[Path], bool],
    has_words: Callable[[Path], bool] = lambda _: True,
) -> Iterator[Scanned]:
    """Look into every file at or below a path, by name, but those to `skip`.

    Links to files are followed; those to directories are named and have a fault.
    Rare words are only looked for where `has_words`: elsewhere they would be others' words.
    """
    paths = [root] if root.is_file() else sorted(root.rglob("*"))
    for path in paths:
        is_table = path.is_dir() and path.suffix == ".lance"
        is_away = path.is_dir() and path.is_symlink()
        if skip(path) or not (is_table or is_away or path.is_file()):
            continue
        name = path.name if path == root else path.relative_to(root).as_posix()
        if is_away:
            yield Scanned(name, 0, (), 0, "a link to a directory")
            continue
        try:
            found = Scanned(name, 0, ("raw",), 0) if is_table else _scan_raw(path, name, finder)
        except FileNotFoundError:
            continue  # SQLite takes its log away
        except OSError as error:  # whatever it holds, it is not proven to be gone
            yield Scanned(name, 0, (), 1, f"cannot be read ({error.strerror})")
            continue
        found = _scan_decoded(path, found, finder, wants_words=has_words(path))
        # Its name too: nothing is called after a memory.
        yield found._replace(hits=found.hits + finder.count(os.fsencode(path.name)))


def list_limits(found: Iterable[Scanned]) -> dict[str, list[str]]:
    """Return the files that a search could not see everything in, as a receipt names them."""
    faulty = [one for one in found if one.fault]
    return {
        "raw_only": [one.name for one in faulty if one.read_as],
        "not_searched": [one.name for one in faulty if not one.read_as],
    }


def tell_limits(receipt: Mapping[str, Any]) -> Iterator[str]:
    """Describe the files that a search could not fully read."""
    ways = {"raw_only": "searched as raw bytes only, not decoded", "not_searched": "not searched"}
    for key, how in ways.items():
        if names := [str(name) for name in receipt.get(key, ())]:
            count = "1 file was" if len(names) == 1 else f"{len(names):,} files were"
            yield f"{count} {how}: {', '.join(names)}"


def _scan_raw(path: Path, name: str, finder: Finder) -> Scanned:
    with path.open("rb") as file:
        hits = finder.count_in(file)
        return Scanned(name, file.tell(), ("raw",), hits)


def _scan_decoded(path: Path, raw: Scanned, finder: Finder, *, wants_words: bool) -> Scanned:
    hits, how, fault = raw.hits, "", ""
    try:
        how, read = _find_decoder(path)
        for text in read(path) if read else ():
            hits += finder.count(text.encode("utf-8", "surrogatepass"))
            hits += finder.count_words(text) if wants_words else 0
    except Exception as error:  # a library's message about a damaged file may quote it
        fault = type(error).__name__
    return raw._replace(hits=hits, read_as=(*raw.read_as, *filter(None, (how,))), fault=fault)


_Reader = Callable[[Path], Iterable[str]]


def _find_decoder(path: Path) -> tuple[str, _Reader | None]:
    if path.suffix == ".lance" and path.is_dir():
        return "lance", _read_lance
    with path.open("rb") as file:
        data = file.read(16)
    for magic, how, read in _BY_MAGIC:
        if data.startswith(magic):
            return how, read
    if data[8:12] == b"DUCK":
        return "duckdb", _read_duckdb
    return ("json", _read_json) if path.suffix in {".json", ".jsonl"} else ("", None)


def _read_gzip(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
        yield from _blocks(file)


def _blocks(file: TextIO) -> Iterator[str]:
    end = ""  # of the block before: a piece may begin in one and end in the next
    while block := file.read(BLOCK_BYTES):
        yield end + block
        end = block[-12 * PIECE_CHARS :]  # as JSON escapes a piece at most


def _read_zip(path: Path) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            yield name
            with TextIOWrapper(archive.open(name), "latin-1", newline="") as file:
                yield from _blocks(file)


def _read_parquet(path: Path) -> Iterator[str]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        yield _plain(file.schema_arrow.metadata)
        for batch in file.iter_batches(use_threads=False):
            yield _plain(batch.to_pylist())


def _read_arrow(path: Path) -> Iterator[str]:
    import pyarrow as pa

    with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            # Vectors are compared as bytes; their keys are digests.
            kept = [n for n in batch.schema.names if not _is_vector(batch.schema.field(n).type)]
            yield _plain(batch.select(kept).to_pylist())


def _is_vector(kind: Any) -> bool:
    import pyarrow as pa

    return pa.types.is_fixed_size_list(kind)


def _read_lance(path: Path) -> Iterator[str]:
    import lancedb

    rows = lancedb.connect(str(path.parent)).open_table(path.stem).to_arrow()
    yield _plain(rows.schema.metadata)
    yield _plain(rows.select([n for n in rows.schema.names if n != "vector"]).to_pylist())


def _read_duckdb(path: Path) -> Iterator[str]:
    import duckdb

    with duckdb.connect(str(path), read_only=True) as db:
        for (table,) in db.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            rows = db.execute(f'SELECT * FROM "{table}"')
            while block := rows.fetchmany(10_000):
                yield _plain(block)


def _read_sqlite(path: Path) -> Iterator[str]:
    uri = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=5)) as db:
        db.text_factory = decode_text
        made = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        for table, sql in made:
            if "fts5" in str(sql).lower():
                db.execute(f"CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, '{table}', row)")
                yield "\n".join(str(term) for (term,) in db.execute("SELECT term FROM temp.words"))
                db.execute("DROP TABLE temp.words")
            rows = db.execute(f'SELECT * FROM "{table}"')
            while block := rows.fetchmany(10_000):
                yield _plain(block)


def _read_json(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file if path.suffix == ".jsonl" else [file.read()]:
            yield _plain(json.loads(line)) if line.strip() else ""


_BY_MAGIC: tuple[tuple[bytes, str, _Reader], ...] = (
    (b"\x1f\x8b", "gzip", _read_gzip), (b"PK\x03\x04", "zip", _read_zip),
    (b"PAR1", "parquet", _read_parquet), (b"ARROW1", "arrow", _read_arrow),
    (b"SQLite format 3\x00", "sqlite", _read_sqlite),
)  # fmt: skip


def _plain(value: Any) -> str:
    """Return every text in a value, a line each; bytes that are text, too."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return "\n".join(f"{_plain(key)}\n{_plain(held)}" for key, held in value.items())
    if isinstance(value, list | tuple):
        return "\n".join(map(_plain, value))
    return "" if isinstance(value, int | float | None) else str(value)
