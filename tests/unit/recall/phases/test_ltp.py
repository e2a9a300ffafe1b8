from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from noctuary.recall.phases import ltp
from noctuary.recall.profile import RetrievalProfile
from noctuary.usage.reader import ltp_multiplier
from tests.support.lookups import (
    MemoryLookups,
    Stored,
    Used,
    candidates_of,
    context_of,
    scores_of,
)

GOLDEN = Path(__file__).parents[3] / "golden" / "ltp_multiplier.tsv"


def golden_rows() -> list[dict[str, str]]:
    with GOLDEN.open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["retrievals"])
def test_the_multiplier_is_the_references(row: dict[str, str]) -> None:
    found = ltp_multiplier(np.array([int(row["retrievals"])]), 2.0)
    assert found.tolist() == pytest.approx([float(row["multiplier"])], abs=5e-5)


def test_what_was_recalled_often_overtakes_what_was_not() -> None:
    lookups = MemoryLookups([Stored(), Stored()], used={1: Used(recent=27)})
    outcome = ltp(candidates_of((0, 0.5), (1, 0.4)), context_of(lookups))
    assert outcome.candidates.positions.tolist() == [1, 0]
    assert scores_of(outcome.candidates) == pytest.approx({1: 0.79986, 0: 0.5}, abs=1e-5)
    assert outcome.reason_of is not None
    assert outcome.reason_of(1) == "recalls lately: 27 (factor 2.000)"


def test_the_profile_bounds_the_boost() -> None:
    lookups = MemoryLookups([Stored()], used={0: Used(recent=27)})
    profile = RetrievalProfile().replaced(ltp_max_boost=1.25, ltp_window_days=7)
    outcome = ltp(candidates_of((0, 0.4)), context_of(lookups, profile))
    assert scores_of(outcome.candidates) == {0: 0.5}
    assert outcome.reason_of is not None
    assert "recalls lately: 27" in outcome.reason_of(0)


def test_without_usage_nothing_changes() -> None:
    before = candidates_of((0, 0.5), (1, 0.4))
    outcome = ltp(before, context_of(MemoryLookups([Stored(), Stored()])))
    assert outcome.candidates is before
    assert outcome.reason_of is None
