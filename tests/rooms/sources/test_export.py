from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noctuary.core.errors import SourceError, StoreError
from noctuary.core.settings import CorpusSettings
from noctuary.core.types import UNDATED_US, MemoryRecord, content_hash
from noctuary.sources import corpus as tables
from noctuary.sources import export as export_module
from noctuary.sources.corpus import read_records
from noctuary.sources.export import (
    PLACES_SHOWN,
    CorpusDiff,
    ExportReport,
    Tally,
    diff_corpora,
    export_corpus,
    read_report,
    scan_tables,
    sift,
)
from noctuary.sources.injected import hash_exact
from noctuary.sources.jsonl import JsonlSource
from noctuary.sources.normalize import find_sensitivity
from noctuary.sources.source import QuarantineReason, QuarantineRow, RawRow, open_source
from noctuary.sources.sqlite import SqliteSource
from noctuary.text.flags import is_flag_set
from tests.support.injections import guard_of, memory, put_in_prompt

Make = Callable[..., Path]
CANARY = "canary-7f3a-violet-heron"
TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
NOW_US = 1_790_000_000_000_000


class FailingProgress:
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


def export(path: Path, out: Path) -> ExportReport:
    with open_source(path) as source:
        return export_corpus(source, out, now_us=NOW_US)


def column(out: Path, name: str, file: str) -> list[object]:
    return pq.read_table(out / file).column(name).to_pylist()


def files_of(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in out.rglob("*") if p.is_file()}


def tree_holds(root: Path, text: str) -> list[str]:
    raw = [text.encode(), text.encode("utf-16-le")]
    return [
        str(p)
        for p in root.rglob("*")
        if text in p.name or (p.is_file() and any(r in p.read_bytes() for r in raw))
    ]


def unpacked(out: Path) -> str:
    """Everything that the tables say, decompressed."""
    return "".join(str(pq.read_table(p).to_pylist()) for p in out.rglob("*.parquet"))


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
        {"content": "x" * 10_000_000},
        {"content": "nul\0"},
        {"content": "inf", "importance": float("inf")},
    ]
    report = export(make_store(rows), tmp_path / "out")
    assert report.source_rows == 9
    assert report.exported == 2
    assert report.quarantined == {
        "bad_date": 1,
        "bad_importance": 1,
        "content_too_large": 1,
        "empty_content": 1,
        "missing_content": 1,
        "nul_bytes": 1,
    }
    assert report.sensitive == {"flagged": 1}
    assert report.warnings == {
        "created_in_future": 1,
        "importance_clamped": 1,
        "updated_before_created": 1,  # the store's update date stayed in the past
    }
    assert (report.turns, report.quarantined_rows, report.sensitive_rows) == (1, 6, 1)
    records = read_records(tmp_path / "out")
    assert [(r.position, r.memory_id, r.content) for r in records] == [(0, "1", "a"), (1, "5", "d")]
    digest = hashlib.sha256(b"memory/1" + b"".join(bytes.fromhex(r.content_hash) for r in records))
    assert report.corpus_digest == digest.hexdigest()
    assert column(tmp_path / "out", "locator", "quarantine.parquet") == [
        f"id {i}" for i in (3, 4, 6, 7, 8, 9)
    ]
    assert "content: 10000000 bytes, at most 1048576" in column(
        tmp_path / "out", "detail", "quarantine.parquet"
    )


def test_an_empty_store_gives_an_empty_corpus_and_a_warning(
    make_store: Make, tmp_path: Path
) -> None:
    report = export(make_store(), tmp_path / "out")
    assert (report.source_rows, report.exported, report.turns) == (0, 0, 0)
    assert report.warnings == {"source_empty": 1}
    assert read_records(tmp_path / "out") == []
    for name in report.files:
        assert pq.read_schema(tmp_path / "out" / name).equals(tables.arrow_schema(name))


def test_a_store_without_any_memory_is_warned_of(make_store: Make, tmp_path: Path) -> None:
    report = export(make_store([{"content": ""}], user_version=9), tmp_path / "out")
    assert report.warnings == {"newer_schema_version": 1, "nothing_exported": 1}


def test_the_same_rows_give_the_same_bytes(make_store: Make, tmp_path: Path) -> None:
    rows = [
        {"content": f"Ann: {i}", "category": "turn", "tags": f"session:{i % 3}"} for i in range(100)
    ]
    path = make_store(rows)
    export(path, tmp_path / "a")
    export(path, tmp_path / "b")
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert len(files_of(tmp_path / "a")) == 4


