"""The verdict on every number: OK, OKish or FAIL. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.verify.regression import Regression, Value

SCORES = "scores."


class Verdict(StrEnum):
    """OK: the expected value. OKish: a score within the tolerance. FAIL: anything else."""

    OK = "OK"
    OKISH = "OKish"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Judged:
    """One number, what was expected of it and what came of it; None where a side lacks it."""

    name: str
    expected: Value
    found: Value
    verdict: Verdict


def judge(expected: Regression, found: Regression) -> list[Judged]:
    """Compare every number that either side has, in the order of the expected ones."""
    names = dict.fromkeys((*expected.values, *found.values))
    return [
        Judged(name, old, new, judge_number(name, old, new, expected.tolerance))
        for name in names
        for old, new in [(expected.values.get(name), found.values.get(name))]
    ]


def judge_number(name: str, expected: Value, found: Value, tolerance: float) -> Verdict:
    """Judge one number; only scores have a tolerance."""
    if expected == found:
        return Verdict.OK
    if not isinstance(expected, int | float) or not isinstance(found, int | float):
        return Verdict.FAIL
    close = name.startswith(SCORES) and abs(expected - found) <= tolerance
    return Verdict.OKISH if close else Verdict.FAIL


def worst(judged: Sequence[Judged]) -> Verdict:
    """Return the worst verdict of a set; OK if there is nothing to judge."""
    order = list(Verdict)
    return max((one.verdict for one in judged), key=order.index, default=Verdict.OK)
