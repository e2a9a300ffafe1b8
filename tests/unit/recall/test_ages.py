from __future__ import annotations

import numpy as np

from noctuary.core.types import UNDATED_US
from noctuary.recall.candidates import ages_s, is_dated
from tests.support.lookups import HOUR_US, NOW_US

CREATED = np.array(
    [NOW_US - HOUR_US, NOW_US, NOW_US + HOUR_US, UNDATED_US, UNDATED_US + 1, 2**63 - 1]
)


def test_ages_are_never_negative_and_the_oldest_date_does_not_overflow() -> None:
    ages = ages_s(CREATED, NOW_US)
    assert ages[:4].tolist() == [3600.0, 0.0, 0.0, 0.0]
    assert ages[4] > 1e12
    assert ages[5] == 0.0


def test_only_the_smallest_number_means_no_date() -> None:
    assert is_dated(CREATED).tolist() == [True, True, True, False, True, True]
