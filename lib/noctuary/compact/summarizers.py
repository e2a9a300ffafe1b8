"""Summarizers behind one interface: sentences, central turns, an endpoint."""

from __future__ import annotations

import heapq
import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import ConfigError
from noctuary.core.files import JsonValue
from noctuary.core.settings import CompactionSettings
from noctuary.text.marks import SENTENCE_END, estimate_tokens, split_speaker
from noctuary.text.secrets import find_text_sensitivity
from noctuary.text.tokens import is_stop_word, tokenize
from noctuary.work.http import (
    DATA_RULE,
    REFUSED,
    BadAnswerError,
    Endpoint,
    RequestError,
    Sleep,
    ask,
    batch_message,
    clip_text,
    open_endpoint,
    parse_batch,
)


class Outcome(StrEnum):
    """Why a candidate was not taken; also `Summary.fallback`."""

    NOT_SMALLER = "not_smaller"  # it has as many tokens as its sources, or more
    GATE = "gate"  # it does not point where its sources point
    FACTS = "facts"  # it introduces or contradicts something
    SECRET = "secret"  # it, or its prompt, reads like a secret; the text is not kept
    UNUSABLE = "unusable"  # the model answered with garbage, half an answer or nothing
    TOO_LONG = "too_long"  # the sources do not fit into one request
    NAMED_USER = "named_user"  # the endpoint may not see turns of named users
    UNAVAILABLE = "unavailable"  # unreachable, timed out, HTTP 500, no such key


TRIED_AGAIN = frozenset({Outcome.UNAVAILABLE})  # may succeed on another night


class Request(NamedTuple):
    """One cluster of at least two turns that wants a summary."""

    cluster_id: str
    texts: Sequence[str]  # as stored, chronological
    vectors: NDArray[np.floating[Any]]  # shape (n, d)
    user: str | None = None


class Draft(NamedTuple):
    """A text that may become a summary; never empty."""

    text: str
    raw_confidence: float | None = None  # the decoder's own, exp(mean log p) in [0, 1], if known


class Refusal(NamedTuple):
    """Why there is no draft: the reason for machines, and in words that quote no turn."""

    outcome: Outcome
    detail: str


class Summarizer:
    """Writes drafts; never raises for errors of a model or an endpoint."""

    name: str = ""
    is_local: bool = True  # needs nothing but the cluster, so that workers may run it
    density: float = 0.4  # share of the turns that it keeps; the reference's default

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Everything besides turns and density that its text depends on."""
        raise NotImplementedError

    def write(self, request: Request, density: float) -> Draft | Refusal:
        """Return a draft that keeps a share in (0, 1] of the request's sources, or why not."""
        raise NotImplementedError


# The extractive summarizer: a cluster's most central turns, verbatim and in order. The unit is the
# whole turn, so a speaker's name stays with the words.

# Cosines and products are rounded so that equal turns tie exactly whatever the BLAS kernel did.
_DECIMALS = 9


