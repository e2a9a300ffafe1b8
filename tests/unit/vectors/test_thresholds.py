from __future__ import annotations

import numpy as np
import pytest

from noctuary.embed import rotation as thresholds
from noctuary.embed.rotation import (
    DERIVED,
    MIN_EXITS,
    REFERENCE,
    TARGET_PRECISION,
    UNREACHED,
    choose_threshold,
    derive_thresholds,
    fit,
    identity,
)
from tests.support.vectors import topical_vectors

FULL = topical_vectors(1_500, 96)
ROTATION = fit(FULL, "e")


def test_a_tier_that_is_always_right_may_always_leave() -> None:
    found = choose_threshold(256, np.linspace(0.3, 0.9, 100, dtype=np.float32), np.full(100, True))
    assert (found.origin, found.precision, found.exits) == (DERIVED, 1.0, 1.0)
    assert found.exit_at == pytest.approx(0.3)
    assert found.auroc is None, "there is nothing to tell apart"


def test_a_tier_that_is_seldom_right_may_never_leave() -> None:
    right = np.arange(100) % 2 == 0
    found = choose_threshold(64, np.linspace(0.3, 0.9, 100, dtype=np.float32), right)
    assert (found.origin, found.exit_at, found.precision, found.exits) == (
        UNREACHED, None, None, 0.0,
    )  # fmt: skip
    assert found.auroc == pytest.approx(0.5, abs=0.02)
    assert found.reference_precision == pytest.approx(0.5, abs=0.02)


def test_the_threshold_is_where_enough_answers_are_still_right() -> None:
    """200 queries by falling cosine; the first 100 right, then every second one."""
    best = np.linspace(1.0, 0.0, 200, dtype=np.float32)
    right = np.array([i < 100 or i % 2 == 0 for i in range(200)])
    found = choose_threshold(64, best, right)
    leaving = best >= (found.exit_at or 0.0)
    # 106 right of 111 is .955; one more to leave, right or not, is below .95 for good.
    assert int(leaving.sum()) == 111
    assert found.precision == pytest.approx(106 / 111, abs=1e-4)
    assert found.exits == pytest.approx(leaving.mean())
    assert found.auroc is not None
    assert found.auroc > 0.7


def test_few_exits_say_nothing() -> None:
    best = np.linspace(1.0, 0.0, 200, dtype=np.float32)
    right = np.arange(200) < MIN_EXITS - 5
    assert choose_threshold(64, best, right).origin == UNREACHED
    right = np.arange(200) < MIN_EXITS
    assert choose_threshold(64, best, right).origin == DERIVED


def test_equal_cosines_leave_together() -> None:
    best = np.full(100, 0.8, dtype=np.float32)
    right = np.arange(100) < 50
    assert choose_threshold(64, best, right).exit_at is None


def test_a_long_prefix_is_right_more_often_than_a_short_one() -> None:
    found = derive_thresholds(FULL, ROTATION, (8, 92, 96, 200))
    assert list(found) == [8, 92]
    assert found[8].origin == UNREACHED
    assert found[92].origin == DERIVED
    assert (found[92].precision or 0.0) >= TARGET_PRECISION
    assert found[92].queries == 375


def test_the_query_itself_is_held_out() -> None:
    """Otherwise the best cosine would be 1 for every query and tell nothing."""
    found = derive_thresholds(FULL, ROTATION, (92,))[92]
    assert found.exit_at is not None
    assert found.exit_at < 0.95


def test_what_is_right_follows_a_naive_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "SAMPLE_QUERIES", 40)
    monkeypatch.setattr(thresholds, "MIN_EXITS", 1)
    monkeypatch.setattr(thresholds, "TARGET_PRECISION", 0.0)
    found = derive_thresholds(FULL, ROTATION, (32,))[32]
    right: list[bool] = []
    for place in range(0, 1_500, 38):
        cosines = FULL @ FULL[place]
        rotated = FULL @ ROTATION.matrix[:, :32]
        short = rotated / np.linalg.norm(rotated, axis=1, keepdims=True)
        prefixes = short @ short[place]
        cosines[place] = prefixes[place] = -2
        true, ours = (set(np.argsort(-values)[:10].tolist()) for values in (cosines, prefixes))
        right.append(len(true & ours) >= 9)
    assert found.queries == len(right) == 40
    assert found.precision == pytest.approx(np.mean(right), abs=1e-4)


@pytest.mark.parametrize("case", ["few rows", "no rotation"])
def test_where_nothing_can_be_derived_the_references_values_stand(case: str) -> None:
    rows = topical_vectors(99 if case == "few rows" else 500, 384)
    rotation = fit(rows, "e") if case == "few rows" else identity(384, "e", "too few")
    found = derive_thresholds(rows, rotation, (64, 128, 256))
    assert {dim: t.exit_at for dim, t in found.items()} == {64: 0.65, 128: None, 256: 0.75}
    assert {t.origin for t in found.values()} == {REFERENCE}


def test_a_large_corpus_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "CORPUS_ROWS", 300)
    found = derive_thresholds(FULL, ROTATION, (92,))[92]
    assert found.queries == 300


def test_facts_are_plain_and_the_same_every_time() -> None:
    first, second = (derive_thresholds(FULL, ROTATION, (8, 64))[64].to_json() for _ in range(2))
    assert first == second
    assert set(first) == {
        "exit_at", "origin", "precision", "exits", "auroc", "reference_precision", "queries",
    }  # fmt: skip
