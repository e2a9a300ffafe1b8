"""Stage curation_proposals: what could be tidied in the source; nothing is written there.

What belongs here: whether it is switched on, what the finders are given, the counts. What does not:
the finders (`noctuary.curate`), writing to a source (`noctuary curate --apply`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from noctuary.corpus.export import iter_records
from noctuary.curate.model import Proposal
from noctuary.curate.propose import Materials, propose
from noctuary.curate.table import PROPOSALS, ProposalTable, write_proposals
from noctuary.files import read_array
from noctuary.graph.model import Evidence, Supersession
from noctuary.night.context import MEMORIES, VECTORS, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.extractions import read_extractions
from noctuary.night.graph import CONCEPT_GRAPH, load_tables
from noctuary.night.vectors import MEMORY_VECTORS
from noctuary.work.stage import Stage, StageResult

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
