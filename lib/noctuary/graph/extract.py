"""One memory in, its findings out; and the dictionary of subjects, found in other memories."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple, cast, get_args

from noctuary.core.errors import StoreError
from noctuary.core.files import hash_text
from noctuary.graph import names
from noctuary.graph import patterns as subjects
from noctuary.graph.fold import Word, fold_name, fold_word, word_pattern, words
from noctuary.graph.names import Phrase, find_runs, has_capital, phrase_after, phrase_before
from noctuary.graph.patterns import Statement, find_statements
from noctuary.graph.tables import NO_SPAN, Role, StatedRelation
from noctuary.graph.word_lists import CALENDAR_WORDS, FUNCTION_WORDS, SPEAKER_KEYS
from noctuary.sources.corpus import iter_batches
from noctuary.text.dates import Date, find_dates, find_identifiers
from noctuary.text.marks import content_tags
from noctuary.work.content import KEY_BYTES
from noctuary.work.shards import BatchFunction, RecordBatch

# The findings of one memory and their JSON for the cache.

# Raised whenever the same memory may give another extraction; part of every cache key.
EXTRACTOR_VERSION = 5
# Kinds of concept, strongest first: a concept has the strongest kind that any memory gives it.
# `placed` is the town or the state of a title "Town, State"; `stated` a side of a statement that no
# other rule found; `run` a stop-word-free run, of which only those that the whole corpus bears out
# become concepts.
KINDS = (
    "title", "heading", "key", "label", "leading", "tag", "keyword", "speaker", "session", "url",
    "email", "path", "ticket", "date", "version", "identifier", "quoted", "name", "placed",
    "stated", "run",
)  # fmt: skip
_KNOWN = {(role, kind) for role in get_args(Role) for kind in KINDS}
_RELATIONS = frozenset(cast("tuple[str, ...]", get_args(StatedRelation)))


class Found(NamedTuple):
    """One finding of the extractor."""

    role: Role
    kind: str
    name: str  # its folded name, never empty
    start: int  # first character in the content, or NO_SPAN
    end: int  # one past the last character, or NO_SPAN
    surface: str  # as the content has it; a subject also under its other spellings


class Stated(NamedTuple):
    """A relation that the text states between two names."""

    # folded name; "" only where the memory itself is the subject, "#" + id where another memory is
    # ("resolves #12": #12 resolved_by #)
    subject: str
    # the value. `has` of an attribute: "my manager is Dana" is `user manager` has `dana`;
    # `has` of the memory itself with another one: a plain link ("see [[12]]")
    relation: StatedRelation
    # folded name, never empty; "#" + id where another memory is meant ("supersedes #12"), "#" alone
    # where the memory itself is
    object: str
    start: int  # of the whole statement in the content, or NO_SPAN
    end: int
    # text that folds to the subject: as authored, the speaker for "I", "X's Y" for "my Y"
    subject_surface: str
    object_surface: str


@dataclass(frozen=True, slots=True)
class Extraction:
    """All findings of one memory, by start, end, role, kind and name; a pure function of it."""

    found: tuple[Found, ...]
    # the relations stated, sorted by start, end, relation, subject, object
    stated: tuple[Stated, ...] = ()
    # (alias, canonical name, why) that the text gives, both folded, sorted
    aliases: tuple[tuple[str, str, str], ...] = ()


def encode_extraction(found: Extraction) -> bytes:
    """Return the form in which findings are kept: JSON in UTF-8 with the extractor's version."""
    fields = {"found": found.found, "stated": found.stated, "aliases": found.aliases}
    kept = {"version": EXTRACTOR_VERSION, **fields}
    return json.dumps(kept, ensure_ascii=False).encode("utf-8")


def decode_extraction(kept: bytes) -> Extraction:
    """Read the output of `encode_extraction`; raise StoreError for another version."""
    try:
        value = json.loads(kept)
        found = tuple(Found(*item) for item in value["found"])
        stated = tuple(Stated(*item) for item in value["stated"])
        aliases = tuple((str(a), str(b), str(c)) for a, b, c in value["aliases"])
        unknown = {(i.role, i.kind) for i in found} - _KNOWN
        if value["version"] != EXTRACTOR_VERSION or unknown:
            raise ValueError(f"version {value['version']!r}, unknown {sorted(unknown)}")  # noqa: TRY301
        if not {item.relation for item in stated} <= _RELATIONS:
            raise ValueError("an unknown relation")  # noqa: TRY301
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"found a damaged extraction or one of another version ({error}), expected version "
            f"{EXTRACTOR_VERSION}: drop the cached row and extract again"
        ) from error
    return Extraction(found, stated, aliases)


