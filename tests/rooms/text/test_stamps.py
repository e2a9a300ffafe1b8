"""Dates as fields say them: one meaning is read, two or none are not."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.text.stamps import read_stamp

DAY, TIME = "2026-11-28", "2026-11-28T14:05:00"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("2026-11-28", DAY), (" 2026/11/28 ", DAY), ("2026.11.28", DAY), ("2026_11_28", DAY),
        ("[[2026-11-28|that day]]", DAY), ("'2026-11-28'", DAY), ("20261128", DAY),
        (20261128, DAY), ("28.11.2026", DAY), ("28. 11. 2026", DAY), ("28/11/2026", DAY),
        ("11/28/2026", DAY), ("28-11-2026", DAY), ("05/05/2026", "2026-05-05"),
        ("Nov 28, 2026", DAY), ("November 28th 2026", DAY), ("28 November 2026", DAY),
        ("28. November 2026", DAY), ("28 novembre 2026", DAY), ("28 de noviembre de 2026", DAY),
        ("4 März 2026", "2026-03-04"), ("2026-Nov-28", DAY), ("28-Nov-2026", DAY),
        ("Sat, 28 Nov 2026", DAY), ("2026-11-28 (Sat)", DAY), ("2026-11-28 Sat", DAY),
        ("2026年11月28日", DAY), ("2026. 11. 28.", DAY),
        ("2026-11-28T14:05:00.000Z", f"{TIME}+00:00"), ("2026-11-28 14:05", TIME),
        ("28.11.2026 14:05", TIME), ("28.11.2026, 14:05 Uhr", None),
        ("November 28, 2026 2:05 PM", TIME), ("Nov 28, 2026 at 12:05 am", "2026-11-28T00:05:00"),
        ("2026/11/28 14:05:00", TIME), ("2026-11-28 14:05:00 +0100", f"{TIME}+01:00"),
        ("Sat, 28 Nov 2026 14:05:00 +0100", f"{TIME}+01:00"),
        ("Sat Nov 28 2026 14:05:00 GMT+0100 (Central European Time)", f"{TIME}+01:00"),
        ("Sat Nov 28 14:05:00 2026", TIME), ("202611281405", TIME), ("20261128140500", TIME),
        ("1795874700", f"{TIME}+00:00"), (1795874700, f"{TIME}+00:00"),
        (1795874700000, f"{TIME}+00:00"), ("1795874700000000", f"{TIME}+00:00"),
        (1795874700.0, f"{TIME}+00:00"),
        # Two meanings, or none.
        ("03/04/2026", None), ("3-4-2026", None), ("28.11.26", None), ("November 2026", None),
        ("2026-11", None), ("2026", None), (2026, None), ("soon", None), ("", None),
        ("31.02.2026", None),
        ("due 2026-11-28", None), ("before 28.11.2026", None), ("2026-11-28 and later", None),
        ("13/13/2026", None), ("Foo 28, 2026", None), ("28.11.2026 25:00", None),
        ("28.11.2026 13:05 pm", None), ("1969-12-31", None), ("2201-01-01", None),
        (True, None), (None, None), (["2026-11-28"], None), (float("nan"), None), (10**30, None),
    ],
)  # fmt: skip
def test_a_date_of_one_meaning_is_read(said: object, expected: str | None) -> None:
    assert read_stamp(said) == expected


@given(st.integers(10**8, 7_000_000_000))
def test_every_epoch_and_iso_time_is_itself(seconds: int) -> None:
    moment = datetime.fromtimestamp(seconds, UTC)
    # As digits of a date, 215705130000 is a day of 2157.
    of_day = re.fullmatch(
        r"(?:19[7-9]|2[01]\d|220)\d(?:0[1-9]|1[0-2])(?:[0-2]\d|3[01])\d{4}", f"{seconds}000"
    )
    for said in (
        moment.isoformat(),
        seconds,
        *([] if of_day else [seconds * 1_000]),
        str(seconds * 10**6),
    ):
        assert datetime.fromisoformat(read_stamp(said) or "") == moment


@given(st.text(max_size=90) | st.text("0123456789./-: TZadegmnovp+()", max_size=40))
@pytest.mark.timeout(30)
def test_any_text_is_a_date_of_the_years_or_none(text: str) -> None:
    found = read_stamp(text)
    assert found is None or 1970 <= datetime.fromisoformat(found).year <= 2200
