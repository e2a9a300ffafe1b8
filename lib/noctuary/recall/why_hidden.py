"""Why a memory is not searched at all: sentences for archived memories, turns and summaries.

What belongs here: the sentences. What does not: the rules (`searched`), following a candidate
through a recall (`why`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from noctuary.recall.engine import Recaller
from noctuary.recall.hidden import hidden_behind
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.searched import Searched

ARCHIVED = "archived"
BEHIND_SUMMARY = "behind_summary"


class Hidden(NamedTuple):
    """Why one memory is not searched.

    Attributes:
        stage: ARCHIVED or BEHIND_SUMMARY.
        sentences: For a person.
        facts: The same as JSON values.
        summary: Position of the summary that is searched instead, or None.
    """

    stage: str
    sentences: tuple[str, ...]
    facts: dict[str, Any]
    summary: int | None = None


def find_reason(
    recaller: Recaller, searched: Searched, memory_id: str, position: int
) -> Hidden | None:
    """Return why a memory that the scope allows is not searched; None where it is.

    Args:
        recaller: The pinned snapshot.
        searched: What the recall searches.
        memory_id: The memory, as asked.
        position: Where it stands.
    """
    reader = recaller.reader
    stands = hidden_behind(reader, searched, position)
    if stands is None:
        return None
    other = reader.public_ids([stands.position])[stands.position]
    if stands.position >= reader.count:
        said = (
            f"[{memory_id}] is a turn of a summary that is searched in its place: [{other}].",
            f"turn_view is summaries; raw searches the turns. `noctuary expand {other}` shows it.",
        )
        return Hidden(BEHIND_SUMMARY, said, {"summarized_by": other}, stands.position)
    plan = recaller.plan_of(memory_id)
    by = "by compaction" if plan is None else f"by compaction plan {plan}"
    back = "noctuary compact --undo PLAN_ID" if plan is None else f"noctuary compact --undo {plan}"
    said = (
        f"[{memory_id}] is archived {by}: [{other}] stands for it.",
        f"include_archived=true searches it all the same; `{back}` takes it out of the archive.",
    )
    return Hidden(ARCHIVED, said, {"archived_behind": other, "plan_id": plan})


def say_summary_unsearched(
    recaller: Recaller, profile: RetrievalProfile, memory_id: str, position: int
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Return sentences and facts about a summary that a recall did not search itself.

    Args:
        recaller: The pinned snapshot.
        profile: Of the recall.
        memory_id: The summary's id.
        position: Where it stands.
    """
    reader = recaller.reader
    view = reader.summaries.at(position)
    turns = list(reader.public_ids(view.sources).values())
    shown = ", ".join(f"[{turn}]" for turn in turns)
    plan = reader.summaries.plan_of(position)
    facts: dict[str, Any] = {"sources": turns, "turn_view": profile.turn_view}
    if plan is not None:
        said = (
            f"[{memory_id}] is the summary of compaction plan {plan} for {shown}.",
            "It is searched while the plan hides all of them; here they are searched themselves.",
        )
        return said, {**facts, "plan_id": plan}
    consolidates = profile.consolidation_enabled
    said = (
        f"[{memory_id}] is a summary: it only appears in place of its turns ({shown}).",
        "With turn_view=summaries it is searched instead, if the recall searches all of them.",
        "With turn_view=raw two of them must be found, and consolidation_enabled be on (it is "
        + ("on)." if consolidates else "off)."),
    )
    return said, {**facts, "consolidation_enabled": consolidates}
