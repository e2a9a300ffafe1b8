"""BERT's uncased WordPiece tokenizer in plain Python.

Sources: Devlin et al. 2019, section 3; Wu et al. 2016, section 4.1. Importing `tokenizers` takes
longer than encoding a query.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import numpy as np

from noctuary.core.errors import EncoderError

# Code point classes of the uncased BERT tokenizer: [b0, b1), [b2, b3), ... In a file because a
# vector must not depend on the Unicode version of the Python that runs; a test compares every code
# point.

DROPPED, SPACE, IDEOGRAPH, PUNCTUATION, MARK = (
    tuple(int(number, 16) for number in paragraph.split()[1:])
    for paragraph in Path(__file__).with_name("code_points.txt").read_text("ascii").split("\n\n")
)

UNKNOWN, CLASSIFY, SEPARATE = "[UNK]", "[CLS]", "[SEP]"
# A text may spell these out literally, as the reference tokenizer allows.
CONTROL_TOKENS = ("[PAD]", UNKNOWN, CLASSIFY, SEPARATE, "[MASK]")
MAX_WORD_CHARS = 100  # a longer word is one unknown token, as in the reference
SEARCHES = 500  # for tokens, before the vocabulary is parsed, which takes as long

_CONTINUATION = "##"
_HEAD_BYTES = 8  # of a line that are compared first, as one number
_CONTROL = "(" + "|".join(re.escape(token) for token in CONTROL_TOKENS) + ")"
_SPACES = "".join(
    chr(code_point)
    for start, stop in zip(SPACE[::2], SPACE[1::2], strict=True)
    for code_point in range(start, stop)
)
_RAW_WORD = re.compile(f"[^{_SPACES}]+")


class _Translation(dict[int, "int | str | None"]):
    """Drops one class of characters and sets another apart; filled as characters are met."""

    def __init__(self, dropped: tuple[int, ...], apart: tuple[int, ...]) -> None:
        super().__init__()
        self._dropped, self._apart = dropped, apart

    def __missing__(self, code_point: int) -> int | str | None:
        is_dropped = bisect_right(self._dropped, code_point) % 2
        is_apart = bisect_right(self._apart, code_point) % 2
        kept: int | str = f" {chr(code_point)} " if is_apart else code_point
        return self.setdefault(code_point, None if is_dropped else kept)


_CLEAN = _Translation(DROPPED, IDEOGRAPH)
_SPLIT = _Translation(MARK, PUNCTUATION)


class WordPiece:
    """A vocabulary, and the ids of the tokens that stand for no piece."""

    # To parse it takes as long as to encode a question. So a token is searched for among the
    # first bytes of all lines at first, which costs some 10 microseconds.

    def __init__(self, raw: bytes) -> None:
        """Take one token per line, its id the line number from 0; EncoderError if no BERT's."""
        # Not splitlines: a vocabulary may hold other line separators as tokens.
        self._raw = b"\n%b\n%b" % (raw.removesuffix(b"\n"), bytes(_HEAD_BYTES))
        places = len(self._raw) - _HEAD_BYTES
        self._breaks = np.flatnonzero(np.frombuffer(self._raw, np.uint8, places) == ord("\n"))
        # What follows each line break as a number; it begins at any byte.
        self._heads = np.ndarray(places, "<u8", self._raw, 1, (1,))[self._breaks]
        self.searches_left = SEARCHES
        self.size = self._breaks.size - 1
        ids = {token: self.find(token) for token in (UNKNOWN, CLASSIFY, SEPARATE)}
        missing = [token for token, found in ids.items() if found is None]
        if missing:
            raise EncoderError(
                f"the vocabulary of {self.size} lines lacks {', '.join(missing)}; expected a BERT "
                "WordPiece vocab.txt. Export the encoder again."
            )
        self.unknown_id, self.first_id, self.last_id = (found or 0 for found in ids.values())

    @cached_property
    def vocab(self) -> dict[str, int]:
        """Ids by token."""
        lines = self._raw[1 : -_HEAD_BYTES - 1].decode("utf-8").split("\n")
        return dict(zip(lines, range(len(lines)), strict=True))

    def find(self, token: str) -> int | None:
        """Return the id of a token; None where there is none."""
        if self.searches_left <= 0:
            return self.vocab.get(token)
        self.searches_left -= 1
        line = token.encode("utf-8", "surrogatepass") + b"\n"
        bits = 8 * min(len(line), _HEAD_BYTES)
        head = np.uint64(int.from_bytes(line[:_HEAD_BYTES], "little"))
        alike = np.flatnonzero(self._heads & np.uint64((1 << bits) - 1) == head)
        for number in reversed(alike.tolist()):  # of equal lines the last one counts
            if self._raw.startswith(line, int(self._breaks[number]) + 1):
                return number
        return None

    def encode(self, text: str, max_tokens: int) -> list[int]:
        """Return 2 to max_tokens ids, [CLS] first and [SEP] last; reads only as far as needed."""
        ids = [self.first_id]
        for found in self._ids(text):
            if len(ids) + len(found) >= max_tokens:
                ids += found[: max_tokens - 1 - len(ids)]
                break
            ids += found
        ids.append(self.last_id)
        return ids

    def known_share(self, text: str, max_tokens: int) -> float:
        """Return the share of a text's tokens that are known, in [0, 1]; 1 of none."""
        ids = self.encode(text, max_tokens)[1:-1]
        return 1.0 - ids.count(self.unknown_id) / max(len(ids), 1)

    def _ids(self, text: str) -> Iterator[list[int]]:
        for part in re.split(_CONTROL, text) if "[" in text else (text,):
            if part in CONTROL_TOKENS:
                found = self.find(part)
                yield [self.unknown_id if found is None else found]
                continue
            for raw in _RAW_WORD.finditer(part):
                for word in split_words(raw.group()):
                    yield self._pieces(word)

    def _pieces(self, word: str) -> list[int]:
        """Cover a word with vocabulary entries, the longest possible first; [UNK] if that fails."""
        if len(word) > MAX_WORD_CHARS:
            return [self.unknown_id]
        whole = self.find(word)
        if whole is not None:
            return [whole]
        pieces: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(len(word), start, -1):
                found = self.find(prefix + word[start:end])
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