@dataclass(frozen=True)
class ExtractiveSummarizer(Summarizer):
    """Keeps the turns closest to the centroid; needs no model besides the given vectors."""

    name = "extractive"

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Return the version of the cut."""
        return {"extractive": 1}

    def write(self, request: Request, density: float) -> Draft | Refusal:
        """Return the central turns, joined; ValueError if texts and vectors differ in number."""
        texts, vectors = request.texts, request.vectors
        if len(texts) != len(vectors):
            found = f"{len(texts)} turns came with {len(vectors)} vectors"
            raise ValueError(f"{found}; pass one per turn")
        text = " ".join(texts[i] for i in central_turns(vectors, density))
        if not text.strip():
            return Refusal(Outcome.UNUSABLE, "the central turns hold no text")
        return Draft(text)


EXTRACTIVE = ExtractiveSummarizer()


def central_turns(vectors: NDArray[np.floating[Any]], density: float) -> list[int]:
    """Return the ceil(n * density) turns of (n, d) nearest the centroid; ties to earlier ones."""
    rows = np.asarray(vectors, dtype=np.float64)
    if not len(rows):
        return []
    keep = min(len(rows), max(1, math.ceil(round(len(rows) * density, _DECIMALS))))
    centroid = rows.mean(axis=0)
    norms = np.sqrt((rows * rows).sum(axis=1))
    # The centroid's own norm scales every cosine alike, so it cannot change the order.
    length = float(np.sqrt((centroid * centroid).sum())) or 1.0
    closeness = np.divide(
        rows @ (centroid / length), norms, out=np.zeros_like(norms), where=norms > 0
    )
    order = np.argsort(-np.round(closeness, _DECIMALS), kind="stable")
    return sorted(order[:keep].tolist())


# The sentence summarizer: sentences that add the most new content, verbatim, in order.
#
# Choosing sentences by the words that they add is maximum coverage, a submodular function, so that
# the greedy choice is near the best one (Lin and Bilmes 2011, section 4: gain divided by a power of
# the cost). It depends on the cluster alone: a summary stays what it is while the store grows.
# docs/decisions/0017 has the comparison.

# Worth of a word's further occurrences, as a share of the one before: 0 loses who else did
# something, 1 keeps the most frequent words.
REPEATED_SHARE = 0.3
MARKED_WORTH = 2.0  # of a word that is written like a name or holds a digit; other words have 1
# Power of a sentence's tokens that its gain is divided by: 0 favours long sentences, 1 small talk.
COST_EXPONENT = 0.5
SPARE_TOKENS = 3  # added to every cost, so that a one-word sentence is not free

_WORD = re.compile(r"[\w'’-]+")


@dataclass(frozen=True)
class SentenceSummarizer(Summarizer):
    """Keeps the sentences that cover most; needs neither a model nor vectors."""

    name = "sentences"
    density = 0.28  # of the sources' tokens: saves three fifths of locomo's

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Return the version of the cut and its constants."""
        constants: JsonValue = [REPEATED_SHARE, MARKED_WORTH, COST_EXPONENT, SPARE_TOKENS]
        return {"sentences": 1, "constants": constants}

    def write(self, request: Request, density: float) -> Draft | Refusal:
        """Return the chosen sentences of a request, joined by a space."""
        sentences = cut_sentences(request.texts)
        budget = density * sum(estimate_tokens(text) for text in request.texts)
        chosen = choose_sentences(sentences, budget)
        if not chosen:
            return Refusal(Outcome.UNUSABLE, "no sentence of the turns says anything")
        return Draft(join_sentences([sentences[i] for i in chosen]))


class Sentence(NamedTuple):
    """One sentence of a turn."""

    turn: int  # inside its cluster
    speaker: str | None
    text: str  # stripped
    worth: Mapping[str, float]  # of each of its content words at first use
    tokens: int  # estimated, the speaker's label included


def cut_sentences(texts: Sequence[str]) -> list[Sentence]:
    """Return every sentence of the turns that holds a word, in order."""
    found: list[Sentence] = []
    for turn, content in enumerate(texts):
        speaker, body = split_speaker(content)
        label = estimate_tokens(f"{speaker}: ") if speaker else 0
        for piece in re.split(SENTENCE_END, body):
            if text := piece.strip():
                tokens = estimate_tokens(text) + label
                found.append(Sentence(turn, speaker, text, _worth(text), tokens))
    return found


def choose_sentences(sentences: Sequence[Sentence], budget_tokens: float) -> list[int]:
    """Return the greedy choice, ascending: the best one at any cost, others if they fit."""
    said: Counter[str] = Counter()
    chosen: list[int] = []
    left_tokens = budget_tokens
    # Lazy greedy (Minoux 1978): the gain of a sentence only shrinks, so the best of the outdated
    # numbers is the best of all if it still is after an update.
    queue = [(-_gain(s, said), i) for i, s in enumerate(sentences)]
    heapq.heapify(queue)
    while queue:
        _, i = heapq.heappop(queue)
        gain = _gain(sentences[i], said)
        if gain <= 0.0:
            break
        if queue and (-gain, i) > queue[0]:
            heapq.heappush(queue, (-gain, i))
        elif not chosen or sentences[i].tokens <= left_tokens:
            chosen.append(i)
            left_tokens -= sentences[i].tokens
            said.update(sentences[i].worth.keys())
    return sorted(chosen)


