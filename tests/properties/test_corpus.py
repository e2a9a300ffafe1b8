from __future__ import annotations

import json
import math
import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.settings import CorpusSettings
from noctuary.core.types import UNDATED_US, content_hash
from noctuary.sources.corpus import read_records
from noctuary.sources.export import ExportReport, diff_corpora, export_corpus, read_report
from noctuary.sources.jsonl import JsonlSource
from noctuary.sources.normalize import Accepted, find_sensitivity, normalize
from noctuary.sources.open import open_source
from noctuary.sources.source import RawRow
from noctuary.text.secret_forms import entropy_bits

NOW_US = 1_790_000_000_000_000
CANARY = "canary-51c9"

TEXT = st.text(max_size=12) | st.sampled_from(["", " ", "a\0b", "[REDACTED]", "ok", "2025-01-01"])
SCALAR = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=True) | TEXT
VALUE = SCALAR | st.lists(SCALAR, max_size=2) | st.dictionaries(TEXT, SCALAR, max_size=2)
ID = st.integers(-3, 8) | st.sampled_from(["a", "b", "7"]) | VALUE
FIELDS = {
    "content": st.just("some text") | VALUE,
    "category": st.sampled_from(["", "turn", "facts"]) | VALUE,
    "tags": st.sampled_from(["", "wing:w", "session:s,user:u"]) | VALUE,
    "expanded_keywords": VALUE,
    "importance": st.floats(0, 1) | VALUE,
    "created_at": st.datetimes().map(str) | VALUE,
    "updated_at": VALUE,
    "session_id": st.none() | VALUE,
    "is_sensitive": st.sampled_from([0, 0, 0, 1]) | VALUE,
}
OBJECT = st.fixed_dictionaries({"id": ID}, optional=FIELDS)
PLAIN = st.fixed_dictionaries({"id": ID, "content": st.just("some text")})
LINE = st.one_of(
    OBJECT.map(lambda row: json.dumps(row).encode()),
    PLAIN.map(lambda row: json.dumps(row).encode()),
    st.binary(max_size=20).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b"")),
)
# One row that names the schema; without it a file of rubbish is refused as a whole.
FIRST = b'{"id": 0, "content": "first"}'


def export(path: Path, out: Path) -> ExportReport:
    with open_source(path) as source:
        return export_corpus(source, out, now_us=NOW_US)


def check_account(report: ExportReport, out: Path) -> None:
    records = read_records(out)
    assert report.source_rows == report.exported + report.quarantined_rows + report.sensitive_rows
    assert report.exported == len(records)
    assert report.quarantined_rows == pq.read_metadata(out / "quarantine.parquet").num_rows
    assert report.turns == sum(r.is_turn for r in records)
    assert [r.position for r in records] == list(range(len(records)))
    assert len({r.memory_id for r in records}) == len(records)
    for record in records:
        assert content_hash(record) == record.content_hash
        assert record.content.strip()
        assert "\0" not in record.content
        assert 0 <= record.importance <= 1
        assert not math.isnan(record.importance)
        for moment in (record.created_at_us, record.updated_at_us):
            assert moment == UNDATED_US or moment >= 0
    assert read_report(out) == report


