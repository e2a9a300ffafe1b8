from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.core import store as layout
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import CONFIG_FILE_NAME
from noctuary.recall.profile import FIELD_NAMES, FLAGS, GROUPS, SHIPPED, RetrievalProfile
from noctuary.snapshot.publish import publish_candidate, seal_candidate
from tests.support.store import Store, household

Run = Callable[..., Result]
RunJson = Callable[..., Any]


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


def test_show_says_under_each_flag_what_it_means_and_which_values_it_takes(
    run: Run, plain_store: Store
) -> None:
    lines = run("profile", "show").stdout.splitlines()
    below = {line.split()[0]: after.strip() for line, after in pairwise(lines) if line[:2] == "  "}
    for name, flag in FLAGS.items():
        assert below[name].startswith(flag.meaning)
    assert below["importance_prior"].endswith(" From 0 to 1.")
    assert below["rrf_k"].endswith(" From 1 to 2,147,483,647.")
    assert below["fusion"].endswith(" One of cc, rrf.")
    assert below["model_guard"] == "Compare the query's encoder with the one of the vectors."


def test_show_marks_what_is_not_built_in(run: Run, plain_store: Store) -> None:
    result = run("profile", "show", "libravdb")
    assert row_of(result, "scorer").split(maxsplit=3) == [
        "*",
        "scorer",
        "hybrid",
        "named libravdb (shipped)",
    ]
    # Said by libravdb, and the same as built in.
    assert row_of(result, "quality_penalty").startswith("  quality_penalty ")
    assert row_of(result, "quality_penalty").endswith("named libravdb (shipped)")


def test_show_names_every_layer(
    run_json: RunJson, home: Path, plain_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = home / CONFIG_FILE_NAME
    config.write_text(
        "[recall]\nprofile = 'mine'\nimportance_prior = 0.2\n"
        "[profiles.default]\ndepth = 40\n"
        "[profiles.mine]\ninherits = 'synapse'\nrrf_k = 30\n"
    )
    monkeypatch.setenv("NOCTUARY_RECALL_GRAPH_WEIGHT", "0.5")
    plain_store.paths.profiles.write_text("[default]\nhalf_life_days = 7\n")
    found = run_json("profile", "show", "--store", str(plain_store.root))
    assert (found["requested"], found["used"], found["warnings"]) == (None, "mine", [])
    assert list(found["flags"]) == list(FIELD_NAMES)
    rows = {f: (row["value"], row["source"]) for f, row in found["flags"].items()}
    assert rows["importance_prior"] == (0.2, f"config [recall] in {config}")
    assert rows["graph_weight"] == (0.5, "environment NOCTUARY_RECALL_GRAPH_WEIGHT")
    assert rows["depth"] == (40, "config [profiles.default]")
    assert rows["half_life_days"] == (7, "store profiles.toml [default]")
    assert rows["decay_floor"] == (0.0, "named mine (config), inherits synapse (shipped)")
    assert rows["rrf_k"] == (30, "named mine (config)")
    assert found["flags"]["rrf_k"]["built_in"] == 60


def test_show_knows_what_the_evaluation_adopted(run_json: RunJson, empty_store: Store) -> None:
    pack = read_manifest(empty_store.candidate(household()))
    sealed = seal_candidate(empty_store.paths, pack.digest, {"adopted": {"fusion": "rrf"}})
    publish_candidate(empty_store.paths, empty_store.judge(sealed), 7)
    row = run_json("profile", "show", "--store", str(empty_store.root))["flags"]["fusion"]
    assert row == {
        "value": "rrf",
        "built_in": "cc",
        "source": "store: adopted by its evaluation",
    }


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


def test_a_bad_layer_is_a_warning(run: Run, plain_store: Store) -> None:
    plain_store.paths.profiles.write_text("[default]\ndepht = 3\nmmr_lambda = 2\n")
    result = run("profile", "show")
    assert result.exit_code == 0
    (line,) = result.stderr.splitlines()
    assert line.startswith("! bad_profile: profile default (store) is left out: ")
    assert "depht" in line
    assert "mmr_lambda" in line
    plain_store.paths.profiles.write_text("[default")
    assert "! bad_profile: cannot read" in run("profile", "show").stderr


def test_without_a_store_the_other_layers_are_shown(run: Run, home: Path) -> None:
    (home / CONFIG_FILE_NAME).write_text("[profiles.default]\ndepth = 40\n")
    result = run("profile", "show")
    assert result.exit_code == 0
    assert "! no_snapshot: " in result.stderr
    assert row_of(result, "depth").endswith("config [profiles.default]")


def test_a_store_that_has_not_published_has_its_profiles(run: Run, empty_store: Store) -> None:
    empty_store.paths.work.mkdir(parents=True, exist_ok=True)
    empty_store.paths.profiles.write_text("[default]\ndepth = 40\n")
    result = run("profile", "show", "--store", str(empty_store.root))
    assert result.exit_code == 0
    assert "! no_snapshot: " in result.stderr
    assert row_of(result, "depth").endswith("store profiles.toml [default]")


@pytest.mark.parametrize("command", ["show", "list"])
def test_a_store_that_is_not_there_is_a_sentence(
    run: Run, run_json: RunJson, home: Path, command: str
) -> None:
    arguments = ("profile", command, "--store", str(home / "nowhere"))
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("noctuary: ")
    assert set(run_json(*arguments, code=1)) == {"error", "message"}


@pytest.mark.parametrize("command", ["show", "list"])
def test_bad_settings_and_a_damaged_snapshot_are_sentences(
    run: Run, home: Path, plain_store: Store, command: str
) -> None:
    snapshot = plain_store.snapshot(read_pointer(plain_store.paths).snapshot_id)
    (snapshot / layout.ARRAYS_FILE).unlink()
    result = run("profile", command)
    assert result.exit_code == 1
    assert result.stderr.startswith("noctuary: ")
    (home / CONFIG_FILE_NAME).write_text("[recall]\nfusion = 'sum'\n")
    result = run("profile", command)
    assert result.exit_code == 1
    assert "recall.fusion" in result.stderr


def test_list_shows_names_descriptions_and_places(
    run: Run, run_json: RunJson, home: Path, plain_store: Store
) -> None:
    (home / CONFIG_FILE_NAME).write_text(
        "[recall]\nprofile = 'mine'\n"
        "[profiles.mine]\ninherits = 'synapse'\ndescription = 'for mornings'\n"
        "[profiles.broken]\ndepth = 0\n"
    )
    plain_store.paths.profiles.write_text("[synapse]\ndepth = 30\n")
    result = run("profile", "list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert [line[2:].split()[0] for line in lines] == [*SHIPPED, "mine", "broken"]
    assert [line[2:].split()[0] for line in lines if line.startswith("*")] == ["mine"]
    (mine,) = (line for line in lines if line.startswith("* mine"))
    assert mine.endswith("for mornings  (config, inherits synapse)")
    (synapse,) = (line for line in lines if line.startswith("  synapse"))
    assert synapse.endswith("(shipped, store)")
    assert "! bad_profile: broken, config: depth must lie in" in result.stderr
    listed = {row["name"]: row for row in run_json("profile", "list")["profiles"]}
    assert listed["mine"]["inherits"] == "synapse"
    assert listed["default"]["description"] == SHIPPED["default"].description
    assert listed["broken"]["faults"]
