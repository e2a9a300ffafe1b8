"""Items in, values out: from the cache where known, else from an endpoint, batch by batch.

What belongs here: batches, memoising, counting faults, giving up. What does not: what items are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from noctuary.evaluate.generated.answers import ReadValue, Value, parse_answers
from noctuary.evaluate.generated.cache import Cache
from noctuary.evaluate.generated.prompts import Prompt
from noctuary.foreign_json import parse_json
from noctuary.hosted.answers import Answers
from noctuary.hosted.batches import batch_message
from noctuary.hosted.chat import Sleep, complete
from noctuary.hosted.endpoint import BadAnswerError, Endpoint, EndpointDownError
from noctuary.progress import Progress

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
        for item in distinct:
            self.tally.keys.add(item.key)
            value = _decode(self.cache.get(item.key), read)
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
        for key, value in values.items():
            self.cache.put(key, json.dumps(value).encode("ascii"))
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
