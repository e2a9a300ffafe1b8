"""The model server with a rule for triples: names and statements read off every memory's text."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.model_server import Asked, ModelServer, envelope

Row = dict[str, Any]
Twist = Callable[[list[Row]], object]
"""Makes the model's document of a batch's proper rows."""

_NAME = re.compile(r"\b[A-Z]\w+")
_STATEMENT = re.compile(r"(\b[A-Z]\w+) (works at|lives in|was replaced by|admires) ([A-Z]\w+)")


def read_by_rule(text: str) -> Row:
    """Return what a good model would say about a text, the same for the same text."""
    triples = [list(match.groups()) for match in _STATEMENT.finditer(text)]
    return {"names": _NAME.findall(text), "triples": triples}


@dataclass
class TripleServer(ModelServer):
    """A model that extracts.

    Attributes:
        twists: Taken one per request, oldest first; None leaves that answer as it is.
        poisoned: Memories that hold this word get no answer in any batch.
        hang_after: Requests after which it answers nothing more until it closes.
    """

    twists: list[Twist | None] = field(default_factory=list[Twist | None])
    poisoned: str = "\0"
    hang_after: int = 1_000_000

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._served = 0

    def answer(self, asked: Asked) -> bytes:
        """Return the rule's rows, twisted where that is wanted."""
        with self._lock:
            self._served += 1
            twist = self.twists.pop(0) if self.twists else None
            hangs = self._served > self.hang_after
        if hangs:
            self.closing.wait()
            return b""
        rows = [
            {"id": item["id"], **read_by_rule(item["memory"])}
            for item in asked.items
            if self.poisoned not in item["memory"]
        ]
        document = {"items": rows} if twist is None else twist(rows)
        return envelope(document if isinstance(document, str) else json.dumps(document))

    @property
    def texts(self) -> list[list[str]]:
        """Return the memories of every request."""
        return [[item["memory"] for item in asked.items] for asked in list(self.asked)]

    @property
    def everything(self) -> str:
        """Return all that was received: paths, headers, bodies."""
        return "\n".join(
            f"{a.path} {a.headers} {json.dumps(a.body, ensure_ascii=False)}" for a in self.asked
        )
