"""Statements: their subjects and objects, and the verbs that state a relation."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from html import unescape
from itertools import chain
from typing import NamedTuple

from noctuary.graph.fold import Word, fold_name, unsegmented_script, without_accents, words
from noctuary.graph.names import (
    Phrase,
    capitalised_runs,
    fences,
    has_capital,
    is_adverb,
    is_closed,
    phrase_after,
    phrase_before,
)
from noctuary.graph.tables import ID_MARK, NO_SPAN, StatedRelation
from noctuary.graph.word_lists import (
    ATTRIBUTES,
    CLAUSE_WORDS,
    FUNCTION_WORDS,
    GENERIC_KEYS,
    HEDGE_WORDS,
    NAME_CONNECTORS,
    NEGATION_WORDS,
    QUESTION_WORDS,
    SPEAKER_KEYS,
    VALUE_ATTRIBUTES,
    WORD_LISTS,
)

# The two sides of a statement: the subject before a verb, the object after it.

USER = "user"  # who "I" is where no speaker is named: the person whose memory this is
OBJECTS_MAX = 4  # objects read from one list ("depends on A, B and C")
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


class Side(NamedTuple):
    """Subject or object of a statement."""

    surface: str  # what names it; "" for the memory itself, "#12" for another memory
    start: int  # first character of the words it rests on, NO_SPAN where it is left out
    end: int  # one past the last one, or NO_SPAN

    @property
    def is_memory(self) -> bool:
        """Whether a memory is meant and not a name."""
        return not self.surface or self.surface.startswith("#")

    @property
    def name(self) -> str:
        """The folded name; for a memory its id mark, unfolded."""
        return self.surface if self.is_memory else fold_name(self.surface)


class Statement(NamedTuple):
    """One statement of a text: `subject relation object`, on the span start..end."""

    subject: Side
    relation: StatedRelation
    object: Side
    start: int
    end: int


# Words read to the left for a negation or a condition; bounds the work per statement.
CLAUSE_MAX_WORDS = 24
# Longest key before a colon after which a statement may begin without its subject.
OPENING_MAX_CHARS = 64
_SENTENCE_STOP = re.compile(r"[.!?…](?=[\s\"'”’)\]*]|$)|[。！？]|\n|[】\]](?=\s)|;")
_QUESTION_MARKS = frozenset("?？")
_CLAUSE_END = re.compile(r"[,:;()—]|\s[-–]\s")
_CLAUSE_WORDS = frozenset({"but", "and", "so", "because", "as", "since"})
_OPENING = re.compile(r"[^:：]*[:：]\s*\Z|[\s\"'“‘(*•>-]*\Z")


class _Reader:
    def __init__(self, content: str, tokens: Sequence[Word], speaker: str, about: str) -> None:
        self.content = content
        self.tokens = tokens
        self.about = about
        self.starts = [word.start for word in tokens]
        named = fold_name(speaker)
        self.holder = USER if not named or named in ("human", "me") else speaker
        self.is_chat = bool(named) and named not in SPEAKER_KEYS
        self._bounds = [0, *(match.end() for match in _SENTENCE_STOP.finditer(content)), 0]
        self._fences = fences(content)
        self._fence_starts = [start for start, _ in self._fences]

    def may_state(self, index: int) -> bool:
        """Return whether the clause around a word states a present fact."""
        place = self.tokens[index].start
        fence = bisect_right(self._fence_starts, place) - 1
        if fence >= 0 and place < self._fences[fence][1]:
            return False
        start, end = self._sentence(index)
        if not _QUESTION_MARKS.isdisjoint(self.content[max(0, end - 2) : end]):
            return False
        first = max(bisect_left(self.starts, start), index - CLAUSE_MAX_WORDS)
        if first < index and self.tokens[first].folded in QUESTION_WORDS:
            return False
        in_clause = True
        for left in range(index - 1, first - 1, -1):
            word = self.tokens[left]
            gap = self.content[word.end : self.starts[left + 1]]
            in_clause = in_clause and _CLAUSE_END.search(gap) is None
            if word.folded in HEDGE_WORDS or (in_clause and word.folded in NEGATION_WORDS):
                return False
            in_clause = in_clause and word.folded not in _CLAUSE_WORDS
        return True

    def begins(self, index: int) -> bool:
        """Return whether a word opens its sentence, or follows a colon at the sentence's start."""
        start, place = self._sentence(index)[0], self.tokens[index].start
        if place - start > OPENING_MAX_CHARS:
            return False
        return _OPENING.match(self.content[start:place]) is not None

    def _sentence(self, index: int) -> tuple[int, int]:
        found = bisect_right(self._bounds, self.starts[index], 1, len(self._bounds) - 1)
        return self._bounds[found - 1], self._bounds[found]

    def side(self, phrase: Phrase) -> Side:
        start, end = self.tokens[phrase.first].start, self.tokens[phrase.last].end
        return Side(self.content[start:end], start, end)

    def holder_at(self, index: int) -> Side:
        return Side(self.holder, self.tokens[index].start, self.tokens[index].end)

    def subject(self, index: int) -> Side | None:
        """Return the subject before a verb; None for other pronouns and if there is none."""
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
        """Return the object at an offset: a link to a memory, the speaker or a phrase."""
        link = _LINK.match(self.content, place)
        if link is not None:
            name = link["hash"] or link["page"] or link["memory"]
            start = link.start() + len(link.group()) - len(link.group().lstrip(" \t\n:"))
            return Side(f"#{name}", start, link.end())
        index = bisect_left(self.starts, place)
        if index < len(self.tokens) and self.tokens[index].folded in _ME_WORDS:
            return self.holder_at(index)
        phrase = phrase_after(self.content, self.tokens, place, index)
        return phrase and self.side(phrase)

    def objects(self, place: int, most: int = OBJECTS_MAX) -> list[Side]:
        """Return the objects of a list that begins at an offset.

        A further one counts only where the list or the clause ends after it: in "depends on A and
        works well" the second verb is no object.
        """
        first = self.object(place)
        found = [] if first is None else [first]
        while found and len(found) < most:
            index = bisect_left(self.starts, found[-1].end)
            place = self.starts[index] if index < len(self.tokens) else found[-1].end
            gap = self.content[found[-1].end : place]
            joins = bool(gap) and self.tokens[index].folded in ("and", "or")
            if gap != ", " and not (gap == " " and joins):
                break
            place = self.tokens[index].end if joins else place
            following = self.object(place)
            if following is None or following.end <= place or not self._ends_item(following.end):
                break
            found.append(following)
        return found

    def is_person(self, side: Side) -> bool:
        if side.surface.startswith(self.holder) or fold_name(side.surface).startswith(USER):
            return True
        return any(part[:1].isupper() for part in side.surface.split())

    def is_proper(self, side: Side) -> bool:
        return side.surface[:1].isupper() and side.surface.split()[-1][0].isupper()

    def is_named_or_closed(self, side: Side, place: int) -> bool:
        """Return whether a value is a name or number, has a determiner, or ends its clause."""
        if side.surface[0].isupper() or side.surface[0].isdigit():
            return True
        if self.content[place : side.start].strip(" \"'`*").lower() in ("a", "an", "the"):
            return True
        return self._ends_item(side.end) and not self.content.startswith((" and", " or"), side.end)

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


