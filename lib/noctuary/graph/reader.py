"""Who and what a statement is about: the subject before a verb, the object after it.

Belongs here: first persons, owners, left-out subjects, links to other memories. Does not belong
here: which verbs state what (`patterns`).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from noctuary.graph.clauses import Clauses
from noctuary.graph.fold import Word, fold_name
from noctuary.graph.lexicon import SPEAKER_KEYS
from noctuary.graph.model import StatedRelation
from noctuary.graph.phrases import Phrase, has_capital, is_adverb, phrase_after, phrase_before

USER = "user"
"""Who "I" is where no speaker is named: the person whose memory this is."""

THIS_MEMORY = "#"
"""Object of a statement whose subject is another memory: `#12 resolved_by #`, said by "resolves
#12"."""

OBJECTS_MAX = 4
"""Objects read from one list ("depends on A, B and C")."""

FIRST_PERSONS = frozenset({"i", "im", "ive", "we", "weve"})
OWN_WORDS = frozenset({"my", "our"})
_ME_WORDS = frozenset({"me", "us"})
_OTHERS_WORDS = frozenset({"her", "his", "its", "their", "your"})
_DIGITS = r"\d{1,19}"
_LINK = re.compile(
    rf"\s{{0,3}}:?\s{{0,3}}(?:the\s)?(?:#(?P<hash>{_DIGITS})\b|(?:memory\s)?\[\[(?P<page>[\w:.-]{{1,64}})\]\]"
    rf"|memory\s(?:id\s)?#?(?P<memory>{_DIGITS})\b)",
    re.IGNORECASE,
)
_LIST_GAP = frozenset({", ", " "})


class Side(NamedTuple):
    """Subject or object of a statement.

    Attributes:
        surface: What names it; "" for the memory itself, "#12" for another memory.
        start: First character of the words it rests on, NO_SPAN where it is left out.
        end: One past the last one, or NO_SPAN.
    """

    surface: str
    start: int
    end: int

    @property
    def is_memory(self) -> bool:
        """Whether a memory is meant and not a name."""
        return not self.surface or self.surface.startswith("#")


class Statement(NamedTuple):
    """What one place of a text states: `subject relation object`, on the span start..end."""

    subject: Side
    relation: StatedRelation
    object: Side
    start: int
    end: int


class Reader:
    """One text with its words, its clauses and who speaks.

    Args:
        content: The text.
        tokens: Its words.
        speaker: Surface of who speaks, "" where nobody is named.
        about: Surface of the memory's own subject, which a left-out subject means; "" without one.
    """

    def __init__(self, content: str, tokens: Sequence[Word], speaker: str, about: str) -> None:
        self.content = content
        self.tokens = tokens
        self.clauses = Clauses(content, tokens)
        self.about = about
        self._starts = [word.start for word in tokens]
        named = fold_name(speaker)
        self.holder = USER if not named or named in ("human", "me") else speaker
        self.is_chat = bool(named) and named not in SPEAKER_KEYS

    def side(self, phrase: Phrase) -> Side:
        """Return a phrase as authored."""
        start, end = self.tokens[phrase.first].start, self.tokens[phrase.last].end
        return Side(self.content[start:end], start, end)

    def holder_at(self, index: int) -> Side:
        """Return the speaker, resting on a first-person word."""
        return Side(self.holder, self.tokens[index].start, self.tokens[index].end)

    def subject(self, index: int) -> Side | None:
        """Return what stands before a verb; None for other pronouns and for nothing."""
        phrase = phrase_before(self.content, self.tokens, index)
        if phrase is not None:
            return self._owned(phrase)
        last = index - 1
        while last >= 0 and is_adverb(self.tokens[last]):
            last -= 1
        if last < 0 or self._has_break(last, index):
            return None
        return self.holder_at(last) if self.tokens[last].folded in FIRST_PERSONS else None

    def object(self, place: int) -> Side | None:
        """Return what begins at an offset: a link to a memory, the speaker or a phrase."""
        link = _LINK.match(self.content, place)
        if link is not None:
            name = link["hash"] or link["page"] or link["memory"]
            start = link.start() + len(link.group()) - len(link.group().lstrip(" \t\n:"))
            return Side(f"#{name}", start, link.end())
        index = bisect_left(self._starts, place)
        if index < len(self.tokens) and self.tokens[index].folded in _ME_WORDS:
            return self.holder_at(index)
        phrase = phrase_after(self.content, self.tokens, place, index)
        return None if phrase is None else self.side(phrase)

    def objects(self, place: int) -> list[Side]:
        """Return the objects of a list that begins at an offset.

        A further one counts only where the list or the clause ends after it: in "depends on A and
        works well" the second verb is no object.
        """
        first = self.object(place)
        found = [] if first is None else [first]
        while found and len(found) < OBJECTS_MAX:
            index = bisect_left(self._starts, found[-1].end)
            if (
                index >= len(self.tokens)
                or self.content[found[-1].end : self._starts[index]] not in _LIST_GAP
            ):
                break
            place = self._starts[index]
            if self.tokens[index].folded in ("and", "or"):
                place = self.tokens[index].end
            elif self.content[found[-1].end : place] != ", ":
                break
            following = self.object(place)
            if following is None or following.end <= place or not self._ends_item(following.end):
                break
            found.append(following)
        return found

    def is_person(self, side: Side) -> bool:
        """Say whether a side may be a person: the speaker, the user or a capitalised name."""
        if side.surface.startswith(self.holder) or fold_name(side.surface).startswith(USER):
            return True
        return any(part[:1].isupper() for part in side.surface.split())

    def is_proper(self, side: Side) -> bool:
        """Say whether a side begins with a capital and its last word does."""
        return side.surface[:1].isupper() and side.surface.split()[-1][0].isupper()

    def is_named_or_closed(self, side: Side, place: int) -> bool:
        """Say whether a value is a name, a number, a phrase with a determiner, or ends its clause.

        Args:
            side: The value.
            place: Where the verb before it ends.
        """
        if side.surface[0].isupper() or side.surface[0].isdigit():
            return True
        if self.content[place : side.start].strip(" \"'`*").lower() in ("a", "an", "the"):
            return True
        return self._ends_item(side.end) and not self.content.startswith((" and", " or"), side.end)

    def word_at(self, place: int) -> int:
        """Return the index of the first word at or after an offset."""
        return bisect_left(self._starts, place)

    def _owned(self, phrase: Phrase) -> Side | None:
        side = self.side(phrase)
        owner = phrase.first - 1
        if owner < 0 or self.content[self.tokens[owner].end : side.start] != " ":
            return side
        if self.tokens[owner].folded in OWN_WORDS:
            return Side(f"{self.holder}'s {side.surface}", self.tokens[owner].start, side.end)
        is_others = self.tokens[owner].folded in _OTHERS_WORDS
        is_lower = not has_capital(self.content, self.tokens, phrase)
        return None if is_others and is_lower else side

    def _has_break(self, last: int, index: int) -> bool:
        gap = self.content[self.tokens[last].end : self.tokens[last + 1].start]
        return bool(gap.strip()) or "\n" in gap or index - last > 4

    def _ends_item(self, end: int) -> bool:
        rest = self.content[end : end + 5]
        return not rest or rest[0] in ".,;:!?)\n\"'" or rest.startswith((" and ", " or "))
