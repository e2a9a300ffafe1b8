from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US
from noctuary.recall.phases import AUTHORITY, authority, score_two_pass
from noctuary.recall.profile import RetrievalProfile
from tests.support.lookups import DAY_US, NOW_US

GOLDEN = Path(__file__).parents[3] / "golden" / "two_pass.tsv"
REFERENCE = RetrievalProfile().replaced(scorer="two_pass", authority_floor=0.0)
WEEK_S = 7 * 86_400.0


def golden_rows() -> list[dict[str, str]]:
    with GOLDEN.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


AUTHORED_ONLY = (0.0, 0.0, 1.0)  # authority is what is passed as authored


def second_pass(
    cosines: list[float], omegas: list[float], coverage: list[float], kappa: float, floor: float
) -> NDArray[np.float64]:
    """Return the scores by row."""
    none = np.zeros(len(cosines), dtype=np.int64)
    # The first pass lets everything through.
    profile = REFERENCE.replaced(coarse_threshold=-1.0, authority_floor=floor)
    rows, scores = score_two_pass(
        np.array(cosines), none, NOW_US, none, 0, np.array(omegas), np.array(coverage), profile, 10,
        AUTHORED_ONLY, kappa,
    )  # fmt: skip
    assert rows.size == len(cosines)
    return scores[np.argsort(rows)]


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["case"])
def test_second_pass(row: dict[str, str]) -> None:
    cosine, omega, coverage = (float(row[name]) for name in ("cosine", "omega", "coverage"))
    found = second_pass([cosine], [omega], [coverage], float(row["kappa"]), float(row["floor"]))
    assert found.tolist() == pytest.approx([float(row["score"])], abs=1e-6)


def test_at_kappa_one_half_every_keyword_is_worth_half_as_much_again() -> None:
    half = second_pass([0.8, 0.8], [1.0, 1.0], [0.0, 1.0], 0.5, 0.0)
    assert half[1] / half[0] == pytest.approx(1.5)


def omega_of(
    age_s: float,
    accesses: int = 0,
    most: int = 0,
    authored: float = 0.0,
    weights: tuple[float, float, float] = AUTHORITY,
) -> float:
    found = authority(np.array([age_s]), np.array([accesses]), most, np.array([authored]), weights)
    return float(found[0])


def test_after_a_week_the_reference_leaves_nothing() -> None:
    assert omega_of(WEEK_S) == pytest.approx(0.0012, abs=5e-5)
    # Half its weight every 19 hours, and never more than 0.7 without an author.
    assert omega_of(69_315.0) == pytest.approx(0.25, abs=1e-5)
    assert omega_of(0.0, accesses=10**6, most=10**6) == pytest.approx(0.7, abs=1e-6)
    assert omega_of(WEEK_S, authored=1.0) == pytest.approx(0.3012, abs=5e-5)


def test_the_floor_keeps_half_of_an_old_memory() -> None:
    alike, omegas = [1.0] * 3, [0.0, 0.5, 1.0]
    assert second_pass(alike, omegas, alike, 0.0, 0.5).tolist() == [0.5, 0.75, 1.0]
    assert second_pass(alike, omegas, alike, 0.0, 0.0).tolist() == [0.0, 0.5, 1.0]


def test_frequency_is_zero_without_accesses_and_grows_with_the_logarithm() -> None:
    alone = (0.0, 1.0, 0.0)
    assert [omega_of(WEEK_S, n, 0, weights=alone) for n in (0, 7)] == [0.0, 0.0]
    found = [omega_of(WEEK_S, n, 8, weights=alone) for n in (0, 1, 9, 8)]
    assert found == pytest.approx(
        [0.0, math.log(2) / math.log(10), math.log(9) / math.log(10), math.log(9) / math.log(10)]
    )


@pytest.mark.parametrize(
    ("depth", "threshold", "rows"),
    [
        (10, 0.2, [3, 0, 2]),
        (2, 0.2, [3, 0]),
        (10, -1.0, [3, 0, 2, 4, 5, 1]),
        (10, 0.0, [3, 0, 2, 4, 5]),
        (10, 0.9, []),
    ],
)
def test_first_pass(depth: int, threshold: float, rows: list[int]) -> None:
    cosines = np.array([0.5, -0.5, 0.2, 0.6, math.nan, math.inf])
    profile = REFERENCE.replaced(coarse_depth=depth, coarse_threshold=threshold)
    none, nothing = np.zeros(6, dtype=np.int64), np.zeros(6)
    found, _ = score_two_pass(cosines, none, NOW_US, none, 0, nothing, nothing, profile, 0)
    assert found.tolist() == rows


def ranked(profile: RetrievalProfile, k: int = 10) -> tuple[list[int], list[float]]:
    """Rank a near old memory, a far new one, one below the threshold and one with the words."""
    rows, scores = score_two_pass(
        np.array([0.9, 0.5, 0.1, 0.5]),
        np.array([NOW_US - 30 * DAY_US, NOW_US, NOW_US, UNDATED_US]),
        NOW_US,
        np.array([0, 0, 9, 0]),
        9,
        np.zeros(4),
        np.array([0.0, 0.0, 1.0, 1.0]),
        profile,
        k,
    )
    order = np.argsort(-scores)
    return (rows[order] + 5).tolist(), scores[order].tolist()


def test_the_reference_buries_the_best_match_for_its_age_and_the_floor_brings_it_back() -> None:
    positions, scores = ranked(REFERENCE)
    assert positions == [8, 6, 5]
    assert scores == pytest.approx([0.25, 0.25 / 1.3, 0.0], abs=1e-9)
    positions, scores = ranked(REFERENCE.replaced(authority_floor=0.5))
    assert positions == [8, 5, 6]
    assert scores == pytest.approx([0.375, 0.45 / 1.3, 0.375 / 1.3], abs=1e-9)


def test_the_first_pass_keeps_as_many_as_were_asked_for() -> None:
    narrow = REFERENCE.replaced(coarse_depth=1)
    assert ranked(narrow, k=1)[0] == [5]
    assert len(ranked(narrow, k=3)[0]) == 3


def test_importance_stands_for_the_author() -> None:
    _, scores = score_two_pass(
        np.array([0.5, 0.5]),
        np.full(2, NOW_US - 30 * DAY_US),
        NOW_US,
        np.zeros(2, dtype=np.int64),
        0,
        np.array([0.1, 0.9]),
        np.zeros(2),
        REFERENCE,
        10,
    )
    assert scores[1] > scores[0]


def test_nothing_to_rank() -> None:
    none, numbers = np.empty(0, dtype=np.int64), np.empty(0)
    rows, scores = score_two_pass(numbers, none, NOW_US, none, 0, numbers, numbers, REFERENCE, 10)
    assert (rows.size, scores.size) == (0, 0)
