"""Group proposals: curation, promotion and archiving. A night only proposes."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from noctuary.compact.archive_plan import archive_rules, plan_store
from noctuary.core.files import read_array, write_text
from noctuary.core.types import fire, has_hooks
from noctuary.curate.apply import PROPOSALS, ProposalTable, write_proposals
from noctuary.curate.finders import Materials, propose
from noctuary.curate.promotions import (
    PROMOTIONS,
    PROPOSED,
    SIGNALS_KIND,
    find_candidates,
    judge_turns,
    make_row,
    write_table,
)
from noctuary.curate.proposals import Proposal
from noctuary.curate.reviews import find_aged, find_reviewed
from noctuary.graph.tables import Evidence, Supersession
from noctuary.sources.corpus import iter_records, read_column
from noctuary.work.stage import Stage, StageOutput, StageResult
from noctuary_assets.graph import CONCEPT_GRAPH, load_tables, open_extractor
from noctuary_assets.index import LTP_SCORES, MEMORY_VECTORS
from noctuary_assets.ingest import CORPUS
from noctuary_assets.night import MEMORIES, VECTORS, Night, store_profile
from noctuary_assets.reporting import stage_asset

# Stage curation_proposals: what could be tidied in the source; nothing is written there.

CURATION = Stage("curation_proposals", "2", (PROPOSALS,))


@stage_asset(
    CURATION,
    deps=["memories", "memory_vectors", "supersessions"],
    kinds={"parquet"},
    table=PROPOSALS,
    columns=("proposal_id", "action", "kind", "confidence"),
)
def propose_curation(night: Night) -> StageResult:
    """Duplicates, superseded facts, contradictions and fragments; empty unless switched on."""
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
    batches = iter_records(night.work(MEMORIES))
    records = [record for batch in batches for record in batch if not record.is_turn]
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

PROMOTION = Stage("promotion_proposals", "3", (PROMOTIONS,))


@stage_asset(
    PROMOTION,
    deps=["memories", "turns", "memory_vectors"],
    kinds={"parquet"},
    table=PROMOTIONS,
    columns=("turn_id", "decision", "reason", "g", "t", "h", "r"),
)
def propose_promotions(night: Night) -> StageResult:
    """Every turn of a person with its score G, and whether it is proposed."""
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
        memories = night.work(MEMORIES)
        candidates = find_candidates(iter_records(memories), night.content(SIGNALS_KIND))
        # As one Arrow array: a million of them as texts are 100 MB.
        ids, vectors = read_column(memories, "memory_id"), read_array(night.work(VECTORS))
        judged = judge_turns(candidates, vectors, chosen.threshold, night.progress)
        counts = write_table(
            place,
            (
                make_row(heard, found, lambda position: ids[position].as_py())
                for heard, found in judged
            ),
            threshold=chosen.threshold,
            corpus=inputs["corpus"],
        )
        facts = {
            "proposed": counts.get(PROPOSED, 0),
            "by_reason": dict(counts),
            "not_said_by_a_person": candidates.unheard,
            "durable_memories": sum(len(found) for found in candidates.memories.values()),
        }
        return StageOutput(sum(counts.values()), facts)

    return night.finish(night.run(PROMOTION, inputs, body))


# Stage compaction_plan: what would be archived; nothing is.

PLAN = "compaction/plan.json"
PLAN_HOOK = "post_compaction_plan"
COMPACTION_PLAN = Stage("compaction_plan", "1", (PLAN,))
OFF = "off: adaptive_compaction is false"

_TIMES = ("phase_timing_ms", "paginated_scoring")  # how long it took; it goes into the notes

_NOTHING: dict[str, Any] = {
    "candidates": [], "groups": [], "would_archive": 0, "would_create_summaries": 0,
}  # fmt: skip
"""The hooks' context of an empty plan."""


@stage_asset(COMPACTION_PLAN, deps=["snapshot", "ltp_scores"], kinds={"json"})
def plan_compaction(night: Night) -> StageResult:
    """The plan of `noctuary proposals compact --apply`: candidates with reasons, in groups.

    Empty unless the profile sets adaptive_compaction.
    """
    profile = store_profile(night)
    rules = archive_rules(profile.to_json(), night.settings.compaction)
    is_on = profile.adaptive_compaction

    def body() -> StageOutput:
        off = {"note": OFF, **_NOTHING}
        said = plan_store(night.paths, rules, night.progress).to_json() if is_on else off
        context = {name: said[name] for name in _NOTHING}
        facts: dict[str, Any] = {
            n: len(v) if isinstance(v, list) else v for n, v in context.items()
        }
        own = ("plan_id", "superseded", "not_candidates") if is_on else ("note",)
        facts |= {name: said[name] for name in own}
        notes = {name: said[name] for name in (*_TIMES, "warning") if is_on}
        # What differs between two nights that find the same is not kept.
        kept = {n: v for n, v in said.items() if n not in ("as_of_us", *_TIMES)}
        text = json.dumps({"is_on": is_on, **kept}, indent=1, sort_keys=True)
        # Last, on copies: what a hook makes of them is its own.
        faults = fire(PLAN_HOOK, deepcopy(context)) if has_hooks(PLAN_HOOK) else ()
        notes["hook_faults"] = "; ".join(faults) or None
        notes |= _count_unchecked(night)
        write_text(night.work(PLAN), text + "\n")
        return StageOutput(len(said["candidates"]), facts, notes)

    inputs = {"is_on": is_on, "rules": asdict(rules), "scores": night.result_of(LTP_SCORES).digest}
    # Days pass, and plans are applied and undone between nights.
    return night.finish(night.run(COMPACTION_PLAN, inputs, body, always=True))


def _count_unchecked(night: Night) -> dict[str, Any]:
    """Count what `noctuary review` would show of this store."""
    store, prefix = find_reviewed()
    if store != night.paths.root:
        return {}
    try:
        return {"unchecked": len(find_aged(store, prefix, now=datetime.now(UTC), user=None))}
    except sqlite3.Error as error:
        return {"warning": f"what nobody has checked for long is not known: {error}"}


@dg.asset_check(asset=COMPACTION_PLAN.name)
def every_candidate_has_a_low_score_and_a_successor(
    night: dg.ResourceParam[Night],
) -> dg.AssetCheckResult:
    """Every candidate is little used, has a successor and was not accessed recently."""
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