def join_sentences(sentences: Sequence[Sentence]) -> str:
    """Return the text of some sentences: each turn's with its speaker's label once."""
    parts: list[str] = []
    for (_, speaker), said in groupby(sentences, key=lambda s: (s.turn, s.speaker)):
        label = f"{speaker}: " if speaker else ""
        parts.append(label + " ".join(sentence.text for sentence in said))
    return " ".join(parts)


def _gain(sentence: Sentence, said: Counter[str]) -> float:
    worth = sum(w * REPEATED_SHARE ** said[word] for word, w in sentence.worth.items())
    return worth / (sentence.tokens + SPARE_TOKENS) ** COST_EXPONENT


def _worth(text: str) -> dict[str, float]:
    """Return the worth of a sentence's content words; its first word is no name by its capital."""
    marked = {
        term
        for i, word in enumerate(_WORD.findall(text))
        if (i > 0 and word[0].isupper()) or any(c.isdigit() for c in word)
        for term in tokenize(word)
    }
    return {
        term: MARKED_WORTH if term in marked else 1.0
        for term in tokenize(text)
        if not is_stop_word(term)
    }


# Turns in prompts: long code, data URIs and encoded data, which would fill a small
# model's context, are replaced by placeholders (research/peers.md 1.7).

FENCE_MIN_CHARS, FENCE_MIN_LINES = 240, 8  # of a fenced block that is left out
DATA_URI_MIN_CHARS = 64  # of a line with a data URI that is left out
BLOB_LINE_MIN_CHARS = 96  # of a line with 80 base64-like or 64 hexadecimal characters in a row

CODE_PLACEHOLDER = "[code left out]"
DATA_URI_PLACEHOLDER = "[data left out]"
BLOB_PLACEHOLDER = "[encoded data left out]"

