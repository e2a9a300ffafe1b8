"""The flags of a profile, and the layers it is merged from."""

from __future__ import annotations

import copy
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.settings import RecallSettings, Settings
from noctuary.graph.successors import LEAST_DAYS, LEAST_SIMILARITY
from noctuary.recall import phases, scorers, selection
from noctuary.recall.profile import (
    CHOICES,
    FIELD_NAMES,
    FIELD_TYPES,
    FLAGS,
    GROUPS,
    OFF,
    RANGES,
    RECALL_FLAGS,
    SHIPPED,
    ResolvedProfile,
    RetrievalProfile,
    configured_profile,
    flag_faults,
    list_profiles,
    resolve_for_recall,
    value_faults,
)
from noctuary.usage.reader import BATCH_ROWS, LTP_MAX_BOOST, LTP_WINDOW_DAYS


def with_flag(name: str, value: Any) -> RetrievalProfile:
    return RetrievalProfile().replaced(**{name: value})


def test_every_fault_is_told_at_once_and_replacing_checks_as_making_does() -> None:
    with pytest.raises(ValueError, match="lexical_weight") as caught:
        RetrievalProfile(fusion="x", lexical_weight=-1, importance_prior=2, depth="many")
    found = [fault.split()[0] for fault in str(caught.value).split("; ")]
    assert found == ["fusion", "lexical_weight", "importance_prior", "depth"]
    profile = RetrievalProfile(fusion="rrf")
    with pytest.raises(ValueError, match=r"depth must lie in .*; mmr_lambda must lie in "):
        profile.replaced(depth=0, mmr_lambda=2.0)
    other = profile.replaced(depth=9)
    assert (profile.depth, other.depth, other.fusion) == (50, 9, "rrf")


def test_a_profile_is_a_value_that_cannot_be_changed() -> None:
    profile, other = RetrievalProfile(depth=7), RetrievalProfile().replaced(depth=7)
    assert profile == other == RetrievalProfile(**profile.to_json()) != RetrievalProfile()
    assert hash(profile) == hash(other)
    assert profile != profile.to_json()
    assert pickle.loads(pickle.dumps(profile)) == copy.deepcopy(profile) == profile
    assert eval(repr(profile)) == profile
    with pytest.raises(AttributeError, match="cannot be changed"):
        profile.depth = 3
    with pytest.raises(AttributeError, match="cannot be changed"):
        del profile.depth
    assert profile.depth == 7
    with pytest.raises(TypeError, match="no flag dept, weight"):
        RetrievalProfile(dept=3, weight=1)


def test_every_flag_says_what_it_does_and_has_a_range_or_choices() -> None:
    numbers = {name for name, kind in FIELD_TYPES.items() if kind in (int, float)}
    words = {name for name, kind in FIELD_TYPES.items() if kind is str}
    assert set(RANGES) == numbers
    assert set(CHOICES) == words - {"reranker"}
    assert all(flag.meaning for flag in FLAGS.values())
    assert tuple(name for names in GROUPS.values() for name in names) == FIELD_NAMES


@pytest.mark.parametrize("name", sorted(RANGES))
def test_both_ends_of_a_range_are_good_and_beyond_them_is_not(name: str) -> None:
    low, high, sentence = RANGES[name]
    kind = FIELD_TYPES[name]
    assert getattr(with_flag(name, kind(low)), name) == low
    assert getattr(with_flag(name, kind(high)), name) == high
    step = 1 if kind is int else 1e-9
    beyond: list[Any] = [kind(low) - step, kind(high) * 2 + step]
    if kind is float:
        beyond += [math.nan, math.inf, -math.inf, 10**400]
    for value in beyond:
        with pytest.raises(ValueError, match=f"{name} {re.escape(sentence)}"):
            with_flag(name, value)