# Possession: "my manager Dana", "Dana's role is lead". One construction, no other verbs.
#
# The attribute is the subject (`user's manager`), its value the object, the relation `has`: the
# value can then be replaced by a newer one without touching anything else of the same owner.

# Longest attribute ("favorite board game"); a longer one is mostly a clause.
ATTRIBUTE_MAX_WORDS = 3
APPOSITION_MAX_WORDS = 2  # longest attribute that a name follows without a verb ("my manager Dana")
CUES = OWN_WORDS  # words that begin the construction; an owner's "'s" is the other beginning
_COPULAS = frozenset({"is", "are"})


def _read_owned(reader: _Reader, index: int) -> Iterator[Statement]:
    """Yield the possession stated of the owner at a word (at most one)."""
    owner = _owner(reader, index)
    last = _attribute_end(reader, index + 1)
    if owner is None or last < index + 1 or not reader.may_state(index):
        return
    thing = _value(reader, index + 1, last)
    if thing is None or thing.is_memory or thing.surface.endswith("ing"):
        return
    attribute = reader.content[reader.tokens[index + 1].start : reader.tokens[last].end]
    subject = Side(f"{owner.surface}'s {attribute}", owner.start, reader.tokens[last].end)
    yield Statement(subject, "has", thing, owner.start, thing.end)


