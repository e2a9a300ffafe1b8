from __future__ import annotations

import hashlib
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noctuary.core.errors import SourceError, StoreError
from noctuary.core.settings import CorpusSettings
from noctuary.core.types import UNDATED_US, content_hash
from noctuary.sources import corpus as tables
from noctuary.sources import export as export_module
from noctuary.sources.corpus import read_records
from noctuary.sources.echo import EchoGuard
from noctuary.sources.export import (
    PLACES_SHOWN,
    CorpusDiff,
    ExportReport,
    Tally,
    clean_kind,
    diff_corpora,
    export_corpus,
    read_report,
    scan_tables,
    sift,
    skip_clean,
)
from noctuary.sources.injected import hash_exact
from noctuary.sources.jsonl import JsonlSource
from noctuary.sources.normalize import find_sensitivity
from noctuary.sources.open import open_source
from noctuary.sources.source import QuarantineReason, QuarantineRow, RawRow
from noctuary.sources.sqlite import SqliteSource
from noctuary.text.secrets import find_text_sensitivity
from noctuary.work.content import ContentStore
from tests.support.injections import guard_of, memory, put_in_prompt

Make = Callable[..., Path]
Rows = list[dict[str, object]]
CANARY = "canary-7f3a-violet-heron"
TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
FOUND = "secret:github_token"
SET = (1, True, "1", "true", " TRUE ", "yes", 2, 1.0, "maybe", [], {}, b"1", float("nan"))
UNSET = (None, 0, False, 0.0, "", "0", "false", "No", b"0")
SCANNED = ("content", "tags", "expanded_keywords", "category", "id", "other")
NOW_US = 1_800_000_000_000_000


class Failing:
    """Fails once a number of rows are done: a failure in the middle of the night."""

    def __init__(self, at: int) -> None:
        self.at = at

    def update(self, task: str, done: int, total: int) -> None:
        if done >= self.at:
            raise RuntimeError(f"{task} {done} of {total}")


class Lossy(SqliteSource):
    """A source that counts one row more than it gives."""

    def rows(self) -> Iterator[RawRow]:
        yield from list(super().rows())[:-1]


def export(path: Path, out: Path, *, guard: EchoGuard | None = None) -> ExportReport:
    with open_source(path) as source:
        report = export_corpus(source, out, now_us=NOW_US, guard=guard)
    assert report.exported + report.quarantined_rows + report.sensitive_rows == report.source_rows
    return report


def files_of(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}


def unpacked(out: Path) -> str:
    """Everything that the tables say, decompressed."""
    return "".join(str(pq.read_table(p).to_pylist()) for p in out.rglob("*.parquet"))


def assert_clean(out: Path) -> None:
    """No name and no byte holds a canary."""
    for path in out.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        for text in (CANARY, TOKEN):
            assert text not in path.name
            assert text.encode() not in data
            assert text.encode("utf-16-le") not in data


def canary_rows() -> list[dict[str, object]]:
    return [
        {"content": "first clean row"},
        {"content": f"{CANARY} flagged", "tags": f"{CANARY},x", "is_sensitive": 1},
        {"content": f"[REDACTED: {CANARY}]"},
        {"content": f"{CANARY} {TOKEN}"},
        {"content": f"{CANARY}\0", "is_sensitive": 1, "created_at": CANARY, "importance": CANARY},
        {"content": CANARY.encode() + b"\xff", "is_sensitive": "yes"},
        {"content": "last clean row"},
    ]


def test_the_account_of_a_mixed_store(make_store: Make, tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"content": "a", "category": "turn", "tags": "session:s,wing:w", "importance": 2.0},
        {"content": "b", "is_sensitive": 1},
        {"content": "  "},
        {"content": "c", "created_at": "whenever"},
        {"content": "d", "created_at": "2100-01-01"},
        {"content": None},
        {"content": "x" * (2**20 + 1)},
        {"content": "nul\0"},
        {"content": "inf", "importance": float("inf")},
    ]
    report = export(make_store(rows), tmp_path)
    reasons = ("bad_date", "bad_importance", "content_too_large", "empty_content",
               "missing_content", "nul_bytes")  # fmt: skip
    assert report.quarantined == dict.fromkeys(reasons, 1)
    # The third: the store's update date stayed in the past.
    bent = ("created_in_future", "importance_clamped", "updated_before_created")
    assert report.warnings == dict.fromkeys(bent, 1)
    assert (report.source_rows, report.exported, report.sensitive) == (9, 2, {"flagged": 1})
    assert (report.turns, report.quarantined_rows, report.sensitive_rows) == (1, 6, 1)
    records = read_records(tmp_path)
    assert [(r.position, r.memory_id, r.content) for r in records] == [(0, "1", "a"), (1, "5", "d")]
    digest = hashlib.sha256(b"memory/1" + b"".join(bytes.fromhex(r.content_hash) for r in records))
    assert report.corpus_digest == digest.hexdigest()
    aside = pq.read_table(tmp_path / "quarantine.parquet").to_pydict()
    assert aside["locator"] == [f"id {i}" for i in (3, 4, 6, 7, 8, 9)]
    assert aside["detail"][3] == "content: 1048577 bytes, at most 1048576"
    assert read_report(tmp_path) == report


