"""Words that distinguish things of one kind: north and south, staging and production."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from noctuary.text.tokens import UNSPACED, fold, normalize, regex_class

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_FIRST_THING = 0x100  # things are written as characters: a text's are one short string
PAIRS = "pairs"  # the paragraph whose lines hold two opposed words each


class _Kinds(NamedTuple):
    """kinds.txt; a thing is the number of its line, written as one character."""

    words: dict[str, str]  # word -> things
    stems: dict[str, str]  # word without its ending -> things
    unspaced: re.Pattern[str]  # words of scripts that write no spaces
    kind_of: dict[str, str]  # thing -> kind


@cache
def _read_kinds() -> _Kinds:
    text = Path(__file__).with_name("kinds.txt").read_text("utf-8")
    words, stems, kind_of = dict[str, str](), dict[str, str](), dict[str, str]()
    unspaced = re.compile(f"[{regex_class(UNSPACED)}]+")
    wide: list[str] = []
    blocks = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n")
    lines = [(name, line) for name, *of_it in map(str.splitlines, blocks) for line in of_it]
    for kind, line in lines:
        for things in line.split() if kind == PAIRS else [line]:
            thing = chr(_FIRST_THING + len(kind_of))
            kind_of[thing] = line if kind == PAIRS else kind
            for word in map(fold, things.split()):
                table, key = (stems, word[:-1]) if word.endswith("*") else (words, word)
                table[key] = table.get(key, "") + thing
                wide += [word] if unspaced.fullmatch(word) else []
    # Of two that begin alike the longer one is read.
    found = "|".join(map(re.escape, sorted(wide, key=len, reverse=True)))
    return _Kinds(words, stems, re.compile(found), kind_of)


def things_of(text: str) -> str:
    """Return the things of listed kinds that a text names, one character each, sorted."""
    kinds, found = _read_kinds(), set[str]()
    text = normalize(text)
    for word in {fold(match.group()) for match in _WORD.finditer(text)}:
        found.update(_things(word))
    if not text.isascii():
        for match in kinds.unspaced.finditer(text):
            found.update(kinds.words[match.group()])
    return "".join(sorted(found))


@cache
def _stem_lengths() -> tuple[int, ...]:
    return tuple(sorted({len(stem) for stem in _read_kinds().stems}))


def _things(word: str) -> str:
    kinds = _read_kinds()
    found = kinds.words.get(word, "")
    for length in _stem_lengths():
        if length > len(word):
            break
        found += kinds.stems.get(word[:length], "")
    if not found and "-" in word:  # "north-side", "staging-db"
        return "".join(map(_things, word.split("-")))
    return found


def are_apart(one: str, other: str) -> bool:
    """Return whether two texts, as `things_of`, name different things of one kind.

    Each must lack a thing of the other: "from north to south" and "to the south" may agree.
    """
    if one == other or not one or not other:
        return False
    kind_of = _read_kinds().kind_of
    ours, theirs = set(one) - set(other), set(other) - set(one)
    return not {kind_of[t] for t in ours}.isdisjoint(kind_of[t] for t in theirs)
