from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.types import UNDATED_US
from noctuary.sources import corpus as tables
from noctuary.sources import export as export_module
from noctuary.sources.corpus import read_records
from noctuary.sources.export import ExportReport, export_corpus
from noctuary.sources.source import RawRow, open_source
from noctuary.sources.sqlite import SqliteSource

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


def test_nan_importance_of_json_is_set_aside(make_jsonl: Make, tmp_path: Path) -> None:
    lines = [b'{"id": 1, "content": "a", "importance": NaN}', {"id": 2, "content": "b"}]
    report = export(make_jsonl(lines), tmp_path / "out")
    assert (report.exported, report.quarantined) == (1, {"bad_importance": 1})


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


def test_a_truncated_archive_publishes_nothing(make_jsonl: Make, tmp_path: Path) -> None:
    path = make_jsonl([{"id": i, "content": f"{i}"} for i in range(500)], "corpus.jsonl.gz")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SourceFormatError, match="is cut off"):
        export(path, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


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


def test_importing_the_package_loads_no_heavy_library() -> None:
    script = (
        "import sys, noctuary.sources.export, noctuary.sources.export, noctuary.sources.source\n"
        "heavy = {'pyarrow', 'duckdb', 'polars', 'torch', 'lancedb'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
