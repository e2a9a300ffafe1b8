"""Why a memory did, or did not, come back: the first stage of a recall that lost it.

The recall is the real one, with every explanation switched on and nothing written. For a memory of
another user no more is said than for an id that nobody has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from noctuary.core.errors import EncoderError
from noctuary.core.types import from_micros
from noctuary.recall.candidates import BREAKDOWN_KEYS
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import LIMIT
from noctuary.recall.inputs import Inputs
from noctuary.recall.legs import rank_lexical
from noctuary.recall.live import see
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Mask, Query, Rows, Scope, build_mask
from noctuary.recall.result import RecallResult, RecallWarning
from noctuary.sources.live import LiveState

UNKNOWN = "unknown"
OUT_OF_SCOPE = "out_of_scope"
NOT_ANSWERED = "not_answered"
NOT_FOUND = "not_found"
DROPPED = "dropped"
BELOW_LIMIT = "below_limit"
RETURNED = "returned"
ARCHIVED = "archived"
BEHIND_SUMMARY = "behind_summary"
GONE = "gone_since"
"""The store removed the memory since the snapshot, or may not show it any more."""

Row = Mapping[str, Any]

_MAY_BE = (
    "It is unknown or deleted, or newer than the snapshot, or the night kept it out as sensitive "
    "or unreadable, or it belongs to another user than the one who asks (--user); which of these "
    "is not told."
)


@dataclass(frozen=True, slots=True)
class Why:
    """The answer.

    Attributes:
        stage: One of the constants of this file.
        sentences: For a person, in order; `facts` has their numbers, and more, as JSON values.
        steps: What each step gave the memory, and the last returned one where that one beat it.
        result: The recall, or None where the memory could not be in it.
    """

    memory_id: str
    stage: str
    sentences: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    steps: tuple[Row, ...] = ()
    result: RecallResult | None = None

    @property
    def warnings(self) -> tuple[RecallWarning, ...]:
        """What went wrong on the way."""
        return () if self.result is None else self.result.warnings

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "memory_id": self.memory_id,
            "stage": self.stage,
            "sentences": list(self.sentences),
            "facts": dict(self.facts),
            "steps": [dict(step) for step in self.steps],
            "warnings": [w.to_json() for w in self.warnings],
        }


def explain_memory(
    recaller: Recaller, query: Query, memory_id: str, inputs: Inputs | None = None
) -> Why:
    """Say why a recall returned, or did not return, one memory or summary.

    Args:
        recaller: The pinned snapshot.
        query: The recall; it is made as a dry run.
        memory_id: The memory's id as text, or a summary's.
        inputs: What changes besides the snapshot; None means the store's own, without a look into
            the source.
    """
    reader, inputs = recaller.reader, inputs or recaller.inputs_now(query.scope.user)
    mask, _ = build_mask(query.scope, reader.facets, reader.created_at_us)
    profile = replace(query.profile, explain=True, candidate_trace=True, replay_log=False)
    asked = query._replace(profile=profile, dry_run=True)
    state = inputs.live()
    live = None if state is None else _of_store(recaller, state, query.scope, mask, memory_id)
    if live is not None:
        result = recaller.ask(asked, inputs)
        if live.stage == GONE:
            return replace(live, result=result)
        said = "Neither its words nor its vector brought it among the candidates."
        then = _met(memory_id, result) or Why(memory_id, NOT_FOUND, (said,))
        sentences, facts = (*live.sentences, *then.sentences), {**then.facts, **live.facts}
        return replace(then, sentences=sentences, facts=facts, result=result)
    position = _position_of(recaller, memory_id)
    owner_mask, _ = build_mask(Scope(user=query.scope.user), reader.facets, reader.created_at_us)
    if position is None or not _is_allowed(recaller, position, owner_mask):
        return _unknown(recaller, memory_id)
    if not _is_allowed(recaller, position, mask):
        return _out_of_scope(recaller, query.scope, memory_id, position)
    # What the recall searched, as it is now; nothing changes it within a moment.
    rows = recaller.find_rows(query.profile, inputs, mask)
    result = recaller.ask(asked, inputs)
    stands = rows.stands_for(position)
    if stands is None:
        why = _follow(recaller, query, rows, memory_id, position, result)
    elif stands < reader.count:
        why = _archived(recaller, memory_id, stands)
    else:
        why = _behind_summary(recaller, memory_id, stands)
        then = _follow(recaller, query, rows, str(why.facts["summarized_by"]), stands, result)
        facts = {**why.facts, "summary": {"stage": then.stage, **then.facts}}
        sentences = (*why.sentences, *then.sentences)
        why = replace(why, sentences=sentences, facts=facts, steps=then.steps)
    return replace(why, result=result)


def _of_store(
    recaller: Recaller, state: LiveState, scope: Scope, mask: Mask | None, memory_id: str
) -> Why | None:
    """Say what the store itself decides about a memory; None where the snapshot is right."""
    seen = see(state, recaller.reader, scope, mask)
    place = recaller.reader.positions_of([memory_id]).get(memory_id)
    was_seen = place is not None and (mask is None or bool(mask[place]))
    if any(row.memory.memory_id == memory_id for row in seen.state.rows):
        how = "changed" if was_seen else "new"
        said = f"[{memory_id}] is {how} since the snapshot and was read from the store itself."
        return Why(memory_id, RETURNED, (said,), {"live": how})
    if place is not None and was_seen and seen.mask is not None and not seen.mask[np.intp(place)]:
        said = (
            f"[{memory_id}] is in the snapshot, but the store removed it since, or marked it "
            "sensitive, or gave it to somebody else: it is not searched any more."
        )
        return Why(memory_id, GONE, (said,), {"live": "gone"})
    return None


def _archived(recaller: Recaller, memory_id: str, stands: int) -> Why:
    other = recaller.reader.public_ids([stands])[stands]
    plan = recaller.plan_of(memory_id)
    by = "by compaction" if plan is None else f"by compaction plan {plan}"
    back = f"noctuary proposals compact --undo {'PLAN_ID' if plan is None else plan}"
    said = (
        f"[{memory_id}] is archived {by}: [{other}] stands for it.",
        f"include_archived=true searches it all the same; `{back}` takes it out of the archive.",
    )
    return Why(memory_id, ARCHIVED, said, {"archived_behind": other, "plan_id": plan})


def _behind_summary(recaller: Recaller, memory_id: str, stands: int) -> Why:
    other = recaller.reader.public_ids([stands])[stands]
    said = (
        f"[{memory_id}] is a turn of a summary that is searched in its place: [{other}].",
        f"turn_view is summaries; raw searches the turns. `noctuary expand {other}` shows it.",
    )
    return Why(memory_id, BEHIND_SUMMARY, said, {"summarized_by": other})


def _met(memory_id: str, result: RecallResult) -> Why | None:
    """Say where the recall met a memory; None where it was never a candidate."""
    for place, memory in enumerate(result.memories, start=1):
        if str(memory.id) == memory_id:
            return _returned(memory_id, place, result)
    last = [r for r in result.candidate_trace or () if str(r.get("memory_id")) == memory_id][-1:]
    if last and last[0]["dropped_at"] == LIMIT:
        return _below_limit(memory_id, result)
    return _dropped(memory_id, last[0]) if last else None


def _follow(
    recaller: Recaller,
    query: Query,
    rows: Rows,
    memory_id: str,
    position: int,
    result: RecallResult,
) -> Why:
    """Follow a memory that the recall searches through the recall's stages."""
    met = _met(memory_id, result)
    if met is not None:
        return met
    blocked = any(w.code == "model_guard_blocked" for w in result.warnings)
    if not result.memories and (query.k == 0 or not query.text.strip() or blocked):
        told = [w.message for w in result.warnings if w.code != "user_required"]
        why = "; ".join(told) if told else f"k is {query.k}: nothing was asked for"
        return Why(memory_id, NOT_ANSWERED, (f"The recall was not answered at all: {why}.",))
    ordinal = position - recaller.reader.count
    if ordinal >= 0 and (rows.summaries is None or not rows.summaries[ordinal]):
        return _summary_unsearched(recaller, query.profile, memory_id, position)
    return _not_found(recaller, query, rows, memory_id, position)


