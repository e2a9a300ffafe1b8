"""`assemble`: the context of one prompt, for agents that build their prompts themselves."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.context.assemble import (
    Assembled,
    Found,
    FoundMemory,
    TextVectors,
    assemble_from,
    turn_id,
)
from noctuary.context.documents import Authored, load_documents, require_hard_fits
from noctuary.context.inject import wordings_of
from noctuary.context.profile import Context, ContextProfile, Turn, profile_named
from noctuary.context.sections import EstimateCounter, TokenCounter, VocabularyCounter, node_piece
from noctuary.core.errors import (
    EncoderError,
    LineFault,
    SessionFileError,
    SnapshotMissingError,
    StoreError,
)
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import to_micros
from noctuary.embed.lean import LeanEncoder
from noctuary.recall.api import find_serving, staleness
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import (
    RetrievalProfile,
    current_settings,
    read_store_profiles,
    resolve_for_recall,
)
from noctuary.recall.query import Scope, aware, check_arguments
from noctuary.recall.query_encoder import encode_query, text_encoder
from noctuary.recall.result import RecalledMemory, RecallResult, RecallWarning
from noctuary.sources.injection_log import append_injection
from noctuary.usage.access_log import append_retrievals

if TYPE_CHECKING:
    from noctuary.embed.onnx import OnnxEncoder


# A real store as an assembly sees it: one pinned snapshot, its encoder, its clock. Writes nothing.


_CACHED_TEXTS = 4_096
"""Vectors of nodes and turns kept in a process, 1.5 KB each: a document is read once per process,
and what is not here costs some milliseconds."""

_known_vectors = TextVectors(_CACHED_TEXTS)

_MS_PER_S = 1000.0


class StoreSearch:
    """A pinned snapshot as one assembly asks it; without a store it finds no memories."""

    def __init__(
        self,
        recaller: Recaller | None,
        encoder: LeanEncoder | OnnxEncoder | None,
        scope: Scope,
        deadline_ms: float | None,
        warnings: Sequence[RecallWarning],
    ) -> None:
        """Take a snapshot, the encoder of its vectors, who asks, how long it may take, faults."""
        self.recaller = recaller
        self.warnings = warnings
        self._encoder = encoder
        self._scope = scope
        self._started_s = time.perf_counter()
        self._deadline_ms = deadline_ms
        self._now_us = time.time_ns() // 1000
        if scope.as_of is not None:
            self._now_us = to_micros(aware(scope.as_of))
        self.knows_cosines = encoder is not None
        self.counter: TokenCounter = EstimateCounter()
        if isinstance(encoder, LeanEncoder):
            self.counter = VocabularyCounter(encoder.fingerprint.model, encoder.tokenizer)

    def now_us(self) -> int:
        """Return `as_of`, or when this search was opened."""
        return self._now_us

    def find_memories(self, query: str, profile: ContextProfile) -> Found:
        """Return the memories of the first pass; with keywords only, those that hold some."""
        recaller = self.recaller
        if recaller is None:
            return Found()
        try:
            refusal = self._refusal(recaller, query)
            if refusal is not None:
                return Found((), (refusal,))
            result = self._recall(recaller, query, profile.coarse_depth, self._flags(profile))
        except Exception as error:
            # Damage below the reach of the quick check must not reach a prompt as a traceback.
            message = f"{type(error).__name__} in {recaller.snapshot_id}: run `noctuary doctor`"
            return Found((), (RecallWarning("snapshot_damaged", message),))
        # Whether there is an answer was judged above, on the ranking that thresholds rest on.
        bar = 0.0 if result.answerability is None else result.answerability.bar
        memories = [m for m in result.memories if m.support is None or m.support >= bar]
        return Found(tuple(map(self._memory, memories)), result.warnings)

    def similarities(self, query: str, texts: Sequence[str]) -> list[float | None]:
        """Return cosines by the encoder that made the snapshot's vectors."""
        recaller, encoder = self.recaller, self._encoder
        if recaller is None or encoder is None:
            return [None for _ in texts]
        try:
            wanted = encode_query(recaller.paths, recaller.reader.manifest, query)
        except (EncoderError, OSError, ValueError):
            return [None for _ in texts]  # the recall has warned of it
        digest = encoder.fingerprint.digest
        vectors = [self._vector(encoder, (digest, text)) for text in texts]
        return [None if v is None else float(wanted @ v) for v in vectors]

    def _vector(
        self, encoder: LeanEncoder | OnnxEncoder, key: tuple[str, str]
    ) -> NDArray[np.float32] | None:
        vector = _known_vectors.get(key)
        if vector is not None:
            return vector
        left_ms = self._left_ms()
        if left_ms is not None and left_ms <= 0:
            return None
        try:
            vector = encoder.encode_documents([key[1]])[0]
        except EncoderError:
            return None  # one text that a damaged model cannot represent
        _known_vectors.keep(key, vector)
        return vector

    def _flags(self, profile: ContextProfile) -> RetrievalProfile:
        flags = profile.retrieval()
        return flags if self.knows_cosines else replace(flags, scorer="fusion", dense_weight=0.0)

    def _refusal(self, recaller: Recaller, query: str) -> RecallWarning | None:
        """Return why the store had better say nothing, judged on the ranking that recalls have."""
        if recaller.calibration is None:
            return None
        settings, _ = current_settings()
        stored = read_store_profiles(recaller.paths.profiles)
        adopted = recaller.reader.adopted
        ranking = resolve_for_recall(settings, adopted, stored.tables, None, {}).profile
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

    def _memory(self, memory: RecalledMemory) -> FoundMemory:
        if memory.dense is None or not self.knows_cosines:
            return FoundMemory(memory.to_json(), None, None)
        return FoundMemory(memory.to_json(), memory.dense.score, memory.final_score)

    def _left_ms(self) -> float | None:
        if self._deadline_ms is None:
            return None
        return self._deadline_ms - (time.perf_counter() - self._started_s) * _MS_PER_S