# Other names that one memory gives for the same thing: "also known as", initials, first names.

ALIASES_MAX = 16  # aliases taken per memory; limits how much a glossary adds

INITIALS_MIN = 2
INITIALS_MAX = 8  # fewest and most initials of "X (ABC)"
FULL_NAME_MAX_WORDS = 3  # longest full name that its first word alone can abbreviate

_KNOWN_AS = re.compile(
    r"[,(]?\s?\(?(?:a\.k\.a\.|aka|(?:also|better|formerly|previously)\s(?:known\sas|called))"
    r"[:,]?(?=\s)",
    re.IGNORECASE,
)
_KNOWN_AS_HINT = re.compile(r"\b(?:aka|a\.k\.a|known as|called)\b", re.IGNORECASE)
_INITIALS = re.compile(rf"\s\(([A-Z][A-Z0-9&]{{{INITIALS_MIN - 1},{INITIALS_MAX - 1}}})s?\)")
_NAME_KINDS = frozenset({"leading", "speaker", "key", "label", "name", "title"})
_PERSONAL_PRONOUNS = frozenset({"he", "her", "him", "his", "she"})
_PARENTHESIS_LOOK_BACK = 84
_PARENTHESIS = re.compile(r"\s?\([^()\n]{0,80}\)\Z")


def aliases_of(
    content: str,
    tokens: Sequence[Word],
    found: Iterable[Found],
    dates: Sequence[Date] = (),
    people: Collection[str] = (),
) -> list[tuple[str, str, str]]:
    """Return (alias, name, why) that one memory gives, folded and sorted, at most ALIASES_MAX."""
    pairs = [
        *_known_as(content, tokens),
        *_initials(content, tokens),
        *_first_names(found, people, tokens),
        *((content[date.start : date.end], date.iso, "same date") for date in dates),
    ]
    named = sorted({(fold_name(a), fold_name(c), detail) for a, c, detail in pairs})
    return [item for item in named if item[0] and item[1] and item[0] != item[1]][:ALIASES_MAX]


def _known_as(content: str, tokens: Sequence[Word]) -> Iterator[tuple[str, str, str]]:
    if _KNOWN_AS_HINT.search(content) is None:
        return
    starts = [word.start for word in tokens]
    for match in _KNOWN_AS.finditer(content):
        place = match.start()
        low = max(0, place - _PARENTHESIS_LOOK_BACK)
        if (aside := _PARENTHESIS.search(content[low:place])) is not None:
            place = low + aside.start()
        name = phrase_before(content, tokens, bisect_left(starts, place))
        other = phrase_after(content, tokens, match.end(), bisect_left(starts, match.end()))
        if name is not None and other is not None and has_capital(content, tokens, name):
            detail = match.group().strip(" ,(")
            yield _text(content, tokens, other), _text(content, tokens, name), detail


def _initials(content: str, tokens: Sequence[Word]) -> Iterator[tuple[str, str, str]]:
    if "(" not in content:
        return
    ends = {word.end: index for index, word in enumerate(tokens)}
    for match in _INITIALS.finditer(content):
        last = ends.get(match.start())
        first = None if last is None else _spelled_by(match.group(1), content, tokens, last)
        if first is not None and last is not None:
            name = content[tokens[first].start : tokens[last].end]
            yield match.group(1), name, f"initials ({match.group(1)})"


def _spelled_by(initials: str, content: str, tokens: Sequence[Word], last: int) -> int | None:
    """Return the first word of the phrase that has these initials, small words passed over."""
    wanted = [letter for letter in initials.lower() if letter.isalnum()]
    index = last + 1
    while wanted:
        index -= 1
        if (
            index < 0
            or last - index > 2 * INITIALS_MAX
            or "\n" in content[tokens[index].end : tokens[last].start]
        ):
            return None
        if tokens[index].folded[0] == wanted[-1]:
            wanted.pop()
        elif tokens[index].folded not in FUNCTION_WORDS:
            return None
    return index


