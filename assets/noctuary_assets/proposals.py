"""Group proposals: what could be tidied, promoted and archived. A night writes none of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any

import dagster as dg

from noctuary.compact.archive_plan import Plan, archive_rules, plan_store
from noctuary.core.files import read_array, write_text
from noctuary.core.types import fire, has_hooks
from noctuary.curate.apply import PROPOSALS, ProposalTable, write_proposals
from noctuary.curate.finders import Materials, propose
from noctuary.curate.promotions import (
    FAULTS,
    PROMOTIONS,
    PROPOSED,
    Candidates,
    PromotionRow,
    count_faults,
    find_candidates,
    judge_turns,
    make_row,
    write_table,
)
from noctuary.curate.proposals import Proposal
from noctuary.graph.tables import Evidence, Supersession
from noctuary.sources.corpus import iter_records, read_column
from noctuary.work.stage import Stage, StageOutput, StageResult
from noctuary_assets import graph, index, ingest, publish
from noctuary_assets.graph import CONCEPT_GRAPH, load_tables, open_extractor
from noctuary_assets.index import LTP_SCORES, MEMORY_VECTORS
from noctuary_assets.ingest import CORPUS
from noctuary_assets.night import MEMORIES, VECTORS, Night, store_profile
from noctuary_assets.reporting import report_stage

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

    def body() -> StageOutput:
        if not on:
            write_proposals(night.work(PROPOSALS), ProposalTable((), is_on=False, corpus=""))
            return StageOutput(0, {"note": "off: curation.enabled is false"})
        found = propose(_materials(night))
        table = ProposalTable(tuple(found), is_on=True, corpus=inputs["corpus"])
        write_proposals(night.work(PROPOSALS), table)
        return StageOutput(len(found), _facts(found))

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
        extractions=open_extractor(night).read(records),
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

    def body() -> StageOutput:
        place = night.work(PROMOTIONS)
        if not chosen.enabled:
            write_table(place, (), is_on=False)
            return StageOutput(0, {"note": "off: promotion.enabled is false"})
        candidates = find_candidates(chain.from_iterable(iter_records(night.work(MEMORIES))))
        counts = write_table(
            place,
            _judge(night, candidates),
            threshold=chosen.threshold,
            corpus=inputs["corpus"],
        )
        return StageOutput(sum(counts.values()), _promotion_facts(candidates, counts))

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


@dg.asset(
    deps=[ingest.memories, index.memory_vectors, graph.supersessions],
    kinds={"parquet"},
    code_version=CURATION.version,
)
def curation_proposals(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Duplicates, superseded facts, contradictions and fragments; empty unless switched on."""
    return report_stage(
        night,
        propose_curation(night),
        table=PROPOSALS,
        columns=("proposal_id", "action", "kind", "confidence"),
    )