def open_search(store: str | Path | None, scope: Scope, deadline_ms: float | None) -> StoreSearch:
    """Return the store's serving snapshot as a search, whatever state it is in."""
    settings, bad_settings = current_settings()
    warnings = list(bad_settings)
    try:
        recaller, found = find_serving(store)
    except (StoreError, OSError, ValueError) as error:
        code = "no_snapshot" if isinstance(error, SnapshotMissingError) else "store_unreadable"
        warnings.append(RecallWarning(code, str(error)))
        return StoreSearch(None, None, scope, deadline_ms, warnings)
    warnings += [*found, *staleness(recaller.paths, settings.recall.stale_after_hours)]
    encoder: LeanEncoder | OnnxEncoder | None = None
    try:
        within_ms = math.inf if deadline_ms is None else deadline_ms
        encoder = text_encoder(recaller.paths, recaller.reader.manifest, within_ms)
    except (EncoderError, OSError, ValueError) as error:
        message = f"found by the words of the query alone: {error}"
        warnings.append(RecallWarning("keywords_only", message))
    return StoreSearch(recaller, encoder, scope, deadline_ms, warnings)


# Turns from a file of JSON lines, one per line, oldest first.
#
#     {"role": "user", "text": "The build is red.", "id": "m1", "at": "2026-03-01T08:00:00Z"}
#     {"role": "assistant", "text": "Which part?", "bundle": "b7"}


MAX_SESSION_BYTES = 64_000_000
"""Longest file: it is read whole, and a session of a working day has a hundredth of this."""


