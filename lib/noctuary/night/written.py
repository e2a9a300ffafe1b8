"""Stage generated_queries: queries that a language model wrote about tonight's corpus.

What belongs here: whether it is switched on, which memories are asked about, what is kept. What
does not: the models, prompts and grades (noctuary.evaluate.generated).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from noctuary.corpus.export import read_records
from noctuary.errors import ConfigError
from noctuary.evaluate.generated.generate import Generated, Pair, generate_queries
from noctuary.files import write_text
from noctuary.hashing import hash_text
from noctuary.hosted.endpoint import Endpoint
from noctuary.night.context import GENERATED, MEMORIES, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.graph import linked_pairs
from noctuary.night.questions import query_to_json
from noctuary.settings import EvaluationSettings
from noctuary.settings.api_key import read_api_key
from noctuary.types import MemoryRecord
from noctuary.work.memo import Memo
from noctuary.work.stage import Stage, StageResult

GENERATED_QUERIES = Stage("generated_queries", "1", (GENERATED,))
ANSWERS_KIND = "generated_queries:1"
"""Kind of the memo: answers of both models."""

PAIRS_PER_MEMORY = 0.5
"""Multi-hop questions per paraphrase: they cost two grades each and need linked memories."""


@dataclass(frozen=True, slots=True)
class _MemoCache:
    """The night's memo as the generator's cache."""

    memo: Memo

    def get(self, key: str) -> bytes | None:
        """Return a remembered answer, or None."""
        return self.memo.get_many(ANSWERS_KIND, [key]).get(key)

    def put(self, key: str, value: bytes) -> None:
        """Remember an answer durably."""
        self.memo.put_many(ANSWERS_KIND, {key: value})


def write_queries(night: Night) -> StageResult:
    """Let the configured models write and grade queries; without any, keep none.

    Runs on every night while it is switched on, because an endpoint may have been down; what is
    known already is not asked again.
    """
    chosen = night.settings.evaluation
    on = bool(chosen.enabled and chosen.generator_url)

    def body() -> tuple[int, dict[str, Any]]:
        if not on:
            _write(night, Generated())
            return 0, {"note": "off: no evaluation.generator_url is set"}
        found = _generate(night, chosen)
        _write(night, found)
        return len(found.queries), _facts(found)

    inputs = {"on": on, "corpus": night.result_of(CORPUS).digest if on else None}
    return night.finish(night.run(GENERATED_QUERIES, inputs, body, always=on))


def live_answers(night: Night) -> list[str]:
    """Return the keys of the answers that are still in use."""
    try:
        document = json.loads(night.work(GENERATED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return list(document["keys"])


def _generate(night: Night, chosen: EvaluationSettings) -> Generated:
    key = read_api_key(chosen.api_key_variable, "evaluation.api_key_variable")
    records = read_records(night.work(MEMORIES))
    asked = choose_memories(records, chosen.generated_queries)
    pairs = choose_pairs(
        records,
        linked_pairs(night),
        int(chosen.generated_queries * PAIRS_PER_MEMORY),
    )
    try:
        generator = Endpoint(chosen.generator_url, chosen.generator_model, key)
        judge = Endpoint(chosen.judge_url, chosen.judge_model, key)
    except ValueError as error:
        raise ConfigError(f"evaluation.generator_* or judge_*: {error}") from error
    with Memo.open(night.paths.memo) as memo:
        return generate_queries(
            asked, pairs, generator, judge, _MemoCache(memo), progress=night.progress
        )


def choose_memories(records: Sequence[MemoryRecord], wanted: int) -> list[MemoryRecord]:
    """Return memories to paraphrase, by hash of their content: new ones change few choices.

    Those of named users are left out: their texts must not leave for an endpoint unasked.
    """
    free = [record for record in records if record.user is None]
    return sorted(free, key=lambda record: hash_text(record.content))[: max(wanted, 0)]


def choose_pairs(
    records: Sequence[MemoryRecord], links: Iterable[tuple[int, int]], wanted: int
) -> list[Pair]:
    """Return linked pairs of memories of nobody in particular, by hash of both contents."""
    found: dict[str, Pair] = {}
    for left, right in links:
        pair = records[min(left, right)], records[max(left, right)]
        if left != right and all(record.user is None for record in pair):
            found[hash_text(pair[0].content, pair[1].content)] = pair
    return [found[key] for key in sorted(found)[: max(wanted, 0)]]


def _write(night: Night, found: Generated) -> None:
    document = {
        "queries": [query_to_json(query) for query in found.queries],
        "rejected": [asdict(rejected) for rejected in found.rejected],
        "keys": sorted(found.keys),
    }
    write_text(night.work(GENERATED), json.dumps(document, ensure_ascii=False) + "\n")


def _facts(found: Generated) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "asked": found.n_asked,
        "pending": found.n_pending,
        "rejected": len(found.rejected),
        "faults": dict(found.faults),
    }
    return {**facts, "note": "; ".join(found.warnings)} if found.warnings else facts
