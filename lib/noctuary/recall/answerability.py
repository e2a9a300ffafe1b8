"""Whether the snapshot holds an answer to a query: a score, and the threshold it is held against.

What belongs here: the shape of the judgement, and of the calibration that a snapshot carries. What
does not: the score itself (`answerability_score`), how a threshold is chosen
(`noctuary.evaluate.calibration`), what a caller does with it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from noctuary.foreign_json import parse_json
from noctuary.values import dataclass

WORDS_AND_VECTORS = "words_and_vectors"
"""The signal of a recall that has a dense leg."""

WORDS = "words"
"""The signal of a recall without one: past its deadline, or with no encoder."""

SIGNALS = (WORDS_AND_VECTORS, WORDS)

COSINE, COVERAGE, KNOWN, LIKENESS = FEATURES = ("cosine", "coverage", "known", "likeness")
"""What a score is made of (docs/abstention.md)."""

ANY_SCRIPT = "any"
"""Key of what is usual for prompts of a script that the everyday ones lack."""

RELATIVE_BAR = 0.4
"""Share of the best memory's score that each memory must reach by itself: more injects fewer that
only came along, less keeps a second half of an answer."""

Usual = Mapping[str, tuple[float, float]]
"""By feature, mean and deviation over everyday prompts."""


@dataclass(frozen=True, slots=True)
class Measure:
    """What prompts that are nobody's memory come to on a snapshot: the zero of its scores.

    Attributes:
        usual: By script of the prompt, and over all of them (ANY_SCRIPT).
        direction: (d + 1,) of a query vector and 1: larger where it reads like the store rather
            than like everyday prompts; empty for none.
    """

    usual: Mapping[str, Usual]
    direction: tuple[float, ...] = ()

    def usual_of(self, script: str) -> Usual:
        """Return what is usual for a script, or over all of them."""
        return self.usual.get(script) or self.usual[ANY_SCRIPT]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        scripts = {s: {f: list(v) for f, v in u.items()} for s, u in self.usual.items()}
        return {"usual": scripts, "direction": list(self.direction)}

    @staticmethod
    def parse(raw: Mapping[str, Any]) -> Measure:
        """Read what `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: If it is anything else.
        """
        usual = {
            str(script): {name: _mean_and_deviation(found[name]) for name in FEATURES}
            for script, found in raw["usual"].items()
        }
        if ANY_SCRIPT not in usual:
            raise ValueError(f"nothing that is usual for {ANY_SCRIPT!r} script")
        direction = tuple(float(value) for value in raw["direction"])
        if not all(map(math.isfinite, direction)):
            raise ValueError("a direction that is not finite")
        return Measure(usual, direction)


def _mean_and_deviation(raw: Sequence[Any]) -> tuple[float, float]:
    mean, deviation = (float(value) for value in raw)
    if not (math.isfinite(mean) and 0.0 < deviation < math.inf):
        raise ValueError(f"no mean and deviation: {mean}, {deviation}")
    return mean, deviation


@dataclass(frozen=True, slots=True)
class Answerability:
    """How sure a recall is that the snapshot holds an answer.

    Attributes:
        score: In [0, 1]; 0 where nothing was found. Comparable within one snapshot and signal.
        threshold: In [0, 1]; what the snapshot's calibration chose.
        abstain: Whether score < threshold: better to inject nothing.
        signal: Which signal the score is of, one of SIGNALS.
        bar: In [0, 1]; a memory whose own score, `RecalledMemory.support`, is below it had better
            not be injected.
    """

    score: float
    threshold: float
    abstain: bool
    signal: str
    bar: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "score": self.score,
            "threshold": self.threshold,
            "abstain": self.abstain,
            "signal": self.signal,
            "bar": self.bar,
        }


@dataclass(frozen=True, slots=True)
class Calibration:
    """The thresholds of one snapshot.

    Attributes:
        thresholds: By signal, each in [0, 1]; a signal that is not there was not calibrated.
        measures: By the same signals, what their scores are measured by.
        bars: By signal, the score that each memory must reach by itself, in [0, 1]; 0 for none.
    """

    thresholds: Mapping[str, float]
    measures: Mapping[str, Measure]
    bars: Mapping[str, float] = field(default_factory=dict[str, float])

    @staticmethod
    def observing(measures: Mapping[str, Measure]) -> Calibration:
        """Return what shows every score and abstains from nothing: what a night asks with."""
        return Calibration(dict.fromkeys(measures, 0.0), measures)

    @staticmethod
    def parse(text: str) -> Calibration | None:
        """Read a snapshot's abstention.json; None where nothing was calibrated.

        A threshold without a `measure` is of a snapshot of before, whose scores had another scale:
        it counts as none.

        Raises:
            ValueError: If it is no JSON object of signals with thresholds in [0, 1].
        """
        try:
            raw = parse_json(text)["signals"]
            found = {str(name): float(entry["threshold"]) for name, entry in raw.items()}
            bars = {name: float(entry["bar"]) for name, entry in raw.items() if "bar" in entry}
            measures = {
                str(name): Measure.parse(entry["measure"])
                for name, entry in raw.items()
                if "measure" in entry
            }
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no thresholds by signal: {error}") from error
        all_of_them = (*found.items(), *bars.items())
        wrong = {name: at for name, at in all_of_them if not 0.0 <= at <= 1.0}
        if wrong:
            raise ValueError(f"thresholds outside [0, 1]: {wrong}")
        measured = {name: found[name] for name in measures}
        return Calibration(measured, measures, bars) if measured else None

    def judge(self, score: float, signal: str) -> Answerability:
        """Hold a score against its signal's threshold.

        Raises:
            KeyError: If the signal was not calibrated.
        """
        bar = max(self.bars.get(signal, 0.0), RELATIVE_BAR * score)
        threshold = self.thresholds[signal]
        return Answerability(score, threshold, score < threshold, signal, bar)
