from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.summaries import SummarySettings, escalate
from noctuary.compact.summarizers import Draft, Outcome, Refusal, Request, Summarizer
from noctuary.core.files import JsonValue


class Noting(Summarizer):
    """A summarizer that refuses everything and notes the densities that it is asked for."""

    name = "noting"
    densities = (0.5, 0.3)

    def __init__(self) -> None:
        self.asked: list[float] = []

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        return {}

    def write(self, request: Request, density: float) -> Draft | Refusal:
        self.asked.append(density)
        return Draft(" ".join(request.texts))


def run(settings: SummarySettings) -> tuple[list[float], str]:
    """Return the densities that were asked for and the method of what stood in."""
    noting = Noting()
    request = Request("c", [f"turn {word}" for word in "abcdefghij"], np.eye(10, 4) + 1.0)

    def encode(texts: list[str]) -> NDArray[np.float64]:
        return np.ones((len(texts), 4))

    (trial,) = escalate([request], encode, summarizer=noting, settings=settings)
    assert [a.outcome for a in trial.attempts] == [Outcome.NOT_SMALLER] * 2
    assert trial.judged is not None
    return noting.asked, f"{trial.judged.method} {trial.judged.text.count('turn')}"


def test_without_a_setting_each_summarizer_cuts_at_its_own_densities() -> None:
    assert run(SummarySettings()) == ([0.5, 0.3], "extractive 4")


def test_a_setting_is_for_the_configured_summarizer_and_not_for_what_stands_in() -> None:
    assert run(SummarySettings(density=0.9, aggressive_density=0.1)) == ([0.9, 0.1], "extractive 4")