@dg.asset(
    deps=[ingest.memories, ingest.turns, index.memory_vectors],
    kinds={"parquet"},
    code_version=PROMOTION.version,
)
def promotion_proposals(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Every turn that a person said with its gating scalar, and whether it is proposed."""
    return report_stage(
        night,
        propose_promotions(night),
        table=PROMOTIONS,
        columns=("turn_id", "decision", "reason", "g", "t", "h", "r"),
    )


@dg.asset_check(asset=promotion_proposals)
def every_proposal_reached_the_threshold_and_says_something(
    night: dg.ResourceParam[Night],
) -> dg.AssetCheckResult:
    """Every proposal has G at the threshold or above, marks of its own and no self as neighbour."""
    counts = count_faults(night.work(PROMOTIONS))
    passed = not any(counts[name] for name in FAULTS)
    return dg.AssetCheckResult(passed=passed, severity=dg.AssetCheckSeverity.WARN, metadata=counts)


PLAN = "compaction/plan.json"


PLAN_HOOK = "post_compaction_plan"


COMPACTION_PLAN = Stage("compaction_plan", "1", (PLAN,))


OFF = "off: adaptive_compaction is false"


_TIMES = ("phase_timing_ms", "paginated_scoring")
"""How long it took; it goes into the notes."""


_OF_TONIGHT = ("as_of_us", *_TIMES)
"""What differs between two nights that find the same, and is not kept."""


_NOTHING: dict[str, Any] = {
    "candidates": [],
    "groups": [],
    "would_archive": 0,
    "would_create_summaries": 0,
}


def plan_compaction(night: Night) -> StageResult:
    """Make the plan of the published snapshot, keep it, and tell the hooks; archive nothing.

    Without adaptive_compaction the plan is empty, and the hooks hear that.
    """
    profile = store_profile(night)
    rules = archive_rules(profile.to_json(), night.settings.compaction)

    def body() -> StageOutput:
        plan = (
            plan_store(night.paths, rules, night.progress) if profile.adaptive_compaction else None
        )
        notes: dict[str, Any] = {"hook_faults": None}
        if has_hooks(PLAN_HOOK):
            context = _NOTHING if plan is None else plan.hook_context()
            notes["hook_faults"] = "; ".join(fire(PLAN_HOOK, context)) or None
        content, facts = _kept(plan)
        if plan is not None:
            said = plan.to_json()
            notes.update({name: said[name] for name in _TIMES})
            notes["warning"] = plan.warning
        write_text(night.work(PLAN), json.dumps(content, indent=1, sort_keys=True) + "\n")
        return StageOutput(facts["candidates"], facts, notes)

    inputs = {
        "is_on": profile.adaptive_compaction,
        "rules": asdict(rules),
        "scores": night.result_of(LTP_SCORES).digest,
    }
    # Days pass, and plans are applied and undone between nights.
    return night.finish(night.run(COMPACTION_PLAN, inputs, body, always=True))


def _kept(plan: Plan | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what is written, and what the asset shows of it."""
    if plan is None:
        return {"is_on": False, "note": OFF, **_NOTHING}, {**_counts(_NOTHING), "note": OFF}
    said = {name: value for name, value in plan.to_json().items() if name not in _OF_TONIGHT}
    facts = {
        **_counts(said),
        "plan_id": plan.plan_id,
        "superseded": plan.scan.total,
        "not_candidates": said["not_candidates"],
    }
    return {"is_on": True, **said}, facts


def _counts(said: dict[str, Any]) -> dict[str, int]:
    return {
        "candidates": len(said["candidates"]),
        "groups": len(said["groups"]),
        "would_archive": said["would_archive"],
        "would_create_summaries": said["would_create_summaries"],
    }


@dg.asset(
    deps=[publish.snapshot, index.ltp_scores],
    kinds={"json"},
    code_version=COMPACTION_PLAN.version,
)
def compaction_plan(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """What `noctuary proposals compact --apply` would archive: candidates with reasons, in groups.

    Empty unless the profile says adaptive_compaction.
    """
    return report_stage(night, plan_compaction(night))


@dg.asset_check(asset=compaction_plan)
def every_candidate_has_a_low_score_and_a_successor(
    night: dg.ResourceParam[Night],
) -> dg.AssetCheckResult:
    """No candidate is used, none is without a successor, none was accessed too recently."""
    plan = json.loads(night.work(PLAN).read_text(encoding="utf-8"))
    bad = [c["memory_id"] for c in plan["candidates"] if not _is_justified(c, plan["rules"])]
    return dg.AssetCheckResult(
        passed=not bad,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"candidates": len(plan["candidates"]), "bad": len(bad)},
    )


def _is_justified(candidate: dict[str, Any], rules: dict[str, Any]) -> bool:
    return (
        candidate["decayed_ltp"] < rules["compaction_threshold"]
        and bool(candidate["superseded_by"])
        and candidate["superseded_by"] != candidate["memory_id"]
        and candidate["days_since_access"] >= rules["compaction_age_days"]
    )