@pytest.mark.parametrize("name", FIELD_NAMES)
def test_a_value_of_another_type_is_refused(name: str) -> None:
    kind = FIELD_TYPES[name]
    wrong: list[Any] = [None, [], b"x", {}]
    wrong += [
        v for v in (True, 1, 0.5, "x") if type(v) is not kind and (kind, type(v)) != (float, int)
    ]
    for value in wrong:
        with pytest.raises(ValueError, match=f"^{name} must be {kind.__name__}, found "):
            with_flag(name, value)


@given(
    st.dictionaries(
        st.sampled_from(FIELD_NAMES),
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    )
)
def test_flags_that_are_good_one_by_one_are_good_together(values: dict[str, Any]) -> None:
    good = {n: v for n, v in values.items() if not value_faults({n: v})}
    assert RetrievalProfile(**good).to_json().items() >= good.items()
    faults = value_faults(values)
    assert len(faults) == len(values) - len(good)


def test_off_is_plain_fusion_and_says_everything_that_it_needs() -> None:
    """So that it undoes whatever a layer below has switched on."""
    off = RetrievalProfile.off()
    assert (off.graph_weight, off.importance_prior, off.exact_match_bonus) == (0.0, 0.0, 0.0)
    assert (off.scorer, off.reranker, off.wing_diversity_weight) == ("fusion", "", 0.0)
    switches = {name for name in FIELD_NAMES if FIELD_TYPES[name] is bool}
    assert len([name for name in switches if name.endswith("_enabled")]) == 10
    assert not [name for name in switches if getattr(off, name)]
    assert switches <= OFF.keys()


REFERENCE: dict[str, Any] = {
    # phases 1 to 9: research notes on MemPalace, section 1, as configuration makes them effective
    "ltp_enabled": True, "half_life_days": 90.0, "tagging_enabled": True,
    "association_enabled": False, "mmr_enabled": False, "mmr_lambda": 0.7,
    "pinned_memory_enabled": False, "query_expansion_enabled": False,
    "supersede_filter_enabled": False, "supersede_action": "filter",
    # phases 10 to 14: RFC 914
    "model_guard": True, "model_guard_strict": False, "wing_diversity_weight": 0.3,
    "candidate_pool_multiplier": 1, "explain": False, "candidate_trace": False,
    "adaptive_compaction": False, "compaction_threshold": 0.3, "compaction_age_days": 30,
    "decay_enabled": False, "decay_lambda": 0.01,
    # libravdb 1.3.12
    "quality_penalty": 0.5, "coarse_depth": 16, "coarse_threshold": 0.2,
}  # fmt: skip


def test_the_constants_of_the_phases_are_those_of_the_references() -> None:
    assert (phases.TAGGING_WINDOW_HOURS, phases.TAGGING_MAX_BOOST) == (24.0, 1.5)
    assert (phases.ASSOCIATION_COEFFICIENT, phases.ASSOCIATION_MAX_BOOST) == (0.15, 1.5)
    assert (phases.MOST_PINNED, phases.MOST_PINNED_TOKENS) == (5, 2000)
    assert (phases.LEAST_MULTIPLIER, phases.NEW_HOURS) == (1.5, 48.0)
    assert (phases.MAX_TERMS, phases.LEAST_QUERY_SIMILARITY) == (3, 0.65)
    assert (phases.EXPANSION_BOOST, phases.LOOKBACK_DAYS) == (0.7, 60)
    assert (LEAST_SIMILARITY, LEAST_DAYS, selection.MOST_STALE) == (0.86, 7, 10)
    assert (LTP_MAX_BOOST, LTP_WINDOW_DAYS, BATCH_ROWS) == (2.0, 30, 5000)
    assert (scorers.MIXTURE, scorers.DECAYS_PER_S) == ((0.7, 0.2, 0.1), (1e-4, 1e-5, 2e-6))
    assert (scorers.AUTHORITY, scorers.AUTHORITY_DECAY_PER_S) == ((0.5, 0.2, 0.3), 1e-5)
    assert scorers.KEYWORD_GAIN == 0.3


