"""SQL over real snapshots: the tables say what the snapshot holds, and there is no way out."""

from __future__ import annotations

import csv
import io
import math
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from noctuary.cli.sql import TABLES, QueryError, SnapshotView, run_query, to_json
from noctuary.core import store as layout
from noctuary.core.files import read_array, read_arrays
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.sqlite import close_logs
from noctuary.core.types import UNDATED_US
from noctuary.recall.api import recall
from noctuary.sources.source import Share
from noctuary.usage.access_log import append_retrievals
from tests.support.store import Store, household

QUESTION = "door code key migration flight boiler feline"
DOCS = Path(__file__).resolve().parents[3] / "docs" / "sql.md"


def ask(store: Store, query: str, user: str | None = None) -> list[tuple[Any, ...]]:
    with closing(SnapshotView(store.paths, user)) as view, run_query(view, query) as answer:
        return answer.fetchall()


def one(store: Store, query: str, user: str | None = None) -> Any:
    ((value,),) = ask(store, query, user)
    return value


def snapshot_of(store: Store) -> Path:
    return store.snapshot(read_pointer(store.paths).snapshot_id)


def rows_of(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(snapshot_of(store) / layout.ROWS_FILE)) as db:
        return db.execute(sql).fetchall()


def test_the_page_has_every_table_and_column_with_its_type_in_order(plain_store: Store) -> None:
    page = DOCS.read_text(encoding="utf-8").partition("\n## Tables\n")[2]
    documented = {
        match[1]: re.findall(r"^\| `(\w+)` \| ([A-Z\[\]]+) \| .+ \|$", match[2], re.MULTILINE)
        for match in re.finditer(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    }
    described = {name: [row[:2] for row in ask(plain_store, f"DESCRIBE {name}")] for name in TABLES}
    assert documented == described
    assert [name for (name,) in ask(plain_store, "SHOW TABLES")] == sorted(TABLES)


def test_memories_are_all_there_with_their_moments(plain_store: Store) -> None:
    found = ask(plain_store, "SELECT memory_id, content, created_at, is_turn, importance, \"user\""
                " FROM memories ORDER BY position")  # fmt: skip
    for row, record in zip(found, household(), strict=True):
        assert row[0] == record.memory_id
        assert row[1] == record.content
        assert row[3:] == (record.is_turn, record.importance, record.user)
        if record.created_at_us == UNDATED_US:
            assert row[2] is None
        else:
            assert row[2].replace(tzinfo=UTC).timestamp() * 1e6 == record.created_at_us


def test_counts_are_the_manifest_s(dense_store: Store) -> None:
    counts = read_manifest(snapshot_of(dense_store)).counts
    for table in ("memories", "concepts", "mentions", "edges", "supersessions", "clusters",
                  "summaries", "concept_edges"):  # fmt: skip
        assert one(dense_store, f"SELECT count(*) FROM {table}") == counts[table], table
    facts = dict(ask(dense_store, "FROM snapshot"))
    assert facts["count_memories"] == str(counts["memories"])
    assert facts["snapshot_id"] == read_pointer(dense_store.paths).snapshot_id


def test_edges_are_the_arrays_edges(dense_store: Store) -> None:
    directory, ids = snapshot_of(dense_store), [r.memory_id for r in household()]
    arrays = read_arrays(directory / layout.ARRAYS_FILE)
    starts, targets = arrays["graph.indptr"], arrays["graph.targets"]
    expected = Counter(
        (ids[source], ids[target])
        for source in range(len(ids))
        for target in targets[starts[source] : starts[source + 1]]
    )
    found = ask(dense_store, "SELECT source_id, target_id FROM edges")
    assert Counter(found) == expected
    assert expected


def test_mentions_stand_where_they_say(dense_store: Store) -> None:
    sql = """SELECT c.name, c.aliases, substr(m.content, start_char + 1, end_char - start_char)
        FROM mentions JOIN concepts c USING (concept_id) JOIN memories m USING (memory_id)
        WHERE start_char IS NOT NULL"""
    found = ask(dense_store, sql)
    assert found
    for name, aliases, surface in found:
        assert surface.lower() in {n.lower() for n in (name, *aliases)}


def test_vectors_are_the_arrays_rows(dense_store: Store) -> None:
    vectors = read_array(snapshot_of(dense_store) / layout.VECTORS_FILE)
    found = ask(dense_store, "SELECT vector FROM vectors JOIN memories USING (memory_id)"
                " ORDER BY position")  # fmt: skip
    np.testing.assert_array_equal(np.array([row[0] for row in found], dtype=np.float32), vectors)


def test_access_is_the_log(plain_store: Store) -> None:
    append_retrievals(plain_store.paths.access_log, snapshot_id="s", memory_ids=["103", "101"])
    close_logs()
    found = ask(plain_store, "SELECT memory_id, rank, snapshot_id FROM access ORDER BY rank")
    assert found == [("103", 1, "s"), ("101", 2, "s")]
    assert ask(plain_store, "SELECT memory_id FROM access", user="ana") == [("103",), ("101",)]
    assert ask(plain_store, "SELECT memory_id FROM access WHERE memory_id = '107'") == []


def test_evaluation_is_the_report_and_the_owner_s(plain_store: Store) -> None:
    path = plain_store.paths.work / "evaluation" / "report.json"
    path.parent.mkdir()
    path.write_text('{"groups": {"labelled": {"reports": [{"name": "served", "overall": '
                    '{"recall@5": {"mean": 0.5, "low": 0.25, "high": 0.75, "n": 4}}, "strata": '
                    '{"exact": {"recall@5": {"mean": 1.0, "n": 1}}}}]}}}')  # fmt: skip
    assert ask(plain_store, "FROM evaluation") == [
        ("labelled", "served", None, "recall@5", 0.5, 0.25, 0.75, 4),
        ("labelled", "served", "exact", "recall@5", 1.0, None, None, 1),
    ]
    assert ask(plain_store, "FROM evaluation", user="ana") == []


def test_a_user_sees_what_a_recall_would_show_them(dense_store: Store) -> None:
    for user, hidden in (("ana", "107"), ("ben", "106"), ("eve", "106")):
        found = {row[0] for row in ask(dense_store, "SELECT memory_id FROM memories", user=user)}
        summaries = {row[0] for row in ask(dense_store, "SELECT summary_id FROM summaries", user)}
        recalled = recall(QUESTION, 50, user=user, store=dense_store.root, dry_run=True)
        assert recalled.memories
        assert {str(m.id) for m in recalled.memories} <= found | summaries
        assert hidden not in found
        assert "101" in found


def test_nothing_of_another_user_is_in_any_table(dense_store: Store) -> None:
    """Ben's memory is 107; its concepts, edges, mentions and counts are his."""
    for table in TABLES:
        for row in ask(dense_store, f"FROM {table}", user="ana"):
            assert "107" not in [v for v in row if isinstance(v, str)], table
            assert "ben" not in repr(row).lower(), table
    everyone = rows_of(dense_store, "SELECT count(*) FROM concepts")[0][0]
    assert one(dense_store, "SELECT count(*) FROM concepts", user="ana") < everyone
    assert "count_memories" not in dict(ask(dense_store, "FROM snapshot", user="ana"))


def test_what_is_shared_with_a_user_is_theirs_to_see(empty_store: Store) -> None:
    empty_store.publish(household(), shares=[Share("107", "ana")])
    found = {row[0] for row in ask(empty_store, "SELECT memory_id FROM memories", user="ana")}
    assert {"106", "107"} <= found
    assert "107" not in {r[0] for r in ask(empty_store, "SELECT memory_id FROM memories", "eve")}


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH 'x.db'", "COPY memories TO 'x.csv'", "PRAGMA version", "INSTALL json", "LOAD json",
        "SET threads = 1", "RESET threads", "CREATE TABLE t AS SELECT 1", "DROP TABLE memories",
        "DELETE FROM memories", "INSERT INTO memories (memory_id) VALUES ('1')", "VACUUM",
        "UPDATE memories SET content = ''", "EXPORT DATABASE 'x'", "CALL pragma_version()",
        "CHECKPOINT", "BEGIN", "USE memory", "PREPARE p AS SELECT 1", "DETACH memory",
        "IMPORT DATABASE 'x'", "PIVOT memories ON wing USING count(*)", "CREATE SECRET s (TYPE s3)",
        "EXPLAIN ANALYZE COPY memories TO 'x.csv'",
    ],
)  # fmt: skip
def test_what_is_no_query_is_refused(
    plain_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(QueryError):
        ask(plain_store, query)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "source",
    [
        "read_csv('secret.txt')", "read_text('secret.txt')", "read_blob('secret.txt')",
        "'secret.csv'", "glob('*')", "sniff_csv('secret.txt')", "read_parquet('secret.txt')",
        "read_json('secret.txt')", "'https://127.0.0.1:1/x.csv'", "sqlite_scan('secret.txt', 't')",
        "query('FROM read_text(''secret.txt'')')", "answer", "view", "SECRET",
    ],
)  # fmt: skip
def test_a_query_reaches_no_file_no_network_and_no_variable(
    plain_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    SECRET = [("hunter2",)]
    assert SECRET
    monkeypatch.chdir(tmp_path)
    for name in ("secret.txt", "secret.csv"):
        (tmp_path / name).write_text("hunter2\n")
    with pytest.raises(QueryError) as found:
        ask(plain_store, f"SELECT * FROM {source}")
    assert "hunter2" not in str(found.value)


def test_the_doors_are_locked(plain_store: Store) -> None:
    settings = ("enable_external_access", "lock_configuration", "temp_directory",
                "python_enable_replacements", "autoinstall_known_extensions")  # fmt: skip
    shown = ", ".join(f"current_setting('{name}')" for name in settings)
    assert ask(plain_store, f"SELECT {shown}") == [(False, True, "", False, False)]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("", "expected one query, found 0"),
        ("SELECT 1; SELECT 2", "expected one query, found 2"),
        ("SELEC 1", "syntax error"),
        ("FROM memorys", 'Did you mean "memories"'),
        ("SELECT nothing FROM memories", "nothing"),
        ("SELECT CAST(content AS INTEGER) FROM memories", "Could not convert"),
        ("FROM sqlite_scan('a', 'b')", "not in the catalog"),
    ],
)
def test_what_is_wrong_with_a_query_is_said(plain_store: Store, query: str, says: str) -> None:
    with pytest.raises(QueryError, match=re.escape(says)):
        ask(plain_store, query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM memories",
        "SELECT count(*) FROM Main.MEMORIES",
        "WITH m AS (FROM memories) SELECT count(*) FROM m",
        "SELECT * FROM query('SELECT count(*) FROM memo' || 'ries')",
        "SELECT count(*) FROM query_table('memories')",
        "SELECT (SELECT count(*) FROM memories)",
        "SELECT count(DISTINCT m.position) FROM memories m LEFT JOIN concepts ON true",
    ],
)
def test_a_table_is_filled_however_a_query_names_it(plain_store: Store, query: str) -> None:
    assert one(plain_store, query) == 14


