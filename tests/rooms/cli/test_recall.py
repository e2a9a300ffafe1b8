from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary import inject
from noctuary.core import store as layout
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import CONFIG_FILE_NAME
from noctuary.core.sqlite import close_logs
from noctuary.recall.api import find_serving
from noctuary.recall.profile import FIELD_NAMES, FLAGS, GROUPS, SHIPPED, RetrievalProfile
from noctuary.recall.result import Calibration
from noctuary.snapshot.publish import publish_candidate, seal_candidate
from noctuary.sources.echo import EchoGuard, read_injections
from noctuary.sources.injected import NOTE
from tests.support.calibration import calibrated
from tests.support.injections import row
from tests.support.store import Store, day_us, household, memory, renumber

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
    assert "[108]  undated  -  fact" in run("recall", "door without a date").stdout
    unknown = run("recall", "key", "--wing", "hoem")
    assert unknown.exit_code == 0
    assert "unknown_wing: no memory has wing 'hoem'; near: home" in unknown.stderr
    nothing = run("recall", "spare key", "--wing", "nowhere", "--inject")
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "nothing is injected: nothing was found" in nothing.stderr


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
    assert "from [104] by mentions_subject" in run("recall", "Nina key", "--explain").stdout
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
    dense_store.publish(renumber([memory(f"boat {n}") for n in range(40)]))
    many = ("recall", "boat", "-k", "1", "--candidate-trace")
    assert "    ... and 19 more (--json has them all)" in run(*many).stdout
    assert len(run_json(*many)["candidate_trace"]) == 39
    assert "dropped: nothing" in run("recall", "zebra", "--wing", "x", "--candidate-trace").stdout


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


def test_a_session_reaches_the_recall(run_json: RunJson, dense_store: Store) -> None:
    """The hybrid scorer lets the memories of the active session forget at another pace."""

    def scores(*arguments: str) -> list[float]:
        asked = ("recall", "flight", "--user", "ana", "--set", "scorer=hybrid")
        return [m["final_score"] for m in run_json(*asked, *arguments)["memories"]]

    assert scores("--session", "s1") != scores()


def test_long_and_many_lined_texts_are_cut_to_one_line(run: Run, empty_store: Store) -> None:
    empty_store.publish(renumber([memory("boat\n\n" + "long " * 200)]))
    lines = run("recall", "boat").stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("    boat long long")
    assert lines[1].endswith(" ...")
    assert len(lines[1]) < 420


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
    assert NOTE in run("recall", "spare key", "--inject", "--dry-run").stdout
    assert not dense_store.paths.access_log.exists()
    assert run("recall", "key").exit_code == 0
    assert dense_store.paths.access_log.exists()
    assert not dense_store.paths.injections.exists()


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


def test_any_bytes_on_the_command_line_are_a_question(dense_store: Store) -> None:
    """What is not UTF-8 arrives as lone surrogates; the JSON that repeats it is valid."""
    query = b"key \xff\xfe"
    explained = [b"--explain", b"--candidate-trace", b"--profile", b"synapse"]
    calls = [
        [b"recall", query, *more] for more in ([], [b"--json"], [b"--wing", b"\xff"], explained)
    ]
    calls += [[b"why", query, b"\xfe", *more] for more in ([], [b"--json"])]
    for call in calls:
        command = [os.fsencode(sys.executable), b"-m", b"noctuary.cli.main", *call]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
        printed = done.stdout.decode("utf-8")
        if b"--json" in call and b"recall" in call:
            assert json.loads(printed)["query"] == "key \udcff\udcfe"


def row_of(result: Result, flag: str) -> str:
    (row,) = (line for line in result.stdout.splitlines() if line[2:].split(" ")[0] == flag)
    return row


