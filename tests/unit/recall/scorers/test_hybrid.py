from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US
from noctuary.recall.phases import (
    SCOPE_GLOBAL,
    SCOPE_SESSION,
    SCOPE_USER,
    quality,
    scope_codes,
    score_hybrid,
)
from noctuary.recall.profile import RetrievalProfile
from tests.support.lookups import HOUR_US, NOW_US

GOLDEN = Path(__file__).parents[3] / "golden" / "recency_half_lives.tsv"
CODES = {"session": SCOPE_SESSION, "user": SCOPE_USER, "global": SCOPE_GLOBAL}
DEFAULT = RetrievalProfile()


def golden_rows() -> list[dict[str, str]]:
    with GOLDEN.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


def one(cosine: float, age_s: float, scope: int, **changes: Any) -> float:
    scores = score_hybrid(
        np.array([cosine]),
        np.array([NOW_US - round(age_s * 1e6)]),
        NOW_US,
        np.array([scope]),
        DEFAULT.replaced(**changes),
    )
    return float(scores[0])


RECENCY_ONLY = {
    "hybrid_similarity_weight": 0.0,
    "hybrid_recency_weight": 1.0,
    "hybrid_scope_weight": 0.0,
}
SCOPE_ONLY = {
    "hybrid_similarity_weight": 0.0,
    "hybrid_recency_weight": 0.0,
    "hybrid_scope_weight": 1.0,
}


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["scope"])
def test_half_lives_and_scope_weights_are_the_references(row: dict[str, str]) -> None:
    code = CODES[row["scope"]]
    half_life_s = float(row["half_life_h"]) * 3600
    assert math.log(2) / float(row["rate_per_s"]) == pytest.approx(half_life_s, rel=3e-3)
    assert one(1.0, half_life_s, code, **RECENCY_ONLY) == pytest.approx(0.5, abs=1.5e-3)
    assert one(1.0, 1e12, code, **SCOPE_ONLY) == pytest.approx(float(row["scope_weight"]))


def test_the_default_mixture_in_closed_form() -> None:
    recency = math.exp(-1e-5 * 3600)
    expected = 0.7 * 0.8 + 0.2 * recency + 0.1 * 0.6
    assert one(0.8, 3600.0, SCOPE_USER) == pytest.approx(expected)


def test_weights_are_scaled_to_sum_to_one() -> None:
    equal = dict.fromkeys(RECENCY_ONLY, 1.0)
    assert one(0.3, 0.0, SCOPE_USER, **equal) == pytest.approx((0.3 + 1.0 + 0.6) / 3)


def test_weights_that_are_all_zero_are_the_defaults() -> None:
    nothing = dict.fromkeys(RECENCY_ONLY, 0.0)
    assert one(0.3, 50.0, SCOPE_USER, **nothing) == one(0.3, 50.0, SCOPE_USER)


@pytest.mark.parametrize("cosine", [-0.7, math.nan, math.inf, -math.inf])
def test_a_cosine_that_says_nothing_counts_as_none(cosine: float) -> None:
    assert one(cosine, 50.0, SCOPE_USER) == one(0.0, 50.0, SCOPE_USER)


def test_quality_in_closed_form() -> None:
    confidences = np.array([1.0, 0.8, 0.0, math.nan])
    assert quality(confidences, 0.5).tolist() == pytest.approx([1.0, 0.9, 0.5, 0.5])
    # A summary of confidence 0.6 keeps 1 - 0.5 * 0.4.
    assert quality(np.array([0.6]), 0.5).tolist() == pytest.approx([0.8])
    assert quality(confidences, 0.0).tolist() == [1.0] * 4


def codes(
    in_session: list[bool], owners: list[int], asking: int | None, *, has_owners: bool
) -> list[int]:
    found: NDArray[np.int8] = scope_codes(
        np.array(in_session), np.array(owners, dtype=np.int32), asking, has_owners=has_owners
    )
    return found.tolist()


def test_scopes_of_a_store_with_owners() -> None:
    session, owners = [False, False, False, True, True], [4, -1, 9, -1, 4]
    assert codes(session, owners, 4, has_owners=True) == [1, 2, 2, 0, 0]
    assert codes(session, owners, None, has_owners=True) == [2, 2, 2, 0, 0]


def test_a_store_without_owners_is_all_the_users() -> None:
    assert codes([False, True], [-1, -1], None, has_owners=False) == [1, 0]


def test_the_conversation_and_the_recent_come_first() -> None:
    created = np.array([NOW_US - 100 * HOUR_US, NOW_US - HOUR_US, NOW_US, NOW_US])
    scopes = np.array([SCOPE_USER, SCOPE_USER, SCOPE_SESSION, SCOPE_GLOBAL])
    scores = score_hybrid(np.full(4, 0.5), created, NOW_US, scopes, DEFAULT)
    assert np.argsort(-scores).tolist() == [2, 1, 3, 0]
    recencies = [math.exp(-1e-5 * 360_000), math.exp(-1e-5 * 3600), 1.0, 1.0]
    weights = [0.6, 0.6, 1.0, 0.3]
    assert scores.tolist() == pytest.approx(
        [0.35 + 0.2 * r + 0.1 * s for r, s in zip(recencies, weights, strict=True)]
    )


def test_undated_memories_and_dates_in_the_future_count_as_new() -> None:
    created = np.array([UNDATED_US, NOW_US + HOUR_US, NOW_US])
    scores = score_hybrid(np.full(3, 0.5), created, NOW_US, np.full(3, SCOPE_USER), DEFAULT)
    assert len(set(scores.tolist())) == 1