def _first_names(
    found: Iterable[Found], people: Collection[str], tokens: Sequence[Word]
) -> Iterator[tuple[str, str, str]]:
    has_pronoun = any(word.folded in _PERSONAL_PRONOUNS for word in tokens)
    items = [item for item in found if item.kind in _NAME_KINDS]
    names = {item.name for item in items}
    persons = set(people) | {
        i.name for i in items if has_pronoun and i.role in ("about", "speaker")
    }
    full: dict[str, set[str]] = {}
    for item in items:
        parts = item.surface.split()
        first = item.name.split(" ", 1)[0]
        is_full = 1 < len(parts) <= FULL_NAME_MAX_WORDS and first not in SPEAKER_KEYS
        if is_full and all(p[0].isupper() and p.rstrip(".").isalpha() for p in parts):
            full.setdefault(first, set()).add(item.name)
    for first, candidates in full.items():
        if first in names and len(candidates) == 1 and not persons.isdisjoint({first, *candidates}):
            yield first, next(iter(candidates)), "first name"


def _text(content: str, tokens: Sequence[Word], phrase: Phrase) -> str:
    return content[tokens[phrase.first].start : tokens[phrase.last].end]


# One memory in, its findings out: pure, deterministic, no model, cacheable by content.

_PERSONAL = frozenset({"lives_in", "prefers", "works_at"})


def extract(
    content: str, tags: str = "", expanded_keywords: str = "", *, is_turn: bool = False
) -> Extraction:
    """Return the subjects, names, statements and tags of one memory."""
    tokens = words(content)
    dates = find_dates(content)
    found: list[Found] = []
    if (said_by := subjects.speaker_prefix(content, is_turn=is_turn)) is not None:
        found += _located(content, "speaker", "speaker", *said_by)
    for subject in subjects.find_subjects(content, tokens, is_turn=is_turn):
        found += _about(content, *subject)
    own = {item.name for item in found if item.role != "mentions"}
    found += (item for item in _mentions(content, tokens, dates) if item.name not in own)
    taken = [(item.start, item.end) for item in found]
    runs = find_runs(content, tokens, taken)
    speaker = next((item.surface for item in found if item.role == "speaker"), "")
    # The subject that comes first; of two on one spot the one without its parenthesis.
    about = [item for item in found if item.role == "about"]
    main = min(about, key=lambda item: (item.start, item.end), default=None)
    statements = find_statements(content, tokens, speaker, "" if main is None else main.surface)
    people = [item.subject for item in statements if item.relation in _PERSONAL]
    people += [item.object for item in statements if item.relation == "has"]
    aliases = aliases_of(content, tokens, found, dates, {side.name for side in people})
    found += _of_statements(content, statements, {item.name for item in found})
    for start, end in runs:
        found += _located(content, "mentions", "run", start, end)
    found += _author_fields(tags, expanded_keywords)
    return Extraction(
        tuple(sorted(set(found), key=found_order)), _stated(statements), tuple(aliases)
    )


def _about(content: str, kind: str, start: int, end: int) -> Iterator[Found]:
    """Yield a subject under each of its spellings, and town and state of "Town, State"."""
    surface = content[start:end]
    named: dict[str, str] = {}
    for spelt in subjects.spellings(surface):
        named.setdefault(fold_name(spelt), spelt)
    yield from (Found("about", kind, name, start, end, s) for name, s in named.items() if name)
    for first, last in subjects.placed_parts(surface) or ():
        yield from _located(content, "mentions", "placed", start + first, start + last)


def _mentions(content: str, tokens: list[Word], dates: Sequence[Date]) -> Iterator[Found]:
    dated = {(date.start, date.end) for date in dates}
    spans = [(start, end, "date") for start, end in sorted(dated)]
    spans += (found for found in find_identifiers(content) if found[:2] not in dated)
    spans += ((start, end, "quoted") for start, end in names.quoted_strings(content))
    spans += ((start, end, "name") for start, end in names.capitalised_runs(content, tokens))
    for start, end, kind in spans:
        yield from _located(content, "mentions", kind, start, end)


def _of_statements(
    content: str, statements: Sequence[Statement], known: set[str]
) -> Iterator[Found]:
    """Yield the sides of statements that no other rule found, so that each of them is a name."""
    for side in (side for item in statements for side in (item.subject, item.object)):
        name = "" if side.is_memory else fold_name(side.surface)
        if name and name not in known:
            is_literal = content[max(side.start, 0) : max(side.end, 0)] == side.surface
            start, end = (side.start, side.end) if is_literal else (NO_SPAN, NO_SPAN)
            yield Found("mentions", "stated", name, start, end, side.surface)


def _stated(statements: Iterable[Statement]) -> tuple[Stated, ...]:
    return sort_stated(
        Stated(
            item.subject.name, item.relation, item.object.name, item.start, item.end,
            item.subject.surface, item.object.surface,
        )
        for item in statements
        if item.subject.name != item.object.name
        and item.object.name
        and (item.subject.name or not item.subject.surface)
    )  # fmt: skip