# On in the reference; here only in the profile "synapse".
SWITCHED_OFF = ("ltp_enabled", "tagging_enabled")
# Each of these has its reason in docs/decisions/0007.
DEPARTURES: dict[str, Any] = {
    **dict.fromkeys(SWITCHED_OFF, False), "max_scan_depth": 0, "time_decay_enabled": False,
    "decay_floor": 0.9, "authority_floor": 0.5, "consolidation_enabled": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes"),
    [("default", DEPARTURES), ("synapse", {"time_decay_enabled": True, "decay_floor": 0.0})],
)
def test_the_defaults_are_those_of_the_references_but_for_what_is_named(
    name: str, changes: dict[str, Any]
) -> None:
    values = resolve(name).profile.to_json()
    expected = {**REFERENCE, **changes}
    assert {flag: values[flag] for flag in expected} == expected


FILE = "config [recall] in noctuary.toml"


def good_value(flag: str) -> st.SearchStrategy[Any]:
    kind = FIELD_TYPES[flag]
    if flag in CHOICES:
        return st.sampled_from(CHOICES[flag])
    if kind in (bool, str):
        return st.booleans() if kind is bool else st.text(max_size=3)
    low, high, _ = RANGES[flag]
    if kind is int:
        return st.integers(int(low), int(high))
    return st.floats(low, high) | st.integers(int(low) + (low > int(low)), int(high))


SOME_FLAGS = st.lists(st.sampled_from(FIELD_NAMES), max_size=4, unique=True).flatmap(
    lambda flags: st.fixed_dictionaries({flag: good_value(flag) for flag in flags})
)


def settings_of(**profiles: dict[str, Any]) -> Settings:
    return Settings(profiles=profiles)


@st.composite
def layered(draw: st.DrawFn) -> tuple[Settings, dict[str, Any], str | None, dict[str, Any]]:
    """Sound settings, what was adopted, a profile that is there, and a call's own flags."""
    names = draw(st.sets(st.sampled_from(["default", "synapse", "compact"])))
    tables = {name: draw(SOME_FLAGS) for name in [*sorted(names), "mine"]}
    set_flags = {f: v for f, v in draw(SOME_FLAGS).items() if f in RECALL_FLAGS}
    chosen = draw(st.sampled_from(["default", "compact"]))
    settings = Settings(
        recall=RecallSettings(profile=chosen, **set_flags),
        profiles=tables,
        origins={f"recall.{flag}": "in noctuary.toml" for flag in set_flags},
    )
    name = draw(st.sampled_from([None, "default", "mine", "synapse", "off", "libravdb-two-pass"]))
    return settings, draw(SOME_FLAGS), name, draw(SOME_FLAGS)


@given(layered())
def test_every_value_and_its_source_are_those_of_the_last_layer_that_has_it(
    case: tuple[Settings, dict[str, Any], str | None, dict[str, Any]],
) -> None:
    settings, adopted, name, overrides = case
    found = resolve_for_recall(settings, adopted, name, overrides)
    chosen = name or settings.recall.profile
    stack: list[tuple[str, Any]] = [
        ("built-in", RetrievalProfile().to_json()),
        ("store: adopted by its evaluation", adopted),
        (FILE, {f: getattr(settings.recall, f) for f in RECALL_FLAGS
                if f"recall.{f}" in settings.origins}),
        ("config [profiles.default]", settings.profiles.get("default", {})),
    ]  # fmt: skip
    if chosen != "default":
        shipped = SHIPPED[chosen].values if chosen in SHIPPED else {}
        stack.append((f"named {chosen} (shipped)", shipped))
        stack.append((f"named {chosen} (config)", settings.profiles.get(chosen, {})))
    stack.append(("this call", overrides))
    values = found.profile.to_json()
    assert list(found.sources) == list(FIELD_NAMES)
    for flag in FIELD_NAMES:
        source, value = next((s, v[flag]) for s, v in reversed(stack) if flag in v)
        assert (values[flag], found.sources[flag]) == (value, source)
        assert type(values[flag]) is FIELD_TYPES[flag]
    assert (found.warnings, found.requested, found.used) == ((), name, chosen)


