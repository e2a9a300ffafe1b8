"""Questions about a published store, made of its own texts, equal for equal seeds.

A question is a run of a memory's words with some left out: it shares words with many memories, as
prompts do, and holds no sentence whole, so that nothing is found by being the same text.
"""

from __future__ import annotations

import random

from noctuary.recall.reader import SnapshotReader

RUN_WORDS = 12
"""Words that a question is cut from: about those of a prompt's longest sentence."""

LEFT_OUT = 1 / 3
"""Share of them that is left out, at least one stays; more makes questions vaguer."""


def make_questions(reader: SnapshotReader, count: int, seed: int = 0) -> list[str]:
    """Return questions, each about a memory drawn with equal odds, without repeats of a memory.

    Args:
        reader: The snapshot.
        count: How many; a smaller store gives as many as it has memories.
        seed: Equal seeds give equal questions about equal snapshots.
    """
    rng = random.Random(seed)
    positions = rng.sample(range(reader.count), min(count, reader.count))
    rows = reader.describe(positions)
    return [cut_question(str(rows[position]["content"]), rng) for position in positions]


def cut_question(text: str, rng: random.Random) -> str:
    """Return a run of a text's words without some of them, in order."""
    words = text.split()
    start = rng.randrange(max(len(words) - RUN_WORDS, 0) + 1)
    run = words[start : start + RUN_WORDS]
    kept = [word for word in run if rng.random() >= LEFT_OUT]
    return " ".join(kept or run[:1])
