"""Summaries of a model behind an OpenAI-compatible endpoint.

**Texts leave the machine**: one cluster per request, so that no two users, wings or sessions ever
stand in one prompt. Turns of named users are shown only where the settings say so; a cluster that
reads like a secret, alone or joined, is never shown.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noctuary.compact.attempts import Outcome
from noctuary.compact.extractive import EXTRACTIVE
from noctuary.compact.sanitize import sanitize
from noctuary.compact.summarizers.base import AGGRESSIVE_SUFFIX, Draft, Refusal, Request
from noctuary.hashing import JsonValue
from noctuary.hosted.answers import parse_batch
from noctuary.hosted.batches import DATA_RULE, batch_message, clip_text
from noctuary.hosted.chat import Answer, Sleep, ask
from noctuary.hosted.endpoint import AnswerFault, BadAnswerError, Endpoint, EndpointDownError
from noctuary.settings import CompactionSettings
from noctuary.settings.api_key import read_api_key
from noctuary.text.sensitivity import find_text_sensitivity
from noctuary.text.token_estimate import estimate_tokens

PROMPT_VERSION = "1"
"""Raised with every change of the prompt or of what is shown; old answers are then not used."""
MAX_REQUEST_CHARS = 48_000
"""Of all turns of one request. More fits larger clusters and overflows models of 16k tokens."""
MAX_BAD_IN_A_ROW = 8
"""Answers without use after which an endpoint is given up for the night. More forgive an unlucky
stretch; fewer save requests to a model that writes nothing but garbage."""

_SYSTEM = (
    "You condense a part of a conversation. Keep every decision, fact, name, number, date and "
    "identifier that matters, written as it is there; say who said or did what; keep what was "
    "denied denied. Add nothing that does not stand in the turns, work out no sums and no dates, "
    "and use the language of the turns. Where there is a field `earlier`, it tells what came "
    "before: use it to understand the turns and repeat nothing of it. Write plain sentences, at "
    "most {tokens} tokens. "
) + DATA_RULE + '{{"items": [{{"id": "...", "summary": "..."}}]}}'  # fmt: skip


@dataclass(slots=True)
class EndpointSummarizer:
    """Summaries written by a model behind an endpoint; see `Summarizer`.

    Attributes:
        model: Its name there.
        endpoint: Where it is asked; None where that is set up wrongly.
        include_named_users: Whether it may see turns of named users.
        sleep: Waits between tries.
        given_up: Why it is not asked; then what it wrote on earlier nights is still used.
    """

    name: str = field(default="llm", init=False)
    uses_context: bool = field(default=True, init=False)
    densities: tuple[float, float] = field(default=EXTRACTIVE.densities, init=False)

    model: str
    endpoint: Endpoint | None
    include_named_users: bool = False
    sleep: Sleep = time.sleep
    given_up: str = ""
    _bad_in_a_row: int = field(default=0, init=False)
    _wants_logprobs: bool = field(default=True, init=False)

    @staticmethod
    def open(settings: CompactionSettings) -> EndpointSummarizer:
        """Return the configured one; a wrong address or a key that is not set gives it up."""
        endpoint, fault = None, ""
        try:
            key = read_api_key(settings.api_key_variable, "compaction.api_key_variable")
            endpoint = Endpoint(settings.llm_url, settings.llm_model, key)
        except ValueError as error:  # ConfigError is one
            fault = f"compaction.llm_*: {error}"
        shown = settings.include_named_users
        return EndpointSummarizer(settings.llm_model, endpoint, shown, given_up=fault)

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Return what decides the text: not the address, which may move with its model."""
        shown = self.include_named_users
        return {"prompt": PROMPT_VERSION, "model": self.model, "include_named_users": shown}

    def drafts(
        self, requests: Sequence[Request], *, density: float, aggressive: bool = False
    ) -> list[Draft | Refusal]:
        """Ask about each request in turn; once the endpoint is given up, refuse the rest.

        `raw_confidence` is exp of the mean log probability of the answer's tokens, its JSON
        included, where the endpoint gives them; else None, and the gate's geometry stands alone.
        """
        method = self.name + (AGGRESSIVE_SUFFIX if aggressive else "")
        return [self._draft(request, density, method) for request in requests]

    def _draft(self, request: Request, density: float, method: str) -> Draft | Refusal:
        if request.user is not None and not self.include_named_users:
            return Refusal(Outcome.NAMED_USER, "turns of named users are not shown to endpoints")
        if self.given_up or self.endpoint is None:
            return Refusal(Outcome.UNAVAILABLE, self.given_up)
        shown = [clip_text(sanitize(text)) for text in request.texts]
        if sum(map(len, shown)) > MAX_REQUEST_CHARS:
            return Refusal(Outcome.TOO_LONG, f"its turns exceed {MAX_REQUEST_CHARS} characters")
        if any(find_text_sensitivity(t) for t in (*shown, " ".join(shown), *request.context)):
            return Refusal(Outcome.SECRET, "its turns, joined, read like a secret")
        tokens = max(1, math.floor(density * estimate_tokens(" ".join(shown))))
        item = {"turns": "\n".join(shown)}
        if request.context:
            item["earlier"] = "\n".join(request.context)
        try:
            answer = self._ask(self.endpoint, _SYSTEM.format(tokens=tokens), batch_message([item]))
        except EndpointDownError as error:
            self.given_up = f"the endpoint was given up for tonight: {error}"
            return Refusal(Outcome.UNAVAILABLE, self.given_up)
        except BadAnswerError as error:
            return self._unusable(str(error))
        return self._read(answer, method)

    def _ask(self, endpoint: Endpoint, system: str, user: str) -> Answer:
        try:
            return ask(endpoint, system, user, self.sleep, with_logprobs=self._wants_logprobs)
        except BadAnswerError as error:
            if error.fault is not AnswerFault.REFUSED or not self._wants_logprobs:
                raise
        # Some endpoints refuse requests for log probabilities.
        self._wants_logprobs = False
        return ask(endpoint, system, user, self.sleep)

    def _read(self, answer: Answer, method: str) -> Draft | Refusal:
        if answer.is_cut_off:
            return self._unusable("the answer was cut off")
        found = parse_batch(answer.content, ["1"], _summary_in)
        text = found.values.get(0)
        if text is None:
            faults = ", ".join(sorted(fault.value for fault in found.faults))
            return self._unusable(faults or "no summary")
        self._bad_in_a_row = 0
        return Draft(text=text, method=method, raw_confidence=answer.confidence)

    def _unusable(self, why: str) -> Refusal:
        self._bad_in_a_row += 1
        if self._bad_in_a_row >= MAX_BAD_IN_A_ROW:
            self.given_up = (
                f"the endpoint was given up for tonight: {self._bad_in_a_row} answers of no use "
                f"in a row, the last one: {why}"
            )
        return Refusal(Outcome.UNUSABLE, why)


def _summary_in(row: Mapping[str, Any]) -> str | None:
    """Return the summary of an item; None where there is none."""
    value = row.get("summary")
    if not isinstance(value, str):
        return None
    text = value.encode("utf-8", "replace").decode("utf-8").replace("\0", "").strip()
    return text or None
