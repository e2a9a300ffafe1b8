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

from noctuary.core import store as layout
from noctuary.core.manifest import read_pointer
from tests.support.store import Store, day_us, memory, new_store, renumber

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


def test_explain_adds_every_step_up_to_the_score(run: Run, dense_store: Store) -> None:
    lines = run("recall", "Nina key", "-k", "1", "--explain").stdout.splitlines()
    assert lines[2].strip() == "lexical rank 1 (1.498); dense rank 1 (0.951)"
    assert lines[3].split() == ["score", "change", "step", "why"]
    steps = [line.split(maxsplit=3) for line in lines[4:8]]
    assert [step[2] for step in steps] == ["lexical", "dense", "graph_scale", "importance"]
    total = 0.0
    for so_far, change, _, why in steps:
        total += float(change)
        assert float(so_far) == pytest.approx(total, abs=0.0015)
        assert why
    assert lines[8].strip() == "= 0.485  (importance 0.90)"
    assert lines[10] == "profile default; model guard MATCH; 12 candidates, 1 returned"
    assert lines[11].startswith("snapshot ")


def test_only_phases_that_ran_or_were_wanted_are_named(run: Run, dense_store: Store) -> None:
    asked = ("--set", "mmr_enabled=true", "--set", "ltp_enabled=true", "--sort-by", "recency")
    said = run("recall", "Nina key", "--explain", *asked).stdout
    assert "phases applied: ltp, scale\n" in said
    assert "    mmr: skipped because the answer is ordered by recency\n" in said
    assert not any(name in said for name in ("rerank", "association", "phases skipped"))


def test_explain_shows_what_a_phase_says_about_a_memory(run: Run, dense_store: Store) -> None:
    old = memory("The cat sleeps in the hall.", created_at_us=day_us(1))
    new = memory("The kitten sleeps in the hall.", created_at_us=day_us(90))
    dense_store.publish(renumber([old, new]))
    flags = ("--set", "supersede_filter_enabled=on", "--set", "supersede_action=annotate")
    shown = run("recall", "cat", "--explain", *flags).stdout
    assert "    note: superseded by " in shown
    assert "    supersede: checked 2, action annotate" in shown


def test_the_candidate_trace_is_printed_by_phase(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    arguments = ("recall", "Nina key", "-k", "2", "--candidate-trace")
    lines = run(*arguments).stdout.splitlines()
    score = run_json(*arguments)["candidate_trace"][0]["score"]
    start = lines.index("dropped by limit (10):")
    assert score > 0.0
    assert lines[start + 1] == f"    {score:.3f}  [103]  place 3 of 12; 2 were asked for"
    assert len(lines) == start + 11
    assert "dropped: nothing" in run("recall", "zebra", "--wing", "x", "--candidate-trace").stdout


def test_a_long_trace_is_cut_and_says_so(run: Run, run_json: RunJson, empty_store: Store) -> None:
    empty_store.publish(renumber([memory(f"boat {n}") for n in range(40)]))
    arguments = ("recall", "boat", "-k", "1", "--candidate-trace")
    assert "    ... and 19 more (--json has them all)" in run(*arguments).stdout
    assert len(run_json(*arguments)["candidate_trace"]) == 39


def test_all_candidates_are_shown_and_nothing_is_written(
    run: Run, run_json: RunJson, dense_store: Store
) -> None:
    arguments = ("recall", "Nina key", "-k", "2", "--all-candidates")
    lines = run(*arguments).stdout.splitlines()
    start = lines.index("candidates (12):")
    assert lines[start + 1].startswith("   1. 0.485  [101]  lexical_match +0.500, ")
    assert lines[start + 12].startswith("  12. ")
    assert len(run_json(*arguments)["candidates"]) == 12
    assert not dense_store.paths.access_log.exists()


def test_a_profile_and_flags_of_this_call(run: Run, run_json: RunJson, dense_store: Store) -> None:
    def ask(*arguments: str) -> Any:
        return run_json("recall", "key", "--user", "ana", *arguments)

    named = ask("--profile", "synapse")
    assert (named["profile_used"], named["profile"]["decay_floor"]) == ("synapse", 0.0)
    changed = ask("--set", "mmr_lambda=1", "--set", "mmr_enabled=Yes", "--set", "reranker=")
    assert (changed["profile_used"], changed["profile"]["mmr_lambda"]) == ("default", 1.0)
    assert changed["profile"]["mmr_enabled"] is True
    both = ask("--profile", "synapse", "--set", "depth=7", "--fusion", "rrf")
    assert (both["profile_used"], both["profile"]["decay_floor"]) == ("synapse", 0.0)
    assert (both["profile"]["depth"], both["profile"]["fusion"]) == (7, "rrf")
    assert both["warnings"] == []
    for flags in ((), ("--set", "depth=7")):
        wrong = ask("--profile", "nope", *flags)
        assert [w["code"] for w in wrong["warnings"]] == ["unknown_profile"]
    assert (
        run("recall", "key", "--profile", "off", "--set", "depth=7", "--store", "x").exit_code == 1
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set", "depth"], "expected FLAG=VALUE"),
        (["--set", "depht=3"], "nearest known one is depth"),
        (["--set", "mmr_lambda=7"], "must lie in [0, 1]"),
        (["--set", "mmr_enabled=perhaps"], "must be bool"),
        (["--set", "depth=many"], "must be int"),
        (["--deadline-ms", "nan"], "must be a number"),
    ],
)
def test_flags_that_mean_nothing_are_a_sentence(
    run: Run, dense_store: Store, arguments: list[str], said: str
) -> None:
    result = run("recall", "key", *arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_a_session_reaches_the_recall(run_json: RunJson, dense_store: Store) -> None:
    """The hybrid scorer lets the memories of the active session forget at another pace."""

    def scores(*arguments: str) -> list[float]:
        asked = ("recall", "flight", "--user", "ana", "--set", "scorer=hybrid")
        return [m["final_score"] for m in run_json(*asked, *arguments)["memories"]]

    assert scores("--session", "s1") != scores()


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
    monkeypatch.setenv("NOCTUARY_RECALL_IMPORTANCE_PRIOR", "0.125")
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
    assert "not an ISO-8601 date" in result.output


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
    monkeypatch.setenv("NOCTUARY_RECALL_FUSION", "sum")
    for arguments in (("key",), ("key", "--fusion", "rrf")):
        result = run("recall", *arguments)
        assert result.exit_code == 0
        assert "bad_settings" in result.stderr


def test_a_guessed_store_is_said(run: Run, home: Path, dense_store: Store) -> None:
    new_store(home / "other").publish(renumber([memory("Another spare key.")], 900))
    assert "store_guessed" in run("recall", "spare key").stderr
    assert "store_guessed" not in run("recall", "spare key", "--store", "house").stderr


def test_any_bytes_on_the_command_line_are_a_question(dense_store: Store) -> None:
    """What is not UTF-8 arrives as lone surrogates; the JSON that repeats it is valid."""
    command = [os.fsencode(sys.executable), b"-m", b"noctuary.cli.main", b"recall", b"key \xff\xfe"]
    explained = [b"--explain", b"--candidate-trace", b"--profile", b"synapse"]
    for options in ([], [b"--json"], [b"--wing", b"\xff"], explained):
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
