"""Names and triples from a language model, added to what the rules found; off by default.

What belongs here: whose memories are asked about, in which batches, what is kept of the answers.
What does not: what an answer is worth (noctuary.graph.llm_answers), HTTP (noctuary.hosted).

**Texts leave the machine**: the content of every memory that may be shown, cut to a bound, and
nothing else of it. Contents that read like a secret are not sent.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from noctuary.errors import ConfigError
from noctuary.graph.extraction import Extraction
from noctuary.graph.llm_answers import (
    PROMPT_VERSION,
    READING_VERSION,
    SYSTEM,
    Failures,
    RawAnswer,
    answer_key,
    decode,
    ground,
    item_ids,
    read_answer,
)
from noctuary.graph.merge import merge_extractions
from noctuary.hosted.answers import Answers, parse_batch
from noctuary.hosted.batches import MAX_MEMORY_CHARS, batch_message, clip_text
from noctuary.hosted.chat import Sleep, complete
from noctuary.hosted.endpoint import BadAnswerError, Endpoint, EndpointDownError
from noctuary.night.context import Night
from noctuary.progress import Progress
from noctuary.settings.api_key import read_api_key
from noctuary.text.sensitivity import find_text_sensitivity
from noctuary.types import MemoryRecord
from noctuary.work.memo import Memo

TRIPLES_KIND = "graph_plugin:1"
"""Kind of the memo. Its name is older than this module: another one would ask everything again."""

PARALLEL_REQUESTS = 2
"""Requests under way at once. More are faster where an endpoint serves them side by side; one that
does not lets the later ones wait into their time limit, and more are lost with a kill."""

MAX_USELESS_ALONE = 8
"""Answers in a row about single memories without any use after which the endpoint is left alone: a
model that never writes JSON would otherwise cost a request per memory."""

MAX_FAILED_NIGHTS = 3
"""Nights on which a memory that gets no usable answer is asked about again. More give a model that
is merely unlucky its chance; fewer save a request per night and memory."""

ENDPOINT_DOWN = "graph_endpoint_down"
"""Code of the warning that the endpoint was given up."""
UNANSWERED = "graph_memories_unanswered"
"""Code of the warning that memories got no usable answer though the endpoint gives some."""


class Extended(NamedTuple):
    """Extractions with what the model added.

    Attributes:
        extractions: One per memory, in the order given.
        facts: For the stage's facts: what is known of these memories, and "warnings", a list of
            {"code", "message"} that is only there when something went wrong.
        notes: For the stage's notes: what only tonight did.
    """

    extractions: list[Extraction]
    facts: dict[str, Any]
    notes: dict[str, int]


@dataclass(slots=True)
class TripleReader:
    """One model, what it said of some texts, and what is still to be asked.

    Attributes:
        endpoint: The model.
        batch_memories: Texts per request, at least 1.
        memo: Where answers are kept, batch by batch. A kill loses what is under way, at most
            PARALLEL_REQUESTS batches.
        progress: Told after every batch.
        sleep: Waits between tries.
        kept: By `answer_key`, what is known.
        tonight: Requests, answers remembered and faults of answers, by name.
        given_up: Why the endpoint was left alone, or None.
    """

    endpoint: Endpoint
    batch_memories: int
    memo: Memo
    progress: Progress
    sleep: Sleep = time.sleep
    kept: dict[str, RawAnswer | Failures] = field(default_factory=dict[str, RawAnswer | Failures])
    tonight: Counter[str] = field(default_factory=Counter[str])
    given_up: str | None = None
    _queue: deque[dict[str, str]] = field(default_factory=deque[dict[str, str]])
    _useless: int = 0

    def read(self, contents: Iterable[str]) -> dict[str, RawAnswer]:
        """Ask about what is new and return what is known by now, by content.

        In batches, then alone where a batch gave nothing for a text; by the order of their keys,
        those that failed before last. Nothing that an endpoint does raises.
        """
        texts = {answer_key(content, self.endpoint.model): content for content in contents}
        stored = self.memo.get_many(TRIPLES_KIND, texts)
        self.kept = {key: decode(stored.get(key)) for key in sorted(texts)}
        failed = {key: v.nights for key, v in self.kept.items() if isinstance(v, Failures)}
        self.tonight.update(requests=0, remembered=len(texts) - len(failed))
        again = [key for key, nights in failed.items() if nights < MAX_FAILED_NIGHTS]
        again.sort(key=lambda key: (failed[key], key))
        for start in range(0, len(again), self.batch_memories):
            batch = again[start : start + self.batch_memories]
            self._queue.append({key: texts[key] for key in batch})
        self._ask_all(len(again))
        return {texts[k]: v for k, v in self.kept.items() if isinstance(v, RawAnswer)}

    def _ask_all(self, wanted: int) -> None:
        left, running = wanted, dict[Future[Answers[RawAnswer]], dict[str, str]]()
        with ThreadPoolExecutor(PARALLEL_REQUESTS, "graph-llm") as pool:
            while self._queue or running:
                while self._queue and len(running) < PARALLEL_REQUESTS:
                    batch = self._queue.popleft()
                    running[pool.submit(self._request, batch)] = batch
                    self.tonight["requests"] += 1
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    left -= self._take(running.pop(future), future)
                self.progress.update("graph: llm", wanted - left, wanted)

    def _request(self, batch: Mapping[str, str]) -> Answers[RawAnswer]:
        """Run in a thread of the pool: one conversation, nothing shared."""
        ids = item_ids(list(batch))
        message = batch_message([{"memory": clip_text(text)} for text in batch.values()], ids)
        try:
            content = complete(self.endpoint, SYSTEM, message, self.sleep)
        except BadAnswerError as error:
            return Answers({}, Counter({error.fault: 1}))
        return parse_batch(content, ids, read_answer)

    def _take(self, batch: dict[str, str], future: Future[Answers[RawAnswer]]) -> int:
        """Keep what came, ask again for what did not, and return how many are done with."""
        try:
            answers = future.result()
        except EndpointDownError as error:
            self._give_up(str(error))
            return 0
        self.tonight.update({f"fault: {fault}": n for fault, n in answers.faults.items() if n})
        keys, alone = list(batch), len(batch) == 1
        found = {keys[place]: value for place, value in answers.values.items()}
        missing = [key for key in keys if key not in found]
        self._keep(found, missing if alone else [])
        if found:
            self._useless = 0
        elif alone:
            self._useless += 1
            if self._useless == MAX_USELESS_ALONE:
                self._give_up(f"{MAX_USELESS_ALONE} answers in a row were of no use")
        if not alone and self.given_up is None:
            self._queue.extendleft({key: batch[key]} for key in reversed(missing))
            return len(found)
        return len(batch)

    def _keep(self, answers: Mapping[str, RawAnswer], failed: Sequence[str]) -> None:
        fresh: dict[str, RawAnswer | Failures] = dict(answers)
        # A model that never gave any use is set up wrongly; its failures say nothing of memories.
        if any(isinstance(value, RawAnswer) for value in self.kept.values()):
            for key in failed:
                before = self.kept[key]
                fresh[key] = Failures(before.nights + 1 if isinstance(before, Failures) else 1)
        if fresh:
            self.memo.put_many(TRIPLES_KIND, {key: v.to_bytes() for key, v in fresh.items()})
            self.kept.update(fresh)

    def _give_up(self, reason: str) -> None:
        self.given_up = reason
        self._queue.clear()

    def warnings(self) -> list[dict[str, str]]:
        """Return what went wrong as a whole, as {"code", "message"}."""
        unanswered = sum(isinstance(value, Failures) for value in self.kept.values())
        waiting = f"{unanswered} memories have only what the rules found in them"
        model = f"the model of the graph ({self.endpoint.model})"
        if self.given_up is not None:
            message = (
                f"{model} was given up for tonight: {self.given_up}; {waiting}; they are asked "
                "about the next night (graph.llm_url)"
            )
            return [{"code": ENDPOINT_DOWN, "message": message}]
        if unanswered:
            message = (
                f"{model} gave no usable answer to some memories: {waiting}; each is asked about "
                f"on {MAX_FAILED_NIGHTS} nights"
            )
            return [{"code": UNANSWERED, "message": message}]
        return []


def extend_extractions(
    night: Night, records: Sequence[MemoryRecord], extractions: Sequence[Extraction]
) -> Extended:
    """Add what the model finds to what the rules found; for nights with `llm_inputs`.

    An endpoint that is down leaves the extractions as they are, and a warning in the facts.

    Args:
        night: Settings and memo.
        records: Tonight's memories.
        extractions: What the rules found in them, one each.

    Raises:
        ConfigError: If the endpoint is set up wrongly: an address that is none, no API key.
    """
    endpoint = _endpoint(night)
    visible = {record.position for record in _shown(night, records)}
    contents = {r.content for r in records if r.position in visible}
    sent = {content for content in contents if find_text_sensitivity(content) is None}
    with Memo.open(night.paths.memo) as memo:
        batch = night.settings.graph.llm_batch_memories
        reader = TripleReader(endpoint, batch, memo, night.progress)
        answers = reader.read(sent)
    grounded = {content: ground(content, answer) for content, answer in answers.items()}
    merged: list[Extraction] = []
    added, dropped = Counter[str](found=0, stated=0), Counter[str]()
    for record, base in zip(records, extractions, strict=True):
        # A memory that was not shown stays as it is, even where another one has the same text.
        extra = grounded.get(record.content) if record.position in visible else None
        both = base if extra is None else merge_extractions(base, extra.extraction)
        dropped.update({} if extra is None else extra.dropped)
        added["found"] += len(both.found) - len(base.found)
        added["stated"] += len(both.stated) - len(base.stated)
        merged.append(both)
    warnings = reader.warnings()
    facts = {
        "extractor": "llm",
        "fingerprint": _fingerprint(endpoint.model),
        "added": dict(added),
        "dropped": dict(sorted(dropped.items())),
        "left_out_named_users": len(records) - len(visible),
        "answered": len(answers),
        "clipped": sum(len(content) > MAX_MEMORY_CHARS for content in sent),
        "left_out_secret": len(contents) - len(sent),
        "malformed": sum(answer.malformed for answer in answers.values()),
        "unanswered": len(sent) - len(answers),
        "unmapped_relations": sum(found.unmapped for found in grounded.values()),
        **({"warnings": warnings} if warnings else {}),
    }
    return Extended(merged, facts, dict(sorted(reader.tonight.items())))


def llm_inputs(night: Night) -> dict[str, str]:
    """Return what the graph's stage depends on besides the rules; empty where no model is asked."""
    graph = night.settings.graph
    if graph.extractor != "llm":
        return {}
    return {
        "llm": _fingerprint(_endpoint(night).model),
        "named_users": str(graph.include_named_users),
    }


def live_triples(night: Night, records: Sequence[MemoryRecord]) -> list[str]:
    """Return the keys of TRIPLES_KIND that are still in use; all others are to be deleted."""
    if night.settings.graph.extractor != "llm":
        return []
    model = _endpoint(night).model
    return [answer_key(record.content, model) for record in _shown(night, records)]


def _fingerprint(model: str) -> str:
    """Return model, prompt and reading; not the address, which may move with its model."""
    return f"llm:{READING_VERSION}:{PROMPT_VERSION}:{MAX_MEMORY_CHARS}:{model}"


def _endpoint(night: Night) -> Endpoint:
    graph = night.settings.graph
    key = read_api_key(graph.api_key_variable, "graph.api_key_variable")
    try:
        return Endpoint(graph.llm_url, graph.llm_model, key)
    except ValueError as error:
        raise ConfigError(f"graph.llm_*: {error}") from error


def _shown(night: Night, records: Sequence[MemoryRecord]) -> list[MemoryRecord]:
    """Return the memories that may be sent: nobody's own, unless these are switched on."""
    include = night.settings.graph.include_named_users
    return [record for record in records if record.user is None or include]
