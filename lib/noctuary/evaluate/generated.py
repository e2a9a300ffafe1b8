"""Queries that a language model writes about a corpus, and another one judges."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.core.errors import ConfigError
from noctuary.core.files import hash_text, read_json
from noctuary.core.foreign_json import parse_json
from noctuary.core.settings import EvaluationSettings
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.evaluate.labels import Query
from noctuary.text.tokens import tokenize
from noctuary.work import http
from noctuary.work.content import ContentStore

# How many words a written query shares with its memories: one that repeats them would be another
# exact query and reward lexical search.

# Of a paraphrase (hybrid-recall's evaluation set). Higher lets lexical search find what was to be
# found by meaning; lower rejects queries for a name that cannot be paraphrased.
MAX_JACCARD = 0.18
MAX_JACCARD_MULTI_HOP = 0.3  # against each of its memories: it has to name what they share
MAX_SHARED = 1 / 3  # of a paraphrase's tokens in the memory: Jaccard does not bound a short query


class Overlap(NamedTuple):
    """Shared words of a query and a memory, both as the index sees them (stems, no stop words)."""

    jaccard: float  # shared tokens over all distinct tokens of both, in [0, 1]
    shared: float  # shared tokens over the query's distinct tokens, in [0, 1]
    n_tokens: int  # distinct tokens of the query


def measure_overlap(query: str, record: MemoryRecord) -> Overlap:
    """Compare a query with a memory's content and keywords."""
    asked = frozenset(tokenize(query))
    held = frozenset(tokenize(f"{record.content}\n{record.expanded_keywords}"))
    common = len(asked & held)
    return Overlap(common / max(len(asked | held), 1), common / max(len(asked), 1), len(asked))


# What the models are told, and what is usable of an answer. A memory may hold "ignore your
# instructions": its text goes in as a bounded JSON string, as data, and the worst that this can do
# is a query that the checks and the judge reject.

PROMPT_VERSION = "1"  # part of every key of an answer: raise it with any change of wording
MAX_QUERY_CHARS = 400  # longer ones are no queries but copied memories or a model's thoughts
MAX_GRADE = 3

Value = str | int


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


READERS: dict[str, tuple[Callable[[object], Value | None], str]] = {
    "query": (read_query, '"query": "..."'),
    "grade": (read_grade, '"grade": 0'),
}
"""By the key of an answer in every item, what reads it (None: not usable), and an example."""


class Prompt(NamedTuple):
    """One kind of question to a model."""

    name: str  # part of the keys under which answers are memoised
    key: str  # of READERS
    task: str

    @property
    def system(self) -> str:
        """The instruction."""
        return f'{self.task} {http.DATA_RULE}{{"items": [{{"id": "1", {READERS[self.key][1]}}}]}}'

    def read(self, value: object) -> Value | None:
        """Return an answer, or None where it is not usable."""
        return READERS[self.key][0](value)


_WRITE = "You write test queries for the search of a personal memory store. For each item write"

PARAPHRASE = Prompt(
    "paraphrase",
    "query",
    f"{_WRITE} one question or request, in the language of its memory, that this memory answers "
    "and that somebody would ask who remembers the matter but not the wording. Use synonyms and "
    "descriptions: no noun, verb, adjective, name or number of the memory may appear in the "
    "query. At most 25 words.",
)

MULTI_HOP = Prompt(
    "multihop",
    "query",
    f"{_WRITE} one question, in the language of its memories, that can only be answered with both "
    "memories together: each holds a part of the answer that the other lacks. Ask for what joins "
    "them, and use the memories' own words as little as possible. At most 30 words.",
)

# The scale of UMBRELA (Upadhyay et al. 2024).
GRADE = Prompt(
    "grade",
    "grade",
    "You judge how well a memory serves a query. For each item give one integer grade. "
    "0: the memory has nothing to do with the query. "
    "1: it is on the topic and does not answer any part of the query. "
    "2: it answers a part of the query, or all of it unclearly or among other things. "
    "3: it is about the query and holds the exact answer. "
    "Be strict: between two grades give the lower one.",
)