@pytest.mark.parametrize(
    ("rows", "version", "warnings"),
    [
        ([], 2, {"source_empty": 1}),
        ([{"content": ""}], 9, {"newer_schema_version": 1, "nothing_exported": 1}),
    ],
)
def test_a_store_without_any_memory_is_warned_of(
    make_store: Make, tmp_path: Path, rows: Rows, version: int, warnings: dict[str, int]
) -> None:
    report = export(make_store(rows, user_version=version), tmp_path)
    assert (report.source_rows, report.exported, report.turns) == (len(rows), 0, 0)
    assert report.warnings == warnings
    assert read_records(tmp_path) == []
    for name in report.files:
        assert pq.read_schema(tmp_path / name).equals(tables.arrow_schema(name))


def test_the_same_rows_give_the_same_bytes_in_bounded_row_groups(
    make_store: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_BYTES", 10_000)
    turns = {"content": "Ann: " + "x" * 3_000, "category": "turn"}
    path = make_store([{**turns, "tags": f"session:{i % 3}"} for i in range(9)])
    export(path, tmp_path / "a")
    export(path, tmp_path / "b")
    assert len(files_of(tmp_path / "a")) == 4
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert pq.read_metadata(tmp_path / "a" / "memories.parquet").num_row_groups == 3


def test_both_kinds_of_file_agree(make_store: Make, make_jsonl: Make, tmp_path: Path) -> None:
    dates = {"created_at": "2025-01-01", "updated_at": "2025-01-02"}
    rows = [{"id": i, "content": f"text {i}", "category": "facts", **dates} for i in (3, 1, 2)]
    first = export(make_store(rows), tmp_path / "a")
    second = export(make_jsonl(rows, "corpus.jsonl.gz"), tmp_path / "b")
    assert (first.corpus_digest, first.files) == (second.corpus_digest, second.files)


def test_turns_are_numbered_by_session_user_and_time(make_jsonl: Make, tmp_path: Path) -> None:
    def turn(i: int, session: str, day: int | None, **more: object) -> dict[str, object]:
        date = None if day is None else f"1970-01-{day:02}"
        base = {"id": i, "content": f"Ann: {i}", "category": "turn", "created_at": date}
        return {**base, "session_id": session, **more}

    lines = [
        turn(1, "s2", 3),
        turn(2, "s1", 2),
        turn(3, "s1", 1, content="no speaker"),
        turn(4, "s1", 2),
        turn(5, "s1", None),
        turn(6, "s1", 1, user_id="bob"),
        {"id": 7, "content": "a fact", "session_id": "s1"},
    ]
    assert export(make_jsonl(lines), tmp_path).turns == 6
    rows = pq.read_table(tmp_path / "turns.parquet").to_pylist()
    names = ("session_id", "user", "ordinal", "memory_id", "speaker", "position")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("s1", None, 0, "5", "Ann", 4),
        ("s1", None, 1, "3", None, 2),
        ("s1", None, 2, "2", "Ann", 1),
        ("s1", None, 3, "4", "Ann", 3),
        ("s1", "bob", 0, "6", "Ann", 5),
        ("s2", None, 0, "1", "Ann", 0),
    ]
    assert rows[0]["created_at_us"] == UNDATED_US


def test_no_byte_of_a_sensitive_row_is_written(make_store: Make, tmp_path: Path) -> None:
    report = export(make_store(canary_rows()), tmp_path / "out")
    assert (report.exported, report.quarantined) == (2, {})
    assert report.sensitive == {"flagged": 3, "placeholder": 1, FOUND: 1}
    assert_clean(tmp_path / "out")
    assert CANARY not in unpacked(tmp_path / "out")
    assert "clean row" in unpacked(tmp_path / "out")