def test_asking_leaves_the_store_as_it_was(dense_store: Store) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = (p for p in dense_store.root.rglob("*") if p.is_file())
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in files}

    before = state()
    for table in TABLES:
        ask(dense_store, f"FROM {table}")
    assert state() == before


def test_values_of_every_type_become_json() -> None:
    values = {math.inf: "inf", datetime(2026, 3, 1, tzinfo=UTC): "2026-03-01T00:00:00+00:00"}
    assert {value: to_json(value) for value in values} == values
    assert to_json({"a": [1, None, b"\x01"]}) == {"a": [1, None, "01"]}


def test_ctrl_c_stops_a_query(dense_store: Store) -> None:
    tables = ", ".join(f"memories {name}" for name in "abcdefgh")
    query = f"SELECT count(*) FROM {tables} WHERE a.content > b.content || c.content || h.content"
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from noctuary.cli.main import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, "sql", query, "--store", str(dense_store.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    # Until it is heard: while libraries are loaded a signal may be lost.
    time.sleep(3)
    for _ in range(20):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(1)
    process.kill()
    out, err = process.communicate()
    assert (process.returncode, out) in ((-signal.SIGINT, ""), (130, ""))
    assert "Traceback" not in err


Run = Callable[..., Result]


def test_text_output_is_a_table_with_a_line_a_row(run: Run, plain_store: Store) -> None:
    long = run("sql", "select repeat('x', 500) || chr(27) as a, 'b' || chr(10) || 'c' as b").output
    assert len(long.splitlines()) == 3
    assert ("..." in long, "\x1b" in long) == (True, False)
    result = run("sql", "select memory_id, wing from memories order by position limit 2")
    assert result.output == "memory_id  wing\n---------  ----\n101        home\n102        home\n"


def test_more_rows_than_the_limit_are_said_to_be_there(run: Run, plain_store: Store) -> None:
    result = run("sql", "from range(5000)", "--limit", "3000")
    assert len(result.stdout.splitlines()) == 3002
    assert "only the first 3,000 rows" in result.stderr
    assert "first" not in run("sql", "from range(3)", "--limit", "3").stderr
    assert len(run("sql", "from range(5000)", "--limit", "0").stdout.splitlines()) == 5002


def test_json_is_one_object(run_json: Callable[..., Any], plain_store: Store) -> None:
    found = run_json("sql", "select memory_id, created_at from memories order by 1", "--limit", "2")
    assert found["columns"] == ["memory_id", "created_at"]
    assert found["types"] == ["VARCHAR", "TIMESTAMP"]
    assert found["rows"][0] == ["101", "2026-01-02T00:00:00"]
    assert (found["row_count"], found["is_cut"]) == (2, True)
    assert run_json("sql", "select 1 where false")["rows"] == []


def test_csv_is_read_back(run: Run, plain_store: Store) -> None:
    result = run("sql", "--csv", """select 'a,"b"' || chr(10) || 'c' as t, null as n, 1.5 as x""")
    assert list(csv.reader(io.StringIO(result.stdout))) == [
        ["t", "n", "x"],
        ['a,"b"\nc', "", "1.5"],
    ]


def test_a_query_may_come_from_standard_input(plain_store: Store) -> None:
    from click.testing import CliRunner

    from noctuary.cli.main import main

    result = CliRunner().invoke(main, ["sql", "-", "--csv"], input="select 7 as n")
    assert result.stdout == "n\n7\n", (result.output, result.exception)


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["sql", "drop table memories"], 1, "DROP is not a query"),
        (["sql", "select 1", "--store", "nowhere"], 1, "noctuary nightly"),
    ],
)
def test_a_wrong_call_is_a_sentence(
    run: Run, plain_store: Store, arguments: list[str], code: int, says: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, says in result.output) == (code, True), result.output
