"""The plug-in: what is known already, what is asked, what is proposed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from noctuary.graph.extraction import Extraction
from noctuary.graph.plugins.base import Cache, Findings, PluginInput, PluginWarning
from noctuary.graph.plugins.llm.answer import Failures, RawAnswer, decode, propose
from noctuary.graph.plugins.llm.asking import Conversation, Outcome, Question
from noctuary.graph.plugins.llm.prompt import PROMPT_VERSION, answer_key
from noctuary.hosted.batches import MAX_MEMORY_CHARS
from noctuary.hosted.chat import Sleep
from noctuary.hosted.endpoint import Endpoint
from noctuary.progress import Progress
from noctuary.text.sensitivity import find_text_sensitivity

READING_VERSION = "1"
"""Raised whenever the same answer may propose other findings."""

MAX_FAILED_NIGHTS = 3
"""Nights on which a memory that gets no usable answer is asked about again. More give a model that
is merely unlucky its chance; fewer save a request per night and memory."""

DEFAULT_BATCH_MEMORIES = 8
"""Memories per request: more save prompts and lose more to one bad answer or a small context."""

ENDPOINT_DOWN = "graph_endpoint_down"
"""Code of the warning that the endpoint was given up."""
UNANSWERED = "graph_memories_unanswered"
"""Code of the warning that memories got no usable answer though the endpoint gives some."""


@dataclass(frozen=True, slots=True)
class LlmExtractor:
    """Names and triples from a model behind an endpoint.

    Attributes:
        endpoint: The model.
        batch_memories: Memories per request, at least 1. 1 also keeps a memory's text from being
            read together with any other.
        sleep: Waits between tries.
    """

    endpoint: Endpoint
    batch_memories: int = DEFAULT_BATCH_MEMORIES
    sleep: Sleep = time.sleep

    def __post_init__(self) -> None:
        if self.batch_memories < 1:
            raise ValueError(f"batch_memories starts at 1, got {self.batch_memories}")

    @property
    def name(self) -> str:
        """Return "llm"."""
        return "llm"

    @property
    def fingerprint(self) -> str:
        """Return model, prompt and reading; not the address, which may move with its model."""
        return f"llm:{READING_VERSION}:{PROMPT_VERSION}:{MAX_MEMORY_CHARS}:{self.endpoint.model}"

    def cache_key(self, content: str) -> str:
        """Return what a text's answer is kept under: content, model and prompt version."""
        return answer_key(content, self.endpoint.model)

    def extract_many(
        self, memories: Sequence[PluginInput], cache: Cache, progress: Progress
    ) -> Findings:
        """Ask about what is new and return what is known by now; see `Extractor`.

        Contents that read like a secret are neither sent nor answered. Memories are asked about in
        the order of their keys, those that failed before last.
        """
        shown = [memory for memory in memories if find_text_sensitivity(memory.content) is None]
        texts = {self.cache_key(memory.content): memory.content for memory in shown}
        stored = cache.get_many(texts)
        kept = {key: decode(stored.get(key)) for key in sorted(texts)}
        remembered = sum(isinstance(value, RawAnswer) for value in kept.values())
        conversation = Conversation(
            self.endpoint, _Keep(kept, cache), self.batch_memories, self.sleep, progress
        )
        outcome = conversation.ask([Question(key, texts[key]) for key in _waiting(kept)])
        findings, counts = self._proposals(shown, kept)
        counts["left_out_secret"] = len(memories) - len(shown)
        return Findings(
            extractions=findings,
            counts=dict(sorted(counts.items())),
            tonight=_tonight(outcome, remembered),
            warnings=self._warnings(outcome, counts),
        )

    def _proposals(
        self, shown: Iterable[PluginInput], kept: Mapping[str, RawAnswer | Failures]
    ) -> tuple[dict[str, Extraction], Counter[str]]:
        findings: dict[str, Extraction] = {}
        counts: Counter[str] = Counter(
            answered=0, unanswered=0, clipped=0, malformed=0, unmapped_relations=0
        )
        for memory in shown:
            counts["clipped"] += len(memory.content) > MAX_MEMORY_CHARS
            answer = kept[self.cache_key(memory.content)]
            if isinstance(answer, Failures):
                counts["unanswered"] += 1
                continue
            findings[memory.key], unmapped = propose(answer)
            counts.update(answered=1, malformed=answer.malformed, unmapped_relations=unmapped)
        return findings, counts

    def _warnings(self, outcome: Outcome, counts: Mapping[str, int]) -> tuple[PluginWarning, ...]:
        waiting = f"{counts['unanswered']} memories have only what the rules found in them"
        if outcome.given_up is not None:
            message = (
                f"the model of the graph ({self.endpoint.model}) was given up for tonight: "
                f"{outcome.given_up}; {waiting}; they are asked about the next night "
                "(graph.llm_url)"
            )
            return (PluginWarning(ENDPOINT_DOWN, message),)
        if counts["unanswered"]:
            message = (
                f"the model of the graph ({self.endpoint.model}) gave no usable answer to some "
                f"memories: {waiting}; each is asked about on {MAX_FAILED_NIGHTS} nights"
            )
            return (PluginWarning(UNANSWERED, message),)
        return ()


def _waiting(kept: Mapping[str, RawAnswer | Failures]) -> list[str]:
    """Return the keys to ask about: those that failed less often first, then by key."""
    failed = {key: value.nights for key, value in kept.items() if isinstance(value, Failures)}
    again = [key for key, nights in failed.items() if nights < MAX_FAILED_NIGHTS]
    return sorted(again, key=lambda key: (failed[key], key))


def _tonight(outcome: Outcome, remembered: int) -> dict[str, int]:
    faults = {f"fault: {name}": count for name, count in sorted(outcome.faults.items())}
    return {"requests": outcome.requests, "remembered": remembered, **faults}


@dataclass(frozen=True, slots=True)
class _Keep:
    """Puts answers into the cache and into what is known, batch by batch."""

    kept: dict[str, RawAnswer | Failures]
    cache: Cache

    def __call__(self, answers: Mapping[str, RawAnswer], failed: Sequence[str]) -> None:
        fresh: dict[str, RawAnswer | Failures] = dict(answers)
        if failed and self._model_answers():
            fresh.update({key: self._one_more(key) for key in failed})
        if fresh:
            self.cache.put_many({key: value.to_bytes() for key, value in fresh.items()})
            self.kept.update(fresh)

    def _model_answers(self) -> bool:
        # A model that never gave any use is set up wrongly; its failures say nothing of memories.
        return any(isinstance(value, RawAnswer) for value in self.kept.values())

    def _one_more(self, key: str) -> Failures:
        before = self.kept[key]
        return Failures(before.nights + 1 if isinstance(before, Failures) else 1)