def test_an_unknown_name_warns_with_near_ones_and_falls_back_to_default() -> None:
    settings = settings_of(default={"depth": 9}, synapses={})
    found = resolve_for_recall(settings, {}, "synaspe")
    assert (found.requested, found.used) == ("synaspe", "default")
    assert found.profile == RetrievalProfile(depth=9)
    (warning,) = found.warnings
    assert warning.code == "unknown_profile"
    assert "'synaspe'" in warning.message
    assert "nearest known ones are synapse, synapses" in warning.message
    configured = resolve_for_recall(Settings(recall=RecallSettings(profile="gone")))
    assert (configured.requested, configured.used) == (None, "default")
    assert [w.code for w in configured.warnings] == ["unknown_profile"]


BAD: dict[str, Any] = {"mmr_lambda": 2.0, "depht": 3, "explain": "yes", "rrf_k": 10}
BAD_FAULTS = ("unknown flag 'depht'; the nearest known one is depth", "mmr_lambda", "explain")


@pytest.mark.parametrize(
    ("tables", "adopted", "name", "what", "used"),
    [
        ({"default": BAD}, {}, None, "profile default (config)", "default"),
        ({}, BAD, None, "what the store's evaluation adopted", "default"),
        ({"synapse": BAD}, {}, "synapse", "profile synapse (config)", "synapse"),
        ({"mine": BAD}, {}, "mine", "profile mine (config)", "default"),
    ],
)
def test_a_bad_layer_is_left_out_with_all_its_faults(
    tables: dict[str, Any], adopted: dict[str, Any], name: str | None, what: str, used: str
) -> None:
    found = resolve_for_recall(settings_of(**tables), adopted, name, {"depth": 12})
    (warning,) = found.warnings
    assert warning.code == "bad_profile"
    assert warning.message.startswith(f"{what} is left out: ")
    assert all(fault in warning.message for fault in BAD_FAULTS)
    sound = resolve(name if name in SHIPPED else None, {"depth": 12})
    assert (found.profile, found.used) == (sound.profile, used)


def resolve(name: str | None, overrides: dict[str, Any] | None = None) -> ResolvedProfile:
    return resolve_for_recall(Settings(), {}, name, overrides)


def test_faults_of_a_call_are_an_error_that_lists_them_all() -> None:
    with pytest.raises(ValueError, match="depht") as caught:
        resolve(None, {**BAD, "inherits": "off"})
    faults = str(caught.value).split("; ")
    assert all(any(f.startswith(part) for f in faults) for part in ("mmr_lambda", "explain"))
    assert "the nearest known one is depth" in faults
    assert "unknown flag 'inherits'" in faults
    found = resolve("synapse", {"decay_floor": None, "depth": 3})
    assert (found.profile.decay_floor, found.profile.depth) == (0.0, 3), "None is not given"
    assert found.sources["decay_floor"] == "named synapse (shipped)"


def test_the_list_of_profiles_says_where_and_what_is_wrong() -> None:
    settings = settings_of(synapse={"description": "ours"}, mine={"depth": 0})
    entries = {entry.name: entry for entry in list_profiles(settings)}
    assert list(entries) == [*SHIPPED, "mine"]
    assert entries["synapse"].defined == ("shipped", "config")
    assert entries["synapse"].description == "ours"
    (fault,) = entries["mine"].faults
    assert fault.startswith("config: depth must lie in [1, ")
    assert all(not entry.faults for name, entry in entries.items() if name != "mine")


NAMES = ["default", "off", "seed-hybrid", "synapse", "compact", "libravdb", "libravdb-two-pass"]

PHASES_OFF: dict[str, Any] = {
    name: False
    for name in RetrievalProfile().to_json()
    if name.endswith("_enabled") or name in ("model_guard", "adaptive_compaction")
}

