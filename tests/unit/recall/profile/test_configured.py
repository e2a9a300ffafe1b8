from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noctuary.core.settings import RecallSettings, Settings
from noctuary.recall.profile import (
    FIELD_NAMES,
    RECALL_FLAGS,
    RetrievalProfile,
    configured_profile,
    resolve_for_recall,
)


def load(tmp_path: Path, text: str, **environ: str) -> Settings:
    path = tmp_path / "noctuary.toml"
    path.write_text(text, encoding="utf-8")
    return Settings.load(path, environ=environ)


def test_the_default_profile_is_what_the_default_settings_say() -> None:
    assert configured_profile(Settings()) == RetrievalProfile()


def test_every_setting_of_ranking_reaches_the_profile() -> None:
    values: dict[str, Any] = {
        "fusion": "rrf",
        "lexical_weight": 0.1,
        "dense_weight": 0.2,
        "graph_weight": 0.4,
        "importance_prior": 0.8,
        "exact_match_bonus": 0.3,
    }
    assert set(values) == set(RECALL_FLAGS)
    settings = Settings(recall=RecallSettings(**values))
    found = configured_profile(settings).to_json()
    assert found == {**RetrievalProfile().to_json(), **values}


def test_the_defaults_of_the_settings_are_the_built_in_ones() -> None:
    """Or a value that nobody set would be said to be built in and be another one."""
    built_in = RetrievalProfile().to_json()
    settings = RecallSettings()
    assert {f: getattr(settings, f) for f in RECALL_FLAGS} == {f: built_in[f] for f in RECALL_FLAGS}


def test_only_what_was_set_counts_as_configured(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "[recall]\nfusion = 'cc'\nimportance_prior = 0.1\n[profiles.default]\nrrf_k = 30",
        NOCTUARY_RECALL_IMPORTANCE_PRIOR="0.2",
        NOCTUARY_RECALL_GRAPH_WEIGHT="1.0",
    )
    found = resolve_for_recall(settings, {}, {})
    file = f"config [recall] in {tmp_path / 'noctuary.toml'}"
    expected = {
        "fusion": file,
        "importance_prior": "environment NOCTUARY_RECALL_IMPORTANCE_PRIOR",
        "graph_weight": "environment NOCTUARY_RECALL_GRAPH_WEIGHT",
        "rrf_k": "config [profiles.default]",
    }
    assert {f: s for f, s in found.sources.items() if s != "built-in"} == expected
    assert found.profile == RetrievalProfile(importance_prior=0.2, rrf_k=30)


def test_settings_made_in_code_count_where_they_differ() -> None:
    found = resolve_for_recall(Settings(recall=RecallSettings(fusion="rrf")), {}, {})
    assert found.sources["fusion"] == "config [recall]"
    assert found.sources["graph_weight"] == "built-in"


def test_the_configured_profile_answers_when_none_is_named(tmp_path: Path) -> None:
    settings = load(tmp_path, "[recall]\nprofile = 'mine'\n[profiles.mine]\ninherits = 'synapse'")
    found = resolve_for_recall(settings, {}, {})
    assert (found.requested, found.used, found.profile.decay_floor) == (None, "mine", 0.0)
    assert resolve_for_recall(settings, {}, {}, "default").profile == RetrievalProfile()
    assert configured_profile(settings).decay_floor == 0.0


def test_a_name_flags_or_a_whole_profile() -> None:
    adopted: dict[str, Any] = {"fusion": "rrf"}
    stored = {"mine": {"depth": 7}}
    named = resolve_for_recall(Settings(), adopted, stored, "mine", {"rrf_k": 9})
    assert named.profile == RetrievalProfile(fusion="rrf", depth=7, rrf_k=9)
    flags = resolve_for_recall(Settings(), adopted, stored, {"rrf_k": 9, "depth": None})
    assert flags.profile == RetrievalProfile(fusion="rrf", rrf_k=9)
    assert (flags.requested, flags.sources["rrf_k"]) == (None, "this call")
    both = resolve_for_recall(Settings(), {}, {}, {"rrf_k": 9, "depth": 3}, {"rrf_k": 8})
    assert both.profile == RetrievalProfile(rrf_k=8, depth=3)


def test_a_whole_profile_is_taken_as_it_is() -> None:
    mine = RetrievalProfile(depth=7)
    found = resolve_for_recall(Settings(), {"fusion": "rrf"}, {"default": {"rrf_k": 1}}, mine)
    assert found.profile is mine
    assert (found.requested, found.used) == (None, "given")
    assert dict(found.sources) == dict.fromkeys(FIELD_NAMES, "this call")
    changed = resolve_for_recall(Settings(), {}, {}, mine, {"explain": True})
    assert changed.profile == RetrievalProfile(depth=7, explain=True)


@pytest.mark.parametrize("profile", [None, "synapse", RetrievalProfile()])
def test_faults_of_the_call_are_an_error_every_time(profile: Any) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match=r"unknown flag 'flavour'.*; depth must lie"):
            resolve_for_recall(Settings(), {}, {}, profile, {"flavour": 1, "depth": 0})


def test_equal_values_of_another_type_are_not_taken_from_memory() -> None:
    assert resolve_for_recall(Settings(), {}, {}, {"explain": True}).profile.explain
    with pytest.raises(ValueError, match="explain must be bool, found 1"):
        resolve_for_recall(Settings(), {}, {}, {"explain": 1})


def test_the_same_question_is_answered_once_and_a_changed_one_anew() -> None:
    def ask(settings: Settings, stored: dict[str, dict[str, Any]], name: str | None = None) -> Any:
        return resolve_for_recall(settings, {"fusion": "rrf"}, stored, name)

    first = ask(Settings(), {"default": {"depth": 3}})
    assert ask(Settings(), {"default": {"depth": 3}}) is first
    assert ask(Settings(), {"default": {"depth": 4}}).profile.depth == 4
    assert ask(Settings(recall=RecallSettings(graph_weight=0.0)), {}).profile.graph_weight == 0.0
    profiles = Settings(profiles={"default": {"rrf_k": 2}})
    assert ask(profiles, {}).profile.rrf_k == 2
    assert ask(profiles, {}, "off").used == "off"