def _position_of(recaller: Recaller, memory_id: str) -> int | None:
    reader = recaller.reader
    try:
        memory_id.encode("utf-8")
    except UnicodeEncodeError:  # bytes of a command line that are no text, so no id either
        return None
    found = reader.positions_of([memory_id]).get(memory_id)
    return reader.summaries.position_of(memory_id) if found is None else found


def _is_allowed(recaller: Recaller, position: int, mask: Mask | None) -> bool:
    return mask is None or bool(mask[list(recaller.reader.sources_at(position))].all())


def _unknown(recaller: Recaller, memory_id: str) -> Why:
    snapshot_id, built_at = recaller.snapshot_id, recaller.reader.manifest.built_at
    where = f"snapshot {snapshot_id}, built {built_at}"
    return Why(
        memory_id,
        UNKNOWN,
        (
            f"There is no memory [{memory_id}] that this recall could see in {where}.",
            _MAY_BE,
            "If it is new, or was changed since, run the night (`noctuary nightly`).",
        ),
        {"snapshot_id": snapshot_id, "built_at": built_at},
    )


def _out_of_scope(recaller: Recaller, scope: Scope, memory_id: str, position: int) -> Why:
    reader = recaller.reader
    row = reader.describe([position])[position]
    created = from_micros(row["created_at_us"])
    own = {
        "wing": row["wing"],
        "room": row["room"],
        "category": row["category"],
        "as_of": created.isoformat() if created else None,
    }
    sentences: list[str] = []
    filters: list[dict[str, Any]] = []
    for name, value in own.items():
        wanted = getattr(scope, name)
        if wanted is None:
            continue
        alone = Scope(user=scope.user, **{name: wanted})
        mask, _ = build_mask(alone, reader.facets, reader.created_at_us)
        if _is_allowed(recaller, position, mask):
            continue
        asked = wanted.isoformat() if name == "as_of" else wanted
        filters.append({"filter": name, "asked": asked, "memory_has": value})
        if name == "as_of":
            sentences.append(
                f"It was created {value}, and the recall asks for what was by {asked}."
            )
        else:
            has = f"{value!r}" if value is not None else "none"
            sentences.append(f"Its {name} is {has}, and the recall asks for {asked!r}.")
    opening = f"[{memory_id}] is in the snapshot, but a filter keeps it out before any ranking."
    return Why(memory_id, OUT_OF_SCOPE, (opening, *sentences), {"filters": filters})


