from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from mnemon.snapshot import layout
from mnemon.snapshot.manifest import read_pointer
from tests.support.store import Store, memory, new_store, renumber

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def test_answers_are_a_headline_and_the_text(run: Run, dense_store: Store) -> None:
    result = run("recall", "spare key")
    assert result.exit_code == 0
    first, text = result.stdout.splitlines()[:2]
    assert first.startswith(" 1. 0.")
    assert "[101]  2026-01-02  home/hall  fact" in first
    assert text == "    The spare key hangs behind the blue door."
    assert "! user_required: " in result.stderr


def test_explain_says_what_each_leg_did_and_how_long_it_took(run: Run, dense_store: Store) -> None:
    result = run("recall", "Nina key", "--explain")
    assert "lexical rank 1 (" in result.stdout
    assert "dense rank 1 (" in result.stdout
    assert "from [104] by mentions_subject over 'Atlas migration'" in result.stdout
    assert f"snapshot {read_pointer(dense_store.paths).snapshot_id}; ms: scope" in result.stdout


def test_an_undated_memory_says_so(run: Run, dense_store: Store) -> None:
    assert "[108]  undated  -  fact" in run("recall", "door without a date").stdout


def test_long_and_many_lined_texts_are_cut_to_one_line(run: Run, empty_store: Store) -> None:
    empty_store.publish(renumber([memory("boat\n\n" + "long " * 200)]))
    lines = run("recall", "boat").stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("    boat long long")
    assert lines[1].endswith(" ...")
    assert len(lines[1]) < 420


def test_json_is_the_whole_result(run_json: RunJson, dense_store: Store) -> None:
    value = run_json("recall", "spare key", "-k", "2")
    assert value["memories"][0]["id"] == 101
    assert len(value["memories"]) == 2
    assert value["snapshot_id"] == read_pointer(dense_store.paths).snapshot_id
    assert value["warnings"][0]["code"] == "user_required"


def ids(value: Any) -> list[int]:
    return [m["id"] for m in value["memories"]]


def test_every_filter_reaches_the_recall(run_json: RunJson, dense_store: Store) -> None:
    def ask(*arguments: str) -> Any:
        return run_json("recall", *arguments)

    assert ids(ask("door code", "--user", "ben"))[0] == 107
    assert {m["wing"] for m in ask("Atlas key", "--wing", "work")["memories"]} == {"work"}
    assert {m["room"] for m in ask("Atlas key", "--room", "hall")["memories"]} == {"hall"}
    assert {m["category"] for m in ask("flight", "--category", "turn")["memories"]} == {"turn"}
    assert 104 not in ids(ask("Nina", "--as-of", "2026-01-04"))
    assert 104 in ids(ask("Nina", "--as-of", "2026-01-05T00:00:00Z"))
    assert 104 in ids(ask("Nina", "--as-of", "2026-01-05T02:00:00+02:00"))
    recent = ask("door", "--sort-by", "recency")["memories"]
    dates = [m["created_at"] or "" for m in recent]
    assert dates == sorted(dates, reverse=True)
    assert ids(ask("door", "-k", "0")) == []
    assert "deadline_dense" in [w["code"] for w in ask("door", "--deadline-ms", "0")["warnings"]]


def test_fusion_replaces_only_the_fusion_of_the_configured_profile(
    run_json: RunJson, dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMON_RECALL_IMPORTANCE_PRIOR", "0.125")
    profile = run_json("recall", "key", "--fusion", "rrf")["profile"]
    assert (profile["fusion"], profile["importance_prior"]) == ("rrf", 0.125)
    assert run_json("recall", "key")["profile"]["fusion"] == "cc"


def test_a_dry_run_does_not_log(run: Run, dense_store: Store) -> None:
    assert run("recall", "key", "--dry-run").exit_code == 0
    assert not dense_store.paths.access_log.exists()
    assert run("recall", "key").exit_code == 0
    assert dense_store.paths.access_log.exists()


def test_nothing_found_is_a_success(run: Run, run_json: RunJson, plain_store: Store) -> None:
    plain_store.publish(renumber([memory("boat")]))
    result = run("recall", "zebra", "--as-of", "2020-01-01")
    assert result.exit_code == 0
    assert run_json("recall", "zebra")["memories"] == []


def test_an_unknown_wing_is_a_success_with_a_warning(run: Run, dense_store: Store) -> None:
    result = run("recall", "key", "--wing", "hoem")
    assert result.exit_code == 0
    assert "unknown_wing: no memory has wing 'hoem'; near: home" in result.stderr


@pytest.mark.parametrize("moment", ["yesterday", "2026-13-01", "", "01.02.2026"])
def test_a_date_that_is_none_is_a_sentence(run: Run, dense_store: Store, moment: str) -> None:
    result = run("recall", "key", "--as-of", moment)
    assert result.exit_code == 2
    assert "no ISO-8601 date" in result.output


def test_no_store_is_exit_code_1(run: Run, run_json: RunJson, home: Path) -> None:
    assert run("recall", "key").exit_code == 1
    value = run_json("recall", "key", code=1)
    assert value["memories"] == []
    assert value["warnings"][0]["code"] == "no_snapshot"


def test_a_damaged_snapshot_is_exit_code_1_and_an_older_one_is_not(
    run: Run, dense_store: Store
) -> None:
    dense_store.publish(renumber([memory("Another spare key.")], 900))
    pointer = read_pointer(dense_store.paths)
    assert pointer.previous_id is not None
    (dense_store.snapshot(pointer.snapshot_id) / layout.ROWS_FILE).unlink()
    result = run("recall", "spare key")
    assert result.exit_code == 0
    assert "snapshot_fallback" in result.stderr
    (dense_store.snapshot(pointer.previous_id) / layout.ROWS_FILE).unlink()
    os.utime(dense_store.paths.current, ns=(1, 1))
    assert run("recall", "spare key").exit_code == 1


def test_bad_settings_are_a_warning_here_too(
    run: Run, dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MNEMON_RECALL_FUSION", "sum")
    for arguments in (("key",), ("key", "--fusion", "rrf")):
        result = run("recall", *arguments)
        assert result.exit_code == 0
        assert "bad_settings" in result.stderr


def test_a_guessed_store_is_said(run: Run, home: Path, dense_store: Store) -> None:
    new_store(home / "other").publish(renumber([memory("Another spare key.")], 900))
    assert "store_guessed" in run("recall", "spare key").stderr
    assert "store_guessed" not in run("recall", "spare key", "--store", "house").stderr


def test_any_bytes_on_the_command_line_are_a_question(dense_store: Store) -> None:
    """What is no UTF-8 arrives as lone surrogates; the JSON that repeats it is valid."""
    command = [os.fsencode(sys.executable), b"-m", b"mnemon.cli.main", b"recall", b"key \xff\xfe"]
    for options in ([], [b"--json"], [b"--wing", b"\xff"]):
        done = subprocess.run([*command, *options], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
        printed = done.stdout.decode("utf-8")
        if b"--json" in options:
            assert json.loads(printed)["query"] == "key \udcff\udcfe"


def test_any_script_is_printed(run: Run, run_json: RunJson, empty_store: Store) -> None:
    text = "钥匙 ключ مفتاح 🔑"
    empty_store.publish(renumber([memory(text)]))
    assert text in run("recall", "钥匙").stdout
    assert run_json("recall", "🔑 ключ")["memories"][0]["content"] == text