def _owner(reader: _Reader, index: int) -> Side | None:
    word = reader.tokens[index]
    if word.folded in OWN_WORDS:
        return reader.holder_at(index)
    if is_closed(word):
        return None
    has_next = index + 1 < len(reader.tokens)
    phrase = phrase_before(reader.content, reader.tokens, index + 1) if has_next else None
    if phrase is None or phrase.last != index:
        return None
    start, end = reader.tokens[phrase.first].start, word.end - 2
    surface = reader.content[start:end]
    is_name = surface[:1].isupper() or word.folded == USER
    return Side(surface, start, end) if is_name else None


def _attribute_end(reader: _Reader, first: int) -> int:
    """Return the index of the attribute's last word, first - 1 where there is none."""
    last = first - 1
    while last + 1 < len(reader.tokens) and last - first + 1 < ATTRIBUTE_MAX_WORDS:
        word = reader.tokens[last + 1]
        gap = reader.content[reader.tokens[last].end : word.start]
        is_noun = word.folded in ATTRIBUTES or not is_closed(word)
        is_noun = is_noun and word.folded not in NAME_CONNECTORS
        if gap not in (" ", "-") or not is_noun or not reader.content[word.start].islower():
            break
        last += 1
    if last >= first and reader.tokens[last].folded in ATTRIBUTES:
        return first - 1
    return last


def _value(reader: _Reader, first: int, last: int) -> Side | None:
    end = reader.tokens[last].end
    if reader.content.startswith(": ", end):
        return reader.object(end + 2)
    following = reader.tokens[last + 1] if last + 1 < len(reader.tokens) else None
    if following is None or reader.content[end : following.start] != " ":
        return None
    if following.folded in _COPULAS:
        return _after_copula(reader, first, last)
    is_name = reader.content[following.start].isupper() and not is_closed(following)
    is_noun = not reader.tokens[last].folded.endswith(("ed", "ing"))
    is_apposition = is_name and is_noun and last - first < APPOSITION_MAX_WORDS
    return reader.object(end) if is_apposition else None


def _after_copula(reader: _Reader, first: int, last: int) -> Side | None:
    place = reader.tokens[last + 1].end
    thing = reader.object(place)
    if thing is None or thing.surface[0].isupper() or thing.surface[0].isdigit():
        return thing
    attribute = {word.folded for word in reader.tokens[first : last + 1]}
    between = reader.content[place : thing.start].strip().lower()
    takes_plain = not attribute.isdisjoint(VALUE_ATTRIBUTES) or between in ("a", "an", "the")
    return thing if takes_plain else None


# The verbs that state a relation, each with how its sides are read.

# Statements taken per memory, the first ones; limits how much a pasted document adds.
STATEMENTS_MAX = 24
# Longest noun phrase after "is a", counted from its head; a longer one describes and sorts not.
KIND_MAX_WORDS = 3
KIND_LOOK_WORDS = 7  # words read to find that head

_PASSIVE_WORDS = frozenset({"am", "are", "be", "been", "being", "got", "is", "was", "were"})
_BASE_FORMS = frozenset({"live", "prefer", "reside", "work"})
_NO_KIND = frozenset(WORD_LISTS["no_kinds"])
_NO_KIND_ENDS = frozenset({"of", "one", "part", "thing", "things"})

_Read = Callable[[_Reader, int, re.Match[str]], Iterator[Statement]]


