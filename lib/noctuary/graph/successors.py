"""Successors of memories, and the differences that rule out a near duplicate."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from noctuary.core.types import UNDATED_US
from noctuary.graph.fold import fold_name
from noctuary.graph.word_lists import CALENDAR_WORDS, FUNCTION_WORDS
from noctuary.text.dates import NUMBER_WORDS, find_dates, find_identifiers
from noctuary.text.kinds import are_apart, things_of
from noctuary.text.marks import MARK, is_tombstone
from noctuary.text.tokens import normalize

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# How sure it is that a near duplicate replaces the older memory (research/mempalace.md section 1).

# Least cosine of a near duplicate. Lower finds more rewordings, and more lookalikes.
LEAST_SIMILARITY = 0.86
# Least whole days between near duplicates. Fewer lets two notes of one week hide one another.
LEAST_DAYS = 7
HIGH = (0.93, 30)  # least cosine and least days between two memories of high confidence
MEDIUM = (0.86, 14)  # the same for medium confidence; everything else is low
CONFIDENCES = ("low", "medium", "high")  # names of the confidences 0, 1 and 2


def confidence_of(similarity: float, age_gap_days: int) -> int:
    """Return 2 (high), 1 (medium) or 0 (low); never falls as either grows."""
    if similarity >= HIGH[0] and age_gap_days >= HIGH[1]:
        return 2
    return int(similarity >= MEDIUM[0] and age_gap_days >= MEDIUM[1])


# Near duplicates: details in which they must not differ.
#
# One predicate for the night's pairs, curation's and those of the phase `supersede`. The names in
# a text are read from it alone, so two memories are judged without a third. Where neither capitals,
# digits nor a listed kind (`noctuary.text.kinds`) mark a name, no difference is seen: "fixed
# payments" and "fixed search" rest on their vectors.

# Raised with every change that may change a `Keys`: the graph's state keeps them.
KEYS_VERSION = 1

# Longest sentence that is read as one value of one subject; longer ones have more than one.
FRAME_MAX_CHARS = 200
_WORD = re.compile(r"[^\W_]+(?:['’.,:/_@+&-]+[^\W_]+)*")
_SENTENCE_END = re.compile(r"[.!?…。！？】\]\n•]|^\W*$")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b|(?<=\d),(?=\d{3}\b)")
_PLAIN_VERB = re.compile(
    r"(?:is|was|has|had|will|can|does|did|\w{2,}ed|got|made|took|gave|went|came|kept|held|sold|bought"
    r"|lost|found|sent|told|said|wrote|paid|met|ran|ist|war|hat|hatte|wird|kann|tiene|fue)\b",
    re.ASCII,
)
_VERB_IN_S = re.compile(r"\w{2,}s\b", re.ASCII)
_NO_NAMES = FUNCTION_WORDS | {"user", "users"}
_COUNTED = {word: str(n) for word, n in NUMBER_WORDS.items() if word not in ("one", "first")}

# Chinese has no capitals: a clause with a copula is taken whole, with its subject and its value.
_CLAUSE = re.compile(r"[^，。；！？,.;!?\s]+")
_GIVES = re.compile(r"[是叫为].")

_COPULAS = (" is", " are")
_VALUE_MAX_WORDS = 3  # of a listed kind: "blue", "in production now"; longer ones are descriptions
_STATE = re.compile(
    r"(?:(?:the|our|my)\s)?"
    r"(?P<head>[^.:;!?\n]{2,80}?\s(?:is|are|runs?|starts?|ends?|opens?|closes?|costs?|takes?|equals?))"
    r"(?:\snow)?(?P<lead>(?:\s(?:on|at|in|from|to|the|about))*)\s(?P<value>[^!?\n]+?)[.\s]*",
    re.IGNORECASE,
)


def differ(one: str, other: str) -> bool:
    """Return whether two texts differ in a number, identifier, date, name or listed kind."""
    return marks_of(one) != marks_of(other) or are_apart(things_of(one), things_of(other))


def marks_of(text: str) -> frozenset[str]:
    """Return the numbers, identifiers, dates and names of a text, each in one spelling."""
    text = normalize(text)
    marks = {clause for clause in _CLAUSE.findall(text) if _GIVES.search(clause)}
    for date in reversed(find_dates(text)):
        marks.add(date.iso)
        text = f"{text[: date.start]}{' ' * (date.end - date.start)}{text[date.end :]}"
    for found in reversed(find_identifiers(text)):
        marks.add(text[found.start : found.end].casefold())
        text = f"{text[: found.start]}{' ' * (found.end - found.start)}{text[found.end :]}"
    before = 0
    for match in _WORD.finditer(text):
        starts = _SENTENCE_END.search(text, before, match.start()) is not None
        mark = _mark(text, match, starts=starts)
        if mark:
            marks.add(mark)
        before = match.end()
    return frozenset(marks)


class Keys(NamedTuple):
    """Names in a text: marks as 64 bits each, and things of listed kinds."""

    marks: int  # where the text gives a subject a value, with the kinds that the value names
    # equal for texts of which one may replace the other for being near: `marks`, or, where the text
    # is one sentence that gives a subject a value ("The meeting is on 3 May"), everything but the
    # value, since another value replaces it
    alike: int
    things: str  # as `things_of`, those of the value left out: texts that are apart replace nothing


def keys_of(text: str) -> Keys:
    """Return the keys of a text; for one marked as superseded, the keys of its original text."""
    text = text.lstrip()[len(MARK) :] if is_tombstone(text) else text
    marks, frame, things = sorted(marks_of(text)), _frame(text), things_of(text)
    if frame is None:
        return Keys(_digest(marks), _digest(marks), things)
    kept = things_of(frame)
    marks += sorted(set(things) - set(kept))
    return Keys(_digest(marks), _digest(["", frame]), kept)


def _digest(said: Sequence[str]) -> int:
    digest = hashlib.blake2b("\0".join(said).encode("utf-8", "surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little", signed=True)


def _mark(text: str, match: re.Match[str], *, starts: bool) -> str:
    word = match.group()
    if any(char.isdigit() for char in word):
        return _ORDINAL.sub("", word.casefold())
    if not any(char.isupper() for char in word):
        return _COUNTED.get(word, "")
    folded = fold_name(word)
    if folded in _COUNTED:
        return _COUNTED[folded]
    if folded in _NO_NAMES and (starts or folded not in CALENDAR_WORDS):
        return ""
    # A capital at the start of a sentence is no evidence; "Anna lives" begins with a name.
    shaped = any(char.isupper() for char in word[1:]) or folded in CALENDAR_WORDS
    owns = word.endswith(("'s", "’s"))
    return folded if not starts or shaped or owns or _acts(text, match) else ""


def _acts(text: str, match: re.Match[str]) -> bool:
    """Return whether a verb follows a word: "James shared", "Anna lives", but not "Likes cats"."""
    if match.group().endswith(("ed", "ing")):
        return False
    after = match.end() + 1
    if _PLAIN_VERB.match(text, after) is not None:
        return True
    return not match.group().endswith("s") and _VERB_IN_S.match(text, after) is not None


def _frame(text: str) -> str | None:
    """Return a sentence without its value: "The rent is 900 euros", "the rent is * euros"."""
    if len(text) > FRAME_MAX_CHARS:
        return None
    match = _STATE.fullmatch(normalize(text).strip())
    if match is None or ". " in match["value"]:
        return None
    words = _WORD.findall(match["value"])
    # A value of a listed kind after "is" may change tomorrow; after other verbs it identifies.
    is_value = match["head"].casefold().endswith(_COPULAS) and len(words) <= _VALUE_MAX_WORDS
    marked = [bool(marks_of(f"- {word}")) or word[:1].isupper() for word in words]
    marked[:1] = [marked[0] or (is_value and things_of(words[0]) != "")] if words else []
    if not words or not marked[0]:
        return None
    rest = ["*" if mark else fold_name(word) for word, mark in zip(words, marked, strict=True)]
    kept = [w for w, before in zip(rest, ["", *rest], strict=False) if w != "*" or before != "*"]
    return " ".join([fold_name(match["head"] + match["lead"]), *kept])


# Successors by position, for recall. Standard library and numpy only.

NO_SUCCESSOR = -1  # position for: nothing replaces it


class SupersessionRow(NamedTuple):
    """One row of the table: a memory and its direct successor."""

    older: int
    newer: int
    head: int
    reason: str
    confidence: int
    similarity: float | None  # cosine, or None
    age_gap_days: int
    valid_to_us: int


class SupersessionIndex:
    """Successors by position: every method takes and returns whole arrays.

    A successor hidden from the reader does not exist: a chain ends before the first one that is
    masked, later than the given moment, or below the given confidence.
    """

    def __init__(self, rows: Iterable[SupersessionRow]) -> None:
        """Index the rows; at most one per older memory."""
        import numpy as np  # a hook compares texts by this file, without arrays

        ordered = sorted(rows, key=lambda row: row.older)
        self._rows = {row.older: row for row in ordered}
        if len(self._rows) != len(ordered):
            raise ValueError(
                f"found {len(ordered)} rows for {len(self._rows)} superseded memories, expected "
                "one each: build the graph again"
            )
        self._older = np.array([row.older for row in ordered], dtype=np.int64)
        self._newer = np.array([row.newer for row in ordered], dtype=np.int64)
        self._confidence = np.array([row.confidence for row in ordered], dtype=np.int8)
        self._valid_to = np.array([row.valid_to_us for row in ordered], dtype=np.int64)

    def __len__(self) -> int:
        """Return how many memories are superseded."""
        return len(self._older)

    def row_of(self, position: int) -> SupersessionRow | None:
        """Return the row of a superseded memory, or None if nothing replaces it."""
        return self._rows.get(position)

    def successors(
        self,
        positions: NDArray[np.integer],
        as_of_us: int | None = None,
        *,
        visible: NDArray[np.bool_] | None = None,
        least_confidence: int = 0,
    ) -> NDArray[np.int64]:
        """Return the direct successor of each memory as of a moment, or NO_SUCCESSOR."""
        import numpy as np

        asked = np.asarray(positions, dtype=np.int64)
        found = np.full(len(asked), NO_SUCCESSOR, dtype=np.int64)
        if not len(self._older):
            return found
        places = np.minimum(np.searchsorted(self._older, asked), len(self._older) - 1)
        counts = (self._older[places] == asked) & (self._confidence[places] >= least_confidence)
        if as_of_us is not None:
            ends = self._valid_to[places]
            counts &= (ends <= as_of_us) | (ends == UNDATED_US)
        newer = self._newer[places]
        if visible is not None:
            counts &= visible[newer]
        found[counts] = newer[counts]
        return found
