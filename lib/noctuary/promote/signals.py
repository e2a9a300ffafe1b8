"""The signals of one text: everything that the gate reads from the words alone.

What belongs here: the five numbers together, and how much of a text is read. What does not: each
signal's marks (`technical`, `conversational`), neighbours. Standard library only.
"""

from __future__ import annotations

from typing import NamedTuple

from noctuary.promote.conversational import conversational_structure
from noctuary.promote.technical import actionability, specificity, structure, technical_density

READ_CHARS = 16_384
"""Code points of a text that are read. More finds marks deep inside pasted logs; less is faster."""

_DIGITS = 6


class Signals(NamedTuple):
    """What the words of a text say; every number is in [0, 1].

    Attributes:
        t: Technical density, T: how far the technical branch counts.
        d: Conversational structure, D.
        p: Technical specificity, P.
        a: Actionability, A.
        dtech: Technical structure, Dt.
        marks: Names of what was found, sorted.
    """

    t: float
    d: float
    p: float
    a: float
    dtech: float
    marks: tuple[str, ...] = ()


BLANK = Signals(0.0, 0.0, 0.0, 0.0, 0.0)


def read_signals(text: str) -> Signals:
    """Return the signals of what a person said; all are 0 for a blank text.

    Source: libravdb's gate as of research/peers.md 1.2.

    Args:
        text: Without the speaker's label; `READ_CHARS` of it are read.
    """
    read = text[:READ_CHARS]
    if not read.strip():
        return BLANK
    t, d = technical_density(read), conversational_structure(read)
    p, a, dtech = specificity(read), actionability(read), structure(read)
    marks = {name for weighed in (t, d, p, a, dtech) for name in weighed.names}
    numbers = (round(weighed.total, _DIGITS) for weighed in (t, d, p, a, dtech))
    return Signals(*numbers, marks=tuple(sorted(marks)))
