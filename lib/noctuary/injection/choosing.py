"""Which memories of an answer are worth a place in a prompt. Standard library only.

What belongs here: the one rule, for hooks, `inject` and `assemble`. What does not: scores and bars,
which come with the answer (docs/abstention.md), and what fits (`injecting`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def worth_injecting(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the memories that clear a bar of their own; none where the answer abstains.

    All of them where the answer was not judged.

    Args:
        result: What `RecallResult.to_json` gave.
    """
    memories = list(cast("list[Mapping[str, Any]]", result.get("memories") or ()))
    judged = result.get("answerability")
    if not isinstance(judged, Mapping):
        return memories
    answerability = cast("Mapping[str, Any]", judged)
    if answerability.get("abstain") is True:
        return []
    bar = answerability.get("bar", 0.0)
    return [memory for memory in memories if memory.get("support", bar) >= bar]
