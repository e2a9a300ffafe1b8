from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.graph.successors import LEAST_DAYS, LEAST_SIMILARITY
from noctuary.recall import phases, selection
from noctuary.recall.profile import (
    CHOICES,
    FIELD_NAMES,
    FIELD_TYPES,
    FLAGS,
    GROUPS,
    OFF,
    RANGES,
    Layers,
    RetrievalProfile,
    resolve,
    value_faults,
)
from noctuary.usage.reader import BATCH_ROWS, LTP_MAX_BOOST, LTP_WINDOW_DAYS


def with_flag(name: str, value: Any) -> RetrievalProfile:
    return RetrievalProfile().replaced(**{name: value})


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: RetrievalProfile(fusion="sum"), "fusion"),
        (lambda: RetrievalProfile(lexical_weight=-0.1), "lexical_weight"),
        (lambda: RetrievalProfile(dense_weight=math.nan), "dense_weight"),
        (lambda: RetrievalProfile(graph_weight=math.inf), "graph_weight"),
        (lambda: RetrievalProfile(importance_prior=1.1), "importance_prior"),
        (lambda: RetrievalProfile(importance_prior=-0.1), "importance_prior"),
        (lambda: RetrievalProfile(importance_prior=math.nan), "importance_prior"),
        (lambda: RetrievalProfile(rrf_k=0), "rrf_k"),
        (lambda: RetrievalProfile(depth=0), "depth"),
    ],
)
def test_what_cannot_rank_is_refused_by_name(
    make: Callable[[], RetrievalProfile], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        make()


def test_every_fault_is_told_at_once_whatever_its_kind() -> None:
    with pytest.raises(ValueError, match="lexical_weight") as caught:
        RetrievalProfile(
            fusion="x",
            lexical_weight=-1,
            importance_prior=2,
            depth="many",
        )
    faults = str(caught.value).split("; ")
    found = [fault.split()[0] for fault in faults]
    assert found == ["fusion", "lexical_weight", "importance_prior", "depth"]


def test_a_profile_is_plain_values() -> None:
    assert RetrievalProfile(fusion="rrf").to_json()["fusion"] == "rrf"
    assert RetrievalProfile(**RetrievalProfile().to_json()) == RetrievalProfile()


def test_a_profile_cannot_be_changed() -> None:
    profile = RetrievalProfile()
    with pytest.raises(AttributeError, match="cannot be changed"):
        profile.depth = 3
    with pytest.raises(AttributeError, match="cannot be changed"):
        del profile.depth
    assert profile.depth == 50


def test_a_flag_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="no flag dept, weight"):
        RetrievalProfile(dept=3, weight=1)


def test_profiles_of_equal_flags_are_one_value() -> None:
    profile, other = RetrievalProfile(depth=7), RetrievalProfile().replaced(depth=7)
    assert profile == other != RetrievalProfile()
    assert hash(profile) == hash(other)
    assert profile != profile.to_json()
    assert pickle.loads(pickle.dumps(profile)) == copy.deepcopy(profile) == profile
    assert eval(repr(profile)) == profile


def test_replacing_checks_as_making_does_and_leaves_the_original() -> None:
    profile = RetrievalProfile(fusion="rrf")
    with pytest.raises(ValueError, match=r"depth must lie in .*; mmr_lambda must lie in "):
        profile.replaced(depth=0, mmr_lambda=2.0)
    other = profile.replaced(depth=9)
    assert (profile.depth, other.depth, other.fusion) == (50, 9, "rrf")


def test_every_number_has_a_range_and_every_word_its_choices() -> None:
    numbers = {name for name, kind in FIELD_TYPES.items() if kind in (int, float)}
    words = {name for name, kind in FIELD_TYPES.items() if kind is str}
    assert set(RANGES) == numbers
    assert set(CHOICES) == words - {"reranker"}


def test_every_flag_says_what_it_does() -> None:
    assert all(flag.meaning for flag in FLAGS.values())


@pytest.mark.parametrize("name", sorted(RANGES))
def test_both_ends_of_a_range_are_good_and_beyond_them_is_not(name: str) -> None:
    low, high, sentence = RANGES[name]
    kind = FIELD_TYPES[name]
    assert getattr(with_flag(name, kind(low)), name) == low
    assert getattr(with_flag(name, kind(high)), name) == high
    step = 1 if kind is int else 1e-9
    for beyond in (kind(low) - step, kind(high) * 2 + step):
        with pytest.raises(ValueError, match=name) as caught:
            with_flag(name, beyond)
        assert sentence in str(caught.value)


@pytest.mark.parametrize("name", [n for n, kind in FIELD_TYPES.items() if kind is float])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
def test_what_is_no_number_that_can_be_reckoned_with_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
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


