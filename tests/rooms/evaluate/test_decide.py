from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.evaluate.decide import (
    CHALLENGERS,
    MIN_HALF,
    SERVED,
    challenge,
    decide,
    selection_half,
)
from noctuary.evaluate.metrics import Scores
from noctuary.evaluate.statistics import Resampling
from noctuary.recall.profile import RetrievalProfile

METRIC = "ndcg@10"
QUICK = Resampling(draws=500)
SIMULATIONS = 100


def scores(values: NDArray[np.float64], name: str = "served", prefix: str = "q") -> Scores:
    n = len(values)
    ids = tuple(f"{prefix}{i}" for i in range(n))
    return Scores(name, (METRIC,), ids, ("all",) * n, values.astype(np.float64)[:, None])


def noisy(rng: np.random.Generator, base: NDArray[np.float64], gain: float) -> NDArray[np.float64]:
    return base + gain + rng.normal(0.0, 0.25, base.size)


def uniform(n: int, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(0.2, 0.7, n)


def real_gain(n: int = 400, seed: int = 1) -> tuple[Scores, dict[str, Scores]]:
    rng, base = np.random.default_rng(seed), uniform(n, seed)
    gains = {"flat": 0.0, "small": 0.02, "good": 0.1, "worse": -0.1}
    return scores(base), {name: scores(noisy(rng, base, g), name) for name, g in gains.items()}


def test_discrete_noise_is_adopted_in_at_most_one_night_of_twenty() -> None:
    # Hits or misses that differ on a few queries only, as neighbouring weights do in practice.
    adopted = 0
    for seed in range(SIMULATIONS):
        rng = np.random.default_rng(seed)
        base = rng.integers(0, 2, 60).astype(np.float64)
        arms = {
            f"c{i}": scores(np.where(rng.random(60) < 0.15, 1.0 - base, base)) for i in range(6)
        }
        arms = {name: replace(arm, values=_swapped(rng, base, arm)) for name, arm in arms.items()}
        adopted += decide(scores(base), arms, {}, QUICK).adopted is not None
    assert adopted <= SIMULATIONS * 0.05


def _swapped(
    rng: np.random.Generator, base: NDArray[np.float64], arm: Scores
) -> NDArray[np.float64]:
    """Return base plus differences whose signs are coin flips, the null of a paired test."""
    size = np.abs(arm.values[:, 0] - base)
    return (base + size * rng.choice([-1.0, 1.0], base.size))[:, None]


def test_a_challenger_without_a_gain_is_rarely_adopted_beside_losers() -> None:
    # The null holds for one challenger, and the others are so bad that it is always chosen.
    adopted = 0
    for seed in range(SIMULATIONS):
        rng, base = np.random.default_rng(seed), uniform(80, seed)
        arms = {"same": scores(noisy(rng, base, 0.0)), "bad": scores(noisy(rng, base, -0.3))}
        adopted += decide(scores(base), arms, {}, QUICK).adopted is not None
    assert adopted <= SIMULATIONS * 0.05


def test_a_real_gain_of_a_tenth_is_adopted_with_400_queries() -> None:
    for seed in range(20):
        default, arms = real_gain(seed=seed)
        decision = decide(default, arms, {}, QUICK)
        assert decision.adopted == "good", decision.reason


def test_the_gain_that_is_reported_is_of_the_confirming_half() -> None:
    default, arms = real_gain()
    decision = decide(default, arms, {}, QUICK)
    confirming = ~selection_half(default.query_ids)
    difference = arms["good"].values[:, 0] - default.values[:, 0]
    (good,) = (one for one in decision.tested if one.name == "good")
    assert good.confirmation is not None
    assert good.confirmation.n == 200
    assert good.confirmation.mean == pytest.approx(difference[confirming].mean())
    assert good.selection_gain == pytest.approx(difference[~confirming].mean())
    assert good.difference.mean == pytest.approx(difference.mean())
    assert f"{difference[confirming].mean():+.3f}" in decision.reason
    raw = json.loads(json.dumps(decision.to_json(), allow_nan=False))
    assert (raw["adopted"], raw["n"]) == ("good", 400)
    assert [one["name"] for one in raw["tested"]] == list(arms)
    assert raw["tested"][2]["confirmation"]["n"] == 200
    assert raw["tested"][0]["confirmation"] is None


def test_holm_across_challengers_can_reject_what_two_halves_accept() -> None:
    n, size = 200, 0.1
    base = uniform(n)
    selecting = selection_half(scores(base).query_ids)
    shift = np.zeros(n)
    # 13 wins against 8 losses where it is chosen, 17 wins against 5 losses where it is confirmed.
    shift[np.flatnonzero(selecting)[:21]] = size * np.array([1.0] * 13 + [-1.0] * 8)
    shift[np.flatnonzero(~selecting)[:22]] = size * np.array([1.0] * 17 + [-1.0] * 5)
    winner = scores(base + shift)
    losers = {f"c{i}": scores(base - 1e-3 * i) for i in range(1, 9)}
    alone = decide(scores(base), {"winner": winner}, {}, QUICK)
    crowded = decide(scores(base), {"winner": winner, **_jittered(base, losers)}, {}, QUICK)
    assert crowded.tested[0].confirmation is not None
    assert crowded.tested[0].confirmation.significant
    assert crowded.adopted is None
    assert "after Holm across 9 challengers" in crowded.reason
    assert alone.adopted == "winner", alone.reason


def _jittered(base: NDArray[np.float64], arms: dict[str, Scores]) -> dict[str, Scores]:
    """Return arms that lose a little on the choosing half and nothing overall."""
    selecting = selection_half(scores(base).query_ids)
    shift = np.where(selecting, -0.05, 0.05)
    return {name: scores(base + shift, name) for name in arms}


def test_a_guard_vetoes_what_loses_on_it_and_the_next_best_is_chosen() -> None:
    default, arms = real_gain()
    arms["second"] = scores(arms["good"].values[:, 0] - 0.03, "second")
    before = uniform(60, 5)
    rng = np.random.default_rng(7)
    on_guard = {name: scores(noisy(rng, before, 0.0), prefix="g") for name in arms}
    on_guard["good"] = scores(noisy(rng, before, -0.4), prefix="g")
    guards = {"exact": {SERVED: scores(before, prefix="g"), **on_guard}}
    decision = decide(default, arms, guards, QUICK)
    assert decision.adopted == "second"
    (good,) = (one for one in decision.tested if one.name == "good")
    assert "it loses on the exact queries (-0.390 [" in good.vetoes[0]
    only = decide(default, {"good": arms["good"]}, guards, QUICK)
    assert only.adopted is None
    assert "every challenger that gains is vetoed" in only.reason


def test_a_guard_never_adopts() -> None:
    base, on_guard = uniform(200), uniform(60, 3)
    rng = np.random.default_rng(2)
    arm = scores(noisy(rng, base, -0.01), "lexical")
    better = scores(on_guard + 0.3 + rng.normal(0, 0.01, 60), prefix="g")
    guards = {"exact": {SERVED: scores(on_guard, prefix="g"), "lexical": better}}
    assert decide(scores(base), {"lexical": arm}, guards, QUICK).adopted is None


BASE = uniform(200)
SHIFT = np.where(selection_half(scores(BASE).query_ids), 0.2, -0.001)
LUCKY = BASE + SHIFT + np.linspace(-0.01, 0.01, 200)


@pytest.mark.parametrize(
    ("default", "arms", "guards", "reasons"),
    [
        (None, {}, {}, ["0 queries can decide"]),
        (scores(uniform(60)), {}, {}, ["no challenger"]),
        (
            scores(uniform(100)),
            {"same": scores(uniform(100)), "worse": scores(uniform(100) - 0.1)},
            {},
            ["none of 2 challengers gains", "same with ndcg@10 +0.000"],
        ),
        (
            scores(BASE),
            {"lucky": scores(LUCKY)},
            {},
            ["lucky was best on the queries that choose (+0.199)", "not proven on the others"],
        ),
        (
            scores(BASE),
            {"good": scores(BASE + 0.1)},
            {"exact": {SERVED: scores(uniform(30), prefix="g")}},
            ["not measured on the exact queries"],
        ),
    ],
    ids=["no-query", "no-challenger", "no-gain", "lucky-half", "guard-did-not-measure"],
)
def test_without_a_proven_gain_the_configuration_stays_and_the_reason_is_said(
    default: Scores | None,
    arms: dict[str, Scores],
    guards: dict[str, dict[str, Scores]],
    reasons: list[str],
) -> None:
    decision = decide(default, arms, guards, QUICK)
    assert decision.adopted is None
    assert all(reason in decision.reason for reason in reasons), decision.reason


def test_scores_of_other_queries_are_refused() -> None:
    base = uniform(60)
    with pytest.raises(ValueError, match="same queries"):
        decide(scores(base), {"other": scores(base, prefix="x")}, {}, QUICK)
    with pytest.raises(ValueError, match="lack 'recall@10'"):
        decide(scores(base), {"same": scores(base)}, {}, QUICK, metric="recall@10")


@pytest.mark.parametrize("n", [0, 1, 2 * MIN_HALF - 1])
def test_too_few_queries_keep_the_configuration_and_say_how_many_are_needed(n: int) -> None:
    base = uniform(max(n, 1))[:n]
    decision = decide(scores(base), {"good": scores(base + 0.3)}, {}, QUICK)
    assert decision.adopted is None
    assert decision.tested == ()
    assert decision.n == n
    assert f"{n} queries can decide and 50 are needed" in decision.reason


def test_the_same_scores_give_the_same_decision_in_any_order_of_the_queries() -> None:
    default, arms = real_gain()
    order = np.random.default_rng(4).permutation(400)
    shuffled = {name: reordered(arm, order) for name, arm in arms.items()}
    first, again = decide(default, arms, {}, QUICK), decide(default, arms, {}, QUICK)
    turned = decide(reordered(default, order), shuffled, {}, QUICK)
    assert first == again
    assert turned.adopted == first.adopted
    gains = [one.selection_gain for one in first.tested]
    assert [one.selection_gain for one in turned.tested] == pytest.approx(gains)


def reordered(arm: Scores, order: NDArray[np.int64]) -> Scores:
    ids = tuple(arm.query_ids[i] for i in order)
    return replace(arm, query_ids=ids, values=arm.values[order])


@given(st.lists(st.text(min_size=1, max_size=8), unique=True, max_size=60), st.data())
@settings(max_examples=60)
def test_halves_are_even_and_a_new_query_moves_at_most_one_other(
    ids: list[str], data: st.DataObject
) -> None:
    half = selection_half(ids)
    assert int(half.sum()) == len(ids) // 2
    order = data.draw(st.permutations(range(len(ids))))
    assert selection_half([ids[i] for i in order]).tolist() == [half[i] for i in order]
    grown = selection_half([*ids, "a new query with a long id"])
    assert int(np.count_nonzero(grown[:-1] != half)) <= 1


def test_the_grid_holds_what_recall_can_do() -> None:
    served = RetrievalProfile()
    for name in CHALLENGERS:
        changed = challenge(name, served)
        assert changed, name
        served.replaced(**changed)
    assert {"graph_0", "sessions_0"} <= CHALLENGERS.keys()  # a night can switch either off