def parse_answers(content: str, n_items: int, prompt: Prompt) -> http.Answers[Value]:
    """Return every usable value of an answer whose items had the ids "1" to "n_items"."""
    ids = http.numbered(n_items)
    return http.parse_batch(content, ids, lambda row: prompt.read(row.get(prompt.key)))


# What has been answered before, so that a night asks only for what is new. Kept answers tell of
# memories and are to be deleted with these (`Generated.keys` names the ones still in use).


MAX_USELESS = 3  # answers in a row without a usable value after which an endpoint is left alone


@dataclass(slots=True)
class _Asker:
    """One endpoint in its role ("generator" or "judge"), and what the conversation came to."""

    role: str
    endpoint: http.Endpoint
    cache: ContentStore
    batch_size: int
    sleep: http.Sleep
    progress: Progress
    requests: int = 0
    useless: int = 0  # answers in a row without a usable value
    faults: Counter[str] = field(default_factory=Counter[str])
    stopped: str | None = None  # why the endpoint was given up
    keys: set[str] = field(default_factory=set[str])

    def ask(self, prompt: Prompt, items: Mapping[str, Mapping[str, str]]) -> dict[str, Value]:
        """Return the values known by now of what a prompt shows, by the keys of the items."""
        self.keys.update(items)
        found: dict[str, Value] = {}
        for key, kept in self.cache.get(map(bytes.fromhex, items)).items():
            with suppress(ValueError):  # damaged
                if (value := prompt.read(parse_json(kept))) is not None:
                    found[key.hex()] = value
        new = [key for key in items if key not in found]
        for start in range(0, len(new), self.batch_size):
            if self.stopped is not None:
                break
            batch = new[start : start + self.batch_size]
            answers = self._ask_batch(prompt, [items[key] for key in batch])
            made = {batch[place]: value for place, value in answers.items()}
            # Batch by batch: a killed night loses one at most.
            values = [json.dumps(value).encode("ascii") for value in made.values()]
            self.cache.put(list(map(bytes.fromhex, made)), values)
            found |= made
            self.progress.update(f"{self.role}: {prompt.name}", start + len(batch), len(new))
        return found

    def _ask_batch(
        self, prompt: Prompt, payloads: Sequence[Mapping[str, str]]
    ) -> Mapping[int, Value]:
        self.requests += 1
        try:
            content = http.complete(
                self.endpoint, prompt.system, http.batch_message(payloads), self.sleep
            )
            answers = parse_answers(content, len(payloads), prompt)
        except http.EndpointDownError as error:
            self._stop(str(error))
            return {}
        except http.BadAnswerError as error:
            answers = http.Answers({}, Counter({error.fault: 1}))
        for fault, count in answers.faults.items():
            self.faults[f"{self.role}: {fault.value}"] += count
        self.useless = 0 if answers.values else self.useless + 1
        if self.useless == MAX_USELESS:
            self._stop(f"{MAX_USELESS} answers in a row were of no use")
        return answers.values

    def _stop(self, reason: str) -> None:
        self.stopped = (
            f"the {self.role} ({self.endpoint.model}) was given up for tonight: {reason}; "
            f"what is missing is asked the next night (evaluation.{self.role}_url)"
        )


# Paraphrase and multi-hop queries of a corpus: written by one model, graded by another. Every text
# is sent to both: no sensitive row, and none of users who have not agreed, may be among them.

DEFAULT_BATCH = 8  # items per request: more save prompts and lose more to one bad answer or a kill
MIN_GRADE = 2  # of an answer (UMBRELA: 2 answers in part); 1 would be merely on the topic
MIN_TOKENS = 2  # tokens of the shortest query: one word asks for a topic, not for a memory

Pair = tuple[MemoryRecord, MemoryRecord]