# A fence that is never closed reaches to the end.
_FENCED = re.compile(
    r"^[ \t]*(?P<fence>(?P<mark>[`~])(?P=mark){2,}+)[^\n]*"
    r"(?:\n(?P<inner>.*?))??(?:\n[ \t]*(?P=fence)(?P=mark)*[^\S\n]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_BLOB = re.compile(r"[A-Za-z0-9+/_=-]{80,}|[0-9A-Fa-f]{64,}")
_BLANK_RUN = re.compile(r"\n[ \t]*(?:\n[ \t]*){2,}")


def sanitize(text: str) -> str:
    """Return a turn as a model is shown it; idempotent, runs of blank lines become one."""
    lines = map(_line, _FENCED.sub(_block, text).split("\n"))
    return _BLANK_RUN.sub("\n\n", "\n".join(lines))


def _block(found: re.Match[str]) -> str:
    lines = (found["inner"] or "").count("\n") + 1
    is_long = len(found[0]) >= FENCE_MIN_CHARS or lines >= FENCE_MIN_LINES
    return CODE_PLACEHOLDER if is_long else found[0]


def _line(line: str) -> str:
    if len(line) >= DATA_URI_MIN_CHARS and "data:" in line:
        return DATA_URI_PLACEHOLDER
    return BLOB_PLACEHOLDER if len(line) >= BLOB_LINE_MIN_CHARS and _BLOB.search(line) else line


# Summaries of a model behind an OpenAI-compatible endpoint.
#
# **Texts leave the machine**: one cluster per request, so that no two users, wings or sessions
# ever share a prompt. Turns of named users are sent only if the settings allow it; a
# cluster that reads like a secret, alone or joined, is never sent.

PROMPT_VERSION = "2"  # raised with every change of the prompt or of its inputs
MAX_REQUEST_CHARS = 48_000  # of all turns of one request: more overflows models of 16k tokens
MAX_BAD_IN_A_ROW = 8  # answers without use after which an endpoint is given up for the night

_SYSTEM = (
    "You condense a part of a conversation. Keep every decision, fact, name, number, date and "
    "identifier that matters, written as it is there; say who said or did what; keep what was "
    "denied denied. Add nothing that does not stand in the turns, work out no sums and no dates, "
    "and use the language of the turns. Write plain sentences, at most {tokens} tokens. "
) + DATA_RULE + '{{"items": [{{"id": "...", "summary": "..."}}]}}'  # fmt: skip


@dataclass
class EndpointSummarizer(Summarizer):
    """Summaries written by a model behind an endpoint, one request after the other."""

    name = "llm"
    is_local = False

    model: str
    endpoint: Endpoint | None  # None where it is set up wrongly
    include_named_users: bool = False  # whether it may see turns of named users
    sleep: Sleep = time.sleep
    given_up: str = ""  # why it is no longer used; its summaries of earlier nights still are
    _bad_in_a_row: int = field(default=0, init=False)
    _wants_logprobs: bool = field(default=True, init=False)

    @staticmethod
    def open(settings: CompactionSettings) -> EndpointSummarizer:
        """Return the configured one; a wrong address or a missing key gives it up."""
        endpoint, fault = None, ""
        try:
            endpoint = open_endpoint("compaction", settings)
        except ConfigError as error:
            fault = str(error)
        shown = settings.include_named_users
        return EndpointSummarizer(settings.llm_model, endpoint, shown, given_up=fault)

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Return the inputs of the text: not the address, which may move with its model."""
        shown = self.include_named_users
        return {"prompt": PROMPT_VERSION, "model": self.model, "include_named_users": shown}

    def write(self, request: Request, density: float) -> Draft | Refusal:
        """Ask about a request; once the endpoint is given up, refuse."""
        if request.user is not None and not self.include_named_users:
            return Refusal(Outcome.NAMED_USER, "turns of named users are not shown to endpoints")
        if self.given_up or self.endpoint is None:
            return Refusal(Outcome.UNAVAILABLE, self.given_up)
        shown = [clip_text(sanitize(text)) for text in request.texts]
        if sum(map(len, shown)) > MAX_REQUEST_CHARS:
            return Refusal(Outcome.TOO_LONG, f"its turns exceed {MAX_REQUEST_CHARS} characters")
        if any(find_text_sensitivity(t) for t in (*shown, " ".join(shown))):
            return Refusal(Outcome.SECRET, "its turns, joined, read like a secret")
        tokens = max(1, math.floor(density * estimate_tokens(" ".join(shown))))
        item = {"turns": "\n".join(shown)}
        try:
            return self._ask(self.endpoint, _SYSTEM.format(tokens=tokens), {"1": item})
        except BadAnswerError as error:
            return self._unusable(str(error))
        except RequestError as error:
            self.given_up = f"the endpoint was given up for tonight: {error}"
            return Refusal(Outcome.UNAVAILABLE, self.given_up)

    def _ask(
        self, endpoint: Endpoint, system: str, item: dict[str, dict[str, str]]
    ) -> Draft | Refusal:
        user = batch_message(item)
        try:
            answer = ask(endpoint, system, user, self.sleep, with_logprobs=self._wants_logprobs)
        except BadAnswerError as error:
            if error.status not in REFUSED or not self._wants_logprobs:
                raise
            # Some endpoints refuse requests for log probabilities.
            self._wants_logprobs = False
            answer = ask(endpoint, system, user, self.sleep)
        if answer.is_cut_off:
            return self._unusable("the answer was cut off")
        found, faults = parse_batch(answer.content, list(item), _read_summary)
        if not found:
            return self._unusable(", ".join(sorted(faults)))
        self._bad_in_a_row = 0
        return Draft(found["1"], answer.confidence)

    def _unusable(self, why: str) -> Refusal:
        self._bad_in_a_row += 1
        if self._bad_in_a_row >= MAX_BAD_IN_A_ROW:
            self.given_up = (
                f"the endpoint was given up for tonight: {self._bad_in_a_row} answers of no use "
                f"in a row, the last one: {why}"
            )
        return Refusal(Outcome.UNUSABLE, why)


def _read_summary(row: Mapping[str, Any]) -> str | None:
    """Return the summary of an item; None where there is none."""
    value = row.get("summary")
    if not isinstance(value, str):
        return None
    return value.encode("utf-8", "replace").decode("utf-8").replace("\0", "").strip() or None


def open_summarizer(settings: CompactionSettings) -> Summarizer:
    """Return the configured summarizer; one that is set up wrongly refuses every request."""
    if settings.summarizer == "llm":
        return EndpointSummarizer.open(settings)
    return EXTRACTIVE if settings.summarizer == EXTRACTIVE.name else SentenceSummarizer()