@pytest.mark.parametrize("end", [b"\n", b""])
def test_no_byte_of_a_marked_line_is_written(make_jsonl: Make, tmp_path: Path, end: bytes) -> None:
    lines: list[object] = [
        {"id": 2, "content": "clean"},
        {"id": 1, "content": CANARY, "is_sensitive": True, CANARY: CANARY},
        {"id": CANARY, "content": "x", "is_sensitive": 1},
        b'{"id": 3, "is_sensitive": 1, "content": "' + CANARY.encode() + b"\xff",
        b'{"id": 4, "content": "unmarked ' + CANARY.encode(),
    ]
    report = export(make_jsonl(lines, end=end), tmp_path / "out")
    assert (report.exported, report.sensitive, report.quarantined_rows) == (1, {"flagged": 3}, 1)
    assert_clean(tmp_path / "out")
    assert CANARY not in unpacked(tmp_path / "out")


@pytest.mark.parametrize("at", [1, 3, 6])
def test_a_failure_in_the_middle_leaves_the_previous_export_and_no_trace(
    make_store: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(export_module, "REPORTED_ROWS", 1)
    out = tmp_path / "out"
    export(make_store([{"content": "yesterday"}], path=tmp_path / "old.db"), out)
    before = files_of(out)
    with open_source(make_store(canary_rows())) as source, pytest.raises(RuntimeError) as caught:
        export_corpus(source, out, progress=Failing(at))
    assert files_of(out) == before
    assert sorted(p.name for p in out.iterdir()) == sorted(before)
    assert CANARY not in str(caught.value)


def test_a_killed_export_leaves_nothing_sensitive_and_the_next_one_cleans_up(
    make_store: Make, tmp_path: Path
) -> None:
    out, path = tmp_path / "out", make_store(canary_rows())
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from noctuary.sources.export import export_corpus\n"
        "from noctuary.sources.open import open_source\n"
        "class Kill:\n"
        "    def update(self, task, done, total):\n"
        "        if done == total: os.kill(os.getpid(), 9)\n"
        "export_corpus(open_source(Path(sys.argv[1])), Path(sys.argv[2]), progress=Kill())\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path), str(out)], check=False)
    assert done.returncode == -9
    assert [p.name for p in out.iterdir()] == [".export.tmp"]
    assert_clean(out)
    report = export(path, out)
    assert report.exported == 2
    assert sorted(p.name for p in out.iterdir()) == sorted([*report.files, "report.json"])


def test_a_source_that_loses_a_row_is_refused(make_store: Make, tmp_path: Path) -> None:
    with (
        Lossy(make_store([{}] * 3)) as source,
        pytest.raises(SourceError, match=r"counts 3 rows but gave 2 \(2 exported"),
    ):
        export_corpus(source, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_progress_ends_at_the_total(
    make_store: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "REPORTED_ROWS", 2)
    calls: list[tuple[str, int, int]] = []

    class Spy:
        def update(self, task: str, done: int, total: int) -> None:
            calls.append((task, done, total))

    with open_source(make_store([{}] * 5)) as source:
        export_corpus(source, tmp_path / "out", progress=Spy())
    assert calls == [("export", 2, 5), ("export", 4, 5), ("export", 5, 5)]


KEY = "The spare key hangs in the pantry, left of the door."
TRAM = "Line 4 leaves Harbour Square every 12 minutes until midnight."
BEFORE = "2026-03-01T08:00:00+00:00"
AFTER = "2026-12-01T08:00:00+00:00"
INJECTED = [memory(1, KEY), memory(2, TRAM)]


def originals() -> list[dict[str, object]]:
    dates = {"created_at": BEFORE, "updated_at": BEFORE}
    return [{"content": text, **dates} for text in (KEY, TRAM)]


def after(content: str, **fields: object) -> dict[str, object]:
    return {"content": content, "created_at": AFTER, "updated_at": AFTER, **fields}


def turn(content: str) -> dict[str, object]:
    return after(content, category="turn", tags="session:s")


@pytest.fixture
def block(tmp_path: Path) -> str:
    """The block of both memories; from now on they count as injected."""
    return put_in_prompt(tmp_path, *INJECTED).text


def hashes_of(out: Path) -> dict[str, bytes]:
    return {r.memory_id: hash_exact(r.content) for r in read_records(out)}


def test_the_account_of_a_day_with_recall(make_store: Make, tmp_path: Path, block: str) -> None:
    rows = [
        *originals(),
        turn(f"Mira: {block}\nWhere is the spare key?"),
        turn(f"assistant: It hangs in the pantry. My notes say:\n- {KEY}\nShall I fetch it?"),
        turn(f"Mira: {block}"),
        turn(f"assistant: {KEY}"),
        after(f"- {KEY}\n- {TRAM}"),
        after(f"- {KEY}\n- {TRAM}\nAna has it."),
        after("Ana moved the spare key to the garage."),
        after(KEY, is_sensitive=1),
        after(""),
    ]
    report = export(make_store(rows), tmp_path / "out", guard=guard_of(tmp_path))
    assert report.quarantined == {"empty_content": 1, "injected_block": 1, "injected_lines": 2}
    assert report.sensitive == {"flagged": 1}
    assert report.warnings == {"injected_block_cut": 1, "injected_lines_cut": 1}
    records = {r.memory_id: r for r in read_records(tmp_path / "out")}
    assert {key: r.content for key, r in records.items()} == {
        "1": KEY,
        "2": TRAM,
        "3": "Mira: \nWhere is the spare key?",
        "4": rows[3]["content"],
        "8": "Ana has it.",
        "9": rows[8]["content"],
    }
    assert all(r.content_hash == content_hash(r) for r in records.values())
    table = pq.read_table(tmp_path / "out" / "quarantine.parquet").to_pylist()
    details = {row["locator"]: row["detail"] for row in table}
    assert details["id 5"] == "content: 1 blocks, 0 lines"
    assert details["id 7"] == "content: 0 blocks, 2 lines"
    speakers = pq.read_table(tmp_path / "out" / "turns.parquet").column("speaker").to_pylist()
    assert speakers == ["Mira", "assistant"]


def test_a_second_night_makes_the_same_bytes(make_store: Make, tmp_path: Path, block: str) -> None:
    rows = [*originals(), after(KEY), after(f"{KEY}\n{TRAM}\nAna has it."), turn(f"{block}\nSo?")]
    source, out = make_store(rows), tmp_path / "out"
    first = export(source, out, guard=guard_of(tmp_path))
    assert export(source, out, guard=guard_of(tmp_path, hashes_of(out))) == first
    # Without the work of the night before, as on a new machine.
    assert export(source, out, guard=guard_of(tmp_path)) == first


def test_what_was_exported_before_the_injection_stays(make_store: Make, tmp_path: Path) -> None:
    source, out = make_store([*originals(), after(KEY, created_at=None)]), tmp_path / "out"
    first = export(source, out, guard=guard_of(tmp_path))
    assert first.exported == 3
    held = hashes_of(out)
    put_in_prompt(tmp_path, *INJECTED)
    assert export(source, out, guard=guard_of(tmp_path, held)) == first
    last = export(source, out, guard=guard_of(tmp_path))
    assert last.quarantined == {"injected_lines": 1}, "and the originals change no byte"
    assert last.exported == 2


Export = Callable[[str, Mapping[int, str]], Path]


@pytest.fixture
def exported(make_jsonl: Make, tmp_path: Path) -> Export:
    def run(name: str, contents: Mapping[int, str]) -> Path:
        lines = [{"id": i, "content": text} for i, text in contents.items()]
        export(make_jsonl(lines, f"{name}.jsonl"), tmp_path / name)
        return tmp_path / name

    return run


def test_exports_are_compared_by_id_not_by_position(exported: Export, tmp_path: Path) -> None:
    old = exported("old", {1: "a", 2: "b", 3: "c", 4: "d"})
    new = exported("new", {2: "b", 3: "C", 5: "e", 6: "f", 7: "g"})
    assert diff_corpora(old, new) == CorpusDiff(added=3, edited=1, deleted=2, unchanged=1)
    assert diff_corpora(new / "memories.parquet", old) == CorpusDiff(2, 1, 3, 1)
    assert diff_corpora(None, old) == CorpusDiff(4, 0, 0, 0), "the first night adds everything"
    with pytest.raises(StoreError, match="There is no corpus at"):
        diff_corpora(tmp_path / "nowhere", new)


def test_a_report_is_read_as_it_was_written(make_store: Make, tmp_path: Path) -> None:
    """Also where the path of the source is no text."""
    path = make_store([{}, {"content": ""}], user_version=3, wal=False)
    report = export(path.rename(tmp_path / "odd-\udcff.db"), tmp_path / "out")
    assert read_report(tmp_path / "out") == report
    assert report.identity.notes == ("newer_schema_version",)


@pytest.mark.parametrize("name", ["memories.parquet", "turns.parquet", "quarantine.parquet"])
def test_a_table_of_another_export_is_noticed(make_store: Make, tmp_path: Path, name: str) -> None:
    rows = [{"category": "turn", "tags": "session:s"}, {"content": ""}]
    export(make_store(rows), tmp_path / "a")
    export(make_store(path=tmp_path / "other.db"), tmp_path / "b")
    (tmp_path / "b" / name).replace(tmp_path / "a" / name)
    with pytest.raises(StoreError, match=rf"{name} is missing or does not match"):
        read_report(tmp_path / "a")


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"format": 99}'])
def test_no_report_or_one_of_another_format_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "report.json").write_text(text)
    expected = "There is no export at" if text is None else "run the night"
    with pytest.raises(StoreError, match=expected):
        read_report(tmp_path)