@dataclass(frozen=True, slots=True)
class Generated:
    """What a night has of written queries."""

    queries: tuple[Query, ...] = ()  # that passed every check, with the judge's grades, as asked
    rejected: tuple[dict[str, Any], ...] = ()  # other written ones, with the check that each failed
    n_asked: int = 0  # memories and pairs that a query was wanted for
    n_pending: int = 0  # still without a query or a grade; asked again the next night
    n_requests: int = 0  # batches sent tonight, retries apart
    faults: Mapping[str, int] = field(default_factory=dict[str, int])  # by "role: fault"
    warnings: tuple[str, ...] = ()  # one sentence for every endpoint that was given up
    keys: frozenset[str] = frozenset()  # of the cache, still in use; all others may be deleted

    def to_json(self) -> dict[str, Any]:
        """Return what the next stages need, texts included."""
        return {
            "queries": [query.to_json() for query in self.queries],
            "rejected": list(self.rejected),
            "keys": sorted(self.keys),
        }

    def to_facts(self) -> dict[str, Any]:
        """Return the counts, without a text."""
        counts = {"asked": self.n_asked, "pending": self.n_pending, "rejected": len(self.rejected)}
        note = {"note": "; ".join(self.warnings)} if self.warnings else {}
        return {**counts, "faults": dict(self.faults), **note}


def read_generated(path: Path) -> Generated:
    """Return the queries and keys of a file of `Generated.to_json`; empty where there is none."""
    try:
        document = read_json(path)
    except FileNotFoundError:
        return Generated()
    queries = tuple(map(Query.from_json, document["queries"]))
    return Generated(queries, keys=frozenset(document["keys"]))


class _Draft(NamedTuple):
    """A query to be written, and its text once it is."""

    prompt: Prompt
    records: tuple[MemoryRecord, ...]
    text: str = ""

    @property
    def query_id(self) -> str:
        return "-".join((self.prompt.name, *(record.memory_id for record in self.records)))

    def shown(self) -> dict[str, str]:
        """Return the memories as a prompt shows them."""
        names = ("memory",) if len(self.records) == 1 else ("memory_1", "memory_2")
        texts = (http.clip_text(record.content) for record in self.records)
        return dict(zip(names, texts, strict=True))

    def overlap_fault(self) -> str | None:
        """Return why the text is too close to its memories or no query, None if it is neither."""
        paraphrase = self.prompt is PARAPHRASE
        most = MAX_JACCARD if paraphrase else MAX_JACCARD_MULTI_HOP
        for record in self.records:
            found = measure_overlap(self.text, record)
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


WRITTEN_ANSWERS_KIND = "generated_queries:1"  # of the answers of both models
PAIRS_PER_MEMORY = 0.5  # multi-hop questions per paraphrase: they cost two grades each


def ask_configured_models(
    chosen: EvaluationSettings,
    records: Sequence[MemoryRecord],
    links: Iterable[tuple[int, int]],
    cache: ContentStore,
    progress: Progress = SILENT,
) -> Generated:
    """Let the configured models write and grade queries about memories and linked pairs."""
    key = http.read_api_key(chosen.api_key_variable, "evaluation.api_key_variable")
    try:
        generator = http.Endpoint(chosen.generator_url, chosen.generator_model, key)
        judge = http.Endpoint(chosen.judge_url, chosen.judge_model, key)
    except ValueError as error:
        raise ConfigError(f"evaluation.generator_* or judge_*: {error}") from error
    asked = choose_memories(records, chosen.generated_queries)
    pairs = choose_pairs(records, links, int(chosen.generated_queries * PAIRS_PER_MEMORY))
    return generate_queries(asked, pairs, generator, judge, cache, progress=progress)


def choose_memories(records: Sequence[MemoryRecord], wanted: int) -> list[MemoryRecord]:
    """Return memories to paraphrase, none of a named user, by hash: new ones change few choices."""
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