GOLDEN: dict[str, dict[str, Any]] = {
    "seed-hybrid": {
        **PHASES_OFF, "fusion": "rrf", "rrf_k": 60, "depth": 50, "lexical_weight": 1.0,
        "dense_weight": 1.0, "graph_weight": 0.0, "importance_prior": 0.3,
        "exact_match_bonus": 0.0, "scorer": "fusion",
    },
    "synapse": {
        "ltp_enabled": True, "tagging_enabled": True, "time_decay_enabled": True,
        "half_life_days": 90.0, "decay_floor": 0.0, "association_enabled": False,
        "mmr_enabled": False,
    },
    "libravdb": {
        **PHASES_OFF, "scorer": "hybrid", "importance_prior": 0.0, "graph_weight": 0.0,
        "authority_floor": 0.5,
    },
    "libravdb-two-pass": {
        **PHASES_OFF, "scorer": "two_pass", "authority_floor": 0.0, "coarse_depth": 16,
        "coarse_threshold": 0.2,
    },
}  # fmt: skip


def test_what_ships() -> None:
    assert list(SHIPPED) == NAMES
    assert all(s.description and "\n" not in s.description for s in SHIPPED.values())
    for name in NAMES:
        assert flag_faults(SHIPPED[name].values) == []
        found = resolve(name)
        assert (found.used, found.warnings) == (name, ())
    assert resolve("off").profile == RetrievalProfile.off()
    assert resolve("default").profile == RetrievalProfile()


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_shipped_profile_has_the_reference_s_values(name: str) -> None:
    values = resolve(name).profile.to_json()
    assert {flag: values[flag] for flag in GOLDEN[name]} == GOLDEN[name]


def test_off_switches_off_what_a_layer_below_has_on() -> None:
    busy: dict[str, Any] = {
        "scorer": "hybrid", "reranker": "some-model", "mmr_enabled": True,
        "candidate_pool_multiplier": 4, "model_guard_strict": True, "exact_match_bonus": 0.2,
    }  # fmt: skip
    assert resolve_for_recall(settings_of(default=busy)).profile.reranker == "some-model"
    assert (
        resolve_for_recall(settings_of(default=busy), {}, "off").profile == RetrievalProfile.off()
    )


def load(tmp_path: Path, text: str, **environ: str) -> Settings:
    path = tmp_path / "noctuary.toml"
    path.write_text(text, encoding="utf-8")
    return Settings.load(path, environ=environ)


def test_every_setting_of_ranking_reaches_the_profile() -> None:
    values: dict[str, Any] = {
        "fusion": "rrf", "lexical_weight": 0.1, "dense_weight": 0.2, "graph_weight": 0.4,
        "importance_prior": 0.8, "exact_match_bonus": 0.3,
    }  # fmt: skip
    assert set(values) == set(RECALL_FLAGS)
    found = configured_profile(Settings(recall=RecallSettings(**values))).to_json()
    built_in, settings = RetrievalProfile().to_json(), RecallSettings()
    assert found == {**built_in, **values}
    # Or a value that nobody set would be said to be built in and be another one.
    assert {f: getattr(settings, f) for f in RECALL_FLAGS} == {f: built_in[f] for f in RECALL_FLAGS}
    assert configured_profile(Settings()) == RetrievalProfile()


def test_only_what_was_set_counts_as_configured(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "[recall]\nfusion = 'cc'\nimportance_prior = 0.1\n[profiles.default]\nrrf_k = 30",
        NOCTUARY_RECALL_IMPORTANCE_PRIOR="0.2",
        NOCTUARY_RECALL_GRAPH_WEIGHT="1.0",
    )
    found = resolve_for_recall(settings)
    assert {f: s for f, s in found.sources.items() if s != "built-in"} == {
        "fusion": f"config [recall] in {tmp_path / 'noctuary.toml'}",
        "importance_prior": "environment NOCTUARY_RECALL_IMPORTANCE_PRIOR",
        "graph_weight": "environment NOCTUARY_RECALL_GRAPH_WEIGHT",
        "rrf_k": "config [profiles.default]",
    }
    assert found.profile == RetrievalProfile(importance_prior=0.2, rrf_k=30)


