"""Which parts of a summary are whole turns or sentences of the sources, word for word.

What belongs here: finding them, so that only the rest is read for what it claims. What does not:
sentences that merely look alike.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from noctuary.text.sentences import SENTENCE_END
from noctuary.text.speaker import split_speaker

_ENDS = ".!?…。！？"
_PLACE = re.compile(r"\S+")
_SENTENCE_KEY_CHARS = 8
"""Sentences are looked up by at most so many first characters."""

_KEY_CHARS = 12
"""Turns are looked up by so many first characters: enough to tell most apart."""


class Parts(NamedTuple):
    """A summary cut into what is quoted and what is written.

    Attributes:
        quoted: Indices of the sources that stand in it whole, ascending.
        written: The other parts, in order.
    """

    quoted: tuple[int, ...]
    written: tuple[str, ...]


def find_verbatim(summary: str, sources: Sequence[str]) -> Parts:
    """Cut a summary into whole turns and the rest.

    A turn counts where it begins the summary, follows another one or follows the end of a sentence,
    and where nothing goes on behind it: "It is false that the rent is 500" quotes nothing, nor does
    "The rent is 500 no more".
    """
    stripped = [(index, source.strip()) for index, source in enumerate(sources)]
    by_start: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for index, source in sorted(stripped, key=lambda pair: -len(pair[1])):
        if source:
            by_start[source[:_KEY_CHARS]].append((index, source))
    shortest = min((len(source) for _, source in stripped if source), default=0)
    keys = sorted({min(len(source), _KEY_CHARS) for _, source in stripped if source})
    quoted: set[int] = set()
    written: list[str] = []
    place = rest = _next_word(summary, 0)
    while shortest and place < len(summary):
        match = _match(summary, place, keys, by_start) if _may_begin(summary, place) else None
        if match is None:
            word = _PLACE.search(summary, place)
            place = len(summary) if word is None else _next_word(summary, word.end())
            continue
        index, end = match
        quoted.add(index)
        written.append(summary[rest:place])
        place = rest = _next_word(summary, end)
        # Behind a turn another one may begin whatever it ends with.
        while (more := _match(summary, place, keys, by_start)) is not None:
            quoted.add(more[0])
            place = rest = _next_word(summary, more[1])
    written.append(summary[rest:])
    return Parts(tuple(sorted(quoted)), tuple(part for part in written if part.strip()))


def _match(
    summary: str,
    place: int,
    keys: Sequence[int],
    by_start: dict[str, list[tuple[int, str]]],
) -> tuple[int, int] | None:
    """Return the longest turn that stands at a place, and where it ends."""
    found: tuple[int, int] | None = None
    for length in keys:
        for index, source in by_start.get(summary[place : place + length], ()):
            end = place + len(source)
            if (found is None or end > found[1]) and summary.startswith(source, place):
                next_ = _next_word(summary, end)
                closed = end == len(summary) or source[-1] in _ENDS
                if next_ > end or end == len(summary):
                    begins = any(summary[next_ : next_ + k] in by_start for k in keys)
                    if closed or next_ == len(summary) or begins:
                        found = index, end
    return found


def _may_begin(summary: str, place: int) -> bool:
    before = summary[:place].rstrip()[-1:] if place < 64 else summary[place - 64 : place].rstrip()
    return not before or before[-1] in _ENDS


def _next_word(summary: str, place: int) -> int:
    while place < len(summary) and summary[place].isspace():
        place += 1
    return place


def is_made_of_sentences(summary: str, sources: Sequence[str]) -> bool:
    """Say whether a summary is nothing but whole sentences of the sources, under their speakers.

    From its first character to its last: labels ("Ann: ") followed by sentences that this speaker
    says somewhere, word for word. "Ann: " before a sentence of Bob's is no quotation.
    """
    said = _sentences_by_speaker(sources)
    labels = sorted((name for name in said if name), key=len, reverse=True)
    # One sentence may begin with another, so every way to go on is tried, each place once.
    todo: list[tuple[int, str | None]] = [(_next_word(summary, 0), None)]
    tried: set[tuple[int, str | None]] = set()
    while todo:
        place, speaker = todo.pop()
        if place >= len(summary):
            return True
        if (place, speaker) in tried:
            continue
        tried.add((place, speaker))
        label = next((n for n in labels if summary.startswith(f"{n}: ", place)), None)
        if label is not None:
            speaker = label
            place = _next_word(summary, place + len(label) + 2)
        for who in {speaker, None}:
            ends = _sentence_ends(summary, place, said, who)
            todo += [(_next_word(summary, end), speaker) for end in ends]
    return False


def _sentences_by_speaker(sources: Sequence[str]) -> dict[str | None, dict[str, list[str]]]:
    """Return the sentences of each speaker by their first characters; None has those of nobody."""
    said: dict[str | None, dict[str, list[str]]] = {None: {}}
    for source in sources:
        speaker, body = split_speaker(source)
        by_start = said.setdefault(speaker, {})
        for piece in SENTENCE_END.split(body):
            if sentence := piece.strip():
                by_start.setdefault(sentence[:_SENTENCE_KEY_CHARS], []).append(sentence)
    return said


def _sentence_ends(
    summary: str, place: int, said: dict[str | None, dict[str, list[str]]], speaker: str | None
) -> Iterator[int]:
    """Yield where sentences of a speaker end that stand at a place."""
    for length in range(1, _SENTENCE_KEY_CHARS + 1):
        for sentence in said.get(speaker, {}).get(summary[place : place + length], ()):
            end = place + len(sentence)
            whole = end == len(summary) or _next_word(summary, end) > end or sentence[-1] in _ENDS
            if whole and summary.startswith(sentence, place):
                yield end
