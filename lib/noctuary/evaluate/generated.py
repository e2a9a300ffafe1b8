"""Queries that a language model writes about a corpus, and another one judges."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from noctuary.core.files import hash_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.evaluate.labels import Query
from noctuary.text.tokens import tokenize
from noctuary.work.http import (
    DATA_RULE,
    Answers,
    BadAnswerError,
    Endpoint,
    EndpointDownError,
    Sleep,
    batch_message,
    clip_text,
    complete,
    numbered,
    parse_batch,
)

# Generator and judge are two models.


def check_apart(generator: Endpoint, judge: Endpoint) -> None:
    """Check that generator and judge are two models: one would favour what it wrote itself.

    Raises:
        ValueError: If both names are the same; the addresses may be.
    """
    if generator.model.strip().casefold() == judge.model.strip().casefold():
        raise ValueError(
            f"generator and judge are both {judge.model!r}; a model favours what it wrote itself: "
            "configure two different models"
        )


# How many words a written query shares with the memories it was written for.
#
# A query that repeats its memory's words would be another exact query and reward lexical search.


MAX_JACCARD = 0.18
"""Bound of a paraphrase (hybrid-recall's evaluation set). Higher lets lexical search find what was
to be found by meaning; lower rejects queries for a name that cannot be paraphrased."""
MAX_JACCARD_MULTI_HOP = 0.3
"""Bound of a multi-hop question against each of its memories: it has to name what they share."""
MAX_SHARED = 1 / 3
"""Share of a paraphrase's own tokens that may stand in the memory. The Jaccard index alone does not
bound a short query about a long memory: eight words copied out of a hundred are .08."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Shared words of a query and a memory, both as the index sees them (stems, no stop words).

    Attributes:
        jaccard: Shared tokens over all distinct tokens of both, in [0, 1].
        shared: Shared tokens over the query's distinct tokens, in [0, 1].
        n_tokens: Distinct tokens of the query.
    """

    jaccard: float
    shared: float
    n_tokens: int


def measure_overlap(query: str, record: MemoryRecord) -> Overlap:
    """Compare a query with a memory's content and keywords."""
    asked = frozenset(tokenize(query))
    held = frozenset(tokenize(f"{record.content}\n{record.expanded_keywords}"))
    common = len(asked & held)
    return Overlap(
        jaccard=common / max(len(asked | held), 1),
        shared=common / max(len(asked), 1),
        n_tokens=len(asked),
    )


# What the models are told. Nothing is sent.
#
# Texts of memories go in as JSON strings, cut to a bound, under an instruction that they are data:
# a memory may hold "ignore your instructions", and the worst that this can do is a query that the
# checks and the judge reject.


PROMPT_VERSION = "1"
"""Part of every key under which an answer is memoised: raise it with any change of wording."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One kind of question to a model.

    Attributes:
        name: Part of the keys under which answers are memoised.
        value_key: The key that holds the answer in every item.
        system: The instruction.
    """

    name: str
    value_key: str
    system: str


PARAPHRASE = Prompt(
    "paraphrase",
    "query",
    "You write test queries for the search of a personal memory store. For each item write one "
    "question or request, in the language of its memory, that this memory answers and that "
    "somebody would ask who remembers the matter but not the wording. Use synonyms and "
    "descriptions: no noun, verb, adjective, name or number of the memory may appear in the "
    "query. At most 25 words. " + DATA_RULE + '{"items": [{"id": "1", "query": "..."}]}',
)

MULTI_HOP = Prompt(
    "multihop",
    "query",
    "You write test queries for the search of a personal memory store. For each item write one "
    "question, in the language of its memories, that can only be answered with both memories "
    "together: each holds a part of the answer that the other lacks. Ask for what joins them, and "
    "use the memories' own words as little as possible. At most 30 words. "
    + DATA_RULE
    + '{"items": [{"id": "1", "query": "..."}]}',
)

GRADE = Prompt(
    "grade",
    "grade",
    "You judge how well a memory serves a query. For each item give one integer grade. "
    "0: the memory has nothing to do with the query. "
    "1: it is on the topic and does not answer any part of the query. "
    "2: it answers a part of the query, or all of it unclearly or among other things. "
    "3: it is about the query and holds the exact answer. "
    "Be strict: between two grades give the lower one. "
    + DATA_RULE
    + '{"items": [{"id": "1", "grade": 0}]}',
)
"""The scale of UMBRELA (Upadhyay et al. 2024)."""


# What a written query and a grade look like, read from a batch's answer.


MAX_QUERY_CHARS = 400
"""Longer ones are no queries but copied memories or a model's thoughts."""
MAX_GRADE = 3

Value = str | int
ReadValue = Callable[[object], Value | None]
"""Returns the value of an item, or None where it is not usable."""


def read_query(value: object) -> str | None:
    """Return a written query with single spaces; None if it is blank, too long or no text."""
    if not isinstance(value, str):
        return None
    query = " ".join(value.split())
    storable = query.encode("utf-8", "ignore").decode("utf-8") == query
    return query if storable and 0 < len(query) <= MAX_QUERY_CHARS else None


def read_grade(value: object) -> int | None:
    """Return a grade; None unless it is an integer from 0 to 3."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= MAX_GRADE else None


def parse_answers(content: str, n_items: int, value_key: str, read: ReadValue) -> Answers[Value]:
    """Read the answer to a batch whose items had the ids "1" to "n_items".

    Args:
        content: The model's text: JSON, possibly inside of a code fence or after other words.
        n_items: Items asked about.
        value_key: The key of every item's value.
        read: Checks one value.

    Returns:
        Every usable value, the first one where an id stands twice; never an error.
    """
    return parse_batch(content, numbered(n_items), lambda row: read(row.get(value_key)))


# What has been answered before, so that a night asks only for what is new.


class Cache(Protocol):
    """A content store; `put` is called after every batch: a killed night loses one at most.

    Values hold queries that models wrote about memories: they are to be deleted with these
    (`Generated.keys` names the ones still in use).
    """

    def get(self, keys: Iterable[bytes]) -> Mapping[bytes, bytes]:
        """Return the values of those keys that are held."""
        ...

    def put(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Keep values durably, as many as keys."""
        ...


def written_key(prompt: Prompt, records: Sequence[MemoryRecord], generator_model: str) -> str:
    """Return the key of a query: prompt, generator and what is known of the memories.

    The judge is no part of it: another judge grades the same queries again.
    """
    return hash_text(
        "written", PROMPT_VERSION, prompt.name, generator_model, *map(_hash_memory, records)
    )


def grade_key(query: str, record: MemoryRecord, generator_model: str, judge_model: str) -> str:
    """Return the key of a grade: both models, the query and what is known of the memory."""
    return hash_text(
        "grade", PROMPT_VERSION, generator_model, judge_model, query, _hash_memory(record)
    )


def _hash_memory(record: MemoryRecord) -> str:
    """Hash what a prompt and the overlap depend on: a changed importance asks nothing anew."""
    return hash_text(record.content, record.expanded_keywords)


# Items in, values out: from the cache where known, else from an endpoint, batch by batch.


MAX_USELESS = 3
"""Answers in a row without one usable value after which an endpoint is left alone: a model that
never writes JSON would otherwise cost the whole night."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to ask about.

    Attributes:
        key: What its value is memoised under.
        payload: What the prompt shows of it.
    """

    key: str
    payload: Mapping[str, str]


@dataclass(slots=True)
class Tally:
    """What a night's conversations came to, counted as it goes.

    Attributes:
        requests: Batches sent, retries apart.
        remembered: Values that were in the cache.
        faults: Faults of answers, by "role: fault".
        warnings: One sentence for every endpoint that was given up.
        keys: Keys that were looked up or stored.
    """

    requests: int = 0
    remembered: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    warnings: list[str] = field(default_factory=list[str])
    keys: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class Asker:
    """One endpoint in its role, and the night's cache.

    Attributes:
        role: "generator" or "judge", for counts and warnings.
        endpoint: The model.
        cache: What is known already.
        tally: Shared by both roles.
        batch_size: Items per request, at least 1.
        sleep: Waits between tries.
        progress: Told after every batch.
        stopped: Whether the endpoint was given up; it is not asked again.
        useless: Answers in a row without a usable value.
    """

    role: str
    endpoint: Endpoint
    cache: Cache
    tally: Tally
    batch_size: int
    sleep: Sleep
    progress: Progress
    stopped: bool = False
    useless: int = 0

    def ask(self, prompt: Prompt, items: Sequence[Item], read: ReadValue) -> dict[str, Value]:
        """Return the values that are known by now, by key."""
        distinct = list({item.key: item for item in items}.values())
        found: dict[str, Value] = {}
        known = self.cache.get([bytes.fromhex(item.key) for item in distinct])
        for item in distinct:
            self.tally.keys.add(item.key)
            value = _decode(known.get(bytes.fromhex(item.key)), read)
            if value is not None:
                found[item.key] = value
        self.tally.remembered += len(found)
        new = [item for item in distinct if item.key not in found]
        for start in range(0, len(new), self.batch_size):
            if self.stopped:
                break
            found.update(self._ask_batch(prompt, new[start : start + self.batch_size], read))
            done = min(start + self.batch_size, len(new))
            self.progress.update(f"{self.role}: {prompt.name}", done, len(new))
        return found

    def _ask_batch(
        self, prompt: Prompt, batch: Sequence[Item], read: ReadValue
    ) -> dict[str, Value]:
        self.tally.requests += 1
        message = batch_message([item.payload for item in batch])
        try:
            content = complete(self.endpoint, prompt.system, message, self.sleep)
        except EndpointDownError as error:
            self._stop(str(error))
            return {}
        except BadAnswerError as error:
            answers = Answers({}, Counter({error.fault: 1}))
        else:
            answers = parse_answers(content, len(batch), prompt.value_key, read)
        self._count(answers)
        values = {batch[place].key: value for place, value in answers.values.items()}
        kept = [json.dumps(value).encode("ascii") for value in values.values()]
        self.cache.put(list(map(bytes.fromhex, values)), kept)
        return values

    def _count(self, answers: Answers[Value]) -> None:
        for fault, count in answers.faults.items():
            self.tally.faults[f"{self.role}: {fault.value}"] += count
        self.useless = 0 if answers.values else self.useless + 1
        if self.useless == MAX_USELESS:
            self._stop(f"{MAX_USELESS} answers in a row were of no use")

    def _stop(self, reason: str) -> None:
        self.stopped = True
        self.tally.warnings.append(
            f"the {self.role} ({self.endpoint.model}) was given up for tonight: {reason}; "
            f"what is missing is asked the next night (evaluation.{self.role}_url)"
        )


def _decode(raw: bytes | None, read: ReadValue) -> Value | None:
    """Return a memoised value; None where there is none or it is damaged."""
    if raw is None:
        return None
    try:
        return read(parse_json(raw))
    except ValueError:
        return None


# Paraphrase and multi-hop queries of a corpus: written by one model, graded by another.
#
# Records must already be filtered: every text that is passed in is sent to both endpoints, so
# sensitive rows, and rows of users who have not agreed, must not be among them.


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
        records: Memories to paraphrase, already filtered (see above).
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
