"""`assemble`: the context of one prompt, for agents that build their prompts themselves."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.context import prompt
from noctuary.context.documents import HARD, SOFT, VARIANT, Node, load_documents
from noctuary.context.inject import line_of, wordings_of
from noctuary.context.prompt import Context, ContextProfile, Degradation, Part, Section, Turn
from noctuary.context.render import Line, held_back, render_block
from noctuary.core.errors import EncoderError, SnapshotMissingError, StoreError
from noctuary.core.types import UNDATED_US, to_micros
from noctuary.embed.lean import LeanEncoder
from noctuary.recall.api import find_serving, staleness
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import encode_query, text_encoder
from noctuary.recall.profile import (
    RetrievalProfile,
    current_settings,
    resolve_for_recall,
)
from noctuary.recall.query import Scope, aware, check_arguments
from noctuary.recall.result import RecallResult, RecallWarning
from noctuary.recall.scorers import score_two_pass, unit_of
from noctuary.sources.injected import append_injection
from noctuary.text.marks import split_speaker
from noctuary.text.tokens import tokenize
from noctuary.usage.access_log import append_retrievals

if TYPE_CHECKING:
    from noctuary.embed.onnx import OnnxEncoder


def assemble(
    query: str,
    budget_tokens: int,
    *,
    session: Sequence[Turn] = (),
    documents: Sequence[str | os.PathLike[str]] = (),
    profile: str | ContextProfile = "default",
    store: str | Path | None = None,
    user: str | None = None,
    wing: str | None = None,
    as_of: datetime | None = None,
    deadline_ms: float | None = None,
    dry_run: bool = False,
    person: bool = False,
) -> Context:
    """Return the context for a prompt within a token budget: rules, last turns, relevant memories.

    Hard nodes of the documents and the last turns are always whole. Then come, in this order, soft
    nodes, more turns, and the query's results among the documents' other nodes, earlier turns and
    the memories of the store, ranked by one score.

    Args:
        query: Any text.
        budget_tokens: Tokens of the whole text, including tags, >= 0.
        session: The turns so far, oldest first.
        documents: Markdown files for the agent, in order.
        profile: "default", "reference" (libravdb's constants) or a `ContextProfile`.
        store: As in `noctuary.recall`.
        user: Whose memories; those of other named users never appear.
        wing: Only memories of this wing.
        person: With a wing: also what holds for the person in every project.
        as_of: Only memories that existed at this moment, and ages as of it; naive times are UTC.
        deadline_ms: Stop looking things up after this much wall time.
        dry_run: Write neither the access log nor the record of injections.

    Returns:
        Always a context. A missing or damaged store, no encoder and a passed deadline are warnings
        in it. If hard nodes and the last turns exceed the budget, it contains only those, and
        `degraded` says so.

    Raises:
        ValueError: An argument is of the wrong type or out of range.
        AuthoredError: A document cannot be read.
    """
    scope = Scope(wing=wing, user=user, as_of=as_of, person=person)
    check_arguments(query, 0, "relevance", scope, deadline_ms)
    if type(budget_tokens) is not int or budget_tokens < 0:
        raise ValueError(f"budget_tokens must be a whole number >= 0, found {budget_tokens!r}")
    if isinstance(documents, str | os.PathLike):
        raise ValueError(f"documents must be a list of paths, found {documents!r} alone")  # noqa: TRY004
    constants = prompt.profile_named(profile)
    search = StoreSearch(store, scope, deadline_ms)
    nodes = load_documents(documents)
    context, memories = assemble_from(query, budget_tokens, session, nodes, constants, search)
    warnings = [*search.warnings, *context.warnings]
    variants = {node.id for node in nodes if node.tier == VARIANT}
    if unknown := sorted({target for node in nodes for target in node.hop_targets} - variants):
        message = f"hop targets name no variant node of the documents: {', '.join(unknown)}"
        warnings.append(RecallWarning("dangling_hop_targets", message))
    recaller = search.recaller
    if recaller is not None:
        context = context._replace(snapshot_id=recaller.snapshot_id, store=str(recaller.paths.root))
        if memories and not dry_run:
            warnings += _record(recaller, memories, query)
    return context._replace(warnings=tuple(dict.fromkeys(warnings)))


def _record(
    recaller: Recaller, memories: Sequence[Mapping[str, Any]], query: str
) -> list[RecallWarning]:
    """Log the memories in the context as retrieved and as injected; others were not shown."""
    paths, ids = recaller.paths, [str(m["id"]) for m in memories if m["kind"] == "memory"]
    faults: dict[str, str | None] = {}
    if ids and current_settings()[0].recall.log_retrievals:
        faults["access_log"] = append_retrievals(
            paths.access_log, snapshot_id=recaller.snapshot_id, memory_ids=ids
        )
    wordings = wordings_of(memories, query)
    now_us = time.time_ns() // 1000
    faults["injection_log"] = append_injection(paths.injections, wordings, now_us=now_us)
    return [RecallWarning(code, fault) for code, fault in faults.items() if fault is not None]


# The assembly: who gets which part of the budget, in order of precedence (docs/context.md).
#
# Pure: equal inputs and equal answers of the search give equal bytes. Source: libravdb mathematics
# 7.8; research/peers.md 1.4.

_ROUNDING = 1e-9  # so that a share that is a whole number is not one token less by rounding
MAX_EARLIER_TURNS = 2_000  # before the tail, the newest ones; the night keeps older ones


def assemble_from(
    query: str,
    budget_tokens: int,
    session: Sequence[Turn],
    nodes: Sequence[Node],
    profile: ContextProfile,
    search: StoreSearch,
) -> tuple[Context, list[Mapping[str, Any]]]:
    """Return the context of one prompt, and the memories in it as the store gave them."""
    counter = search.counter

    def of_tier(tier: int, kind: prompt.PartKind, rule: str) -> list[Part]:
        found = [node for node in nodes if node.tier == tier]
        return [prompt.part_of_node(node, kind, {"rule": rule}, counter) for node in found]

    turns = [
        turn if turn.id is not None else turn._replace(id=f"turn-{place:06d}")
        for place, turn in enumerate(session)
        if turn.text.strip()
    ]
    starts = prompt.safe_starts(turns)
    start = next(at for at in starts if at <= max(len(turns) - profile.min_tail_turns, 0))
    hard = prompt.section_of(prompt.RULES, of_tier(HARD, "I1", "hard"), counter)
    latest = [prompt.part_of_turn(turn, "tail_base", counter) for turn in turns[start:]]
    base = prompt.section_of(prompt.LATEST, latest, counter)
    empty = Context(query, "", (), 0, 0, budget_tokens, counter.label, profile.name)
    degraded = find_degradations(hard, base, budget_tokens, profile.hard_fraction)
    if degraded:
        return _filled(empty._replace(degraded=degraded), hard, base), []

    left = budget_tokens - hard.tokens - base.tokens
    soft_room = min(math.floor(profile.soft_fraction * budget_tokens + _ROUNDING), left)
    guidance = of_tier(SOFT, "I2", "soft_prefix")
    soft = prompt.fit_prefix(prompt.GUIDANCE, guidance, counter, soft_room)

    left -= soft.tokens
    tail_room = min(max(profile.tail_target_tokens - base.tokens, 0), left)
    tail = fit_tail(turns[:start], [at for at in starts if at < start], counter, tail_room)
    first = start - len(tail.parts)

    left -= tail.tokens
    earlier = turns[max(first - MAX_EARLIER_TURNS, 0) : first]
    present = frozenset(wording(p.text) for one in (hard, base, soft, tail) for p in one.parts)
    found, warnings = _find(query, left, earlier, nodes, profile, search, present)
    block = fit_found(found, counter, left)
    context = empty._replace(warnings=tuple(warnings))
    memories = [c.memory for c in found[: len(block.parts)] if c.memory is not None]
    return _filled(context, hard, base, soft, tail, block), memories


def find_degradations(
    hard: Section, base: Section, budget: int, hard_fraction: float = 0.0
) -> tuple[Degradation, ...]:
    """Return why hard nodes and T_base do not fit together; empty if they do (libravdb 7.8)."""
    turns = f"hard nodes and the last {len(base.parts)} turns"
    needs = [("hard_over_budget", hard.tokens, budget, "hard nodes")]
    if hard_fraction > 0.0:
        reserve = math.floor(hard_fraction * budget + _ROUNDING)
        needs.insert(0, ("hard_over_reserve", hard.tokens, reserve, "hard nodes"))
    if base.parts:
        needs.append(("tail_base_over_budget", hard.tokens + base.tokens, budget, turns))
    return tuple(
        Degradation(
            code,
            needed,
            allowed,
            f"{what} need {needed:,} tokens and may have {allowed:,}: they are here uncut and "
            "nothing else is. Raise the budget, or shorten them",
        )
        for code, needed, allowed, what in needs
        if needed > allowed
    )


def fit_tail(
    turns: Sequence[Turn], starts: Sequence[int], counter: prompt.TokenCounter, room_tokens: int
) -> Section:
    """Return the section of the longest suffix that fits and begins at one of `starts`."""
    best, parts = Section(), list[Part]()
    for start in starts:
        before = turns[start : len(turns) - len(parts)]
        parts[:0] = [prompt.part_of_turn(turn, "tail_extension", counter) for turn in before]
        section = prompt.section_of(prompt.EARLIER, parts, counter)
        if section.tokens > room_tokens:
            break
        best = section
    return best


def fit_found(
    found: Sequence[Candidate], counter: prompt.TokenCounter, room_tokens: int
) -> Section:
    """Return the block of the longest prefix that fits; what its tags cost depends on its lines."""
    best, parts = Section(), list[Part]()
    for c in found:
        piece = f"{c.line.rendered()}\n"
        tokens = counter.count(piece)
        parts.append(Part("variant", c.source, c.id, c.text, piece, tokens, c.score, c.why))
        block = render_block([one.line for one in found[: len(parts)]])
        opening, _, _ = block.partition("\n- [")
        _, _, closing = block.rpartition("\n")
        frame_tokens = counter.count(f"{opening}\n") + counter.count(f"{closing}\n")
        section = Section(tuple(parts), f"{opening}\n", f"{closing}\n", frame_tokens)
        if section.tokens > room_tokens:
            break
        best = section
    return best


def _filled(context: Context, *sections: Section) -> Context:
    return context._replace(
        text="".join(section.text for section in sections),
        parts=tuple(part for section in sections for part in section.parts),
        tokens=sum(section.tokens for section in sections),
        frame_tokens=sum(section.frame_tokens for section in sections),
    )


def _find(
    query: str,
    room: int,
    earlier: Sequence[Turn],
    documents: Sequence[Node],
    profile: ContextProfile,
    search: StoreSearch,
    present: frozenset[str],
) -> tuple[list[Candidate], list[RecallWarning]]:
    """Return what the query finds in V_rest, best first; nothing where there is no room at all."""
    if not query.strip():
        return [], [RecallWarning("empty_query", "the query holds no text: nothing was looked up")]
    if room <= 0:
        return [], []
    nodes = [of_node(node) for node in documents if node.tier == VARIANT]
    own = [*nodes, *map(of_turn, reversed(earlier))]
    memories, missing = search.find_memories(query, profile)
    candidates, warnings = gather(query, own, memories, search, present)
    reachable = {node.id: node for node in nodes if wording(node.text) not in present}
    return rank(candidates, reachable, search.now_us, profile), [*missing, *warnings]


# V_rest of one query: variant nodes, turns before the tail and memories, made comparable.

# Nodes and turns compared by meaning, those with most of the query's words first: four for each
# place of the first pass. Each costs 10 to 60 ms when a process reads it for the first time.
MAX_COMPARED = 64


class Candidate(NamedTuple):
    """A text that competes for a place: a node, a turn or a memory."""

    id: str
    source: prompt.PartSource
    text: str
    line: Line
    created_at_us: int = UNDATED_US
    authored: float = 0.0
    hop_targets: tuple[str, ...] = ()
    similarity: float = 0.0
    coverage: float = 0.0
    store_score: float | None = None  # the store's own, which knows a memory's use
    memory: Mapping[str, Any] | None = None
    score: float = 0.0  # sigma of 7.8, in [0, 1], of what stays
    why: Mapping[str, Any] = {}  # the rule behind it


def of_node(node: Node) -> Candidate:
    """Return a node, of full authority, as a candidate that was compared to nothing yet."""
    line = Line(node.id, "undated", prompt.indented(node.text), "authored")
    return Candidate(
        node.id, "authored", node.text, line, authored=1.0, hop_targets=node.hop_targets
    )


def of_turn(turn: Turn) -> Candidate:
    """Return a turn of the session, which has an id by now, as a candidate."""
    day, at_us = "undated", UNDATED_US if turn.at_us is None else turn.at_us
    if turn.at_us is not None:
        with suppress(OverflowError, OSError, ValueError):  # no calendar has that moment
            day = datetime.fromtimestamp(turn.at_us / 1e6, UTC).date().isoformat()
    line = Line(str(turn.id), day, prompt.turn_text(turn), "this session")
    return Candidate(line.memory_id, "session", turn.text, line, at_us)


def of_memory(
    memory: Mapping[str, Any], similarity: float | None, score: float | None
) -> Candidate:
    """Return a recalled memory as a candidate; None where keywords take the numbers' place."""
    made = memory.get("created_at")
    return Candidate(
        str(memory.get("id")),
        "memory",
        str(memory.get("content", "")),
        line_of(memory),
        to_micros(datetime.fromisoformat(str(made))) if made else UNDATED_US,
        float(memory.get("importance") or 0.0),
        similarity=similarity or 0.0,
        store_score=score,
        memory=memory,
    )


def gather(
    query: str,
    own: Sequence[Candidate],
    memories: Sequence[Candidate],
    search: StoreSearch,
    present: frozenset[str],
) -> tuple[list[Candidate], list[RecallWarning]]:
    """Return the candidates, each wording once, with similarity and coverage.

    At most `MAX_COMPARED` of `own` (nodes in authored order, then turns, newest first) are
    compared; more, and unreadable ones, give a warning. Texts already in the prompt
    (`present`, as `wording`) are left out.
    """
    warnings: list[RecallWarning] = []
    tokens = tokenize(query)
    own = _with_coverage(_distinct(own, present), tokens)
    known = present | {wording(c.text) for c in own}
    memories = _with_coverage(_distinct(memories, known), tokens)
    best = sorted(range(len(own)), key=lambda place: -own[place].coverage)[:MAX_COMPARED]
    compared = [own[place] for place in sorted(best)]
    if len(compared) < len(own):
        message = (
            f"{len(own) - len(compared)} nodes and turns share fewest words with the query and "
            f"were left out: {MAX_COMPARED} are compared. Shorten the documents or the session"
        )
        warnings.append(RecallWarning("variants_not_compared", message))
    if not search.knows_cosines:
        everyone = [*compared, *memories]
        return [c._replace(similarity=c.coverage, store_score=None) for c in everyone], warnings
    cosines = search.similarities(query, [c.text for c in compared])
    read = [
        c._replace(similarity=cosine)
        for c, cosine in zip(compared, cosines, strict=True)
        if cosine is not None
    ]
    if len(read) < len(compared):
        message = (
            f"{len(compared) - len(read)} nodes and turns were not compared: the deadline passed, "
            "or the encoder failed"
        )
        warnings.append(RecallWarning("variants_unread", message))
    return [*read, *memories], warnings


def wording(text: str) -> str:
    """Return a text's key: equal for texts that differ only in case and white space."""
    return " ".join(text.split()).casefold()


def text_coverage(query_tokens: Sequence[str], texts: Sequence[str]) -> list[float]:
    """Return the share of the query's words in each text, as in `keyword_coverage`."""
    wanted = set(query_tokens)
    return [len(wanted.intersection(tokenize(text))) / max(len(wanted), 1) for text in texts]


def _with_coverage(candidates: Sequence[Candidate], tokens: Sequence[str]) -> list[Candidate]:
    shares = text_coverage(tokens, [c.text for c in candidates])
    return [c._replace(coverage=s) for c, s in zip(candidates, shares, strict=True)]


def _distinct(candidates: Sequence[Candidate], present: frozenset[str]) -> list[Candidate]:
    """Return the first of each new wording; a turn is also compared without its speaker."""
    seen, kept = set(present), list[Candidate]()
    for candidate in candidates:
        said = {wording(candidate.text)}
        if candidate.memory is not None and candidate.memory.get("session_id") is not None:
            said.add(wording(split_speaker(candidate.text)[1]))
        if not said & seen:
            kept.append(candidate)
            seen |= said
    return kept


# One score for all results of the query, and for the context that accompanies them.
#
# Source: libravdb mathematics 7.3 to 7.8.

_SHOWN_DIGITS = 6  # digits of the numbers in `why`: the precision of float32


def rank(
    candidates: Sequence[Candidate],
    nodes: Mapping[str, Candidate],
    now_us: int,
    profile: ContextProfile,
) -> list[Candidate]:
    """Return what the passes and the hops leave, best first; ties in the order given, hops last.

    `nodes` are all variant nodes by id, compared or not: what hops may reach.
    """
    direct = two_passes(candidates, now_us, profile)
    return sorted([*direct, *hops(direct, nodes, profile)], key=lambda found: -found.score)


def two_passes(
    candidates: Sequence[Candidate], now_us: int, profile: ContextProfile
) -> list[Candidate]:
    """Return C2: the k1 most similar that reach theta1, of these the k2 of best score.

    A memory's score comes from the store, which knows its use; nodes and turns were never recalled.
    """
    if not candidates:
        return []

    def column(name: str, kind: Any = np.float64) -> NDArray[Any]:
        return np.array([getattr(c, name) for c in candidates], dtype=kind)

    given = column("similarity")
    similarities = np.clip(np.where(np.isfinite(given), given, 0.0), -1.0, 1.0)
    dates, never = column("created_at_us", np.int64), np.zeros(len(candidates), dtype=np.int64)
    rows, scores = score_two_pass(
        similarities, dates, now_us, never, 0, column("authored"), column("coverage"),
        profile.retrieval(), profile.final_depth,
    )  # fmt: skip
    known = column("store_score")[rows]  # None is no number
    scores = np.where(np.isnan(known), scores, unit_of(known))
    best = np.lexsort((rows, -scores))[: profile.final_depth]
    return [
        candidates[row]._replace(score=score, why=_why(candidates[row], float(similarities[row])))
        for row, score in zip(rows[best].tolist(), scores[best].tolist(), strict=True)
    ]


def _why(candidate: Candidate, similarity: float) -> dict[str, Any]:
    numbers = {"similarity": similarity, "coverage": candidate.coverage}
    return {"rule": "two_pass", **{n: round(v, _SHOWN_DIGITS) for n, v in numbers.items()}}


def hops(
    direct: Sequence[Candidate], nodes: Mapping[str, Candidate], profile: ContextProfile
) -> list[Candidate]:
    """Return C_hop*: nodes that a node of C2 names, at eta times their best parent's score.

    One step only, so that a circle of targets ends. Source: libravdb mathematics 7.7.
    """
    taken = {found.id for found in direct if found.source == "authored"}
    parents: dict[str, Candidate] = {}
    for parent in direct:
        for target in parent.hop_targets:
            if target in nodes and target not in taken:
                known = parents.setdefault(target, parent)
                parents[target] = max(known, parent, key=lambda one: one.score)
    found: list[Candidate] = []
    for target, parent in parents.items():
        score = profile.hop_decay * parent.score
        why = {"rule": "hop", "parent": parent.id, "decay": profile.hop_decay}
        if score >= profile.hop_threshold:
            found.append(nodes[target]._replace(score=score, why=why))
    return found


# A real store as an assembly sees it: one pinned snapshot, its encoder, its clock. Writes nothing.

_MS_PER_S = 1000.0


class StoreSearch:
    """A pinned snapshot as one assembly asks it; it raises for no state of a store."""

    def __init__(self, store: str | Path | None, scope: Scope, deadline_ms: float | None) -> None:
        """Open the store's serving snapshot for who asks, whatever state it is in."""
        self.recaller: Recaller | None = None
        self._encoder: LeanEncoder | OnnxEncoder | None = None
        settings, bad_settings = current_settings()
        self.warnings = list(bad_settings)
        self._origins = settings.hook.origins
        try:
            self.recaller, found = find_serving(store)
            recaller = self.recaller
            self.warnings += [*found, *staleness(recaller.paths, settings.recall.stale_after_hours)]
            within_ms = math.inf if deadline_ms is None else deadline_ms
            self._encoder = text_encoder(recaller.paths, recaller.reader.manifest, within_ms)
        except (StoreError, EncoderError, OSError, ValueError) as error:
            code, message = "keywords_only", f"found by the words of the query alone: {error}"
            if self.recaller is None:
                is_missing = isinstance(error, SnapshotMissingError)
                code, message = "no_snapshot" if is_missing else "store_unreadable", str(error)
            self.warnings.append(RecallWarning(code, message))
        # Without cosines, the share of keywords is all there is to compare texts by.
        self.knows_cosines = self._encoder is not None
        self.counter = prompt.ESTIMATE
        if isinstance(self._encoder, LeanEncoder):
            model = self._encoder.fingerprint.model
            self.counter = prompt.vocabulary_counter(model, self._encoder.tokenizer)
        self._scope = scope
        self._started_s = time.perf_counter()
        self._deadline_ms = deadline_ms
        as_of = scope.as_of  # what ages are taken at
        self.now_us = time.time_ns() // 1000 if as_of is None else to_micros(aware(as_of))

    def find_memories(
        self, query: str, profile: ContextProfile
    ) -> tuple[list[Candidate], list[RecallWarning]]:
        """Return the memories of the first pass; with keywords only, those that hold some."""
        recaller = self.recaller
        if recaller is None:
            return [], []
        try:
            refusal = self._refusal(recaller, query)
            if refusal is not None:
                return [], [refusal]
            flags = profile.retrieval()
            if not self.knows_cosines:
                flags = flags.replaced(scorer="fusion", dense_weight=0.0)
            result = self._recall(recaller, query, profile.coarse_depth, flags)
        except Exception as error:
            # Damage below the reach of the quick check must not reach a prompt as a traceback.
            message = f"{type(error).__name__} in {recaller.snapshot_id}: run `noctuary doctor`"
            return [], [RecallWarning("snapshot_damaged", message)]
        # Whether there is an answer was judged above, on the ranking that thresholds rest on.
        bar = 0.0 if result.answerability is None else result.answerability.bar
        found: list[Candidate] = []
        for m in result.memories:
            if m.support is None or m.support >= bar:
                dense = m.dense if self.knows_cosines else None
                numbers = (None, None) if dense is None else (dense.score, m.final_score)
                memory = m.to_json()
                if held_back(memory, self._origins) is None:
                    found.append(of_memory(memory, *numbers))
        return found, list(result.warnings)

    def similarities(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """Return the cosine of each text to the query; None where there was no time to read it."""
        recaller, encoder = self.recaller, self._encoder
        if recaller is None or encoder is None:
            return [None for _ in texts]
        try:
            wanted = encode_query(recaller.paths, recaller.reader.manifest, query)
        except (EncoderError, OSError, ValueError):
            return [None for _ in texts]  # the recall has warned of it
        found: list[float | None] = []
        for text in texts:
            left_ms = self._left_ms()
            try:
                has_time = left_ms is None or left_ms > 0
                found.append(float(wanted @ _vector(encoder, text)) if has_time else None)
            except EncoderError:  # one text that a damaged model cannot represent
                found.append(None)
        return found

    def _refusal(self, recaller: Recaller, query: str) -> RecallWarning | None:
        """Return why the store had better say nothing, judged on the ranking that recalls have."""
        if recaller.calibration is None:
            return None
        settings, _ = current_settings()
        ranking = resolve_for_recall(settings, recaller.reader.adopted).profile
        verdict = self._recall(recaller, query, 1, ranking).answerability
        if verdict is None or not verdict.abstain:
            return None
        return RecallWarning(
            "abstained",
            f"no memories: the store hardly holds an answer ({verdict.signal} {verdict.score:.3f} "
            f"below {verdict.threshold:.3f}). docs/abstention.md says how that is calibrated",
        )

    def _recall(
        self, recaller: Recaller, query: str, k: int, profile: RetrievalProfile
    ) -> RecallResult:
        # A query vector that depends on how many were asked before would make scores depend on it.
        inputs = recaller.inputs_now(self._scope.user)._replace(may_warm=False)
        return recaller.recall(
            query, k, profile=profile, scope=self._scope, deadline_ms=self._left_ms(), inputs=inputs
        )

    def _left_ms(self) -> float | None:
        if self._deadline_ms is None:
            return None
        return self._deadline_ms - (time.perf_counter() - self._started_s) * _MS_PER_S


_MOST_VECTORS = 4_096  # 1.5 KB each; none is written to a disk: turns may hold secrets
_vectors: dict[tuple[str, str], NDArray[np.float32]] = {}  # by encoder and text


def _vector(encoder: LeanEncoder | OnnxEncoder, text: str) -> NDArray[np.float32]:
    key = (encoder.fingerprint.digest, text)
    vector = _vectors.get(key)
    if vector is None:
        if len(_vectors) >= _MOST_VECTORS:
            _vectors.clear()
        vector = _vectors[key] = encoder.encode_documents([text])[0]
    return vector
