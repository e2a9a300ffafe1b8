"""The verbs that state a relation, each with how its sides are read.

Belongs here: one rule per construction, English only. Does not belong here: sides (`reader`),
owners and what is theirs (`possessives`), what a memory names without stating it (`names`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from noctuary.graph.fold import Word
from noctuary.graph.model import NO_SPAN, StatedRelation
from noctuary.graph.phrases import is_adverb, is_closed
from noctuary.graph.possessives import CUES as OWNER_CUES
from noctuary.graph.possessives import read_owned
from noctuary.graph.reader import FIRST_PERSONS, THIS_MEMORY, USER, Reader, Side, Statement

STATEMENTS_MAX = 24
"""Statements taken per memory, the first ones; bounds what a pasted document adds to the graph."""

KIND_MAX_WORDS = 3
"""Longest noun phrase after "is a", counted from its head; a longer one describes and sorts not."""

KIND_LOOK_WORDS = 7
"""Words read to find that head."""

_PASSIVE_WORDS = frozenset({"am", "are", "be", "been", "being", "got", "is", "was", "were"})
_BASE_FORMS = frozenset({"live", "prefer", "reside", "work"})
_NO_KIND_TEXT = """
    bit blast bunch challenge chance couple day deal experience fan fun good great hit idea joy kind
    lot lots mess moment must number one pain pair part place pleasure reminder shame sign sort
    step struggle thing time treat type way while win word year