def _located(content: str, role: Role, kind: str, start: int, end: int) -> Iterator[Found]:
    surface = content[start:end]
    if name := fold_name(surface):
        yield Found(role, kind, name, start, end, surface)


def _author_fields(tags: str, expanded_keywords: str) -> Iterator[Found]:
    fields = [("tag", tag) for tag in content_tags(tags)]
    fields += [("keyword", keyword) for keyword in expanded_keywords.split()]
    for kind, surface in fields:
        if name := fold_name(surface):
            yield Found("author", kind, name, NO_SPAN, NO_SPAN, surface)


def found_order(item: Found) -> tuple[int, int, str, str, str, str]:
    """Return the sort key of findings in an `Extraction`."""
    return (item.start, item.end, item.role, item.kind, item.name, item.surface)


def sort_stated(items: Iterable[Stated]) -> tuple[Stated, ...]:
    """Return statements in the order of an `Extraction`, without repeats."""
    return tuple(sorted(set(items), key=lambda item: (*item[3:5], item.relation, *item)))


# Extraction of many memories as a task over record batches.

# Kind of the fragments: another extractor's are not found.
EXTRACTION_KIND = f"extraction:{EXTRACTOR_VERSION}"
# Columns that findings depend on, in the order of `extract` and of the key.
EXTRACTION_COLUMNS = ("content", "tags", "expanded_keywords", "is_turn")


@dataclass(frozen=True, slots=True)
class ExtractMemories:
    """Gives `key` and `value` (as `encode_extraction`) for rows of `key` and EXTRACTION_COLUMNS."""

    name = "extractions"
    row_ms = 0.3  # roughly, for a memory of 200 characters on one core

    def open(self, threads: int) -> BatchFunction:
        """See `BatchTask`; one thread is used."""
        del threads
        return _extract_batch


def extraction_key(content: str, tags: str, expanded_keywords: str, is_turn: bool) -> bytes:
    """Return the key of a memory's findings: the SHA-256 of the fields that are read."""
    kind = "turn" if is_turn else "memory"
    return bytes.fromhex(hash_text(content, tags, expanded_keywords, kind))


def iter_keyed(memories: Path) -> Iterator[RecordBatch]:
    """Yield the columns that the task reads, by position."""
    yield from map(add_keys, iter_batches(memories, EXTRACTION_COLUMNS))


def add_keys(batch: RecordBatch) -> RecordBatch:
    """Return EXTRACTION_COLUMNS of memories with their keys in front, as `key`."""
    import pyarrow as pa

    columns = [batch.column(name) for name in EXTRACTION_COLUMNS]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    keys = pa.array([extraction_key(*row) for row in rows], pa.binary(KEY_BYTES))
    return pa.RecordBatch.from_arrays([keys, *columns], names=["key", *EXTRACTION_COLUMNS])