def find_statements(
    content: str, tokens: Sequence[Word], speaker: str = "", about: str = ""
) -> list[Statement]:
    """Return the statements of a text, left to right, at most STATEMENTS_MAX.

    Questions, denials, wishes, conditions and fenced code state nothing. "I", "my", "we" and "our"
    are the speaker, "user" if there is none; other pronouns are not resolved, and their
    statements are left out. `X's Y is Z` is read as `X's Y` has `Z`.
    """
    owners = {match.start() for match in _OWNER_MARK.finditer(content)}
    if not owners and _CUES.isdisjoint([word.folded for word in tokens]):
        return []
    reader = _Reader(content, tokens, speaker, about)
    found: list[Statement] = []
    for index, word in enumerate(tokens):
        for cue, read in RULES.get(word.folded, ()):
            match = cue.match(content, word.start)
            if match is not None and reader.may_state(index):
                found += read(reader, index, match)
        if word.folded in CUES or word.end - 2 in owners:
            found += _read_owned(reader, index)
        if len(found) >= STATEMENTS_MAX:
            break
    return found[:STATEMENTS_MAX]


def _statement(
    subject: Side, relation: StatedRelation, thing: Side, cue: re.Match[str]
) -> Statement:
    starts = [side.start for side in (subject, thing) if side.start != NO_SPAN]
    start, end = min([cue.start(), *starts]), max(cue.end(), subject.end, thing.end)
    return Statement(subject, relation, thing, start, end)


def _left_out(reader: _Reader, index: int, *, personal: bool) -> Side | None:
    """Return the implied subject of a sentence-initial verb, or None."""
    word = reader.tokens[index].folded
    if not reader.begins(index) or (personal and not word.endswith(("s", "moved"))):
        return None
    surface = reader.holder if personal else reader.about
    return Side(surface, NO_SPAN, NO_SPAN) if surface else None


