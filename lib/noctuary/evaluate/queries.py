"""The queries of a nightly evaluation: labelled queries, phrases, and questions by rule."""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import FileFaultsError, SourceError
from noctuary.core.files import hash_text
from noctuary.core.store import DatabaseName, SourceName
from noctuary.core.types import MemoryRecord
from noctuary.evaluate.labels import QUERIES_FILE, USER_KEY, Query, QuerySet, read_queries
from noctuary.recall.query import Mask
from noctuary.recall.reader import SnapshotReader
from noctuary.sources.corpus import RecordFile, iter_batches
from noctuary.text.marks import plural
from noctuary.text.secrets import leave_ascii
from noctuary.text.tokens import (
    MARKS,
    NGRAM_CHARS,
    STOP_WORDS,
    UNSPACED,
    dominant_script,
    normalize,
    regex_class,
    tokenize,
)

if TYPE_CHECKING:
    import polars as pl

# Queries with an answer that is known: the owner's, and phrases of the corpus.

LABELLED = "labelled"
EXACT = "exact"
UNANSWERABLE = "unanswerable"
GROUPS = (LABELLED, EXACT)  # those that are ranked, in the order of reports


@dataclass(frozen=True, slots=True)
class Questions:
    """Queries by group (ranked, in the order of GROUPS, none empty), with notes."""

    groups: Mapping[str, tuple[Query, ...]] = field(default_factory=dict[str, tuple[Query, ...]])
    unanswerable: tuple[Query, ...] = ()  # the owner's queries that nothing answers
    notes: tuple[str, ...] = ()  # one sentence per omission

    def counts(self) -> dict[str, int]:
        """Return how many queries each group holds."""
        found = {name: len(queries) for name, queries in self.groups.items()}
        return {**found, UNANSWERABLE: len(self.unanswerable)}

    def texts(self) -> list[str]:
        """Return the texts of all queries, the unanswerable ones last."""
        asked = (*self.groups.values(), self.unanswerable)
        return [query.text for queries in asked for query in queries]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, texts included."""
        return {
            "groups": {name: [q.to_json() for q in group] for name, group in self.groups.items()},
            "unanswerable": [query.to_json() for query in self.unanswerable],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`."""
        held = raw["groups"]
        groups = {name: tuple(map(Query.from_json, held[name])) for name in GROUPS if name in held}
        unanswerable = tuple(map(Query.from_json, raw["unanswerable"]))
        return cls(groups, unanswerable, tuple(raw["notes"]))


def find_labels(source: SourceName, configured: str) -> Path | None:
    """Return the file of labelled queries: the configured one, else the one next to the source."""
    if configured:
        return Path(configured).expanduser()
    if isinstance(source, DatabaseName):
        return None
    path = (source if source.is_dir() else source.parent) / QUERIES_FILE
    return path if path.is_file() else None


def gather_questions(memories: Path, labels: Path | None, exact: int) -> Questions:
    """Gather labels (their faults are notes) and so many exact phrases."""
    found, notes = _read_labelled(labels)
    owners = _owners(memories, {i for query in found.ranked for i in query.relevant_ids})
    labelled, gone = _answerable(found.ranked, owners)
    if gone:
        notes.append(f"{plural(gone, 'label')} of memories that the corpus does not hold")
    if dropped := len(found.ranked) - len(labelled):
        notes.append(f"{plural(dropped, 'query', 'queries')} without a label left, not asked")
    phrases = build_exact_queries(RecordFile(memories), exact)
    if not exact:
        notes.append("the exact group is switched off (evaluation.exact_queries = 0)")
    elif len(phrases) < exact:
        asked_some = f"only {len(phrases)} of {exact} exact phrases"
        notes.append(f"{asked_some}, because too few phrases are in one memory only")
    groups = {LABELLED: _ask_as_owner(labelled, owners), EXACT: phrases}
    asked = {name: queries for name, queries in groups.items() if queries}
    return Questions(asked, found.unanswerable, tuple(notes))


