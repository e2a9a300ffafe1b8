"""Stages curation_proposals and promotion_proposals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from noctuary.core.files import read_array
from noctuary.curate.apply import PROPOSALS, ProposalTable, write_proposals
from noctuary.curate.finders import Materials, propose
from noctuary.curate.promotions import (
    PROMOTIONS,
    PROPOSED,
    Candidates,
    PromotionRow,
    find_candidates,
    judge_turns,
    make_row,
    write_table,
)
from noctuary.curate.proposals import Proposal
from noctuary.graph.tables import Evidence, Supersession
from noctuary.night.context import MEMORIES, VECTORS, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.graph import CONCEPT_GRAPH, load_tables, read_extractions
from noctuary.night.vectors import MEMORY_VECTORS
from noctuary.sources.corpus import iter_records, read_column
from noctuary.work.stage import Stage, StageResult

# Stage curation_proposals: what could be tidied in the source; nothing is written there.


CURATION = Stage("curation_proposals", "2", (PROPOSALS,))


def propose_curation(night: Night) -> StageResult:
    """Look for what could be tidied, if curation.enabled; else leave an empty table and say so."""
    on = night.settings.curation.enabled
    inputs: dict[str, Any] = {"on": on}
    if on:
        inputs |= {
            "corpus": night.result_of(CORPUS).digest,
            "vectors": night.result_of(MEMORY_VECTORS).digest,
            "graph": night.result_of(CONCEPT_GRAPH).digest,
        }

    def body() -> tuple[int, dict[str, Any]]:
        if not on:
            write_proposals(night.work(PROPOSALS), ProposalTable((), is_on=False, corpus=""))
            return 0, {"note": "off: curation.enabled is false"}
        found = propose(_materials(night))
        table = ProposalTable(tuple(found), is_on=True, corpus=inputs["corpus"])
        write_proposals(night.work(PROPOSALS), table)
        return len(found), _facts(found)

    return night.finish(night.run(CURATION, inputs, body))


def _materials(night: Night) -> Materials:
    # Turns are most of a large store, and never proposed for anything.
    records = [
        record
        for batch in iter_records(night.work(MEMORIES))
        for record in batch
        if not record.is_turn
    ]
    tables = load_tables(night)
    return Materials(
        records=records,
        extractions=read_extractions(night, records),
        supersessions=[_supersession(row) for row in tables.supersessions.to_pylist()],
        canonical_of={row["name"]: row["canonical"] for row in tables.merges.to_pylist()},
        vectors=read_array(night.work(VECTORS)),
    )


def _supersession(row: dict[str, Any]) -> Supersession:
    values: dict[str, Any] = {**row, "evidence": Evidence(**row["evidence"])}
    return Supersession(**values)


def _facts(found: Sequence[Proposal]) -> dict[str, Any]:
    counts = Counter(f"{proposal.kind} {proposal.action}" for proposal in found)
    return {
        "by_action": dict(sorted(Counter(p.action for p in found).items())),
        "by_kind": dict(sorted(Counter(p.kind for p in found).items())),
        "by_kind_and_action": dict(sorted(counts.items())),
        "would_supersede": sum(len(p.having("superseded")) for p in found),
    }


# Stage promotion_proposals: which turns should be remembered for good; nothing is written there.


PROMOTION = Stage("promotion_proposals", "1", (PROMOTIONS,))


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
        place = night.work(PROMOTIONS)
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
        return sum(counts.values()), _promotion_facts(candidates, counts)

    return night.finish(night.run(PROMOTION, inputs, body))


def _judge(night: Night, candidates: Candidates) -> Iterator[PromotionRow]:
    # As one Arrow array: a million of them as texts are 100 MB.
    ids = read_column(night.work(MEMORIES), "memory_id")
    vectors = read_array(night.work(VECTORS))
    threshold = night.settings.promotion.threshold
    for heard, judged in judge_turns(candidates, vectors, threshold, night.progress):
        yield make_row(heard, judged, lambda position: ids[position].as_py())


def _promotion_facts(candidates: Candidates, counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "proposed": counts.get(PROPOSED, 0),
        "by_reason": dict(counts),
        "not_said_by_a_person": candidates.unheard,
        "durable_memories": sum(len(found) for found in candidates.memories.values()),
    }
