"""Looks for texts in every byte below a directory: raw, and as the file formats decode them."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GZIP_MAGIC = b"\x1f\x8b"
PARQUET_MAGIC = b"PAR1"
SQLITE_MAGIC = b"SQLite format 3\x00"

_HEAD_BYTES = 8
_MANY = 500
"""Forms from which on one pass over all their heads is cheaper than a pass for each."""


def find_texts(
    root: Path, texts: Iterable[str], *, skip: Sequence[Path] = ()
) -> list[tuple[str, str, str]]:
    """Return (file, how it was read, text) for every text that is anywhere below a directory.

    Args:
        root: A directory.
        texts: What to look for, in UTF-8, both UTF-16 and as JSON escapes.
        skip: Files and directories that are not looked at.
    """
    encoded = [(text, form) for text in texts for form in _encodings(text)]
    heads = np.unique(np.array([_head(form) for _, form in encoded], dtype=np.uint64))
    found: set[tuple[str, str, str]] = set()
    for path, how, data in read_everything(root, skip):
        name = str(path.relative_to(root))
        likely = _likely(encoded, heads, data) if len(encoded) >= _MANY else encoded
        found.update((name, how, text) for text, form in likely if form in data)
    return sorted(found)


def _likely(
    encoded: Sequence[tuple[str, bytes]], heads: NDArray[np.uint64], data: bytes
) -> list[tuple[str, bytes]]:
    """Leave out what cannot be in the data, because its first bytes are not."""
    seen: set[int] = set()
    for offset in range(min(_HEAD_BYTES, max(len(data) - _HEAD_BYTES + 1, 0))):
        windows = np.frombuffer(data, "<u8", (len(data) - offset) // _HEAD_BYTES, offset)
        seen.update(windows[np.isin(windows, heads)].tolist())
    return [(t, form) for t, form in encoded if len(form) < _HEAD_BYTES or _head(form) in seen]


def _head(form: bytes) -> int:
    return int.from_bytes(form[:_HEAD_BYTES], "little")


def read_everything(root: Path, skip: Sequence[Path] = ()) -> Iterator[tuple[Path, str, bytes]]:
    """Yield each file as raw bytes, then what Parquet, SQLite, gzip and Lance make of it."""
    for path in sorted(root.rglob("*")):
        if any(path == s or s in path.parents for s in skip):
            continue
        if path.is_dir():
            if path.suffix == ".lance":
                yield path, "lance", _lance_rows(path)
            continue
        data = path.read_bytes()
        yield path, "raw", path.name.encode() + b"\n" + data
        yield from ((path, how, text) for how, text in _decode(path, data))


def pieces(text: str, size: int) -> list[str]:
    """Cut a text into pieces: whoever holds 2 * `size` characters of it in a row holds a piece."""
    cut = [text[start : start + size] for start in range(0, len(text) - size + 1, size)]
    return cut or [text]


def _decode(path: Path, data: bytes) -> Iterator[tuple[str, bytes]]:
    if data.startswith(GZIP_MAGIC):
        yield "gzip", gzip.decompress(data)
    elif data.startswith(PARQUET_MAGIC):
        yield "parquet", _parquet_rows(path)
    elif data.startswith(SQLITE_MAGIC):
        yield "sqlite", _sqlite_rows(path)
    elif path.suffix == ".json":
        yield "json", json.dumps(json.loads(data), ensure_ascii=False).encode()


def _parquet_rows(path: Path) -> bytes:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    return _as_text([table.schema.metadata, *table.to_pylist()])


def _sqlite_rows(path: Path) -> bytes:
    rows: list[Any] = []
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        db.text_factory = _decode_text
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            rows += db.execute(f'SELECT * FROM "{table}"').fetchall()
    return _as_text(rows)


def _decode_text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _lance_rows(path: Path) -> bytes:
    import lancedb

    table = lancedb.connect(str(path.parent)).open_table(path.stem)
    rows = table.to_arrow()
    texts = [name for name in rows.schema.names if name != "vector"]
    return _as_text([rows.schema.metadata, *rows.select(texts).to_pylist()])


def _as_text(rows: Sequence[Any]) -> bytes:
    return "\n".join(_plain(row) for row in rows).encode("utf-8", "replace")


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return "\n".join(f"{_plain(k)}: {_plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return "\n".join(_plain(item) for item in value)
    return str(value)


def _encodings(text: str) -> set[bytes]:
    escaped = json.dumps(text)[1:-1].encode("ascii")
    return {text.encode(), text.encode("utf-16-le"), text.encode("utf-16-be"), escaped}