def read_session(path: Path) -> tuple[Turn, ...]:
    """Return the turns of a file, or a `SessionFileError` that lists every fault.

    Lines end at LF only; blank ones are skipped. Of a line `role` and `text` are needed; `id`,
    `at` (ISO-8601, without a zone UTC) and `bundle` are optional, and other keys are ignored.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_SESSION_BYTES + 1)
    except OSError as error:
        raise _whole(path, f"cannot be read: {error.strerror or error}") from error
    if len(raw) > MAX_SESSION_BYTES:
        raise _whole(path, f"has more than {MAX_SESSION_BYTES:,} bytes: give its last turns")
    turns: list[Turn] = []
    faults: list[LineFault] = []
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            try:
                turns.append(_turn(line))
            except _LineError as fault:
                faults.append(LineFault(number, "turn", str(fault)))
    if faults:
        raise SessionFileError(path, faults)
    return tuple(turns)


class _LineError(Exception):
    """What is wrong with one line."""


def _turn(line: bytes) -> Turn:
    try:
        parsed: object = parse_json(line.decode("utf-8"))
    except ValueError as error:
        raise _LineError(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise _LineError(f"expected a JSON object, found {type(parsed).__name__}")
    row = cast("dict[str, Any]", parsed)
    for name in ("role", "text", "id", "at", "bundle"):
        value = row.get(name)
        if value is None and name in ("role", "text"):
            raise _LineError(f"{name} is missing: a turn has role and text")
        if value is not None and not isinstance(value, str):
            raise _LineError(f"{name} must be a text, found {type(value).__name__}")
    at = row.get("at")
    try:
        at_us = None if at is None else to_micros(aware(datetime.fromisoformat(at)))
    except (ValueError, OverflowError):
        raise _LineError(f"at must be an ISO-8601 date or time, found {at!r}") from None
    return Turn(row["role"], row["text"], row.get("id"), at_us, row.get("bundle"))


def _whole(path: Path, message: str) -> SessionFileError:
    return SessionFileError(path, [LineFault(0, "file", message)])


# `assemble`: the context of one prompt, for agents that build their prompts themselves.


_TARGETS_SHOWN = 3
"""Hop targets that a warning names."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

Documents = Sequence[str | os.PathLike[str]] | Authored


def assemble(
    query: str,
    budget_tokens: int,
    *,
    session: Sequence[Turn] = (),
    documents: Documents = (),
    profile: str | ContextProfile = "default",
    store: str | Path | None = None,
    user: str | None = None,
    wing: str | None = None,
    as_of: datetime | None = None,
    deadline_ms: float | None = None,
    dry_run: bool = False,
) -> Context:
    """Return what goes into a prompt, within a token budget: rules, last turns, what is relevant.

    Hard nodes of the documents and the last turns are always whole. The rest is filled in order:
    soft nodes, more turns, then what the query finds among the documents' other nodes, earlier
    turns and the memories of the store, by one score.

    Args:
        query: Any text.
        budget_tokens: Tokens of the whole text, tags included, >= 0.
        session: The turns so far, oldest first.
        documents: Markdown files for the agent, in order, or what `load_documents` returned.
        profile: "default", "reference" (libravdb's constants) or a `ContextProfile`.
        store: As in `noctuary.recall`.
        user: Whose memories; those of other named users are never there.
        wing: Only memories of this wing.
        as_of: Only memories that existed at this moment, and ages as of it; naive times are UTC.
        deadline_ms: After this much wall time nothing more is looked up.
        dry_run: Write nothing: neither the access log nor the record of injections.

    Returns:
        Always a context: a missing or damaged store, no encoder and a passed deadline are warnings
        in it. Where hard nodes and the last turns exceed the budget, `degraded` says so and they
        are all there is.

    Raises:
        ValueError: For arguments that nothing could be assembled from, listing every fault.
        AuthoredError: A document that was given as a path cannot be read, or its hard nodes exceed
            the profile's `hard_fraction` of the budget. Documents that were loaded before make a
            degraded context in the latter case.
    """
    scope = Scope(wing=wing, user=user, as_of=as_of)
    _check(query, budget_tokens, session, documents, scope, deadline_ms)
    constants = profile_named(profile)
    search = open_search(store, scope, deadline_ms)
    if isinstance(documents, Authored):
        authored = documents
    else:
        authored = load_documents(documents)
        if constants.hard_fraction > 0:
            count = search.counter.count
            costs = {node.text: count(node_piece(node)) for node in authored.hard}
            reserve = constants.hard_fraction * budget_tokens
            require_hard_fits(authored, costs.__getitem__, reserve)
    assembled = assemble_from(query, budget_tokens, session, authored, constants, search)
    context, recaller = assembled.context, search.recaller
    warnings = [*search.warnings, *context.warnings, *_dangling(authored)]
    if recaller is not None:
        context = replace(context, snapshot_id=recaller.snapshot_id, store=str(recaller.paths.root))
        if not dry_run:
            warnings += _record(recaller, assembled)
    return replace(context, warnings=tuple(dict.fromkeys(warnings)))


