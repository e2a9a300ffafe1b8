"""Numbers as a reader sees them.

What belongs here: rounding, signs, missing values. What does not: which numbers (tables.py).
"""

from __future__ import annotations

from noctuary.evaluate.statistics.bootstrap import Interval

DIGITS = 3
"""Decimals of means and differences: one query in a thousand."""

P_DIGITS = 4
"""Decimals of p-values: 10,000 draws resolve no more."""

MINUS = "\u2212"
NONE = "none"


def as_mean(value: float | None) -> str:
    """Return a mean, for example "0.512"; "none" for None."""
    return NONE if value is None else _minus(f"{value:.{DIGITS}f}")


def as_signed(value: float | None) -> str:
    """Return a difference with its sign, for example "+0.021"; zero after rounding has none."""
    if value is None:
        return NONE
    text = f"{value:+.{DIGITS}f}"
    return text[1:] if float(text) == 0.0 else _minus(text)


def as_interval(interval: Interval | None, *, signed: bool = False) -> str:
    """Return the ends of an interval, for example "0.490 to 0.530"."""
    if interval is None:
        return NONE
    form = as_signed if signed else as_mean
    return f"{form(interval.low)} to {form(interval.high)}"


def as_p(value: float) -> str:
    """Return a p-value; what would round to zero is shown as "<0.0001"."""
    text = f"{value:.{P_DIGITS}f}"
    return f"<{10.0**-P_DIGITS:.{P_DIGITS}f}" if float(text) == 0.0 else text


def as_count(value: int) -> str:
    """Return a count with thin blanks between thousands."""
    return f"{value:,}".replace(",", "\u202f")


def as_percent(share: float) -> str:
    """Return a share of a setting, for example "95%"."""
    return f"{100 * share:g}%"


def _minus(text: str) -> str:
    return text.replace("-", MINUS)