def _plain(relation: StatedRelation, *, reverse: bool = False, most: int = 1) -> _Read:
    """Return a reader of `subject verb object` about things."""

    def read(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
        subject = reader.subject(index) or _left_out(reader, index, personal=False)
        for thing in reader.objects(cue.end(), most):
            yield from _of_things(subject, relation, thing, cue, reverse)

    return read


def _of_things(
    subject: Side | None, relation: StatedRelation, thing: Side, cue: re.Match[str], reverse: bool
) -> Iterator[Statement]:
    if thing.is_memory and (subject is None or relation == "supersedes"):
        # A memory is replaced by a memory, whatever the sentence names as its subject.
        subject = Side(ID_MARK if reverse else "", NO_SPAN, NO_SPAN)
    elif subject is None and relation == "supersedes" and not reverse:
        subject = Side("", NO_SPAN, NO_SPAN)
    if subject is None or subject.surface == thing.surface:
        return
    if reverse:
        subject, thing = thing, subject
    yield _statement(subject, relation, thing, cue)


def _requires(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject = reader.subject(index)
    if subject is None or subject.surface not in (reader.holder, USER, USER.capitalize()):
        yield from _plain("depends_on", most=OBJECTS_MAX)(reader, index, cue)


def _personal(relation: StatedRelation, *, proper: bool, most: int = 1) -> _Read:
    """Return a reader of `somebody verb object`; `proper` asks for a capitalised object."""

    def read(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
        subject = reader.subject(index) or _left_out(reader, index, personal=True)
        if subject is None or not reader.is_person(subject) or _is_noun(reader, index, subject):
            return
        for thing in reader.objects(cue.end(), most):
            if reader.is_proper(thing) or not proper:
                yield _statement(subject, relation, thing, cue)

    return read


def _is_noun(reader: _Reader, index: int, subject: Side) -> bool:
    """Return whether a form is no verb: "Maria's volunteer work at", "Dana began working at"."""
    is_base = reader.tokens[index].folded in _BASE_FORMS
    if reader.tokens[index].folded.endswith("ing"):
        before = reader.tokens[index - 1] if index else None
        return before is None or not (is_adverb(before) or before.folded in FIRST_PERSONS)
    return is_base and subject.surface != reader.holder


def _replaces(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    if index and reader.tokens[index - 1].folded in _PASSIVE_WORDS:
        return
    things = reader.objects(cue.end())
    if not things:
        return
    if by := _WITH.match(reader.content, things[-1].end):
        if newer := reader.object(by.end()):
            yield from (_statement(newer, "supersedes", thing, cue) for thing in things)
        return
    subject = reader.subject(index) or _left_out(reader, index, personal=False)
    if subject is None and not reader.begins(index) and not things[0].is_memory:
        return
    if subject is None or subject.surface != reader.holder or things[0].is_memory:
        for thing in things:
            yield from _of_things(subject, "supersedes", thing, cue, False)


def _replaced_by(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject = reader.subject(index)
    if subject is None or subject.surface != reader.holder:
        yield from _plain("supersedes", reverse=True)(reader, index, cue)


def _switched(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    is_from = cue.group(1).lower() == "from"
    first = reader.object(cue.end())
    turn = None if first is None else (_TO if is_from else _FROM).match(reader.content, first.end)
    second = None if turn is None else reader.object(turn.end())
    if first is None or second is None or first.surface == second.surface:
        return
    older, newer = (first, second) if is_from else (second, first)
    subject = reader.subject(index)
    moves = cue.group().lower().startswith(("moved", "relocated"))
    if moves and subject is not None and _may_live(reader, index, subject, newer):
        yield _statement(subject, "lives_in", newer, cue)
    elif moves and (subject is None or reader.is_proper(subject)) and not _is_we(reader, index):
        return  # somebody's move from house to house
    elif not older.is_memory and not newer.is_memory:
        yield _statement(newer, "supersedes", older, cue)


def _moved_to(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject = reader.subject(index) or _left_out(reader, index, personal=True)
    thing = reader.object(cue.end())
    if thing is None or subject is None or _FROM.match(reader.content, thing.end):
        return
    if _may_live(reader, index, subject, thing):
        yield _statement(subject, "lives_in", thing, cue)


def _may_live(reader: _Reader, index: int, subject: Side, place: Side) -> bool:
    """Return whether a move is one of house: outside chat, "we moved to X" may be about tools."""
    if not reader.is_person(subject) or not reader.is_proper(place):
        return False
    return reader.is_chat or not _is_we(reader, index)


def _is_we(reader: _Reader, index: int) -> bool:
    return index > 0 and reader.tokens[index - 1].folded in ("we", "weve")


def _no_longer(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    older = reader.object(cue.end())
    turn = None if older is None else _NOW.match(reader.content, older.end)
    newer = None if turn is None else reader.object(turn.end())
    if older is not None and newer is not None and not older.is_memory:
        yield _statement(newer, "supersedes", older, cue)


def _is_now(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject, thing = reader.subject(index), reader.object(cue.end())
    if subject is None or thing is None or thing.is_memory:
        return
    is_action = thing.surface.islower() and thing.surface.split()[0].endswith("ing")
    if not is_action and reader.is_named_or_closed(thing, cue.end()):
        yield _statement(subject, "is_now", thing, cue)


def _is_a(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    word = reader.tokens[index]
    subject = reader.holder_at(index) if word.folded == "im" else reader.subject(index)
    thing = _kind(reader, cue.end())
    if subject is None or thing is None or not reader.is_person(subject):
        return
    is_past = word.folded == "was" and subject.surface == reader.holder
    if "'s " not in subject.surface.replace("’", "'") and not is_past:
        yield _statement(subject, "is_a", thing, cue)


def _kind(reader: _Reader, place: int) -> Side | None:
    """Return the head of the noun phrase at an offset: its last words in lower case."""
    tokens, content = reader.tokens, reader.content
    first = last = bisect_left(reader.starts, place)
    while last < len(tokens) and not is_closed(tokens[last]) and last - first < KIND_LOOK_WORDS:
        gap = content[(tokens[last - 1].end if last > first else place) : tokens[last].start]
        if gap not in ("", " ", "-"):
            break
        last += 1
    if last < len(tokens) and tokens[last].folded in _NO_KIND_ENDS:
        return None
    while last > first and tokens[last - 1].folded.endswith(("ed", "ing")):
        last -= 1
    head, least = last, max(first, last - KIND_MAX_WORDS)
    while head > least and content[tokens[head - 1].start].islower():
        head -= 1
    if head == last or last - first >= KIND_LOOK_WORDS or tokens[last - 1].folded in _NO_KIND:
        return None
    start, end = tokens[head].start, tokens[last - 1].end
    return Side(content[start:end], start, end)


def _likes_better(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject, thing = reader.subject(index), reader.object(cue.end())
    better = None if thing is None else _BETTER.search(thing.surface)
    if subject is None or thing is None or better is None or not reader.is_person(subject):
        return
    end = thing.start + better.start()
    liked = Side(reader.content[thing.start : end], thing.start, end)
    yield _statement(subject, "prefers", liked, cue)


def _see(reader: _Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    thing = reader.object(cue.end())
    if thing is not None and thing.is_memory:
        yield _statement(Side("", NO_SPAN, NO_SPAN), "has", thing, cue)


def _cue(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_OWNER_MARK = re.compile(r"['’]s(?=\s[a-z])")
_WITH = _cue(r"\s(?:with|by)(?=\s)")
_TO = _cue(r"\s(?:over\s)?to(?=\s)")
_FROM = _cue(r"\sfrom(?=\s)")
_BETTER = _cue(r"\sbetter\Z")
_USING = (
    r"(?:(?:uses?|using|on|in|with|at|works?\s(?:at|for|with)|lives?\sin|likes?|prefers?)(?=\s))?"
)
_NOW = _cue(
    rf"[\s,;.–—-]{{1,3}}(?:(?:but|and|is|are|it['’]s|we|i|they|he|she)\s){{0,2}}now\s?{_USING}"
)
_STILL = r"(?:(?:also|now|still)\s)?"

_TABLE: tuple[tuple[str, str, _Read], ...] = (
    ("supersedes superseded replaces replaced obsoletes",
     r"\w+(?=[\s:])(?!\s(?:by|with)\b)", _replaces),
    ("superseded replaced obsoleted", r"\w+\s(?:by|with)(?=[\s:])", _replaced_by),
    ("switched migrated moved changed upgraded transitioned relocated",
     r"\w+\s(?:over\s|back\s)?(from|to)(?=\s)", _switched),
    ("moved relocated", r"\w+\s(?:(?:back|over|out)\s)?to(?=\s)", _moved_to),
    ("no", rf"no\slonger\s{_USING}", _no_longer),
    ("is are", r"\w+\snow(?=\s)(?:\s(?:called|named|known\sas)(?=\s))?", _is_now),
    ("depends depend relies rely",
     r"\w+\s(?:(?:heavily|only|also|directly)\s)?on(?=\s)", _plain("depends_on", most=OBJECTS_MAX)),
    ("requires require", r"\w+(?=\s)", _requires),
    ("is are was were", rf"\w+\s{_STILL}(?:an?\s)?part\sof(?=\s)", _plain("part_of")),
    ("belongs belong", r"\w+\sto(?=\s)", _plain("part_of")),
    ("is was am im", r"[\w'’]+\san?(?=\s)", _is_a),
    ("prefers prefer",
     r"\w+(?:\s(?:to\suse|using))?(?=\s)", _personal("prefers", proper=False, most=OBJECTS_MAX)),
    ("likes like", r"\w+(?=\s)", _likes_better),
    ("works work working",
     r"\w+\s(?:at(?=\s)|for(?=\s(?:an?\s|the\s|(?-i:[A-Z]))))",
     _personal("works_at", proper=False)),
    ("employed", r"employed\s(?:by|at)(?=\s)", _personal("works_at", proper=False)),
    ("lives live living resides reside based",
     r"\w+\sin(?=\s)", _personal("lives_in", proper=True)),
    ("owned", r"owned\sby(?=\s)", _plain("owned_by")),
    ("owns", r"owns(?=\s)", _plain("owned_by", reverse=True)),
    ("resolved fixed solved closed", r"\w+\sby(?=\s)", _plain("resolved_by")),
    ("resolves fixes solves closes", r"\w+(?=[\s:])", _plain("resolved_by", reverse=True)),
    ("see", r"see(?:\salso)?(?=[\s:])", _see),
)  # fmt: skip


_RULES = [(cues.split(), (_cue(pattern), read)) for cues, pattern, read in _TABLE]

RULES = {
    word: tuple(rule for cues, rule in _RULES if word in cues)
    for word in chain.from_iterable(cues for cues, _ in _RULES)
}  # by the folded word that they begin with

_CUES = frozenset(RULES) | CUES


# The subject and the speaker of a memory, read from how its text begins.

TITLE_MAX_CHARS = 120  # longest first line read as a title; longer lines are mostly prose
KEY_MAX_CHARS = 48  # longest key of a `key: value` start; longer ones are mostly clauses
KEY_MAX_WORDS = 4  # as above, in words
UNSEGMENTED_KEY_MAX_CHARS = 10  # as above, of a script without spaces
LABEL_MAX_CHARS = 80  # longest bracketed label
HEADINGS_MAX = 16  # headings read per memory; bounds the subjects of a pasted document

_HEADING = re.compile(r"^#{1,6}[ \t]+(\S[^\n]*)$", re.MULTILINE)
_LABEL = re.compile(r"\s*(?:【([^】\n]+)】|\[([^\]\n]+)\])(?![(\[])")
_KEY = re.compile(r"\s*(?:[-*•]\s+)?([^\s:：.!?;,\n#\[【`][^:：.!?;\n。！？，]*?)\s*(?::(?=\s)|：)")
_PARENTHESIS = re.compile(r"\s*[(（][^()（）]*[)）]\s*$")
_CONTINUES = (",", ";", ":", "-", "—")
_NOT_TITLE = re.compile(r"\s*(?:```|[-*•>|]\s|\d+[.)]\s)")
_CHECKBOX = frozenset({"x", "todo", "wip", "done", "tbd"})


Subject = tuple[str, int, int]  # kind of a subject, and the span of the content it rests on


def speaker_prefix(content: str, *, is_turn: bool) -> tuple[int, int] | None:
    """Return the span of the name before the first colon: in turns any short key, else a role."""
    match = _key_match(content)
    key = "" if match is None else fold_name(match.group(1))
    speaks = is_turn or key in SPEAKER_KEYS or len(key) == 1
    return match.span(1) if match is not None and speaks else None


def find_subjects(content: str, tokens: list[Word], *, is_turn: bool) -> list[Subject]:
    """Return the subjects of a memory; the first construction that applies to its start decides.

    Headings and a label count wherever they apply; title, key and leading run exclude one another.
    A turn has no title, key or leading run: its first words address or greet somebody.
    """
    speaker = speaker_prefix(content, is_turn=is_turn)
    body_start = speaker[1] + 1 if speaker else 0
    found = _headings(content)
    label = _label(content, body_start)
    if label is not None:
        found.append(label)
    if is_turn or speaker or found:
        return found
    return _title(content) or _key(content) or _leading_run(content, tokens)


def _title(content: str) -> list[Subject]:
    line_end = content.find("\n")
    if line_end < 0 or not content[line_end:].strip() or _NOT_TITLE.match(content):
        return []
    line = content[:line_end]
    start, end = len(line) - len(line.lstrip()), len(line.rstrip())
    if not 0 < end - start <= TITLE_MAX_CHARS or line[:end].endswith(_CONTINUES):
        return []
    return _with_and_without_parenthesis("title", content, start, end)


def _headings(content: str) -> list[Subject]:
    if "#" not in content:
        return []
    found: list[Subject] = []
    for match in _HEADING.finditer(content):
        heading = match.group(1).rstrip(" \t\r").rstrip("#").rstrip(" \t")
        if heading and len(heading) <= TITLE_MAX_CHARS and len(found) < HEADINGS_MAX:
            start = match.start(1)
            found += _with_and_without_parenthesis("heading", content, start, start + len(heading))
    return found


def _with_and_without_parenthesis(kind: str, content: str, start: int, end: int) -> list[Subject]:
    bare = _PARENTHESIS.sub("", content[start:end])
    found = [(kind, start, end)]
    if bare and start + len(bare) < end:
        found.append((kind, start, start + len(bare)))
    return found


# Other spellings of a subject, each a name of that one thing. What takes a guess is none: a given
# name, a middle initial or a rank left out named somebody else in half of the cases.

_AND = re.compile(r"(?<=\w) ?& (?=\w)|(?<=\w) and (?=\w)")
_SUFFIXES = frozenset(WORD_LISTS["name_suffixes"])
# Words that a name keeps without its suffix or its accents: "Liverpool F.C." without it is a town,
# "Café" without the accent is any cafe.
BARE_MIN_WORDS = 2
_PLACED = re.compile(r"\s*([^\W\d_][^,()\n]*), ([^,()\n]+?)\s*")


def spellings(surface: str) -> list[str]:
    """Return the ways in which texts spell a subject, the first with HTML entities undone.

    "A & B" for "A and B" and the other way round, without what a company or a club carries at its
    end, and without accents on Latin letters.
    """
    spelt = unescape(unescape(surface)) if "&" in surface else surface
    found = [spelt]
    if len(parts := _AND.split(spelt)) > 1:
        found.append((" and " if "&" in spelt else " & ").join(parts))
    bare, _, end = spelt.rpartition(" ")
    if len(bare.split()) >= BARE_MIN_WORDS and end.replace(".", "").lower() in _SUFFIXES:
        found.append(bare.rstrip(" ,"))
    if not spelt.isascii() and len(spelt.split()) >= BARE_MIN_WORDS:
        found += [plain for name in found if (plain := without_accents(name)) != name]
    return found


def placed_parts(surface: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Return where "Casino, New South Wales" has the town and the state; None for other names.

    What follows the comma is all capitals: a rank ("Albert, Duke of Prussia") is held by several.
    """
    match = _PLACED.fullmatch(surface)
    if match is None or match[2].replace(".", "").lower() in _SUFFIXES:
        return None
    is_place = all(word[:1].isupper() for word in match[2].split())
    return (match.span(1), match.span(2)) if is_place else None


def _label(content: str, start: int) -> Subject | None:
    match = _LABEL.match(content, start)
    if match is None:
        return None
    group = 1 if match.group(1) is not None else 2
    text = match.group(group).strip()
    if len(text) > LABEL_MAX_CHARS or text.lower() in _CHECKBOX or not fold_name(text):
        return None
    return ("label", *match.span(group))


def _key(content: str) -> list[Subject]:
    match = _key_match(content)
    if match is None or fold_name(match.group(1)) in GENERIC_KEYS:
        return []
    return _with_and_without_parenthesis("key", content, *match.span(1))


def _key_match(content: str) -> re.Match[str] | None:
    match = _KEY.match(content, 0, KEY_MAX_CHARS + 8)
    if match is None or len(match.group(1)) > KEY_MAX_CHARS:
        return None
    key = [word.folded for word in words(match.group(1))]
    is_long = any(len(w) > UNSEGMENTED_KEY_MAX_CHARS and unsegmented_script(w) for w in key)
    if len(key) > KEY_MAX_WORDS or is_long or not CLAUSE_WORDS.isdisjoint(key):
        return None
    return match


def _leading_run(content: str, tokens: list[Word]) -> list[Subject]:
    runs = capitalised_runs(content, tokens)
    if not runs:
        return []
    lead, name = fold_name(content[: runs[0].start]), fold_name(content[slice(*runs[0])])
    # A word that the memory also uses in lower case, or that names a sort of thing, is no subject.
    is_common = name in GENERIC_KEYS or any(
        word.folded == name and content[word.start].islower() for word in tokens
    )
    is_first = not lead or lead in FUNCTION_WORDS
    return [("leading", runs[0].start, runs[0].end)] if is_first and not is_common else []