def test_show_prints_every_flag_with_its_value_and_source(run: Run, plain_store: Store) -> None:
    result = run("profile", "show")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("profile default; ")
    for flag, value in RetrievalProfile().to_json().items():
        shown = {True: "true", False: "false", "": "(none)"}.get(value, str(value))
        if not isinstance(value, bool | str):
            shown = str(value)
        assert row_of(result, flag).split() == [flag, shown, "built-in"]
    lines = result.stdout.splitlines()
    assert [line for line in lines if line in GROUPS] == list(GROUPS)
    below = {line.split()[0]: after.strip() for line, after in pairwise(lines) if line[:2] == "  "}
    assert all(below[name].startswith(flag.meaning) for name, flag in FLAGS.items())
    assert below["importance_prior"].endswith(" From 0 to 1.")
    assert below["rrf_k"].endswith(" From 1 to 2,147,483,647.")
    assert below["fusion"].endswith(" One of cc, rrf.")
    assert below["model_guard"] == (
        "Compare the query's encoder with the vectors'; off risks nonsense."
    )
    named = run("profile", "show", "libravdb")
    changed = row_of(named, "scorer").split(maxsplit=3)
    assert changed == ["*", "scorer", "hybrid", "named libravdb (shipped)"]
    # Said by libravdb, and the same as built in.
    assert row_of(named, "quality_penalty").startswith("  quality_penalty ")
    assert row_of(named, "quality_penalty").endswith("named libravdb (shipped)")