def _read_labelled(path: Path | None) -> tuple[QuerySet, list[str]]:
    """Return the queries of the owner's file, and why it is not used if it is not."""
    if path is None:
        note = f"no {QUERIES_FILE} next to the source, so the night asks only phrases of its own"
    else:
        try:
            return read_queries(path), []
        except FileFaultsError as error:
            # Not the message: it quotes values, and this sentence goes into Dagster's event log.
            first = error.faults[0]
            said = f"{len(error.faults)} faults, the first on line {first.line} ({first.kind})"
            hint = f"`noctuary evaluate check {path.parent}` lists them"
            note = f"{path.name} is not used: {said}; {hint}"
        except (SourceError, OSError) as error:
            note = f"labelled queries not used: {error}"
    return QuerySet((), ()), [note]


def _owners(memories: Path, wanted: Collection[str]) -> dict[str, str | None]:
    """Return those of some ids that the corpus holds, with the named user whose each is."""
    if not wanted:
        return {}
    columns = ("memory_id", "user")
    return {
        memory_id: user or None
        for batch in iter_batches(memories, columns)
        for memory_id, user in zip(*(batch.column(c).to_pylist() for c in columns), strict=True)
        if memory_id in wanted
    }


def _answerable(queries: Sequence[Query], known: Collection[str]) -> tuple[tuple[Query, ...], int]:
    """Return the queries with the labels that the corpus still holds, and how many it does not."""
    kept: list[Query] = []
    for query in queries:
        ids = tuple(i for i in query.relevant_ids if i in known)
        grades = {i: grade for i, grade in query.grades.items() if i in known}
        kept.append(replace(query, relevant_ids=ids, grades=grades))
    before, after = (sum(len(q.relevant_ids) for q in group) for group in (queries, kept))
    return tuple(query for query in kept if query.relevant_ids), before - after


def _ask_as_owner(queries: Sequence[Query], owners: Mapping[str, str | None]) -> tuple[Query, ...]:
    """Set each query's user: the one it names, or the owner of a label, who alone may see it."""
    asked: list[Query] = []
    for query in queries:
        named = query.extras.get(USER_KEY) or query.extras.get("user_id")
        found = named or next((o for i in query.relevant_ids if (o := owners.get(i))), None)
        asked.append(replace(query, extras={USER_KEY: str(found)} if found else {}))
    return tuple(asked)


# Questions that a store can answer, made by rule of its own memories: no label, no model. Words of
# the memory make easy questions. So three difficulties, each without the rarest word: nearly all
# words, every second one, and a few that are not rare with the name of the memory's concept.

MEMORIES_ASKED = 60  # more give little more precision and cost a night a second a dozen
MIN_QUESTION_WORDS = 5  # of a memory to make a question of: a shorter one has no words to spare
MAX_QUESTION_WORDS = 8  # words of the longest question
_PIECE_CHARS = 4  # characters per word where no spaces separate any

_EVERYDAY = Path(__file__).with_name("everyday.txt")


def read_everyday() -> list[str]:
    """Return prompts without a memory to find: chores, small talk, general knowledge, commands."""
    return _EVERYDAY.read_text(encoding="utf-8").splitlines()


