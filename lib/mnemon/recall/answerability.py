"""Whether the snapshot holds an answer to a query: a score, and the threshold it is held against.

What belongs here: the shape of the judgement, and of the calibration that a snapshot carries. What
does not: the score itself (`answerability_score`), how a threshold is chosen
(`mnemon.evaluate.calibration`), what a caller does with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mnemon.values import dataclass

WORDS_AND_VECTORS = "words_and_vectors"
"""The signal of a recall that has a dense leg."""

WORDS = "words"
"""The signal of a recall without one: past its deadline, or with no encoder."""

SIGNALS = (WORDS_AND_VECTORS, WORDS)


@dataclass(frozen=True, slots=True)
class Answerability:
    """How sure a recall is that the snapshot holds an answer.

    Attributes:
        score: In [0, 1]; 0 where nothing was found. Comparable within one snapshot and signal.
        threshold: In [0, 1]; what the snapshot's calibration chose.
        abstain: Whether score < threshold: better to inject nothing.
        signal: Which signal the score is of, one of SIGNALS.
    """

    score: float
    threshold: float
    abstain: bool
    signal: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "score": self.score,
            "threshold": self.threshold,
            "abstain": self.abstain,
            "signal": self.signal,
        }


@dataclass(frozen=True, slots=True)
class Calibration:
    """The thresholds of one snapshot.

    Attributes:
        thresholds: By signal, each in [0, 1]; a signal that is not there was not calibrated.
    """

    thresholds: Mapping[str, float]

    @staticmethod
    def observing() -> Calibration:
        """Return what shows every score and abstains from nothing: what a night asks with."""
        return Calibration(dict.fromkeys(SIGNALS, 0.0))

    @staticmethod
    def parse(text: str) -> Calibration:
        """Read a snapshot's abstention.json.

        Raises:
            ValueError: If it is no JSON object of signals with thresholds in [0, 1].
        """
        try:
            raw = json.loads(text)["signals"]
            found = {str(name): float(entry["threshold"]) for name, entry in raw.items()}
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no thresholds by signal: {error}") from error
        wrong = {name: at for name, at in found.items() if not 0.0 <= at <= 1.0}
        if wrong:
            raise ValueError(f"thresholds outside [0, 1]: {wrong}")
        return Calibration(found)

    def judge(self, score: float, signal: str) -> Answerability | None:
        """Hold a score against its signal's threshold; None where that was not calibrated."""
        threshold = self.thresholds.get(signal)
        if threshold is None:
            return None
        return Answerability(score, threshold, score < threshold, signal)
