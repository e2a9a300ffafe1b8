"""Stage generated_queries: queries that a language model wrote about tonight's corpus.

What belongs here: whether it is switched on, which memories are asked about. What does not: the
models, prompts and grades (mnemon.evaluate.generated).
"""

from __future__ import annotations

from typing import Any

from mnemon.night.context import GENERATED, Night
from mnemon.night.questions import write_generated
from mnemon.work.stage import Stage, StageResult

GENERATED_QUERIES = Stage("generated_queries", "1", (GENERATED,))


def write_queries(night: Night) -> StageResult:
    """Let the configured models write and grade queries; without any, keep none."""
    chosen = night.settings.evaluation

    def body() -> tuple[int, dict[str, Any]]:
        write_generated(night, ())
        return 0, {"note": "off: no evaluation.generator_url is set"}

    return night.finish(night.run(GENERATED_QUERIES, {"on": bool(chosen.generator_url)}, body))
