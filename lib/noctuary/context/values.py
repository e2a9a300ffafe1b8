"""What goes in and what comes out: turns of a session, parts of a prompt, the assembled context.

What belongs here: shapes and their plain form. What does not: how parts are chosen (`assembling`)
and written (`rendering`). Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from noctuary.recall.result import RecallWarning
from noctuary.values import dataclass

PartKind = Literal["I1", "I2", "tail", "variant"]
PartSource = Literal["authored", "session", "memory"]


class Turn(NamedTuple):
    """One turn of the session that a prompt continues.

    Attributes:
        role: Who speaks: "user", "assistant", or any other name.
        text: What was said; a blank turn is left out.
        id: Its own id, unique in the session; None gives "turn-" and its place.
        at_us: When, microseconds since the epoch; None if unknown.
        bundle: What belongs together, for example a tool call and its result; None for nothing.
    """

    role: str
    text: str
    id: str | None = None
    at_us: int | None = None
    bundle: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of the prompt.

    Attributes:
        kind: "I1" hard and "I2" soft nodes of documents, "tail" recent turns, "variant" what the
            query found.
        source: Where it comes from: "authored", "session" or "memory".
        id: Of the node, the turn or the memory, as text.
        text: The content as it was given; `rendered` is what stands in the prompt.
        rendered: The piece of `Context.text`, with its line break.
        tokens: Cost of `rendered`, >= 0.
        score: sigma of libravdb 7.8, in [0, 1]; None for what is there without being found.
        why: The rule that put it here (`rule`) and the numbers behind it.
    """

    kind: PartKind
    source: PartSource
    id: str
    text: str
    rendered: str
    tokens: int
    score: float | None
    why: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "kind": self.kind,
            "source": self.source,
            "id": self.id,
            "text": self.text,
            "tokens": self.tokens,
            "score": self.score,
            "why": dict(self.why),
        }


class Degradation(NamedTuple):
    """Why no legal assembly exists, so that only hard nodes and the last turns are there, uncut.

    Attributes:
        code: "hard_over_reserve", "hard_over_budget" or "tail_base_over_budget".
        needed_tokens: What had to fit.
        allowed_tokens: What it had to fit into.
        message: Both in a sentence, with what to do.
    """

    code: str
    needed_tokens: int
    allowed_tokens: int
    message: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class Context:
    """An assembled prompt.

    Attributes:
        query: What it was assembled for.
        text: The whole, rendered; "" where there is nothing to say.
        parts: In the order of the text.
        tokens: Of the whole text: those of the parts and of the tags around them.
        frame_tokens: Of the tags alone.
        budget_tokens: What was allowed.
        token_counter: How tokens were counted, all of them: "tokenizer:<name>" or "estimate".
        profile: Name of the profile.
        degraded: Empty, or why the budget could not be kept; then `tokens` may exceed it.
        warnings: What was missing on the way; none of them breaks the budget.
        snapshot_id: The snapshot that memories came from, or None.
        store: The store that was asked, or None.
    """

    query: str
    text: str
    parts: tuple[Part, ...]
    tokens: int
    frame_tokens: int
    budget_tokens: int
    token_counter: str
    profile: str
    degraded: tuple[Degradation, ...] = ()
    warnings: tuple[RecallWarning, ...] = ()
    snapshot_id: str | None = None
    store: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "query": self.query,
            "text": self.text,
            "parts": [part.to_json() for part in self.parts],
            "tokens": self.tokens,
            "frame_tokens": self.frame_tokens,
            "budget_tokens": self.budget_tokens,
            "token_counter": self.token_counter,
            "profile": self.profile,
            "degraded": [reason.to_json() for reason in self.degraded],
            "warnings": [warning.to_json() for warning in self.warnings],
            "snapshot_id": self.snapshot_id,
            "store": self.store,
        }