def _extract_batch(batch: RecordBatch) -> RecordBatch:
    import pyarrow as pa

    columns = [batch.column(name).to_pylist() for name in EXTRACTION_COLUMNS]
    values = [
        encode_extraction(extract(*texts, is_turn=is_turn))
        for *texts, is_turn in zip(*columns, strict=True)
    ]
    made = [batch.column("key"), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(made, names=["key", "value"])


# The subject dictionary, and where other memories name those subjects.

SUBJECT_MIN_CHARS = 3  # shortest folded name looked for; shorter ones are initials and chance hits

# Longest name looked for, in words; longer ones never recur and cost look-ups.
SUBJECT_MAX_WORDS = 12
# Most characters between two words of one name (" & ", ". ", " ("); more is another phrase.
GAP_MAX_CHARS = 3
# Equivalent to `word_pattern` on ASCII text, in half the time.
_ASCII_WORD = re.compile("([A-Za-z0-9]+(?:'[A-Za-z0-9]+)*)")


class Match(NamedTuple):
    """A dictionary name found in a text (offsets into it, end exclusive)."""

    name: str
    start: int
    end: int


class Dictionary:
    """Names to look for, each with whether a mention must show a capital or a digit."""

    def __init__(self, cased: Mapping[str, bool]) -> None:
        self.cased = cased
        # By first word of names, by their second word, the lengths in words of the names that begin
        # so, longest first; empty where a name is that one word.
        self.seconds: dict[str, dict[str, tuple[int, ...]]] = {}
        for name in cased:
            first, *others = name.split(" ")
            following = self.seconds.setdefault(first, {})
            if others:
                lengths = {len(others) + 1, *following.get(others[0], ())}
                following[others[0]] = tuple(sorted(lengths, reverse=True))


class Tokens:
    """The folded words of a text as `fold.words` gives them, at a third of the price if plain."""

    def __init__(self, text: str) -> None:
        self._text = text
        # Texts between words and words in turn: lengths add up to places without a match object.
        plain = text.isascii()
        pattern = _ASCII_WORD if plain else _splitter(word_pattern(text))
        self._parts: list[str] = pattern.split(text)
        raw = self._parts[1::2]
        if plain and "'" not in text:
            self.folded = list(map(str.lower, raw))
        else:
            # Most words need no look-up.
            folded = (w.lower() if w.isascii() and w.isalnum() else fold_word(w) for w in raw)
            self.folded = list(filter(None, folded))

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each word in the text."""
        ends = list(accumulate(map(len, self._parts)))
        spans = list(zip(ends[::2], ends[1::2], strict=False))
        if len(spans) == len(self.folded):
            return spans
        return [s for s, w in zip(spans, self._parts[1::2], strict=True) if fold_word(w)]

    def shows_case(self, index: int) -> bool:
        """Return whether a word has a capital or a digit."""
        start, end = self.spans[index]
        return any(char.isupper() or char.isdigit() for char in self._text[start:end])

    def is_unbroken(self, first: int, last: int) -> bool:
        """Return whether words are close enough to be one name: no line break, short gaps."""
        around = pairwise(self.spans[first : last + 1])
        gaps = (self._text[left[1] : right[0]] for left, right in around)
        return all(len(gap) <= GAP_MAX_CHARS and "\n" not in gap for gap in gaps)


@cache
def _splitter(pattern: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(f"({pattern.pattern})", pattern.flags)


def needs_case(name: str, surface: str) -> bool:
    """Return whether only mentions with a capital or a digit count for this name."""
    return surface[:1].isupper() and (" " not in name or _is_small(name))


def find_matches(
    text: str, dictionary: Dictionary, own: Collection[str] = (), tokens: Tokens | None = None
) -> list[Match]:
    """Return the mentions of dictionary names in a text.

    At each word the longest name that fits is taken and its words are used up, so that a name
    inside a longer one is not a mention. The text's own subjects use up their words too, without
    being mentions.
    """
    tokens = Tokens(text) if tokens is None else tokens
    folded, seconds, cased = tokens.folded, dictionary.seconds, dictionary.cased
    found: list[Match] = []
    used: set[int] = set()
    padded = [*folded, ""]
    for index in [i for i, word in enumerate(folded) if word in seconds]:
        sizes = seconds[folded[index]].get(padded[index + 1], ())
        # Most first words, "the" above all, begin nothing here.
        if index in used or not (sizes or folded[index] in cased):
            continue
        size = _longest_at(tokens, index, (*sizes, 1), cased)
        used.update(range(index, index + size))
        name = " ".join(folded[index : index + size])
        if size and name not in own:
            found.append(Match(name, tokens.spans[index][0], tokens.spans[index + size - 1][1]))
    return found


def _longest_at(tokens: Tokens, index: int, sizes: Sequence[int], cased: Mapping[str, bool]) -> int:
    """Return the first of the sizes in words that a name at this word has, 0 where none has."""
    folded = tokens.folded
    for size in sizes:
        name = folded[index : index + size]
        needs_capital = cased.get(" ".join(name)) if len(name) == size else None
        ends = (index, index + size - 1)
        shows_enough = needs_capital is False or (
            needs_capital and all(map(tokens.shows_case, ends))
        )
        if shows_enough and tokens.is_unbroken(index, index + size - 1):
            return size
    return 0


def is_looked_for(name: str, surface: str) -> bool:
    """Return whether to search for a name: not too short or long, and not only small words.

    Two small words or more are a name where the first and the last have a capital: The Who.
    """
    parts = name.split(" ")
    if len(name) < SUBJECT_MIN_CHARS or len(parts) > SUBJECT_MAX_WORDS:
        return False
    if all(part.isdigit() for part in parts):
        return False
    return not _is_small(name) or (len(parts) > 1 and _has_capitals_at_ends(surface))


def _is_small(name: str) -> bool:
    return all(part in FUNCTION_WORDS or part in CALENDAR_WORDS for part in name.split(" "))


def _has_capitals_at_ends(surface: str) -> bool:
    parts = surface.strip("\"'“”‘’.?!… ").split()
    return bool(parts) and parts[0][0].isupper() and parts[-1][0].isupper()