def row(line: int, key: int, content: object = "text", **fields: object) -> RawRow:
    return RawRow(f"line {line}", key, {"id": key, "content": content, **fields})


def broken(line: int, text: str = "?") -> RawRow:
    return RawRow(f"line {line}", None, {}, QuarantineReason.INVALID_JSON, "1 bytes", text)


@pytest.mark.parametrize(
    ("rows", "kept", "aside", "sensitive"),
    [
        pytest.param(
            [row(1, 5), row(2, 6, ""), broken(3), row(4, 7, "x", sensitive=1), row(5, 8)],
            ["5", "8"],
            ["line 3: invalid_json 1 bytes", "line 2: empty_content content: 0 characters"],
            {"flagged": 1},
            id="positions-count-the-exported-rows-only",
        ),
        pytest.param(
            [row(1, 5), row(2, 5, "second"), broken(3), row(4, 5, "third")],
            ["5"],
            ["line 3: invalid_json 1 bytes", "line 2: duplicate_id first at line 1",
             "line 4: duplicate_id first at line 1"],
            {},
            id="the-first-of-an-id-wins",
        ),
        pytest.param(
            [row(1, 5, ""), row(2, 5, "second")],
            [],
            ["line 2: duplicate_id first at line 1", "line 1: empty_content content: 0 characters"],
            {},
            id="a-first-row-that-is-no-memory-still-claims-its-id",
        ),
        pytest.param(
            [row(1, 5, "old"), row(2, 5, "old", is_sensitive=1), row(3, 6)],
            ["6"], [], {"flagged": 1, "shares_id_with_sensitive": 1},
            id="an-id-whose-second-row-is-sensitive-is-never-exported",
        ),
        pytest.param(
            [row(1, 5, "old", is_sensitive=1), row(2, 5, "old"), row(3, 6)],
            ["6"], [], {"flagged": 1, "shares_id_with_sensitive": 1},
            id="nor-one-whose-first-row-is",
        ),
        pytest.param(
            [row(1, 5, "", is_sensitive=1), broken(2, '{"is_sensitive": 1, "co')],
            [], [], {"flagged": 2},
            id="sensitivity-is-judged-before-quarantine",
        ),
        pytest.param(
            [row(1, 5, "password: hunter22x " * 60_000), row(2, 6)],
            ["6"], ["line 1: content_too_large content: 1200000 bytes, at most 1048576"], {},
            id="too-long-is-not-scanned",
        ),
        pytest.param(
            [row(1, 5, "Zq " * 400_000, is_sensitive=1), row(2, 6)],
            ["6"], [], {"flagged": 1},
            id="too-long-and-marked",
        ),
        pytest.param(
            [row(1, 5), row(2, 5, "Zq " * 400_000), row(3, 6)],
            ["6"], [], {"shares_id_with_sensitive": 2},
            id="too-long-is-in-doubt-for-its-id",
        ),
    ],
)  # fmt: skip
def test_every_row_is_a_memory_or_set_aside_or_sensitive(
    rows: list[RawRow], kept: list[str], aside: list[str], sensitive: dict[str, int]
) -> None:
    set_aside = list[QuarantineRow]()
    tally = Tally(set_aside.append)
    records = list(sift(rows, tally, now_us=NOW_US, settings=CorpusSettings()))
    assert [(r.position, r.memory_id) for r in records] == list(enumerate(kept))
    assert all(r.content == "text" for r in records)
    assert [f"{a.locator}: {a.reason.value} {a.detail}" for a in set_aside] == aside
    assert dict(tally.sensitive) == sensitive
    assert (tally.total, tally.exported) == (len(rows), len(records))
    assert tally.quarantined.total() == len(aside)