def _returned(memory_id: str, place: int, result: RecallResult) -> Why:
    memory = result.memories[place - 1]
    where = f"place {place} of {len(result.memories)}"
    return Why(
        memory_id,
        RETURNED,
        (f"[{memory_id}] came back at {where}, with a score of {memory.final_score:.3f}.",),
        {
            "place": place,
            "final_score": memory.final_score,
            "score_breakdown": dict(memory.score_breakdown or {}),
        },
        tuple(memory.score_events or ()),
    )


def _below_limit(memory_id: str, result: RecallResult) -> Why:
    candidates = [row for row in result.candidates or () if "place" in row]
    (own,) = (row for row in candidates if str(row["id"]) == memory_id)
    kept = len(result.memories)
    last = candidates[kept - 1]
    where = f"place {own['place']} of {len(candidates)}"
    better = f"the last one returned, [{last['id']}], has {last['final_score']:.3f}"
    return Why(
        memory_id,
        BELOW_LIMIT,
        (
            f"[{memory_id}] was found, at {where}; {kept} were asked for.",
            f"Its score is {own['final_score']:.3f}; {better}.",
        ),
        {
            "place": own["place"],
            "candidates": len(candidates),
            "final_score": own["final_score"],
            "last_returned": last["id"],
            "last_returned_score": last["final_score"],
        },
        _beside(own["score_events"], last["score_events"]),
    )