def _dangling(authored: Authored) -> list[RecallWarning]:
    """Say which hop targets name nothing that could come along: typing errors, mostly."""
    unknown = authored.dangling_targets
    if not unknown:
        return []
    shown = ", ".join(unknown[:_TARGETS_SHOWN])
    more = f" and {len(unknown) - _TARGETS_SHOWN} more" if len(unknown) > _TARGETS_SHOWN else ""
    message = f"hop targets name no variant node of the documents: {shown}{more}"
    return [RecallWarning("dangling_hop_targets", message)]


def _record(recaller: Recaller, assembled: Assembled) -> list[RecallWarning]:
    """Log the memories in the context as retrieved and as injected; others were not shown."""
    memories, paths = assembled.memories, recaller.paths
    if not memories:
        return []
    faults: list[tuple[str, str | None]] = []
    ids = [str(m["id"]) for m in memories if m["kind"] == "memory"]
    if ids and current_settings()[0].recall.log_retrievals:
        logged = append_retrievals(
            paths.access_log, snapshot_id=recaller.snapshot_id, memory_ids=ids
        )
        faults.append(("access_log", logged))
    wordings = wordings_of(memories, assembled.context.query)
    recorded = append_injection(paths.injections, wordings, now_us=time.time_ns() // 1000)
    faults.append(("injection_log", recorded))
    return [RecallWarning(code, fault) for code, fault in faults if fault is not None]


def _check(
    query: Any, budget_tokens: Any, session: Any, documents: Any, scope: Scope, deadline_ms: Any
) -> None:
    """Refuse what nothing could be assembled from with a `ValueError` that lists every fault."""
    faults: list[str] = []
    try:
        check_arguments(query, 0, "relevance", scope, deadline_ms)
    except ValueError as error:
        faults.append(str(error))
    if type(budget_tokens) is not int or budget_tokens < 0:
        faults.append(f"budget_tokens must be a whole number >= 0, found {budget_tokens!r}")
    if isinstance(documents, str | os.PathLike):
        faults.append(f"documents must be a list of paths, found {documents!r} alone")
    faults += turn_faults(session)
    if faults:
        raise ValueError("; ".join(faults))


def turn_faults(session: Sequence[Turn]) -> list[str]:
    """Return what is wrong with the turns of a session, a sentence each."""
    faults: list[str] = []
    seen: set[str] = set()
    for place, turn in enumerate(session):
        if not isinstance(turn, Turn):  # pyright: ignore[reportUnnecessaryIsInstance]
            faults.append(f"turn {place}: expected a Turn, found {type(turn).__name__}")
            continue
        for name in ("role", "text", "id", "bundle"):
            value: object = getattr(turn, name)
            called = "a text" if name in ("role", "text") else "a text or None"
            if not isinstance(value, str) and (value is not None or called == "a text"):
                faults.append(f"turn {place}: {name} must be {called}, found {value!r}")
        at_us: object = turn.at_us
        if at_us is not None and (type(at_us) is not int or not _INT64_MIN < at_us <= _INT64_MAX):
            faults.append(f"turn {place}: at_us must be microseconds or None, found {at_us!r}")
        own = turn_id(place, turn)
        if own in seen:
            faults.append(f"turn {place}: its id {own!r} is that of a turn before")
        seen.add(own)
    return faults
