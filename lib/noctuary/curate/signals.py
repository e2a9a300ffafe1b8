"""The ingestion gate's signals of a turn's words, and its gating scalar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from noctuary.text.marks import SENTENCE_END
from noctuary.text.tokens import is_stop_word, tokenize

# Patterns to find in a text: marks.txt has them.


class Finder(NamedTuple):
    """Something to look for in a text."""

    pattern: re.Pattern[str]
    hint: re.Pattern[str]  # much cheaper, in every text that `pattern` is in

    def is_in(self, text: str) -> bool:
        """Return whether it occurs."""
        return bool(self.hint.search(text) and self.pattern.search(text))

    def count(self, text: str) -> int:
        """Return how often it occurs, not overlapping."""
        return sum(1 for _ in self.pattern.finditer(text)) if self.hint.search(text) else 0


def _either(patterns: list[str], flags: int = 0, hint: str = "") -> Finder:
    """Return a finder of any of several patterns; ^ and $ mean lines."""
    joined = "|".join(f"(?:{p})" for p in patterns)
    return Finder(re.compile(joined, flags | re.MULTILINE), re.compile(hint, flags))


@cache
def finders() -> dict[str, Finder]:
    """Return the finders of marks.txt by name, compiled when a text is first read."""
    pieces, found = dict[str, str](), dict[str, Finder]()
    text = Path(__file__).with_name("marks.txt").read_text("utf-8")
    for record in text.split("\n\n"):
        said = (line.strip() for line in record.splitlines())
        head, *lines = [line for line in said if not line.startswith("#")] or [""]
        lines = [re.sub(r"\{\{(\w+)\}\}", lambda piece: pieces[piece[1]], line) for line in lines]
        if head.endswith(" ="):
            pieces[head.removesuffix(" =")] = "".join(lines)
        elif head:
            hint = lines.pop(0).removeprefix("hint: ") if lines[0].startswith("hint: ") else ""
            flags = re.IGNORECASE if head.endswith(" any case") else 0
            found[head.removesuffix(" any case")] = _either(lines, flags, hint)
    calls = [found[name].pattern.pattern for name in ("function definition", "function call")]
    return {**found, "function": _either(calls, hint=r"\("), "url": _either([pieces["url"]])}


class Weighed(NamedTuple):
    """The marks of one signal found in a text."""

    total: float  # a sum of weights, in [0, 1]
    names: tuple[str, ...]  # of the marks found, in the order of the list


def _weigh(
    marks: Mapping[str, float], text: str, norm: float = 1.0, *, each: bool = False
) -> Weighed:
    """Return the sum over the marks of a text by `norm`, at most 1; with `each`, of occurrences."""
    total, names = 0.0, list[str]()
    for name, weight in marks.items():
        # The path of an address is no file.
        read = finders()["url"].pattern.sub(" ", text) if name == "file path" else text
        finder = finders()[name]
        if count := finder.count(read) if each else int(finder.is_in(read)):
            total += weight * count
            names.append(name)
    return Weighed(min(total / norm, 1.0), tuple(names))


# The signals of a text, each by its marks and their weights (research/peers.md 1.2). Statements
# about people, days, amounts and tastes are read in English only, apart from digits and units.

STATED = {"date": 0.3, "quantity": 0.2, "person": 0.3, "preference": 0.4, "fact": 0.3}
TECHNICAL = {
    "code fence": 0.5, "function": 0.4, "shell command": 0.4, "address": 0.3, "stack trace": 0.5,
    "hash": 0.3, "file path": 0.4,
}  # fmt: skip
SPECIFIC = {
    "function": 0.3, "error code": 0.5, "git reference": 0.4, "address": 0.3, "file path": 0.4,
}  # fmt: skip
ACTIONABLE = {"decision": 0.5, "resolution": 0.4, "milestone": 0.3, "configuration change": 0.4}
STRUCTURED = {
    "function definition": 0.4, "data structure": 0.3, "dependency": 0.3, "test case": 0.2,
    "doc comment": 0.2,
}  # fmt: skip

TECHNICAL_NORM = 1.5  # sum of weights at which a text is wholly technical
CHARS_PER_TOKEN = 4  # inside P: a divisor only, never a budget (libravdb mathematics, section 3)
_TOKENS_PER_UNIT = 100  # P is a density: marks per so many tokens, and a shorter text counts as one

_FENCED = re.compile(r"^\s{0,3}(```|~~~).*?(?:^\s{0,3}\1|\Z)", re.MULTILINE | re.DOTALL)
_ASKED = re.compile(r"[?？؟][\"'”’»)*_\s]{0,8}$")


def declared(text: str) -> str:
    """Return a text without fenced code and questions."""
    prose = _FENCED.sub("\n", text)
    kept: list[str] = []
    start = 0
    for end in re.finditer(SENTENCE_END, prose + "\n"):
        sentence = prose[start : end.start()]
        kept.append("" if _ASKED.search(sentence) else sentence)
        kept.append(prose[end.start() : end.end()])
        start = end.end()
    return "".join(kept)


def conversational_structure(text: str) -> Weighed:
    """Return D: dates, quantities, people, preferences, facts."""
    return _weigh(STATED, declared(text))


def technical_density(text: str) -> Weighed:
    """Return T: how technical a text is; 0 for a blank one."""
    return _weigh(TECHNICAL, text, TECHNICAL_NORM)


def specificity(text: str) -> Weighed:
    """Return P: how many specific things a text names for its length."""
    tokens = max(len(text) // CHARS_PER_TOKEN, 1)
    return _weigh(SPECIFIC, text, max(tokens / _TOKENS_PER_UNIT, 1.0), each=True)


def actionability(text: str) -> Weighed:
    """Return A: decisions, resolutions, milestones, changed settings."""
    return _weigh(ACTIONABLE, text)


def structure(text: str) -> Weighed:
    """Return Dt: definitions, data structures, dependencies, tests, comments."""
    return _weigh(STRUCTURED, text)


READ_CHARS = 16_384  # code points read of a text
# A date or an amount among fewer content words means nothing: "Nobody knows. 77 rows."
LEAST_WORDS, OF_SOMETHING = 5, frozenset({"date", "quantity"})
_DIGITS = 6


class Signals(NamedTuple):
    """Signals of a text's words; every number is in [0, 1]."""

    t: float  # technical density, T: how far the technical branch counts
    d: float  # conversational structure, D
    p: float  # technical specificity, P
    a: float  # actionability, A
    dtech: float  # technical structure, Dt
    marks: tuple[str, ...] = ()  # names of the marks found, sorted
    words: int = LEAST_WORDS  # distinct content words of its statements