def make_questions(
    reader: SnapshotReader, mask: Mask | None = None, memories: int = MEMORIES_ASKED
) -> Iterator[tuple[str, str]]:
    """Yield questions of some memories that a mask lets see, by hash of their id, and that id."""
    seen = np.arange(reader.count) if mask is None else np.flatnonzero(mask)
    named = reader.memory_ids(seen.tolist())
    first = heapq.nsmallest(2 * memories, ((hash_text(i), p) for p, i in named.items()))
    rows = reader.describe([position for _, position in first])
    asked = 0
    for _, position in first:
        words = _words(reader, rows[position]["content"])
        if len(words) >= MIN_QUESTION_WORDS and asked < memories:
            asked += 1
            rest = words[1:]  # without the rarest
            held = np.flatnonzero(reader.mentions.positions == position)[:1]
            concept = np.searchsorted(reader.mentions.indptr, held, side="right") - 1
            names = (reader.concept_name(ordinal) for ordinal in concept.tolist())
            few = [*rest[len(rest) // 3 :][:2], next(filter(None, names), rest[0])]
            for some in (rest[:MAX_QUESTION_WORDS], rest[::2][:MAX_QUESTION_WORDS], few):
                yield " ".join(sorted(some, key=hash_text)), named[position]


def _words(reader: SnapshotReader, text: str) -> list[str]:
    """Return the distinct content words of a text, the rarest first."""
    pieces = re.findall(rf"[{_UNSPACED}]{{2,{_PIECE_CHARS}}}|[^\W{_UNSPACED}]+", text)
    rarity: dict[str, float] = {}
    for piece in dict.fromkeys(pieces):
        slices = reader.look_up_terms(tokenize(piece))
        if slices and not (len(piece) < 3 and piece.isascii() and piece.isalpha()):
            rarity[piece] = min(stop - start for start, stop in slices)
    return sorted(rarity, key=lambda piece: (rarity[piece], hash_text(piece)))


# Phrases of a text, as written: contiguous words, or characters where spaces separate none.

MIN_UNITS = 3  # units of the shortest phrase: two rare words are a keyword query, not a phrase
MAX_WORDS = 6  # of the longest phrase: longer ones any search finds, shorter are seldom unique
MAX_GRAMS = 11  # the same for unspaced scripts, in overlapping n-grams: some six words
MIN_SALIENT = 2  # units that are no stop words: with fewer, "of the Xyz" would be a phrase
MAX_PHRASE_CHARS = 120  # longer phrases hold URLs or encoded data, which people do not type

_JOINED = r"(?:[-_./:@'’]{w}+)*"
_ASCII_WORD = re.compile("[0-9a-z_]+" + _JOINED.format(w="[0-9a-z_]"))
_UNSPACED = regex_class(UNSPACED)
_LETTER = rf"(?:[^\W{_UNSPACED}]|[{MARKS}])"
_PART_OF_A_WORD = re.compile(rf"[\w{MARKS}{_UNSPACED}\ud800-\udfff]")
_WORD_OR_RUN = re.compile(
    f"(?P<run>[{_UNSPACED}]+)|(?P<word>{_LETTER}+{_JOINED.format(w=_LETTER)})"
)
_BREAK = re.compile(r"[\n\r.!?;…。！？；，、\x00-\x08\ud800-\udfff]")
"""Between two words: a phrase does not run from one sentence or line into the next (Chinese and
Japanese: clause), nor over a character that cannot be stored."""


class Unit(NamedTuple):
    """A word, or an n-gram of an unspaced script: `text[start:end]` and its case-folded form."""

    start: int
    end: int
    key: str


def fold_text(text: str) -> str:
    """Return the form in which two texts are the same: NFKC, case-folded, single spaces."""
    # The check is far cheaper than normalizing text that nearly always is normal already.
    if not (text.isascii() or unicodedata.is_normalized("NFKC", text)):
        text = normalize(text)
    return " ".join(text.casefold().split())


def read_keys(text: str) -> list[str]:
    """Return the case-folded units of a text in order, stop words among them."""
    if _is_plain(text):
        return _ASCII_WORD.findall(text.lower())
    return [unit.key for unit in _units(text)]


def _is_plain(text: str) -> bool:
    """Return whether all words of a text are ASCII, as in nearly every one, and it is Unicode."""
    return text.isascii() or _PART_OF_A_WORD.search(leave_ascii(text)) is None


def rank_phrases(text: str, rarity: Callable[[str], float]) -> Iterator[str]:
    """Yield the phrases of a text, the rarest (summed idf) first; equal ones in text order."""
    # A phrase lies within one sentence or line, is no longer than half of the text, and neither
    # begins nor ends with a stop word if it can do without.
    most = MAX_GRAMS if dominant_script(text) in UNSPACED else MAX_WORDS
    longest = min(most, len(read_keys(text)) // 2)
    if longest < MIN_UNITS:
        return
    # Every window of the longest length, or a shorter run as a whole.
    windows = [
        run[start : start + longest]
        for run in _runs(text)
        if len(run) >= MIN_UNITS
        for start in range(max(len(run) - longest, 0) + 1)
    ]
    weights = [sum(rarity(u.key) for u in w if u.key not in STOP_WORDS) for w in windows]
    for place in sorted(range(len(windows)), key=lambda place: -weights[place]):
        kept = _trim(windows[place])
        phrase = " ".join(text[kept[0].start : kept[-1].end].split())
        salient = sum(unit.key not in STOP_WORDS for unit in kept)
        if len(phrase) <= MAX_PHRASE_CHARS and salient >= MIN_SALIENT:
            yield phrase


def _runs(text: str) -> Iterator[list[Unit]]:
    """Yield the units of a text in runs that no sentence or line end interrupts."""
    run: list[Unit] = []
    for unit in _units(text):
        # Grams overlap: the gap is then empty.
        if run and _BREAK.search(text, run[-1].end, max(unit.start, run[-1].end)):
            yield run
            run = []
        run.append(unit)
    if run:
        yield run


def _trim(window: Sequence[Unit]) -> Sequence[Unit]:
    """Return the window without stop words at its ends, never below the shortest length."""
    first, stop = 0, len(window)
    while stop - first > MIN_UNITS and window[stop - 1].key in STOP_WORDS:
        stop -= 1
    while stop - first > MIN_UNITS and window[first].key in STOP_WORDS:
        first += 1
    return window[first:stop]


def _units(text: str) -> Iterator[Unit]:
    for match in _WORD_OR_RUN.finditer(text):
        start, end = match.span()
        if match.lastgroup == "run":
            for at in range(start, max(end - NGRAM_CHARS, start) + 1):
                stop = min(at + NGRAM_CHARS, end)
                yield Unit(at, stop, text[at:stop])
        else:
            yield Unit(start, end, match.group().casefold())


# The index of a whole corpus for exact queries, in some 500 bytes a memory: the folded texts as
# UTF-8, 4 bytes a content word and the vocabulary.

NEAR_DUPLICATE = 0.8  # Jaccard of memories that answer alike: lower skips mere topics
_READ_AT_ONCE = 8_192  # memories whose words are found at once
_END = b"\n"  # between two folded texts, which hold single spaces only: no phrase runs over it


class ExactCorpus:
    """Which memories hold which words, and their folded texts; places number them."""

    def __init__(self, records: Iterable[MemoryRecord]) -> None:
        import polars as pl

        known = self._vocabulary = dict[str, int]()
        words, sizes = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        folded, ends, rest = bytearray(), array("q"), iter(records)
        while some := list(islice(rest, _READ_AT_ONCE)):
            found = _content_words([record.content for record in some])
            distinct = found["word"].unique()
            numbers = [known.setdefault(word, len(known)) for word in distinct]
            numbered = pl.DataFrame({"word": distinct, "code": pl.Series(numbers, dtype=pl.Int32)})
            codes = found.join(numbered, on="word", maintain_order="left")["code"]
            words.append(codes.to_numpy())
            sizes.append(np.bincount(found["row"].to_numpy(), minlength=len(some)))
            for record in some:
                # Keywords and tags are searched too: a phrase found there is not unique either.
                parts = record.content, record.expanded_keywords, record.tags
                folded += _encoded(fold_text("\n".join(parts))) + _END
                ends.append(len(folded))
        # Distinct content words of every memory, shape (n,).
        self.sizes, self._words = np.concatenate(sizes), np.concatenate(words)
        self._starts = np.concatenate(([0], np.cumsum(self.sizes)))
        self._frequencies = np.bincount(self._words, minlength=len(self._vocabulary))
        self._folded, self._ends = folded, ends
        self._repeated = np.zeros(len(self.sizes), dtype=np.bool_)

    def rarity(self, key: str) -> float:
        """Return the inverse document frequency of a word, at least 0."""
        number = self._vocabulary.get(key)
        if number is None:
            return 0.0
        return math.log(len(self.sizes) / int(self._frequencies[number]))

    def has_near_duplicate(self, place: int) -> bool:
        """Return whether another memory has nearly the same content words."""
        if not self._repeated[place]:
            words = self._words[self._starts[place] : self._starts[place + 1]]
            shared = self._shared(words)
            similar = shared / (self.sizes + len(words) - shared) >= NEAR_DUPLICATE
            if np.count_nonzero(similar) > 1:  # itself and another
                self._repeated |= similar
        return bool(self._repeated[place])

    def is_unique(self, phrase: str, place: int) -> bool:
        """Return whether the phrase, case-folded, occurs in this memory and in no other."""
        sought = _encoded(fold_text(phrase))
        start, end = self._ends[place - 1] if place else 0, self._ends[place]
        if self._folded.find(sought, start, end) < 0:
            return False  # folding joined a mark from outside of the phrase to it
        return self._folded.find(sought, 0, start) < 0 and self._folded.find(sought, end) < 0

    def _shared(self, words: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return how many of some words each memory has, shape (n,)."""
        is_asked = np.zeros(len(self._vocabulary), dtype=np.bool_)
        is_asked[words] = True
        held = np.flatnonzero(is_asked[self._words])
        memories = np.searchsorted(self._starts, held, side="right") - 1
        return np.bincount(memories, minlength=len(self.sizes))


def _content_words(contents: Sequence[str]) -> pl.DataFrame:
    """Return the distinct content words of every text, by its row."""
    import polars as pl

    plain = pl.Series([text if _is_plain(text) else "" for text in contents], dtype=pl.String)
    read = plain.str.to_lowercase().str.extract_all(_ASCII_WORD.pattern)
    other = [(n, read_keys(text)) for n, text in enumerate(contents) if not _is_plain(text)]
    schema = {"row": pl.UInt32, "word": pl.List(pl.String)}
    both = [
        read.alias("word").to_frame().with_row_index("row"),
        pl.DataFrame(other, schema, orient="row"),
    ]
    words = pl.concat(both).explode("word").drop_nulls().unique()
    return words.filter(~pl.col("word").is_in(STOP_WORDS)).sort("row")


def _encoded(text: str) -> bytes:
    """Return a text as bytes that hold another's exactly where the text holds the other."""
    return text.encode("utf-8", "surrogatepass")


# Queries built from a corpus without a model: a rare phrase of one memory, as it is written there.
# They favour lexical search by construction, as reports must note: they can show that
# something broke or that literal lookups suffer, never that one ranking is better than another.

STRATUM = "exact"
DEFAULT_QUERIES = 60  # more find smaller drops; rankings settle at 50 (Voorhees and Buckley 2002)
DEFAULT_SEED = 0  # another one chooses other memories; a fixed one keeps nights comparable
MIN_KEYS = 6  # content words of the shortest memory used: a phrase of less is nearly all of it
PHRASES_TRIED = 8  # of one memory: bounds time on corpora that repeat themselves
EXAMINED_PER_QUERY = 10  # memories: bounds time where nearly all are skipped, for fewer queries


def build_exact_queries(
    records: Sequence[MemoryRecord], n: int = DEFAULT_QUERIES, seed: int = DEFAULT_SEED
) -> tuple[Query, ...]:
    """Build up to `n` queries that repeat a phrase of exactly one memory of the whole corpus."""
    # Memories are taken in the order of a hash of their content: one that is added displaces at
    # most one other. Left out are memories of named users (a recall that names no user cannot see
    # them), short ones, near duplicates, and those without a phrase of their
    # own.
    hashed = (
        (hash_text(str(seed), record.content), record.memory_id, place, record)
        for place, record in enumerate(records)
    )
    looked_at = heapq.nsmallest(n * EXAMINED_PER_QUERY, hashed, key=lambda found: found[:3])
    corpus = ExactCorpus(records if looked_at else ())
    asked = (
        Query(f"{STRATUM}-{memory_id}", phrase, STRATUM, (memory_id,))
        for _, memory_id, place, record in looked_at
        if (phrase := _own_phrase(corpus, place, record)) is not None
    )
    return tuple(sorted(islice(asked, n), key=lambda query: query.query_id))


def _own_phrase(corpus: ExactCorpus, place: int, record: MemoryRecord) -> str | None:
    """Return the rarest phrase that only this memory holds; None if it is unsuitable."""
    if record.user is not None or corpus.sizes[place] < MIN_KEYS:
        return None
    if corpus.has_near_duplicate(place):
        return None
    phrases = islice(rank_phrases(record.content, corpus.rarity), PHRASES_TRIED)
    return next((phrase for phrase in phrases if corpus.is_unique(phrase, place)), None)
