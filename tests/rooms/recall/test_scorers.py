"""The scorers of libravdb against the reference's own figures."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from noctuary.core.types import UNDATED_US
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.scorers import (
    AUTHORITY,
    MIXTURE,
    SCOPE_GLOBAL,
    SCOPE_SESSION,
    SCOPE_USER,
    authority,
    keyword_coverage,
    quality,
    scope_codes,
    score_hybrid,
    score_two_pass,
)
from noctuary.text.tokens import tokenize
from tests.support.lookups import DAY_US, HOUR_US, NOW_US
from tests.support.store import memory, new_store, renumber

MEMORIES = [
    "The billing API fails on refunds",
    "Refunds are paid on Fridays",
    "周末去杭州西湖散步",
    "Встреча с врачом в четверг",
    "",
]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> SnapshotReader:
    store = new_store(tmp_path_factory.mktemp("coverage"))
    store.publish(renumber([memory(text, category="") for text in MEMORIES]))
    return Recaller.open(store.root).reader


@pytest.mark.parametrize(
    ("query", "positions", "shares"),
    [
        ("why do the refunds of billing fail", [0, 1, 2, 4], [1.0, 1 / 3, 0.0, 0.0]),
        ("refund Friday", [1, 4, 0], [1.0, 0.0, 0.5]),
        ("refunds refunds refunds Friday", [0], [0.5]),
        ("西湖", [0, 1, 2, 3, 4], [0.0, 0.0, 1.0, 0.0, 0.0]),
        ("врачом", [0, 1, 2, 3, 4], [0.0, 0.0, 0.0, 1.0, 0.0]),
        *((nothing, [0, 1], [0.0, 0.0]) for nothing in ("", "?!", "zzzz")),
    ],
)
def test_coverage_is_the_share_of_the_querys_content_words(
    reader: SnapshotReader, query: str, positions: list[int], shares: list[float]
) -> None:
    found = keyword_coverage(reader, tokenize(query), np.array(positions, dtype=np.int64))
    assert found.tolist() == pytest.approx(shares)


GOLDEN = Path(__file__).parents[2] / "golden"
CODES = {"session": SCOPE_SESSION, "user": SCOPE_USER, "global": SCOPE_GLOBAL}


def golden_rows(name: str) -> list[dict[str, str]]:
    with (GOLDEN / f"{name}.tsv").open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


def one(
    cosine: float, age_s: float, scope: int, mixture: tuple[float, float, float] = MIXTURE
) -> float:
    created = np.array([NOW_US - round(age_s * 1e6)])
    return float(score_hybrid(np.array([cosine]), created, NOW_US, np.array([scope]), mixture)[0])


RECENCY_ONLY, SCOPE_ONLY = (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)


@pytest.mark.parametrize("row", golden_rows("recency_half_lives"), ids=lambda row: row["scope"])
def test_half_lives_and_scope_weights_are_the_references(row: dict[str, str]) -> None:
    code = CODES[row["scope"]]
    half_life_s = float(row["half_life_h"]) * 3600
    assert math.log(2) / float(row["rate_per_s"]) == pytest.approx(half_life_s, rel=3e-3)
    assert one(1.0, half_life_s, code, RECENCY_ONLY) == pytest.approx(0.5, abs=1.5e-3)
    assert one(1.0, 1e12, code, SCOPE_ONLY) == pytest.approx(float(row["scope_weight"]))


def test_quality_in_closed_form() -> None:
    confidences = np.array([1.0, 0.8, 0.0, math.nan, 7.0])
    assert quality(confidences, 0.5).tolist() == pytest.approx([1.0, 0.9, 0.5, 0.5, 1.0])
    # A summary of confidence 0.6 keeps 1 - 0.5 * 0.4.
    assert quality(np.array([0.6]), 0.5).tolist() == pytest.approx([0.8])
    assert quality(confidences, 0.0).tolist() == [1.0] * 5


@pytest.mark.parametrize(
    ("owners", "asking", "expected"),
    [([4, -1, 9, -1, 4], 4, [1, 2, 2, 0, 0]), ([4, -1, 9, -1, 4], None, [2, 2, 2, 0, 0]),
     ([-1] * 5, None, [1, 1, 1, 0, 0])],
)  # fmt: skip
def test_a_store_without_owners_is_all_the_users(
    owners: list[int], asking: int | None, expected: list[int]
) -> None:
    in_session = np.array([False, False, False, True, True])
    codes = np.array(owners, dtype=np.int32)
    found = scope_codes(in_session, codes, asking, has_owners=max(owners) >= 0)
    assert found.tolist() == expected


def test_the_conversation_and_the_recent_come_first_and_undated_counts_as_new() -> None:
    ages_us = np.array([100 * HOUR_US, HOUR_US, 0, 0, -HOUR_US])
    created = np.array([*(NOW_US - ages_us).tolist(), UNDATED_US])
    scopes = np.array([SCOPE_USER] * 2 + [SCOPE_SESSION, SCOPE_GLOBAL] + [SCOPE_USER] * 2)
    scores = score_hybrid(np.full(6, 0.5), created, NOW_US, scopes)
    recencies = [math.exp(-1e-5 * 360_000), math.exp(-1e-5 * 3600), 1.0, 1.0, 1.0, 1.0]
    weights = [0.6, 0.6, 1.0, 0.3, 0.6, 0.6]
    assert scores.tolist() == pytest.approx(
        [0.35 + 0.2 * r + 0.1 * s for r, s in zip(recencies, weights, strict=True)]
    )
    for cosine in (-0.7, math.nan, math.inf, -math.inf):
        assert one(cosine, 50.0, SCOPE_USER) == one(0.0, 50.0, SCOPE_USER)


REFERENCE = RetrievalProfile().replaced(scorer="two_pass", authority_floor=0.0)
WEEK_S = 7 * 86_400.0
AUTHORED_ONLY = (0.0, 0.0, 1.0)  # authority is what is passed as authored


def second_pass(
    cosines: list[float], omegas: list[float], coverage: list[float], kappa: float, floor: float
) -> list[float]:
    """Return the scores by row; the first pass lets everything through."""
    none = np.zeros(len(cosines), dtype=np.int64)
    profile = REFERENCE.replaced(coarse_threshold=-1.0, authority_floor=floor)
    rows, scores = score_two_pass(
        np.array(cosines), none, NOW_US, none, 0, np.array(omegas), np.array(coverage), profile, 10,
        AUTHORED_ONLY, kappa,
    )  # fmt: skip
    assert rows.size == len(cosines)
    return scores[np.argsort(rows)].tolist()


@pytest.mark.parametrize(
    "row", golden_rows("two_pass"), ids=lambda row: row["case"].replace(" ", "-")
)
def test_second_pass(row: dict[str, str]) -> None:
    cosine, omega, coverage = (float(row[name]) for name in ("cosine", "omega", "coverage"))
    found = second_pass([cosine], [omega], [coverage], float(row["kappa"]), float(row["floor"]))
    assert found == pytest.approx([float(row["score"])], abs=1e-6)


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
    assert second_pass(alike, omegas, alike, 0.0, 0.5) == [0.5, 0.75, 1.0]
    assert second_pass(alike, omegas, alike, 0.0, 0.0) == [0.0, 0.5, 1.0]
    half = second_pass([0.8, 0.8], [1.0, 1.0], [0.0, 1.0], 0.5, 0.0)
    assert half[1] / half[0] == pytest.approx(1.5), "at kappa 1/2 a keyword is worth half more"


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
    created = np.array([NOW_US - 30 * DAY_US, NOW_US, NOW_US, UNDATED_US])
    cosines, coverage = np.array([0.9, 0.5, 0.1, 0.5]), np.array([0.0, 0.0, 1.0, 1.0])
    used = np.array([0, 0, 9, 0])
    rows, scores = score_two_pass(
        cosines, created, NOW_US, used, 9, np.zeros(4), coverage, profile, k
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
