"""Stage promotion_proposals: which turns should be remembered for good; nothing is written there.

What belongs here: whether it is switched on, what the gate is given, the counts. What does not: the
gate (`noctuary.promote`), writing to a source (nothing does).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from noctuary.corpus.columns import read_column
from noctuary.corpus.export import iter_records
from noctuary.files import read_array
from noctuary.night.context import MEMORIES, VECTORS, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.vectors import MEMORY_VECTORS
from noctuary.promote.candidates import Candidates, find_candidates, judge_turns
from noctuary.promote.table import PROPOSALS, PromotionRow, make_row, write_table
from noctuary.promote.walk import PROPOSED
from noctuary.work.stage import Stage, StageResult

PROMOTION = Stage("promotion_proposals", "1", (PROPOSALS,))


def propose_promotions(night: Night) -> StageResult:
    """Judge the turns, if promotion.enabled; else leave an empty table and say so."""
    chosen = night.settings.promotion
    inputs: dict[str, Any] = {"on": chosen.enabled}
    if chosen.enabled:
        inputs |= {
            "threshold": chosen.threshold,
            "corpus": night.result_of(CORPUS).digest,
            "vectors": night.result_of(MEMORY_VECTORS).digest,
        }

    def body() -> tuple[int, dict[str, Any]]:
        place = night.work(PROPOSALS)
        if not chosen.enabled:
            write_table(place, (), is_on=False)
            return 0, {"note": "off: promotion.enabled is false"}
        candidates = find_candidates(chain.from_iterable(iter_records(night.work(MEMORIES))))
        counts = write_table(
            place,
            _judge(night, candidates),
            threshold=chosen.threshold,
            corpus=inputs["corpus"],
        )
        return sum(counts.values()), _facts(candidates, counts)

    return night.finish(night.run(PROMOTION, inputs, body))


def _judge(night: Night, candidates: Candidates) -> Iterator[PromotionRow]:
    # As one Arrow array: a million of them as texts are 100 MB.
    ids = read_column(night.work(MEMORIES), "memory_id")
    vectors = read_array(night.work(VECTORS))
    threshold = night.settings.promotion.threshold
    for heard, judged in judge_turns(candidates, vectors, threshold, night.progress):
        yield make_row(heard, judged, lambda position: ids[position].as_py())


def _facts(candidates: Candidates, counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "proposed": counts.get(PROPOSED, 0),
        "by_reason": dict(counts),
        "not_said_by_a_person": candidates.unheard,
        "durable_memories": sum(len(found) for found in candidates.memories.values()),
    }
