"""What the score behind an abstention is made of: weights and formulas, of numbers or arrays.

Standard library only: answers by words are judged without numpy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from noctuary.recall.result import (
    COSINE,
    COVERAGE,
    KNOWN,
    LIKENESS,
    WORDS,
    WORDS_AND_VECTORS,
    Usual,
)
from noctuary.text.tokens import CJK, Script, dominant_script

# The score is the product of two factors. Support: is one memory closer to the query, does it
# contain more of its words, and is the query more like the store, than for everyday prompts on this
# snapshot and in this script? Attribution: if the query names a person who speaks in the store, do
# that person's turns contain more of its words than the turns of others in the same wings? Source
# of the constants: docs/decisions/0008.


WEIGHTS: Mapping[str, Mapping[str, float]] = {
    WORDS_AND_VECTORS: {COSINE: 1.25, COVERAGE: 0.95, KNOWN: 0.6, LIKENESS: 0.75},
    WORDS: {COVERAGE: 1.15, KNOWN: 0.9},
}
"""Weight of one standard deviation above everyday prompts, by signal and feature.
Rounded from logistic fits on the sample and on prefeval (docs/decisions/0008); `python -m
bench.silence` measures their effect, on those two and on five other sets."""

# Centre and slope of the logistic of support: they balance it against attribution and keep scores
# apart near 0 and 1.
MIDDLE, SLOPE = 4.0, 1 / 3

# Idf added to every query's total, that of about 1.5 unknown words: a higher value trusts queries
# of one or two words less.
DOUBT = 10.0

ATTRIBUTION_SLOPE = 9.0  # slope: a higher one lets the person asked about outweigh the topic

BEST_TURNS = 5  # compared per side: one is luck, many show who likes the topic in general

_LOWEST = 700.0  # below its negative the exponential of a float overflows


def idf_of(df: int, count: int) -> float:
    """Return `lexical.search.idf` of one frequency."""
    return math.log1p((count - df + 0.5) / (df + 0.5))


def script_of_prompt(query: str) -> str:
    """Return the script of most letters; Chinese, Japanese and Korean count as one."""
    script = dominant_script(query)
    return str(Script.HAN if script in CJK else script)


def above_usual(signal: str, feature: str, values: Any, usual: Usual) -> Any:
    """Return weighted deviations above everyday prompts, of one value or an array of them."""
    mean, deviation = usual[feature]
    return WEIGHTS[signal][feature] * (values - mean) / deviation


def word_support(signal: str, coverage: Any, known: float, usual: Usual) -> Any:
    """Return the part of a support that words give: of one memory, or an array of them."""
    return above_usual(signal, COVERAGE, coverage, usual) + above_usual(signal, KNOWN, known, usual)


def combine(support: float, attribution: float) -> float:
    """Return the score in [0, 1], rising in both factors; 0 without support."""
    if not support > -math.inf:
        return 0.0
    return _logistic(SLOPE * (support - MIDDLE)) * _logistic(ATTRIBUTION_SLOPE * attribution)


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(value, -_LOWEST)))


# Of two memories that fit a project's question alike, its own comes before the one that reaches it
# from another one (docs/decisions/0023): a factor on the score, not on what is judged.
OTHER_WINGS = 0.8
