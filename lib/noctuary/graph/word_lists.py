"""Closed word lists that names and statements are read with; a recall needs none of them."""

from __future__ import annotations

import re
from pathlib import Path

from noctuary.text.marks import ROLES

# All folded; words.txt documents each list. Every look-up is one hash.


def _read_word_lists() -> dict[str, tuple[str, ...]]:
    text = Path(__file__).with_name("words.txt").read_text("ascii")
    lists = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n")
    return {name: tuple(words) for name, *words in map(str.split, lists)}


WORD_LISTS = _read_word_lists()

FUNCTION_WORDS = frozenset(WORD_LISTS["function_words"])
CALENDAR_WORDS = frozenset(WORD_LISTS["calendar_words"])
GENERIC_KEYS = frozenset(WORD_LISTS["generic_keys"])
SPEAKER_KEYS = ROLES  # keys that are a role in a conversation wherever they come before a colon
CLAUSE_WORDS = frozenset(WORD_LISTS["clause_words"])
NAME_CONNECTORS = frozenset(WORD_LISTS["name_connectors"])
NEGATION_WORDS = frozenset(WORD_LISTS["negation_words"])
HEDGE_WORDS = frozenset(WORD_LISTS["hedge_words"])
QUESTION_WORDS = frozenset(WORD_LISTS["question_words"])
ADVERBS = frozenset(WORD_LISTS["adverbs"])
DETERMINERS = frozenset(WORD_LISTS["determiners"])
ATTRIBUTES = frozenset(WORD_LISTS["attributes"])
BACKWARD_WORDS = frozenset(WORD_LISTS["backward_words"])
SAYING_WORDS = frozenset(WORD_LISTS["saying_words"])
STATING_WORDS = frozenset(WORD_LISTS["stating_words"])
LY_NOUNS = frozenset(WORD_LISTS["ly_nouns"])
VALUE_ATTRIBUTES = frozenset(WORD_LISTS["value_attributes"])