@pytest.mark.parametrize("field", ["content", "notes"])
def test_a_long_text_takes_little_memory_to_judge(field: str) -> None:
    long = {field: "the quick brown fox jumps over it and rests " * 300_000}
    tracemalloc.start()
    try:
        found = list(sift([row(1, 5, **long)], Tally(), now_us=NOW_US, settings=CorpusSettings()))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == (field == "notes")
    limit = 20_000_000 if field == "content" else 120_000_000  # of 13 MB, once 600 MB
    assert peak_bytes < limit


def test_warnings_and_rows_that_turned_sensitive_are_counted_once() -> None:
    tally = Tally()
    turned = [row(1, 5, sensitive=1), row(2, 5, sensitive=1), row(3, 6, sensitive=1), row(4, 7)]
    rows = [
        *turned,
        row(5, 8, importance=2),
        row(6, 9, importance=-1),
        row(7, 10, "", importance=9),
    ]
    settings, before = CorpusSettings(), {"5", "7"}
    kept = sift(rows, tally, now_us=NOW_US, settings=settings, previous_ids=before)
    assert [record.memory_id for record in kept] == ["7", "8", "9"]
    assert tally.retracted == 1
    assert dict(tally.warnings) == {"importance_clamped": 2}


def test_an_export_of_clean_rows_is_clean(make_store: Make, tmp_path: Path) -> None:
    export(make_store([{"content": "a"}, {"content": "b", "tags": "wing:x"}]), tmp_path)
    scan = scan_tables(tmp_path)
    texts = scan.pop("texts")
    assert texts > 8
    assert scan == {"tables": 3, "found": 0, "reasons": {}, "places": ""}


