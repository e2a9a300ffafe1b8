"""What four stores answered before the house was rebuilt, they answer after it.

Knows no module that computes: it asks through the package's own functions and the command line, and
compares with records in tests/golden/contract.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import pytest

from tests.contract.record import SETS, answer, read_record, record_of
from tests.support.labelled_cut import SHARED

TOLERANCE = 1e-9
ELSEWHERE = 1e-4
"""On another kind of processor, where sums of 32-bit numbers round otherwise."""

SHOWN = 20


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", SETS)
def test_a_store_answers_as_it_did(name: str, tmp_path: Path) -> None:
    if name != "sample" and not (SHARED / name).is_dir():
        pytest.skip(f"the set {name} lies beside the project and is not here")
    if not record_of(name).is_file():
        pytest.skip(f"{name} was not recorded: python -m tests.contract.record {name}")
    recorded, found = read_record(name), answer(name, tmp_path)
    assert found.pop("questions") == recorded.pop("questions"), "other questions are asked"
    same = found.pop("processor") == recorded.pop("processor")
    for one in (found, recorded):
        del one["took_s"]
    tolerance = TOLERANCE if same else ELSEWHERE
    if not same:
        del found["digest"], recorded["digest"]
    differences = list(differ(recorded, found, tolerance))
    allowed = 0 if same else len(recorded["recalls"]) // 50
    places = {difference.split(":")[0].rsplit("/", 4)[0] for difference in differences}
    assert len(places) <= allowed, "\n".join(differences[:SHOWN])


def test_a_difference_is_found_wherever_it_is() -> None:
    was = {"a": [1, {"b": 0.5}], "c": "x"}
    assert list(differ(was, {"a": [1, {"b": 0.5 + 1e-10}], "c": "x"}, TOLERANCE)) == []
    for other in (
        {"a": [1, {"b": 0.6}], "c": "x"},
        {"a": [1], "c": "x"},
        {"a": [1, {"b": 0.5}]},
        {"a": [True, {"b": 0.5}], "c": "x"},
        {"a": [1, {"b": 0.5}], "c": "y"},
        {"a": [1, {"b": 0.5}], "c": "x", "d": None},
    ):
        assert len(list(differ(was, other, TOLERANCE))) == 1


def differ(was: Any, found: Any, tolerance: float, place: str = "") -> list[str]:
    """Return where two plain values differ, with both sides."""
    if isinstance(was, dict) and isinstance(found, dict):
        left, right = cast("dict[str, Any]", was), cast("dict[str, Any]", found)
        return [
            difference
            for key in sorted({*left, *right})
            for difference in (
                differ(left[key], right[key], tolerance, f"{place}/{key}")
                if key in left and key in right
                else [f"{place}/{key}: {'is new' if key in right else 'is gone'}"]
            )
        ]
    if isinstance(was, list) and isinstance(found, list):
        before, after = cast("list[Any]", was), cast("list[Any]", found)
        if len(before) != len(after):
            return [f"{place}: {len(before)} entries before, {len(after)} now"]
        pairs = enumerate(zip(before, after, strict=True))
        return [d for n, (a, b) in pairs for d in differ(a, b, tolerance, f"{place}/{n}")]
    if isinstance(was, float) and isinstance(found, float):
        equal = math.isclose(was, found, rel_tol=0.0, abs_tol=tolerance)
    else:
        equal = type(was) is type(found) and was == found
    return [] if equal else [f"{place}: {was!r} before, {found!r} now"]
