"""The alternative scorers in the place of fusion: what they need, gathered from snapshot and world.

What belongs here: arrays for the formulas of `scorers`. What does not: the formulas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.asking import Request
from noctuary.recall.legs import Leg
from noctuary.recall.phases.base import Positions, Scores
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.scorers import keyword_coverage, scope_codes, score_hybrid, score_two_pass
from noctuary.recall.world import World
from noctuary.text.tokens import tokenize

if TYPE_CHECKING:
    from noctuary.recall.overlay import Overlay


class Scorer(NamedTuple):
    """Scores the nearest memories of one recall by libravdb's section 1 or 7.

    Attributes:
        request: Which scorer, with its constants, and who asks.
        reader: The snapshot.
        world: Where use comes from.
        now_us: The moment of the recall.
        overlay: The live rows among the candidates; None for none.
    """

    request: Request
    reader: SnapshotReader
    world: World
    now_us: int
    overlay: Overlay | None

    def score(self, query: str, dense: Leg) -> tuple[Positions, Scores]:
        """Return the positions that are left, ascending, and their scores in [0, 1]."""
        positions, profile = dense.ranking, self.request.profile
        if not positions.size:
            return positions, np.empty(0, dtype=np.float64)
        cosines, created = dense.scores_at(positions), self.reader.created_at(positions)
        if profile.scorer == "hybrid":
            scores = score_hybrid(cosines, created, self.now_us, self._scopes(positions), profile)
        else:
            counts, most = self._use(positions)
            rows, scores = score_two_pass(
                cosines, created, self.now_us, counts, most, self.reader.importance_at(positions),
                self._coverage(query, positions), profile, self.request.k,
            )  # fmt: skip
            positions = positions[rows]
        order = np.argsort(positions)
        return positions[order], scores[order]

    def _coverage(self, query: str, positions: Positions) -> NDArray[np.float64]:
        reader, tokens = self.reader, tokenize(query)
        memories = reader.posting_positions
        coverage = keyword_coverage(tokens, reader.look_up_terms, memories, positions)
        inside = positions >= reader.count
        if self.overlay is not None:
            first = self.overlay.view.first_live
            live = positions >= first
            coverage[live] = self.overlay.share_of_words(tokens)[positions[live] - first]
            inside &= ~live
        if inside.any():
            words = reader.summary_words.positions
            ordinals = positions[inside] - reader.count
            coverage[inside] = keyword_coverage(
                tokens, reader.look_up_summary_terms, words, ordinals
            )
        return coverage

    def _scopes(self, positions: Positions) -> NDArray[np.int8]:
        sessions, owners = self.reader.facets["session_id"], self.reader.facets["user"]
        own = _code(sessions.values, self.request.session_id)
        in_session = self.reader.codes_at("session_id", positions) == own
        asking = _code(owners.values, self.request.scope.user)
        return scope_codes(
            in_session,
            self.reader.codes_at("user", positions),
            None if asking < 0 else asking,
            has_owners=bool(owners.values),
        )

    def _use(self, positions: Positions) -> tuple[NDArray[np.int64], int]:
        """Return retrievals inside the window and the largest count of the store."""
        if not self.world.knows_usage():
            return np.zeros(positions.size, dtype=np.int64), 0
        ids = self.reader.memory_ids(positions.tolist())
        counts = self.world.usage_of([ids[p] for p in positions.tolist()]).recent
        first = self.world.most_used(1)
        most = int(self.world.usage_of(first).recent.max()) if first else 0
        return counts, most


def _code(values: tuple[str, ...], wanted: str | None) -> int:
    """Return the code of a value; -2 where there is none, which no memory has."""
    return values.index(wanted) if wanted is not None and wanted in values else -2
