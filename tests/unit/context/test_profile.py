from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from noctuary.context.prompt import PROFILES, ContextProfile, profile_named
from noctuary.recall.profile import RetrievalProfile

REFERENCE = {
    "coarse_depth": 16, "coarse_threshold": 0.2, "final_depth": 8, "hop_decay": 0.5,
    "hop_threshold": 0.15, "authority_floor": 0.0, "hard_fraction": 0.0, "soft_fraction": 0.3,
    "tail_target_tokens": 128, "min_tail_turns": 4,
}  # fmt: skip


def test_the_reference_has_libravdbs_own_defaults() -> None:
    assert asdict(PROFILES["reference"]) == {"name": "reference", **REFERENCE}


def test_the_default_differs_from_it_in_the_floor_that_recall_has() -> None:
    floor = RetrievalProfile().authority_floor
    assert asdict(PROFILES["default"]) == {
        "name": "default", **REFERENCE, "authority_floor": floor
    }  # fmt: skip
    assert floor > 0


def test_memories_are_ranked_by_the_same_constants_and_nothing_else() -> None:
    profile = ContextProfile(coarse_depth=9, coarse_threshold=0.4, authority_floor=0.25)
    flags = profile.retrieval()
    own = set(asdict(profile)) & set(flags.to_json())
    assert own == {"coarse_depth", "coarse_threshold", "authority_floor"}
    assert all(getattr(flags, name) == getattr(profile, name) for name in own)
    assert flags.scorer == "two_pass"
    assert flags.model_guard
    off = RetrievalProfile.off().to_json()
    changed = {name for name, value in flags.to_json().items() if value != off[name]}
    assert changed == own | {"scorer", "model_guard"}


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"coarse_depth": 0}, ["coarse_depth"]),
        ({"coarse_depth": True}, ["coarse_depth"]),
        ({"final_depth": 17}, ["final_depth", "coarse_depth"]),
        ({"hop_decay": 1.0}, ["hop_decay"]),
        ({"hop_decay": 0.0}, ["hop_decay"]),
        ({"hop_threshold": 1.1}, ["hop_threshold"]),
        ({"authority_floor": float("inf")}, ["authority_floor"]),
        ({"authority_floor": float("nan")}, ["authority_floor"]),
        ({"coarse_threshold": -1.5}, ["coarse_threshold"]),
        ({"hard_fraction": 0.6, "soft_fraction": 0.5}, ["hard_fraction", "soft_fraction"]),
        ({"min_tail_turns": -1, "tail_target_tokens": 1.5}, ["min_tail_turns", "tail_target"]),
        ({"authority_floor": "0.5"}, ["authority_floor"]),
    ],
)
def test_what_cannot_be_is_refused_with_every_fault(
    values: dict[str, Any], names: list[str]
) -> None:
    with pytest.raises(ValueError, match=names[0]) as caught:
        ContextProfile(**values)
    assert all(name in str(caught.value) for name in names)


def test_a_profile_is_found_by_its_name_or_is_itself() -> None:
    own = ContextProfile(name="own", min_tail_turns=2)
    assert profile_named(own) is own
    assert profile_named("reference").authority_floor == 0.0
    with pytest.raises(ValueError, match=r"default, reference .* found 'other'"):
        profile_named("other")
