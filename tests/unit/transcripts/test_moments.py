from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.sources.transcripts import MAX_SKEW_US, parse_moment, place_after

NINE_US = 1_793_610_000_000_000


@pytest.mark.parametrize(
    ("stamp", "at_us"),
    [
        ("2026-11-02T09:00:00Z", NINE_US),
        ("2026-11-02T09:00:00.000Z", NINE_US),
        ("2026-11-02T10:00:00+01:00", NINE_US),
        ("2026-11-02T09:00:00", NINE_US),
        ("1969-12-31T23:00:00Z", None),
        ("1970-01-01T00:30:00+01:00", None),
        ("2300-01-01T00:00:00Z", None),
        ("9999-12-31T23:59:59-12:00", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("yesterday", None),
        ("", None),
        (1_793_610_000, None),
        (None, None),
    ],
)
def test_stamps_are_read_or_are_none(stamp: object, at_us: int | None) -> None:
    assert parse_moment(stamp) == at_us


@given(st.text(max_size=45))
def test_any_text_is_a_moment_or_none(stamp: str) -> None:
    found = parse_moment(stamp)
    assert found is None or 0 <= found < 7_289_654_400_000_000


moments = st.one_of(st.none(), st.integers(0, 4 * MAX_SKEW_US))


@given(st.lists(moments, max_size=12))
def test_turns_of_one_clock_sort_as_they_lie(stamps: list[int | None]) -> None:
    last: int | None = None
    for stamp in stamps:
        at = place_after(stamp, last)
        if last is not None:
            assert at is not None
            if stamp is None or stamp >= last - MAX_SKEW_US:
                assert at > last
            else:
                assert at == stamp, "a clock that was set back far is believed"
        if stamp is not None and at is not None:
            assert at >= stamp
        last = at


def test_a_stamp_is_kept_where_it_fits() -> None:
    assert place_after(NINE_US, None) == NINE_US
    assert place_after(NINE_US + 5, NINE_US) == NINE_US + 5
    assert place_after(NINE_US, NINE_US) == NINE_US + 1
    assert place_after(None, NINE_US) == NINE_US + 1
    assert place_after(None, None) is None
