"""BERT's uncased WordPiece tokenizer in plain Python, for a process that lives for one query.

What belongs here: text to token ids, the same ids that the `tokenizers` library gives. Standard
library only: importing `tokenizers` takes longer than encoding the query. The steps are those of
Devlin et al., "BERT" (2019), section 3, and Wu et al., "Google's Neural Machine Translation
System" (2016), section 4.1.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from noctuary.encode.bert_ranges import DROPPED, IDEOGRAPH, MARK, PUNCTUATION, SPACE, in_class
from noctuary.errors import EncoderError
from noctuary.values import dataclass

UNKNOWN, CLASSIFY, SEPARATE = "[UNK]", "[CLS]", "[SEP]"
CONTROL_TOKENS = ("[PAD]", UNKNOWN, CLASSIFY, SEPARATE, "[MASK]")
"""Tokens that a text may spell out literally, as the reference tokenizer allows."""

MAX_WORD_CHARS = 100
"""A longer word is one unknown token, as in the reference."""

_CONTINUATION = "##"
_CONTROL = re.compile("(" + "|".join(re.escape(token) for token in CONTROL_TOKENS) + ")")
_SPACES = "".join(
    chr(code_point)
    for start, stop in zip(SPACE[::2], SPACE[1::2], strict=True)
    for code_point in range(start, stop)
)
_RAW_WORD = re.compile(f"[^{_SPACES}]+")


class _CleanTable(dict[int, "int | str | None"]):
    """Translation of raw characters, filled as characters are met."""

    def __missing__(self, code_point: int) -> int | str | None:
        result: int | str | None = code_point
        if in_class(code_point, DROPPED):
            result = None
        elif in_class(code_point, IDEOGRAPH):
            result = f" {chr(code_point)} "
        self[code_point] = result
        return result


class _SplitTable(dict[int, "int | str | None"]):
    """Translation of decomposed lower-case characters, filled as characters are met."""

    def __missing__(self, code_point: int) -> int | str | None:
        result: int | str | None = code_point
        if in_class(code_point, MARK):
            result = None
        elif in_class(code_point, PUNCTUATION):
            result = f" {chr(code_point)} "
        self[code_point] = result
        return result


_CLEAN = _CleanTable()
_SPLIT = _SplitTable()


@dataclass(frozen=True, slots=True)
class WordPiece:
    """A loaded vocabulary.

    Attributes:
        vocab: Token to id.
        unknown_id: Id of [UNK].
        first_id: Id of [CLS], which starts every text.
        last_id: Id of [SEP], which ends every text.
    """

    vocab: dict[str, int]
    unknown_id: int
    first_id: int
    last_id: int

    @classmethod
    def from_text(cls, text: str) -> WordPiece:
        """Read a vocabulary of one token per line; a token's id is its line number from 0.

        Raises:
            EncoderError: A control token is missing.
        """
        # Not splitlines: a vocabulary may hold line separators other than the newline as tokens.
        lines = text.removesuffix("\n").split("\n")
        vocab = dict(zip(lines, range(len(lines)), strict=True))
        missing = [token for token in (UNKNOWN, CLASSIFY, SEPARATE) if token not in vocab]
        if missing:
            raise EncoderError(
                f"the vocabulary of {len(lines)} lines lacks {', '.join(missing)}; expected a BERT "
                "WordPiece vocab.txt. Export the encoder again."
            )
        return cls(vocab, vocab[UNKNOWN], vocab[CLASSIFY], vocab[SEPARATE])

    @classmethod
    def open(cls, path: Path) -> WordPiece:
        """Read a vocab.txt.

        Raises:
            EncoderError: The file is missing, not UTF-8 or not a BERT vocabulary.
        """
        try:
            return cls.from_text(path.read_bytes().decode("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise EncoderError(
                f"cannot read the vocabulary {path} ({error}). Export the encoder again."
            ) from error

    def encode(self, text: str, max_tokens: int) -> list[int]:
        """Return the token ids of a text between [CLS] and [SEP].

        Args:
            text: Any string; lone surrogates and control characters are ignored.
            max_tokens: Most ids to return, at least 2. The text is read only as far as needed.

        Returns:
            2 to max_tokens ids.
        """
        ids = [self.first_id]
        for found in self._ids(text):
            if len(ids) + len(found) >= max_tokens:
                ids += found[: max_tokens - 1 - len(ids)]
                break
            ids += found
        ids.append(self.last_id)
        return ids

    def _ids(self, text: str) -> Iterator[list[int]]:
        for part in _CONTROL.split(text):
            if part in CONTROL_TOKENS:
                yield [self.vocab.get(part, self.unknown_id)]
                continue
            for raw in _RAW_WORD.finditer(part):
                for word in split_words(raw.group()):
                    yield self._pieces(word)

    def _pieces(self, word: str) -> list[int]:
        """Cover a word with vocabulary entries, the longest possible first; [UNK] if that fails."""
        if len(word) > MAX_WORD_CHARS:
            return [self.unknown_id]
        vocab = self.vocab
        whole = vocab.get(word)
        if whole is not None:
            return [whole]
        pieces: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(len(word), start, -1):
                found = vocab.get(prefix + word[start:end])
                if found is not None:
                    pieces.append(found)
                    start, prefix = end, _CONTINUATION
                    break
            else:
                return [self.unknown_id]
        return pieces


def split_words(text: str) -> list[str]:
    """Return lower-case, accent-free words; punctuation and ideographs stand alone."""
    cleaned = text.translate(_CLEAN)
    if not cleaned.isascii():
        # `str.lower` alone would write a sigma at a word's end differently; the reference does not.
        cleaned = unicodedata.normalize("NFD", cleaned).replace("Σ", "σ")
    return cleaned.lower().translate(_SPLIT).split()