def _beside(own: Sequence[Row], last: Sequence[Row]) -> tuple[Row, ...]:
    """Return each step's part of the one and of the other, in the order of the breakdown."""
    mine = {event["phase"]: event for event in own}
    theirs = {event["phase"]: event["delta"] for event in last}
    order = list(BREAKDOWN_KEYS)
    return tuple(
        {
            "phase": phase,
            "delta": mine[phase]["delta"] if phase in mine else 0.0,
            "reason": mine[phase]["reason"] if phase in mine else "",
            "delta_of_last_returned": theirs.get(phase, 0.0),
        }
        for phase in sorted({*mine, *theirs}, key=order.index)
    )


def _dropped(memory_id: str, row: Row) -> Why:
    return Why(
        memory_id,
        DROPPED,
        (
            f"[{memory_id}] was found, and dropped by {row['dropped_at']}: {row['reason']}.",
            f"Its score was {row['score']:.3f} then.",
        ),
        dict(row),
        tuple(
            {"phase": part, "delta": delta, "reason": ""}
            for part, delta in row["score_at_drop"].items()
            if part != "partial_score"
        ),
    )


def _summary_unsearched(
    recaller: Recaller, profile: RetrievalProfile, memory_id: str, position: int
) -> Why:
    """Say why a recall did not search a summary itself."""
    reader = recaller.reader
    turns = list(reader.public_ids(reader.summaries.at(position).sources).values())
    shown = ", ".join(f"[{turn}]" for turn in turns)
    plan = reader.summaries.plan_of(position)
    facts: dict[str, Any] = {"sources": turns, "turn_view": profile.turn_view}
    if plan is not None:
        said = (
            f"[{memory_id}] is the summary of compaction plan {plan} for {shown}.",
            "It is searched while the plan hides all of them; here they are searched themselves.",
        )
        return Why(memory_id, NOT_FOUND, said, {**facts, "plan_id": plan})
    consolidates = profile.consolidation_enabled
    said = (
        f"[{memory_id}] is a summary: it only appears in place of its turns ({shown}).",
        "With turn_view=summaries it is searched instead, if the recall searches all of them.",
        "With turn_view=raw two of them must be found, and consolidation_enabled be on (it is "
        + ("on)." if consolidates else "off)."),
    )
    return Why(memory_id, NOT_FOUND, said, {**facts, "consolidation_enabled": consolidates})


def _not_found(recaller: Recaller, query: Query, rows: Rows, memory_id: str, position: int) -> Why:
    profile, count = query.profile, recaller.reader.count
    allowed = count if rows.memories is None else int(rows.memories.sum())
    allowed += 0 if rows.summaries is None else int(rows.summaries.sum())
    # Of what may be seen: how many memories others have is theirs.
    depth = query.depth(allowed)
    asked = (recaller, profile, rows, query.text, position)
    standings = [dense_standing(*asked)]
    if profile.scorer == "fusion":
        standings.insert(0, lexical_standing(*asked))
    sentences = [
        f"[{memory_id}] was not among the candidates that the legs found.",
        *(f"{s.leg}: {_say_standing(s, allowed, depth)}." for s in standings),
        _beyond_legs(profile),
    ]
    facts = {
        s.leg: {"rank": s.rank, "score": s.score, "ranked": s.ranked, "fault": s.fault}
        for s in standings
    }
    return Why(
        memory_id, NOT_FOUND, tuple(sentences), {**facts, "allowed": allowed, "depth": depth}
    )


