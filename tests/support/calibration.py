"""A calibration as a night might have measured it, for tests that ask no prompts."""

from __future__ import annotations

from noctuary.recall.result import (
    ANY_SCRIPT,
    COSINE,
    COVERAGE,
    KNOWN,
    LIKENESS,
    SIGNALS,
    Calibration,
    Measure,
)

USUAL = {COSINE: (0.3, 0.1), COVERAGE: (0.1, 0.1), KNOWN: (0.2, 0.2), LIKENESS: (0.0, 1.0)}
MEASURE = Measure({ANY_SCRIPT: USUAL})
MEASURES: dict[str, Measure] = dict.fromkeys(SIGNALS, MEASURE)
"""Of both signals."""


def calibrated(threshold: float = 0.0, bar: float = 0.0) -> Calibration:
    """Return a calibration with the same threshold and bar for both signals."""
    return Calibration(dict.fromkeys(MEASURES, threshold), MEASURES, dict.fromkeys(MEASURES, bar))