@settings(max_examples=30, deadline=None)
@given(st.lists(LINE, max_size=25), st.booleans())
def test_counts_are_conserved_for_any_lines(lines: list[bytes], ended: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        path, out = Path(name) / "corpus.jsonl", Path(name) / "out"
        path.write_bytes(b"\n".join([FIRST, *lines]) + (b"\n" if ended else b""))
        report = export(path, out)
        rows = [line for line in [FIRST, *lines] if line.strip()]
        assert report.source_rows == len(rows)
        check_account(report, out)
        ids = [record.memory_id for record in read_records(out)]
        if report.identity.id_kind == "int":
            assert ids == sorted(ids, key=int)
        else:
            assert ids == sorted(ids)


def insert(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    db = sqlite3.connect(path)
    db.execute(
        "CREATE TABLE memories(id INTEGER PRIMARY KEY, content TEXT, category TEXT, tags TEXT,"
        " expanded_keywords TEXT, importance REAL, is_sensitive INTEGER, created_at TEXT,"
        " updated_at TEXT, session_id TEXT)"
    )
    for row in rows:
        names = list(row)
        marks = ", ".join("?" * len(names))
        db.execute(
            f"INSERT INTO memories({', '.join(names)}) VALUES ({marks})", [row[n] for n in names]
        )
    db.commit()
    db.close()


CELL = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.binary(max_size=8)
)
ROW = st.fixed_dictionaries(
    {"content": st.just("some text") | CELL, "is_sensitive": st.sampled_from([0, 0, 1]) | CELL},
    optional={name: CELL for name in FIELDS if name not in ("content", "is_sensitive")},
)


@settings(max_examples=25, deadline=None)
@given(st.lists(ROW, min_size=0, max_size=12))
def test_counts_are_conserved_for_any_table(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        path, out = Path(name) / "memory.db", Path(name) / "out"
        insert(path, rows)
        report = export(path, out)
        assert report.source_rows == len(rows)
        check_account(report, out)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-9, 9), min_size=1, max_size=30)
    | st.lists(st.integers(-9, 9) | st.sampled_from(["a", "B", "é"]), min_size=1, max_size=30),
    st.integers(1, 400),
)
def test_key_order_equals_a_stable_sort_for_any_window(
    ids: list[int | str], window_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "corpus.jsonl"
        lines = [json.dumps({"id": i, "content": f"line {n}"}) for n, i in enumerate(ids, 1)]
        path.write_text("\n".join(lines), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch, JsonlSource(path) as source:
            patch.setattr("noctuary.sources.jsonl.WINDOW_BYTES", window_bytes)
            got = [row.locator for row in source.rows()]
    numbered = list(enumerate(ids, 1))
    if any(isinstance(i, str) for i in ids):
        numbered.sort(key=lambda pair: str(pair[1]))
    else:
        numbered.sort(key=lambda pair: int(pair[1]))
    assert got == [f"line {n}" for n, _ in numbered]


@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({}, optional=FIELDS))
def test_normalize_never_raises_and_details_hold_no_text(fields: dict[str, Any]) -> None:
    row = RawRow("line 1", 1, {**fields, "category": CANARY})
    verdict = normalize(row, position=0, now_us=NOW_US, settings=CorpusSettings())
    if isinstance(verdict, Accepted):
        assert content_hash(verdict.record) == verdict.record.content_hash
    else:
        assert CANARY not in verdict.detail
        assert verdict.detail.isascii()


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(TEXT, VALUE, max_size=4))
def test_the_scan_never_raises_and_answers_by_name_only(fields: dict[str, Any]) -> None:
    reason = find_sensitivity(RawRow("line 1", 1, fields))
    names = ("flagged", "placeholder", "vaulted")
    assert reason is None or reason in names or reason.startswith("secret:")


@settings(max_examples=12, deadline=None)
@given(st.dictionaries(st.integers(0, 9), st.sampled_from("abc")),
       st.dictionaries(st.integers(0, 9), st.sampled_from("abc")))  # fmt: skip
def test_diff_equals_set_arithmetic(old: dict[int, str], new: dict[int, str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        for label, contents in (("old", old), ("new", new)):
            path = Path(name) / f"{label}.jsonl"
            rows = [json.dumps({"id": i, "content": c}) for i, c in contents.items()]
            path.write_text("\n".join(rows))
            export(path, Path(name) / label)
        diff = diff_corpora(Path(name) / "old", Path(name) / "new")
    both = old.keys() & new.keys()
    edited = sum(old[i] != new[i] for i in both)
    assert diff.added == len(new.keys() - old.keys())
    assert diff.deleted == len(old.keys() - new.keys())
    assert (diff.edited, diff.unchanged) == (edited, len(both) - edited)


@given(st.text(min_size=1, max_size=200))
def test_entropy_is_between_zero_and_the_log_of_the_alphabet(text: str) -> None:
    assert -1e-12 <= entropy_bits(text) <= math.log2(len(set(text))) + 1e-9
