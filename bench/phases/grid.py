"""The conditions: which flags, with which past, at which moment. Values only, no retrieval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from noctuary.recall.profile import Layers, RetrievalProfile, resolve

Use = Literal[
    "none", "once", "five", "rounds", "labels", "labels_five", "again", "again_labels", "queries"
]
"""What the store remembers of earlier use.

none: nothing. once, five: the ten answers of each question of the other half, logged so often.
rounds: the same five times over, each time ranked with LTP and what was logged before. labels,
labels_five: only the right answers to the other half. again, again_labels: the question itself was
asked before, its ten answers or only its right ones logged. queries: the query log of the other
half, for query expansion.
"""

Frame = Literal["everything", "after", "wing_after", "wing_newest", "asked"]
"""Where and when a question is asked.

everything: the whole corpus, by the clock. after: the whole corpus, one day after its newest
memory. wing_after, wing_newest: the question's wing, one day after or at the moment of the wing's
newest memory. asked: the question's wing at the question's own moment.
"""

Group = Literal["use", "age", "variety", "profiles"]

WITHOUT: Mapping[str, Any] = {
    "ltp_enabled": False,
    "time_decay_enabled": False,
    "tagging_enabled": False,
    "association_enabled": False,
    "mmr_enabled": False,
    "pinned_memory_enabled": False,
    "query_expansion_enabled": False,
    "supersede_filter_enabled": False,
    "consolidation_enabled": False,
}
"""The baseline: the default profile with every phase that is measured here off."""

DECAYS = ((90.0, 0.0), (90.0, 0.5), (90.0, 0.8), (90.0, 0.9), (7.0, 0.5), (180.0, 0.5))
"""Half-life in days and floor."""

MMR_LAMBDAS = (0.95, 0.85, 0.7)
WING_WEIGHTS = (0.0, 0.3)
NAMED = ("default", "off", "seed-hybrid", "libravdb", "libravdb-two-pass")


@dataclass(frozen=True, slots=True)
class Condition:
    """One recall that is compared with the baseline of its frame.

    Attributes:
        name: Unique.
        group: Which table it belongs to.
        profile: How it ranks.
        use: What the store remembers.
        frame: Where and when it is asked.
        credit_summaries: Count a summary as the labelled turn that it holds. Without it a summary
            in the place of a turn is a miss.
    """

    name: str
    group: Group
    profile: RetrievalProfile = field(default_factory=RetrievalProfile)
    use: Use = "none"
    frame: Frame = "everything"
    credit_summaries: bool = False


def baseline_profile() -> RetrievalProfile:
    """Return the default profile without the phases that are measured."""
    return RetrievalProfile().replaced(**WITHOUT)


def list_conditions(frames: frozenset[Frame], *, summaries: bool) -> list[Condition]:
    """Return the conditions that mean something in a set.

    Args:
        frames: Those that the set has; "everything" is always one of them.
        summaries: Whether the snapshot holds accepted summaries.
    """
    found = [*_use(), *_variety(frames, summaries=summaries)]
    for frame in ("after", "wing_after", "asked"):
        if frame in frames:
            found += _age(frame)
    if "wing_newest" in frames:
        found += _tagging("wing_newest")
    found += _profiles("after" if "after" in frames else "everything")
    if "asked" in frames:
        found += _profiles("asked")
    return found


def _with(**changes: Any) -> RetrievalProfile:
    return baseline_profile().replaced(**changes)


def _use() -> Iterator[Condition]:
    pasts: tuple[Use, ...] = ("once", "five", "rounds", "labels", "labels_five")
    for use in (*pasts, "again", "again_labels"):
        yield Condition(f"ltp 2, {use}", "use", _with(ltp_enabled=True), use)
    for use in pasts:
        profile = _with(association_enabled=True)
        yield Condition(f"association, {use}", "use", profile, use)
    yield Condition("pinned, five", "use", _with(pinned_memory_enabled=True), "five")
    expansion = _with(query_expansion_enabled=True)
    yield Condition("query expansion, queries", "use", expansion, "queries")


def _age(frame: Frame) -> Iterator[Condition]:
    for half_life, floor in DECAYS:
        profile = _with(time_decay_enabled=True, half_life_days=half_life, decay_floor=floor)
        name = f"decay {half_life:g} d, floor {floor:g}, {frame}"
        yield Condition(name, "age", profile, frame=frame)
    yield from _tagging(frame)
    supersede = _with(supersede_filter_enabled=True)
    yield Condition(f"supersede filter, {frame}", "age", supersede, frame=frame)


def _tagging(frame: Frame) -> Iterator[Condition]:
    yield Condition(f"tagging 1.5, {frame}", "age", _with(tagging_enabled=True), frame=frame)


def _variety(frames: frozenset[Frame], *, summaries: bool) -> Iterator[Condition]:
    for share in MMR_LAMBDAS:
        for weight in WING_WEIGHTS:
            # Without wings their weight penalizes everything alike, and says nothing.
            if weight and "wing_after" not in frames:
                continue
            profile = _with(mmr_enabled=True, mmr_lambda=share, wing_diversity_weight=weight)
            yield Condition(f"mmr {share:g}, wings {weight:g}", "variety", profile)
    if summaries:
        profile = _with(consolidation_enabled=True)
        yield Condition("consolidation, turns count", "variety", profile)
        yield Condition("consolidation, summaries count", "variety", profile, credit_summaries=True)


def _profiles(frame: Frame) -> Iterator[Condition]:
    suffix = ", asked" if frame == "asked" else ""
    for name in NAMED:
        profile = resolve(name, Layers()).profile
        yield Condition(f"{name}{suffix}", "profiles", profile, frame=frame)
    floored = resolve("libravdb-two-pass", Layers(), {"authority_floor": 0.5}).profile
    yield Condition(f"libravdb-two-pass, floor 0.5{suffix}", "profiles", floored, frame=frame)