def test_row_groups_are_bounded_by_bytes(
    make_store: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_BYTES", 10_000)
    export(make_store([{"content": "x" * 3_000}] * 9), tmp_path / "out")
    assert pq.read_metadata(tmp_path / "out" / "memories.parquet").num_row_groups == 3


def test_sqlite_and_jsonl_of_the_same_rows_agree(
    make_store: Make, make_jsonl: Make, tmp_path: Path
) -> None:
    rows = [{"id": i, "content": f"text {i}", "category": "facts"} for i in (3, 1, 2)]
    dates = {"created_at": "2025-01-01", "updated_at": "2025-01-02"}
    rows = [{**row, **dates} for row in rows]
    first = export(make_store(rows), tmp_path / "a")
    second = export(make_jsonl(rows, "corpus.jsonl.gz"), tmp_path / "b")
    assert first.corpus_digest == second.corpus_digest
    assert first.files == second.files


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
    report = export(make_jsonl(lines), tmp_path / "out")
    rows = pq.read_table(tmp_path / "out" / "turns.parquet").to_pylist()
    assert report.turns == 6
    assert [(r["session_id"], r["user"], r["ordinal"], r["memory_id"]) for r in rows] == [
        ("s1", None, 0, "5"),
        ("s1", None, 1, "3"),
        ("s1", None, 2, "2"),
        ("s1", None, 3, "4"),
        ("s1", "bob", 0, "6"),
        ("s2", None, 0, "1"),
    ]
    assert [r["speaker"] for r in rows] == ["Ann", None, "Ann", "Ann", "Ann", "Ann"]
    assert [r["position"] for r in rows] == [4, 2, 1, 3, 5, 0]
    assert rows[0]["created_at_us"] == UNDATED_US


def test_no_byte_of_a_sensitive_row_is_written(make_store: Make, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = export(make_store(canary_rows()), out)
    assert report.exported == 2
    assert report.sensitive == {"flagged": 3, "placeholder": 1, "secret:github_token": 1}
    assert report.quarantined == {}
    assert tree_holds(out, CANARY) == []
    assert tree_holds(out, TOKEN) == []
    assert CANARY not in unpacked(out)
    assert "clean row" in unpacked(out)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_no_byte_of_a_sensitive_line_is_written(
    make_jsonl: Make, tmp_path: Path, end: bytes
) -> None:
    lines: list[object] = [
        {"id": 2, "content": "clean"},
        {"id": 1, "content": CANARY, "is_sensitive": True, CANARY: CANARY},
        {"id": CANARY, "content": "x", "is_sensitive": 1},
        b'{"id": 3, "is_sensitive": 1, "content": "' + CANARY.encode() + b"\xff",
        b'{"id": 4, "content": "unmarked ' + CANARY.encode(),
    ]
    out = tmp_path / "out"
    report = export(make_jsonl(lines, end=end), out)
    assert (report.exported, report.sensitive, report.quarantined_rows) == (1, {"flagged": 3}, 1)
    assert tree_holds(out, CANARY) == []
    assert CANARY not in unpacked(out)


@pytest.mark.parametrize("at", [1, 3, 6])
def test_a_failure_in_the_middle_leaves_the_previous_export_and_no_trace(
    make_store: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    monkeypatch.setattr(export_module, "REPORTED_ROWS", 1)
    out = tmp_path / "out"
    export(make_store([{"content": "yesterday"}], path=tmp_path / "old.db"), out)
    before = files_of(out)
    with open_source(make_store(canary_rows())) as source, pytest.raises(RuntimeError) as caught:
        export_corpus(source, out, progress=FailingProgress(at))
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
        "from noctuary.sources.source import open_source\n"
        "class Kill:\n"
        "    def update(self, task, done, total):\n"
        "        if done == total: os.kill(os.getpid(), 9)\n"
        "export_corpus(open_source(Path(sys.argv[1])), Path(sys.argv[2]), progress=Kill())\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path), str(out)], check=False)
    assert done.returncode == -9
    assert [p.name for p in out.iterdir()] == [".export.tmp"]
    assert tree_holds(out, CANARY) == []
    assert export(path, out).exported == 2
    assert sorted(p.name for p in out.iterdir()) == [
        "memories.parquet",
        "quarantine.parquet",
        "report.json",
        "turns.parquet",
    ]


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


MakeStore = Callable[..., Path]

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


def export_guarded(
    source: Path, out: Path, store: Path, exported: Mapping[str, bytes] | None = None
) -> ExportReport:
    with open_source(source) as opened:
        report = export_corpus(
            opened, out, now_us=1_800_000_000_000_000, guard=guard_of(store, exported)
        )
    assert report.exported + report.quarantined_rows + report.sensitive_rows == report.source_rows
    return report


def test_the_account_of_a_day_with_recall(
    make_store: MakeStore, tmp_path: Path, block: str
) -> None:
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
    report = export_guarded(make_store(rows), tmp_path / "out", tmp_path)
    assert report.quarantined == {"empty_content": 1, "injected_block": 1, "injected_lines": 2}
    assert report.sensitive == {"flagged": 1}
    assert report.warnings == {"injected_block_cut": 1, "injected_lines_cut": 1}
    records = {r.memory_id: r for r in read_records(tmp_path / "out")}
    assert list(records) == ["1", "2", "3", "4", "8", "9"]
    assert [records["1"].content, records["2"].content] == [KEY, TRAM]
    assert records["3"].content == "Mira: \nWhere is the spare key?"
    assert "My notes say" in records["4"].content
    assert records["8"].content == "Ana has it."
    assert all(r.content_hash == content_hash(r) for r in records.values())
    table = pq.read_table(tmp_path / "out" / "quarantine.parquet").to_pylist()
    details = {row["locator"]: row["detail"] for row in table}
    assert details["id 5"] == "content: 1 blocks, 0 lines"
    assert details["id 7"] == "content: 0 blocks, 2 lines"
    speakers = pq.read_table(tmp_path / "out" / "turns.parquet").column("speaker").to_pylist()
    assert speakers == ["Mira", "assistant"]


def test_a_second_night_makes_the_same_bytes(
    make_store: MakeStore, tmp_path: Path, block: str
) -> None:
    rows = [*originals(), after(KEY), after(f"{KEY}\n{TRAM}\nAna has it."), turn(f"{block}\nSo?")]
    source = make_store(rows)
    first = export_guarded(source, tmp_path / "out", tmp_path)
    exported = {r.memory_id: hash_exact(r.content) for r in read_records(tmp_path / "out")}
    second = export_guarded(source, tmp_path / "out", tmp_path, exported)
    assert second == first
    # Without the work of the night before, as on a new machine.
    assert export_guarded(source, tmp_path / "out", tmp_path) == first


def test_what_was_exported_before_the_injection_stays(
    make_store: MakeStore, tmp_path: Path
) -> None:
    rows = [*originals(), after(KEY, created_at=None)]
    source = make_store(rows)
    first = export_guarded(source, tmp_path / "out", tmp_path)
    assert first.exported == 3
    exported = {r.memory_id: hash_exact(r.content) for r in read_records(tmp_path / "out")}
    put_in_prompt(tmp_path, *INJECTED)
    assert export_guarded(source, tmp_path / "out", tmp_path, exported) == first
    assert export_guarded(source, tmp_path / "out", tmp_path).quarantined == {"injected_lines": 1}


def test_a_record_that_concerns_no_row_changes_no_byte(
    make_store: MakeStore, tmp_path: Path
) -> None:
    source = make_store(originals())
    before = export_guarded(source, tmp_path / "out", tmp_path)
    put_in_prompt(tmp_path, *INJECTED)
    assert export_guarded(source, tmp_path / "out", tmp_path) == before


Export = Callable[[str, Mapping[int, str]], Path]


@pytest.fixture
def exported(make_jsonl: Callable[..., Path], tmp_path: Path) -> Export:
    def run(name: str, contents: Mapping[int, str]) -> Path:
        lines = [{"id": i, "content": text} for i, text in contents.items()]
        with open_source(make_jsonl(lines, f"{name}.jsonl")) as source:
            export_corpus(source, tmp_path / name)
        return tmp_path / name

    return run


def test_added_edited_deleted(exported: Export) -> None:
    old = exported("old", {1: "a", 2: "b", 3: "c", 4: "d"})
    new = exported("new", {2: "b", 3: "C", 5: "e", 6: "f", 7: "g"})
    assert diff_corpora(old, new) == CorpusDiff(added=3, edited=1, deleted=2, unchanged=1)
    assert diff_corpora(new / "memories.parquet", old) == CorpusDiff(2, 1, 3, 1)


def test_a_moved_position_is_no_edit(exported: Export) -> None:
    diff = diff_corpora(exported("old", {1: "a", 2: "b"}), exported("new", {2: "b"}))
    assert diff == CorpusDiff(added=0, edited=0, deleted=1, unchanged=1)


def test_the_first_night_adds_everything(exported: Export) -> None:
    assert diff_corpora(None, exported("new", {1: "a", 2: "b"})) == CorpusDiff(2, 0, 0, 0)


def test_a_missing_export(exported: Export, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no corpus at"):
        diff_corpora(tmp_path / "nowhere", exported("new", {1: "a"}))


def export_now(path: Path, out: Path) -> ExportReport:
    with open_source(path) as source:
        return export_corpus(source, out)


def test_a_report_is_read_as_it_was_written(make_store: Make, tmp_path: Path) -> None:
    report = export_now(make_store([{}, {"content": ""}], user_version=3), tmp_path / "out")
    assert read_report(tmp_path / "out") == report
    assert report.identity.notes == ("newer_schema_version",)


def test_a_source_path_that_is_no_text(make_jsonl: Make, tmp_path: Path) -> None:
    path = make_jsonl([{"id": 1, "content": "a"}])
    odd = path.rename(path.with_name("odd-\udcff.jsonl"))
    report = export_now(odd, tmp_path / "out")
    assert read_report(tmp_path / "out") == report


def test_without_an_export(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="There is no export at"):
        read_report(tmp_path)


@pytest.mark.parametrize("name", ["memories.parquet", "turns.parquet", "quarantine.parquet"])
def test_a_table_of_another_export_is_noticed(make_store: Make, tmp_path: Path, name: str) -> None:
    rows = [{"category": "turn", "tags": "session:s"}, {"content": ""}]
    export_now(make_store(rows), tmp_path / "a")
    export_now(make_store(path=tmp_path / "other.db"), tmp_path / "b")
    (tmp_path / "b" / name).replace(tmp_path / "a" / name)
    with pytest.raises(StoreError, match=rf"{name} is missing or does not match"):
        read_report(tmp_path / "a")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}'])
def test_another_format_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(StoreError, match="Run the export again"):
        read_report(tmp_path)


def run(*rows: RawRow) -> tuple[list[MemoryRecord], list[QuarantineRow], Tally]:
    aside = list[QuarantineRow]()
    tally = Tally(aside.append)
    records = list(sift(rows, tally, now_us=2_000_000_000_000_000, settings=CorpusSettings()))
    assert tally.total == len(rows)
    assert tally.exported == len(records)
    assert tally.quarantined.total() == len(aside)
    return records, aside, tally


def row(line: int, key: int, content: object = "text", **fields: object) -> RawRow:
    return RawRow(f"line {line}", key, {"id": key, "content": content, **fields})


def broken(line: int, text: str = "?") -> RawRow:
    return RawRow(f"line {line}", None, {}, QuarantineReason.INVALID_JSON, "1 bytes", text)


def test_positions_count_the_exported_rows_only() -> None:
    records, aside, tally = run(row(1, 5), row(2, 6, ""), broken(3), row(4, 7, "x", sensitive=1),
                                row(5, 8))  # fmt: skip
    assert [(r.position, r.memory_id) for r in records] == [(0, "5"), (1, "8")]
    assert [(a.locator, a.reason.value) for a in aside] == [
        ("line 3", "invalid_json"),
        ("line 2", "empty_content"),
    ]
    assert dict(tally.sensitive) == {"flagged": 1}


def test_the_first_of_an_id_wins() -> None:
    records, aside, _ = run(row(1, 5, "first"), row(2, 5, "second"), broken(3), row(4, 5, "third"))
    assert [r.content for r in records] == ["first"]
    assert aside[1:] == [
        QuarantineRow("line 2", QuarantineReason.DUPLICATE_ID, "first at line 1"),
        QuarantineRow("line 4", QuarantineReason.DUPLICATE_ID, "first at line 1"),
    ]


def test_a_first_row_that_is_no_memory_still_claims_its_id() -> None:
    records, aside, _ = run(row(1, 5, ""), row(2, 5, "second"))
    assert records == []
    assert [a.reason.value for a in aside] == ["duplicate_id", "empty_content"]


def test_an_id_that_is_sensitive_once_is_never_exported() -> None:
    for rows in (
        (row(1, 5, "old text"), row(2, 5, "old text", is_sensitive=1), row(3, 6)),
        (row(1, 5, "old text", is_sensitive=1), row(2, 5, "old text"), row(3, 6)),
    ):
        records, aside, tally = run(*rows)
        assert [r.memory_id for r in records] == ["6"]
        assert aside == []
        assert dict(tally.sensitive) == {"flagged": 1, "shares_id_with_sensitive": 1}


def test_sensitivity_is_judged_before_quarantine() -> None:
    _, aside, tally = run(row(1, 5, "", is_sensitive=1), broken(2, '{"is_sensitive": 1, "co'))
    assert aside == []
    assert dict(tally.sensitive) == {"flagged": 2}


def test_warnings_of_exported_rows_are_counted() -> None:
    _, _, tally = run(
        row(1, 1, importance=2), row(2, 2, importance=-1), row(3, 3, "", importance=9)
    )
    assert dict(tally.warnings) == {"importance_clamped": 2}


def test_a_row_that_turned_sensitive_is_counted_once_if_it_was_exported() -> None:
    tally = Tally()
    rows = [row(1, 5, sensitive=1), row(2, 5, sensitive=1), row(3, 6, sensitive=1), row(4, 7)]
    kept = sift(
        rows,
        tally,
        now_us=2_000_000_000_000_000,
        settings=CorpusSettings(),
        previous_ids={"5", "7"},
    )
    assert [record.memory_id for record in kept] == ["7"]
    assert tally.retracted == 1


MakeJsonl = Callable[..., Path]


def write(directory: Path, name: str, columns: dict[str, object], **options: object) -> None:
    directory.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), directory / name, **options)  # pyright: ignore[reportArgumentType]


def test_an_export_of_clean_rows_is_clean(make_store: MakeStore, tmp_path: Path) -> None:
    with open_source(make_store([{"content": "a"}, {"content": "b", "tags": "wing:x"}])) as source:
        export_corpus(source, tmp_path / "out")
    scan = scan_tables(tmp_path / "out")
    assert scan["texts"] > 8
    assert scan == {
        "tables": 3, "texts": scan["texts"], "found": 0, "reasons": {}, "places": ""
    }  # fmt: skip


def test_every_kind_of_text_column_is_looked_at(tmp_path: Path) -> None:
    texts = ["fine", TOKEN]
    write(
        tmp_path / "out",
        "odd.parquet",
        {
            "number": [1, 2],
            "plain": texts,
            "large": pa.array(texts, pa.large_string()),
            "coded": pa.array(texts).dictionary_encode(),
            "listed": [["fine", "fine"], ["fine", TOKEN]],
            "nullable": [None, TOKEN],
        },
    )
    scan = scan_tables(tmp_path / "out")
    names = ("plain", "large", "coded", "listed", "nullable")
    assert scan["places"] == ", ".join(f"odd.{name} row 1" for name in names)
    assert scan["reasons"] == {"secret:github_token": len(names)}
    assert scan["texts"] == 2 + 2 + 2 + 4 + 1


def test_rows_are_numbered_over_row_groups_and_repeats_are_all_named(tmp_path: Path) -> None:
    rows = ["fine", TOKEN, "fine", "[REDACTED: key]", TOKEN]
    write(tmp_path / "out", "memories.parquet", {"content": rows}, row_group_size=2)
    write(tmp_path / "out", "links.parquet", {"note": ["fine"]})
    write(tmp_path / "out", ".previous.parquet", {"content": [TOKEN]})
    scan = scan_tables(tmp_path / "out")
    assert scan["places"] == ", ".join(f"memories.content row {row}" for row in (1, 3, 4))
    assert scan["reasons"] == {"placeholder": 1, "secret:github_token": 2}
    assert scan["tables"] == 2, "what an export replaced is none of its tables"


def test_the_report_names_places_and_no_text(tmp_path: Path) -> None:
    write(tmp_path / "out", "memories.parquet", {"content": [TOKEN] * (PLACES_SHOWN + 3)})
    report = scan_tables(tmp_path / "out")
    assert report["found"] == PLACES_SHOWN + 3
    assert report["reasons"] == {"secret:github_token": PLACES_SHOWN + 3}
    assert report["places"].count("memories.content row ") == PLACES_SHOWN
    assert TOKEN[:12] not in str(report)


def test_lists_that_read_like_a_secret_once_joined_stay_in_the_store(
    make_jsonl: MakeJsonl, tmp_path: Path
) -> None:
    """Item by item the scan of the row finds nothing; the export joins keywords with a space."""
    dates = {"created_at": "2025-01-01", "updated_at": "2025-01-01"}
    halves = ["-----BEGIN", "PRIVATE " + "KEY-----"]
    path = make_jsonl(
        [
            {"id": 1, "content": "fine", "expanded_keywords": ["one", "two"], **dates},
            {"id": 2, "content": "fine", "expanded_keywords": halves, **dates},
        ]
    )
    with JsonlSource(path) as source:
        assert [find_sensitivity(row) for row in source.rows()] == [None, None]
        report = export_corpus(source, tmp_path / "out", previous_ids={"2"})
    assert dict(report.sensitive) == {"secret:private_key": 1}
    assert (report.exported, report.retracted) == (1, 1)
    assert scan_tables(tmp_path / "out")["found"] == 0


def test_a_content_that_reads_like_a_secret_once_cut_stays_in_the_store(
    make_store: MakeStore, tmp_path: Path
) -> None:
    """What recall had put between the word and the value is cut out."""
    block = put_in_prompt(tmp_path, memory(1, "The spare key hangs in the pantry.")).text
    text = "The pass" + f"word:\n{block}\nZx9kk2Lm-extra7 and nothing else of interest"
    with open_source(make_store([{"content": text}])) as source:
        assert [find_sensitivity(row) for row in source.rows()] == [None]
        report = export_corpus(source, tmp_path / "out", guard=guard_of(tmp_path))
    assert dict(report.sensitive) == {"secret:assigned_password": 1}
    assert report.exported == 0


def judge(**fields: object) -> str | None:
    return find_sensitivity(RawRow("line 1", 1, {"content": "plain", **fields}))


def judge_unread(text: str) -> str | None:
    broken = QuarantineReason.INVALID_JSON
    return find_sensitivity(RawRow("line 1", None, {}, broken, "", text))


@pytest.mark.parametrize(
    "value", [1, True, "1", "true", " TRUE ", "yes", 2, 1.0, "maybe", [], {}, b"1", float("nan")]
)
def test_whatever_is_not_plainly_false_is_a_mark(value: object) -> None:
    assert is_flag_set(value)


@pytest.mark.parametrize("value", [None, 0, False, 0.0, "", "0", "false", "No", b"0"])
def test_what_is_plainly_false_is_no_mark(value: object) -> None:
    assert not is_flag_set(value)


def test_a_clean_row_may_leave() -> None:
    assert judge(tags="a,b", is_sensitive=0, importance=0.5, created_at=None) is None


@pytest.mark.parametrize("name", ["is_sensitive", "sensitive"])
def test_the_mark_wins(name: str) -> None:
    assert judge(**{name: 1}) == "flagged"


@pytest.mark.parametrize(
    "content",
    ["[REDACTED]", "[REDACTED: api key]", "[SENSITIVE - see vault]", "was [redacted:x] here"],
)
def test_placeholders(content: str) -> None:
    assert judge(content=content) == "placeholder"


@pytest.mark.parametrize("name", ["vault_path", "encrypted_content"])
def test_a_vaulted_row(name: str) -> None:
    assert judge(**{name: "kv/x"}) == "vaulted"
    assert judge(**{name: None}) is None


@pytest.mark.parametrize(
    "name", ["content", "tags", "expanded_keywords", "category", "id", "other"]
)
def test_every_field_is_scanned(name: str) -> None:
    assert judge(**{name: f"see {TOKEN}"}) == "secret:github_token"


@pytest.mark.parametrize(
    "value", [[TOKEN], {"deep": [{"er": TOKEN}]}, {TOKEN: 1}, TOKEN.encode() + b"\xff"]
)
def test_nested_and_binary_values_are_scanned(value: object) -> None:
    assert judge(other=value) == "secret:github_token"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"id": 1, "is_sensitive": 1, "content": "half', "flagged"),
        ('{"id": 1, "is_sensitive": true', "flagged"),
        ('{"id": 1, "is_sensitive": 0, "content": "half', None),
        ('{"id": 1, "is_sensitive": false, "content": "half', None),
        ('{"content": "[REDACTED] and', "placeholder"),
        ('{"content": "' + TOKEN, "secret:github_token"),
        ('{"content": "half', None),
    ],
)
def test_unreadable_rows_are_judged_by_their_bytes(text: str, reason: str | None) -> None:
    assert judge_unread(text) == reason