def generate_queries(
    records: Sequence[MemoryRecord],
    pairs: Sequence[Pair],
    generator: http.Endpoint,
    judge: http.Endpoint,
    cache: ContentStore,
    *,
    batch_size: int = DEFAULT_BATCH,
    sleep: http.Sleep = time.sleep,
    progress: Progress = SILENT,
) -> Generated:
    """Let one model write queries and another one grade them; only what passes is kept."""
    # Answers are memoised one by one: a second call asks only for what is new. Nothing that an
    # endpoint does raises; one that is down leaves a warning and what is known.
    if generator.model.strip().casefold() == judge.model.strip().casefold():
        raise ValueError(
            f"generator and judge are both {judge.model!r}; a model favours what it wrote itself: "
            "configure two different models"
        )
    writer = _Asker("generator", generator, cache, batch_size, sleep, progress)
    grader = _Asker("judge", judge, cache, batch_size, sleep, progress)
    wanted = [_Draft(PARAPHRASE, (record,)) for record in records]
    wanted += [_Draft(MULTI_HOP, pair) for pair in pairs if pair[0].memory_id != pair[1].memory_id]
    wanted = list({draft.query_id: draft for draft in wanted}.values())
    drafts = _write(wanted, writer)
    refused = {draft.query_id: reason for draft in drafts if (reason := draft.overlap_fault())}
    grades = _grade([d for d in drafts if d.query_id not in refused], grader, generator.model)
    queries: list[Query] = []
    rejected: list[dict[str, Any]] = []
    for draft in drafts:
        name, stratum = draft.query_id, draft.prompt.name
        ids = tuple(record.memory_id for record in draft.records)
        given = {i: grades[name, i] for i in ids if (name, i) in grades}
        reason = refused.get(name)
        if any(grade < MIN_GRADE for grade in given.values()):
            shown = ", ".join(str(given.get(i, "none")) for i in ids)
            reason = f"grade: {shown}, expected at least {MIN_GRADE}"
        if reason is not None:
            row = {"query_id": name, "stratum": stratum, "text": draft.text}
            rejected.append({**row, "memory_ids": list(ids), "reason": reason})
        elif len(given) == len(ids):
            queries.append(Query(name, draft.text, stratum, ids, grades=given))
    return Generated(
        queries=tuple(queries),
        rejected=tuple(rejected),
        n_asked=len(wanted),
        n_pending=len(wanted) - len(queries) - len(rejected),
        n_requests=writer.requests + grader.requests,
        faults=dict(sorted((writer.faults + grader.faults).items())),
        warnings=tuple(said for said in (writer.stopped, grader.stopped) if said is not None),
        keys=frozenset(writer.keys | grader.keys),
    )


def _hash_memory(record: MemoryRecord) -> str:
    """Hash what a prompt and the overlap depend on: a changed importance asks nothing anew."""
    return hash_text(record.content, record.expanded_keywords)


def _write(wanted: Sequence[_Draft], writer: _Asker) -> list[_Draft]:
    written: list[_Draft] = []
    for prompt in (PARAPHRASE, MULTI_HOP):
        # The judge is no part of a key: another judge grades the same queries again.
        asked = ("written", PROMPT_VERSION, prompt.name, writer.endpoint.model)
        keyed = {
            draft: hash_text(*asked, *map(_hash_memory, draft.records))
            for draft in wanted
            if draft.prompt is prompt
        }
        texts = writer.ask(prompt, {key: draft.shown() for draft, key in keyed.items()})
        written += [d._replace(text=str(texts[key])) for d, key in keyed.items() if key in texts]
    return written


def _grade(
    drafts: Sequence[_Draft], grader: _Asker, generator_model: str
) -> dict[tuple[str, str], int]:
    """Return the grades that are known by now, by query and memory id."""
    asked = ("grade", PROMPT_VERSION, generator_model, grader.endpoint.model)
    keys: dict[tuple[str, str], str] = {}
    items: dict[str, dict[str, str]] = {}
    for draft in drafts:
        for record in draft.records:
            key = hash_text(*asked, draft.text, _hash_memory(record))
            keys[draft.query_id, record.memory_id] = key
            items[key] = {"query": draft.text, "memory": http.clip_text(record.content)}
    values = grader.ask(GRADE, items)
    return {pair: int(values[key]) for pair, key in keys.items() if key in values}
