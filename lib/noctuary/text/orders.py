"""Texts that read like an order to the agent that will see them, in six languages.

A memory is data. One that somebody else wrote and that speaks to the agent is held back from
prompts (docs/trust.md). Words alone decide: a new wording gets past this list, and an ordinary text
may look like one of its lines.
"""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

_SENTENCE_END = re.compile(r"[!?！？。\n]+|\.(?=\s|$)")
_CLAUSE_END = re.compile(r"[,;:—–，；：、()\"“”«»*>]+|\s-\s")
_WORD = re.compile(r"\w+")
# What people put before an order.
_LEAD_INS = (
    "please ", "now ", "then ", "also ", "and ", "but ", "so ", "just ", "kindly ", "instead ",
    "you must ", "you should ", "you have to ", "assistant ", "simply ", "first ", "i need you to ",
    "bitte ", "und ", "dann ", "jetzt ", "du musst ", "merci de ", "et ", "puis ", "veuillez ",
    "tu dois ", "por favor ", "y ", "luego ", "debes ", "пожалуйста ", "и ", "затем ", "ты должен ",
)  # fmt: skip
MAX_CHARS = 20_000  # a longer text is read this far: orders stand where they are read

_Group = tuple[str, ...]


class _Rules(NamedTuple):
    """The lines of orders.txt: first group, further groups."""

    begin: Mapping[str, list[tuple[_Group, list[_Group]]]]  # by a clause's first word
    anywhere: list[tuple[_Group, list[_Group]]]


@cache
def _rules() -> _Rules:
    lines = Path(__file__).with_name("orders.txt").read_text("utf-8").splitlines()
    rules = _Rules(defaultdict(list), [])
    for line in (line for line in lines if not line.startswith("# ")):
        first, *rest = (tuple(group.strip().split(" | ")) for group in line.split(" & "))
        if not first[0].startswith("^"):
            rules.anywhere.append((tuple(map(_at_start, first)), rest))
            continue
        starts = defaultdict[str, list[str]](list)
        for start in first:
            starts[start[1:].split(" ", 1)[0]].append(start[1:])
        for word, group in starts.items():
            rules.begin[word].append((tuple(f"{start} " for start in group), rest))
    return rules


def reads_like_order(text: str) -> bool:
    """Return whether a text meets a line of orders.txt."""
    rules, read = _rules(), text[:MAX_CHARS].casefold().replace("’", "'")
    line = _as_words(read)
    anywhere = [rule for rule in rules.anywhere if _holds(line, rule[0])]
    for sentence in _SENTENCE_END.split(read):
        whole = _as_words(sentence)
        found = [rest for first, rest in anywhere if _holds(whole, first)]
        for clause in map(_without_lead_ins, _CLAUSE_END.split(sentence)):
            for starts, rest in rules.begin.get(clause.split(" ", 1)[0], ()):
                if f"{clause} ".startswith(starts):
                    found.append(rest)
        if any(all(_holds(whole, map(_at_start, group)) for group in rest) for rest in found):
            return True
    return False


def _holds(sentence: str, group: Iterable[str]) -> bool:
    return any(word in sentence for word in group)


def _as_words(text: str) -> str:
    """Return a text twice, as it is and as words, each with one space around."""
    return f" {' '.join(text.split())}  {' '.join(_WORD.findall(text))} "


def _at_start(word: str) -> str:
    """Return an alternative as it is looked for: at a word's start, or a sign or Chinese."""
    if word.endswith("$"):
        return f" {word[:-1]} "
    return f" {word}" if word[0].isalpha() and word[0] < "\u2e80" else word


def _without_lead_ins(clause: str) -> str:
    clause = " ".join(clause.split())
    while clause.startswith(_LEAD_INS):
        clause = clause.removeprefix(next(filter(clause.startswith, _LEAD_INS))).lstrip()
    return clause
