"""The model server with a rule for summaries. No expectations."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.model_server import Asked, ModelServer


def first_turn(item: dict[str, str]) -> str:
    """Repeat the first turn, which is always faithful."""
    return item["turns"].split("\n")[0]


@dataclass
class SummaryServer(ModelServer):
    """A model that summarises.

    Attributes:
        summarize: From an item to its summary.
        probability: Of each of two tokens, told where it is asked for; None never tells.
        finish_reason: Of every answer.
    """

    summarize: Callable[[dict[str, str]], object] = first_turn
    probability: float | None = None
    finish_reason: str = "stop"

    def answer(self, asked: Asked) -> bytes:
        """Return the rule's summary of every item."""
        items = [{"id": i["id"], "summary": self.summarize(i)} for i in asked.items]
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": json.dumps({"items": items})},
            "finish_reason": self.finish_reason,
        }
        if self.probability is not None and asked.body.get("logprobs"):
            tokens = [{"token": "x", "logprob": math.log(self.probability)}] * 2
            choice["logprobs"] = {"content": tokens}
        return json.dumps({"object": "chat.completion", "choices": [choice]}).encode()

    @property
    def everything(self) -> str:
        """Return all that was received."""
        return "\n".join(json.dumps(a.body, ensure_ascii=False) for a in list(self.asked))
