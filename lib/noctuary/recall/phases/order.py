"""The one order in which phases run, and running them.

What belongs here: which flag switches which phase on, and the bookkeeping around each. What does
not: what a phase does.
"""

from __future__ import annotations

from dataclasses import field
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from noctuary.recall.ledger import Ledger
from noctuary.recall.phases.base import Candidates, Phase, PhaseContext, PhaseOutcome
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.run import Run
from noctuary.values import dataclass


class Step(NamedTuple):
    """One phase in the order.

    Attributes:
        name: As in timings, events and traces; also the function that does it.
        all_of: Flags that must all be on (a number: above 0, a text: not empty).
        any_of: Flags of which one must be on.
        reorders: Whether it only shapes the order by relevance: another sort order skips it.
        is_slow: Whether it takes as long as a leg: a recall past its deadline skips it. The others
            take well under a millisecond, and without some of them an answer would be wrong.
    """

    name: str
    all_of: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    reorders: bool = False
    is_slow: bool = False

    def is_on(self, profile: RetrievalProfile) -> bool:
        """Say whether a profile wants it."""
        wanted = all(getattr(profile, flag) for flag in self.all_of)
        return wanted and (not self.any_of or any(getattr(profile, f) for f in self.any_of))

    @property
    def phase(self) -> Phase:
        """The function `name`, from its module, which a fresh process loads only if it is on."""
        module = _MODULES.get(self.name, self.name)
        phase: Phase = getattr(import_module(f"noctuary.recall.phases.{module}"), self.name)
        return phase


_MODULES = {"cross_wing_balancing": "cross_wing"}
"""Modules that are not called as their phase is."""


_BOOSTS = ("ltp_enabled", "tagging_enabled", "association_enabled")
PHASES: tuple[Step, ...] = (
    Step("rerank", ("reranker",), reorders=True, is_slow=True),
    Step("ltp", ("ltp_enabled",)),
    Step("time_decay", ("time_decay_enabled",)),
    Step("tagging", ("tagging_enabled",)),
    Step("association", ("association_enabled",)),
    Step("scale", any_of=_BOOSTS),
    Step("query_expansion", ("query_expansion_enabled",), is_slow=True),
    Step("supersede", ("supersede_filter_enabled",)),
    Step("consolidation", ("consolidation_enabled",)),
    Step("pinned", ("pinned_memory_enabled",)),
    Step("mmr", ("mmr_enabled",), reorders=True),
    Step("cross_wing_balancing", ("mmr_enabled", "wing_diversity_weight"), reorders=True),
)
"""The order of DESIGN section 4; the cross-encoder reads the fused list, so it comes first."""


@dataclass(slots=True)
class Pipeline:
    """What the phases of one recall did as a whole.

    Attributes:
        applied: Phases that ran, in order.
        skipped: Phases that were off, late or out of place, in order.
        notes: Facts of every phase that has some.
        annotations: Position -> fields to show with the memory.
        balanced: Candidates before and after "cross_wing_balancing", where it ran.
    """

    applied: list[str] = field(default_factory=list[str])
    skipped: list[str] = field(default_factory=list[str])
    notes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    annotations: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    balanced: tuple[Candidates, Candidates] | None = None


def run_phases(
    candidates: Candidates, context: PhaseContext, run: Run, ledger: Ledger, sort_by: str
) -> tuple[Candidates, Pipeline]:
    """Run every phase that the profile wants, in order.

    A phase that fails is a warning and leaves the candidates as they were: a recall never raises.
    """
    pipeline = Pipeline()
    for step in PHASES:
        why_not = _why_not(step, context.profile, run, sort_by)
        if why_not is not None:
            pipeline.skipped.append(step.name)
            if why_not:
                pipeline.notes[step.name] = {"skipped": why_not}
            continue
        with run.step(step.name):
            outcome = _attempt(step, candidates, context, run)
        pipeline.applied.append(step.name)
        _note(step.name, outcome, candidates, pipeline, ledger)
        run.extend(outcome.warnings)
        candidates = outcome.candidates
    return candidates, pipeline


def _why_not(step: Step, profile: RetrievalProfile, run: Run, sort_by: str) -> str | None:
    """Return why a phase is left out ("" where nobody wants it), or None where it runs."""
    if not step.is_on(profile):
        return ""
    if step.reorders and sort_by != "relevance":
        return f"because the answer is ordered by {sort_by}"
    if step.is_slow and run.late():
        run.warn(f"deadline_{step.name}", f"the deadline passed before {step.name}; skipped")
        return "because the deadline passed"
    return None


def _attempt(step: Step, candidates: Candidates, context: PhaseContext, run: Run) -> PhaseOutcome:
    try:
        return step.phase(candidates, context)
    except Exception as error:
        run.warn("phase_failed", f"{step.name} was left out: {type(error).__name__}: {error}")
        return PhaseOutcome(candidates)


def _note(
    name: str, outcome: PhaseOutcome, before: Candidates, pipeline: Pipeline, ledger: Ledger
) -> None:
    after = outcome.candidates
    if name == "cross_wing_balancing":
        pipeline.balanced = (before, after)
    if outcome.notes:
        pipeline.notes[name] = dict(outcome.notes)
    for position, fields in outcome.annotations.items():
        pipeline.annotations.setdefault(position, {}).update(fields)
    ledger.dropped.extend(outcome.dropped)
    changed = after is not before and not (
        np.array_equal(after.positions, before.positions)
        and np.array_equal(after.scores, before.scores)
    )
    if changed:
        ledger.record(name, after.positions, after.scores, outcome.reason_of or _unexplained)


def _unexplained(position: int) -> str:
    return f"{{{position}}} was moved"
