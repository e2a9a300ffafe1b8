from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from mnemon.recall.profile import Profile
from mnemon.settings import RecallSettings


def test_the_default_profile_is_what_the_default_settings_say() -> None:
    assert Profile.from_settings(RecallSettings()) == Profile()


def test_every_setting_of_ranking_reaches_the_profile() -> None:
    settings = RecallSettings(
        fusion="rrf",
        lexical_weight=0.1,
        dense_weight=0.2,
        graph_weight=0.4,
        importance_prior=0.8,
    )
    profile = Profile.from_settings(settings)
    assert (profile.fusion, profile.lexical_weight, profile.dense_weight) == ("rrf", 0.1, 0.2)
    assert (profile.graph_weight, profile.importance_prior) == (0.4, 0.8)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Profile(fusion="sum"), "fusion"),
        (lambda: Profile(lexical_weight=-0.1), "lexical_weight"),
        (lambda: Profile(dense_weight=math.nan), "dense_weight"),
        (lambda: Profile(graph_weight=math.inf), "graph_weight"),
        (lambda: Profile(importance_prior=1.1), "importance_prior"),
        (lambda: Profile(importance_prior=-0.1), "importance_prior"),
        (lambda: Profile(importance_prior=math.nan), "importance_prior"),
        (lambda: Profile(rrf_k=0), "rrf_k"),
        (lambda: Profile(depth=0), "depth"),
    ],
)
def test_what_cannot_rank_is_refused_by_name(make: Callable[[], Profile], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make()


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"lexical_weight.*fusion.*importance_prior.*depth"):
        Profile(fusion="x", lexical_weight=-1, importance_prior=2, depth=0)


def test_a_profile_is_plain_values() -> None:
    assert Profile(fusion="rrf").to_json()["fusion"] == "rrf"
    assert Profile(**Profile().to_json()) == Profile()
