from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.recall.candidates import Positions
from noctuary.recall.phases import rerank
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallWarning
from tests.support.lookups import MemoryLookups, candidates_of, context_of

PROFILE = RetrievalProfile()
# Few values, so that ties are common; beyond [0, 1], as logits are.
LOGITS = st.sampled_from([-7.5, -1.0, 0.0, 0.25, 0.5, 11.0])
FUSED = st.sampled_from([0.0, 0.1, 0.4, 0.4, 0.9, 1.0])


@dataclass
class Logits(MemoryLookups):
    """A cross-encoder's scores by position."""

    logits: Mapping[int, float] = field(default_factory=dict[int, float])

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        return np.array([self.logits[int(p)] for p in positions], dtype=np.float64)


@given(st.lists(st.tuples(FUSED, LOGITS), max_size=12), st.integers(1, 14))
def test_it_permutes_the_head_as_a_plain_sort_would(
    pairs: list[tuple[float, float]], depth: int
) -> None:
    before = candidates_of(*((p, fused) for p, (fused, _) in enumerate(pairs)))
    logits = {p: logit for p, (_, logit) in enumerate(pairs)}
    context = context_of(Logits([], logits=logits), PROFILE.replaced(rerank_depth=depth))
    after = rerank(before, context).candidates
    was = before.positions.tolist()
    expected = sorted(was[:depth], key=lambda p: (-logits[p], was.index(p))) + was[depth:]
    assert after.positions.tolist() == expected
    assert after.scores.tolist() == before.scores.tolist()


def test_a_head_of_one_asks_nobody() -> None:
    class Nobody(MemoryLookups):
        def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
            raise AssertionError(positions)

    context = context_of(Nobody([]), PROFILE.replaced(rerank_depth=1))
    for before in (candidates_of(), candidates_of((3, 0.5)), candidates_of((3, 0.5), (4, 0.4))):
        assert rerank(before, context).candidates is before


@pytest.mark.parametrize(("logit", "text"), [(0.934, "0.93"), (-7.5, "-7.50")])
def test_the_reason_names_places_from_one_and_the_score(logit: float, text: str) -> None:
    before = candidates_of(*((p, 1 - p / 10) for p in range(8)))
    logits = {p: -100.0 - p for p in range(8)} | {0: 50.0, 6: logit}
    outcome = rerank(before, context_of(Logits([], logits=logits)))
    assert outcome.reason_of is not None
    assert outcome.reason_of(6) == f"cross-encoder moved it from place 7 to 2 (score {text})"
    assert outcome.notes == {"read": 8, "moved": 6}