BLANK = Signals(0.0, 0.0, 0.0, 0.0, 0.0)


SIGNALS_VERSION = 1  # bumped where a text would get other signals: they are kept by content


def read_signals(text: str) -> Signals:
    """Return the signals of a person's text; 0 for a blank text."""
    read = text[:READ_CHARS]
    if not read.strip():
        return BLANK
    readers = technical_density, conversational_structure, specificity, actionability, structure
    found = [reader(read) for reader in readers]
    marks = {name for weighed in found for name in weighed.names}
    words = {word for word in tokenize(declared(read)) if not is_stop_word(word)}
    totals = (round(weighed.total, _DIGITS) for weighed in found)
    return Signals(*totals, marks=tuple(sorted(marks)), words=len(words))


# The gating scalar G: how much a turn deserves to be remembered for good (research/peers.md 1.2).

# Of the conversational branch: H, R and D. A novel turn with nothing else reaches .35.
NOVELTY_WEIGHT, REPETITION_WEIGHT, CONVERSATION_WEIGHT = 0.35, 0.40, 0.25
# Of the technical branch: P, A and Dt.
SPECIFICITY_WEIGHT, ACTION_WEIGHT, STRUCTURE_WEIGHT = 0.40, 0.35, 0.25
# F: earlier turns this much alike, of so many nearest; so many of them are all that counts.
REPEATED_COSINE, REPEATED_HITS, REPEATED_CAP = 0.80, 10, 5
# S: durable memories this much alike, of so many nearest; so many of them veto repetition.
SATURATED_COSINE, DURABLE_HITS, SATURATED_CAP = 0.85, 5, 3


class Gate(NamedTuple):
    """G of one turn and its two branches, in [0, 1]."""

    g: float
    gconv: float
    gtech: float


def novelty(durable_cosines: list[float]) -> float:
    """Return H: 1 - the mean of the nearest durable cosines, negatives as 0; 1 without any."""
    if not durable_cosines:
        return 1.0
    return 1.0 - sum(min(max(c, 0.0), 1.0) for c in durable_cosines) / len(durable_cosines)


def repetition(turn_cosines: list[float], durable_cosines: list[float]) -> float:
    """Return R = F (1 - S): how often a text recurs, unless it is durable already."""
    said = sum(c >= REPEATED_COSINE for c in turn_cosines)
    kept = sum(c >= SATURATED_COSINE for c in durable_cosines)
    return min(said / REPEATED_CAP, 1.0) * (1.0 - min(kept / SATURATED_CAP, 1.0))


def gate(signals: Signals, h: float, r: float) -> Gate:
    """Return G = (1 - T) Gconv + T Gtech with both branches, to 6 digits."""
    gconv = NOVELTY_WEIGHT * h + REPETITION_WEIGHT * r + CONVERSATION_WEIGHT * signals.d
    action = ACTION_WEIGHT * signals.a
    gtech = SPECIFICITY_WEIGHT * signals.p + action + STRUCTURE_WEIGHT * signals.dtech
    gconv, gtech = round(gconv, _DIGITS), round(gtech, _DIGITS)
    mixed = (1.0 - signals.t) * gconv + signals.t * gtech
    # Rounding must not lead out of the interval of the branches.
    low, high = sorted((gconv, gtech))
    return Gate(min(max(round(mixed, _DIGITS), low), high), gconv, gtech)


def said_something(signals: Signals) -> bool:
    """Return whether the words alone support a turn, in the branch that counts.

    Novelty and repetition cannot: in an empty store everything is new, and the most frequent text
    is "thanks". Nor can a date or an amount in an answer that only its question explains.
    """
    gtech = gate(signals, 0.0, 0.0).gtech
    stands_alone = signals.words >= LEAST_WORDS or not OF_SOMETHING.issuperset(signals.marks)
    states = stands_alone and (1.0 - signals.t) * signals.d > 0.0
    return states or signals.t * gtech > 0.0
