"""Why a recall did, or did not, return a memory, and the sources of a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from noctuary.core.errors import EncoderError, SnapshotCorruptError, StoreError
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import NOTHING, Origin, from_micros
from noctuary.graph.walk import SEED_COUNT
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs
from noctuary.recall.legs import Leg, rank_dense, rank_lexical
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Facet, Mask, Query, Scope, build_mask, moment_of
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import MemoryId, RecallResult, RecallWarning, plain
from noctuary.recall.rows import Rows
from noctuary.recall.search import BREAKDOWN_KEYS, Row
from noctuary.recall.trace import LIMIT, TURN_VIEW
from noctuary.text.orders import reads_like_order
from noctuary.text.reach import PROJECT, REASONS

# `why`: the first stage of a recall that lost a memory. The recall is the real one, as a dry run
# with every explanation on. A memory of another user gets the same answer as an unknown id.

UNKNOWN = "unknown"
OUT_OF_SCOPE = "out_of_scope"
NOT_ANSWERED = "not_answered"
NOT_FOUND = "not_found"
DROPPED = "dropped"
BELOW_LIMIT = "below_limit"
RETURNED = "returned"
ARCHIVED = "archived"
BEHIND_SUMMARY = "behind_summary"
GONE = "gone_since"  # the store removed the memory since the snapshot, or may not show it any more

_MAY_BE = (
    "It is unknown, deleted, or newer than the snapshot; or the night kept it out as sensitive or "
    "unreadable; or it belongs to another user (--user). noctuary does not say which."
)


class Why(NamedTuple):
    """One of the stages above, in sentences and as JSON values."""

    memory_id: str
    stage: str
    sentences: tuple[str, ...]  # in order
    facts: Row = NOTHING  # the numbers behind them, and more, as JSON values
    # The delta of each step, for a memory below the limit also that of the last one returned.
    steps: tuple[Row, ...] = ()
    result: RecallResult | None = None  # None where the memory could not be in it

    @property
    def warnings(self) -> tuple[RecallWarning, ...]:
        """Warnings of the recall."""
        return () if self.result is None else self.result.warnings

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        names = ("memory_id", "stage", "sentences", "facts", "steps", "warnings")
        return {name: plain(getattr(self, name)) for name in names}


def explain_memory(
    recaller: Recaller, query: Query, memory_id: str, inputs: Inputs | None = None
) -> Why:
    """Explain why a recall, made as a dry run, did or did not return a memory or summary."""
    reader, inputs = recaller.reader, inputs or recaller.inputs_now(query.scope.user)
    mask, _ = build_mask(query.scope, reader.facets, reader.created_at_us)
    profile = query.profile.replaced(explain=True, candidate_trace=True, replay_log=False)
    asked = query._replace(profile=profile, dry_run=True)
    memory_id = _full_id(reader, inputs, query.scope, memory_id)
    live = _of_store(reader, inputs, query.scope, mask, memory_id)
    if live is not None:
        result = recaller.ask(asked, inputs)
        if live.stage == GONE:
            return live._replace(result=result)
        said = "Neither its words nor its vector brought it among the candidates."
        then = _met(memory_id, result) or Why(memory_id, NOT_FOUND, (said,))
        sentences, facts = (*live.sentences, *then.sentences), {**then.facts, **live.facts}
        return then._replace(sentences=sentences, facts=facts, result=result)
    position = _position_of(reader, memory_id)
    if position is None or not _is_allowed(reader, position, _of_user(reader, query.scope.user)):
        facts = {"snapshot_id": recaller.snapshot_id, "built_at": reader.manifest.built_at}
        where = f"snapshot {facts['snapshot_id']}, built {facts['built_at']}"
        said = (
            f"This recall can see no memory [{memory_id}] in {where}.",
            _MAY_BE,
            "If it is new or has changed, run the night (`noctuary nightly`).",
        )
        return Why(memory_id, UNKNOWN, said, facts)
    if not _is_allowed(reader, position, mask):
        return _out_of_scope(reader, query.scope, memory_id, position)
    rows = recaller.find_rows(query.profile, inputs, mask)
    result = recaller.ask(asked, inputs)
    stands = rows.stands_for(position)
    if stands is None:
        why = _follow(recaller, query, rows, memory_id, position, result)
    elif stands < reader.count:
        why = _archived(reader, inputs, memory_id, stands)
    else:
        why = _turn_of_summary(recaller, query, rows, memory_id, stands, result)
    row = reader.describe([position])[position]
    reached, reach = _say_reach(reader, reader.reach_at(position))
    said, facts = (*why.sentences, *reached), {**why.facts, "origin": row["origin"], **reach}
    if row["origin"] != Origin.USER and reads_like_order(row["content"]):
        said = (*said, "It reads like an order to the agent, so no prompt gets it (docs/trust.md).")
    return why._replace(result=result, sentences=said, facts=facts)


def _say_reach(reader: SnapshotReader, reach: int) -> tuple[tuple[str, ...], Row]:
    """Return in words and as facts that a memory reaches beyond its project, or may not."""
    if reach == PROJECT or not reader.facets["wing"].values:
        return (), NOTHING
    if reach < PROJECT:
        return (f"It stays in its project: {REASONS[reach]}.",), {"reach": "project"}
    return (f"It reaches every project: {REASONS[reach]}.",), {"reach": "everywhere"}


def _full_id(reader: SnapshotReader, inputs: Inputs, scope: Scope, memory_id: str) -> str:
    """Resolve another spelling of an id if it means exactly one visible memory; else keep it."""
    others = reader.other_ids(memory_id)
    if not others or _position_of(reader, memory_id) is not None:
        return memory_id
    state, whose = inputs.live(), _of_user(reader, scope.user)
    live = {row.memory.memory_id for row in state.rows} if state is not None else set[str]()
    places = reader.positions_of(others)
    found = {one for one, place in places.items() if _is_allowed(reader, place, whose)}
    found |= live.intersection(others)
    return found.pop() if len(found) == 1 and memory_id not in live else memory_id


def _turn_of_summary(
    recaller: Recaller, query: Query, rows: Rows, memory_id: str, stands: int, result: RecallResult
) -> Why:
    """Explain a turn whose summary the recall searched in its place."""
    other, met = str(recaller.reader.public_ids([stands])[stands]), _met(memory_id, result)
    facts: dict[str, Any] = {"summarized_by": other}
    if met is not None and met.facts.get("dropped_at") != TURN_VIEW:
        said = f"It is a turn of the summary [{other}], which the recall searches in its place."
        if _met(other, result) is not None:
            said = f"It came through its summary [{other}], which the recall searched in its place."
        return met._replace(sentences=(*met.sentences, said), facts={**met.facts, **facts})
    then = _follow(recaller, query, rows, other, stands, result)
    said = (
        f"[{memory_id}] is a turn of the summary [{other}], which the recall searched instead.",
        f"turn_view is summaries; raw searches the turns. `noctuary expand {other}` shows it.",
    )
    facts["summary"] = {"stage": then.stage, **then.facts}
    return Why(memory_id, BEHIND_SUMMARY, (*said, *then.sentences), facts, then.steps)


def _of_store(
    reader: SnapshotReader, inputs: Inputs, scope: Scope, mask: Mask | None, memory_id: str
) -> Why | None:
    """Explain a memory that the store changed since the snapshot; None if it did not."""
    state = inputs.live()
    if state is None:
        return None
    from noctuary.recall.rows import see

    seen, place = see(state, reader, scope, mask), reader.positions_of([memory_id]).get(memory_id)
    was_seen = place is not None and (mask is None or bool(mask[place]))
    for row in seen.state.rows:
        if row.memory.memory_id != memory_id:
            continue
        how = "changed" if was_seen else "new"
        reached, reach = _say_reach(reader, row.reach)
        said = f"[{memory_id}] is {how} since the snapshot; recall read it from the store itself."
        return Why(memory_id, RETURNED, (said, *reached), {"live": how, **reach})
    if place is not None and was_seen and seen.mask is not None and not seen.mask[np.intp(place)]:
        said = (
            f"[{memory_id}] is in the snapshot, but the store has since removed it, marked it "
            "sensitive, or given it to somebody else, so recall ignores it."
        )
        return Why(memory_id, GONE, (said,), {"live": "gone"})
    return None


def _position_of(reader: SnapshotReader, memory_id: str) -> int | None:
    try:
        memory_id.encode("utf-8")
    except UnicodeEncodeError:  # undecodable bytes of a command line
        return None
    found = reader.positions_of([memory_id]).get(memory_id)
    return reader.summaries.position_of(memory_id) if found is None else found


def _of_user(reader: SnapshotReader, user: str | None) -> Mask | None:
    return build_mask(Scope(user=user), _without_ends(reader), reader.created_at_us)[0]


def _without_ends(reader: SnapshotReader) -> Mapping[str, Facet]:
    """Return the facets as if no memory ended: that one has is told by itself."""
    return {**reader.facets, "user": reader.facets["user"]._replace(ends=None)}


def _is_allowed(reader: SnapshotReader, position: int, mask: Mask | None) -> bool:
    return mask is None or bool(mask[list(reader.sources_at(position))].all())


def _out_of_scope(reader: SnapshotReader, scope: Scope, memory_id: str, position: int) -> Why:
    row = reader.describe([position])[position]
    created = from_micros(row["created_at_us"])
    said = [f"[{memory_id}] is in the snapshot, but a filter keeps it out before any ranking."]
    filters: list[dict[str, Any]] = []
    for name in ("wing", "room", "category", "as_of"):
        asked = getattr(scope, name)
        if asked is None:
            continue
        alone = Scope(user=scope.user, person=scope.person, **{name: asked})
        mask, _ = build_mask(alone, _without_ends(reader), reader.created_at_us)
        if _is_allowed(reader, position, mask):
            continue
        if name == "as_of":
            asked, has = asked.isoformat(), created.isoformat() if created else None
            said.append(f"It was created {has}, but the recall asks for {asked} and before.")
        else:
            has = row[name]
            shown = "none" if has is None else repr(has)
            said.append(f"Its {name} is {shown}, but the recall asks for {asked!r}.")
        if name == "wing" and scope.person:
            reach = reader.reach_at(position)
            why = REASONS[reach] if reach <= PROJECT else "what others share holds for them alone"
            said.append(f"It does not reach every project: {why}.")
        filters.append({"filter": name, "asked": asked, "memory_has": has})
    until_us = row["valid_until_us"]
    if until_us is not None and until_us <= moment_of(scope):
        until = from_micros(until_us)
        has = until.isoformat() if until else None
        said.append(f"It held until {has}; as_of with an earlier moment finds it.")
        filters.append({"filter": "valid_until", "asked": None, "memory_has": has})
    return Why(memory_id, OUT_OF_SCOPE, tuple(said), {"filters": filters})


def _archived(reader: SnapshotReader, inputs: Inputs, memory_id: str, stands: int) -> Why:
    """Name the replacement of an archived memory and the last plan in force that archives it."""
    other, archive = reader.public_ids([stands])[stands], inputs.archived()
    plan: str | None = None
    if archive is not None:
        in_force = archive.applied_plans_at(None)
        for applied in sorted(archive.applications, key=lambda a: a.applied_at_us):
            entries = archive.entries_of(applied.plan_id) if applied.plan_id in in_force else ()
            if any(entry.memory_id == memory_id for entry in entries):
                plan = applied.plan_id
    by = "by compaction" if plan is None else f"by compaction plan {plan}"
    back = f"noctuary proposals compact --undo {'PLAN_ID' if plan is None else plan}"
    said = (
        f"[{memory_id}] is archived {by}: [{other}] replaces it.",
        f"include_archived=true searches it too; `{back}` takes it out of the archive.",
    )
    return Why(memory_id, ARCHIVED, said, {"archived_behind": other, "plan_id": plan})


def _follow(
    recaller: Recaller, query: Query, rows: Rows, memory_id: str, position: int,
    result: RecallResult,
) -> Why:  # fmt: skip
    """Explain a memory that the recall searched."""
    met = _met(memory_id, result)
    if met is not None:
        return met
    blocked = any(w.code == "model_guard_blocked" for w in result.warnings)
    if not result.memories and (query.k == 0 or not query.text.strip() or blocked):
        told = [w.message for w in result.warnings if w.code != "user_required"]
        why = "; ".join(told) if told else f"k is {query.k}: nothing was asked for"
        return Why(memory_id, NOT_ANSWERED, (f"The recall returned nothing: {why}.",))
    is_summary, searched = position >= recaller.reader.count, rows.searched
    if is_summary and (searched is None or not searched[position]):
        return _summary_unsearched(recaller.reader, query.profile, memory_id, position)
    return _not_found(recaller, query, rows, memory_id, position, result)


def _met(memory_id: str, result: RecallResult) -> Why | None:
    """Explain a memory that was a candidate; None if it was not."""
    for place, memory in enumerate(result.memories, start=1):
        if str(memory.id) == memory_id:
            score, where = memory.final_score, f"place {place} of {len(result.memories)}"
            said = f"[{memory_id}] came back at {where}, with a score of {score:.3f}."
            breakdown = dict(memory.score_breakdown or {})
            facts = {"place": place, "final_score": score, "score_breakdown": breakdown}
            return Why(memory_id, RETURNED, (said,), facts, tuple(memory.score_events or ()))
    rows = [r for r in result.candidate_trace or () if str(r.get("memory_id")) == memory_id]
    if not rows:
        return None
    row = rows[-1]
    if row["dropped_at"] == LIMIT:
        return _below_limit(memory_id, result)
    said = (
        f"[{memory_id}] was found, then dropped by {row['dropped_at']}: {row['reason']}.",
        f"Its score was {row['score']:.3f} then.",
    )
    parts = [(p, delta) for p, delta in row["score_at_drop"].items() if p != "partial_score"]
    steps = tuple({"phase": part, "delta": delta, "reason": ""} for part, delta in parts)
    return Why(memory_id, DROPPED, said, dict(row), steps)


def _below_limit(memory_id: str, result: RecallResult) -> Why:
    candidates = [row for row in result.candidates or () if "place" in row]
    (own,) = (row for row in candidates if str(row["id"]) == memory_id)
    last = candidates[len(result.memories) - 1]
    score, best = own["final_score"], last["final_score"]
    place = f"place {own['place']} of {len(candidates)}"
    said = (
        f"[{memory_id}] was found, at {place}; {len(result.memories)} were asked for.",
        f"Its score is {score:.3f}; the last one returned, [{last['id']}], has {best:.3f}.",
    )
    facts = {
        "place": own["place"],
        "candidates": len(candidates),
        "final_score": score,
        "last_returned": last["id"],
        "last_returned_score": best,
    }
    # The deltas of both, in the order of the breakdown.
    mine = {event["phase"]: event for event in own["score_events"]}
    theirs = {event["phase"]: event["delta"] for event in last["score_events"]}
    steps = tuple(
        {
            **mine.get(phase, {"phase": phase, "delta": 0.0, "reason": ""}),
            "delta_of_last_returned": theirs.get(phase, 0.0),
        }
        for phase in BREAKDOWN_KEYS
        if phase in mine or phase in theirs
    )
    return Why(memory_id, BELOW_LIMIT, said, facts, steps)


def _summary_unsearched(
    reader: SnapshotReader, profile: RetrievalProfile, memory_id: str, position: int
) -> Why:
    """Explain a summary that the recall did not search."""
    turns = list(reader.public_ids(reader.summaries.at(position).sources).values())
    shown = ", ".join(f"[{turn}]" for turn in turns)
    plan, on = reader.summaries.plan_of(position), profile.consolidation_enabled
    facts: dict[str, Any] = {"sources": turns, "turn_view": profile.turn_view}
    if plan is not None:
        said = (
            f"[{memory_id}] is the summary of compaction plan {plan} for {shown}.",
            "It is searched while the plan hides all of them; here they are searched themselves.",
        )
        return Why(memory_id, NOT_FOUND, said, {**facts, "plan_id": plan})
    said = (
        f"[{memory_id}] is a summary: it only appears in place of its turns ({shown}).",
        "With turn_view=summaries it is searched instead, if the recall searches all of them.",
        "It comes back if two of them are found and consolidation_enabled is on (it is "
        + ("on)." if on else "off)."),
    )
    return Why(memory_id, NOT_FOUND, said, {**facts, "consolidation_enabled": on})


def _not_found(
    recaller: Recaller, query: Query, rows: Rows, memory_id: str, position: int,
    result: RecallResult,
) -> Why:  # fmt: skip
    profile, count = query.profile, recaller.reader.count
    allowed = count if rows.searched is None else int(rows.searched.sum())
    # Of the visible ones: how many memories other users have is private.
    depth = query.depth(allowed)
    standings = list(find_standings(recaller, profile, rows, query.text, position))
    beyond = f"graph: {_shared_name(recaller.reader, result, position) or 'no hit led to it'}."
    if profile.scorer == "two_pass":
        beyond = (
            "The scorer two_pass looks at the dense leg alone, and there at the best "
            f"{profile.coarse_depth} with a cosine of at least {profile.coarse_threshold:g}."
        )
    elif profile.scorer != "fusion":
        beyond = f"The scorer {profile.scorer} looks at the dense leg alone."
    elif profile.graph_weight == 0:
        beyond = "graph: off (graph_weight 0)."
    sentences = (
        f"[{memory_id}] was found by no leg.",
        *(f"{s.leg}: {_say_standing(s, allowed, depth)}." for s in standings),
        beyond,
    )
    facts = {
        s.leg: {name: v for name, v in s._asdict().items() if name != "leg"} for s in standings
    }
    return Why(memory_id, NOT_FOUND, sentences, {**facts, "allowed": allowed, "depth": depth})


def _shared_name(reader: SnapshotReader, result: RecallResult, position: int) -> str | None:
    """Say which rare name a memory shares with the first hits, though that led nowhere."""
    if position >= reader.count:
        return None

    def held(place: int) -> list[int]:
        return reader.rare.concepts[slice(*reader.rare.indptr[place : place + 2])].tolist()

    own, hits = set(held(position)), [str(memory.id) for memory in result.memories[:SEED_COUNT]]
    places = reader.positions_of(hits)
    for hit in (one for one in hits if one in places):
        if shared := own.intersection(held(places[hit])):
            return (
                f"it shares {reader.concept_name(min(shared))!r} with [{hit}], but together they "
                "hold no more of the query's words than one memory alone"
            )
    return None


class Standing(NamedTuple):
    """Rank and score of one memory in one leg, among all visible memories."""

    leg: str  # "lexical" or "dense"
    rank: int | None  # 1-based among the allowed memories that the leg scores above 0; or None
    score: float | None  # of the leg; None if it failed or is off
    ranked: int  # how many allowed memories the leg scores above 0
    fault: str | None = None  # why the leg failed or is off


def find_standings(
    recaller: Recaller, profile: RetrievalProfile, rows: Rows, query: str, position: int
) -> Iterator[Standing]:
    """Rank all searched rows by the words of the query and by cosine; yield both standings."""
    reader = recaller.reader

    def stand(name: str, weight: float, rank: Callable[[], Leg]) -> Standing:
        fault = f"off ({name}_weight 0)"
        if weight > 0:
            try:
                leg = rank()
                score = float(leg.scores_at(np.array([position], dtype=np.int64))[0])
                return Standing(name, leg.rank_of().get(position), score, int(leg.ranking.size))
            except (EncoderError, OSError, ValueError) as error:
                fault = f"could not be asked: {error}"
        return Standing(name, None, None, 0, fault)

    def dense() -> Leg:
        vector = recaller.inputs_now().query_vector(query)
        return rank_dense(reader, vector, rows.searched, reader.end)

    if profile.scorer == "fusion":
        words = partial(rank_lexical, reader, query, rows.searched, reader.end)
        yield stand("lexical", profile.lexical_weight, words)
    if profile.dense_weight > 0 and reader.vectors is None:
        yield Standing("dense", None, None, 0, "the snapshot has no vectors")
    else:
        yield stand("dense", profile.dense_weight, dense)


def _say_standing(standing: Standing, allowed: int, depth: int) -> str:
    """Return a standing as a clause; `allowed` rows are visible, the best `depth` are taken."""
    if standing.fault is not None:
        return standing.fault
    is_lexical, score = standing.leg == "lexical", f"{standing.score:.3f}"
    if standing.rank is None:
        away = f"points away from the query (cosine {score}); only cosines above 0 count"
        return "shares no word with the query" if is_lexical else away
    of = f"{allowed:,} (cosine {score})"
    if is_lexical:
        of = f"{standing.ranked:,} that share a word with the query (score {score})"
    return f"rank {standing.rank:,} of {of}; the best {depth:,} are taken"


# `expand`: the sources of a summary, in full, because a summary may leave out details.

_GATE = ("align", "cover", "confidence", "decay_rate", "source_tokens", "summary_tokens")
_LINEAGE = ("method", "first_us", "last_us", "facts", "plan_id", *_GATE)


class UnknownSummaryError(StoreError):
    """There is no such summary, or the user may not see all of its sources."""


class Source(NamedTuple):
    """One source of a summary, in full."""

    id: MemoryId
    content: str
    category: str
    created_at: datetime | None
    wing: str | None
    room: str | None
    session_id: str | None
    user: str | None
    origin: str


class Parent(NamedTuple):
    """An earlier summary that the summarizer got as context."""

    id: str
    # None if the snapshot no longer has it, or the user may not see all of its sources.
    text: str | None


class Expansion(NamedTuple):
    """A summary with its sources."""

    summary_id: str
    text: str
    sources: tuple[Source, ...]  # each exactly once, in order of time
    parents: tuple[Parent, ...]  # oldest first; their content is not part of this summary
    method: str
    first_at: datetime | None  # of its first source; None if no source has a date
    last_at: datetime | None
    confidence: float | None  # in [0, 1]; None if it was not rated
    # The gate's report: align, cover, confidence, decay_rate, source_tokens, summary_tokens, and
    # `facts` (kept, total, introduced, contradicted) where facts were checked.
    gate: Mapping[str, Any]
    plan_id: str | None  # of its compaction plan; None for a summary of turns
    snapshot_id: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values; dates as ISO-8601."""
        return plain(self)


