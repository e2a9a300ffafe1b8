"""The one token estimator of compaction. Both sides of "is the summary smaller?" must use it.

What belongs here: a cheap, deterministic estimate of a text's tokens. What does not: a real
tokenizer, or the packing of a prompt.
"""

from __future__ import annotations

import math
import re

CHARS_PER_TOKEN_CJK = 1.6
CHARS_PER_TOKEN_DENSE = 2.5
CHARS_PER_TOKEN_DEFAULT = 4.0
# The three ratios are the reference's (libravdb mathematics, section 3). A smaller ratio
# over-estimates, which protects a prompt budget; a larger one fits more text and risks overflowing
# it.

_CJK = re.compile("[\u4e00-\u9faf\u3041-\u3096\u30a1-\u30fa\uac00-\ud7a3]")
_DENSE = re.compile("[\u0400-\u04ff\u0600-\u06ff\u0590-\u05ff]")


def chars_per_token(text: str) -> float:
    """Return how many UTF-16 units one token spans, decided by the presence of a script.

    One CJK character makes the whole text CJK; else one Cyrillic, Arabic or Hebrew character makes
    it dense.

    Source: libravdb mathematics section 3; character ranges from research/peers.md 1.6.
    """
    if text.isascii():
        return CHARS_PER_TOKEN_DEFAULT
    if _CJK.search(text):
        return CHARS_PER_TOKEN_CJK
    return CHARS_PER_TOKEN_DENSE if _DENSE.search(text) else CHARS_PER_TOKEN_DEFAULT


def estimate_tokens(text: str) -> int:
    """Return ceil(UTF-16 length / characters per token); 0 for an empty text, else at least 1."""
    if text.isascii():
        return math.ceil(len(text) / CHARS_PER_TOKEN_DEFAULT)
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return math.ceil(units / chars_per_token(text))
