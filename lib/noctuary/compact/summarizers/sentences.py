"""The sentence summarizer: the sentences that say most that no other has said, verbatim, in order.

What belongs here: cutting turns into sentences, weighing their words and choosing under a budget.
What does not: encoding, the gate, which cut is tried first (escalation).

Whole turns near the centroid (the extractive summarizer) repeat what the cluster is about and lose
what it says: names, numbers, the one sentence that answers. Choosing sentences by the words that
they add is maximum coverage, a submodular function, so that the greedy choice is near the best one
(Lin and Bilmes 2011, section 4: gain divided by a power of the cost). It depends on the cluster
alone, never on the rest of the store: a summary stays what it is while the store grows.
docs/decisions/0045 has the comparison.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from noctuary.compact.attempts import Outcome
from noctuary.compact.summarizers.base import AGGRESSIVE_SUFFIX, Draft, Refusal, Request
from noctuary.hashing import JsonValue
from noctuary.text.sentences import SENTENCE_END
from noctuary.text.speaker import split_speaker
from noctuary.text.stopwords import is_stop_word
from noctuary.text.token_estimate import estimate_tokens
from noctuary.text.tokens import tokenize

METHOD = "sentences"

PRIMARY_DENSITY = 0.28
AGGRESSIVE_DENSITY = 0.2
"""Share of a cluster's tokens that a summary may have. With four protected turns per session the
first saves three fifths of the searched tokens of conversations like locomo's."""

REPEATED_SHARE = 0.3
"""What a word is worth each further time it is said, as a share of the time before. 0 keeps one
mention only, which loses who else did it; 1 keeps whatever is said most often."""

MARKED_WORTH = 2.0
"""Worth of a word that is written like a name or holds a digit; other words have 1. More favours
facts over gist."""

COST_EXPONENT = 0.5
"""Power of a sentence's tokens that its gain is divided by: 0 favours long sentences, 1 short ones,
which are small talk more often."""

SPARE_TOKENS = 3
"""Added to every cost, so that a one-word sentence is not free."""

_WORD = re.compile(r"[\w'’-]+")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a turn.

    Attributes:
        turn: Index of the turn inside its cluster.
        speaker: Who says it, or None.
        text: The sentence, stripped.
        worth: What each of its content words is worth when said first.
        tokens: Estimated tokens, the speaker's label included.
    """

    turn: int
    speaker: str | None
    text: str
    worth: Mapping[str, float]
    tokens: int


@dataclass(frozen=True, slots=True)
class SentenceSummarizer:
    """Keeps the sentences that cover most; needs neither a model nor vectors."""

    @property
    def name(self) -> str:
        """Return "sentences"."""
        return METHOD

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        """Return the version of the cut and its constants."""
        return {METHOD: 1, "constants": [REPEATED_SHARE, MARKED_WORTH, COST_EXPONENT, SPARE_TOKENS]}

    @property
    def uses_context(self) -> bool:
        """Return False: a cut depends on its cluster alone."""
        return False

    @property
    def densities(self) -> tuple[float, float]:
        """Return the shares of the sources' tokens that the cuts keep."""
        return PRIMARY_DENSITY, AGGRESSIVE_DENSITY

    def drafts(
        self, requests: Sequence[Request], *, density: float, aggressive: bool = False
    ) -> list[Draft | Refusal]:
        """Return the chosen sentences of each request, joined by a space.

        Args:
            requests: Clusters, independent of each other.
            density: Share of the sources' tokens that a draft may have, in (0, 1].
            aggressive: Whether this is the second, denser try; only changes the draft's `method`.
        """
        method = METHOD + (AGGRESSIVE_SUFFIX if aggressive else "")
        return [_draft(request.texts, density, method) for request in requests]


def cut_sentences(texts: Sequence[str]) -> list[Sentence]:
    """Return every sentence of the turns that holds a word, in order."""
    found: list[Sentence] = []
    for turn, content in enumerate(texts):
        speaker, body = split_speaker(content)
        label = estimate_tokens(f"{speaker}: ") if speaker else 0
        for piece in SENTENCE_END.split(body):
            text = piece.strip()
            if text:
                tokens = estimate_tokens(text) + label
                found.append(Sentence(turn, speaker, text, _worth(text), tokens))
    return found


def choose_sentences(sentences: Sequence[Sentence], budget_tokens: float) -> list[int]:
    """Return the indices of the sentences that the greedy choice takes, ascending.

    The best sentence is taken whatever it costs, the others while they fit. Ties go to the earlier
    one.

    Args:
        sentences: Of one cluster, in order.
        budget_tokens: Most tokens of all together, the first apart.
    """
    said: Counter[str] = Counter()
    chosen: list[int] = []
    left_tokens = budget_tokens
    # Lazy greedy (Minoux 1978): what a sentence adds only shrinks, so that the best of the outdated
    # numbers is the best of all if it still is after being counted anew.
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
    return " ".join(_labelled(sentences))


def _draft(texts: Sequence[str], density: float, method: str) -> Draft | Refusal:
    sentences = cut_sentences(texts)
    budget = density * sum(estimate_tokens(text) for text in texts)
    chosen = choose_sentences(sentences, budget)
    if not chosen:
        return Refusal(Outcome.UNUSABLE, "no sentence of the turns says anything")
    return Draft(text=join_sentences([sentences[i] for i in chosen]), method=method)


def _gain(sentence: Sentence, said: Counter[str]) -> float:
    worth = sum(w * REPEATED_SHARE ** said[word] for word, w in sentence.worth.items())
    return worth / (sentence.tokens + SPARE_TOKENS) ** COST_EXPONENT


def _worth(text: str) -> dict[str, float]:
    """Return the worth of a sentence's content words; its first word is no name by its capital."""
    words = _WORD.findall(text)
    marked = {
        term
        for i, word in enumerate(words)
        if (i > 0 and word[0].isupper()) or any(c.isdigit() for c in word)
        for term in tokenize(word)
    }
    return {
        term: MARKED_WORTH if term in marked else 1.0
        for term in tokenize(text)
        if not is_stop_word(term)
    }


def _labelled(sentences: Sequence[Sentence]) -> Iterator[str]:
    turn = -1
    for sentence in sentences:
        opens = sentence.turn != turn and sentence.speaker
        yield f"{sentence.speaker}: {sentence.text}" if opens else sentence.text
        turn = sentence.turn
