"""How many tokens a piece of a prompt costs: by the encoder's vocabulary or by the estimate.

What belongs here: the two counters, each with its label. What does not: the estimate's formula
(`noctuary.text.token_estimate`), what is done with a budget. One context uses one counter.
"""

from __future__ import annotations

from typing import Protocol

from noctuary.encode.wordpiece import WordPiece, split_words
from noctuary.text.token_estimate import estimate_tokens

_ENOUGH_IDS = 1 << 20
"""More ids than any single word has: the count is never cut off."""


class TokenCounter(Protocol):
    """Counts the tokens of pieces of text."""

    @property
    def label(self) -> str:
        """What counts: "tokenizer:<name>" or "estimate"."""
        ...

    def count(self, text: str) -> int:
        """Return the tokens of a text, >= 0; equal texts cost the same."""
        ...


class EstimateCounter:
    """The script-aware estimate of libravdb section 3, where there is no tokenizer."""

    label = "estimate"

    def count(self, text: str) -> int:
        """Return ceil(UTF-16 units / characters per token); 0 for an empty text."""
        return estimate_tokens(text)


class VocabularyCounter:
    """Pieces of the encoder's own WordPiece vocabulary, without the two control tokens.

    A word that the vocabulary cannot spell costs one token per character: as the single unknown
    token that it is to the encoder, a pasted key of thousands of characters would cost nothing.
    White space costs nothing, so the tokens of a text are the sum of those of its lines.
    """

    def __init__(self, name: str, tokenizer: WordPiece) -> None:
        """Take the model's name and its vocabulary."""
        self.label = f"tokenizer:{name}"
        self._tokenizer = tokenizer
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Return the pieces of a text, >= 0."""
        return sum(self._count_word(word) for word in split_words(text))

    def _count_word(self, word: str) -> int:
        found = self._known.get(word)
        if found is None:
            ids = self._tokenizer.encode(word, _ENOUGH_IDS)[1:-1]
            found = len(word) if self._tokenizer.unknown_id in ids else len(ids)
            self._known[word] = found
        return found
