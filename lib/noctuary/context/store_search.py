"""A real store as an assembly sees it: one pinned snapshot, its encoder, its clock.

What belongs here: asking recall and the encoder, and what to say where they cannot answer. What
does not: ranking (`noctuary.recall`), what is done with the answers. Writes nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.context.counting import EstimateCounter, TokenCounter, VocabularyCounter
from noctuary.context.profile import ContextProfile
from noctuary.context.searching import Found, FoundMemory
from noctuary.context.text_vectors import TextVectors
from noctuary.encode.lean import LeanEncoder
from noctuary.errors import EncoderError, SnapshotMissingError, StoreError
from noctuary.recall.current_settings import current_settings
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.profile.configured import resolve_for_recall
from noctuary.recall.profile.stored import read_store_profiles
from noctuary.recall.query_encoder import encode_query, text_encoder
from noctuary.recall.result import RecalledMemory, RecallResult, RecallWarning
from noctuary.recall.scope import Scope, aware
from noctuary.recall.serving import find_serving, staleness
from noctuary.recall.world import LiveWorld
from noctuary.types import to_micros

if TYPE_CHECKING:
    from noctuary.encode.onnx_encoder import OnnxEncoder

_CACHED_TEXTS = 4_096
"""Vectors of nodes and turns kept in a process, 1.5 KB each: a document is read once per process,
and what is not here costs some milliseconds."""

_known_vectors = TextVectors(_CACHED_TEXTS)

_MS_PER_S = 1000.0


class Opened(NamedTuple):
    """A store to ask and what its caller should know about it.

    Attributes:
        search: Answers; without a store it finds no memories.
        recaller: The pinned snapshot, or None.
        warnings: About the store as a whole.
    """

    search: StoreSearch
    recaller: Recaller | None
    warnings: tuple[RecallWarning, ...]


class StoreSearch:
    """Implements `noctuary.context.searching.Search` for one call.

    Attributes:
        counter: The lean encoder's vocabulary, or the estimate where there is none.
        knows_cosines: Whether the snapshot's encoder is there.
    """

    def __init__(
        self,
        recaller: Recaller | None,
        encoder: LeanEncoder | OnnxEncoder | None,
        scope: Scope,
        deadline_ms: float | None,
    ) -> None:
        """Take a pinned snapshot, the encoder of its vectors, who asks and how long it may take."""
        self._recaller = recaller
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
        recaller = self._recaller
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
        recaller, encoder = self._recaller, self._encoder
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
        """Return why the store had better say nothing, or None.

        Thresholds are calibrated on the ranking that recalls have, so that is what is judged.
        """
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
        world = recaller.live_world(self._scope.user)
        if isinstance(world, LiveWorld):
            world = world._replace(may_warm=False)
        return recaller.recall(
            query, k, profile=profile, scope=self._scope, deadline_ms=self._left_ms(), world=world
        )

    def _memory(self, memory: RecalledMemory) -> FoundMemory:
        if memory.dense is None or not self.knows_cosines:
            return FoundMemory(memory.to_json(), None, None)
        return FoundMemory(memory.to_json(), memory.dense.score, memory.final_score)

    def _left_ms(self) -> float | None:
        if self._deadline_ms is None:
            return None
        return self._deadline_ms - (time.perf_counter() - self._started_s) * _MS_PER_S


def open_search(store: str | Path | None, scope: Scope, deadline_ms: float | None) -> Opened:
    """Return the store's serving snapshot as a search, whatever state it is in."""
    settings, bad_settings = current_settings()
    warnings = list(bad_settings)
    try:
        serving, found = find_serving(store)
    except (StoreError, OSError, ValueError) as error:
        code = "no_snapshot" if isinstance(error, SnapshotMissingError) else "store_unreadable"
        warnings.append(RecallWarning(code, str(error)))
        return Opened(StoreSearch(None, None, scope, deadline_ms), None, tuple(warnings))
    recaller = serving.recaller
    warnings += [*found, *staleness(recaller.paths, settings.recall.stale_after_hours)]
    encoder: LeanEncoder | OnnxEncoder | None = None
    try:
        within_ms = math.inf if deadline_ms is None else deadline_ms
        encoder = text_encoder(recaller.paths, recaller.reader.manifest, within_ms)
    except (EncoderError, OSError, ValueError) as error:
        message = f"found by the words of the query alone: {error}"
        warnings.append(RecallWarning("keywords_only", message))
    search = StoreSearch(recaller, encoder, scope, deadline_ms)
    return Opened(search, recaller, tuple(warnings))
