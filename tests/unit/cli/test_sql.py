"""`noctuary sql` as it is typed."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.cli.sql import TABLE_NAMES
from tests.support.store import Store

Run = Callable[..., Result]


def test_text_output_is_a_table(run: Run, plain_store: Store) -> None:
    result = run("sql", "select memory_id, wing from memories order by position limit 2")
    assert result.output == "memory_id  wing\n---------  ----\n101        home\n102        home\n"


def test_long_values_and_control_characters_do_not_break_a_line(
    run: Run, plain_store: Store
) -> None:
    result = run("sql", "select repeat('x', 500) || chr(27) as a, 'b' || chr(10) || 'c' as b")
    assert len(result.output.splitlines()) == 3
    assert "..." in result.output
    assert "\x1b" not in result.output


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


def test_the_schema_is_shown_without_a_store(
    run: Run, run_json: Callable[..., Any], home: Any
) -> None:
    shown = run("sql", "--schema")
    assert all(f"{name}: " in shown.output for name in TABLE_NAMES)
    assert [t["table"] for t in run_json("sql", "--schema")["tables"]] == list(TABLE_NAMES)
    assert run("sql", "--schema", "edges").output.startswith("edges: ")
    assert run("sql", "--schema", "edge").exit_code == 2


def test_a_user_is_the_only_one_shown(run: Run, plain_store: Store) -> None:
    result = run("sql", "--csv", "select distinct user from memories order by 1", "--user", "ana")
    assert "ben" not in result.output
    assert "ana" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["sql"], 2, "give a query, or --schema"),
        (["sql", "select 1", "--csv", "--json"], 2, "one of --csv and --json"),
        (["sql", "drop table memories"], 1, "DROP is not a query"),
        (["sql", "select 1", "--store", "nowhere"], 1, "noctuary nightly"),
    ],
)
def test_a_wrong_call_is_a_sentence(
    run: Run, plain_store: Store, arguments: list[str], code: int, says: str
) -> None:
    result = run(*arguments)
    assert (result.exit_code, says in result.output) == (code, True), result.output


def test_export_and_import_are_commands(
    run: Run, run_json: Callable[..., Any], dense_store: Store, tmp_path: Any
) -> None:
    assert "exported 14 memories" in run("export", str(tmp_path / "e")).output
    made = run_json("import", str(tmp_path / "e"), "--store", "copy")
    assert made["memories"] == 14
    assert Path(made["store"]).name == "copy"
    again = run_json("export", str(tmp_path / "f"), "--store", "copy")
    assert again["has_encoder"]
    first = run_json("export", str(tmp_path / "g"), "--store", str(dense_store.root))
    assert first["digest"] == again["digest"]
    refused = run("import", str(tmp_path / "e"), "--store", "copy")
    assert refused.exit_code == 1
    assert "import makes a new store" in refused.output
    refused = run_json("import", str(tmp_path), "--store", "other", code=1)
    assert refused["error"] == "ExportFormatError"