def test_every_kind_of_text_column_is_looked_at(tmp_path: Path) -> None:
    texts = ["fine", TOKEN]
    columns = {
        "number": [1, 2],
        "plain": texts,
        "large": pa.array(texts, pa.large_string()),
        "coded": pa.array(texts).dictionary_encode(),
        "listed": [["fine", "fine"], ["fine", TOKEN]],
        "nullable": [None, TOKEN],
    }
    pq.write_table(pa.table(columns), tmp_path / "odd.parquet")
    scan = scan_tables(tmp_path)
    names = ("plain", "large", "coded", "listed", "nullable")
    assert scan["places"] == ", ".join(f"odd.{name} row 1" for name in names)
    assert scan["reasons"] == {FOUND: len(names)}
    assert scan["texts"] == 2 + 2 + 2 + 4 + 1


def test_every_find_is_counted_and_the_first_are_named_without_a_text(tmp_path: Path) -> None:
    rows = ["fine", TOKEN, "fine", "[REDACTED: key]", *[TOKEN] * PLACES_SHOWN]
    texts = {"memories": rows, "links": ["fine"], ".previous": [TOKEN]}
    for name, column in texts.items():
        table = pa.table({"content": column})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=2)
    scan = scan_tables(tmp_path)
    places = [1, *range(3, len(rows))][:PLACES_SHOWN]
    assert scan["places"] == ", ".join(f"memories.content row {row}" for row in places)
    assert scan["reasons"] == {"placeholder": 1, FOUND: PLACES_SHOWN + 1}
    assert scan["found"] == PLACES_SHOWN + 2
    assert scan["tables"] == 2, "what an export replaced is none of its tables"
    assert TOKEN[:12] not in str(scan)


