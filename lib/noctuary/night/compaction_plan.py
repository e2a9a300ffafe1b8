"""Stage compaction_plan: what `noctuary compact --apply` would archive after this night.

What belongs here: when a plan is made, what is kept of it, who is told. What does not: making it
(`noctuary.archive`); a night never applies a plan.

It comes after publishing: a plan is made of what serves, so that the command finds the same plan,
under the same id, until the next night. Kept are ids and numbers only: a row that turns sensitive
leaves no text here.
"""

from __future__ import annotations

import json
from typing import Any

from noctuary.archive.plan import Plan
from noctuary.archive.planning import plan_store
from noctuary.archive.rules import archive_rules
from noctuary.files import write_text
from noctuary.hooks import fire, has_hooks
from noctuary.night.context import Night
from noctuary.night.ltp import LTP_SCORES
from noctuary.night.profile import store_profile
from noctuary.work.stage import Stage, StageResult

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
    notes: dict[str, Any] = {"hook_faults": None}

    def body() -> tuple[int, dict[str, Any]]:
        plan = (
            plan_store(night.paths, rules, night.progress) if profile.adaptive_compaction else None
        )
        if has_hooks(PLAN_HOOK):
            context = _NOTHING if plan is None else plan.hook_context()
            notes["hook_faults"] = "; ".join(fire(PLAN_HOOK, context)) or None
        content, facts = _kept(plan)
        if plan is not None:
            said = plan.to_json()
            notes.update({name: said[name] for name in _TIMES})
            notes["warning"] = plan.warning
        write_text(night.work(PLAN), json.dumps(content, indent=1, sort_keys=True) + "\n")
        return facts["candidates"], facts

    inputs = {
        "is_on": profile.adaptive_compaction,
        "rules": rules.to_json(),
        "scores": night.result_of(LTP_SCORES).digest,
    }
    # Days pass, and plans are applied and undone between nights.
    result = night.run(COMPACTION_PLAN, inputs, body, always=True)
    return night.finish(result.with_notes(**notes))


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
