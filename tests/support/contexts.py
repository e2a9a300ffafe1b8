"""A small store in memory, as an assembly sees one, and a second opinion on what may stay together.

Texts are compared by the words that they share, so that a test can say what is near. Scores are
computed by the formulas of libravdb 7.3 to 7.5 in plain Python.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from noctuary.context.assemble import Candidate, StoreSearch, of_memory
from noctuary.context.prompt import ESTIMATE, ContextProfile, TokenCounter, Turn
from noctuary.recall.result import RecallWarning
from noctuary.text.tokens import tokenize

NOW_US = 1_780_000_000_000_000
DAY_S = 86_400.0


def cosine(query: str, text: str) -> float:
    """Return the share of common words: the cosine of the two sets."""
    a, b = set(query.casefold().split()), set(text.casefold().split())
    return len(a & b) / math.sqrt(len(a) * len(b)) if a and b else 0.0


def omega(age_s: float, authored: float) -> float:
    """Authority of what was never recalled, by section 7.3."""
    return min(0.5 * math.exp(-max(age_s, 0.0) * 1e-5) + 0.3 * authored, 1.0)


def s_final(
    similarity: float, coverage: float, age_s: float, authored: float, profile: ContextProfile
) -> float:
    """S_final by section 7.5, with the floor under authority."""
    floor, kappa = profile.authority_floor, 0.3
    factor = floor + (1.0 - floor) * omega(age_s, authored)
    return factor * max(similarity, 0.0) * (1.0 + kappa * coverage) / (1.0 + kappa)


def coverage(query: str, text: str) -> float:
    """M_norm by section 7.5."""
    wanted = set(tokenize(query))
    return len(wanted & set(tokenize(text))) / max(len(wanted), 1)


def memory(memory_id: int, content: str, **fields: Any) -> dict[str, Any]:
    """Return a memory as a recall gives it; `age_days` dates it before NOW_US."""
    age_days = fields.pop("age_days", 1.0)
    moment = datetime.fromtimestamp(NOW_US / 1e6, UTC)
    return {
        "id": memory_id,
        "kind": "memory",
        "content": content,
        "importance": 0.5,
        "created_at": (moment - timedelta(days=age_days)).isoformat(),
        "wing": None,
        "room": None,
        "session_id": None,
        "user": None,
        **fields,
    }


@dataclass
class MemorySearch(StoreSearch):
    """A search over memories in a list."""

    memories: Sequence[Mapping[str, Any]] = ()
    counter: TokenCounter = ESTIMATE
    knows_cosines: bool = True
    refusal: str = ""
    unread: frozenset[str] = frozenset()
    quality: float = 1.0
    asked: list[str] = field(default_factory=list[str])
    compared: list[str] = field(default_factory=list[str])

    now_us: int = NOW_US

    def find_memories(
        self, query: str, profile: ContextProfile
    ) -> tuple[list[Candidate], list[RecallWarning]]:
        self.asked.append(query)
        if self.refusal:
            return [], [RecallWarning("abstained", self.refusal)]
        found = [self._found(query, m, profile) for m in self.memories]
        return sorted(found, key=lambda f: -f.similarity)[: profile.coarse_depth], []

    def similarities(self, query: str, texts: Sequence[str]) -> list[float | None]:
        self.compared.extend(texts)
        return [None if text in self.unread else cosine(query, text) for text in texts]

    def _found(self, query: str, row: Mapping[str, Any], profile: ContextProfile) -> Candidate:
        if not self.knows_cosines:
            return of_memory(row, None, None)
        content, near = row["content"], cosine(query, row["content"])
        made = datetime.fromisoformat(row["created_at"]).timestamp()
        score = s_final(
            near, coverage(query, content), NOW_US / 1e6 - made, row["importance"], profile
        )
        return of_memory(row, near, score * self.quality)


def is_split(turns: Sequence[Turn], start: int) -> bool:
    """Say whether a tail from `start` on begins an answer without its question; by definition."""
    before, after = turns[:start], turns[start:]
    if {t.bundle for t in before if t.bundle} & {t.bundle for t in after if t.bundle}:
        return True
    return bool(before and after) and (before[-1].role, after[0].role) == ("user", "assistant")


def naive_base(turns: Sequence[Turn], min_turns: int) -> int:
    """Return where T_base begins, by trying every place."""
    if min_turns <= 0:
        return len(turns)
    latest = max(len(turns) - min_turns, 0)
    return max(start for start in range(latest + 1) if not is_split(turns, start))


def chat(count: int, tokens: int) -> list[Turn]:
    """Return an alternating chat whose turns cost exactly so much by the estimate, as written."""
    turns: list[Turn] = []
    for place in range(count):
        role = "assistant" if place % 2 else "user"
        written_around = len(f"{role}: \n")
        turns.append(Turn(role, f"turn {place} ".ljust(4 * tokens - written_around, "x")))
    return turns