def expand_from(
    reader: SnapshotReader, snapshot_id: str, summary_id: str, user: str | None
) -> Expansion:
    """Return the sources of a summary of an opened snapshot; raises as `expand` does."""
    try:
        position, mask = reader.summaries.position_of(summary_id), _of_user(reader, user)
        if position is not None and _is_allowed(reader, position, mask):
            return _expansion(reader, snapshot_id, summary_id, position, mask)
    except Exception as error:  # damage to the snapshot may raise anything
        raise SnapshotCorruptError(
            f"{type(error).__name__} in {snapshot_id}: run `noctuary doctor`"
        ) from error
    raise UnknownSummaryError(
        f"there is no summary {summary_id!r} in snapshot {snapshot_id} for "
        f"{'nobody in particular' if user is None else 'user ' + repr(user)}: ids of summaries "
        "are those of kind 'summary' in a recall; it may be older than the last night, or "
        "stand for memories of another user (--user)"
    )


def _expansion(
    reader: SnapshotReader, snapshot_id: str, summary_id: str, position: int, mask: Mask | None
) -> Expansion:
    sources = reader.summaries.at(position).sources
    (row,) = reader.look_up("summaries", "summary_id", ", ".join(_LINEAGE), [summary_id])
    lineage = dict(zip(_LINEAGE, row, strict=True))
    gate = {name: lineage[name] for name in _GATE}
    if lineage["facts"] is not None:
        gate["facts"] = parse_json(lineage["facts"])
    rows, ids = reader.describe([position, *sources]), reader.public_ids(sources)
    created = {p: from_micros(rows[p]["created_at_us"]) for p in sources}
    shown = ("content", "category", "wing", "room", "session_id", "user", "origin")
    return Expansion(
        summary_id=summary_id,
        text=rows[position]["content"],
        sources=tuple(
            Source(id=ids[p], created_at=created[p], **{name: rows[p][name] for name in shown})
            for p in sources
        ),
        parents=_parents(reader, summary_id, mask),
        method=lineage["method"],
        first_at=from_micros(lineage["first_us"]),
        last_at=from_micros(lineage["last_us"]),
        confidence=lineage["confidence"],
        gate=gate,
        plan_id=lineage["plan_id"],
        snapshot_id=snapshot_id,
    )


def _parents(reader: SnapshotReader, summary_id: str, mask: Mask | None) -> tuple[Parent, ...]:
    rows = reader.look_up("summary_parents", "summary_id", "place, parent_id", [summary_id])
    ids = [parent for _, parent in sorted(rows)]
    places = [p for p in map(reader.summaries.position_of, ids) if p is not None]
    # The turns of a parent may be private where those of the summary are shared.
    seen = reader.describe(p for p in places if _is_allowed(reader, p, mask))
    texts = {row["memory_id"]: str(row["content"]) for row in seen.values()}
    return tuple(Parent(parent, texts.get(parent)) for parent in ids)