def test_show_names_every_layer(
    run_json: RunJson, home: Path, plain_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = home / CONFIG_FILE_NAME
    config.write_text(
        "[recall]\nprofile = 'mine'\nimportance_prior = 0.2\n"
        "[profiles.default]\ndepth = 40\n"
        "[profiles.mine]\nrrf_k = 30\n"
    )
    monkeypatch.setenv("NOCTUARY_RECALL_GRAPH_WEIGHT", "0.5")
    found = run_json("profile", "show", "--store", str(plain_store.root))
    assert (found["requested"], found["used"], found["warnings"]) == (None, "mine", [])
    assert list(found["flags"]) == list(FIELD_NAMES)
    rows = {f: (row["value"], row["source"]) for f, row in found["flags"].items()}
    assert rows["importance_prior"] == (0.2, f"config [recall] in {config}")
    assert rows["graph_weight"] == (0.5, "environment NOCTUARY_RECALL_GRAPH_WEIGHT")
    assert rows["depth"] == (40, "config [profiles.default]")
    assert rows["rrf_k"] == (30, "named mine (config)")
    assert found["flags"]["rrf_k"]["built_in"] == 60


def test_show_knows_what_the_evaluation_adopted(run_json: RunJson, empty_store: Store) -> None:
    pack = read_manifest(empty_store.candidate(household()))
    sealed = seal_candidate(empty_store.paths, pack.digest, {"adopted": {"fusion": "rrf"}})
    publish_candidate(empty_store.paths, empty_store.judge(sealed), 7)
    row = run_json("profile", "show", "--store", str(empty_store.root))["flags"]["fusion"]
    assert row == {"value": "rrf", "built_in": "cc", "source": "store: adopted by its evaluation"}


def test_an_unknown_profile_is_said_and_the_default_shown(
    run: Run, run_json: RunJson, plain_store: Store
) -> None:
    result = run("profile", "show", "synaspe")
    assert result.exit_code == 1
    assert "! unknown_profile: no profile 'synaspe': default is in force" in result.stderr
    assert "synapse" in result.stderr
    assert result.stdout.startswith("profile default; ")
    found = run_json("profile", "show", "synaspe", code=1)
    assert (found["requested"], found["used"]) == ("synaspe", "default")
    assert [w["code"] for w in found["warnings"]] == ["unknown_profile"]


@pytest.mark.usefixtures("plain_store")
def test_a_bad_layer_is_a_warning(run: Run, home: Path) -> None:
    (home / CONFIG_FILE_NAME).write_text("[profiles.default]\ndepht = 3\nmmr_lambda = 2\n")
    result = run("profile", "show")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("! bad_profile: profile default (config) is left out: ")
    assert "depht" in line
    assert "mmr_lambda" in line


def test_without_a_store_the_other_layers_are_shown(run: Run, home: Path) -> None:
    (home / CONFIG_FILE_NAME).write_text("[profiles.default]\ndepth = 40\n")
    result = run("profile", "show")
    assert result.exit_code == 0
    assert "! no_snapshot: " in result.stderr
    assert row_of(result, "depth").endswith("config [profiles.default]")


def test_a_store_that_is_not_there_is_a_sentence(run: Run, run_json: RunJson, home: Path) -> None:
    arguments = ("profile", "show", "--store", str(home / "nowhere"))
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("noctuary: ")
    assert set(run_json(*arguments, code=1)) == {"error", "message"}


def test_bad_settings_and_a_damaged_snapshot_are_sentences(
    run: Run, home: Path, plain_store: Store
) -> None:
    snapshot = plain_store.snapshot(read_pointer(plain_store.paths).snapshot_id)
    (snapshot / layout.ARRAYS_FILE).unlink()
    result = run("profile", "show")
    assert result.exit_code == 1
    assert result.stderr.startswith("noctuary: ")
    (home / CONFIG_FILE_NAME).write_text("[recall]\nfusion = 'sum'\n")
    result = run("profile", "show")
    assert result.exit_code == 1
    assert "recall.fusion" in result.stderr


def test_list_shows_names_descriptions_and_places(run: Run, run_json: RunJson, home: Path) -> None:
    (home / CONFIG_FILE_NAME).write_text(
        "[recall]\nprofile = 'mine'\n"
        "[profiles.mine]\ndescription = 'for mornings'\n"
        "[profiles.synapse]\ndepth = 30\n"
        "[profiles.broken]\ndepth = 0\n"
    )
    result = run("profile", "list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line[2:].split()[0] for line in lines] == [*SHIPPED, "mine", "broken"]
    assert [line[2:].split()[0] for line in lines if line.startswith("*")] == ["mine"]
    (mine,) = (line for line in lines if line.startswith("* mine"))
    assert mine.endswith("for mornings  (config)")
    (synapse,) = (line for line in lines if line.startswith("  synapse"))
    assert synapse.endswith("(shipped, config)")
    assert "! bad_profile: broken, config: depth must lie in" in result.stderr
    listed = {row["name"]: row for row in run_json("profile", "list")["profiles"]}
    assert listed["default"]["description"] == SHIPPED["default"].description
    assert listed["broken"]["faults"]


@pytest.fixture
def agents_md(tmp_path: Path) -> str:
    path = tmp_path / "AGENTS.md"
    path.write_text("- Feed the cat.\n\nYou must lock the door.\n\nThe boiler is in the cellar.\n")
    return str(path)


@pytest.fixture
def session(tmp_path: Path) -> str:
    path = tmp_path / "session.jsonl"
    lines = [{"role": "user" if n % 2 == 0 else "assistant", "text": f"turn {n}"} for n in range(6)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def test_the_text_is_printed_as_it_was_counted(
    run: Run, run_json: Callable[..., Any], dense_store: Store, agents_md: str, session: str
) -> None:
    arguments = (
        "context", "the spare key", "--budget", "2000", "--document", agents_md,
        "--session", session, "--user", "ana", "--dry-run",
    )  # fmt: skip
    plain = run_json(*arguments)
    assert run(*arguments).stdout == plain["text"]
    assert plain["tokens"] <= plain["budget_tokens"] == 2_000
    assert [part["kind"] for part in plain["parts"]][:5] == ["I1", "tail", "tail", "tail", "tail"]
    assert plain["parts"][-1]["kind"] == "variant"
    assert plain["degraded"] == []


def test_parts_are_listed_with_what_they_cost_and_why(
    run: Run, dense_store: Store, agents_md: str
) -> None:
    result = run(
        "context", "spare key", "--budget", "900", "--document", agents_md, "--parts", "--dry-run"
    )
    assert result.exit_code == 0
    assert "rule=hard" in result.stdout
    assert "rule=two_pass similarity=" in result.stdout
    assert "of 900 tokens" in result.stdout.splitlines()[-1]
    assert "tokenizer:word-axes" in result.stdout.splitlines()[-1]
    assert "! user_required" in result.stderr


def test_a_budget_that_is_too_small_is_exit_code_3_and_prints_all_the_same(
    run: Run, dense_store: Store, agents_md: str
) -> None:
    result = run("context", "x", "--budget", "5", "--document", agents_md)
    assert result.exit_code == 3
    assert "Feed the cat." in result.stdout
    assert "! hard_over_budget: " in result.stderr


def test_without_a_store_there_is_an_answer_where_there_is_a_document(
    run: Run, home: Path, agents_md: str
) -> None:
    result = run("context", "boiler", "--budget", "500", "--document", agents_md)
    assert result.exit_code == 0
    assert "cellar" in result.stdout
    assert "! no_snapshot" in result.stderr
    assert run("context", "boiler", "--budget", "500").exit_code == 1


def test_files_and_arguments_that_are_wrong_are_said_in_a_sentence(
    run: Run, home: Path, tmp_path: Path
) -> None:
    missing = run("context", "x", "--budget", "9", "--document", str(tmp_path / "none.md"))
    assert missing.exit_code == 1
    assert "there is no document at" in missing.stderr
    (tmp_path / "bad.jsonl").write_text("{}\n")
    bad = run("context", "x", "--budget", "9", "--session", str(tmp_path / "bad.jsonl"))
    assert bad.exit_code == 1
    assert "line 1: a turn has role and text" in bad.stderr
    unknown = run("context", "x", "--budget", "9", "--profile", "nope")
    assert unknown.exit_code == 2
    assert "profile must be one of default, reference" in unknown.stderr
    assert run("context", "x").exit_code == 2
    assert run("context", "x", "--budget", "9", "--as-of", "soon").exit_code == 2


def test_the_block_and_nothing_else_is_printed_and_recorded(run: Run, dense_store: Store) -> None:
    result = run("recall", "spare key", "-k", "2", "--inject")
    assert result.exit_code == 0
    opening, note, first, second, closing_tag = result.stdout.splitlines()
    assert opening.startswith('<noctuary-recall id="')
    assert note == NOTE
    assert first == "- [101] 2026-01-02 (home/hall): The spare key hangs behind the blue door."
    assert second.startswith("- [")
    assert closing_tag == "</noctuary-recall>"
    assert "! user_required: " in result.stderr
    close_logs()
    guard = EchoGuard(read_injections(dense_store.paths.injections))
    now_us = time.time_ns() // 1000
    echo = row("The spare key hangs behind the blue door.", created_at_us=now_us)
    assert guard.judge(echo).text is None


def test_who_asks_for_no_number_injects_as_many_as_a_hook(
    run_json: RunJson, dense_store: Store
) -> None:
    query = "spare key boiler door cat"
    assert len(run_json("recall", query)["memories"]) > 3
    assert run_json("recall", query, "--inject")["injection"]["memories"] == 3
    assert run_json("recall", query, "--inject", "-k", "4")["injection"]["memories"] == 4
    found = run_json("recall", query, "-k", "1", "--inject")
    assert found["injection"]["memories"] == len(found["memories"]) == 1
    assert found["injection"]["text"] == inject(found, on_record=False).text
    assert "injection" not in run_json("recall", query)


@pytest.mark.parametrize(
    ("calibration", "said"),
    [(calibrated(1.0), "at least 1.000 is needed"), (calibrated(bar=1.0), "no memory reaches 1.0")],
)
def test_an_answer_that_is_none_is_not_injected_and_said(
    run: Run, dense_store: Store, monkeypatch: pytest.MonkeyPatch, calibration: Calibration,
    said: str,
) -> None:  # fmt: skip
    recaller, _ = find_serving(dense_store.root)
    monkeypatch.setattr(recaller, "calibration", calibration)
    result = run("recall", "spare key", "--inject")
    assert (result.exit_code, result.stdout) == (0, "")
    assert said in result.stderr
    assert "spare key hangs" in run("recall", "spare key").stdout


def test_a_record_that_cannot_be_written_is_a_warning(run: Run, dense_store: Store) -> None:
    dense_store.paths.injections.mkdir()
    result = run("recall", "spare key", "--inject")
    assert result.exit_code == 0
    assert NOTE in result.stdout
    assert "! injection_log: this injection was not logged: " in result.stderr
