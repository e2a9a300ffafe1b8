from __future__ import annotations

from typing import Any

import pytest

from noctuary.recall.profile import SHIPPED, Layers, RetrievalProfile, resolve, table_faults

NAMES = [
    "default",
    "off",
    "seed-hybrid",
    "synapse",
    "compact",
    "libravdb",
    "libravdb-two-pass",
]

PHASES_OFF: dict[str, Any] = {
    name: False
    for name in RetrievalProfile().to_json()
    if name.endswith("_enabled") or name in ("model_guard", "adaptive_compaction")
}

GOLDEN: dict[str, dict[str, Any]] = {
    "seed-hybrid": {
        **PHASES_OFF,
        "fusion": "rrf",
        "rrf_k": 60,
        "depth": 50,
        "lexical_weight": 1.0,
        "dense_weight": 1.0,
        "graph_weight": 0.0,
        "importance_prior": 0.3,
        "exact_match_bonus": 0.0,
        "scorer": "fusion",
    },
    "synapse": {
        "ltp_enabled": True,
        "tagging_enabled": True,
        "time_decay_enabled": True,
        "half_life_days": 90.0,
        "decay_floor": 0.0,
        "association_enabled": False,
        "mmr_enabled": False,
    },
    "libravdb": {
        **PHASES_OFF,
        "scorer": "hybrid",
        "importance_prior": 0.0,
        "graph_weight": 0.0,
        "authority_floor": 0.5,
    },
    "libravdb-two-pass": {
        **PHASES_OFF,
        "scorer": "two_pass",
        "authority_floor": 0.0,
        "coarse_depth": 16,
        "coarse_threshold": 0.2,
    },
}


def test_what_ships() -> None:
    assert list(SHIPPED) == NAMES
    assert all(shipped.description for shipped in SHIPPED.values())
    assert all("\n" not in shipped.description for shipped in SHIPPED.values())


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_profile_is_sound_and_known(name: str) -> None:
    assert table_faults(name, SHIPPED[name].values, Layers()) == []
    found = resolve(name, Layers())
    assert (found.used, found.warnings) == (name, ())


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_shipped_profile_has_the_reference_s_values(name: str) -> None:
    values = resolve(name, Layers()).profile.to_json()
    assert {flag: values[flag] for flag in GOLDEN[name]} == GOLDEN[name]


def test_off_by_name_is_off_in_code() -> None:
    assert resolve("off", Layers()).profile == RetrievalProfile.off()
    assert resolve("default", Layers()).profile == RetrievalProfile()


def test_off_switches_off_what_a_layer_below_has_on() -> None:
    busy: dict[str, Any] = {
        "scorer": "hybrid",
        "reranker": "some-model",
        "mmr_enabled": True,
        "candidate_pool_multiplier": 4,
        "model_guard_strict": True,
        "exact_match_bonus": 0.2,
    }
    assert resolve("default", Layers(config={"default": busy})).profile.reranker == "some-model"
    assert resolve("off", Layers(config={"default": busy})).profile == RetrievalProfile.off()