def _beyond_legs(profile: RetrievalProfile) -> str:
    if profile.scorer == "two_pass":
        return (
            "The scorer two_pass looks at the dense leg alone, and there at the best "
            f"{profile.coarse_depth} with a cosine of at least {profile.coarse_threshold:g}."
        )
    if profile.scorer != "fusion":
        return f"The scorer {profile.scorer} looks at the dense leg alone."
    if profile.graph_weight > 0:
        return "graph: nothing that was found led to it."
    return "graph: off (graph_weight 0)."


# Where one memory stands in each leg, over everything that a recall may see.


_ROWS_AT_ONCE = 1 << 16
"""Vectors multiplied at once: 100 MB of 384 dimensions. Fewer cost more calls, more cost memory."""


class Standing(NamedTuple):
    """One leg's view of one memory.

    Attributes:
        leg: "lexical" or "dense".
        rank: 1-based among the allowed memories that the leg scores above 0; None if it does not.
        score: The leg's own score; None where the leg could not be asked.
        ranked: How many allowed memories the leg scores above 0.
        fault: Why the leg could not be asked, or None.
    """

    leg: str
    rank: int | None
    score: float | None
    ranked: int
    fault: str | None = None


def lexical_standing(
    recaller: Recaller, profile: RetrievalProfile, rows: Rows, query: str, position: int
) -> Standing:
    """Rank everything that is searched by the words of the query."""
    if profile.lexical_weight <= 0:
        return Standing("lexical", None, None, 0, "off (lexical_weight 0)")
    reader = recaller.reader
    leg = rank_lexical(reader, query, rows.memories, reader.end, rows.summaries)
    score = float(leg.scores_at(np.array([position], dtype=np.int64))[0])
    return Standing("lexical", leg.rank_of().get(position), score, int(leg.ranking.size))


def dense_standing(
    recaller: Recaller, profile: RetrievalProfile, rows: Rows, query: str, position: int
) -> Standing:
    """Rank everything that is searched by its exact cosine to the query."""
    reader = recaller.reader
    vectors, count = reader.vectors, reader.count
    if profile.dense_weight <= 0:
        return Standing("dense", None, None, 0, "off (dense_weight 0)")
    if vectors is None:
        return Standing("dense", None, None, 0, "the snapshot has no vectors")
    try:
        vector = recaller.inputs_now().query_vector(query)
        parts = [
            np.asarray(vectors[start : start + _ROWS_AT_ONCE] @ vector, dtype=np.float32)
            for start in range(0, count, _ROWS_AT_ONCE)
        ]
        if rows.summaries is not None and reader.summary_vectors is not None:
            parts.append(np.asarray(reader.summary_vectors @ vector, dtype=np.float32))
    except (EncoderError, OSError, ValueError) as error:
        return Standing("dense", None, None, 0, f"could not be asked: {error}")
    cosines = np.concatenate(parts)
    score = float(cosines[position])
    above = cosines > 0
    if rows.memories is not None:
        above[:count] &= rows.memories
    if rows.summaries is not None:
        above[count:] &= rows.summaries
    if score <= 0:
        return Standing("dense", None, score, int(above.sum()))
    # Ties go to the lower position, as in every leg.
    ahead = above & (cosines > cosines[position])
    ahead[:position] |= above[:position] & (cosines[:position] == cosines[position])
    return Standing("dense", int(ahead.sum()) + 1, score, int(above.sum()))


def _say_standing(standing: Standing, allowed: int, depth: int) -> str:
    """Return where a memory stands in a leg, as a clause, of so many that may be seen or taken."""
    if standing.fault is not None:
        return standing.fault
    if standing.leg == "lexical":
        if standing.rank is None:
            return "shares no word with the query"
        return (
            f"rank {standing.rank:,} of {standing.ranked:,} that share a word with the query "
            f"(score {standing.score:.3f}); the best {depth:,} are taken"
        )
    if standing.rank is None:
        return f"points away from the query (cosine {standing.score:.3f}); only above 0 is taken"
    return (
        f"rank {standing.rank:,} of {allowed:,} (cosine {standing.score:.3f}); the best {depth:,} "
        "are taken"
    )
