"""Places of a drawing: the concept in the middle, rows on two arcs beside it. Numbers only.

Rows are spread by their heights, so that labels never overlap; equal inputs give equal places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

CANVAS_WIDTH = 1320.0
"""Width of a drawing in its own units; the page scales it."""

MARGIN = 46.0
"""Above the first row and below the last one; the headings stand there."""

GAP = 12.0
"""Between two rows."""

MIN_HEIGHT = 300.0
"""Least height of a drawing; less leaves no room for the curves."""

REACH = 165.0
"""From the middle box to the nearest row; less leaves no room for the labels of relations."""

BULGE = 85.0
"""How much farther the rows in the middle stand; 0 makes two straight columns."""

_ARC = math.radians(85.0)


class Spot(NamedTuple):
    """A place in the drawing."""

    x: float
    y: float


class Fans(NamedTuple):
    """Where everything stands.

    Attributes:
        height: Height of the drawing.
        middle: Centre of the concept.
        left: One place per row to the left, top to bottom.
        right: One place per row to the right, top to bottom.
    """

    height: float
    middle: Spot
    left: tuple[Spot, ...]
    right: tuple[Spot, ...]


def place_fans(left: Sequence[float], right: Sequence[float], box_width: float) -> Fans:
    """Place rows of given heights to both sides of a box of a width.

    Args:
        left: Heights of the rows to the left, top to bottom.
        right: Heights of the rows to the right.
        box_width: Width of the box in the middle.
    """
    height = max(MIN_HEIGHT, 2 * MARGIN + max(_length(left), _length(right)))
    middle = Spot(CANVAS_WIDTH / 2, height / 2)
    near = box_width / 2 + REACH
    return Fans(height, middle, _fan(left, middle, -1, near), _fan(right, middle, 1, near))


def _length(heights: Sequence[float]) -> float:
    return sum(heights) + GAP * max(0, len(heights) - 1)


def _fan(heights: Sequence[float], middle: Spot, side: int, near: float) -> tuple[Spot, ...]:
    half = middle.y - MARGIN
    top = middle.y - _length(heights) / 2
    spots: list[Spot] = []
    for height in heights:
        y = top + height / 2
        lean = math.cos((y - middle.y) / half * _ARC)
        spots.append(Spot(round(middle.x + side * (near + BULGE * lean), 1), round(y, 1)))
        top += height + GAP
    return tuple(spots)
