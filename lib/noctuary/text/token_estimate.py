"""How many tokens a text will cost a prompt, estimated from its length and script.

What belongs here: a cheap, deterministic estimate. What does not: a real tokenizer, the tokens of
the index (`noctuary.text.tokens`), or what is done with a budget.
"""

from __future__ import annotations

import math
import re
from functools import cache

CHARS_PER_TOKEN_CJK = 1.6
CHARS_PER_TOKEN_DENSE = 2.5
CHARS_PER_TOKEN_DEFAULT = 4.0
# The reference's ratios (libravdb mathematics, section 3). A smaller ratio over-estimates, which
# protects a prompt budget; a larger one fits more text and risks overflowing it.

# Not the ranges of noctuary.text.scripts: an estimate is only comparable to the reference's if the
# same characters decide it.
_CJK = "[\u4e00-\u9faf\u3041-\u3096\u30a1-\u30fa\uac00-\ud7a3]"
_DENSE = "[\u0400-\u04ff\u0600-\u06ff\u0590-\u05ff]"


def chars_per_token(text: str) -> float:
    """Return how many UTF-16 units one token spans: 1.6, 2.5 or 4, by the presence of a script.

    One CJK character makes the whole text CJK; else one Cyrillic, Arabic or Hebrew character makes
    it dense.

    Source: libravdb mathematics section 3; character ranges from research/peers.md 1.6.
    """
    if text.isascii():
        return CHARS_PER_TOKEN_DEFAULT
    cjk, dense = _patterns()
    if cjk.search(text):
        return CHARS_PER_TOKEN_CJK
    return CHARS_PER_TOKEN_DENSE if dense.search(text) else CHARS_PER_TOKEN_DEFAULT


def estimate_tokens(text: str) -> int:
    """Return ceil(UTF-16 length / characters per token); 0 for an empty text, else at least 1."""
    if text.isascii():
        return math.ceil(len(text) / CHARS_PER_TOKEN_DEFAULT)
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return math.ceil(units / chars_per_token(text))


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile on first use: most recalls estimate nothing."""
    return re.compile(_CJK), re.compile(_DENSE)