def test_off_is_plain_fusion() -> None:
    off = RetrievalProfile.off()
    assert (off.graph_weight, off.importance_prior, off.exact_match_bonus) == (0.0, 0.0, 0.0)
    assert (off.scorer, off.reranker, off.wing_diversity_weight) == ("fusion", "", 0.0)
    switches = [n for n in FIELD_NAMES if n.endswith("_enabled")]
    assert len(switches) == 10
    assert not any(getattr(off, name) for name in switches)
    assert [n for n in FIELD_NAMES if getattr(off, n) is True] == []


def test_off_says_everything_that_it_needs() -> None:
    """So that it undoes whatever a layer below has switched on."""
    switches = {
        name for name in FIELD_NAMES if name.endswith("_enabled") or FIELD_TYPES[name] is bool
    }
    assert switches <= OFF.keys()


def test_the_groups_hold_every_flag_once_in_order() -> None:
    assert tuple(name for names in GROUPS.values() for name in names) == FIELD_NAMES


REFERENCE: dict[str, Any] = {
    # phases 1 to 9: research notes on MemPalace, section 1, as configuration makes them effective
    "ltp_enabled": True,
    "half_life_days": 90.0,
    "tagging_enabled": True,
    "association_enabled": False,
    "mmr_enabled": False,
    "mmr_lambda": 0.7,
    "pinned_memory_enabled": False,
    "query_expansion_enabled": False,
    "supersede_filter_enabled": False,
    "supersede_action": "filter",
    # phases 10 to 14: RFC 914
    "model_guard": True,
    "model_guard_strict": False,
    "wing_diversity_weight": 0.3,
    "candidate_pool_multiplier": 1,
    "explain": False,
    "candidate_trace": False,
    "adaptive_compaction": False,
    "compaction_threshold": 0.3,
    "compaction_age_days": 30,
    "decay_enabled": False,
    "decay_lambda": 0.01,
    # libravdb 1.3.12
    "quality_penalty": 0.5,
    "coarse_depth": 16,
    "coarse_threshold": 0.2,
}


def test_the_constants_of_the_phases_are_those_of_the_references() -> None:
    assert (phases.TAGGING_WINDOW_HOURS, phases.TAGGING_MAX_BOOST) == (24.0, 1.5)
    assert (phases.ASSOCIATION_COEFFICIENT, phases.ASSOCIATION_MAX_BOOST) == (0.15, 1.5)
    assert (phases.MOST_PINNED, phases.MOST_PINNED_TOKENS) == (5, 2000)
    assert (phases.LEAST_MULTIPLIER, phases.NEW_HOURS) == (1.5, 48.0)
    assert (phases.MAX_TERMS, phases.LEAST_QUERY_SIMILARITY) == (3, 0.65)
    assert (phases.EXPANSION_BOOST, phases.LOOKBACK_DAYS) == (0.7, 60)
    assert (LEAST_SIMILARITY, LEAST_DAYS, selection.MOST_STALE) == (0.86, 7, 10)
    assert (LTP_MAX_BOOST, LTP_WINDOW_DAYS, BATCH_ROWS) == (2.0, 30, 5000)
    assert (phases.MIXTURE, phases.DECAYS_PER_S) == ((0.7, 0.2, 0.1), (1e-4, 1e-5, 2e-6))
    assert (phases.AUTHORITY, phases.AUTHORITY_DECAY_PER_S) == ((0.5, 0.2, 0.3), 1e-5)
    assert phases.KEYWORD_GAIN == 0.3


SWITCHED_OFF = ("ltp_enabled", "tagging_enabled")
"""On in the reference; here only in the profile "synapse"."""


def test_the_defaults_are_those_of_the_references_but_for_two_switches() -> None:
    built_in = RetrievalProfile().to_json()
    expected = {**REFERENCE, **dict.fromkeys(SWITCHED_OFF, False)}
    assert {name: built_in[name] for name in REFERENCE} == expected


def test_synapse_is_the_reference() -> None:
    values = resolve("synapse", Layers()).profile.to_json()
    expected = {**REFERENCE, "time_decay_enabled": True, "decay_floor": 0.0}
    assert {name: values[name] for name in expected} == expected


def test_where_noctuary_departs_from_the_references() -> None:
    """Each of these has its reason in docs/decisions/0007."""
    built_in = RetrievalProfile()
    assert built_in.max_scan_depth == 0
    assert not built_in.time_decay_enabled
    assert not built_in.ltp_enabled
    assert not built_in.tagging_enabled
    assert built_in.decay_floor == 0.9
    assert built_in.authority_floor == 0.5
    assert not built_in.consolidation_enabled
