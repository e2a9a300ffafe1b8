"""Paraphrase and multi-hop queries of a corpus: written by one model, graded by another.

What belongs here: the order of the steps and what is kept. What does not: how models are asked
(asking.py), which memories are asked about (the caller).

Records must already be filtered: every text that is passed in is sent to both endpoints, so
sensitive rows, and rows of users who have not agreed, must not be among them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from noctuary.evaluate.generated.answers import read_grade, read_query
from noctuary.evaluate.generated.apart import check_apart
from noctuary.evaluate.generated.asking import Asker, Item, Tally
from noctuary.evaluate.generated.cache import Cache, grade_key, written_key
from noctuary.evaluate.generated.overlap import (
    MAX_JACCARD,
    MAX_JACCARD_MULTI_HOP,
    MAX_SHARED,
    measure_overlap,
)
from noctuary.evaluate.generated.prompts import GRADE, MULTI_HOP, PARAPHRASE, Prompt
from noctuary.evaluate.labels.queries import Query
from noctuary.hosted.batches import clip_text
from noctuary.hosted.chat import Sleep
from noctuary.hosted.endpoint import Endpoint
from noctuary.progress import SILENT, Progress
from noctuary.types import MemoryRecord

DEFAULT_BATCH = 8
"""Items per request: more save prompts and lose more to one bad answer, a kill or a small
context."""
MIN_GRADE = 2
"""Lowest grade of a memory that counts as an answer (UMBRELA: 2 answers in part). 1 would keep
queries that are merely on the topic; judges are lenient as it is."""
MIN_TOKENS = 2
"""Tokens of the shortest query: one word asks for a topic, not for a memory."""

Pair = tuple[MemoryRecord, MemoryRecord]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A written query that is not used.

    Attributes:
        query_id: What it would have been called.
        stratum: "paraphrase" or "multihop".
        text: As written.
        memory_ids: The memories it was written for.
        reason: Which check it failed, with the numbers.
    """

    query_id: str
    stratum: str
    text: str
    memory_ids: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Generated:
    """What a night has of written queries.

    Attributes:
        queries: Those that passed every check, with the judge's grades, in the order asked.
        rejected: The others that were written and graded, each with its reason.
        n_asked: Memories and pairs that a query was wanted for.
        n_pending: Those still without a query or a grade; asked again the next night.
        n_requests: Batches sent tonight, retries apart.
        n_remembered: Answers that came from the cache.
        faults: Unusable parts of answers, by "role: fault".
        warnings: One sentence for every endpoint that was given up.
        keys: Keys of the cache that are still in use; all others may be deleted.
    """

    queries: tuple[Query, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    n_asked: int = 0
    n_pending: int = 0
    n_requests: int = 0
    n_remembered: int = 0
    faults: Mapping[str, int] = field(default_factory=dict[str, int])
    warnings: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Draft:
    """A query to be written, and its text once it is."""

    prompt: Prompt
    records: tuple[MemoryRecord, ...]
    text: str = ""

    @property
    def query_id(self) -> str:
        return "-".join((self.prompt.name, *self.memory_ids))

    @property
    def memory_ids(self) -> tuple[str, ...]:
        return tuple(record.memory_id for record in self.records)


def generate_queries(
    records: Sequence[MemoryRecord],
    pairs: Sequence[Pair],
    generator: Endpoint,
    judge: Endpoint,
    cache: Cache,
    *,
    batch_size: int = DEFAULT_BATCH,
    sleep: Sleep = time.sleep,
    progress: Progress = SILENT,
) -> Generated:
    """Let one model write queries and another one grade them; only what passes is kept.

    A paraphrase shares few words with its memory (Jaccard index at most `MAX_JACCARD` and at most
    `MAX_SHARED` of its own tokens), a multi-hop question at most `MAX_JACCARD_MULTI_HOP` with each
    of its two, and the judge grades every one of its memories `MIN_GRADE` or better.

    Answers are memoised one by one, so a second call asks only for what is new or was not answered.
    Nothing that an endpoint does raises: faults are counted, and an endpoint that is down leaves a
    warning and the queries that are known already.

    Args:
        records: Memories to paraphrase, already filtered (see the head of this module).
        pairs: Two memories each that share a concept, already filtered; for multi-hop questions.
        generator: The model that writes.
        judge: The model that grades; another one.
        cache: Answers of earlier calls.
        batch_size: Items per request, at least 1.
        sleep: Waits between tries.
        progress: Told after every batch.

    Returns:
        The queries and everything that was left out, with reasons.

    Raises:
        ValueError: If both models have the same name, or `batch_size` is below 1.
    """
    check_apart(generator, judge)
    if batch_size < 1:
        raise ValueError(f"batch_size starts at 1, got {batch_size}")
    tally = Tally()
    writer = Asker("generator", generator, cache, tally, batch_size, sleep, progress)
    grader = Asker("judge", judge, cache, tally, batch_size, sleep, progress)
    wanted = _wanted(records, pairs)
    drafts = _write(wanted, writer)
    refused = {draft.query_id: reason for draft in drafts if (reason := _overlap_fault(draft))}
    readable = [draft for draft in drafts if draft.query_id not in refused]
    grades = _grade(readable, grader, generator.model)
    return _collect(wanted, drafts, refused, grades, tally)


def _wanted(records: Sequence[MemoryRecord], pairs: Sequence[Pair]) -> list[_Draft]:
    """Return what is to be written, each once; a pair needs two memories."""
    drafts = [_Draft(PARAPHRASE, (record,)) for record in records]
    drafts += [_Draft(MULTI_HOP, pair) for pair in pairs if pair[0].memory_id != pair[1].memory_id]
    return list({draft.query_id: draft for draft in drafts}.values())


def _write(wanted: Sequence[_Draft], writer: Asker) -> list[_Draft]:
    """Return the drafts that have a text by now."""
    written: list[_Draft] = []
    for prompt in (PARAPHRASE, MULTI_HOP):
        drafts = [draft for draft in wanted if draft.prompt is prompt]
        items = [
            Item(written_key(prompt, draft.records, writer.endpoint.model), _shown(draft.records))
            for draft in drafts
        ]
        texts = writer.ask(prompt, items, read_query)
        written += [
            _Draft(draft.prompt, draft.records, str(texts[item.key]))
            for draft, item in zip(drafts, items, strict=True)
            if item.key in texts
        ]
    return written


def _shown(records: Sequence[MemoryRecord]) -> dict[str, str]:
    """Return what the generator sees of a draft's memories."""
    if len(records) == 1:
        return {"memory": clip_text(records[0].content)}
    return {
        f"memory_{number}": clip_text(record.content)
        for number, record in enumerate(records, start=1)
    }


def _overlap_fault(draft: _Draft) -> str | None:
    """Return why a text is too close to its memories or no query, None if it is neither."""
    paraphrase = draft.prompt is PARAPHRASE
    most = MAX_JACCARD if paraphrase else MAX_JACCARD_MULTI_HOP
    for record in draft.records:
        found = measure_overlap(draft.text, record)
        if found.n_tokens < MIN_TOKENS:
            return f"too short: {found.n_tokens} tokens, expected at least {MIN_TOKENS}"
        if found.jaccard > most:
            return f"overlap: Jaccard {found.jaccard:.2f} with its memory, expected <= {most}"
        if paraphrase and found.shared > MAX_SHARED:
            return (
                f"overlap: {found.shared:.2f} of its words stand in its memory, expected "
                f"<= {MAX_SHARED:.2f}"
            )
    return None


def _grade(
    drafts: Sequence[_Draft], grader: Asker, generator_model: str
) -> dict[tuple[str, str], int]:
    """Return the grades that are known by now, by query and memory id."""
    items = {
        (draft.query_id, record.memory_id): Item(
            grade_key(draft.text, record, generator_model, grader.endpoint.model),
            {"query": draft.text, "memory": clip_text(record.content)},
        )
        for draft in drafts
        for record in draft.records
    }
    values = grader.ask(GRADE, list(items.values()), read_grade)
    return {pair: int(values[item.key]) for pair, item in items.items() if item.key in values}


def _collect(
    wanted: Sequence[_Draft],
    drafts: Sequence[_Draft],
    refused: Mapping[str, str],
    grades: Mapping[tuple[str, str], int],
    tally: Tally,
) -> Generated:
    queries: list[Query] = []
    rejected: list[Rejected] = []
    for draft in drafts:
        name = draft.query_id
        given = {i: grades[name, i] for i in draft.memory_ids if (name, i) in grades}
        if name in refused:
            rejected.append(_rejected(draft, refused[name]))
        elif any(grade < MIN_GRADE for grade in given.values()):
            shown = ", ".join(str(given.get(i, "none")) for i in draft.memory_ids)
            rejected.append(_rejected(draft, f"grade: {shown}, expected at least {MIN_GRADE}"))
        elif len(given) == len(draft.records):
            queries.append(_query(draft, given))
    return Generated(
        queries=tuple(queries),
        rejected=tuple(rejected),
        n_asked=len(wanted),
        n_pending=len(wanted) - len(queries) - len(rejected),
        n_requests=tally.requests,
        n_remembered=tally.remembered,
        faults=dict(sorted(tally.faults.items())),
        warnings=tuple(tally.warnings),
        keys=frozenset(tally.keys),
    )


def _query(draft: _Draft, grades: Mapping[str, int]) -> Query:
    return Query(
        query_id=draft.query_id,
        text=draft.text,
        stratum=draft.prompt.name,
        relevant_ids=draft.memory_ids,
        grades=dict(grades),
    )


def _rejected(draft: _Draft, reason: str) -> Rejected:
    return Rejected(draft.query_id, draft.prompt.name, draft.text, draft.memory_ids, reason)
