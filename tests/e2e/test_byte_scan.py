"""The scanner that the leak tests rely on must see through every format that a store holds."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.e2e.byte_scan import find_texts, pieces

NEEDLE = "CANARY-süß-1"


def _write_parquet(path: Path) -> None:
    pq.write_table(pa.table({"text": [NEEDLE] * 3}), path, compression="zstd")


def _write_parquet_metadata(path: Path) -> None:
    table = pa.table({"n": [1]}).replace_schema_metadata({"note": NEEDLE})
    pq.write_table(table, path, compression="gzip")


def _write_sqlite(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("PRAGMA encoding = 'UTF-16'")
        db.execute("CREATE TABLE t (x, y BLOB)")
        db.execute("INSERT INTO t VALUES (1, ?)", [NEEDLE.encode()])


def _write_lance(path: Path) -> None:
    import lancedb

    rows = pa.table({"memory_id": [NEEDLE], "n": [1]})
    lancedb.connect(str(path.parent)).create_table(path.stem, data=rows)


PLANTERS: dict[str, Callable[[Path], object]] = {
    "plain.bin": lambda p: p.write_bytes(b"\xff\x00" + NEEDLE.encode() + b"\x00"),
    "utf16le.bin": lambda p: p.write_bytes(b"\x00" + NEEDLE.encode("utf-16-le")),
    "utf16be.bin": lambda p: p.write_bytes(NEEDLE.encode("utf-16-be")),
    "escaped.json": lambda p: p.write_text(json.dumps({"a": [NEEDLE]})),
    "rows.jsonl.gz": lambda p: p.write_bytes(gzip.compress(NEEDLE.encode() * 9)),
    "rows.parquet": _write_parquet,
    "noted.parquet": _write_parquet_metadata,
    "rows.sqlite": _write_sqlite,
    "rows.lance": _write_lance,
    f"{NEEDLE}.npy": lambda p: p.write_bytes(b"named after it"),
}


@pytest.mark.parametrize("name", PLANTERS)
def test_finds_a_planted_text_in(name: str, tmp_path: Path) -> None:
    PLANTERS[name](tmp_path / name)
    assert {text for _, _, text in find_texts(tmp_path, [NEEDLE, "absent"])} == {NEEDLE}


def test_zstd_hides_a_text_from_a_raw_scan(tmp_path: Path) -> None:
    """Were this not so, reading Parquet would prove nothing beyond reading bytes."""
    _write_parquet(tmp_path / "rows.parquet")
    assert {how for _, how, _ in find_texts(tmp_path, [NEEDLE])} >= {"parquet"}


def test_skips_what_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.txt").write_text(NEEDLE)
    assert find_texts(tmp_path, [NEEDLE], skip=[tmp_path / "old"]) == []


def test_whoever_holds_two_piece_lengths_holds_a_piece() -> None:
    text = "".join(chr(200 + i) for i in range(100))
    for start in range(100 - 16):
        assert any(piece in text[start : start + 16] for piece in pieces(text, 8))
    assert pieces("short", 8) == ["short"]


@pytest.mark.parametrize("name", PLANTERS)
def test_finds_one_of_very_many(name: str, tmp_path: Path) -> None:
    PLANTERS[name](tmp_path / name)
    texts = [*(f"not there at all: {n}" for n in range(1_000)), NEEDLE]
    assert find_texts(tmp_path, texts) == find_texts(tmp_path, [NEEDLE]) != []


@pytest.mark.parametrize("text", ["7 bytes", "exactly8", "nine char", "süß", "x" * 40])
def test_very_many_are_found_wherever_they_lie(text: str, tmp_path: Path) -> None:
    others = [f"not there at all: {n}" for n in range(1_000)]
    for before in range(10):
        for after in (0, 1, 7, 8):
            data = b"\xff" * before + text.encode() + b"\xff" * after
            (tmp_path / "data.bin").write_bytes(data)
            assert [t for _, _, t in find_texts(tmp_path, [*others, text])] == [text], data
    (tmp_path / "data.bin").write_bytes(text.encode()[:-1])
    assert find_texts(tmp_path, [*others, text]) == []