"""
_NO_KIND = frozenset(_NO_KIND_TEXT.split())
_NO_KIND_ENDS = frozenset({"of", "one", "part", "thing", "things"})

_Read = Callable[[Reader, int, re.Match[str]], Iterator[Statement]]


class Rule(NamedTuple):
    """A construction: a pattern that is tried where its first word stands, and how to read on."""

    cue: re.Pattern[str]
    read: _Read


def find_statements(
    content: str, tokens: Sequence[Word], speaker: str = "", about: str = ""
) -> list[Statement]:
    """Return what a text states, left to right, at most STATEMENTS_MAX.

    Questions, denials, wishes, conditions and fenced code state nothing. "I", "my", "we" and "our"
    are the speaker, "user" where nobody is named; other pronouns are not resolved, and what they
    would state is left out. `X's Y is Z` is read as `X's Y` has `Z`.

    Args:
        content: The text.
        tokens: Its words (`noctuary.graph.fold.words`).
        speaker: Surface of who speaks, "" where nobody is named.
        about: Surface of the memory's own subject, which a left-out subject means; "" without one.
    """
    owners = {match.start() for match in _OWNER_MARK.finditer(content)}
    if not owners and _CUES.isdisjoint([word.folded for word in tokens]):
        return []
    reader = Reader(content, tokens, speaker, about)
    found: list[Statement] = []
    for index, word in enumerate(tokens):
        for rule in RULES.get(word.folded, ()):
            match = rule.cue.match(content, word.start)
            if match is not None and reader.clauses.may_state(index):
                found += rule.read(reader, index, match)
        if word.folded in OWNER_CUES or word.end - 2 in owners:
            found += read_owned(reader, index)
        if len(found) >= STATEMENTS_MAX:
            break
    return found[:STATEMENTS_MAX]


def _statement(
    subject: Side, relation: StatedRelation, thing: Side, cue: re.Match[str]
) -> Statement:
    starts = [side.start for side in (subject, thing) if side.start != NO_SPAN]
    return Statement(
        subject,
        relation,
        thing,
        min([cue.start(), *starts]),
        max(cue.end(), subject.end, thing.end),
    )


def _left_out(reader: Reader, index: int, *, personal: bool) -> Side | None:
    """Return what a verb without a subject is said of, where it opens its sentence."""
    word = reader.tokens[index].folded
    if not reader.clauses.begins(index) or (personal and not word.endswith(("s", "moved"))):
        return None
    surface = reader.holder if personal else reader.about
    return Side(surface, NO_SPAN, NO_SPAN) if surface else None


def _requires(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject = reader.subject(index)
    if subject is None or subject.surface not in (reader.holder, USER, USER.capitalize()):
        yield from _plain("depends_on", several=True)(reader, index, cue)


def _plain(relation: StatedRelation, *, reverse: bool = False, several: bool = False) -> _Read:
    """Return a reader of `subject verb object` about things."""

    def read(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
        subject = reader.subject(index) or _left_out(reader, index, personal=False)
        things = reader.objects(cue.end()) if several else [reader.object(cue.end())]
        for thing in things:
            if thing is not None:
                yield from _of_things(subject, relation, thing, cue, reverse=reverse)

    return read


def _of_things(
    subject: Side | None,
    relation: StatedRelation,
    thing: Side,
    cue: re.Match[str],
    *,
    reverse: bool,
) -> Iterator[Statement]:
    if thing.is_memory and (subject is None or relation == "supersedes"):
        # A memory is replaced by a memory, whatever the sentence names as its subject.
        subject = Side(THIS_MEMORY if reverse else "", NO_SPAN, NO_SPAN)
    elif subject is None and relation == "supersedes" and not reverse:
        subject = Side("", NO_SPAN, NO_SPAN)
    if subject is None or subject.surface == thing.surface:
        return
    if reverse:
        subject, thing = thing, subject
    yield _statement(subject, relation, thing, cue)


def _personal(relation: StatedRelation, *, proper: bool, several: bool = False) -> _Read:
    """Return a reader of `somebody verb object`; `proper` asks for a capitalised object."""

    def read(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
        subject = reader.subject(index) or _left_out(reader, index, personal=True)
        if subject is None or not reader.is_person(subject) or _is_noun(reader, index, subject):
            return
        for thing in reader.objects(cue.end()) if several else [reader.object(cue.end())]:
            if thing is not None and (reader.is_proper(thing) or not proper):
                yield _statement(subject, relation, thing, cue)

    return read


def _is_noun(reader: Reader, index: int, subject: Side) -> bool:
    """Say whether a form is no verb here: "Maria's volunteer work at", "Dana began working at"."""
    is_base = reader.tokens[index].folded in _BASE_FORMS
    if reader.tokens[index].folded.endswith("ing"):
        before = reader.tokens[index - 1] if index else None
        return before is None or not (is_adverb(before) or before.folded in FIRST_PERSONS)
    return is_base and subject.surface != reader.holder


def _replaces(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    if index and reader.tokens[index - 1].folded in _PASSIVE_WORDS:
        return
    things = reader.objects(cue.end())
    if not things:
        return
    by = _WITH.match(reader.content, things[-1].end)
    if by is not None:
        newer = reader.object(by.end())
        if newer is not None:
            yield from (_statement(newer, "supersedes", thing, cue) for thing in things)
        return
    subject = reader.subject(index) or _left_out(reader, index, personal=False)
    if subject is None and not reader.clauses.begins(index) and not things[0].is_memory:
        return
    if subject is None or subject.surface != reader.holder or things[0].is_memory:
        for thing in things:
            yield from _of_things(subject, "supersedes", thing, cue, reverse=False)


def _replaced_by(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject = reader.subject(index)
    if subject is not None and subject.surface == reader.holder:
        return
    yield from _plain("supersedes", reverse=True)(reader, index, cue)


def _switched(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
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


def _moved_to(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject = reader.subject(index) or _left_out(reader, index, personal=True)
    thing = reader.object(cue.end())
    if thing is None or _FROM.match(reader.content, thing.end):
        return
    if subject is not None and _may_live(reader, index, subject, thing):
        yield _statement(subject, "lives_in", thing, cue)


def _may_live(reader: Reader, index: int, subject: Side, place: Side) -> bool:
    """Say whether a move is one of house: outside chat, "we moved to X" is said of tools too."""
    if not reader.is_person(subject) or not reader.is_proper(place):
        return False
    return reader.is_chat or not _is_we(reader, index)


def _is_we(reader: Reader, index: int) -> bool:
    return index > 0 and reader.tokens[index - 1].folded in ("we", "weve")


def _no_longer(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    older = reader.object(cue.end())
    turn = None if older is None else _NOW.match(reader.content, older.end)
    newer = None if turn is None else reader.object(turn.end())
    if older is not None and newer is not None and not older.is_memory:
        yield _statement(newer, "supersedes", older, cue)


def _is_now(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject, thing = reader.subject(index), reader.object(cue.end())
    if subject is None or thing is None or thing.is_memory:
        return
    is_action = thing.surface.islower() and thing.surface.split()[0].endswith("ing")
    if not is_action and reader.is_named_or_closed(thing, cue.end()):
        yield _statement(subject, "is_now", thing, cue)


def _is_a(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    word = reader.tokens[index]
    subject = reader.holder_at(index) if word.folded == "im" else reader.subject(index)
    thing = _kind(reader, cue.end())
    if subject is None or thing is None or not reader.is_person(subject):
        return
    is_past = word.folded == "was" and subject.surface == reader.holder
    if "'s " not in subject.surface.replace("’", "'") and not is_past:
        yield _statement(subject, "is_a", thing, cue)


def _kind(reader: Reader, place: int) -> Side | None:
    """Return the head of the noun phrase at an offset: its last words in lower case."""
    tokens, content = reader.tokens, reader.content
    first = last = reader.word_at(place)
    while last < len(tokens) and not is_closed(tokens[last]) and last - first < KIND_LOOK_WORDS:
        gap = content[(tokens[last - 1].end if last > first else place) : tokens[last].start]
        if gap not in ("", " ", "-"):
            break
        last += 1
    if last < len(tokens) and tokens[last].folded in _NO_KIND_ENDS:
        return None
    while last > first and tokens[last - 1].folded.endswith(("ed", "ing")):
        last -= 1
    head = last
    while (
        head > first and last - head < KIND_MAX_WORDS and content[tokens[head - 1].start].islower()
    ):
        head -= 1
    if head == last or last - first >= KIND_LOOK_WORDS or tokens[last - 1].folded in _NO_KIND:
        return None
    start, end = tokens[head].start, tokens[last - 1].end
    return Side(content[start:end], start, end)


def _likes_better(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
    subject, thing = reader.subject(index), reader.object(cue.end())
    better = None if thing is None else _BETTER.search(thing.surface)
    if subject is None or thing is None or better is None or not reader.is_person(subject):
        return
    end = thing.start + better.start()
    yield _statement(
        subject, "prefers", Side(reader.content[thing.start : end], thing.start, end), cue
    )


def _see(reader: Reader, index: int, cue: re.Match[str]) -> Iterator[Statement]:
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
    (
        "supersedes superseded replaces replaced obsoletes",
        r"\w+(?=[\s:])(?!\s(?:by|with)\b)", _replaces,
    ),
    ("superseded replaced obsoleted", r"\w+\s(?:by|with)(?=[\s:])", _replaced_by),
    (
        "switched migrated moved changed upgraded transitioned relocated",
        r"\w+\s(?:over\s|back\s)?(from|to)(?=\s)", _switched,
    ),
    ("moved relocated", r"\w+\s(?:(?:back|over|out)\s)?to(?=\s)", _moved_to),
    ("no", rf"no\slonger\s{_USING}", _no_longer),
    ("is are", r"\w+\snow(?=\s)(?:\s(?:called|named|known\sas)(?=\s))?", _is_now),
    (
        "depends depend relies rely",
        r"\w+\s(?:(?:heavily|only|also|directly)\s)?on(?=\s)", _plain("depends_on", several=True),
    ),
    ("requires require", r"\w+(?=\s)", _requires),
    ("is are was were", rf"\w+\s{_STILL}(?:an?\s)?part\sof(?=\s)", _plain("part_of")),
    ("belongs belong", r"\w+\sto(?=\s)", _plain("part_of")),
    ("is was am im", r"[\w'’]+\san?(?=\s)", _is_a),
    (
        "prefers prefer",
        r"\w+(?:\s(?:to\suse|using))?(?=\s)", _personal("prefers", proper=False, several=True),
    ),
    ("likes like", r"\w+(?=\s)", _likes_better),
    (
        "works work working",
        r"\w+\s(?:at(?=\s)|for(?=\s(?:an?\s|the\s|(?-i:[A-Z]))))",
        _personal("works_at", proper=False),
    ),
    ("employed", r"employed\s(?:by|at)(?=\s)", _personal("works_at", proper=False)),
    (
        "lives live living resides reside based",
        r"\w+\sin(?=\s)", _personal("lives_in", proper=True),
    ),
    ("owned", r"owned\sby(?=\s)", _plain("owned_by")),
    ("owns", r"owns(?=\s)", _plain("owned_by", reverse=True)),
    ("resolved fixed solved closed", r"\w+\sby(?=\s)", _plain("resolved_by")),
    ("resolves fixes solves closes", r"\w+(?=[\s:])", _plain("resolved_by", reverse=True)),
    ("see", r"see(?:\salso)?(?=[\s:])", _see),
)  # fmt: skip


def _by_first_word() -> Mapping[str, tuple[Rule, ...]]:
    rules: dict[str, tuple[Rule, ...]] = {}
    for first_words, pattern, read in _TABLE:
        rule = Rule(_cue(pattern), read)
        for word in first_words.split():
            rules[word] = (*rules.get(word, ()), rule)
    return rules


RULES = _by_first_word()
"""Rules by the folded word that they begin with."""

_CUES = frozenset(RULES) | OWNER_CUES
