"""Texts in, answers out: batches, a few at a time, every one kept as soon as it is there.

What belongs here: batching, concurrency, asking alone what a batch left out, giving up. What does
not: what is in an answer (answer.py), HTTP and its retries (noctuary.hosted.chat).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import NamedTuple

from noctuary.graph.plugins.llm.answer import RawAnswer, read_answer
from noctuary.graph.plugins.llm.prompt import SYSTEM, item_ids
from noctuary.hosted.answers import Answers, parse_batch
from noctuary.hosted.batches import batch_message, clip_text
from noctuary.hosted.chat import Sleep, complete
from noctuary.hosted.endpoint import AnswerFault, BadAnswerError, Endpoint, EndpointDownError
from noctuary.progress import Progress

PARALLEL_REQUESTS = 2
"""Requests under way at once. More are faster where an endpoint serves them side by side; one that
does not lets the later ones wait into their time limit, and more are lost with a kill."""

MAX_USELESS_ALONE = 8
"""Answers in a row about single memories without any use after which the endpoint is left alone: a
model that never writes JSON would otherwise cost a request per memory."""

TASK = "graph: llm"


class Question(NamedTuple):
    """One memory to ask about.

    Attributes:
        key: What its answer is kept under; distinct.
        text: Its content.
    """

    key: str
    text: str


Keep = Callable[[Mapping[str, RawAnswer], Sequence[str]], None]
"""Told after every batch, in the caller's thread: answers by key, and the keys of memories that
were asked about alone and got nothing of use."""


@dataclass(slots=True)
class Outcome:
    """What a conversation came to.

    Attributes:
        requests: Batches sent, retries apart.
        faults: Faults of answers, by text.
        given_up: Why the endpoint was left alone, or None.
    """

    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter[str])
    given_up: str | None = None


@dataclass(slots=True)
class Conversation:
    """One endpoint and what is still to be asked.

    Attributes:
        endpoint: The model.
        keep: Makes answers durable.
        batch_size: Memories per request, at least 1.
        sleep: Waits between tries.
        progress: Told after every batch.
    """

    endpoint: Endpoint
    keep: Keep
    batch_size: int
    sleep: Sleep
    progress: Progress
    outcome: Outcome = field(default_factory=Outcome)
    _queue: deque[list[Question]] = field(default_factory=deque[list[Question]])
    _useless: int = 0

    def ask(self, questions: Sequence[Question]) -> Outcome:
        """Ask about every memory, in batches, then alone where a batch gave nothing for it.

        Nothing that an endpoint does raises. A kill loses what is under way, at most
        PARALLEL_REQUESTS batches.
        """
        for start in range(0, len(questions), self.batch_size):
            self._queue.append(list(questions[start : start + self.batch_size]))
        left, running = len(questions), dict[Future[Answers[RawAnswer]], list[Question]]()
        with ThreadPoolExecutor(PARALLEL_REQUESTS, "graph-llm") as pool:
            while self._queue or running:
                while self._queue and len(running) < PARALLEL_REQUESTS:
                    batch = self._queue.popleft()
                    running[pool.submit(self._request, batch)] = batch
                    self.outcome.requests += 1
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    left -= self._take(running.pop(future), future)
                self.progress.update(TASK, len(questions) - left, len(questions))
        return self.outcome

    def _request(self, batch: Sequence[Question]) -> Answers[RawAnswer]:
        """Run in a thread of the pool: one conversation, nothing shared."""
        ids = item_ids([question.key for question in batch])
        message = batch_message([{"memory": clip_text(q.text)} for q in batch], ids)
        try:
            content = complete(self.endpoint, SYSTEM, message, self.sleep)
        except BadAnswerError as error:
            return Answers({}, Counter({error.fault: 1}))
        return parse_batch(content, ids, read_answer)

    def _take(self, batch: list[Question], future: Future[Answers[RawAnswer]]) -> int:
        """Keep what came, ask again for what did not, and return how many are done with."""
        try:
            answers = future.result()
        except EndpointDownError as error:
            self._give_up(str(error))
            return 0
        for fault, count in answers.faults.items():
            self._count(fault, count)
        found = {batch[place].key: value for place, value in answers.values.items()}
        missing = [question for question in batch if question.key not in found]
        alone = len(batch) == 1
        self.keep(found, [question.key for question in missing] if alone else [])
        if found:
            self._useless = 0
        elif alone:
            self._useless += 1
            if self._useless == MAX_USELESS_ALONE:
                self._give_up(f"{MAX_USELESS_ALONE} answers in a row were of no use")
        if not alone and self.outcome.given_up is None:
            self._queue.extendleft([question] for question in reversed(missing))
            return len(found)
        return len(batch)

    def _count(self, fault: AnswerFault, count: int) -> None:
        if count:
            self.outcome.faults[fault.value] += count

    def _give_up(self, reason: str) -> None:
        self.outcome.given_up = reason
        self._queue.clear()
