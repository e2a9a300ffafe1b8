"""The summarizer behind an OpenAI-compatible endpoint.

What belongs here: the prompt, what may be shown, reading the answer. What does not: HTTP and
retries (noctuary.hosted.chat), whether the answer is faithful (escalation).

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
    """Summaries written by a model behind an endpoint.

    Attributes:
        endpoint: The model.
        include_named_users: Whether it may see turns of named users.
        sleep: Waits between tries.
    """

    endpoint: Endpoint
    include_named_users: bool = False
    sleep: Sleep = time.sleep
    _given_up: str = field(default="", init=False)
    _bad_in_a_row: int = field(default=0, init=False)
    _wants_logprobs: bool = field(default=True, init=False)

    @property
    def name(self) -> str:
        """Return "llm"."""
        return "llm"

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Return `endpoint_recipe`."""
        return endpoint_recipe(self.endpoint.model, self.include_named_users)

    @property
    def uses_context(self) -> bool:
        """Return True: earlier summaries stand in the prompt."""
        return True

    @property
    def densities(self) -> tuple[float, float]:
        """Return those of the extractive summarizer, which stands in."""
        return EXTRACTIVE.densities

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
        if self._given_up:
            return Refusal(Outcome.UNAVAILABLE, self._given_up)
        shown = [clip_text(sanitize(text)) for text in request.texts]
        if sum(map(len, shown)) > MAX_REQUEST_CHARS:
            return Refusal(Outcome.TOO_LONG, f"its turns exceed {MAX_REQUEST_CHARS} characters")
        if any(find_text_sensitivity(t) for t in (*shown, " ".join(shown), *request.context)):
            return Refusal(Outcome.SECRET, "its turns, joined, read like a secret")
        try:
            return self._read(self._ask(shown, request.context, density), method)
        except EndpointDownError as error:
            self._given_up = f"the endpoint was given up for tonight: {error}"
            return Refusal(Outcome.UNAVAILABLE, self._given_up)
        except BadAnswerError as error:
            return self._unusable(str(error))

    def _ask(self, shown: Sequence[str], context: Sequence[str], density: float) -> Answer:
        tokens = max(1, math.floor(density * estimate_tokens(" ".join(shown))))
        item = {"turns": "\n".join(shown)}
        if context:
            item["earlier"] = "\n".join(context)
        system, user = _SYSTEM.format(tokens=tokens), batch_message([item])
        try:
            return ask(self.endpoint, system, user, self.sleep, with_logprobs=self._wants_logprobs)
        except BadAnswerError as error:
            if error.fault is not AnswerFault.REFUSED or not self._wants_logprobs:
                raise
        # Some endpoints refuse requests for log probabilities.
        self._wants_logprobs = False
        return ask(self.endpoint, system, user, self.sleep)

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
            self._given_up = (
                f"the endpoint was given up for tonight: {self._bad_in_a_row} answers of no use "
                f"in a row, the last one: {why}"
            )
        return Refusal(Outcome.UNUSABLE, why)


def endpoint_recipe(model: str, include_named_users: bool) -> Mapping[str, JsonValue]:
    """Return what decides the text: not the address, which may move with its model, nor the key."""
    return {
        "prompt": PROMPT_VERSION,
        "model": model,
        "include_named_users": include_named_users,
    }


def _summary_in(row: Mapping[str, Any]) -> str | None:
    """Return the summary of an item, on one line per paragraph; None where there is none."""
    value = row.get("summary")
    if not isinstance(value, str):
        return None
    text = value.encode("utf-8", "replace").decode("utf-8").replace("\0", "").strip()
    return text or None