def test_the_configured_profile_answers_when_none_is_named(tmp_path: Path) -> None:
    in_code = resolve_for_recall(Settings(recall=RecallSettings(fusion="rrf")))
    assert in_code.sources["fusion"] == "config [recall]", "where it differs from the default"
    assert in_code.sources["graph_weight"] == "built-in"
    settings = load(tmp_path, "[recall]\nprofile = 'mine'\n[profiles.mine]\ndecay_floor = 0.0")
    found = resolve_for_recall(settings)
    assert (found.requested, found.used, found.profile.decay_floor) == (None, "mine", 0.0)
    assert resolve_for_recall(settings, {}, "default").profile == RetrievalProfile()
    assert configured_profile(settings).decay_floor == 0.0


def test_a_name_flags_or_a_whole_profile() -> None:
    adopted: dict[str, Any] = {"fusion": "rrf"}
    settings = settings_of(mine={"depth": 7})
    named = resolve_for_recall(settings, adopted, "mine", {"rrf_k": 9})
    assert named.profile == RetrievalProfile(fusion="rrf", depth=7, rrf_k=9)
    flags = resolve_for_recall(settings, adopted, {"rrf_k": 9, "depth": None})
    assert flags.profile == RetrievalProfile(fusion="rrf", rrf_k=9)
    assert (flags.requested, flags.sources["rrf_k"]) == (None, "this call")
    both = resolve_for_recall(Settings(), {}, {"rrf_k": 9, "depth": 3}, {"rrf_k": 8})
    assert both.profile == RetrievalProfile(rrf_k=8, depth=3)


def test_a_whole_profile_is_taken_as_it_is() -> None:
    mine = RetrievalProfile(depth=7)
    found = resolve_for_recall(settings_of(default={"rrf_k": 1}), {"fusion": "rrf"}, mine)
    assert found.profile is mine
    assert (found.requested, found.used) == (None, "given")
    assert dict(found.sources) == dict.fromkeys(FIELD_NAMES, "this call")
    changed = resolve_for_recall(Settings(), {}, mine, {"explain": True})
    assert changed.profile == RetrievalProfile(depth=7, explain=True)


def test_faults_of_the_call_are_an_error_every_time() -> None:
    for profile in (None, "synapse", RetrievalProfile()) * 2:
        with pytest.raises(ValueError, match=r"unknown flag 'flavour'.*; depth must lie"):
            resolve_for_recall(Settings(), {}, profile, {"flavour": 1, "depth": 0})
    # Equal values of another type are not taken from memory.
    assert resolve_for_recall(Settings(), {}, {"explain": True}).profile.explain
    with pytest.raises(ValueError, match="explain must be bool, found 1"):
        resolve_for_recall(Settings(), {}, {"explain": 1})


def test_the_same_question_is_answered_once_and_a_changed_one_again() -> None:
    def ask(settings: Settings, name: str | None = None) -> ResolvedProfile:
        return resolve_for_recall(settings, {"fusion": "rrf"}, name)

    first = ask(settings_of(default={"depth": 3}))
    assert ask(settings_of(default={"depth": 3})) is first
    assert ask(settings_of(default={"depth": 4})).profile.depth == 4
    assert ask(Settings(recall=RecallSettings(graph_weight=0.0))).profile.graph_weight == 0.0
    assert ask(settings_of(default={"rrf_k": 2}), "off").used == "off"


def test_what_a_person_set_wins_over_what_the_night_adopted() -> None:
    settings = Settings(recall=RecallSettings(fusion="rrf"))
    found = resolve_for_recall(settings, {"fusion": "cc", "depth": 9})
    assert (found.profile.fusion, found.profile.depth) == ("rrf", 9)