def test_a_scan_skips_what_its_last_use_found_clean_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def find(text: str) -> str | None:
        read.append(text)
        return find_text_sensitivity(text)

    def scan(*texts: str, kind: str = clean_kind("rows")) -> list[str]:
        read.clear()
        with skip_clean(ContentStore(tmp_path, kind)) as judge:
            assert list(map(judge, texts)) == list(map(find_text_sensitivity, texts))
        return list(read)

    monkeypatch.setattr(export_module, "find_text_sensitivity", find)
    clean, other, secret = "where the spare key lies, " * 2, "what Ana said " * 4, f"it is {TOKEN}"
    assert scan(clean, secret, "short", "short") == [clean, secret, "short"]
    assert scan(clean, secret, other) == [secret, other]
    assert scan(other) == []
    assert scan(clean, other) == [clean], "what was not asked for is forgotten"
    with pytest.raises(RuntimeError), skip_clean(ContentStore(tmp_path, clean_kind("rows"))):
        raise RuntimeError("half of the rows")
    assert scan(clean, other) == []
    assert scan(clean, kind=clean_kind("tables")) == [clean]
    monkeypatch.setattr(export_module, "read_rules", lambda: ["other rules"])
    assert scan(clean, kind=clean_kind("rows")) == [clean]


def test_lists_that_are_a_secret_once_joined_stay(make_jsonl: Make, tmp_path: Path) -> None:
    """Item by item the scan of the row finds nothing; the export joins keywords with a space."""
    dates = {"created_at": "2025-01-01", "updated_at": "2025-01-01"}
    words = [["one", "two"], ["-----BEGIN", "PRIVATE " + "KEY-----"]]
    lines = [
        {"id": i, "content": "fine", "expanded_keywords": w, **dates}
        for i, w in enumerate(words, 1)
    ]
    with JsonlSource(make_jsonl(lines)) as source:
        assert [find_sensitivity(row) for row in source.rows()] == [None, None]
        report = export_corpus(source, tmp_path / "out", previous_ids={"2"})
    assert report.sensitive == {"secret:private_key": 1}
    assert (report.exported, report.retracted) == (1, 1)
    assert scan_tables(tmp_path / "out")["found"] == 0


def test_a_content_that_reads_like_a_secret_once_cut_stays_in_the_store(
    make_store: Make, tmp_path: Path, block: str
) -> None:
    """What recall had put between the word and the value is cut out."""
    text = "The pass" + f"word:\n{block}\nZx9kk2Lm-extra7 and nothing else of interest"
    path = make_store([{"content": text}])
    with open_source(path) as source:
        assert [find_sensitivity(row) for row in source.rows()] == [None]
    report = export(path, tmp_path / "out", guard=guard_of(tmp_path))
    assert (report.sensitive, report.exported) == ({"secret:assigned_password": 1}, 0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tags": "a,b", "is_sensitive": 0, "importance": 0.5, "created_at": None}, None),
        ({"sensitive": 1}, "flagged"),
        *[({"is_sensitive": value}, "flagged") for value in SET],
        *[({"is_sensitive": value}, None) for value in UNSET],
        ({"content": "[REDACTED]"}, "placeholder"),
        ({"content": "[REDACTED: api key]"}, "placeholder"),
        ({"content": "[SENSITIVE - see vault]"}, "placeholder"),
        ({"content": "was [redacted:x] here"}, "placeholder"),
        ({"vault_path": "kv/x"}, "vaulted"),
        ({"encrypted_content": "kv/x"}, "vaulted"),
        ({"vault_path": None, "encrypted_content": None}, None),
        *[({name: f"see {TOKEN}"}, FOUND) for name in SCANNED],
        ({"other": [TOKEN]}, FOUND),
        ({"other": {"deep": [{"er": TOKEN}]}}, FOUND),
        ({"other": {TOKEN: 1}}, FOUND),
        ({"other": TOKEN.encode() + b"\xff"}, FOUND),
    ],
)
def test_marks_and_every_field_are_judged(fields: dict[str, object], reason: str | None) -> None:
    assert find_sensitivity(RawRow("line 1", 1, {"content": "plain", **fields})) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"id": 1, "is_sensitive": 1, "content": "half', "flagged"),
        ('{"id": 1, "is_sensitive": true', "flagged"),
        ('{"id": 1, "is_sensitive": 0, "content": "half', None),
        ('{"id": 1, "is_sensitive": false, "content": "half', None),
        ('{"content": "[REDACTED] and', "placeholder"),
        ('{"content": "' + TOKEN, FOUND),
        ('{"content": "half', None),
    ],
)
def test_unreadable_rows_are_judged_by_their_bytes(text: str, reason: str | None) -> None:
    assert find_sensitivity(broken(1, text)) == reason
